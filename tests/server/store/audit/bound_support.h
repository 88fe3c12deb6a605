/* Shared by the tests of bound rows: a row of each kind, what a start loads of them, SQL as somebody else writes it,
 * and a log as the version before rows were bound wrote it. */
#pragma once
#include "server/store/audit/journal.h"
#include "server/store/audit/journal_keys.h"
#include "server/store/sqlite/database.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/sql_support.h"

// ---- one row of each kind ----

static const struct store_token token = {.token_id = "tokenaaaaa",
					 .name = "a",
					 .scopes = 2,
					 .secret_hash = {1, 2, 3},
					 .calls_per_s = 1.5,
					 .max_sessions = 3,
					 .memory_limit_bytes = 4,
					 .created_ms = 5,
					 .expires_ms = 6};

static inline void put_rows(struct store_batch *batch)
{
	struct store_token child = token, ended = token;
	child.token_id = "tokenbbbbb";
	child.parent_id = token.token_id;
	ended.token_id = "tokenccccc";
	ended.revoked_ms = 9;
	const struct store_node node = {
		.node_id = "node_1", .name = "one", .record = "{}", .first_seen_ms = 1, .last_seen_ms = 2};
	const struct store_device device = {
		.device_id = "dev_1", .node_id = "node_1", .hardware_key = "pci:1", .record = "{}", .draining = true};
	const struct store_certificate certificate = {.serial = "01ab",
						      .node_id = "node_1",
						      .sha256 = "aa",
						      .key_sha256 = "bb",
						      .not_before_ms = 1,
						      .not_after_ms = 2,
						      .revoked_ms = 3};
	const struct store_ticket ticket = {.ticket_id = "ticketaaaa",
					    .made_by = "owner:0",
					    .secret_hash = {4},
					    .uses = 2,
					    .used = 1,
					    .created_ms = 1,
					    .expires_ms = 2};
	const struct store_lend lend = {.lend_id = "lendaaaaaa",
					.name = "phones",
					.made_by = "owner:0",
					.secret_hash = {5},
					.uses = 2,
					.used = 1,
					.created_ms = 1,
					.expires_ms = 2};
	const struct store_tab tab = {.node_id = "tab_1", .lend_id = "lendaaaaaa", .secret_hash = {6}, .joined_ms = 3};
	const struct store_channel channel = {.channel_id = "channelaaa",
					      .kind = "webhook",
					      .url = "https://example.com/a",
					      .secret = "s",
					      .severities = 7,
					      .quiet_from = -1,
					      .quiet_to = -1,
					      .added_ms = 1,
					      .added_by = "owner:0",
					      .last_result = ""};
	const struct store_model model = {.model_id = "mod_1",
					  .name = "m",
					  .source = "/m",
					  .request = "",
					  .path = "/m",
					  .state = "ready",
					  .state_reason = "",
					  .sha256 = "cc",
					  .architecture = ""};
	const struct store_instance instance = {.instance_id = "ins_1",
						.model_id = "mod_1",
						.model_name = "m",
						.wanted = "{}",
						.last = "{}",
						.workers = "[1]",
						.created_ms = 1};
	store_put_token(batch, &token);
	store_put_token(batch, &child);
	store_put_token(batch, &ended);
	store_put_node(batch, &node);
	store_put_device(batch, &device);
	store_put_certificate(batch, &certificate);
	store_put_ticket(batch, &ticket);
	store_put_lend(batch, &lend);
	store_put_tab(batch, &tab);
	store_put_channel(batch, &channel);
	store_put_model(batch, &model);
	assert_int_equal(store_put_instance(batch, &instance), STATUS_OK);
}

static inline void commit(struct audit_case *test, struct store_batch *batch)
{
	struct error error = {.status = STATUS_OK};
	if (store_commit_wait(test->store, &batch, &error))
		fail_msg("%s", error.message);
}

static inline void fill(struct audit_case *test)
{
	struct store_batch *batch;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	put_rows(batch);
	assert_int_equal(audit_put_one(batch, 0), STATUS_OK);
	commit(test, batch);
}

// ---- what is loaded ----

struct loaded {
	char text[8192]; // " ID" of each
	char workers[64];
};

static inline void add(struct loaded *loaded, const char *id)
{
	size_t length = strlen(loaded->text);
	if (length + strlen(id) + 3 < sizeof loaded->text)
		snprintf(loaded->text + length, sizeof loaded->text - length, " %s ", id);
}
static inline void take_node(void *context, const struct store_node *row)
{
	add(context, row->node_id);
}
static inline void take_device(void *context, const struct store_device *row)
{
	add(context, row->device_id);
}
static inline void take_token(void *context, const struct store_token *row)
{
	add(context, row->token_id);
}
static inline void take_certificate(void *context, const struct store_certificate *row)
{
	add(context, row->serial);
}
static inline void take_ticket(void *context, const struct store_ticket *row)
{
	add(context, row->ticket_id);
}
static inline void take_lend(void *context, const struct store_lend *row)
{
	add(context, row->lend_id);
}
static inline void take_tab(void *context, const struct store_tab *row)
{
	add(context, row->node_id);
}
static inline void take_channel(void *context, const struct store_channel *row)
{
	add(context, row->channel_id);
}
static inline void take_model(void *context, const struct store_model *row)
{
	add(context, row->model_id);
}
static inline void take_instance(void *context, const struct store_instance *row)
{
	struct loaded *loaded = context;
	add(loaded, row->instance_id);
	snprintf(loaded->workers, sizeof loaded->workers, "%s", row->workers);
}

static inline void load(struct audit_case *test, struct loaded *loaded)
{
	struct error error = {.status = STATUS_OK};
	*loaded = (struct loaded){.text = ""};
	assert_int_equal(store_load_nodes(test->store, take_node, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_devices(test->store, take_device, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_tokens(test->store, take_token, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_certificates(test->store, take_certificate, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_tickets(test->store, take_ticket, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_lends(test->store, take_lend, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_tabs(test->store, take_tab, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_channels(test->store, take_channel, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_models(test->store, take_model, loaded, &error), STATUS_OK);
	assert_int_equal(store_load_instances(test->store, take_instance, loaded, &error), STATUS_OK);
}

static inline bool has(const struct loaded *loaded, const char *id)
{
	char word[80];
	snprintf(word, sizeof word, " %s ", id);
	return strstr(loaded->text, word) != NULL;
}

static const char all_ids[] =
	" node_1  dev_1  tokenaaaaa  tokenbbbbb  tokenccccc  01ab  ticketaaaa  lendaaaaaa  tab_1  channelaaa  mod_1  "
	"ins_1 ";

static inline void expect_all(struct audit_case *test)
{
	struct loaded loaded;
	load(test, &loaded);
	assert_string_equal(loaded.text, all_ids);
	assert_string_equal(loaded.workers, "[1]");
}

// The verdict without a server and without a key, and that a finding names the subject; NULL: that all holds.
static inline void expect_verdict(const struct support *support, enum journal_verdict verdict, const char *subject)
{
	struct audit_check check;
	bool named = false;
	const struct journal_report *report = audit_check(&check, support->directory, NULL, NULL);
	if (!report)
		fail_msg("%s", check.error.message);
	for (size_t i = 0; subject && i < report->finding_count && i < JOURNAL_FINDINGS; i++)
		named = named || strstr(report->findings[i].text, subject);
	if (journal_verdict_of(report) != verdict || (subject && !named)) {
		audit_print(report);
		fail_msg("verdict %d, %s", (int)journal_verdict_of(report), subject ? subject : "all should hold");
	}
	journal_verifier_destroy(&check.verifier);
}

static inline void expect_found(const struct support *support, const char *subject)
{
	expect_verdict(support, subject ? JOURNAL_MODIFIED : JOURNAL_HOLDS, subject);
}

// ---- a log of before ----

// What the version before wrote: entries of version 1 under a signed head, and rows that none of them tells of.
static inline void write_log_of_before(const struct support *support)
{
	struct error error = {.status = STATUS_OK};
	struct database_migration migrations[64];
	char path[SUPPORT_PATH_BYTES + 64], folder[SUPPORT_PATH_BYTES + 64], key[NOTE_KEY_TEXT_BYTES];
	char origin[NOTE_NAME_BYTES];
	sqlite3 *db;
	sqlite3_stmt *put;
	struct note_signer signer = {.key.name = ""};
	struct checkpoint head = {.size = 1};
	struct buffer bytes, note;
	struct tree tree = {.size = 0};
	struct tree_hash leaf;
	buffer_init(&bytes, ENTRY_BYTES);
	buffer_init(&note, NOTE_BYTES);
	support_path(support, "audit", folder);
	assert_int_equal(
		database_open(&db, &(struct database_params){.path = support_path(support, "state.db", path)}, &error),
		STATUS_OK);
	assert_true(database_migrations("migrations/state/", migrations, 64) > 11);
	assert_int_equal(database_migrate(db, migrations, 11, false, &error), STATUS_OK);
	assert_int_equal(journal_folder_make(folder, &error), STATUS_OK);
	assert_int_equal(journal_origin_make(origin, &error), STATUS_OK);
	assert_int_equal(journal_key_make(folder, origin, 0, &signer, &error), STATUS_OK);
	note_key_print(&signer.key, key);
	const struct journal_entry entry = {
		.at_us = 1, .count = 1, .actor = "server", .action = "server.start", .outcome = "ok", .detail = "{}"};
	assert_int_equal(entry_encode(&entry, &bytes), STATUS_OK);
	tree_hash_leaf(bytes.data, bytes.length, &leaf);
	tree_append(&tree, &leaf, NULL, NULL);
	tree_root(&tree, &head.root);
	snprintf(head.origin, sizeof head.origin, "%s", origin);
	assert_int_equal(checkpoint_print(&head, &note), STATUS_OK);
	assert_int_equal(note_sign(&note, &signer, 0), STATUS_OK);
	assert_int_equal(sqlite3_prepare_v2(db,
					    "INSERT INTO audit VALUES (0, 1, 0, 1, 'server', '', '', '', "
					    "'server.start', '', '', '', 'ok', '{}', ?1)",
					    -1, &put, NULL),
			 SQLITE_OK);
	sqlite3_bind_blob(put, 1, leaf.bytes, TREE_HASH_BYTES, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	assert_int_equal(sqlite3_prepare_v2(db, "INSERT INTO audit_checkpoints VALUES (1, ?1, 100, 0)", -1, &put, NULL),
			 SQLITE_OK);
	sqlite3_bind_text(put, 1, buffer_text(&note), -1, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	assert_int_equal(
		sqlite3_prepare_v2(db, "INSERT INTO audit_segments VALUES (0, 0, ?1, '', ?2, '', 0)", -1, &put, NULL),
		SQLITE_OK);
	sqlite3_bind_text(put, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(put, 2, clock_wall_ms());
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	database_close(&db);
	note_signer_finish(&signer);
	buffer_finish(&bytes);
	buffer_finish(&note);
	run_sql(support, "INSERT INTO tokens VALUES ('tokenaaaaa', NULL, 'a', 2, zeroblob(32), 0, 0, 1, 2, 3, 0, 0); "
			 "INSERT INTO nodes VALUES ('node_1', 'one', '{}', 1, 2)");
}
