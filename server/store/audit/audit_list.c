/* Lists of audit entries, and proofs. Runs on the question thread; see audit_reader.h. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/text/base64.h"
#include "server/store/audit/audit_listing.h"
#include "server/store/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LIST_MOST = 1000,
	LIST_TEXT_BYTES = 384 * 1024, // of an answer; one that is larger goes on in the next
	LIST_MS = 400,                // so long archives are looked through for one answer
};

struct list_sql {
	char text[1024];
	const char *values[8]; // of the texts that are bound, from ?6 on
	size_t count;
	char wanted[1024]; // the text that is looked for, in lower case
};

static void lower(char *to, const char *from, size_t room)
{
	size_t i = 0;
	for (; from && from[i] && i + 1 < room; i++)
		to[i] = from[i] >= 'A' && from[i] <= 'Z' ? (char)(from[i] + ('a' - 'A'))
							 : from[i]; // as lower() of a database, in bytes
	to[i] = 0;
}

// A condition, with the value's place where it is cut.
static void add(struct list_sql *sql, const char *before, const char *value, const char *after)
{
	size_t length = strlen(sql->text);
	if (value)
		snprintf(sql->text + length, sizeof sql->text - length, "%s?%d%s", before, 6 + (int)sql->count, after);
	else
		snprintf(sql->text + length, sizeof sql->text - length, "%s", before);
	if (value)
		sql->values[sql->count++] = value;
}

// The statement has one condition for each thing that is asked. Texts are bound, never written into it; LIKE's own
// characters are found as themselves by instr.
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
	if (filter->text) {
		lower(sql->wanted, filter->text, sizeof sql->wanted);
		add(sql,
		    " AND instr(lower(actor || '\n' || actor_name || '\n' || target || '\n' || peer || '\n' || "
		    "detail), ",
		    sql->wanted, ") > 0");
	}
	add(sql, oldest_first ? " ORDER BY seq LIMIT ?5" : " ORDER BY seq DESC LIMIT ?5", NULL, NULL);
}

static void bind(struct db_statement *rows, const struct list_sql *sql, const struct store_audit_filter *filter,
		 int limit)
{
	db_bind_integer(rows, 2, filter->before > 0 ? filter->before : INT64_MAX);
	db_bind_integer(rows, 3, filter->from_ms > 0 ? filter->from_ms * 1000 : INT64_MIN);
	db_bind_integer(rows, 4, filter->to_ms > 0 ? filter->to_ms * 1000 : INT64_MAX);
	db_bind_integer(rows, 5, limit + 1);
	for (size_t i = 0; i < sql->count; i++)
		db_bind_text(rows, 6 + (int)i, sql->values[i]);
}

// ---- a page ----

static bool has_text(const struct journal_entry *entry, const char *text)
{
	char all[ENTRY_BYTES + 8], wanted[1024];
	size_t length = 0;
	const char *const texts[] = {entry->actor, entry->actor_name, entry->target, entry->peer, entry->detail};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		lower(all + length, texts[i], sizeof all - length - 1);
		length += strlen(all + length);
		if (i + 1 < sizeof texts / sizeof *texts)
			all[length++] = '\n';
		all[length] = 0;
	}
	lower(wanted, text, sizeof wanted);
	return strstr(all, wanted) != NULL;
}

bool audit_page_matches(const struct audit_page *page, const struct journal_entry *entry)
{
	const struct store_audit_filter *filter = page->filter;
	const size_t length = filter->action ? strlen(filter->action) : 0;
	if ((filter->from_ms > 0 && entry->at_us < filter->from_ms * 1000) ||
	    (filter->to_ms > 0 && entry->at_us >= filter->to_ms * 1000))
		return false;
	if ((filter->actor && strcmp(filter->actor, entry->actor) != 0) ||
	    (filter->device_id && strcmp(filter->device_id, entry->device_id) != 0))
		return false;
	if (length && filter->action[length - 1] == '.' ? strncmp(filter->action, entry->action, length) != 0
							: length && strcmp(filter->action, entry->action) != 0)
		return false;
	if (filter->outcome && (!strcmp(filter->outcome, "failed") ? !strcmp(entry->outcome, "ok")
								   : strcmp(filter->outcome, entry->outcome) != 0))
		return false;
	return !filter->text || has_text(entry, filter->text);
}

static size_t text_bytes(const struct journal_entry *entry)
{
	size_t bytes = entry->bound ? strlen(entry->bound) : 0;
#define X(name) bytes += entry->name ? strlen(entry->name) : 0;
	ENTRY_TEXT_LIST(X)
#undef X
	return bytes;
}

bool audit_page_offer(struct audit_page *page, const struct journal_entry *entry)
{
	if (!audit_page_matches(page, entry))
		return true;
	page->bytes += text_bytes(entry);
	page->full = page->count == page->limit || (page->count && page->bytes > LIST_TEXT_BYTES);
	if (page->full)
		return false;
	json_push(page->entries, store_audit_json(entry));
	page->last = (int64_t)entry->seq;
	page->gaps_before = page->gap_count;
	page->count++;
	return true;
}

bool audit_page_over(const struct audit_page *page)
{
	return page->full || page->late;
}

// The first entry that is here and not in an archive. Without any it is the log's end.
static int64_t first_here(struct db *db)
{
	struct db_statement *row = NULL;
	int64_t first = INT64_MAX;
	if (!db_prepare(db, "SELECT min(seq) FROM audit WHERE seq >= 0", &row, NULL) && db_step(row) == DB_ROW &&
	    db_type(row, 0) != DB_NULL)
		first = db_integer(row, 0);
	db_finalize(row);
	return first;
}

// An entry with a negative number does not belong to the log.
static enum status take_rows(struct audit_page *page, int64_t first, struct error *error)
{
	struct list_sql sql;
	struct db_statement *rows = NULL;
	enum db_code code = DB_DONE;
	build(&sql, page->filter, page->oldest_first);
	enum status status = db_prepare(page->desk->db, sql.text, &rows, error);
	if (status)
		return status;
	bind(rows, &sql, page->filter, page->limit);
	db_bind_integer(rows, 1, (first > page->first ? first : page->first) - 1);
	while (!page->full && (code = db_step(rows)) == DB_ROW) {
		struct journal_entry entry;
		journal_row(rows, &entry);
		audit_page_offer(page, &entry);
	}
	if (code != DB_DONE && code != DB_ROW)
		status = db_fault(page->desk->db, error);
	db_finalize(rows);
	return status;
}

// In one moment of the database: an entry is either here or in an archive, and not in between.
static enum status take_all(struct audit_page *page, struct error *error)
{
	const int64_t here = first_here(page->desk->db);
	const int64_t archived_end = here < page->end ? here : page->end;
	enum status status = STATUS_OK;
	if (!page->oldest_first)
		status = take_rows(page, here, error);
	if (!page->oldest_first && !page->full)
		page->at = archived_end;
	if (!status && !audit_page_over(page) && page->first < archived_end)
		status = audit_page_archived(page, archived_end, error);
	if (!status && page->oldest_first && !audit_page_over(page))
		status = take_rows(page, here, error);
	return status;
}

// Where the next page goes on, as `before`, or as `after` where the oldest come first. -1: there is none.
static int64_t next_of(struct audit_page *page)
{
	int64_t next = -1;
	if (page->full ||
	    (page->late && page->count == page->limit)) { // gaps behind the last entry are the next page's
		next = page->last;
		page->gap_count = page->gaps_before;
	} else if (page->late) {
		next = page->oldest_first ? page->at - 1 : page->at;
	}
	return !page->oldest_first && next <= page->first ? -1 : next;
}

void audit_list(struct audit_desk *desk, struct audit_job *job)
{
	const struct store_audit_filter *filter = &job->filter;
	const int limit = filter->limit;
	struct audit_page *page = calloc(1, sizeof *page);
	if (!page) {
		job->status = error_set(&job->error, STATUS_OUT_OF_MEMORY, "no memory for a list");
		return;
	}
	page->desk = desk;
	page->filter = filter;
	page->oldest_first = filter->after >= 0;
	page->limit = limit < 1 ? 100 : limit > LIST_MOST ? LIST_MOST : limit;
	page->first = filter->after >= 0 ? filter->after + 1 : 0;
	page->end = filter->before > 0 ? filter->before : INT64_MAX;
	page->until_ns = clock_steady_ns() + (filter->spend_ms ? filter->spend_ms : LIST_MS) * 1000000;
	page->entries = json_new_array();
	audit_tree_forget(&desk->tree);
	job->status = db_begin(desk->db, DB_READ, &job->error);
	if (!job->status)
		job->status = take_all(page, &job->error);
	db_rollback(desk->db);
	const int64_t next = next_of(page);
	job->result = json_new_object();
	json_set(job->result, "entries", page->entries);
	json_set_bool(job->result, "more", next >= 0);
	json_set(job->result, "next", next >= 0 ? json_new_integer(next) : json_new_null());
	json_set(job->result, "gaps", audit_page_gaps(page));
	free(page);
}

// ---- proofs ----

static struct json *segments_after(struct audit_desk *desk, struct audit_job *job)
{
	struct db_statement *rows = NULL;
	struct json *segments = json_new_array();
	enum db_code code = DB_DONE;
	job->status = db_prepare(desk->db,
				 "SELECT number, first, key, certificate FROM audit_segments WHERE first >= ?1 "
				 "AND first < ?2 AND number > 0 ORDER BY number",
				 &rows, &job->error);
	if (job->status)
		return segments;
	db_bind_integer(rows, 1, (int64_t)job->from);
	db_bind_integer(rows, 2, (int64_t)job->to);
	while ((code = db_step(rows)) == DB_ROW) {
		struct json *segment = json_new_object();
		json_set_integer(segment, "number", db_integer(rows, 0));
		json_set_integer(segment, "first", db_integer(rows, 1));
		json_set_string(segment, "key", db_text(rows, 2));
		json_set_string(segment, "certificate", db_text(rows, 3));
		json_push(segments, segment);
	}
	if (code != DB_DONE)
		job->status = db_fault(desk->db, &job->error);
	db_finalize(rows);
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
