/* See embedded.h. Its own file, so that what embeds nothing compressed needs no zlib. */
#include "common/files/embedded.h"

#include <stdlib.h>
#include <zlib.h>

enum { GZIP_FOOTER = 8, GZIP_WINDOW = 16 + MAX_WBITS }; // the second: zlib's way to say that a head of gzip's is there

// The last four bytes of a gzip file are the length of what it holds (RFC 1952).
static size_t inflated_length(const struct embedded_file *file)
{
	const uint8_t *end = file->data + file->length;
	if (file->length < GZIP_FOOTER)
		return 0;
	return (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
}

enum status embedded_inflate(const struct embedded_file *file, uint8_t **bytes, size_t *length, struct error *error)
{
	*length = inflated_length(file);
	*bytes = malloc(*length + 1);
	if (!*bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %s", file->name);
	(*bytes)[*length] = 0;
	z_stream stream = {.next_in = (z_const Bytef *)(uintptr_t)file->data,
			   .avail_in = (uInt)file->length,
			   .next_out = *bytes,
			   .avail_out = (uInt)*length};
	int result = inflateInit2(&stream, GZIP_WINDOW);
	if (result == Z_OK) {
		result = inflate(&stream, Z_FINISH);
		inflateEnd(&stream);
	}
	if (result == Z_STREAM_END && !stream.avail_out)
		return STATUS_OK;
	free(*bytes);
	*bytes = NULL;
	return error_set(error, STATUS_INTERNAL, "%s is not whole (zlib: %d)", file->name, result);
}
