/* auth.*: logging in. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/api/call.h"

#include <openssl/crypto.h>
#include <stdio.h>

enum { REDEEMED_S = 24 * 60 * 60 }; // how long the token of a login code lasts

static struct json *scope_list(uint32_t scopes)
{
	struct json *list = json_new_array();
	for (unsigned bit = 0; token_scope_name(bit); bit++)
		if (scopes & 1u << bit)
			json_push(list, json_new_string(token_scope_name(bit)));
	return list;
}

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, at_ms ? clock_format(at_ms, at) : NULL);
}

static enum status check_late(const struct api_client *client, struct error *error)
{
	if (client->late < LIMIT_LATE_ANSWERS)
		return STATUS_OK;
	error_set(error, STATUS_RATE_LIMITED, "%u failed logins of this connection are not answered yet", client->late);
	error_hint(error, "wait for the answers");
	return STATUS_RATE_LIMITED;
}

// `token`: the text that was tried, whose id is told in the audit log.
static enum status refuse(struct api_call *call, const char *token, struct error *error)
{
	const enum status status = error->status;
	int64_t delay_ms = api_login_failed(call->api, call->client->actor.peer, token, status);
	log_debug("api", "a login failed: %s", error->message);
	if (!delay_ms)
		return status;
	api_finish_late(call, delay_ms, error);
	return STATUS_PENDING;
}

static enum status auth_login(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	struct token *token = NULL;
	struct api *api = call->api;
	enum status status = check_late(call->client, error);
	if (status)
		return status;
	const char *text = json_get_string(params, "token", "");
	if (tokens_authenticate(api->params.tokens, text, SCOPE_OBSERVE, &token, error))
		return refuse(call, text, error);
	status = api_log_in(call->client, token, json_get_string(params, "session_id", NULL), error);
	if (status)
		return status;
	struct json *login = json_new_object();
	json_set_string(login, "token_id", token->token_id);
	json_set_string(login, "name", token->name);
	json_set(login, "scopes", scope_list(token->scopes));
	set_time(login, "expires_at", token->expires_ms);
	json_set_string(login, "session_id", call->client->session->session_id);
	*result = login;
	return STATUS_OK;
}

// ---- login codes ----

// Answer, and wipe what was printed for it: a secret is in it.
static void finish_secret(struct api_call *call, enum status status, struct json *result, const struct error *error)
{
	struct buffer *printed = &call->api->text;
	api_finish(call, status, result, error);
	if (printed->data)
		OPENSSL_cleanse(printed->data, printed->length);
}

enum status api_login_url(struct api *api, char url[API_LOGIN_URL_BYTES], struct error *error)
{
	char text[LOGIN_CODE_BYTES], code_id[STORE_ID_BYTES];
	const struct login_code_params code = {.by = &audit_server, .now_ms = clock_steady_ms()};
	const enum status status = login_codes_make(&api->login_codes, &code, text, code_id, error);
	if (status)
		return status;
	audit_tell(api->params.audit,
		   &(struct audit_tally){.by = &audit_server, .action = "auth.login_code", .target = code_id});
	snprintf(url, API_LOGIN_URL_BYTES, "%s#code=%s", api->url, text);
	OPENSSL_cleanse(text, sizeof text);
	return STATUS_OK;
}

static enum status auth_login_code(struct api_call *call, const struct json *params, struct json **result,
				   struct error *error)
{
	struct api *api = call->api;
	const struct audit_actor *by = &call->client->actor;
	char text[LOGIN_CODE_BYTES], code_id[STORE_ID_BYTES], url[512];
	const struct login_code_params code = {
		.token = call->client->session->token, .by = by, .now_ms = clock_steady_ms()};
	(void)params, (void)result;
	enum status status = login_codes_make(&api->login_codes, &code, text, code_id, error);
	if (status)
		return status;
	audit_tell(api->params.audit, &(struct audit_tally){.by = by, .action = "auth.login_code", .target = code_id});
	struct json *made = json_new_object();
	snprintf(url, sizeof url, "%s#code=%s", api->url, text);
	json_set_string(made, "code_id", code_id);
	json_set_string(made, "code", text);
	json_set_string(made, "url", url);
	set_time(made, "expires_at", clock_wall_ms() + LOGIN_CODE_MS);
	OPENSSL_cleanse(text, sizeof text);
	OPENSSL_cleanse(url, sizeof url);
	finish_secret(call, STATUS_OK, made, NULL);
	return STATUS_PENDING;
}

// The text waits in call->kept until the token is on disk.
static void redeemed(void *context, enum status status, const struct token *token, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		result = call->kept;
		call->kept = NULL;
		set_time(result, "expires_at", token->expires_ms);
	}
	finish_secret(call, status, result, error);
}

// The maker of the code acts here, from the browser's address. The maker's token makes one, which has the same limits
// and ends with it.
static enum status auth_redeem(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	struct api *api = call->api;
	struct login_code code;
	char text[TOKEN_TEXT_BYTES], token_id[TOKEN_ID_BYTES], detail[64];
	(void)result;
	enum status status = check_late(call->client, error);
	if (status)
		return status;
	if (login_codes_take(&api->login_codes, json_get_string(params, "code", ""), clock_steady_ms(), &code, error) ||
	    (code.token && token_usable(code.token, token_clock_ms(), error)))
		return refuse(call, "", error);
	snprintf(code.by.peer, sizeof code.by.peer, "%s", call->client->actor.peer);
	const struct token_create_params token = {.name = "browser",
						  .scopes = code.token ? code.token->scopes : SCOPE_ADMIN,
						  .expires_in_s = REDEEMED_S,
						  .parent = code.token,
						  .by = &code.by};
	call->kept = json_new_object();
	status = tokens_make(api->params.tokens, &token, text, redeemed, call, error);
	if (status)
		return status;
	snprintf(token_id, sizeof token_id, "%.*s", TOKEN_ID_BYTES - 1, text + 4); // behind "exo_"
	snprintf(detail, sizeof detail, "{\"token_id\":\"%s\"}", token_id);
	audit_tell(api->params.audit,
		   &(struct audit_tally){
			   .by = &code.by, .action = "auth.redeem", .target = code.code_id, .detail = detail});
	json_set_string(call->kept, "token_id", token_id);
	json_set_string(call->kept, "token", text);
	OPENSSL_cleanse(text, sizeof text);
	return STATUS_PENDING;
}

const struct api_handler auth_handlers[] = {
	{"auth.login", .run = auth_login},
	{"auth.login_code", .run = auth_login_code},
	{"auth.redeem", .run = auth_redeem},
	{0},
};
