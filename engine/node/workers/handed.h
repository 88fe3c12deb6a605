/* Descriptors that a worker gets besides its socket: the stream to the server and, for a model instance, the model's
 * file and the sockets of a ring. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "engine/node/models/models.h"

#include <sys/un.h>

// -1: nothing. Descriptors, owned.
struct handed {
	int stream, model, ring_in, ring_out, draft;
};

void handed_close(const struct handed *handed);
// Dial the server's socket for workers and say whose stream this is: worker_id and key of `given`.
// Errors: STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status handed_connect(const struct sockaddr_un *stream, const struct json *given, int *out, struct error *error);

struct handed_from {
	struct node_models *models;
	bool elsewhere; // the server is on another machine: it names no files of this one
};
// For a model instance: open its file and that of its draft model, if it has one, here, because its worker has no
// access to files; else -1. A symbolic link at the end of the path is not followed, and anything but a regular file is
// refused without blocking.
enum status handed_open_models(const struct handed_from *from, const struct json *given, struct handed *out,
			       struct error *error);
