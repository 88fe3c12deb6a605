/* The inside of the registry, for models*.c: records with what is kept beside them, and changes that are being stored.
 *
 *   models.c        the records: finding, holding, removing, and the changes of state.db
 *   models_add.c    a new record
 *   models_work.c   what becomes of a record that is being added: fetched, then read, then ready or failed
 *   models_upload.c models whose files clients send
 *   models_search.c questions to both hubs
 *   models_json.c   a record as the API and state.db have it
 *
 * A change is worked out, committed with its entry of the audit log, and applied and published after that.
 * Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "server/hub/fetch.h"
#include "server/hub/source.h"
#include "server/library/browse.h"
#include "server/library/models.h"
#include "server/library/reading.h"
#include "server/library/uploads.h"

enum model_step { STEP_WAITING, STEP_FINDING, STEP_DOWNLOADING, STEP_UPLOADING, STEP_VERIFYING, STEP_CONVERTING };

struct model {
	struct model_record record; // first member
	enum source_kind kind;
	char *request; // what is asked for, with a query that may be a secret; NULL where that is the source's text
	int64_t modified_ns;
	bool saved;    // in state.db; until then nobody sees it
	bool removing; // nobody may hold it any more
	bool working;  // a thread has something to do with it
	// MODEL_DOWNLOADING
	enum model_step step;
	uint64_t done_bytes, total_bytes; // total 0: not known
	double bytes_per_s;               // negative: not known
	unsigned connections, retries;
	char why[200];                // why this file was picked; ""
	char mark[UPLOAD_MARK_BYTES]; // of an upload: which file it is; "" until that is known
	int64_t came_ns, came_bytes;  // of one: when and where its speed was reckoned last
	int64_t told_ns;              // when progress was published last
};

// models_json.c: of an event about models, whose `masked` has them as anybody sees them; and one so.
extern const struct event_view models_view;
struct json *models_masked_json(const struct models *models, const struct model_record *record);

struct models {
	struct models_params params;
	char directory[4000];            // where files of downloads lie
	struct model *all[LIMIT_MODELS]; // oldest first
	size_t count;
	struct model_change *changes; // being stored
	struct outbox *outbox;
	struct reading *reading;
	struct fetcher *fetcher;
	struct uploads *uploads;
	struct browse *browse;
	struct models_question *questions; // searches under way
	unsigned question_count;
	bool stopping;
	models_look *look_room; // NULL: nobody knows what is free
	void *look_context;
};

// Something that is being stored: what it is to become of the model, and who waits.
struct model_change {
	struct model_change *next, **link;
	struct models *models;
	struct model *model;
	void (*apply)(struct model_change *change, enum status status, const struct error *error);
	struct model_record becomes; // where the record changes
	int64_t modified_ns;
	// Whose this is: one of the two, or neither. Of these only `done` and `context` are kept.
	struct models_add add;
	struct models_remove remove;
	char *access_token, *request; // of `add`
	uint64_t freed_bytes;
};

// models.c
struct model *models_by_id(const struct models *models, const char *model_id); // saved ones alone
// Store `becomes` in the place of the model's record, with an entry; `apply` is called once. Errors: the store's, and
// then it is not.
struct model_change *model_change_create(struct models *models, struct model *model);
enum status model_change_commit(struct model_change **change, const struct audit_event *event, struct error *error);
void model_change_destroy(struct model_change **change);
void models_publish(struct models *models, const struct model *model);
void models_drop(struct models *models, struct model *model);       // out of the list; it is freed
bool models_is_ours(const struct models *models, const char *path); // in the folder of downloads
void model_secret_free(char *text);                                 // NULL: nothing
void models_look_room(const struct models *models, struct models_room *room);

// models_add.c
struct model *models_of_source(const struct models *models, const struct source *source); // NULL: there is none
// models_add of a source that has been read, and may be an upload's.
enum status models_add_source(struct models *models, const struct models_add *add, const struct source *source,
			      const struct model_record **there, struct error *error);

// models_upload.c
// Take up what is there of it, or begin.
void model_upload_start(struct models *models, struct model *model);

// models_work.c
void model_work_start(struct models *models, struct model *model, const char *access_token);
void model_work_stop(struct models *models, struct model *model, bool delete_file); // nothing more comes of it
void models_work_hashed(void *models, const struct reading_progress *progress);
void models_work_picked(void *models, const char *model_id, const struct source *source, const char *why);
void models_work_progress(void *models, const struct fetch_progress *progress);
void models_work_fetched(void *models, const struct fetch_result *result);
void models_work_read(void *models, const struct reading_result *result);

// It has failed, for good.
void model_work_fail(struct models *models, struct model *model, const struct error *why);
// Publish how far it is, now and then.
void model_work_tell(struct models *models, struct model *model);
// All of it is there: read it.
void model_work_verify(struct models *models, struct model *model, const struct reading_request *request);
void model_work_hash(struct models *models, const struct model *model); // if that is not known, beside other work

// models_search.c
void models_end_searches(struct models *models); // all are answered now

// models_json.c
const char *model_state_name(enum model_state state);
struct json *model_architecture_json(const struct model_record *record);
// The same with what the API does not show, for state.db, and back. False: it is not what this program wrote.
struct json *model_kept_json(const struct model_record *record);
bool model_kept_parse(const char *text, struct model_record *record);
