/* kill -9 at random under audited load, segments ending all the while: nothing acknowledged is lost, the log verifies,
 * and what was seen of it before (its head when a change was acknowledged) is continued by what is there afterwards.
 * 20 cycles; EXOGPU_CYCLES for more. */
#include "common/base/log.h"
#include "tests/server/store/audit/audit_support.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { IN_FLIGHT = 32, MOMENT_MS = 120, SEGMENT = 150 };

struct load {
	struct store *store;
	int cycle, pipe;
	unsigned next;
};

struct sent {
	struct load *load;
	unsigned number;
};

// What the parent hears: a change that is on disk, and the log's size and root when it was said to be.
struct word {
	unsigned number;
	uint64_t size;
	char note[512];
};

static void send_one(struct load *load, struct sent *sent);

static void acknowledged(void *context, enum status status, const struct error *error)
{
	struct sent *sent = context;
	struct store_audit_head head;
	struct word word = {.number = sent->number};
	if (status) {
		fprintf(stderr, "%s\n", error->message);
		_exit(1);
	}
	store_read_audit_head(sent->load->store, &head);
	word.size = head.checkpoint.size;
	snprintf(word.note, sizeof word.note, "%s", head.note);
	if (write(sent->load->pipe, &word, sizeof word) != sizeof word)
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
	if (store_batch_create(&batch) || store_put_setting(batch, key, "there") ||
	    audit_put_one(batch, sent->number) || store_commit(load->store, &batch, acknowledged, sent))
		_exit(3);
}

static void run_load(const char *directory, int cycle, int pipe)
{
	struct net_loop *loop;
	struct error error = {.status = STATUS_OK};
	struct load load = {.cycle = cycle, .pipe = pipe};
	struct sent sent[IN_FLIGHT];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (net_loop_create(&loop, &error) || store_create(&load.store,
							   &(struct store_params){.loop = loop,
										  .directory = directory,
										  .audit_segment_entries = SEGMENT,
										  .audit_keep_days = -1},
							   &error)) {
		fprintf(stderr, "%s\n", error.message);
		_exit(4);
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		send_one(&load, &sent[i]);
	net_loop_run(loop);
	_exit(5);
}

static unsigned kill_at_random(const char *directory, int cycle, struct word *last)
{
	int ends[2], result = 0;
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(ends[0]);
		run_load(directory, cycle, ends[1]);
	}
	close(ends[1]);
	unsigned count = 0;
	int64_t until = 0;
	struct word word;
	for (;;) {
		if (until && clock_steady_ms() >= until) {
			kill(child, SIGKILL);
			until = INT64_MAX;
		}
		struct pollfd ready = {.fd = ends[0], .events = POLLIN};
		if (poll(&ready, 1, 1) <= 0)
			continue;
		if (read(ends[0], &word, sizeof word) != sizeof word)
			break;
		assert_int_equal(word.number, count);
		*last = word;
		if (!count++)
			until = clock_steady_ms() + random() % MOMENT_MS;
	}
	close(ends[0]);
	assert_int_equal(waitpid(child, &result, 0), child);
	if (!WIFSIGNALED(result) || WTERMSIG(result) != SIGKILL)
		fail_msg("cycle %d: the child ended with %x", cycle, result);
	return count;
}

static void look_after(const char *directory, int cycle, unsigned count, const struct word *last)
{
	struct net_loop *loop;
	struct store *store;
	struct error error = {.status = STATUS_OK};
	struct audit_check check;
	// Before the next start, as whoever finds the machine so would look; then after it.
	for (int turn = 0; turn < 2; turn++) {
		const struct journal_report *report = audit_check(&check, directory, last->note, NULL);
		if (!report || journal_verdict_of(report)) {
			if (report)
				audit_print(report);
			fail_msg("cycle %d: verdict %d: %s", cycle, report ? (int)journal_verdict_of(report) : -1,
				 check.error.message);
		}
		if (report->entries < last->size || report->witnessed != last->size)
			fail_msg("cycle %d: %" PRIu64 " entries, %" PRIu64 " were acknowledged", cycle, report->entries,
				 last->size);
		journal_verifier_destroy(&check.verifier);
		if (turn)
			break;
		assert_int_equal(net_loop_create(&loop, &error), STATUS_OK);
		const struct store_params params = {
			.loop = loop, .directory = directory, .audit_segment_entries = SEGMENT, .audit_keep_days = -1};
		if (store_create(&store, &params, &error))
			fail_msg("cycle %d: %s", cycle, error.message);
		for (unsigned number = 0; number < count; number++) {
			char key[48];
			snprintf(key, sizeof key, "%d/%u", cycle, number);
			if (!store_load_setting(store, key))
				fail_msg("cycle %d: %u of %u acknowledged changes is gone", cycle, number, count);
		}
		store_destroy(&store);
		net_loop_destroy(&loop);
	}
}

static void nothing_acknowledged_is_lost(void **state)
{
	(void)state;
	const char *wanted = getenv("EXOGPU_CYCLES");
	const int cycles = wanted ? (int)strtol(wanted, NULL, 10) : 20;
	char directory[] = "/tmp/exogpu-crash-XXXXXX", command[64];
	unsigned total = 0;
	struct word last = {.number = 0};
	assert_non_null(mkdtemp(directory));
	srandom((unsigned)clock_steady_ms());
	for (int cycle = 0; cycle < cycles; cycle++) {
		unsigned count = kill_at_random(directory, cycle, &last);
		look_after(directory, cycle, count, &last);
		total += count;
	}
	print_message("%d kills, %u acknowledged audited changes, none lost, the log of %" PRIu64
		      " entries verified after each\n",
		      cycles, total, last.size);
	assert_true(total > (unsigned)cycles * 10);
	snprintf(command, sizeof command, "rm -rf '%s'", directory);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_acknowledged_is_lost)};
	log_set_level(LOG_WARNING);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
