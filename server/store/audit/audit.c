/* The audit log's part of store.h, on the loop thread. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/store/audit/ledger.h"
#include "server/store/inside.h"
#include "server/store/place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void store_listen_audit(struct store *store, void (*entry)(void *context, const struct journal_entry *entry),
			void *context)
{
	store->audit_entry = entry;
	store->audit_context = context;
}

void store_read_audit_head(struct store *store, struct store_audit_head *head)
{
	pthread_mutex_lock(&store->lock);
	store->shown_head = store->head;
	pthread_mutex_unlock(&store->lock);
	*head = (struct store_audit_head){
		.checkpoint = store->shown_head.checkpoint,
		.note = store->shown_head.note,
		.key = store->shown_head.key,
		.first_key = store->shown_head.first_key,
		.segment = store->shown_head.segment,
	};
}

static enum status push_bound(void *context, const char *subject, const struct tree_hash *digest)
{
	char kind[BOUND_SUBJECT_BYTES], hex[2 * TREE_HASH_BYTES + 1];
	const size_t length = strcspn(subject, " ");
	struct json *row = json_new_object();
	snprintf(kind, sizeof kind, "%.*s", (int)length, subject);
	for (size_t i = 0; digest && i < TREE_HASH_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest->bytes[i]);
	json_set_string(row, "kind", kind);
	json_set_string(row, "id", subject + length + 1);
	json_set_string(row, "sha256", digest ? hex : NULL);
	json_push(context, row);
	return STATUS_OK;
}

struct json *store_audit_json(const struct journal_entry *entry)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object(), *detail = NULL;
	const struct {
		const char *name, *text;
		bool nullable; // null instead of ""
	} texts[] = {
		{"actor", entry->actor, false},          {"actor_name", entry->actor_name, false},
		{"session_id", entry->session_id, true}, {"peer", entry->peer, false},
		{"action", entry->action, false},        {"target", entry->target, false},
		{"node_id", entry->node_id, true},       {"device_id", entry->device_id, true},
		{"outcome", entry->outcome, false},
	};
	json_set_integer(json, "seq", (int64_t)entry->seq);
	json_set_string(json, "at", clock_format(entry->at_us / 1000, at));
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		const char *text = texts[i].text ? texts[i].text : "";
		json_set_string(json, texts[i].name, texts[i].nullable && !text[0] ? NULL : text);
	}
	json_set_integer(json, "count", (int64_t)entry->count);
	json_set(json, "duration_ms",
		 entry->duration_us ? json_new_number((double)entry->duration_us / 1000) : json_new_null());
	if (entry->detail && entry->detail[0])
		json_parse(&detail, entry->detail, strlen(entry->detail), NULL);
	if (json_type(detail) != JSON_OBJECT)
		json_destroy(&detail);
	json_set(json, "detail", detail ? detail : json_new_object());
	struct json *rows = json_new_array();
	bound_read(entry->bound ? entry->bound : "", push_bound, rows); // what follows a line that is none is left out
	json_set(json, "bound", rows);
	return json;
}

// ---- questions ----

static enum status ask(struct store *store, struct audit_job **pointer, store_audit_done *done, void *context)
{
	struct audit_job *job = *pointer;
	*pointer = NULL;
	job->store = store;
	job->done = done;
	job->context = context;
	struct audit_desk *desk = &store->desks[job->kind == AUDIT_JOB_VERIFY];
	enum status status = STATUS_OK;
	pthread_mutex_lock(&store->lock);
	if (desk->waiting >= LIMIT_STORE_QUERIES) {
		status = STATUS_LIMIT_EXCEEDED;
	} else {
		if (desk->last)
			desk->last->next = job;
		else
			desk->first = job;
		desk->last = job;
		desk->waiting++;
		pthread_cond_signal(&desk->wake);
	}
	pthread_mutex_unlock(&store->lock);
	if (status)
		audit_job_destroy(&job);
	return status;
}

static struct audit_job *new_job(enum audit_job_kind kind)
{
	struct audit_job *job = calloc(1, sizeof *job);
	if (job)
		job->kind = kind;
	return job;
}

enum status store_list_audit(struct store *store, const struct store_audit_filter *filter, store_audit_done *done,
			     void *context)
{
	struct audit_job *job = new_job(AUDIT_JOB_LIST);
	if (!job)
		return STATUS_OUT_OF_MEMORY;
	job->filter = *filter;
	const char **const texts[] = {&job->filter.actor, &job->filter.action, &job->filter.device_id,
				      &job->filter.outcome, &job->filter.text};
	size_t used = 0;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		if (!*texts[i])
			continue;
		size_t length = strlen(*texts[i]) + 1;
		if (length > sizeof job->texts - used) {
			audit_job_destroy(&job);
			return STATUS_INVALID_PARAMS;
		}
		*texts[i] = memcpy(job->texts + used, *texts[i], length);
		used += length;
	}
	return ask(store, &job, done, context);
}

enum status store_prove_audit(struct store *store, uint64_t from, uint64_t to, store_audit_done *done, void *context)
{
	struct audit_job *job = new_job(AUDIT_JOB_PROVE);
	if (!job)
		return STATUS_OUT_OF_MEMORY;
	job->from = from;
	job->to = to;
	return ask(store, &job, done, context);
}

// Copies the parameters of a verification into its job.
static enum status take_memories(struct audit_job *job, const struct store_audit_memory *memories, size_t count)
{
	job->memories = json_new_array();
	for (size_t i = 0; i < count; i++) {
		char who[JOURNAL_WHO_BYTES];
		struct json *one = json_new_object();
		snprintf(who, sizeof who, "node %.64s (%.80s)", memories[i].name, memories[i].node_id);
		json_set_string(one, "note", memories[i].note);
		json_set_string(one, "who", who);
		json_push(job->memories, one);
	}
	return json_count(job->memories) == count ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status store_verify_audit(struct store *store, const struct store_audit_memory *memories, size_t count,
			       store_audit_done *done, void *context)
{
	if (store->verifying)
		return STATUS_CONFLICT;
	struct audit_job *job = new_job(AUDIT_JOB_VERIFY);
	if (!job || take_memories(job, memories, count)) {
		audit_job_destroy(&job);
		return STATUS_OUT_OF_MEMORY;
	}
	enum status status = ask(store, &job, done, context);
	store->verifying = !status;
	return status;
}

enum status store_rotate_audit(struct store *store, store_audit_done *done, void *context)
{
	struct audit_job *job = new_job(AUDIT_JOB_ROTATE);
	if (!job)
		return STATUS_OUT_OF_MEMORY;
	job->store = store;
	job->done = done;
	job->context = context;
	pthread_mutex_lock(&store->lock);
	job->next = store->rotations;
	store->rotations = job;
	pthread_cond_signal(&store->work);
	pthread_mutex_unlock(&store->lock);
	return STATUS_OK;
}

// ---- offline ----

static void read_key(struct db *db, const char *sql, struct note_key *key, uint64_t *number)
{
	struct db_statement *row = NULL;
	if (!db_prepare(db, sql, &row, NULL) && db_step(row) == DB_ROW && db_text(row, 0)) {
		if (note_key_parse(key, db_text(row, 0)))
			*key = (struct note_key){.algorithm = NOTE_UNKNOWN};
		*number = (uint64_t)db_integer(row, 1);
	}
	db_finalize(row);
}

struct beginning {
	struct db *db;
	const struct store_offline_params *params;
};

// The newest head, for what it is worth: nothing of it was verified.
static void tell_head(void *context)
{
	struct db *db = ((struct beginning *)context)->db;
	const struct store_offline_params *params = ((struct beginning *)context)->params;
	struct store_audit_head head = {.note = ""};
	struct error ignored = {.status = STATUS_OK};
	struct db_statement *row = NULL;
	uint64_t zero;
	read_key(db, "SELECT key, number FROM audit_segments ORDER BY number LIMIT 1", &head.first_key, &zero);
	read_key(db, "SELECT key, number FROM audit_segments ORDER BY number DESC LIMIT 1", &head.key, &head.segment);
	if (!db_prepare(db, "SELECT note FROM audit_checkpoints ORDER BY size DESC LIMIT 1", &row, NULL) &&
	    db_step(row) == DB_ROW && db_text(row, 0) && !checkpoint_parse(&head.checkpoint, db_text(row, 0), &ignored))
		head.note = db_text(row, 0);
	params->begin(params->context, &head);
	db_finalize(row);
}

enum status store_audit_offline(const struct store_offline_params *params, struct error *error)
{
	char archives[4200], url[PLACE_BYTES];
	struct db *db = NULL;
	snprintf(archives, sizeof archives, "%.4096s/" JOURNAL_FOLDER, params->directory);
	enum status status = place_read(params->directory, url, error);
	if (!status)
		status = db_open(&db,
				 &(struct db_params){
					 .directory = params->directory, .url = url[0] ? url : NULL, .offline = true},
				 error);
	if (!status && db_run(db, "SELECT 1 FROM audit_segments LIMIT 1", NULL) == STATUS_INTERNAL)
		status = error_set(error, STATUS_NOT_FOUND, "%s has no audit log yet", db->name);
	struct beginning beginning = {.db = db, .params = params};
	const struct ledger ledger = {.db = db,
				      .directory = params->archives ? params->archives : archives,
				      .verifier = params->verifier,
				      .begun = params->begin ? tell_head : NULL,
				      .begun_context = &beginning,
				      .entry = params->entry,
				      .context = params->context};
	if (!status)
		status = ledger_feed(&ledger, error);
	db_close(&db);
	return status;
}
