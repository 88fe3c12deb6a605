/* Looks into the header of a model file, also of one that is still being fetched. Thread: any that may wait for the
 * disk. */
#pragma once
#include "engine/model/gguf.h"

#include <sys/types.h>

// Look into an open file of this many bytes. `look` sees the whole of it at
// `bytes`, of which only the beginning was read, with all of the header.
struct model_header {
	const char *path;
	int fd;
	uint64_t bytes;
	uint64_t there; // from the beginning on, of a file that is being fetched; else `bytes`
	enum status (*look)(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error);
	void *context;
};
// Errors: STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY, STATUS_LIMIT_EXCEEDED (a header of more than
// LIMIT_MODEL_HEADER_BYTES), those of gguf_parse_beginning (STATUS_PENDING where `there` has not all of the header),
// and those of `look`.
enum status model_header_read(const struct model_header *header, struct error *error);
// Whether this is a model that is computed here, as far as its header tells. Errors: as above, and those of model_open.
enum status model_header_judge(const char *path, int fd, uint64_t bytes, uint64_t there, struct error *error);

// The error of a read() of this file that gave `length`, 0 or less.
enum status model_file_error(const char *path, ssize_t length, struct error *error);
