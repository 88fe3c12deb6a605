/* The audit log that binds rows of state.db: what somebody may do to it, its segments, and a log of before. */
#include "tests/server/store/audit/settle_support.h"

// ---- what somebody may do to it ----

static void an_entry_that_binds_cannot_be_changed(void **state)
{
	static const char *const attacks[] = {
		"UPDATE audit SET bound = replace(bound, 'tokenaaaaa', 'tokenzzzzz')",
		"UPDATE audit SET bound = NULL, bound_before = NULL",
		"UPDATE audit SET bound = ''",
		"UPDATE audit SET bound_before = -1 WHERE seq > 5",
		"DELETE FROM audit WHERE bound != ''",
	};
	(void)state;
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
		void *own = NULL;
		struct audit_case test = {.failed = 0};
		struct error error = {.status = STATUS_OK};
		assert_int_equal(support_setup(&own), 0);
		audit_open(&test, &own);
		fill(&test);
		audit_fill(&test, 1, 600, 3);
		audit_close(&test);
		run_sql(own, "DROP TRIGGER audit_stays");
		run_sql(own, attacks[i]);
		print_message("%s\n", attacks[i]);
		struct audit_check check;
		assert_int_equal(journal_verdict_of(audit_check(&check, test.support->directory, NULL, NULL)),
				 JOURNAL_MODIFIED);
		journal_verifier_destroy(&check.verifier);
		assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
		assert_non_null(strstr(error.message, "audit log"));
		assert_int_equal(support_teardown(&own), 0);
	}
}

// An entry that no key has signed makes no row good, whatever an owner says who wants it in the log.
static void a_tail_that_binds_cannot_be_accepted(void **state)
{
	struct audit_case test = {.failed = 0};
	struct error error = {.status = STATUS_OK};
	struct tree_hash leaf;
	struct buffer bytes;
	char hex[2 * TREE_HASH_BYTES + 1], sql[1024];
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	const struct journal_entry entry = {
		.seq = (uint64_t)ask_sql(test.support, "SELECT max(seq) + 1 FROM audit"),
		.at_us = 5,
		.count = 1,
		.actor = "owner:0",
		.action = "token.create",
		.target = "tokenzzzzz",
		.outcome = "ok",
		.detail = "{}",
		.bound = "token tokenzzzzz "
			 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
		.bound_before = 0};
	buffer_init(&bytes, ENTRY_BYTES);
	assert_int_equal(entry_encode(&entry, &bytes), STATUS_OK);
	tree_hash_leaf(bytes.data, bytes.length, &leaf);
	buffer_finish(&bytes);
	for (size_t i = 0; i < TREE_HASH_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", leaf.bytes[i]);
	snprintf(sql, sizeof sql,
		 "INSERT INTO audit VALUES (%llu, 5, 0, 1, 'owner:0', '', '', '', 'token.create', 'tokenzzzzz', '', "
		 "'', 'ok', "
		 "'{}', %s'%s'%s, '%s', 0)",
		 (unsigned long long)entry.seq, support_postgres() ? "decode(" : "x", hex,
		 support_postgres() ? ", 'hex')" : "", entry.bound);
	run_sql(test.support, sql);
	assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
	char range[48];
	snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)entry.seq, (unsigned long long)entry.seq);
	test.params.accept_unsigned = range;
	error = (struct error){.status = STATUS_OK};
	assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "would make rows of state.db good"));
}

// Whoever takes the log out of state.db, to begin anew with rows of his own, has rows that no log knows.
static void a_log_that_was_removed_makes_no_row_good(void **state)
{
	struct audit_case test = {.failed = 0};
	struct loaded loaded;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	run_sql(test.support, "DELETE FROM audit; DELETE FROM audit_nodes; DELETE FROM audit_leaves; "
			      "DELETE FROM audit_segments; DELETE FROM audit_checkpoints");
	if (support_postgres()) { // an empty database never takes the place of one that the directory knows
		struct error error = {.status = STATUS_OK};
		assert_int_equal(audit_try_open(&test, &error), STATUS_CONFLICT);
		return;
	}
	audit_open(&test, state);
	load(&test, &loaded);
	assert_string_equal(loaded.text, "");
	audit_close(&test);
}

// Alone, an old copy is as good as it was; whoever holds a newer head sees it, and once the key has changed it is dead.
static void an_old_state_put_back(void **state)
{
	struct audit_case test = {.failed = 0};
	struct store_batch *batch;
	struct error error = {.status = STATUS_OK};
	struct audit_check check;
	struct store_audit_head head;
	struct store_token revoked = token;
	char note[2048];
	revoked.revoked_ms = 77;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	copy_state(test.support, "state.db", "old.db");
	audit_open(&test, state);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_put_token(batch, &revoked);
	commit(&test, batch);
	store_read_audit_head(test.store, &head);
	snprintf(note, sizeof note, "%s", head.note);
	audit_close(&test);
	copy_state(test.support, "state.db", "new.db");
	copy_state(test.support, "old.db", "state.db");
	expect_found(test.support, NULL);
	const struct journal_report *report = audit_check(&check, test.support->directory, note, NULL);
	assert_int_equal(journal_verdict_of(report), JOURNAL_TRUNCATED);
	journal_verifier_destroy(&check.verifier);
	copy_state(test.support, "new.db", "state.db");
	audit_open(&test, state);
	const int wanted = test.answered + 1;
	assert_int_equal(store_rotate_audit(test.store, audit_answered, &test), STATUS_OK);
	support_run_until(test.support->loop, &test.answered, wanted);
	assert_int_equal(test.status, STATUS_OK);
	audit_close(&test);
	copy_state(test.support, "old.db", "state.db");
	assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "key"));
}

// ---- segments ----

// All segments but the newest are archived, their entries have left state.db, and the newest is not about to end.
static void wait_for_archives(struct audit_case *test)
{
	char rows[512];
	snprintf(rows, sizeof rows,
		 "SELECT (SELECT count(*) FROM audit_segments WHERE archive = '') + (SELECT count(*) FROM audit WHERE "
		 "seq "
		 "< (SELECT max(first) FROM audit_segments)) + (SELECT CASE WHEN count(*) >= %lld THEN 1 ELSE 0 END "
		 "FROM "
		 "audit WHERE seq >= (SELECT max(first) FROM audit_segments) AND action NOT LIKE 'state.%%')",
		 (long long)test->params.audit_segment_entries);
	for (int i = 0; i < 3000 && ask_sql(test->support, rows) > 1; i++)
		usleep(10000);
	assert_int_equal(ask_sql(test->support, rows), 1);
}

// Rows that nobody has changed for many segments rest on the newest one alone.
static void every_segment_begins_with_all_rows(void **state)
{
	struct audit_case test = {.params.audit_segment_entries = 100};
	audit_open(&test, state);
	fill(&test);
	audit_fill_slowly(&test, 1, 1000, 50);
	wait_for_archives(&test);
	audit_close(&test);
	assert_true(ask_sql(test.support, "SELECT count(*) FROM audit_segments") > 4);
	expect_found(test.support, NULL);
	char command[SUPPORT_PATH_BYTES + 128];
	audit_open(&test, state);
	expect_all(&test);
	audit_close(&test);
	run_sql(test.support, "UPDATE tokens SET revoked_ms = 0");
	expect_found(test.support, "token tokenccccc");
	run_sql(test.support, "UPDATE tokens SET revoked_ms = 9 WHERE token_id = 'tokenccccc'");
	expect_found(test.support, NULL);
	snprintf(command, sizeof command, "rm \"$(ls '%.180s'/audit/*.exoaudit | head -1)\"", test.support->directory);
	assert_int_equal(system(command), 0);
	expect_verdict(test.support, JOURNAL_ARCHIVE_MISSING, NULL); // and nothing is said to be changed
	snprintf(command, sizeof command, "rm '%.180s'/audit/*.exoaudit", test.support->directory);
	assert_int_equal(system(command), 0);
	audit_open(&test, state); // archives that are lost take no row with them
	expect_all(&test);
	audit_close(&test);
}

// As many tokens as there may be: what a segment repeats does not end it, and a start is quick.
static void many_rows_and_small_segments(void **state)
{
	enum { MANY = 9000, EACH = 500 };
	struct audit_case test = {.params = {.audit_segment_entries = 64, .audit_segment_bytes = 65536}};
	struct store_batch *batch;
	struct loaded loaded;
	audit_open(&test, state);
	fill(&test);
	for (int i = 0; i < MANY; i += EACH) {
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		for (int j = i; j < i + EACH; j++) {
			char id[16];
			struct store_token one = token;
			snprintf(id, sizeof id, "t%09d", j);
			one.token_id = id;
			assert_int_equal(store_put_token(batch, &one), STATUS_OK);
		}
		commit(&test, batch);
	}
	audit_fill_slowly(&test, 1, 200, 10);
	wait_for_archives(&test);
	audit_close(&test);
	const int64_t segments = ask_sql(test.support, "SELECT count(*) FROM audit_segments");
	assert_in_range(segments, 2, 20);
	expect_found(test.support, NULL);
	const int64_t begun = clock_steady_ms();
	audit_open(&test, state);
	load(&test, &loaded);
	print_message("%lld ms for %d tokens in %lld segments\n", (long long)(clock_steady_ms() - begun), MANY,
		      (long long)segments);
	assert_true(has(&loaded, "tokenbbbbb"));
	audit_close(&test);
	run_sql(test.support, "UPDATE tokens SET scopes = 63 WHERE token_id = 't000008999'");
	expect_found(test.support, "token t000008999");
}

// Rows that were removed are not taken for good again by what older entries say, however many there are.
static void rows_that_are_gone_stay_gone(void **state)
{
	enum { MANY = 300, GONE = 50 };
	struct audit_case test = {0};
	struct store_batch *batch;
	struct loaded loaded;
	char id[16];
	audit_open(&test, state);
	fill(&test);
	for (int i = 0; i < MANY + GONE; i++) {
		struct store_token one = token;
		one.token_id = id;
		snprintf(id, sizeof id, "t%09d", i < MANY ? i : i - MANY);
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		assert_int_equal(i < MANY ? store_put_token(batch, &one) : store_remove_token(batch, id), STATUS_OK);
		commit(&test, batch);
	}
	audit_close(&test);
	for (int again = 0; again < 2; again++) {
		audit_open(&test, state);
		load(&test, &loaded);
		assert_true(has(&loaded, "t000000299"));
		assert_false(has(&loaded, "t000000000"));
		audit_close(&test);
		assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM audit WHERE action = 'state.refused'"), 0);
	}
	expect_found(test.support, NULL);
	run_sql(test.support,
		"INSERT INTO tokens SELECT 't000000000', parent_id, name, scopes, secret_hash, calls_per_s, "
		"max_sessions, created_ms, expires_ms, last_used_ms, revoked_ms, memory_limit_bytes FROM tokens "
		"WHERE token_id = 't000000299'");
	expect_found(test.support, "token t000000000");
	audit_open(&test, state);
	load(&test, &loaded);
	assert_false(has(&loaded, "t000000000"));
	audit_close(&test);
}

// ---- a log of before ----

static void rows_of_before_are_taken_once(void **state)
{
	SUPPORT_SQLITE_ONLY(); // PostgreSQL has no tables of before
	struct audit_case test = {.failed = 0};
	struct loaded loaded;
	struct settled settled;
	struct error error = {.status = STATUS_OK};
	test.support = *state;
	write_log_of_before(test.support);
	copy_state(test.support, "state.db", "old.db");
	expect_found(test.support, NULL); // nothing is bound yet: the version before, read by this one
	assert_int_equal(settle(&test, NULL, false, &settled), STATUS_CONFLICT); // and a look binds nothing
	assert_int_equal(settle(&test, NULL, true, &settled), STATUS_CONFLICT);
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM audit WHERE action = 'state.taken'"), 0);
	copy_state(test.support, "state.db", "looked.db");
	audit_open(&test, state);
	load(&test, &loaded);
	assert_string_equal(loaded.text, " node_1  tokenaaaaa ");
	audit_close(&test);
	expect_found(test.support, NULL);
	assert_int_equal(ask_sql(test.support, "SELECT count FROM audit WHERE action = 'state.taken'"), 2);
	audit_open(&test, state);
	audit_close(&test);
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM audit WHERE action = 'state.taken'"), 1);
	run_sql(test.support, "UPDATE tokens SET scopes = 63");
	expect_found(test.support, "token tokenaaaaa");
	// Nobody has them taken again: neither with a copy of before, nor by making the database look like one.
	copy_state(test.support, "old.db", "state.db");
	run_sql(test.support, "UPDATE tokens SET scopes = 63");
	assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
	copy_state(test.support, "looked.db", "state.db");
	assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
		TEST(an_entry_that_binds_cannot_be_changed),
		TEST(a_tail_that_binds_cannot_be_accepted),
		TEST(a_log_that_was_removed_makes_no_row_good),
		TEST(an_old_state_put_back),
		TEST(every_segment_begins_with_all_rows),
		TEST(many_rows_and_small_segments),
		TEST(rows_that_are_gone_stay_gone),
		TEST(rows_of_before_are_taken_once),
	};
	return cmocka_run_group_tests_name("the log that binds rows", tests, NULL, NULL);
}
