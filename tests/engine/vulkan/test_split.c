/* Built-in kernels whose work does not fit one dispatch: the pieces make the whole.
 *
 * Through descriptors of 128 MiB, as llvmpipe has them, some tens of megabytes are enough for that. The numbers are
 * small integers, so that every order of summation gives the same. */
#include "engine/include/exogpu/exogpu.h"
#include "tests/engine/vulkan/here.h"

static const char *key;

struct here {
	struct exogpu_device *device;
	struct exogpu_stream *stream;
	struct exogpu_module *module;
};

static int begin(void **state)
{
	struct here *here = calloc(1, sizeof(*here));
	struct exogpu_open open = {.backend = "vulkan", .hardware_key = key};
	HERE_OK(exogpu_device_open(&here->device, &open, &error));
	HERE_OK(exogpu_stream_create(here->device, &here->stream, &error));
	HERE_OK(exogpu_module_load(here->device, &here->module, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	*state = here;
	return 0;
}

static int end(void **state)
{
	struct here *here = *state;
	exogpu_device_close(&here->device, NULL);
	free(here);
	return 0;
}

static struct exogpu_argument buffer_of(struct exogpu_buffer *buffer)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffer};
}

static struct exogpu_argument count_of(uint64_t value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U64, .u64 = value};
}

static void launch(struct here *here, const char *kernel, const struct exogpu_argument *arguments, unsigned count)
{
	struct exogpu_launch work = {
		.module = here->module, .kernel = kernel, .arguments = arguments, .argument_count = count};
	HERE_OK(exogpu_launch(here->stream, &work, &error));
}

// A buffer of floats, each a small integer that depends on its place.
static struct exogpu_buffer *fill(struct here *here, float *data, uint64_t count, uint32_t seed)
{
	struct exogpu_buffer *buffer = NULL;
	HERE_OK(exogpu_buffer_create(here->device, &buffer, count * 4, EXOGPU_MEMORY_DEVICE, &error));
	for (uint64_t i = 0; i < count; i++)
		data[i] = (float)((i * 2654435761u + seed) >> 7 & 3) - 1;
	HERE_OK(exogpu_write(buffer, 0, data, count * 4, &error));
	return buffer;
}

static void multiply(struct here *here, uint64_t m, uint64_t n, uint64_t k)
{
	float *a = malloc(m * k * 4), *b = malloc(k * n * 4), *c = malloc(m * n * 4);
	assert_true(a && b && c);
	struct exogpu_buffer *left = fill(here, a, m * k, 1), *right = fill(here, b, k * n, 2);
	struct exogpu_buffer *product = fill(here, c, m * n, 3);
	const struct exogpu_argument arguments[] = {buffer_of(product), buffer_of(left), buffer_of(right),
						    count_of(m),        count_of(n),     count_of(k)};
	launch(here, "matmul_f32", arguments, 6);
	HERE_OK(exogpu_read(c, product, 0, m * n * 4, &error));
	for (uint64_t at = 0; at < m * n; at += at + 1000 < m * n ? 997 : 1) {
		double wanted = 0;
		for (uint64_t i = 0; i < k; i++)
			wanted += (double)a[at / n * k + i] * (double)b[i * n + at % n];
		if ((double)c[at] != wanted)
			fail_msg("(%llu, %llu, %llu): c[%llu] is %g, not %g", (unsigned long long)m,
				 (unsigned long long)n, (unsigned long long)k, (unsigned long long)at, (double)c[at],
				 wanted);
	}
	exogpu_buffer_destroy(&left);
	exogpu_buffer_destroy(&right);
	exogpu_buffer_destroy(&product);
	free(a);
	free(b);
	free(c);
}

static void products(void **state)
{
	multiply(*state, 3, 5000, 4000);  // over k
	multiply(*state, 5000, 3, 4000);  // over m
	multiply(*state, 2, 9000000, 2);  // over n, and k
	multiply(*state, 1, 1, 10000000); // over k alone
	multiply(*state, 4300000, 4, 1);  // over m alone
}

static void sums(void **state)
{
	struct here *here = *state;
	const uint64_t count = 20000003;
	float *x = malloc(count * 4), sum = 0;
	double wanted = 0;
	struct exogpu_buffer *data = fill(here, x, count, 5), *out = NULL;
	for (uint64_t i = 0; i < count; i++)
		wanted += (double)x[i];
	HERE_OK(exogpu_buffer_create(here->device, &out, 4, EXOGPU_MEMORY_DEVICE, &error));
	const struct exogpu_argument arguments[] = {buffer_of(out), buffer_of(data), count_of(count)};
	launch(here, "sum_f32", arguments, 3);
	HERE_OK(exogpu_read(&sum, out, 0, 4, &error));
	if ((double)sum < wanted - 1 || (double)sum > wanted + 1)
		fail_msg("the sum is %g, not %g", (double)sum, wanted);
	free(x);
}

// fill_f32 and saxpy_f32 where one piece ends and the next begins, and at the end.
static void elementwise(void **state)
{
	struct here *here = *state;
	const uint64_t count = 9000003;
	float *x = malloc(count * 4), *y = malloc(count * 4);
	struct exogpu_buffer *from = fill(here, x, count, 5), *to = fill(here, y, count, 6);
	const struct exogpu_argument two = {.kind = EXOGPU_ARGUMENT_F32, .f32 = 2};
	const struct exogpu_argument saxpy[] = {buffer_of(to), buffer_of(from), two, count_of(count)};
	launch(here, "saxpy_f32", saxpy, 4);
	float *got = malloc(count * 4);
	HERE_OK(exogpu_read(got, to, 0, count * 4, &error));
	for (uint64_t i = 0; i < count; i++)
		if (got[i] != 2 * x[i] + y[i])
			fail_msg("y[%llu] is %g, not %g", (unsigned long long)i, (double)got[i],
				 (double)(2 * x[i] + y[i]));
	const struct exogpu_argument set[] = {buffer_of(to), two, count_of(count - 1)};
	launch(here, "fill_f32", set, 3);
	HERE_OK(exogpu_read(y, to, 0, count * 4, &error));
	for (uint64_t i = 0; i < count; i++)
		if (y[i] != (i < count - 1 ? 2 : got[i]))
			fail_msg("y[%llu] is %g", (unsigned long long)i, (double)y[i]);
	free(x);
	free(y);
	free(got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(products, begin, end),
		cmocka_unit_test_setup_teardown(sums, begin, end),
		cmocka_unit_test_setup_teardown(elementwise, begin, end),
	};
	key = here_key();
	return key[0] ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
