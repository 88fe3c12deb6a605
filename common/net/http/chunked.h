/* Decodes a chunked request body (RFC 9112, 7.1) byte by byte as it arrives. The
 * content goes into a buffer, whose limit bounds it. Everything around the content is
 * bounded too: each line, and all lines together in proportion to the body, so that
 * extensions and trailers, which are ignored, keep nobody busy. Lines end with CR LF
 * only, because two parsers could disagree about any other end. Thread: any; one at a
 * time. */
#pragma once
#include "common/base/buffer.h"
#include "common/base/status.h"

enum chunked_state {
	CHUNKED_SIZE,        // its digits
	CHUNKED_EXTENSION,   // behind them, to the end of the line
	CHUNKED_SIZE_END,    // LF
	CHUNKED_DATA,        // `left` bytes
	CHUNKED_DATA_CR,     // behind them
	CHUNKED_DATA_LF,     //
	CHUNKED_TRAILER,     // the beginning of a line behind the last chunk
	CHUNKED_TRAILER_IN,  // in the middle of one
	CHUNKED_TRAILER_END, // LF
	CHUNKED_LAST_LF,     // of the empty line
	CHUNKED_OVER,
};

struct chunked { // begins as zeros
	enum chunked_state state;
	unsigned digits;   // of this chunk's size
	size_t left;       // of this chunk
	size_t line_bytes; // of this line
	size_t frame_bytes;
};

// Take bytes, append what they carry to `body`, and say in *taken how many belong to this body: all, unless it is over
// (state CHUNKED_OVER). Errors: STATUS_INVALID_REQUEST (not chunks, with what is wrong), STATUS_LIMIT_EXCEEDED (the
// body, or what is put around it, is too long), STATUS_OUT_OF_MEMORY; then the rest cannot be read.
enum status chunked_take(struct chunked *chunked, const uint8_t *bytes, size_t length, struct buffer *body,
			 size_t *taken, struct error *error);
