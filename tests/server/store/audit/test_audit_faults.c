/* The audit log on a disk that fails at the n-th write, sync, truncation, rename or removal, for every n of a life that
 * begins with an empty directory: first start, audited changes, the end of a segment, its archive, a restart.
 *
 * Whatever fails: what was acknowledged is there afterwards, the log verifies, what was refused is not in it, and the
 * store takes changes again once the disk does, in the same process and after a restart. Four disks: one that fails
 * once, one that is full from there on, one that takes the process with it (kill -9; what the kernel has is kept), and
 * one that fails and then does so. */
#include "common/base/log.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/faults.h"

#include <sys/prctl.h>
#include <sys/wait.h>

enum { BATCHES = 8, EACH = 4, SEGMENT = 13, LOOKS = 2000 };

struct life {
	struct audit_case test;
	int pipe;
	uint64_t number; // of the batch that is committed
	bool waiting;
	enum status status;
	char said[384], hint[256];
};

// What a child says: the number of a batch that was acknowledged, or refused.
struct word {
	uint64_t number;
	bool good, told; // told: the refusal had a message and a hint
};

static void outcome(void *context, enum status status, const struct error *error)
{
	struct life *life = context;
	struct word word = {.number = life->number, .good = !status};
	if (status)
		word.told = error->message[0] && (error->hint[0] || status == STATUS_OUT_OF_MEMORY);
	if (syscall(SYS_write, life->pipe, &word, sizeof word) != sizeof word)
		_exit(3);
	life->status = status;
	life->test.done++;
}

static void commit(struct life *life, uint64_t number)
{
	struct store_batch *batch;
	char key[32];
	life->number = number;
	snprintf(key, sizeof key, "batch/%" PRIu64, number);
	if (store_batch_create(&batch) || store_put_setting(batch, key, "there"))
		_exit(4);
	for (uint64_t i = 0; i < EACH; i++)
		if (audit_put_one(batch, number * EACH + i))
			_exit(4);
	int wanted = life->test.done + 1;
	if (store_commit(life->test.store, &batch, outcome, life))
		_exit(4);
	support_run_until(life->test.support->loop, &life->test.done, wanted);
}

static bool archived(const struct support *support)
{
	return audit_count_files(support, "*.exoaudit") > 0;
}

// The whole life; *ops: how many calls changed a file.
static void live(const char *directory, int pipe, enum faults_kind kind, unsigned n, unsigned *ops)
{
	struct support support = {.loop = NULL};
	struct life life = {
		.pipe = pipe,
		.test = {.support = &support, .params = {.audit_segment_entries = SEGMENT, .audit_keep_days = -1}}};
	struct error error = {.status = STATUS_OK};
	snprintf(support.directory, sizeof support.directory, "%s", directory);
	if (net_loop_create(&support.loop, &error))
		_exit(5);
	faults_arm(kind, n);
	if (audit_try_open(&life.test, &error)) { // the start itself met the fault: it says so, and the next one works
		if (!error.message[0] || kind == FAULTS_COUNT)
			_exit(6);
		faults_disarm();
		if (audit_try_open(&life.test, &(struct error){.status = STATUS_OK}))
			_exit(7);
	}
	for (uint64_t number = 0; number < BATCHES; number++)
		commit(&life, number);
	for (int look = 0; kind != FAULTS_ERROR && kind != FAULTS_FULL && look < LOOKS && !archived(&support); look++)
		usleep(1000);
	if (ops)
		*ops = atomic_load(&faults_seen);
	faults_disarm();
	commit(&life, BATCHES); // the disk is well again: so is the store
	if (life.status)
		_exit(8);
	store_destroy(&life.test.store);
	net_loop_destroy(&support.loop);
}

static void look_after(const char *directory, const bool *acknowledged, const bool *refused, const char *what)
{
	struct support support = {.loop = NULL};
	struct audit_case test = {.support = &support,
				  .params = {.audit_segment_entries = SEGMENT, .audit_keep_days = -1}};
	struct error error = {.status = STATUS_OK};
	uint64_t present = 0;
	char path[SUPPORT_PATH_BYTES + 64];
	snprintf(support.directory, sizeof support.directory, "%s", directory);
	assert_int_equal(net_loop_create(&support.loop, &error), STATUS_OK);
	if (audit_try_open(&test, &error))
		fail_msg("%s: the next start: %s", what, error.message);
	for (uint64_t number = 0; number <= BATCHES; number++) {
		char key[32];
		snprintf(key, sizeof key, "batch/%" PRIu64, number);
		bool there = store_load_setting(test.store, key) != NULL;
		if (acknowledged[number] && !there)
			fail_msg("%s: batch %" PRIu64 " was acknowledged and is gone", what, number);
		if (refused[number] && there)
			fail_msg("%s: batch %" PRIu64 " was refused and is there", what, number);
		present += there;
	}
	audit_fill(&test, 10000, 1, 1);
	struct audit_check check;
	const struct journal_report *report = audit_check(&check, directory, NULL, NULL);
	if (!report || journal_verdict_of(report)) {
		if (report)
			audit_print(report);
		fail_msg("%s: verdict %d: %s", what, report ? (int)journal_verdict_of(report) : -1,
			 check.error.message);
	}
	// Each segment that has ended is told once, and its pruning once, or again by the start after a kill.
	uint64_t rotations = report->segments - 1, least = present * EACH + 1 + rotations;
	if (report->entries < least || report->entries > least + 2 * rotations)
		fail_msg("%s: %" PRIu64 " entries for %" PRIu64 " batches", what, report->entries, present);
	journal_verifier_destroy(&check.verifier);
	store_destroy(&test.store); // a segment that has just ended destroys its key first
	if (audit_count_files(&support, "key-*") != 1)
		fail_msg("%s: a key was left behind", what);
	net_loop_destroy(&support.loop);
	snprintf(path, sizeof path, "rm -rf '%.100s'", directory);
	assert_int_equal(system(path), 0);
}

// One life, with a fault at n; false once n is past its end.
static void try_one(enum faults_kind kind, const char *name, unsigned n)
{
	char directory[] = "/tmp/exogpu-fault-XXXXXX", what[64];
	bool acknowledged[BATCHES + 1] = {false}, refused[BATCHES + 1] = {false};
	int ends[2], result = 0;
	struct word word;
	snprintf(what, sizeof what, "%s at %u", name, n);
	assert_non_null(mkdtemp(directory));
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		log_set_level(LOG_ERROR);
		if (!freopen("/dev/null", "w", stderr))
			_exit(9);
		live(directory, ends[1], kind, n, NULL);
		_exit(0);
	}
	close(ends[1]);
	while (read(ends[0], &word, sizeof word) == sizeof word && word.number <= BATCHES) {
		acknowledged[word.number] = word.good;
		refused[word.number] = !word.good;
		if (!word.good && !word.told)
			fail_msg("%s: a refusal without a word or a hint", what);
	}
	close(ends[0]);
	assert_int_equal(waitpid(child, &result, 0), child);
	bool killed = WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL &&
		      (kind == FAULTS_KILL || kind == FAULTS_ERROR_KILL);
	if (kind == FAULTS_ERROR_KILL) // what a failed commit has written may be found whole after a crash
		memset(refused, 0, sizeof refused);
	if (!killed && (!WIFEXITED(result) || WEXITSTATUS(result)))
		fail_msg("%s: the child ended with %x", what, result);
	look_after(directory, acknowledged, refused, what);
}

static unsigned count_calls(void)
{
	char directory[] = "/tmp/exogpu-fault-XXXXXX", command[64];
	unsigned ops = 0;
	int sink[2];
	assert_non_null(mkdtemp(directory));
	assert_int_equal(pipe(sink), 0);
	live(directory, sink[1], FAULTS_COUNT, 0, &ops);
	close(sink[0]);
	close(sink[1]);
	snprintf(command, sizeof command, "rm -rf '%s'", directory);
	assert_int_equal(system(command), 0);
	return ops;
}

// EXOGPU_EVERY=1 tries every call; otherwise one in `every`, another one each time.
static void try_all(enum faults_kind kind, const char *name, unsigned every)
{
	const char *wanted = getenv("EXOGPU_EVERY");
	unsigned calls = count_calls(), tried = 0, step = wanted ? (unsigned)strtoul(wanted, NULL, 10) : every;
	assert_true(calls > 50 && step > 0);
	for (unsigned n = 1 + (unsigned)clock_steady_ms() % step; n <= calls + 2; n += step, tried++)
		try_one(kind, name, n);
	print_message("%s: %u of %u calls that change a file tried, nothing acknowledged was lost\n", name, tried,
		      calls);
}

static void a_call_that_fails_once(void **state)
{
	(void)state;
	try_all(FAULTS_ERROR, "an error", 5);
}

static void a_disk_that_is_full(void **state)
{
	(void)state;
	try_all(FAULTS_FULL, "a full disk", 5);
}

static void a_kill_at_every_step(void **state)
{
	(void)state;
	try_all(FAULTS_KILL, "a kill", 3);
}

static void a_call_that_fails_and_then_a_kill(void **state)
{
	(void)state;
	try_all(FAULTS_ERROR_KILL, "an error and a kill", 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_that_fails_once),
		cmocka_unit_test(a_disk_that_is_full),
		cmocka_unit_test(a_kill_at_every_step),
		cmocka_unit_test(a_call_that_fails_and_then_a_kill),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
