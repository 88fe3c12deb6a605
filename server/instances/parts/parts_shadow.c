/* See parts_shadow.h.
 *
 *     open the worker --> instance.load --> hop.connect of both ends --> ring.hello --> ready
 *
 * Thread: the loop's. */
#include "server/instances/parts/parts_shadow.h"

#include "server/security/random_id.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHADOW_WHY_BYTES = 256, LENGTHS_BYTES = 8, HEADROOM_BYTES = 32 * 1024 * 1024 };

struct shadow_end {
	struct shadow *shadow;
	char hop_id[HOP_ID_BYTES];
	struct hop *hop;
};

struct shadow {
	struct shadow_params params;
	struct net_loop *loop;
	struct ring_part before, own, after; // in the ring: the server, the worker, the server again
	struct instance_worker *worker;
	struct shadow_end in, out; // of the worker
	unsigned opened;           // ends
	uint64_t held_bytes, steps;
	uint32_t *pages; // (own.page_count): 0, 1, 2, ...
	struct net_timer turn;
	// To be told in the next turn of the loop.
	bool is_ready;
	struct ring_message *result;
	char why[SHADOW_WHY_BYTES];
	unsigned asks; // under way; it lives until they are answered
	bool over;
};

static void shadow_free(struct shadow *shadow)
{
	free(shadow->pages);
	free(shadow);
}

// False: it is over, and may be gone now.
static bool answered(struct shadow *shadow)
{
	shadow->asks--;
	if (shadow->over && !shadow->asks)
		shadow_free(shadow);
	else
		return !shadow->over;
	return false;
}

// ---- what it tells ----

static void tell(void *arg)
{
	struct shadow *shadow = arg;
	const struct shadow_params *params = &shadow->params;
	struct ring_message *result = shadow->result;
	shadow->result = NULL;
	if (shadow->why[0]) {
		params->lost(params->context, shadow->why);
	} else if (result) {
		params->computed(params->context, result->step.activations, result->step.row_count);
	} else if (shadow->is_ready) {
		shadow->is_ready = false;
		params->ready(params->context);
	}
	ring_message_destroy(&result);
}

static void fail(struct shadow *shadow, const char *why)
{
	if (shadow->over || shadow->why[0])
		return;
	snprintf(shadow->why, sizeof shadow->why, "%.200s", why && why[0] ? why : "it ended");
	net_timer_start(shadow->loop, &shadow->turn, 0, tell, shadow);
}

// ---- the ring ----

void shadow_ring_part(struct ring_part *out, const struct parts *parts, unsigned index)
{
	const struct instance *instance = parts->instance;
	const struct model_shape *shape = &instance->model->shape;
	const uint64_t room = (uint64_t)instance->page_count * STAGE_PAGE_TOKENS;
	const uint32_t context = room < instance->context_tokens ? (uint32_t)room : instance->context_tokens;
	*out = (struct ring_part){.epoch = instance->epoch,
				  .index = index % parts->count,
				  .count = parts->count,
				  .activations = RING_F32,
				  .embedding = shape->embedding,
				  .vocabulary = shape->vocabulary,
				  .context_tokens = context,
				  .page_count = instance->page_count,
				  .batch_rows = placement_rows(shape, instance->context_tokens),
				  .sequences = instance->sequences,
				  .state_count = stage_state_count(shape, instance->sequences)};
	out->batch_rows = ring_rows(out);
	snprintf(out->instance_id, sizeof out->instance_id, "%s", instance->instance_id);
}

struct ring_message *shadow_read(const struct ring_part *part, const struct contract *contract,
				 const struct net_parts *message)
{
	struct buffer frame;
	struct ring_message *out = NULL;
	buffer_init(&frame, LIMIT_WORKER_MESSAGE_BYTES);
	buffer_append_u32le(&frame, (uint32_t)message->head_bytes);
	buffer_append(&frame, message->head, message->head_bytes);
	if (message->body_bytes)
		buffer_append(&frame, message->body, message->body_bytes);
	if (!frame.failed)
		out = ring_read(part, contract, frame.data, frame.length);
	buffer_finish(&frame);
	return out;
}

// A message that ring_write_* has made; it is released.
static enum status send(struct shadow *shadow, enum status made, struct buffer *message)
{
	uint32_t head_bytes = 0;
	enum status status = made;
	if (!status)
		memcpy(&head_bytes, message->data + 4, sizeof head_bytes);
	if (!status)
		status = hop_relay_send(
			shadow->in.hop,
			&(struct net_parts){.head = message->data + LENGTHS_BYTES,
					    .head_bytes = head_bytes,
					    .body = message->data + LENGTHS_BYTES + head_bytes,
					    .body_bytes = message->length - LENGTHS_BYTES - head_bytes});
	buffer_finish(message);
	return status;
}

static void greet(struct shadow *shadow)
{
	struct buffer message;
	buffer_init(&message, LIMIT_WORKER_MESSAGE_BYTES + 4);
	if (send(shadow, ring_write_hello(&message, &shadow->before, 1), &message))
		fail(shadow, "its ring takes nothing");
}

enum status shadow_compute(struct shadow *shadow, const struct shadow_rows *rows)
{
	struct buffer message;
	const struct stage_run run = {.row_count = rows->row_count, .position = rows->position, .pages = shadow->pages};
	if (!rows->row_count || rows->row_count > shadow->own.batch_rows ||
	    rows->position > shadow->own.context_tokens - rows->row_count)
		return STATUS_INVALID_PARAMS;
	const struct ring_step step = {.epoch = shadow->own.epoch,
				       .round = 1,
				       .step = ++shadow->steps,
				       .part_count = shadow->own.index,
				       .zero_count = rows->position ? 0 : shadow->own.page_count,
				       .zero = shadow->pages,
				       .run_count = 1,
				       .runs = &run,
				       .row_count = rows->row_count,
				       .tokens = rows->tokens,
				       .activations = rows->activations};
	buffer_init(&message, LIMIT_WORKER_MESSAGE_BYTES + 4);
	return send(shadow, ring_write_step(&message, &shadow->before, &step), &message);
}

// From the worker.
static void came(void *context, const struct net_parts *parts)
{
	struct shadow_end *end = context;
	struct shadow *shadow = end->shadow;
	if (shadow->why[0])
		return;
	struct ring_message *message = shadow_read(&shadow->after,
						   shadow->params.part->parts->instance->all->params.contract, parts);
	const bool step = message && message->said == RING_STEP;
	if (message && message->said == RING_HELLO && !message->text[0]) {
		shadow->is_ready = true;
		net_timer_start(shadow->loop, &shadow->turn, 0, tell, shadow);
	} else if (step && !shadow->result && message->step.step == shadow->steps && message->step.row_count) {
		shadow->result = message;
		message = NULL;
		net_timer_start(shadow->loop, &shadow->turn, 0, tell, shadow);
	} else {
		fail(shadow, message && message->text[0] ? message->text : "it broke the protocol");
	}
	ring_message_destroy(&message);
}

static void hop_opened(void *context)
{
	struct shadow_end *end = context;
	if (++end->shadow->opened == 2)
		greet(end->shadow);
}

static void hop_over(void *context)
{
	struct shadow_end *end = context;
	end->hop = NULL;
	fail(end->shadow, "a connection to it broke");
}

static void connected(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct shadow *shadow = context;
	(void)result;
	if (answered(shadow) && status)
		fail(shadow, error->message);
}

static enum status connect_end(struct shadow *shadow, struct shadow_end *end, struct error *error)
{
	char key[PARTS_KEY_BYTES];
	const struct instances *all = shadow->params.part->parts->instance->all;
	const char *node_id = cluster_device_node_id(shadow->params.device);
	const bool in = end == &shadow->in;
	enum status status = random_id("hop_", end->hop_id, sizeof end->hop_id);
	if (!status)
		status = parts_make_key(key);
	if (status)
		return error_set(error, status, "the system gives no random numbers");
	const struct hop_params hop = {.hop_id = end->hop_id,
				       .key = key,
				       .out_node_id = in ? NULL : node_id,
				       .in_node_id = in ? node_id : NULL,
				       .opened = hop_opened,
				       .came = came,
				       .ended = hop_over,
				       .context = end};
	status = hop_relay_create(&end->hop, all->params.tenants, &hop, error);
	if (!status) {
		struct json *params = json_new_object();
		json_set_string(params, "worker_id", instance_worker_id(shadow->worker));
		json_set_string(params, "end", in ? "in" : "out");
		json_set_string(params, "hop_id", end->hop_id);
		json_set_string(params, "key", key);
		json_set_string(params, "via", "server");
		status = cluster_ask(all->params.cluster, node_id, "hop.connect", params, connected, shadow);
		if (status)
			error_set(error, status, "its node cannot be asked now");
		shadow->asks += !status;
	}
	OPENSSL_cleanse(key, sizeof key);
	return status;
}

// ---- the worker ----

static void loaded(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct error fault = {0};
	struct shadow *shadow = context;
	(void)result;
	if (!answered(shadow) || shadow->why[0])
		return;
	if (status)
		fault = *error;
	if (!status)
		status = connect_end(shadow, &shadow->in, &fault);
	if (!status)
		status = connect_end(shadow, &shadow->out, &fault);
	if (status)
		fail(shadow, fault.message);
}

static struct json *load_params(const struct shadow *shadow)
{
	struct json *params = json_new_object(), *stages = json_new_array(), *stage = json_new_object(),
		    *part = json_new_object();
	const struct ring_part *own = &shadow->own;
	json_set_string(stage, "hardware_key",
			json_get_string(cluster_device_record(shadow->params.device), "hardware_key", ""));
	json_set_integer(stage, "first_layer", own->first_layer);
	json_set_integer(stage, "layer_count", own->next_layer - own->first_layer);
	json_set_integer(stage, "host_layers", 0);
	json_push(stages, stage);
	json_set(params, "stages", stages);
	json_set_integer(params, "context_tokens", own->context_tokens);
	json_set_integer(params, "page_count", own->page_count);
	json_set_integer(params, "batch_rows", own->batch_rows);
	json_set_integer(params, "sequences", own->sequences);
	json_set_string(part, "instance_id", own->instance_id);
	json_set_integer(part, "epoch", (int64_t)own->epoch);
	json_set_integer(part, "index", own->index);
	json_set_integer(part, "count", own->count);
	json_set_integer(part, "lanes", own->count);
	json_set_string(part, "activations", "f32");
	json_set_integer(part, "last_layer", own->next_layer);
	json_set(params, "part", part);
	return params;
}

static void worker_ready(void *context)
{
	struct error error = {0};
	struct shadow *shadow = context;
	if (instance_worker_call(shadow->worker, "instance.load", load_params(shadow), loaded, shadow, &error))
		fail(shadow, error.message);
	else
		shadow->asks++;
}

static void worker_notice(void *context, const char *method, const struct json *params)
{
	const struct shadow *shadow = context;
	(void)method; // how far it is with loading
	(void)params;
	if (!shadow->why[0])
		shadow->params.moved(shadow->params.context);
}

static void worker_away(void *context, const char *why)
{
	fail(context, why);
}

static void worker_back(void *context)
{
	(void)context;
}

static void worker_ended(void *context, const struct error *fault, bool died)
{
	struct shadow *shadow = context;
	(void)died;
	shadow->worker = NULL;
	fail(shadow, fault->message);
}

// ---- all of it ----

static void layers_of(const struct part *part, uint32_t *first, uint32_t *count)
{
	const struct instance_stage *stages = &part->parts->instance->stages[part->first_stage];
	*first = stages[0].first_layer;
	*count = 0;
	for (unsigned i = 0; i < part->stage_count; i++)
		*count += stages[i].layer_count;
}

static void make_ring(struct shadow *shadow)
{
	const struct part *part = shadow->params.part;
	uint32_t first, count;
	struct ring_part *own = &shadow->own;
	layers_of(part, &first, &count);
	shadow_ring_part(own, part->parts, part->index);
	own->sequences = 1;
	own->state_count = 0; // of models that have states a browser holds no layers
	own->page_count = (own->context_tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	own->first_layer = first;
	own->next_layer = first + count;
	own->batch_rows = placement_rows(&part->parts->instance->model->shape, own->context_tokens);
	own->batch_rows = ring_rows(own);
	shadow->before = shadow->after = *own;
	shadow->before.index = (own->index + own->count - 1) % own->count;
	shadow->before.next_layer = first;
	shadow->after.index = own->index + 1;
	shadow->after.first_layer = own->next_layer;
}

uint64_t shadow_needs(const struct part *part)
{
	struct shadow probe = {.params = {.part = part}};
	struct stage_memory memory;
	make_ring(&probe);
	const struct model_record *model = part->parts->instance->model;
	const struct stage_params params = {.shape = &model->shape,
					    .first_layer = probe.own.first_layer,
					    .layer_count = probe.own.next_layer - probe.own.first_layer,
					    .embeds = !part->index,
					    .context_tokens = probe.own.context_tokens,
					    .page_count = probe.own.page_count,
					    .batch_rows = probe.own.batch_rows,
					    .batch_sequences = 1,
					    .batch_outputs = 1,
					    .tiled = true};
	stage_estimate(&params, &model->sizes, &memory);
	return memory.weights_bytes + memory.kv_bytes + memory.workspace_bytes + memory.host_bytes + HEADROOM_BYTES;
}

enum status shadow_create(struct shadow **out, const struct shadow_params *params, struct error *error)
{
	const struct instance *instance = params->part->parts->instance;
	struct shadow *shadow = calloc(1, sizeof(*shadow));
	*out = NULL;
	if (!shadow)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	shadow->params = *params;
	shadow->loop = instance->all->params.loop;
	shadow->in.shadow = shadow->out.shadow = shadow;
	make_ring(shadow);
	shadow->pages = calloc(shadow->own.page_count, sizeof *shadow->pages);
	for (uint32_t i = 0; shadow->pages && i < shadow->own.page_count; i++)
		shadow->pages[i] = i;
	const struct instance_worker_params worker = {.instance_id = instance->instance_id,
						      .model_path = instance->model->path,
						      .ring = true,
						      .devices = &params->device,
						      .device_count = 1,
						      .ready = worker_ready,
						      .notice = worker_notice,
						      .away = worker_away,
						      .back = worker_back,
						      .ended = worker_ended,
						      .context = shadow};
	enum status status = shadow->pages ? STATUS_OK : STATUS_OUT_OF_MEMORY;
	if (!status)
		status = tenancy_hold(instance->all->params.tenants, params->device, (int64_t)params->needs_bytes);
	if (!status)
		shadow->held_bytes = params->needs_bytes;
	else
		error_set(error, status, "the server is out of memory");
	if (!status)
		status = instance_worker_create(&shadow->worker, instance->all->params.tenants, &worker, error);
	*out = shadow;
	if (status)
		shadow_destroy(out);
	return status;
}

void shadow_destroy(struct shadow **pointer)
{
	struct shadow *shadow = *pointer;
	if (!shadow)
		return;
	*pointer = NULL;
	const struct instances *all = shadow->params.part->parts->instance->all;
	shadow->over = true;
	net_timer_stop(shadow->loop, &shadow->turn);
	ring_message_destroy(&shadow->result);
	hop_relay_destroy(&shadow->in.hop);
	hop_relay_destroy(&shadow->out.hop);
	shadow->asks++; // while its worker's calls are answered
	instance_worker_destroy(&shadow->worker, "the check is over");
	if (shadow->held_bytes)
		tenancy_hold(all->params.tenants, shadow->params.device, -(int64_t)shadow->held_bytes);
	answered(shadow);
}
