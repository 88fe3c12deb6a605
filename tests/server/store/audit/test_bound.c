/* Rows of state.db that grant something, against the audit log: whoever writes to state.db alone grants himself
 * nothing, and `exogpu audit verify` names what he did. */
#include "common/base/keyed_hash.h"
#include "tests/server/store/audit/bound_support.h"

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

// ---- settling ----

struct settled {
	size_t gone, left;
};

static void count_settled(void *context, const struct store_settled *row)
{
	struct settled *settled = context;
	settled->gone += row->gone;
	settled->left += !row->gone;
}

// One row, or all that are refused; both NULL and false: nothing.
static enum status settle(struct audit_case *test, const char *subject, bool all, struct settled *settled)
{
	struct error error = {.status = STATUS_OK};
	const struct store_settling settling = {.subjects = &subject,
						.count = subject != NULL,
						.all = all,
						.actor = "owner:7",
						.row = count_settled,
						.context = settled};
	*settled = (struct settled){.gone = 0};
	test->params.settling = &settling;
	enum status status = audit_try_open(test, &error);
	if (status)
		print_message("%s\n", error.message);
	audit_close(test);
	test->params.settling = NULL;
	return status;
}

struct telling {
	const char *subject; // NULL: any
	uint64_t count;
};

static void count_entry(void *context, const struct journal_entry *entry)
{
	struct telling *telling = context;
	if (!strcmp(entry->action, "state.settle") && !strcmp(entry->actor, "owner:7") &&
	    (!telling->subject || !strcmp(telling->subject, entry->target)))
		telling->count += entry->count;
}

// Rows that entries tell as settled, in archives too.
static uint64_t count_entries(const struct support *support, const char *subject)
{
	struct telling telling = {.subject = subject};
	struct journal_verifier *verifier;
	assert_int_equal(journal_verifier_create(&verifier, NULL, NULL), STATUS_OK);
	assert_int_equal(store_audit_offline(&(struct store_offline_params){.directory = support->directory,
									    .verifier = verifier,
									    .entry = count_entry,
									    .context = &telling},
					     &(struct error){.status = STATUS_OK}),
			 STATUS_OK);
	journal_verifier_destroy(&verifier);
	return telling.count;
}

// The way out: what is refused is gone, what held stays, the log holds, and no copy of before starts any more.
static void expect_settled(struct audit_case *test, void **own, const char *subject, const char *refused)
{
	struct settled settled;
	struct loaded loaded;
	struct error error = {.status = STATUS_OK};
	copy_state(test->support, "state.db", "tampered.db");
	assert_int_equal(settle(test, NULL, false, &settled), STATUS_OK);
	assert_int_equal(settled.gone, 0);
	assert_true(settled.left > 0);
	expect_found(test->support, subject); // only looked at
	assert_int_equal(settle(test, "token nosuchrow", false, &settled), STATUS_NOT_FOUND);
	assert_int_equal(settle(test, subject, false, &settled), STATUS_OK);
	assert_true(settled.gone > 0);
	assert_int_equal(count_entries(test->support, subject), 1);
	assert_int_equal(settle(test, NULL, true, &settled), STATUS_OK); // what is left, if anything
	assert_int_equal(settled.left, 0);
	expect_found(test->support, NULL);
	audit_open(test, own);
	load(test, &loaded);
	assert_false(refused[0] && has(&loaded, refused));
	audit_close(test);
	copy_state(test->support, "state.db", "settled.db");
	copy_state(test->support, "tampered.db", "state.db");
	assert_int_equal(audit_try_open(test, &error), STATUS_UNAVAILABLE);
	copy_state(test->support, "settled.db", "state.db");
}

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

// ---- what somebody may do to the log ----

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
	sqlite3 *db;
	sqlite3_stmt *put;
	char path[SUPPORT_PATH_BYTES + 64];
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
	assert_int_equal(sqlite3_open(support_path(test.support, "state.db", path), &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db,
					    "INSERT INTO audit VALUES (?1, 5, 0, 1, 'owner:0', '', '', '', "
					    "'token.create', 'tokenzzzzz', '', '', 'ok', '{}', ?2, ?3, 0)",
					    -1, &put, NULL),
			 SQLITE_OK);
	sqlite3_bind_int64(put, 1, (int64_t)entry.seq);
	sqlite3_bind_blob(put, 2, leaf.bytes, TREE_HASH_BYTES, SQLITE_STATIC);
	sqlite3_bind_text(put, 3, entry.bound, -1, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	sqlite3_close(db);
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

// All segments but the newest are archived, and their entries have left state.db.
static void wait_for_archives(struct audit_case *test)
{
	char rows[] = "SELECT (SELECT count(*) FROM audit_segments WHERE archive = '') + (SELECT count(*) FROM audit "
		      "WHERE seq < (SELECT max(first) FROM audit_segments))";
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
		TEST(every_edit_is_refused_and_found),
		TEST(settling_takes_what_rests_on_it),
		TEST(settling_rows_without_a_name_and_many),
		TEST(settling_an_id_with_a_parenthesis),
		TEST(settling_ends_the_segment_or_does_nothing),
		TEST(the_hash_of_the_table),
		TEST(every_bound_column),
		TEST(every_row_borrowed_and_put_back),
		TEST(what_is_not_touched_is_loaded),
		TEST(rows_that_change_and_go),
		TEST(what_fails_is_not_bound),
		TEST(an_entry_that_binds_cannot_be_changed),
		TEST(a_tail_that_binds_cannot_be_accepted),
		TEST(a_log_that_was_removed_makes_no_row_good),
		TEST(an_old_state_put_back),
		TEST(every_segment_begins_with_all_rows),
		TEST(many_rows_and_small_segments),
		TEST(rows_that_are_gone_stay_gone),
		TEST(rows_of_before_are_taken_once),
	};
	return cmocka_run_group_tests_name("what state.db grants", tests, NULL, NULL);
}
