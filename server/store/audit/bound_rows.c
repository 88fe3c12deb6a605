/* See bound.h: which columns of which tables grant something, and the comparison of a database's
 * rows with the log. Left out on purpose: settings, links, layer_times, changes and history (they
 * show or estimate, and open nothing), times of last use, and what a node or a model file says about
 * itself. */
#include "server/store/audit/bound.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

const struct bound_table bound_tables[BOUND_KINDS] = {
	[BOUND_NODE] = {"node", "nodes", "node_id, name", 2},
	[BOUND_DEVICE] = {"device", "devices", "device_id, node_id, hardware_key, draining", 4},
	[BOUND_TOKEN] = {"token", "tokens",
			 "token_id, parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, created_ms, "
			 "expires_ms, revoked_ms, memory_limit_bytes",
			 11},
	[BOUND_CERTIFICATE] = {"certificate", "certificates",
			       "serial, node_id, sha256, key_sha256, not_before_ms, not_after_ms, revoked_ms", 7},
	[BOUND_TICKET] = {"ticket", "tickets",
			  "ticket_id, secret_hash, made_by, uses, used, created_ms, expires_ms, revoked_ms", 8},
	[BOUND_LEND] = {"lend", "lends",
			"lend_id, secret_hash, name, made_by, uses, used, created_ms, expires_ms, revoked_ms", 9},
	[BOUND_TAB] = {"tab", "tabs", "node_id, lend_id, secret_hash, joined_ms", 4},
	// Not its secret, which may be short: a hash of it in the log would let readers of the log guess it.
	[BOUND_CHANNEL] = {"channel", "alert_channels", "channel_id, kind, url, severities, quiet_from, quiet_to", 6},
	[BOUND_MODEL] = {"model", "models",
			 "model_id, name, source, request, path, state, file_bytes, modified_ns, sha256", 9},
	[BOUND_INSTANCE] = {"instance", "instances", "instance_id, model_id, model_name, wanted, created_ms", 5},
	[BOUND_WORKERS] = {"workers", "instances", "instance_id, workers", 2},
};

bool bound_subject(enum bound_kind kind, const struct db_value *id, char subject[BOUND_SUBJECT_BYTES])
{
	const char *bytes = id->bytes;
	if (id->type != DB_TEXT || !id->length || id->length > BOUND_SUBJECT_BYTES - 16)
		return false;
	for (size_t i = 0; i < id->length; i++)
		if (bytes[i] <= ' ' || bytes[i] == 0x7f)
			return false;
	snprintf(subject, BOUND_SUBJECT_BYTES, "%s %.*s", bound_tables[kind].kind, (int)id->length, bytes);
	return true;
}

static bool add_u64(EVP_MD_CTX *sum, uint64_t value)
{
	uint8_t bytes[8];
	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	return EVP_DigestUpdate(sum, bytes, sizeof bytes);
}

static bool add_value(EVP_MD_CTX *sum, const struct db_value *value)
{
	uint64_t bits;
	switch (value->type) {
	case DB_INTEGER:
		return EVP_DigestUpdate(sum, "i", 1) && add_u64(sum, (uint64_t)value->integer);
	case DB_REAL:
		memcpy(&bits, &(double){value->real == 0 ? 0 : value->real}, sizeof bits); // no sign of 0 in a database
		return EVP_DigestUpdate(sum, "r", 1) && add_u64(sum, bits);
	case DB_TEXT:
	case DB_BYTES:
		return EVP_DigestUpdate(sum, value->type == DB_TEXT ? "t" : "b", 1) && add_u64(sum, value->length) &&
		       (!value->length || EVP_DigestUpdate(sum, value->bytes, value->length));
	default:
		return EVP_DigestUpdate(sum, "n", 1);
	}
}

bool bound_digest(enum bound_kind kind, const struct db_value *values, struct tree_hash *digest)
{
	static const char begin[] = "exogpu row 1";
	const struct bound_table *table = &bound_tables[kind];
	const char *column = table->columns;
	EVP_MD_CTX *sum = EVP_MD_CTX_new();
	bool good = sum && EVP_DigestInit_ex(sum, EVP_sha256(), NULL) && EVP_DigestUpdate(sum, begin, sizeof begin) &&
		    EVP_DigestUpdate(sum, table->kind, strlen(table->kind) + 1);
	for (int i = 0; i < table->count && good; i++) {
		const size_t length = strcspn(column, ",");
		good = EVP_DigestUpdate(sum, column, length) && EVP_DigestUpdate(sum, "", 1) &&
		       add_value(sum, &values[i]);
		column += length + (column[length] ? 2 : 0);
	}
	good = good && EVP_DigestFinal_ex(sum, digest->bytes, NULL);
	EVP_MD_CTX_free(sum);
	return good;
}

void bound_columns(struct db_statement *row, enum bound_kind kind, struct db_value values[BOUND_COLUMNS])
{
	for (int i = 0; i < bound_tables[kind].count; i++)
		values[i] = db_value(row, i);
}

// The row's name in the log. False: its id is not in our form.
static bool read_row(struct db_statement *row, enum bound_kind kind, char subject[BOUND_SUBJECT_BYTES],
		     struct tree_hash *digest)
{
	struct db_value values[BOUND_COLUMNS];
	bound_columns(row, kind, values);
	return bound_subject(kind, &values[0], subject) && bound_digest(kind, values, digest);
}

bool bound_holds(struct bound *bound, struct db_statement *row, enum bound_kind kind)
{
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest, told;
	return read_row(row, kind, subject, &digest) && bound_find(bound, subject, &told, NULL) &&
	       !memcmp(&digest, &told, sizeof digest);
}

static enum status each_row(struct db *db, enum bound_kind kind,
			    enum status (*each)(void *context, enum bound_kind kind, struct db_statement *row),
			    void *context, struct error *error)
{
	char sql[512];
	enum db_code code = DB_DONE;
	struct db_statement *rows = NULL;
	snprintf(sql, sizeof sql, "SELECT %s FROM %s", bound_tables[kind].columns, bound_tables[kind].name);
	enum status status = db_prepare(db, sql, &rows, error);
	while (!status && (code = db_step(rows)) == DB_ROW)
		status = each(context, kind, rows);
	if (!status && code != DB_DONE)
		status = db_fault(db, error);
	db_finalize(rows);
	return status;
}

struct adopting {
	struct bound *bound;
	uint64_t seq;
	size_t count;
};

static enum status adopt_row(void *context, enum bound_kind kind, struct db_statement *row)
{
	struct adopting *adopting = context;
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest;
	if (!read_row(row, kind, subject, &digest))
		return STATUS_OK; // no row of ours: it is refused
	adopting->count += kind != BOUND_WORKERS;
	return bound_set(adopting->bound, subject, &digest, adopting->seq, NULL);
}

enum status bound_adopt(struct bound *bound, struct db *db, uint64_t seq, size_t *count, struct error *error)
{
	struct adopting adopting = {.bound = bound, .seq = seq};
	enum status status = STATUS_OK;
	for (enum bound_kind kind = 0; kind < BOUND_KINDS && !status; kind++)
		status = each_row(db, kind, adopt_row, &adopting, error);
	*count = adopting.count;
	return status;
}

struct checking {
	struct bound *bound, *seen;
	bound_report *report;
	void *context;
};

static enum status check_row(void *context, enum bound_kind kind, struct db_statement *row)
{
	struct checking *checking = context;
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest, told;
	uint64_t seq = 0;
	if (!read_row(row, kind, subject, &digest)) {
		snprintf(subject, sizeof subject, "%s " BOUND_NO_ID, bound_tables[kind].kind);
		checking->report(checking->context, BOUND_UNTOLD, subject, 0);
		return STATUS_OK;
	}
	if (!bound_find(checking->bound, subject, &told, &seq))
		checking->report(checking->context, BOUND_UNTOLD, subject, 0);
	else if (memcmp(&told, &digest, sizeof told) != 0)
		checking->report(checking->context, BOUND_CHANGED, subject, seq);
	return bound_set(checking->seen, subject, &digest, seq, NULL);
}

static void look_for_row(void *context, const char *subject, const struct tree_hash *digest, uint64_t seq)
{
	const struct checking *checking = context;
	(void)digest;
	if (!bound_find(checking->seen, subject, NULL, NULL))
		checking->report(checking->context, BOUND_MISSING, subject, seq);
}

enum status bound_check(struct bound *bound, struct db *db, bound_report *report, void *context, struct error *error)
{
	struct checking checking = {.bound = bound, .report = report, .context = context};
	enum status status = bound_create(&checking.seen);
	if (status)
		return error_set(error, status, "no memory to compare state.db with the audit log");
	for (enum bound_kind kind = 0; kind < BOUND_KINDS && !status; kind++)
		status = each_row(db, kind, check_row, &checking, error);
	if (!status)
		bound_each(bound, look_for_row, &checking);
	bound_destroy(&checking.seen);
	return status;
}

const char *bound_fault_text(enum bound_fault fault)
{
	static const char *const texts[BOUND_FAULTS] = {
		[BOUND_CHANGED] = "is not what its newest entry says",
		[BOUND_UNTOLD] = "stands in state.db, and the log does not have it",
		[BOUND_MISSING] = "is missing in state.db, and the log says that it is there",
	};
	return texts[fault];
}
