/* Users' kernels on a real GPU: PTX in, numbers out; and what is wrong is refused and harms nothing. */
#include "tests/engine/cuda/here.h"

enum { ELEMENTS = 100003, BYTES = 4 * ELEMENTS };

struct bench {
	struct exogpu_device *device;
	struct exogpu_stream *stream;
	struct exogpu_module *module;
	struct exogpu_buffer *x, *y;
};

static int setup(void **state)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	bench->device = here_open(0);
	HERE_OK(exogpu_stream_create(bench->device, &bench->stream, &error));
	HERE_OK(exogpu_module_load(bench->device, &bench->module, EXOGPU_FORMAT_PTX, here_kernels, strlen(here_kernels),
				   &error));
	HERE_OK(exogpu_buffer_create(bench->device, &bench->x, BYTES, EXOGPU_MEMORY_DEVICE, &error));
	HERE_OK(exogpu_buffer_create(bench->device, &bench->y, BYTES, EXOGPU_MEMORY_DEVICE, &error));
	*state = bench;
	return 0;
}

static int teardown(void **state)
{
	struct bench *bench = *state;
	struct exogpu_usage left;
	exogpu_buffer_destroy(&bench->x);
	exogpu_buffer_destroy(&bench->y);
	exogpu_module_unload(&bench->module);
	exogpu_stream_destroy(&bench->stream);
	exogpu_device_close(&bench->device, &left);
	assert_int_equal(left.buffers + left.streams + left.modules, 0);
	free(bench);
	return 0;
}

static enum status finish(struct bench *bench, struct error *error)
{
	uint64_t point;
	enum status status = exogpu_mark(bench->stream, &point, error);
	return status ? status : exogpu_wait(bench->stream, point, 20000000000, error);
}

static void expect(struct bench *bench, const struct exogpu_launch *launch, enum status expected)
{
	struct error error = {0};
	assert_int_equal(exogpu_launch(bench->stream, launch, &error), expected);
	assert_string_not_equal(error.message, "");
}

// y[i] = 1.5 x[i] + i, and nothing behind n.
static void test_end_to_end(void **state)
{
	struct bench *bench = *state;
	enum { N = ELEMENTS - 10 };
	float *x = malloc(BYTES), *y = malloc(BYTES);
	for (int i = 0; i < ELEMENTS; i++)
		x[i] = (float)(i % 1000) - 500;
	HERE_OK(exogpu_write(bench->x, 0, x, BYTES, &error));
	HERE_OK(exogpu_fill(bench->stream, bench->y, 0, BYTES, 0, &error));
	const struct exogpu_argument arguments[] = {{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->y},
						    {.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->x},
						    {.kind = EXOGPU_ARGUMENT_F32, .f32 = 1.5f},
						    {.kind = EXOGPU_ARGUMENT_U32, .u32 = N}};
	struct exogpu_launch launch = {.module = bench->module,
				       .kernel = "scale",
				       .grid = {(N + 127) / 128},
				       .block = {128},
				       .arguments = arguments,
				       .argument_count = 4};
	HERE_OK(exogpu_launch(bench->stream, &launch, &error));
	HERE_OK(finish(bench, &error));
	HERE_OK(exogpu_read(y, bench->y, 0, BYTES, &error));
	for (int i = 0; i < ELEMENTS; i++) {
		double expected = i < N ? 1.5 * (double)x[i] + i : 0;
		if ((double)y[i] != expected) // whole and half numbers below 2^24: exact
			fail_msg("element %d is %g, not %g", i, (double)y[i], expected);
	}
	free(x);
	free(y);
}

static void test_block_that_the_module_fixes(void **state)
{
	struct bench *bench = *state;
	uint32_t seen = 0;
	const struct exogpu_argument argument = {.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->y};
	struct exogpu_launch launch = {
		.module = bench->module, .kernel = "fixed", .arguments = &argument, .argument_count = 1};
	HERE_OK(exogpu_launch(bench->stream, &launch, &error));
	HERE_OK(finish(bench, &error));
	HERE_OK(exogpu_read(&seen, bench->y, 0, sizeof(seen), &error));
	assert_int_equal(seen, 64);
	launch.block[0] = 32;
	expect(bench, &launch, STATUS_INVALID_PARAMS);
}

static void test_wrong_launches(void **state)
{
	struct bench *bench = *state;
	struct exogpu_argument argument = {.kind = EXOGPU_ARGUMENT_U32, .u32 = 1};
	struct exogpu_launch launch = {
		.module = bench->module, .kernel = "touch", .arguments = &argument, .argument_count = 1};
	expect(bench, &launch, STATUS_INVALID_PARAMS);
	argument = (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->y};
	launch.argument_count = 0;
	expect(bench, &launch, STATUS_INVALID_PARAMS);
	launch.argument_count = 1;
	launch.kernel = "none";
	expect(bench, &launch, STATUS_NOT_FOUND);
	launch.kernel = "touch";
	launch.block[0] = 4096;
	expect(bench, &launch, STATUS_LIMIT_EXCEEDED);
	launch.block[0] = 1;
	launch.grid[1] = UINT32_MAX;
	expect(bench, &launch, STATUS_LIMIT_EXCEEDED);
	launch.grid[1] = 1;
	HERE_OK(exogpu_launch(bench->stream, &launch, &error)); // and now it is right
	HERE_OK(finish(bench, &error));
}

// Fewer threads than the device has: what the kernel itself says, which only the driver knows.
static void test_kernel_with_a_smaller_block(void **state)
{
	static const char text[] = HERE_PTX ".visible .entry small() .maxntid 32 { ret; }\n";
	struct bench *bench = *state;
	struct exogpu_module *module = NULL;
	HERE_OK(exogpu_module_load(bench->device, &module, EXOGPU_FORMAT_PTX, text, strlen(text), &error));
	struct exogpu_launch launch = {.module = module, .kernel = "small", .block = {32}};
	HERE_OK(exogpu_launch(bench->stream, &launch, &error));
	HERE_OK(finish(bench, &error));
	launch.block[0] = 64;
	expect(bench, &launch, STATUS_LIMIT_EXCEEDED);
	exogpu_module_unload(&module);
	assert_null(module);
}

static void test_refused_modules(void **state)
{
	static const char *const texts[] = {
		"no PTX at all",
		HERE_PTX ".visible .entry k() { add.u32 %r1, %r2, %r3; ret; }",                 // no such registers
		HERE_PTX ".visible .entry k() { .reg .b32 %r; mov.u32 %r, 1 ret; }",            // no semicolon
		HERE_PTX ".visible .entry k() { call missing; ret; }",                          // nothing to call
		".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry k() { ret; }", // no such GPU
		".version 99.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }", // not yet written
		HERE_PTX ".visible .entry k();",                                                // only declared
	};
	struct bench *bench = *state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct exogpu_module *module = NULL;
		struct error error = {0};
		enum status status = exogpu_module_load(bench->device, &module, EXOGPU_FORMAT_PTX, texts[i],
							strlen(texts[i]), &error);
		print_message("%s\n", error.message);
		if (status != STATUS_INVALID_PARAMS)
			fail_msg("%s\ngave %s: %s", texts[i], status_word(status), error.message);
		assert_null(module);
		for (const char *c = error.message; *c; c++)
			assert_true(*c >= ' ');
	}
	for (size_t length = 40; length < strlen(here_kernels); length += 97) { // cut off
		struct exogpu_module *module = NULL;
		struct error error = {0};
		enum status status = exogpu_module_load(bench->device, &module, EXOGPU_FORMAT_PTX, here_kernels, length,
							&error);
		if (status && status != STATUS_INVALID_PARAMS)
			fail_msg("cut off at %zu: %s: %s", length, status_word(status), error.message);
		exogpu_module_unload(&module);
	}
	test_end_to_end(state); // nothing of it did any harm
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_end_to_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_block_that_the_module_fixes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_launches, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kernel_with_a_smaller_block, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_modules, setup, teardown),
	};
	if (!here_find(1))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
