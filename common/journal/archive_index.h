/* Reads entries from the middle of an archive without reading those before them.
 * A first pass reads the headers of all records and stores the position of every
 * ARCHIVE_BLOCK-th; after that, each block is one read. Nothing is trusted:
 * lengths and kinds are checked in the first pass and again in the block. The
 * caller must check that an entry belongs to the log, by the hash of its leaf
 * from another source. Memory: 8 bytes for each block, and the largest block
 * that was read, at most ARCHIVE_BLOCK_BYTES. Thread: its owner's; blocks on the
 * disk. */
#pragma once
#include "common/journal/archive.h"

#include <stdatomic.h>

enum { ARCHIVE_BLOCK = 256, ARCHIVE_BLOCK_BYTES = 5 * 1024 * 1024 };

struct archive_index;
struct archive_part {             // of a block
	enum archive_record kind; // ARCHIVE_ENTRY or ARCHIVE_LEAF
	const uint8_t *bytes;     // valid until the next block is read
	size_t length;
};
// The archive of entries first to end - 1. One that ends too early or in another form is read as far as it goes.
// Errors: STATUS_NOT_FOUND (no such file), STATUS_UNAVAILABLE (it cannot be read, or *stop), STATUS_OUT_OF_MEMORY.
enum status archive_index_create(struct archive_index **out, const char *directory, uint64_t first, uint64_t end,
				 const atomic_bool *stop, struct error *error);
void archive_index_destroy(struct archive_index **index);
// Whether it is of this archive, and the file is still the one that was looked through.
bool archive_index_fits(const struct archive_index *index, const char *directory, uint64_t first, uint64_t end);
// How many of its entries it keeps by their hashes alone, as far as it can be read.
uint64_t archive_index_leaves(const struct archive_index *index);
// The records of entries `place` * ARCHIVE_BLOCK and on: those that are in the archive, *from being the first of them.
// Errors: STATUS_UNAVAILABLE (the disk; the file is not what it was), STATUS_OUT_OF_MEMORY. count 0: the archive has
// none of them.
enum status archive_index_read(struct archive_index *index, uint64_t place, struct archive_part parts[ARCHIVE_BLOCK],
			       uint64_t *from, size_t *count, struct error *error);
