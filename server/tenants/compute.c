/* compute.*: modules and launches. The names in a launch's arguments become handles; what a kernel takes is checked by
 * the worker, which has the module. See inside.h. */
#include "server/tenants/inside.h"

#include <stdio.h>
#include <string.h>

static enum status no_memory(struct error *error)
{
	return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
}

// ---- compute.load ----

static void loaded(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		   const struct error *error)
{
	struct item *item = call->item;
	struct json *answer = NULL;
	(void)body;
	if (!status)
		status = item_publish(item);
	if (status) {
		item_destroy(&item);
	} else {
		const struct json *signatures = json_get(result, "signatures");
		struct json *kernels = json_new_array();
		for (const struct json *one = json_first(signatures); one; one = json_next(one))
			json_push(kernels, json_new_string(json_get_string(one, "kernel", "")));
		answer = json_new_object();
		json_set_string(answer, "module_id", item->id);
		json_set(answer, "kernels", kernels);
		json_set(answer, "signatures", json_copy(signatures));
	}
	call_answer(call, status, answer, error);
}

static bool has_feature(const struct cluster_device *device, const char *word)
{
	const struct json *one = json_first(json_get(cluster_device_record(device), "features"));
	while (one && strcmp(json_string(one, ""), word) != 0)
		one = json_next(one);
	return one != NULL;
}

// Whether this device takes modules of this format, with this body.
static enum status check_format(const struct cluster_device *device, const struct tenant_call *client,
				struct error *error)
{
	static const struct {
		const char *format, *backend, *where;
	} takers[] = {{"ptx", "cuda", "CUDA devices"},
		      {"cuda", "cuda", "CUDA devices"},
		      {"spirv", "vulkan", "Vulkan devices"},
		      {"wgsl", "webgpu", "GPUs of browsers"}};
	const char *format = json_get_string(client->params, "format", "");
	const char *backend = json_get_string(cluster_device_record(device), "backend", "");
	for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
		if (!strcmp(format, takers[i].format) && strcmp(backend, takers[i].backend) != 0) {
			error_set(error, STATUS_UNAVAILABLE, "%s modules are for %s; %s runs by %s", format,
				  takers[i].where, cluster_device_name(device), backend);
			error_hint(error, "the format builtin is there on every device");
			return STATUS_UNAVAILABLE;
		}
	if (!strcmp(format, "cuda") && !has_feature(device, "nvrtc")) {
		error_set(error, STATUS_UNAVAILABLE, "cuda modules are compiled by NVRTC, and the node of %s has none",
			  cluster_device_name(device));
		error_hint(error, "install CUDA's libnvrtc there, of a version no newer than the driver's, or compile "
				  "to PTX and load that");
		return STATUS_UNAVAILABLE;
	}
	bool builtin = !strcmp(format, "builtin");
	if (builtin && client->body_bytes)
		return error_set(error, STATUS_INVALID_PARAMS, "the format builtin takes no body");
	if (!builtin && !client->body_bytes) {
		error_set(error, STATUS_INVALID_PARAMS, "a %s module is the body of the call, and there is none",
			  format);
		error_hint(error, "send a binary frame: u32 little-endian length of the head, head, module");
		return STATUS_INVALID_PARAMS;
	}
	return STATUS_OK;
}

// The end of a call that has made an item: both go if it could not be sent.
static enum status after_send(struct worker *worker, const struct tenant_call *client, struct worker_call **call,
			      struct item **item, enum status status)
{
	if (status) {
		item_destroy(item);
		worker_call_destroy(call);
	} else {
		worker_hold(worker, client->conn);
	}
	return status;
}

enum status tenant_load(const struct tenant_call *client, struct error *error)
{
	struct worker *worker;
	struct item *item = NULL;
	const struct cluster_device *device;
	unsigned place;
	struct tenant *tenant = client->tenant;
	enum status status = tenant_find_device(tenant->tenants, json_get_string(client->params, "device_id", ""),
						&device, error);
	if (!status) {
		about_device(client, device, client->body_bytes);
		status = check_format(device, client, error);
	}
	if (!status && tenant->modules >= limits_get(tenant->tenants->params.limits, LIMIT_MODULES_OF_SESSION_ID)) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "this session has its %u modules", tenant->modules);
		error_hint(error, "unload what is not needed");
		status = STATUS_LIMIT_EXCEEDED;
	}
	if (!status && !strcmp(json_get_string(client->params, "format", ""), "cuda"))
		return compilation_start(client, device, error);
	if (!status)
		status = worker_for(&worker, &place, tenant, device, error);
	if (status)
		return status;
	struct worker_call *call = worker_call_create(client, loaded);
	const struct item_params wanted = {.worker = worker, .kind = ITEM_MODULE, .device = place};
	status = call ? item_create(&item, &wanted, error) : no_memory(error);
	if (!status) {
		struct json *params = json_new_object();
		json_set_integer(params, "device", place);
		json_set_integer(params, "module", item->handle);
		json_set_string(params, "format", json_get_string(client->params, "format", ""));
		call->item = item;
		call->device = place;
		worker->own_code |= strcmp(json_get_string(client->params, "format", ""), "builtin") != 0;
		const struct worker_send_params send = {.method = "compute.load",
							.params = params,
							.holder = client->holder,
							.body = client->body,
							.body_bytes = client->body_bytes,
							.waits = true};
		status = worker_send(worker, call, &send, error);
	}
	return after_send(worker, client, &call, &item, status);
}

// ---- compute.launch ----

static void launched(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		     const struct error *error)
{
	(void)body;
	call_answer(call, status, status ? NULL : json_copy(result), error);
}

// One argument as the worker knows it: an allocation by its handle, a value as it is.
static enum status translate(struct json *out, const struct item *module, const struct tenant_call *client,
			     const struct json *argument, struct error *error)
{
	struct item *item;
	const char *id = json_get_string(argument, "allocation_id", NULL);
	if (!id) {
		json_push(out, json_copy(argument));
		return STATUS_OK;
	}
	enum status status = item_find(&item, client->tenant, ITEM_ALLOCATION, id, error);
	if (status)
		return status;
	if (item->worker != module->worker || item->device != module->device) {
		error_set(error, STATUS_INVALID_PARAMS, "args[%zu] lies on %s, the module on %s", json_count(out),
			  cluster_device_id(item_device(item)), cluster_device_id(item_device(module)));
		error_hint(error, "memory.copy brings it over");
		return STATUS_INVALID_PARAMS;
	}
	struct json *handle = json_new_object();
	json_set_integer(handle, "handle", item->handle);
	json_push(out, handle);
	return STATUS_OK;
}

enum status tenant_launch(const struct tenant_call *client, struct error *error)
{
	static const char *const shapes[] = {"grid", "block"};
	struct item *module;
	const struct json *given = client->params;
	enum status status = item_find(&module, client->tenant, ITEM_MODULE, json_get_string(given, "module_id", ""),
				       error);
	if (status)
		return status;
	about_item(client, module, 0);
	snprintf(client->about->target, sizeof client->about->target, "%s", json_get_string(given, "kernel", ""));
	struct json *params = json_new_object(), *args = json_new_array();
	struct worker_call *call = worker_call_create(client, launched);
	if (!call)
		status = no_memory(error);
	for (const struct json *one = json_first(json_get(given, "args")); one && !status; one = json_next(one))
		status = translate(args, module, client, one, error);
	json_set_integer(params, "module", module->handle);
	json_set_string(params, "kernel", json_get_string(given, "kernel", ""));
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (json_get(given, shapes[i]))
			json_set(params, shapes[i], json_copy(json_get(given, shapes[i])));
	json_set(params, "args", args);
	json_set_integer(params, "timeout_ms", json_get_integer(given, "timeout_ms", LIMIT_LAUNCH_MS));
	if (!status)
		status = worker_send(module->worker, call,
				     &(struct worker_send_params){.method = "compute.launch", .params = params}, error);
	else
		json_destroy(&params);
	if (status)
		worker_call_destroy(&call);
	else
		worker_hold(module->worker, client->conn);
	return status;
}

// ---- compute.run ----

static void ran(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		const struct error *error)
{
	(void)body;
	item_destroy(&call->item);
	call_answer(call, status, status ? NULL : json_copy(result), error);
}

// Of the memory that the arguments are.
static uint64_t memory_of(const struct json *args)
{
	uint64_t count = 0;
	for (const struct json *one = json_first(args); one; one = json_next(one))
		count += json_count(json_get(one, "f32s")) + (uint64_t)json_get_integer(one, "zeros", 0);
	return count * sizeof(float);
}

size_t tenant_run_numbers(const struct json *params)
{
	size_t count = 0;
	for (const struct json *one = json_first(json_get(params, "args")); one; one = json_next(one))
		count += json_count(json_get(one, "f32s"));
	return count;
}

enum status tenant_run(const struct tenant_call *client, struct error *error)
{
	struct worker *worker;
	struct item *item = NULL; // that has no name: what the run holds
	const struct cluster_device *device;
	unsigned place;
	const struct json *given = client->params, *args = json_get(given, "args");
	const uint64_t bytes = memory_of(args);
	const size_t numbers = tenant_run_numbers(given);
	if (numbers > LIMIT_RUN_NUMBERS) {
		error_set(error, STATUS_INVALID_PARAMS, "the f32s of a call are %d numbers at most, not %zu",
			  LIMIT_RUN_NUMBERS, numbers);
		error_hint(error, "memory.write takes more, and compute.launch runs on it");
		return STATUS_INVALID_PARAMS;
	}
	enum status status = tenant_find_device(client->tenant->tenants, json_get_string(given, "device_id", ""),
						&device, error);
	if (!status) {
		about_device(client, device, bytes);
		snprintf(client->about->target, sizeof client->about->target, "%s",
			 json_get_string(given, "kernel", ""));
		status = item_check_room(client->tenant, device, bytes, error);
	}
	if (!status)
		status = worker_for(&worker, &place, client->tenant, device, error);
	if (status)
		return status;
	struct worker_call *call = worker_call_create(client, ran);
	const struct item_params wanted = {.worker = worker, .kind = ITEM_ALLOCATION, .device = place, .bytes = bytes};
	status = call ? item_create(&item, &wanted, error) : no_memory(error);
	if (!status) {
		struct json *params = json_new_object();
		json_set_integer(params, "device", place);
		json_set_string(params, "kernel", json_get_string(given, "kernel", ""));
		json_set(params, "args", json_copy(args));
		json_set_integer(params, "timeout_ms", json_get_integer(given, "timeout_ms", LIMIT_LAUNCH_MS));
		call->item = item;
		call->device = place;
		status = worker_send(worker, call,
				     &(struct worker_send_params){.method = "compute.run",
								  .params = params,
								  .params_bytes = numbers * LIMIT_RUN_NUMBER_BYTES,
								  .waits = true},
				     error);
	}
	return after_send(worker, client, &call, &item, status);
}

// ---- compute.unload ----

static void unloaded(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		     const struct error *error)
{
	struct json *answer = NULL;
	(void)result, (void)body;
	if (!status) {
		answer = json_new_object();
		json_set_string(answer, "module_id", call->item->id);
	}
	item_destroy(&call->item);
	call_answer(call, status, answer, error);
}

enum status module_drop(struct item *module, const struct tenant_call *client, struct error *error)
{
	struct worker_call *call = worker_call_create(client, unloaded);
	if (!call)
		return no_memory(error);
	struct json *params = json_new_object();
	json_set_integer(params, "module", module->handle);
	call->item = module;
	enum status status = worker_send(module->worker, call,
					 &(struct worker_send_params){.method = "compute.unload", .params = params},
					 error);
	if (status)
		worker_call_destroy(&call);
	else
		item_hide(module);
	return status;
}

enum status tenant_unload(const struct tenant_call *client, struct error *error)
{
	struct item *module;
	enum status status = item_find(&module, client->tenant, ITEM_MODULE,
				       json_get_string(client->params, "module_id", ""), error);
	if (status)
		return status;
	about_item(client, module, 0);
	return module_drop(module, client, error);
}
