/* Where a model comes from, as people write it: a path of a model file or of a directory of safetensors, a URL,
 * hf:owner/repo/file.gguf, hf:owner/repo/model.safetensors, hf:owner/repo, ollama:name:tag; of hf: with @COMMIT behind
 * repo, else of the branch main.
 * The source decides which server is asked for what, so parsing is strict: names use the hubs' letters, paths have no
 * empty or dotted part, a URL has no user in it. Pure. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

enum source_kind {
	SOURCE_UNKNOWN,
	SOURCE_PATH,
	SOURCE_URL,
	SOURCE_HUB_FILE,    // hf:owner/repo/file.gguf
	SOURCE_HUB,         // hf:owner/repo, of which one file is picked
	SOURCE_HUB_WEIGHTS, // hf:owner/repo/model.safetensors, which stands for all that is converted with it
	SOURCE_OLLAMA,
	SOURCE_UPLOAD, // upload:file.gguf, sent by a client
};

enum {
	SOURCE_TEXT_BYTES = 2049,
	SOURCE_PART_BYTES = 130,
	SOURCE_FILE_BYTES = 513,
	SOURCE_NAME_BYTES = 129,
	SOURCE_REVISION_BYTES = 41
};

struct source {
	enum source_kind kind;
	// As it is shown and compared: in one form, and of a URL without its query, which may be a secret.
	char text[SOURCE_TEXT_BYTES];
	char location[SOURCE_TEXT_BYTES];                             // SOURCE_PATH: the path; SOURCE_URL: all of it
	char owner[SOURCE_PART_BYTES], repository[SOURCE_PART_BYTES]; // of a hub; Ollama's own models: "library"
	char revision[SOURCE_REVISION_BYTES]; // of a hub: the commit, in hexadecimal digits; "": the branch main
	char file[SOURCE_FILE_BYTES];         // SOURCE_HUB_FILE, SOURCE_HUB_WEIGHTS, SOURCE_UPLOAD
	char tag[SOURCE_PART_BYTES];          // SOURCE_OLLAMA
	unsigned parts; // files that are one model together, of which this is the first; 0: it is one file
};

// Errors: STATUS_INVALID_PARAMS, with a hint.
enum status source_parse(const char *text, struct source *out, struct error *error);
// "model-00002-of-00003.gguf", one file of several that are a model together: 3, and where its number of five digits
// stands. 0: it is a whole model, or more parts than LIMIT_MODEL_PARTS, or a number beyond.
unsigned source_parts(const char *file, size_t *number_at);
// Part `number`, from 1 on, of a source that has parts.
void source_part(const struct source *first, unsigned number, struct source *out);
// The same of the path of the first part; false: it does not fit.
bool source_part_path(const char *first, unsigned number, char *path, size_t size);
// A file of the repository that hf:owner/repo names. Errors: STATUS_INVALID_PARAMS.
enum status source_pick(const struct source *repository, const char *file, struct source *out, struct error *error);
// The default name of a model of this source: letters, digits, '.', '_', '-' and ':'.
void source_name(const struct source *source, char name[SOURCE_NAME_BYTES]);
// Whether a model may be called so: UTF-8 that can be typed and stands in a URL as one part.
bool source_name_usable(const char *name);
// Append `part` percent-encoded to text[size], slashes kept. False: it does not fit.
bool source_append_encoded(char *text, size_t size, const char *part);
