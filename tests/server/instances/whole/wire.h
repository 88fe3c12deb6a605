/* Connections of the simulated nodes, in the place of WebSockets: the functions of common/net/ws that the server calls
 * for them are replaced at link time. Messages keep their order in a connection, and take their time; while a node is
 * cut off they wait. */
#pragma once
#include "tests/server/instances/whole/world.h"

enum status __wrap_net_conn_send_text(struct net_conn *conn, const char *text, size_t length);
enum status __wrap_net_conn_send_parts(struct net_conn *conn, const struct net_parts *parts);
enum status __wrap_net_conn_take_parts(struct net_conn *conn, const uint8_t *bytes, size_t length,
				       struct net_parts *parts);
void __wrap_net_conn_close(struct net_conn *conn, int code, const char *reason);
void __wrap_net_conn_trust(struct net_conn *conn);
void __wrap_net_conn_allow(struct net_conn *conn, size_t bytes);
void __wrap_net_conn_pause(struct net_conn *conn);
void __wrap_net_conn_resume(struct net_conn *conn);
bool __wrap_net_conn_path(const struct net_conn *conn, struct net_peer_path *path);
int64_t __wrap_net_conn_silence_ms(const struct net_conn *conn);
size_t __wrap_net_conn_queued_bytes(const struct net_conn *conn);

static void node_heard(struct net_conn *conn, const char *bytes, size_t length);
static void node_closed(struct net_conn *conn, int code);
static void deliver_next(void *arg);

// ---- letters ----

static void deliver_later(struct net_conn *conn)
{
	const int64_t slow_ms = world.nodes[conn->node].slow ? draw_ms(SLOW_MS / 4, SLOW_MS) : 0,
		      at_ms = virtual.now_ms + slow_ms + draw_ms(0, draw(30) ? 4 : 300);
	conn->last_ms = at_ms > conn->last_ms ? at_ms : conn->last_ms;
	virtual_at(conn->last_ms, deliver_next, conn);
}

static void post_letter(struct net_conn *conn, bool to_server, const void *bytes, size_t length, int close_code)
{
	struct letter *letter = malloc(sizeof *letter + length + 1);
	if (!letter)
		abort();
	*letter = (struct letter){.conn = conn, .to_server = to_server, .length = length, .close_code = close_code};
	if (length)
		memcpy(letter->bytes, bytes, length);
	letter->bytes[length] = 0;
	if (conn->last)
		conn->last->next = letter;
	else
		conn->first = letter;
	conn->last = letter;
	deliver_later(conn);
}

static void drop_letters(struct net_conn *conn)
{
	for (struct letter *letter = conn->first, *next; letter; letter = next) {
		next = letter->next;
		free(letter);
	}
	conn->first = conn->last = NULL;
}

static void server_closed(struct net_conn *conn, int code)
{
	if (!conn->server_open)
		return;
	conn->server_open = false;
	conn->told = true;
	if (conn->kind == CONN_NODE)
		node_link_closed(conn->user, conn, code);
	else
		worker_link_closed(conn->user, conn, code);
}

static void server_heard(struct net_conn *conn, const struct letter *letter)
{
	if (!conn->server_open)
		return;
	if (letter->close_code)
		server_closed(conn, letter->close_code);
	else if (conn->kind == CONN_NODE)
		node_link_message(conn->user, conn, (const uint8_t *)letter->bytes, letter->length, false);
	else
		worker_link_message(conn->user, conn, (const uint8_t *)letter->bytes, letter->length, true);
}

// One letter for each of these events, in their order; those of a node that is cut off wait until it is back.
static void deliver_next(void *arg)
{
	struct net_conn *conn = arg;
	struct letter *letter = conn->first;
	if (!letter || world.nodes[conn->node].cut)
		return;
	if (letter->to_server && conn->pauses) {
		virtual_after(20, deliver_next, conn);
		return;
	}
	conn->first = letter->next;
	if (!conn->first)
		conn->last = NULL;
	if (letter->to_server)
		server_heard(conn, letter);
	else if (letter->close_code)
		node_closed(conn, letter->close_code);
	else if (conn->node_open)
		node_heard(conn, letter->bytes, letter->length);
	free(letter);
}

static void wire_back(unsigned node)
{
	for (struct net_conn *conn = world.conns; conn; conn = conn->next)
		for (const struct letter *letter = conn->first; letter && conn->node == node; letter = letter->next)
			deliver_later(conn);
}

// ---- the server's side ----

static enum status send_to_node(struct net_conn *conn, const void *bytes, size_t length)
{
	if (conn->node_open)
		post_letter(conn, false, bytes, length, 0);
	return STATUS_OK;
}

enum status __wrap_net_conn_send_text(struct net_conn *conn, const char *text, size_t length)
{
	return send_to_node(conn, text, length);
}

enum status __wrap_net_conn_send_parts(struct net_conn *conn, const struct net_parts *parts)
{
	if (parts->body_bytes) // no message is so long here
		abort();
	return send_to_node(conn, parts->head, parts->head_bytes);
}

enum status __wrap_net_conn_take_parts(struct net_conn *conn, const uint8_t *bytes, size_t length,
				       struct net_parts *parts)
{
	(void)conn;
	*parts = (struct net_parts){.head = bytes, .head_bytes = length};
	return STATUS_OK;
}

static void closed_here(void *arg)
{
	server_closed(arg, 1006);
}

void __wrap_net_conn_close(struct net_conn *conn, int code, const char *reason)
{
	(void)reason;
	if (!conn->server_open)
		return;
	if (conn->node_open) // planted: as if the server were to be back
		post_letter(conn, false, NULL, 0, world.planted == PLANTED_NO_CLOSE && code == 4410 ? 1001 : code);
	virtual_after(1, closed_here, conn);
}

void __wrap_net_conn_trust(struct net_conn *conn)
{
	(void)conn;
}

void __wrap_net_conn_allow(struct net_conn *conn, size_t bytes)
{
	(void)conn, (void)bytes;
}

void __wrap_net_conn_pause(struct net_conn *conn)
{
	conn->pauses++;
}

void __wrap_net_conn_resume(struct net_conn *conn)
{
	conn->pauses--;
}

bool __wrap_net_conn_path(const struct net_conn *conn, struct net_peer_path *path)
{
	(void)conn, (void)path;
	return false;
}

int64_t __wrap_net_conn_silence_ms(const struct net_conn *conn)
{
	const struct sim_node *node = &world.nodes[conn->node];
	return node->cut ? virtual.now_ms - node->cut_ms : 0;
}

size_t __wrap_net_conn_queued_bytes(const struct net_conn *conn)
{
	(void)conn;
	return 0;
}

// ---- connections ----

// NULL: the server is not there, cannot be reached, or has no room.
static struct net_conn *conn_create(enum conn_kind kind, unsigned node, struct sim_worker *worker)
{
	struct net_conn *conn = server.there && !world.nodes[node].cut ? calloc(1, sizeof *conn) : NULL;
	if (!conn)
		return NULL;
	*conn = (struct net_conn){.next = world.conns,
				  .kind = kind,
				  .node = node,
				  .worker = worker,
				  .server_open = true,
				  .node_open = true,
				  .hop_call = -1};
	if (kind == CONN_NODE)
		conn->user = node_link_create(
			server.links, &(struct node_link_params){.node_id = world.nodes[node].node_id, .peer = ""});
	else
		conn->user = worker_link_create(server.tenants, world.nodes[node].node_id, false);
	if (!conn->user) {
		free(conn);
		return NULL;
	}
	world.conns = conn;
	if (kind == CONN_NODE)
		node_link_opened(conn->user, conn);
	else
		worker_link_opened(conn->user, conn);
	return conn;
}

// The node's side closes it, or breaks.
static void conn_close(struct net_conn *conn, int code)
{
	if (!conn || !conn->node_open)
		return;
	conn->node_open = false;
	if (conn->server_open)
		post_letter(conn, true, NULL, 0, code);
}

// The server's process is gone: nothing that is under way arrives, and nodes see it soon.
static void wire_dies(void)
{
	for (struct net_conn *conn = world.conns; conn; conn = conn->next) {
		drop_letters(conn);
		conn->server_open = false;
		if (conn->node_open)
			post_letter(conn, false, NULL, 0, 1006);
	}
}

// The server's parts are gone: what they have of connections goes, too.
static void wire_forget(void)
{
	for (struct net_conn *conn = world.conns; conn; conn = conn->next) {
		if (conn->kind != CONN_NODE && !conn->told)
			worker_link_closed(conn->user, conn, 1006);
		conn->server_open = false;
		conn->told = true;
	}
}

static void conns_free(void)
{
	while (world.conns) {
		struct net_conn *conn = world.conns;
		world.conns = conn->next;
		drop_letters(conn);
		free(conn);
	}
}
