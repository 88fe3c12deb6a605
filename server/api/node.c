/* node.*: letting nodes in, and removing them. Thread: the loop's. */
#include "server/api/call.h"

static enum status node_waiting(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	(void)params, (void)error;
	*result = json_new_object();
	json_set(*result, "waiting", joins_waiting(call->api->params.joins));
	return STATUS_OK;
}

// The call waits for the disk with the id of whom it is about.
static enum status decide(struct api_call *call, const struct json *params,
			  enum status (*decision)(struct joins *joins, const struct joins_decision *decision,
						  struct error *error),
			  void (*done)(void *context, enum status status, const struct error *error),
			  struct error *error)
{
	const char *node_id = json_get_string(params, "node_id", "");
	call->kept = json_new_object();
	json_set_string(call->kept, "node_id", node_id);
	const struct joins_decision asked = {.node_id = node_id,
					     .code = json_get_string(params, "code", NULL),
					     .by = &call->client->actor,
					     .done = done,
					     .context = call};
	enum status status = decision(call->api->params.joins, &asked, error);
	return status ? status : STATUS_PENDING;
}

static void answer_id(void *context, enum status status, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = status ? NULL : call->kept;
	if (result)
		call->kept = NULL;
	api_finish(call, status, result, error);
}

static void answer_node(void *context, enum status status, const struct error *error)
{
	struct api_call *call = context;
	struct error gone = {0};
	struct json *node = NULL;
	if (!status)
		node = cluster_describe_node(call->api->params.cluster, json_get_string(call->kept, "node_id", ""));
	if (!status && !node) {
		status = error_set(&gone, STATUS_NOT_FOUND, "the node was let in, and removed again");
		error = &gone;
	}
	api_finish(call, status, node, error);
}

static enum status node_approve(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	(void)result;
	return decide(call, params, joins_approve, answer_node, error);
}

static enum status node_refuse(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	(void)result;
	return decide(call, params, joins_refuse, answer_id, error);
}

static enum status node_remove(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	(void)result;
	return decide(call, params, joins_remove, answer_id, error);
}

const struct api_handler node_handlers[] = {
	{"node.waiting", .run = node_waiting},
	{"node.approve", .run = node_approve},
	{"node.refuse", .run = node_refuse},
	{"node.remove", .run = node_remove},
	{0},
};
