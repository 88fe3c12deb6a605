/* See buffer.h. Growth doubles, so that n appends cost O(n). */
#include "common/base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_init(struct buffer *buffer, size_t maximum)
{
	*buffer = (struct buffer){.maximum = maximum};
}

void buffer_finish(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){.maximum = buffer->maximum};
}

void buffer_clear(struct buffer *buffer)
{
	buffer->length = 0;
	buffer->failed = false;
	if (buffer->data)
		buffer->data[0] = 0;
}

enum status buffer_reserve(struct buffer *buffer, size_t more)
{
	if (buffer->failed || more > buffer->maximum || buffer->length > buffer->maximum - more) {
		buffer->failed = true;
		return STATUS_LIMIT_EXCEEDED;
	}
	size_t need = buffer->length + more + 1;
	if (need <= buffer->capacity)
		return STATUS_OK;
	size_t capacity = buffer->capacity ? buffer->capacity : 64;
	while (capacity < need)
		capacity *= 2;
	uint8_t *data = realloc(buffer->data, capacity);
	if (!data) {
		buffer->failed = true;
		return STATUS_OUT_OF_MEMORY;
	}
	buffer->data = data;
	buffer->capacity = capacity;
	return STATUS_OK;
}

enum status buffer_append(struct buffer *buffer, const void *bytes, size_t length)
{
	enum status status = buffer_reserve(buffer, length);
	if (status)
		return status;
	if (length)
		memcpy(buffer->data + buffer->length, bytes, length);
	buffer->length += length;
	buffer->data[buffer->length] = 0;
	return STATUS_OK;
}

enum status buffer_append_text(struct buffer *buffer, const char *text)
{
	return buffer_append(buffer, text, strlen(text));
}

enum status buffer_append_byte(struct buffer *buffer, uint8_t byte)
{
	return buffer_append(buffer, &byte, 1);
}

enum status buffer_append_u32le(struct buffer *buffer, uint32_t value)
{
	uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
	return buffer_append(buffer, bytes, sizeof bytes);
}

enum status buffer_printf(struct buffer *buffer, const char *format, ...)
{
	size_t room = buffer->capacity - buffer->length;
	va_list args;
	va_start(args, format);
	int length = vsnprintf(room ? (char *)buffer->data + buffer->length : NULL, room, format, args);
	va_end(args);
	enum status status = length < 0 ? STATUS_INTERNAL : buffer_reserve(buffer, (size_t)length);
	if (status) {
		buffer->failed = true;
		if (room)
			buffer->data[buffer->length] = 0;
		return status;
	}
	if ((size_t)length >= room) { // it did not fit
		va_start(args, format);
		vsnprintf((char *)buffer->data + buffer->length, (size_t)length + 1, format, args);
		va_end(args);
	}
	buffer->length += (size_t)length;
	return STATUS_OK;
}

void buffer_consume(struct buffer *buffer, size_t length)
{
	if (!length)
		return;
	buffer->length -= length;
	memmove(buffer->data, buffer->data + length, buffer->length + 1);
}

const char *buffer_text(const struct buffer *buffer)
{
	return buffer->data ? (const char *)buffer->data : "";
}

char *buffer_copy_text(const void *bytes, size_t length)
{
	char *text = malloc(length + 1);
	if (!text)
		return NULL;
	memcpy(text, bytes, length);
	text[length] = 0;
	return text;
}
