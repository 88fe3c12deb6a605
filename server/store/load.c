/* Reads state.db at the start, on the loop thread with its own read-only connection. */
#include "server/store/load.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/database.h"
#include "server/store/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *store_load_setting(struct store *store, const char *key)
{
	sqlite3_stmt *statement = NULL;
	free(store->setting);
	store->setting = NULL;
	if (sqlite3_prepare_v2(store->loading, "SELECT value FROM settings WHERE key = ?1", -1, &statement, NULL) ==
		    SQLITE_OK &&
	    sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC) == SQLITE_OK &&
	    sqlite3_step(statement) == SQLITE_ROW)
		store->setting = strdup(load_text(statement, 0));
	sqlite3_finalize(statement);
	return store->setting;
}

enum { REFUSED_SAID = 16 }; // rows that are named in the log, of those that are refused

struct refused {
	size_t count, missing;
};

static void say_refused(void *context, enum bound_fault fault, const char *subject, uint64_t seq)
{
	struct refused *refused = context;
	refused->count += fault != BOUND_MISSING;
	refused->missing += fault == BOUND_MISSING;
	if (refused->count + refused->missing > REFUSED_SAID)
		return;
	if (fault == BOUND_UNTOLD)
		log_error("store", "%s %s: it is refused", subject, bound_fault_text(fault));
	else
		log_error("store", "%s %s (entry %llu)%s", subject, bound_fault_text(fault), (unsigned long long)seq,
			  fault == BOUND_CHANGED ? ": it is refused" : "");
}

enum status store_say_refused(struct store *store, struct error *error)
{
	struct refused refused = {.count = 0};
	char detail[96];
	struct store_batch *batch = NULL;
	enum status status = bound_check(store->journal.bound, store->loading, say_refused, &refused, error);
	if (status || !(refused.count + refused.missing))
		return status;
	log_error("store",
		  "somebody else has changed state.db: %zu rows are not as the audit log has them and are refused, %zu "
		  "are missing; see exogpu audit verify. Find out who did that; then put state.db and audit/ back from "
		  "one "
		  "backup, or stop the server and take these rows out with exogpu state settle",
		  refused.count, refused.missing);
	snprintf(detail, sizeof detail, "{\"refused\":%zu,\"missing\":%zu}", refused.count, refused.missing);
	const struct journal_entry entry = {
		.count = 1, .actor = "server", .action = "state.refused", .outcome = "forbidden", .detail = detail};
	status = store_batch_create(&batch);
	if (!status)
		status = store_put_audit(batch, &entry);
	if (!status)
		status = store_commit(store, &batch, NULL, NULL);
	store_batch_destroy(&batch);
	return status ? error_set(error, status, "no memory for an entry of the audit log") : STATUS_OK;
}

enum status load_rows(struct store *store, const struct load *load, struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int code = sqlite3_prepare_v2(store->loading, load->sql, -1, &statement, NULL);
	if (code == SQLITE_OK && sqlite3_bind_parameter_count(statement))
		code = sqlite3_bind_int64(statement, 1, load->limit);
	if (code == SQLITE_OK)
		while ((code = sqlite3_step(statement)) == SQLITE_ROW)
			if (!load->binds || bound_holds(store->journal.bound, statement, load->kind))
				load->row(statement, load);
	enum status status = STATUS_OK;
	if (code != SQLITE_DONE)
		status = database_fault(store->loading, code, error);
	sqlite3_finalize(statement);
	return status;
}

static void node_row(sqlite3_stmt *row, const struct load *load)
{
	const struct store_node node = {
		.node_id = load_text(row, 0),
		.name = load_text(row, 1),
		.record = load_text(row, 2),
		.first_seen_ms = sqlite3_column_int64(row, 3),
		.last_seen_ms = sqlite3_column_int64(row, 4),
	};
	load->call.node(load->context, &node);
}

enum status store_load_nodes(struct store *store, void (*row)(void *context, const struct store_node *node),
			     void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT node_id, name, record, first_seen_ms, last_seen_ms FROM nodes ORDER BY first_seen_ms, "
		       "node_id",
		.binds = true,
		.kind = BOUND_NODE,
		.row = node_row,
		.call.node = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void device_row(sqlite3_stmt *row, const struct load *load)
{
	const struct store_device device = {
		.device_id = load_text(row, 0),
		.node_id = load_text(row, 1),
		.hardware_key = load_text(row, 2),
		.draining = sqlite3_column_int(row, 3) != 0,
		.record = load_text(row, 4),
		.first_seen_ms = sqlite3_column_int64(row, 5),
		.last_seen_ms = sqlite3_column_int64(row, 6),
	};
	load->call.device(load->context, &device);
}

enum status store_load_devices(struct store *store, void (*row)(void *context, const struct store_device *device),
			       void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT device_id, node_id, hardware_key, draining, record, first_seen_ms, last_seen_ms "
		       "FROM devices ORDER BY first_seen_ms, device_id",
		.binds = true,
		.kind = BOUND_DEVICE,
		.row = device_row,
		.call.device = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

// False: a CHECK of the table was got around.
static bool read_hash(sqlite3_stmt *row, int column, uint8_t hash[STORE_HASH_BYTES])
{
	const void *bytes = sqlite3_column_blob(row, column);
	if (!bytes || sqlite3_column_bytes(row, column) != STORE_HASH_BYTES)
		return false;
	memcpy(hash, bytes, STORE_HASH_BYTES);
	return true;
}

static void token_row(sqlite3_stmt *row, const struct load *load)
{
	struct store_token token = {
		.token_id = load_text(row, 0),
		.parent_id = load_text(row, 1),
		.name = load_text(row, 2),
		.scopes = (uint32_t)sqlite3_column_int64(row, 3),
		.calls_per_s = sqlite3_column_double(row, 5),
		.max_sessions = sqlite3_column_int64(row, 6),
		.created_ms = sqlite3_column_int64(row, 7),
		.expires_ms = sqlite3_column_int64(row, 8),
		.revoked_ms = sqlite3_column_int64(row, 9),
		.memory_limit_bytes = sqlite3_column_int64(row, 10),
		.last_used_ms = sqlite3_column_int64(row, 11),
	};
	if (read_hash(row, 4, token.secret_hash))
		load->call.token(load->context, &token);
}

enum status store_load_tokens(struct store *store, void (*row)(void *context, const struct store_token *token),
			      void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT token_id, parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, created_ms, "
		       "expires_ms, revoked_ms, memory_limit_bytes, last_used_ms FROM tokens ORDER BY created_ms, "
		       "rowid",
		.binds = true,
		.kind = BOUND_TOKEN,
		.row = token_row,
		.call.token = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void change_row(sqlite3_stmt *row, const struct load *load)
{
	const struct store_change change = {
		.at_ms = sqlite3_column_int64(row, 0),
		.kind = load_text(row, 1),
		.level = load_text(row, 2),
		.node_id = load_text(row, 3),
		.device_id = load_text(row, 4),
		.name = load_text(row, 5),
		.summary = load_text(row, 6),
	};
	load->call.change(load->context, &change);
}

enum status store_load_changes(struct store *store, int limit,
			       void (*row)(void *context, const struct store_change *change), void *context,
			       struct error *error)
{
	const struct load load = {
		.sql = "SELECT at_ms, kind, level, node_id, device_id, name, summary FROM changes "
		       "ORDER BY change_id DESC LIMIT ?1",
		.limit = limit,
		.row = change_row,
		.call.change = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void certificate_row(sqlite3_stmt *row, const struct load *load)
{
	const struct store_certificate certificate = {
		.serial = load_text(row, 0),
		.node_id = load_text(row, 1),
		.sha256 = load_text(row, 2),
		.key_sha256 = load_text(row, 3),
		.not_before_ms = sqlite3_column_int64(row, 4),
		.not_after_ms = sqlite3_column_int64(row, 5),
		.revoked_ms = sqlite3_column_int64(row, 6),
	};
	load->call.certificate(load->context, &certificate);
}

enum status store_load_certificates(struct store *store,
				    void (*row)(void *context, const struct store_certificate *certificate),
				    void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT serial, node_id, sha256, key_sha256, not_before_ms, not_after_ms, revoked_ms FROM "
		       "certificates "
		       "ORDER BY not_before_ms, serial",
		.binds = true,
		.kind = BOUND_CERTIFICATE,
		.row = certificate_row,
		.call.certificate = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void ticket_row(sqlite3_stmt *row, const struct load *load)
{
	struct store_ticket ticket = {
		.ticket_id = load_text(row, 0),
		.made_by = load_text(row, 2),
		.uses = sqlite3_column_int64(row, 3),
		.used = sqlite3_column_int64(row, 4),
		.created_ms = sqlite3_column_int64(row, 5),
		.expires_ms = sqlite3_column_int64(row, 6),
		.revoked_ms = sqlite3_column_int64(row, 7),
	};
	if (read_hash(row, 1, ticket.secret_hash))
		load->call.ticket(load->context, &ticket);
}

enum status store_load_tickets(struct store *store, void (*row)(void *context, const struct store_ticket *ticket),
			       void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT ticket_id, secret_hash, made_by, uses, used, created_ms, expires_ms, revoked_ms "
		       "FROM tickets ORDER BY created_ms, rowid",
		.binds = true,
		.kind = BOUND_TICKET,
		.row = ticket_row,
		.call.ticket = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void lend_row(sqlite3_stmt *row, const struct load *load)
{
	struct store_lend lend = {
		.lend_id = load_text(row, 0),
		.name = load_text(row, 2),
		.made_by = load_text(row, 3),
		.uses = sqlite3_column_int64(row, 4),
		.used = sqlite3_column_int64(row, 5),
		.created_ms = sqlite3_column_int64(row, 6),
		.expires_ms = sqlite3_column_int64(row, 7),
		.revoked_ms = sqlite3_column_int64(row, 8),
	};
	if (read_hash(row, 1, lend.secret_hash))
		load->call.lend(load->context, &lend);
}

enum status store_load_lends(struct store *store, void (*row)(void *context, const struct store_lend *lend),
			     void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT lend_id, secret_hash, name, made_by, uses, used, created_ms, expires_ms, revoked_ms "
		       "FROM lends ORDER BY created_ms, rowid",
		.binds = true,
		.kind = BOUND_LEND,
		.row = lend_row,
		.call.lend = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void tab_row(sqlite3_stmt *row, const struct load *load)
{
	struct store_tab tab = {
		.node_id = load_text(row, 0), .lend_id = load_text(row, 1), .joined_ms = sqlite3_column_int64(row, 3)};
	if (read_hash(row, 2, tab.secret_hash))
		load->call.tab(load->context, &tab);
}

enum status store_load_tabs(struct store *store, void (*row)(void *context, const struct store_tab *tab), void *context,
			    struct error *error)
{
	const struct load load = {
		.sql = "SELECT node_id, lend_id, secret_hash, joined_ms FROM tabs ORDER BY joined_ms, rowid",
		.binds = true,
		.kind = BOUND_TAB,
		.row = tab_row,
		.call.tab = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void model_row(sqlite3_stmt *row, const struct load *load)
{
	const struct store_model model = {
		.model_id = load_text(row, 0),
		.name = load_text(row, 1),
		.source = load_text(row, 2),
		.request = load_text(row, 3),
		.path = load_text(row, 4),
		.state = load_text(row, 5),
		.file_bytes = sqlite3_column_int64(row, 6),
		.modified_ns = sqlite3_column_int64(row, 7),
		.sha256 = load_text(row, 8),
		.state_reason = load_text(row, 9),
		.added_ms = sqlite3_column_int64(row, 10),
		.architecture = load_text(row, 11),
	};
	load->call.model(load->context, &model);
}

enum status store_load_models(struct store *store, void (*row)(void *context, const struct store_model *model),
			      void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT model_id, name, source, request, path, state, file_bytes, modified_ns, sha256, "
		       "state_reason, added_ms, architecture FROM models ORDER BY added_ms, rowid",
		.binds = true,
		.kind = BOUND_MODEL,
		.row = model_row,
		.call.model = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

// They are bound by themselves: an instance whose workers nobody vouches for is loaded anew.
static bool workers_hold(const struct store *store, sqlite3_stmt *row)
{
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest, told;
	const struct bound_value values[] = {
		{.type = SQLITE_TEXT, .bytes = load_text(row, 0), .length = (size_t)sqlite3_column_bytes(row, 0)},
		{.type = SQLITE_TEXT, .bytes = load_text(row, 9), .length = (size_t)sqlite3_column_bytes(row, 9)},
	};
	return bound_subject(BOUND_WORKERS, &values[0], subject) && bound_digest(BOUND_WORKERS, values, &digest) &&
	       bound_find(store->journal.bound, subject, &told, NULL) && !memcmp(&told, &digest, sizeof digest);
}

static void instance_row(sqlite3_stmt *row, const struct load *load)
{
	const struct store_instance instance = {
		.instance_id = load_text(row, 0),
		.model_id = load_text(row, 1),
		.model_name = load_text(row, 2),
		.wanted = load_text(row, 3),
		.created_ms = sqlite3_column_int64(row, 4),
		.last = load_text(row, 5),
		.epoch = sqlite3_column_int64(row, 6),
		.recoveries = sqlite3_column_int64(row, 7),
		.moves = sqlite3_column_int64(row, 8),
		.workers = workers_hold(load->store, row) ? load_text(row, 9) : "",
	};
	load->call.instance(load->context, &instance);
}

enum status store_load_instances(struct store *store, void (*row)(void *context, const struct store_instance *instance),
				 void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT instance_id, model_id, model_name, wanted, created_ms, last, epoch, recoveries, moves, "
		       "workers FROM instances ORDER BY created_ms, rowid",
		.binds = true,
		.kind = BOUND_INSTANCE,
		.row = instance_row,
		.store = store,
		.call.instance = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}
