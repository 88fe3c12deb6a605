/* model.*: which models there are. Thread: the loop's. */
#include "server/api/call.h"

#include <string.h>

static void model_added(void *context, enum status status, const struct model_record *record, const struct error *error)
{
	struct api_call *call = context;
	api_finish(call, status, status ? NULL : models_record_json(call->api->params.models, record), error);
}

static enum status model_add(struct api_call *call, const struct json *params, struct json **result,
			     struct error *error)
{
	struct models *models = call->api->params.models;
	const struct model_record *there = NULL;
	const struct models_add add = {.source = json_get_string(params, "source", ""),
				       .name = json_get_string(params, "name", NULL),
				       .access_token = json_get_string(params, "access_token", NULL),
				       .by = &call->client->actor,
				       .done = model_added,
				       .context = call};
	enum status status = models_add(models, &add, &there, error);
	if (!status)
		*result = models_record_json(models, there);
	return status;
}

static enum status model_list(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	(void)params, (void)error;
	const bool admin = (api_scopes(call->client) & SCOPE_ADMIN) != 0;
	*result = json_new_object();
	json_set(*result, "models", models_list_json(call->api->params.models, admin));
	return STATUS_OK;
}

struct forgetting {
	const struct cluster *cluster;
	const char *model_id, *asked; // asked: the node before
};

// What nodes elsewhere keep of it takes room for nothing. One that is not there now makes room when it needs some.
static void forget(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	bool local = true;
	struct forgetting *forgetting = context;
	const char *node_id = cluster_device_node_id(device);
	(void)telemetry;
	if ((forgetting->asked && !strcmp(node_id, forgetting->asked)) ||
	    !cluster_has_node(forgetting->cluster, node_id, &local) || local)
		return;
	struct json *params = json_new_object();
	json_set_string(params, "model_id", forgetting->model_id);
	cluster_ask(forgetting->cluster, node_id, "model.forget", params, NULL, NULL);
	forgetting->asked = node_id;
}

static void model_removed(void *context, enum status status, uint64_t freed_bytes, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (!status) {
		result = call->kept;
		call->kept = NULL;
		json_set_integer(result, "freed_bytes", (int64_t)freed_bytes);
		struct forgetting forgetting = {.cluster = call->api->params.cluster,
						.model_id = json_get_string(result, "model_id", "")};
		cluster_each_device(forgetting.cluster, forget, &forgetting);
	}
	api_finish(call, status, result, error);
}

static enum status model_remove(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	const struct models_remove remove = {.model_id = json_get_string(params, "model_id", ""),
					     .by = &call->client->actor,
					     .done = model_removed,
					     .context = call};
	(void)result;
	call->kept = json_new_object();
	json_set_string(call->kept, "model_id", remove.model_id);
	enum status status = models_remove(call->api->params.models, &remove, error);
	return status ? status : STATUS_PENDING;
}

static void models_were_found(void *context, enum status status, struct json *result, const struct error *error)
{
	api_finish(context, status, result, error);
}

static enum status model_search(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	(void)result;
	enum status status = models_search(call->api->params.models, json_get_string(params, "text", ""),
					   models_were_found, call, error);
	return status ? status : STATUS_PENDING;
}

static void hubs_were_asked(void *context, enum status status, struct json *found, const struct error *error)
{
	struct json *result = NULL;
	if (!status) {
		result = json_new_object();
		json_set(result, "unreachable", json_copy(json_get(found, "unreachable")));
	}
	json_destroy(&found);
	api_finish(context, status, result, error);
}

static enum status model_reach(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	(void)params, (void)result;
	enum status status = models_search(call->api->params.models, NULL, hubs_were_asked, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler model_handlers[] = {
	{"model.add", .run = model_add},       {"model.list", .run = model_list},
	{"model.remove", .run = model_remove}, {"model.search", .run = model_search},
	{"model.reach", .run = model_reach},   {0},
};
