/* The two threads beside the store's (see audit_reader.h): their turns, verification, and archives. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/journal/archive_index.h"
#include "common/journal/pruning.h"
#include "common/text/base64.h"
#include "common/wire/said.h"
#include "server/store/audit/ledger.h"
#include "server/store/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 3600000, RETRY_MS = 60000 };

// ---- jobs ----

static void deliver_job(struct store_outcome *outcome, bool tell)
{
	struct audit_job *job = (struct audit_job *)outcome;
	if (job->kind == AUDIT_JOB_VERIFY)
		job->store->verifying = false;
	if (tell && job->done) {
		struct json *result = job->status ? NULL : job->result;
		if (result)
			job->result = NULL;
		job->done(job->context, job->status, result, &job->error);
	}
	audit_job_destroy(&job);
}

void audit_job_post(struct audit_job *job)
{
	job->outcome.deliver = deliver_job;
	store_post(job->store, &job->outcome);
}

void audit_job_destroy(struct audit_job **job)
{
	if (!*job)
		return;
	json_destroy(&(*job)->result);
	json_destroy(&(*job)->memories);
	free(*job);
	*job = NULL;
}

// ---- verification ----

static const char *verdict_word(enum journal_verdict verdict)
{
	switch (verdict) {
	case JOURNAL_HOLDS:
		return "holds";
	case JOURNAL_MODIFIED:
		return "modified";
	case JOURNAL_TRUNCATED:
		return "truncated";
	case JOURNAL_FORKED:
		return "forked";
	case JOURNAL_BAD_SIGNATURE:
		return "bad_signature";
	case JOURNAL_WRONG_KEY:
		return "wrong_key";
	case JOURNAL_ARCHIVE_MISSING:
		return "archive_missing";
	case JOURNAL_UNSIGNED_TAIL:
		return "unsigned_tail";
	}
	return "modified";
}

static struct json *findings_json(const struct journal_report *report)
{
	struct json *findings = json_new_array();
	size_t count = report->finding_count < JOURNAL_FINDINGS ? report->finding_count : JOURNAL_FINDINGS;
	for (size_t i = 0; i < count; i++) {
		const struct journal_finding *finding = &report->findings[i];
		struct json *one = json_new_object();
		json_set_string(one, "verdict", verdict_word(finding->verdict));
		json_set_integer(one, "code", finding->verdict);
		json_set_integer(one, "seq", (int64_t)finding->seq);
		said_set(one, "text", finding->text);
		json_push(findings, one);
	}
	return findings;
}

struct json *store_audit_report_json(const struct journal_report *report)
{
	struct json *json = json_new_object();
	char root[BASE64_TEXT_BYTES(TREE_HASH_BYTES)], key[NOTE_KEY_TEXT_BYTES];
	struct buffer limits;
	buffer_init(&limits, LIMIT_HEAD_BYTES);
	journal_limits_print(report, &limits);
	base64_encode(report->root.bytes, TREE_HASH_BYTES, root);
	note_key_print(&report->first_key, key);
	const enum journal_verdict verdict = journal_verdict_of(report);
	json_set_bool(json, "ok", verdict == JOURNAL_HOLDS);
	json_set_string(json, "verdict", verdict_word(verdict));
	json_set_integer(json, "code", verdict);
	json_set_integer(json, "entries", (int64_t)report->entries);
	json_set_integer(json, "signed_entries", (int64_t)report->signed_entries);
	json_set_integer(json, "pruned", (int64_t)report->pruned);
	json_set_integer(json, "segments", (int64_t)report->segments);
	json_set_integer(json, "witnessed", (int64_t)report->witnessed);
	json_set_string(json, "origin", report->origin);
	json_set_string(json, "root", root);
	json_set_string(json, "first_key", key);
	json_set(json, "findings", findings_json(report));
	json_set_integer(json, "finding_count", (int64_t)report->finding_count);
	json_set(json, "witnesses", json_new_array()); // nobody was asked yet
	said_set(json, "limits", buffer_text(&limits));
	buffer_finish(&limits);
	return json;
}

// Notes that are no heads were not sent here.
static void remember(struct journal_verifier *verifier, const struct json *memories)
{
	struct error ignored = {.status = STATUS_OK};
	for (const struct json *one = json_first(memories); one; one = json_next(one))
		journal_remember(verifier, json_get_string(one, "note", ""), json_get_string(one, "who", ""), &ignored);
}

static struct json *states_json(const struct journal_verifier *verifier)
{
	struct json *states = json_new_array();
	for (size_t i = 0; i < journal_memories(verifier); i++)
		json_push(states, json_new_number(journal_memory_state(verifier, i)));
	return states;
}

void audit_verify(struct audit_desk *desk, struct audit_job *job)
{
	int64_t begun = clock_steady_ns();
	struct journal_verifier *verifier = NULL;
	job->status = journal_verifier_create(&verifier, NULL, NULL);
	if (job->status) {
		error_set(&job->error, job->status, "no memory to verify with");
		return;
	}
	const struct ledger ledger = {.db = desk->db,
				      .directory = desk->store->journal.directory,
				      .verifier = verifier,
				      .stop = &desk->store->reader_stop};
	remember(verifier, job->memories);
	job->status = ledger_feed(&ledger, &job->error);
	if (!job->status) {
		job->result = store_audit_report_json(journal_verify_end(verifier));
		json_set(job->result, "memories", states_json(verifier));
		json_set_number(job->result, "took_ms", (double)(clock_steady_ns() - begun) / 1e6);
	}
	journal_verifier_destroy(&verifier);
}

// ---- archives ----

struct due { // a segment that is to be archived, or pruned
	struct journal_segment segment;
	struct tree before;
	uint64_t end;
	char certificate[NOTE_BYTES], archive[128];
};

static enum status write_entries(struct audit_desk *desk, const struct due *due, struct archive_writer *writer,
				 struct error *error)
{
	struct db_statement *rows = NULL;
	struct journal_entry entry;
	struct buffer bytes;
	uint64_t next = due->segment.first;
	enum db_code code = DB_DONE;
	buffer_init(&bytes, ENTRY_BYTES);
	enum status status = db_begin(desk->db, DB_READ, error);
	if (!status)
		status = db_prepare(desk->db,
				    "SELECT " JOURNAL_COLUMNS " FROM audit WHERE seq >= ?1 AND seq < ?2 ORDER BY seq",
				    &rows, error);
	db_expect_many(rows);
	db_bind_integer(rows, 1, (int64_t)due->segment.first);
	db_bind_integer(rows, 2, (int64_t)due->end);
	while (!status && (code = db_step(rows)) == DB_ROW) {
		buffer_clear(&bytes);
		if (!journal_row(rows, &entry) || entry.seq != next++ || entry_encode(&entry, &bytes))
			status = error_set(error, STATUS_UNAVAILABLE, "entry %" PRIu64 " is damaged", next - 1);
		if (!status)
			status = archive_write_entry(writer, bytes.data, bytes.length, error);
		if (!status && atomic_load(&desk->store->reader_stop))
			status = error_set(error, STATUS_PENDING, "the server stops");
	}
	if (!status && code != DB_DONE)
		status = db_fault(desk->db, error);
	if (!status && next != due->end)
		status = error_set(error, STATUS_UNAVAILABLE, "entry %" PRIu64 " is missing", next);
	db_finalize(rows);
	db_rollback(desk->db);
	buffer_finish(&bytes);
	return status;
}

// ---- pruning ----

struct pruner { // reads an archive, and writes the one that takes its place
	struct audit_desk *desk;
	const struct due *due;
	struct archive_writer *writer;
	uint64_t next; // the entry that is to be written next
	uint64_t removed;
	enum status status;
	struct error *error;
};

// The leaves of the entries before `end` that are not written yet, as the database keeps them.
static void write_leaves(struct pruner *pruner, uint64_t end)
{
	struct audit_tree *tree = &pruner->desk->tree;
	for (; pruner->next < end && !pruner->status; pruner->next++, pruner->removed++) {
		const size_t at = (size_t)(pruner->next & (AUDIT_TILE - 1));
		if (!tree->count || tree->place != pruner->next >> AUDIT_TILE_LEVEL)
			audit_tree_load_tile(tree, pruner->next >> AUDIT_TILE_LEVEL);
		if (at >= tree->count)
			pruner->status = error_set(pruner->error, STATUS_UNAVAILABLE,
						   "the hash of entry %" PRIu64 " is missing", pruner->next);
		else
			pruner->status = archive_write_leaf(pruner->writer, &tree->tile[at], pruner->error);
		if (!pruner->status && atomic_load(&pruner->desk->store->reader_stop))
			pruner->status = error_set(pruner->error, STATUS_PENDING, "the server stops");
	}
}

static void write_kept(void *context, const struct journal_entry *entry)
{
	struct pruner *pruner = context;
	struct buffer bytes;
	if (pruner->status || !pruning_keeps(entry) || entry->seq < pruner->next || entry->seq >= pruner->due->end)
		return;
	write_leaves(pruner, entry->seq);
	buffer_init(&bytes, ENTRY_BYTES);
	if (!pruner->status)
		pruner->status = entry_encode(entry, &bytes);
	if (!pruner->status)
		pruner->status = archive_write_entry(pruner->writer, bytes.data, bytes.length, pruner->error);
	buffer_finish(&bytes);
	pruner->next++;
}

// Only a verified archive is pruned: a damaged one stays as it is, so that the damage is found.
static enum status write_pruned(struct audit_desk *desk, const struct due *due, struct archive_writer *writer,
				uint64_t *removed, struct error *error)
{
	char path[4300];
	struct pruner pruner = {.desk = desk, .due = due, .writer = writer, .next = due->segment.first, .error = error};
	struct journal_verifier *verifier = NULL;
	snprintf(path, sizeof path, "%.4160s/%.120s", desk->store->journal.directory, due->archive);
	enum status status = journal_verifier_create(&verifier, NULL, NULL);
	if (status)
		return error_set(error, status, "no memory to read an archive");
	journal_verify_part(verifier);
	journal_expect_bare(verifier);
	status = archive_verify(path, verifier, write_kept, &pruner, error);
	write_leaves(&pruner, due->end);
	const struct journal_report *report = journal_verify_end(verifier);
	if (!status)
		status = pruner.status;
	if (!status && report->verdict)
		status = error_set(error, STATUS_UNAVAILABLE, "%.120s does not verify, and is not pruned: %s",
				   due->archive, report->findings[0].text);
	journal_verifier_destroy(&verifier);
	*removed = pruner.removed;
	return status;
}

static enum status write_checkpoint(struct audit_desk *desk, const struct due *due, struct archive_writer *writer,
				    struct error *error)
{
	struct db_statement *row = NULL;
	enum status status = db_prepare(desk->db, "SELECT note FROM audit_checkpoints WHERE size = ?1", &row, error);
	if (status)
		return status;
	db_bind_integer(row, 1, (int64_t)due->end);
	if (db_step(row) == DB_ROW && db_text(row, 0))
		status = archive_write_checkpoint(writer, db_text(row, 0), error);
	else
		status = error_set(error, STATUS_UNAVAILABLE, "its last checkpoint is missing");
	db_finalize(row);
	return status;
}

static enum status write_archive(struct audit_desk *desk, struct due *due, bool prune, struct audit_mark *mark,
				 struct error *error)
{
	struct archive_writer *writer = NULL;
	char path[4300];
	audit_tree_forget(&desk->tree);
	enum status status = audit_tree_at(&desk->tree, due->segment.first, &due->before, error);
	const struct archive_writer_params params = {
		.directory = desk->store->journal.directory, .segment = &due->segment, .before = &due->before};
	mark->number = due->segment.number;
	mark->pruned_by = -1;
	if (!status)
		status = archive_writer_create(&writer, &params, error);
	if (!status)
		status = prune ? write_pruned(desk, due, writer, &mark->pruning.removed, error)
			       : write_entries(desk, due, writer, error);
	if (!status)
		status = write_checkpoint(desk, due, writer, error);
	if (!status && prune) { // it gets its name when the log says so
		status = archive_writer_prepare(writer, error);
		mark->pruning.first = due->segment.first;
		mark->pruning.last = due->end - 1;
		mark->pruned_ms = clock_wall_ms();
		snprintf(mark->archive, sizeof mark->archive, "%.120s", due->archive);
	} else if (!status) {
		status = archive_writer_finish(&writer, path, sizeof path, error);
		const char *name = status ? NULL : strrchr(path, '/');
		snprintf(mark->archive, sizeof mark->archive, "%.120s", name ? name + 1 : "");
	}
	if (status)
		archive_writer_destroy(&writer);
	mark->writer = writer;
	return status;
}

// The oldest segment that has ended and is not archived, or else the oldest archive whose entries are due to go.
// Errors: STATUS_NOT_FOUND: there is none.
static enum status find_due(struct audit_desk *desk, struct due *due, bool *prune, struct error *error)
{
	struct db_statement *row = NULL;
	enum status status = db_prepare(
		desk->db,
		"SELECT s.number, s.first, s.key, s.certificate, n.first, s.archive FROM audit_segments s JOIN "
		"audit_segments n ON n.number = s.number + 1 WHERE s.archive = '' OR (s.pruned_ms = 0 AND n.began_ms < "
		"?1 AND s.number > ?2 AND NOT EXISTS (SELECT 1 FROM audit WHERE seq >= s.first AND seq < n.first)) "
		"ORDER BY s.archive != '', s.number LIMIT 1",
		&row, error);
	if (status)
		return status;
	db_bind_integer(row, 1, clock_wall_ms() - desk->store->audit_keep_ms);
	db_bind_integer(row, 2, desk->unprunable);
	enum db_code code = db_step(row);
	if (code == DB_ROW) {
		const char *key = db_text(row, 2);
		const char *certificate = db_text(row, 3);
		due->segment = (struct journal_segment){.number = (uint64_t)db_integer(row, 0),
							.first = (uint64_t)db_integer(row, 1)};
		due->end = (uint64_t)db_integer(row, 4);
		const char *archive = db_text(row, 5);
		snprintf(due->archive, sizeof due->archive, "%s", archive ? archive : "");
		*prune = due->archive[0] != 0;
		snprintf(due->certificate, sizeof due->certificate, "%s", certificate ? certificate : "");
		due->segment.certificate = due->certificate[0] ? due->certificate : NULL;
		if (note_key_parse(&due->segment.key, key ? key : ""))
			status = error_set(error, STATUS_UNAVAILABLE, "its key is not one");
		else if (strchr(due->archive, '/'))
			status = error_set(error, STATUS_UNAVAILABLE, "its archive's name is not one");
	} else {
		status = code == DB_DONE ? STATUS_NOT_FOUND : db_fault(desk->db, error);
	}
	db_finalize(row);
	return status;
}

// Prunes one archive; false: none is due, or it failed.
static bool keep_one(struct audit_desk *desk, struct due *due)
{
	struct error error = {.status = STATUS_OK};
	bool prune = false;
	struct audit_mark *mark = calloc(1, sizeof *mark);
	enum status status = mark ? find_due(desk, due, &prune, &error) : STATUS_OUT_OF_MEMORY;
	if (!status)
		status = write_archive(desk, due, prune, mark, &error);
	if (status && status != STATUS_NOT_FOUND && status != STATUS_PENDING)
		log_warning("audit", "segment %" PRIu64 " of the log stays where it is: %s", due->segment.number,
			    error.message[0] ? error.message : status_text(status));
	if (status) {
		free(mark);
		desk->retry = status != STATUS_NOT_FOUND;
		if (status == STATUS_NOT_FOUND)
			desk->unprunable = -1; // tried again when it looks next
		else if (prune && status != STATUS_PENDING)
			desk->unprunable = (int64_t)due->segment.number; // those behind it are not held up
		return false;
	}
	if (!prune)
		log_info("audit", "segment %" PRIu64 " of the log is archived in %s", mark->number, mark->archive);
	struct store *store = desk->store;
	pthread_mutex_lock(&store->lock);
	struct audit_mark **end = &store->marks;
	while (*end)
		end = &(*end)->next;
	*end = mark;
	pthread_cond_signal(&store->work);
	pthread_mutex_unlock(&store->lock);
	return true;
}

void audit_keep(struct audit_desk *desk)
{
	struct due *due = calloc(1, sizeof *due);
	int64_t unprunable;
	do { // one that cannot be pruned does not hold up the next; after one that is done the store thread calls again
		unprunable = desk->unprunable;
		desk->retry = false;
	} while (due && !keep_one(desk, due) && desk->unprunable > unprunable);
	free(due);
}

// ---- turns ----

static bool open_desk(struct audit_desk *desk, struct error *error)
{
	if (desk->db)
		return true;
	const struct db_params params = {
		.directory = desk->store->directory, .url = desk->store->url, .read_only = true};
	enum status status = db_open(&desk->db, &params, error);
	if (!status)
		status = audit_tree_init(&desk->tree, desk->db, error);
	if (status)
		db_close(&desk->db);
	return !status;
}

static void answer(struct audit_desk *desk, struct audit_job *job)
{
	job->error = (struct error){.status = STATUS_OK};
	if (!open_desk(desk, &job->error)) {
		job->status = job->error.status;
	} else {
		switch (job->kind) {
		case AUDIT_JOB_LIST:
			audit_list(desk, job);
			break;
		case AUDIT_JOB_PROVE:
			audit_prove(desk, job);
			break;
		case AUDIT_JOB_VERIFY:
			audit_verify(desk, job);
			break;
		case AUDIT_JOB_ROTATE: // the store thread's
			break;
		}
	}
	audit_job_post(job);
}

static struct audit_job *take_job(struct audit_desk *desk)
{
	struct audit_job *job = desk->first;
	if (job) {
		desk->first = job->next;
		if (!desk->first)
			desk->last = NULL;
		desk->waiting--;
	}
	return job;
}

// Under the lock.
static void wait_for_job(struct audit_desk *desk)
{
	int64_t until = clock_steady_ms() + (desk->retry ? RETRY_MS : LOOK_MS);
	struct timespec time = {.tv_sec = until / 1000, .tv_nsec = (long)(until % 1000) * 1000000};
	if (!desk->keeper)
		pthread_cond_wait(&desk->wake, &desk->store->lock);
	else if (pthread_cond_timedwait(&desk->wake, &desk->store->lock, &time))
		desk->look = true;
}

void *audit_desk_main(void *argument)
{
	struct audit_desk *desk = argument;
	struct store *store = desk->store;
	struct error error = {.status = STATUS_OK};
	pthread_mutex_lock(&store->lock);
	while (!atomic_load(&store->reader_stop)) {
		struct audit_job *job = take_job(desk);
		// An archive is a file of one server's: where several take turns, the entries stay in the database.
		bool look = !job && desk->look && !store->marks && !store->share_key;
		if (!job && !look) {
			wait_for_job(desk);
			continue;
		}
		desk->look = desk->look && !look;
		pthread_mutex_unlock(&store->lock);
		if (job)
			answer(desk, job);
		else if (open_desk(desk, &error))
			audit_keep(desk);
		pthread_mutex_lock(&store->lock);
	}
	pthread_mutex_unlock(&store->lock);
	archive_index_destroy(&desk->index);
	archive_index_destroy(&desk->telling);
	audit_tree_finish(&desk->tree);
	db_close(&desk->db);
	return NULL;
}
