/* auth.*: logging in. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/api/call.h"

static struct json *scope_list(uint32_t scopes)
{
	struct json *list = json_new_array();
	for (unsigned bit = 0; token_scope_name(bit); bit++)
		if (scopes & 1u << bit)
			json_push(list, json_new_string(token_scope_name(bit)));
	return list;
}

static enum status auth_login(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	char at[CLOCK_TEXT_BYTES];
	struct token *token = NULL;
	struct api *api = call->api;
	if (call->client->late >= LIMIT_LATE_ANSWERS) {
		error_set(error, STATUS_RATE_LIMITED, "%u failed logins of this connection are not answered yet",
			  call->client->late);
		error_hint(error, "wait for the answers");
		return STATUS_RATE_LIMITED;
	}
	enum status status = tokens_authenticate(api->params.tokens, json_get_string(params, "token", ""),
						 SCOPE_OBSERVE, &token, error);
	if (status) {
		int64_t delay_ms = api_login_failed(api, call->client->actor.peer, json_get_string(params, "token", ""),
						    status);
		log_debug("api", "a login failed: %s", error->message);
		if (!delay_ms)
			return status;
		api_finish_late(call, delay_ms, error);
		return STATUS_PENDING;
	}
	status = api_log_in(call->client, token, json_get_string(params, "session_id", NULL), error);
	if (status)
		return status;
	struct json *login = json_new_object();
	json_set_string(login, "token_id", token->token_id);
	json_set_string(login, "name", token->name);
	json_set(login, "scopes", scope_list(token->scopes));
	json_set_string(login, "expires_at", token->expires_ms ? clock_format(token->expires_ms, at) : NULL);
	json_set_string(login, "session_id", call->client->session->session_id);
	*result = login;
	return STATUS_OK;
}

const struct api_handler auth_handlers[] = {
	{"auth.login", .run = auth_login},
	{0},
};
