/* Connections and sessions: coming, logging in, going, and being put out. See call.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/api/call.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MS = 1000 };

// Tokens that expired while their connections were open.
static void sweep_expired(void *arg)
{
	struct api *api = arg;
	int64_t now_ms = clock_wall_ms();
	for (struct api_client *client = api->clients; client; client = client->next)
		if (client->conn && client->session && client->session->token &&
		    token_usable(client->session->token, now_ms, NULL))
			net_conn_close(client->conn, 4410, "the token was revoked or has expired");
	net_timer_start(api->params.loop, &api->sweep, SWEEP_MS, sweep_expired, api);
}

enum status api_create(struct api **out, const struct api_params *params, struct error *error)
{
	struct api *api = calloc(1, sizeof(*api));
	*out = NULL;
	if (!api)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	api->params = *params;
	buffer_init(&api->text, LIMIT_BODY_BYTES);
	enum status status = api_bind_handlers(api, error);
	if (status) {
		api_destroy(&api);
		return status;
	}
	sweep_expired(api);
	*out = api;
	return STATUS_OK;
}

static void session_destroy(struct api_session *session)
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
	free(session);
}

void api_destroy(struct api **pointer)
{
	struct api *api = *pointer;
	if (!api)
		return;
	*pointer = NULL;
	net_timer_stop(api->params.loop, &api->sweep);
	while (api->clients) { // those whose connection the loop did not close in time
		struct api_client *client = api->clients;
		api_client_closed(client, client->conn, 1001);
	}
	while (api->sessions)
		session_destroy(api->sessions);
	buffer_finish(&api->text);
	free(api->handlers);
	free(api);
}

bool api_has_room(const struct api *api)
{
	return api->not_logged_in < LIMIT_CONNECTIONS_NOT_LOGGED_IN;
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
	if (client->conn && !client->session)
		net_conn_close(client->conn, 4401, "not logged in within 5 s");
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
	uint8_t random[8];
	if (!session || RAND_bytes(random, sizeof random) != 1) {
		free(session);
		return NULL;
	}
	int at = snprintf(session->session_id, sizeof session->session_id, "ses_");
	for (size_t i = 0; i < sizeof random; i++)
		at += snprintf(session->session_id + at, sizeof session->session_id - (size_t)at, "%02x", random[i]);
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
	session_destroy(arg);
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
	} else {
		if (token && token->max_sessions && (int64_t)token->sessions >= token->max_sessions) {
			error_set(error, STATUS_LIMIT_EXCEEDED, "this token has its %lld sessions already",
				  (long long)token->max_sessions);
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

void api_client_closed(void *user, struct net_conn *conn, int code)
{
	struct api_client *client = user;
	struct api *api = client->api;
	(void)conn, (void)code;
	if (client->closed)
		return;
	client->closed = true;
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

void api_end_token(void *context, struct token *token)
{
	struct api *api = context;
	for (struct api_client *client = api->clients; client; client = client->next)
		if (client->conn && client->session && client->session->token == token)
			net_conn_close(client->conn, 4410, "the token was revoked");
}

void api_shut_down(struct api *api)
{
	for (struct api_client *client = api->clients; client; client = client->next)
		if (client->conn)
			net_conn_close(client->conn, 1001, "the server shuts down");
}

void api_read_stats(const struct api *api, struct api_stats *stats)
{
	*stats = api->stats;
}
