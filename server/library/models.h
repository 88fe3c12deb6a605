/* The models that this cluster knows: files, their sources, and their content. A model is a
 * row of state.db and a file. A file that was added by its path stays where it is; a fetched
 * one is DATA/models/ID.gguf. The fetcher's threads fetch, hash and read files and send
 * results to the loop. A download that a stop of the server interrupted continues at the next
 * start. Every change is committed with its audit entry, then published on the topic
 * placement. Thread: the loop's. Owns the records; a pointer to one is valid until its
 * removal, which a hold delays. */
#pragma once
#include "engine/model/model.h"
#include "server/cluster/cluster.h"
#include "server/hub/models_fit.h"
#include "server/hub/sampling.h"

struct models;

enum { MODEL_ID_BYTES = 32, MODEL_NAME_BYTES = 129, MODEL_SOURCE_BYTES = 2049, MODEL_PATH_BYTES = 4097 };

enum model_state { MODEL_DOWNLOADING, MODEL_READY, MODEL_FAILED, MODEL_MISSING };

struct model_record {
	char model_id[MODEL_ID_BYTES];
	char name[MODEL_NAME_BYTES]; // unique; what /v1/models calls it
	char source[MODEL_SOURCE_BYTES], path[MODEL_PATH_BYTES];
	enum model_state state;
	char state_reason[648]; // a message and its hint
	int64_t added_ms;
	uint64_t file_bytes;
	char sha256[65]; // "" until it is known
	// MODEL_READY and MODEL_MISSING. What the shape says of rotary positions is not kept: that is the worker's.
	struct model_shape shape;
	struct model_sizes sizes;
	char file_format[16];           // of most bytes of the file; sizes.main_format is how they are held
	char chat_template[33];         // "" if none was recognised
	struct sampling_words sampling; // that the model's authors recommend
	unsigned holds;                 // instances
};

struct models_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	struct events *events;
	const char *directory; // the server's data directory
	// Where Hugging Face and Ollama are, if not where everybody has them; NULL. What these name may be a private
	// address and plain HTTP.
	const char *hub_url, *ollama_url;
	const char *const *directories; // in which an admin may look for files, ending with NULL
};
enum status models_create(struct models **out, const struct models_params *params, struct error *error);
// A callback that says how much room there is for a model that is picked or found. Without one the room is unknown.
typedef void models_look(void *context, struct models_room *room);
void models_watch_room(struct models *models, models_look *look, void *context);
void models_shut_down(struct models *models); // what waits for an answer gets it; the threads end soon
void models_destroy(struct models **models);  // downloads stop; what is there of them stays

// By id, or by name. NULL if there is none.
const struct model_record *models_find(const struct models *models, const char *id_or_name);
const struct model_record *models_at(const struct models *models, size_t index); // newest first; NULL past the last
struct json *models_record_json(const struct models *models, const struct model_record *record); // schema's Model
// An array of them, as an admin sees them; or anybody, who does not learn paths and hosts, and what became of them.
struct json *models_list_json(const struct models *models, bool admin);
// Its state_reason as anybody may have it; "": there is none.
const char *models_why(const struct model_record *record);
// While it is held a model is not removed. Errors of hold: STATUS_CONFLICT (not ready, saying why; the file is gone or
// has changed: it is MODEL_MISSING from then on).
enum status models_hold(struct models *models, const struct model_record *record, struct error *error);
void models_release(struct models *models, const struct model_record *record);

// ---- for the API ----

struct models_add {
	const char *source, *name, *access_token; // name, access_token: may be NULL
	uint64_t file_bytes;                      // 0: not known yet
	const struct audit_actor *by;             // read before this returns
	// Called once the record is on disk, after models_add returned STATUS_PENDING.
	void (*done)(void *context, enum status status, const struct model_record *record, const struct error *error);
	void *context;
};
// STATUS_OK: *there already is one of this source. One that failed, or whose file is missing, begins again. Errors:
// STATUS_INVALID_PARAMS (no source, or no name), STATUS_CONFLICT (the name is another one's), STATUS_LIMIT_EXCEEDED.
enum status models_add(struct models *models, const struct models_add *add, const struct model_record **there,
		       struct error *error);

struct models_remove {
	const char *model_id;
	const struct audit_actor *by;
	void (*done)(void *context, enum status status, uint64_t freed_bytes, const struct error *error);
	void *context;
};
// Errors at once, and then `done` is not called: STATUS_NOT_FOUND, STATUS_CONFLICT (it is held, or being removed).
enum status models_remove(struct models *models, const struct models_remove *remove, struct error *error);

// ---- uploads: models_upload.c ----

// How far it is.
struct models_uploaded {
	const struct model_record *record;
	int64_t done_bytes, next_offset; // next_offset: the first byte that is missing; the file's length: none
};
// `uploaded` NULL: an error.
typedef void models_told(void *context, const struct models_uploaded *uploaded, const struct error *error);
struct models_upload {
	const char *file, *name;    // the file's name, without a folder; name: the model's, may be NULL
	int64_t bytes, modified_ms; // modified_ms: when the file was changed last; negative: not known
	const struct audit_actor *by;
	models_told *done;
	void *context;
};
// Begin an upload, or go on with that of the same file. STATUS_OK: `done` is called, here and below. Errors at once,
// and then it is not: those of models_add; STATUS_CONFLICT (another file of this name is here, or being uploaded),
// STATUS_LIMIT_EXCEEDED (LIMIT_UPLOADS, or no room on the disk).
enum status models_upload_begin(struct models *models, const struct models_upload *upload, struct error *error);
struct models_piece {
	const char *model_id;
	int64_t offset;
	const uint8_t *bytes; // (length)
	size_t length;
	struct net_frame *holder; // that they lie in; NULL: elsewhere
	const char *sha256;       // of the piece, in small digits; "": not known
	models_told *done;
	void *context;
};
// Errors: STATUS_NOT_FOUND (no such upload), STATUS_INVALID_PARAMS (beyond the file's end), STATUS_LIMIT_EXCEEDED.
enum status models_upload_write(struct models *models, const struct models_piece *piece, struct error *error);
struct models_upload_end {
	const char *model_id, *sha256; // sha256: of the whole file, in the same way
	models_told *done;
	void *context;
};
// All was sent: the file is hashed and read, as a download is.
enum status models_upload_end(struct models *models, const struct models_upload_end *end, struct error *error);

// `result`: that of model.browse, which is taken; NULL with an error.
typedef void models_browsed(void *context, struct json *result, const struct error *error);
// What a folder holds, as server/library/browse.h has it. STATUS_OK: `done` is called.
enum status models_browse(struct models *models, const char *dir, models_browsed *done, void *context,
			  struct error *error);

typedef void models_found(void *context, enum status status, struct json *result, const struct error *error);
// Ask both hubs for `text`: `done` gets the result of model.search, which it takes. text NULL: ask only whether they
// answer, which `unreachable` says; who asks while another does gets the same answer. Errors at once, and then it is
// not called: STATUS_RATE_LIMITED (LIMIT_SEARCHES are under way), STATUS_UNAVAILABLE.
enum status models_search(struct models *models, const char *text, models_found *done, void *context,
			  struct error *error);
