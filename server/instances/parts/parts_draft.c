/* The file of an instance's draft model, for a last part that is on another machine: its node fetches the whole of it
 * behind the part's own bytes, before its worker is started. See parts.h. */
#include "server/instances/parts/parts_inside.h"

#include <openssl/crypto.h>

bool part_has_draft(const struct part *part)
{
	return part->index + 1 == part->parts->count && !part->tab && instance_draft(part->parts->instance);
}

static void fetched(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	(void)result;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed)
		return;
	shards_close(&parts->draft_file);
	if (status)
		parts_fail_at(parts, which, "its node could not fetch the draft model", error);
	else
		parts_open_worker(&parts->part[which]);
	if (!parts->failed)
		parts_fetch_over(parts);
}

// The ranges are known: the node is told of them.
static void planned(void *context, const struct error *error)
{
	struct part *part = context;
	struct parts *parts = part->parts;
	const struct model_record *draft = instance_draft(parts->instance);
	struct error fault = {0};
	char key[PARTS_KEY_BYTES] = "";
	struct parts_ask *ask = NULL;
	enum status status = error ? error->status : STATUS_OK;
	if (parts->failed)
		return;
	if (!status && !draft)
		status = error_set(&fault, STATUS_NOT_FOUND, "it is no longer there");
	if (!status && !(ask = parts_ask_create(parts, part->index, NULL)))
		status = error_set(&fault, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	if (!status)
		status = parts_make_key(key);
	if (!status)
		status = shards_allow(parts->draft_file, part->node_id, key);
	if (!status) {
		struct json *params = json_new_object();
		json_set_string(params, "model_id", draft->model_id);
		json_set_string(params, "key", key);
		json_set_integer(params, "bytes", (int64_t)shards_file_bytes(parts->draft_file));
		json_set(params, "ranges", shards_ranges_json(parts->draft_file, 0));
		status = cluster_ask(parts->instance->all->params.cluster, part->node_id, "model.fetch", params,
				     fetched, ask);
	}
	OPENSSL_cleanse(key, sizeof key);
	parts_limit_step(parts);
	if (!status)
		return;
	if (ask)
		parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	if (!fault.status && !error)
		error_set(&fault, status, "its node cannot be asked now");
	parts_fail_at(parts, part->index, "fetching the draft model", error ? error : &fault);
}

void parts_fetch_draft(struct part *part)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	const struct model_record *draft = instance_draft(parts->instance);
	const struct shards_part whole = {.layer_count = draft->shape.layers, .embeds = true, .predicts = true};
	const struct shards_open_params params = {.model_id = draft->model_id,
						  .path = draft->path,
						  .parts = &whole,
						  .part_count = 1,
						  .done = planned,
						  .context = part};
	parts_limit_step(parts);
	if (shards_open(&parts->draft_file, parts->instance->all->shards, &params, &error))
		parts_fail_at(parts, part->index, "fetching the draft model", &error);
}
