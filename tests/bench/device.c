/* Measures the devices of this machine, beside their limits: memory, kernels, launches, over the public interface.
 *
 *   device [BACKEND...]    cpu, vulkan, cuda; all of them without arguments
 *
 * Every figure is the median of 5 rounds after one that is not counted, on memory that was touched before and holds
 * random numbers. What it is compared with stands beside it:
 *
 *   on a processor    the same done by plain loops of this program on as many threads as the device uses, in rounds
 * that are interleaved with the device's: memcpy, memset, reading, a loop of multiply-adds in registers for matmul, and
 * for a launch two threads that wake each other on a GPU          the maker's figure (engine/device/datasheet.h) where
 * it is known; for write and read, which begin and end in this program's memory, the driver's copy from and to
 * page-locked memory
 *
 * Bytes are those that memory sees: a copy counts twice, saxpy three times. Prints one table in Markdown a device. */
#include "engine/device/datasheet.h"
#include "engine/include/exogpu/exogpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, LAUNCHES = 500, THREADS = 1024, MATMULS = 3 };
static const uint64_t least_bytes = 64ull << 20, most_bytes = 1ull << 30;
static const int64_t patience_ns = 120000000000;

struct bench {
	struct exogpu_device *device;
	const struct exogpu_device_limits *limits;
	const struct datasheet *datasheet; // NULL: not known
	struct exogpu_module *builtin;
	struct exogpu_stream *stream;
	struct exogpu_buffer *a, *b, *c; // (bytes) of the device
	struct exogpu_buffer *host;      // (bytes)
	uint8_t *plain[2];               // (bytes) of this program
	uint64_t bytes;
	uint64_t size; // of the matrices
	unsigned threads;
	struct error error;
};

static void check(struct bench *bench, enum status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "device: %s: %s\n", what, bench->error.message);
	exit(1);
}

#define OK(call) check(bench, (call), #call)

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// ---- what the device does: seconds of one round ----

static double finish(struct bench *bench, double began_s)
{
	uint64_t point;
	OK(exogpu_mark(bench->stream, &point, &bench->error));
	OK(exogpu_wait(bench->stream, point, patience_ns, &bench->error));
	return now_s() - began_s;
}

static double run_write(struct bench *bench)
{
	double began_s = now_s();
	OK(exogpu_write(bench->a, 0, bench->plain[0], bench->bytes, &bench->error));
	return now_s() - began_s;
}

static double run_read(struct bench *bench)
{
	double began_s = now_s();
	OK(exogpu_read(bench->plain[1], bench->a, 0, bench->bytes, &bench->error));
	return now_s() - began_s;
}

static double copy(struct bench *bench, struct exogpu_buffer *to, struct exogpu_buffer *from)
{
	struct exogpu_copy copy = {.to = to, .from = from, .bytes = bench->bytes};
	double began_s = now_s();
	OK(exogpu_copy(bench->stream, &copy, &bench->error));
	return finish(bench, began_s);
}

static double run_copy_up(struct bench *bench)
{
	return copy(bench, bench->a, bench->host);
}

static double run_copy_down(struct bench *bench)
{
	return copy(bench, bench->host, bench->a);
}

static double run_copy(struct bench *bench)
{
	return copy(bench, bench->b, bench->a);
}

static double run_fill(struct bench *bench)
{
	double began_s = now_s();
	OK(exogpu_fill(bench->stream, bench->b, 0, bench->bytes, 0x5a, &bench->error));
	return finish(bench, began_s);
}

static double launch(struct bench *bench, const char *kernel, const struct exogpu_argument *arguments, unsigned count,
		     unsigned times)
{
	struct exogpu_launch launch = {
		.module = bench->builtin, .kernel = kernel, .arguments = arguments, .argument_count = count};
	double began_s = now_s();
	for (unsigned i = 0; i < times; i++)
		OK(exogpu_launch(bench->stream, &launch, &bench->error));
	return finish(bench, began_s);
}

#define BUFFER(which) \
	{ \
		.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = (which) \
	}
#define U64(value) \
	{ \
		.kind = EXOGPU_ARGUMENT_U64, .u64 = (value) \
	}
#define F32(value) \
	{ \
		.kind = EXOGPU_ARGUMENT_F32, .f32 = (value) \
	}

static double run_fill_f32(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->b), F32(0.5f), U64(bench->bytes / 4)};
	return launch(bench, "fill_f32", arguments, 3, 1);
}

static double run_saxpy(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->b), BUFFER(bench->a), F32(0.001f), U64(bench->bytes / 4)};
	return launch(bench, "saxpy_f32", arguments, 4, 1);
}

static double run_sum(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->c), BUFFER(bench->a), U64(bench->bytes / 4)};
	return launch(bench, "sum_f32", arguments, 3, 1);
}

static double run_stream_read(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->a), BUFFER(bench->c), U64(bench->bytes / 16)};
	return launch(bench, "stream_read", arguments, 3, 1);
}

static double run_matmul(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->c), BUFFER(bench->a), BUFFER(bench->b),
					      U64(bench->size), U64(bench->size), U64(bench->size)};
	return launch(bench, "matmul_f32", arguments, 6, 1);
}

static double run_launch(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->c), F32(1), U64(1)};
	double all_s = 0;
	for (unsigned i = 0; i < LAUNCHES; i++)
		all_s += launch(bench, "fill_f32", arguments, 3, 1);
	return all_s;
}

static double run_launch_queued(struct bench *bench)
{
	struct exogpu_argument arguments[] = {BUFFER(bench->c), F32(1), U64(1)};
	return launch(bench, "fill_f32", arguments, 3, LAUNCHES);
}

// ---- what a processor could do: the same in plain loops ----

struct share {
	struct bench *bench;
	void (*work)(struct share *share);
	pthread_barrier_t *begin;
	uint64_t from, bytes; // of the memory, this thread's
	double began_s, ended_s;
};
static struct share shares[THREADS];

static void *share_thread(void *context)
{
	struct share *share = context;
	pthread_barrier_wait(share->begin);
	share->began_s = now_s();
	share->work(share);
	share->ended_s = now_s();
	return NULL;
}

// Seconds from the first thread's begin to the last one's end.
static double on_threads(struct bench *bench, unsigned count, void (*work)(struct share *share))
{
	static pthread_t threads[THREADS];
	pthread_barrier_t begin;
	uint64_t part = bench->bytes / count & ~(uint64_t)4095;
	pthread_barrier_init(&begin, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		shares[i] = (struct share){
			.bench = bench, .work = work, .begin = &begin, .from = i * part, .bytes = part};
		if (i + 1 == count)
			shares[i].bytes = bench->bytes - shares[i].from;
		if (pthread_create(&threads[i], NULL, share_thread, &shares[i]))
			check(bench, STATUS_UNAVAILABLE, "starting a thread");
	}
	double began_s = 0, ended_s = 0;
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		began_s = !i || shares[i].began_s < began_s ? shares[i].began_s : began_s;
		ended_s = shares[i].ended_s > ended_s ? shares[i].ended_s : ended_s;
	}
	pthread_barrier_destroy(&begin);
	return ended_s - began_s;
}

typedef float floats __attribute__((vector_size(16), may_alias));

static void work_memcpy(struct share *share)
{
	memcpy(share->bench->plain[1] + share->from, share->bench->plain[0] + share->from, share->bytes);
}

static void work_memset(struct share *share)
{
	memset(share->bench->plain[1] + share->from, 0x5a, share->bytes);
}

// Eight runs side by side, so that memory and not one chain of loads is what is waited for.
static void work_read(struct share *share)
{
	const floats *data = (const floats *)(share->bench->plain[0] + share->from);
	uint64_t run = share->bytes / sizeof(*data) / 8;
	floats sums[8] = {{0}};
	for (uint64_t i = 0; i < run; i++)
		for (uint64_t j = 0; j < 8; j++)
			sums[j] += data[j * run + i];
	for (int j = 1; j < 8; j++)
		sums[0] += sums[j];
	__asm__ volatile("" : : "r"(sums[0][0]));
}

static void work_saxpy(struct share *share)
{
	floats *y = (floats *)(share->bench->plain[1] + share->from);
	const floats *x = (const floats *)(share->bench->plain[0] + share->from);
	for (uint64_t i = 0; i < share->bytes / sizeof(*x); i++)
		y[i] += 0.001f * x[i];
}

static double limit_memcpy_one(struct bench *bench)
{
	return on_threads(bench, 1, work_memcpy);
}

static double limit_memcpy(struct bench *bench)
{
	return on_threads(bench, bench->threads, work_memcpy);
}

static double limit_memset(struct bench *bench)
{
	return on_threads(bench, bench->threads, work_memset);
}

static double limit_read(struct bench *bench)
{
	return on_threads(bench, bench->threads, work_read);
}

static double limit_saxpy(struct bench *bench)
{
	return on_threads(bench, bench->threads, work_saxpy);
}

// Multiply-adds that need nothing but registers: 12 sums, since each takes about 4 cycles and 2 begin in one.
enum { FMA_SUMS = 12, FMA_LOOPS = 10000000 };
#define FMA_LOOP(name, width, attribute) \
	attribute static void name(struct share *share) \
	{ \
		typedef float lanes __attribute__((vector_size(4 * (width)))); \
		lanes sums[FMA_SUMS], factor = (float)share->bytes * 1e-12f - (lanes){0}; \
		for (int j = 0; j < FMA_SUMS; j++) \
			sums[j] = factor * (float)j; /* each another, or the compiler makes one of them */ \
		for (int i = 0; i < FMA_LOOPS; i++) \
			_Pragma("GCC unroll 16") for (int j = 0; j < FMA_SUMS; j++) \
				sums[j] = sums[j] * factor + factor; \
		for (int j = 0; j < FMA_SUMS; j++) \
			__asm__ volatile("" : : "m"(sums[j])); \
	}
#define NOTHING
#ifdef __x86_64__
FMA_LOOP(fma_avx512, 16, __attribute__((target("avx512f"))))
FMA_LOOP(fma_avx2, 8, __attribute__((target("avx2,fma"))))
#endif
FMA_LOOP(fma_plain, 4, NOTHING)

// The loop of what this processor has, and how many floats it takes at once.
static void (*fma_loop(unsigned *width))(struct share *share)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f"))
		return *width = 16, fma_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return *width = 8, fma_avx2;
#endif
	return *width = 4, fma_plain;
}

// What all threads do in a second is the sum of what each does, however they are scheduled.
static double limit_fma(struct bench *bench)
{
	unsigned width;
	double rounds_per_s = 0;
	on_threads(bench, bench->threads, fma_loop(&width));
	for (unsigned i = 0; i < bench->threads; i++)
		rounds_per_s += 1 / (shares[i].ended_s - shares[i].began_s);
	return bench->threads / rounds_per_s;
}

static double fma_flops(const struct bench *bench)
{
	unsigned width;
	fma_loop(&width);
	return 2.0 * width * FMA_SUMS * FMA_LOOPS * bench->threads;
}

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned turn;
} hand = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void take_turns(unsigned mine)
{
	pthread_mutex_lock(&hand.lock);
	for (unsigned i = 0; i < LAUNCHES; i++) {
		while (hand.turn % 2 != mine)
			pthread_cond_wait(&hand.changed, &hand.lock);
		hand.turn++;
		pthread_cond_signal(&hand.changed);
	}
	pthread_mutex_unlock(&hand.lock);
}

static void *other_hand(void *context)
{
	(void)context;
	take_turns(1);
	return NULL;
}

// There and back, as often as run_launch launches.
static double limit_hand_over(struct bench *bench)
{
	pthread_t other;
	if (pthread_create(&other, NULL, other_hand, NULL))
		check(bench, STATUS_UNAVAILABLE, "starting a thread");
	double began_s = now_s();
	take_turns(0);
	pthread_join(other, NULL);
	return now_s() - began_s;
}

// ---- the table ----

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
	qsort(values, ROUNDS, sizeof(*values), by_value);
	return values[ROUNDS / 2];
}

struct row {
	const char *name, *unit;
	double amount; // of what the unit counts, in one round
	double (*run)(struct bench *bench);
	const char *limit_name; // NULL: not known
	double limit_amount;
	double (*limit)(struct bench *bench); // NULL: limit_rate
	double limit_rate;
	bool time; // the unit is of time for one of amount: less is better
};

static void print_row(struct bench *bench, const struct row *row)
{
	double seconds[ROUNDS], limit_seconds[ROUNDS];
	row->run(bench);
	for (int i = 0; i < ROUNDS; i++) {
		seconds[i] = row->run(bench);
		limit_seconds[i] = row->limit_name && row->limit ? row->limit(bench) : 0;
	}
	double rate = row->amount / median(seconds);
	double limit = row->limit ? row->limit_amount / median(limit_seconds) : row->limit_rate;
	if (row->time)
		printf("| %s | %.2f %s |", row->name, 1 / rate, row->unit);
	else
		printf("| %s | %.1f %s |", row->name, rate, row->unit);
	if (!row->limit_name)
		printf(" unknown | |\n");
	else if (row->time)
		printf(" %.2f %s, %s | %.2f times |\n", 1 / limit, row->unit, row->limit_name, limit / rate);
	else
		printf(" %.1f %s, %s | %.1f %% |\n", limit, row->unit, row->limit_name, 100 * rate / limit);
	fflush(stdout);
}

// A row whose limit is a plain loop on a processor, and the maker's figure for memory on a GPU.
static void memory_row(struct bench *bench, struct row row, double limit_times)
{
	row.unit = "GB/s";
	row.limit_amount = limit_times * (double)bench->bytes * 1e-9;
	if (!(bench->limits->capabilities & EXOGPU_CAN_SOFTWARE)) {
		row.limit = NULL;
		row.limit_name = bench->datasheet ? "data sheet" : NULL;
		row.limit_rate = bench->datasheet ? bench->datasheet->memory_bytes_per_s * 1e-9 : 0;
	}
	print_row(bench, &row);
}

// What begins or ends in this program's memory. On a GPU the limit of write and read is the driver's own copy.
static void host_rows(struct bench *bench)
{
	bool software = bench->limits->capabilities & EXOGPU_CAN_SOFTWARE;
	double amount = (double)bench->bytes * 1e-9;
	struct row rows[] = {
		{.name = "write", .run = run_write, .limit_name = "copy from host memory", .limit = run_copy_up},
		{.name = "read", .run = run_read, .limit_name = "copy to host memory", .limit = run_copy_down},
		{.name = "copy from host memory", .run = run_copy_up},
		{.name = "copy to host memory", .run = run_copy_down},
		{.name = "memcpy of this program on one thread", .run = limit_memcpy_one},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) - software; i++) {
		if (software) {
			rows[i].limit_name = i < 2 ? "memcpy on one thread" : "memcpy";
			rows[i].limit = i < 2 ? limit_memcpy_one : limit_memcpy;
		}
		rows[i].unit = "GB/s";
		rows[i].amount = rows[i].limit_amount = amount;
		print_row(bench, &rows[i]);
	}
}

static void write_floats(struct bench *bench, struct exogpu_buffer *to)
{
	float *values = (float *)bench->plain[0];
	uint64_t word = 1;
	for (uint64_t i = 0; i < bench->bytes / 4; i++) {
		word = word * 6364136223846793005u + 1442695040888963407u;
		values[i] = (float)(int32_t)(word >> 32) * 0x1p-31f;
	}
	memcpy(bench->plain[1], values, bench->bytes);
	OK(exogpu_write(to, 0, values, bench->bytes, &bench->error));
}

static void matmul_rows(struct bench *bench)
{
	static const uint64_t sizes[MATMULS] = {1024, 4096, 8192};
	bool software = bench->limits->capabilities & EXOGPU_CAN_SOFTWARE;
	double last_s = 0;
	for (int i = 0; i < MATMULS; i++) {
		char name[64];
		double n = (double)sizes[i];
		// Each is up to 64 times the one before; a device is not held for minutes.
		if (4 * sizes[i] * sizes[i] > bench->bytes || 64 * last_s > 4)
			return;
		bench->size = sizes[i];
		snprintf(name, sizeof(name), "matmul_f32 of %llu", (unsigned long long)sizes[i]);
		struct row row = {.name = name, .unit = "GFLOP/s", .amount = 2e-9 * n * n * n, .run = run_matmul};
		if (software) {
			row.limit_name = "multiply-adds in registers";
			row.limit = limit_fma;
			row.limit_amount = fma_flops(bench) * 1e-9;
		} else if (bench->datasheet) {
			row.limit_name = "data sheet";
			row.limit_rate = bench->datasheet->f32_flops_per_s * 1e-9;
		}
		print_row(bench, &row);
		last_s = run_matmul(bench);
	}
}

static void launch_rows(struct bench *bench)
{
	bool software = bench->limits->capabilities & EXOGPU_CAN_SOFTWARE;
	struct row row = {.name = "launch of one element, and wait", .run = run_launch};
	row.unit = "µs";
	row.amount = LAUNCHES * 1e-6;
	row.time = true;
	if (software) {
		row.limit_name = "two threads that wake each other";
		row.limit = limit_hand_over;
		row.limit_amount = LAUNCHES * 1e-6;
	}
	print_row(bench, &row);
	row.name = "launch of one element, queued";
	row.run = run_launch_queued;
	row.limit_name = NULL;
	row.limit = NULL;
	print_row(bench, &row);
}

static void print_table(struct bench *bench)
{
	double bytes = (double)bench->bytes * 1e-9;
	printf("| | median of %d | limit | of it |\n|---|---|---|---|\n", ROUNDS);
	host_rows(bench);
	memory_row(bench,
		   (struct row){.name = "copy on the device",
				.amount = 2 * bytes,
				.run = run_copy,
				.limit_name = "memcpy",
				.limit = limit_memcpy},
		   2);
	memory_row(bench,
		   (struct row){.name = "fill",
				.amount = bytes,
				.run = run_fill,
				.limit_name = "memset",
				.limit = limit_memset},
		   1);
	memory_row(bench,
		   (struct row){.name = "fill_f32",
				.amount = bytes,
				.run = run_fill_f32,
				.limit_name = "memset",
				.limit = limit_memset},
		   1);
	memory_row(bench,
		   (struct row){.name = "stream_read",
				.amount = bytes,
				.run = run_stream_read,
				.limit_name = "a loop that reads",
				.limit = limit_read},
		   1);
	memory_row(bench,
		   (struct row){.name = "sum_f32",
				.amount = bytes,
				.run = run_sum,
				.limit_name = "a loop that reads",
				.limit = limit_read},
		   1);
	write_floats(bench, bench->b);
	memory_row(bench,
		   (struct row){.name = "saxpy_f32",
				.amount = 3 * bytes,
				.run = run_saxpy,
				.limit_name = "the same loop",
				.limit = limit_saxpy},
		   3);
	matmul_rows(bench);
	launch_rows(bench);
}

// ---- devices ----

static void run_device(const struct exogpu_found_device *found)
{
	struct bench all = {.datasheet = datasheet_find(found->name)}, *bench = &all;
	struct exogpu_open open = {.backend = found->backend, .hardware_key = found->hardware_key};
	uint64_t total, left;
	cpu_set_t set;
	all.threads = !sched_getaffinity(0, sizeof(set), &set) ? (unsigned)CPU_COUNT(&set) : 1;
	all.threads = all.threads > THREADS ? THREADS : all.threads;
	OK(exogpu_device_open(&all.device, &open, &all.error));
	all.limits = exogpu_device_limits(all.device);
	OK(exogpu_device_memory(all.device, &total, &left, &all.error));
	all.bytes = all.limits->stream_bytes < least_bytes ? least_bytes : all.limits->stream_bytes;
	all.bytes = all.bytes > most_bytes ? most_bytes : all.bytes;
	while (all.bytes > left / 16 || all.bytes > all.limits->buffer_bytes)
		all.bytes /= 2;
	all.bytes &= ~(uint64_t)4095;
	printf("\n### %s (%s), %llu MiB of each buffer\n\n", found->name, found->backend,
	       (unsigned long long)(all.bytes >> 20));
	OK(exogpu_module_load(all.device, &all.builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, &all.error));
	OK(exogpu_stream_create(all.device, &all.stream, &all.error));
	struct exogpu_buffer **buffers[] = {&all.a, &all.b, &all.c};
	for (int i = 0; i < 3; i++)
		OK(exogpu_buffer_create(all.device, buffers[i], all.bytes, EXOGPU_MEMORY_DEVICE, &all.error));
	OK(exogpu_buffer_create(all.device, &all.host, all.bytes, EXOGPU_MEMORY_HOST, &all.error));
	for (int i = 0; i < 2; i++)
		if (posix_memalign((void **)&all.plain[i], 4096, all.bytes))
			check(bench, STATUS_OUT_OF_MEMORY, "memory of the program's own");
	for (int i = 0; i < 3; i++)
		write_floats(bench, *buffers[i]);
	run_copy_down(bench);
	print_table(bench);
	for (int i = 0; i < 3; i++)
		exogpu_buffer_destroy(buffers[i]);
	exogpu_buffer_destroy(&all.host);
	exogpu_stream_destroy(&all.stream);
	exogpu_module_unload(&all.builtin);
	exogpu_device_close(&all.device, NULL);
	free(all.plain[0]);
	free(all.plain[1]);
}

struct wanted {
	char **names;
	int count;
};

static void each_device(void *context, const struct exogpu_found_device *found)
{
	const struct wanted *wanted = context;
	bool take = !wanted->count;
	for (int i = 0; i < wanted->count; i++)
		take = take || !strcmp(wanted->names[i], found->backend);
	if (take && found->reason)
		printf("\n%s (%s) left out: %s\n", found->name, found->backend, found->reason);
	else if (take)
		run_device(found);
}

int main(int argc, char **argv)
{
	struct wanted wanted = {argv + 1, argc - 1};
	struct error error = {0};
	if (exogpu_find_devices(each_device, &wanted, &error)) {
		fprintf(stderr, "device: %s\n", error.message);
		return 1;
	}
	return 0;
}
