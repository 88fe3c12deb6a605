/* The one message: a JSON-RPC 2.0 object with an optional binary body.
 *
 * As bytes, in a WebSocket binary frame, and, after a u32 total, on a stream (socket pair, direct link):
 *
 *     0        4                    4 + head             end
 *     +--------+--------------------+--------------------+
 *     | head   | JSON-RPC object    | body               |     all lengths u32 little-endian
 *     +--------+--------------------+--------------------+
 *
 * A WebSocket text frame is the head alone. Limits: LIMIT_HEAD_BYTES, LIMIT_BODY_BYTES, LIMIT_NESTING.
 * A message owns its head's tree; the body points into the bytes that were decoded and lives as long as they do.
 * Thread: any; no shared state. */
#pragma once
#include "common/json/json.h"

enum message_kind { MESSAGE_UNKNOWN, MESSAGE_REQUEST, MESSAGE_NOTIFICATION, MESSAGE_RESULT, MESSAGE_ERROR };

struct message {
	enum message_kind kind;
	struct json *head;
	const struct json *id;     // string or integer; NULL for a notification, JSON null for an error without one
	const char *method;        // requests and notifications
	const struct json *params; // object, or NULL
	const struct json *result; // MESSAGE_RESULT
	const struct json *error;  // MESSAGE_ERROR: {code, message, data?}
	const uint8_t *body;       // (body_bytes), NULL without one
	size_t body_bytes;
};

// Decode a text frame (the head alone) or a binary frame (head length, head, body).
// Errors: STATUS_PARSE_ERROR, STATUS_LIMIT_EXCEEDED, STATUS_INVALID_REQUEST (JSON, but no JSON-RPC 2.0 message; then
// message->id may be set and is to be answered). The message is to be finished in every case.
enum status message_decode_text(struct message *message, const char *text, size_t length, struct error *error);
enum status message_decode(struct message *message, const uint8_t *bytes, size_t length, struct error *error);
// The same of a head that has been parsed; it is the message's from here on.
enum status message_take(struct message *message, struct json *head, struct error *error);
void message_finish(struct message *message);
// A message of its own with the same head, for who keeps a call beyond its decoding. No body.
void message_copy_head(struct message *out, const struct message *message);

// Append the bytes of a binary frame. `head` is the printed JSON-RPC object. Errors: those of buffer_append.
enum status message_encode(struct buffer *out, const char *head, size_t head_bytes, const void *body,
			   size_t body_bytes);
// The same, preceded by the u32 total that streams need.
enum status message_encode_stream(struct buffer *out, const char *head, size_t head_bytes, const void *body,
				  size_t body_bytes);

// Take one message's bytes off a stream: if `in` begins with a whole one, *frame points at it (without the total),
// *frame_bytes is its length and *used what to buffer_consume afterwards; else *used is 0.
// Errors: STATUS_LIMIT_EXCEEDED for a total over LIMIT_WORKER_MESSAGE_BYTES or under 4.
enum status message_next(const struct buffer *in, const uint8_t **frame, size_t *frame_bytes, size_t *used);
// How many bytes at least are missing until message_next can say more; 0 if it can now.
size_t message_left(const struct buffer *in);

// Print a head. `params`/`result` are taken. `id` is copied; NULL makes a notification, or a null id in an error.
enum status message_print_call(struct buffer *out, const struct json *id, const char *method, struct json *params);
enum status message_print_result(struct buffer *out, const struct json *id, struct json *result);
enum status message_print_error(struct buffer *out, const struct json *id, const struct error *error);
// The same with more members of its `data`, an object (taken) or NULL.
enum status message_print_error_with(struct buffer *out, const struct json *id, const struct error *error,
				     struct json *data);
// The same of params and of a result that are nothing but integers, without making a tree of them.
struct message_number {
	const char *name;
	int64_t value;
};
enum status message_print_call_of(struct buffer *out, int64_t id, const char *method,
				  const struct message_number *params, size_t count);
enum status message_print_result_of(struct buffer *out, const struct json *id, const struct message_number *result,
				    size_t count);
// Read what an error answer says back into *error.
void message_read_error(const struct message *message, struct error *error);
