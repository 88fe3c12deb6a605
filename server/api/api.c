/* The API as a whole: put together, swept, and taken down. See api.h. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"
#include "server/conversations/conversations.h"
#include "server/security/tokens/token_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MS = 1000 };

// Tokens that expired while their connections were open.
static void sweep_expired(void *arg)
{
	struct api *api = arg;
	int64_t now_ms = token_clock_ms();
	for (struct api_client *client = api->clients; client; client = client->next)
		if (client->conn && client->session && client->session->token &&
		    token_usable(client->session->token, now_ms, NULL))
			net_conn_close(client->conn, 4410, "the token was revoked or has expired");
	for (struct api_session *session = api->sessions; session; session = session->next)
		if (session->token && token_usable(session->token, now_ms, NULL))
			tenant_end(session->tenant, "its token was revoked or has expired");
	generations_sweep(api->params.instances);
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
	api_chat_begin(api);
	api_conversations_begin(api);
	*out = api;
	return STATUS_OK;
}

void api_destroy(struct api **pointer)
{
	struct api *api = *pointer;
	if (!api)
		return;
	*pointer = NULL;
	net_timer_stop(api->params.loop, &api->sweep);
	api_chat_end(api);
	api_conversations_end(api);
	api_answer_all(api);
	while (api->clients) { // those whose connection the loop did not close in time
		struct api_client *client = api->clients;
		api_client_closed(client, client->conn, 1001);
	}
	while (api->sessions)
		api_session_destroy(api->sessions);
	buffer_finish(&api->text);
	free(api->handlers);
	free(api);
}

void api_stranger(struct audit_actor *actor, const char *peer)
{
	*actor = (struct audit_actor){.actor = "nobody"};
	limits_address(peer, actor->peer);
}

int64_t api_login_failed(struct api *api, const char *peer, const char *text, enum status why)
{
	const char *id, *secret;
	char token_id[TOKEN_ID_BYTES] = "";
	struct audit_actor actor;
	api->stats.failed_logins++;
	api_stranger(&actor, peer);
	if (!token_text_parse(text, &id, &secret))
		snprintf(token_id, sizeof token_id, "%s", id);
	audit_count(api->params.audit,
		    &(struct audit_tally){.by = &actor, .action = "auth.login", .target = token_id, .outcome = why});
	return limits_login_failed(api->params.limits, peer);
}

void api_request_refused(struct api *api, const struct token *token, const char *peer, const char *action,
			 enum status why)
{
	struct audit_actor actor = {0};
	snprintf(actor.actor, sizeof actor.actor, "token:%s", token->token_id);
	snprintf(actor.name, sizeof actor.name, "%s", token->name);
	snprintf(actor.peer, sizeof actor.peer, "%s", peer);
	audit_count(api->params.audit, &(struct audit_tally){.by = &actor, .action = action, .outcome = why});
}

void api_end_token(void *context, struct token *token)
{
	struct api *api = context;
	for (struct api_session *session = api->sessions; session; session = session->next)
		if (session->token == token)
			tenant_end(session->tenant, "its token was revoked");
	generations_end_token(api->params.instances, token, "the token was revoked");
	conversations_forget(api->params.conversations, token);
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

void api_set_url(struct api *api, const char *url)
{
	static const char scheme[] = "https://";
	snprintf(api->url, sizeof api->url, "%s", url);
	if (api->params.tls && !strncmp(url, scheme, sizeof scheme - 1))
		snprintf(api->address, sizeof api->address, "%.*s", (int)strcspn(url + sizeof scheme - 1, "/"),
			 url + sizeof scheme - 1);
}

void api_read_stats(const struct api *api, struct api_stats *stats)
{
	*stats = api->stats;
}
