/* Parts that outlive a server, or a placement, and their adoption by the next one. See parts.h.
 *
 * Until all are back they are like parts whose nodes are cut off. Then each worker gets instance.adopt with this
 * server's epoch, which is greater than any before: requests in progress end there, and messages of its ring from
 * earlier epochs are dropped. It answers with its loaded layers, which must equal the stored ones. If a node is cut off
 * meanwhile, or another stream replaces a worker's, all workers are asked again; if one does not answer in time the
 * instance is loaded again. Parts that a placement keeps (parts_keep.c) are adopted in the same way, while others
 * load. */
#include "server/instances/parts/parts_inside.h"

#include <stdlib.h>
#include <string.h>

enum status parts_restore(struct parts **out, struct instance *instance, const struct instance_worker_left *left,
			  unsigned count, struct error *error)
{
	struct parts *parts = calloc(1, sizeof *parts);
	const struct cluster_device *devices[PLACEMENT_STAGES];
	enum status status = STATUS_OK;
	*out = NULL;
	if (!parts)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*parts = (struct parts){.instance = instance,
				.loop = instance->all->params.loop,
				.step = PARTS_AWAY,
				.proven = true,
				.adopting = true,
				.load_ms = instance->load_ms};
	parts_divide(parts);
	if (parts->count != count)
		status = error_set(error, STATUS_CONFLICT, "%u workers were stored of %u parts", count, parts->count);
	for (unsigned i = 0; i < parts->count && !status; i++) {
		struct part *part = &parts->part[i];
		const struct instance_worker_params params = parts_worker_params(part, devices);
		part->step = PART_ADOPTING;
		status = part->local ? error_set(error, STATUS_CONFLICT, "part %u is on this machine", i + 1)
				     : instance_worker_restore(&part->worker, instance->all->params.tenants, &params,
							       &left[i], error);
	}
	if (status)
		parts_destroy(&parts, "it is not adopted");
	*out = parts;
	return status;
}

bool parts_outlive(const struct parts *parts)
{
	if (!parts || !parts->proven || parts->failed)
		return false;
	for (unsigned i = 0; i < parts->count; i++)
		if (parts->part[i].local || parts->part[i].tab || !parts->part[i].worker)
			return false;
	return true;
}

void parts_describe(const struct parts *parts, unsigned part, struct instance_worker_left *left)
{
	instance_worker_describe(parts->part[part].worker, left);
}

// The failed step of parts that had loaded before.
static const char *what_failed(const struct parts *parts)
{
	return parts->adopting ? "it cannot be adopted" : "what it has loaded cannot be kept";
}

static bool same_memory(const struct part *part, const struct json *result)
{
	const struct json *list = json_get(result, "memory"), *one = json_first(list);
	bool same = json_count(list) == part->stage_count;
	for (unsigned i = 0; same && i < part->stage_count; i++, one = json_next(one)) {
		const struct stage_memory *memory = &part->parts->instance->stages[part->first_stage + i].memory;
		same = (uint64_t)json_get_integer(one, "weights_bytes", 0) == memory->weights_bytes &&
		       (uint64_t)json_get_integer(one, "kv_bytes", 0) == memory->kv_bytes &&
		       (uint64_t)json_get_integer(one, "workspace_bytes", 0) == memory->workspace_bytes &&
		       (uint64_t)json_get_integer(one, "host_bytes", 0) == memory->host_bytes;
	}
	return same;
}

static void adopted(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	struct error fault = error ? *error : (struct error){0};
	if (!parts_ask_answered(context, &parts, &which) || parts->failed)
		return;
	struct part *part = &parts->part[which];
	if (status == STATUS_DEVICE_LOST || parts->step != PARTS_LOADING || part->step != PART_ADOPTING)
		return; // it ends, or one is away once more: then all are asked again
	if (!status && !same_memory(part, result))
		status = error_set(&fault, STATUS_CONFLICT,
				   "its worker has loaded something else than its stored record says");
	if (status)
		parts_fail_at(parts, part->index, what_failed(parts), &fault);
	else
		parts_take_loaded(part, result);
}

static int64_t answer_ms(const struct instance *instance)
{
	const int64_t paused_ms = instances_now(instance->all) - instance->recovery.paused_ms;
	return silence_adopt_limit_ms(instance->all->params.pause_ms - paused_ms, instance->load_ms);
}

static struct json *adopt_params(const struct part *part)
{
	struct json *params = json_new_object();
	json_set_integer(params, "epoch", (int64_t)part->parts->instance->epoch);
	if (part->moved_up) {
		struct json *told = json_new_object();
		json_set_integer(told, "index", part->index);
		json_set_integer(told, "count", part->parts->count);
		json_set_integer(told, "lanes", part->parts->count); // as parts_load_params has them
		json_set(params, "part", told);
	}
	return params;
}

// Ask all parts that have loaded.
static void ask_all(struct parts *parts)
{
	struct error error = {0};
	for (unsigned i = 0; i < parts->count && !parts->failed; i++) {
		struct part *part = &parts->part[i];
		if (part->step != PART_ADOPTING)
			continue;
		part->adoptions++; // an answer to the previous call is ignored
		struct parts_ask *ask = parts_ask_create(parts, i, &part->adoptions);
		if (!ask) {
			error_set(&error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
			parts_fail_at(parts, i, what_failed(parts), &error);
			return;
		}
		if (instance_worker_call(part->worker, "instance.adopt", adopt_params(part), adopted, ask, &error)) {
			parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
			parts_fail_at(parts, i, what_failed(parts), &error);
		}
	}
}

void parts_adopt(struct parts *parts)
{
	parts->step = PARTS_LOADING;
	parts_limit(parts, answer_ms(parts->instance));
	for (unsigned i = 0; i < parts->count; i++) // before any is asked, or the first answers would seem to be all
		parts->part[i].step = PART_ADOPTING;
	ask_all(parts);
}

// The parts that load keep extending parts->limit.
static void keeps_silent(void *arg)
{
	struct error error = {0};
	struct parts *parts = arg;
	unsigned part = 0;
	while (part < parts->count && parts->part[part].step != PART_ADOPTING)
		part++;
	error_set(&error, STATUS_TIMEOUT, "it does not answer");
	if (part < parts->count)
		parts_fail_at(parts, part, what_failed(parts), &error);
}

void parts_adopt_kept(struct parts *parts)
{
	if (!parts->kept)
		return;
	net_timer_start(parts->loop, &parts->keep_limit, answer_ms(parts->instance), keeps_silent, parts);
	ask_all(parts);
}
