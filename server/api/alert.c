/* alert.*: what a person should look at, and the rules that find it. Thread: the loop's. */
#include "server/api/call.h"

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

const struct api_handler alert_handlers[] = {
	{"alert.list", .run = alert_list},
	{"alert.acknowledge", .run = alert_acknowledge},
	{"alert.rules", .run = alert_rules},
	{"alert.rule_set", .run = alert_rule_set},
	{0},
};
