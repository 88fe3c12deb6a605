/* The connections between nodes; see links.h. The parts: links_peers.c, links_hops.c, links_measure.c, links_models.c,
 * links_route.c.
 *
 * A struct link is another node from the server's list; it is up while it has a connection. The end with the lower id
 * dials a connection (link_conn), the other one accepts it. A connection becomes that of a link when the certificate of
 * the handshake and peer.hello name the same node. A new connection replaces the current one, because the end that
 * dials knows when the old one is gone. Nodes that are not in the server's list are refused. Messages of a peer are
 * checked against the contract; a violation ends the connection. A connection that ends within one of its own callbacks
 * is freed after that returns. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "engine/node/links/links_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROTOCOL = 1,
	REDIAL_LAST_MS = 30000,
	SECOND_MS = 1000,
	REPORT_MS = 5000,
	REPORT_SOON_MS = 50,
	REFUSAL_MS = 60000,
	CALLS = 1024, // to another node, that wait
};
static const char node_uri[] = "exogpu:node:";

// ---- sending ----

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct link_conn *conn = arg;
	const enum status status = net_peer_send(conn->peer, buffer_text(head), head->length,
						 body ? body->holder : NULL, body ? body->bytes : NULL,
						 body ? body->length : 0);
	if (status)
		log_warning("node", "a message to %.64s could not be sent: %s", conn->node_id, status_text(status));
	return status;
}

void link_notify(struct link *link, const char *method, struct json *params)
{
	if (link->conn)
		rpc_notify(&link->conn->rpc, method, params);
	else
		json_destroy(&params);
}

// A call that waits.
struct asked {
	struct link_conn *conn;
	struct link *link;
	void (*answered)(struct link *link, const struct link_answer *answer);
	struct link_answer answer;
};

static void answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct asked asked = *(struct asked *)context;
	free(context);
	asked.answer.result = result;
	asked.answer.body = status ? NULL : asked.conn->body;
	asked.answer.error = status ? error : NULL;
	asked.answered(asked.link, &asked.answer);
}

enum status link_call(struct link *link, const struct link_call *call)
{
	struct json *params = call->params;
	struct asked *asked = link->conn ? malloc(sizeof(*asked)) : NULL;
	if (!asked) {
		json_destroy(&params);
		return STATUS_UNAVAILABLE;
	}
	*asked = (struct asked){.conn = link->conn,
				.link = link,
				.answered = call->answered,
				.answer = {.context = call->context, .number = call->number}};
	const struct rpc_body body = {.bytes = call->body ? net_frame_data(call->body) : NULL,
				      .length = call->body ? net_frame_bytes(call->body) : 0,
				      .holder = call->body};
	const enum status status = rpc_call(&link->conn->rpc, &(struct rpc_ask){.method = call->method,
										.params = params,
										.patience_ms = call->patience_ms,
										.done = answered,
										.context = asked,
										.body = call->body ? &body : NULL});
	if (status)
		free(asked);
	return status;
}

void link_answer(struct link *link, const char *method, const struct json *id, struct json *result,
		 const struct error *error)
{
	if (link->conn)
		rpc_answer(&link->conn->rpc, method, id, result, error);
	else
		json_destroy(&result);
}

// ---- reports to the server ----

static void report(void *arg)
{
	struct links *links = arg;
	links->reported_ms = clock_steady_ms();
	links->params.tell(links->params.arg, links_readings(links));
}

void links_changed(struct links *links)
{
	if (!links->report.running)
		net_timer_start(links->params.loop, &links->report, REPORT_SOON_MS, report, links);
}

// ---- up and down ----

void link_say_down(struct link *link, const char *why)
{
	snprintf(link->reason, sizeof link->reason, "%s", why);
}

static void redial_later(struct link *link)
{
	net_timer_start(link->links->params.loop, &link->redial, link->redial_ms, link_dial, link);
	link->redial_ms = 2 * link->redial_ms < REDIAL_LAST_MS ? 2 * link->redial_ms : REDIAL_LAST_MS;
}

// A dial came to nothing: the next address, and after the last a pause.
static void try_next(struct link *link, const char *why)
{
	char reason[LINK_REASON_BYTES];
	snprintf(reason, sizeof reason, "%.40s port %d: %s",
		 link->address_count ? link->addresses[link->address] : "no address", link->port, why);
	if (strcmp(reason, link->reason) != 0) {
		// A peer that does not answer is no reason for a warning; a peer that answers and is refused, or
		// refuses, is.
		if (strstr(why, "certificate") || strstr(why, "version"))
			log_warning("node", "no direct link to %.128s: %s", link->name, reason);
		else
			log_debug("node", "no direct link to %.128s: %s", link->name, reason);
		link_say_down(link, reason);
	}
	link->address = link->address_count ? (link->address + 1) % link->address_count : 0;
	if (++link->tried < link->address_count) {
		net_timer_start(link->links->params.loop, &link->redial, 0, link_dial, link);
		return;
	}
	if (link->redial_ms < REDIAL_LAST_MS)
		links_changed(link->links);
	link->tried = 0;
	redial_later(link);
}

// Another node of the cluster, by its certificate, is not taken: told now and then only, since it comes again.
static void refuse(struct link_conn *conn, const char *why)
{
	struct links *links = conn->links;
	const int64_t now_ms = clock_steady_ms();
	// A node that is not in the list yet will be soon: the server tells both about each other.
	const bool known = links_find(links, conn->node_id) != NULL;
	if (!conn->link && known && now_ms >= links->refusal_due_ms) {
		links->refusal_due_ms = now_ms + REFUSAL_MS;
		log_warning("node", "a connection of node %s is refused: %s", conn->node_id, why);
	}
	link_conn_end(conn, why);
}

// Calls that wait on this connection fail with `why`.
void link_conn_free(struct link_conn *conn, const char *why)
{
	struct error error = {0};
	LIST_REMOVE(conn, at);
	if (!conn->link)
		conn->links->strangers--;
	net_timer_stop(conn->links->params.loop, &conn->patience);
	error_set(&error, STATUS_UNAVAILABLE, "the link broke: %s", why);
	rpc_close(&conn->rpc, &error);
	net_peer_destroy(&conn->peer);
	free(conn);
}

// The link has lost its connection.
static void is_down(struct link *link, struct link_conn *was, const char *why)
{
	link->conn = NULL;
	link_hops_down(link, why);
	link_conn_free(was, why);
}

void link_conn_end(struct link_conn *conn, const char *why)
{
	struct link *link = conn->link;
	char reason[LINK_REASON_BYTES]; // `why` may be in memory that is freed here
	if (conn->busy) {
		if (!conn->end[0])
			snprintf(conn->end, sizeof conn->end, "%s", why);
		return;
	}
	snprintf(reason, sizeof reason, "%s", why);
	if (!link || (conn != link->conn && conn != link->trying))
		log_debug("node", "a connection of %s ends: %s", conn->node_id[0] ? conn->node_id : "a stranger",
			  reason);
	if (!link || conn != link->conn) {
		const bool was_tried = link && conn == link->trying;
		link_conn_free(conn, reason);
		if (was_tried) {
			link->trying = NULL;
			try_next(link, reason);
		}
		return;
	}
	log_info("node", "the direct link to %.128s is down: %s", link->name, reason);
	link->up = false;
	link_say_down(link, reason);
	is_down(link, conn, reason);
	links_changed(link->links);
	link->redial_ms = LINK_REDIAL_FIRST_MS;
	if (link->dials)
		redial_later(link);
}

static bool is_greeted(const struct link_conn *conn)
{
	return conn->link && conn->link->conn == conn;
}

// peer.hello has come: from now on this is the link's connection.
static void conn_greeted(struct link_conn *conn, struct link *link)
{
	struct link_conn *old = link->conn;
	net_timer_stop(conn->links->params.loop, &conn->patience);
	if (!conn->link)
		conn->links->strangers--;
	conn->link = link;
	if (link->trying == conn)
		link->trying = NULL;
	if (old)
		is_down(link, old, "the link was connected anew");
	link->conn = conn;
	link->up = true;
	link->tried = 0;
	link->redial_ms = LINK_REDIAL_FIRST_MS;
	link->reason[0] = 0;
	net_peer_trust(conn->peer);
	net_peer_path(conn->peer, &link->path);
	link_route_read(&link->route, link->path.local, "");
	link_measures_up(link);
	log_info("node", "a direct link to %.128s, at %s by %s (%s)", link->name, link->path.remote,
		 link->route.interface[0] ? link->route.interface : "an unnamed interface", link->route.class);
	links_changed(conn->links);
}

// ---- receiving ----

// The first message of a connection; further ones are ignored.
static enum status hello(void *arg, const struct message *message, struct error *error)
{
	struct link_conn *conn = arg;
	char why[LINK_REASON_BYTES];
	int64_t protocol = json_get_integer(message->params, "protocol", 0);
	const char *node_id = json_get_string(message->params, "node_id", "");
	struct link *link = links_find(conn->links, conn->node_id);
	(void)error;
	if (is_greeted(conn))
		return STATUS_OK;
	if (protocol != PROTOCOL)
		snprintf(why, sizeof why, "it uses link version %lld, this node %d: install the same version on both",
			 (long long)protocol, PROTOCOL);
	else if (strcmp(node_id, conn->node_id) != 0)
		snprintf(why, sizeof why, "it claims to be another node than its certificate says");
	else if (!link)
		snprintf(why, sizeof why, "the server has not announced it");
	else {
		conn_greeted(conn, link);
		return STATUS_OK;
	}
	refuse(conn, why);
	return STATUS_OK;
}

static enum status admit(void *arg, const char *method, struct error *error)
{
	return is_greeted(arg) || !strcmp(method, "peer.hello")
		       ? STATUS_OK
		       : error_set(error, STATUS_UNAUTHENTICATED, "say peer.hello first");
}

static const struct rpc_method methods[] = {
	{"peer.hello", hello},
	{"peer.ping", link_serve_ping},
	{"peer.burst", link_serve_burst},
	{"model.piece", link_serve_piece},
	{"hop.open", link_serve_hop_open},
	{"hop.data", link_serve_hop_data},
	{"hop.taken", link_serve_hop_taken},
	{"hop.close", link_serve_hop_close},
};

static bool too_many_calls(struct link_conn *conn)
{
	int64_t second = clock_steady_ms() / 1000;
	if (second != conn->second) {
		conn->second = second;
		conn->calls = 0;
	}
	return ++conn->calls > LIMIT_LINK_CALLS_PER_S;
}

static void take_message(struct link_conn *conn, const uint8_t *head, size_t head_bytes)
{
	struct error error = {0};
	const enum rpc_heard heard = rpc_receive(&conn->rpc, head, head_bytes, false, &error);
	if (heard == RPC_GARBAGE)
		link_conn_end(conn, "it sent a malformed message");
	else if (!is_greeted(conn))
		link_conn_end(conn, "it does not begin with peer.hello");
	else if (heard == RPC_REFUSED && error.status != STATUS_METHOD_NOT_FOUND) // a newer version may have more
		link_conn_end(conn, "its message breaks the contract");
}

static void not_busy(struct link_conn *conn)
{
	conn->busy = false;
	if (conn->end[0])
		link_conn_end(conn, conn->end);
}

static void conn_message(void *user, struct net_peer *peer, const uint8_t *head, size_t head_bytes,
			 struct net_frame *body)
{
	struct link_conn *conn = user;
	(void)peer;
	if (is_greeted(conn) && link_hops_data(conn->link, head, head_bytes, body))
		return;
	if (too_many_calls(conn)) {
		link_conn_end(conn, "it sends too many messages");
		return;
	}
	conn->busy = true;
	conn->body = body;
	take_message(conn, head, head_bytes);
	conn->body = NULL;
	not_busy(conn);
}

static void no_hello(void *arg)
{
	link_conn_end(arg, "it does not send its identity");
}

// The certificate is verified; whether it is the node that is meant here is not known yet.
static void conn_opened(void *user, struct net_peer *peer, const struct net_certificate *certificate)
{
	struct link_conn *conn = user;
	struct links *links = conn->links;
	const char *why = NULL, *uri = certificate->uri;
	(void)peer;
	if (strncmp(uri, node_uri, strlen(node_uri)) != 0 || strlen(uri) - strlen(node_uri) >= sizeof conn->node_id)
		why = "its certificate is not a node's";
	else
		snprintf(conn->node_id, sizeof conn->node_id, "%s", uri + strlen(node_uri));
	if (!why && conn->link && strcmp(conn->node_id, conn->link->peer_id) != 0)
		why = "another node answers there";
	else if (!why && !links_find(links, conn->node_id))
		why = "the server has not announced it";
	else if (!why && !conn->link && strcmp(conn->node_id, links->node_id) >= 0)
		why = "the other side should have dialled";
	if (why) {
		refuse(conn, why);
		return;
	}
	struct json *params = json_new_object();
	json_set_integer(params, "protocol", PROTOCOL);
	json_set_string(params, "node_id", links->node_id);
	net_timer_start(links->params.loop, &conn->patience, LIMIT_LOGIN_MS, no_hello, conn);
	rpc_notify(&conn->rpc, "peer.hello", params);
}

static void conn_drained(void *user, struct net_peer *peer)
{
	struct link_conn *conn = user;
	(void)peer;
	if (is_greeted(conn))
		link_hops_drained(conn->link);
}

static void conn_closed(void *user, struct net_peer *peer, const char *why)
{
	(void)peer;
	link_conn_end(user, why);
}

static const struct net_peer_handler conn_handler = {
	.opened = conn_opened, .message = conn_message, .drained = conn_drained, .closed = conn_closed};

// link NULL: it came.
static struct link_conn *conn_create(struct links *links, struct link *link)
{
	struct link_conn *conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	conn->links = links;
	conn->link = link;
	rpc_init(&conn->rpc, &(struct rpc_params){.contract = links->params.contract,
						  .serves = "node-to-node",
						  .peer = "the other node",
						  .methods = methods,
						  .method_count = sizeof methods / sizeof *methods,
						  .most_calls = CALLS,
						  .send = send_message,
						  .admit = admit,
						  .arg = conn});
	LIST_PUSH(&links->conns, conn, at);
	if (!link)
		links->strangers++;
	return conn;
}

static void *accepted(void *context, struct net_peer *peer)
{
	struct links *links = context;
	struct link_conn *conn = links->strangers < LIMIT_PEERS_NOT_OPEN + LIMIT_PEERS_NOT_MET
					 ? conn_create(links, NULL)
					 : NULL;
	if (conn)
		conn->peer = peer;
	return conn;
}

void link_dial(void *arg)
{
	struct link *link = arg;
	struct error error = {0};
	struct links *links = link->links;
	if (!link->address_count) {
		try_next(link, "the server knows none");
		return;
	}
	struct link_conn *conn = conn_create(links, link);
	const struct net_peer_dial_params params = {.tls = links->tls,
						    .address = link->addresses[link->address],
						    .port = link->port,
						    .handler = &conn_handler,
						    .user = conn};
	if (!conn || net_peer_dial(&conn->peer, links->params.loop, &params, &error)) {
		if (conn)
			link_conn_free(conn, "it could not be dialled");
		try_next(link, error.message[0] ? error.message : "out of memory");
		return;
	}
	link->trying = conn;
}

// ---- time, beginning and end ----

// Show this node's certificate, which is renewed from time to time.
static enum status show_certificate(struct links *links, struct error *error)
{
	const struct credentials *credentials = links->params.credentials;
	if (links->shown && !strcmp(links->shown, credentials->chain_pem))
		return STATUS_OK;
	enum status status = net_peer_tls_show(links->tls, credentials->chain_pem, credentials->key_pem, error);
	char *shown = status ? NULL : strdup(credentials->chain_pem);
	if (!shown)
		return status ? status : error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	free(links->shown);
	links->shown = shown;
	return STATUS_OK;
}

static void expire(struct link_conn *conn)
{
	conn->busy = true;
	rpc_expire(&conn->rpc);
	not_busy(conn);
}

static void on_second(void *arg)
{
	struct links *links = arg;
	struct error error = {0};
	net_timer_start(links->params.loop, &links->second, SECOND_MS, on_second, links);
	if (links->params.credentials->chain_pem && show_certificate(links, &error))
		log_warning("node", "links do not show this node's new certificate: %s", error.message);
	for (struct link *link = links->first; link; link = link->next) {
		link_hops_second(link);
		if (link->conn && net_peer_silence_ms(link->conn->peer) >= LIMIT_LINK_SILENCE_MS)
			link_conn_end(link->conn, "the other node was silent for 8 s");
		if (link->conn)
			link_measures_second(link);
		if (link->conn)
			expire(link->conn);
	}
	links_measure_server(links);
	if (clock_steady_ms() - links->reported_ms >= REPORT_MS - SECOND_MS / 2)
		report(links);
}

enum status links_create(struct links **out, const struct links_params *params, struct error *error)
{
	*out = NULL;
	const struct credentials *credentials = params->credentials;
	if (!credentials->chain_pem || strlen(params->node_id) >= LINK_ID_BYTES)
		return error_set(error, STATUS_UNAVAILABLE, "this node has no certificate of a cluster");
	struct links *links = calloc(1, sizeof(*links));
	if (!links)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	links->params = *params;
	links->reported_ms = clock_steady_ms();
	snprintf(links->node_id, sizeof links->node_id, "%s", params->node_id);
	links->params.node_id = links->node_id;
	link_init(&links->server, links, "server");
	link_init(&links->server_back, links, "server");
	enum status status = net_peer_tls_create(&links->tls, credentials->authority_pem, error);
	if (!status)
		status = show_certificate(links, error);
	if (!status)
		status = net_peer_listen(&links->listener, params->loop,
					 &(struct net_peer_listen_params){.tls = links->tls,
									  .address = params->address,
									  .handler = &conn_handler,
									  .accepted = accepted,
									  .context = links},
					 error);
	if (status)
		links_destroy(&links);
	else
		net_timer_start(params->loop, &links->second, SECOND_MS, on_second, links);
	*out = links;
	return status;
}

void links_destroy(struct links **pointer)
{
	struct links *links = *pointer;
	if (!links)
		return;
	*pointer = NULL;
	net_timer_stop(links->params.loop, &links->second);
	links_hops_finish(links);
	links_models_finish(links);
	while (links->first)
		links_drop(links, links->first, "the node stops");
	while (links->conns)
		link_conn_free(links->conns, "the node stops");
	net_timer_stop(links->params.loop, &links->report);
	net_timer_stop(links->params.loop, &links->turn);
	net_peer_listener_destroy(&links->listener);
	net_peer_tls_destroy(&links->tls);
	free(links->shown);
	free(links);
}

int links_port(const struct links *links)
{
	return net_peer_listener_port(links->listener);
}
