/* Lines by the Unix socket of this machine's workers. The node dials it for each, says whose it is, and hands it over:
 * what comes after is the worker's own. See inside.h. */
#include "server/tenants/inside.h"

#include <stdio.h>
#include <stdlib.h>

struct unix_line {
	struct line line; // first
	struct net_stream *stream;
	struct arrival *arrival;
};

static enum status line_send(struct line *line, const struct net_parts *message)
{
	return net_stream_send(((struct unix_line *)line)->stream, message->head, message->head_bytes, message->holder,
			       message->body, message->body_bytes);
}

static size_t line_queued(const struct line *line)
{
	return net_stream_queued(((const struct unix_line *)line)->stream);
}

static void line_pause(struct line *line)
{
	net_stream_pause(((struct unix_line *)line)->stream);
}

static void line_resume(struct line *line)
{
	net_stream_resume(((struct unix_line *)line)->stream);
}

static int line_take_fd(struct line *line)
{
	return net_stream_take_fd(((struct unix_line *)line)->stream);
}

static void line_destroy(struct line **pointer)
{
	struct unix_line *line = (struct unix_line *)*pointer;
	*pointer = NULL;
	net_stream_destroy(&line->stream);
	free(line);
}

static void *accepted(void *context, struct net_stream *stream)
{
	struct unix_line *line = calloc(1, sizeof(*line));
	if (!line)
		return NULL;
	line->line = (struct line){.send = line_send,
				   .queued = line_queued,
				   .pause = line_pause,
				   .resume = line_resume,
				   .take_fd = line_take_fd,
				   .destroy = line_destroy};
	line->stream = stream;
	line->arrival = arrival_create(context, &line->line, "", false);
	if (line->arrival)
		return line;
	free(line);
	return NULL;
}

static void on_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
		       struct net_frame *body)
{
	struct unix_line *line = user;
	(void)stream;
	arrival_message(line->arrival, &(struct net_parts){.head = head,
							   .head_bytes = head_bytes,
							   .body = body ? net_frame_data(body) : NULL,
							   .body_bytes = body ? net_frame_bytes(body) : 0,
							   .holder = body});
}

static void on_drained(void *user, struct net_stream *stream)
{
	(void)stream;
	arrival_drained(((struct unix_line *)user)->arrival);
}

static void on_closed(void *user, struct net_stream *stream, const char *why)
{
	struct unix_line *line = user;
	(void)stream;
	arrival_closed(line->arrival, why);
	free(line);
}

static const struct net_stream_handler handler = {.message = on_message, .drained = on_drained, .closed = on_closed};

enum status stream_unix_listen(struct tenancy *tenants, struct error *error)
{
	char path[4096];
	int length = snprintf(path, sizeof path, "%s/%s", tenants->params.directory, NET_STREAM_SOCKET);
	if (length < 0 || (size_t)length >= sizeof path)
		return error_set(error, STATUS_INVALID_PARAMS, "the data directory's path is too long");
	const struct net_stream_listener_params params = {
		.socket_path = path, .handler = &handler, .accepted = accepted, .context = tenants};
	return net_stream_listen(&tenants->listener, tenants->params.loop, &params, error);
}
