/* What must be on disk, read after each kill of the server, by the store that opens its files again: the row of an
 * instance and the entries of the audit log are of the same changes, and nobody was told of more. What could not be
 * written, of a disk that was full or busy, is there once that is over for UNWRITTEN_MS. */
#pragma once
#include "tests/server/instances/whole/checks.h"

void __real_events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *data);
void __wrap_events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *data);

static struct {
	char instance_id[INSTANCE_ID_BYTES];
	int64_t recoveries; // that people were told of
	bool failed;
	int64_t lost, failures; // entries that a kill took with it, or rows; entries of failures with a row beside them
} told[SIM_INSTANCES];
static unsigned told_count;
enum { UNWRITTEN_MS = 10000 };

static void tell_instance(const struct json *instance)
{
	unsigned at = 0;
	const char *id = json_get_string(instance, "instance_id", "");
	const int64_t recoveries = json_get_integer(instance, "recoveries", 0);
	while (at < told_count && strcmp(told[at].instance_id, id) != 0)
		at++;
	if (at == SIM_INSTANCES)
		abort();
	if (at == told_count)
		snprintf(told[told_count++].instance_id, sizeof told[0].instance_id, "%s", id);
	if (recoveries > told[at].recoveries)
		told[at].recoveries = recoveries;
	told[at].failed |= !strcmp(json_get_string(instance, "state", ""), "failed");
}

void __wrap_events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *data)
{
	if (topic == TOPIC_PLACEMENT && server.there)
		for (const struct json *one = json_first(json_get(data, "instances")); one; one = json_next(one))
			tell_instance(one);
	__real_events_publish(events, topic, key, data);
}

// ---- after a kill ----

struct disk_rows {
	struct {
		char instance_id[INSTANCE_ID_BYTES];
		int64_t recoveries;
	} rows[SIM_INSTANCES];
	unsigned count;
};

static void disk_row(void *context, const struct store_instance *row)
{
	struct disk_rows *rows = context;
	if (rows->count == SIM_INSTANCES)
		abort();
	rows->rows[rows->count].recoveries = row->recoveries;
	snprintf(rows->rows[rows->count++].instance_id, sizeof rows->rows[0].instance_id, "%s", row->instance_id);
}

struct disk_count {
	unsigned entries;
};

static void disk_listed(void *context, enum status status, struct json *result, const struct error *error)
{
	struct disk_count *count = context;
	must(status, "store_list_audit", error);
	count->entries = (unsigned)json_count(json_get(result, "entries"));
	json_destroy(&result);
	net_loop_stop(virtual.loop);
}

static unsigned disk_entries(struct store *store, const char *instance_id, const char *action)
{
	struct disk_count count = {0};
	const struct store_audit_filter filter = {.after = -1, .limit = 500, .action = action, .text = instance_id};
	must(store_list_audit(store, &filter, disk_listed, &count), "store_list_audit", NULL);
	net_loop_run(virtual.loop);
	return count.entries;
}

// Nothing is expected of what could not be written a moment before the kill: from here on it counts as it is.
static void take_as_it_is(unsigned i, bool there, int64_t recoveries, int64_t entries, int64_t failures)
{
	told[i].failed = !there;
	told[i].recoveries = there ? recoveries : 0;
	told[i].lost = there ? recoveries - entries : 0;
	told[i].failures = there ? failures : 0;
}

static void disk_check(void)
{
	struct error error = {0};
	struct store *store = NULL;
	struct disk_rows rows = {.count = 0};
	const struct store_params params = {.loop = server.loop, .directory = server.directory};
	const bool unwritten = virtual.unwritten_ms && world.ended_ms - virtual.unwritten_ms < UNWRITTEN_MS;
	must(store_create(&store, &params, &error), "store_create", &error);
	must(store_load_instances(store, disk_row, &rows, &error), "the rows", &error);
	for (unsigned i = 0; i < told_count; i++) {
		const char *id = told[i].instance_id;
		unsigned at = 0;
		while (at < rows.count && strcmp(rows.rows[at].instance_id, id) != 0)
			at++;
		const bool there = at < rows.count;
		const int64_t recoveries = there ? rows.rows[at].recoveries : 0,
			      again = disk_entries(store, id, "instance.placed_anew"),
			      failed = disk_entries(store, id, "instance.failed");
		if (unwritten) {
			take_as_it_is(i, there, recoveries, again, failed);
			continue;
		}
		if (there && (failed != told[i].failures || recoveries != again + told[i].lost))
			broken("row and entry are one", "%s: %lld entries, and its row says %lld", id, (long long)again,
			       (long long)recoveries);
		if (there && (told[i].failed || recoveries < told[i].recoveries))
			broken("what is told is on disk", "%s: %lld recoveries were told, %lld are there", id,
			       (long long)told[i].recoveries, (long long)recoveries);
	}
	store_destroy(&store);
}
