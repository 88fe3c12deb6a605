/* The bytes of the model that parts on other machines need: which they are, and their nodes get them. See parts.h. */
#include "common/base/log.h"
#include "server/instances/parts/parts_inside.h"

#include <openssl/crypto.h>
#include <string.h>

// Bytes that the node had already are loaded, not downloaded: they count once.
static void take_fetched(struct part *part, uint64_t fetched, uint64_t reused)
{
	fetched = fetched < part->needs_bytes ? fetched : part->needs_bytes; // whatever a node says
	reused = reused < fetched ? reused : fetched;
	part->fetch_bytes = part->needs_bytes - reused;
	part->fetched_bytes = fetched - reused;
}

static uint64_t at_hand(const struct part *part)
{
	return part->needs_bytes - part->fetch_bytes + part->fetched_bytes;
}

void parts_fetch_over(struct parts *parts)
{
	for (unsigned i = 0; i < parts->count; i++) {
		const struct part *part = &parts->part[i];
		if (part->step <= PART_FETCHING || (part->tab && part->step < PART_ADOPTING))
			return;
	}
	shards_close(&parts->file);
}

// Other nodes may ask this node for these bytes from now on, and no longer ask nodes that sent wrong ones.
static void note_holders(const struct part *part, const struct json *result)
{
	const struct instance *instance = part->parts->instance;
	struct holders *holders = shards_holders(instance->all->shards);
	const struct json *wrong = json_first(json_get(result, "wrong_peers"));
	for (; wrong; wrong = json_next(wrong)) {
		log_warning("models", "node %.64s gave node %s wrong bytes of %s: they were fetched from the server",
			    json_string(wrong, ""), part->node_id, instance->model_name);
		holders_remove(holders, instance->model_id, json_string(wrong, ""));
	}
	holders_add(holders, instance->model_id, part->node_id, shards_ranges_json(part->parts->file, part->index));
}

static void fetched(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed)
		return;
	struct part *part = &parts->part[which];
	if (status) {
		parts_fail_at(parts, which, "its node could not fetch its part of the model", error);
		return;
	}
	log_info("models", "instance %s: node %s has %llu bytes of %s, %lld of them from before, %lld from other nodes",
		 parts->instance->instance_id, part->node_id, (unsigned long long)part->needs_bytes,
		 parts->instance->model_name, (long long)json_get_integer(result, "reused_bytes", 0),
		 (long long)json_get_integer(result, "peer_bytes", 0));
	note_holders(part, result);
	take_fetched(part, part->needs_bytes, (uint64_t)json_get_integer(result, "reused_bytes", 0));
	if (part_has_draft(part))
		parts_fetch_draft(part);
	else
		parts_open_worker(part);
	parts_fetch_over(parts);
}

static void fetch(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	const struct instance *instance = parts->instance;
	char key[PARTS_KEY_BYTES];
	struct parts_ask *ask = parts_ask_create(parts, part->index, NULL);
	part->needs_bytes = part->fetch_bytes = shards_part_bytes(parts->file, part->index);
	part->step = PART_FETCHING;
	enum status status = ask ? parts_make_key(key) : STATUS_OUT_OF_MEMORY;
	if (!status)
		status = shards_allow(parts->file, part->node_id, key);
	if (!status) {
		struct json *params = json_new_object();
		json_set_string(params, "model_id", instance->model_id);
		json_set_string(params, "key", key);
		json_set_integer(params, "bytes", (int64_t)shards_file_bytes(parts->file));
		struct json *ranges = shards_ranges_json(parts->file, part->index),
			    *peers = holders_json(shards_holders(instance->all->shards), instance->model_id,
						  part->node_id, ranges);
		if (peers)
			json_set(params, "peers", peers);
		json_set(params, "ranges", ranges);
		status = cluster_ask(instance->all->params.cluster, part->node_id, "model.fetch", params, fetched, ask);
	}
	OPENSSL_cleanse(key, sizeof key);
	if (!status) {
		parts_limit_step(parts);
		instance_parts_moved(parts->instance);
		return;
	}
	if (ask)
		parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	error_set(&error, status, "its node cannot be asked now");
	parts_fail_at(parts, part->index, "fetching", &error);
}

static void planned(void *context, const struct error *error)
{
	struct parts *parts = context;
	for (unsigned i = 0; i < parts->count && !parts->failed; i++) {
		struct part *part = &parts->part[i];
		if (error && !part->local)
			parts_fail_at(parts, i, "what it needs of the model", error);
		else if (part->step == PART_PLANNED && part->tab)
			parts_open_worker(part);
		else if (part->step == PART_PLANNED)
			fetch(part);
	}
}

enum status parts_plan(struct parts *parts, struct error *error)
{
	struct shards_part needs[PLACEMENT_STAGES];
	const struct instance *instance = parts->instance;
	for (unsigned i = 0; i < parts->count; i++) {
		const struct part *part = &parts->part[i];
		const struct instance_stage *first = &instance->stages[part->first_stage],
					    *last = first + part->stage_count - 1;
		needs[i] = (struct shards_part){.first_layer = first->first_layer,
						.layer_count = last->first_layer + last->layer_count -
							       first->first_layer,
						.embeds = first->embeds,
						.predicts = last->predicts,
						.browser = part->tab && !part->worker};
	}
	const struct shards_open_params params = {.model_id = instance->model_id,
						  .path = instance->model->path,
						  .parts = needs,
						  .part_count = parts->count,
						  .done = planned,
						  .context = parts};
	return shards_open(&parts->file, instance->all->shards, &params, error);
}

bool parts_fetching(struct parts *parts, const char *node_id, const struct json *params)
{
	const uint64_t fetched = (uint64_t)json_get_integer(params, "fetched_bytes", 0),
		       reused = (uint64_t)json_get_integer(params, "reused_bytes", 0),
		       total = (uint64_t)json_get_integer(params, "total_bytes", 0);
	bool mine = false, more = false; // what is told of a draft model is a sign of life
	for (unsigned i = 0; parts && i < parts->count; i++) {
		struct part *part = &parts->part[i];
		if (part->step != PART_FETCHING || strcmp(part->node_id, node_id) != 0)
			continue;
		mine = true;
		if (part->needs_bytes != total || // another of its node, which has one after the other
		    strcmp(parts->instance->model_id, json_get_string(params, "model_id", "")) != 0)
			continue;
		const uint64_t before = at_hand(part);
		take_fetched(part, fetched, reused);
		more |= at_hand(part) > before;
	}
	if (mine && !parts->failed) {
		parts_limit_step(parts);
		if (more)
			recover_moved(parts->instance);
		instance_parts_moved(parts->instance);
	}
	return mine;
}
