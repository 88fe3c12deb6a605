/* The audit log as the server uses it, over a real store: entries of their own, what is counted, and a disk that is
 * full. What is on disk is read back as the events that tell of it, in their order. */
#include "common/base/limits.h"
#include "server/security/audit.h"
#include "tests/server/store/support.h"

#include <signal.h>
#include <sys/resource.h>

enum { SEEN = 32768 };

static struct {
	int count; // entries that were told
	struct json *entries[SEEN];
} seen;

static struct {
	int count;
	enum status status;
	char hint[256];
} done;

struct world {
	struct support *support;
	struct store *store;
	struct audit *audit;
};

static void told(void *context, struct json *entry)
{
	assert_ptr_equal(context, &seen);
	assert_true(seen.count < SEEN);
	assert_int_equal(json_get_integer(entry, "seq", -1), seen.count); // each once, in their order
	seen.entries[seen.count++] = entry;
}

static void was_written(void *context, enum status status, const struct error *error)
{
	(void)context;
	done.count++;
	done.status = status;
	snprintf(done.hint, sizeof done.hint, "%s", status ? error->hint : "");
}

static void open_world(struct world *world, struct support *support)
{
	struct error error = {.status = STATUS_OK};
	*world = (struct world){.support = support};
	if (store_create(&world->store, &(struct store_params){.loop = support->loop, .directory = support->directory},
			 &error))
		fail_msg("%s", error.message);
	const struct audit_params params = {
		.loop = support->loop, .store = world->store, .publish = told, .context = &seen};
	if (audit_create(&world->audit, &params, &error))
		fail_msg("%s", error.message);
	memset(&done, 0, sizeof done);
}

static void close_world(struct world *world)
{
	audit_destroy(&world->audit);
	store_destroy(&world->store);
	while (seen.count)
		json_destroy(&seen.entries[--seen.count]);
}

static const char *text_of(int seq, const char *name)
{
	return json_get_string(seen.entries[seq], name, "");
}

static struct audit_actor actor_of(const char *session)
{
	struct audit_actor actor = {.actor = "token:0123456789", .name = "lab", .peer = "192.0.2.7"};
	snprintf(actor.session_id, sizeof actor.session_id, "%s", session);
	return actor;
}

// The sum of `count` of all entries of this action and target (NULL: any).
static int64_t sum_of(const char *action, const char *target)
{
	int64_t sum = 0;
	for (int i = 0; i < seen.count; i++)
		if (!strcmp(text_of(i, "action"), action) && (!target || !strcmp(text_of(i, "target"), target)))
			sum += json_get_integer(seen.entries[i], "count", 0);
	return sum;
}

static void an_entry_says_who_what_where_and_how_long(void **state)
{
	struct world world;
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	const struct audit_actor by = actor_of("ses_1");
	const struct audit_event event = {.by = &by,
					  .action = "memory.allocate",
					  .target = "alloc_1",
					  .node_id = "nod_1",
					  .device_id = "dev_1",
					  .detail = "{\"bytes\":4096}",
					  .began_ns = clock_steady_ns() - 2500000};
	int64_t before_ms = clock_wall_ms(), at_ms = 0;
	assert_int_equal(audit_write(world.audit, &event, was_written, NULL, &error), STATUS_OK);
	support_run_until(world.support->loop, &done.count, 1);
	assert_int_equal(done.status, STATUS_OK);
	assert_int_equal(seen.count, 1); // told before its `done`, by the same commit
	static const struct {
		const char *name, *text;
	} wanted[] = {{"actor", "token:0123456789"}, {"actor_name", "lab"},         {"session_id", "ses_1"},
		      {"peer", "192.0.2.7"},         {"action", "memory.allocate"}, {"target", "alloc_1"},
		      {"node_id", "nod_1"},          {"device_id", "dev_1"},        {"outcome", "ok"}};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
		assert_string_equal(text_of(0, wanted[i].name), wanted[i].text);
	assert_int_equal(clock_parse(text_of(0, "at"), &at_ms), STATUS_OK);
	assert_true(at_ms >= before_ms && at_ms <= clock_wall_ms());
	assert_true(json_get_number(seen.entries[0], "duration_ms", 0) >= 2.5);
	assert_int_equal(json_get_integer(json_get(seen.entries[0], "detail"), "bytes", 0), 4096);
	// The server's own says null where there is nothing.
	assert_int_equal(
		audit_write(world.audit, &(struct audit_event){.action = "server.stop"}, was_written, NULL, &error),
		STATUS_OK);
	support_run_until(world.support->loop, &done.count, 2);
	assert_string_equal(text_of(1, "actor"), "server");
	static const char *const nulls[] = {"session_id", "node_id", "device_id", "duration_ms"};
	for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
		assert_int_equal(json_type(json_get(seen.entries[1], nulls[i])), JSON_NULL);
	assert_int_equal(json_type(json_get(seen.entries[1], "detail")), JSON_OBJECT);
	close_world(&world);
}

static void what_happens_often_is_one_entry(void **state)
{
	struct world world;
	open_world(&world, *state);
	const struct audit_actor one = actor_of("ses_1"), other = actor_of("ses_2");
	for (int i = 0; i < 30000; i++) {
		audit_count(world.audit, &(struct audit_tally){.by = i % 3 ? &one : &other,
							       .action = "memory.write",
							       .node_id = "nod_1",
							       .device_id = i % 2 ? "dev_1" : "dev_2",
							       .bytes = 1000,
							       .duration_us = 10});
		audit_count(world.audit, &(struct audit_tally){.by = &one,
							       .action = "compute.launch",
							       .target = "add",
							       .device_id = "dev_1",
							       .outcome = i % 10 ? STATUS_OK : STATUS_TIMEOUT});
	}
	audit_flush(world.audit, "ses_1");
	support_run_until(world.support->loop, &seen.count, 4);
	assert_int_equal(sum_of("memory.write", NULL), 20000); // the other session's are not written yet
	assert_int_equal(sum_of("compute.launch", "add"), 30000);
	int64_t bytes = 0;
	double ms = 0;
	for (int i = 0; i < 4; i++) {
		bytes += json_get_integer(json_get(seen.entries[i], "detail"), "bytes", 0);
		ms += json_get_number(seen.entries[i], "duration_ms", 0);
		assert_string_equal(text_of(i, "session_id"), "ses_1");
	}
	assert_int_equal(bytes, 20000 * 1000);
	assert_true(ms > 199.9 && ms < 200.1);
	audit_flush(world.audit, "ses_1"); // nothing is left of it
	audit_flush(world.audit, "ses_3");
	audit_flush(world.audit, "ses_2");
	support_run_until(world.support->loop, &seen.count, 6);
	assert_int_equal(sum_of("memory.write", NULL), 30000);
	assert_int_equal(seen.count, 6);
	close_world(&world);
}

static void what_is_told_is_an_entry_of_its_own(void **state)
{
	struct world world;
	open_world(&world, *state);
	const struct audit_actor by = actor_of("ses_1");
	for (int i = 0; i < 2; i++)
		audit_tell(world.audit, &(struct audit_tally){.by = &by,
							      .action = "session.end",
							      .target = "ses_1",
							      .detail = i ? "{\"launches\":2}" : "{\"launches\":1}"});
	support_run_until(world.support->loop, &seen.count, 2);
	int64_t launches = 0;
	for (int i = 0; i < 2; i++)
		launches += json_get_integer(json_get(seen.entries[i], "detail"), "launches", 0);
	assert_int_equal(launches, 3);
	close_world(&world);
}

// Nobody fills the log or the table by being inventive.
static void a_session_has_so_many_different_things(void **state)
{
	struct world world;
	char name[32];
	open_world(&world, *state);
	const struct audit_actor by = actor_of("ses_1");
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "kernel_%d", i);
		audit_count(world.audit, &(struct audit_tally){.by = &by, .action = "compute.launch", .target = name});
	}
	audit_flush(world.audit, "ses_1");
	support_run_until(world.support->loop, &seen.count, 65);
	assert_int_equal(seen.count, 65);
	assert_int_equal(sum_of("compute.launch", NULL), 1000);
	assert_int_equal(sum_of("compute.launch", "(others)"), 1000 - 64);
	assert_int_equal(sum_of("compute.launch", "kernel_7"), 1);
	close_world(&world);
}

static void a_full_table_is_written_and_nothing_is_lost(void **state)
{
	struct world world;
	struct audit_actor by = {.actor = "nobody"};
	open_world(&world, *state);
	for (int i = 0; i < LIMIT_TALLIES + 1000; i++) {
		snprintf(by.peer, sizeof by.peer, "10.%d.%d.%d", i >> 16, i >> 8 & 255, i & 255);
		audit_count(world.audit, &(struct audit_tally){
						 .by = &by, .action = "auth.login", .outcome = STATUS_UNAUTHENTICATED});
	}
	support_run_until(world.support->loop, &seen.count, LIMIT_TALLIES);
	audit_flush(world.audit, ""); // whoever has no session
	struct support *support = world.support;
	assert_true(sum_of("auth.login", NULL) >= LIMIT_TALLIES);
	close_world(&world); // writes the rest
	open_world(&world, support);
	assert_int_equal(
		audit_write(world.audit, &(struct audit_event){.action = "server.stop"}, was_written, NULL, NULL),
		STATUS_OK);
	struct store_audit_head head;
	store_read_audit_head(world.store, &head);
	assert_int_equal(head.checkpoint.size, LIMIT_TALLIES + 1000);
	audit_destroy(&world.audit);
	store_destroy(&world.store);
}

static void a_name_is_cut_between_characters(void **state)
{
	struct world world;
	char name[400] = "";
	open_world(&world, *state);
	const struct audit_actor by = actor_of("ses_1");
	for (int i = 0; i < 120; i++)
		memcpy(name + 3 * i, "\xe2\x82\xac", 4);
	audit_count(world.audit, &(struct audit_tally){.by = &by, .action = "compute.launch", .target = name});
	audit_count(world.audit, &(struct audit_tally){.by = &by, .action = "compute.launch", .target = name});
	audit_flush(world.audit, "ses_1");
	support_run_until(world.support->loop, &seen.count, 1);
	const char *target = text_of(0, "target");
	assert_true(json_utf8(target, strlen(target)));
	assert_int_equal(strlen(target) % 3, 0);
	assert_true(strlen(target) > 120);
	assert_int_equal(json_get_integer(seen.entries[0], "count", 0), 2);
	close_world(&world);
}

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void look_whether_it_can_be_written(void *context)
{
	struct world *world = context;
	static struct net_timer timer;
	if (!audit_check(world->audit, NULL))
		done.count++;
	else
		net_timer_start(world->support->loop, &timer, 10, look_whether_it_can_be_written, world);
}

static void was_committed(void *context, enum status status)
{
	(void)context;
	done.count++;
	done.status = status;
}

// A change that has happened, with its entry.
static void commit_failure(struct world *world, const char *instance_id)
{
	struct store_batch *batch = NULL;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(store_remove_instance(batch, instance_id), STATUS_OK);
	audit_commit(world->audit, &batch,
		     &(struct audit_tally){.by = &audit_server,
					   .action = "instance.failed",
					   .target = instance_id,
					   .outcome = STATUS_DEVICE_LOST},
		     was_committed, NULL);
	assert_null(batch);
}

// It is on disk, and told, before whoever waits for it goes on; a closed log says so.
static void a_change_goes_with_its_entry(void **state)
{
	struct world world;
	open_world(&world, *state);
	commit_failure(&world, "ins_1");
	assert_int_equal(done.count, 0);
	support_run_until(world.support->loop, &done.count, 1);
	assert_int_equal(done.status, STATUS_OK);
	assert_int_equal(seen.count, 1);
	assert_string_equal(text_of(0, "target"), "ins_1");
	assert_string_equal(text_of(0, "outcome"), "device_lost");
	commit_failure(&world, "ins_2");
	close_world(&world);
	assert_int_equal(done.count, 2);
	assert_int_equal(done.status, STATUS_PENDING);
}

// While nothing can be written nothing starts; what is counted waits, and is written with what came meanwhile.
static void a_full_disk_refuses_and_recovers(void **state)
{
	struct world world;
	struct error error = {.status = STATUS_OK};
	open_world(&world, *state);
	const struct audit_actor by = actor_of("ses_1");
	const struct audit_tally tally = {.by = &by, .action = "compute.launch", .target = "add", .bytes = 1};
	const struct audit_event event = {.by = &by, .action = "memory.allocate", .target = "alloc_1"};
	assert_int_equal(audit_check(world.audit, &error), STATUS_OK);
	audit_count(world.audit, &tally);
	signal(SIGXFSZ, SIG_IGN);
	limit_file_size(0);
	audit_flush(world.audit, "ses_1"); // fails later: goes back
	assert_int_equal(audit_write(world.audit, &event, was_written, NULL, &error), STATUS_OK);
	support_run_until(world.support->loop, &done.count, 1);
	assert_int_equal(done.status, STATUS_UNAVAILABLE);
	assert_true(done.hint[0] != 0);
	assert_int_equal(audit_check(world.audit, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "audit log"));
	assert_true(error.hint[0] != 0);
	for (int i = 0; i < 99; i++)
		audit_count(world.audit, &tally);
	audit_flush(world.audit, "ses_1"); // kept
	audit_tell(world.audit, &(struct audit_tally){.by = &by, .action = "session.end", .target = "ses_1"});
	commit_failure(&world, "ins_1"); // it has happened, and is told later
	support_run_until(world.support->loop, &done.count, 2);
	assert_int_equal(done.status, STATUS_UNAVAILABLE);
	assert_int_equal(seen.count, 0);
	limit_file_size(RLIM_INFINITY);
	look_whether_it_can_be_written(&world);
	support_run_until(world.support->loop, &done.count, 3);
	support_run_until(world.support->loop, &seen.count, 4);
	assert_int_equal(sum_of("audit.resume", NULL), 1);
	assert_int_equal(sum_of("session.end", "ses_1"), 1);
	assert_int_equal(sum_of("instance.failed", "ins_1"), 1);
	assert_int_equal(sum_of("compute.launch", "add"), 100);
	assert_int_equal(sum_of("memory.allocate", NULL), 0); // its caller was told that it failed
	close_world(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
		TEST(an_entry_says_who_what_where_and_how_long),
		TEST(what_happens_often_is_one_entry),
		TEST(what_is_told_is_an_entry_of_its_own),
		TEST(a_session_has_so_many_different_things),
		TEST(a_full_table_is_written_and_nothing_is_lost),
		TEST(a_name_is_cut_between_characters),
		TEST(a_change_goes_with_its_entry),
		TEST(a_full_disk_refuses_and_recovers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
