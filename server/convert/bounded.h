/* Reading files of a model's directory, each with a maximum: whole ones as text or as JSON, and pieces of large ones.
 * Nothing in them is trusted. Thread: any that may wait for the disk. */
#pragma once
#include "common/json/json.h"

// What a directory that is converted may have, at most.
enum {
	CONVERT_TENSORS = 131072,               // each expert has its own
	CONVERT_JSON_BYTES = 64 * 1024 * 1024,  // of tokenizer.json, of a header of safetensors, of an index
	CONVERT_CONFIG_BYTES = 8 * 1024 * 1024, // of another file of JSON
	CONVERT_VALUES = 3 * 1024 * 1024,       // of tokenizer.json or a header: Gemma's tokenizer.json has 1.8 million
	CONVERT_CONFIG_VALUES = 256 * 1024,     // of another one
};

// JSON with at most `values` values, so that the tree has a maximum. Errors: those of json_parse (as
// STATUS_INVALID_PARAMS), STATUS_LIMIT_EXCEEDED.
enum status bounded_parse(struct json **out, const char *text, size_t length, size_t values, struct error *error);
// `length` bytes of an open file from `at` on. Errors: STATUS_UNAVAILABLE.
enum status bounded_read(int fd, uint8_t *bytes, size_t length, uint64_t at, struct error *error);

// Open directory/name: a regular file, of `*bytes` bytes. Errors: STATUS_NOT_FOUND (there is none, without a message),
// STATUS_UNAVAILABLE, STATUS_INVALID_PARAMS; by name.
enum status bounded_open(const char *directory, const char *name, int *fd, uint64_t *bytes, struct error *error);
// The whole of it, as text or as JSON, if it has at most `most` bytes. *out stays NULL, or empty, where there is none.
// Errors: as before without STATUS_NOT_FOUND; STATUS_LIMIT_EXCEEDED; those of bounded_parse; by name.
enum status bounded_text(const char *directory, const char *name, struct buffer *out, struct error *error);
enum status bounded_json(const char *directory, const char *name, size_t most, size_t values, struct json **out,
			 struct error *error);
