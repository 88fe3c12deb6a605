/* Rows of state.db that the audit log does not bind, settled: they go, with what rests on them. */
#include "tests/server/store/audit/settle_support.h"

// What is settled takes with it what rests on it, and nothing else; of several rows those that were named.
static void settling_takes_what_rests_on_it(void **state)
{
	struct audit_case test = {.failed = 0};
	struct settled settled;
	struct loaded loaded;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	run_sql(test.support,
		"UPDATE tokens SET scopes = 63 WHERE token_id = 'tokenaaaaa'; UPDATE models SET path = '/x'; "
		"UPDATE nodes SET name = 'two'; UPDATE tickets SET used = 0; UPDATE lends SET used = 0; "
		"UPDATE alert_channels SET url = 'https://example.org/b'");
	assert_int_equal(settle(&test, NULL, false, &settled), STATUS_OK);
	assert_int_equal(settled.left, 11); // a look shows all that would go, and nothing does
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM tokens"), 3);
	expect_found(test.support, "token tokenaaaaa");
	assert_int_equal(settle(&test, "token:tokenaaaaa", false, &settled), STATUS_OK);
	assert_int_equal(settled.gone, 2); // and the one that was made with it
	assert_int_equal(settled.left, 5);
	audit_open(&test, state);
	load(&test, &loaded);
	assert_string_equal(loaded.text, " dev_1  tokenccccc  01ab  tab_1  ins_1 ");
	audit_close(&test);
	assert_int_equal(settle(&test, "model mod_1", false, &settled), STATUS_OK);
	assert_int_equal(settle(&test, "node node_1", false, &settled), STATUS_OK);
	assert_int_equal(settled.gone, 3); // its device, its certificate
	expect_found(test.support, "ticket ticketaaaa");
	assert_int_equal(settle(&test, NULL, true, &settled), STATUS_OK);
	expect_found(test.support, NULL);
	audit_open(&test, state);
	load(&test, &loaded);
	assert_string_equal(loaded.text, " tokenccccc ");
	// What was settled can be made anew, under its own name too.
	struct store_batch *batch;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	put_rows(batch);
	commit(&test, batch);
	audit_close(&test);
	expect_found(test.support, NULL);
	audit_open(&test, state);
	load(&test, &loaded);
	assert_int_equal(strlen(loaded.text), strlen(all_ids)); // in another order
	audit_close(&test);
}

// Rows whose ids nobody can write down go as well; and many at once.
static void settling_rows_without_a_name_and_many(void **state)
{
	struct audit_case test = {.failed = 0};
	struct settled settled;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	run_sql(test.support,
		"INSERT INTO tickets SELECT 'a b' || char(10), secret_hash, made_by, uses, used, created_ms, "
		"expires_ms, revoked_ms FROM tickets; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
		"WHERE i < 3000) INSERT INTO certificates SELECT 'made' || i, 'node_1', 'x', 'y', 1, 2, 0 FROM n");
	expect_found(test.support, "certificate made");
	assert_int_equal(settle(&test, NULL, true, &settled), STATUS_OK);
	assert_int_equal(settled.gone, 3001);
	expect_found(test.support, NULL);
	assert_int_equal(count_entries(test.support, NULL), 3001);
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM tickets"), 1);
	audit_open(&test, state);
	expect_all(&test);
	audit_close(&test);
}

// An id may look like the word for none.
static void settling_an_id_with_a_parenthesis(void **state)
{
	struct audit_case test = {.failed = 0};
	struct settled settled;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	for (int i = 0; i < 2; i++) {
		run_sql(test.support, "INSERT INTO tickets SELECT '(x', secret_hash, made_by, uses, used, created_ms, "
				      "expires_ms, revoked_ms FROM tickets");
		expect_found(test.support, "ticket (x");
		assert_int_equal(settle(&test, i ? NULL : "ticket:(x", i, &settled), STATUS_OK);
		assert_int_equal(settled.gone, 1);
		assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM tickets"), 1);
		expect_found(test.support, NULL);
	}
}

// Rows go with the end of the segment, or stay: else a copy from before would start after them.
static void settling_ends_the_segment_or_does_nothing(void **state)
{
	struct audit_case test = {.failed = 0};
	struct settled settled;
	char command[SUPPORT_PATH_BYTES + 128];
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	run_sql(test.support, "UPDATE tickets SET used = 0");
	snprintf(command, sizeof command, "cd '%s/audit' && mkdir key-1 key-2 key-3", test.support->directory);
	assert_int_equal(system(command), 0);
	assert_int_not_equal(settle(&test, NULL, true, &settled), STATUS_OK); // no next key can be written
	assert_int_equal(settled.gone, 0);
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM tickets"), 1);
	expect_found(test.support, "ticket ticketaaaa");
	snprintf(command, sizeof command, "cd '%s/audit' && rmdir key-1 key-2 key-3", test.support->directory);
	system(command); // a start may have taken them away
	expect_settled(&test, state, "ticket ticketaaaa", "ticketaaaa");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
		TEST(settling_takes_what_rests_on_it),
		TEST(settling_rows_without_a_name_and_many),
		TEST(settling_an_id_with_a_parenthesis),
		TEST(settling_ends_the_segment_or_does_nothing),
	};
	return cmocka_run_group_tests_name("rows that are settled", tests, NULL, NULL);
}
