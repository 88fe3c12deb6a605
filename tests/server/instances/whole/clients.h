/* The clients of the simulation: who has models loaded, and who asks them. Each request is to get the tokens 0, 1, 2
 * ... once each and in order, whatever happens to workers meanwhile, unless it ends with an error. */
#pragma once
#include "tests/server/instances/whole/serving.h"

enum { DRAIN_MS = 200, AUDIT_MS = 5000, ASK_MS = 4000, REQUEST_TOKENS = 60 };

// ---- requests ----

static void told_delta(void *context, const struct json *delta)
{
	struct sim_request *request = context;
	char expected[16];
	for (const struct json *one = json_first(json_get(delta, "tokens")); one; one = json_next(one)) {
		int64_t token = 0;
		json_integer(one, &token);
		snprintf(expected, sizeof expected, "%u ", request->got);
		if (token != 1000 + request->got || strcmp(json_get_string(delta, "text", ""), expected) != 0)
			broken("no token is lost or repeated", "request %u: token %lld (%.40s) after %u tokens",
			       request->number, (long long)token - 1000, json_get_string(delta, "text", ""),
			       request->got);
		request->got++;
		world.tokens++;
	}
	request->told_ms = virtual.now_ms;
}

static void told_end(void *context, enum status status, const struct json *end, const struct error *error)
{
	struct sim_request *request = context;
	(void)end;
	if (!status && request->got != request->most)
		broken("no token is lost or repeated", "request %u ends well after %u tokens of %u", request->number,
		       request->got, request->most);
	if (status)
		TRACE("request %u ends: %s", request->number, error->message);
	world.requests_ended += !status;
	world.requests_failed += status != STATUS_OK;
	request->open = false;
	request->generation = NULL;
}

// Whether an instance answers that was not told before to leave a device.
static bool is_answered(unsigned model)
{
	char id[16];
	snprintf(id, sizeof id, "mod_%u", model);
	for (const struct instance *one = server.instances->first; one; one = one->next) {
		bool stays = one->state == INSTANCE_RUNNING && !strcmp(one->model_id, id);
		for (unsigned i = 0; i < ALL_DEVICES && stays; i++)
			stays = (i >= DEVICES && !(world.kinds & KIND_SPILL)) ||
				!instance_is_on(one, world.devices[i].device_id) ||
				!cluster_find_device(server.cluster, world.devices[i].device_id)->draining ||
				virtual.now_ms - world.devices[i].drained_ms < DRAIN_MS;
		if (stays)
			return true;
	}
	return false;
}

static void ask_model(struct sim_request *request)
{
	struct error error = {0};
	struct json *call = json_new_object(), *prompt = json_new_object();
	json_set_string(prompt, "text", "p");
	json_set(call, "prompt", prompt);
	*request = (struct sim_request){.open = true,
					.number = ++world.request_number,
					.model = (unsigned)draw(MODELS),
					.most = 1 + (unsigned)draw(REQUEST_TOKENS),
					.told_ms = virtual.now_ms};
	json_set_integer(call, "max_tokens", request->most);
	char name[16];
	snprintf(name, sizeof name, "model-%u", request->model);
	const struct generation_params params = {.by = &audit_server,
						 .action = "infer.chat",
						 .model = name,
						 .call = call,
						 .loads = world.evicts,
						 .delta = told_delta,
						 .ended = told_end,
						 .context = request};
	if (!generation_start(&request->generation, server.instances, &params, &error))
		return;
	request->open = false; // no instance, or one that takes none now
	const bool untold = virtual.unwritten_ms && virtual.now_ms - virtual.unwritten_ms < AUDIT_MS;
	if (error.status == STATUS_UNAVAILABLE && !untold && is_answered(request->model))
		broken("a model that answers takes requests", "%s", error.message);
}

static void ask_again(void *arg)
{
	struct sim_request *request = arg;
	if (server.there && !request->open)
		ask_model(request);
	else if (request->open && server.there && world.faults && !draw(40)) { // it has seen enough
		generation_cancel(&request->generation);
		request->open = false;
	}
	virtual_after(draw_ms(ASK_MS / 4, ASK_MS * 7 / 4), ask_again, request);
}

// The server has died, and the connections with it.
static void clients_lose_server(void)
{
	for (unsigned i = 0; i < REQUESTS; i++) {
		world.requests_failed += world.requests[i].open;
		world.requests[i].open = false;
		world.requests[i].generation = NULL;
	}
}

// ---- instances ----

static void was_placed(void *context, enum status status, const struct instance *instance, const struct error *error)
{
	(void)context;
	server.placing--;
	TRACE("instance.create: %s", status ? error->message : instance_id(instance));
}

// All layers on one device.
static struct json *pin_json(unsigned device, unsigned layers)
{
	struct json *pins = json_new_array(), *pin = json_new_object();
	json_set_string(pin, "device_id", world.devices[device].device_id);
	json_set_integer(pin, "first_layer", 0);
	json_set_integer(pin, "layer_count", layers);
	json_push(pins, pin);
	return pins;
}

static void want_instance(unsigned model)
{
	struct error error = {0};
	char id[16];
	struct json *params = json_new_object();
	snprintf(id, sizeof id, "mod_%u", model);
	json_set_string(params, "model_id", id);
	if (!model && !draw(4)) // one that has room on each
		json_set(params, "pins", pin_json((unsigned)draw(DEVICES), model_layers[model]));
	server.placing++;
	if (instances_start(server.instances, params, was_placed, NULL, &error))
		server.placing--;
	json_destroy(&params);
}

static unsigned wanted_count(void)
{
	return (unsigned)server.instances->count + server.placing;
}

static struct instance *some_instance(void)
{
	struct instance *one = server.instances->first;
	for (uint64_t left = server.instances->count ? draw(server.instances->count) : 0; one && left; left--)
		one = one->next;
	return one;
}

// As instance.delete: the row goes first.
struct deleting {
	char instance_id[INSTANCE_ID_BYTES];
};

static void row_removed(void *context, enum status status, const struct error *error)
{
	struct deleting *deleting = context;
	(void)error;
	if (!status && server.there)
		instances_stop(server.instances, deleting->instance_id, NULL);
	free(deleting);
}

static void unwant_instance(const struct instance *instance)
{
	struct store_batch *batch = NULL;
	struct deleting *deleting = calloc(1, sizeof *deleting);
	if (!deleting || store_batch_create(&batch))
		abort();
	snprintf(deleting->instance_id, sizeof deleting->instance_id, "%s", instance->instance_id);
	store_remove_instance(batch, instance->instance_id);
	const struct audit_event event = {
		.by = &audit_server, .action = "instance.delete", .target = instance->instance_id};
	audit_put(server.audit, batch, &event);
	if (store_commit(server.store, &batch, row_removed, deleting))
		free(deleting);
}
