/* Jobs on threads, and their results on the loop: each is run and delivered once, in order where there is one thread,
 * owners take turns, and what was not begun is given back at the end. */
#include "common/work/jobs.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 2000, THREADS = 4 };

static struct {
	struct net_loop *loop;
	struct jobs *jobs;
	pthread_t loop_thread;
	pthread_mutex_t gate; // a job that waits for it keeps its thread busy
	atomic_int ran;
	int delivered, dropped, expected; // of the loop; expected: after so many the loop stops
	char order[64];
} world;

struct letter {
	struct job job; // first
	char letter;
	bool ran, put_again;
};

static void run(struct job *job)
{
	struct letter *letter = (struct letter *)job;
	assert_false(pthread_equal(pthread_self(), world.loop_thread));
	letter->ran = true;
	atomic_fetch_add(&world.ran, 1);
}

static void run_late(struct job *job)
{
	pthread_mutex_lock(&world.gate);
	pthread_mutex_unlock(&world.gate);
	run(job);
}

static void put(char name, void (*runs)(struct job *), const void *owner);

static void deliver(struct outbox_item *item, bool tell)
{
	struct letter *letter = (struct letter *)item;
	assert_true(pthread_equal(pthread_self(), world.loop_thread));
	world.dropped += !tell;
	world.delivered += tell;
	if (tell && world.delivered < (int)sizeof world.order)
		world.order[world.delivered - 1] = letter->letter;
	if (tell && letter->put_again)
		put('+', run, NULL);
	if (tell && world.delivered == world.expected)
		net_loop_stop(world.loop);
	free(letter);
}

static struct letter *create(char name, void (*runs)(struct job *), const void *owner)
{
	struct letter *letter = calloc(1, sizeof *letter);
	assert_non_null(letter);
	*letter = (struct letter){.job = {.item = {.deliver = deliver}, .run = runs, .owner = owner}, .letter = name};
	return letter;
}

static void put(char name, void (*runs)(struct job *), const void *owner)
{
	jobs_put(world.jobs, &create(name, runs, owner)->job);
}

static void begin(unsigned threads, int expected)
{
	struct error error = {0};
	memset(&world, 0, sizeof world);
	world.loop_thread = pthread_self();
	world.expected = expected;
	pthread_mutex_init(&world.gate, NULL);
	assert_int_equal(net_loop_create(&world.loop, NULL), STATUS_OK);
	assert_int_equal(jobs_create(&world.jobs, world.loop, threads, &error), STATUS_OK);
}

static void finish(void)
{
	jobs_destroy(&world.jobs);
	assert_null(world.jobs);
	jobs_destroy(&world.jobs);
	net_loop_destroy(&world.loop);
	pthread_mutex_destroy(&world.gate);
}

static void test_order(void **context)
{
	(void)context;
	begin(1, 4);
	put('a', run, NULL);
	put('b', NULL, NULL); // nothing to run: told in its turn
	struct letter *last = create('c', run, NULL);
	last->put_again = true;
	jobs_put(world.jobs, &last->job);
	net_loop_run(world.loop);
	assert_string_equal(world.order, "abc+");
	assert_int_equal(atomic_load(&world.ran), 3);
	finish();
	assert_int_equal(world.dropped, 0);
}

// The first one keeps the thread busy until all are there.
static void test_owners(void **context)
{
	static const int one, two;
	(void)context;
	begin(1, 6);
	pthread_mutex_lock(&world.gate);
	put('1', run_late, &one);
	put('2', run, &one);
	put('3', run, &one);
	put('a', run, &two);
	put('b', run, &two);
	put('4', run, &one);
	pthread_mutex_unlock(&world.gate);
	net_loop_run(world.loop);
	// Whether the thread took the first before the others came or not, it is the first; then owners take turns.
	assert_string_equal(world.order, "1a2b34");
	finish();
}

static void test_many(void **context)
{
	(void)context;
	begin(THREADS, MANY);
	for (int i = 0; i < MANY; i++)
		put('.', run, NULL);
	net_loop_run(world.loop);
	assert_int_equal(atomic_load(&world.ran), MANY);
	assert_int_equal(world.delivered, MANY);
	finish();
	assert_int_equal(world.dropped, 0);
}

// Nothing is lost: whatever was put is delivered, or given back.
static void test_end(void **context)
{
	(void)context;
	begin(THREADS, 0);
	for (int i = 0; i < MANY; i++)
		put('.', run, NULL);
	finish();
	assert_int_equal(world.delivered, 0);
	assert_int_equal(world.dropped, MANY);
	assert_true(atomic_load(&world.ran) <= MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_owners),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
