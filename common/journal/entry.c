/* See entry.h. */
#include "common/journal/entry.h"

#include <string.h>

enum { VERSION = 1, VERSION_BOUND = 2, HEAD_BYTES = 1 + 4 * 8 };

static enum status append_u64(struct buffer *bytes, uint64_t value)
{
	buffer_append_u32le(bytes, (uint32_t)value);
	return buffer_append_u32le(bytes, (uint32_t)(value >> 32));
}

static enum status append_text(struct buffer *bytes, const char *text)
{
	size_t length = text ? strnlen(text, ENTRY_TEXT_BYTES + 1) : 0;
	if (length > ENTRY_TEXT_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	buffer_append_u32le(bytes, (uint32_t)length);
	return buffer_append(bytes, text, length);
}

enum status entry_encode(const struct journal_entry *entry, struct buffer *bytes)
{
	const char *const texts[ENTRY_TEXTS + 1] = {
#define X(name) entry->name,
		ENTRY_TEXT_LIST(X)
#undef X
			entry->bound,
	};
	size_t before = bytes->length;
	buffer_append_byte(bytes, entry->bound ? VERSION_BOUND : VERSION);
	append_u64(bytes, entry->seq);
	append_u64(bytes, (uint64_t)entry->at_us);
	append_u64(bytes, (uint64_t)entry->duration_us);
	enum status status = append_u64(bytes, entry->count);
	if (entry->bound)
		status = append_u64(bytes, entry->bound_before);
	for (unsigned i = 0; !status && i < ENTRY_TEXTS + (unsigned)(entry->bound != NULL); i++)
		status = append_text(bytes, texts[i]);
	if (!status && bytes->length - before > ENTRY_BYTES)
		status = STATUS_LIMIT_EXCEEDED;
	return status;
}

static uint64_t read_number(const uint8_t *bytes, unsigned size)
{
	uint64_t value = 0;
	while (size-- > 0)
		value = value << 8 | bytes[size];
	return value;
}

enum status entry_decode(struct journal_entry *entry, const uint8_t *bytes, size_t length, char texts[ENTRY_BYTES])
{
	const char **const fields[ENTRY_TEXTS + 1] = {
#define X(name) &entry->name,
		ENTRY_TEXT_LIST(X)
#undef X
			& entry->bound,
	};
	const bool bound = length && bytes[0] == VERSION_BOUND;
	if (length < HEAD_BYTES + 8 * (size_t)bound || length > ENTRY_BYTES || (bytes[0] != VERSION && !bound))
		return STATUS_INVALID_PARAMS;
	entry->seq = read_number(bytes + 1, 8);
	entry->at_us = (int64_t)read_number(bytes + 9, 8);
	entry->duration_us = (int64_t)read_number(bytes + 17, 8);
	entry->count = read_number(bytes + 25, 8);
	entry->bound = NULL;
	entry->bound_before = bound ? read_number(bytes + HEAD_BYTES, 8) : ENTRY_NONE;
	size_t at = HEAD_BYTES + 8 * (size_t)bound;
	for (unsigned i = 0; i < ENTRY_TEXTS + (unsigned)bound; i++) {
		if (length - at < 4)
			return STATUS_INVALID_PARAMS;
		uint64_t size = read_number(bytes + at, 4);
		at += 4;
		if (size > ENTRY_TEXT_BYTES || size > length - at || (size && memchr(bytes + at, 0, size)))
			return STATUS_INVALID_PARAMS;
		*fields[i] = texts;
		if (size)
			memcpy(texts, bytes + at, size);
		texts[size] = 0;
		texts += size + 1; // 4 bytes of length each leave room for their ends
		at += size;
	}
	return at == length ? STATUS_OK : STATUS_INVALID_PARAMS;
}
