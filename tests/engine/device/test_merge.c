/* One piece of hardware seen by several APIs is one device, keeps its id, and is judged by what works. */
#include "common/wire/contract.h"
#include "engine/device/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

#define UUID "26318cf3-2491-8ba9-5e54-60691789063b"

static struct device_info gpu(enum backend_kind backend)
{
	struct device_info info = {.backend = backend,
				   .hardware_key = "uuid:" UUID,
				   .uuid = UUID,
				   .pci_address = "0000:00:06.0",
				   .name = "NVIDIA H200",
				   .model = "NVIDIA H200",
				   .vendor = "NVIDIA",
				   .kind = DEVICE_DISCRETE,
				   .memory_pool = "uuid:" UUID,
				   .memory_bytes = 150107848704,
				   .memory_budget_bytes = backend == BACKEND_VULKAN ? 140000000000 : -1,
				   .largest_buffer_bytes = backend == BACKEND_VULKAN ? 4294967295 : -1,
				   .compute_units = 132,
				   .driver_version = "580.159.04",
				   .support = SUPPORT_FULL};
	return info;
}

static struct device_info radeon(enum backend_kind backend, const char *uuid)
{
	struct device_info info = gpu(backend);
	text_copy(info.vendor, sizeof(info.vendor), "AMD");
	text_copy(info.model, sizeof(info.model), "AMD Radeon RX 7900 XTX");
	text_copy(info.uuid, sizeof(info.uuid), uuid);
	identity_gpu(&info, false, "radv");
	return info;
}

// The report must be what the contract says, whatever the test is about.
static struct json *report(const struct device_table *table)
{
	struct contract *contract;
	struct error error = {0};
	struct json *params = json_new_object(), *devices = device_table_report(table);
	json_set(params, "devices", json_copy(devices));
	assert_int_equal(contract_create(&contract, CONTRACT_NODE, &error), STATUS_OK);
	enum status status = contract_check_params(contract, contract_find(contract, "node.devices"), params, &error);
	if (status)
		print_error("%s\n", error.message);
	assert_int_equal(status, STATUS_OK);
	contract_destroy(&contract);
	json_destroy(&params);
	return devices;
}

static void two_apis_are_one_device(void **state)
{
	struct device_table *table;
	struct device_info cuda = gpu(BACKEND_CUDA), vulkan = gpu(BACKEND_VULKAN);
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	assert_true(device_table_found(table, BACKEND_VULKAN, &vulkan, 1)); // the slower API may be heard first
	assert_true(device_table_found(table, BACKEND_CUDA, &cuda, 1));
	assert_false(device_table_found(table, BACKEND_CUDA, &cuda, 1));
	assert_int_equal(table->count, 1);
	struct json *devices = report(table);
	const struct json *device = json_first(devices), *apis = json_get(device, "apis");
	assert_string_equal(json_get_string(device, "backend", ""), "cuda");
	assert_int_equal(json_count(apis), 2);
	assert_string_equal(json_get_string(json_first(apis), "backend", ""), "cuda");
	assert_int_equal(json_get_integer(device, "memory_budget_bytes", -1), 140000000000); // only Vulkan tells it
	assert_string_equal(json_get_string(json_get(device, "verification"), "state", ""), "pending");
	json_destroy(&devices);
	device_table_destroy(&table);
}

static void same_place_is_the_same_radeon_but_not_the_same_nvidia(void **state)
{
	struct device_table *table;
	struct device_info hip = radeon(BACKEND_HIP, "00000000-0000-0000-0000-000000000001");
	struct device_info vulkan = radeon(BACKEND_VULKAN, "00000000-0600-0000-0000-000000000000");
	struct device_info old = gpu(BACKEND_CUDA), new = gpu(BACKEND_CUDA);
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_HIP, &hip, 1);
	device_table_found(table, BACKEND_VULKAN, &vulkan, 1);
	assert_int_equal(table->count, 1);
	assert_string_equal(table->records[0]->hardware_key, hip.hardware_key);
	text_copy(new.uuid, sizeof(new.uuid), "ffffffff-2491-8ba9-5e54-60691789063b"); // another card in the same slot
	identity_gpu(&new, false, "");
	text_copy(old.pci_address, sizeof(old.pci_address), "0000:00:07.0");
	text_copy(new.pci_address, sizeof(new.pci_address), "0000:00:07.0");
	device_table_found(table, BACKEND_CUDA, &old, 1);
	device_table_found(table, BACKEND_CUDA, &new, 1);
	assert_int_equal(table->count, 3);
	assert_false(device_record_present(table->records[1]));
	assert_true(device_record_present(table->records[2]));
	device_table_destroy(&table);
}

static void failed_cuda_leaves_vulkan_and_partial_support(void **state)
{
	struct device_table *table;
	struct device_info cuda = gpu(BACKEND_CUDA), vulkan = gpu(BACKEND_VULKAN);
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_CUDA, &cuda, 1);
	device_table_found(table, BACKEND_VULKAN, &vulkan, 1);
	device_record_verified(table->records[0], BACKEND_CUDA, -1, "word 3 read back as 0x1");
	device_record_verified(table->records[0], BACKEND_VULKAN, 40, NULL);
	struct json *devices = report(table);
	const struct json *device = json_first(devices);
	assert_string_equal(json_get_string(device, "backend", ""), "vulkan");
	assert_string_equal(json_get_string(device, "support", ""), "partial");
	assert_string_equal(json_get_string(device, "support_reason", ""),
			    "used through Vulkan; CUDA cannot be used: word 3 read back as 0x1");
	assert_string_equal(json_get_string(json_get(device, "verification"), "state", ""), "passed");
	json_destroy(&devices);

	device_record_verified(table->records[0], BACKEND_VULKAN, -1, "VK_ERROR_DEVICE_LOST");
	devices = report(table);
	device = json_first(devices);
	assert_string_equal(json_get_string(device, "support", ""), "unsupported");
	assert_string_equal(json_get_string(device, "support_reason", ""), "word 3 read back as 0x1");
	json_destroy(&devices);
	device_table_destroy(&table);
}

static void changed_driver_is_verified_and_measured_again(void **state)
{
	struct device_table *table;
	struct device_info info = gpu(BACKEND_CUDA);
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_CUDA, &info, 1);
	struct device_record *record = table->records[0];
	assert_true(device_record_needs_verify(table, record, BACKEND_CUDA));
	assert_false(device_record_needs_measure(record)); // not before it has passed
	device_record_verified(record, BACKEND_CUDA, 200, NULL);
	assert_false(device_record_needs_verify(table, record, BACKEND_CUDA));
	assert_true(device_record_needs_measure(record));
	device_record_measured(record, 4.6e12);
	assert_false(device_record_needs_measure(record));
	text_copy(info.driver_version, sizeof(info.driver_version), "590.10");
	assert_true(device_table_found(table, BACKEND_CUDA, &info, 1));
	assert_true(device_record_needs_verify(table, record, BACKEND_CUDA));
	device_table_destroy(&table);
}

static void gone_device_keeps_its_record(void **state)
{
	struct device_table *table;
	struct device_info info = gpu(BACKEND_CUDA);
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_CUDA, &info, 1);
	device_record_verified(table->records[0], BACKEND_CUDA, 200, NULL);
	char id[IDENTITY_ID_BYTES];
	text_copy(id, sizeof(id), table->records[0]->device_id);
	assert_true(device_table_found(table, BACKEND_CUDA, NULL, 0));
	struct json *devices = report(table);
	assert_false(json_get_bool(json_first(devices), "present", true));
	assert_string_equal(json_get_string(json_first(devices), "backend", ""), "cuda");
	json_destroy(&devices);
	assert_true(device_table_found(table, BACKEND_CUDA, &info, 1));
	assert_int_equal(table->count, 1);
	assert_string_equal(table->records[0]->device_id, id);
	assert_true(device_record_needs_verify(table, table->records[0], BACKEND_CUDA));
	device_table_destroy(&table);
}

static void failed_listing_fails_the_api_until_it_lists_again(void **state)
{
	struct device_table *table;
	struct device_info info = gpu(BACKEND_VULKAN);
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_VULKAN, &info, 1);
	device_record_verified(table->records[0], BACKEND_VULKAN, 40, NULL);
	device_table_backend_failed(table, BACKEND_VULKAN, "the worker crashed: signal 11 (Segmentation fault)");
	struct json *devices = report(table);
	assert_string_equal(json_get_string(json_first(devices), "support", ""), "unsupported");
	json_destroy(&devices);
	assert_true(device_table_found(table, BACKEND_VULKAN, &info, 1));
	assert_true(device_record_needs_verify(table, table->records[0], BACKEND_VULKAN));
	device_table_destroy(&table);
}

static void unsupported_is_not_verified(void **state)
{
	struct device_table *table;
	struct device_info info = gpu(BACKEND_CUDA);
	(void)state;
	info.support = SUPPORT_UNSUPPORTED;
	text_copy(info.support_reason, sizeof(info.support_reason), "compute capability 7.0");
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_CUDA, &info, 1);
	assert_false(device_record_needs_verify(table, table->records[0], BACKEND_CUDA));
	struct json *devices = report(table);
	assert_string_equal(json_get_string(json_first(devices), "support_reason", ""), "compute capability 7.0");
	json_destroy(&devices);
	device_table_destroy(&table);
}

static void one_driver_listing_a_device_twice_is_one_device(void **state)
{
	struct device_table *table;
	struct device_info infos[2] = {gpu(BACKEND_VULKAN), gpu(BACKEND_VULKAN)};
	(void)state;
	assert_int_equal(device_table_create(&table, "node_1"), STATUS_OK);
	device_table_found(table, BACKEND_VULKAN, infos, 2);
	assert_int_equal(table->count, 1);
	device_table_destroy(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_apis_are_one_device),
		cmocka_unit_test(same_place_is_the_same_radeon_but_not_the_same_nvidia),
		cmocka_unit_test(failed_cuda_leaves_vulkan_and_partial_support),
		cmocka_unit_test(changed_driver_is_verified_and_measured_again),
		cmocka_unit_test(gone_device_keeps_its_record),
		cmocka_unit_test(failed_listing_fails_the_api_until_it_lists_again),
		cmocka_unit_test(unsupported_is_not_verified),
		cmocka_unit_test(one_driver_listing_a_device_twice_is_one_device),
	};
	return cmocka_run_group_tests_name("device/merge", tests, NULL, NULL);
}
