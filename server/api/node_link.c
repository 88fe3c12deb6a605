/* See node_link.h. A node must register within LIMIT_LOGIN_MS. Everything that it says is checked against the contract
 * before it is looked at; a message that breaks it is answered with an error and changes nothing. */
#include "server/api/node_link.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/parts.h"
#include "common/wire/message.h"
#include "server/cluster/log_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROTOCOL = 1,
	CLOSE_FORBIDDEN = 4403,
	BURST_QUEUE_BYTES = 4 * 1024 * 1024, // with so much waiting for a node it gets no bursts
	CLOSE_LATE = 4408,
	CLOSE_SUPERSEDED = 4409,
	LOOK_MS = 1000,
	LATE_MS = 20,
	SECOND_MS = 1000,
	REFUSED_MS = 60 * 1000 / LIMIT_NODE_LINES_PER_MIN,
	SKEW_S = 60, // of a clock that is wrong
};

// A call of ours that the node has not answered yet.
struct ask {
	struct ask *next;
	int64_t id;
	const struct contract_method *method;
	cluster_answer *answer;
	void *context;
};

struct node_links {
	struct node_links_params params;
	struct node_link *links;
};

struct node_link {
	struct cluster_link link; // first: the cluster knows this part
	struct node_link *next, **at;
	struct node_links *all;
	struct net_conn *conn;
	bool local, closed;
	bool cut;                    // it was removed: nothing that it still says is heard
	bool skewed, other_version;  // the log has told that its clock is wrong, that it is of another version
	bool late;                   // silent for too long when it was last looked at
	char proven[STORE_ID_BYTES]; // who its certificate says it is; "" of a local one
	char peer[JOINING_PEER_BYTES];
	bool renewing;
	unsigned calls;               // in the second that began then
	int64_t second_ms, said_ms;   // steady; said_ms: when the log last told of a message that was refused
	struct net_timer rest;        // while it is not read
	int64_t burst, burst_ns;      // the latest of its bursts, and when it began, steady
	struct net_timer look;        // whether it is still there
	bool known;                   // a registration was stored: the cluster may point here until the node is lost
	char node_id[STORE_ID_BYTES]; // "" until registered; once known it stays
	struct net_timer deadline;
	int64_t next_id;
	struct ask *asks, **last_ask; // oldest first
	unsigned asking;
	unsigned storing;     // registrations and reports under way; the struct lives until they are done
	unsigned registering; // of these, registrations
};

// A registration or a report of devices that is being stored; more of them may come before the first is.
struct pending {
	struct node_link *link;
	struct json *id;      // NULL: it came as a notification
	struct json *workers; // of a registration; may be NULL
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
	return STATUS_OK;
}

void node_links_destroy(struct node_links **pointer)
{
	struct node_links *links = *pointer;
	if (!links)
		return;
	*pointer = NULL;
	joins_set_cut(links->params.joins, NULL, NULL);
	while (links->links)
		node_link_closed(links->links, NULL, 1001);
	free(links);
}

static void send_call(struct node_link *link, const char *method, struct json *params, bool notify)
{
	struct buffer text;
	struct json *id = notify ? NULL : json_new_integer(++link->next_id);
	buffer_init(&text, LIMIT_HEAD_BYTES);
	if (!message_print_call(&text, id, method, params) && link->conn)
		net_conn_send_text(link->conn, buffer_text(&text), text.length);
	json_destroy(&id);
	buffer_finish(&text);
}

static void answer(struct node_link *link, const struct json *id, struct json *result, const struct error *error)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	enum status status = error ? message_print_error(&text, id, error) : message_print_result(&text, id, result);
	if (!status && link->conn)
		net_conn_send_text(link->conn, buffer_text(&text), text.length);
	buffer_finish(&text);
}

void node_links_watch(struct node_links *links, bool watched)
{
	for (struct node_link *link = links->links; link; link = link->next) {
		struct json *params = json_new_object();
		json_set_bool(params, "watched", watched);
		send_call(link, "node.watch", params, true);
	}
}

void node_links_shut_down(struct node_links *links)
{
	for (struct node_link *link = links->links; link; link = link->next)
		if (link->conn)
			net_conn_close(link->conn, 1001, "the server shuts down");
}

// Tell whoever asked, and forget the call.
static void ask_finish(struct ask *one, enum status status, const struct json *result, const struct error *error)
{
	one->answer(one->context, status, result, error);
	free(one);
}

static enum status ask(struct cluster_link *cluster_link, const char *method, struct json *params, cluster_answer *told,
		       void *context)
{
	struct node_link *link = (struct node_link *)cluster_link;
	struct ask *one = told && link->asking < LIMIT_NODE_CALLS ? calloc(1, sizeof(*one)) : NULL;
	if (told && !one) {
		json_destroy(&params);
		return STATUS_UNAVAILABLE;
	}
	send_call(link, method, params, false);
	if (!one)
		return STATUS_OK;
	*one = (struct ask){.id = link->next_id,
			    .method = contract_find(link->all->params.contract, method),
			    .answer = told,
			    .context = context};
	*link->last_ask = one;
	link->last_ask = &one->next;
	link->asking++;
	return STATUS_OK;
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

// An answer of the node. One that nobody waits for is passed over.
static void answered(struct node_link *link, const struct message *message)
{
	int64_t id;
	struct error error = {0};
	struct ask **at = &link->asks;
	if (json_integer(message->id, &id))
		return;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	struct ask *one = *at;
	if (!one)
		return;
	*at = one->next;
	if (!one->next)
		link->last_ask = at;
	link->asking--;
	enum status status;
	if (message->kind == MESSAGE_ERROR) {
		message_read_error(message, &error);
		status = error.status;
	} else {
		status = contract_check_result(link->all->params.contract, one->method, message->result, &error);
		if (status) {
			say_refused(link, &error);
			error = (struct error){0};
			status = error_set(&error, STATUS_UNAVAILABLE, "the node's answer breaks the contract");
		}
	}
	ask_finish(one, status, status ? NULL : message->result, &error);
}

static void fail_asks(struct node_link *link)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node is gone");
	while (link->asks) {
		struct ask *one = link->asks;
		link->asks = one->next;
		ask_finish(one, STATUS_UNAVAILABLE, NULL, &error);
	}
	link->last_ask = &link->asks;
	link->asking = 0;
}

static void tell(struct cluster_link *cluster_link, const char *method, struct json *params)
{
	send_call((struct node_link *)cluster_link, method, params, true);
}

static void ask_verify(struct cluster_link *cluster_link, const char *device_id)
{
	struct json *params = json_new_object();
	json_set_string(params, "device_id", device_id);
	send_call((struct node_link *)cluster_link, "device.verify", params, false);
}

static void superseded(struct cluster_link *cluster_link)
{
	struct node_link *link = (struct node_link *)cluster_link;
	if (link->conn)
		net_conn_close(link->conn, CLOSE_SUPERSEDED, "another connection speaks for this node");
}

struct node_link *node_link_create(struct node_links *links, const struct node_link_params *params)
{
	struct node_link *link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	*link = (struct node_link){.link = {.ask = ask, .tell = tell, .verify = ask_verify, .superseded = superseded},
				   .all = links,
				   .local = params->local,
				   .next = links->links};
	snprintf(link->proven, sizeof link->proven, "%s", params->local ? "" : params->node_id);
	snprintf(link->peer, sizeof link->peer, "%s", params->peer);
	link->last_ask = &link->asks;
	link->at = &links->links;
	if (link->next)
		link->next->at = &link->next;
	links->links = link;
	return link;
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
	bool silent = net_conn_silence_ms(link->conn) > LIMIT_NODE_SILENCE_S * 1000;
	if (silent && !link->late) {
		link->late = true; // it may be this process that stood still: what has come meanwhile is read first
		net_timer_start(link->all->params.loop, &link->look, LATE_MS, look, link);
	} else if (silent) {
		link->cut = true;
		if (link->node_id[0])
			cluster_lose_node(link->all->params.cluster, link->node_id, &link->link,
					  "nothing is heard of it");
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
	net_conn_trust(conn); // it came by the data directory's own socket, or with a certificate of this cluster's
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
	*link->at = link->next;
	if (link->next)
		link->next->at = link->at;
	if (link->node_id[0])
		cluster_lose_node(link->all->params.cluster, link->node_id, &link->link,
				  code == 1000 || code == 1001 ? "it was stopped" : "its connection broke");
	fail_asks(link);
	release(link);
}

static struct pending *pending_create(struct node_link *link, const struct message *message)
{
	struct pending *pending = calloc(1, sizeof(*pending));
	if (!pending)
		return NULL;
	*pending = (struct pending){.link = link, .id = message->id ? json_copy(message->id) : NULL};
	link->storing++;
	return pending;
}

// Answer, with `result` (taken) or the error, and let go. Without an id nobody waits for an answer.
static void pending_finish(struct pending *pending, struct json *result, const struct error *error)
{
	struct node_link *link = pending->link;
	if (pending->id && !link->closed)
		answer(link, pending->id, result, error);
	else
		json_destroy(&result);
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
	else if (!link->local)
		witnesses_node_came(link->all->params.witnesses, link->node_id);
	if (first && !link->local && !link->closed && !link->cut)
		tenancy_node_back(link->all->params.tenants, link->node_id, pending->workers);
	struct json *result = json_new_object();
	json_set_integer(result, "protocol", PROTOCOL);
	json_set_bool(result, "watched", events_watched(link->all->params.events));
	json_set_bool(result, "peer_speeds", true);
	if (link->local && link->all->params.address)
		json_set(result, "links", links_json(link));
	pending_finish(pending, result, NULL);
}

static void devices_reported(void *context, enum status status, const struct error *error)
{
	pending_finish(context, status ? NULL : json_new_object(), status ? error : NULL);
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
	if (link->local || link->other_version || !strcmp(version, EXOGPU_VERSION))
		return;
	link->other_version = true;
	log_warning("nodes",
		    "%.64s (%s) is of version %.40s, this server of %s: models are not split over nodes of several "
		    "versions; install the same on all",
		    link->link.actor.name, link->node_id, version, EXOGPU_VERSION);
}

static enum status node_register(struct node_link *link, const struct message *message, struct error *error)
{
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
		return error_set(error, STATUS_FORBIDDEN, "the server's own node comes by the server's socket");
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
	link->registering++;
	enum status status = cluster_register_node(link->all->params.cluster, record, link->local, &link->link,
						   registered, pending, error);
	if (status) {
		link->registering--;
		if (first)
			link->node_id[0] = 0;
		pending_finish(pending, NULL, error);
	}
	return STATUS_PENDING;
}

static enum status node_devices(struct node_link *link, const struct message *message, struct error *error)
{
	struct pending *pending = pending_create(link, message);
	if (!pending)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	struct json *devices = cluster_join_speeds(json_get(message->params, "devices"),
						   json_get(message->params, "peer_speeds"));
	enum status status = cluster_report_devices(link->all->params.cluster, link->node_id, devices, devices_reported,
						    pending, error);
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

static enum status node_renew(struct node_link *link, const struct message *message, struct error *error)
{
	if (link->local && !link->all->params.address)
		return error_set(error, STATUS_CONFLICT, "this machine's own node needs no certificate");
	if (link->local && !link->known)
		return error_set(error, STATUS_CONFLICT, "the node is not registered yet");
	if (link->renewing)
		return error_set(error, STATUS_RATE_LIMITED, "a certificate is being made already");
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

// Answers for itself: with a body, if one is asked for.
static enum status node_burst(struct node_link *link, const struct message *message, struct error *error)
{
	struct buffer head;
	const int64_t burst = json_get_integer(message->params, "burst", 0), now_ns = clock_steady_ns();
	const size_t bytes = (size_t)json_get_integer(message->params, "back_bytes", 0);
	if (burst != link->burst || !json_get_integer(message->params, "piece", 0)) {
		link->burst = burst;
		link->burst_ns = now_ns;
	}
	if (!message->id || !link->conn)
		return STATUS_OK;
	if (net_conn_queued_bytes(link->conn) > BURST_QUEUE_BYTES)
		return error_set(error, STATUS_UNAVAILABLE, "much waits for this node already");
	struct net_frame *body = bytes ? net_frame_alloc(bytes) : NULL;
	if (bytes && !body)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (body)
		memset(net_frame_data(body), 0, bytes); // TLS makes noise of it
	struct json *result = json_new_object();
	json_set_integer(result, "ns", now_ns - link->burst_ns);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	enum status status = message_print_result(&head, message->id, result);
	if (!status)
		status = net_conn_send_parts(link->conn, &(struct net_parts){.head = head.data,
									     .head_bytes = head.length,
									     .body = body ? net_frame_data(body) : NULL,
									     .body_bytes = bytes,
									     .holder = body});
	net_frame_unref(&body);
	buffer_finish(&head);
	return status ? error_set(error, status, "the answer could not be sent") : STATUS_PENDING;
}

// What is over its share is counted there, and no reason to say more.
static enum status node_log(struct node_link *link, const struct message *message, struct error *error)
{
	struct json *node = cluster_describe_node(link->all->params.cluster, link->node_id);
	const enum status status = log_lines_add_node(link->all->params.log_lines, link->node_id,
						      json_get_string(node, "name", ""), message->params);
	json_destroy(&node);
	return status == STATUS_INVALID_PARAMS ? error_set(error, status, "at is no time") : STATUS_OK;
}

static enum status run(struct node_link *link, const struct message *message, struct error *error)
{
	const struct contract *contract = link->all->params.contract;
	const struct contract_method *method = contract_find(contract, message->method);
	if (!method || strcmp(method->direction, "node-to-server") != 0)
		return error_set(error, STATUS_METHOD_NOT_FOUND, "a node has no method \"%.64s\" here",
				 message->method);
	enum status status = contract_check_params(contract, method, message->params, error);
	if (status)
		return status;
	if (!strcmp(method->name, "node.register"))
		return node_register(link, message, error);
	if (!link->node_id[0])
		return error_set(error, STATUS_UNAUTHENTICATED, "register first");
	if (!strcmp(method->name, "node.devices"))
		return node_devices(link, message, error);
	if (!strcmp(method->name, "node.renew"))
		return node_renew(link, message, error);
	if (!strcmp(method->name, "node.telemetry")) {
		look_at_clock(link, json_get(message->params, "node"));
		cluster_report_telemetry(link->all->params.cluster, link->node_id, json_get(message->params, "node"),
					 json_get(message->params, "devices"));
		return STATUS_OK;
	}
	if (!strcmp(method->name, "node.links")) {
		topology_report(link->all->params.topology, link->node_id, message->params);
		return STATUS_OK;
	}
	if (!strcmp(method->name, "node.burst"))
		return node_burst(link, message, error);
	if (!strcmp(method->name, "node.log"))
		return node_log(link, message, error);
	if (!strcmp(method->name, "model.fetching")) {
		instances_fetching(link->all->params.instances, link->node_id, message->params);
		return STATUS_OK;
	}
	if (!strcmp(method->name, "hop.ended")) {
		instances_hop_ended(link->all->params.instances, link->node_id, message->params);
		return STATUS_OK;
	}
	if (!strcmp(method->name, "tenant.ended")) {
		tenancy_worker_ended(link->all->params.tenants, link->node_id,
				     json_get_string(message->params, "worker_id", ""),
				     json_get_string(message->params, "message", ""));
		return STATUS_OK;
	}
	return error_set(error, STATUS_METHOD_NOT_FOUND, "%s is not served", method->name);
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
	if (link->local || ++link->calls != LIMIT_NODE_CALLS_PER_S || !link->conn)
		return;
	net_conn_pause(link->conn);
	net_timer_start(link->all->params.loop, &link->rest, SECOND_MS - (now_ms - link->second_ms), rested, link);
}

void node_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct node_link *link = user;
	struct message message;
	struct error error = {0};
	(void)conn;
	if (link->cut)
		return;
	enum status status = binary ? message_decode(&message, bytes, length, &error)
				    : message_decode_text(&message, (const char *)bytes, length, &error);
	bool call = message.kind == MESSAGE_REQUEST || message.kind == MESSAGE_NOTIFICATION;
	if (status || call)
		count_call(link);
	if (!status && call)
		status = run(link, &message, &error);
	else if (!status)
		answered(link, &message);
	if (status && status != STATUS_PENDING)
		say_refused(link, &error);
	if (status != STATUS_PENDING && (message.id || (status && !call)) && (call || status))
		answer(link, message.id, status ? NULL : json_new_object(), status ? &error : NULL);
	message_finish(&message);
}
