/* Loading a model instance: file, tokenizer, devices, stages, generator. See instance.h.
 *
 * gguf.h and model.h check the file. This file checks that the stages cover all layers, and that there is memory for
 * the requested sizes. Weights of 16 and 32 bits can be held in a smaller format: a matrix is then converted when its
 * stage asks for it (instance_weights.h). Thread: the driver's. */
#include "common/base/clock.h"
#include "engine/model/convert.h"
#include "engine/worker/fault.h"
#include "engine/worker/instance/draft/instance_draft.h"
#include "engine/worker/instance/instance_measure.h"
#include "engine/worker/instance/instance_ring.h"
#include "engine/worker/instance/instance_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PROGRESS_MS = 100,
	OUTPUTS_LEAST = 64, // so that embeddings are computed by more than a row for each sequence
};

// State of the `tensor` and `progress` calls of the stages that are being created.
struct loading {
	struct instance *instance;
	struct weights weights;
	uint64_t before_bytes, total_bytes; // of the stages that are ready; of all
	int64_t told_ns;
	uint64_t loaded_bytes;       // of all
	struct json *times;          // of each stage that is ready
	double prompt_row_s;         // a row of a prompt, through all of them
	double row_times[ROW_TIMES]; // a step of 1, 2, 4, 8 and 16 rows, the same; 0: not known
	bool untimed;                // a stage without times
};

// ---- weights ----

// Check that the file did not become shorter while it was read.
static enum status check_file(const struct instance *instance, struct error *error)
{
	if (!gguf_cut(instance->gguf))
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE,
		  "the model file became shorter while it was loaded, or cannot be read to its end");
	error_hint(error, "if it is still being written, load it again afterwards; else see to its disk");
	return STATUS_UNAVAILABLE;
}

static enum status find_tensor(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			       struct error *error)
{
	struct loading *loading = context;
	if (check_file(loading->instance, error))
		return error->status;
	return weights_find(&loading->weights, loading->instance->model, role, layer, out, error);
}

static enum status tell_progress(void *context, uint64_t loaded_bytes, struct error *error)
{
	struct loading *loading = context;
	int64_t now_ns = clock_steady_ns();
	uint64_t loaded = loading->before_bytes + loaded_bytes;
	if (instance_ending(loading->instance))
		return error_set(error, STATUS_UNAVAILABLE, "the worker ends");
	if (now_ns - loading->told_ns < PROGRESS_MS * 1000000ll)
		return STATUS_OK;
	loading->told_ns = now_ns;
	struct json *params = json_new_object();
	json_set_integer(params, "loaded_bytes",
			 (int64_t)(loaded < loading->total_bytes ? loaded : loading->total_bytes));
	json_set_integer(params, "total_bytes", (int64_t)loading->total_bytes);
	instance_tell(loading->instance, "instance.progress", params);
	return STATUS_OK;
}

// ---- parts ----

// Use the file's own template, or the one that was asked for. If the file's own cannot be read the model only completes
// text, and chats are refused with the reason.
static enum status take_template(struct instance *instance, const struct json *params, struct error *error)
{
	const char *name = json_get_string(params, "chat_template", NULL);
	struct error fault = {0};
	if (!name) {
		chat_template_of_file(instance->gguf, &instance->chat_template, &fault);
		memcpy(instance->template_fault, fault.message, sizeof instance->template_fault);
	} else if (!chat_template_named(name, &instance->chat_template)) {
		return error_set(error, STATUS_INVALID_PARAMS, "there is no chat template %.32s", name);
	}
	return STATUS_OK;
}

// model_open has checked it.
static enum status take_pair_template(struct instance *instance, struct error *error)
{
	struct gguf_text text;
	const struct model_shape *shape = model_shape(instance->model);
	if (shape->pooling != POOLING_RANK || shape->encoder ||
	    !gguf_get_text(instance->gguf, MODEL_PAIR_TEMPLATE, &text))
		return STATUS_OK;
	instance->pair_template = buffer_copy_text(text.bytes, text.length);
	return instance->pair_template ? STATUS_OK
				       : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a reranker's template");
}

static enum status open_file(struct instance *instance, const struct json *params, struct error *error)
{
	enum status status = gguf_open(&instance->gguf, instance->model_fd, error);
	if (!status)
		status = model_open(&instance->model, instance->gguf, error);
	if (!status)
		status = tokenizer_create(&instance->tokenizer, instance->gguf, error);
	if (!status && tokenizer_vocabulary(instance->tokenizer) > model_shape(instance->model)->vocabulary)
		status = error_set(error, STATUS_INVALID_PARAMS, "the tokenizer has %u tokens, the model's matrices %u",
				   tokenizer_vocabulary(instance->tokenizer), model_shape(instance->model)->vocabulary);
	if (!status)
		status = take_template(instance, params, error);
	if (!status)
		status = take_pair_template(instance, error);
	if (!status)
		instance_find_marks(instance);
	return status ? status : check_file(instance, error);
}

// The device with this key; an earlier stage may have opened it.
static enum status open_device(struct instance *instance, const char *key, struct exogpu_device **out,
			       struct error *error)
{
	for (unsigned i = 0; i < instance->device_count; i++)
		if (!strcmp(instance->devices[i].hardware_key, key)) {
			*out = instance->devices[i].device;
			return STATUS_OK;
		}
	struct instance_device *device = &instance->devices[instance->device_count];
	const struct exogpu_open open = {
		.backend = instance->backend, .hardware_key = key, .cache_directory = instance->cache_directory};
	enum status status = exogpu_device_open(&device->device, &open, error);
	fault_escape(backend_kind_parse(instance->backend), instance->cache_directory);
	if (status)
		return status;
	snprintf(device->hardware_key, sizeof(device->hardware_key), "%s", key);
	instance->device_count++;
	*out = device->device;
	return STATUS_OK;
}

static uint32_t count_of(const struct json *params, const char *name)
{
	return (uint32_t)json_get_integer(params, name, 0);
}

// The stages follow each other, over all layers of the model or of the part.
static enum status check_layers(const struct instance *instance, const struct json *stages,
				const struct ring_part *part, struct error *error)
{
	uint32_t layers = model_shape(instance->model)->layers, next = part->first_layer;
	uint32_t end = part->next_layer ? part->next_layer : layers;
	for (const struct json *stage = json_first(stages); stage; stage = json_next(stage)) {
		uint32_t count = count_of(stage, "layer_count");
		if (count_of(stage, "slice")) // as the first slice's
			continue;
		if (count_of(stage, "first_layer") != next || next > layers || count > layers - next)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "stages: layer %u comes next, of %u layers that the model has", next, layers);
		next += count;
	}
	if (next != end)
		return error_set(error, STATUS_INVALID_PARAMS, "stages: they end with layer %u, not %u", next, end);
	return STATUS_OK;
}

// How many items from this one on are a stage: its slices, which stand one behind another, alike in all but the device.
static enum status count_slices(const struct json *first, uint32_t *out, struct error *error)
{
	static const char *const alike[] = {"first_layer", "layer_count", "host_layers", "slices"};
	const uint32_t slices = count_of(first, "slices");
	uint32_t at = 0;
	*out = slices ? slices : 1;
	for (const struct json *one = first; one && at < *out; one = json_next(one), at++) {
		bool fits = count_of(one, "slice") == at;
		for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
			fits = fits && count_of(one, alike[i]) == count_of(first, alike[i]);
		if (!fits)
			break;
	}
	if (at < *out || *out > STAGE_SLICES)
		return error_set(error, STATUS_INVALID_PARAMS, "stages: slice %u of %u does not follow", at, *out);
	return STATUS_OK;
}

// Check the request, and make the parameters of the stages and of the generator.
static enum status take_params(const struct instance *instance, const struct json *params, struct stage_params *out,
			       struct error *error)
{
	const struct model_shape *shape = model_shape(instance->model);
	uint32_t context = count_of(params, "context_tokens"), rows = count_of(params, "batch_rows");
	uint64_t pages = count_of(params, "page_count"), sequences = count_of(params, "sequences");
	if (context > shape->context) {
		error_hint(error, "ask for %u at most", shape->context);
		return error_set(error, STATUS_INVALID_PARAMS, "the model's context is %u tokens, not %u",
				 shape->context, context);
	}
	if (!context || !pages || !sequences || sequences > rows || rows > STAGE_ROWS_MOST)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "a context of %u, %llu pages, %u rows and %llu sequences do not fit each other",
				 context, (unsigned long long)pages, rows, (unsigned long long)sequences);
	if (pages * STAGE_PAGE_TOKENS < context)
		context = (uint32_t)(pages * STAGE_PAGE_TOKENS);
	// An encoder takes all rows of a text in one step, and all of them give an output.
	if (shape->encoder && context > rows)
		context = rows;
	uint32_t outputs = rows < OUTPUTS_LEAST || shape->encoder ? rows : OUTPUTS_LEAST;
	*out = (struct stage_params){.shape = shape,
				     .context_tokens = context,
				     .page_count = (uint32_t)pages,
				     .batch_rows = rows,
				     .batch_sequences = (uint32_t)sequences,
				     .batch_outputs = outputs > sequences ? outputs : (uint32_t)sequences,
				     .rope = instance->rope,
				     .tensor = find_tensor,
				     .progress = tell_progress};
	return STATUS_OK;
}

static enum status make_rope(struct instance *instance, struct stage_params *params, struct error *error)
{
	size_t numbers = model_rope_numbers(params->shape, params->context_tokens);
	params->rope = instance->rope = calloc(numbers ? numbers : 1, sizeof(float));
	if (!instance->rope)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the positions of %u tokens",
				 params->context_tokens);
	model_rope_table(params->shape, params->context_tokens, instance->rope);
	return STATUS_OK;
}

// Add a stage's to what steps of few rows take.
static void add_row_times(struct loading *loading, const struct json *times)
{
	const struct json *batch = json_first(json_get(times, "batch_s"));
	loading->untimed |= !times;
	for (int i = 0; i < ROW_TIMES && !loading->untimed; i++) {
		const double seconds = i ? json_number(batch, 0) : json_get_number(times, "layers_s", 0);
		const bool known = seconds > 0 && (i < 2 || loading->row_times[i - 1] > 0);
		loading->row_times[i] = known ? loading->row_times[i] + seconds : 0;
		batch = i && batch ? json_next(batch) : batch;
	}
	if (loading->untimed)
		memset(loading->row_times, 0, sizeof loading->row_times);
}

// The stage of this item and those behind it.
static enum status make_stage(struct loading *loading, const struct json *first, uint32_t slices,
			      const struct stage_params *params, struct error *error)
{
	struct instance *instance = loading->instance;
	struct exogpu_device *devices[STAGE_SLICES] = {0};
	struct stage **stage = &instance->stages[instance->stage_count];
	struct stage_memory memory;
	struct json *times = NULL;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < slices && !status; i++, first = json_next(first))
		status = open_device(instance, json_get_string(first, "hardware_key", ""), &devices[i], error);
	if (!status)
		status = stage_create_sliced(stage, devices, slices, params, error);
	if (status)
		return status;
	instance->stage_count++;
	stage_memory(*stage, &memory);
	loading->before_bytes += memory.weights_bytes + memory.host_bytes;
	double row_s = 0;
	status = instance_measure(*stage, params, &times, &row_s, error);
	loading->prompt_row_s += row_s;
	add_row_times(loading, times);
	for (uint32_t i = 0; i < slices && !status; i++, times = NULL) // the times of slices are not reported
		json_push(loading->times, times ? times : json_new_null());
	return status;
}

static enum status make_stages(struct loading *loading, const struct json *list, struct stage_params *params,
			       const struct ring_part *part, struct error *error)
{
	enum status status = STATUS_OK;
	uint32_t slices = 1;
	params->context = loading;
	for (const struct json *one = json_first(list), *next = one; one && !status; one = next) {
		status = count_slices(one, &slices, error);
		for (uint32_t i = 0; i < slices && !status; i++)
			next = json_next(next);
		params->first_layer = count_of(one, "first_layer");
		params->layer_count = count_of(one, "layer_count");
		params->host_layers = count_of(one, "host_layers");
		params->embeds = !loading->instance->stage_count && !part->index;
		params->predicts = !next && part->index + 1 >= part->count;
		if (!status)
			status = make_stage(loading, one, slices, params, error);
	}
	loading->loaded_bytes = loading->before_bytes;
	return status ? status : check_file(loading->instance, error);
}

static void push_memory(struct json *list, const struct stage *stage)
{
	for (uint32_t i = 0; i < stage_slice_count(stage); i++) {
		struct stage_memory memory;
		struct json *one = json_new_object();
		stage_slice_memory(stage, i, &memory);
		json_set_integer(one, "weights_bytes", (int64_t)memory.weights_bytes);
		json_set_integer(one, "kv_bytes", (int64_t)memory.kv_bytes);
		json_set_integer(one, "workspace_bytes", (int64_t)memory.workspace_bytes);
		json_set_integer(one, "host_bytes", (int64_t)memory.host_bytes);
		json_push(list, one);
	}
}

static struct json *row_times_json(const struct loading *loading)
{
	struct json *list = json_new_array();
	for (int i = 0; i < ROW_TIMES && loading->row_times[i] > 0; i++)
		json_push(list, json_new_number(loading->row_times[i]));
	return list;
}

static struct json *to_result(const struct instance *instance, struct loading *loading, int64_t began_ns)
{
	struct json *result = json_new_object(), *list = json_new_array();
	const struct model_shape *shape = model_shape(instance->model);
	for (unsigned i = 0; i < instance->stage_count; i++)
		push_memory(list, instance->stages[i]);
	json_set(result, "memory", list);
	json_set(result, "times", loading->times);
	loading->times = NULL;
	json_set_number(result, "prompt_row_s", loading->prompt_row_s);
	json_set(result, "row_s", row_times_json(loading));
	if (instance->draft)
		json_set(result, "draft", instance_draft_memory(instance));
	json_set_number(result, "load_ms", (double)(clock_steady_ns() - began_ns) * 1e-6);
	json_set_integer(result, "loaded_bytes", (int64_t)loading->loaded_bytes);
	json_set_string(result, "chat_template", instance->chat_template.name);
	json_set_integer(result, "vocabulary", shape->vocabulary);
	json_set_integer(result, "embedding", shape->embedding);
	return result;
}

// The bytes that all stages together will report as loaded.
static uint64_t total_bytes(const struct loading *loading, const struct ring_part *part)
{
	const struct model *model = loading->instance->model;
	uint32_t layers = model_shape(model)->layers, end = part->next_layer ? part->next_layer : layers;
	struct model_tensor tensor, held;
	uint64_t bytes = 0;
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++) {
		bool outer = role <= ROLE_OUTPUT, embeds = role < ROLE_OUTPUT_NORM;
		bool here = !outer || (embeds ? !part->index : part->index + 1 >= part->count);
		for (uint32_t layer = outer ? 0 : part->first_layer; here && layer < (outer ? 1 : end); layer++)
			if (model_tensor(model, role, layer, &tensor)) {
				model_tensor_as(&tensor, loading->weights.format, &held);
				bytes += held.bytes;
			}
	}
	return bytes;
}

static enum status make_generator(struct instance *instance, const struct stage_params *stage, uint32_t lanes,
				  struct error *error)
{
	struct generator_params made = {.stages = instance->stages,
					.stage_count = instance->stage_count,
					.shape = stage->shape,
					.context_tokens = stage->context_tokens,
					.page_count = stage->page_count,
					.batch_rows = stage->batch_rows,
					.batch_sequences = stage->batch_sequences,
					.batch_outputs = stage->batch_outputs,
					.drafter = instance_drafter(instance),
					.repeats_alike = backend_kind_parse(instance->backend) == BACKEND_CPU};
	if (instance->ring)
		instance_ring_generator(instance, lanes, &made);
	enum status status = generator_create(&instance->generator, &made, error);
	if (!status && instance->ring)
		generator_halt(instance->generator); // until the first instance.check
	return status;
}

// The draft model, on the device of the last stage.
static enum status load_draft(struct instance *instance, const struct json *params, struct error *error)
{
	struct exogpu_device *device = NULL;
	const struct json *draft = json_get(params, "draft"), *last = NULL;
	if (!draft)
		return STATUS_OK;
	for (const struct json *stage = json_first(json_get(params, "stages")); stage; stage = json_next(stage))
		if (!count_of(stage, "slice")) // of slices the first
			last = stage;
	enum status status = open_device(instance, json_get_string(last, "hardware_key", ""), &device, error);
	return status ? status : instance_draft_load(instance, draft, device, error);
}

enum status instance_load(struct instance *instance, const struct json *params, struct json **result,
			  struct error *error)
{
	const struct json *stages = json_get(params, "stages"), *of_part = json_get(params, "part");
	struct loading loading = {.instance = instance,
				  .weights.format = format_parse(json_get_string(params, "format", ""))};
	struct stage_params stage = {0};
	struct ring_part part = {0};
	uint32_t lanes = count_of(of_part, "lanes");
	int64_t began_ns = clock_steady_ns();
	if (instance->stage_count)
		return error_set(error, STATUS_CONFLICT, "the model is loaded already");
	loading.times = json_new_array();
	enum status status = instance_ring_prepare(instance, params, &part, error);
	if (!status)
		status = open_file(instance, params, error);
	if (!status)
		status = check_layers(instance, stages, &part, error);
	if (!status)
		status = take_params(instance, params, &stage, error);
	if (!status && of_part)
		status = instance_ring_rows(&part, &stage, error);
	if (!status)
		status = make_rope(instance, &stage, error);
	if (!status) {
		loading.total_bytes = total_bytes(&loading, &part);
		status = make_stages(&loading, stages, &stage, &part, error);
	}
	if (!status && of_part)
		status = instance_ring_create(instance, &part, error);
	if (!status && part.index + 1 >= part.count)
		status = load_draft(instance, params, error);
	if (!status && part.index + 1 >= part.count)
		status = make_generator(instance, &stage, lanes, error);
	if (!status && instance->generator) // of several parts: until the first check says what all of them take
		instance_set_prompt_rows(instance->generator, loading.prompt_row_s, stage.batch_rows);
	if (!status && instance->generator && !instance->ring)
		generator_set_row_times(instance->generator, loading.row_times);
	weights_finish(&loading.weights);
	if (status) {
		json_destroy(&loading.times);
		instance_unload(instance);
		return status;
	}
	*result = to_result(instance, &loading, began_ns);
	return STATUS_OK;
}

void instance_unload(struct instance *instance)
{
	generator_destroy(&instance->generator);
	instance_draft_unload(instance);
	instance_ring_destroy(instance);
	while (instance->stage_count)
		stage_destroy(&instance->stages[--instance->stage_count]);
	while (instance->device_count)
		exogpu_device_close(&instance->devices[--instance->device_count].device, NULL);
	free(instance->rope);
	instance->rope = NULL;
	tokenizer_destroy(&instance->tokenizer);
	chat_template_finish(&instance->chat_template);
	free(instance->pair_template);
	instance->pair_template = NULL;
	model_destroy(&instance->model);
	gguf_destroy(&instance->gguf);
}
