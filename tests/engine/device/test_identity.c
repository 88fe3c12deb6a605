/* Hardware keys, device ids, names of families, and the comparison of versions. */
#include "engine/device/family.h"
#include "engine/device/identity.h"
#include "engine/device/requirements.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static void uuid_is_printed_as_nvidia_smi_does(void **state)
{
	const uint8_t uuid[16] = {0x26, 0x31, 0x8c, 0xf3, 0x24, 0x91, 0x8b, 0xa9,
				  0x5e, 0x54, 0x60, 0x69, 0x17, 0x89, 0x06, 0x3b};
	const uint8_t none[16] = {0};
	char text[48];
	(void)state;
	identity_uuid_text(text, uuid);
	assert_string_equal(text, "26318cf3-2491-8ba9-5e54-60691789063b");
	identity_uuid_text(text, none);
	assert_string_equal(text, "");
}

static void key_is_the_best_that_is_told(void **state)
{
	struct device_info info = {
		.uuid = "26318cf3-2491-8ba9-5e54-60691789063b", .pci_address = "0000:00:06.0", .index = 2};
	(void)state;
	identity_gpu(&info, true, "llvmpipe");
	assert_string_equal(info.hardware_key, "driver:llvmpipe");
	identity_gpu(&info, false, "NVIDIA");
	assert_string_equal(info.hardware_key, "uuid:26318cf3-2491-8ba9-5e54-60691789063b");
	info.uuid[0] = 0;
	identity_gpu(&info, false, "NVIDIA");
	assert_string_equal(info.hardware_key, "pci:0000:00:06.0");
	info.pci_address[0] = 0;
	identity_gpu(&info, false, "NVIDIA");
	assert_string_equal(info.hardware_key, "driver:NVIDIA:2");
}

static void device_id_depends_on_node_and_key(void **state)
{
	char one[IDENTITY_ID_BYTES], same[IDENTITY_ID_BYTES], other[IDENTITY_ID_BYTES];
	(void)state;
	identity_device_id(one, "node_0123456789abcdef", "cpu");
	identity_device_id(same, "node_0123456789abcdef", "cpu");
	identity_device_id(other, "node_0123456789abcdee", "cpu");
	// printf 'node_0123456789abcdef/cpu' | sha256sum | cut -c1-16
	assert_string_equal(one, "dev_4529ea83ff53496a");
	assert_string_equal(one, same);
	assert_string_not_equal(one, other);
}

static void node_ids_are_random(void **state)
{
	char one[IDENTITY_ID_BYTES], other[IDENTITY_ID_BYTES];
	(void)state;
	assert_int_equal(identity_new_node_id(one, NULL), STATUS_OK);
	assert_int_equal(identity_new_node_id(other, NULL), STATUS_OK);
	assert_int_equal(strlen(one), strlen("node_") + 16);
	assert_string_not_equal(one, other);
}

static void families_have_the_makers_names(void **state)
{
	(void)state;
	assert_string_equal(family_by_capability(7, 0), "Volta");
	assert_string_equal(family_by_capability(7, 5), "Turing");
	assert_string_equal(family_by_capability(8, 0), "Ampere");
	assert_string_equal(family_by_capability(8, 6), "Ampere");
	assert_string_equal(family_by_capability(8, 9), "Ada Lovelace");
	assert_string_equal(family_by_capability(9, 0), "Hopper");
	assert_string_equal(family_by_capability(10, 0), "Blackwell");
	assert_string_equal(family_by_capability(12, 0), "Blackwell");
	assert_null(family_by_capability(99, 0));
	assert_string_equal(family_by_id(0x10de, 0x2335), "Hopper"); // H200
	assert_string_equal(family_by_id(0x1002, 0x744c), "RDNA 3"); // Radeon RX 7900 XTX
	assert_string_equal(family_by_id(0x1002, 0x740f), "CDNA 2"); // Instinct MI210
	assert_string_equal(family_by_id(0x8086, 0x56a0), "Xe-HPG"); // Arc A770
	assert_string_equal(family_by_id(0x13b5, 0x90020010), "Valhall");
	assert_string_equal(family_by_id(0x5143, 0x06030001), "Adreno 600");
	assert_null(family_by_id(0x1002, 0x0001));
	assert_null(family_by_id(0x10005, 0));
	assert_string_equal(family_vendor(0x8086), "Intel");
	assert_null(family_vendor(0xffff));
}

static void versions_compare_by_number(void **state)
{
	(void)state;
	assert_int_equal(version_compare("1.10", "1.9"), 1);
	assert_int_equal(version_compare("1.2", "1.2.0"), 0);
	assert_int_equal(version_compare("470", "470.82.01"), -1);
	assert_int_equal(version_compare("Mesa 22.3.6 (LLVM 15.0.6)", "20.3"), 1);
	assert_int_equal(version_compare("", ""), 0);
}

static void too_old_says_what_to_do(void **state)
{
	struct error error = {0};
	(void)state;
	assert_int_equal(requirement_check(REQUIRE_VULKAN_MESA, "Mesa 22.3.6 (LLVM 15.0.6)", &error), STATUS_OK);
	assert_int_equal(requirement_check(REQUIRE_VULKAN_MESA, "no number", &error), STATUS_OK);
	assert_int_equal(requirement_check(REQUIRE_CUDA_DRIVER_API, "13.0", &error), STATUS_OK);
	assert_string_equal(error.message, "");
	assert_int_equal(requirement_check(REQUIRE_CUDA_DRIVER_API, "11.4", &error), STATUS_UNAVAILABLE);
	assert_string_equal(error.message, "the CUDA driver is 11.4, at least 11.5 is needed");
	assert_non_null(strstr(error.hint, "495"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uuid_is_printed_as_nvidia_smi_does),
		cmocka_unit_test(key_is_the_best_that_is_told),
		cmocka_unit_test(device_id_depends_on_node_and_key),
		cmocka_unit_test(node_ids_are_random),
		cmocka_unit_test(families_have_the_makers_names),
		cmocka_unit_test(versions_compare_by_number),
		cmocka_unit_test(too_old_says_what_to_do),
	};
	return cmocka_run_group_tests_name("device/identity", tests, NULL, NULL);
}
