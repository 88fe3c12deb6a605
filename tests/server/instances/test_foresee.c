/* Foresight of several models, on the real planner: each is searched for in turn, none any more once the connection
 * that asked has ended, and a preview of the same connection stops none of them. The search itself is this file's: it
 * waits until the test lets it go on, and finds nothing. */
#include "server/cluster/state.h"
#include "server/instances/instances_inside.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { MODELS = 3 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int searches, allowed; // that have begun; that may end
	bool stopped;          // one that has ended was to stop
} search = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

enum status __wrap_placing_gather(struct placing **out, const struct instances *instances,
				  const struct placing_request *asked, struct error *error);
enum status __wrap_keep_find(struct placing *placing, struct error *error);
bool __wrap_cluster_discovering(const struct cluster *cluster);

enum status __wrap_placing_gather(struct placing **out, const struct instances *instances,
				  const struct placing_request *asked, struct error *error)
{
	(void)instances, (void)asked, (void)error;
	*out = calloc(1, sizeof **out);
	assert_non_null(*out);
	return STATUS_OK;
}

enum status __wrap_keep_find(struct placing *placing, struct error *error)
{
	pthread_mutex_lock(&search.lock);
	const int number = ++search.searches;
	pthread_cond_broadcast(&search.changed);
	while (search.allowed < number)
		pthread_cond_wait(&search.changed, &search.lock);
	search.stopped = search.stopped || atomic_load(placing->wanted.stop);
	pthread_mutex_unlock(&search.lock);
	return error_set(error, STATUS_UNAVAILABLE, "nothing is found here");
}

bool __wrap_cluster_discovering(const struct cluster *cluster)
{
	(void)cluster;
	return false;
}

static void allow(int count)
{
	pthread_mutex_lock(&search.lock);
	search.allowed += count;
	pthread_cond_broadcast(&search.changed);
	pthread_mutex_unlock(&search.lock);
}

static void await_search(int number)
{
	pthread_mutex_lock(&search.lock);
	while (search.searches < number)
		pthread_cond_wait(&search.changed, &search.lock);
	pthread_mutex_unlock(&search.lock);
}

// ---- who asks ----

static struct instances all;

struct asker {
	int answers;
	char connection, token; // their addresses count
};

static void foreseen(void *context, const struct instances_foreseen *found, size_t count)
{
	struct asker *asker = context;
	assert_int_equal(count, MODELS);
	assert_non_null(found);
	asker->answers++;
	net_loop_stop(all.params.loop);
}

static void previewed(void *context, enum status status, struct placing *placing, const struct error *error)
{
	(void)status, (void)error;
	free(placing);
	((struct asker *)context)->answers++;
	net_loop_stop(all.params.loop);
}

static void ask(struct asker *asker)
{
	static struct model_shape shape;
	static struct model_sizes sizes;
	struct instances_foreseen models[MODELS];
	struct error error = {0};
	for (size_t i = 0; i < MODELS; i++)
		models[i] = (struct instances_foreseen){.shape = &shape, .sizes = &sizes};
	const struct instances_foresight foresight = {.models = models,
						      .count = MODELS,
						      .asker = &asker->token,
						      .connection = &asker->connection,
						      .done = foreseen,
						      .context = asker};
	if (instances_foresee(&all, &foresight, &error))
		fail_msg("%s", error.message);
}

static void await_answers(const struct asker *asker, int answers)
{
	while (asker->answers < answers)
		net_loop_run(all.params.loop);
	assert_int_equal(asker->answers, answers);
}

static int begin(void **state)
{
	(void)state;
	search.searches = search.allowed = 0;
	search.stopped = false;
	all = (struct instances){0};
	return net_loop_create(&all.params.loop, NULL) || planner_create(&all.planner, &all, NULL);
}

static int end(void **state)
{
	(void)state;
	allow(100);
	planner_shut_down(all.planner);
	planner_destroy(&all.planner);
	net_loop_destroy(&all.params.loop);
	return 0;
}

static void each_in_turn(void **state)
{
	struct asker asker = {0};
	(void)state;
	ask(&asker);
	allow(MODELS);
	await_answers(&asker, 1);
	assert_int_equal(search.searches, MODELS);
}

static void none_for_a_connection_that_has_ended(void **state)
{
	struct asker gone = {0}, waits = {0};
	(void)state;
	ask(&gone);
	ask(&waits);
	await_search(1);
	instances_leave(&all, &gone.connection);
	allow(1 + MODELS);
	await_answers(&gone, 1);
	await_answers(&waits, 1);
	assert_int_equal(search.searches, 1 + MODELS); // what had begun, and the other's
}

static void none_for_one_that_ends_while_it_waits(void **state)
{
	struct asker gone = {0}, first = {0};
	(void)state;
	ask(&first);
	ask(&gone);
	await_search(1);
	instances_leave(&all, &gone.connection);
	assert_int_equal(gone.answers, 1);
	allow(MODELS);
	await_answers(&first, 1);
	assert_int_equal(search.searches, MODELS);
	assert_false(search.stopped);
}

static void a_preview_stops_none(void **state)
{
	struct asker asker = {0}, preview = {0};
	struct error error = {0};
	struct json *params = json_new_object();
	const struct placing_request request = {.kind = PLACING_PREVIEW,
						.params = params,
						.asker = &asker.token,
						.connection = &asker.connection,
						.done = previewed,
						.context = &preview};
	(void)state;
	ask(&asker);
	await_search(1);
	assert_int_equal(placing_start(&all, &request, &error), STATUS_OK);
	allow(MODELS + 1);
	await_answers(&asker, 1);
	await_answers(&preview, 1);
	assert_int_equal(search.searches, MODELS + 1);
	assert_false(search.stopped);
	json_destroy(&params);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_in_turn, begin, end),
		cmocka_unit_test_setup_teardown(none_for_a_connection_that_has_ended, begin, end),
		cmocka_unit_test_setup_teardown(none_for_one_that_ends_while_it_waits, begin, end),
		cmocka_unit_test_setup_teardown(a_preview_stops_none, begin, end),
	};
	return cmocka_run_group_tests_name("instances/foresee", tests, NULL, NULL);
}
