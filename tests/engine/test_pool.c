/* The threads of the CPU back end: every piece is done once, whoever asks and however many ask at once; a stop leaves
 * out what is not begun. Also run under the thread sanitizer. */
#include "engine/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { PIECES = 1000, CALLERS = 4, ROUNDS = 200 };

struct count {
	struct pool *pool;
	atomic_uint done[PIECES];
	atomic_uint all, late; // late: begun after a stop
	unsigned stop_at;      // stop the pool at this piece's end; 0: never
	unsigned plain;        // written by one piece only, and read when all are done
};

static void count_piece(void *context, uint64_t index)
{
	struct count *count = context;
	if (pool_stopped(count->pool))
		atomic_fetch_add(&count->late, 1);
	atomic_fetch_add(&count->done[index], 1);
	if (!index)
		count->plain++;
	if (atomic_fetch_add(&count->all, 1) + 1 == count->stop_at)
		pool_stop(count->pool);
}

static struct pool *create(unsigned threads)
{
	struct pool *pool;
	struct error error = {0};
	if (pool_create(&pool, threads, &error))
		fail_msg("%s", error.message);
	return pool;
}

static void test_each_piece_once(void **state)
{
	(void)state;
	for (unsigned threads = 0; threads < 6; threads++) {
		struct pool *pool = create(threads);
		for (uint64_t pieces = 0; pieces <= PIECES; pieces = pieces * 3 + 1) {
			struct count count = {.pool = pool};
			pool_run(pool, count_piece, &count, pieces);
			for (uint64_t i = 0; i < PIECES; i++)
				assert_int_equal(count.done[i], i < pieces);
			assert_int_equal(count.plain, pieces > 0);
		}
		pool_destroy(&pool);
		assert_null(pool);
	}
}

static void *caller(void *context)
{
	struct count *count = context;
	for (int round = 0; round < ROUNDS; round++)
		pool_run(count->pool, count_piece, count, PIECES / 8);
	return NULL;
}

static void test_several_ask(void **state)
{
	struct pool *pool = create(3);
	struct count counts[CALLERS] = {{0}};
	pthread_t threads[CALLERS];
	(void)state;
	for (int i = 0; i < CALLERS; i++) {
		counts[i].pool = pool;
		assert_int_equal(pthread_create(&threads[i], NULL, caller, &counts[i]), 0);
	}
	for (int i = 0; i < CALLERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < CALLERS; i++) {
		assert_int_equal(counts[i].all, ROUNDS * (PIECES / 8));
		assert_int_equal(counts[i].plain, ROUNDS);
	}
	pool_destroy(&pool);
}

static void test_stop(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads < 4; threads++) {
		struct pool *pool = create(threads);
		struct count count = {.pool = pool, .stop_at = 10};
		pool_run(pool, count_piece, &count, PIECES);
		assert_true(pool_stopped(pool) && count.all >= 10);
		assert_in_range(count.late, 0, threads - 1); // each of the others may just have taken one
		unsigned all = count.all;
		pool_run(pool, count_piece, &count, PIECES);
		assert_int_equal(count.all, all);
		pool_destroy(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_piece_once),
		cmocka_unit_test(test_several_ask),
		cmocka_unit_test(test_stop),
	};
	return cmocka_run_group_tests_name("cpu pool", tests, NULL, NULL);
}
