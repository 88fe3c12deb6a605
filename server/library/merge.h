/* Joins the files of a split model (`-00001-of-00003.gguf`, as llama.cpp's gguf-split
 * writes them) into one. The first file has the metadata, each has some of the tensors,
 * and keys give its number and their count. The files are inspected one after the other,
 * then written as one file: the metadata without these keys, and all tensors in the order
 * of the files. The result is byte by byte what was split. Thread: any that may wait for
 * the disk. */
#pragma once
#include "engine/model/gguf.h"

struct merge;

// Prepares to join `count` files. Errors: STATUS_OUT_OF_MEMORY.
enum status merge_create(struct merge **out, unsigned count, struct error *error);
void merge_destroy(struct merge **merge);
// Look into the next piece: the callback of model_header_read, with the merge as its context. Errors:
// STATUS_INVALID_PARAMS (it is another piece, or one of another model; a tensor too many), STATUS_UNAVAILABLE (a tensor
// in a format that is not computed here), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status merge_look(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error);

struct merge_write {
	int to; // an empty file
	// Open piece `number`, from 1 on, for reading; closed by the callee. Pieces come in order.
	enum status (*open)(void *context, unsigned number, int *fd, struct error *error);
	// So many bytes are written. False: give up.
	bool (*progress)(void *context, uint64_t done_bytes);
	void *context;
};
// Once all pieces were looked into. Errors: STATUS_INVALID_PARAMS (tensors are missing), STATUS_LIMIT_EXCEEDED (the
// disk has no room), STATUS_UNAVAILABLE (a file cannot be read or written; it was given up), those of `open`.
enum status merge_write(const struct merge *merge, const struct merge_write *write, struct error *error);
