/* How fast devices copy to each other: which pair is measured next, what holds for how long, and what is told. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "engine/device/peers.h"
#include "engine/device/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { GPUS = 3 };

// GPU 0 and 1 are peers; 2 copies to 0 directly, which does not copy to 2.
static const char *const peers_of[GPUS] = {"uuid:1", "uuid:0", "uuid:0"};

static void list(struct device_table *table, const char *driver)
{
	struct device_info infos[GPUS];
	for (int i = 0; i < GPUS; i++) {
		infos[i] = (struct device_info){.backend = BACKEND_CUDA,
						.model = "GPU",
						.name = "GPU",
						.kind = DEVICE_DISCRETE,
						.memory_bytes = 1 << 30,
						.support = SUPPORT_FULL};
		snprintf(infos[i].hardware_key, sizeof(infos[i].hardware_key), "uuid:%d", i);
		snprintf(infos[i].uuid, sizeof(infos[i].uuid), "%d", i);
		snprintf(infos[i].peers, sizeof(infos[i].peers), "%s", peers_of[i]);
		snprintf(infos[i].driver_version, sizeof(infos[i].driver_version), "%s", driver);
	}
	device_table_found(table, BACKEND_CUDA, infos, GPUS);
	for (size_t i = 0; i < table->count; i++)
		device_record_verified(table->records[i], BACKEND_CUDA, 1, NULL);
}

static struct device_table *make(void)
{
	struct device_table *table;
	assert_int_equal(device_table_create(&table, "node_0"), STATUS_OK);
	list(table, "1.0");
	assert_int_equal(table->count, GPUS);
	return table;
}

// "01" of the next pair to measure; "-": none, "later": one waits.
static const char *next(const struct device_table *table, int64_t now_ms)
{
	static char text[3];
	struct device_pair pair;
	bool later;
	if (!device_peers_next(table, now_ms, &pair, &later))
		return later ? "later" : "-";
	assert_int_equal(pair.kind, BACKEND_CUDA);
	snprintf(text, sizeof(text), "%c%c", pair.a->hardware_key[5], pair.b->hardware_key[5]);
	return text;
}

static void measure(struct device_table *table, int from, int to, double bytes_per_s)
{
	device_peers_measured(table->records[from], table->records[to], bytes_per_s, true);
}

static void measure_all(struct device_table *table)
{
	measure(table, 0, 1, 3.9e11);
	measure(table, 1, 0, 3.8e11);
	measure(table, 2, 0, 2e11);
}

// What is told of a direction; NULL: nothing.
static const struct json *told(const struct json *report, const struct device_table *table, int from, int to)
{
	for (const struct json *one = json_first(report); one; one = json_next(one))
		for (const struct json *peer = json_first(json_get(one, "peers")); peer; peer = json_next(peer))
			if (!strcmp(json_get_string(one, "device_id", ""), table->records[from]->device_id) &&
			    !strcmp(json_get_string(peer, "hardware_key", ""), table->records[to]->hardware_key))
				return peer;
	return NULL;
}

static void each_direction_that_a_driver_calls_direct_is_measured_once(void **state)
{
	struct device_table *table = make();
	(void)state;
	assert_string_equal(next(table, 0), "01");
	measure(table, 0, 1, 3.9e11);
	assert_string_equal(next(table, 0), "10");
	measure(table, 1, 0, 3.8e11);
	assert_string_equal(next(table, 0), "20");
	measure(table, 2, 0, 2e11);
	assert_string_equal(next(table, 0), "-");
	device_table_destroy(&table);
}

static void devices_that_are_not_usable_are_left_alone(void **state)
{
	struct device_table *table = make();
	(void)state;
	device_record_verified(table->records[0], BACKEND_CUDA, 1, "it computes wrongly");
	assert_string_equal(next(table, 0), "-"); // all are with it
	device_record_verified(table->records[0], BACKEND_CUDA, 1, NULL);
	table->records[1]->apis[BACKEND_CUDA].verifying = true;
	assert_string_equal(next(table, 0), "20");
	table->records[1]->apis[BACKEND_CUDA].verifying = false;
	device_table_found(table, BACKEND_CUDA, NULL, 0);
	assert_string_equal(next(table, 0), "-");
	device_table_destroy(&table);
}

static void what_fails_is_tried_again_later_and_not_for_ever(void **state)
{
	struct device_table *table = make();
	(void)state;
	measure_all(table);
	device_peers_again(table, table->records[2]);
	for (int i = 0; i < PEERS_TRIES; i++) {
		const int64_t now_ms = (int64_t)i * PEERS_AGAIN_MS;
		assert_string_equal(next(table, now_ms), "20");
		device_peers_failed(table->records[2], table->records[0], "too little memory", now_ms);
		if (i + 1 < PEERS_TRIES)
			assert_string_equal(next(table, now_ms + PEERS_AGAIN_MS - 1), "later");
	}
	assert_string_equal(next(table, INT64_MAX), "-");
	device_peers_again(table, table->records[0]); // a person asks; of the other end it is the same direction
	assert_string_equal(next(table, 0), "01");
	measure(table, 0, 1, 3.9e11);
	measure(table, 1, 0, 3.8e11);
	assert_string_equal(next(table, 0), "20");
	device_table_destroy(&table);
}

static void what_is_told(void **state)
{
	struct device_table *table = make();
	(void)state;
	struct json *report = device_peers_report(table);
	assert_int_equal(json_count(report), GPUS);
	assert_null(told(report, table, 0, 1)); // nobody has looked
	json_destroy(&report);
	assert_true(device_peers_wait(table, BACKEND_CUDA, "waits", 0));
	assert_false(device_peers_wait(table, BACKEND_CUDA, "waits", 0)); // nothing new
	measure(table, 0, 1, 3.9e11);
	device_peers_failed(table->records[1], table->records[0], "it broke", 0);
	report = device_peers_report(table);
	const struct json *one = told(report, table, 0, 1);
	assert_true(json_get_number(one, "bytes_per_s", 0) == 3.9e11 && json_get_bool(one, "direct", false));
	assert_int_equal(json_type(json_get(one, "measured_at")), JSON_STRING);
	assert_int_equal(json_type(json_get(one, "reason")), JSON_NULL);
	one = told(report, table, 1, 0);
	assert_int_equal(json_type(json_get(one, "bytes_per_s")), JSON_NULL);
	assert_string_equal(json_get_string(one, "reason", ""), "it broke");
	assert_string_equal(json_get_string(told(report, table, 2, 0), "reason", ""), "waits");
	json_destroy(&report);
	device_peers_again(table, table->records[0]); // the old figure stands until there is a new one
	report = device_peers_report(table);
	assert_true(json_get_number(told(report, table, 0, 1), "bytes_per_s", 0) == 3.9e11);
	json_destroy(&report);
	list(table, "2.0"); // of another driver it is not known any more
	assert_string_equal(next(table, 0), "01");
	report = device_peers_report(table);
	assert_int_equal(json_type(json_get(told(report, table, 0, 1), "bytes_per_s")), JSON_NULL);
	json_destroy(&report);
	device_table_destroy(&table);
}

static void a_device_has_so_many_peers_and_no_more(void **state)
{
	struct device_table *table = make();
	struct device_record other = {0};
	(void)state;
	for (int i = 0; i < 2 * LIMIT_PEERS_OF_DEVICE; i++) {
		snprintf(other.hardware_key, sizeof(other.hardware_key), "uuid:many-%d", i);
		device_peers_measured(table->records[0], &other, 1e9, true);
	}
	assert_int_equal(table->records[0]->peer_count, LIMIT_PEERS_OF_DEVICE);
	assert_string_equal(next(table, 0), "10"); // and is not asked for what cannot be kept
	device_table_destroy(&table);
}

static void load_text(const char *text, struct device_table **table)
{
	char path[] = "/tmp/exogpu-peers-XXXXXX";
	struct error error = {0};
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	assert_int_equal(registry_load(table, path, &error), STATUS_OK);
	unlink(path);
}

static void figures_come_back_after_a_restart(void **state)
{
	struct device_table *table = make(), *again;
	struct buffer text;
	(void)state;
	measure_all(table);
	device_peers_failed(table->records[0], table->records[2], "it broke", 0);
	buffer_init(&text, 1 << 20);
	assert_int_equal(registry_print(table, &text), STATUS_OK);
	load_text(buffer_text(&text), &again);
	list(again, "1.0");
	assert_string_equal(next(again, 0), "-");
	assert_int_equal(again->records[0]->peer_count, 1); // what failed is not kept
	assert_true(again->records[0]->peers[0].bytes_per_s == 3.9e11 && again->records[0]->peers[0].direct);
	assert_true(again->records[0]->peers[0].at_ms == table->records[0]->peers[0].at_ms);
	list(again, "1.1");
	assert_string_equal(next(again, 0), "01");
	buffer_finish(&text);
	device_table_destroy(&again);
	device_table_destroy(&table);
}

static void figures_of_a_file_that_cannot_be_are_passed_over(void **state)
{
	static const char text[] =
		"{\"version\":1,\"node_id\":\"node_0\",\"devices\":[{\"hardware_key\":\"uuid:0\",\"apis\":[],\"peers\":"
		"["
		"{\"hardware_key\":\"a\",\"bytes_per_s\":-1},{\"hardware_key\":\"b\",\"bytes_per_s\":null},"
		"{\"hardware_key\":\"\",\"bytes_per_s\":5},{\"bytes_per_s\":5},7,null,"
		"{\"hardware_key\":\"d\",\"bytes_per_s\":5,\"direct\":3,\"at_ms\":\"x\",\"model\":{}}]},"
		"{\"hardware_key\":\"uuid:1\",\"apis\":[],\"peers\":{\"a\":1}}]}";
	struct device_table *table;
	(void)state;
	load_text(text, &table);
	assert_int_equal(table->count, 2);
	assert_int_equal(table->records[0]->peer_count, 1);
	assert_string_equal(table->records[0]->peers[0].hardware_key, "d");
	assert_false(table->records[0]->peers[0].direct);
	assert_int_equal(table->records[1]->peer_count, 0);
	device_table_destroy(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_direction_that_a_driver_calls_direct_is_measured_once),
		cmocka_unit_test(devices_that_are_not_usable_are_left_alone),
		cmocka_unit_test(what_fails_is_tried_again_later_and_not_for_ever),
		cmocka_unit_test(what_is_told),
		cmocka_unit_test(a_device_has_so_many_peers_and_no_more),
		cmocka_unit_test(figures_come_back_after_a_restart),
		cmocka_unit_test(figures_of_a_file_that_cannot_be_are_passed_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
