/* Who is connected to whom; see links.h. The parts: links_hops.c, links_measure.c, links_models.c, links_route.c.
 *
 * A struct link is another node that the server has told of; it is up while it has a connection. Connections
 * (link_conn) are dialled by the end with the lower id, or come to the other; each is a link's only once the handshake
 * has shown whose it is, and peer.hello has said the same. One that comes while the link is up takes the place of that
 * connection: the end that dials knows when the old one is gone. Nodes that the server has not told of are refused.
 * What a peer says is checked against the contract; what breaks it ends the connection. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/node/links/links_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROTOCOL = 1,
	REDIAL_FIRST_MS = 500,
	REDIAL_LAST_MS = 30000,
	SECOND_MS = 1000,
	REPORT_MS = 5000,
	REPORT_SOON_MS = 50,
	REFUSAL_MS = 60000,
};
static const char node_uri[] = "exogpu:node:";

static void dial(void *arg);

struct link *links_find(struct links *links, const char *peer_id)
{
	struct link *link = links->first;
	while (link && strcmp(link->peer_id, peer_id) != 0)
		link = link->next;
	return link;
}

// ---- what is sent ----

static void send_head(struct link_conn *conn, struct buffer *head, enum status status)
{
	if (!status)
		status = net_peer_send(conn->peer, buffer_text(head), head->length, NULL, NULL, 0);
	if (status)
		log_warning("node", "a message to %.64s could not be sent: %s", conn->node_id, status_text(status));
	buffer_finish(head);
}

static void send_call(struct link_conn *conn, int64_t id, const char *method, struct json *params)
{
	struct buffer head;
	struct json *number = id >= 0 ? json_new_integer(id) : NULL;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	enum status status = message_print_call(&head, number, method, params);
	json_destroy(&number);
	send_head(conn, &head, status);
}

void link_call(struct link *link, int64_t id, const char *method, struct json *params)
{
	if (link->conn)
		send_call(link->conn, id, method, params);
	else
		json_destroy(&params);
}

void link_answer(struct link *link, const struct json *id, struct json *result, const struct error *error)
{
	struct buffer head;
	if (!link->conn) {
		json_destroy(&result);
		return;
	}
	buffer_init(&head, LIMIT_HEAD_BYTES);
	enum status status = error ? message_print_error(&head, id, error) : message_print_result(&head, id, result);
	send_head(link->conn, &head, status);
}

// ---- what the server is told ----

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

static void say_down(struct link *link, const char *why)
{
	snprintf(link->reason, sizeof link->reason, "%s", why);
}

static void redial_later(struct link *link)
{
	net_timer_start(link->links->params.loop, &link->redial, link->redial_ms, dial, link);
	link->redial_ms = 2 * link->redial_ms < REDIAL_LAST_MS ? 2 * link->redial_ms : REDIAL_LAST_MS;
}

// A dial came to nothing: the next address, and after the last a pause.
static void try_next(struct link *link, const char *why)
{
	char reason[LINK_REASON_BYTES];
	snprintf(reason, sizeof reason, "%.40s port %d: %s",
		 link->address_count ? link->addresses[link->address] : "no address", link->port, why);
	if (strcmp(reason, link->reason) != 0) {
		// Who is not there is nothing to warn of; who is, and is not taken or takes nobody, is.
		if (strstr(why, "certificate") || strstr(why, "version"))
			log_warning("node", "no direct link to %.128s: %s", link->name, reason);
		else
			log_debug("node", "no direct link to %.128s: %s", link->name, reason);
		say_down(link, reason);
	}
	link->address = link->address_count ? (link->address + 1) % link->address_count : 0;
	if (++link->tried < link->address_count) {
		net_timer_start(link->links->params.loop, &link->redial, 0, dial, link);
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
	// One that is not known will be soon: both hear of each other from the server.
	const bool known = links_find(links, conn->node_id) != NULL;
	if (!conn->link && known && now_ms >= links->refusal_due_ms) {
		links->refusal_due_ms = now_ms + REFUSAL_MS;
		log_warning("node", "a connection of node %s is refused: %s", conn->node_id, why);
	}
	link_conn_end(conn, why);
}

static void conn_free(struct link_conn *conn)
{
	*conn->at = conn->next;
	if (conn->next)
		conn->next->at = conn->at;
	if (!conn->link)
		conn->links->strangers--;
	net_timer_stop(conn->links->params.loop, &conn->patience);
	net_peer_destroy(&conn->peer);
	free(conn);
}

void link_conn_end(struct link_conn *conn, const char *why)
{
	struct link *link = conn->link;
	char reason[LINK_REASON_BYTES]; // `why` may lie in what goes now
	snprintf(reason, sizeof reason, "%s", why);
	if (!link || (conn != link->conn && conn != link->trying))
		log_debug("node", "a connection of %s ends: %s", conn->node_id[0] ? conn->node_id : "a stranger",
			  reason);
	bool was_up = link && conn == link->conn, was_tried = link && conn == link->trying;
	conn_free(conn);
	if (was_tried) {
		link->trying = NULL;
		try_next(link, reason);
	}
	if (!was_up)
		return;
	log_info("node", "the direct link to %.128s is down: %s", link->name, reason);
	link->conn = NULL;
	link->up = false;
	say_down(link, reason);
	link_hops_down(link, reason);
	link_models_down(link);
	links_changed(link->links);
	link->redial_ms = REDIAL_FIRST_MS;
	if (link->dials)
		redial_later(link);
}

// Its peer.hello came: it is the link's connection from here on.
static void conn_greeted(struct link_conn *conn, struct link *link)
{
	struct link_conn *old = link->conn;
	net_timer_stop(conn->links->params.loop, &conn->patience);
	if (!conn->link)
		conn->links->strangers--;
	conn->link = link;
	if (link->trying == conn)
		link->trying = NULL;
	link->conn = NULL;
	if (old) {
		conn_free(old);
		link_hops_down(link, "the link was connected anew");
		link_models_down(link);
	}
	link->conn = conn;
	link->up = true;
	link->tried = 0;
	link->redial_ms = REDIAL_FIRST_MS;
	link->reason[0] = 0;
	net_peer_trust(conn->peer);
	net_peer_path(conn->peer, &link->path);
	link_route_read(&link->route, link->path.local, "");
	link_measures_up(link);
	log_info("node", "a direct link to %.128s, at %s by %s (%s)", link->name, link->path.remote,
		 link->route.interface[0] ? link->route.interface : "an interface without a name", link->route.class);
	links_changed(conn->links);
}

// ---- what comes ----

// False: the connection has ended.
static bool take_hello(struct link_conn *conn, const struct message *message)
{
	struct error error = {0};
	const struct links_params *params = &conn->links->params;
	const struct contract_method *method = contract_find(params->contract, "peer.hello");
	if (message->kind != MESSAGE_NOTIFICATION || strcmp(message->method, "peer.hello") != 0 ||
	    contract_check_params(params->contract, method, message->params, &error)) {
		link_conn_end(conn, "it does not begin with peer.hello");
		return false;
	}
	char why[LINK_REASON_BYTES];
	int64_t protocol = json_get_integer(message->params, "protocol", 0);
	const char *node_id = json_get_string(message->params, "node_id", "");
	struct link *link = links_find(conn->links, conn->node_id);
	if (protocol != PROTOCOL)
		snprintf(why, sizeof why, "it speaks version %lld of links, this node %d: bring both to one version",
			 (long long)protocol, PROTOCOL);
	else if (strcmp(node_id, conn->node_id) != 0)
		snprintf(why, sizeof why, "it says that it is another node than its certificate does");
	else if (!link)
		snprintf(why, sizeof why, "the server has not told of it");
	else {
		conn_greeted(conn, link);
		return true;
	}
	refuse(conn, why);
	return false;
}

// A call, or a notification, of a node that is known. False: it is none that is served.
static bool serve_call(struct link *link, const struct message *message, struct net_frame *body)
{
	struct error error = {0};
	const struct contract *contract = link->links->params.contract;
	const struct contract_method *method = contract_find(contract, message->method);
	if (!method || !method->direction || strcmp(method->direction, "node-to-node") != 0) {
		error_set(&error, STATUS_METHOD_NOT_FOUND, "links have no method %.64s", message->method);
		if (message->id) // a newer version may notify of something else
			link_answer(link, message->id, NULL, &error);
		return true;
	}
	if (contract_check_params(contract, method, message->params, &error))
		return false;
	if (!strncmp(message->method, "hop.", 4))
		link_hops_serve(link, message, body);
	else if (!strcmp(message->method, "model.piece"))
		link_models_serve(link, message);
	else
		link_measures_serve(link, message, body);
	return true;
}

static void take_answer(struct link *link, const struct message *message, struct net_frame *body)
{
	int64_t id = 0;
	if (json_integer(message->id, &id) || id < 0)
		return;
	enum link_call call = (enum link_call)(id % LINK_CALL_KINDS);
	if (call == LINK_CALL_HOP)
		link_hops_answered(link, id / LINK_CALL_KINDS, message);
	else if (call == LINK_CALL_READ)
		link_models_answered(link, id / LINK_CALL_KINDS, message, body);
	else
		link_measures_answered(link, call, id / LINK_CALL_KINDS, message);
}

static bool too_many_calls(struct link_conn *conn)
{
	int64_t second = clock_steady_ms() / 1000;
	if (second != conn->second) {
		conn->second = second;
		conn->calls = 0;
	}
	return ++conn->calls > LIMIT_LINK_CALLS_PER_S;
}

static void conn_message(void *user, struct net_peer *peer, const uint8_t *head, size_t head_bytes,
			 struct net_frame *body)
{
	struct link_conn *conn = user;
	struct message message = {0};
	struct error error = {0};
	(void)peer;
	bool up = conn->link && conn->link->conn == conn;
	if (up && link_hops_data(conn->link, head, head_bytes, body))
		return;
	if (too_many_calls(conn)) {
		link_conn_end(conn, "it sends too many messages");
		return;
	}
	if (message_decode_text(&message, (const char *)head, head_bytes, &error))
		link_conn_end(conn, "it sends what is no message");
	else if (!up)
		take_hello(conn, &message);
	else if (message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR)
		take_answer(conn->link, &message, body);
	else if (!serve_call(conn->link, &message, body))
		link_conn_end(conn, "what it sends does not fit the contract");
	message_finish(&message);
}

static void no_hello(void *arg)
{
	link_conn_end(arg, "it does not say who it is");
}

// Whose certificate it is was verified; whether that node is meant here is not yet known.
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
		why = "the server has not told of it";
	else if (!why && !conn->link && strcmp(conn->node_id, links->node_id) >= 0)
		why = "it is not for it to dial";
	if (why) {
		refuse(conn, why);
		return;
	}
	struct json *params = json_new_object();
	json_set_integer(params, "protocol", PROTOCOL);
	json_set_string(params, "node_id", links->node_id);
	net_timer_start(links->params.loop, &conn->patience, LIMIT_LOGIN_MS, no_hello, conn);
	send_call(conn, -1, "peer.hello", params);
}

static void conn_drained(void *user, struct net_peer *peer)
{
	struct link_conn *conn = user;
	(void)peer;
	if (conn->link && conn->link->conn == conn)
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
	conn->at = &links->conns;
	conn->next = links->conns;
	if (conn->next)
		conn->next->at = &conn->next;
	links->conns = conn;
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

static void dial(void *arg)
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
			conn_free(conn);
		try_next(link, error.message[0] ? error.message : "out of memory");
		return;
	}
	link->trying = conn;
}

// ---- the list ----

// True: they are others than before.
static bool take_addresses(struct link *link, const struct json *peer)
{
	char was[sizeof link->addresses];
	const size_t was_count = link->address_count;
	const int was_port = link->port;
	memcpy(was, link->addresses, sizeof was);
	memset(link->addresses, 0, sizeof link->addresses);
	link->address_count = 0;
	link->port = (int)json_get_integer(peer, "port", 0);
	const struct json *address = json_first(json_get(peer, "addresses"));
	for (; address && link->address_count < LIMIT_LINK_ADDRESSES; address = json_next(address)) {
		const char *text = json_string(address, "");
		if (strlen(text) >= NET_ADDRESS_BYTES)
			continue;
		snprintf(link->addresses[link->address_count++], NET_ADDRESS_BYTES, "%s", text);
	}
	if (was_port == link->port && was_count == link->address_count &&
	    !memcmp(was, link->addresses, sizeof link->addresses))
		return false;
	link->address = 0;
	return true;
}

static void link_init(struct link *link, struct links *links, const char *peer_id)
{
	link->links = links;
	snprintf(link->peer_id, sizeof link->peer_id, "%s", peer_id);
	link->route.class = "unknown";
	link_measures_up(link);
}

static struct link *add(struct links *links, const char *peer_id)
{
	struct link *link = calloc(1, sizeof(*link));
	if (!link) {
		log_error("node", "no memory for the link to another node");
		return NULL;
	}
	link_init(link, links, peer_id);
	link->dials = strcmp(links->node_id, peer_id) < 0;
	link->next_channel = link->dials ? 0 : 1;
	say_down(link, link->dials ? "not dialled yet" : "waits for the other node to dial");
	link->next = links->first;
	links->first = link;
	return link;
}

static void drop(struct links *links, struct link *link)
{
	struct link **at = &links->first;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	net_timer_stop(links->params.loop, &link->redial);
	link_hops_down(link, "the other node is not in the cluster any more");
	link_models_down(link);
	for (struct link_conn *conn = links->conns, *next; conn; conn = next) {
		next = conn->next;
		if (conn->link == link)
			conn_free(conn);
	}
	free(link);
}

static void take_peer(struct links *links, const struct json *peer)
{
	const char *peer_id = json_get_string(peer, "node_id", "");
	if (!strcmp(peer_id, links->node_id))
		return;
	struct link *link = links_find(links, peer_id);
	if (!link && !(link = add(links, peer_id)))
		return;
	link->wanted = true;
	snprintf(link->name, sizeof link->name, "%s", json_get_string(peer, "name", peer_id));
	if (!take_addresses(link, peer) || !link->dials || link->conn)
		return;
	link->redial_ms = REDIAL_FIRST_MS;
	link->tried = 0;
	if (!link->trying)
		net_timer_start(links->params.loop, &link->redial, 0, dial, link);
}

void links_set_peers(struct links *links, const struct json *params)
{
	const struct json *peers = json_get(params, "peers");
	for (struct link *link = links->first; link; link = link->next)
		link->wanted = false;
	for (const struct json *peer = json_first(peers); peer; peer = json_next(peer))
		take_peer(links, peer);
	for (struct link *link = links->first, *next; link; link = next) {
		next = link->next;
		if (!link->wanted)
			drop(links, link);
	}
	links_changed(links);
}

// ---- time, beginning and end ----

// Its own certificate is renewed now and then.
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
	}
	links_models_second(links);
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
		drop(links, links->first);
	while (links->conns)
		conn_free(links->conns);
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
