/* Connections and sessions: coming, logging in, going. See call.h. */
#include "common/base/clock.h"
#include "server/api/call.h"
#include "server/security/random_id.h"

#include <stdlib.h>
#include <string.h>

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
	net_timer_stop(api->params.loop, &session->grace);
	tenant_destroy(&session->tenant);
	free(session);
}

struct api_client *api_client_create(struct api *api, struct token *token, bool local)
{
	struct api_client *client = calloc(1, sizeof(*client));
	if (!client)
		return NULL;
	*client = (struct api_client){.api = api,
				      .first_token = token,
				      .local = local,
				      .allowance = LIMIT_MESSAGES_PER_S,
				      .allowance_ms = clock_steady_ms(),
				      .waiting = !token && !local};
	client->next = api->clients;
	client->link = &api->clients;
	if (client->next)
		client->next->link = &client->next;
	api->clients = client;
	api->not_logged_in += client->waiting;
	api->stats.connections++;
	return client;
}

static void login_late(void *arg)
{
	struct api_client *client = arg;
	if (!client->conn || client->session)
		return;
	net_conn_close(client->conn, 4401, "not logged in within 5 s");
	client->waiting = false; // its place is free, however long it takes to go
	client->api->not_logged_in--;
}

void api_client_opened(void *user, struct net_conn *conn)
{
	struct api_client *client = user;
	struct error error = {0};
	client->conn = conn;
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

static struct api_session *session_create(struct api *api, struct token *token)
{
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
		error_set(error, STATUS_CONFLICT, "calls of the session before are under way on this connection");
		error_hint(error, "wait for their answers, or log in on a connection of its own");
		return STATUS_CONFLICT;
	}
	if (!session) {
		if (api->stats.sessions >= LIMIT_SESSIONS) {
			error_set(error, STATUS_LIMIT_EXCEEDED, "the server has its %d sessions", LIMIT_SESSIONS);
			error_hint(error, "try again in %d s", LIMIT_SESSION_GRACE_MS / 1000);
			return STATUS_LIMIT_EXCEEDED;
		}
		int64_t most = token && token->max_sessions ? token->max_sessions : LIMIT_SESSIONS_OF_TOKEN;
		if (token && (int64_t)token->sessions >= most) {
			error_set(error, STATUS_LIMIT_EXCEEDED,
				  "this token has %lld session%s already, as many as it may", (long long)most,
				  most == 1 ? "" : "s");
			error_hint(error, "close one; a session ends %d s after its last connection",
				   LIMIT_SESSION_GRACE_MS / 1000);
			return STATUS_LIMIT_EXCEEDED;
		}
		session = session_create(api, token);
		if (!session)
			return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	net_timer_stop(api->params.loop, &session->grace);
	session->connections++;
	if (client->session) { // another token on the same connection: the old one's session and subscription are left
		events_unsubscribe(api->params.events, &client->subscriber);
		session_leave(client->session);
	}
	client->session = session;
	tenant_join(session->tenant, &client->tenant_conn, client->conn);
	if (client->waiting) {
		client->waiting = false;
		api->not_logged_in--;
	}
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
	*client->link = client->next;
	if (client->next)
		client->next->link = client->link;
	api->not_logged_in -= client->waiting;
	api->stats.connections--;
	if (client->session)
		session_leave(client->session);
	client->session = NULL;
	if (!client->calls)
		free(client);
}
