/* See batch.h: the SQL of every change to state.db, and running a batch. */
#include "server/store/batch.h"

#include <stdlib.h>
#include <string.h>

static const char *const batch_sql[BATCH_STATEMENTS] = {
	[BATCH_PUT_SETTING] = "INSERT INTO settings (key, value) VALUES (?1, ?2) "
			      "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
	[BATCH_PUT_NODE] = "INSERT INTO nodes (node_id, name, record, first_seen_ms, last_seen_ms) "
			   "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, "
			   "record = excluded.record, first_seen_ms = excluded.first_seen_ms, "
			   "last_seen_ms = excluded.last_seen_ms",
	[BATCH_PUT_DEVICE] =
		"INSERT INTO devices (device_id, node_id, hardware_key, draining, record, first_seen_ms, last_seen_ms) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (device_id) DO UPDATE SET node_id = excluded.node_id, "
		"hardware_key = excluded.hardware_key, record = excluded.record, draining = excluded.draining, "
		"first_seen_ms = excluded.first_seen_ms, last_seen_ms = excluded.last_seen_ms",
	[BATCH_PUT_TOKEN] =
		"INSERT INTO tokens (token_id, parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, "
		"created_ms, expires_ms, revoked_ms, memory_limit_bytes, last_used_ms) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) "
		"ON CONFLICT (token_id) DO UPDATE SET parent_id = excluded.parent_id, name = excluded.name, "
		"scopes = excluded.scopes, secret_hash = excluded.secret_hash, calls_per_s = excluded.calls_per_s, "
		"max_sessions = excluded.max_sessions, created_ms = excluded.created_ms, "
		"expires_ms = excluded.expires_ms, last_used_ms = excluded.last_used_ms, "
		"revoked_ms = excluded.revoked_ms, memory_limit_bytes = excluded.memory_limit_bytes",
	// Rows of its own children are gone before it; those that somebody else wrote must not hold it.
	[BATCH_ORPHAN_TOKENS] = "UPDATE tokens SET parent_id = NULL WHERE parent_id = ?1",
	[BATCH_REMOVE_TOKEN] = "DELETE FROM tokens WHERE token_id = ?1",
	[BATCH_PUT_CONVERSATION] = "INSERT INTO conversations (token_id, conversation_id, version, updated_ms, body) "
				   "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (token_id, conversation_id) DO UPDATE SET "
				   "version = excluded.version, updated_ms = excluded.updated_ms, body = excluded.body",
	[BATCH_REMOVE_CONVERSATION] = "DELETE FROM conversations WHERE token_id = ?1 AND conversation_id = ?2",
	[BATCH_REMOVE_CONVERSATIONS] = "DELETE FROM conversations WHERE token_id = ?1",
	[BATCH_PUT_CHANGE] = "INSERT INTO changes (at_ms, kind, level, node_id, device_id, name, summary) "
			     "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
	[BATCH_TRIM_CHANGES] = "DELETE FROM changes WHERE change_id <= (SELECT max(change_id) FROM changes) - ?1",
	[BATCH_PUT_CERTIFICATE] =
		"INSERT INTO certificates (serial, node_id, sha256, key_sha256, not_before_ms, not_after_ms, "
		"revoked_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (serial) DO UPDATE SET node_id = "
		"excluded.node_id, sha256 = excluded.sha256, key_sha256 = excluded.key_sha256, not_before_ms = "
		"excluded.not_before_ms, not_after_ms = excluded.not_after_ms, revoked_ms = excluded.revoked_ms",
	[BATCH_REMOVE_CERTIFICATE] = "DELETE FROM certificates WHERE serial = ?1",
	[BATCH_PUT_TICKET] =
		"INSERT INTO tickets (ticket_id, secret_hash, made_by, uses, used, created_ms, expires_ms, revoked_ms) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (ticket_id) DO UPDATE SET secret_hash = "
		"excluded.secret_hash, made_by = excluded.made_by, uses = excluded.uses, used = excluded.used, "
		"created_ms = excluded.created_ms, expires_ms = excluded.expires_ms, revoked_ms = excluded.revoked_ms",
	[BATCH_REMOVE_TICKET] = "DELETE FROM tickets WHERE ticket_id = ?1",
	[BATCH_PUT_LEND] =
		"INSERT INTO lends (lend_id, secret_hash, name, made_by, uses, used, created_ms, expires_ms, "
		"revoked_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (lend_id) DO UPDATE SET "
		"secret_hash = excluded.secret_hash, name = excluded.name, made_by = excluded.made_by, "
		"uses = excluded.uses, used = excluded.used, created_ms = excluded.created_ms, "
		"expires_ms = excluded.expires_ms, revoked_ms = excluded.revoked_ms",
	[BATCH_REMOVE_LEND] = "DELETE FROM lends WHERE lend_id = ?1",
	[BATCH_PUT_TAB] = "INSERT INTO tabs (node_id, lend_id, secret_hash, joined_ms) VALUES (?1, ?2, ?3, ?4) "
			  "ON CONFLICT (node_id) DO UPDATE SET lend_id = excluded.lend_id, "
			  "secret_hash = excluded.secret_hash, joined_ms = excluded.joined_ms",
	[BATCH_REMOVE_TAB] = "DELETE FROM tabs WHERE node_id = ?1",
	[BATCH_PUT_MODEL] =
		"INSERT INTO models (model_id, name, source, request, path, state, file_bytes, modified_ns, sha256, "
		"state_reason, added_ms, architecture) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) "
		"ON CONFLICT (model_id) DO UPDATE SET name = excluded.name, source = excluded.source, "
		"request = excluded.request, path = excluded.path, state = excluded.state, "
		"state_reason = excluded.state_reason, file_bytes = excluded.file_bytes, "
		"modified_ns = excluded.modified_ns, sha256 = excluded.sha256, architecture = excluded.architecture",
	[BATCH_REMOVE_MODEL] = "DELETE FROM models WHERE model_id = ?1",
	[BATCH_PUT_INSTANCE] = "INSERT INTO instances (instance_id, model_id, model_name, wanted, created_ms, last, "
			       "epoch, recoveries, moves, workers) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
			       "coalesce(?10, ''))",
	[BATCH_CHANGE_INSTANCE] = "UPDATE instances SET model_id = ?2, model_name = ?3, wanted = ?4, created_ms = ?5, "
				  "last = ?6, epoch = ?7, recoveries = ?8, moves = ?9, workers = coalesce(?10, "
				  "workers) WHERE instance_id = ?1",
	[BATCH_REMOVE_INSTANCE] = "DELETE FROM instances WHERE instance_id = ?1",
	[BATCH_PUT_LINK] =
		"INSERT INTO links (from_node_id, to_node_id, class, interface, address, interface_bits_per_s, "
		"rtt_ms, jitter_ms, loss_percent, throughput_bytes_per_s, throughput_ms, measured_ms, degraded) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT (from_node_id, "
		"to_node_id) DO UPDATE SET class = excluded.class, interface = excluded.interface, address = "
		"excluded.address, interface_bits_per_s = excluded.interface_bits_per_s, rtt_ms = "
		"excluded.rtt_ms, jitter_ms = excluded.jitter_ms, loss_percent = excluded.loss_percent, "
		"throughput_bytes_per_s = excluded.throughput_bytes_per_s, throughput_ms = "
		"excluded.throughput_ms, measured_ms = excluded.measured_ms, degraded = excluded.degraded",
	[BATCH_REMOVE_LINKS] = "DELETE FROM links WHERE from_node_id = ?1 OR to_node_id = ?1",
	[BATCH_PUT_LAYER_TIME] =
		"INSERT INTO layer_times (device_id, format, layer_bytes, layer_s, output_bytes, output_s, "
		"prompt_s, batch_2, batch_4, batch_8, batch_16, batch_32, batch_64, batch_128, measured_ms, "
		"spread) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) ON "
		"CONFLICT (device_id, format, layer_bytes) DO UPDATE SET layer_s = excluded.layer_s, "
		"output_bytes = excluded.output_bytes, output_s = excluded.output_s, prompt_s = "
		"excluded.prompt_s, batch_2 = excluded.batch_2, batch_4 = excluded.batch_4, batch_8 = "
		"excluded.batch_8, batch_16 = excluded.batch_16, batch_32 = excluded.batch_32, batch_64 = "
		"excluded.batch_64, batch_128 = excluded.batch_128, measured_ms = excluded.measured_ms, spread = "
		"excluded.spread",
	[BATCH_REMOVE_LAYER_TIMES] =
		"DELETE FROM layer_times WHERE device_id IN (SELECT device_id FROM devices WHERE node_id = ?1)",
	[BATCH_REMOVE_DEVICES] = "DELETE FROM devices WHERE node_id = ?1",
	[BATCH_REMOVE_NODE] = "DELETE FROM nodes WHERE node_id = ?1",
	[BATCH_LIST_DEVICES] = "SELECT device_id FROM devices WHERE node_id = ?1",
	[BATCH_PUT_ALERT] =
		"INSERT INTO alerts (alert_id, kind, severity, subject_type, subject_id, subject_name, message, hint, "
		"raised_ms, cleared_ms, acknowledged_ms, acknowledged_by, value, threshold, node_id) VALUES (?1, ?2, "
		"?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) ON CONFLICT (alert_id) DO UPDATE SET "
		"cleared_ms = CASE WHEN alerts.cleared_ms > excluded.cleared_ms THEN alerts.cleared_ms "
		"ELSE excluded.cleared_ms END, "
		"acknowledged_by = CASE WHEN alerts.acknowledged_ms != 0 THEN alerts.acknowledged_by "
		"ELSE excluded.acknowledged_by END, "
		"acknowledged_ms = CASE WHEN alerts.acknowledged_ms != 0 THEN alerts.acknowledged_ms "
		"ELSE excluded.acknowledged_ms END",
	// Kept are those about the audit log, then the newest of each node, then the second of each, and so on.
	[BATCH_TRIM_ALERTS] = "DELETE FROM alerts WHERE cleared_ms != 0 AND alert_id NOT IN (SELECT alert_id FROM "
			      "alerts ORDER BY substr(kind, 1, 6) = 'audit_' DESC, row_number() OVER (PARTITION BY "
			      "node_id ORDER BY raised_ms DESC), raised_ms DESC LIMIT ?1)",
	[BATCH_PUT_USAGE] =
		"INSERT INTO usage (step_s, at_s, token_id, model_id, device_id, token_name, model_name, "
		"device_name, requests, prompt_tokens, cached_tokens, completion_tokens, device_s, "
		"energy_joules, idle_joules, energy_source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
		"?11, ?12, ?13, ?14, ?15, ?16) ON CONFLICT (step_s, at_s, token_id, model_id, device_id) DO "
		"UPDATE SET token_name = excluded.token_name, model_name = excluded.model_name, device_name = "
		"excluded.device_name, requests = excluded.requests, prompt_tokens = excluded.prompt_tokens, "
		"cached_tokens = excluded.cached_tokens, completion_tokens = excluded.completion_tokens, "
		"device_s = excluded.device_s, energy_joules = excluded.energy_joules, idle_joules = "
		"excluded.idle_joules, energy_source = excluded.energy_source",
	[BATCH_TRIM_USAGE] = "DELETE FROM usage WHERE step_s = ?1 AND at_s < ?2",
	[BATCH_PUT_CHANNEL] = "INSERT INTO alert_channels (channel_id, kind, url, severities, quiet_from, quiet_to, "
			      "secret, added_ms, added_by, last_ms, last_result) "
			      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
	[BATCH_CHANNEL_RESULT] = "UPDATE alert_channels SET last_ms = ?2, last_result = ?3 WHERE channel_id = ?1",
	[BATCH_REMOVE_CHANNEL] = "DELETE FROM alert_channels WHERE channel_id = ?1",
	[BATCH_PUT_DELIVERY] =
		"INSERT INTO alert_deliveries (delivery_id, channel_id, alert_id, severity, body, created_ms) SELECT "
		"?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM alert_channels WHERE channel_id = ?2)",
	[BATCH_REMOVE_DELIVERIES] = "DELETE FROM alert_deliveries WHERE channel_id = ?1",
	[BATCH_REMOVE_DELIVERY] = "DELETE FROM alert_deliveries WHERE delivery_id = ?1",
	[BATCH_PUT_AUDIT] = "INSERT INTO audit (" JOURNAL_COLUMNS ", leaf) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
			    "?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
	[BATCH_PUT_COSIGNED] =
		"INSERT INTO audit_checkpoints (size, note, segment_bytes, cosigned) VALUES (?1, ?2, 0, 1) "
		"ON CONFLICT (size) DO UPDATE SET note = excluded.note, cosigned = 1",
	[BATCH_TRIM_COSIGNED] = "DELETE FROM audit_checkpoints WHERE cosigned = 1 AND size < ?1 AND size NOT IN "
				"(SELECT first FROM audit_segments)",
};

static struct journal_entry entry_of(const struct batch_row *row)
{
	struct journal_entry entry = {
		.seq = (uint64_t)row->values[0].integer,
		.at_us = row->values[1].integer,
		.duration_us = row->values[2].integer,
		.count = (uint64_t)row->values[3].integer,
	};
	size_t at = AUDIT_TEXTS_AT;
#define X(name) entry.name = row->values[at++].bytes;
	ENTRY_TEXT_LIST(X)
#undef X
	entry.bound = row->bound;
	entry.bound_before = (uint64_t)row->values[AUDIT_BEFORE_AT].integer;
	return entry;
}

void batch_tell_entries(const struct store_batch *batch, void (*tell)(void *context, const struct journal_entry *entry),
			void *context)
{
	for (const struct batch_row *row = batch->first; row; row = row->next)
		if (row->statement == BATCH_PUT_AUDIT) {
			const struct journal_entry entry = entry_of(row);
			tell(context, &entry);
		}
}

enum status batch_prepare(struct db *db, struct db_statement *statements[BATCH_STATEMENTS], struct error *error)
{
	enum status status = STATUS_OK;
	for (int i = 0; i < BATCH_STATEMENTS && !status; i++)
		status = db_prepare(db, batch_sql[i], &statements[i], error);
	return status;
}

void batch_finalize(struct db_statement *statements[BATCH_STATEMENTS])
{
	for (int i = 0; i < BATCH_STATEMENTS; i++) {
		db_finalize(statements[i]);
		statements[i] = NULL;
	}
}

// ---- what a batch binds ----

// Which rows a statement changes: their first values are the columns of bound_tables.
static const struct bound_statement {
	bool binds, gone, only_if_there;
	enum bound_kind kind;
} bound_statements[BATCH_STATEMENTS] = {
	[BATCH_PUT_NODE] = {.binds = true, .kind = BOUND_NODE},
	[BATCH_REMOVE_NODE] = {.binds = true, .gone = true, .kind = BOUND_NODE},
	[BATCH_PUT_DEVICE] = {.binds = true, .kind = BOUND_DEVICE},
	[BATCH_PUT_TOKEN] = {.binds = true, .kind = BOUND_TOKEN},
	[BATCH_REMOVE_TOKEN] = {.binds = true, .gone = true, .kind = BOUND_TOKEN},
	[BATCH_PUT_CERTIFICATE] = {.binds = true, .kind = BOUND_CERTIFICATE},
	[BATCH_REMOVE_CERTIFICATE] = {.binds = true, .gone = true, .kind = BOUND_CERTIFICATE},
	[BATCH_PUT_TICKET] = {.binds = true, .kind = BOUND_TICKET},
	[BATCH_REMOVE_TICKET] = {.binds = true, .gone = true, .kind = BOUND_TICKET},
	[BATCH_PUT_LEND] = {.binds = true, .kind = BOUND_LEND},
	[BATCH_REMOVE_LEND] = {.binds = true, .gone = true, .kind = BOUND_LEND},
	[BATCH_PUT_TAB] = {.binds = true, .kind = BOUND_TAB},
	[BATCH_REMOVE_TAB] = {.binds = true, .gone = true, .kind = BOUND_TAB},
	[BATCH_PUT_CHANNEL] = {.binds = true, .kind = BOUND_CHANNEL},
	[BATCH_REMOVE_CHANNEL] = {.binds = true, .gone = true, .kind = BOUND_CHANNEL},
	[BATCH_PUT_MODEL] = {.binds = true, .kind = BOUND_MODEL},
	[BATCH_REMOVE_MODEL] = {.binds = true, .gone = true, .kind = BOUND_MODEL},
	[BATCH_PUT_INSTANCE] = {.binds = true, .kind = BOUND_INSTANCE},
	[BATCH_CHANGE_INSTANCE] = {.binds = true, .only_if_there = true, .kind = BOUND_INSTANCE},
	[BATCH_REMOVE_INSTANCE] = {.binds = true, .gone = true, .kind = BOUND_INSTANCE},
};

// values NULL: the row goes.
static enum status bind_row(struct journal *journal, enum bound_kind kind, const struct db_value *id,
			    const struct db_value *values, struct error *error)
{
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest;
	if (!bound_subject(kind, id, subject))
		return error_set(error, STATUS_INVALID_PARAMS, "a row of state.db has an id that cannot be one");
	if (values && !bound_digest(kind, values, &digest))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to hash a row of state.db");
	return journal_bind(journal, subject, values ? &digest : NULL, error);
}

static enum status bind_instance(const struct batch_row *row, struct journal *journal, struct error *error)
{
	struct db_value values[BOUND_COLUMNS] = {row->values[0]};
	const struct db_value *workers = &row->values[row->count - 1];
	if (row->statement == BATCH_REMOVE_INSTANCE)
		return bind_row(journal, BOUND_WORKERS, values, NULL, error);
	if (workers->type == DB_NULL && row->statement == BATCH_CHANGE_INSTANCE)
		return STATUS_OK; // they stay as they are
	values[1] = workers->type == DB_NULL ? (struct db_value){.type = DB_TEXT, .bytes = ""} : *workers;
	return bind_row(journal, BOUND_WORKERS, values, values, error);
}

// A node's devices go with it, without being named.
static enum status bind_devices(const struct batch_row *row, struct db *db, struct db_statement *list,
				struct journal *journal, struct error *error)
{
	enum db_code code = DB_DONE;
	enum status status = STATUS_OK;
	db_bind(list, 1, &row->values[0]);
	while (!status && (code = db_step(list)) == DB_ROW) {
		const struct db_value id = {.type = DB_TEXT, .bytes = db_text(list, 0), .length = db_length(list, 0)};
		status = bind_row(journal, BOUND_DEVICE, &id, NULL, error);
	}
	if (!status && code != DB_DONE)
		status = db_fault(db, error);
	db_reset(list);

	return status;
}

static enum status bind_statement(const struct batch_row *row, struct journal *journal, struct error *error)
{
	const struct bound_statement *statement = &bound_statements[row->statement];
	struct db_value values[BOUND_COLUMNS];
	char subject[BOUND_SUBJECT_BYTES];
	if (!statement->binds)
		return STATUS_OK;
	for (size_t i = 0; i < row->count && i < BOUND_COLUMNS; i++)
		values[i] = row->values[i];
	if (statement->only_if_there &&
	    (!bound_subject(statement->kind, &values[0], subject) || !bound_find(journal->bound, subject, NULL, NULL)))
		return STATUS_OK;
	enum status status = bind_row(journal, statement->kind, &values[0], statement->gone ? NULL : values, error);
	if (!status && statement->kind == BOUND_INSTANCE)
		status = bind_instance(row, journal, error);
	return status;
}

static enum status bind_batch(const struct store_batch *batch, struct db *db,
			      struct db_statement *statements[BATCH_STATEMENTS], struct journal *journal,
			      struct error *error)
{
	enum status status = STATUS_OK;
	for (const struct batch_row *row = batch->first; row && !status; row = row->next) {
		if (row->statement == BATCH_REMOVE_DEVICES)
			status = bind_devices(row, db, statements[BATCH_LIST_DEVICES], journal, error);
		if (!status)
			status = bind_statement(row, journal, error);
	}
	return status;
}

// Rows that no entry of the batch has named get entries of their own, at its end.
static enum status add_entry(struct store_batch *batch, struct error *error)
{
	const struct journal_entry entry = {
		.count = 1, .actor = "server", .action = "state.bound", .outcome = "ok", .detail = "{}"};
	batch->rows = 0; // what the loop thread counted has its limit there
	enum status status = store_put_audit(batch, &entry);
	return status ? error_set(error, status, "no memory for an entry of the audit log") : STATUS_OK;
}

// The number and the leaf of an entry, and the rows that it names, in place of those that its row does not know.
static enum status number_entry(struct batch_row *row, struct journal *journal, struct db_statement *statement,
				struct tree_hash *leaf, struct error *error)
{
	free(row->bound);
	row->bound = NULL;
	struct journal_entry entry = entry_of(row);
	// A log that binds no rows yet must not seem to, should this transaction be the last one for now: an entry of
	// version 2 without any would say that there are none.
	const bool binds = !journal->unbound || journal->adopting;
	if (binds)
		row->bound = journal_take_bound(journal, &entry);
	if (binds && !row->bound)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an entry of the audit log");
	entry.bound = row->bound;
	enum status status = journal_add(journal, &entry, leaf, error);
	row->values[0].integer = (int64_t)entry.seq;
	row->values[AUDIT_BEFORE_AT] = (struct db_value){.type = binds ? DB_INTEGER : DB_NULL,
							 .integer = (int64_t)entry.bound_before};
	db_bind_integer(statement, 1, (int64_t)entry.seq);
	db_bind_text(statement, AUDIT_BOUND_AT + 1, row->bound);
	db_bind(statement, AUDIT_BEFORE_AT + 1, &row->values[AUDIT_BEFORE_AT]);
	db_bind_bytes(statement, AUDIT_VALUES + 1, leaf->bytes, TREE_HASH_BYTES);
	return status;
}

// SQLite's words and PostgreSQL's.
static bool is_taken(struct db *db)
{
	return strstr(db_trouble(db), "audit.seq") || strstr(db_trouble(db), "\"audit_pkey\"");
}

// The next number has an entry already, which this program did not write.
static enum status taken(struct error *error)
{
	if (error)
		*error = (struct error){.status = STATUS_OK};
	error_set(error, STATUS_UNAVAILABLE, "somebody else has written to the audit log");
	error_hint(error, "see exogpu audit verify; nothing that is audited can happen until the log is put right");
	return STATUS_UNAVAILABLE;
}

enum status batch_run(struct store_batch *batch, struct db *db, struct db_statement *statements[BATCH_STATEMENTS],
		      struct journal *journal, struct error *error)
{
	struct tree_hash leaf;
	enum status status = bind_batch(batch, db, statements, journal, error);
	for (struct batch_row *row = batch->first; row && !status; row = row->next) {
		struct db_statement *statement = statements[row->statement];
		for (size_t i = 0; i < row->count; i++)
			db_bind(statement, (int)i + 1, &row->values[i]);
		if (row->statement == BATCH_PUT_AUDIT)
			status = number_entry(row, journal, statement, &leaf, error);
		if (!status)
			status = db_execute(statement, error);
		if (status == STATUS_CONFLICT && is_taken(db))
			status = taken(error);

		if (!status && !row->next && journal_has_bound(journal))
			status = add_entry(batch, error);
	}
	return status;
}

enum status batch_settle(const struct store_batch *batch, struct db *db, struct error *error)
{
	enum status status = db_settle(db, error);
	return status == STATUS_CONFLICT && batch->entries && is_taken(db) ? taken(error) : status;
}
