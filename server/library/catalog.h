/* The catalogue: models that are offered for download, by name. They stand in a file: catalog/models.json, which is
 * part of the binary, or one that `exogpu serve --catalog` names. It is checked as a whole, against catalog/schema.json
 * and for what a schema cannot say: an entry is of an architecture that is computed, no value is without its source.
 * Nothing changes afterwards. Thread: any, after catalog_create. */
#pragma once
#include "common/json/json.h"
#include "engine/model/model.h"
#include "server/hub/source.h"

struct catalog;

struct catalog_entry {
	const struct json *json;        // as in the file, checked
	char source[SOURCE_TEXT_BYTES]; // hf:OWNER/NAME@COMMIT/FILE, as a model's record has it
	uint64_t bytes;                 // 0: it could not be read
	// Whether a placement can be predicted: geometry and bytes are known. Then:
	bool predictable;
	struct model_shape shape;
	struct model_sizes sizes; // estimates
};

// `path`: a file; NULL: the one in the binary. Errors, naming the entry: STATUS_NOT_FOUND (no such file),
// STATUS_INVALID_PARAMS, STATUS_PARSE_ERROR, STATUS_OUT_OF_MEMORY.
enum status catalog_create(struct catalog **out, const char *path, struct error *error);
void catalog_destroy(struct catalog **catalog);
// In the file's order; NULL past the last.
const struct catalog_entry *catalog_at(const struct catalog *catalog, size_t index);
// Names of the values that could not be read: an array for the caller.
struct json *catalog_unverified(const struct catalog_entry *entry);

// Check a text as catalog_create does.
enum status catalog_read(struct catalog **out, const char *text, size_t length, struct error *error);
