/* Kernels that are machine code: loaded as they are, without the driver's compiler; and what is told where a GPU, or
 * its driver, cannot have them. By the driver that stands for NVIDIA's (driver/standin.c), and a binary of this test's
 * own, whose only image is one for compute capability 9.0: an ELF file that declares fill_f32, and runs nowhere. */
#include "common/files/embedded.h"
#include "engine/include/exogpu/exogpu.h"
#include "tests/engine/cuda/here.h"
#include "tests/engine/cuda/struck.h"

#include <elf.h>

enum { NAMES_BYTES = 48, PARAMETERS = 3, PARAMETER_WORDS = 4, ELEMENTS = 1024 };
enum { NO_BINARY = CUDA_ERROR_NO_BINARY_FOR_GPU, NO_ROOM = CUDA_ERROR_OUT_OF_MEMORY };

// As ptxas writes it, as far as the stand-in reads it: the sections are nothing, the names, and what fill_f32 takes.
struct __attribute__((packed)) cubin {
	Elf64_Ehdr head;
	Elf64_Shdr sections[3];
	uint32_t parameters[PARAMETERS][PARAMETER_WORDS];
	char names[NAMES_BYTES];
};
// A gzip file whose only block is stored (RFC 1951, 1952).
static struct __attribute__((packed)) packed {
	uint8_t head[10], block;
	uint16_t length, inverse;
	struct cubin cubin;
	uint32_t sum, size;
} packed;
_Static_assert(sizeof(struct cubin) < 65536, "one block holds it");

static const char built[] = "compiler NVRTC 12.8.93\nimages sm_90a:12.0\nnote \n";
const struct embedded_file embedded_files[] = {
	{"kernels/cuda/built.txt", (const uint8_t *)built, sizeof(built) - 1},
	{"kernels/cuda/sm_90a/matmul.cubin.gz", (const uint8_t *)&packed, sizeof(packed)},
	{"kernels/cuda/sm_90a/vector.cubin.gz", (const uint8_t *)&packed, sizeof(packed)},
	{"kernels/cuda/sm_90a/verify.cubin.gz", (const uint8_t *)&packed, sizeof(packed)},
};
const size_t embedded_file_count = sizeof(embedded_files) / sizeof(embedded_files[0]);

static uint32_t crc32_of(const uint8_t *bytes, size_t length)
{
	uint32_t sum = UINT32_MAX;
	for (size_t i = 0; i < length; i++) {
		sum ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
	}
	return ~sum;
}

static void make_cubin(void)
{
	static const char names[] = "\0.shstrtab\0.nv.info.fill_f32";
	static const uint32_t bytes[PARAMETERS] = {8, 4, 8}; // the buffer, the value, how many
	struct cubin *cubin = &packed.cubin;
	memcpy(cubin->head.e_ident, ELFMAG, SELFMAG);
	cubin->head.e_flags = 90;
	cubin->head.e_shoff = offsetof(struct cubin, sections);
	cubin->head.e_shnum = 3;
	cubin->head.e_shstrndx = 1;
	memcpy(cubin->names, names, sizeof(names));
	cubin->sections[1] = (Elf64_Shdr){
		.sh_name = 1, .sh_offset = offsetof(struct cubin, names), .sh_size = sizeof(cubin->names)};
	cubin->sections[2] = (Elf64_Shdr){
		.sh_name = 11, .sh_offset = offsetof(struct cubin, parameters), .sh_size = sizeof(cubin->parameters)};
	for (uint32_t i = 0; i < PARAMETERS; i++) {
		const uint32_t words[PARAMETER_WORDS] = {0x04 | 0x17 << 8 | 12u << 16, 0, i | 8 * i << 16,
							 bytes[i] << 18};
		memcpy(cubin->parameters[i], words, sizeof(words));
	}
	memcpy(packed.head, "\x1f\x8b\x08\0\0\0\0\0\0\xff", sizeof(packed.head));
	packed.block = 1; // the last
	packed.length = sizeof(*cubin);
	packed.inverse = (uint16_t)~packed.length;
	packed.sum = crc32_of((const uint8_t *)cubin, sizeof(*cubin));
	packed.size = sizeof(*cubin);
}

static struct exogpu_device *begin(int capability, const char *failing, CUresult result)
{
	strike.begin(-1, result, false);
	strikes->capability = capability;
	strikes->name = failing;
	return here_open(0);
}

static void end(struct exogpu_device *device)
{
	exogpu_device_close(&device, NULL);
	strikes->name = NULL;
	strike.end();
	assert_string_equal(strikes->wrong, "");
}

static enum status fill(struct exogpu_device *device, struct error *error)
{
	struct exogpu_module *module = NULL;
	struct exogpu_stream *stream = NULL;
	struct exogpu_buffer *buffer = NULL;
	uint64_t point = 0;
	enum status status = exogpu_module_load(device, &module, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
	if (!status)
		status = exogpu_stream_create(device, &stream, error);
	if (!status)
		status = exogpu_buffer_create(device, &buffer, ELEMENTS * sizeof(float), EXOGPU_MEMORY_DEVICE, error);
	const struct exogpu_argument arguments[] = {{EXOGPU_ARGUMENT_BUFFER, .buffer = buffer},
						    {EXOGPU_ARGUMENT_F32, .f32 = 1},
						    {EXOGPU_ARGUMENT_U64, .u64 = ELEMENTS}};
	const struct exogpu_launch launch = {
		.module = module, .kernel = "fill_f32", .arguments = arguments, .argument_count = 3};
	if (!status)
		status = exogpu_launch(stream, &launch, error);
	if (!status)
		status = exogpu_mark(stream, &point, error);
	return status ? status : exogpu_wait(stream, point, 1000000000, error);
}

static void test_loaded(void **state)
{
	struct exogpu_device *device = begin(90, "cuLinkCreate_v2", NO_BINARY); // the driver's compiler
	(void)state;
	HERE_OK(fill(device, &error));
	assert_int_equal(strikes->named, 0);
	end(device);
}

static void expect_refused(int capability, const char *failing, const char *message, const char *hint)
{
	struct error error = {0};
	struct exogpu_device *device = begin(capability, failing, NO_BINARY);
	assert_int_equal(fill(device, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, message));
	assert_string_equal(error.hint, hint);
	end(device);
}

static void test_another_gpu(void **state)
{
	(void)state;
	expect_refused(
		80, NULL,
		"this binary has no CUDA kernels for compute capability 8.0: they are by NVRTC 12.8.93, for sm_90a",
		"build with -DEXOGPU_CUDA_IMAGES=all, or on a machine with such a GPU");
}

static void test_refused_by_the_driver(void **state)
{
	(void)state;
	expect_refused(90, "cuModuleLoadDataEx", "cuModuleLoadDataEx: ",
		       "install a newer NVIDIA driver; until then this GPU is used through Vulkan");
}

// A newer driver would not help.
static void test_no_room(void **state)
{
	struct error error = {0};
	struct exogpu_device *device = begin(90, "cuModuleLoadDataEx", NO_ROOM);
	(void)state;
	assert_int_equal(fill(device, &error), STATUS_OUT_OF_MEMORY);
	assert_null(strstr(error.hint, "driver"));
	end(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_loaded), cmocka_unit_test(test_another_gpu),
					   cmocka_unit_test(test_refused_by_the_driver),
					   cmocka_unit_test(test_no_room)};
	strike_load(NULL);
	strikes->capability = 90;
	strikes->countdown = -1;
	if (!here_find(1))
		return 77;
	make_cubin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
