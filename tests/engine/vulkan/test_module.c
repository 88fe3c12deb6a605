/* Users' SPIR-V on a device: what it computes, what is refused, and that it stays within its buffers. */
#include "engine/include/exogpu/exogpu.h"
#include "tests/engine/vulkan/here.h"

enum { FLOATS = 1000 };

static const char *key;

struct here {
	struct exogpu_device *device;
	struct exogpu_stream *stream;
	struct exogpu_module *module;
};

static int begin(void **state)
{
	struct here *here = calloc(1, sizeof(*here));
	struct exogpu_open open = {.backend = "vulkan", .hardware_key = key, .debug = true};
	HERE_OK(exogpu_device_open(&here->device, &open, &error));
	HERE_OK(exogpu_stream_create(here->device, &here->stream, &error));
	*state = here;
	return 0;
}

static int end(void **state)
{
	struct here *here = *state;
	struct exogpu_usage left;
	exogpu_module_unload(&here->module);
	exogpu_stream_destroy(&here->stream);
	exogpu_device_close(&here->device, &left);
	free(here);
	return left.buffers + left.streams + left.modules ? -1 : 0;
}

static void load(struct here *here, const char *name)
{
	size_t length;
	uint8_t *bytes = here_module(name, &length);
	if (!bytes) {
		print_message("not done: no GLSL compiler at build time\n");
		skip();
	}
	HERE_OK(exogpu_module_load(here->device, &here->module, EXOGPU_FORMAT_SPIRV, bytes, length, &error));
	free(bytes);
}

static struct exogpu_buffer *make(struct here *here, uint64_t bytes, enum exogpu_memory memory)
{
	struct exogpu_buffer *buffer = NULL;
	HERE_OK(exogpu_buffer_create(here->device, &buffer, bytes, memory, &error));
	return buffer;
}

static struct exogpu_argument buffer_of(struct exogpu_buffer *buffer)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffer};
}

static struct exogpu_argument f32(float value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_F32, .f32 = value};
}

static struct exogpu_argument u32(uint32_t value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U32, .u32 = value};
}

static struct exogpu_argument i32(int32_t value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_I32, .i32 = value};
}

static struct exogpu_argument u64(uint64_t value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U64, .u64 = value};
}

static enum status launch(struct here *here, uint32_t groups, const struct exogpu_argument *arguments, unsigned count,
			  struct error *error)
{
	struct exogpu_launch launch = {.module = here->module,
				       .kernel = "main",
				       .grid = {groups, 1, 1},
				       .arguments = arguments,
				       .argument_count = count};
	return exogpu_launch(here->stream, &launch, error);
}

static void computes(void **state)
{
	struct here *here = *state;
	float from[FLOATS], to[FLOATS];
	load(here, "scale");
	const struct exogpu_kernel *kernel = exogpu_module_kernel(here->module, 0);
	assert_string_equal(kernel->name, "main");
	assert_int_equal(kernel->block[0], 64);
	assert_int_equal(kernel->argument_count, 10);
	assert_null(exogpu_module_kernel(here->module, 1));
	struct exogpu_buffer *x = make(here, sizeof(from), EXOGPU_MEMORY_DEVICE);
	struct exogpu_buffer *y = make(here, sizeof(to), EXOGPU_MEMORY_DEVICE);
	for (int i = 0; i < FLOATS; i++)
		from[i] = (float)i;
	HERE_OK(exogpu_write(x, 0, from, sizeof(from), &error));
	// The bindings in rising order: 2 is written, 5 read.
	const struct exogpu_argument arguments[] = {buffer_of(y), buffer_of(x),    f32(0.25f), f32(0.5f), f32(0.75f),
						    f32(1),       u64(FLOATS - 1), f32(2),     i32(7),    i32(-3)};
	HERE_OK(exogpu_fill(here->stream, y, 0, sizeof(to), 0, &error));
	HERE_OK(launch(here, (FLOATS + 63) / 64, arguments, 10, &error));
	HERE_OK(exogpu_read(to, y, 0, sizeof(to), &error));
	for (int i = 0; i < FLOATS; i++) {
		float wanted = i < FLOATS - 1 ? (float)i * 2 + 0.25f * (float)(1 + i % 4) + 10 : 0;
		if (to[i] != wanted)
			fail_msg("to[%d] is %g, not %g", i, (double)to[i], (double)wanted);
	}
	exogpu_buffer_destroy(&x);
	exogpu_buffer_destroy(&y);
}

// By address, in a buffer that no binding reaches where that is small.
static void by_address(void **state)
{
	struct here *here = *state;
	const uint64_t bytes = 130ull << 20;
	const uint32_t count = (uint32_t)(bytes / 4);
	uint32_t first, last;
	load(here, "address");
	struct exogpu_buffer *buffer = make(here, bytes, EXOGPU_MEMORY_DEVICE);
	const struct exogpu_argument arguments[] = {buffer_of(buffer), u32(count), u32(5)};
	uint32_t most = exogpu_device_limits(here->device)->max_grid[0], groups = (count + 63) / 64;
	assert_true(groups <= most || most == 65535);
	HERE_OK(exogpu_fill(here->stream, buffer, 0, bytes, 0, &error));
	HERE_OK(launch(here, groups < most ? groups : most, arguments, 3, &error));
	HERE_OK(exogpu_read(&last, buffer, bytes - 4, 4, &error));
	HERE_OK(exogpu_read(&first, buffer, bytes - 4 * 64 * (uint64_t)(groups < most ? groups : most), 4, &error));
	assert_int_equal(last, count - 1 + 5);
	assert_int_equal(first, count - 64 * (groups < most ? groups : most) + 5);
	exogpu_buffer_destroy(&buffer);
}

static void stays_inside(void **state)
{
	struct here *here = *state;
	uint32_t data[64];
	load(here, "wild");
	struct exogpu_buffer *buffers[3];
	for (int i = 0; i < 3; i++) {
		buffers[i] = make(here, 256, EXOGPU_MEMORY_DEVICE);
		HERE_OK(exogpu_fill(here->stream, buffers[i], 0, 256, 0, &error));
	}
	static const uint32_t places[] = {64, 128, 1000, 100000, 1u << 30, UINT32_MAX - 63};
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const struct exogpu_argument arguments[] = {buffer_of(buffers[1]), u32(places[i])};
		HERE_OK(launch(here, 1, arguments, 2, &error));
	}
	for (int i = 0; i < 3; i += 2) { // robust access may put it anywhere in its own buffer, and nowhere else
		HERE_OK(exogpu_read(data, buffers[i], 0, 256, &error));
		for (int j = 0; j < 64; j++)
			assert_int_equal(data[j], 0);
	}
	for (int i = 0; i < 3; i++)
		exogpu_buffer_destroy(&buffers[i]);
}

// Many launches, more than a submission has descriptor sets for.
static void many_launches(void **state)
{
	struct here *here = *state;
	uint32_t data[64];
	load(here, "wild");
	struct exogpu_buffer *buffer = make(here, 256, EXOGPU_MEMORY_DEVICE);
	HERE_OK(exogpu_fill(here->stream, buffer, 0, 256, 0, &error));
	for (uint32_t i = 0; i < 5000; i++) {
		const struct exogpu_argument arguments[] = {buffer_of(buffer), u32(i % 2 ? 0 : 32)};
		HERE_OK(launch(here, 1, arguments, 2, &error));
	}
	HERE_OK(exogpu_read(data, buffer, 0, 256, &error));
	for (int j = 0; j < 64; j++)
		assert_int_equal(data[j], 0xdeadbeef);
	exogpu_buffer_destroy(&buffer);
}

static void refused(void **state)
{
	struct here *here = *state;
	struct error error = {0};
	struct exogpu_module *module = NULL;
	size_t length;
	load(here, "wild");
	struct exogpu_buffer *buffer = make(here, 256, EXOGPU_MEMORY_DEVICE);
	const struct exogpu_argument few[] = {buffer_of(buffer)}, order[] = {u32(1), buffer_of(buffer)},
				     wide[] = {buffer_of(buffer), u64(1)};
	assert_int_equal(launch(here, 1, few, 1, &error), STATUS_INVALID_PARAMS);
	assert_int_equal(launch(here, 1, order, 2, &error), STATUS_INVALID_PARAMS);
	assert_int_equal(launch(here, 1, wide, 2, &error), STATUS_INVALID_PARAMS);
	struct exogpu_launch shaped = {.module = here->module, .kernel = "main", .block = {32}, .arguments = wide};
	shaped.argument_count = 2;
	assert_int_equal(exogpu_launch(here->stream, &shaped, &error), STATUS_INVALID_PARAMS);
	shaped.kernel = "other";
	assert_int_equal(exogpu_launch(here->stream, &shaped, &error), STATUS_NOT_FOUND);
	uint8_t *bytes = here_module("image", &length);
	error = (struct error){0};
	assert_int_equal(exogpu_module_load(here->device, &module, EXOGPU_FORMAT_SPIRV, bytes, length, &error),
			 STATUS_INVALID_PARAMS);
	print_message("%s\n", error.message);
	assert_int_equal(exogpu_module_load(here->device, &module, EXOGPU_FORMAT_SPIRV, bytes, length / 2, &error),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(exogpu_module_load(here->device, &module, EXOGPU_FORMAT_PTX, bytes, length, &error),
			 STATUS_UNAVAILABLE);
	assert_null(module);
	free(bytes);
	// A buffer that a binding does not reach is refused with the figures, not cut.
	struct exogpu_device_limits limits = *exogpu_device_limits(here->device);
	if (limits.capabilities & EXOGPU_CAN_SOFTWARE) {
		struct exogpu_buffer *large = make(here, 130ull << 20, EXOGPU_MEMORY_DEVICE);
		const struct exogpu_argument arguments[] = {buffer_of(large), u32(0)};
		error = (struct error){0};
		assert_int_equal(launch(here, 1, arguments, 2, &error), STATUS_LIMIT_EXCEEDED);
		print_message("%s; %s\n", error.message, error.hint);
		exogpu_buffer_destroy(&large);
		// More groups than 32 bits count would run as what is left of their number.
		struct exogpu_launch grids = {.module = here->module, .kernel = "main", .grid = {32768, 32768, 4}};
		const struct exogpu_argument small[] = {buffer_of(buffer), u32(0)};
		grids.arguments = small;
		grids.argument_count = 2;
		error = (struct error){0};
		assert_int_equal(exogpu_launch(here->stream, &grids, &error), STATUS_LIMIT_EXCEEDED);
		print_message("%s\n", error.message);
	}
	exogpu_buffer_destroy(&buffer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(computes, begin, end),
		cmocka_unit_test_setup_teardown(by_address, begin, end),
		cmocka_unit_test_setup_teardown(stays_inside, begin, end),
		cmocka_unit_test_setup_teardown(many_launches, begin, end),
		cmocka_unit_test_setup_teardown(refused, begin, end),
	};
	key = here_key();
	return key[0] ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
