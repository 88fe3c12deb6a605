/* Lists of the audit log's entries, and proofs. On the thread of questions; see audit_reader.h. */
#include "common/base/base64.h"
#include "common/base/limits.h"
#include "server/store/database.h"
#include "server/store/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MOST = 1000, LIST_TEXT_BYTES = 384 * 1024 }; // of an answer; one that is larger goes on in the next

struct list_sql {
	char text[1024];
	const char *values[8]; // of the texts that are bound, from ?10 on
	size_t count;
};

// A condition, with the value's place where it is cut.
static void add(struct list_sql *sql, const char *before, const char *value, const char *after)
{
	size_t length = strlen(sql->text);
	if (value)
		snprintf(sql->text + length, sizeof sql->text - length, "%s?%d%s", before, 10 + (int)sql->count, after);
	else
		snprintf(sql->text + length, sizeof sql->text - length, "%s", before);
	if (value)
		sql->values[sql->count++] = value;
}

// One condition for each thing that is asked. Texts are bound, never written into it; LIKE's own characters are found
// as themselves by instr.
static void build(struct list_sql *sql, const struct store_audit_filter *filter, bool oldest_first)
{
	*sql = (struct list_sql){.count = 0};
	snprintf(sql->text, sizeof sql->text,
		 "SELECT " JOURNAL_COLUMNS " FROM audit WHERE seq > ?1 AND seq < ?2 AND at_us >= ?3 AND at_us < ?4");
	if (filter->actor)
		add(sql, " AND actor = ", filter->actor, "");
	if (filter->device_id)
		add(sql, " AND device_id = ", filter->device_id, "");
	if (filter->action && filter->action[0] && filter->action[strlen(filter->action) - 1] == '.')
		add(sql, " AND instr(action, ", filter->action, ") = 1");
	else if (filter->action)
		add(sql, " AND action = ", filter->action, "");
	if (filter->outcome && !strcmp(filter->outcome, "failed"))
		add(sql, " AND outcome != 'ok'", NULL, NULL);
	else if (filter->outcome)
		add(sql, " AND outcome = ", filter->outcome, "");
	if (filter->text)
		add(sql,
		    " AND instr(lower(actor || char(10) || actor_name || char(10) || target || char(10) || peer || "
		    "char(10) || detail), lower(",
		    filter->text, ")) > 0");
	add(sql, oldest_first ? " ORDER BY seq LIMIT ?5" : " ORDER BY seq DESC LIMIT ?5", NULL, NULL);
}

static void bind(sqlite3_stmt *rows, const struct list_sql *sql, const struct store_audit_filter *filter, int limit)
{
	sqlite3_bind_int64(rows, 1, filter->after >= 0 ? filter->after : -1);
	sqlite3_bind_int64(rows, 2, filter->before > 0 ? filter->before : INT64_MAX);
	sqlite3_bind_int64(rows, 3, filter->from_ms > 0 ? filter->from_ms * 1000 : INT64_MIN);
	sqlite3_bind_int64(rows, 4, filter->to_ms > 0 ? filter->to_ms * 1000 : INT64_MAX);
	sqlite3_bind_int(rows, 5, limit + 1);
	for (size_t i = 0; i < sql->count; i++)
		sqlite3_bind_text(rows, 10 + (int)i, sql->values[i], -1, SQLITE_STATIC);
}

static int64_t first_here(sqlite3 *db)
{
	sqlite3_stmt *row = NULL;
	int64_t first = 0;
	if (sqlite3_prepare_v2(db, "SELECT min(seq) FROM audit", -1, &row, NULL) == SQLITE_OK &&
	    sqlite3_step(row) == SQLITE_ROW)
		first = sqlite3_column_int64(row, 0);
	sqlite3_finalize(row);
	return first;
}

void audit_list(struct audit_desk *desk, struct audit_job *job)
{
	struct list_sql sql;
	sqlite3_stmt *rows = NULL;
	const bool oldest_first = job->filter.after >= 0;
	int limit = job->filter.limit, code = SQLITE_DONE, count = 0, bytes = 0;
	limit = limit < 1 ? 100 : limit > LIST_MOST ? LIST_MOST : limit;
	build(&sql, &job->filter, oldest_first);
	job->status = database_prepare(desk->db, sql.text, &rows, &job->error);
	if (job->status)
		return;
	bind(rows, &sql, &job->filter, limit);
	struct json *entries = json_new_array();
	while (count <= limit && (code = sqlite3_step(rows)) == SQLITE_ROW) {
		struct journal_entry entry;
		journal_row(rows, &entry);
		for (int i = 0; i < sqlite3_column_count(rows); i++)
			bytes += sqlite3_column_bytes(rows, i);
		if (count && bytes > LIST_TEXT_BYTES)
			limit = count;
		if (count++ < limit)
			json_push(entries, store_audit_json(&entry));
	}
	if (code != SQLITE_DONE && code != SQLITE_ROW)
		job->status = database_fault(desk->db, code, &job->error);
	sqlite3_finalize(rows);
	job->result = json_new_object();
	json_set(job->result, "entries", entries);
	json_set_integer(job->result, "first", first_here(desk->db));
	json_set_bool(job->result, "more", count > limit);
}

// ---- proofs ----

static struct json *segments_after(struct audit_desk *desk, struct audit_job *job)
{
	sqlite3_stmt *rows = NULL;
	struct json *segments = json_new_array();
	int code = SQLITE_DONE;
	job->status = database_prepare(desk->db,
				       "SELECT number, first, key, certificate FROM audit_segments WHERE first >= ?1 "
				       "AND first < ?2 AND number > 0 ORDER BY number",
				       &rows, &job->error);
	if (job->status)
		return segments;
	sqlite3_bind_int64(rows, 1, (int64_t)job->from);
	sqlite3_bind_int64(rows, 2, (int64_t)job->to);
	while ((code = sqlite3_step(rows)) == SQLITE_ROW) {
		struct json *segment = json_new_object();
		json_set_integer(segment, "number", sqlite3_column_int64(rows, 0));
		json_set_integer(segment, "first", sqlite3_column_int64(rows, 1));
		json_set_string(segment, "key", (const char *)sqlite3_column_text(rows, 2));
		json_set_string(segment, "certificate", (const char *)sqlite3_column_text(rows, 3));
		json_push(segments, segment);
	}
	if (code != SQLITE_DONE)
		job->status = database_fault(desk->db, code, &job->error);
	sqlite3_finalize(rows);
	return segments;
}

void audit_prove(struct audit_desk *desk, struct audit_job *job)
{
	struct tree_proof proof;
	audit_tree_forget(&desk->tree);
	struct tree_source source = audit_tree_source(&desk->tree);
	job->status = tree_prove_consistency(&source, job->from, job->to, &proof, &job->error);
	if (job->status)
		return;
	char text[BASE64_TEXT_BYTES(TREE_HASH_BYTES)];
	struct json *hashes = json_new_array();
	for (size_t i = 0; i < proof.count; i++) {
		base64_encode(proof.hashes[i].bytes, TREE_HASH_BYTES, text);
		json_push(hashes, json_new_string(text));
	}
	job->result = json_new_object();
	json_set_integer(job->result, "from", (int64_t)job->from);
	json_set_integer(job->result, "to", (int64_t)job->to);
	json_set(job->result, "proof", hashes);
	json_set(job->result, "segments", segments_after(desk, job));
}
