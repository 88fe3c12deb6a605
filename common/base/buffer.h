/* A growing run of bytes with a maximum.
 *
 * Invariants: data[length] is always 0 once anything was appended, so text can be read as a C string; length never
 * passes `maximum`; after a failed append the buffer is unchanged and `failed` stays true until buffer_clear, so a
 * chain of appends needs one check at its end. Thread: its owner's. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct buffer {
	uint8_t *data;
	size_t length, capacity, maximum;
	bool failed;
};

void buffer_init(struct buffer *buffer, size_t maximum);
void buffer_finish(struct buffer *buffer); // frees; the buffer may be initialised again
void buffer_clear(struct buffer *buffer);  // length 0, keeps the memory

// Errors: STATUS_LIMIT_EXCEEDED past the maximum, STATUS_OUT_OF_MEMORY.
enum status buffer_reserve(struct buffer *buffer, size_t more);
enum status buffer_append(struct buffer *buffer, const void *bytes, size_t length);
enum status buffer_append_text(struct buffer *buffer, const char *text);
enum status buffer_append_byte(struct buffer *buffer, uint8_t byte);
enum status buffer_append_u32le(struct buffer *buffer, uint32_t value);
enum status buffer_printf(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Drop the first `length` bytes; length <= buffer->length.
void buffer_consume(struct buffer *buffer, size_t length);
// A copy of bytes as text, with a 0 behind it. NULL if out of memory; the caller frees it.
char *buffer_copy_text(const void *bytes, size_t length);
// The bytes as text; "" for an empty buffer.
const char *buffer_text(const struct buffer *buffer);
