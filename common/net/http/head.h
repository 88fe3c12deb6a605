/* Parses the header of an HTTP/1.1 request (RFC 9112) strictly, byte by byte as it arrives.
 * If two programs parse one header differently, they see one request as two (request
 * smuggling). So everything ambiguous is refused and ends the connection: a line that does
 * not end with CR LF, a folded line, white space around a name, a control character, two
 * lengths of a body or one that is not a plain number, a repeated header that must be
 * unique, a target that is not a path. One empty line before the request is skipped.
 * Nothing is allocated; HEAD_BYTES and HEAD_FIELDS are the limits. Pure. Thread: any; one
 * at a time. */
#pragma once
#include "common/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HEAD_BYTES = LIMIT_HTTP_HEADERS_BYTES, HEAD_FIELDS = 100 };
enum head_method { HEAD_OTHER, HEAD_GET, HEAD_HEAD, HEAD_POST, HEAD_OPTIONS };
enum head_result { HEAD_MORE, HEAD_WHOLE, HEAD_REFUSED };

struct head_text {
	uint16_t at, length; // in head.text
};
struct head_field {
	struct head_text name, value; // name: in lower case; value: without white space around it
};

struct head {
	int state;
	bool begun;         // an empty line before it was passed over
	size_t read;        // bytes, in all
	size_t text_length; // of `text`
	unsigned version_at;
	size_t field_count;
	struct head_text method_text, target;
	// Once it is whole:
	enum head_method method;
	bool http_11;
	bool close;       // the connection is to end with the answer
	bool upgrade;     // to a WebSocket
	bool says_length; // of its body, by one of two headers
	bool has_body;
	bool chunked;      // in chunks
	bool expects;      // 100-continue
	size_t body_bytes; // of one that is not in chunks; 0 without one; SIZE_MAX - 1 where it is too long to count
	// Once it is refused: the status of HTTP, what is wrong, and what to do.
	int status;
	const char *message, *hint;
	struct head_field fields[HEAD_FIELDS]; // (field_count)
	char text[HEAD_BYTES];                 // (text_length), from here on not initialised
};

void head_begin(struct head *head);
// Take bytes, and say in *taken how many of them belong to the head. After HEAD_WHOLE and HEAD_REFUSED it takes none.
enum head_result head_take(struct head *head, const uint8_t *bytes, size_t length, size_t *taken);

// The value of a header (name in lower case) as text; of one that stands there more than once, all, with ", " between
// them; "" without one. False, and HEAD_TOO_LONG, if it does not fit.
#define HEAD_TOO_LONG "\x01"
bool head_copy(const struct head *head, const char *name, char *out, size_t size);
// The path, without a query, percent-decoded, each run of slashes as one. False, and HEAD_TOO_LONG, if it does not fit.
bool head_path(const struct head *head, char *out, size_t size);
// Whether a list of words (a header's value) has this one, whatever its case.
bool head_lists(const struct head *head, const char *name, const char *word);
