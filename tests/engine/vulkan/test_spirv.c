/* The reflection of SPIR-V: what it tells of modules that glslc made, and that nothing else passes. */
#include "tests/engine/vulkan/here.h"

static const struct spirv_limits all = {.version = 0x00010600,
					.features = UINT32_MAX,
					.buffers = 16,
					.push_bytes = 128,
					.shared_bytes = 32768,
					.block = {1024, 1024, 64},
					.block_threads = 1024};

static enum status reflect(const uint8_t *bytes, size_t length, const struct spirv_limits *limits,
			   struct spirv_module *module)
{
	struct error error = {0};
	enum status status = spirv_reflect(module, bytes, length, limits, &error);
	assert_int_equal(status != STATUS_OK, error.message[0] != '\0');
	return status;
}

static uint8_t *need(const char *name, size_t *length)
{
	uint8_t *bytes = here_module(name, length);
	if (!bytes) {
		print_message("not done: no GLSL compiler at build time\n");
		skip();
	}
	return bytes;
}

static void told_as_written(void **state)
{
	static struct spirv_module module;
	size_t length;
	uint8_t *bytes = need("scale", &length);
	(void)state;
	HERE_OK(spirv_reflect(&module, bytes, length, &all, &error));
	assert_int_equal(module.kernel_count, 1);
	assert_string_equal(module.kernels[0].name, "main");
	assert_int_equal(module.kernels[0].block[0], 64);
	assert_int_equal(module.kernels[0].block[1], 1);
	assert_int_equal(module.binding_count, 2);
	assert_int_equal(module.bindings[0], 2);
	assert_int_equal(module.bindings[1], 5);
	const struct spirv_constant wanted[] = {
		{EXOGPU_ARGUMENT_WORD, 0},  {EXOGPU_ARGUMENT_WORD, 4},   {EXOGPU_ARGUMENT_WORD, 8},
		{EXOGPU_ARGUMENT_WORD, 12}, {EXOGPU_ARGUMENT_DWORD, 16}, {EXOGPU_ARGUMENT_WORD, 24},
		{EXOGPU_ARGUMENT_WORD, 28}, {EXOGPU_ARGUMENT_WORD, 32},
	};
	assert_int_equal(module.constant_count, 8);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(module.constants[i].kind, wanted[i].kind);
		assert_int_equal(module.constants[i].offset, wanted[i].offset);
	}
	assert_int_equal(module.push_bytes, 36);
	free(bytes);
	bytes = need("address", &length);
	HERE_OK(spirv_reflect(&module, bytes, length, &all, &error));
	assert_int_equal(module.binding_count, 0);
	assert_int_equal(module.constant_count, 3);
	assert_int_equal(module.constants[0].kind, EXOGPU_ARGUMENT_DWORD);
	assert_int_equal(module.kernels[0].block[1], 2);
	free(bytes);
}

// What a device has not is not asked of it.
static void limits_hold(void **state)
{
	static struct spirv_module module;
	size_t length;
	uint8_t *bytes = need("scale", &length);
	struct spirv_limits limits;
	(void)state;
#define WITH(change) \
	do { \
		limits = all; \
		limits.change; \
		assert_int_equal(reflect(bytes, length, &limits, &module), STATUS_INVALID_PARAMS); \
	} while (0)
	WITH(features = UINT32_MAX & ~(uint32_t)SPIRV_INT64);
	WITH(version = 0x00010200);
	WITH(buffers = 1);
	WITH(push_bytes = 32);
	WITH(shared_bytes = 255);
	WITH(block[0] = 63);
	WITH(block_threads = 63);
#undef WITH
	free(bytes);
	bytes = need("address", &length);
	limits = all;
	limits.features &= ~(uint32_t)SPIRV_ADDRESSES;
	assert_int_equal(reflect(bytes, length, &limits, &module), STATUS_INVALID_PARAMS);
	free(bytes);
	bytes = need("image", &length);
	assert_int_equal(reflect(bytes, length, &all, &module), STATUS_INVALID_PARAMS);
	free(bytes);
}

static void put(uint8_t *bytes, size_t word, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		bytes[4 * word + (size_t)i] = (uint8_t)(value >> (8 * i));
}

static void garbage(void **state)
{
	static struct spirv_module module;
	size_t length;
	uint8_t *bytes = need("scale", &length), *copy = malloc(length);
	(void)state;
	for (size_t cut = 0; cut < length; cut++)
		assert_int_equal(reflect(bytes, cut, &all, &module), STATUS_INVALID_PARAMS);
	memcpy(copy, bytes, length);
	for (size_t i = 0; i < length; i += 4) { // the other order of bytes
		uint32_t word;
		memcpy(&word, bytes + i, 4);
		word = __builtin_bswap32(word);
		memcpy(copy + i, &word, 4);
	}
	assert_int_equal(reflect(copy, length, &all, &module), STATUS_INVALID_PARAMS);
	const struct {
		size_t word;
		uint32_t value;
	} heads[] = {{0, 0}, {0, 0x07230204}, {1, 0x00020000}, {1, 0x00010301}, {1, 0},
		     {3, 0}, {3, 1},          {3, UINT32_MAX}, {4, 1},          {5, 0}};
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		memcpy(copy, bytes, length);
		put(copy, heads[i].word, heads[i].value);
		assert_int_equal(reflect(copy, length, &all, &module), STATUS_INVALID_PARAMS);
	}
	// Each bit turned, one at a time: whatever it says, it says it within the bytes (the sanitizers watch).
	unsigned passed = 0;
	for (size_t bit = 0; bit < 8 * length; bit++) {
		memcpy(copy, bytes, length);
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		passed += reflect(copy, length, &all, &module) == STATUS_OK;
	}
	print_message("%u of %zu modules with one bit turned still pass\n", passed, 8 * length);
	free(copy);
	free(bytes);
}

// Modules of hand-written words, for what no compiler makes.
struct writer {
	uint8_t bytes[4096];
	size_t words;
};

static void emit(struct writer *w, unsigned count, const uint32_t *words, unsigned op)
{
	put(w->bytes, w->words++, (count + 1) << 16 | op);
	for (unsigned i = 0; i < count; i++)
		put(w->bytes, w->words++, words[i]);
}
#define EMIT(w, op, ...) emit(w, sizeof((const uint32_t[]){__VA_ARGS__}) / 4, (const uint32_t[]){__VA_ARGS__}, op)

static void begin(struct writer *w)
{
	memset(w, 0, sizeof(*w));
	w->words = 5;
	put(w->bytes, 0, 0x07230203);
	put(w->bytes, 1, 0x00010300);
	put(w->bytes, 3, 100);
	EMIT(w, 17, 1);                   // Shader
	EMIT(w, 15, 5, 1, 0x6e69616d, 0); // GLCompute %1 "main"
	EMIT(w, 16, 1, 17, 1, 1, 1);      // LocalSize
}

static enum status ends(struct writer *w, struct spirv_module *module)
{
	EMIT(w, 54, 90, 1, 0, 91); // %1, the kernel
	emit(w, 0, NULL, 56);
	return reflect(w->bytes, 4 * w->words, &all, module);
}

static void by_hand(void **state)
{
	static struct spirv_module module;
	struct writer w;
	(void)state;
	begin(&w);
	assert_int_equal(ends(&w, &module), STATUS_OK);
	begin(&w);
	EMIT(&w, 17, 6); // Kernel: OpenCL's
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 15, 5, 2, 0x6e69616d, 0); // two kernels of one name
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 15, 5, 2, 0x0a69616d, 0); // a name with a line end
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 15, 5, 2, 0x6e69616d); // a name without an end
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 30, 10, 10);       // a structure of itself
	EMIT(&w, 72, 10, 0, 35, 0); // its member at offset 0
	EMIT(&w, 32, 11, 9, 10);    // pointer to push constants
	EMIT(&w, 59, 11, 12, 9);    // variable
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 21, 10, 32, 0);       // u32
	EMIT(&w, 43, 10, 13, 1 << 30); // a constant
	EMIT(&w, 28, 14, 10, 13);      // an array of so many
	EMIT(&w, 28, 15, 14, 13);      // and of those
	EMIT(&w, 28, 16, 15, 13);
	EMIT(&w, 32, 17, 4, 16); // in shared memory
	EMIT(&w, 59, 17, 18, 4);
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 21, 10, 32, 0);
	EMIT(&w, 30, 11, 10);
	EMIT(&w, 32, 12, 12, 11);
	EMIT(&w, 71, 13, 33, 300); // a binding that makes drivers' tables long
	EMIT(&w, 71, 13, 34, 0);
	EMIT(&w, 59, 12, 13, 12);
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
	begin(&w);
	EMIT(&w, 21, 10, 32, 0);
	EMIT(&w, 30, 11, 10, 10);
	EMIT(&w, 72, 11, 0, 35, 0); // two members in one place
	EMIT(&w, 72, 11, 1, 35, 0);
	EMIT(&w, 32, 12, 9, 11);
	EMIT(&w, 59, 12, 13, 9);
	assert_int_equal(ends(&w, &module), STATUS_INVALID_PARAMS);
}

// Two functions, of which the first calls the second: no part of the module passes, and each stands for itself.
static void functions(void **state)
{
	static struct spirv_module module;
	struct writer whole;
	(void)state;
	begin(&whole);
	const size_t before = whole.words;
	EMIT(&whole, 8, 80, 1, 0); // where in the source
	EMIT(&whole, 54, 90, 1, 0, 91);
	EMIT(&whole, 248, 2);
	EMIT(&whole, 57, 90, 3, 4); // calls %4
	emit(&whole, 0, NULL, 253);
	emit(&whole, 0, NULL, 56);
	EMIT(&whole, 8, 80, 2, 0);
	EMIT(&whole, 54, 90, 4, 0, 91);
	EMIT(&whole, 248, 5);
	emit(&whole, 0, NULL, 253);
	emit(&whole, 0, NULL, 56);
	assert_int_equal(reflect(whole.bytes, 4 * whole.words, &all, &module), STATUS_OK);
	for (size_t cut = 0; cut < 4 * whole.words; cut++)
		assert_int_equal(reflect(whole.bytes, cut, &all, &module), STATUS_INVALID_PARAMS);
	struct writer w = whole;
	emit(&w, 0, NULL, 56); // an end without a beginning
	assert_int_equal(reflect(w.bytes, 4 * w.words, &all, &module), STATUS_INVALID_PARAMS);
	w = whole;
	EMIT(&w, 248, 6); // code behind the last function
	assert_int_equal(reflect(w.bytes, 4 * w.words, &all, &module), STATUS_INVALID_PARAMS);
	w = whole;
	w.words = before;
	EMIT(&w, 54, 90, 1, 0, 91); // a function in a function
	EMIT(&w, 54, 90, 4, 0, 91);
	emit(&w, 0, NULL, 56);
	emit(&w, 0, NULL, 56);
	assert_int_equal(reflect(w.bytes, 4 * w.words, &all, &module), STATUS_INVALID_PARAMS);
	w = whole;
	w.words = before;
	EMIT(&w, 21, 1, 32, 0); // the kernel is a type
	EMIT(&w, 54, 90, 4, 0, 91);
	emit(&w, 0, NULL, 56);
	assert_int_equal(reflect(w.bytes, 4 * w.words, &all, &module), STATUS_INVALID_PARAMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(told_as_written), cmocka_unit_test(limits_hold), cmocka_unit_test(garbage),
		cmocka_unit_test(by_hand),         cmocka_unit_test(functions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
