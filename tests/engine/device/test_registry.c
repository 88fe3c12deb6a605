/* The registry: what comes back after a restart, and what a damaged file does. */
#include "engine/device/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static char folder[64], path[96], aside[112];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/exogpu-registry-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/registry.json", folder);
	snprintf(aside, sizeof(aside), "%s.damaged", path);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(path);
	unlink(aside);
	return rmdir(folder);
}

static void write_text(const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void save(const struct device_table *table)
{
	struct buffer text;
	struct error error = {0};
	buffer_init(&text, 1 << 20);
	assert_int_equal(registry_print(table, &text), STATUS_OK);
	assert_int_equal(registry_write(path, text.data, text.length, &error), STATUS_OK);
	buffer_finish(&text);
}

static void devices_come_back_with_ids_and_measurements(void **state)
{
	struct device_table *table, *again;
	struct error error = {0};
	struct device_info info = {.backend = BACKEND_CPU,
				   .hardware_key = "cpu",
				   .model = "Processor",
				   .name = "Processor",
				   .vendor = "Intel",
				   .kind = DEVICE_CPU,
				   .memory_bytes = 1024,
				   .memory_budget_bytes = -1,
				   .largest_buffer_bytes = -1,
				   .compute_units = 2,
				   .formats = "f32 f64",
				   .support = SUPPORT_FULL};
	(void)state;
	assert_int_equal(registry_load(&table, path, &error), STATUS_OK); // no file yet
	device_table_found(table, BACKEND_CPU, &info, 1);
	device_record_verified(table->records[0], BACKEND_CPU, 1, NULL);
	device_record_measured(table->records[0], 3.3e10);
	save(table);

	assert_int_equal(registry_load(&again, path, &error), STATUS_OK);
	assert_string_equal(again->node_id, table->node_id);
	assert_int_equal(again->count, 1);
	struct device_record *record = again->records[0];
	assert_string_equal(record->device_id, table->records[0]->device_id);
	assert_memory_equal(&record->apis[BACKEND_CPU].info, &table->records[0]->apis[BACKEND_CPU].info, sizeof(info));
	assert_true(device_record_present(record)); // shown at once
	assert_int_equal(record->apis[BACKEND_CPU].verification.state, VERIFICATION_PENDING);
	assert_false(device_record_needs_verify(again, record, BACKEND_CPU)); // not before the API lists it
	device_table_found(again, BACKEND_CPU, &info, 1);
	assert_true(device_record_needs_verify(again, record, BACKEND_CPU));
	device_record_verified(record, BACKEND_CPU, 1, NULL);
	assert_false(device_record_needs_measure(record));
	assert_float_equal(record->bandwidth.bytes_per_s, 3.3e10, 1);
	device_table_destroy(&table);
	device_table_destroy(&again);
}

static void damaged_file_is_set_aside(void **state)
{
	static const char *const damaged[] = {
		"",
		"{\"version\":1,\"node_id\":\"node_1\",\"dev",
		"[]",
		"{\"version\":2,\"node_id\":\"node_1\",\"devices\":[]}",
		"{\"version\":1,\"devices\":[]}",
		"{\"version\":1,\"node_id\":\"node_1\",\"devices\":{}}",
	};
	(void)state;
	for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
		struct device_table *table;
		struct error error = {0};
		unlink(aside);
		write_text(damaged[i]);
		assert_int_equal(registry_load(&table, path, &error), STATUS_OK);
		assert_int_equal(table->count, 0);
		assert_int_equal(strlen(table->node_id), 21);
		assert_int_equal(access(aside, F_OK), 0);
		assert_int_equal(access(path, F_OK), -1);
		device_table_destroy(&table);
	}
}

static void odd_entries_are_passed_over(void **state)
{
	struct device_table *table;
	struct error error = {0};
	(void)state;
	write_text("{\"version\":1,\"node_id\":\"node_1\",\"devices\":[3,null,{},{\"hardware_key\":\"cpu\",\"apis\":"
		   "[{\"backend\":\"abacus\"},7,{\"backend\":\"cpu\",\"hardware_key\":\"cpu\",\"memory_bytes\":\"x\"}]}"
		   "]}");
	assert_int_equal(registry_load(&table, path, &error), STATUS_OK);
	assert_string_equal(table->node_id, "node_1");
	assert_int_equal(table->count, 1);
	assert_true(table->records[0]->apis[BACKEND_CPU].known);
	assert_int_equal(table->records[0]->apis[BACKEND_CPU].info.memory_bytes, -1);
	device_table_destroy(&table);
}

static void failed_write_leaves_the_old_file(void **state)
{
	struct error error = {0};
	char missing[128];
	(void)state;
	snprintf(missing, sizeof(missing), "%s/none/registry.json", folder);
	assert_int_equal(registry_write(missing, "x", 1, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "No such file"));
	assert_string_not_equal(error.hint, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_come_back_with_ids_and_measurements),
		cmocka_unit_test(damaged_file_is_set_aside),
		cmocka_unit_test(odd_entries_are_passed_over),
		cmocka_unit_test(failed_write_leaves_the_old_file),
	};
	return cmocka_run_group_tests_name("device/registry", tests, make_folder, remove_folder);
}
