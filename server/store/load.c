/* Reads state.db at the start, on the loop thread with its own read-only connection. */
#include "server/store/load.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *store_load_setting(struct store *store, const char *key)
{
	struct db_statement *statement = NULL;
	free(store->setting);
	store->setting = NULL;
	if (!db_prepare(store->loading, "SELECT value FROM settings WHERE key = ?1", &statement, NULL)) {
		db_bind_text(statement, 1, key);
		const enum db_code code = db_step(statement);
		if (code == DB_ROW)
			store->setting = strdup(db_text(statement, 0));
		store->unread = store->unread || code == DB_FAILED;
	}
	db_finalize(statement);
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
	struct db_statement *statement = NULL;
	enum status status = db_prepare(store->loading, load->sql, &statement, error);
	if (status)
		return status;
	if (strchr(load->sql, '?'))
		db_bind_integer(statement, 1, load->limit);
	enum db_code code;
	while ((code = db_step(statement)) == DB_ROW)
		if (!load->binds || bound_holds(store->journal.bound, statement, load->kind))
			load->row(statement, load);
	if (code != DB_DONE)
		status = db_fault(store->loading, error);
	db_finalize(statement);
	return status;
}

static void node_row(struct db_statement *row, const struct load *load)
{
	const struct store_node node = {
		.node_id = db_text(row, 0),
		.name = db_text(row, 1),
		.record = db_text(row, 2),
		.first_seen_ms = db_integer(row, 3),
		.last_seen_ms = db_integer(row, 4),
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

static void device_row(struct db_statement *row, const struct load *load)
{
	const struct store_device device = {
		.device_id = db_text(row, 0),
		.node_id = db_text(row, 1),
		.hardware_key = db_text(row, 2),
		.draining = db_integer(row, 3) != 0,
		.record = db_text(row, 4),
		.first_seen_ms = db_integer(row, 5),
		.last_seen_ms = db_integer(row, 6),
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
static bool read_hash(struct db_statement *row, int column, uint8_t hash[STORE_HASH_BYTES])
{
	const void *bytes = db_bytes(row, column);
	if (!bytes || db_length(row, column) != STORE_HASH_BYTES)
		return false;
	memcpy(hash, bytes, STORE_HASH_BYTES);
	return true;
}

static void token_row(struct db_statement *row, const struct load *load)
{
	struct store_token token = {
		.token_id = db_text(row, 0),
		.parent_id = db_text(row, 1),
		.name = db_text(row, 2),
		.scopes = (uint32_t)db_integer(row, 3),
		.calls_per_s = db_real(row, 5),
		.max_sessions = db_integer(row, 6),
		.created_ms = db_integer(row, 7),
		.expires_ms = db_integer(row, 8),
		.revoked_ms = db_integer(row, 9),
		.memory_limit_bytes = db_integer(row, 10),
		.last_used_ms = db_integer(row, 11),
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

static void change_row(struct db_statement *row, const struct load *load)
{
	const struct store_change change = {
		.at_ms = db_integer(row, 0),
		.kind = db_text(row, 1),
		.level = db_text(row, 2),
		.node_id = db_text(row, 3),
		.device_id = db_text(row, 4),
		.name = db_text(row, 5),
		.summary = db_text(row, 6),
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

static void certificate_row(struct db_statement *row, const struct load *load)
{
	const struct store_certificate certificate = {
		.serial = db_text(row, 0),
		.node_id = db_text(row, 1),
		.sha256 = db_text(row, 2),
		.key_sha256 = db_text(row, 3),
		.not_before_ms = db_integer(row, 4),
		.not_after_ms = db_integer(row, 5),
		.revoked_ms = db_integer(row, 6),
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

static void ticket_row(struct db_statement *row, const struct load *load)
{
	struct store_ticket ticket = {
		.ticket_id = db_text(row, 0),
		.made_by = db_text(row, 2),
		.uses = db_integer(row, 3),
		.used = db_integer(row, 4),
		.created_ms = db_integer(row, 5),
		.expires_ms = db_integer(row, 6),
		.revoked_ms = db_integer(row, 7),
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

static void lend_row(struct db_statement *row, const struct load *load)
{
	struct store_lend lend = {
		.lend_id = db_text(row, 0),
		.name = db_text(row, 2),
		.made_by = db_text(row, 3),
		.uses = db_integer(row, 4),
		.used = db_integer(row, 5),
		.created_ms = db_integer(row, 6),
		.expires_ms = db_integer(row, 7),
		.revoked_ms = db_integer(row, 8),
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

static void tab_row(struct db_statement *row, const struct load *load)
{
	struct store_tab tab = {
		.node_id = db_text(row, 0), .lend_id = db_text(row, 1), .joined_ms = db_integer(row, 3)};
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

static void model_row(struct db_statement *row, const struct load *load)
{
	const struct store_model model = {
		.model_id = db_text(row, 0),
		.name = db_text(row, 1),
		.source = db_text(row, 2),
		.request = db_text(row, 3),
		.path = db_text(row, 4),
		.state = db_text(row, 5),
		.file_bytes = db_integer(row, 6),
		.modified_ns = db_integer(row, 7),
		.sha256 = db_text(row, 8),
		.state_reason = db_text(row, 9),
		.added_ms = db_integer(row, 10),
		.architecture = db_text(row, 11),
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
static bool workers_hold(const struct store *store, struct db_statement *row)
{
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest, told;
	const struct db_value values[] = {
		{.type = DB_TEXT, .bytes = db_text(row, 0), .length = db_length(row, 0)},
		{.type = DB_TEXT, .bytes = db_text(row, 9), .length = db_length(row, 9)},
	};
	return bound_subject(BOUND_WORKERS, &values[0], subject) && bound_digest(BOUND_WORKERS, values, &digest) &&
	       bound_find(store->journal.bound, subject, &told, NULL) && !memcmp(&told, &digest, sizeof digest);
}

static void instance_row(struct db_statement *row, const struct load *load)
{
	const struct store_instance instance = {
		.instance_id = db_text(row, 0),
		.model_id = db_text(row, 1),
		.model_name = db_text(row, 2),
		.wanted = db_text(row, 3),
		.created_ms = db_integer(row, 4),
		.last = db_text(row, 5),
		.epoch = db_integer(row, 6),
		.recoveries = db_integer(row, 7),
		.moves = db_integer(row, 8),
		.workers = workers_hold(load->store, row) ? db_text(row, 9) : "",
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
