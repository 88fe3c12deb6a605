/* See join.h: strangers' connections, and joining by ticket. What a person decides is in join_decide.c. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/api/nodes/join_inside.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROTOCOL = 1, SAY_MS = 1000, CLOSE_UNAUTHENTICATED = 4401, CLOSE_FORBIDDEN = 4403 };

enum status joins_create(struct joins **out, const struct joins_params *params, struct error *error)
{
	struct joins *joins = calloc(1, sizeof(*joins));
	*out = NULL;
	if (!joins || joining_create(&joins->joining, authority_sha256(params->authority))) {
		free(joins);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for nodes that join");
	}
	joins->params = *params;
	*out = joins;
	return STATUS_OK;
}

void joins_destroy(struct joins **pointer)
{
	struct joins *joins = *pointer;
	if (!joins)
		return;
	*pointer = NULL;
	while (joins->all)
		join_closed(joins->all, NULL, 1001);
	joining_destroy(&joins->joining);
	free(joins);
}

void joins_set_cut(struct joins *joins, void (*cut)(void *context, const char *node_id, const char *reason),
		   void *context)
{
	joins->params.cut = cut;
	joins->params.context = context;
}

void joins_cut(struct joins *joins, const char *node_id, const char *reason)
{
	if (joins->params.cut)
		joins->params.cut(joins->params.context, node_id, reason);
}

void joins_shut_down(struct joins *joins)
{
	for (struct join *join = joins->all; join; join = join->next)
		if (join->conn)
			net_conn_close(join->conn, 1001, "the server shuts down");
}

// ---- the connection ----

#define EVICTED "it had asked nothing yet, and others needed its place"

// Others of its address, or all of them, need the place of one that does not wait for a person.
static void on_evicted(struct limits_waiter *place)
{
	struct join *join = (struct join *)((char *)place - offsetof(struct join, place));
	join->evicted = true;
	if (join->conn)
		net_conn_close(join->conn, CLOSE_UNAUTHENTICATED, EVICTED);
}

void join_late(void *arg)
{
	struct join *join = arg;
	if (join->conn)
		net_conn_close(join->conn, CLOSE_UNAUTHENTICATED, "nothing was asked within 5 s");
}

void join_give_time(struct join *join, int64_t ms, void (*fn)(void *arg))
{
	net_timer_start(join->joins->params.loop, &join->deadline, ms, fn, join);
}

void join_opened(void *user, struct net_conn *conn)
{
	struct join *join = user;
	join->conn = conn;
	if (join->evicted)
		net_conn_close(conn, CLOSE_UNAUTHENTICATED, EVICTED);
	else if (join->revoked)
		net_conn_close(conn, CLOSE_FORBIDDEN, "this node's certificate is no longer valid here");
	else
		join_give_time(join, LIMIT_LOGIN_MS, join_late);
}

// It does not wait any more; everyone who saw it wait is told.
void join_end_request(struct join *join, const char *summary)
{
	if (!join->request)
		return;
	if (summary)
		cluster_tell_waiting(join->joins->params.cluster,
				     &(struct cluster_waiting){.record = join->request->node,
							       .kind = "node.refused",
							       .summary = summary,
							       .since_ms = join->request->requested_ms});
	joining_end(join->joins->joining, &join->request);
}

void join_release(struct join *join)
{
	if (join->closed && !join->storing)
		free(join);
}

void join_closed(void *user, struct net_conn *conn, int code)
{
	struct join *join = user;
	(void)conn, (void)code;
	if (join->closed)
		return;
	join->closed = true;
	join->conn = NULL;
	rpc_close(&join->rpc, NULL);
	net_timer_stop(join->joins->params.loop, &join->deadline);
	LIST_REMOVE(join, link);
	limits_wait_over(join->joins->params.limits, &join->place);
	join_end_request(join, join->decided ? NULL : "it disconnected before anybody decided");
	join_release(join);
}

static struct audit_actor actor_of(const struct join *join)
{
	struct audit_actor actor = {.actor = "nobody"};
	snprintf(actor.peer, sizeof actor.peer, "%s", join->peer);
	return actor;
}

// Strangers may try often: what they try is counted by address and outcome, not written one by one, and of what they
// say of themselves nothing is in it, or they could fill the audit log. The log says it once a second.
static void count_refusal(struct join *join, const struct error *error)
{
	struct joins *joins = join->joins;
	struct audit_actor by = actor_of(join);
	const int64_t now_ms = clock_steady_ms();
	limits_address(join->peer, by.peer);
	audit_count(joins->params.audit,
		    &(struct audit_tally){
			    .by = &by, .action = "node.join", .target = "", .node_id = "", .outcome = error->status});
	if (joins->said_ms && now_ms - joins->said_ms < SAY_MS)
		return;
	joins->said_ms = now_ms;
	log_warning("nodes", "a connection from %s was refused: %s", join->peer, error->message);
}

struct json *joins_grant(const struct joins *joins, const char *pem)
{
	struct json *grant = json_new_object();
	json_set_string(grant, "certificate", pem);
	json_set_string(grant, "authority", authority_pem(joins->params.authority));
	json_set_string(grant, "server_uri", authority_server_uri(joins->params.authority));
	return grant;
}

// ---- by ticket ----

// A node that is being let in by its ticket.
struct entry {
	struct join *join;
	struct json *id; // of its call
	struct ticket *ticket;
	char *pem, node_id[STORE_ID_BYTES];
};

static void entry_finish(struct entry *entry, struct json *result, const struct error *error)
{
	struct join *join = entry->join;
	rpc_answer(&join->rpc, "join.request", entry->id, result, error);
	if (join->conn) // it comes back with its certificate, or not at all
		join_give_time(join, JOIN_GOODBYE_MS, join_late);
	json_destroy(&entry->id);
	free(entry->pem);
	free(entry);
	join->storing--;
	join_release(join);
}

static void entered(void *context, enum status status, const struct error *error)
{
	struct entry *entry = context;
	struct joins *joins = entry->join->joins;
	struct json *result = NULL;
	authority_settle(joins->params.authority, entry->pem, !status);
	if (status) {
		tickets_unuse(joins->params.tickets, entry->ticket);
	} else {
		tickets_used(joins->params.tickets, entry->ticket);
		log_info("nodes", "node %s has joined with ticket %s", entry->node_id, entry->ticket->ticket_id);
		result = json_new_object();
		json_set_string(result, "state", "approved");
		json_set(result, "grant", joins_grant(joins, entry->pem));
	}
	entry_finish(entry, result, status ? error : NULL);
}

// A node that has a good certificate keeps its place: somebody else with its id needs a person's word. The same key may
// ask again: it lost the answer.
static enum status check_standing(const struct joins *joins, const char *node_id, const char *pem, struct error *error)
{
	uint8_t digest[NET_SHA256_BYTES];
	bool local;
	cluster_has_node(joins->params.cluster, node_id, &local);
	if (local) {
		error_set(error, STATUS_CONFLICT, "the server's own node has this id");
		error_hint(error, "do not copy a node's folder: give this one a --data of its own");
		return STATUS_CONFLICT;
	}
	enum status status = joining_key(pem, digest, error);
	if (status || authority_standing(joins->params.authority, node_id, digest) != AUTHORITY_KNOWN)
		return status;
	error_set(error, STATUS_CONFLICT, "node %.64s has joined already, with another key", node_id);
	error_hint(error,
		   "remove it first (exogpu nodes remove %.64s), or join without a ticket and have a person "
		   "compare the codes",
		   node_id);
	return STATUS_CONFLICT;
}

static enum status join_by_ticket(struct join *join, const struct message *message, struct error *error)
{
	struct joins *joins = join->joins;
	const struct json *record = json_get(message->params, "node");
	const char *node_id = json_get_string(record, "node_id", "");
	const char *request = json_get_string(message->params, "request", "");
	struct store_batch *batch = NULL;
	struct audit_actor by = actor_of(join);
	struct entry *entry = calloc(1, sizeof(*entry));
	if (!entry || store_batch_create(&batch)) {
		free(entry);
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	snprintf(entry->node_id, sizeof entry->node_id, "%s", node_id);
	snprintf(by.actor, sizeof by.actor, "node:%s", node_id);
	snprintf(by.name, sizeof by.name, "%s", json_get_string(record, "name", ""));
	enum status status = tickets_use(joins->params.tickets, json_get_string(message->params, "ticket", ""), batch,
					 &entry->ticket, error);
	if (!status)
		status = check_standing(joins, node_id, request, error);
	if (!status)
		status = authority_issue(joins->params.authority, node_id, request, batch, &entry->pem, error);
	if (!status)
		status = audit_put(joins->params.audit, batch,
				   &(struct audit_event){.by = &by,
							 .action = "node.join",
							 .target = entry->ticket->ticket_id,
							 .node_id = node_id});
	if (!status) {
		entry->join = join;
		entry->id = message->id ? json_copy(message->id) : NULL;
		struct cluster_move move = {.node_id = node_id,
					    .record = record,
					    .how = "joined with a ticket",
					    .done = entered,
					    .context = entry};
		status = cluster_join_node(joins->params.cluster, &move, &batch, error);
	}
	if (status) {
		if (entry->ticket)
			tickets_unuse(joins->params.tickets, entry->ticket);
		authority_settle(joins->params.authority, entry->pem, false);
		store_batch_destroy(&batch);
		json_destroy(&entry->id);
		free(entry->pem);
		free(entry);
		return error_set(error, status, "%s", status_text(status));
	}
	join->storing++;
	limits_wait_held(&join->place, true);
	return STATUS_PENDING;
}

// ---- by a person's word ----

void join_decided(struct join *join, struct json *grant, const char *reason)
{
	struct json *params = json_new_object();
	json_set_bool(params, "approved", grant != NULL);
	if (grant)
		json_set(params, "grant", grant);
	else
		json_set_string(params, "reason", reason);
	rpc_call(&join->rpc, &(struct rpc_ask){.method = "join.decided", .params = params});
	if (grant)
		join_give_time(join, JOIN_GOODBYE_MS, join_late); // it comes back with its certificate
	else if (join->conn)
		net_conn_close(join->conn, CLOSE_FORBIDDEN, "not let in");
}

static void wait_over(void *arg)
{
	struct join *join = arg;
	if (join->decided) { // the disk will say
		join_give_time(join, JOIN_GOODBYE_MS, wait_over);
		return;
	}
	join->decided = true;
	join_end_request(join, "was not let in: nobody decided in time");
	join_decided(join, NULL, "nobody has decided in time");
}

static enum status join_by_word(struct join *join, const struct message *message, struct error *error)
{
	struct joins *joins = join->joins;
	const struct json *record = json_get(message->params, "node");
	const char *node_id = json_get_string(record, "node_id", "");
	void *replaced = NULL;
	bool local, known = cluster_has_node(joins->params.cluster, node_id, &local);
	struct joining_ask asked = {.peer = join->peer,
				    .node = record,
				    .pem = json_get_string(message->params, "request", ""),
				    .commitment = json_get_string(message->params, "commitment", ""),
				    .known = known,
				    .wall_ms = clock_wall_ms(),
				    .steady_ms = clock_steady_ms(),
				    .owner = join};
	if (local)
		return check_standing(joins, node_id, asked.pem, error);
	enum status status = joining_ask(joins->joining, &asked, &join->request, &replaced, error);
	if (replaced) {
		struct join *earlier = replaced;
		earlier->request = NULL;
		earlier->decided = true;
		if (earlier->conn)
			net_conn_close(earlier->conn, CLOSE_FORBIDDEN, "this node asked again");
	}
	if (status)
		return status;
	struct json *result = json_new_object();
	json_set_string(result, "state", "waiting");
	json_set_string(result, "nonce", join->request->nonce);
	rpc_answer(&join->rpc, message->method, message->id, result, NULL);
	join_give_time(join, LIMIT_LOGIN_MS, join_late); // for the other nonce
	return STATUS_PENDING;
}

static enum status reveal(void *arg, const struct message *message, struct error *error)
{
	struct join *join = arg;
	if (!join->request || join->decided)
		return error_set(error, STATUS_CONFLICT, "this node is not waiting to be let in");
	enum status status = joining_reveal(join->joins->joining, join->request,
					    json_get_string(message->params, "nonce", ""), error);
	if (status)
		return status;
	const struct joining_request *request = join->request;
	log_info("nodes", "node %s at %s waits to be let in", request->node_id, join->peer);
	cluster_tell_waiting(join->joins->params.cluster, &(struct cluster_waiting){.record = request->node,
										    .kind = "node.waiting",
										    .summary = "waits to be let in",
										    .since_ms = request->requested_ms});
	struct json *result = json_new_object();
	json_set_integer(result, "expires_in_s", LIMIT_JOIN_MS / 1000);
	rpc_answer(&join->rpc, message->method, message->id, result, NULL);
	join_give_time(join, LIMIT_JOIN_MS, wait_over);
	limits_wait_over(join->joins->params.limits, &join->place); // LIMIT_WAITING_NODES bounds these
	net_conn_know(join->conn);
	return STATUS_PENDING;
}

// ---- messages ----

static enum status check_request(const struct message *message, struct error *error)
{
	const char *node_id = json_get_string(json_get(message->params, "node"), "node_id", "");
	int64_t protocol = json_get_integer(message->params, "protocol", 0);
	const bool ticket = json_get(message->params, "ticket"), commitment = json_get(message->params, "commitment");
	if (protocol != PROTOCOL) {
		error_set(error, STATUS_CONFLICT, "the node speaks protocol %lld, this server needs %d",
			  (long long)protocol, PROTOCOL);
		error_hint(error, "run the same version of exogpu on both");
		return STATUS_CONFLICT;
	}
	if (strlen(node_id) >= STORE_ID_BYTES) // the contract counts characters
		return error_set(error, STATUS_INVALID_PARAMS, "node.node_id must have at most %d bytes",
				 STORE_ID_BYTES - 1);
	for (const char *at = node_id; *at; at++) // it becomes a name in a certificate
		if (*at <= ' ' || *at > '~')
			return error_set(error, STATUS_INVALID_PARAMS, "node.node_id must be of printable ASCII");
	if (ticket == commitment)
		return error_set(error, STATUS_INVALID_PARAMS, "join.request takes a ticket or a commitment");
	return STATUS_OK;
}

static enum status request(void *arg, const struct message *message, struct error *error)
{
	struct join *join = arg;
	if (join->asked)
		return error_set(error, STATUS_CONFLICT, "this connection has asked already");
	join->asked = true;
	net_timer_stop(join->joins->params.loop, &join->deadline);
	const enum status status = check_request(message, error);
	if (status)
		return status;
	return json_get(message->params, "ticket") ? join_by_ticket(join, message, error)
						   : join_by_word(join, message, error);
}

static const struct rpc_method methods[] = {{"join.request", request}, {"join.reveal", reveal}};

static enum status admit(void *arg, const char *method, struct error *error)
{
	(void)arg;
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (!strcmp(methods[i].name, method))
			return STATUS_OK;
	error_set(error, STATUS_UNAUTHENTICATED, "a node that has not joined may only ask to join");
	error_hint(error, "exogpu node --join HOST:PORT --ticket TICKET");
	return STATUS_UNAUTHENTICATED;
}

static enum status send(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct join *join = arg;
	(void)body; // none has one
	return join->conn ? net_conn_send_text(join->conn, buffer_text(head), head->length) : STATUS_UNAVAILABLE;
}

enum status join_create(struct join **out, struct joins *joins, const char *peer, bool revoked, struct error *error)
{
	*out = NULL;
	struct join *join = calloc(1, sizeof(*join));
	if (!join)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*join = (struct join){.joins = joins, .revoked = revoked, .place = {.evicted = on_evicted}};
	enum status status = limits_wait(joins->params.limits, &join->place, peer, error);
	if (status) {
		free(join);
		return status;
	}
	snprintf(join->peer, sizeof join->peer, "%s", peer);
	rpc_init(&join->rpc, &(struct rpc_params){.contract = joins->params.contract,
						  .serves = "node-to-server",
						  .peer = "the node",
						  .methods = methods,
						  .method_count = sizeof methods / sizeof *methods,
						  .answers_faults = true,
						  .send = send,
						  .admit = admit,
						  .arg = join});
	LIST_PUSH(&joins->all, join, link);
	*out = join;
	return STATUS_OK;
}

void join_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct join *join = user;
	struct error error = {0};
	if (join->revoked)
		return;
	const enum rpc_heard heard = rpc_receive(&join->rpc, bytes, length, binary, &error);
	if (heard == RPC_REFUSED || heard == RPC_GARBAGE) { // no second try on this connection
		count_refusal(join, &error);
		join_end_request(join, join->request && join->request->code[0] ? "was turned away" : NULL);
		net_conn_close(conn, CLOSE_FORBIDDEN, "refused");
	}
}
