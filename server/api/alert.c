/* alert.*: what a person should look at, the rules that find it, and where it is sent to. Thread: the loop's. */
#include "server/api/call.h"

#include <openssl/crypto.h>
#include <string.h>

static enum status alert_list(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	const bool all = !strcmp(json_get_string(params, "state", "active"), "all");
	(void)error;
	*result = json_new_object();
	json_set(*result, "alerts",
		 alerts_list(call->api->params.alerts, all, json_get_string(params, "before", ""),
			     json_get_integer(params, "limit", 100)));
	return STATUS_OK;
}

static void acknowledged(void *context, enum status status, const struct json *alert, const struct error *error)
{
	api_finish(context, status, alert ? json_copy(alert) : NULL, error);
}

static enum status alert_acknowledge(struct api_call *call, const struct json *params, struct json **result,
				     struct error *error)
{
	(void)result;
	const enum status status = alerts_acknowledge(call->api->params.alerts, json_get_string(params, "alert_id", ""),
						      &call->client->actor, acknowledged, call, error);
	return status ? status : STATUS_PENDING;
}

static enum status alert_rules(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	(void)params, (void)error;
	*result = json_new_object();
	json_set(*result, "rules", watch_rules_json(call->api->params.watch));
	return STATUS_OK;
}

static void rule_set(void *context, enum status status, enum alert_rule_number number, const struct error *error)
{
	struct api_call *call = context;
	api_finish(call, status, status ? NULL : watch_rule_json(call->api->params.watch, number), error);
}

static enum status alert_rule_set(struct api_call *call, const struct json *params, struct json **result,
				  struct error *error)
{
	(void)result;
	const enum status status = watch_set_rule(call->api->params.watch, params, &call->client->actor, rule_set, call,
						  error);
	return status ? status : STATUS_PENDING;
}

// ---- channels ----

static enum status alert_channel_list(struct api_call *call, const struct json *params, struct json **result,
				      struct error *error)
{
	(void)params, (void)error;
	*result = json_new_object();
	json_set(*result, "channels", channels_json(call->api->params.channels));
	return STATUS_OK;
}

// The answer may have a secret in it.
static void channel_done(void *context, enum status status, struct json *result, const struct error *error)
{
	struct api_call *call = context;
	struct buffer *printed = &call->api->text;
	api_finish(call, status, result, error);
	if (printed->data)
		OPENSSL_cleanse(printed->data, printed->length);
}

static enum status alert_channel_add(struct api_call *call, const struct json *params, struct json **result,
				     struct error *error)
{
	(void)result;
	const enum status status = channels_add(call->api->params.channels, params, &call->client->actor, channel_done,
						call, error);
	return status ? status : STATUS_PENDING;
}

static enum status alert_channel_remove(struct api_call *call, const struct json *params, struct json **result,
					struct error *error)
{
	(void)result;
	const enum status status = channels_remove(call->api->params.channels,
						   json_get_string(params, "channel_id", ""), &call->client->actor,
						   channel_done, call, error);
	return status ? status : STATUS_PENDING;
}

static enum status alert_channel_test(struct api_call *call, const struct json *params, struct json **result,
				      struct error *error)
{
	(void)result;
	const enum status status = channels_test(call->api->params.channels, json_get_string(params, "channel_id", ""),
						 &call->client->actor, channel_done, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler alert_handlers[] = {
	{"alert.list", .run = alert_list},
	{"alert.acknowledge", .run = alert_acknowledge},
	{"alert.rules", .run = alert_rules},
	{"alert.rule_set", .run = alert_rule_set},
	{"alert.channel_add", .run = alert_channel_add},
	{"alert.channel_list", .run = alert_channel_list},
	{"alert.channel_test", .run = alert_channel_test},
	{"alert.channel_remove", .run = alert_channel_remove},
	{0},
};
