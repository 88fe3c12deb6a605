/* See chunked.h. */
#include "common/net/http/chunked.h"

#include "common/base/limits.h"

enum { DIGITS_MOST = 8 };

static int hex_digit(uint8_t byte)
{
	if (byte >= '0' && byte <= '9')
		return byte - '0';
	byte |= 0x20;
	return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static enum status broken(struct error *error, const char *what)
{
	return error_set(error, STATUS_INVALID_REQUEST, "the body is not validly chunked: %s", what);
}

static enum status too_long(const struct buffer *body, struct error *error)
{
	return error_set(error, STATUS_LIMIT_EXCEEDED, "the request exceeds its limit of %zu bytes", body->maximum);
}

static void size_begin(struct chunked *chunked)
{
	chunked->state = CHUNKED_SIZE;
	chunked->digits = 0;
	chunked->left = chunked->line_bytes = 0;
}

// Bytes that a skipped line may contain: text, and no line end except its own.
static bool is_text(uint8_t byte)
{
	return byte == '\t' || (byte >= ' ' && byte != 0x7f);
}

static enum status take_size(struct chunked *chunked, uint8_t byte, struct error *error)
{
	int digit = hex_digit(byte);
	if (digit >= 0 && ++chunked->digits > DIGITS_MOST)
		return broken(error, "a chunk's size has more than 8 digits");
	if (digit >= 0)
		chunked->left = chunked->left << 4 | (size_t)digit;
	else if (!chunked->digits)
		return broken(error, "a chunk begins without its size");
	else if (byte == '\r')
		chunked->state = CHUNKED_SIZE_END;
	else if (byte == ';')
		chunked->state = CHUNKED_EXTENSION;
	else
		return broken(error, "a chunk's size is not hexadecimal");
	return STATUS_OK;
}

static enum status take_line(struct chunked *chunked, uint8_t byte, enum chunked_state end, struct error *error)
{
	if (byte == '\r')
		chunked->state = end;
	else if (!is_text(byte))
		return broken(error, "a line contains an invalid byte");
	return STATUS_OK;
}

static enum status expect(struct chunked *chunked, uint8_t byte, uint8_t wanted, enum chunked_state then,
			  struct error *error)
{
	if (byte != wanted)
		return broken(error, "a chunk does not end where its size says, or a line without CR LF");
	chunked->state = then;
	return STATUS_OK;
}

// Parses everything except data.
static enum status take_byte(struct chunked *chunked, uint8_t byte, struct error *error)
{
	enum status status;
	switch (chunked->state) {
	case CHUNKED_SIZE:
		return take_size(chunked, byte, error);
	case CHUNKED_EXTENSION:
		return take_line(chunked, byte, CHUNKED_SIZE_END, error);
	case CHUNKED_SIZE_END:
		status = expect(chunked, byte, '\n', chunked->left ? CHUNKED_DATA : CHUNKED_TRAILER, error);
		chunked->line_bytes = 0;
		return status;
	case CHUNKED_DATA_CR:
		return expect(chunked, byte, '\r', CHUNKED_DATA_LF, error);
	case CHUNKED_DATA_LF:
		size_begin(chunked);
		return expect(chunked, byte, '\n', CHUNKED_SIZE, error);
	case CHUNKED_TRAILER:
		chunked->line_bytes = 1;
		if (byte == '\r')
			return expect(chunked, byte, '\r', CHUNKED_LAST_LF, error);
		chunked->state = CHUNKED_TRAILER_IN;
		return take_line(chunked, byte, CHUNKED_TRAILER_END, error);
	case CHUNKED_TRAILER_IN:
		return take_line(chunked, byte, CHUNKED_TRAILER_END, error);
	case CHUNKED_TRAILER_END:
		return expect(chunked, byte, '\n', CHUNKED_TRAILER, error);
	case CHUNKED_LAST_LF:
		return expect(chunked, byte, '\n', CHUNKED_OVER, error);
	case CHUNKED_DATA:
	case CHUNKED_OVER:
		break;
	}
	return STATUS_INTERNAL;
}

static enum status take_data(struct chunked *chunked, const uint8_t *bytes, size_t length, struct buffer *body,
			     struct error *error)
{
	if (length > body->maximum - body->length)
		return too_long(body, error);
	if (buffer_append(body, bytes, length))
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	chunked->left -= length;
	if (!chunked->left)
		chunked->state = CHUNKED_DATA_CR;
	return STATUS_OK;
}

enum status chunked_take(struct chunked *chunked, const uint8_t *bytes, size_t length, struct buffer *body,
			 size_t *taken, struct error *error)
{
	enum status status = STATUS_OK;
	size_t at = 0;
	while (!status && at < length && chunked->state != CHUNKED_OVER) {
		if (chunked->state == CHUNKED_DATA) {
			size_t now = length - at < chunked->left ? length - at : chunked->left;
			status = take_data(chunked, bytes + at, now, body, error);
			at += now;
			continue;
		}
		if (++chunked->line_bytes > LIMIT_CHUNK_LINE_BYTES ||
		    ++chunked->frame_bytes > LIMIT_CHUNK_FRAME_BYTES + 8 * body->length)
			status = error_set(error, STATUS_LIMIT_EXCEEDED,
					   "the body's chunk extensions or trailers are too long");
		else
			status = take_byte(chunked, bytes[at++], error);
		// A size that cannot be is refused before its bytes come.
		if (!status && chunked->state == CHUNKED_DATA && chunked->left > body->maximum - body->length)
			status = too_long(body, error);
	}
	*taken = at;
	return status;
}
