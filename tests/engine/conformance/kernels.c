/* The built-in kernels against a reference in double precision and 64-bit integers, at sizes that fit no tile. */
#include "tests/engine/conformance/conformance.h"

#include <math.h>

static const uint32_t sizes[] = {1, 2, 3, 17, 64, 255, 256, 257, 1023, 1025, 65537, 300001};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

// Between -1 and 1.
static float draw_float(uint32_t *seed)
{
	return (float)(int32_t)draw(seed) * 0x1p-31f;
}

static float *make_floats(uint64_t count, uint32_t seed)
{
	float *values = malloc(4 * (count ? count : 1));
	assert_non_null(values);
	for (uint64_t i = 0; i < count; i++)
		values[i] = draw_float(&seed);
	return values;
}

// A buffer of these floats and one more, which no kernel may touch.
static struct exogpu_buffer *make_guarded(struct conformance *c, const float *values, uint64_t count)
{
	struct exogpu_buffer *buffer = make(c, 4 * count + 4, EXOGPU_MEMORY_DEVICE);
	const float guard = 12345.5f;
	OK(exogpu_write(buffer, 0, values, 4 * count, &error));
	OK(exogpu_write(buffer, 4 * count, &guard, 4, &error));
	return buffer;
}

// Read the floats, and see that the guard stands.
static void read_guarded(struct exogpu_buffer *buffer, float *values, uint64_t count)
{
	float guard = 0;
	OK(exogpu_read(values, buffer, 0, 4 * count, &error));
	OK(exogpu_read(&guard, buffer, 4 * count, 4, &error));
	if (guard != 12345.5f)
		fail_msg("behind %llu floats stands %g", (unsigned long long)count, (double)guard);
}

static void near(double got, double wanted, double allowed, const char *what, uint64_t place)
{
	if (!(fabs(got - wanted) <= allowed)) // also false for NaN
		fail_msg("%s: %.9g at %llu, not %.9g (%.3g allowed)", what, got, (unsigned long long)place, wanted,
			 allowed);
}

void test_kernel_fill(void **state)
{
	struct conformance *c = *state;
	const float values[] = {1.5f, -0.0f, INFINITY, NAN, 1e-45f, 3.4028235e38f};
	for (size_t i = 0; i < SIZES; i++) {
		float *got = make_floats(sizes[i], 3), value = values[i % 6];
		struct exogpu_buffer *buffer = make_guarded(c, got, sizes[i]);
		LAUNCH(c, "fill_f32", buffer_argument(buffer), f32_argument(value),
		       i % 2 ? u32_argument(sizes[i]) : u64_argument(sizes[i]));
		read_guarded(buffer, got, sizes[i]);
		for (uint32_t j = 0; j < sizes[i]; j++)
			if (bits_of(got[j]) != bits_of(value))
				fail_msg("float %u of %u is 0x%08x, not 0x%08x", j, sizes[i], bits_of(got[j]),
					 bits_of(value));
		exogpu_buffer_destroy(&buffer);
		free(got);
	}
}

void test_kernel_saxpy(void **state)
{
	struct conformance *c = *state;
	for (size_t i = 0; i < SIZES; i++) {
		uint32_t n = sizes[i];
		float *x = make_floats(n, 5 + (uint32_t)i), *y = make_floats(n, 70 + (uint32_t)i), *got = malloc(4 * n);
		struct exogpu_buffer *to = make_guarded(c, y, n), *from = make_guarded(c, x, n);
		LAUNCH(c, "saxpy_f32", buffer_argument(to), buffer_argument(from), f32_argument(-1.75f),
		       u32_argument(n));
		read_guarded(to, got, n);
		for (uint32_t j = 0; j < n; j++)
			near((double)got[j], -1.75 * (double)x[j] + (double)y[j],
			     2e-7 * (1.75 * fabs((double)x[j]) + fabs((double)y[j])), "saxpy", j);
		// y and x may be one: y = a y + y.
		LAUNCH(c, "saxpy_f32", buffer_argument(from), buffer_argument(from), f32_argument(3), u32_argument(n));
		read_guarded(from, got, n);
		for (uint32_t j = 0; j < n; j++)
			near((double)got[j], 4 * (double)x[j], 1e-6 * fabs((double)x[j]), "saxpy in place", j);
		exogpu_buffer_destroy(&to);
		exogpu_buffer_destroy(&from);
		free(x);
		free(y);
		free(got);
	}
}

static void one_matmul(struct conformance *c, const uint32_t *shape)
{
	uint32_t m = shape[0], n = shape[1], k = shape[2];
	float *a = make_floats((uint64_t)m * k, m + 1), *b = make_floats((uint64_t)k * n, n + 2);
	float *got = calloc(4, (size_t)m * n);
	struct exogpu_buffer *ab = make_guarded(c, a, (uint64_t)m * k), *bb = make_guarded(c, b, (uint64_t)k * n);
	struct exogpu_buffer *cb = make_guarded(c, got, (uint64_t)m * n);
	LAUNCH(c, "matmul_f32", buffer_argument(cb), buffer_argument(ab), buffer_argument(bb), u32_argument(m),
	       u64_argument(n), u32_argument(k));
	read_guarded(cb, got, (uint64_t)m * n);
	for (uint32_t i = 0; i < m; i++)
		for (uint32_t j = 0; j < n; j++) {
			double sum = 0, size = 0;
			for (uint32_t l = 0; l < k; l++) {
				double product = (double)a[(size_t)i * k + l] * (double)b[(size_t)l * n + j];
				sum += product;
				size += fabs(product);
			}
			// The bound of a sum of k products in single precision, in any order.
			near((double)got[(size_t)i * n + j], sum, 6e-8 * (k + 1) * size, "matmul", (uint64_t)i * n + j);
		}
	exogpu_buffer_destroy(&ab);
	exogpu_buffer_destroy(&bb);
	exogpu_buffer_destroy(&cb);
	free(a);
	free(b);
	free(got);
}

void test_kernel_matmul(void **state)
{
	static const uint32_t shapes[][3] = {
		{1, 1, 1},    {1, 1, 1023}, {3, 17, 5},    {17, 3, 1},     {1, 255, 17}, {255, 1, 257},  {16, 16, 16},
		{32, 64, 16}, {64, 64, 64}, {65, 63, 129}, {128, 128, 32}, {33, 257, 3}, {129, 127, 65}, {3, 1023, 17},
	};
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		one_matmul(*state, shapes[i]);
}

void test_kernel_sum(void **state)
{
	struct conformance *c = *state;
	for (size_t i = 0; i < SIZES; i++) {
		uint32_t n = sizes[i];
		float *x = make_floats(n, 90 + (uint32_t)i), got[3], zero = 0;
		struct exogpu_buffer *from = make_guarded(c, x, n), *to = make_guarded(c, &zero, 1);
		double sum = 0, size = 0;
		for (uint32_t j = 0; j < n; j++) {
			sum += (double)x[j];
			size += fabs((double)x[j]);
		}
		for (int run = 0; run < 3; run++) {
			LAUNCH(c, "sum_f32", buffer_argument(to), buffer_argument(from), u32_argument(n));
			read_guarded(to, &got[run], 1);
			near((double)got[run], sum, 1e-6 * size, "sum", n);
			if (bits_of(got[run]) != bits_of(got[0]))
				fail_msg("the sum of %u floats is 0x%08x once and 0x%08x then", n, bits_of(got[0]),
					 bits_of(got[run]));
		}
		exogpu_buffer_destroy(&from);
		exogpu_buffer_destroy(&to);
		free(x);
	}
}

// NaN and infinities go through as IEEE 754 has it, and only where they belong.
void test_kernel_not_finite(void **state)
{
	enum { SIDE = 37 };
	struct conformance *c = *state;
	float x[SIDE * SIDE], y[SIDE * SIDE], got[SIDE * SIDE];
	for (int i = 0; i < SIDE * SIDE; i++)
		x[i] = y[i] = 1;
	x[5] = NAN;
	x[6] = INFINITY;
	x[7] = INFINITY;
	y[7] = -INFINITY;
	struct exogpu_buffer *a = make_guarded(c, x, SIDE * SIDE), *b = make_guarded(c, y, SIDE * SIDE);
	struct exogpu_buffer *out = make_guarded(c, y, SIDE * SIDE);
	LAUNCH(c, "sum_f32", buffer_argument(out), buffer_argument(b), u32_argument(SIDE * SIDE));
	OK(exogpu_read(got, out, 0, 4, &error));
	assert_true(isinf(got[0]) && got[0] < 0);
	LAUNCH(c, "sum_f32", buffer_argument(out), buffer_argument(a), u32_argument(SIDE * SIDE));
	OK(exogpu_read(got, out, 0, 4, &error));
	assert_true(isnan(got[0]));
	LAUNCH(c, "matmul_f32", buffer_argument(out), buffer_argument(a), buffer_argument(a), u32_argument(SIDE),
	       u32_argument(SIDE), u32_argument(SIDE));
	read_guarded(out, got, SIDE * SIDE);
	for (int i = 0; i < SIDE * SIDE; i++) {
		bool nan = i / SIDE == 0 || i % SIDE == 5, inf = i % SIDE == 6 || i % SIDE == 7;
		if (isnan(got[i]) != nan || (!nan && isinf(got[i]) != inf))
			fail_msg("matmul with NaN in row 0: (%d, %d) is %g", i / SIDE, i % SIDE, (double)got[i]);
	}
	LAUNCH(c, "saxpy_f32", buffer_argument(b), buffer_argument(a), f32_argument(2), u32_argument(SIDE * SIDE));
	read_guarded(b, got, SIDE * SIDE);
	for (int i = 0; i < SIDE * SIDE; i++)
		if (isnan(got[i]) != (i == 5 || i == 7) || isinf(got[i]) != (i == 6))
			fail_msg("saxpy: %d is %g", i, (double)got[i]);
	exogpu_buffer_destroy(&a);
	exogpu_buffer_destroy(&b);
	exogpu_buffer_destroy(&out);
}

// Counts of 0: nothing is touched, the sum of nothing is 0, and a product over no k is 0.
void test_kernel_nothing(void **state)
{
	struct conformance *c = *state;
	float *values = make_floats(6, 8), got[6];
	struct exogpu_buffer *a = make_guarded(c, values, 6), *b = make_guarded(c, values, 6);
	struct exogpu_buffer *small = make(c, 1, EXOGPU_MEMORY_DEVICE);
	LAUNCH(c, "fill_f32", buffer_argument(small), f32_argument(1), u32_argument(0));
	LAUNCH(c, "fill_f32", buffer_argument(a), f32_argument(1), u64_argument(0));
	LAUNCH(c, "saxpy_f32", buffer_argument(a), buffer_argument(b), f32_argument(1), u32_argument(0));
	LAUNCH(c, "matmul_f32", buffer_argument(a), buffer_argument(b), buffer_argument(b), u32_argument(0),
	       u32_argument(2), u32_argument(3));
	LAUNCH(c, "matmul_f32", buffer_argument(a), buffer_argument(b), buffer_argument(b), u64_argument(UINT64_MAX),
	       u32_argument(0), u32_argument(0));
	LAUNCH(c, "stream_fill", buffer_argument(a), u32_argument(0), u32_argument(1));
	read_guarded(a, got, 6);
	assert_memory_equal(got, values, sizeof(got));
	LAUNCH(c, "sum_f32", buffer_argument(a), buffer_argument(b), u32_argument(0));
	values[0] = 0;
	read_guarded(a, got, 6);
	assert_memory_equal(got, values, sizeof(got));
	LAUNCH(c, "matmul_f32", buffer_argument(a), buffer_argument(b), buffer_argument(b), u32_argument(2),
	       u32_argument(2), u32_argument(0));
	memset(values, 0, 4 * sizeof(float));
	read_guarded(a, got, 6);
	assert_memory_equal(got, values, sizeof(got));
	exogpu_buffer_destroy(&a);
	exogpu_buffer_destroy(&b);
	exogpu_buffer_destroy(&small);
	free(values);
}

// More elements than one dispatch of 65535 groups of 256 takes.
void test_kernel_large(void **state)
{
	enum { COUNT = 17000003 };
	struct conformance *c = *state;
	struct exogpu_buffer *buffer = make(c, 4ull * COUNT, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *out = make(c, 4, EXOGPU_MEMORY_DEVICE);
	float *got = malloc(4ull * COUNT), sum = 0;
	LAUNCH(c, "fill_f32", buffer_argument(buffer), f32_argument(0.5f), u32_argument(COUNT));
	LAUNCH(c, "saxpy_f32", buffer_argument(buffer), buffer_argument(buffer), f32_argument(1), u32_argument(COUNT));
	LAUNCH(c, "sum_f32", buffer_argument(out), buffer_argument(buffer), u32_argument(COUNT));
	OK(exogpu_read(got, buffer, 0, 4ull * COUNT, &error));
	for (uint32_t i = 0; i < COUNT; i++)
		if (got[i] != 1)
			fail_msg("float %u is %g, not 1", i, (double)got[i]);
	OK(exogpu_read(&sum, out, 0, 4, &error));
	near((double)sum, COUNT, 1e-5 * COUNT, "sum", COUNT);
	exogpu_buffer_destroy(&buffer);
	exogpu_buffer_destroy(&out);
	free(got);
}

static uint32_t mix(uint32_t value, uint32_t seed)
{
	uint64_t x = (uint64_t)value ^ seed;
	x = ((x ^ (x >> 16)) * 0x9e3779b1u) & UINT32_MAX;
	x = ((x ^ (x >> 15)) * 0xb5297a4du) & UINT32_MAX;
	return (uint32_t)(x ^ (x >> 16));
}

// What devices are verified and measured with.
void test_kernel_internal(void **state)
{
	enum { N = 10007 };
	const uint32_t seed = 0xdeadbeef;
	struct conformance *c = *state;
	struct exogpu_buffer *in = make(c, 4 * N, EXOGPU_MEMORY_DEVICE), *out = make(c, 8 * N, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *data = make(c, 16 * N + 16, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *sink = make(c, 4, EXOGPU_MEMORY_DEVICE);
	uint32_t *input = (uint32_t *)make_pattern(4 * N, 1), *got = malloc(16 * N + 16);
	OK(exogpu_write(in, 0, input, 4 * N, &error));
	LAUNCH(c, "verify", buffer_argument(in), buffer_argument(out), u32_argument(N), u32_argument(seed),
	       f32_argument(3.25f), f32_argument(-1.5f));
	OK(exogpu_read(got, out, 0, 8 * N, &error));
	for (uint32_t i = 0; i < N; i++) {
		uint32_t wanted = mix(input[i] + i, seed);
		float value;
		if (got[i] != wanted)
			fail_msg("verify: %u is 0x%08x, not 0x%08x", i, got[i], wanted);
		memcpy(&value, &got[N + i], 4);
		near((double)value, (double)(wanted >> 8) * 0x1p-24 * 3.25 - 1.5, 1e-6, "verify", i);
	}
	OK(exogpu_fill(c->stream, data, 0, 16 * N + 16, 0x5a, &error));
	LAUNCH(c, "stream_fill", buffer_argument(data), u64_argument(N), u32_argument(seed));
	LAUNCH(c, "stream_read", buffer_argument(data), buffer_argument(sink), u64_argument(N));
	OK(exogpu_read(got, data, 0, 16 * N + 16, &error));
	for (uint32_t i = 0; i < 4 * N + 4; i++) {
		uint32_t wanted = i < 4 * N ? mix(i, seed) : 0x5a5a5a5a;
		if (got[i] != wanted)
			fail_msg("stream_fill: %u is 0x%08x, not 0x%08x", i, got[i], wanted);
	}
	exogpu_buffer_destroy(&in);
	exogpu_buffer_destroy(&out);
	exogpu_buffer_destroy(&data);
	exogpu_buffer_destroy(&sink);
	free(input);
	free(got);
}

// Counts that do not fit their buffers, also where their product wraps 2^64 to something that would.
void test_kernel_counts(void **state)
{
	struct conformance *c = *state;
	struct exogpu_buffer *a = make(c, 4096, EXOGPU_MEMORY_DEVICE), *b = make(c, 4096, EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *d = make(c, 4096, EXOGPU_MEMORY_DEVICE), *tiny = make(c, 3, EXOGPU_MEMORY_DEVICE);
	const struct exogpu_argument A = buffer_argument(a), B = buffer_argument(b), D = buffer_argument(d);
	const struct exogpu_argument T = buffer_argument(tiny), f = f32_argument(1), n = u32_argument(1025);
	const struct exogpu_argument two_32 = u64_argument(1ull << 32), two_62 = u64_argument(1ull << 62);
	const struct exogpu_argument four = u32_argument(4);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, n);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, two_62); // 2^62 floats of 4 bytes wrap to 0
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, u64_argument(UINT64_MAX));
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", T, f, u32_argument(1));
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "saxpy_f32", A, B, f, n);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "saxpy_f32", A, T, f, u32_argument(1));
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "sum_f32", A, B, n);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "sum_f32", T, B, four);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "sum_f32", A, A, four);                       // out is not x
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, B, D, two_32, two_32, four); // m n wraps to 0
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, B, D, four, two_32, two_32);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, B, D, two_32, four, two_32);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, B, D, u32_argument(33), u32_argument(32),
		       u32_argument(31));
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, B, D, u32_argument(31), u32_argument(32),
		       u32_argument(33));
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, A, B, four, four, four);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "matmul_f32", A, B, A, four, four, four);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "stream_fill", A, u32_argument(257), four);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "verify", A, B, u32_argument(513), four, f, f);
	LAUNCH(c, "fill_f32", A, f, u32_argument(1024));                                        // exactly
	LAUNCH(c, "matmul_f32", D, A, A, u32_argument(32), u32_argument(32), u32_argument(32)); // a and b may be one
	finish(c->stream);
	exogpu_buffer_destroy(&a);
	exogpu_buffer_destroy(&b);
	exogpu_buffer_destroy(&d);
	exogpu_buffer_destroy(&tiny);
}
