/* The kernels of the CPU, at every level of vector instructions that is here, on sizes around vectors, tiles and
 * pieces: against a reference in doubles, and the same whatever the number of threads. */
#include "engine/cpu/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { GUARD = 32, THREADS = 3 };
static const float guard = -77.25f;
static struct pool *pools[2]; // of one thread and of THREADS
static struct kernel_scratch scratch;

static uint64_t state_word = 1;

// Between -1 and 1.
static float next_float(void)
{
	state_word = state_word * 6364136223846793005ull + 1442695040888963407ull;
	return (float)(int32_t)(state_word >> 32) * 0x1p-31f;
}

// n values, and behind them what must stay as it is.
static float *values(size_t n, bool zero)
{
	float *all = malloc((n + GUARD) * sizeof(*all));
	for (size_t i = 0; i < n; i++)
		all[i] = zero ? 0 : next_float();
	for (size_t i = 0; i < GUARD; i++)
		all[n + i] = guard;
	return all;
}

static void check_guard(const float *all, size_t n, const char *what)
{
	for (size_t i = 0; i < GUARD; i++)
		if (all[n + i] != guard)
			fail_msg("%s: element %zu past the end of %zu is %g", what, i, n, (double)all[n + i]);
}

static uint64_t bits(float value)
{
	uint32_t word;
	memcpy(&word, &value, sizeof(word));
	return word;
}

static void run(const struct cpu_level *level, unsigned pool, const struct kernel_work *work)
{
	struct kernel_place place = {pools[pool], level, &scratch};
	struct error error = {0};
	if (kernel_scratch_need(&scratch, work->kernel, &error))
		fail_msg("scratch: %s", error.message);
	kernel_run(&place, work);
}

// Call `test` at every level, with one thread and with several.
static void each(void (*test)(const struct cpu_level *level, unsigned pool))
{
	const struct cpu_level *level;
	for (size_t i = 0; (level = cpu_level_get(i)); i++)
		for (unsigned pool = 0; pool < 2; pool++)
			test(level, pool);
}

static const size_t lengths[] = {1,  2,    7,      15,     16,     17,      31,      32,     33,
				 63, 1000, 262143, 262144, 262145, 1000003, 8388607, 8388609};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void vectors(const struct cpu_level *level, unsigned pool)
{
	for (size_t l = 0; l < LENGTHS; l++) {
		size_t n = lengths[l];
		float *x = values(n, false), *y = values(n, false), *was = malloc(n * sizeof(*was));
		memcpy(was, y, n * sizeof(*was));
		run(level, pool, &(struct kernel_work){BUILTIN_SAXPY_F32, {y, x}, {0, 0, bits(1.75f), n}});
		for (size_t i = 0; i < n; i++) {
			double wanted = 1.75 * (double)x[i] + (double)was[i];
			if (!(fabs((double)y[i] - wanted) <= 3e-7))
				fail_msg("%s saxpy %zu of %zu: %.9g, not %.9g", level->name, i, n, (double)y[i],
					 wanted);
		}
		check_guard(y, n, "saxpy");
		run(level, pool, &(struct kernel_work){BUILTIN_SAXPY_F32, {y, y}, {0, 0, bits(-1), n}});
		for (size_t i = 0; i < n; i++)
			if (y[i] != 0)
				fail_msg("%s saxpy in place %zu of %zu: %g", level->name, i, n, (double)y[i]);
		run(level, pool, &(struct kernel_work){BUILTIN_FILL_F32, {x}, {0, bits(2.5f), n}});
		for (size_t i = 0; i < n; i++)
			if (x[i] != 2.5f)
				fail_msg("%s fill %zu of %zu: %g", level->name, i, n, (double)x[i]);
		check_guard(x, n, "fill");
		free(x);
		free(y);
		free(was);
	}
}

static void test_vectors(void **state)
{
	(void)state;
	each(vectors);
}

// Within rounding of the reference, and to the last bit the same at all levels and numbers of threads.
static void test_sum(void **state)
{
	(void)state;
	for (size_t l = 0; l < LENGTHS; l++) {
		size_t n = lengths[l];
		const struct cpu_level *level;
		float *x = values(n, false), first = 0;
		double wanted = 0;
		for (size_t i = 0; i < n; i++)
			wanted += (double)x[i];
		for (size_t i = 0; (level = cpu_level_get(i)); i++)
			for (unsigned pool = 0; pool < 2; pool++) {
				float out = NAN;
				run(level, pool, &(struct kernel_work){BUILTIN_SUM_F32, {&out, x}, {0, 0, n}});
				if (!i && !pool)
					first = out;
				if (!(fabs((double)out - wanted) <= 1e-6 * (fabs(wanted) + 1)) || out != first)
					fail_msg("%s sum of %zu: %.9g, not %.9g, first %.9g", level->name, n,
						 (double)out, wanted, (double)first);
			}
		free(x);
	}
}

static void matmul_once(const struct cpu_level *level, unsigned pool, size_t m, size_t n, size_t k)
{
	float *a = values(m * k, false), *b = values(k * n, false), *c = values(m * n, false);
	run(level, pool, &(struct kernel_work){BUILTIN_MATMUL_F32, {c, a, b}, {0, 0, 0, m, n, k}});
	size_t step = m * n * k > 20000000 ? 97 : 1; // of the largest, not all
	for (size_t at = 0; at < m * n; at += step) {
		double wanted = 0, size = 0;
		for (size_t p = 0; p < k; p++) {
			double term = (double)a[at / n * k + p] * (double)b[p * n + at % n];
			wanted += term;
			size += fabs(term);
		}
		if (!(fabs((double)c[at] - wanted) <= 1e-6 * (size + 1)))
			fail_msg("%s matmul %zu x %zu x %zu: [%zu] is %.9g, not %.9g", level->name, m, n, k, at,
				 (double)c[at], wanted);
	}
	check_guard(c, m * n, "matmul");
	free(a);
	free(b);
	free(c);
}

static void matmul_sizes(const struct cpu_level *level, unsigned pool)
{
	static const size_t sizes[][3] = {
		{1, 1, 1},     {1, 1, 1000},  {3, 5, 7},       {13, 31, 255},  {14, 32, 256},
		{15, 33, 257}, {1, 700, 300}, {700, 1, 3},     {169, 257, 64}, {340, 520, 31},
		{6, 16, 2049}, {2049, 3, 5},  {5, 2050, 2047},
	};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		matmul_once(level, pool, sizes[i][0], sizes[i][1], sizes[i][2]);
}

static void test_matmul(void **state)
{
	(void)state;
	each(matmul_sizes);
}

static uint32_t reference_mix(uint32_t value, uint32_t seed)
{
	uint64_t x = (uint64_t)value ^ seed;
	x = ((x ^ (x >> 16)) * 2654435761u) & UINT32_MAX;
	x = ((x ^ (x >> 15)) * 3039394381u) & UINT32_MAX;
	return (uint32_t)(x ^ (x >> 16));
}

static void integers(const struct cpu_level *level, unsigned pool)
{
	enum { N = 300001, SEED = 77 };
	uint32_t *in = malloc(4 * N), *out = malloc(8 * N), *stream = malloc(16 * N), sink = 0;
	run(level, pool, &(struct kernel_work){BUILTIN_STREAM_FILL, {stream}, {0, N, SEED}});
	for (uint32_t i = 0; i < 4 * N; i++)
		if (stream[i] != reference_mix(i, SEED))
			fail_msg("%s stream_fill %u: %08x", level->name, i, stream[i]);
	run(level, pool, &(struct kernel_work){BUILTIN_STREAM_READ, {stream, &sink}, {0, 0, N}});
	for (uint32_t i = 0; i < N; i++)
		in[i] = i * 7;
	run(level, pool, &(struct kernel_work){BUILTIN_VERIFY, {in, out}, {0, 0, N, SEED, bits(3.25f), bits(-1.5f)}});
	for (uint32_t i = 0; i < N; i++) {
		uint32_t hash = reference_mix(i * 8, SEED);
		double wanted = (double)(hash >> 8) / 16777216 * 3.25 - 1.5;
		float value;
		memcpy(&value, &out[N + i], sizeof(value));
		if (out[i] != hash || !(fabs((double)value - wanted) <= 1e-6))
			fail_msg("%s verify %u: %08x and %.9g, not %08x and %.9g", level->name, i, out[i],
				 (double)value, hash, wanted);
	}
	free(in);
	free(out);
	free(stream);
}

static void test_integers(void **state)
{
	(void)state;
	each(integers);
}

// Every word is read, whatever the length: one that differs changes what is returned.
static void test_stream_read_reads_all(void **state)
{
	const struct cpu_level *level;
	(void)state;
	for (size_t l = 0; (level = cpu_level_get(l)); l++)
		for (size_t words = 4; words < 700; words += 4) {
			uint32_t data[700] = {0};
			for (size_t i = 0; i < words; i++) {
				data[i] = 0x5a;
				uint32_t seen = level->stream_read(data, words * sizeof(*data));
				if (seen != 0x5a)
					fail_msg("%s reads %zu words and misses %zu: %x", level->name, words, i, seen);
				data[i] = 0;
			}
		}
}

// Past the caches: every offset within a line, sizes around lines and runs; nothing before or behind is touched.
static void test_past_the_caches(void **state)
{
	enum { LINE = 64, MOST = 2176 };
	const struct cpu_level *level;
	uint8_t from[MOST + LINE], *to = aligned_alloc(LINE, MOST + 3 * LINE);
	(void)state;
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 131 + i / 256 + 1);
	for (size_t l = 0; (level = cpu_level_get(l)); l++)
		for (size_t offset = 0; offset < LINE; offset++)
			for (size_t bytes = 0; bytes < MOST; bytes = bytes * 5 / 4 + 1) {
				static const uint8_t word[] = {0x12, 0x34, 0x56, 0x78};
				uint8_t *begin = to + LINE + offset;
				uint32_t pattern;
				memcpy(&pattern, word, sizeof(pattern));
				memset(to, 0, MOST + 3 * LINE);
				level->copy_past(begin, from + offset / 2, bytes);
				assert_memory_equal(begin, from + offset / 2, bytes);
				assert_int_equal(begin[-1] | begin[bytes], 0);
				if (offset % 4)
					pattern = 0x77777777;
				level->fill_past(begin, pattern, bytes);
				for (size_t i = 0; i < bytes; i++)
					assert_int_equal(begin[i], offset % 4 ? 0x77 : word[i % 4]);
				assert_int_equal(begin[-1] | begin[bytes], 0);
			}
	free(to);
}

static void test_copy_and_fill(void **state)
{
	static const size_t sizes[] = {1, 3, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5000001, 33554435};
	const struct cpu_level *best = NULL;
	(void)state;
	assert_int_equal(cpu_level_choose(&best, NULL, NULL), STATUS_OK);
	for (unsigned pool = 0; pool < 2; pool++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			size_t bytes = sizes[i];
			struct kernel_place place = {pools[pool], best, &scratch};
			uint8_t *from = malloc(bytes + 1), *to = calloc(1, bytes + 2);
			for (size_t j = 0; j <= bytes; j++)
				from[j] = (uint8_t)(j * 131 + j / 4096);
			kernel_copy(&place, to + 1, from, bytes);
			assert_memory_equal(to + 1, from, bytes);
			kernel_fill(&place, from, 0xa5, bytes);
			for (size_t j = 0; j < bytes; j++)
				if (from[j] != 0xa5)
					fail_msg("fill of %zu: [%zu] is %02x", bytes, j, from[j]);
			assert_int_equal(from[bytes], (uint8_t)(bytes * 131 + bytes / 4096));
			assert_int_equal(to[0], 0);
			assert_int_equal(to[bytes + 1], 0);
			free(from);
			free(to);
		}
}

static void test_choice(void **state)
{
	const struct cpu_level *level, *best = NULL;
	struct error error = {0};
	(void)state;
	for (size_t i = 0; (level = cpu_level_get(i)); i++) {
		const struct cpu_level *named;
		best = level;
		assert_int_equal(cpu_level_choose(&named, level->name, &error), STATUS_OK);
		assert_ptr_equal(named, level);
	}
	assert_int_equal(cpu_level_choose(&level, NULL, &error), STATUS_OK);
	assert_ptr_equal(level, best);
	print_message("level %s\n", best->name);
	assert_int_equal(cpu_level_choose(&level, "mmx", &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "scalar"));
	assert_null(level);
}

int main(void)
{
	struct error error = {0};
	if (pool_create(&pools[0], 1, &error) || pool_create(&pools[1], THREADS, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_sum),
		cmocka_unit_test(test_matmul),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_stream_read_reads_all),
		cmocka_unit_test(test_past_the_caches),
		cmocka_unit_test(test_copy_and_fill),
	};
	int failed = cmocka_run_group_tests_name("cpu kernels", tests, NULL, NULL);
	kernel_scratch_finish(&scratch);
	pool_destroy(&pools[0]);
	pool_destroy(&pools[1]);
	return failed;
}
