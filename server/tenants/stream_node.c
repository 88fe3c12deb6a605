/* Lines by a WebSocket of /node, subprotocol exogpu.worker.v1: a node of another machine relays between it and the
 * worker. Which node that is its certificate says, and it brings no worker but its own. A browser tab, which has no
 * certificate, brings workers of tabs only, each with its key. See inside.h.
 *
 * The connection outlives the line: one that is closed here is closed when the node has answered. */
#include "server/tenants/inside.h"

#include <stdlib.h>

enum { CLOSE_SHUTDOWN = 1001, CLOSE_ENDED = 4410 }; // ENDED: nothing that is queued goes any more

struct worker_link {
	struct line line;        // first
	struct arrival *arrival; // NULL: it has no line any more
	struct net_conn *conn;   // NULL before it is open
	unsigned pauses;
};

static enum status line_send(struct line *line, const struct net_parts *message)
{
	return net_conn_send_parts(((struct worker_link *)line)->conn, message);
}

static size_t line_queued(const struct line *line)
{
	return net_conn_queued_bytes(((const struct worker_link *)line)->conn);
}

static void line_pause(struct line *line)
{
	struct worker_link *link = (struct worker_link *)line;
	link->pauses++;
	net_conn_pause(link->conn);
}

static void line_resume(struct line *line)
{
	struct worker_link *link = (struct worker_link *)line;
	link->pauses--;
	net_conn_resume(link->conn);
}

static void line_destroy(struct line **pointer)
{
	struct worker_link *link = (struct worker_link *)*pointer;
	const struct worker *worker = link->arrival->worker;
	const bool left = worker && worker->left;
	*pointer = NULL;
	link->arrival = NULL;
	if (!link->conn)
		return;
	while (link->pauses) // or the node's farewell would not be read
		line_resume(&link->line);
	if (left)
		net_conn_close(link->conn, CLOSE_SHUTDOWN, "the server shuts down");
	else
		net_conn_close(link->conn, CLOSE_ENDED, "the worker was ended");
}

struct worker_link *worker_link_create(struct tenancy *tenants, const char *node_id, bool tab)
{
	struct worker_link *link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	link->line = (struct line){.send = line_send,
				   .queued = line_queued,
				   .pause = line_pause,
				   .resume = line_resume,
				   .destroy = line_destroy};
	link->arrival = arrival_create(tenants, &link->line, node_id, tab);
	if (link->arrival)
		return link;
	free(link);
	return NULL;
}

void worker_link_opened(void *user, struct net_conn *conn)
{
	struct worker_link *link = user;
	link->conn = conn;
	if (!link->arrival)
		net_conn_close(conn, CLOSE_ENDED, "it took too long");
}

void worker_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct worker_link *link = user;
	struct net_parts parts = {0};
	if (!link->arrival)
		return;
	enum status status = binary ? net_conn_take_parts(conn, bytes, length, &parts) : STATUS_PARSE_ERROR;
	if (status)
		arrival_broken(link->arrival, "what came is no frame");
	else
		arrival_message(link->arrival, &parts);
	if (link->arrival && link->arrival->linked)
		net_conn_trust(conn); // it has said whose it is
	net_frame_unref(&parts.holder);
}

void worker_link_drained(void *user, struct net_conn *conn)
{
	struct worker_link *link = user;
	(void)conn;
	if (link->arrival)
		arrival_drained(link->arrival);
}

void worker_link_closed(void *user, struct net_conn *conn, int code)
{
	struct worker_link *link = user;
	(void)conn, (void)code;
	if (link->arrival)
		arrival_closed(link->arrival, "its connection ended");
	free(link);
}
