/* See tab.h. */
#include "server/api/nodes/tab.h"

#include "common/base/log.h"
#include "common/wire/rpc.h"
#include "server/security/lends.h"

#include <openssl/crypto.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROTOCOL = 1,
	CLOSE_UNAUTHENTICATED = 4401,
	CLOSE_FORBIDDEN = 4403, // a page that hears this forgets who it is
	CLOSE_SILENT = 4408,
	CLOSE_OTHER_VERSION = 4426,
	CLOSE_TOO_MANY = 4429,
	CLOSE_NOT_NOW = 4503,
};
enum { LINKS_MOST = 4 };    // of one tab: it has one, and others while it comes back
enum { SILENT_MS = 16000 }; // that a page may be: it asks for a sign of life every 2 s

struct tab_door {
	struct tab_door_params params; // peer: not kept, see below
	struct net_conn *conn;
	struct rpc rpc;
	char peer[JOINING_PEER_BYTES];
	bool closed, asked, evicted;
	struct net_timer deadline;
	struct limits_waiter place;
	struct node_link *link; // once it is let in
	// While it joins:
	struct json *id;
	struct lends_joined joined;
	unsigned storing; // the struct lives until that is done
};

static void release(struct tab_door *door)
{
	if (door->closed && !door->storing)
		free(door);
}

#define EVICTED "it had not said who it is yet, and others needed its place"

static void on_evicted(struct limits_waiter *place)
{
	struct tab_door *door = (struct tab_door *)((char *)place - offsetof(struct tab_door, place));
	door->evicted = true;
	if (door->conn)
		net_conn_close(door->conn, CLOSE_UNAUTHENTICATED, EVICTED);
}

static void too_late(void *arg)
{
	struct tab_door *door = arg;
	if (door->conn)
		net_conn_close(door->conn, CLOSE_UNAUTHENTICATED, "it did not say who it is within 5 s");
}

static void silent(void *arg)
{
	struct tab_door *door = arg;
	if (door->conn)
		net_conn_close(door->conn, CLOSE_SILENT, "its page has said nothing: it is frozen");
}

// A browser answers pings for a page that it has frozen, so that the page itself has to be heard.
static void expect_page(struct tab_door *door)
{
	net_timer_start(door->params.loop, &door->deadline, SILENT_MS, silent, door);
}

void tab_door_opened(void *user, struct net_conn *conn)
{
	struct tab_door *door = user;
	door->conn = conn;
	if (door->evicted)
		net_conn_close(conn, CLOSE_UNAUTHENTICATED, EVICTED);
	else
		net_timer_start(door->params.loop, &door->deadline, LIMIT_LOGIN_MS, too_late, door);
}

void tab_door_closed(void *user, struct net_conn *conn, int code)
{
	struct tab_door *door = user;
	door->closed = true;
	door->conn = NULL;
	net_timer_stop(door->params.loop, &door->deadline);
	limits_wait_over(door->params.limits, &door->place);
	if (door->link)
		node_link_closed(door->link, conn, code);
	door->link = NULL;
	rpc_close(&door->rpc, NULL);
	release(door);
}

static int refusal_code(enum status status)
{
	switch (status) {
	case STATUS_UNAUTHENTICATED:
		return CLOSE_FORBIDDEN;
	case STATUS_CONFLICT:
		return CLOSE_OTHER_VERSION;
	case STATUS_RATE_LIMITED:
		return CLOSE_TOO_MANY;
	default:
		return CLOSE_NOT_NOW;
	}
}

// What strangers try is counted by address, not written one by one.
static void refuse(struct tab_door *door, const struct error *error)
{
	struct audit_actor by = {.actor = "nobody"};
	limits_address(door->peer, by.peer);
	audit_count(door->params.audit,
		    &(struct audit_tally){
			    .by = &by, .action = "node.join", .target = "", .node_id = "", .outcome = error->status});
	if (node_links_say(door->params.links))
		log_warning("lends", "a browser tab from %s was refused: %s", door->peer, error->message);
	if (door->conn)
		net_conn_close(door->conn, refusal_code(error->status), error->message);
}

// From here on the connection is the node's.
static enum status let_in(struct tab_door *door, const char *node_id, struct error *error)
{
	const struct node_link_params link = {.tab = true, .node_id = node_id, .peer = door->peer};
	if (node_links_of(door->params.links, node_id) >= LINKS_MOST) {
		error_set(error, STATUS_RATE_LIMITED, "this device has %d connections already", LINKS_MOST);
		error_hint(error, "close other pages of this address, and try again in a few seconds");
		return STATUS_RATE_LIMITED;
	}
	net_timer_stop(door->params.loop, &door->deadline);
	limits_wait_over(door->params.limits, &door->place);
	door->link = node_link_create(door->params.links, &link);
	return door->link ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
}

static void open_link(struct tab_door *door)
{
	if (!door->link || !door->conn)
		return;
	expect_page(door);
	node_link_opened(door->link, door->conn);
}

static void joined(void *context, enum status status, const struct error *why)
{
	struct tab_door *door = context;
	struct json *result = NULL;
	struct error error = {0};
	if (status)
		error = *why;
	else if (!door->closed)
		status = let_in(door, door->joined.node_id, &error);
	if (!status) {
		result = json_new_object();
		json_set_string(result, "node_id", door->joined.node_id);
		json_set_string(result, "secret", door->joined.secret);
	}
	OPENSSL_cleanse(&door->joined, sizeof door->joined);
	rpc_answer(&door->rpc, "tab.join", door->id, result, status ? &error : NULL);
	json_destroy(&door->id);
	if (status)
		refuse(door, &error);
	else
		open_link(door);
	door->storing--;
	release(door);
}

static enum status check(struct tab_door *door, const struct message *message, struct error *error)
{
	if (door->asked)
		return error_set(error, STATUS_CONFLICT, "this connection has asked already");
	door->asked = true;
	if (json_get_integer(message->params, "protocol", 0) == PROTOCOL)
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "this page is of another version than the server");
	error_hint(error, "load the page again");
	return STATUS_CONFLICT;
}

static enum status tab_join(void *arg, const struct message *message, struct error *error)
{
	struct tab_door *door = arg;
	enum status status = check(door, message, error);
	if (status)
		return status;
	const struct lends_joining joining = {.token = json_get_string(message->params, "token", ""),
					      .peer = door->peer,
					      .done = joined,
					      .context = door};
	status = lends_join(door->params.lends, &joining, &door->joined, error);
	if (status)
		return status;
	door->id = message->id ? json_copy(message->id) : NULL;
	door->storing++;
	limits_wait_held(&door->place, true);
	return STATUS_PENDING;
}

static enum status tab_hello(void *arg, const struct message *message, struct error *error)
{
	struct tab_door *door = arg;
	const char *node_id = json_get_string(message->params, "node_id", "");
	enum status status = check(door, message, error);
	if (!status)
		status = lends_hello(door->params.lends, node_id, json_get_string(message->params, "secret", ""),
				     error);
	if (!status)
		status = let_in(door, node_id, error);
	if (status)
		return status;
	rpc_answer(&door->rpc, message->method, message->id, json_new_object(), NULL);
	open_link(door);
	return STATUS_PENDING;
}

static const struct rpc_method methods[] = {{"tab.join", tab_join}, {"tab.hello", tab_hello}};

static enum status admit(void *arg, const char *method, struct error *error)
{
	(void)arg;
	if (!strcmp(method, "tab.join") || !strcmp(method, "tab.hello"))
		return STATUS_OK;
	return error_set(error, STATUS_UNAUTHENTICATED, "a tab first says who it is: tab.join or tab.hello");
}

static enum status send(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct tab_door *door = arg;
	(void)body; // none has one
	return door->conn ? net_conn_send_text(door->conn, buffer_text(head), head->length) : STATUS_UNAVAILABLE;
}

void tab_door_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct tab_door *door = user;
	struct error error = {0};
	if (door->link) {
		expect_page(door);
		node_link_message(door->link, conn, bytes, length, binary);
		return;
	}
	const enum rpc_heard heard = rpc_receive(&door->rpc, bytes, length, binary, &error);
	if (heard != RPC_SERVED) // no second try on this connection
		refuse(door, &error);
}

enum status tab_door_create(struct tab_door **out, const struct tab_door_params *params, struct error *error)
{
	struct tab_door *door = calloc(1, sizeof(*door));
	*out = NULL;
	if (!door)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*door = (struct tab_door){.params = *params, .place = {.evicted = on_evicted}};
	snprintf(door->peer, sizeof door->peer, "%s", params->peer);
	enum status status = limits_wait(params->limits, &door->place, door->peer, error);
	if (status) {
		free(door);
		return status;
	}
	rpc_init(&door->rpc, &(struct rpc_params){.contract = params->contract,
						  .serves = "node-to-server",
						  .peer = "the tab",
						  .methods = methods,
						  .method_count = sizeof methods / sizeof *methods,
						  .answers_faults = true,
						  .send = send,
						  .admit = admit,
						  .arg = door});
	*out = door;
	return STATUS_OK;
}
