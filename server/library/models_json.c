/* See models_inside.h: a record as schema/api.json has it, and its shape as state.db keeps it. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/wire/said.h"
#include "engine/model/architecture.h"
#include "engine/stage.h"
#include "server/library/models_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *model_state_name(enum model_state state)
{
	static const char *const names[] = {
		[MODEL_DOWNLOADING] = "downloading",
		[MODEL_READY] = "ready",
		[MODEL_FAILED] = "failed",
		[MODEL_MISSING] = "missing",
	};
	return names[state];
}

static const char *step_name(enum model_step step)
{
	static const char *const names[] = {
		[STEP_WAITING] = "waiting",     [STEP_FINDING] = "finding",     [STEP_DOWNLOADING] = "downloading",
		[STEP_UPLOADING] = "uploading", [STEP_VERIFYING] = "verifying", [STEP_CONVERTING] = "converting",
	};
	return names[step];
}

static void set_count(struct json *object, const char *name, uint64_t count)
{
	json_set_integer(object, name, count > INT64_MAX ? INT64_MAX : (int64_t)count);
}

// Numbers of the shape and of the sizes, under the names that they have outside.
struct counted {
	const char *name;
	uint32_t *small;
	uint64_t *large;
};
enum { COUNTS = 17, COUNTS_ALWAYS = 13 }; // those of experts were not kept always
enum { KEPT_COUNTS = 11 };                // kept, and not shown

static void list_counts(struct model_record *record, struct counted counts[COUNTS])
{
	struct model_shape *shape = &record->shape;
	struct model_sizes *sizes = &record->sizes;
	const struct counted all[COUNTS] = {
		{.name = "parameters", .large = &sizes->parameters},
		{.name = "layers", .small = &shape->layers},
		{.name = "embedding", .small = &shape->embedding},
		{.name = "feed_forward", .small = &shape->feed_forward},
		{.name = "heads", .small = &shape->heads},
		{.name = "kv_heads", .small = &shape->kv_heads},
		{.name = "head_size", .small = &shape->head_size},
		{.name = "vocabulary", .small = &shape->vocabulary},
		{.name = "context_tokens", .small = &shape->context},
		{.name = "embedding_bytes", .large = &sizes->embedding_bytes},
		{.name = "output_bytes", .large = &sizes->output_bytes},
		{.name = "layer_bytes", .large = &sizes->layer_bytes},
		{.name = "layers_bytes", .large = &sizes->layers_bytes},
		{.name = "experts", .small = &shape->experts},
		{.name = "experts_used", .small = &shape->experts_used},
		{.name = "expert_width", .small = &shape->expert_width},
		{.name = "expert_bytes", .large = &sizes->expert_bytes},
	};
	memcpy(counts, all, sizeof all);
}

static void list_kept(struct model_shape *shape, struct counted counts[KEPT_COUNTS])
{
	struct model_delta *delta = &shape->delta;
	const struct counted all[KEPT_COUNTS] = {
		{.name = "delta_key_heads", .small = &delta->key_heads},
		{.name = "delta_heads", .small = &delta->heads},
		{.name = "delta_key_size", .small = &delta->key_size},
		{.name = "delta_value_size", .small = &delta->value_size},
		{.name = "delta_kernel", .small = &delta->kernel},
		{.name = "dense_layers", .small = &shape->dense_layers},
		{.name = "dense_width", .small = &shape->dense_width},
		{.name = "latent_rank", .small = &shape->latent.rank},
		{.name = "latent_query_rank", .small = &shape->latent.query_rank},
		{.name = "latent_key_size", .small = &shape->latent.key_size},
		{.name = "latent_value_size", .small = &shape->latent.value_size},
	};
	memcpy(counts, all, sizeof all);
}

// Of a model whose file says which layers attend, a letter for each: 'a', or 'c' where there is a convolution.
static void set_turns(struct json *json, const struct model_shape *shape)
{
	char turns[LIMIT_MODEL_LAYERS + 1];
	for (uint32_t i = 0; i < shape->layers; i++)
		turns[i] = shape->layer_kinds[i] & LAYER_DELTA ? 'c' : 'a';
	turns[shape->layers] = 0;
	if (model_delta_is_short(&shape->delta))
		json_set_string(json, "turns", turns);
}

static bool read_turns(const struct json *json, struct model_shape *shape)
{
	const char *turns = json_get_string(json, "turns", "");
	if (!model_delta_is_short(&shape->delta))
		return true;
	if (strlen(turns) != shape->layers || strspn(turns, "ac") != shape->layers)
		return false;
	for (uint32_t i = 0; i < shape->layers; i++)
		shape->layer_kinds[i] = turns[i] == 'c' ? LAYER_DELTA : 0;
	return true;
}

static uint64_t kv_bytes_per_token(const struct model_shape *shape)
{
	const uint32_t layers = shape->layers - model_delta_layers(shape, 0, shape->layers);
	return layers * stage_page_bytes(shape) / STAGE_PAGE_TOKENS;
}

struct json *model_architecture_json(const struct model_record *record)
{
	struct model_record copy = *record;
	struct counted counts[COUNTS];
	struct json *json = json_new_object();
	list_counts(&copy, counts);
	json_set_string(json, "family", model_family_name(record->shape.family));
	json_set_string(json, "task", model_task_name(model_task(&record->shape)));
	json_set_string(json, "pooling", model_pooling_name(record->shape.pooling));
	for (size_t i = 0; i < COUNTS; i++)
		set_count(json, counts[i].name, counts[i].small ? *counts[i].small : *counts[i].large);
	json_set_string(json, "format", format_info(record->sizes.main_format)->name);
	json_set_string(json, "file_format",
			record->file_format[0] ? record->file_format : format_info(record->sizes.main_format)->name);
	set_count(json, "kv_bytes_per_token", kv_bytes_per_token(&record->shape));
	set_count(json, "state_bytes",
		  stage_state_bytes(&record->shape) * model_delta_layers(&record->shape, 0, record->shape.layers));
	json_set_bool(json, "tied", record->shape.tied);
	json_set_string(json, "chat_template", record->chat_template[0] ? record->chat_template : NULL);
	json_set(json, "sampling", sampling_json(&record->sampling));
	return json;
}

struct json *model_kept_json(const struct model_record *record)
{
	struct model_shape shape = record->shape;
	struct counted kept[KEPT_COUNTS];
	struct json *json = model_architecture_json(record), *formats = json_new_object();
	list_kept(&shape, kept);
	for (size_t i = 0; i < KEPT_COUNTS; i++)
		set_count(json, kept[i].name, *kept[i].small);
	for (int format = FORMAT_UNKNOWN + 1; format < FORMAT_COUNT; format++)
		if (record->sizes.format_bytes[format])
			set_count(formats, format_info((enum tensor_format)format)->name,
				  record->sizes.format_bytes[format]);
	json_set(json, "format_bytes", formats);
	set_turns(json, &shape);
	json_set_number(json, "norm_epsilon", (double)record->shape.norm_epsilon);
	json_set_bool(json, "qkv_bias", record->shape.qkv_bias);
	return json;
}

// Numbers of a list; those that are not there are `otherwise`, or, if that is negative, missing.
static bool read_counts(const struct json *json, const struct counted *counts, size_t count, int64_t otherwise)
{
	for (size_t i = 0; i < count; i++) {
		int64_t value = json_get_integer(json, counts[i].name, otherwise);
		if (value < 0 || (counts[i].small && value > UINT32_MAX))
			return false;
		if (counts[i].small)
			*counts[i].small = (uint32_t)value;
		else
			*counts[i].large = (uint64_t)value;
	}
	return true;
}

// Within what model_open takes.
static bool latent_fits(const struct model_shape *shape)
{
	const struct model_latent *latent = &shape->latent;
	return latent->rank <= LIMIT_MODEL_HEAD_SIZE && latent->query_rank <= LIMIT_MODEL_WIDTH &&
	       latent->key_size <= LIMIT_MODEL_HEAD_SIZE && latent->value_size <= LIMIT_MODEL_HEAD_SIZE &&
	       (!latent->rank || (shape->head_size > latent->rank && shape->head_size <= LIMIT_MODEL_LATENT));
}

static bool fits(const struct model_delta *delta)
{
	const bool is_short = model_delta_is_short(delta);
	return delta->key_heads <= LIMIT_MODEL_HEADS && delta->heads <= LIMIT_MODEL_HEADS &&
	       delta->key_size <= LIMIT_MODEL_HEAD_SIZE &&
	       delta->value_size <= (is_short ? LIMIT_MODEL_WIDTH : LIMIT_MODEL_HEAD_SIZE) &&
	       delta->kernel <= MODEL_KERNEL_MOST && (!delta->heads || delta->kernel);
}

static bool read_kept(const struct json *json, struct model_record *record)
{
	struct counted counts[COUNTS], kept[KEPT_COUNTS];
	struct model_shape *shape = &record->shape;
	struct model_sizes *sizes = &record->sizes;
	list_counts(record, counts);
	list_kept(shape, kept);
	if (!read_counts(json, counts, COUNTS_ALWAYS, -1) ||
	    !read_counts(json, counts + COUNTS_ALWAYS, COUNTS - COUNTS_ALWAYS, 0) ||
	    !read_counts(json, kept, KEPT_COUNTS, 0) || !fits(&shape->delta) || !latent_fits(shape) ||
	    shape->dense_layers > LIMIT_MODEL_LAYERS || shape->dense_width > LIMIT_MODEL_WIDTH ||
	    shape->experts > LIMIT_MODEL_EXPERTS || shape->experts_used > shape->experts)
		return false;
	const struct json *formats = json_get(json, "format_bytes");
	for (const struct json *one = json_first(formats); one; one = json_next(one)) {
		int64_t bytes;
		enum tensor_format format = format_parse(json_name(one));
		if (!format || json_integer(one, &bytes) || bytes < 0)
			return false;
		sizes->format_bytes[format] = (uint64_t)bytes;
	}
	shape->family = model_family_parse(json_get_string(json, "family", ""));
	if (!shape->family || shape->layers > LIMIT_MODEL_LAYERS ||
	    architecture_of(shape->family)->recurrent != model_is_recurrent(shape) ||
	    architecture_of(shape->family)->latent != model_is_latent(shape) ||
	    architecture_of(shape->family)->convolves != model_delta_is_short(&shape->delta) ||
	    !read_turns(json, shape))
		return false;
	architecture_shape(architecture_of(shape->family), shape);
	// What is not kept, by what a stage may need at most.
	shape->rope_size = shape->head_size - shape->latent.rank;
	shape->rope_local = architecture_of(shape->family)->local_base > 0;
	sizes->main_format = format_parse(json_get_string(json, "format", ""));
	shape->norm_epsilon = (float)json_get_number(json, "norm_epsilon", 0);
	shape->qkv_bias = json_get_bool(json, "qkv_bias", false);
	shape->tied = json_get_bool(json, "tied", false);
	shape->pooling = model_pooling_parse(json_get_string(json, "pooling", ""));
	snprintf(record->file_format, sizeof record->file_format, "%s", json_get_string(json, "file_format", ""));
	snprintf(record->chat_template, sizeof record->chat_template, "%s", json_get_string(json, "chat_template", ""));
	sampling_read(json_get(json, "sampling"), &record->sampling);
	return sizes->main_format;
}

bool model_kept_parse(const char *text, struct model_record *record)
{
	struct json *json = NULL;
	bool good = !json_parse(&json, text, strlen(text), NULL) && read_kept(json, record);
	json_destroy(&json);
	return good;
}

static struct json *progress_json(const struct model *model)
{
	struct json *json = json_new_object();
	json_set_string(json, "step", step_name(model->step));
	set_count(json, "done_bytes", model->done_bytes);
	if (model->total_bytes)
		set_count(json, "total_bytes", model->total_bytes);
	else
		json_set_null(json, "total_bytes");
	json_set_number(json, "bytes_per_s", model->bytes_per_s < 0 ? (double)NAN : model->bytes_per_s);
	set_count(json, "connections", model->connections);
	set_count(json, "retries", model->retries);
	return json;
}

struct json *models_record_json(const struct models *models, const struct model_record *record)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	const bool known = record->state == MODEL_READY || record->state == MODEL_MISSING;
	(void)models;
	json_set_string(json, "model_id", record->model_id);
	json_set_string(json, "name", record->name);
	json_set_string(json, "source", record->source);
	json_set_string(json, "state", model_state_name(record->state));
	said_set(json, "state_reason", record->state_reason[0] ? record->state_reason : NULL);
	json_set_string(json, "added_at", clock_format(record->added_ms, at));
	if (record->file_bytes)
		set_count(json, "file_bytes", record->file_bytes);
	else
		json_set_null(json, "file_bytes");
	json_set_string(json, "sha256", record->sha256[0] ? record->sha256 : NULL);
	json_set(json, "progress",
		 record->state == MODEL_DOWNLOADING ? progress_json((const struct model *)record) : json_new_null());
	json_set(json, "architecture", known ? model_architecture_json(record) : json_new_null());
	set_count(json, "instances", record->holds);
	return json;
}

// Paths of this machine, URLs, and why what they lead to is no model are an admin's to know.
static bool is_public(const char *source)
{
	struct source parsed;
	return !source_parse(source, &parsed, NULL) && parsed.kind != SOURCE_PATH && parsed.kind != SOURCE_URL;
}

const char *models_why(const struct model_record *record)
{
	const char *reason = record->state_reason;
	if (!reason[0] || record->state == MODEL_MISSING ||
	    is_public(record->source)) // missing: it was there, and is not
		return reason;
	return record->state == MODEL_DOWNLOADING ? "its file is not here yet; an admin can see why"
						  : "its file cannot be used; an admin can see why";
}

struct json *models_masked_json(const struct models *models, const struct model_record *record)
{
	char text[SOURCE_FILE_BYTES + 8];
	const char *source = record->source;
	struct json *model = models_record_json(models, record);
	if (is_public(source))
		return model;
	const size_t length = strcspn(source, "?#");
	size_t begin = length;
	while (begin && source[begin - 1] != '/')
		begin--;
	snprintf(text, sizeof text, "%s:%.*s", strstr(source, "://") ? "url" : "file", (int)(length - begin),
		 source + begin);
	json_set_string(model, "source", text);
	said_set(model, "state_reason", models_why(record)[0] ? models_why(record) : NULL);
	return model;
}

struct json *models_list_json(const struct models *models, bool admin)
{
	const struct model_record *record;
	struct json *list = json_new_array();
	for (size_t i = 0; (record = models_at(models, i)); i++)
		json_push(list, admin ? models_record_json(models, record) : models_masked_json(models, record));
	return list;
}

static struct json *see(void *context, const struct json *data, const char *token_id)
{
	(void)context;
	struct json *seen = json_copy(data), *masked = json_copy(json_get(data, "masked"));
	json_remove(seen, "masked");
	if (token_id && masked)
		json_set(seen, "models", masked);
	else
		json_destroy(&masked);
	return seen;
}

const struct event_view models_view = {.see = see};
