/* `exogpu bench device`: how fast a device is through the API, from where this command runs.
 *
 * Everything goes through memory.* and compute.*, as a program's calls would: writes and reads in a window of pieces,
 * copies and kernels on the device. Each figure is the median of a few rounds; memory is written before anything is
 * timed. Beside them stands what the maker says, where that is known; nothing is estimated. */
#include "common/base/clock.h"
#include "common/net/ws/ws.h"
#include "engine/device/datasheet.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	ROUNDS = 5,
	WINDOW = 6,                // pieces under way
	PIECE_BYTES = 1024 * 1024, // of a transfer
	TRANSFER_BYTES = 64 * PIECE_BYTES,
	COPIES = 16,         // on the device, one behind the other
	COPIES_SOFTWARE = 2, // each takes so long that its call does not count
	LAUNCHES = 200,      // empty ones
	CALL_MS = 120000,
	MATMUL_SMALLEST = 256,
	MATMUL_LARGEST = 8192,
	MATMUL_LONG_US = 100000, // a run this long is told; shorter ones are tried larger
};

struct figures {                               // negative: not measured
	double write, read, copy, fill, saxpy; // bytes per second; of copy, fill and saxpy read and written together
	double matmul;                         // floating-point operations per second
	double launch_us;
	int64_t matmul_size;
};

struct bench {
	struct client *client;
	const char *device_id, *name;
	bool software;               // or the CPU: less memory is used, since touching it first takes longest
	int64_t bytes;               // of each of the two buffers
	struct json *x, *y, *module; // answers with their ids
	struct net_frame *written;   // (PIECE_BYTES), random floats from 1 to 2
	bool progress;
	struct figures figures;
};

static void tell(const struct bench *bench, const char *what)
{
	if (bench->progress)
		fprintf(stderr, "\r\x1b[K%s: %s", bench->name, what);
}

static int compare(const void *a, const void *b)
{
	double one = *(const double *)a, two = *(const double *)b;
	return (one > two) - (one < two);
}

static double median(double values[ROUNDS])
{
	qsort(values, ROUNDS, sizeof *values, compare);
	return values[ROUNDS / 2];
}

static const char *allocation_of(const struct json *answer)
{
	return json_get_string(answer, "allocation_id", "");
}

static enum status ask(struct bench *bench, const char *method, struct json *params, struct json **result,
		       struct error *error)
{
	struct client_wait wait = {.timeout_ms = CALL_MS, .result = result};
	*result = NULL;
	enum status status = client_send(bench->client, &(struct client_call){.method = method, .params = params},
					 &wait.id, error);
	return status ? status : client_wait(bench->client, &wait, error);
}

static enum status allocate(struct bench *bench, struct json **answer, struct error *error)
{
	struct json *params = json_new_object();
	json_set_string(params, "device_id", bench->device_id);
	json_set_integer(params, "bytes", bench->bytes);
	json_set_string(params, "label", "exogpu bench device");
	return ask(bench, "memory.allocate", params, answer, error);
}

static enum status load(struct bench *bench, struct error *error)
{
	struct json *params = json_new_object();
	json_set_string(params, "device_id", bench->device_id);
	json_set_string(params, "format", "builtin");
	return ask(bench, "compute.load", params, &bench->module, error);
}

// One round of pieces to or from the device, WINDOW of them under way.
static enum status transfer_round(struct bench *bench, bool write, double *seconds, struct error *error)
{
	int64_t ids[WINDOW], began_ns = clock_steady_ns();
	const int pieces = (int)(TRANSFER_BYTES / PIECE_BYTES);
	enum status status = STATUS_OK;
	for (int i = 0; !status && i < pieces + WINDOW; i++) {
		if (i >= WINDOW) {
			struct client_wait wait = {.id = ids[i % WINDOW], .timeout_ms = CALL_MS};
			wait.body_bytes = write ? 0 : PIECE_BYTES;
			status = client_wait(bench->client, &wait, error);
		}
		if (status || i >= pieces)
			continue;
		struct json *params = json_new_object();
		json_set_string(params, "allocation_id", allocation_of(bench->x));
		json_set_integer(params, "offset", (int64_t)i * PIECE_BYTES % (bench->bytes - PIECE_BYTES + 1));
		if (!write)
			json_set_integer(params, "bytes", PIECE_BYTES);
		struct client_call call = {.method = write ? "memory.write" : "memory.read",
					   .params = params,
					   .body = write ? bench->written : NULL};
		status = client_send(bench->client, &call, &ids[i % WINDOW], error);
	}
	*seconds = (double)(clock_steady_ns() - began_ns) * 1e-9;
	return status;
}

static enum status transfer(struct bench *bench, bool write, double *rate, struct error *error)
{
	double seconds, rates[ROUNDS];
	enum status status = transfer_round(bench, write, &seconds, error); // touches what it uses
	for (int round = 0; !status && round < ROUNDS; round++) {
		status = transfer_round(bench, write, &seconds, error);
		rates[round] = TRANSFER_BYTES / seconds;
	}
	if (!status)
		*rate = median(rates);
	return status;
}

static struct json *copy_params(const struct json *from, const struct json *to, int64_t to_offset, int64_t bytes)
{
	struct json *params = json_new_object();
	json_set_string(params, "from", allocation_of(from));
	json_set_integer(params, "from_offset", 0);
	json_set_string(params, "to", allocation_of(to));
	json_set_integer(params, "to_offset", to_offset);
	json_set_integer(params, "bytes", bytes);
	return params;
}

// What was written, again and again until x is full, and y like it: zeros are cheaper to move and to multiply than
// data is.
static enum status spread(struct bench *bench, struct error *error)
{
	struct json *answer = NULL;
	enum status status = STATUS_OK;
	int64_t full = TRANSFER_BYTES < bench->bytes ? TRANSFER_BYTES : bench->bytes;
	tell(bench, "filling its memory");
	while (!status && full < bench->bytes) {
		int64_t more = full < bench->bytes - full ? full : bench->bytes - full;
		status = ask(bench, "memory.copy", copy_params(bench->x, bench->x, full, more), &answer, error);
		json_destroy(&answer);
		full += more;
	}
	if (!status)
		status = ask(bench, "memory.copy", copy_params(bench->x, bench->y, 0, bench->bytes), &answer, error);
	json_destroy(&answer);
	return status;
}

static int copies_of(const struct bench *bench)
{
	return bench->software ? COPIES_SOFTWARE : COPIES;
}

static enum status copy_round(struct bench *bench, double *seconds, struct error *error)
{
	int64_t ids[COPIES], began_ns = clock_steady_ns();
	enum status status = STATUS_OK;
	int sent = 0;
	for (; !status && sent < copies_of(bench); sent++) {
		struct json *params = copy_params(bench->x, bench->y, 0, bench->bytes);
		status = client_send(bench->client, &(struct client_call){.method = "memory.copy", .params = params},
				     &ids[sent], error);
	}
	for (int i = 0; !status && i < sent; i++)
		status = client_wait(bench->client, &(struct client_wait){.id = ids[i], .timeout_ms = CALL_MS}, error);
	*seconds = (double)(clock_steady_ns() - began_ns) * 1e-9;
	return status;
}

static enum status copy(struct bench *bench, struct error *error)
{
	double seconds, rates[ROUNDS];
	enum status status = copy_round(bench, &seconds, error);
	for (int round = 0; !status && round < ROUNDS; round++) {
		status = copy_round(bench, &seconds, error);
		rates[round] = 2.0 * (double)bench->bytes * copies_of(bench) / seconds;
	}
	if (!status)
		bench->figures.copy = median(rates);
	return status;
}

struct argument {
	const char *key;
	const struct json *allocation;
	double number;
};

static enum status launch(struct bench *bench, const char *kernel, const struct argument *arguments, size_t count,
			  double *device_us, struct error *error)
{
	struct json *params = json_new_object(), *args = json_new_array(), *answer;
	json_set_string(params, "module_id", json_get_string(bench->module, "module_id", ""));
	json_set_string(params, "kernel", kernel);
	for (size_t i = 0; i < count; i++) {
		struct json *one = json_new_object();
		if (arguments[i].allocation)
			json_set_string(one, "allocation_id", allocation_of(arguments[i].allocation));
		else
			json_set_number(one, arguments[i].key, arguments[i].number);
		json_push(args, one);
	}
	json_set(params, "args", args);
	enum status status = ask(bench, "compute.launch", params, &answer, error);
	*device_us = json_get_number(answer, "device_us", 0);
	json_destroy(&answer);
	return status;
}

// The rate at which a kernel moves `bytes` in all, from the median of its time on the device.
static enum status kernel_rate(struct bench *bench, const char *kernel, const struct argument *arguments, size_t count,
			       double bytes, double *rate, struct error *error)
{
	double us, times[ROUNDS];
	enum status status = launch(bench, kernel, arguments, count, &us, error);
	for (int round = 0; !status && round < ROUNDS; round++)
		status = launch(bench, kernel, arguments, count, &times[round], error);
	us = status ? 0 : median(times);
	if (us > 0)
		*rate = bytes / (us * 1e-6);
	return status;
}

static enum status kernels(struct bench *bench, struct error *error)
{
	double n = (double)(bench->bytes / 4);
	const struct argument fill[] = {{.allocation = bench->y}, {"f32", NULL, 1}, {"u64", NULL, n}};
	const struct argument saxpy[] = {
		{.allocation = bench->y}, {.allocation = bench->x}, {"f32", NULL, 0.5}, {"u64", NULL, n}};
	tell(bench, "fill_f32 and saxpy_f32");
	enum status status = kernel_rate(bench, "fill_f32", fill, 3, 4 * n, &bench->figures.fill, error);
	if (!status)
		status = kernel_rate(bench, "saxpy_f32", saxpy, 4, 12 * n, &bench->figures.saxpy, error);
	return status;
}

// The largest product that is not boring: sizes double until one run takes long enough to be told.
static enum status matmul(struct bench *bench, struct error *error)
{
	enum status status = STATUS_OK;
	double us = 0, times[ROUNDS];
	int64_t n = MATMUL_SMALLEST;
	for (; !status; n *= 2) {
		// c in y; a and b side by side in x would need offsets, which arguments do not have: both are x.
		const struct argument arguments[] = {{.allocation = bench->y}, {.allocation = bench->x},
						     {.allocation = bench->x}, {"u64", NULL, (double)n},
						     {"u64", NULL, (double)n}, {"u64", NULL, (double)n}};
		tell(bench, "matmul_f32");
		if (n == MATMUL_SMALLEST) // a first run may be compiled
			status = launch(bench, "matmul_f32", arguments, 6, &us, error);
		if (!status)
			status = launch(bench, "matmul_f32", arguments, 6, &us, error);
		bool last = us >= MATMUL_LONG_US || 2 * n > MATMUL_LARGEST || 16 * n * n > bench->bytes;
		for (int round = 0; !status && last && round < ROUNDS; round++)
			status = launch(bench, "matmul_f32", arguments, 6, &times[round], error);
		if (status || !last)
			continue;
		us = median(times);
		bench->figures.matmul_size = n;
		if (us > 0)
			bench->figures.matmul = 2.0 * (double)n * (double)n * (double)n / (us * 1e-6);
		break;
	}
	return status;
}

static enum status empty_launches(struct bench *bench, struct error *error)
{
	const struct argument arguments[] = {{.allocation = bench->y}, {"f32", NULL, 0}, {"u64", NULL, 1}};
	double us, times[ROUNDS];
	enum status status = STATUS_OK;
	tell(bench, "empty launches");
	for (int round = 0; !status && round < ROUNDS; round++) {
		int64_t began_ns = clock_steady_ns();
		for (int i = 0; !status && i < LAUNCHES; i++)
			status = launch(bench, "fill_f32", arguments, 3, &us, error);
		times[round] = (double)(clock_steady_ns() - began_ns) * 1e-3 / LAUNCHES;
	}
	if (!status)
		bench->figures.launch_us = median(times);
	return status;
}

static enum status measure(struct bench *bench, struct error *error)
{
	tell(bench, "allocating");
	enum status status = allocate(bench, &bench->x, error);
	if (!status)
		status = allocate(bench, &bench->y, error);
	if (!status)
		status = load(bench, error);
	if (!status) {
		tell(bench, "writing");
		status = transfer(bench, true, &bench->figures.write, error);
	}
	if (!status) {
		tell(bench, "reading");
		status = transfer(bench, false, &bench->figures.read, error);
	}
	if (!status)
		status = spread(bench, error);
	if (!status)
		status = kernels(bench, error);
	if (!status) {
		tell(bench, "copying on the device");
		status = copy(bench, error);
	}
	if (!status)
		status = matmul(bench, error);
	if (!status)
		status = empty_launches(bench, error);
	return status;
}

static void release(struct bench *bench)
{
	struct json *const held[] = {bench->x, bench->y};
	for (size_t i = 0; i < 2; i++) {
		struct json *params = json_new_object(), *answer = NULL;
		json_set_string(params, "allocation_id", allocation_of(held[i]));
		if (held[i])
			ask(bench, "memory.free", params, &answer, NULL); // a device that was lost has freed it already
		else
			json_destroy(&params);
		json_destroy(&answer);
	}
	json_destroy(&bench->x);
	json_destroy(&bench->y);
	json_destroy(&bench->module);
	if (bench->progress)
		fprintf(stderr, "\r\x1b[K");
}

static void print_rate(const char *what, double rate, const char *unit, double peak)
{
	char text[FORMAT_BYTES], most[FORMAT_BYTES];
	printf("  %-22s %12s", what, format_rate(rate, unit, text));
	if (peak > 0 && rate >= 0)
		printf("  %3.0f %% of %s", 100 * rate / peak, format_rate(peak, unit, most));
	printf("\n");
}

static void print_figures(const struct bench *bench, const struct datasheet *sheet)
{
	const struct figures *figures = &bench->figures;
	double bandwidth = sheet ? sheet->memory_bytes_per_s : 0, flops = sheet ? sheet->f32_flops_per_s : 0;
	char line[400], matmul_name[40];
	snprintf(line, sizeof line, "%s (%s)%s", bench->name, bench->device_id,
		 sheet ? ", compared with its maker's data sheet" : "; its data sheet is not known here");
	command_print_text(stdout, "", line);
	snprintf(matmul_name, sizeof matmul_name, "matmul_f32, n = %lld", (long long)figures->matmul_size);
	print_rate("write", figures->write, "B/s", 0);
	print_rate("read", figures->read, "B/s", 0);
	print_rate("copy on the device", figures->copy, "B/s", bandwidth);
	print_rate("fill_f32", figures->fill, "B/s", bandwidth);
	print_rate("saxpy_f32", figures->saxpy, "B/s", bandwidth);
	print_rate(matmul_name, figures->matmul, "FLOP/s", flops);
	printf("  %-22s %9.1f µs\n", "empty launch", figures->launch_us);
	fflush(stdout);
}

static void set_figure(struct json *object, const char *name, double value)
{
	json_set(object, name, value >= 0 ? json_new_number(value) : json_new_null());
}

static struct json *figures_json(const struct bench *bench, const struct datasheet *sheet)
{
	const struct figures *figures = &bench->figures;
	struct json *one = json_new_object();
	json_set_string(one, "device_id", bench->device_id);
	json_set_string(one, "name", bench->name);
	set_figure(one, "write_bytes_per_s", figures->write);
	set_figure(one, "read_bytes_per_s", figures->read);
	set_figure(one, "copy_bytes_per_s", figures->copy);
	set_figure(one, "fill_bytes_per_s", figures->fill);
	set_figure(one, "saxpy_bytes_per_s", figures->saxpy);
	set_figure(one, "matmul_flops_per_s", figures->matmul);
	json_set_integer(one, "matmul_size", figures->matmul_size);
	set_figure(one, "launch_us", figures->launch_us);
	set_figure(one, "datasheet_memory_bytes_per_s", sheet ? sheet->memory_bytes_per_s : -1);
	set_figure(one, "datasheet_f32_flops_per_s", sheet ? sheet->f32_flops_per_s : -1);
	return one;
}

// Two buffers: large enough that no cache holds them, small enough that they are there.
static int64_t buffer_bytes(const struct json *device, bool software)
{
	const int64_t most = software ? 128ll << 20 : 1ll << 30, least = 4 * PIECE_BYTES;
	int64_t memory = json_get_integer(device, "memory_bytes", most), bytes = memory / 16 & ~(int64_t)0xfffff;
	return bytes < least ? least : bytes > most ? most : bytes;
}

static enum status bench_device(struct client *client, const struct json *device, struct json *results,
				struct error *error)
{
	char name[128]; // of the server's word: it stands on the terminal
	snprintf(name, sizeof name, "%s", json_get_string(device, "name", ""));
	text_clean(name);
	struct bench bench = {.client = client,
			      .device_id = json_get_string(device, "device_id", ""),
			      .name = name,
			      .software = !strcmp(json_get_string(device, "kind", ""), "cpu"),
			      .written = net_frame_alloc(PIECE_BYTES),
			      .progress = isatty(STDERR_FILENO),
			      .figures = {-1, -1, -1, -1, -1, -1, -1, 0}};
	if (!bench.written)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	bench.bytes = buffer_bytes(device, bench.software);
	uint32_t seed = (uint32_t)clock_steady_ns();
	for (size_t i = 0; i < PIECE_BYTES; i += sizeof(float)) {
		seed = seed * 1664525 + 1013904223;
		float value = 1 + (float)(seed >> 8) * 0x1p-24f;
		memcpy(net_frame_data(bench.written) + i, &value, sizeof value);
	}
	enum status status = measure(&bench, error);
	release(&bench);
	const struct datasheet *sheet = datasheet_find(name);
	if (!status && results)
		json_push(results, figures_json(&bench, sheet));
	else if (!status)
		print_figures(&bench, sheet);
	net_frame_unref(&bench.written);
	return status;
}

// Whether a device can be asked at all; the others are passed over when none is named.
static bool usable(const struct json *device)
{
	const char *state = json_get_string(device, "state", "");
	return strcmp(state, "offline") != 0 && strcmp(state, "unsupported") != 0 && strcmp(state, "draining") != 0 &&
	       strcmp(state, "resting") != 0;
}

static enum status bench_all(struct client *client, const struct cli_arguments *arguments, struct json *results,
			     struct error *error)
{
	struct json *snapshot = NULL;
	const struct json *device = NULL;
	size_t count = 0;
	enum status status = arguments->operand
				     ? command_device(client, arguments->operand, &snapshot, &device, error)
				     : client_ask(client, &(struct client_call){.method = "cluster.snapshot"},
						  &snapshot, error);
	if (!status && arguments->operand && !device)
		status = error_set(error, STATUS_FORBIDDEN,
				   "this token may not list devices: it lacks the scope observe");
	if (!status && device)
		status = bench_device(client, device, results, error);
	else if (!status)
		for (const struct json *one = json_first(json_get(snapshot, "devices")); one && !status;
		     one = json_next(one)) {
			if (!usable(one))
				continue;
			if (count++ && !results)
				printf("\n");
			status = bench_device(client, one, results, error);
		}
	if (!status && !device && !count)
		status = error_set(error, STATUS_NOT_FOUND, "there is no device that could be measured");
	json_destroy(&snapshot);
	return status;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *answer = json_new_object(), *results = arguments->json ? json_new_array() : NULL;
	int result = command_open(arguments, &target, &client, error);
	if (!result)
		result = bench_all(client, arguments, results, error) ? 1 : 0;
	client_close(&client);
	if (results)
		json_set(answer, "devices", results);
	if (!result && arguments->json)
		result = command_print_json(answer, error) ? 1 : 0;
	json_destroy(&answer);
	return result;
}

const struct cli_command bench_device_command = {
	.name = "bench device",
	.operand = "[DEVICE]",
	.summary = "measure how fast a device is, through the API",
	.more = "DEVICE is an id, a name, or the beginning of either; without it every device is measured.\n"
		"write and read go from this command's memory through the server to the device's and back, six pieces\n"
		"of a MiB under way; the others are the device's own.\n"
		"Needs the scopes observe, allocate and compute. It disturbs what else runs on the device.\n",
	.run = run,
};
