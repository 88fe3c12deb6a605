/* Instances whose workers outlive the server: what is stored of them, and how the next server adopts them.
 *
 *   running, all parts on other machines -> stored with the instance's row, once it is ready: stages as they are held,
 *                                           and of each worker its id and the SHA-256 of its key
 *     the server ends, or is killed      -> nodes keep the workers for LIMIT_AWAY_MS (engine/node/workers/tenants.h)
 *     the server is started              -> the instance is like one whose nodes are cut off (parts_restore)
 *     a node registers, with its workers -> the workers named here are connected, adopted, checked; no layer is loaded
 *
 * A new placement removes the workers from the row before it requests others. The stored data is accepted if it fits
 * the model and the devices, and a node's workers are accepted if they fit the stored data. Parts on the server's own
 * machine end with the server, and an instance with such a part is loaded again. Thread: the loop's. */
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_bytes = (int64_t)1 << 53;

// ---- storing ----

static struct json *stage_json(const struct instance_stage *stage)
{
	struct json *json = instance_stage_json(cluster_device_id(stage->device), stage);
	json_set_string(json, "host_device_id", stage->host ? cluster_device_id(stage->host) : "");
	json_set_integer(json, "slices", stage->slices);
	json_set_integer(json, "slice", stage->slice);
	return json;
}

static struct json *worker_json(const struct parts *parts, unsigned part)
{
	struct instance_worker_left left;
	char digest[2 * TENANT_SHA256_BYTES + 1];
	struct json *json = json_new_object();
	parts_describe(parts, part, &left);
	for (size_t i = 0; i < TENANT_SHA256_BYTES; i++)
		snprintf(digest + 2 * i, 3, "%02x", left.key_sha256[i]);
	json_set_string(json, "worker_id", left.worker_id);
	json_set_string(json, "key_sha256", digest);
	return json;
}

struct json *instance_left_json(const struct instance *instance)
{
	if (instance->state != INSTANCE_RUNNING || !parts_outlive(instance->parts))
		return NULL;
	struct json *json = json_new_object(), *stages = json_new_array(), *workers = json_new_array();
	for (unsigned i = 0; i < instance->stage_count; i++)
		json_push(stages, stage_json(&instance->stages[i]));
	for (unsigned i = 0; i < parts_count(instance->parts); i++)
		json_push(workers, worker_json(instance->parts, i));
	json_set(json, "stages", stages);
	json_set(json, "workers", workers);
	if (instance->held_format != FORMAT_UNKNOWN)
		json_set_string(json, "held_format", format_info(instance->held_format)->name);
	json_set_integer(json, "step", instance->step);
	json_set_integer(json, "page_count", instance->page_count);
	json_set_number(json, "load_ms", instance->load_ms);
	json_set_number(json, "predicted_s", instance->predicted_s);
	json_set_number(json, "predicted_rate", instance->predicted_rate);
	json_set_number(json, "way_s", instance->way_s);
	json_set(json, "hops", instance->hops ? json_copy(instance->hops) : json_new_array());
	return json;
}

// ---- and read again ----

static bool read_count(const struct json *json, const char *name, int64_t most, uint64_t *out)
{
	const int64_t value = json_get_integer(json, name, -1);
	*out = value < 0 ? 0 : (uint64_t)value;
	return value >= 0 && value <= most;
}

static bool read_u32(const struct json *json, const char *name, uint32_t *out)
{
	uint64_t value;
	const bool good = read_count(json, name, UINT32_MAX, &value);
	*out = (uint32_t)value;
	return good;
}

static bool read_stage(const struct cluster *cluster, const struct json *json, struct instance_stage *stage)
{
	const char *host_id = json_get_string(json, "host_device_id", "");
	*stage = (struct instance_stage){.device = cluster_find_device(cluster, json_get_string(json, "device_id", "")),
					 .host = host_id[0] ? cluster_find_device(cluster, host_id) : NULL,
					 .embeds = json_get_bool(json, "embeds", false),
					 .predicts = json_get_bool(json, "predicts", false),
					 .seconds_per_token = json_get_number(json, "seconds_per_token", -1)};
	struct stage_memory *memory = &stage->memory;
	return stage->device && (stage->host || !host_id[0]) && read_u32(json, "first_layer", &stage->first_layer) &&
	       read_u32(json, "layer_count", &stage->layer_count) &&
	       read_u32(json, "host_layers", &stage->host_layers) && read_u32(json, "slices", &stage->slices) &&
	       read_u32(json, "slice", &stage->slice) &&
	       read_count(json, "weights_bytes", most_bytes, &memory->weights_bytes) &&
	       read_count(json, "kv_bytes", most_bytes, &memory->kv_bytes) &&
	       read_count(json, "workspace_bytes", most_bytes, &memory->workspace_bytes) &&
	       read_count(json, "host_bytes", most_bytes, &memory->host_bytes);
}

static bool is_whole(const struct instance_stage *stage) // or its last slice
{
	return !stage->slices || stage->slice + 1 == stage->slices;
}

// Whether a stage follows the one before it, by which `at` layers are there.
static bool follows(const struct instance_stage *stage, const struct instance_stage *before, uint32_t at)
{
	if (!stage->slice)
		return stage->first_layer == at && (!before || is_whole(before));
	return before && stage->slice < stage->slices && before->slices == stage->slices &&
	       before->slice + 1 == stage->slice && before->first_layer == stage->first_layer &&
	       before->layer_count == stage->layer_count;
}

// All layers, in order. What is read stays in instance->stages.
static bool read_stages(struct instance *instance, const struct json *list)
{
	const uint32_t layers = instance->model->shape.layers;
	const struct instance_stage *before = NULL;
	uint32_t at = 0;
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		struct instance_stage *stage = &instance->stages[instance->stage_count];
		if (instance->stage_count == PLACEMENT_STAGES ||
		    !read_stage(instance->all->params.cluster, one, stage) || !follows(stage, before, at) ||
		    stage->first_layer > layers || stage->layer_count > layers - stage->first_layer)
			return false;
		at = stage->first_layer + stage->layer_count;
		before = stage;
		instance->stage_count++;
	}
	return before && at == layers && is_whole(before);
}

static bool read_digest(const char *text, uint8_t digest[TENANT_SHA256_BYTES])
{
	unsigned byte;
	if (strlen(text) != 2 * TENANT_SHA256_BYTES || strspn(text, "0123456789abcdef") != 2 * TENANT_SHA256_BYTES)
		return false;
	for (size_t i = 0; i < TENANT_SHA256_BYTES; i++) {
		sscanf(text + 2 * i, "%2x", &byte);
		digest[i] = (uint8_t)byte;
	}
	return true;
}

// How many workers the list has; 0: it is malformed.
static unsigned read_workers(const struct instance *instance, const struct json *list,
			     struct instance_worker_left left[PLACEMENT_STAGES])
{
	unsigned count = 0;
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		if (count == PLACEMENT_STAGES ||
		    !read_digest(json_get_string(one, "key_sha256", ""), left[count].key_sha256))
			return 0;
		left[count].worker_id = json_get_string(one, "worker_id", "");
		left[count++].epoch = instance->epoch;
	}
	return count;
}

static bool read_figures(struct instance *instance, const struct json *left)
{
	uint64_t step;
	const char *format = json_get_string(left, "held_format", "");
	instance->held_format = format_parse(format);
	instance->load_ms = json_get_number(left, "load_ms", -1);
	instance->predicted_s = json_get_number(left, "predicted_s", 0);
	instance->predicted_rate = json_get_number(left, "predicted_rate", 0);
	instance->way_s = json_get_number(left, "way_s", 0);
	if (!read_count(left, "step", STEP_CPU, &step) || (format[0] && instance->held_format == FORMAT_UNKNOWN) ||
	    !read_u32(left, "page_count", &instance->page_count))
		return false;
	instance->step = (enum placement_step)step;
	json_destroy(&instance->hops);
	instance->hops = json_copy(json_get(left, "hops"));
	return true;
}

bool instance_find_left(struct instance *instance)
{
	struct error error = {0};
	struct instance_worker_left workers[PLACEMENT_STAGES];
	const struct json *left = instance->left;
	if (!left)
		return false;
	const unsigned count = read_workers(instance, json_get(left, "workers"), workers);
	enum status status = STATUS_OK;
	if (!count || !read_stages(instance, json_get(left, "stages")) || !read_figures(instance, left))
		status = error_set(&error, STATUS_PARSE_ERROR,
				   "their stored record fits neither the model nor the devices");
	if (!status)
		status = instance_hold(instance, true);
	if (!status)
		status = parts_restore(&instance->parts, instance, workers, count, &error);
	if (!status)
		return true;
	instance_hold(instance, false);
	instance->stage_count = 0;
	instance->load_ms = -1;
	log_warning("models", "the workers of instance %s cannot be adopted: %s", instance->instance_id,
		    error.message[0] ? error.message : status_text(status));
	return false;
}
