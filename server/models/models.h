/* The models that this cluster knows: files, where they come from, and what is in them.
 *
 * A model is a row of state.db and a file: one that was given by its path stays where it is, one that was fetched lies
 * in DATA/models/ID.gguf. Fetching, hashing and reading of files happen on the fetcher's threads; what they find comes
 * back to the loop. A download that a stop of the server cut off goes on at the next start. Every change is committed
 * with its audit entry before it is told, and then published on the topic placement. Thread: the loop's. Owns the
 * records; a pointer to one is good until its removal, which a hold puts off. */
#pragma once
#include "engine/model/model.h"
#include "server/cluster/events.h"
#include "server/security/audit.h"
#include "server/store/store.h"

struct models;

enum { MODEL_ID_BYTES = 32, MODEL_NAME_BYTES = 129, MODEL_SOURCE_BYTES = 2049, MODEL_PATH_BYTES = 4097 };

enum model_state { MODEL_ADDING, MODEL_READY, MODEL_FAILED, MODEL_MISSING };

struct model_record {
	char model_id[MODEL_ID_BYTES];
	char name[MODEL_NAME_BYTES]; // unique; what /v1/models calls it
	char source[MODEL_SOURCE_BYTES], path[MODEL_PATH_BYTES];
	enum model_state state;
	char state_reason[256];
	int64_t added_ms;
	uint64_t file_bytes;
	char sha256[65]; // "" until it is known
	// MODEL_READY and MODEL_MISSING:
	struct model_shape shape;
	struct model_sizes sizes;
	char chat_template[33]; // "" if none was recognised
	unsigned holds;         // instances
};

struct models_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	struct events *events;
	const char *directory; // the server's data directory
};
enum status models_create(struct models **out, const struct models_params *params, struct error *error);
void models_destroy(struct models **models); // downloads stop; what is there of them stays

// By id, or by name. NULL if there is none.
const struct model_record *models_find(const struct models *models, const char *id_or_name);
const struct model_record *models_at(const struct models *models, size_t index); // newest first; NULL past the last
struct json *models_record_json(const struct models *models, const struct model_record *record); // schema's Model
// While it is held a model is not removed. Errors of hold: STATUS_CONFLICT (not ready, saying why; the file is gone or
// has changed: it is MODEL_MISSING from then on).
enum status models_hold(struct models *models, const struct model_record *record, struct error *error);
void models_release(struct models *models, const struct model_record *record);
