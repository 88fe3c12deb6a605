/* See join.h: what a person decides about nodes, and the renewal of their certificates. Each decision is stored, with
 * its entry in the audit log, before anybody is told; only a removal cuts first and stores after. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/api/nodes/join_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A decision that is being stored.
struct decision {
	struct joins *joins;
	struct join *join; // NULL of a removal
	char node_id[STORE_ID_BYTES], *pem;
	bool replaces; // the node's certificates, of another machine
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};

static struct decision *decision_create(struct joins *joins, struct join *join, const struct joins_decision *asked)
{
	struct decision *decision = calloc(1, sizeof(*decision));
	if (!decision)
		return NULL;
	*decision = (struct decision){.joins = joins, .join = join, .done = asked->done, .context = asked->context};
	snprintf(decision->node_id, sizeof decision->node_id, "%s", asked->node_id);
	return decision;
}

static void decision_destroy(struct decision **pointer)
{
	struct decision *decision = *pointer;
	*pointer = NULL;
	if (!decision)
		return;
	free(decision->pem);
	free(decision);
}

static enum status find_waiting(const struct joins *joins, const char *node_id, bool approve, struct join **join,
				struct error *error)
{
	const struct joining_request *request = joining_find(joins->joining, node_id);
	*join = request ? request->owner : NULL;
	if (!*join) {
		error_set(error, STATUS_NOT_FOUND, "no node %.64s waits to be let in", node_id);
		error_hint(error, "exogpu nodes shows those that do");
		return STATUS_NOT_FOUND;
	}
	if ((*join)->decided)
		return error_set(error, STATUS_CONFLICT, "this is already being decided");
	if (approve && !request->code[0])
		return error_set(error, STATUS_CONFLICT, "the node has not shown its part of the code yet");
	return STATUS_OK;
}

// ---- yes ----

static void approved(void *context, enum status status, const struct error *error)
{
	struct decision *decision = context;
	struct join *join = decision->join;
	struct joins *joins = decision->joins;
	join->storing--;
	join->decided = !status;
	authority_settle(joins->params.authority, decision->pem, !status);
	if (!status && decision->replaces && joins->params.cut)
		joins->params.cut(joins->params.context, decision->node_id, "another machine took this node's place");
	if (!status) {
		log_info("nodes", "node %s was let in", decision->node_id);
		join_end_request(join, NULL);
		if (join->conn)
			join_decided(join, joins_grant(joins, decision->pem), NULL);
	}
	decision->done(decision->context, status, error);
	decision_destroy(&decision);
	join_release(join);
}

// What goes into the transaction besides the node's row. A node that is known under another key loses its place.
static enum status fill_approval(struct decision *decision, const struct audit_actor *by, struct store_batch *batch,
				 struct error *error)
{
	struct joins *joins = decision->joins;
	const struct joining_request *request = decision->join->request;
	char detail[128];
	decision->replaces = authority_standing(joins->params.authority, request->node_id, request->key_sha256) ==
			     AUTHORITY_KNOWN;
	snprintf(detail, sizeof detail, "{\"peer\":\"%.63s\",\"replaces\":%s}", request->peer,
		 decision->replaces ? "true" : "false");
	enum status status = authority_issue(joins->params.authority, request->node_id, request->pem, batch,
					     &decision->pem, error);
	if (!status && decision->replaces)
		authority_replace(joins->params.authority, request->node_id, decision->pem, batch);
	return status ? status
		      : audit_put(joins->params.audit, batch,
				  &(struct audit_event){.by = by,
							.action = "node.approve",
							.target = request->node_id,
							.node_id = request->node_id,
							.detail = detail});
}

enum status joins_approve(struct joins *joins, const struct joins_decision *asked, struct error *error)
{
	struct join *join;
	struct store_batch *batch = NULL;
	bool local;
	enum status status = find_waiting(joins, asked->node_id, true, &join, error);
	if (status)
		return status;
	if (asked->code && strcmp(asked->code, join->request->code) != 0) {
		error_set(error, STATUS_CONFLICT, "the node that waits as %.64s shows another code", asked->node_id);
		error_hint(error, "it asked again, or somebody else did: compare the digits again");
		return STATUS_CONFLICT;
	}
	cluster_has_node(joins->params.cluster, asked->node_id, &local);
	if (local)
		return error_set(error, STATUS_CONFLICT, "the server's own node has this id");
	struct decision *decision = decision_create(joins, join, asked);
	if (!decision || store_batch_create(&batch)) {
		decision_destroy(&decision);
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	status = fill_approval(decision, asked->by, batch, error);
	if (!status) {
		struct cluster_move move = {.node_id = decision->node_id,
					    .record = join->request->node,
					    .how = "was let in",
					    .done = approved,
					    .context = decision};
		status = cluster_join_node(joins->params.cluster, &move, &batch, error);
	}
	if (status) {
		authority_settle(joins->params.authority, decision->pem, false);
		store_batch_destroy(&batch);
		decision_destroy(&decision);
		return error_set(error, status, "%s", status_text(status));
	}
	join->decided = true;
	join->storing++;
	return STATUS_OK;
}

// ---- no ----

static void refused(void *context, enum status status, const struct error *error)
{
	struct decision *decision = context;
	struct join *join = decision->join;
	join->storing--;
	join->decided = !status;
	if (!status) {
		log_info("nodes", "node %s was turned away", decision->node_id);
		join_end_request(join, "was turned away");
		join_decided(join, NULL, "somebody has turned this node away");
	}
	decision->done(decision->context, status, error);
	decision_destroy(&decision);
	join_release(join);
}

enum status joins_refuse(struct joins *joins, const struct joins_decision *asked, struct error *error)
{
	struct join *join;
	enum status status = find_waiting(joins, asked->node_id, false, &join, error);
	if (status)
		return status;
	struct decision *decision = decision_create(joins, join, asked);
	if (!decision)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	struct audit_event event = {
		.by = asked->by, .action = "node.refuse", .target = decision->node_id, .node_id = decision->node_id};
	join->decided = true;
	join->storing++;
	status = audit_write(joins->params.audit, &event, refused, decision, error);
	if (status) {
		join->decided = false;
		join->storing--;
		decision_destroy(&decision);
	}
	return status;
}

// ---- out ----

static void removed(void *context, enum status status, const struct error *error)
{
	struct decision *decision = context;
	if (status)
		log_error("nodes", "node %s is cut off, but that is not on disk: %s", decision->node_id,
			  error->message);
	else
		log_info("nodes", "node %s was removed", decision->node_id);
	decision->done(decision->context, status, error);
	decision_destroy(&decision);
}

// A tab that has joined and never registered is no node of the cluster: it goes with its secret.
static enum status take_out(struct decision *decision, bool registered, struct store_batch **batch, struct error *error)
{
	struct joins *joins = decision->joins;
	const struct cluster_move move = {
		.node_id = decision->node_id, .how = "was removed", .done = removed, .context = decision};
	return registered ? cluster_remove_node(joins->params.cluster, &move, batch, error)
			  : store_commit(joins->params.store, batch, removed, decision);
}

enum status joins_remove(struct joins *joins, const struct joins_decision *asked, struct error *error)
{
	struct store_batch *batch = NULL;
	bool local, there = cluster_has_node(joins->params.cluster, asked->node_id, &local);
	const bool tab = !there && lends_know_tab(joins->params.lends, asked->node_id);
	struct decision *decision = decision_create(joins, NULL, asked);
	if (!decision || store_batch_create(&batch)) {
		decision_destroy(&decision);
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	if ((there && !local) || tab) {
		authority_revoke_node(joins->params.authority, decision->node_id, batch);
		lends_forget_tab(joins->params.lends, decision->node_id, batch);
		joins_cut(joins, decision->node_id, "this node was removed");
	}
	enum status status = audit_put(joins->params.audit, batch,
				       &(struct audit_event){.by = asked->by,
							     .action = "node.remove",
							     .target = decision->node_id,
							     .node_id = decision->node_id});
	if (!status)
		status = take_out(decision, !tab, &batch, error);
	if (status) {
		store_batch_destroy(&batch);
		decision_destroy(&decision);
		return error_set(error, status, "%s", status_text(status));
	}
	return STATUS_OK;
}

// ---- a new certificate ----

struct renewing {
	struct joins *joins;
	char *pem;
	void (*done)(void *context, enum status status, struct json *grant, const struct error *error);
	void *context;
};

static void renewed(void *context, enum status status, const struct error *error)
{
	struct renewing *renewing = context;
	authority_settle(renewing->joins->params.authority, renewing->pem, !status);
	renewing->done(renewing->context, status, status ? NULL : joins_grant(renewing->joins, renewing->pem), error);
	free(renewing->pem);
	free(renewing);
}

// Each certificate is a row, and two entries of the audit log: a node that was taken over must not fill the disk.
static bool renewed_lately(struct joins *joins, const char *node_id)
{
	const int64_t now_ms = clock_steady_ms();
	for (size_t i = 0; i < joins->renewal_count && i < LIMIT_RENEWALS; i++)
		if (now_ms - joins->renewals[i].steady_ms < LIMIT_RENEW_MS &&
		    !strcmp(joins->renewals[i].node_id, node_id))
			return true;
	struct renewal_time *next = &joins->renewals[joins->renewal_count++ % LIMIT_RENEWALS];
	next->steady_ms = now_ms;
	snprintf(next->node_id, sizeof next->node_id, "%s", node_id);
	return false;
}

enum status joins_renew(struct joins *joins, const struct joins_renewal *renewal, struct error *error)
{
	struct store_batch *batch = NULL;
	struct audit_actor by = {0};
	if (!renewal->local && !authority_stands(joins->params.authority, renewal->node_id))
		return error_set(error, STATUS_FORBIDDEN, "another machine is taking the place of this node");
	if (renewed_lately(joins, renewal->node_id)) {
		error_set(error, STATUS_RATE_LIMITED, "a certificate was asked for less than %d s ago",
			  LIMIT_RENEW_MS / 1000);
		error_hint(error, "a certificate is valid for weeks");
		return STATUS_RATE_LIMITED;
	}
	struct renewing *renewing = calloc(1, sizeof(*renewing));
	if (!renewing || store_batch_create(&batch)) {
		free(renewing);
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	*renewing = (struct renewing){.joins = joins, .done = renewal->done, .context = renewal->context};
	snprintf(by.actor, sizeof by.actor, "node:%s", renewal->node_id);
	snprintf(by.peer, sizeof by.peer, "%s", renewal->peer);
	enum status status = authority_issue(joins->params.authority, renewal->node_id, renewal->request_pem, batch,
					     &renewing->pem, error);
	if (!status)
		status = audit_put(joins->params.audit, batch,
				   &(struct audit_event){.by = &by,
							 .action = "node.renew",
							 .target = renewal->node_id,
							 .node_id = renewal->node_id});
	if (!status)
		status = store_commit(joins->params.store, &batch, renewed, renewing);
	if (status) {
		authority_settle(joins->params.authority, renewing->pem, false);
		store_batch_destroy(&batch);
		free(renewing->pem);
		free(renewing);
		return error_set(error, status, "%s", status_text(status));
	}
	return STATUS_OK;
}

bool joins_has_certificate(const struct joins *joins, const char *node_id)
{
	return authority_stands(joins->params.authority, node_id);
}

// ---- who waits ----

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, clock_format(at_ms, at));
}

struct json *joins_waiting(const struct joins *joins)
{
	static const char *const told[] = {"node_id", "name",      "host_name",    "os",
					   "arch",    "cpu_model", "memory_bytes", "version"};
	struct json *list = json_new_array();
	const struct joining_request *request;
	for (size_t i = 0; (request = joining_at(joins->joining, i)); i++) {
		struct json *one = json_new_object();
		for (size_t field = 0; field < sizeof told / sizeof *told; field++)
			json_set(one, told[field], json_copy(json_get(request->node, told[field])));
		json_set_string(one, "peer", request->peer);
		json_set_string(one, "code", request->code[0] ? request->code : NULL);
		json_set_bool(one, "known", request->known);
		set_time(one, "requested_at", request->requested_ms);
		set_time(one, "expires_at", request->expires_ms);
		json_push(list, one);
	}
	return list;
}

bool joins_waits(const struct joins *joins, const char *node_id)
{
	return joining_find(joins->joining, node_id) != NULL;
}

void joins_add_nodes(const struct joins *joins, struct json *nodes)
{
	const struct joining_request *request;
	for (size_t i = 0; (request = joining_at(joins->joining, i)); i++)
		if (request->code[0] && !cluster_has_node(joins->params.cluster, request->node_id, NULL))
			json_push(nodes, cluster_waiting_json(request->node, request->requested_ms));
}
