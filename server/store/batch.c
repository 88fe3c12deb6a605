/* See batch.h; and the SQL of every change to state.db. */
#include "server/store/batch.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/store/database.h"

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
		"INSERT INTO devices (device_id, node_id, hardware_key, record, draining, first_seen_ms, last_seen_ms) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (device_id) DO UPDATE SET node_id = excluded.node_id, "
		"hardware_key = excluded.hardware_key, record = excluded.record, draining = excluded.draining, "
		"first_seen_ms = excluded.first_seen_ms, last_seen_ms = excluded.last_seen_ms",
	[BATCH_PUT_TOKEN] =
		"INSERT INTO tokens (token_id, parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, "
		"created_ms, expires_ms, last_used_ms, revoked_ms, memory_limit_bytes) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) "
		"ON CONFLICT (token_id) DO UPDATE SET parent_id = excluded.parent_id, name = excluded.name, "
		"scopes = excluded.scopes, secret_hash = excluded.secret_hash, calls_per_s = excluded.calls_per_s, "
		"max_sessions = excluded.max_sessions, created_ms = excluded.created_ms, "
		"expires_ms = excluded.expires_ms, last_used_ms = excluded.last_used_ms, "
		"revoked_ms = excluded.revoked_ms, memory_limit_bytes = excluded.memory_limit_bytes",
	[BATCH_REMOVE_TOKEN] = "DELETE FROM tokens WHERE token_id = ?1",
	[BATCH_PUT_CHANGE] = "INSERT INTO changes (at_ms, kind, level, node_id, device_id, name, summary) "
			     "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
	[BATCH_TRIM_CHANGES] = "DELETE FROM changes WHERE change_id <= (SELECT max(change_id) FROM changes) - ?1",
	[BATCH_PUT_CERTIFICATE] =
		"INSERT INTO certificates (serial, node_id, sha256, key_sha256, not_before_ms, not_after_ms, "
		"revoked_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (serial) DO UPDATE SET revoked_ms = "
		"excluded.revoked_ms",
	[BATCH_REMOVE_CERTIFICATE] = "DELETE FROM certificates WHERE serial = ?1",
	[BATCH_PUT_TICKET] =
		"INSERT INTO tickets (ticket_id, secret_hash, made_by, uses, used, created_ms, expires_ms, revoked_ms) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (ticket_id) DO UPDATE SET used = excluded.used, "
		"revoked_ms = excluded.revoked_ms",
	[BATCH_REMOVE_TICKET] = "DELETE FROM tickets WHERE ticket_id = ?1",
	[BATCH_PUT_MODEL] =
		"INSERT INTO models (model_id, name, source, request, path, state, state_reason, added_ms, file_bytes, "
		"modified_ns, sha256, architecture) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) "
		"ON CONFLICT (model_id) DO UPDATE SET name = excluded.name, source = excluded.source, "
		"request = excluded.request, path = excluded.path, state = excluded.state, "
		"state_reason = excluded.state_reason, file_bytes = excluded.file_bytes, "
		"modified_ns = excluded.modified_ns, sha256 = excluded.sha256, architecture = excluded.architecture",
	[BATCH_REMOVE_MODEL] = "DELETE FROM models WHERE model_id = ?1",
	[BATCH_PUT_INSTANCE] = "INSERT INTO instances (instance_id, model_id, model_name, wanted, last, epoch, "
			       "recoveries, moves, created_ms, workers) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
			       "coalesce(?10, ''))",
	[BATCH_CHANGE_INSTANCE] = "UPDATE instances SET wanted = ?2, last = ?3, epoch = ?4, recoveries = ?5, "
				  "moves = ?6, workers = coalesce(?7, workers) WHERE instance_id = ?1",
	[BATCH_REMOVE_INSTANCE] = "DELETE FROM instances WHERE instance_id = ?1",
	[BATCH_PUT_LINK] = "INSERT OR REPLACE INTO links (from_node_id, to_node_id, class, interface, address, "
			   "interface_bits_per_s, rtt_ms, jitter_ms, loss_percent, throughput_bytes_per_s, "
			   "throughput_ms, measured_ms, degraded) "
			   "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
	[BATCH_REMOVE_LINKS] = "DELETE FROM links WHERE from_node_id = ?1 OR to_node_id = ?1",
	[BATCH_PUT_LAYER_TIME] = "INSERT OR REPLACE INTO layer_times (device_id, format, layer_bytes, layer_s, "
				 "output_bytes, output_s, prompt_s, batch_2, batch_4, batch_8, batch_16, batch_32, "
				 "measured_ms, spread) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, "
				 "?14)",
	[BATCH_REMOVE_LAYER_TIMES] =
		"DELETE FROM layer_times WHERE device_id IN (SELECT device_id FROM devices WHERE node_id = ?1)",
	[BATCH_REMOVE_DEVICES] = "DELETE FROM devices WHERE node_id = ?1",
	[BATCH_REMOVE_NODE] = "DELETE FROM nodes WHERE node_id = ?1",
	[BATCH_PUT_AUDIT] = "INSERT INTO audit (" JOURNAL_COLUMNS ", leaf) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, "
			    "?10, ?11, ?12, ?13, ?14, ?15)",
	[BATCH_PUT_COSIGNED] =
		"INSERT INTO audit_checkpoints (size, note, segment_bytes, cosigned) VALUES (?1, ?2, 0, 1) "
		"ON CONFLICT (size) DO UPDATE SET note = excluded.note, cosigned = 1",
	[BATCH_TRIM_COSIGNED] = "DELETE FROM audit_checkpoints WHERE cosigned = 1 AND size < ?1 AND size NOT IN "
				"(SELECT first FROM audit_segments)",
	[BATCH_BEGIN] = "BEGIN IMMEDIATE",
	[BATCH_COMMIT] = "COMMIT",
	[BATCH_ROLLBACK] = "ROLLBACK",
	[BATCH_SAVEPOINT] = "SAVEPOINT batch",
	[BATCH_UNDO] = "ROLLBACK TO batch",
	[BATCH_RELEASE] = "RELEASE batch",
};

enum { AUDIT_OVERHEAD = 128 };                  // bytes of an encoded entry that are not its texts, and some more
enum { BATCH_VALUES = 15, AUDIT_TEXTS_AT = 4 }; // of the widest statement; texts of an entry after its numbers

struct value {
	enum { VALUE_NULL, VALUE_TEXT, VALUE_BYTES, VALUE_INTEGER, VALUE_REAL } type;
	const char *text;
	size_t length;
	int64_t integer;
	double real;
};

struct batch_row {
	struct batch_row *next;
	enum batch_statement statement;
	size_t count;
	struct value values[BATCH_VALUES]; // text points behind the row
};

static struct value text_value(const char *text)
{
	return text ? (struct value){.type = VALUE_TEXT, .text = text, .length = strlen(text)}
		    : (struct value){.type = VALUE_NULL};
}

static struct value integer_value(int64_t integer)
{
	return (struct value){.type = VALUE_INTEGER, .integer = integer};
}

static struct value measured_value(double real)
{
	return real < 0 ? (struct value){.type = VALUE_NULL} : (struct value){.type = VALUE_REAL, .real = real};
}

static enum status add_row(struct store_batch *batch, enum batch_statement statement, const struct value *values,
			   size_t count)
{
	size_t bytes = 0;
	for (size_t i = 0; i < count; i++)
		bytes += values[i].length + 1;
	if (batch->rows >= LIMIT_STORE_BATCH_ROWS) {
		batch->failed = true;
		return STATUS_LIMIT_EXCEEDED;
	}
	struct batch_row *row = malloc(sizeof *row + bytes);
	if (!row) {
		batch->failed = true;
		return STATUS_OUT_OF_MEMORY;
	}
	*row = (struct batch_row){.statement = statement, .count = count};
	char *at = (char *)(row + 1);
	for (size_t i = 0; i < count; i++) {
		row->values[i] = values[i];
		if (!values[i].text)
			continue;
		memcpy(at, values[i].text, values[i].length);
		row->values[i].text = at;
		at += values[i].length;
		*at++ = 0;
	}
	if (batch->last)
		batch->last->next = row;
	else
		batch->first = row;
	batch->last = row;
	batch->rows++;
	return STATUS_OK;
}

enum status store_batch_create(struct store_batch **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void store_batch_destroy(struct store_batch **batch)
{
	if (!*batch)
		return;
	struct batch_row *next;
	for (struct batch_row *row = (*batch)->first; row; row = next) {
		next = row->next;
		free(row);
	}
	free(*batch);
	*batch = NULL;
}

enum status store_put_setting(struct store_batch *batch, const char *key, const char *value)
{
	const struct value values[] = {text_value(key), text_value(value)};
	return add_row(batch, BATCH_PUT_SETTING, values, 2);
}

enum status store_put_node(struct store_batch *batch, const struct store_node *node)
{
	const struct value values[] = {text_value(node->node_id), text_value(node->name), text_value(node->record),
				       integer_value(node->first_seen_ms), integer_value(node->last_seen_ms)};
	return add_row(batch, BATCH_PUT_NODE, values, 5);
}

enum status store_put_device(struct store_batch *batch, const struct store_device *device)
{
	const struct value values[] = {
		text_value(device->device_id),       text_value(device->node_id),
		text_value(device->hardware_key),    text_value(device->record),
		integer_value(device->draining),     integer_value(device->first_seen_ms),
		integer_value(device->last_seen_ms),
	};
	return add_row(batch, BATCH_PUT_DEVICE, values, 7);
}

enum status store_put_token(struct store_batch *batch, const struct store_token *token)
{
	const struct value values[] = {
		text_value(token->token_id),
		text_value(token->parent_id),
		text_value(token->name),
		integer_value(token->scopes),
		{.type = VALUE_BYTES, .text = (const char *)token->secret_hash, .length = STORE_HASH_BYTES},
		{.type = VALUE_REAL, .real = token->calls_per_s},
		integer_value(token->max_sessions),
		integer_value(token->created_ms),
		integer_value(token->expires_ms),
		integer_value(token->last_used_ms),
		integer_value(token->revoked_ms),
		integer_value(token->memory_limit_bytes),
	};
	return add_row(batch, BATCH_PUT_TOKEN, values, 12);
}

enum status store_remove_token(struct store_batch *batch, const char *token_id)
{
	const struct value values[] = {text_value(token_id)};
	return add_row(batch, BATCH_REMOVE_TOKEN, values, 1);
}

enum status store_put_change(struct store_batch *batch, const struct store_change *change)
{
	const struct value values[] = {
		integer_value(change->at_ms), text_value(change->kind),      text_value(change->level),
		text_value(change->node_id),  text_value(change->device_id), text_value(change->name),
		text_value(change->summary),
	};
	const struct value kept[] = {integer_value(LIMIT_STORE_CHANGES)};
	enum status status = add_row(batch, BATCH_PUT_CHANGE, values, 7);
	return status ? status : add_row(batch, BATCH_TRIM_CHANGES, kept, 1);
}

enum status store_put_certificate(struct store_batch *batch, const struct store_certificate *certificate)
{
	const struct value values[] = {
		text_value(certificate->serial),           text_value(certificate->node_id),
		text_value(certificate->sha256),           text_value(certificate->key_sha256),
		integer_value(certificate->not_before_ms), integer_value(certificate->not_after_ms),
		integer_value(certificate->revoked_ms),
	};
	return add_row(batch, BATCH_PUT_CERTIFICATE, values, 7);
}

enum status store_remove_certificate(struct store_batch *batch, const char *serial)
{
	const struct value values[] = {text_value(serial)};
	return add_row(batch, BATCH_REMOVE_CERTIFICATE, values, 1);
}

enum status store_put_audit(struct store_batch *batch, const struct journal_entry *entry)
{
	struct value values[AUDIT_TEXTS_AT + ENTRY_TEXTS] = {
		integer_value(0), // its seq, once it is known
		integer_value(entry->at_us ? entry->at_us : clock_wall_ms() * 1000),
		integer_value(entry->duration_us),
		integer_value((int64_t)entry->count),
	};
	size_t count = AUDIT_TEXTS_AT, bytes = 0;
	bool fits = true;
#define X(name) \
	values[count] = text_value(entry->name ? entry->name : ""); \
	fits = fits && values[count].length <= ENTRY_TEXT_BYTES; \
	bytes += values[count++].length;
	ENTRY_TEXT_LIST(X)
#undef X
	if (!fits || bytes > ENTRY_BYTES - AUDIT_OVERHEAD) {
		batch->failed = true;
		return STATUS_LIMIT_EXCEEDED;
	}
	batch->entries++;
	return add_row(batch, BATCH_PUT_AUDIT, values, count);
}

static struct journal_entry entry_of(const struct batch_row *row)
{
	struct journal_entry entry = {
		.seq = (uint64_t)row->values[0].integer,
		.at_us = row->values[1].integer,
		.duration_us = row->values[2].integer,
		.count = (uint64_t)row->values[3].integer,
	};
	size_t at = AUDIT_TEXTS_AT;
#define X(name) entry.name = row->values[at++].text;
	ENTRY_TEXT_LIST(X)
#undef X
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

enum status store_put_cosigned(struct store_batch *batch, uint64_t size, const char *note)
{
	const struct value values[] = {integer_value((int64_t)size), text_value(note)};
	enum status status = add_row(batch, BATCH_PUT_COSIGNED, values, 2);
	return status ? status : add_row(batch, BATCH_TRIM_COSIGNED, values, 1);
}

enum status store_put_ticket(struct store_batch *batch, const struct store_ticket *ticket)
{
	const struct value values[] = {
		text_value(ticket->ticket_id),
		{.type = VALUE_BYTES, .text = (const char *)ticket->secret_hash, .length = STORE_HASH_BYTES},
		text_value(ticket->made_by),
		integer_value(ticket->uses),
		integer_value(ticket->used),
		integer_value(ticket->created_ms),
		integer_value(ticket->expires_ms),
		integer_value(ticket->revoked_ms),
	};
	return add_row(batch, BATCH_PUT_TICKET, values, 8);
}

enum status store_remove_ticket(struct store_batch *batch, const char *ticket_id)
{
	const struct value values[] = {text_value(ticket_id)};
	return add_row(batch, BATCH_REMOVE_TICKET, values, 1);
}

enum status store_put_model(struct store_batch *batch, const struct store_model *model)
{
	const struct value values[] = {
		text_value(model->model_id),       text_value(model->name),        text_value(model->source),
		text_value(model->request),        text_value(model->path),        text_value(model->state),
		text_value(model->state_reason),   integer_value(model->added_ms), integer_value(model->file_bytes),
		integer_value(model->modified_ns), text_value(model->sha256),      text_value(model->architecture),
	};
	return add_row(batch, BATCH_PUT_MODEL, values, 12);
}

enum status store_remove_model(struct store_batch *batch, const char *model_id)
{
	const struct value values[] = {text_value(model_id)};
	return add_row(batch, BATCH_REMOVE_MODEL, values, 1);
}

enum status store_put_instance(struct store_batch *batch, const struct store_instance *instance)
{
	const struct value values[] = {
		text_value(instance->instance_id),   text_value(instance->model_id),
		text_value(instance->model_name),    text_value(instance->wanted),
		text_value(instance->last),          integer_value(instance->epoch),
		integer_value(instance->recoveries), integer_value(instance->moves),
		integer_value(instance->created_ms), text_value(instance->workers),
	};
	return add_row(batch, BATCH_PUT_INSTANCE, values, 10);
}

enum status store_change_instance(struct store_batch *batch, const struct store_instance *instance)
{
	const struct value values[] = {
		text_value(instance->instance_id), text_value(instance->wanted),        text_value(instance->last),
		integer_value(instance->epoch),    integer_value(instance->recoveries), integer_value(instance->moves),
		text_value(instance->workers),
	};
	return add_row(batch, BATCH_CHANGE_INSTANCE, values, 7);
}

enum status store_remove_instance(struct store_batch *batch, const char *instance_id)
{
	const struct value values[] = {text_value(instance_id)};
	return add_row(batch, BATCH_REMOVE_INSTANCE, values, 1);
}

enum status store_put_link(struct store_batch *batch, const struct store_link *link)
{
	const struct value values[] = {
		text_value(link->from_node_id),     text_value(link->to_node_id),
		text_value(link->class_name),       text_value(link->interface),
		text_value(link->address),          measured_value(link->interface_bits_per_s),
		measured_value(link->rtt_ms),       measured_value(link->jitter_ms),
		measured_value(link->loss_percent), measured_value(link->throughput_bytes_per_s),
		integer_value(link->throughput_ms), integer_value(link->measured_ms),
		text_value(link->degraded),
	};
	return add_row(batch, BATCH_PUT_LINK, values, 13);
}

enum status store_put_layer_time(struct store_batch *batch, const struct store_layer_time *time)
{
	const struct value values[] = {
		text_value(time->device_id),      text_value(time->format),          integer_value(time->layer_bytes),
		measured_value(time->layer_s),    integer_value(time->output_bytes), measured_value(time->output_s),
		measured_value(time->prompt_s),   measured_value(time->batch[0]),    measured_value(time->batch[1]),
		measured_value(time->batch[2]),   measured_value(time->batch[3]),    measured_value(time->batch[4]),
		integer_value(time->measured_ms), measured_value(time->spread),
	};
	return add_row(batch, BATCH_PUT_LAYER_TIME, values, 14);
}

enum status store_remove_node(struct store_batch *batch, const char *node_id)
{
	const struct value values[] = {text_value(node_id)};
	enum status status = add_row(batch, BATCH_REMOVE_LINKS, values, 1);
	if (!status)
		status = add_row(batch, BATCH_REMOVE_LAYER_TIMES, values, 1);
	if (!status)
		status = add_row(batch, BATCH_REMOVE_DEVICES, values, 1);
	return status ? status : add_row(batch, BATCH_REMOVE_NODE, values, 1);
}

enum status batch_prepare(sqlite3 *db, sqlite3_stmt *statements[BATCH_STATEMENTS], struct error *error)
{
	enum status status = STATUS_OK;
	for (int i = 0; i < BATCH_STATEMENTS && !status; i++)
		status = database_prepare(db, batch_sql[i], &statements[i], error);
	return status;
}

void batch_finalize(sqlite3_stmt *statements[BATCH_STATEMENTS])
{
	for (int i = 0; i < BATCH_STATEMENTS; i++) {
		sqlite3_finalize(statements[i]);
		statements[i] = NULL;
	}
}

// The bytes stay where they are until the statement was reset.
static int bind_value(sqlite3_stmt *statement, int index, const struct value *value)
{
	switch (value->type) {
	case VALUE_NULL:
		return sqlite3_bind_null(statement, index);
	case VALUE_TEXT:
		return sqlite3_bind_text64(statement, index, value->text, value->length, SQLITE_STATIC, SQLITE_UTF8);
	case VALUE_BYTES:
		return sqlite3_bind_blob64(statement, index, value->text, value->length, SQLITE_STATIC);
	case VALUE_INTEGER:
		return sqlite3_bind_int64(statement, index, value->integer);
	case VALUE_REAL:
		return sqlite3_bind_double(statement, index, value->real);
	}
	return SQLITE_MISUSE;
}

enum status batch_step(sqlite3 *db, sqlite3_stmt *statement, struct error *error)
{
	int code = sqlite3_step(statement);
	enum status status = code == SQLITE_DONE ? STATUS_OK : database_fault(db, code, error);
	sqlite3_reset(statement);
	return status;
}

// The number and the leaf of an entry, in place of those that its row does not know.
static enum status number_entry(struct batch_row *row, struct journal *journal, sqlite3_stmt *statement,
				struct tree_hash *leaf, struct error *error)
{
	struct journal_entry entry = entry_of(row);
	enum status status = journal_add(journal, &entry, leaf, error);
	row->values[0].integer = (int64_t)entry.seq;
	sqlite3_bind_int64(statement, 1, (int64_t)entry.seq);
	sqlite3_bind_blob(statement, AUDIT_TEXTS_AT + ENTRY_TEXTS + 1, leaf->bytes, TREE_HASH_BYTES, SQLITE_STATIC);
	return status;
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

enum status batch_run(struct store_batch *batch, sqlite3 *db, sqlite3_stmt *statements[BATCH_STATEMENTS],
		      struct journal *journal, struct error *error)
{
	enum status status = STATUS_OK;
	struct tree_hash leaf;
	for (struct batch_row *row = batch->first; row && !status; row = row->next) {
		sqlite3_stmt *statement = statements[row->statement];
		int code = SQLITE_OK;
		for (size_t i = 0; i < row->count && code == SQLITE_OK; i++)
			code = bind_value(statement, (int)i + 1, &row->values[i]);
		if (row->statement == BATCH_PUT_AUDIT)
			status = number_entry(row, journal, statement, &leaf, error);
		if (!status)
			status = code == SQLITE_OK ? batch_step(db, statement, error) : database_fault(db, code, error);
		if (status == STATUS_CONFLICT && row->statement == BATCH_PUT_AUDIT)
			status = taken(error);
		sqlite3_clear_bindings(statement);
	}
	return status;
}
