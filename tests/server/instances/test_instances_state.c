/* A change of an instance that the audit log tells of: its row and its entry are of one transaction, and nobody hears
 * of the change before that is on disk. A child process is killed at each step of that transaction in turn; what its
 * parent finds then is both or neither, and both where the child had told people. */
#include "server/cluster/events.h"
#include "server/cluster/state.h"
#include "server/instances/instances_inside.h"
#include "server/security/audit.h"
#include "tests/server/store/faults.h"
#include "tests/server/store/support.h"

#include <sys/prctl.h>
#include <sys/wait.h>

enum { STEPS_MOST = 200, EPOCH_BEFORE = 1, EPOCH_AFTER = 2 };

struct server {
	struct store *store;
	struct audit *audit;
	struct instances all;
	struct cluster_node node;
	struct cluster_device device;
	struct instance instance;
};

static int entries, stored, notes, tell_pipe = -1;
static char told[128]; // all summaries

void __wrap_cluster_note_model(struct cluster *cluster, const struct cluster_news *news);
void __wrap_events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *event);

void __wrap_cluster_note_model(struct cluster *cluster, const struct cluster_news *news)
{
	(void)cluster;
	snprintf(told + strlen(told), sizeof told - strlen(told), "%s %s (%d); ", news->node_id, news->summary,
		 entries);
	notes++;
	if (tell_pipe >= 0 && write(tell_pipe, "t", 1) != 1)
		_exit(3);
}

void __wrap_events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *event)
{
	(void)events, (void)topic, (void)key;
	json_destroy(&event);
}

static void publish(void *context, struct json *entry)
{
	(void)context;
	entries += !strcmp(json_get_string(entry, "action", ""), "instance.placed_anew");
	json_destroy(&entry);
}

static void kept(void *context, enum status status, const struct error *error)
{
	(void)context, (void)error;
	stored += !status;
}

static void begin(struct server *server, struct support *support)
{
	struct error error = {0};
	entries = stored = notes = 0;
	told[0] = 0;
	*server = (struct server){.node = {.node_id = "n_1"}, .device = {.device_id = "d_1"}};
	if (store_create(&server->store, &(struct store_params){.loop = support->loop, .directory = support->directory},
			 &error))
		fail_msg("%s", error.message);
	assert_int_equal(
		audit_create(&server->audit,
			     &(struct audit_params){.loop = support->loop, .store = server->store, .publish = publish},
			     &error),
		STATUS_OK);
	server->device.node = &server->node;
	server->all.params = (struct instances_params){
		.loop = support->loop, .store = server->store, .audit = server->audit, .give_way_ms = -1};
	server->instance = (struct instance){.all = &server->all,
					     .instance_id = "i_1",
					     .model_id = "m_1",
					     .model_name = "model",
					     .state = INSTANCE_RUNNING,
					     .strategy = "auto",
					     .format = FORMAT_F16,
					     .epoch = EPOCH_BEFORE,
					     .load_ms = -1,
					     .tokens_per_s = -1,
					     .stages = {{.device = &server->device, .layer_count = 2}},
					     .stage_count = 1,
					     .wanted = json_new_object()};
}

static void end(struct server *server)
{
	audit_destroy(&server->audit);
	store_destroy(&server->store);
	instance_show_next(&server->instance, 0, false);
	json_destroy(&server->instance.wanted);
}

static void keep_new(struct server *server, struct support *support)
{
	assert_int_equal(instance_keep_new(&server->instance, kept, NULL), STATUS_OK);
	support_run_until(support->loop, &stored, 1);
}

static bool halt(struct server *server)
{
	return instance_change(&server->instance, &(struct instance_change){.to = INSTANCE_PAUSED});
}

static bool go_on(struct server *server)
{
	const struct audit_tally entry = {
		.by = &audit_server, .action = "instance.placed_anew", .target = server->instance.instance_id};
	server->instance.epoch = EPOCH_AFTER;
	return instance_change(
		&server->instance,
		&(struct instance_change){.to = INSTANCE_RUNNING, .row = INSTANCE_ROW_WRITTEN, .entry = &entry});
}

static void news_wait_for_the_disk(void **state)
{
	static struct server server;
	struct support *support = *state;
	begin(&server, support);
	keep_new(&server, support);
	assert_true(halt(&server));
	assert_string_equal(told, "n_1 is paused (0); "); // nothing is stored of it
	assert_true(go_on(&server));
	assert_true(halt(&server)); // before the entry is on disk
	assert_int_equal(notes, 1);
	assert_string_equal(instance_state(&server.instance), "paused");
	support_run_until(support->loop, &notes, 3);
	assert_string_equal(told, "n_1 is paused (0); n_1 answers again (1); n_1 is paused (1); ");
	assert_null(server.instance.shown);
	end(&server);
}

// The server ends first: what is not known to be on disk is told to nobody.
static void news_end_with_the_server(void **state)
{
	static struct server server;
	struct support *support = *state;
	begin(&server, support);
	server.instance.state = INSTANCE_PAUSED;
	assert_true(go_on(&server));
	end(&server);
	assert_int_equal(notes, 0);
}

// ---- killed ----

static void found(void *context, const struct store_instance *row)
{
	*(int64_t *)context = row->epoch;
}

static void listed(void *context, enum status status, struct json *result, const struct error *error)
{
	(void)error;
	assert_int_equal(status, STATUS_OK);
	*(int *)context = 1 + (json_first(json_get(result, "entries")) != NULL);
	json_destroy(&result);
}

// The child's whole life. It is killed at the n-th call that changes a file once the change begins.
static void change_and_die(struct support *support, int pipe, unsigned n)
{
	static struct server server;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin(&server, support);
	server.instance.state = INSTANCE_PAUSED;
	tell_pipe = pipe;
	faults_arm(FAULTS_KILL, n);
	go_on(&server);
	support_run_until(support->loop, &notes, 1);
	faults_disarm();
	_exit(0);
}

// Whether it was killed before it was done.
static bool kill_at(struct support *support, unsigned n, bool *heard)
{
	int ends[2], result = 0;
	char byte;
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		struct error error = {0};
		close(ends[0]);
		if (net_loop_create(&support->loop, &error))
			_exit(2);
		change_and_die(support, ends[1], n);
	}
	close(ends[1]);
	*heard = read(ends[0], &byte, 1) == 1;
	close(ends[0]);
	assert_int_equal(waitpid(child, &result, 0), child);
	if (!WIFSIGNALED(result))
		assert_true(WIFEXITED(result) && !WEXITSTATUS(result));
	return WIFSIGNALED(result);
}

static void row_and_entry_are_one(void **state)
{
	static struct server server;
	struct support *support = *state;
	unsigned kills = 0, both = 0;
	bool heard = false, killed = true;
	begin(&server, support);
	keep_new(&server, support);
	end(&server);
	while (killed && !both && kills < STEPS_MOST) {
		int64_t epoch = 0;
		int entry = 0;
		struct error error = {0};
		killed = kill_at(support, ++kills, &heard);
		begin(&server, support);
		assert_int_equal(store_load_instances(server.store, found, &epoch, &error), STATUS_OK);
		assert_int_equal(store_list_audit(server.store,
						  &(struct store_audit_filter){
							  .after = -1, .limit = 1, .action = "instance.placed_anew"},
						  listed, &entry),
				 STATUS_OK);
		support_run_until(support->loop, &entry, 1);
		both = entry == 2;
		if (epoch != (both ? EPOCH_AFTER : EPOCH_BEFORE))
			fail_msg("killed at step %u: the row has epoch %lld, and the entry is %s", kills,
				 (long long)epoch, both ? "there" : "not there");
		assert_true(both || !heard);
		end(&server);
	}
	print_message("killed at %u steps, then both were there\n", kills);
	assert_true(both && kills > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(news_wait_for_the_disk, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(news_end_with_the_server, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(row_and_entry_are_one, support_setup, support_teardown)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
