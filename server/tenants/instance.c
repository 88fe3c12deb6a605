/* Workers of model instances. See tenants.h.
 *
 * A tenant of its own holds one worker and nothing else, so that its life, its stream and its calls are those of every
 * worker: what breaks the contract ends it, and it alone. Other than a session's it speaks by itself (how far it is,
 * what it has generated), opens its devices itself, and what it takes of them is counted when the instance is placed.
 * Thread: the loop's. */
#include "server/cluster/topology/topology.h"
#include "server/tenants/inside.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENVELOPE_BYTES = 256 }; // of a head, around the params

struct instance_worker {
	struct instance_worker_params params; // without what points elsewhere
	struct tenant *tenant;
	struct worker *worker;
	bool ready;
};

static enum status make(struct instance_worker **out, struct tenancy *tenants,
			const struct instance_worker_params *params, const struct instance_worker_left *left,
			struct error *error)
{
	struct instance_worker *instance = calloc(1, sizeof(*instance));
	*out = NULL;
	if (!instance || tenant_create(&instance->tenant, tenants, params->instance_id, NULL)) {
		free(instance);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	instance->params = *params;
	const struct cluster_device *first = params->devices[0];
	const struct worker_start_params start = {
		.node_id = cluster_device_node_id(first),
		.backend = json_get_string(cluster_device_record(first), "backend", ""),
		.model_path = params->model_path,
		.model_id = params->model_id,
		.draft_path = params->draft_path,
		.draft_id = params->draft_id,
		.ring = params->ring};
	enum status status = STATUS_OK;
	if (params->device_count > LIMIT_WORKER_DEVICES)
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "a worker opens %d devices at most",
				   LIMIT_WORKER_DEVICES);
	else if (left)
		status = worker_restore(&instance->worker, instance->tenant, &start, left, error);
	else
		status = worker_start(&instance->worker, instance->tenant, &start, error);
	if (status) {
		tenant_destroy(&instance->tenant);
		free(instance);
		return status;
	}
	instance->worker->instance = instance;
	instance->ready = left != NULL;
	for (unsigned i = 0; i < params->device_count; i++)
		instance->worker->devices[i] = (struct worker_device){.device = params->devices[i],
								      .state = DEVICE_OPEN};
	instance->worker->device_count = params->device_count;
	instance->params.devices = NULL;
	instance->params.instance_id = instance->params.model_path = instance->params.model_id = NULL;
	instance->params.draft_path = instance->params.draft_id = NULL;
	*out = instance;
	return STATUS_OK;
}

enum status instance_worker_create(struct instance_worker **out, struct tenancy *tenants,
				   const struct instance_worker_params *params, struct error *error)
{
	return make(out, tenants, params, NULL, error);
}

enum status instance_worker_restore(struct instance_worker **out, struct tenancy *tenants,
				    const struct instance_worker_params *params,
				    const struct instance_worker_left *left, struct error *error)
{
	return make(out, tenants, params, left, error);
}

void instance_worker_describe(const struct instance_worker *instance, struct instance_worker_left *left)
{
	const struct worker *worker = instance->worker;
	*left = (struct instance_worker_left){.worker_id = worker->worker_id};
	if (worker->restored)
		memcpy(left->key_sha256, worker->key_sha256, sizeof left->key_sha256);
	else
		EVP_Digest(worker->key, WORKER_KEY_BYTES - 1, left->key_sha256, NULL, EVP_sha256(), NULL);
}

void instance_worker_leave(struct instance_worker **pointer)
{
	struct instance_worker *instance = *pointer;
	if (!instance)
		return;
	*pointer = NULL;
	instance->params.ended = NULL;
	worker_leave(instance->worker); // frees it, by instance_worker_ended
}

void instance_worker_destroy(struct instance_worker **pointer, const char *why)
{
	struct instance_worker *instance = *pointer;
	if (!instance)
		return;
	*pointer = NULL;
	instance->params.ended = NULL;
	worker_lose(instance->worker, why); // frees it, by instance_worker_ended, now or when it is ending already
}

void instance_worker_fail(struct instance_worker *instance, const char *why)
{
	worker_fail(instance->worker, why);
}

// ---- what its worker tells ----

void instance_worker_ready(struct instance_worker *instance)
{
	if (instance->ready)
		return;
	instance->ready = true;
	instance->params.ready(instance->params.context);
}

void instance_worker_away(struct instance_worker *instance, const char *why)
{
	instance->params.away(instance->params.context, why);
}

void instance_worker_back(struct instance_worker *instance)
{
	instance->params.back(instance->params.context);
}

void instance_worker_ended(struct instance_worker *instance, const struct error *fault)
{
	const struct instance_worker_params params = instance->params;
	const bool died = instance->worker->failed;
	tenant_destroy(&instance->tenant);
	free(instance);
	if (params.ended)
		params.ended(params.context, fault, died);
}

void instance_worker_notice(struct instance_worker *instance, const struct message *message)
{
	instance->params.notice(instance->params.context, message->method, message->params);
}

// ---- calls ----

static void answered(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		     const struct error *error)
{
	(void)body;
	if (call->answer)
		call->answer(call->context, status, result, error);
}

// Params that are too long for a head, into `body`, where the method takes one; then the head's are empty.
static enum status print_long(const struct instance_worker *instance, const char *name, struct json **params,
			      struct buffer *body, struct error *error)
{
	const struct contract_method *method = contract_find(instance->worker->tenants->params.contract, name);
	if (method->body == CONTRACT_BODY_NONE)
		return STATUS_OK;
	if (json_print(*params, body))
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the prompt, and what was generated, have over %d bytes",
				 LIMIT_BODY_BYTES);
	if (body->length <= LIMIT_HEAD_BYTES - ENVELOPE_BYTES) {
		buffer_clear(body);
		return STATUS_OK;
	}
	json_destroy(params);
	*params = json_new_object();
	return STATUS_OK;
}

enum status instance_worker_call(struct instance_worker *instance, const char *method, struct json *params,
				 cluster_answer *answer, void *context, struct error *error)
{
	struct buffer body;
	const bool here = instance && !instance->worker->ended && instance->worker->stream;
	struct worker_call *call = here ? worker_call_create(NULL, answered) : NULL;
	if (!call) {
		json_destroy(&params);
		return here ? error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory")
			    : error_set(error, STATUS_DEVICE_LOST, "the instance has no worker");
	}
	call->answer = answer;
	call->context = context;
	buffer_init(&body, LIMIT_BODY_BYTES);
	enum status status = print_long(instance, method, &params, &body, error);
	if (status)
		json_destroy(&params);
	else
		status = worker_send(
			instance->worker, call,
			&(struct worker_send_params){
				.method = method, .params = params, .body = body.data, .body_bytes = body.length},
			error);
	if (status)
		worker_call_destroy(&call);
	buffer_finish(&body);
	return status;
}

enum status instance_worker_write(struct instance_worker *instance, const char *method, struct json *params,
				  struct net_frame *frame, size_t bytes, cluster_answer *answer, void *context,
				  struct error *error)
{
	const bool here = instance && !instance->worker->ended && instance->worker->stream;
	struct worker_call *call = here ? worker_call_create(NULL, answered) : NULL;
	if (!call) {
		json_destroy(&params);
		return here ? error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory")
			    : error_set(error, STATUS_DEVICE_LOST, "the instance has no worker");
	}
	call->answer = answer;
	call->context = context;
	enum status status = worker_send(instance->worker, call,
					 &(struct worker_send_params){.method = method,
								      .params = params,
								      .holder = frame,
								      .body = net_frame_data(frame),
								      .body_bytes = bytes},
					 error);
	if (status)
		worker_call_destroy(&call);
	return status;
}

static bool is_here(const struct instance_worker *instance)
{
	return instance && !instance->worker->ended && !instance->worker->away && instance->worker->stream;
}

enum status instance_worker_connect(struct direct **out, struct instance_worker *from, struct instance_worker *to,
				    void (*opened)(void *context),
				    void (*ended)(void *context, uint64_t done, const struct error *error),
				    void *context)
{
	struct topology_reading reading;
	*out = NULL;
	if (!is_here(from) || !is_here(to))
		return STATUS_UNAVAILABLE;
	const bool link = strcmp(from->worker->node_id, to->worker->node_id) != 0;
	topology_find(from->worker->tenants->params.topology, from->worker->node_id, to->worker->node_id, &reading);
	if (link && !reading.direct)
		return STATUS_UNAVAILABLE;
	return direct_open(out, &(struct direct_params){.from = from->worker,
							.to = to->worker,
							.link = link,
							.opened = opened,
							.ended = ended,
							.context = context});
}

void instance_worker_recall(struct instance_worker *instance, const char *why)
{
	struct error fault = {0};
	error_set(&fault, STATUS_DEVICE_LOST, "%s", why);
	worker_fail_calls(instance->worker, &fault);
}

void instance_worker_hand_over(struct instance_worker *instance, void *context)
{
	instance->params.context = context;
}

const char *instance_worker_id(const struct instance_worker *instance)
{
	return instance->worker->worker_id;
}

bool instance_worker_is_away(const struct instance_worker *instance)
{
	return instance->worker->away;
}

// ---- memory ----

uint64_t tenancy_held_bytes(const struct tenancy *tenants, const struct cluster_device *device)
{
	return held_bytes(tenants, device);
}

enum status tenancy_hold(struct tenancy *tenants, const struct cluster_device *device, int64_t change)
{
	return held_change(tenants, device, (uint64_t)change);
}
