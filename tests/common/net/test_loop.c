/* The loop: timers in their order, work from other threads in its order, files that become readable. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/loop.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fixture {
	struct net_loop *loop;
	struct net_timer timers[4], end;
	char order[64];
	int64_t fired_ms;
	int posted, wrong;
	struct net_watch *watch;
	int fds[2];
};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	assert_non_null(fixture);
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	net_loop_destroy(&fixture->loop);
	assert_null(fixture->loop);
	net_loop_destroy(&fixture->loop);
	free(fixture);
	return 0;
}

static void stop(void *arg)
{
	net_loop_stop(((struct fixture *)arg)->loop);
}

static void note(struct fixture *fixture, char letter)
{
	size_t used = strlen(fixture->order);
	if (used + 1 < sizeof fixture->order)
		fixture->order[used] = letter;
}

static void on_a(void *arg)
{
	note(arg, 'a');
}

static void on_b(void *arg)
{
	struct fixture *fixture = arg;
	note(fixture, 'b');
	if (strlen(fixture->order) < 4) // starts itself again
		net_timer_start(fixture->loop, &fixture->timers[1], 1, on_b, fixture);
	else
		net_timer_start(fixture->loop, &fixture->end, 60, stop, fixture);
	net_timer_stop(fixture->loop, &fixture->timers[2]); // and stops another
}

static void on_c(void *arg)
{
	note(arg, 'c');
}

static void timers_fire_in_order(void **state)
{
	struct fixture *fixture = *state;
	int64_t begun = clock_steady_ms();
	net_timer_start(fixture->loop, &fixture->timers[2], 30, on_c, fixture);
	net_timer_start(fixture->loop, &fixture->timers[1], 10, on_b, fixture);
	net_timer_start(fixture->loop, &fixture->timers[0], 50, on_a, fixture);
	net_timer_start(fixture->loop, &fixture->timers[0], 0, on_a, fixture); // moved
	net_loop_run(fixture->loop);
	assert_string_equal(fixture->order, "abbb");
	assert_true(clock_steady_ms() - begun >= 60);
	assert_false(fixture->timers[0].running || fixture->timers[2].running);
	net_timer_stop(fixture->loop, &fixture->timers[3]); // never started
}

enum { POSTS = 20000 };

struct job {
	struct fixture *fixture;
	int number;
};

static void count_up(void *arg)
{
	struct job *job = arg;
	struct fixture *fixture = job->fixture;
	if (job->number != fixture->posted++)
		fixture->wrong++;
	free(job);
	if (fixture->posted == POSTS)
		net_loop_stop(fixture->loop);
}

static void *post_many(void *arg)
{
	struct fixture *fixture = arg;
	for (int i = 0; i < POSTS; i++) {
		struct job *job = malloc(sizeof(*job));
		if (!job)
			abort();
		*job = (struct job){fixture, i};
		while (net_loop_post(fixture->loop, count_up, job))
			usleep(100); // full for the moment
	}
	return NULL;
}

static void posts_arrive_in_order(void **state)
{
	struct fixture *fixture = *state;
	pthread_t thread;
	net_timer_start(fixture->loop, &fixture->end, 30000, stop, fixture);
	assert_int_equal(pthread_create(&thread, NULL, post_many, fixture), 0);
	net_loop_run(fixture->loop);
	pthread_join(thread, NULL);
	net_timer_stop(fixture->loop, &fixture->end);
	assert_int_equal(fixture->posted, POSTS);
	assert_int_equal(fixture->wrong, 0);
}

// ---- signals ----

enum { INTERRUPTED_POSTS = 200, STOLEN_MS = 20000 };

struct interrupting {
	struct fixture *fixture;
	pthread_t loop_thread;
	_Atomic int posted;
};
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void count_one(void *arg)
{
	((struct interrupting *)arg)->posted++;
}

static void stop_interrupted(void *arg)
{
	stop(((struct interrupting *)arg)->fixture);
}

// The loop is woken by a post, goes back to wait, and a signal ends that wait: again and again.
static void *post_and_interrupt(void *arg)
{
	struct interrupting *one = arg;
	const int64_t until_ms = clock_steady_ms() + STOLEN_MS;
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (int i = 0; i < INTERRUPTED_POSTS; i++) {
		if (net_loop_post(one->fixture->loop, count_one, one))
			abort();
		usleep(200);
		pthread_kill(one->loop_thread, SIGALRM);
		while (one->posted <= i && clock_steady_ms() < until_ms)
			usleep(100);
	}
	if (net_loop_post(one->fixture->loop, stop_interrupted, one))
		abort();
	return NULL;
}

// libwebsockets neither ends the loop for it nor takes it for an event, such as its own wake-up that is over.
static void a_signal_ends_no_wait(void **state)
{
	struct fixture *fixture = *state;
	struct interrupting one = {.fixture = fixture, .loop_thread = pthread_self()};
	struct sigaction before;
	pthread_t thread;
	signals = 0;
	assert_int_equal(sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_signal}, &before), 0);
	net_timer_start(fixture->loop, &fixture->end, 2 * STOLEN_MS, stop, fixture);
	assert_int_equal(pthread_create(&thread, NULL, post_and_interrupt, &one), 0);
	net_loop_run(fixture->loop);
	pthread_join(thread, NULL);
	net_timer_stop(fixture->loop, &fixture->end);
	sigaction(SIGALRM, &before, NULL);
	assert_int_equal(one.posted, INTERRUPTED_POSTS);
	assert_true(signals > 0);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void posts_are_bounded(void **state)
{
	struct fixture *fixture = *state;
	int taken = 0;
	while (taken <= LIMIT_LOOP_QUEUE && !net_loop_post(fixture->loop, nothing, NULL))
		taken++;
	assert_int_equal(taken, LIMIT_LOOP_QUEUE);
	assert_int_equal(net_loop_post(fixture->loop, nothing, NULL), STATUS_LIMIT_EXCEEDED);
}

static void on_readable(void *arg, int fd)
{
	struct fixture *fixture = arg;
	char letter;
	ssize_t length = read(fd, &letter, 1);
	if (length == 1) {
		note(fixture, letter);
		return;
	}
	note(fixture, '.');
	net_watch_destroy(&fixture->watch); // inside its own callback
	net_loop_stop(fixture->loop);
}

static const struct net_watch_events reading = {.readable = on_readable};

static void a_watched_file(void **state)
{
	struct fixture *fixture = *state;
	assert_int_equal(pipe(fixture->fds), 0);
	assert_int_equal(net_watch_create(&fixture->watch, fixture->loop, fixture->fds[0], &reading, fixture, NULL),
			 STATUS_OK);
	assert_int_equal(write(fixture->fds[1], "xyz", 3), 3);
	close(fixture->fds[1]);
	net_timer_start(fixture->loop, &fixture->end, 10000, stop, fixture);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &fixture->end);
	assert_string_equal(fixture->order, "xyz.");
	assert_null(fixture->watch);
	net_watch_destroy(&fixture->watch);
	assert_true(read(fixture->fds[0], fixture->order, 1) < 0); // closed with the watch
}

static void what_cannot_be_watched(void **state)
{
	struct fixture *fixture = *state;
	struct error error = {0};
	assert_int_equal(net_watch_create(&fixture->watch, fixture->loop, 9999, &reading, fixture, &error),
			 STATUS_UNAVAILABLE);
	assert_null(fixture->watch);
	assert_true(error.message[0]);
}

enum { SHORT_WAITS = 200, SHORT_WAIT_MS = 2 };

static int64_t own_cpu_ns(void)
{
	struct timespec used;
	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
	return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static void wait_again(void *arg)
{
	struct fixture *fixture = arg;
	if (++fixture->posted == SHORT_WAITS)
		net_loop_stop(fixture->loop);
	else
		net_timer_start(fixture->loop, &fixture->timers[0], SHORT_WAIT_MS, wait_again, fixture);
}

// The loop sleeps until a timer is due. One that polls through a part of each millisecond would compute for a third of
// the time.
static void short_waits_sleep(void **state)
{
	struct fixture *fixture = *state;
	const int64_t cpu_ns = own_cpu_ns(), began_ms = clock_steady_ms();
	net_timer_start(fixture->loop, &fixture->timers[0], SHORT_WAIT_MS, wait_again, fixture);
	net_loop_run(fixture->loop);
	assert_true(clock_steady_ms() - began_ms >= SHORT_WAITS * (SHORT_WAIT_MS - 1));
	assert_true(own_cpu_ns() - cpu_ns < (int64_t)SHORT_WAITS * SHORT_WAIT_MS * 1000000 / 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(timers_fire_in_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(short_waits_sleep, set_up, tear_down),
		cmocka_unit_test_setup_teardown(posts_arrive_in_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_signal_ends_no_wait, set_up, tear_down),
		cmocka_unit_test_setup_teardown(posts_are_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_watched_file, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_cannot_be_watched, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
