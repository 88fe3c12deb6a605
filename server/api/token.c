/* token.*: making, listing and revoking tokens. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"

#include <openssl/crypto.h>

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, at_ms ? clock_format(at_ms, at) : NULL);
}

// The text waits in call->kept until the token is on disk; nobody may hold a token that a crash could undo.
static void token_made(void *context, enum status status, const struct token *token, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		result = call->kept;
		call->kept = NULL;
		json_set_string(result, "token_id", token->token_id);
		set_time(result, "expires_at", token->expires_ms);
	}
	struct buffer *printed = &call->api->text;
	api_finish(call, status, result, error);
	if (printed->data) // the answer was printed here, the secret in it
		OPENSSL_cleanse(printed->data, printed->length);
}

static enum status token_create(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	char text[TOKEN_TEXT_BYTES];
	uint32_t scopes = 0;
	(void)result;
	for (const struct json *one = json_first(json_get(params, "scopes")); one; one = json_next(one))
		scopes |= token_scope_parse(json_string(one, ""));
	struct token_create_params token = {
		.name = json_get_string(params, "name", ""),
		.scopes = scopes,
		.expires_in_s = json_get_integer(params, "expires_in_s", 0),
		.calls_per_s = json_get_number(params, "calls_per_s", 0),
		.max_sessions = json_get_integer(params, "max_sessions", 0),
		.memory_limit_bytes = json_get_integer(params, "memory_limit_bytes", 0),
		.parent = call->client->session->token,
		.by = &call->client->actor,
	};
	call->kept = json_new_object();
	enum status status = tokens_make(call->api->params.tokens, &token, text, token_made, call, error);
	if (status)
		return status;
	json_set_string(call->kept, "token", text);
	OPENSSL_cleanse(text, sizeof text);
	return STATUS_PENDING;
}

static struct json *token_json(const struct token *token)
{
	struct json *json = json_new_object(), *scopes = json_new_array();
	for (unsigned bit = 0; token_scope_name(bit); bit++)
		if (token->scopes & 1u << bit)
			json_push(scopes, json_new_string(token_scope_name(bit)));
	json_set_string(json, "token_id", token->token_id);
	json_set_string(json, "name", token->name);
	json_set(json, "scopes", scopes);
	json_set_string(json, "parent_id", token->parent_id[0] ? token->parent_id : NULL);
	set_time(json, "created_at", token->created_ms);
	set_time(json, "expires_at", token->expires_ms);
	set_time(json, "last_used_at", token->last_used_ms);
	set_time(json, "revoked_at", token->revoked_ms);
	json_set(json, "calls_per_s", token->calls_per_s > 0 ? json_new_number(token->calls_per_s) : json_new_null());
	json_set(json, "max_sessions", token->max_sessions ? json_new_integer(token->max_sessions) : json_new_null());
	json_set(json, "memory_limit_bytes",
		 token->memory_limit_bytes ? json_new_integer(token->memory_limit_bytes) : json_new_null());
	json_set_integer(json, "memory_bytes", (int64_t)token->memory_bytes);
	json_set_integer(json, "sessions", token->sessions);
	return json;
}

static enum status token_list(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	const struct token *token;
	struct json *list = json_new_array();
	(void)params, (void)error;
	for (size_t i = 0; (token = tokens_at(call->api->params.tokens, i)); i++)
		json_push(list, token_json(token));
	*result = json_new_object();
	json_set(*result, "tokens", list);
	return STATUS_OK;
}

static void token_revoked(void *context, enum status status, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = call->kept;
	call->kept = NULL;
	api_finish(call, status, result, error);
}

static void end_token(void *context, struct token *token)
{
	struct api_call *call = context;
	json_push((struct json *)json_get(call->kept, "revoked"), json_new_string(token->token_id));
	api_end_token(call->api, token);
}

static enum status token_revoke(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	const char *token_id = json_get_string(params, "token_id", "");
	(void)result;
	call->kept = json_new_object();
	json_set_string(call->kept, "token_id", token_id);
	json_set(call->kept, "revoked", json_new_array());
	const struct token_revoke_params revoke = {
		.by = &call->client->actor, .each = end_token, .done = token_revoked, .context = call};
	enum status status = tokens_revoke(call->api->params.tokens, token_id, &revoke, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler token_handlers[] = {
	{"token.create", .run = token_create},
	{"token.list", .run = token_list},
	{"token.revoke", .run = token_revoke},
	{0},
};
