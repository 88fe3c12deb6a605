/* SQLite's own way of finding what is not handled: every n-th call on a file fails, and every n-th allocation of
 * SQLite, once and from then on until it is well again, on each path of the store: the first start, changes, lists,
 * proofs, verification, histories, the end of a segment, its archive, a stop, another start.
 *
 * Whatever fails: nothing crashes or leaks, who asked is told what failed and what to do, what was refused is not there
 * and what was acknowledged is, the log verifies, and the next change works, in the same process and after a restart.
 */
#include "common/base/log.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/shim.h"

#include <stdatomic.h>

enum { BATCHES = 5, EACH = 4, SEGMENT = 9, LOOKS = 2000, EVERY_CALL = 41, EVERY_ALLOCATION = 601 };

enum fault { FAULT_NONE, FAULT_CALL, FAULT_ALLOCATION };

static _Atomic int kind;
static _Atomic bool from_then_on, damage;
static _Atomic unsigned left, counted; // counted: calls, or allocations, since it was armed

static void arm(enum fault fault, unsigned n, bool on)
{
	atomic_store(&counted, 0);
	atomic_store(&left, n);
	atomic_store(&from_then_on, on);
	atomic_store(&kind, (int)fault);
}

static void disarm(void)
{
	atomic_store(&kind, FAULT_NONE);
}

static bool strikes(enum fault fault)
{
	if (atomic_load(&kind) != (int)fault)
		return false;
	atomic_fetch_add(&counted, 1);
	unsigned now = atomic_load(&left);
	while (now > 1 && !atomic_compare_exchange_weak(&left, &now, now - 1))
		;
	if (now != 1)
		return false;
	if (!atomic_load(&from_then_on))
		atomic_store(&left, 0);
	return true;
}

static int fail_call(const struct shim_call *call)
{
	static const int codes[SHIM_OPS] = {
		[SHIM_OPEN] = SQLITE_CANTOPEN,          [SHIM_READ] = SQLITE_IOERR_READ,
		[SHIM_WRITE] = SQLITE_IOERR_WRITE,      [SHIM_TRUNCATE] = SQLITE_IOERR_TRUNCATE,
		[SHIM_SYNC] = SQLITE_IOERR_FSYNC,       [SHIM_SIZE] = SQLITE_IOERR_FSTAT,
		[SHIM_LOCK] = SQLITE_IOERR_LOCK,        [SHIM_MAP] = SQLITE_IOERR_SHMMAP,
		[SHIM_SHM_LOCK] = SQLITE_IOERR_SHMLOCK, [SHIM_DELETE] = SQLITE_IOERR_DELETE,
		[SHIM_ACCESS] = SQLITE_IOERR_ACCESS,
	};
	if (atomic_load(&damage) && call->op == SHIM_WRITE)
		return SQLITE_CORRUPT;
	return call->op != SHIM_CLOSE && strikes(FAULT_CALL) ? codes[call->op] : SQLITE_OK;
}

// ---- SQLite's allocator, which fails when it is told to ----

static sqlite3_mem_methods memory;

static void *allocate(int bytes)
{
	return strikes(FAULT_ALLOCATION) ? NULL : memory.xMalloc(bytes);
}

static void *reallocate(void *old, int bytes)
{
	return strikes(FAULT_ALLOCATION) ? NULL : memory.xRealloc(old, bytes);
}

static void take_over_memory(void)
{
	assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory), SQLITE_OK);
	sqlite3_mem_methods ours = memory;
	ours.xMalloc = allocate;
	ours.xRealloc = reallocate;
	assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &ours), SQLITE_OK);
	assert_int_equal(sqlite3_initialize(), SQLITE_OK);
}

// ---- a life ----

struct life {
	struct audit_case test;
	const char *what;
	bool lasting; // the fault
	bool acknowledged[BATCHES + 1], refused[BATCHES + 1];
	uint64_t number;
	int asked; // of history
	enum status status;
};

static void expect_told(const struct life *life, enum status status, const struct error *error)
{
	if (!error->message[0] || (!error->hint[0] && status != STATUS_OUT_OF_MEMORY))
		fail_msg("%s: refused with %d, '%s', '%s'", life->what, (int)status, error->message, error->hint);
}

static void committed(void *context, enum status status, const struct error *error)
{
	struct life *life = context;
	life->acknowledged[life->number] = !status;
	life->refused[life->number] = status != STATUS_OK;
	if (status)
		expect_told(life, status, error);
	life->status = status;
	life->test.done++;
}

static void answered(void *context, enum status status, struct json *result, const struct error *error)
{
	struct life *life = context;
	if (status && !error->message[0])
		fail_msg("%s: an answer with %d and no word", life->what, (int)status);
	json_destroy(&result);
	life->test.answered++;
}

static void history_read(void *context, enum status status, const struct store_history *history)
{
	struct life *life = context;
	(void)status, (void)history;
	life->asked++;
}

static void commit(struct life *life, uint64_t number)
{
	struct store_batch *batch;
	char key[32], id[32];
	life->number = number;
	snprintf(key, sizeof key, "batch/%" PRIu64, number);
	snprintf(id, sizeof id, "token%05" PRIu64, number);
	const struct store_token token = {.token_id = id, .name = "made", .scopes = 1, .created_ms = 1};
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(store_put_setting(batch, key, "there"), STATUS_OK);
	assert_int_equal(store_put_token(batch, &token), STATUS_OK);
	for (uint64_t i = 0; i < EACH; i++)
		assert_int_equal(audit_put_one(batch, number * EACH + i), STATUS_OK);
	const int wanted = life->test.done + 1;
	assert_int_equal(store_commit(life->test.store, &batch, committed, life), STATUS_OK);
	support_run_until(life->test.support->loop, &life->test.done, wanted);
}

// Everything else that reads and writes.
static void ask_all(struct life *life)
{
	const struct store_audit_filter filter = {.limit = 10, .after = -1};
	const int64_t now_ms = clock_wall_ms() / 60000 * 60000;
	const struct store_minute minute = {.series = "dev_0", .minute_ms = now_ms};
	struct store *store = life->test.store;
	const int answers = life->test.answered, asked = life->asked;
	store_add_minutes(store, &minute, 1);
	assert_int_equal(store_list_audit(store, &filter, answered, life), STATUS_OK);
	assert_int_equal(store_prove_audit(store, 0, 1, answered, life), STATUS_OK);
	assert_int_equal(store_verify_audit(store, NULL, 0, answered, life), STATUS_OK);
	assert_int_equal(store_read_history(store, "dev_0", now_ms - 600000, now_ms + 60000, 60000, history_read, life),
			 STATUS_OK);
	support_run_until(life->test.support->loop, &life->test.answered, answers + 3);
	support_run_until(life->test.support->loop, &life->asked, asked + 1);
}

static void see_token(void *context, const struct store_token *token)
{
	(void)token;
	++*(int *)context;
}

// Opens it, by a second attempt if the first met the fault, which then is mended.
static void open_store(struct life *life)
{
	struct error error = {.status = STATUS_OK};
	int tokens = 0;
	enum status status = audit_try_open(&life->test, &error);
	if (status) {
		expect_told(life, status, &error);
		disarm();
		error = (struct error){.status = STATUS_OK};
		if (audit_try_open(&life->test, &error))
			fail_msg("%s: the next start: %s; %s", life->what, error.message, error.hint);
	}
	status = store_load_tokens(life->test.store, see_token, &tokens, &error);
	if (status)
		expect_told(life, status, &error);
}

static void live(struct life *life, bool wait)
{
	open_store(life);
	for (uint64_t number = 0; number < BATCHES - 1; number++)
		commit(life, number);
	ask_all(life);
	for (int look = 0; wait && look < LOOKS && !audit_count_files(life->test.support, "*.exoaudit"); look++)
		usleep(1000);
	store_destroy(&life->test.store);
	open_store(life);
	ask_all(life);
	commit(life, BATCHES - 1);
	disarm(); // it is well again, and so is the store
	commit(life, BATCHES);
	if (life->status)
		fail_msg("%s: well again, and the next change is refused", life->what);
	ask_all(life);
	store_destroy(&life->test.store);
}

static void look_after(struct life *life)
{
	struct error error = {.status = STATUS_OK};
	struct audit_check check;
	const char *directory = life->test.support->directory;
	if (audit_try_open(&life->test, &error))
		fail_msg("%s: afterwards: %s", life->what, error.message);
	for (uint64_t number = 0; number <= BATCHES; number++) {
		char key[32];
		snprintf(key, sizeof key, "batch/%" PRIu64, number);
		const bool there = store_load_setting(life->test.store, key) != NULL;
		// A commit whose last sync failed is whole in the -wal file. What follows overwrites it; where nothing
		// could follow until the next start, that one finds it.
		if (life->acknowledged[number] != there && !(there && life->lasting))
			fail_msg("%s: batch %" PRIu64 " was %s, and is %sthere", life->what, number,
				 life->acknowledged[number] ? "acknowledged" : "refused", there ? "" : "not ");
	}
	store_destroy(&life->test.store);
	const struct journal_report *report = audit_check(&check, directory, NULL, NULL);
	if (!report || journal_verdict_of(report)) {
		if (report)
			audit_print(report);
		fail_msg("%s: verdict %d: %s", life->what, report ? (int)journal_verdict_of(report) : -1,
			 check.error.message);
	}
	journal_verifier_destroy(&check.verifier);
}

// A life with the n-th one failing, or (fault FAULT_NONE) none.
static void try_one(struct support *support, enum fault fault, unsigned n, bool on)
{
	char what[64], command[SUPPORT_PATH_BYTES + 96];
	struct life life = {
		.test = {.support = support, .params.audit_segment_entries = SEGMENT}, .what = what, .lasting = on};
	snprintf(what, sizeof what, "%s %u%s", fault == FAULT_CALL ? "call" : "allocation", n, on ? " and on" : "");
	arm(fault, n, on);
	live(&life, !n);
	look_after(&life);
	if (sqlite3_memory_used())
		fail_msg("%s: SQLite still has %lld bytes", what, (long long)sqlite3_memory_used());
	snprintf(command, sizeof command, "rm -rf '%s'/*", support->directory);
	assert_int_equal(system(command), 0);
}

// EXOGPU_EVERY=1 tries every one; otherwise one in `every`, other ones each time. With EXOGPU_FROM below it several can
// share the work.
static void try_all(void **state, enum fault fault, unsigned every, bool on)
{
	const char *wanted = getenv("EXOGPU_EVERY"), *from = getenv("EXOGPU_FROM");
	const unsigned step = wanted ? (unsigned)strtoul(wanted, NULL, 10) : every;
	unsigned tried = 0;
	try_one(*state, fault, 0, false);
	const unsigned all = atomic_load(&counted);
	assert_true(all > 200 && step > 0);
	const unsigned first = from ? (unsigned)strtoul(from, NULL, 10) : (unsigned)clock_steady_ms() % step;
	for (unsigned n = 1 + first; n <= all; n += step, tried++)
		try_one(*state, fault, n, on);
	print_message("%u of %u tried%s\n", tried, all, on ? ", each and all after it" : "");
}

static void a_call_that_fails_once(void **state)
{
	try_all(state, FAULT_CALL, EVERY_CALL, false);
}

static void calls_that_fail_from_one_on(void **state)
{
	try_all(state, FAULT_CALL, EVERY_CALL, true);
}

static void an_allocation_that_fails_once(void **state)
{
	try_all(state, FAULT_ALLOCATION, EVERY_ALLOCATION, false);
}

static void allocations_that_fail_from_one_on(void **state)
{
	try_all(state, FAULT_ALLOCATION, EVERY_ALLOCATION, true);
}

// Once SQLite finds the file damaged nothing is written to it, not even when it looks well again; reading goes on.
static void a_damaged_file_takes_no_change(void **state)
{
	struct life life = {.test = {.support = *state}, .what = "damage"};
	struct error error = {.status = STATUS_OK};
	struct store_stats stats;
	int tokens = 0;
	disarm();
	open_store(&life);
	commit(&life, 0);
	assert_int_equal(life.status, STATUS_OK);
	atomic_store(&damage, true);
	commit(&life, 1);
	assert_int_equal(life.status, STATUS_UNAVAILABLE);
	atomic_store(&damage, false);
	for (uint64_t number = 2; number < 4; number++) {
		commit(&life, number);
		assert_int_equal(life.status, STATUS_UNAVAILABLE);
	}
	assert_int_equal(store_load_tokens(life.test.store, see_token, &tokens, &error), STATUS_OK);
	assert_int_equal(tokens, 1);
	store_read_stats(life.test.store, &stats);
	assert_true(stats.damaged);
	store_destroy(&life.test.store);
	open_store(&life); // what the start finds whole is used
	commit(&life, 4);
	assert_int_equal(life.status, STATUS_OK);
	store_destroy(&life.test.store);
	look_after(&life);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_damaged_file_takes_no_change, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_call_that_fails_once, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(calls_that_fail_from_one_on, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(an_allocation_that_fails_once, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(allocations_that_fail_from_one_on, support_setup, support_teardown),
	};
	log_set_level(LOG_ERROR);
	take_over_memory();
	shim_install();
	shim_hook = fail_call;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
