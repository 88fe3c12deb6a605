/* See node_link.h. A node must register within LIMIT_LOGIN_MS. Everything that it says is checked against the contract
 * before it is looked at (common/wire/rpc.h); a message that breaks it gets an error, and changes nothing. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "common/net/ws/parts.h"
#include "server/api/nodes/node_link_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROTOCOL = 1,
	CLOSE_FORBIDDEN = 4403,
	CLOSE_LATE = 4408,
	LOOK_MS = 1000,
	LATE_MS = 20,
	SECOND_MS = 1000,
	REFUSED_MS = 60 * 1000 / LIMIT_NODE_LINES_PER_MIN,
	SKEW_S = 60, // of a clock that is wrong
};

// A registration or a report of devices that is being stored; more of them may come before the first is.
struct pending {
	struct node_link *link;
	struct json *id; // NULL: it came as a notification
	char method[32];
	struct json *workers; // of a registration; may be NULL
	bool complete;        // of the own node's devices: there are no others
};

// A node that was removed is heard no more from here on.
static void cut_node(void *context, const char *node_id, const char *reason)
{
	struct node_links *links = context;
	for (struct node_link *link = links->links; link; link = link->next) {
		if (link->local || link->cut || strcmp(link->proven, node_id) != 0)
			continue;
		link->cut = true;
		if (link->conn)
			net_conn_close(link->conn, CLOSE_FORBIDDEN, reason);
		if (link->node_id[0])
			cluster_lose_node(links->params.cluster, link->node_id, &link->link, reason);
	}
}

enum status node_links_create(struct node_links **out, const struct node_links_params *params)
{
	struct node_links *links = calloc(1, sizeof(*links));
	*out = links;
	if (!links)
		return STATUS_OUT_OF_MEMORY;
	links->params = *params;
	joins_set_cut(params->joins, cut_node, links);
	if (params->turn)
		node_links_look_at_servers(links);
	return STATUS_OK;
}

void node_links_destroy(struct node_links **pointer)
{
	struct node_links *links = *pointer;
	if (!links)
		return;
	*pointer = NULL;
	joins_set_cut(links->params.joins, NULL, NULL);
	net_timer_stop(links->params.loop, &links->servers_look);
	free(links->servers);
	while (links->links)
		node_link_closed(links->links, NULL, 1001);
	free(links);
}

size_t node_links_of(const struct node_links *links, const char *node_id)
{
	size_t count = 0;
	for (const struct node_link *link = links->links; link; link = link->next)
		count += !strcmp(link->proven, node_id);
	return count;
}

bool node_links_say(struct node_links *links)
{
	const int64_t now_ms = clock_steady_ms();
	if (links->said_ms && now_ms - links->said_ms < SECOND_MS)
		return false;
	links->said_ms = now_ms;
	return true;
}

void node_links_watch(struct node_links *links, bool watched)
{
	for (struct node_link *link = links->links; link; link = link->next) {
		struct json *params = json_new_object();
		json_set_bool(params, "watched", watched);
		rpc_notify(&link->rpc, "node.watch", params);
	}
}

void node_links_shut_down(struct node_links *links)
{
	for (struct node_link *link = links->links; link; link = link->next)
		if (link->conn)
			net_conn_close(link->conn, 1001, "the server shuts down");
}

static enum status ask(struct cluster_link *cluster_link, const char *method, struct json *params, cluster_answer *told,
		       void *context)
{
	struct node_link *link = (struct node_link *)cluster_link;
	if (link->tab && !node_tab_may_hear(method, params)) {
		json_destroy(&params);
		return STATUS_UNAVAILABLE;
	}
	return rpc_call(&link->rpc,
			&(struct rpc_ask){.method = method, .params = params, .done = told, .context = context});
}

// No more often than a node's own lines are taken: what is wrong with one message is wrong with the next.
static void say_refused(struct node_link *link, const struct error *error)
{
	const int64_t now_ms = clock_steady_ms();
	if (link->said_ms && now_ms - link->said_ms < REFUSED_MS)
		return;
	link->said_ms = now_ms;
	log_warning("nodes", "a message of node %s was refused: %s", link->node_id[0] ? link->node_id : "(new)",
		    error->message);
}

static void tell(struct cluster_link *cluster_link, const char *method, struct json *params)
{
	struct node_link *link = (struct node_link *)cluster_link;
	if (link->tab && !node_tab_may_hear(method, params))
		json_destroy(&params);
	else
		rpc_notify(&link->rpc, method, params);
}

static void ask_verify(struct cluster_link *cluster_link, const char *device_id)
{
	struct json *params = json_new_object();
	json_set_string(params, "device_id", device_id);
	ask(cluster_link, "device.verify", params, NULL, NULL);
}

static void superseded(struct cluster_link *cluster_link)
{
	struct node_link *link = (struct node_link *)cluster_link;
	if (link->conn)
		net_conn_close(link->conn, NODE_CLOSE_SUPERSEDED, "another connection speaks for this node");
}

static int64_t silence_ms(const struct cluster_link *cluster_link)
{
	const struct node_link *link = (const struct node_link *)cluster_link;
	return link->conn ? net_conn_silence_ms(link->conn) : 0;
}

static void register_late(void *arg)
{
	struct node_link *link = arg;
	if (!link->node_id[0] && link->conn)
		net_conn_close(link->conn, 4401, "not registered within 5 s");
}

// Pings come every LIMIT_NODE_PING_S; a node of which nothing is heard is lost before its connection is given up.
static void look(void *arg)
{
	struct node_link *link = arg;
	if (!link->conn || link->cut)
		return;
	bool silent = net_conn_silence_ms(link->conn) > longer_node_silence_s() * 1000;
	if (silent && !link->late) {
		link->late = true; // it may be this process that stood still: what has come meanwhile is read first
		net_timer_start(link->all->params.loop, &link->look, LATE_MS, look, link);
	} else if (silent) {
		link->cut = true;
		if (link->node_id[0])
			cluster_lose_node(link->all->params.cluster, link->node_id, &link->link, "it is silent");
		net_conn_close(link->conn, CLOSE_LATE, "silent for too long");
	} else {
		link->late = false;
		net_timer_start(link->all->params.loop, &link->look, LOOK_MS, look, link);
	}
}

void node_link_opened(void *user, struct net_conn *conn)
{
	struct node_link *link = user;
	link->conn = conn;
	if (link->tab)
		net_conn_allow(conn, LIMIT_TAB_BYTES);
	else
		net_conn_trust(conn); // it came by the data directory's own socket, or with a certificate of this
				      // cluster's
	struct net_peer_path path;
	if (!link->local && net_conn_path(conn, &path))
		snprintf(link->link.reached, sizeof link->link.reached, "%s", path.local);
	net_timer_start(link->all->params.loop, &link->look, LOOK_MS, look, link);
	net_timer_start(link->all->params.loop, &link->deadline, LIMIT_LOGIN_MS, register_late, link);
}

static void release(struct node_link *link)
{
	if (link->closed && !link->storing)
		free(link);
}

void node_link_closed(void *user, struct net_conn *conn, int code)
{
	struct node_link *link = user;
	(void)conn;
	if (link->closed)
		return;
	link->closed = true;
	link->conn = NULL;
	net_timer_stop(link->all->params.loop, &link->deadline);
	net_timer_stop(link->all->params.loop, &link->look);
	net_timer_stop(link->all->params.loop, &link->rest);
	node_contest_end(link);
	LIST_REMOVE(link, at);
	if (link->node_id[0])
		cluster_lose_node(link->all->params.cluster, link->node_id, &link->link,
				  code == 1000 || code == 1001 ? "it was stopped" : "its connection broke");
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node is gone");
	rpc_close(&link->rpc, &error);
	release(link);
}

static struct pending *pending_create(struct node_link *link, const struct message *message)
{
	struct pending *pending = calloc(1, sizeof(*pending));
	if (!pending)
		return NULL;
	*pending = (struct pending){.link = link, .id = message->id ? json_copy(message->id) : NULL};
	snprintf(pending->method, sizeof pending->method, "%s", message->method);
	link->storing++;
	return pending;
}

// Answer, with `result` (taken) or the error, and let go. Without an id nobody waits for an answer.
static void pending_finish(struct pending *pending, struct json *result, const struct error *error)
{
	struct node_link *link = pending->link;
	rpc_answer(&link->rpc, pending->method, pending->id, result, error);
	json_destroy(&pending->id);
	json_destroy(&pending->workers);
	free(pending);
	link->storing--;
	release(link);
}

// For this machine's own node: where other nodes may reach it.
static struct json *links_json(const struct node_link *link)
{
	struct json *links = json_new_object();
	json_set_string(links, "address", link->all->params.address);
	json_set_bool(links, "renew", !joins_has_certificate(link->all->params.joins, link->node_id));
	return links;
}

static void registered(void *context, enum status status, const struct error *error)
{
	struct pending *pending = context;
	struct node_link *link = pending->link;
	const bool first = !link->known;
	link->registering--;
	link->known |= !status;
	if (status) {
		if (!link->registering && !link->known)
			link->node_id[0] = 0;
		pending_finish(pending, NULL, error);
		return;
	}
	if (link->closed || link->cut) // gone while it was stored
		cluster_lose_node(link->all->params.cluster, link->node_id, &link->link, "its connection broke");
	else if (!link->local && !link->tab)
		witnesses_node_came(link->all->params.witnesses, link->node_id);
	if (first && !link->local && !link->closed && !link->cut)
		tenancy_node_back(link->all->params.tenants, link->node_id, pending->workers);
	struct json *result = json_new_object();
	json_set_integer(result, "protocol", PROTOCOL);
	json_set_bool(result, "watched", events_watched(link->all->params.events));
	json_set_bool(result, "peer_speeds", true);
	if (link->local && link->all->params.address)
		json_set(result, "links", links_json(link));
	link->storing++; // the answer goes first, and may be the last that holds this connection
	pending_finish(pending, result, NULL);
	if (first)
		node_link_tell_servers(link);
	link->storing--;
	release(link);
}

static void devices_reported(void *context, enum status status, const struct error *error)
{
	struct pending *pending = context;
	if (!status && pending->complete)
		cluster_discovered(pending->link->all->params.cluster);
	pending_finish(pending, status ? NULL : json_new_object(), status ? error : NULL);
}

// A clock that is off makes certificates that are not valid yet, or not any more.
static void look_at_clock(struct node_link *link, const struct json *reading)
{
	int64_t at_ms;
	if (link->local || link->skewed || clock_parse(json_get_string(reading, "at", ""), &at_ms))
		return;
	const int64_t ahead_s = (at_ms - clock_wall_ms()) / 1000;
	link->skewed = ahead_s <= -SKEW_S || ahead_s >= SKEW_S;
	if (link->skewed)
		log_warning("nodes", "the clock of %.64s (%s) is %lld s %s this machine's: set one of them right",
			    link->link.actor.name, link->node_id, (long long)(ahead_s < 0 ? -ahead_s : ahead_s),
			    ahead_s < 0 ? "behind" : "ahead of");
}

static void look_at_version(struct node_link *link, const char *version)
{
	if (link->local || link->tab || link->other_version || !strcmp(version, EXOGPU_VERSION))
		return;
	link->other_version = true;
	log_warning("nodes",
		    "%.64s (%s) is of version %.40s, this server of %s: models are not split over nodes of several "
		    "versions; install the same on all",
		    link->link.actor.name, link->node_id, version, EXOGPU_VERSION);
}

// Times of another machine's clock say nothing here, so it tells how long from now.
static void take_end(struct node_link *link, const struct json *end)
{
	const int64_t in_ms = json_get_integer(end, "in_ms", -1);
	link->link.ends_ms = in_ms < 0 ? 0 : clock_wall_ms() + in_ms;
	link->link.drains = json_get_bool(end, "drains", false);
}

enum status node_link_register(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	const struct json *record = json_get(message->params, "node");
	const char *node_id = json_get_string(record, "node_id", "");
	int64_t protocol = json_get_integer(message->params, "protocol", 0);
	if (protocol != PROTOCOL) {
		error_set(error, STATUS_CONFLICT, "the node speaks protocol %lld, this server needs %d",
			  (long long)protocol, PROTOCOL);
		error_hint(error, "run the same version of exogpu on both");
		return STATUS_CONFLICT;
	}
	if (strlen(node_id) >= sizeof link->node_id) // the contract counts characters
		return error_set(error, STATUS_INVALID_PARAMS, "node.node_id must have at most %d bytes",
				 STORE_ID_BYTES - 1);
	const char *who = link->local ? link->node_id : link->proven;
	if (who[0] && strcmp(who, node_id) != 0)
		return error_set(error, link->local ? STATUS_CONFLICT : STATUS_FORBIDDEN, "this connection is node %s",
				 who);
	bool own;
	cluster_has_node(link->all->params.cluster, node_id, &own);
	if (own && !link->local) // its certificate is for links to other nodes
		return error_set(error, STATUS_FORBIDDEN, "the server's own node must use the server's socket");
	enum status contested = node_contest(link, message, error);
	if (contested)
		return contested;
	struct pending *pending = pending_create(link, message);
	if (!pending)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	pending->workers = json_copy(json_get(message->params, "workers"));
	bool first = !link->node_id[0];
	memcpy(link->node_id, node_id, strlen(node_id) + 1);
	snprintf(link->link.actor.actor, sizeof link->link.actor.actor, "node:%s", node_id);
	snprintf(link->link.actor.name, sizeof link->link.actor.name, "%s", json_get_string(record, "name", ""));
	snprintf(link->link.actor.peer, sizeof link->link.actor.peer, "%s", link->local ? "unix" : link->peer);
	look_at_version(link, json_get_string(record, "version", ""));
	if (!link->tab)
		take_end(link, json_get(message->params, "end"));
	link->registering++;
	struct json *written = link->tab ? node_tab_record(link, record) : NULL;
	enum status status = cluster_register_node(link->all->params.cluster, written ? written : record, link->local,
						   &link->link, registered, pending, error);
	json_destroy(&written);
	if (status) {
		link->registering--;
		if (first)
			link->node_id[0] = 0;
		pending_finish(pending, NULL, error);
	}
	return STATUS_PENDING;
}

static enum status node_devices(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	enum status status = link->tab ? node_tab_check_devices(link, message->params, error) : STATUS_OK;
	if (status)
		return status;
	struct pending *pending = pending_create(link, message);
	if (!pending)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	pending->complete = link->local && json_get_bool(message->params, "complete", true);
	struct json *devices = cluster_join_speeds(json_get(message->params, "devices"),
						   json_get(message->params, "peer_speeds"));
	status = cluster_report_devices(link->all->params.cluster, link->node_id, devices, devices_reported, pending,
					error);
	json_destroy(&devices);
	if (status) {
		say_refused(link, error);
		pending_finish(pending, NULL, error);
	}
	return STATUS_PENDING;
}

static void renewed(void *context, enum status status, struct json *grant, const struct error *error)
{
	struct pending *pending = context;
	struct json *result = NULL;
	pending->link->renewing = false;
	if (!status) {
		result = json_new_object();
		json_set(result, "grant", grant);
	}
	pending_finish(pending, result, status ? error : NULL);
}

static enum status node_renew(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	if (link->local && !link->all->params.address)
		return error_set(error, STATUS_CONFLICT, "this machine's own node needs no certificate");
	if (link->local && !link->known)
		return error_set(error, STATUS_CONFLICT, "the node is not registered yet");
	if (link->renewing)
		return error_set(error, STATUS_RATE_LIMITED, "a certificate is already being made");
	struct pending *pending = pending_create(link, message);
	if (!pending)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	struct joins_renewal renewal = {.node_id = link->node_id,
					.peer = link->link.actor.peer,
					.local = link->local,
					.request_pem = json_get_string(message->params, "request", ""),
					.done = renewed,
					.context = pending};
	enum status status = joins_renew(link->all->params.joins, &renewal, error);
	if (status)
		pending_finish(pending, NULL, error);
	else
		link->renewing = true;
	return STATUS_PENDING;
}

static enum status node_telemetry(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	(void)error;
	look_at_clock(link, json_get(message->params, "node"));
	cluster_report_telemetry(link->all->params.cluster, link->node_id, json_get(message->params, "node"),
				 json_get(message->params, "devices"), json_get(message->params, "rest"));
	return STATUS_OK;
}

static enum status tab_ping(void *arg, const struct message *message, struct error *error)
{
	(void)arg, (void)message, (void)error;
	return STATUS_OK;
}

static void left(void *context, enum status status, const struct error *error)
{
	pending_finish(context, status ? NULL : json_new_object(), status ? error : NULL);
}

static enum status tab_leave(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	struct pending *pending = pending_create(link, message);
	if (!pending)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	const struct joins_decision leaving = {
		.node_id = link->node_id, .by = &link->link.actor, .done = left, .context = pending};
	if (joins_remove(link->all->params.joins, &leaving, error))
		pending_finish(pending, NULL, error);
	return STATUS_PENDING;
}

static const struct rpc_method tab_methods[] = {
	{"node.register", node_link_register},
	{"node.devices", node_devices},
	{"node.telemetry", node_telemetry},
	{"node.links", node_link_links},
	{"hop.ended", node_link_hop_ended},
	{"tenant.ended", node_link_tenant_ended},
	{"tab.ping", tab_ping},
	{"tab.leave", tab_leave},
};
static const struct rpc_method methods[] = {
	{"node.register", node_link_register},
	{"node.devices", node_devices},
	{"node.renew", node_renew},
	{"node.telemetry", node_telemetry},
	{"node.links", node_link_links},
	{"node.burst", node_link_burst},
	{"node.log", node_link_log},
	{"model.fetching", node_link_fetching},
	{"hop.ended", node_link_hop_ended},
	{"tenant.ended", node_link_tenant_ended},
};

static enum status admit(void *arg, const char *method, struct error *error)
{
	const struct node_link *link = arg;
	return link->node_id[0] || !strcmp(method, "node.register")
		       ? STATUS_OK
		       : error_set(error, STATUS_UNAUTHENTICATED, "register first");
}

static enum status send(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct node_link *link = arg;
	if (!link->conn)
		return STATUS_UNAVAILABLE;
	if (!body)
		return net_conn_send_text(link->conn, buffer_text(head), head->length);
	return net_conn_send_parts(link->conn, &(struct net_parts){.head = head->data,
								   .head_bytes = head->length,
								   .body = body->bytes,
								   .body_bytes = body->length,
								   .holder = body->holder});
}

struct node_link *node_link_create(struct node_links *links, const struct node_link_params *params)
{
	struct node_link *link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	*link = (struct node_link){.link = {.ask = ask,
					    .tell = tell,
					    .verify = ask_verify,
					    .superseded = superseded,
					    .silence_ms = silence_ms},
				   .all = links,
				   .local = params->local,
				   .tab = params->tab};
	snprintf(link->proven, sizeof link->proven, "%s", params->local ? "" : params->node_id);
	snprintf(link->peer, sizeof link->peer, "%s", params->peer);
	rpc_init(&link->rpc, &(struct rpc_params){.contract = links->params.contract,
						  .serves = "node-to-server",
						  .peer = "the node",
						  .methods = params->tab ? tab_methods : methods,
						  .method_count = params->tab ? sizeof tab_methods / sizeof *tab_methods
									      : sizeof methods / sizeof *methods,
						  .most_calls = LIMIT_NODE_CALLS,
						  .answers_faults = true,
						  .send = send,
						  .admit = admit,
						  .arg = link});
	LIST_PUSH(&links->links, link, at);
	return link;
}

static void rested(void *arg)
{
	struct node_link *link = arg;
	link->calls = 0;
	link->second_ms = clock_steady_ms();
	if (link->conn)
		net_conn_resume(link->conn);
}

// A node elsewhere that calls without end would fill the audit log and keep the loop from others.
static void count_call(struct node_link *link)
{
	const int64_t now_ms = clock_steady_ms();
	if (now_ms - link->second_ms >= SECOND_MS && !link->rest.running) {
		link->second_ms = now_ms;
		link->calls = 0;
	}
	const unsigned most = link->tab ? LIMIT_TAB_CALLS_PER_S : LIMIT_NODE_CALLS_PER_S;
	if (link->local || ++link->calls != most || !link->conn)
		return;
	net_conn_pause(link->conn);
	net_timer_start(link->all->params.loop, &link->rest, SECOND_MS - (now_ms - link->second_ms), rested, link);
}

void node_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct node_link *link = user;
	struct error error = {0};
	(void)conn;
	if (link->cut)
		return;
	const enum rpc_heard heard = rpc_receive(&link->rpc, bytes, length, binary, &error);
	if (heard == RPC_SERVED || heard == RPC_REFUSED || heard == RPC_GARBAGE)
		count_call(link);
	if (heard == RPC_REFUSED || heard == RPC_GARBAGE || heard == RPC_BROKEN)
		say_refused(link, &error);
}
