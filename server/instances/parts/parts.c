/* See parts.h.
 *
 *   parts.c        opening and loading each part; and the end of all
 *   parts_fetch.c  downloads for parts on other machines
 *   parts_tab.c    weights for parts in browsers
 *   parts_ring.c   connecting and checking
 *   parts_spot.c   spot checks of what browsers compute
 *   parts_keep.c   parts kept from the previous placement
 *   parts_adopt.c  parts adopted from the previous server */
#include "common/base/log.h"
#include "common/base/longer.h"
#include "server/instances/parts/parts_inside.h"
#include "server/instances/parts/parts_spot.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- questions to nodes and workers ----

struct parts_ask *parts_ask_create(struct parts *parts, unsigned which, const unsigned *attempts)
{
	struct parts_ask *ask = calloc(1, sizeof(*ask));
	if (!ask)
		return NULL;
	*ask = (struct parts_ask){.next = parts->asks, .parts = parts, .which = which, .attempts = attempts};
	ask->attempt = attempts ? *attempts : 0;
	parts->asks = ask;
	return ask;
}

bool parts_ask_answered(struct parts_ask *ask, struct parts **parts, unsigned *which)
{
	struct parts *owner = *parts = ask->parts;
	const bool current = owner && (!ask->attempts || ask->attempt == *ask->attempts);
	*which = ask->which;
	if (owner) {
		struct parts_ask **at = &owner->asks;
		while (*at != ask)
			at = &(*at)->next;
		*at = ask->next;
	}
	free(ask);
	return current;
}

// ---- failing, and limits of time ----

static void told_failed(void *arg)
{
	struct parts *parts = arg;
	const struct error fault = parts->fault; // the callee destroys parts
	parts->doubtful = false;
	instance_parts_failed(parts->instance, &fault, parts->faulty);
}

// Report the failure later, from the loop, because the callee destroys the parts.
static void parts_fail(struct parts *parts, int part, const struct error *fault)
{
	const bool ended = part < 0 || !parts->part[part].worker;
	if (parts->failed && (!parts->doubtful || !ended))
		return;
	const int64_t doubt_ms = silence_doubt_ms(parts->proven, parts->step == PARTS_CONNECTING, parts->count, ended);
	parts->doubtful = doubt_ms > 0;
	parts->failed = true;
	parts->faulty = part;
	parts->fault = *fault;
	net_timer_stop(parts->loop, &parts->limit);
	net_timer_stop(parts->loop, &parts->keep_limit);
	net_timer_start(parts->loop, &parts->tell, parts->doubtful ? longer_last_wait_ms(doubt_ms) : 0, told_failed,
			parts);
}

// The same, with the failed step before the message.
void parts_fail_at(struct parts *parts, unsigned part, const char *what, const struct error *error)
{
	struct error fault = {0};
	char name[GATHER_NAME_BYTES];
	const struct part *at = &parts->part[part];
	const struct instance_stage *first = &parts->instance->stages[at->first_stage],
				    *last = first + at->stage_count - 1;
	if (parts->count == 1)
		error_set(&fault, error->status, "%s", error->message);
	else
		error_set(&fault, error->status, "part %u of %u (layers %u to %u on %s): %s: %s", part + 1,
			  parts->count, first->first_layer, last->first_layer + last->layer_count - 1,
			  gather_name(parts->instance->all, first->device, name), what, error->message);
	if (error->hint[0])
		error_hint(&fault, "%s", error->hint);
	parts_fail(parts, (int)part, &fault);
}

static void list_steps(const struct parts *parts, enum part_step steps[PLACEMENT_STAGES])
{
	for (unsigned i = 0; i < parts->count; i++)
		steps[i] = parts->part[i].step;
}

static void too_late(void *arg)
{
	struct error fault = {0};
	struct parts *parts = arg;
	enum part_step steps[PLACEMENT_STAGES];
	list_steps(parts, steps);
	const struct silence_seen seen = {.step = parts->step,
					  .parts = steps,
					  .count = parts->count,
					  .unconnected = parts_unconnected(parts),
					  .adopting = parts->adopting};
	const struct silence silence = silence_blame(&seen);
	error_set(&fault, STATUS_TIMEOUT, "it was silent for %lld s", (long long)parts->limit_ms / 1000);
	parts_fail_at(parts, silence.part, silence.what, &fault);
}

void parts_limit(struct parts *parts, int64_t ms)
{
	parts->limit_ms = ms;
	net_timer_start(parts->loop, &parts->limit, ms, too_late, parts);
}

void parts_limit_step(struct parts *parts)
{
	enum part_step steps[PLACEMENT_STAGES];
	list_steps(parts, steps);
	parts_limit(parts, silence_limit_ms(parts->step, steps, parts->count));
}

// ---- loading ----

static void read_memory(struct stage_memory *memory, const struct json *json)
{
	*memory = (struct stage_memory){.weights_bytes = (uint64_t)json_get_integer(json, "weights_bytes", 0),
					.kv_bytes = (uint64_t)json_get_integer(json, "kv_bytes", 0),
					.workspace_bytes = (uint64_t)json_get_integer(json, "workspace_bytes", 0),
					.host_bytes = (uint64_t)json_get_integer(json, "host_bytes", 0)};
}

// The draft model's memory is that of the last stage, too.
static void take_draft(struct instance *instance, struct stage_memory *last, const struct json *json)
{
	struct stage_memory draft;
	read_memory(&draft, json);
	instance->draft_bytes = draft.weights_bytes + draft.kv_bytes + draft.workspace_bytes;
	last->weights_bytes += draft.weights_bytes;
	last->kv_bytes += draft.kv_bytes;
	last->workspace_bytes += draft.workspace_bytes;
}

static void read_row_times(struct part *part, const struct json *told)
{
	const struct json *one = json_first(told);
	for (unsigned i = 0; i < PART_ROW_TIMES; i++) {
		part->row_s[i] = one ? json_number(one, 0) : 0;
		one = one ? json_next(one) : NULL;
	}
}

void parts_take_loaded(struct part *part, const struct json *result)
{
	struct parts *parts = part->parts;
	struct instance *instance = parts->instance;
	const struct json *one = json_first(json_get(result, "memory")), *times = json_first(json_get(result, "times"));
	const char *chat_template = json_get_string(result, "chat_template", NULL);
	for (unsigned i = 0; i < part->stage_count; i++, one = json_next(one)) {
		read_memory(&instance->stages[part->first_stage + i].memory, one);
		instance_take_times(instance, part->first_stage + i, times);
		times = times ? json_next(times) : NULL;
	}
	if (json_get(result, "draft"))
		take_draft(instance, &instance->stages[part->first_stage + part->stage_count - 1].memory,
			   json_get(result, "draft"));
	part->step = PART_LOADED;
	part->spot_owed = true;
	if (part->index + 1 == parts->count)
		instance->held_percent = 0; // a load and an adoption set its worker free, as a check does
	if (part->tab)
		parts_fetch_over(parts);
	part->loaded_bytes = (uint64_t)json_get_integer(result, "loaded_bytes", 0);
	part->load_ms = json_get_number(result, "load_ms", 0);
	part->prompt_row_s = json_get_number(result, "prompt_row_s", 0);
	read_row_times(part, json_get(result, "row_s"));
	if (chat_template) {
		instance->chat = true;
		snprintf(instance->chat_template, sizeof instance->chat_template, "%s", chat_template);
	}
	if (!parts->adopting) // else all have until the same moment
		parts_limit_step(parts);
	parts_advance(parts);
}

static void loaded(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	if (status == STATUS_DEVICE_LOST || parts->failed)
		return; // its end is reported in a moment
	if (!status && json_count(json_get(result, "memory")) != part->stage_count) {
		struct error wrong = {0};
		status = error_set(&wrong, STATUS_INTERNAL, "its worker reported a wrong number of stages");
		parts_fail_at(parts, part->index, "loading", &wrong);
	} else if (status) {
		parts_fail_at(parts, part->index, "loading", error);
	} else {
		parts_take_loaded(part, result);
	}
}

static struct json *part_json(const struct parts *parts, const struct part *part)
{
	const struct instance *instance = parts->instance;
	const struct instance_stage *last = &instance->stages[part->first_stage + part->stage_count - 1];
	struct json *json = json_new_object();
	json_set_string(json, "instance_id", instance->instance_id);
	json_set_integer(json, "epoch", (int64_t)instance->epoch);
	json_set_integer(json, "index", part->index);
	json_set_integer(json, "count", parts->count);
	json_set_integer(json, "lanes", parts->count); // pieces of one prompt are in all parts at once
	json_set_string(json, "activations", "f32");
	json_set_integer(json, "last_layer", last->first_layer + last->layer_count);
	return json;
}

struct json *parts_load_params(const struct parts *parts, const struct part *part)
{
	const struct instance *instance = parts->instance;
	struct json *params = json_new_object(), *stages = json_new_array();
	for (unsigned i = 0; i < part->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[part->first_stage + i];
		struct json *json = json_new_object();
		json_set_string(json, "hardware_key",
				json_get_string(cluster_device_record(stage->device), "hardware_key", ""));
		json_set_integer(json, "first_layer", stage->first_layer);
		json_set_integer(json, "layer_count", stage->layer_count);
		json_set_integer(json, "host_layers", stage->host_layers);
		if (stage->slices) {
			json_set_integer(json, "slices", stage->slices);
			json_set_integer(json, "slice", stage->slice);
		}
		json_push(stages, json);
	}
	json_set(params, "stages", stages);
	json_set_integer(params, "context_tokens", instance->context_tokens);
	json_set_integer(params, "page_count", instance->page_count);
	json_set_integer(params, "batch_rows", placement_rows(&instance->model->shape, instance->context_tokens));
	json_set_integer(params, "sequences", instance->sequences);
	if (instance->held_format != FORMAT_UNKNOWN)
		json_set_string(params, "format", format_info(instance->held_format)->name);
	if (json_get(instance->wanted, "chat_template"))
		json_set(params, "chat_template", json_copy(json_get(instance->wanted, "chat_template")));
	if (parts->count > 1)
		json_set(params, "part", part_json(parts, part));
	if (part_has_draft(part))
		json_set(params, "draft", instance_draft_params(instance));
	return params;
}

void parts_load(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	if (instance_worker_call(part->worker, "instance.load", parts_load_params(parts, part), loaded, part, &error))
		parts_fail_at(parts, part->index, "loading", &error);
	else
		instance_parts_moved(parts->instance);
}

static void worker_ready(void *context)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	if (parts->failed)
		return;
	part->step = PART_LOADING;
	parts_limit_step(parts);
	if (part->tab)
		parts_tab_send(part);
	else
		parts_load(part);
}

// ---- workers ----

static void worker_ended(void *context, const struct error *fault, bool died)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	part->worker = NULL;
	part->died = died;
	parts_fail_at(parts, part->index, "it is lost", fault);
}

static void worker_away_from(void *context, const char *why)
{
	struct error fault = {0};
	struct part *part = context;
	struct parts *parts = part->parts;
	if (parts->failed)
		return;
	if (!parts->proven) {
		error_set(&fault, STATUS_DEVICE_LOST, "%s", why);
		parts_fail_at(parts, part->index, "its node is lost", &fault);
		return;
	}
	parts->step = PARTS_AWAY;
	parts->instance->held_percent = HELD_UNKNOWN; // what it was told last may be lost
	net_timer_stop(parts->loop, &parts->limit);
	net_timer_stop(parts->loop, &parts->tell);
	parts_disconnect(parts);
	instance_parts_away(parts->instance, part->index, why);
}

static void worker_back(void *context)
{
	const struct part *part = context;
	struct parts *parts = part->parts;
	if (parts->failed || parts->step != PARTS_AWAY)
		return;
	for (unsigned i = 0; i < parts->count; i++)
		if (!parts->part[i].worker || instance_worker_is_away(parts->part[i].worker))
			return;
	instance_parts_back(parts->instance);
}

static void told(void *context, const char *method, const struct json *params)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	if (parts->failed || part->step == PART_ADOPTING) // until it has answered, its messages are for the previous
							  // server
		return;
	if (!strcmp(method, "instance.progress") && part->step == PART_LOADING && !part->tab) {
		const uint64_t before = part->loaded_bytes;
		part->loaded_bytes = (uint64_t)json_get_integer(params, "loaded_bytes", 0);
		part->load_bytes = (uint64_t)json_get_integer(params, "total_bytes", 0);
		parts_limit_step(parts);
		if (part->loaded_bytes > before)
			recover_moved(parts->instance);
		instance_parts_moved(parts->instance);
	} else if (part->step != PART_LOADED || part->index + 1 != parts->count ||
		   !instance_parts_notice(parts->instance, method, params)) {
		instance_worker_fail(part->worker, "its worker broke the protocol");
	}
}

struct instance_worker_params parts_worker_params(struct part *part, const struct cluster_device **devices)
{
	const struct parts *parts = part->parts;
	const struct instance *instance = parts->instance;
	const struct model_record *draft = part_has_draft(part) ? instance_draft(instance) : NULL;
	for (unsigned i = 0; i < part->stage_count; i++)
		devices[i] = instance->stages[part->first_stage + i].device;
	return (struct instance_worker_params){.instance_id = instance->instance_id,
					       .model_path = part->local ? instance->model->path : NULL,
					       .model_id = part->local || part->tab ? NULL : instance->model_id,
					       .draft_path = draft && part->local ? draft->path : NULL,
					       .draft_id = draft && !part->local ? draft->model_id : NULL,
					       .ring = parts->count > 1,
					       .devices = devices,
					       .device_count = part->stage_count,
					       .ready = worker_ready,
					       .notice = told,
					       .away = worker_away_from,
					       .back = worker_back,
					       .ended = worker_ended,
					       .context = part};
}

void parts_open_worker(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	const struct instance *instance = parts->instance;
	const struct cluster_device *devices[PLACEMENT_STAGES];
	const struct instance_worker_params params = parts_worker_params(part, devices);
	part->step = PART_STARTING;
	parts_limit_step(parts);
	if (instance_worker_create(&part->worker, instance->all->params.tenants, &params, &error))
		parts_fail_at(parts, part->index, "no worker", &error);
}

// ---- all of them ----

enum status parts_make_key(char key[PARTS_KEY_BYTES])
{
	unsigned char bytes[(PARTS_KEY_BYTES - 1) / 2];
	if (RAND_bytes(bytes, sizeof bytes) != 1)
		return STATUS_UNAVAILABLE;
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(key + 2 * i, 3, "%02x", bytes[i]);
	OPENSSL_cleanse(bytes, sizeof bytes);
	return STATUS_OK;
}

static void told_ready(void *arg)
{
	struct parts *parts = arg;
	instance_parts_ready(parts->instance);
}

void parts_set_ready(struct parts *parts)
{
	parts->step = PARTS_READY;
	if (!parts->proven && parts->kept) // not everything was loaded, so the time does not count as that of a whole
					   // load
		parts->load_ms = parts->instance->load_ms;
	else if (!parts->proven) // of one, as its worker says; of several, from the beginning until all were connected
		parts->load_ms = parts->count == 1 ? parts->part[0].load_ms
						   : (double)(instances_now(parts->instance->all) -
							      parts->instance->began_loading_ms);
	parts->proven = true;
	for (unsigned i = 0; i < parts->count; i++)
		parts_spot_begin(&parts->part[i]);
	net_timer_stop(parts->loop, &parts->limit);
	net_timer_start(parts->loop, &parts->tell, 0, told_ready, parts);
}

void parts_advance(struct parts *parts)
{
	for (unsigned i = 0; i < parts->count; i++)
		if (parts->part[i].step != PART_LOADED)
			return;
	parts->adopting = false;
	if (parts->count == 1)
		parts_set_ready(parts);
	else
		parts_connect(parts);
}

static const char *backend_of(const struct instance_stage *stage)
{
	return json_get_string(cluster_device_record(stage->device), "backend", "");
}

void parts_divide(struct parts *parts)
{
	struct part *part = NULL;
	const struct instance *instance = parts->instance;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		const char *node_id = cluster_device_node_id(stage->device);
		if (part && !strcmp(part->node_id, node_id) && !strcmp(backend_of(stage), backend_of(stage - 1))) {
			part->stage_count++;
			continue;
		}
		part = &parts->part[parts->count];
		*part = (struct part){
			.parts = parts, .index = parts->count++, .first_stage = i, .stage_count = 1, .was_stage = -1};
		snprintf(part->node_id, sizeof part->node_id, "%s", node_id);
		cluster_has_node(instance->all->params.cluster, node_id, &part->local);
		part->tab = cluster_is_tab(instance->all->params.cluster, node_id);
	}
}

enum { VERSION_BYTES = 64 };

static void version_of(const struct part *part, char version[VERSION_BYTES])
{
	struct json *node = cluster_describe_node(part->parts->instance->all->params.cluster, part->node_id);
	snprintf(version, VERSION_BYTES, "%s", json_get_string(node, "version", ""));
	json_destroy(&node);
}

// Parts of different versions do not start. The one to blame is of another version than this server. Browsers have the
// program from the server.
static void compare_versions(struct parts *parts)
{
	char versions[2][VERSION_BYTES];
	struct error fault = {0};
	const struct part *first = NULL;
	for (unsigned i = 0; i < parts->count; i++) {
		const struct part *part = &parts->part[i];
		if (part->tab)
			continue;
		version_of(part, versions[first != NULL]);
		if (!versions[first != NULL][0]) // its node has gone
			continue;
		if (first && strcmp(versions[0], versions[1]) != 0) {
			const bool swap = !strcmp(versions[1], EXOGPU_VERSION);
			error_set(&fault, STATUS_CONFLICT, "its node has version %s, and that of part %u has %s",
				  versions[!swap], (swap ? i : first->index) + 1, versions[swap]);
			error_hint(&fault, "run the same version on all nodes");
			parts_fail_at(parts, swap ? first->index : i, "it cannot take part", &fault);
			return;
		}
		first = first ? first : part;
	}
}

enum status parts_create(struct parts **out, struct instance *instance, struct parts **before, struct error *error)
{
	struct parts *parts = calloc(1, sizeof(*parts));
	bool elsewhere = false;
	enum status status = STATUS_OK;
	*out = NULL;
	if (parts) {
		parts->instance = instance;
		parts->loop = instance->all->params.loop;
		parts_divide(parts);
	}
	if (parts && before && *before)
		parts_take_kept(parts, *before);
	if (before)
		parts_destroy(before, "the instance is placed again");
	if (!parts)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	compare_versions(parts);
	if (parts->failed) { // which is reported later
		*out = parts;
		return STATUS_OK;
	}
	for (unsigned i = 0; i < parts->count; i++)
		elsewhere |= !parts->part[i].local && !parts->part[i].worker;
	if (elsewhere)
		status = parts_plan(parts, error);
	for (unsigned i = 0; i < parts->count && !status; i++) // failures of these are reported later
		if (parts->part[i].local && !parts->part[i].worker)
			parts_open_worker(&parts->part[i]);
	if (!status)
		parts_adopt_kept(parts);
	if (status) {
		parts_destroy(&parts, "it could not be started");
		return status;
	}
	*out = parts;
	return STATUS_OK;
}

static void parts_free(struct parts *parts)
{
	parts_disconnect(parts);
	for (unsigned i = 0; i < parts->count; i++)
		parts_tab_stop(&parts->part[i]);
	shards_close(&parts->file);
	shards_close(&parts->draft_file);
	net_timer_stop(parts->loop, &parts->limit);
	net_timer_stop(parts->loop, &parts->tell);
	net_timer_stop(parts->loop, &parts->keep_limit);
	for (unsigned i = 0; i < parts->count; i++)
		free(parts->part[i].loaded);
	for (struct parts_ask *ask = parts->asks, *next; ask; ask = next) {
		next = ask->next;
		ask->parts = NULL; // frees itself when it is answered
		ask->next = NULL;
	}
	free(parts);
}

void parts_destroy(struct parts **pointer, const char *why)
{
	struct parts *parts = *pointer;
	if (!parts)
		return;
	*pointer = NULL;
	parts->failed = true; // nothing more is reported
	for (unsigned i = 0; i < parts->count; i++)
		instance_worker_destroy(&parts->part[i].worker, why);
	parts_free(parts);
}

void parts_leave(struct parts **pointer)
{
	struct parts *parts = *pointer;
	*pointer = NULL;
	parts->failed = true;
	for (unsigned i = 0; i < parts->count; i++)
		instance_worker_leave(&parts->part[i].worker);
	parts_free(parts);
}

struct instance_worker *parts_generator(const struct parts *parts)
{
	return parts ? parts->part[parts->count - 1].worker : NULL;
}

unsigned parts_count(const struct parts *parts)
{
	return parts ? parts->count : 0;
}

const struct instance_stage *parts_stage(const struct parts *parts, unsigned part)
{
	return parts ? &parts->instance->stages[parts->part[part].first_stage] : NULL;
}

bool parts_has(const struct parts *parts, unsigned stage)
{
	for (unsigned i = 0; parts && i < parts->count; i++) {
		const struct part *part = &parts->part[i];
		if (stage - part->first_stage < part->stage_count && stage >= part->first_stage)
			return part->worker && !instance_worker_is_away(part->worker);
	}
	return false;
}

bool parts_has_worker(const struct parts *parts, unsigned part)
{
	return parts && parts->part[part].worker;
}

bool parts_worker_died(const struct parts *parts, unsigned part)
{
	return parts && !parts->part[part].worker && parts->part[part].died;
}

double parts_load_ms(const struct parts *parts)
{
	return parts->load_ms;
}

const char *parts_node_id(const struct parts *parts, unsigned part)
{
	return parts->part[part].node_id;
}

// By this placement, an earlier one, or for a server before this one.
static bool has_loaded(const struct part *part)
{
	return part->step >= PART_ADOPTING;
}

static uint64_t weights_of(const struct instance_stage *stage)
{
	return stage->memory.weights_bytes + stage->memory.host_bytes;
}

void parts_progress(const struct parts *parts, unsigned which, uint64_t *done_bytes, uint64_t *total_bytes)
{
	const struct part *part = &parts->part[which];
	uint64_t expected = part->load_bytes;
	for (unsigned i = 0; i < part->stage_count && !part->load_bytes; i++)
		expected += weights_of(&parts->instance->stages[part->first_stage + i]);
	*done_bytes = part->fetched_bytes + (has_loaded(part) ? expected : part->loaded_bytes);
	*total_bytes = part->fetch_bytes + expected;
}

bool parts_stage_progress(const struct parts *parts, unsigned which, unsigned stage, uint64_t *done_bytes,
			  uint64_t *total_bytes)
{
	const struct part *part = &parts->part[which];
	const struct instance_stage *stages = parts->instance->stages, *own = &stages[stage];
	const unsigned end = part->first_stage + part->stage_count;
	double all = 0, before = 0, together = 0;
	if (stage < part->first_stage || stage >= end)
		return false;
	for (unsigned i = part->first_stage; i < end; i++) {
		const unsigned first = i - stages[i].slice, own_first = stage - own->slice;
		all += (double)weights_of(&stages[i]);
		before += first < own_first ? (double)weights_of(&stages[i]) : 0;
		together += first == own_first ? (double)weights_of(&stages[i]) : 0;
	}
	const double scale = part->load_bytes && all > 0 ? (double)part->load_bytes / all : 1,
		     loaded = (double)part->loaded_bytes / scale - before,
		     share = has_loaded(part) || loaded >= together ? 1
			     : loaded > 0                           ? loaded / together
								    : 0,
		     own_bytes = (double)weights_of(own), of_all = all > 0 ? own_bytes / all : 0;
	*total_bytes = (uint64_t)(own_bytes * scale + of_all * (double)part->fetch_bytes);
	*done_bytes = (uint64_t)(own_bytes * scale * share + of_all * (double)part->fetched_bytes);
	return true;
}
