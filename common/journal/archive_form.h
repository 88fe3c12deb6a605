/* The binary form of archives (drawn in archive.h) and its limits, shared by the writer and the reader. Only they
 * include this file. */
#pragma once
#include "common/journal/archive.h"

#define ARCHIVE_MAGIC "EXOAUDIT"
#define ARCHIVE_NAME "audit-%" PRIu64 "-%" PRIu64 ".exoaudit"

enum {
	ARCHIVE_VERSION = 1,
	ARCHIVE_BEGIN_BYTES = 8 + 4 + 4,
	ARCHIVE_HEAD_BYTES = 8 + 8 + 4 + NOTE_KEY_TEXT_BYTES + 4 + NOTE_BYTES + TREE_LEVELS * TREE_HASH_BYTES,
	ARCHIVE_RECORD_BYTES = 1 + 4, // of its kind and length
	ARCHIVE_LARGEST_RECORD = 16384,
};

_Static_assert((int)ARCHIVE_LARGEST_RECORD >= (int)NOTE_BYTES && (int)ARCHIVE_LARGEST_RECORD >= (int)ENTRY_BYTES,
	       "every record fits");

static inline size_t archive_largest(enum archive_record kind)
{
	switch (kind) {
	case ARCHIVE_ENTRY:
		return ENTRY_BYTES;
	case ARCHIVE_LEAF:
		return TREE_HASH_BYTES;
	case ARCHIVE_CHECKPOINT:
		return NOTE_BYTES;
	case ARCHIVE_UNKNOWN:
		break;
	}
	return 0;
}

static inline enum status archive_append_u64(struct buffer *bytes, uint64_t value)
{
	buffer_append_u32le(bytes, (uint32_t)value);
	return buffer_append_u32le(bytes, (uint32_t)(value >> 32));
}

static inline uint64_t archive_read(const uint8_t *bytes, unsigned size)
{
	uint64_t value = 0;
	while (size-- > 0)
		value = value << 8 | bytes[size];
	return value;
}
