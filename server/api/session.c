/* Connections and sessions: coming, logging in, going. See call.h. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "server/api/call.h"
#include "server/security/random_id.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The entry of a session's end, with what it did in all; and what is counted of it and not written yet.
static void put_end_on_record(const struct api_session *session)
{
	char detail[160];
	struct audit *audit = session->api->params.audit;
	snprintf(detail, sizeof detail,
		 "{\"launches\":%" PRIu64 ",\"read_bytes\":%" PRIu64 ",\"written_bytes\":%" PRIu64 "}",
		 session->launches, session->read_bytes, session->written_bytes);
	audit_flush(audit, session->session_id);
	audit_tell(audit, &(struct audit_tally){.by = &session->actor,
						.action = "session.end",
						.target = session->session_id,
						.detail = detail,
						.duration_us = (clock_steady_ns() - session->began_ns) / 1000});
}

void api_session_destroy(struct api_session *session)
{
	struct api *api = session->api;
	for (struct api_session **at = &api->sessions; *at; at = &(*at)->next)
		if (*at == session) {
			*at = session->next;
			break;
		}
	api->stats.sessions--;
	if (session->token)
		session->token->sessions--;
	for (struct token *token = session->token; token; token = token->parent)
		token->family_sessions--;
	net_timer_stop(api->params.loop, &session->grace);
	tenant_destroy(&session->tenant);
	put_end_on_record(session);
	free(session);
}

#define EVICTED "not logged in yet, and others needed its place"

// Others of its address, or all of them, need the place of one that has not logged in.
static void on_evicted(struct limits_waiter *place)
{
	struct api_client *client = (struct api_client *)((char *)place - offsetof(struct api_client, place));
	client->evicted = true; // it still waits: nobody has said who it is
	if (client->conn)
		net_conn_close(client->conn, 4401, EVICTED);
}

enum status api_client_create(struct api_client **out, struct api *api, const struct api_client_params *params,
			      struct error *error)
{
	const bool waiting = !params->token && !params->local;
	*out = NULL;
	struct api_client *client = calloc(1, sizeof(*client));
	if (!client)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*client = (struct api_client){.api = api,
				      .first_token = params->token,
				      .local = params->local,
				      .uid = params->uid,
				      .allowance = (double)limits_get(api->params.limits, LIMIT_MESSAGES_PER_S_ID),
				      .allowance_ns = clock_steady_ns(),
				      .waiting = waiting,
				      .place = {.evicted = on_evicted},
				      .actor = {.actor = "nobody"}};
	enum status status = waiting ? limits_wait(api->params.limits, &client->place, params->peer, error) : STATUS_OK;
	if (status) {
		free(client);
		return status;
	}
	snprintf(client->actor.peer, sizeof client->actor.peer, "%s", params->peer);
	LIST_PUSH(&api->clients, client, link);
	api->stats.connections++;
	*out = client;
	return STATUS_OK;
}

void api_give_place(struct api_client *client)
{
	if (!client->waiting)
		return;
	client->waiting = false;
	limits_wait_over(client->api->params.limits, &client->place);
}

static void login_late(void *arg)
{
	struct api_client *client = arg;
	if (!client->conn || client->session)
		return;
	if (client->late && !client->overdue) { // it hears first why its log-in failed
		client->overdue = true;
		net_timer_start(client->api->params.loop, &client->login_deadline,
				limits_get(client->api->params.limits, LIMIT_LOGIN_DELAY_MS_ID), login_late, client);
		return;
	}
	net_conn_close(client->conn, 4401, "not logged in within 5 s");
	if (!client->late)
		api_give_place(client); // however long it takes to go
}

void api_client_opened(void *user, struct net_conn *conn)
{
	struct api_client *client = user;
	struct error error = {0};
	client->conn = conn;
	if (client->evicted) {
		net_conn_close(conn, 4401, EVICTED);
		return;
	}
	if (client->waiting) {
		net_timer_start(client->api->params.loop, &client->login_deadline, LIMIT_LOGIN_MS, login_late, client);
		return;
	}
	if (api_log_in(client, client->first_token, NULL, &error))
		net_conn_close(conn, error.status == STATUS_LIMIT_EXCEEDED ? 4429 : 4401, error.message);
}

uint32_t api_scopes(const struct api_client *client)
{
	return !client->session ? 0 : client->session->token ? client->session->token->scopes : SCOPE_ALL;
}

// Who acts by this connection from now on.
static void name_actor(struct api_client *client, const struct token *token, const char *session_id)
{
	struct audit_actor *actor = &client->actor;
	if (token) {
		snprintf(actor->actor, sizeof actor->actor, "token:%s", token->token_id);
		snprintf(actor->name, sizeof actor->name, "%s", token->name);
	} else {
		snprintf(actor->actor, sizeof actor->actor, "owner:%u", (unsigned)client->uid);
		snprintf(actor->name, sizeof actor->name, "the machine's owner");
	}
	snprintf(actor->session_id, sizeof actor->session_id, "%s", session_id);
}

static struct api_session *session_create(struct api_client *client, struct token *token)
{
	struct api *api = client->api;
	struct api_session *session = calloc(1, sizeof(*session));
	if (!session || random_id("ses_", session->session_id, sizeof session->session_id) ||
	    tenant_create(&session->tenant, api->params.tenants, session->session_id, token)) {
		free(session);
		return NULL;
	}
	session->api = api;
	session->token = token;
	session->next = api->sessions;
	api->sessions = session;
	api->stats.sessions++;
	if (token)
		token->sessions++;
	for (struct token *one = token; one; one = one->parent)
		one->family_sessions++;
	session->began_ns = clock_steady_ns();
	name_actor(client, token, session->session_id);
	session->actor = client->actor;
	// Nobody waits for it: whoever is to mend a full disk must get in.
	audit_tell(api->params.audit, &(struct audit_tally){.by = &session->actor, .action = "auth.login"});
	return session;
}

static void session_over(void *arg)
{
	api_session_destroy(arg);
}

static void session_leave(struct api_session *session)
{
	if (!--session->connections)
		net_timer_start(session->api->params.loop, &session->grace, LIMIT_SESSION_GRACE_MS, session_over,
				session);
}

// Whether there may be one more session of this token, and of those that it was made with.
static enum status check_sessions(const struct api *api, const struct token *token, struct error *error)
{
	if ((int64_t)api->stats.sessions >= limits_get(api->params.limits, LIMIT_SESSIONS_ID)) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "the server has its %zu sessions", api->stats.sessions);
		error_hint(error, "try again in %d s", LIMIT_SESSION_GRACE_MS / 1000);
		return STATUS_LIMIT_EXCEEDED;
	}
	for (const struct token *one = token; one; one = one->parent) {
		int64_t most = one->max_sessions ? one->max_sessions
						 : limits_get(api->params.limits, LIMIT_SESSIONS_OF_TOKEN_ID);
		if (one->family_sessions < most)
			continue;
		error_set(error, STATUS_LIMIT_EXCEEDED, "%s already has %lld session%s, which is its limit",
			  one == token ? "this token" : "the token that this one was made with", (long long)most,
			  most == 1 ? "" : "s");
		error_hint(error, "close one; a session ends %d s after its last connection",
			   LIMIT_SESSION_GRACE_MS / 1000);
		return STATUS_LIMIT_EXCEEDED;
	}
	return STATUS_OK;
}

enum status api_log_in(struct api_client *client, struct token *token, const char *session_id, struct error *error)
{
	struct api *api = client->api;
	struct api_session *session = NULL;
	if (session_id) {
		for (session = api->sessions; session; session = session->next)
			if (!strcmp(session->session_id, session_id) && session->token == token)
				break;
		if (!session) {
			error_set(error, STATUS_NOT_FOUND, "this token has no session %s", session_id);
			error_hint(error, "a session ends %d s after its last connection; log in without session_id",
				   LIMIT_SESSION_GRACE_MS / 1000);
			return STATUS_NOT_FOUND;
		}
	} else if (client->session && client->session->token == token) {
		return STATUS_OK; // logged in already, and still
	}
	if (client->session && client->session != session &&
	    client->calls > 1) { // this one, and those of the old session
		error_set(error, STATUS_CONFLICT, "calls of the previous session are in flight on this connection");
		error_hint(error, "wait for their answers, or log in on another connection");
		return STATUS_CONFLICT;
	}
	if (!session) {
		if (check_sessions(api, token, error))
			return STATUS_LIMIT_EXCEEDED;
		session = session_create(client, token);
		if (!session)
			return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	net_timer_stop(api->params.loop, &session->grace);
	session->connections++;
	if (client->session) { // another token on the same connection: the old one's session and subscription are left
		events_unsubscribe(api->params.events, &client->subscriber);
		client->watches_chat = client->watches_conversations = false;
		session_leave(client->session);
	}
	client->session = session;
	name_actor(client, token, session->session_id);
	tenant_join(session->tenant, &client->tenant_conn, client->conn);
	api_give_place(client);
	net_timer_stop(api->params.loop, &client->login_deadline);
	net_conn_trust(client->conn);
	if (token)
		tokens_touch(api->params.tokens, token, clock_wall_ms());
	return STATUS_OK;
}

void api_client_drained(void *user, struct net_conn *conn)
{
	struct api_client *client = user;
	(void)conn;
	tenant_conn_drained(&client->tenant_conn);
}

void api_client_closed(void *user, struct net_conn *conn, int code)
{
	struct api_client *client = user;
	struct api *api = client->api;
	(void)conn, (void)code;
	if (client->closed)
		return;
	client->closed = true;
	tenant_leave(&client->tenant_conn);
	client->conn = NULL;
	net_timer_stop(api->params.loop, &client->login_deadline);
	events_unsubscribe(api->params.events, &client->subscriber);
	LIST_REMOVE(client, link);
	api->stats.connections--;
	if (client->session)
		session_leave(client->session);
	client->session = NULL;
	if (!client->late)
		api_give_place(client);
	client->calls++; // it lives until here
	instances_leave(api->params.instances, client);
	client->calls--;
	if (!client->calls)
		free(client);
}
