/* Wrong arguments of each kind, each with its status; after all of them the device does its work as before. */
#include "common/base/limits.h"
#include "tests/engine/conformance/conformance.h"

// The device still computes, and nothing is left over.
static void unharmed(struct conformance *c)
{
	struct exogpu_usage usage;
	struct exogpu_buffer *buffer = make(c, 16, EXOGPU_MEMORY_DEVICE);
	float got[4];
	LAUNCH(c, "fill_f32", buffer_argument(buffer), f32_argument(2), u32_argument(4));
	OK(exogpu_read(got, buffer, 0, 16, &error));
	assert_true(got[0] == 2 && got[3] == 2);
	exogpu_buffer_destroy(&buffer);
	exogpu_device_usage(c->device, &usage);
	assert_int_equal(usage.buffers, 0);
	assert_int_equal(usage.streams, 1);
	assert_int_equal(usage.modules, 1);
	assert_false(exogpu_device_lost(c->device));
}

void test_wrong_nulls(void **state)
{
	struct conformance *c = *state;
	const enum status wrong = STATUS_INVALID_PARAMS;
	struct exogpu_buffer *buffer = make(c, 64, EXOGPU_MEMORY_DEVICE), *made = NULL;
	struct exogpu_stream *stream = NULL;
	struct exogpu_module *module = NULL;
	struct exogpu_copy copy = {.to = buffer, .from = NULL, .bytes = 1};
	struct exogpu_launch none = {.module = c->builtin};
	uint64_t number;
	int64_t ns;
	uint8_t byte = 0;
	REFUSED(wrong, exogpu_find_devices(NULL, NULL, &error));
	REFUSED(wrong, exogpu_device_memory(NULL, &number, &number, &error));
	REFUSED(wrong, exogpu_device_memory(c->device, NULL, &number, &error));
	REFUSED(wrong, exogpu_buffer_create(NULL, &made, 1, EXOGPU_MEMORY_DEVICE, &error));
	REFUSED(wrong, exogpu_buffer_create(c->device, NULL, 1, EXOGPU_MEMORY_DEVICE, &error));
	REFUSED(wrong, exogpu_write(NULL, 0, &byte, 1, &error));
	REFUSED(wrong, exogpu_write(buffer, 0, NULL, 1, &error));
	REFUSED(wrong, exogpu_read(&byte, NULL, 0, 1, &error));
	REFUSED(wrong, exogpu_read(NULL, buffer, 0, 1, &error));
	REFUSED(wrong, exogpu_stream_create(NULL, &stream, &error));
	REFUSED(wrong, exogpu_stream_create(c->device, NULL, &error));
	REFUSED(wrong, exogpu_copy(c->stream, NULL, &error));
	REFUSED(wrong, exogpu_copy(c->stream, &copy, &error));
	copy = (struct exogpu_copy){.to = NULL, .from = buffer, .bytes = 1};
	REFUSED(wrong, exogpu_copy(c->stream, &copy, &error));
	copy.to = buffer;
	REFUSED(wrong, exogpu_copy(NULL, &copy, &error));
	REFUSED(wrong, exogpu_fill(NULL, buffer, 0, 1, 0, &error));
	REFUSED(wrong, exogpu_fill(c->stream, NULL, 0, 1, 0, &error));
	REFUSED(wrong, exogpu_mark(NULL, &number, &error));
	REFUSED(wrong, exogpu_mark(c->stream, NULL, &error));
	REFUSED(wrong, exogpu_reached(NULL, &number, &error));
	REFUSED(wrong, exogpu_reached(c->stream, NULL, &error));
	REFUSED(wrong, exogpu_wait(NULL, 0, 0, &error));
	REFUSED(wrong, exogpu_follow(NULL, c->stream, 0, &error));
	REFUSED(wrong, exogpu_follow(c->stream, NULL, 0, &error));
	REFUSED(wrong, exogpu_elapsed(NULL, 1, 1, &ns, &error));
	REFUSED(wrong, exogpu_elapsed(c->stream, 1, 1, NULL, &error));
	REFUSED(wrong, exogpu_module_load(NULL, &module, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	REFUSED(wrong, exogpu_module_load(c->device, NULL, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	REFUSED(wrong, exogpu_launch(NULL, &none, &error));
	REFUSED(wrong, exogpu_launch(c->stream, NULL, &error));
	REFUSED(wrong, exogpu_launch(c->stream, &none, &error)); // no kernel
	REFUSED(wrong, exogpu_launch(c->stream, &(struct exogpu_launch){.kernel = "sum_f32"}, &error));
	none = (struct exogpu_launch){.module = c->builtin, .kernel = "sum_f32", .argument_count = 3};
	REFUSED(wrong, exogpu_launch(c->stream, &none, &error)); // arguments nowhere
	assert_true(!made && !stream && !module);
	// What takes NULL, and an error that nobody wants.
	exogpu_buffer_destroy(NULL);
	exogpu_stream_destroy(NULL);
	exogpu_module_unload(NULL);
	exogpu_device_close(NULL, NULL);
	assert_null(exogpu_buffer_pointer(NULL));
	assert_null(exogpu_module_kernel(NULL, 0));
	assert_null(exogpu_device_limits(NULL));
	assert_int_equal(exogpu_buffer_bytes(NULL), 0);
	assert_int_equal(exogpu_copy(c->stream, NULL, NULL), STATUS_INVALID_PARAMS);
	exogpu_buffer_destroy(&buffer);
	unharmed(c);
}

void test_wrong_kinds(void **state)
{
	struct conformance *c = *state;
	struct exogpu_device *device = (struct exogpu_device *)(uintptr_t)1;
	struct exogpu_open open = {.backend = "none", .hardware_key = c->hardware_key};
	REFUSED(STATUS_INVALID_PARAMS, exogpu_device_open(NULL, &open, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_device_open(&device, NULL, &error));
	assert_null(device);
	REFUSED(STATUS_NOT_FOUND, exogpu_device_open(&device, &open, &error));
	open.backend = c->backend;
	open.hardware_key = "uuid:none";
	REFUSED(STATUS_NOT_FOUND, exogpu_device_open(&device, &open, &error));
	assert_null(device);
	open.hardware_key = "";
	REFUSED(STATUS_NOT_FOUND, exogpu_device_open(&device, &open, &error));
	open.hardware_key = NULL;
	REFUSED(STATUS_INVALID_PARAMS, exogpu_device_open(&device, &open, &error));
	unharmed(c);
}

void test_wrong_arguments(void **state)
{
	struct conformance *c = *state;
	struct exogpu_buffer *a = make(c, 64, EXOGPU_MEMORY_DEVICE), *b = make(c, 64, EXOGPU_MEMORY_DEVICE);
	const struct exogpu_argument A = buffer_argument(a), B = buffer_argument(b), n = u32_argument(4);
	const struct exogpu_argument f = f32_argument(1), none = {.kind = EXOGPU_ARGUMENT_BUFFER};
	const struct exogpu_argument i = {.kind = EXOGPU_ARGUMENT_I32, .i32 = 4};
	const struct exogpu_argument word = {.kind = EXOGPU_ARGUMENT_WORD, .u32 = 4};
	const struct exogpu_argument unknown = {.u32 = 4}, beyond = {.kind = (enum exogpu_argument_kind)99};
	LAUNCH_REFUSED(STATUS_NOT_FOUND, c, "nothing_f32", A, f, n);
	LAUNCH_REFUSED(STATUS_NOT_FOUND, c, "", A, f, n);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f);       // one too few
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, n, n); // one too many
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", f, f, n);    // a value for a buffer
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, A, n);    // a buffer for a value
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", none, f, n); // a buffer that is none
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, n, n);    // a whole number for a float
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, f);    // a float for a count
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, i);    // a count with a sign
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, word); // a word of signatures only
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, unknown);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "fill_f32", A, f, beyond);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "saxpy_f32", A, B, n, n);
	LAUNCH_REFUSED(STATUS_INVALID_PARAMS, c, "stream_fill", A, n, u64_argument(4)); // the seed is a u32
	exogpu_buffer_destroy(&a);
	exogpu_buffer_destroy(&b);
	unharmed(c);
}

void test_wrong_modules(void **state)
{
	static const uint32_t spirv_head[] = {0x07230203, 0x00010000, 0, 1, 0};
	static const char ptx_cut[] =
		".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 k_pa";
	struct conformance *c = *state;
	struct exogpu_module *module = NULL;
	bool ptx = c->limits->capabilities & EXOGPU_CAN_PTX, spirv = c->limits->capabilities & EXOGPU_CAN_SPIRV;
	uint8_t *garbage = make_pattern(5000, 77), *large = calloc(1, LIMIT_MODULE_BYTES + 4);
	const enum exogpu_format formats[] = {EXOGPU_FORMAT_PTX, EXOGPU_FORMAT_SPIRV};
	REFUSED(STATUS_INVALID_PARAMS,
		exogpu_module_load(c->device, &module, EXOGPU_FORMAT_UNKNOWN, garbage, 5000, &error));
	REFUSED(STATUS_INVALID_PARAMS,
		exogpu_module_load(c->device, &module, (enum exogpu_format)77, garbage, 5000, &error));
	for (int i = 0; i < 2; i++) {
		bool taken = i ? spirv : ptx;
		enum status wrong = taken ? STATUS_INVALID_PARAMS : STATUS_UNAVAILABLE;
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], garbage, 5000, &error));
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], garbage, 1, &error));
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], NULL, 0, &error));
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], large, 4096, &error)); // zeros
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], spirv_head, 20, &error));
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], spirv_head, 19, &error));
		REFUSED(wrong, exogpu_module_load(c->device, &module, formats[i], ptx_cut, sizeof(ptx_cut), &error));
		REFUSED(wrong,
			exogpu_module_load(c->device, &module, formats[i], ptx_cut, sizeof(ptx_cut) - 1, &error));
		REFUSED(taken ? STATUS_LIMIT_EXCEEDED : STATUS_UNAVAILABLE,
			exogpu_module_load(c->device, &module, formats[i], large, LIMIT_MODULE_BYTES + 4, &error));
	}
	assert_null(module);
	free(garbage);
	free(large);
	// Those built in, as they are listed.
	const char *const names[] = {"fill_f32", "saxpy_f32", "matmul_f32", "sum_f32"};
	const unsigned counts[] = {3, 4, 6, 3};
	for (unsigned i = 0; i < 4; i++) {
		const struct exogpu_kernel *kernel = exogpu_module_kernel(c->builtin, i);
		assert_non_null(kernel);
		assert_string_equal(kernel->name, names[i]);
		assert_int_equal(kernel->argument_count, counts[i]);
		assert_int_equal(kernel->arguments[0], EXOGPU_ARGUMENT_BUFFER);
	}
	assert_null(exogpu_module_kernel(c->builtin, 4));
	assert_null(exogpu_module_kernel(c->builtin, UINT32_MAX));
	unharmed(c);
}

// Things of two devices do not mix, except in a copy where the hardware has it.
void test_wrong_devices(void **state)
{
	struct conformance *c = *state;
	struct exogpu_device *other = NULL;
	struct exogpu_stream *stream = NULL;
	struct exogpu_buffer *mine = make(c, 64, EXOGPU_MEMORY_DEVICE), *theirs = NULL;
	OK(exogpu_device_open(&other, &(struct exogpu_open){.backend = c->backend, .hardware_key = c->hardware_key},
			      &error));
	OK(exogpu_stream_create(other, &stream, &error));
	OK(exogpu_buffer_create(other, &theirs, 64, EXOGPU_MEMORY_DEVICE, &error));
	const struct exogpu_argument arguments[] = {buffer_argument(theirs), f32_argument(1), u32_argument(1)};
	struct exogpu_launch work = {
		.module = c->builtin, .kernel = "fill_f32", .arguments = arguments, .argument_count = 3};
	struct exogpu_copy copy = {.to = theirs, .from = mine, .bytes = 64};
	REFUSED(STATUS_INVALID_PARAMS, exogpu_launch(c->stream, &work, &error)); // the buffer
	REFUSED(STATUS_INVALID_PARAMS, exogpu_launch(stream, &work, &error));    // the module
	REFUSED(STATUS_INVALID_PARAMS, exogpu_fill(c->stream, theirs, 0, 1, 0, &error));
	REFUSED(STATUS_INVALID_PARAMS, exogpu_copy(stream, &copy, &error)); // the stream is of `to`
	REFUSED(STATUS_INVALID_PARAMS, exogpu_follow(stream, c->stream, 0, &error));
	if (!(c->limits->capabilities & EXOGPU_CAN_PEER))
		REFUSED(STATUS_UNAVAILABLE, exogpu_copy(c->stream, &copy, &error));
	exogpu_buffer_destroy(&mine);
	exogpu_buffer_destroy(&theirs);
	exogpu_stream_destroy(&stream);
	exogpu_device_close(&other, NULL);
	unharmed(c);
}
