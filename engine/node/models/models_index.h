/* The index of a model file in the node's cache: its pieces, each with its SHA-256, in the order of the file.
 *
 *     0         8            16            24                                    24 + 48 * pieces
 *     +---------+------------+-------------+-------------------------------------+-------------------+
 *     | "XGMODEL1" | file bytes | pieces   | of each: offset, bytes, SHA-256     | SHA-256 of it all |
 *     +---------+------------+-------------+-------------------------------------+-------------------+
 *
 * Numbers are u64 little-endian. Pieces do not overlap and are LIMIT_MODEL_PIECE_BYTES at most. A malformed index
 * counts as missing. It is replaced as a whole, without fsync: a piece that it names and that was never written is
 * found by its SHA-256. Thread: any, one at a time. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { MODEL_SHA256_BYTES = 32 };

struct model_span {
	uint64_t offset, bytes;
};

struct model_piece {
	struct model_span at;
	uint8_t sha256[MODEL_SHA256_BYTES];
	bool checked; // since the node started; not in the file
};

struct model_index {
	uint64_t file_bytes;
	struct model_piece *pieces; // (count), by offset
	size_t count, capacity;
};

// Errors: STATUS_NOT_FOUND (there is no index, or it is malformed), STATUS_OUT_OF_MEMORY.
enum status model_index_read(struct model_index *index, const char *path, struct error *error);
// Errors: STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status model_index_write(const struct model_index *index, const char *path, struct error *error);
void model_index_finish(struct model_index *index);
// The piece must not overlap the present ones. Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status model_index_add(struct model_index *index, const struct model_piece *piece, struct error *error);
void model_index_remove(struct model_index *index, size_t at);
// The first piece that ends after `offset`; `count` if there is none.
size_t model_index_after(const struct model_index *index, uint64_t offset);

// Sort spans and join those that touch; returns how many are left.
size_t model_spans_join(struct model_span *spans, size_t count);
// The first bytes of `span` that no piece has, LIMIT_MODEL_PIECE_BYTES at most; bytes is 0 if there are none.
struct model_span model_index_gap(const struct model_index *index, const struct model_span *span);
