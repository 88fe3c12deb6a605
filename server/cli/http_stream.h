/* Sends one HTTP request to a server and gives its answer line by line as it comes: for `exogpu run`.
 *
 * Blocking, on a connection of its own: a program that is interrupted closes it, and that cancels what it asked for.
 * Whose word is taken for a server reached by TLS is trust.h's. Thread: its owner's. */
#pragma once
#include "common/base/buffer.h"
#include "server/cli/target.h"

struct http_stream;

// Send a POST and read the answer's head. Errors: STATUS_UNAVAILABLE (not reached, not trusted, or what answers does
// not speak HTTP/1.1), STATUS_TIMEOUT (its TLS handshake does not end), STATUS_OUT_OF_MEMORY.
enum status http_stream_post(struct http_stream **out, const struct target *target, const char *path,
			     const struct buffer *body, struct error *error);
void http_stream_close(struct http_stream **stream);
int http_stream_status(const struct http_stream *stream);
// The next line of the body, without its end; false once there is none. Errors: STATUS_UNAVAILABLE (it broke off, or
// its chunks are none), STATUS_LIMIT_EXCEEDED (longer than `line` takes).
enum status http_stream_line(struct http_stream *stream, struct buffer *line, bool *any, struct error *error);
