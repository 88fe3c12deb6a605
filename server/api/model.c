/* model.*: which models there are. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/api/call.h"

#include <stdio.h>
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
		said_beside(result, "unreachable");
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

// ---- uploads ----

static struct json *uploaded_json(const struct models_uploaded *uploaded)
{
	struct json *json = json_new_object();
	json_set_integer(json, "received_bytes", uploaded->done_bytes);
	json_set_integer(json, "next_offset", uploaded->next_offset);
	return json;
}

static void upload_begun(void *context, const struct models_uploaded *uploaded, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	if (uploaded) {
		result = uploaded_json(uploaded);
		json_set_integer(result, "piece_bytes", LIMIT_UPLOAD_PIECE_BYTES);
		json_set(result, "model", models_record_json(call->api->params.models, uploaded->record));
	}
	api_finish(call, uploaded ? STATUS_OK : error->status, result, error);
}

static enum status model_upload_begin(struct api_call *call, const struct json *params, struct json **result,
				      struct error *error)
{
	int64_t modified_ms = -1;
	const char *modified_at = json_get_string(params, "modified_at", NULL);
	(void)result;
	if (modified_at && clock_parse(modified_at, &modified_ms))
		return error_set(error, STATUS_INVALID_PARAMS,
				 "modified_at is no time, as in 2026-11-20T14:31:52.000Z");
	const struct models_upload upload = {.file = json_get_string(params, "file", ""),
					     .name = json_get_string(params, "name", NULL),
					     .bytes = json_get_integer(params, "bytes", 0),
					     .modified_ms = modified_ms,
					     .by = &call->client->actor,
					     .done = upload_begun,
					     .context = call};
	const enum status status = models_upload_begin(call->api->params.models, &upload, error);
	return status ? status : STATUS_PENDING;
}

// In small digits; "": none was given.
static enum status take_sha256(const struct json *params, char text[65], struct error *error)
{
	snprintf(text, 65, "%s", json_get_string(params, "sha256", ""));
	for (char *at = text; *at; at++)
		if (*at >= 'A' && *at <= 'F')
			*at += 'a' - 'A';
	if (strspn(text, "0123456789abcdef") == strlen(text))
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "sha256 has 64 hexadecimal digits");
}

static void piece_written(void *context, const struct models_uploaded *uploaded, const struct error *error)
{
	api_finish(context, uploaded ? STATUS_OK : error->status, uploaded ? uploaded_json(uploaded) : NULL, error);
}

static enum status model_upload_write(struct api_call *call, const struct json *params, struct json **result,
				      struct error *error)
{
	char sha256[65];
	enum status status = take_sha256(params, sha256, error);
	(void)result;
	const struct models_piece piece = {.model_id = json_get_string(params, "model_id", ""),
					   .offset = json_get_integer(params, "offset", 0),
					   .bytes = call->body,
					   .length = call->body_bytes,
					   .holder = call->holder,
					   .sha256 = sha256,
					   .done = piece_written,
					   .context = call};
	if (!status)
		status = models_upload_write(call->api->params.models, &piece, error);
	return status ? status : STATUS_PENDING;
}

static void upload_ended(void *context, const struct models_uploaded *uploaded, const struct error *error)
{
	struct api_call *call = context;
	api_finish(call, uploaded ? STATUS_OK : error->status,
		   uploaded ? models_record_json(call->api->params.models, uploaded->record) : NULL, error);
}

static enum status model_upload_end(struct api_call *call, const struct json *params, struct json **result,
				    struct error *error)
{
	char sha256[65];
	enum status status = take_sha256(params, sha256, error);
	(void)result;
	const struct models_upload_end end = {.model_id = json_get_string(params, "model_id", ""),
					      .sha256 = sha256,
					      .done = upload_ended,
					      .context = call};
	if (!status)
		status = models_upload_end(call->api->params.models, &end, error);
	return status ? status : STATUS_PENDING;
}

static void folder_read(void *context, struct json *result, const struct error *error)
{
	api_finish(context, result ? STATUS_OK : error->status, result, error);
}

static enum status model_browse(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	(void)result;
	const enum status status = models_browse(call->api->params.models, json_get_string(params, "dir", NULL),
						 folder_read, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler model_handlers[] = {
	{"model.add", .run = model_add},
	{"model.list", .run = model_list},
	{"model.remove", .run = model_remove},
	{"model.search", .run = model_search},
	{"model.reach", .run = model_reach},
	{"model.upload_begin", .run = model_upload_begin},
	{"model.upload_write", .run = model_upload_write},
	{"model.upload_end", .run = model_upload_end},
	{"model.browse", .run = model_browse},
	{0},
};
