/* Fuzz target: an HTTP answer as `exogpu run` reads it from a server: head, chunks, lines.
 *
 * The first byte says in what pieces the rest comes. The socket is not there: connect, send and recv are this file's.
 * What is read does not depend on the pieces, and ends. */
#include "common/base/limits.h"
#include "server/cli/http_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags);

static struct {
	const uint8_t *data;
	size_t left, piece;
	uint64_t hash;
	size_t lines;
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
	(void)fd, (void)address, (void)length;
	return 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
	(void)fd, (void)bytes, (void)flags;
	return (ssize_t)length;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags)
{
	(void)fd, (void)flags;
	size_t now = world.left < world.piece ? world.left : world.piece;
	now = now < length ? now : length;
	memcpy(bytes, world.data, now);
	world.data += now;
	world.left -= now;
	return (ssize_t)now;
}

static void read_lines(struct http_stream *stream, struct error *error)
{
	struct buffer line;
	bool any = true;
	buffer_init(&line, 4096);
	while (!http_stream_line(stream, &line, &any, error) && any) {
		world.lines++;
		for (size_t i = 0; i < line.length; i++)
			world.hash = world.hash * 1099511628211u + line.data[i];
	}
	require(!error->message[0] || error->status);
	buffer_finish(&line);
}

static enum status read_answer(const uint8_t *data, size_t size, size_t piece)
{
	static const struct target target = {.socket_path = "/nowhere", .name = "the server"};
	struct http_stream *stream = NULL;
	struct error error = {0};
	struct buffer body;
	world.data = data;
	world.left = size;
	world.piece = piece;
	world.hash = world.lines = 0;
	buffer_init(&body, 16);
	buffer_append_text(&body, "{}");
	enum status status = http_stream_post(&stream, &target, "/v1/completions", &body, &error);
	require(!status == !!stream && !status == !error.message[0]);
	if (stream) {
		world.hash = (uint64_t)http_stream_status(stream);
		read_lines(stream, &error);
		status = error.status;
	}
	http_stream_close(&stream);
	buffer_finish(&body);
	return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	const enum status whole = read_answer(data + 1, size - 1, size);
	const uint64_t hash = world.hash;
	const size_t lines = world.lines;
	require(read_answer(data + 1, size - 1, 1u + data[0]) == whole && world.hash == hash && world.lines == lines);
	return 0;
}
