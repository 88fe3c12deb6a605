/* Model files are read on a thread of their own: a downloaded file is hashed, looked into, and moved to its place, one
 * file after the other in the order of requests. Thread: the loop's, for every function and callback here, where
 * nothing else is said. */
#pragma once
#include "common/work/outbox.h"
#include "engine/model/model.h"
#include "server/hub/sampling.h"

struct reading;

enum { READING_PATH_BYTES = 4097, READING_ID_BYTES = 32 };

struct reading_request {
	const char *model_id, *path;
	// For a download: the file is hashed, compared with `sha256` ("": not compared) and, if all is well, moved to
	// `place` and synced. NULL: the file stays where it is.
	const char *place, *sha256;
	const struct sampling_words *sampling; // what was recommended beside the file; NULL: nothing
	// Of a model in `parts` files, which are put together at `place`: by their paths, `path` being the first, or
	// those that were fetched for `place` (fetch_part_file) with the digests that they should have; else 0 and
	// NULL.
	unsigned parts;
	const char (*part_sha256s)[65]; // (parts)
	bool folder;                    // `path` is a directory of safetensors, which is converted at `place`
	bool fetched;      // of a folder: it is fetch_folder_path()'s for `place`; `path` is what errors call it
	const char *title; // of one that was fetched: what the model is called
	bool hash;         // the digest alone is wanted, of a file that was looked into before
};

struct reading_result {
	char model_id[READING_ID_BYTES];
	enum status status; // and then only the error is to be read
	struct error error;
	bool hashed_only; // `hash` was asked for
	bool unusable;    // with an error: the file is not what it should be, or no model that is computed here
	char sha256[65];  // "": it was not hashed
	uint64_t bytes;
	int64_t modified_ns;
	struct model_shape shape;
	struct model_sizes sizes;
	char file_format[16]; // that most bytes of the file are in, by its own name
	char chat_template[33];
	struct sampling_words sampling; // that the model's authors recommend
};

struct reading_progress {
	char model_id[READING_ID_BYTES];
	bool converting; // safetensors; else it is hashed, or put together
	uint64_t done_bytes, total_bytes;
};

// Whether a draft model's file has the tokens of the model's, as the worker asks before it uses it. Files that cannot
// be read now are not judged. Thread: any but the loop's, which it would keep. Errors: STATUS_INVALID_PARAMS, with the
// first difference.
enum status reading_same_tokens(const char *model_path, const char *draft_path, struct error *error);

struct reading_params {
	struct net_loop *loop;
	struct outbox *outbox; // for progress
	void (*progress)(void *context, const struct reading_progress *progress);
	void (*done)(void *context, const struct reading_result *result);
	void *context;
};
enum status reading_create(struct reading **out, const struct reading_params *params, struct error *error);
void reading_stop(struct reading *reading);     // soon; what waits is left
void reading_destroy(struct reading **reading); // before the outbox
// Errors: STATUS_OUT_OF_MEMORY.
enum status reading_ask(struct reading *reading, const struct reading_request *request, struct error *error);
// Ends the callbacks for this model; deletes `path` (NULL: nothing) once it is not being read.
void reading_forget(struct reading *reading, const char *model_id, const char *path);
// Whether there is a directory at `path`.
bool reading_is_folder(const char *path);
// Read what the file at `path` is now. False: there is no such file.
bool reading_look(const char *path, uint64_t *bytes, int64_t *modified_ns);
