/* kill -9 in the middle of a load of commits: nothing that was acknowledged is lost.
 *
 * A child commits numbered changes, 32 at a time, and writes each number into a pipe once it is told that the change is
 * on disk. The parent kills it at a random moment, opens the store again, and looks for every number that it read. */
#include "server/store/store.h"
#include "tests/server/store/support.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CYCLES = 60, IN_FLIGHT = 32, MOMENT_MS = 40 };

struct load {
	struct store *store;
	int cycle, pipe;
	unsigned next;
};

struct sent {
	struct load *load;
	unsigned number;
};

static void send_one(struct load *load, struct sent *sent);

static void acknowledged(void *context, enum status status, const struct error *error)
{
	struct sent *sent = context;
	if (status) {
		fprintf(stderr, "%s\n", error->message);
		_exit(1);
	}
	if (write(sent->load->pipe, &sent->number, sizeof sent->number) != sizeof sent->number)
		_exit(2);
	send_one(sent->load, sent);
}

static void send_one(struct load *load, struct sent *sent)
{
	struct store_batch *batch;
	char key[48];
	sent->load = load;
	sent->number = load->next++;
	snprintf(key, sizeof key, "%d/%u", load->cycle, sent->number);
	const struct store_change change = {
		.at_ms = sent->number, .kind = "k", .level = "info", .node_id = "n", .name = "n", .summary = key};
	if (store_batch_create(&batch) || store_put_setting(batch, key, "there") || store_put_change(batch, &change) ||
	    store_commit(load->store, &batch, acknowledged, sent))
		_exit(3);
}

static void run_load(const char *directory, int cycle, int pipe)
{
	struct net_loop *loop;
	struct error error = {.status = STATUS_OK};
	struct load load = {.cycle = cycle, .pipe = pipe};
	struct sent sent[IN_FLIGHT];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (net_loop_create(&loop, &error) ||
	    store_create(&load.store, &(struct store_params){.loop = loop, .directory = directory}, &error)) {
		fprintf(stderr, "%s\n", error.message);
		_exit(4);
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		send_one(&load, &sent[i]);
	net_loop_run(loop);
	_exit(5);
}

// Acknowledged numbers come in order, from 0: their count says which.
static unsigned kill_at_random(const char *directory, int cycle)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(ends[0]);
		run_load(directory, cycle, ends[1]);
	}
	close(ends[1]);
	unsigned count = 0, number;
	int64_t until = 0;
	for (;;) {
		if (until && clock_steady_ms() >= until) {
			kill(child, SIGKILL);
			until = INT64_MAX;
		}
		struct pollfd ready = {.fd = ends[0], .events = POLLIN};
		if (poll(&ready, 1, 1) <= 0)
			continue;
		ssize_t got = read(ends[0], &number, sizeof number);
		if (got <= 0)
			break;
		assert_int_equal(got, sizeof number);
		assert_int_equal(number, count);
		if (!count++)
			until = clock_steady_ms() + random() % MOMENT_MS;
	}
	close(ends[0]);
	int result = 0;
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
	return count;
}

static void nothing_acknowledged_is_lost(void **state)
{
	(void)state;
	char directory[] = "/tmp/exogpu-crash-XXXXXX", command[64];
	unsigned total = 0, slowest_ms = 0;
	assert_non_null(mkdtemp(directory));
	srandom((unsigned)clock_steady_ms());
	for (int cycle = 0; cycle < CYCLES; cycle++) {
		unsigned count = kill_at_random(directory, cycle);
		struct net_loop *loop;
		struct store *store;
		struct error error = {.status = STATUS_OK};
		int64_t begun = clock_steady_ms();
		assert_int_equal(net_loop_create(&loop, &error), STATUS_OK);
		if (store_create(&store, &(struct store_params){.loop = loop, .directory = directory},
				 &error)) // checks the file, too
			fail_msg("cycle %d: %s", cycle, error.message);
		unsigned took_ms = (unsigned)(clock_steady_ms() - begun);
		slowest_ms = took_ms > slowest_ms ? took_ms : slowest_ms;
		for (unsigned number = 0; number < count; number++) {
			char key[48];
			snprintf(key, sizeof key, "%d/%u", cycle, number);
			if (!store_load_setting(store, key))
				fail_msg("cycle %d: %u of %u acknowledged changes is gone", cycle, number, count);
		}
		store_destroy(&store);
		net_loop_destroy(&loop);
		total += count;
	}
	print_message("%d kills, %u acknowledged changes, none lost; slowest start after one %u ms\n", CYCLES, total,
		      slowest_ms);
	assert_true(total > CYCLES * 10);
	snprintf(command, sizeof command, "rm -rf '%s'", directory);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_acknowledged_is_lost)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
