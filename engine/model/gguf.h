/* Model files: GGUF versions 2 and 3, little-endian.
 *
 * The whole of a file is checked when it is opened: counts, lengths, types, offsets and sizes of everything, names that
 * stand twice, tensors that overlap or end outside. After that every pointer that this hands out is good; where the
 * file has become shorter meanwhile there are zeros, and gguf_cut() tells (mapping.h). Texts are bytes of the file, not
 * terminated, and may hold anything. Thread: any once it is open; nothing changes. */
#pragma once
#include "engine/model/packing.h"

#include <stdbool.h>

struct gguf;

enum { GGUF_DIMENSIONS = 4, GGUF_NAME_BYTES = 64 };

struct gguf_tensor {
	char name[GGUF_NAME_BYTES + 1];
	enum tensor_format format;   // FORMAT_UNKNOWN: one that this does not know; `type` says which
	uint32_t type;               // its number in the file
	enum tensor_packing packing; // not PACKING_NONE: the format in the file; `format` is the one it is converted to
	uint32_t dimension_count;
	uint64_t size[GGUF_DIMENSIONS]; // the fastest first: columns, rows; 1 beyond dimension_count
	const uint8_t *data;            // (bytes); NULL for FORMAT_UNKNOWN
	uint64_t bytes;                 // in the file
};

// Map the file; `fd` is not needed afterwards. Errors: STATUS_INVALID_PARAMS (the fault and its place in the file),
// STATUS_UNAVAILABLE (the file cannot be read), STATUS_LIMIT_EXCEEDED (too many tensors or keys), STATUS_OUT_OF_MEMORY.
enum status gguf_open(struct gguf **out, int fd, struct error *error);
// The same over memory, which must outlive it.
enum status gguf_parse(struct gguf **out, const uint8_t *bytes, size_t length, struct error *error);
// The same if only the first `there` bytes of the file can be read, because it is still being downloaded. The checks
// are those of the whole file. Errors: also STATUS_PENDING (the header is longer than `there`).
enum status gguf_parse_beginning(struct gguf **out, const uint8_t *bytes, size_t there, size_t length,
				 struct error *error);
void gguf_destroy(struct gguf **gguf);

size_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, size_t index);   // in the file's order
const struct gguf_tensor *gguf_find(const struct gguf *gguf, const char *name); // NULL if there is none
// Whether the bytes of the tensor can be read. All can, unless only the beginning of the file was parsed.
bool gguf_holds(const struct gguf *gguf, const struct gguf_tensor *tensor);
uint64_t gguf_bytes(const struct gguf *gguf); // of the file
bool gguf_cut(const struct gguf *gguf);       // something of the file could not be read since it was opened

// ---- metadata; each is false, and leaves *out alone, if the key is not there or holds something else ----

struct gguf_text {
	const char *bytes; // (length), not terminated
	uint64_t length;
};
bool gguf_get_count(const struct gguf *gguf, const char *key, uint64_t *out); // any integer that is not negative
bool gguf_get_number(const struct gguf *gguf, const char *key, double *out);  // any number
bool gguf_get_bool(const struct gguf *gguf, const char *key, bool *out);
bool gguf_get_text(const struct gguf *gguf, const char *key, struct gguf_text *out);

// Key `index` of all: its name, and the whole of it as it lies in the file.
size_t gguf_key_count(const struct gguf *gguf);
void gguf_key(const struct gguf *gguf, size_t index, struct gguf_text *name, struct gguf_text *whole);

// Arrays: of texts, or of numbers. An index beyond is the caller's mistake.
bool gguf_get_array(const struct gguf *gguf, const char *key, uint64_t *length);
// Texts in order, from the first: *cursor is 0 at first and moves on; false at the end, or if it holds something else.
bool gguf_next_text(const struct gguf *gguf, const char *key, uint64_t *cursor, struct gguf_text *out);
bool gguf_array_number(const struct gguf *gguf, const char *key, uint64_t index, double *out);
