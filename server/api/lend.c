/* lend.*: addresses by which browser tabs join as nodes. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

static void set_time(struct json *object, const char *name, int64_t at_ms)
{
	char at[CLOCK_TEXT_BYTES];
	json_set_string(object, name, at_ms ? clock_format(at_ms, at) : NULL);
}

// The address waits in call->kept until it is on disk; nobody may hold one that a crash could undo.
static void lend_made(void *context, enum status status, const struct lend *lend, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		const struct api_params *params = &call->api->params;
		result = call->kept;
		call->kept = NULL;
		json_set_string(result, "lend_id", lend->lend_id);
		json_set_integer(result, "uses", lend->uses);
		set_time(result, "expires_at", lend->expires_ms);
		json_set_bool(result, "reachable", call->api->address[0]);
		json_set_string(result, "fingerprint", params->tls ? authority_fingerprint(params->authority) : NULL);
	}
	struct buffer *printed = &call->api->text;
	api_finish(call, status, result, error);
	if (printed->data) // the answer was printed here, the secret in it
		OPENSSL_cleanse(printed->data, printed->length);
}

static enum status lend_create(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	char text[LEND_TEXT_BYTES], url[512];
	const struct lend_params lend = {.name = json_get_string(params, "name", ""),
					 .expires_in_s = json_get_integer(params, "expires_in_s", 0),
					 .uses = json_get_integer(params, "uses", 0),
					 .by = &call->client->actor};
	(void)result;
	call->kept = json_new_object();
	enum status status = lends_make(call->api->params.lends, &lend, text, lend_made, call, error);
	if (status)
		return status;
	snprintf(url, sizeof url, "%slend#token=%s", call->api->url, text);
	json_set_string(call->kept, "token", text);
	json_set_string(call->kept, "url", url);
	OPENSSL_cleanse(text, sizeof text);
	OPENSSL_cleanse(url, sizeof url);
	return STATUS_PENDING;
}

static struct json *lend_json(const struct lends *lends, const struct lend *lend)
{
	const struct tab *tab;
	struct json *json = json_new_object(), *node_ids = json_new_array();
	for (size_t i = 0; (tab = lends_tab_at(lends, i)); i++)
		if (!strcmp(tab->lend_id, lend->lend_id))
			json_push(node_ids, json_new_string(tab->node_id));
	json_set_string(json, "lend_id", lend->lend_id);
	json_set_string(json, "name", lend->name);
	json_set_string(json, "made_by", lend->made_by);
	json_set_integer(json, "uses", lend->uses);
	json_set_integer(json, "used", lend->used);
	json_set(json, "node_ids", node_ids);
	set_time(json, "created_at", lend->created_ms);
	set_time(json, "expires_at", lend->expires_ms);
	set_time(json, "revoked_at", lend->revoked_ms);
	return json;
}

static enum status lend_list(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	const struct lend *lend;
	const struct lends *lends = call->api->params.lends;
	struct json *list = json_new_array();
	(void)params, (void)error;
	for (size_t i = 0; (lend = lends_at(lends, i)); i++)
		json_push(list, lend_json(lends, lend));
	*result = json_new_object();
	json_set(*result, "lends", list);
	return STATUS_OK;
}

static void lend_revoked(void *context, enum status status, const struct lend *lend, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		result = call->kept;
		call->kept = NULL;
		json_set_string(result, "lend_id", lend->lend_id);
	}
	api_finish(call, status, result, error);
}

// Of each tab that joined with it, at once.
static void cut_tab(void *context, const char *node_id)
{
	struct api_call *call = context;
	json_set_integer(call->kept, "tabs", json_get_integer(call->kept, "tabs", 0) + 1);
	joins_cut(call->api->params.joins, node_id, "its address was revoked");
}

static enum status lend_revoke(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	const struct lend_revocation revocation = {.lend_id = json_get_string(params, "lend_id", ""),
						   .by = &call->client->actor,
						   .each = cut_tab,
						   .done = lend_revoked,
						   .context = call};
	(void)result;
	call->kept = json_new_object();
	json_set_integer(call->kept, "tabs", 0);
	enum status status = lends_revoke(call->api->params.lends, &revocation, error);
	return status ? status : STATUS_PENDING;
}

static struct json *policy_json(const struct api_call *call)
{
	struct json *json = json_new_object();
	json_set_number(json, "check_percent", cluster_check_percent(call->api->params.cluster));
	return json;
}

static enum status lend_policy(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	(void)params, (void)error;
	*result = policy_json(call);
	return STATUS_OK;
}

static void policy_set(void *context, enum status status, const struct error *error)
{
	api_finish(context, status, status ? NULL : policy_json(context), error);
}

static enum status lend_policy_set(struct api_call *call, const struct json *params, struct json **result,
				   struct error *error)
{
	(void)result;
	enum status status = cluster_set_check_percent(call->api->params.cluster,
						       json_get_number(params, "check_percent", 0),
						       &call->client->actor, policy_set, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler lend_handlers[] = {
	{"lend.create", .run = lend_create}, {"lend.list", .run = lend_list},
	{"lend.policy", .run = lend_policy}, {"lend.policy_set", .run = lend_policy_set},
	{"lend.revoke", .run = lend_revoke}, {0},
};
