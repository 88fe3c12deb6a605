/* Rows of state.db that grant something, against the audit log: whoever writes to state.db alone grants himself
 * nothing, and `exogpu audit verify` names what he did. */
#include "common/base/keyed_hash.h"
#include "tests/server/store/audit/settle_support.h"

// ---- what somebody may do with SQL ----

static const struct {
	const char *what, *sql, *subject, *refused; // refused: the id that is not loaded; "": none, but its workers
} edits[] = {
	{"an admin token is made",
	 "INSERT INTO tokens (token_id, name, scopes, secret_hash, calls_per_s, max_sessions, "
	 "created_ms, expires_ms, last_used_ms, revoked_ms, memory_limit_bytes) VALUES ('tokenzzzzz', 'z', 63, "
	 "zeroblob(32), 0, 0, 1, 0, 0, 0, 0)",
	 "token tokenzzzzz", "tokenzzzzz"},
	{"a token is copied under another id, with the entry of the first",
	 "INSERT INTO tokens SELECT 'tokenzzzzz', parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, "
	 "created_ms, expires_ms, last_used_ms, revoked_ms, memory_limit_bytes FROM tokens WHERE token_id = "
	 "'tokenaaaaa'",
	 "token tokenzzzzz", "tokenzzzzz"},
	{"scopes", "UPDATE tokens SET scopes = 63 WHERE token_id = 'tokenaaaaa'", "token tokenaaaaa", "tokenaaaaa"},
	{"a secret", "UPDATE tokens SET secret_hash = zeroblob(32) WHERE token_id = 'tokenaaaaa'", "token tokenaaaaa",
	 "tokenaaaaa"},
	{"a limit of calls", "UPDATE tokens SET calls_per_s = 0 WHERE token_id = 'tokenaaaaa'", "token tokenaaaaa",
	 "tokenaaaaa"},
	{"a limit of sessions", "UPDATE tokens SET max_sessions = 0 WHERE token_id = 'tokenaaaaa'", "token tokenaaaaa",
	 "tokenaaaaa"},
	{"a limit of memory", "UPDATE tokens SET memory_limit_bytes = 0 WHERE token_id = 'tokenaaaaa'",
	 "token tokenaaaaa", "tokenaaaaa"},
	{"an end", "UPDATE tokens SET expires_ms = 0 WHERE token_id = 'tokenaaaaa'", "token tokenaaaaa", "tokenaaaaa"},
	{"a parent", "UPDATE tokens SET parent_id = NULL WHERE token_id = 'tokenbbbbb'", "token tokenbbbbb",
	 "tokenbbbbb"},
	{"a revocation undone", "UPDATE tokens SET revoked_ms = 0 WHERE token_id = 'tokenccccc'", "token tokenccccc",
	 "tokenccccc"},
	{"an id", "UPDATE tokens SET token_id = 'tokenddddd' WHERE token_id = 'tokenccccc'", "token tokenddddd",
	 "tokenddddd"},
	{"a token deleted", "DELETE FROM tokens WHERE token_id = 'tokenccccc'", "token tokenccccc", "tokenccccc"},
	{"a certificate made", "INSERT INTO certificates VALUES ('02cd', 'node_1', 'x', 'y', 1, 2, 0)",
	 "certificate 02cd", "02cd"},
	{"a certificate's revocation undone", "UPDATE certificates SET revoked_ms = 0", "certificate 01ab", "01ab"},
	{"a certificate's node", "UPDATE certificates SET node_id = 'node_2'", "certificate 01ab", "01ab"},
	{"a certificate deleted", "DELETE FROM certificates", "certificate 01ab", "01ab"},
	{"a ticket made", "INSERT INTO tickets VALUES ('ticketzzzz', zeroblob(32), 'owner:0', 9, 0, 1, 9, 0)",
	 "ticket ticketzzzz", "ticketzzzz"},
	{"uses of a ticket", "UPDATE tickets SET used = 0", "ticket ticketaaaa", "ticketaaaa"},
	{"an address for tabs prolonged", "UPDATE lends SET expires_ms = 9e12", "lend lendaaaaaa", "lendaaaaaa"},
	{"the secret of a tab", "UPDATE tabs SET secret_hash = zeroblob(32)", "tab tab_1", "tab_1"},
	{"a tab made", "INSERT INTO tabs VALUES ('node_9', 'lendaaaaaa', zeroblob(32), 1)", "tab node_9", "node_9"},
	{"a channel of alerts made",
	 "INSERT INTO alert_channels SELECT 'channelbbb', kind, 'https://example.org/b', secret, severities, "
	 "quiet_from, "
	 "quiet_to, added_ms, added_by, last_ms, last_result FROM alert_channels",
	 "channel channelbbb", "channelbbb"},
	{"where alerts are sent to", "UPDATE alert_channels SET url = 'https://example.org/b'", "channel channelaaa",
	 "channelaaa"},
	{"a channel of alerts deleted", "DELETE FROM alert_channels", "channel channelaaa", "channelaaa"},
	{"a ticket deleted", "DELETE FROM tickets", "ticket ticketaaaa", "ticketaaaa"},
	{"a node made", "INSERT INTO nodes VALUES ('node_2', 'two', '{}', 1, 2)", "node node_2", "node_2"},
	{"a node's name", "UPDATE nodes SET name = 'two'", "node node_1", "node_1"},
	{"a node deleted", "DELETE FROM nodes", "node node_1", "node_1"},
	{"a device made",
	 "INSERT INTO devices (device_id, node_id, hardware_key, record, draining, first_seen_ms, last_seen_ms) VALUES "
	 "('dev_2', 'node_1', 'k', '{}', 0, 1, 2)",
	 "device dev_2", "dev_2"},
	{"a device returned", "UPDATE devices SET draining = 0", "device dev_1", "dev_1"},
	{"a device deleted", "DELETE FROM devices", "device dev_1", "dev_1"},
	{"a model made",
	 "INSERT INTO models SELECT 'mod_2', 'n', source, request, path, state, state_reason, added_ms, "
	 "file_bytes, modified_ns, sha256, architecture FROM models",
	 "model mod_2", "mod_2"},
	{"a model's file", "UPDATE models SET path = '/etc/shadow'", "model mod_1", "mod_1"},
	{"a model's hash", "UPDATE models SET sha256 = 'dd'", "model mod_1", "mod_1"},
	{"a model deleted", "DELETE FROM models", "model mod_1", "mod_1"},
	{"an instance made",
	 "INSERT INTO instances SELECT 'ins_2', model_id, model_name, wanted, last, epoch, recoveries, moves, "
	 "created_ms, workers FROM instances",
	 "instance ins_2", "ins_2"},
	{"what an instance is for", "UPDATE instances SET wanted = '{\"model_id\":\"x\"}'", "instance ins_1", "ins_1"},
	{"an instance deleted", "DELETE FROM instances", "instance ins_1", "ins_1"},
	{"the keys of an instance's workers", "UPDATE instances SET workers = '[2]'", "workers ins_1", ""},
};

// INSERT, UPDATE and DELETE on every table that grants something; what was not touched is loaded.
static void every_edit_is_refused_and_found(void **state)
{
	static const char *const ids[] = {"node_1",     "dev_1", "tokenaaaaa", "tokenbbbbb", "tokenccccc", "ticketaaaa",
					  "lendaaaaaa", "tab_1", "channelaaa", "mod_1",      "ins_1",      "01ab"};
	(void)state;
	for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
		void *own = NULL;
		struct loaded loaded;
		struct audit_case test = {.failed = 0};
		assert_int_equal(support_setup(&own), 0);
		audit_open(&test, &own);
		fill(&test);
		audit_close(&test);
		expect_found(own, NULL);
		print_message("%s\n", edits[i].what);
		run_sql(own, edits[i].sql);
		expect_found(own, edits[i].subject);
		audit_open(&test, &own); // the server can go on
		load(&test, &loaded);
		assert_false(edits[i].refused[0] && has(&loaded, edits[i].refused));
		for (size_t j = 0; j < sizeof ids / sizeof *ids; j++)
			if (strcmp(ids[j], edits[i].refused) != 0 && !strstr(edits[i].sql, ids[j]))
				assert_true(has(&loaded, ids[j]));
		if (!strcmp(edits[i].subject, "workers ins_1"))
			assert_string_equal(loaded.workers, "");
		audit_close(&test);
		assert_int_equal(ask_sql(own, "SELECT count(*) FROM audit WHERE action = 'state.refused'"), 1);
		expect_found(own, edits[i].subject); // and stays found
		expect_settled(&test, &own, edits[i].subject, edits[i].refused);
		assert_int_equal(support_teardown(&own), 0);
	}
}

// The numbers that the paper on SipHash gives: of no bytes, and of 15.
static void the_hash_of_the_table(void **state)
{
	uint8_t key[SIPHASH_KEY_BYTES], bytes[15];
	(void)state;
	for (uint8_t i = 0; i < sizeof key; i++)
		key[i] = i;
	memcpy(bytes, key, sizeof bytes);
	assert_true(siphash(key, bytes, 0) == UINT64_C(0x726fdb47dd0e0e31));
	assert_true(siphash(key, bytes, sizeof bytes) == UINT64_C(0xa129ca6149be45e5));
	assert_true(keyed_hash(bytes, sizeof bytes) == keyed_hash(key, sizeof bytes));
	assert_true(keyed_hash(bytes, sizeof bytes) != keyed_hash(bytes, sizeof bytes - 1));
}

// ---- every column, row and table ----

// As another program writes: without the references of the schema. What breaks its checks is no start at all.
static void attack(const struct support *support, const char *sql)
{
	char all[2048];
	snprintf(all, sizeof all, "PRAGMA foreign_keys = OFF; %s", sql);
	run_sql(support, all);
}

// The row of each kind that is attacked, and the word that a start must not load then; workers have none.
static const struct {
	const char *id;
} attacked[BOUND_KINDS] = {
	[BOUND_NODE] = {"node_1"},        [BOUND_DEVICE] = {"dev_1"},      [BOUND_TOKEN] = {"tokenccccc"},
	[BOUND_CERTIFICATE] = {"01ab"},   [BOUND_TICKET] = {"ticketaaaa"}, [BOUND_LEND] = {"lendaaaaaa"},
	[BOUND_TAB] = {"tab_1"},          [BOUND_MODEL] = {"mod_1"},       [BOUND_INSTANCE] = {"ins_1"},
	[BOUND_CHANNEL] = {"channelaaa"}, [BOUND_WORKERS] = {"ins_1"},
};

static void expect_refused(struct audit_case *test, void **state, enum bound_kind kind, const char *id)
{
	struct loaded loaded;
	char subject[BOUND_SUBJECT_BYTES];
	snprintf(subject, sizeof subject, "%s %s", bound_tables[kind].kind, id);
	expect_found(test->support, subject);
	audit_open(test, state);
	load(test, &loaded);
	if (kind == BOUND_WORKERS)
		assert_string_equal(loaded.workers, "");
	else
		assert_false(has(&loaded, id));
	audit_close(test);
}

static void column_of(enum bound_kind kind, int index, char column[64])
{
	const char *at = bound_tables[kind].columns;
	for (; index > 0; index--)
		at = strchr(at, ',') + 2;
	snprintf(column, 64, "%.*s", (int)strcspn(at, ","), at);
}

// Whatever bound.h lists, so that a column or a table that comes to it is tried as well.
static void every_bound_column(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct audit_case test = {.failed = 0};
	int tried = 0;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	copy_state(test.support, "state.db", "good.db");
	for (enum bound_kind kind = 0; kind < BOUND_KINDS; kind++)
		for (int i = 0; i < bound_tables[kind].count; i++, tried++) {
			char column[64], id[64], sql[1024];
			column_of(kind, 0, id);
			column_of(kind, i, column);
			snprintf(sql, sizeof sql,
				 "UPDATE %s SET %s = CASE %s WHEN 'ready' THEN 'failed' WHEN 'webhook' THEN 'ntfy' "
				 "ELSE CASE typeof(%s) WHEN "
				 "'integer' THEN 1 - %s WHEN 'real' THEN %s + "
				 "1.5 WHEN "
				 "'blob' THEN randomblob(32) ELSE coalesce(%s, 'tokenaaaa') || 'x' END END WHERE %s = "
				 "'%s'",
				 bound_tables[kind].name, column, column, column, column, column, column, id,
				 attacked[kind].id);
			print_message("%s.%s\n", bound_tables[kind].name, column);
			attack(test.support, sql);
			expect_refused(&test, state, kind, attacked[kind].id);
			copy_state(test.support, "good.db", "state.db");
		}
	assert_true(tried > 45);
	audit_open(&test, state);
	expect_all(&test);
	audit_close(&test);
}

// Of each table: a row under another id, whose entry is borrowed; and the row as it was once, whose entry is an older
// one.
static void every_row_borrowed_and_put_back(void **state)
{
	SUPPORT_SQLITE_ONLY(); // by a second file of SQLite\'s
	struct audit_case test = {.failed = 0};
	struct store_batch *batch;
	audit_open(&test, state);
	fill(&test);
	audit_close(&test);
	copy_state(test.support, "state.db", "old.db");
	struct store_token ended = token;
	ended.token_id = "tokenccccc";
	ended.revoked_ms = 10;
	audit_open(&test, state);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_put_token(batch, &ended);
	store_put_node(batch, &(struct store_node){.node_id = "node_1", .name = "renamed", .record = "{}"});
	store_put_device(batch,
			 &(struct store_device){
				 .device_id = "dev_1", .node_id = "node_1", .hardware_key = "pci:1", .record = "{}"});
	store_put_certificate(batch, &(struct store_certificate){.serial = "01ab",
								 .node_id = "node_1",
								 .sha256 = "aa",
								 .key_sha256 = "bb",
								 .not_before_ms = 1,
								 .not_after_ms = 2,
								 .revoked_ms = 4});
	store_put_ticket(batch, &(struct store_ticket){.ticket_id = "ticketaaaa",
						       .made_by = "owner:0",
						       .secret_hash = {4},
						       .uses = 2,
						       .used = 2,
						       .created_ms = 1,
						       .expires_ms = 2});
	store_put_lend(batch, &(struct store_lend){.lend_id = "lendaaaaaa",
						   .name = "phones",
						   .made_by = "owner:0",
						   .secret_hash = {5},
						   .uses = 2,
						   .used = 2,
						   .created_ms = 1,
						   .expires_ms = 2});
	store_put_tab(batch, &(struct store_tab){.node_id = "tab_1", .lend_id = "lendaaaaaa", .secret_hash = {7}});
	store_remove_channel(batch, "channelaaa");
	store_put_channel(batch, &(struct store_channel){.channel_id = "channelaaa",
							 .kind = "webhook",
							 .url = "https://example.com/c",
							 .secret = "s",
							 .severities = 7,
							 .added_by = "owner:0",
							 .last_result = ""});
	store_put_model(batch, &(struct store_model){.model_id = "mod_1",
						     .name = "m",
						     .source = "/m",
						     .request = "",
						     .path = "/n",
						     .state = "ready",
						     .state_reason = "",
						     .sha256 = "cc",
						     .architecture = ""});
	store_change_instance(batch, &(struct store_instance){.instance_id = "ins_1",
							      .model_id = "mod_1",
							      .model_name = "m",
							      .wanted = "{\"a\":1}",
							      .last = "{}",
							      .workers = "[7]",
							      .created_ms = 1});
	commit(&test, batch);
	audit_close(&test);
	expect_found(test.support, NULL);
	copy_state(test.support, "state.db", "good.db");
	for (enum bound_kind kind = 0; kind < BOUND_WORKERS; kind++) {
		char id[64], sql[512], old[SUPPORT_PATH_BYTES + 64];
		const char *table = bound_tables[kind].name;
		column_of(kind, 0, id);
		print_message("%s\n", table);
		snprintf(sql, sizeof sql,
			 "CREATE TEMP TABLE copy AS SELECT * FROM %s WHERE %s = '%s'; UPDATE copy SET %s = "
			 "'borrowed1'%s; INSERT "
			 "INTO %s SELECT * FROM copy",
			 table, id, attacked[kind].id, id,
			 kind == BOUND_DEVICE  ? ", hardware_key = 'pci:2'"
			 : kind == BOUND_MODEL ? ", name = 'n'"
					       : "",
			 table);
		attack(test.support, sql);
		expect_refused(&test, state, kind, "borrowed1");
		copy_state(test.support, "good.db", "state.db");
		snprintf(sql, sizeof sql,
			 "ATTACH '%.180s' AS old; REPLACE INTO main.%s SELECT * FROM old.%s WHERE %s = '%s'",
			 support_path(test.support, "old.db", old), table, table, id, attacked[kind].id);
		attack(test.support, sql);
		expect_refused(&test, state, kind, attacked[kind].id);
		copy_state(test.support, "good.db", "state.db");
	}
	expect_found(test.support, NULL);
}

static void what_is_not_touched_is_loaded(void **state)
{
	struct audit_case test = {.failed = 0};
	audit_open(&test, state);
	fill(&test);
	expect_all(&test);
	for (int i = 0; i < 3; i++) {
		audit_close(&test);
		run_sql(test.support, "UPDATE tokens SET last_used_ms = last_used_ms + 1");
		audit_open(&test, state);
		expect_all(&test);
		audit_fill(&test, 1, 300, 7);
	}
	audit_close(&test);
	expect_found(test.support, NULL);
}

// An instance changes without its workers; a node goes with its devices; one that is not there is not changed.
static void rows_that_change_and_go(void **state)
{
	struct audit_case test = {.failed = 0};
	struct store_batch *batch;
	struct loaded loaded;
	struct store_instance change = {.instance_id = "ins_1",
					.model_id = "mod_1",
					.model_name = "m",
					.wanted = "{\"a\":1}",
					.last = "{}",
					.created_ms = 1};
	audit_open(&test, state);
	fill(&test);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_change_instance(batch, &change);
	change.instance_id = "ins_9";
	store_change_instance(batch, &change);
	commit(&test, batch);
	audit_close(&test);
	expect_found(test.support, NULL);
	audit_open(&test, state);
	expect_all(&test);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_remove_node(batch, "node_1");
	store_remove_instance(batch, "ins_1");
	store_remove_ticket(batch, "ticketaaaa");
	store_remove_certificate(batch, "01ab");
	store_remove_lend(batch, "lendaaaaaa");
	store_remove_tab(batch, "tab_1");
	store_remove_channel(batch, "channelaaa");
	store_remove_model(batch, "mod_1");
	store_remove_token(batch, "tokenbbbbb");
	commit(&test, batch);
	audit_close(&test);
	expect_found(test.support, NULL);
	// None of them can be put back as it was.
	run_sql(test.support, "INSERT INTO nodes VALUES ('node_1', 'one', '{}', 1, 2)");
	expect_found(test.support, "node node_1");
	audit_open(&test, state);
	load(&test, &loaded);
	assert_string_equal(loaded.text, " tokenaaaaa  tokenccccc ");
	audit_close(&test);
}

// A batch that is refused binds nothing, and the next one about the same row does.
static void what_fails_is_not_bound(void **state)
{
	struct audit_case test = {.failed = 0};
	struct store_batch *batch;
	struct error error = {.status = STATUS_OK};
	struct store_token orphan = token;
	orphan.token_id = "tokenooooo";
	orphan.parent_id = "tokennnnnn"; // not there: the batch is refused
	audit_open(&test, state);
	fill(&test);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_put_token(batch, &orphan);
	assert_int_equal(store_commit_wait(test.store, &batch, &error), STATUS_CONFLICT);
	audit_close(&test);
	expect_found(test.support, NULL);
	audit_open(&test, state);
	orphan.parent_id = NULL;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_put_token(batch, &orphan);
	commit(&test, batch);
	audit_close(&test);
	expect_found(test.support, NULL);
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM audit WHERE action = 'state.bound'"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
		TEST(every_edit_is_refused_and_found),
		TEST(the_hash_of_the_table),
		TEST(every_bound_column),
		TEST(every_row_borrowed_and_put_back),
		TEST(what_is_not_touched_is_loaded),
		TEST(rows_that_change_and_go),
		TEST(what_fails_is_not_bound),
	};
	return cmocka_run_group_tests_name("what state.db grants", tests, NULL, NULL);
}
