/* instance.* and placement.preview: models that are loaded. Thread: the loop's. */
#include "server/api/call.h"

#include <string.h>

static void previewed(void *context, enum status status, struct json *placement, const struct error *error)
{
	api_finish(context, status, placement, error);
}

static enum status placement_preview(struct api_call *call, const struct json *params, struct json **result,
				     struct error *error)
{
	(void)result;
	const struct api_session *session = call->client->session;
	const struct instances_preview preview = {.params = params,
						  .asker = session->token ? (const void *)session->token : session,
						  .connection = call->client,
						  .done = previewed,
						  .context = call};
	enum status status = instances_preview(call->api->params.instances, &preview, error);
	return status ? status : STATUS_PENDING;
}

static void started(void *context, enum status status, const struct instance *instance, const struct error *error)
{
	struct json *result = NULL;
	struct api_call *call = context;
	if (status) {
		audit_tell(call->api->params.audit,
			   &(struct audit_tally){.by = &call->client->actor,
						 .action = call->method->name,
						 .target = json_get_string(call->kept, "model_id", ""),
						 .outcome = status});
	} else {
		result = json_new_object();
		json_set_string(result, "instance_id", instance_id(instance));
		json_set_string(result, "state", instance_state(instance));
	}
	api_finish(call, status, result, error);
}

// The entry is on disk: begin. That this fails now is an entry of its own.
static void begun(void *context, enum status status, const struct error *error)
{
	struct error fault = {0};
	struct api_call *call = context;
	if (status) {
		api_finish(call, status, NULL, error);
		return;
	}
	status = instances_start(call->api->params.instances, call->kept, started, call, &fault);
	if (status)
		started(call, status, NULL, &fault);
}

static enum status instance_create(struct api_call *call, const struct json *params, struct json **result,
				   struct error *error)
{
	const char *model_id = json_get_string(params, "model_id", "");
	const struct model_record *model = models_find(call->api->params.models, model_id);
	(void)result;
	if (!model) {
		error_set(error, STATUS_NOT_FOUND, "there is no model %.64s", model_id);
		error_hint(error, "model.list lists them");
		return STATUS_NOT_FOUND;
	}
	const struct audit_event event = {
		.by = &call->client->actor, .action = call->method->name, .target = model->model_id};
	call->kept = json_copy(params);
	enum status status = audit_write(call->api->params.audit, &event, begun, call, error);
	return status ? status : STATUS_PENDING;
}

static enum status instance_list(struct api_call *call, const struct json *params, struct json **result,
				 struct error *error)
{
	(void)params, (void)error;
	*result = json_new_object();
	json_set(*result, "instances", instances_list_json(call->api->params.instances));
	return STATUS_OK;
}

static void act_written(void *context, enum status status, const struct error *error)
{
	struct api_call *call = context;
	struct json *result = NULL;
	struct error fault = error ? *error : (struct error){0};
	const char *id = json_get_string(call->kept, "instance_id", "");
	if (!status)
		status = !strcmp(call->method->name, "instance.move")
				 ? instances_move(call->api->params.instances, id,
						  json_get_string(call->kept, "format", NULL), &fault)
				 : instances_stop(call->api->params.instances, id, &fault);
	if (!status) {
		result = json_new_object();
		json_set_string(result, "instance_id", id);
	}
	api_finish(call, status, result, &fault);
}

// The row of state.db goes with the entry, in one transaction.
static enum status write_delete(struct api_call *call, const struct audit_event *event, const char *id,
				struct error *error)
{
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	if (!status) {
		store_remove_instance(batch, id); // what fails here fails the batch
		audit_put(call->api->params.audit, batch, event);
		status = store_commit(call->api->params.store, &batch, act_written, call);
	}
	if (status) {
		error_set(error, status, "too many changes wait for the disk");
		error_hint(error, "try again in a moment");
	}
	return status;
}

// instance.move and instance.delete.
static enum status instance_act(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	const char *id = json_get_string(params, "instance_id", "");
	(void)result;
	if (!instances_find(call->api->params.instances, id)) {
		error_set(error, STATUS_NOT_FOUND, "there is no instance %.64s", id);
		error_hint(error, "instance.list lists them");
		return STATUS_NOT_FOUND;
	}
	char detail[64];
	const char *format = json_get_string(params, "format", NULL); // one of the contract's words
	snprintf(detail, sizeof detail, "{\"format\":\"%.16s\"}", format ? format : "");
	const struct audit_event event = {.by = &call->client->actor,
					  .action = call->method->name,
					  .target = id,
					  .detail = format ? detail : NULL};
	call->kept = json_copy(params);
	enum status status = !strcmp(call->method->name, "instance.delete")
				     ? write_delete(call, &event, id, error)
				     : audit_write(call->api->params.audit, &event, act_written, call, error);
	return status ? status : STATUS_PENDING;
}

const struct api_handler instance_handlers[] = {
	{"placement.preview", .run = placement_preview}, {"instance.create", .run = instance_create},
	{"instance.list", .run = instance_list},         {"instance.move", .run = instance_act},
	{"instance.delete", .run = instance_act},        {0},
};
