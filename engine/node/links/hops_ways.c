/* The ways that a hop can take: to another worker of this node, and by a stream to the server, which is a Unix socket
 * on its own machine and a WebSocket on others. That by a direct link is hops_link.c. See hops_inside.h.
 *
 * The server says hop.hello back once the other end is there too, and before anything else; that and our own are the
 * only messages that are looked into. A connection closes some time after it was told to: its hop lives until then. */
#include "common/base/log.h"
#include "common/base/longer.h"
#include "common/wire/message.h"
#include "engine/node/links/hops_inside.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <unistd.h>

enum { CLOSE_PROTOCOL = 1002, CLOSE_ENDED = 4410 }; // 4410 drops what is queued

// ---- two workers of this node ----

static bool meets(const struct hop *one, const struct hop *other)
{
	return other->way == &hop_local && other->end && !other->other && other->end->sends != one->end->sends &&
	       !strcmp(other->hop_id, one->hop_id) && strlen(other->key) == strlen(one->key) &&
	       !CRYPTO_memcmp(other->key, one->key, strlen(one->key));
}

static void local_open(struct hop *hop)
{
	struct hop *other = hop->all->list;
	while (other && !meets(hop, other))
		other = other->next;
	if (!other)
		return;
	hop->other = other;
	other->other = hop;
	hop_opened(hop->end->sends ? hop : other); // first, so that the other one may hold it at once
	hop_opened(hop->end->sends ? other : hop);
}

static enum status local_send(struct hop *hop, const struct net_parts *message)
{
	hop_message(hop->other, message);
	return STATUS_OK;
}

static size_t local_queued(const struct hop *hop)
{
	(void)hop;
	return 0; // what waits does so at the other end, which says when it is too much
}

static void local_pause(struct hop *hop, bool paused)
{
	hop_full(hop->other, paused);
}

static void local_close(struct hop *hop)
{
	struct hop *other = hop->other;
	hop_free(hop);
	if (!other)
		return;
	other->other = NULL;
	hop_ended(other, STATUS_UNAVAILABLE, "the other worker's end was closed");
	hop_free(other);
}

const struct hop_way hop_local = {.name = "local",
				  .open = local_open,
				  .send = local_send,
				  .queued = local_queued,
				  .pause = local_pause,
				  .close = local_close};

// ---- hop.hello ----

static enum status print_hello(const struct hop *hop, struct buffer *head)
{
	struct json *params = json_new_object();
	buffer_init(head, LIMIT_HEAD_BYTES);
	json_set_string(params, "hop_id", hop->hop_id);
	json_set_string(params, "key", hop->key);
	json_set_string(params, "end", hop->end->sends ? "out" : "in");
	return message_print_call(head, NULL, "hop.hello", params);
}

static bool is_hello(const struct hop *hop, const struct net_parts *parts)
{
	struct message message = {0};
	bool is = !message_decode_text(&message, (const char *)parts->head, parts->head_bytes, NULL) &&
		  message.kind == MESSAGE_NOTIFICATION && !strcmp(message.method, "hop.hello") &&
		  !strcmp(json_get_string(message.params, "hop_id", ""), hop->hop_id);
	message_finish(&message);
	return is;
}

static void from_server(struct hop *hop, const struct net_parts *parts)
{
	if (!hop->end)
		return;
	if (hop->open)
		hop_message(hop, parts);
	else if (is_hello(hop, parts))
		hop_opened(hop);
	else
		hop_break(hop, STATUS_INVALID_REQUEST, "the server did not say that the other end is there");
}

// ---- to a server on this machine ----

static void near_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			 struct net_frame *body)
{
	(void)stream;
	from_server(user, &(struct net_parts){.head = head,
					      .head_bytes = head_bytes,
					      .body = body ? net_frame_data(body) : NULL,
					      .body_bytes = body ? net_frame_bytes(body) : 0,
					      .holder = body});
}

static void near_drained(void *user, struct net_stream *stream)
{
	(void)stream;
	hop_full(user, false);
}

static void near_closed(void *user, struct net_stream *stream, const char *why)
{
	struct hop *hop = user;
	(void)stream, (void)why;
	hop->stream = NULL; // it goes when this returns
	hop_ended(hop, STATUS_UNAVAILABLE, "the server has closed it");
	hop_free(hop);
}

static const struct net_stream_handler near_handler = {
	.message = near_message, .drained = near_drained, .closed = near_closed};

static void near_fence(struct hop *hop, bool fenced)
{
	net_stream_hold(hop->stream, fenced);
	if (fenced)
		net_stream_pause(hop->stream);
	else
		net_stream_resume(hop->stream);
}

static enum status near_dial(struct hop *hop, struct error *error)
{
	const struct sockaddr_un *address = &hop->all->server;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address))) {
		int number = errno;
		if (fd >= 0)
			close(fd);
		return error_errno(error, STATUS_UNAVAILABLE, number, "connecting to the server");
	}
	enum status status = net_stream_create(&hop->stream, hop->all->params.loop, fd, &near_handler, hop, error);
	if (status)
		close(fd);
	return status;
}

static void near_open(struct hop *hop)
{
	struct buffer head = {0};
	struct error error = {0};
	enum status status = near_dial(hop, &error);
	if (!status && hop->all->fenced)
		near_fence(hop, true);
	if (!status && (status = print_hello(hop, &head)) == STATUS_OK)
		status = net_stream_send(hop->stream, head.data, head.length, NULL, NULL, 0);
	if (status)
		hop_break(hop, status, error.message[0] ? error.message : status_text(status));
	buffer_finish(&head);
}

static enum status near_send(struct hop *hop, const struct net_parts *message)
{
	return net_stream_send(hop->stream, message->head, message->head_bytes, message->holder, message->body,
			       message->body_bytes);
}

static size_t near_queued(const struct hop *hop)
{
	return net_stream_queued(hop->stream);
}

static void near_pause(struct hop *hop, bool paused)
{
	if (paused)
		net_stream_pause(hop->stream);
	else
		net_stream_resume(hop->stream);
}

static void near_close(struct hop *hop)
{
	net_stream_destroy(&hop->stream);
	hop_free(hop);
}

const struct hop_way hop_server_near = {.name = "server",
					.open = near_open,
					.send = near_send,
					.queued = near_queued,
					.pause = near_pause,
					.fence = near_fence,
					.close = near_close};

// ---- to a server on another machine ----

static void far_fence(struct hop *hop, bool fenced)
{
	if (!hop->conn)
		return;
	net_conn_hold(hop->conn, fenced);
	if (fenced)
		net_conn_pause(hop->conn);
	else
		net_conn_resume(hop->conn);
}

static void far_pause(struct hop *hop, bool paused)
{
	hop->paused = paused;
	if (paused)
		net_conn_pause(hop->conn);
	else
		net_conn_resume(hop->conn);
}

static void far_close(struct hop *hop)
{
	net_timer_stop(hop->all->params.loop, &hop->dialling);
	if (!hop->dialled) {
		hop_free(hop);
		return;
	}
	if (!hop->conn)
		return;  // it is closed when it opens
	if (hop->paused) // or the server's farewell would not be read
		far_pause(hop, false);
	net_conn_close(hop->conn, CLOSE_ENDED, "the hop is over");
}

static void far_opened(void *user, struct net_conn *conn)
{
	struct buffer head;
	struct hop *hop = user;
	hop->conn = conn;
	if (hop->all->fenced)
		far_fence(hop, true);
	if (!hop->end) {
		far_close(hop);
		return;
	}
	enum status status = print_hello(hop, &head);
	if (!status)
		status = net_conn_send_parts(conn, &(struct net_parts){.head = head.data, .head_bytes = head.length});
	if (status)
		hop_break(hop, status, status_text(status));
	buffer_finish(&head);
}

static void far_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct hop *hop = user;
	struct net_parts parts = {0};
	if (!hop->end)
		return;
	enum status status = binary ? net_conn_take_parts(conn, bytes, length, &parts) : STATUS_PARSE_ERROR;
	if (status)
		hop_break(hop, status, "the server sent a malformed message");
	else
		from_server(hop, &parts);
	net_frame_unref(&parts.holder);
}

static void far_drained(void *user, struct net_conn *conn)
{
	(void)conn;
	hop_full(user, false);
}

static void far_closed(void *user, struct net_conn *conn, int code)
{
	struct hop *hop = user;
	(void)code;
	hop->conn = NULL;
	hop_ended(hop, STATUS_UNAVAILABLE,
		  conn ? "the connection to the server that carried it has ended" : NET_NOTHING_ANSWERS);
	hop_free(hop);
}

static const struct net_handler far_handler = {
	.opened = far_opened, .message = far_message, .drained = far_drained, .closed = far_closed};

static void far_dial(void *arg)
{
	struct hop *hop = arg;
	struct error error = {0};
	struct net_dial_params dial = {.path = "/node",
				       .subprotocol = "exogpu.worker.v1",
				       .ping_s = LIMIT_NODE_PING_S,
				       .silence_s = longer_node_silence_s(),
				       .speaks_first = true, // hop.hello
				       .handler = &far_handler,
				       .user = hop};
	bool gone = false;
	hop->dialled = true;
	hop->gone = &gone;
	enum status status = uplink_dial(hop->all->params.uplink, &dial, &error);
	if (gone)
		return; // it failed at once, and was told
	hop->gone = NULL;
	if (!status)
		return;
	hop_ended(hop, status, error.message);
	hop_free(hop);
}

// From the loop: a call that came by one connection is being served, and another is not made inside of that.
static void far_open(struct hop *hop)
{
	net_timer_start(hop->all->params.loop, &hop->dialling, 0, far_dial, hop);
}

static enum status far_send(struct hop *hop, const struct net_parts *message)
{
	return net_conn_send_parts(hop->conn, message);
}

static size_t far_queued(const struct hop *hop)
{
	return net_conn_queued_bytes(hop->conn);
}

const struct hop_way hop_server_far = {.name = "server",
				       .open = far_open,
				       .send = far_send,
				       .queued = far_queued,
				       .pause = far_pause,
				       .fence = far_fence,
				       .close = far_close};
