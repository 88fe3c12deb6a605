/* Which image of kernels a GPU is given, by its compute capability and its driver, and what is told where there is
 * none; and that every image of this binary is whole: a PTX says which driver it asks for, a cubin for which GPU it is.
 */
#include "common/files/embedded.h"
#include "engine/cuda/images.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// after its own requirements
#include <cmocka.h>

#define RELEASE "sm_80:12.0 sm_86:12.0 sm_89:12.0 sm_90a:12.0 sm_100a:12.0 sm_120a:12.0 compute_80:11.5 compute_90:12.0"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// The number at the beginning of a text.
static int number(const char *text)
{
	char *end;
	const long value = strtol(text, &end, 10);
	assert_true(end > text && value >= 0 && value < 1000);
	return (int)value;
}

static enum status choose(const char *images, int capability, int driver, const struct cuda_image **image,
			  struct error *error)
{
	struct kernels_built built = {.compiler = "NVRTC 12.8.93"};
	snprintf(built.images, sizeof(built.images), "%s", images);
	*error = (struct error){0};
	return cuda_image_choose(image, &built, capability, driver, error);
}

static void test_choice(void **state)
{
	static const struct {
		const char *images;
		int capability, driver;
		const char *folder;
	} cases[] = {
		{RELEASE, 80, 12000, "sm_80"},
		{RELEASE, 86, 12080, "sm_86"},
		{RELEASE, 87, 12080, "sm_86"}, // Orin: machine code serves later minors of its major
		{RELEASE, 89, 13000, "sm_89"},
		{RELEASE, 90, 13000, "sm_90a"},
		{RELEASE, 100, 12080, "sm_100a"},
		{RELEASE, 103, 13000, "compute_90"}, // names that end with an a serve one capability alone
		{RELEASE, 120, 12080, "sm_120a"},
		{RELEASE, 121, 13000, "compute_90"},
		{RELEASE, 130, 14000, "compute_90"},
		{RELEASE, 90, 11080, "compute_80"}, // a driver of CUDA 11 loads no cubin of CUDA 12
		{RELEASE, 86, 11050, "compute_80"},
		{"sm_80:12.0 compute_80:11.5", 89, 12000, "sm_80"},
		{"sm_89:12.0 compute_80:11.5", 86, 12000, "compute_80"},
		{"sm_90a:13.0 compute_80:11.5 compute_90:12.0", 90, 12080, "compute_90"}, // cubins by nvcc 13
		{"sm_90a:13.0 compute_80:11.5 compute_90:12.0", 90, 13000, "sm_90a"},
		{"compute_80:11.5 compute_90:12.0", 90, 13000, "compute_90"},
		{"compute_80:11.5 compute_90a:13.0", 90, 13000, "compute_90a"},
		{"compute_80:11.5 compute_90a:13.0", 100, 13000, "compute_80"},
	};
	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct cuda_image *image;
		struct error error;
		assert_int_equal(choose(cases[i].images, cases[i].capability, cases[i].driver, &image, &error), 0);
		assert_string_equal(image->folder, cases[i].folder);
		assert_int_equal(image->ptx, !strncmp(image->folder, "compute", 7));
		assert_int_equal(image->wide, strstr(image->folder, "_90a") != NULL);
		assert_int_equal(image->overlaps, number(strchr(image->folder, '_') + 1) >= 90);
	}
}

static void test_none(void **state)
{
	static const struct {
		const char *images;
		int capability, driver;
		const char *message, *hint;
	} cases[] = {
		{"sm_90a:12.0", 90, 11080,
		 "the CUDA kernels for this GPU need a driver of CUDA 12.0, and this one has 11.8",
		 "install an NVIDIA driver of version 525 or newer; until then this GPU is used through Vulkan"},
		{"sm_90a:13.0 compute_80:12.8", 90, 12020,
		 "the CUDA kernels for this GPU need a driver of CUDA 12.8, and this one has 12.2",
		 "install an NVIDIA driver of version 570 or newer; until then this GPU is used through Vulkan"},
		{"sm_90a:12.0 sm_100a:12.0", 86, 13000,
		 "this binary has no CUDA kernels for compute capability 8.6: they are by NVRTC 12.8.93, for sm_90a "
		 "and "
		 "sm_100a",
		 "build with -DEXOGPU_CUDA_IMAGES=all, or on a machine with such a GPU"},
		{RELEASE, 75, 13000,
		 "this binary has no CUDA kernels for compute capability 7.5: they are by NVRTC 12.8.93, for sm_80, "
		 "sm_86, "
		 "sm_89, sm_90a, sm_100a, sm_120a, compute_80 and compute_90",
		 "build with -DEXOGPU_CUDA_IMAGES=all, or on a machine with such a GPU"},
	};
	const struct kernels_built nothing = {0};
	const struct cuda_image *image;
	struct error error = {0};
	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(choose(cases[i].images, cases[i].capability, cases[i].driver, &image, &error),
				 STATUS_UNAVAILABLE);
		assert_null(image);
		assert_string_equal(error.message, cases[i].message);
		assert_string_equal(error.hint, cases[i].hint);
	}
	error = (struct error){0};
	assert_int_equal(cuda_image_choose(&image, &nothing, 90, 13000, &error), STATUS_UNAVAILABLE);
	assert_string_equal(error.message, "this binary was built without CUDA kernels");
}

static void test_slower(void **state)
{
	struct kernels_built built = {.compiler = "NVRTC 12.8.93", .images = RELEASE};
	const struct cuda_image *image;
	char text[256] = "";
	(void)state;
	assert_int_equal(cuda_image_choose(&image, &built, 90, 13000, NULL), STATUS_OK);
	assert_false(cuda_image_slower(image, &built, 90, text, sizeof(text)));
	assert_int_equal(cuda_image_choose(&image, &built, 90, 11080, NULL), STATUS_OK);
	assert_true(cuda_image_slower(image, &built, 90, text, sizeof(text)));
	assert_string_equal(text,
			    "its driver is too old for the machine code of this binary and compiles compute_80, which "
			    "is slower; install an NVIDIA driver of version 525 or newer");
	assert_int_equal(cuda_image_choose(&image, &built, 121, 13000, NULL), STATUS_OK);
	assert_true(cuda_image_slower(image, &built, 121, text, sizeof(text)));
	assert_string_equal(text,
			    "this binary has no machine code for it, and its driver compiles compute_90, which is "
			    "slower; build on this machine, or with -DEXOGPU_CUDA_IMAGES=all");
}

// 7.5 of "\n.version 7.5\n", as 75.
static int ptx_version(const char *text)
{
	const char *at = strstr(text, "\n.version ");
	assert_non_null(at);
	at += strlen("\n.version ");
	return 10 * number(at) + number(strchr(at, '.') + 1);
}

// The head of a PTX asks for no newer driver than built.txt says: 7.5 came with CUDA 11.5, 8.0 with 12.0, 8.7 with 12.8
// and 9.0 with 13.0.
static void check_ptx(const struct kernels_built *built, const char *folder, const char *text)
{
	const char *target = strstr(text, "\n.target sm_"), *least = strstr(built->images, folder);
	const int version = ptx_version(text), cuda = version + 40 + (version >= 86 && version < 90);
	assert_non_null(target);
	assert_int_equal(number(target + strlen("\n.target sm_")), number(folder + strlen("compute_")));
	least = strchr(least, ':') + 1;
	assert_in_range(cuda, 110, 10 * number(least) + number(strchr(least, '.') + 1));
}

static void check_cubin(const char *folder, const uint8_t *bytes, size_t length)
{
	Elf64_Ehdr head;
	assert_true(length > sizeof(head));
	memcpy(&head, bytes, sizeof(head));
	assert_memory_equal(head.e_ident, ELFMAG, SELFMAG);
	assert_int_equal(head.e_flags & 255, number(folder + strlen("sm_")));
}

static void test_embedded(void **state)
{
	struct kernels_built built;
	const struct embedded_file *file;
	(void)state;
	kernels_built_read(&built);
	if (!built.compiler[0])
		skip();
	size_t count = embedded_list("kernels/cuda/", &file);
	assert_true(count > 1);
	for (; count; count--, file++) {
		char folder[32] = "";
		uint8_t *bytes;
		size_t length;
		struct error error = {0};
		if (strstr(file->name, "/built.txt"))
			continue;
		assert_int_equal(sscanf(file->name, "kernels/cuda/%31[^/]", folder), 1);
		assert_non_null(strstr(built.images, folder)); // nothing that an earlier build has left
		assert_int_equal(embedded_inflate(file, &bytes, &length, &error), STATUS_OK);
		if (strstr(file->name, ".ptx.gz"))
			check_ptx(&built, folder, (const char *)bytes);
		else
			check_cubin(folder, bytes, length);
		free(bytes);
	}
	// Cut short, or no gzip file at all.
	assert_true(embedded_list("kernels/cuda/compute_80/", &file) || embedded_list("kernels/cuda/", &file));
	for (unsigned i = 0; i < 3; i++) {
		const size_t lengths[] = {0, 7, file->length / 2};
		const struct embedded_file cut = {file->name, file->data, lengths[i]};
		uint8_t *bytes;
		size_t length;
		struct error error = {0};
		assert_int_not_equal(embedded_inflate(&cut, &bytes, &length, &error), STATUS_OK);
		assert_null(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_choice), cmocka_unit_test(test_none),
					   cmocka_unit_test(test_slower), cmocka_unit_test(test_embedded)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
