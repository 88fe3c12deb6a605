/* Batches, commits and reading back: server/store/store.c, batch.c, load.c and writer.c through store.h. */
#include "common/base/limits.h"
#include "server/store/store.h"
#include "tests/server/store/support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct store *open_store(struct support *support)
{
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	if (store_create(&store, &(struct store_params){.loop = support->loop, .directory = support->directory},
			 &error))
		fail_msg("%s", error.message);
	return store;
}

static struct store_batch *new_batch(void)
{
	struct store_batch *batch = NULL;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	return batch;
}

static void commit_wait(struct store *store, struct store_batch *batch)
{
	struct error error = {.status = STATUS_OK};
	if (store_commit_wait(store, &batch, &error))
		fail_msg("%s", error.message);
	assert_null(batch);
}

static const struct store_node node_a = {
	.node_id = "node-a", .name = "työasema", .record = "{\"cpu\":{}}", .first_seen_ms = 1, .last_seen_ms = 2};
static const struct store_device device_a = {.device_id = "device-a",
					     .node_id = "node-a",
					     .hardware_key = "GPU-1",
					     .record = "{}",
					     .draining = true,
					     .first_seen_ms = 3,
					     .last_seen_ms = 4};
static const struct store_token token_a = {.token_id = "aaaaaaaaaa",
					   .name = "first",
					   .scopes = 63,
					   .secret_hash = {1, 2, 3},
					   .calls_per_s = 0.5,
					   .max_sessions = 9,
					   .memory_limit_bytes = 5000000000,
					   .created_ms = 10,
					   .expires_ms = 20,
					   .last_used_ms = 30,
					   .revoked_ms = 40};

static void see_node(void *context, const struct store_node *node)
{
	++*(int *)context;
	assert_string_equal(node->node_id, node_a.node_id);
	assert_string_equal(node->name, node_a.name);
	assert_string_equal(node->record, node_a.record);
	assert_int_equal(node->first_seen_ms, 1);
	assert_int_equal(node->last_seen_ms, 2);
}

static void see_device(void *context, const struct store_device *device)
{
	++*(int *)context;
	assert_string_equal(device->device_id, "device-a");
	assert_string_equal(device->node_id, "node-a");
	assert_string_equal(device->hardware_key, "GPU-1");
	assert_string_equal(device->record, "{}");
	assert_true(device->draining);
	assert_int_equal(device->first_seen_ms, 3);
	assert_int_equal(device->last_seen_ms, 4);
}

static void see_token(void *context, const struct store_token *token)
{
	if (++*(int *)context == 2) {
		assert_string_equal(token->parent_id, token_a.token_id);
		return;
	}
	assert_string_equal(token->token_id, token_a.token_id);
	assert_null(token->parent_id);
	assert_int_equal(token->scopes, token_a.scopes);
	assert_memory_equal(token->secret_hash, token_a.secret_hash, STORE_HASH_BYTES);
	assert_true(token->calls_per_s == 0.5);
	assert_int_equal(token->max_sessions, 9);
	assert_int_equal(token->memory_limit_bytes, 5000000000);
	assert_int_equal(token->created_ms, 10);
	assert_int_equal(token->expires_ms, 20);
	assert_int_equal(token->last_used_ms, 30);
	assert_int_equal(token->revoked_ms, 40);
}

static void what_is_put_comes_back_after_a_restart(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	struct store_batch *batch = new_batch();
	struct store_token child = token_a;
	child.token_id = "bbbbbbbbbb";
	child.parent_id = token_a.token_id;
	child.created_ms = 11;
	struct store_node earlier = node_a;
	earlier.name = "an older name";
	assert_null(store_load_setting(store, "cluster_id"));
	assert_int_equal(store_put_setting(batch, "cluster_id", "c1"), STATUS_OK);
	assert_int_equal(store_put_node(batch, &earlier), STATUS_OK);
	assert_int_equal(store_put_node(batch, &node_a), STATUS_OK); // in its place
	assert_int_equal(store_put_device(batch, &device_a), STATUS_OK);
	assert_int_equal(store_put_token(batch, &token_a), STATUS_OK);
	assert_int_equal(store_put_token(batch, &child), STATUS_OK);
	commit_wait(store, batch);
	for (int turn = 0; turn < 2; turn++) {
		int nodes = 0, devices = 0, tokens = 0;
		assert_string_equal(store_load_setting(store, "cluster_id"), "c1");
		assert_int_equal(store_load_nodes(store, see_node, &nodes, NULL), STATUS_OK);
		assert_int_equal(store_load_devices(store, see_device, &devices, NULL), STATUS_OK);
		assert_int_equal(store_load_tokens(store, see_token, &tokens, NULL), STATUS_OK);
		assert_int_equal(nodes, 1);
		assert_int_equal(devices, 1);
		assert_int_equal(tokens, 2);
		store_destroy(&store);
		store = open_store(support);
	}
	batch = new_batch();
	assert_int_equal(store_remove_token(batch, child.token_id), STATUS_OK);
	commit_wait(store, batch);
	int tokens = 0;
	assert_int_equal(store_load_tokens(store, see_token, &tokens, NULL), STATUS_OK);
	assert_int_equal(tokens, 1);
	store_destroy(&store);
}

struct change_seen {
	int count;
	int64_t first_at, last_at;
};

static const struct store_instance instance_a = {.instance_id = "ins_a",
						 .model_id = "mod_a",
						 .model_name = "words",
						 .wanted = "{\"model_id\":\"mod_a\"}",
						 .last = "{}",
						 .workers = "",
						 .epoch = 3,
						 .recoveries = 2,
						 .moves = 1,
						 .created_ms = 5};

static void see_instance(void *context, const struct store_instance *instance)
{
	const struct store_instance *expected = context;
	assert_string_equal(instance->instance_id, expected->instance_id);
	assert_string_equal(instance->model_id, expected->model_id);
	assert_string_equal(instance->model_name, expected->model_name);
	assert_string_equal(instance->wanted, expected->wanted);
	assert_string_equal(instance->last, expected->last);
	assert_string_equal(instance->workers, expected->workers);
	assert_int_equal(instance->epoch, expected->epoch);
	assert_int_equal(instance->recoveries, expected->recoveries);
	assert_int_equal(instance->moves, expected->moves);
	assert_int_equal(instance->created_ms, expected->created_ms);
}

static void count_instance(void *context, const struct store_instance *instance)
{
	(void)instance;
	++*(int *)context;
}

// A change that comes behind the removal, as from a placement that was under way, brings nothing back.
static void an_instance_is_changed_only_while_it_is_there(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	struct store_batch *batch = new_batch();
	struct store_instance changed = instance_a;
	changed.wanted = "{\"model_id\":\"mod_a\",\"format\":\"Q8_0\"}";
	changed.last = "{\"format\":\"Q8_0\"}";
	changed.workers = "{\"workers\":[]}";
	changed.epoch = 4;
	changed.moves = 2;
	assert_int_equal(store_change_instance(batch, &changed), STATUS_OK);
	assert_int_equal(store_put_instance(batch, &instance_a), STATUS_OK);
	commit_wait(store, batch);
	assert_int_equal(store_load_instances(store, see_instance, (void *)&instance_a, NULL), STATUS_OK);
	batch = new_batch();
	assert_int_equal(store_change_instance(batch, &changed), STATUS_OK);
	commit_wait(store, batch);
	store_destroy(&store);
	store = open_store(support);
	assert_int_equal(store_load_instances(store, see_instance, &changed, NULL), STATUS_OK);
	batch = new_batch();
	changed.epoch = 1028;
	changed.workers = NULL; // as a start does: they stay as they are
	assert_int_equal(store_change_instance(batch, &changed), STATUS_OK);
	commit_wait(store, batch);
	changed.workers = "{\"workers\":[]}";
	assert_int_equal(store_load_instances(store, see_instance, &changed, NULL), STATUS_OK);
	batch = new_batch();
	changed.workers = "";
	assert_int_equal(store_change_instance(batch, &changed), STATUS_OK);
	commit_wait(store, batch);
	assert_int_equal(store_load_instances(store, see_instance, &changed, NULL), STATUS_OK);
	batch = new_batch();
	assert_int_equal(store_remove_instance(batch, "ins_a"), STATUS_OK);
	assert_int_equal(store_change_instance(batch, &changed), STATUS_OK);
	commit_wait(store, batch);
	int count = 0;
	assert_int_equal(store_load_instances(store, count_instance, &count, NULL), STATUS_OK);
	assert_int_equal(count, 0);
	store_destroy(&store);
}

static void see_change(void *context, const struct store_change *change)
{
	struct change_seen *seen = context;
	if (!seen->count++)
		seen->first_at = change->at_ms;
	else
		assert_true(change->at_ms == seen->last_at - 1);
	seen->last_at = change->at_ms;
	assert_null(change->device_id);
	assert_string_equal(change->summary, "went offline");
}

static void newest_changes_are_kept(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	const int made = LIMIT_STORE_CHANGES + 500;
	for (int i = 0; i < made;) {
		struct store_batch *batch = new_batch();
		for (int end = i + 500; i < end; i++) {
			const struct store_change change = {.at_ms = i,
							    .kind = "node_offline",
							    .level = "warning",
							    .node_id = "node-a",
							    .name = "a",
							    .summary = "went offline"};
			assert_int_equal(store_put_change(batch, &change), STATUS_OK);
		}
		commit_wait(store, batch);
	}
	struct change_seen few = {0}, all = {0};
	assert_int_equal(store_load_changes(store, 50, see_change, &few, NULL), STATUS_OK);
	assert_int_equal(few.count, 50);
	assert_int_equal(few.first_at, made - 1);
	assert_int_equal(store_load_changes(store, made, see_change, &all, NULL), STATUS_OK);
	assert_int_equal(all.count, LIMIT_STORE_CHANGES);
	store_destroy(&store);
}

enum { IN_ORDER = 3000 };

static struct {
	int told, refused, out_of_order, next;
	char message[384];
} outcomes;

static void told(void *context, enum status status, const struct error *error)
{
	int number = (int)(intptr_t)context;
	outcomes.out_of_order += number != outcomes.next;
	outcomes.next = number + 1;
	outcomes.told++;
	if (status) {
		outcomes.refused++;
		assert_int_equal(status, error->status);
		snprintf(outcomes.message, sizeof outcomes.message, "%s", error->message);
	}
}

// Every hundredth batch breaks a foreign key, after a row that is sound: it fails alone, and that row with it.
static void a_refused_batch_fails_alone_and_order_holds(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	memset(&outcomes, 0, sizeof outcomes);
	for (int i = 0; i < IN_ORDER; i++) {
		struct store_batch *batch = new_batch();
		char key[32];
		snprintf(key, sizeof key, "key-%d", i);
		assert_int_equal(store_put_setting(batch, key, "there"), STATUS_OK);
		struct store_device orphan = device_a;
		orphan.node_id = "no such node";
		if (i % 100 == 50)
			assert_int_equal(store_put_device(batch, &orphan), STATUS_OK);
		assert_int_equal(store_commit(store, &batch, told, (void *)(intptr_t)i), STATUS_OK);
	}
	support_run_until(support->loop, &outcomes.told, IN_ORDER);
	assert_int_equal(outcomes.told, IN_ORDER);
	assert_int_equal(outcomes.out_of_order, 0);
	assert_int_equal(outcomes.refused, IN_ORDER / 100);
	if (!strcasestr(outcomes.message, "FOREIGN KEY"))
		fail_msg("%s", outcomes.message);
	struct store_stats stats;
	store_read_stats(store, &stats);
	assert_int_equal(stats.batches, IN_ORDER);
	assert_true(stats.commits < IN_ORDER / 4); // they were grouped
	assert_true(stats.state_bytes > 0 && stats.history_bytes > 0 && stats.commit_seconds > 0);
	store_destroy(&store);
	store = open_store(support);
	for (int i = 0; i < IN_ORDER; i++) {
		char key[32];
		snprintf(key, sizeof key, "key-%d", i);
		assert_int_equal(store_load_setting(store, key) != NULL, i % 100 != 50);
	}
	store_destroy(&store);
}

static void stopping_commits_what_waits(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	memset(&outcomes, 0, sizeof outcomes);
	for (int i = 0; i < 500; i++) {
		struct store_batch *batch = new_batch();
		char key[32];
		snprintf(key, sizeof key, "key-%d", i);
		store_put_setting(batch, key, "there");
		assert_int_equal(store_commit(store, &batch, told, (void *)(intptr_t)i), STATUS_OK);
	}
	store_destroy(&store);
	assert_int_equal(outcomes.told, 0); // dropped: nobody is there any more
	store = open_store(support);
	assert_non_null(store_load_setting(store, "key-0"));
	assert_non_null(store_load_setting(store, "key-499"));
	store_destroy(&store);
}

static void a_batch_is_bounded(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	struct store_batch *large = new_batch();
	for (int i = 0; i < LIMIT_STORE_BATCH_ROWS; i++)
		assert_int_equal(store_put_setting(large, "large", "value"), STATUS_OK);
	assert_int_equal(store_put_setting(large, "one", "more"), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(store_commit(store, &large, told, NULL), STATUS_LIMIT_EXCEEDED); // not whole: not stored
	assert_null(large);
	store_destroy(&store);
}

// Another connection holds the lock of the database, so the store thread ends no batch meanwhile. It may have taken
// some out of the queue before it waits for the lock; it takes no others then.
static void the_queue_is_bounded(void **state)
{
	SUPPORT_SQLITE_ONLY();
	enum { MOST = 2 * LIMIT_STORE_QUEUE };
	struct support *support = *state;
	struct store *store = open_store(support);
	char path[SUPPORT_PATH_BYTES + 64];
	sqlite3 *db;
	int taken = 0;
	enum status status = STATUS_OK;
	memset(&outcomes, 0, sizeof outcomes);
	assert_int_equal(sqlite3_open(support_path(support, "state.db", path), &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	for (intptr_t i = 0; !status && i <= MOST; i++) {
		struct store_batch *batch = new_batch();
		assert_int_equal(store_put_setting(batch, "key", "value"), STATUS_OK);
		status = store_commit(store, &batch, told, (void *)i);
		assert_null(batch);
		taken += !status;
	}
	assert_int_equal(status, STATUS_LIMIT_EXCEEDED);
	assert_true(taken >= LIMIT_STORE_QUEUE);
	assert_int_equal(outcomes.told, 0);
	assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	support_run_until(support->loop, &outcomes.told, taken);
	assert_int_equal(outcomes.told, taken);
	assert_int_equal(outcomes.refused, 0);
	store_destroy(&store);
}

static void limit_file_size(rlim_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// A file that may not grow stands for a disk that is full: what does not fit is refused and says so, what was stored
// stays, and when there is room again the next change is taken.
static void a_full_disk_refuses_and_recovers(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct support *support = *state;
	struct store *store = open_store(support);
	static char text[1024 * 1024 + 1];
	memset(text, 'x', sizeof text - 1);
	struct error error = {.status = STATUS_OK};
	struct store_batch *batch = new_batch();
	store_put_setting(batch, "before", "1");
	commit_wait(store, batch);
	signal(SIGXFSZ, SIG_IGN);
	memset(&outcomes, 0, sizeof outcomes);
	limit_file_size(512 * 1024);
	for (int i = 0; i < 3; i++) { // small, too large, small
		batch = new_batch();
		char key[16];
		snprintf(key, sizeof key, "during-%d", i);
		store_put_setting(batch, key, i == 1 ? text : "1");
		assert_int_equal(store_commit(store, &batch, told, (void *)(intptr_t)i), STATUS_OK);
	}
	batch = new_batch();
	store_put_setting(batch, "large", text);
	enum status status = store_commit_wait(store, &batch, &error);
	support_run_until(support->loop, &outcomes.told, 3);
	limit_file_size(RLIM_INFINITY);
	assert_int_equal(status, STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "state.db"));
	assert_true(error.hint[0] != 0);
	assert_int_equal(outcomes.refused, 1);
	assert_int_equal(outcomes.out_of_order, 0);
	struct store_stats stats;
	store_read_stats(store, &stats);
	assert_true(stats.commit_failures >= 2);
	batch = new_batch();
	store_put_setting(batch, "after", text);
	commit_wait(store, batch);
	for (int turn = 0; turn < 2; turn++) {
		assert_non_null(store_load_setting(store, "before"));
		assert_non_null(store_load_setting(store, "during-0"));
		assert_null(store_load_setting(store, "during-1"));
		assert_non_null(store_load_setting(store, "during-2"));
		assert_null(store_load_setting(store, "large"));
		assert_string_equal(store_load_setting(store, "after"), text);
		store_destroy(&store);
		store = open_store(support);
	}
	store_destroy(&store);
}

// The same on a disk that really is full: a tmpfs of 1 MB, in a mount namespace that ends with this process.
static void a_disk_without_space_refuses_and_recovers(void **state)
{
	struct support *support = *state;
	char filler[SUPPORT_PATH_BYTES + 64];
	static char text[64 * 1024 + 1];
	struct error error = {.status = STATUS_OK};
	struct store_batch *batch;
	enum status status = STATUS_OK;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", support->directory, "tmpfs", 0, "size=1m")) {
		print_message("mounting is not allowed here: %s\n", strerror(errno));
		skip();
	}
	int fd = open(support_path(support, "filler", filler), O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(posix_fallocate(fd, 0, 256 * 1024), 0);
	close(fd);
	struct store *store = open_store(support);
	memset(text, 'x', sizeof text - 1);
	int stored = 0;
	for (; stored < 100 && !status; stored += !status) {
		char key[32];
		snprintf(key, sizeof key, "key-%d", stored);
		batch = new_batch();
		store_put_setting(batch, key, text);
		status = store_commit_wait(store, &batch, &error);
	}
	assert_int_equal(status, STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "no space left"));
	assert_true(stored > 0 && error.hint[0]);
	assert_int_equal(unlink(filler), 0);
	batch = new_batch();
	store_put_setting(batch, "after", "1");
	commit_wait(store, batch);
	for (int i = 0; i <= stored; i++) {
		char key[32];
		snprintf(key, sizeof key, "key-%d", i);
		assert_int_equal(store_load_setting(store, key) != NULL, i < stored);
	}
	store_destroy(&store);
	assert_int_equal(umount2(support->directory, MNT_DETACH), 0);
}

static void the_log_file_is_emptied_when_nothing_happens(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct support *support = *state;
	struct store *store = open_store(support);
	char path[SUPPORT_PATH_BYTES + 64];
	struct stat file;
	struct store_batch *batch = new_batch();
	store_put_setting(batch, "key", "value");
	commit_wait(store, batch);
	support_path(support, "state.db-wal", path);
	assert_int_equal(stat(path, &file), 0);
	assert_true(file.st_size > 0);
	int64_t until = clock_steady_ms() + SUPPORT_PATIENCE_MS;
	while (!stat(path, &file) && file.st_size && clock_steady_ms() < until)
		usleep(20000);
	assert_int_equal(file.st_size, 0);
	store_destroy(&store);
}

// A child gets no handle on the databases: a close of its copy would let go of the parent's locks.
static void children_inherit_no_descriptor(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct support *support = *state;
	struct store *store = open_store(support);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		execl("/bin/sh", "sh", "-c", "ls -l /proc/self/fd | grep -c '\\.db' >/dev/null && exit 1; exit 0",
		      (char *)NULL);
		_exit(2);
	}
	int result = 0;
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFEXITED(result));
	assert_int_equal(WEXITSTATUS(result), 0);
	store_destroy(&store);
}

static void count_alert(void *context, const struct store_alert *alert)
{
	int *kept = context;
	kept[!strcmp(alert->kind, "audit_failed")]++;
	kept[2] += !strcmp(alert->node_id, "calm");
	if (strcmp(alert->alert_id, "alert-1") == 0)
		fail_msg("the oldest of the node with the most is kept");
}

static void alerts_of_the_audit_log_and_of_other_nodes_are_kept(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	struct store_batch *batch = new_batch();
	struct error error = {0};
	int kept[3] = {0};
	for (int i = -1; i <= LIMIT_ALERTS; i++) {
		char id[32];
		snprintf(id, sizeof(id), "alert-%d", i);
		const struct store_alert alert = {.alert_id = id,
						  .kind = i < 0 ? "audit_failed" : "throttled",
						  .severity = "critical",
						  .subject_type = "device",
						  .subject_id = id,
						  .subject_name = "one",
						  .message = "it was so",
						  .hint = "",
						  .acknowledged_by = "",
						  .node_id = i ? "flapping" : "calm",
						  .value = NAN,
						  .threshold = NAN,
						  .raised_ms = i + 10,
						  .cleared_ms = i + 11};
		assert_int_equal(store_put_alert(batch, &alert), STATUS_OK);
	}
	commit_wait(store, batch);
	assert_int_equal(store_load_alerts(store, count_alert, kept, &error), STATUS_OK);
	assert_int_equal(kept[0], LIMIT_ALERTS - 1);
	assert_int_equal(kept[1], 1);
	assert_int_equal(kept[2], 1); // older than all of the other node's
	store_destroy(&store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_is_put_comes_back_after_a_restart),
		TEST(an_instance_is_changed_only_while_it_is_there),
		TEST(newest_changes_are_kept),
		TEST(a_refused_batch_fails_alone_and_order_holds),
		TEST(stopping_commits_what_waits),
		TEST(a_batch_is_bounded),
		TEST(the_queue_is_bounded),
		TEST(a_full_disk_refuses_and_recovers),
		TEST(a_disk_without_space_refuses_and_recovers),
		TEST(the_log_file_is_emptied_when_nothing_happens),
		TEST(children_inherit_no_descriptor),
		TEST(alerts_of_the_audit_log_and_of_other_nodes_are_kept),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
