/* See stage.h: what a stage is asked is checked here, once, and handed to the back end. */
#include "engine/stage.h"

#include "common/base/clock.h"
#include "engine/inside.h"
#include "engine/stage_classifier.h"
#include "engine/stage_encoder.h"
#include "engine/stage_pace.h"
#include "engine/stage_slices.h"
#include "engine/vector.h"

#include <math.h>
#include <stdlib.h>

struct stage {
	const struct stage_slots *slots;
	struct stage_params params;
	struct model_shape slice_shape; // of each slice, if there are several
	uint32_t slices;
	bool linked;
	uint64_t spent_ns;
	void *results;                       // of a back end that has none of its own
	struct stage_encoder *encoder;       // its ends, if the model is one
	struct stage_classifier *classifier; // of a reranker's last stage
	struct exogpu_device *devices[STAGE_SLICES];
	struct backend_stage *handles[STAGE_SLICES];
};

static enum status check_params(const struct stage_params *params, struct error *error)
{
	const struct model_shape *shape = params->shape;
	const char *wrong = NULL;
	if (!shape || !params->rope || !params->tensor)
		wrong = "a stage needs a shape, a table of positions and its weights";
	else if (params->first_layer > shape->layers || params->layer_count > shape->layers - params->first_layer ||
		 (!params->layer_count && !params->embeds && !params->predicts))
		wrong = "the model has no such layers";
	else if ((params->embeds && params->first_layer) ||
		 (params->predicts && params->first_layer + params->layer_count != shape->layers))
		wrong = "only the first layers embed, and only the last predict";
	else if (!params->context_tokens || !params->page_count || !params->batch_rows || !params->batch_sequences ||
		 !params->batch_outputs || params->batch_rows > STAGE_ROWS_MOST ||
		 params->batch_sequences > params->batch_rows || params->batch_outputs > params->batch_rows)
		wrong = "context, pages and batch do not fit each other";
	else if (params->host_layers > params->layer_count)
		wrong = "more layers in host memory than there are";
	return wrong ? error_set(error, STATUS_INVALID_PARAMS, "%s", wrong) : STATUS_OK;
}

static enum status told(struct exogpu_device *device, enum status status)
{
	if (status == STATUS_DEVICE_LOST || status == STATUS_TIMEOUT)
		device->lost = true;
	return status;
}

static enum status check_devices(struct exogpu_device *const *devices, uint32_t count, struct error *error)
{
	enum status status = STATUS_OK;
	if (!count || count > STAGE_SLICES)
		return error_set(error, STATUS_INVALID_PARAMS, "a stage has 1 to %d slices, not %u", STAGE_SLICES,
				 count);
	for (uint32_t i = 0; !status && i < count; i++)
		status = device_usable(devices[i], error);
	if (status)
		return status;
	const struct backend *backend = devices[0]->backend;
	for (uint32_t i = 1; i < count; i++)
		if (devices[i]->backend != backend)
			return error_set(error, STATUS_INVALID_PARAMS, "the slices of a stage are of one back end");
	if (!backend->stage || (count > 1 && !backend->stage->join)) {
		error_set(error, STATUS_UNAVAILABLE, "back end %s %s", backend_kind_name(backend->kind),
			  backend->stage ? "cuts no stages into slices" : "computes no models");
		error_hint(error, "choose a device of another back end");
		return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

// Create all slices, side by side if the back end can, else one by one.
static enum status create_slices(struct stage *stage, const struct stage_params *params, struct error *error)
{
	struct backend_device *devices[STAGE_SLICES];
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < stage->slices; i++)
		devices[i] = stage->devices[i]->handle;
	if (stage->slots->create_slices) {
		status = stage->slots->create_slices(devices, stage->slices, stage->handles, params, error);
		for (uint32_t i = 0; i < stage->slices; i++)
			told(stage->devices[i], status);
		return status;
	}
	for (uint32_t i = 0; !status && i < stage->slices; i++)
		status = told(stage->devices[i],
			      stage->slots->create(devices[i], &stage->handles[i], &params[i], error));
	return status;
}

// They, and what joins them.
static enum status make_slices(struct stage *stage, struct error *error)
{
	struct slice_source source;
	struct stage_params params[STAGE_SLICES];
	enum status status = slice_shape(stage->params.shape, stage->slices, &stage->slice_shape, error);
	slice_source_init(&source, &stage->params, stage->slices);
	for (uint32_t i = 0; i < stage->slices; i++) {
		params[i] = stage->params;
		params[i].shape = &stage->slice_shape;
		params[i].slice = i;
		params[i].slices = stage->slices;
		params[i].embeds = stage->params.embeds && !i;
		params[i].predicts = stage->params.predicts && !i;
		params[i].tensor = slice_tensor;
		params[i].progress = stage->params.progress ? slice_progress : NULL;
		params[i].context = &source.parts[i];
	}
	if (!status)
		status = create_slices(stage, params, error);
	if (!status)
		status = told(stage->devices[0],
			      stage->slots->join(stage->handles, stage->slices, &stage->linked, error));
	return status;
}

enum status stage_create_sliced(struct stage **out, struct exogpu_device *const *devices, uint32_t count,
				const struct stage_params *params, struct error *error)
{
	*out = NULL;
	enum status status = check_devices(devices, count, error);
	if (!status)
		status = check_params(params, error);
	if (status)
		return status;
	struct stage *stage = calloc(1, sizeof(*stage));
	if (!stage)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	*stage = (struct stage){
		.slots = devices[0]->backend->stage, .params = *params, .slices = count, .linked = count == 1};
	stage->params.slice = stage->params.slices = 0;
	for (uint32_t i = 0; i < count; i++)
		stage->devices[i] = devices[i];
	struct stage_params of_back_end = stage->params;
	if (params->shape->encoder) {
		status = stage_encoder_create(&stage->encoder, params, error);
		of_back_end.embeds = of_back_end.predicts = false;
	}
	if (!status)
		status = stage_classifier_create(&stage->classifier, params, error);
	if (!status)
		status = count > 1 ? make_slices(stage, error)
				   : told(devices[0], stage->slots->create(devices[0]->handle, &stage->handles[0],
									   &of_back_end, error));
	if (status)
		stage_destroy(&stage);
	*out = stage;
	return status;
}

enum status stage_create(struct stage **out, struct exogpu_device *device, const struct stage_params *params,
			 struct error *error)
{
	return stage_create_sliced(out, &device, 1, params, error);
}

void stage_destroy(struct stage **stage_pointer)
{
	struct stage *stage = *stage_pointer;
	if (!stage)
		return;
	if (stage->slices > 1 && stage->slots->settle && stage->handles[0])
		stage->slots->settle(stage->handles, stage->slices);
	for (uint32_t i = stage->slices; i-- > 0;)
		if (stage->handles[i])
			stage->slots->destroy(stage->devices[i]->handle, &stage->handles[i]);
	stage_encoder_destroy(&stage->encoder);
	stage_classifier_destroy(&stage->classifier);
	free(stage->results);
	free(stage);
	*stage_pointer = NULL;
}

void stage_slice_memory(const struct stage *stage, uint32_t slice, struct stage_memory *memory)
{
	*memory = (struct stage_memory){0};
	stage->slots->memory(stage->handles[slice], memory);
	memory->host_bytes += stage->encoder ? stage_encoder_bytes(stage->encoder) : 0;
	memory->host_bytes += stage->classifier && !slice ? stage_classifier_bytes(stage->classifier) : 0;
}

void stage_memory(const struct stage *stage, struct stage_memory *memory)
{
	*memory = (struct stage_memory){0};
	for (uint32_t i = 0; i < stage->slices; i++) {
		struct stage_memory of_slice;
		stage_slice_memory(stage, i, &of_slice);
		memory->weights_bytes += of_slice.weights_bytes;
		memory->kv_bytes += of_slice.kv_bytes;
		memory->workspace_bytes += of_slice.workspace_bytes;
		memory->host_bytes += of_slice.host_bytes;
	}
}

uint32_t stage_slice_count(const struct stage *stage)
{
	return stage->slices;
}

bool stage_slices_linked(const struct stage *stage)
{
	return stage->linked;
}

static const char *check_runs(const struct stage_params *params, const struct stage_batch *batch)
{
	uint32_t rows = 0;
	for (uint32_t i = 0; i < batch->run_count; i++) {
		const struct stage_run *run = &batch->runs[i];
		if (!run->row_count || run->row_count > batch->row_count - rows)
			return "the runs are not as long as the batch";
		if (run->position >= params->context_tokens || run->row_count > params->context_tokens - run->position)
			return "a position lies outside the context";
		uint32_t pages = (run->position + run->row_count + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
		for (uint32_t page = 0; page < pages; page++)
			if (run->pages[page] >= params->page_count)
				return "there is no such page";
		rows += run->row_count;
	}
	return rows == batch->row_count ? NULL : "the runs are not as long as the batch";
}

// Each run of a model with states goes on from one, and leaves one where no other run reads or writes.
static const char *check_states_of(const struct stage_params *params, const struct stage_batch *batch)
{
	const uint32_t slots = stage_state_count(params->shape, params->batch_sequences);
	for (uint32_t i = 0; slots && i < batch->run_count; i++) {
		const struct stage_run *run = &batch->runs[i];
		if (run->state_from > slots || !run->state_to || run->state_to > slots)
			return "there is no such state";
		if (!run->position != !run->state_from)
			return "a run goes on without its state, or begins with one";
		for (uint32_t j = 0; j < batch->run_count; j++)
			if (j != i &&
			    (batch->runs[j].state_to == run->state_to || batch->runs[j].state_from == run->state_to))
				return "two runs have one state";
	}
	return NULL;
}

static const char *check_batch(const struct stage_params *params, const struct stage_batch *batch)
{
	if (!batch->row_count || batch->row_count > params->batch_rows || !batch->run_count ||
	    batch->run_count > params->batch_sequences || batch->output_count > params->batch_outputs)
		return "more rows, runs or outputs than the stage was made for, or none";
	if (params->embeds ? !batch->tokens : !batch->input)
		return "no tokens, or no activations";
	if (!params->predicts && (!batch->output || batch->output_count))
		return "nowhere to put the activations";
	for (uint32_t i = 0; params->embeds && i < batch->row_count; i++)
		if (batch->tokens[i] >= params->shape->vocabulary)
			return "a token outside the vocabulary";
	for (uint32_t i = 0; i < batch->output_count; i++)
		if (batch->output_rows[i] >= batch->row_count ||
		    (i && batch->output_rows[i] <= batch->output_rows[i - 1]))
			return "rows of outputs are not ascending, or outside the batch";
	const char *wrong = check_runs(params, batch);
	return wrong ? wrong : check_states_of(params, batch);
}

// A loss in one slice ends them all: none goes on without the others.
static enum status usable(const struct stage *stage, struct error *error)
{
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < stage->slices; i++)
		status = device_usable(stage->devices[i], error);
	return status;
}

// Gemma's cap and Granite's scale: for all back ends here, where logits are asked for. Neither changes which is
// largest.
static void finish_logits(const struct stage *stage, const struct stage_batch *batch)
{
	const struct model_shape *shape = stage->params.shape;
	const size_t count = (size_t)batch->output_count * shape->vocabulary;
	const float scale = shape->logit_scale > 0 ? shape->logit_scale : 1, cap = shape->logit_cap;
	if (!batch->logits || (!(shape->logit_scale > 0) && !(cap > 0)))
		return;
	size_t i = 0;
	for (; i + LANES <= count; i += LANES) {
		floats *values = (floats *)&batch->logits[i];
		*values *= scale;
		if (cap > 0)
			*values = cap * tanh_of(*values / cap);
	}
	for (; i < count; i++) {
		const float value = batch->logits[i] * scale;
		batch->logits[i] = cap > 0 ? cap * tanh_of(floats_of(value / cap))[0] : value;
	}
}

static enum status step_encoder(struct stage *stage, const struct stage_batch *batch, struct error *error)
{
	struct stage_batch inner;
	stage_encoder_begin(stage->encoder, batch, &inner);
	enum status status = stage->slots->step(stage->handles[0], &inner, error);
	if (!status)
		stage_encoder_end(stage->encoder, batch);
	return status;
}

// Not where logits are changed here first, or come from slices.
bool stage_finds_candidates(const struct stage *stage)
{
	const struct model_shape *shape = stage->params.shape;
	return stage->slots->candidates && stage->slices == 1 && stage->params.predicts && !stage->encoder &&
	       !(shape->logit_cap > 0) && !(shape->logit_scale > 0);
}

const struct stage_candidates *stage_candidates(const struct stage *stage)
{
	return stage->slots->candidates(stage->handles[0]);
}

enum status stage_logits(struct stage *stage, uint32_t output, float *to, struct error *error)
{
	const enum status status = stage->slots->logits(stage->handles[0], output, to, error);
	told(stage->devices[0], status);
	return status;
}

void *stage_results(struct stage *stage, size_t bytes)
{
	if (stage->slots->results)
		return stage->slots->results(stage->handles[0], bytes);
	if (!stage->results)
		stage->results = calloc(1, bytes);
	return stage->results;
}

float stage_score(const struct stage *stage, const float *hidden)
{
	return stage->classifier ? stage_classifier_score(stage->classifier, hidden) : NAN;
}

enum status stage_step(struct stage *stage, const struct stage_batch *batch, struct error *error)
{
	enum status status = usable(stage, error);
	const char *wrong = status ? NULL : check_batch(&stage->params, batch);
	if (wrong)
		status = error_set(error, STATUS_INVALID_PARAMS, "%s", wrong);
	if (status)
		return status;
	const int64_t began_ns = clock_steady_ns();
	if (stage->encoder)
		status = step_encoder(stage, batch, error);
	else if (stage->slices == 1)
		status = stage->slots->step(stage->handles[0], batch, error);
	else
		status = stage->slots->step_joined(stage->handles, stage->slices, batch, error);
	if (!status && !stage->encoder)
		finish_logits(stage, batch);
	stage_pace(began_ns, batch->row_count, (double)stage->params.layer_count / stage->params.shape->layers);
	stage->spent_ns += (uint64_t)(clock_steady_ns() - began_ns);
	for (uint32_t i = 0; i < stage->slices; i++)
		told(stage->devices[i], status);
	return status;
}

const char *stage_single_kernel(const struct stage *stage)
{
	return stage->slots->single_kernel ? stage->slots->single_kernel(stage->handles[0]) : NULL;
}

enum status stage_time(struct stage *stage, const struct stage_batch *batch, stage_timing_fn *each, void *context,
		       struct error *error)
{
	enum status status = usable(stage, error);
	const char *wrong = status ? NULL : check_batch(&stage->params, batch);
	if (wrong)
		return error_set(error, STATUS_INVALID_PARAMS, "%s", wrong);
	if (!status && (!stage->slots->time || stage->slices > 1 || stage->encoder))
		return error_set(error, STATUS_UNAVAILABLE, "kernels of such a stage are not timed one by one");
	if (!status)
		status = stage->slots->time(stage->handles[0], batch, each, context, error);
	told(stage->devices[0], status);
	return status;
}

uint64_t stage_spent_ns(const struct stage *stage)
{
	return stage->spent_ns;
}

enum status stage_zero(struct stage *stage, const uint32_t *pages, uint32_t count, struct error *error)
{
	enum status status = usable(stage, error);
	const uint32_t most = stage->params.page_count +
			      stage_state_count(stage->params.shape, stage->params.batch_sequences);
	for (uint32_t i = 0; !status && i < count; i++)
		if (pages[i] >= most)
			status = error_set(error, STATUS_INVALID_PARAMS, "there is no page %u", pages[i]);
	for (uint32_t i = 0; !status && count && i < stage->slices; i++)
		status = told(stage->devices[i], stage->slots->zero(stage->handles[i], pages, count, error));
	return status;
}

bool stage_has_layer(const struct stage *stage, uint32_t layer)
{
	return layer >= stage->params.first_layer && layer - stage->params.first_layer < stage->params.layer_count;
}

bool stage_moves_pages(const struct stage *stage)
{
	return stage->slots->read_pages && stage->slots->write_pages;
}

static enum status check_pages(const struct stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
			       const void *bytes, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const enum status status = usable(stage, error);
	if (status)
		return status;
	if (!stage_moves_pages(stage))
		return error_set(error, STATUS_UNAVAILABLE, "back end %s hands out no keys and values",
				 backend_kind_name(stage->devices[0]->backend->kind));
	if (layer < params->first_layer || layer - params->first_layer >= params->layer_count)
		return error_set(error, STATUS_INVALID_PARAMS, "the stage has no layer %u", layer);
	if (params->shape->layer_kinds[layer] & LAYER_DELTA)
		return error_set(error, STATUS_INVALID_PARAMS, "layer %u has a state, and no keys and values", layer);
	if (count && (!pages || !bytes))
		return error_set(error, STATUS_INVALID_PARAMS, "no pages are named, or there is no memory for them");
	for (uint32_t i = 0; i < count; i++)
		if (pages[i] >= params->page_count)
			return error_set(error, STATUS_INVALID_PARAMS, "there is no page %u", pages[i]);
	return STATUS_OK;
}

// The heads of a slice are a part of each page.
static uint64_t slice_offset(const struct stage *stage, uint32_t slice)
{
	return stage_page_bytes(stage->params.shape) / stage->slices * slice;
}

enum status stage_read_pages(struct stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count, void *to,
			     struct error *error)
{
	const uint64_t pitch = stage_page_bytes(stage->params.shape);
	enum status status = check_pages(stage, layer, pages, count, to, error);
	for (uint32_t i = 0; !status && count && i < stage->slices; i++)
		status = told(stage->devices[i],
			      stage->slots->read_pages(stage->handles[i], layer - stage->params.first_layer, pages,
						       count, (uint8_t *)to + slice_offset(stage, i), pitch, error));
	return status;
}

enum status stage_write_pages(struct stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
			      const void *from, struct error *error)
{
	const uint64_t pitch = stage_page_bytes(stage->params.shape);
	enum status status = check_pages(stage, layer, pages, count, from, error);
	for (uint32_t i = 0; !status && count && i < stage->slices; i++)
		status = told(stage->devices[i],
			      stage->slots->write_pages(stage->handles[i], layer - stage->params.first_layer, pages,
							count, (const uint8_t *)from + slice_offset(stage, i), pitch,
							error));
	return status;
}

enum status stage_compile(struct exogpu_device *device, struct error *error)
{
	enum status status = device_usable(device, error);
	const struct stage_slots *slots = device->backend->stage;
	return status || !slots || !slots->compile ? status : slots->compile(device->handle, error);
}

uint64_t stage_page_bytes(const struct model_shape *shape)
{
	return (uint64_t)shape->kv_heads * model_kept_size(shape) * sizeof(uint16_t) * STAGE_PAGE_TOKENS;
}

uint64_t stage_state_bytes(const struct model_shape *shape)
{
	const struct model_delta *delta = &shape->delta;
	const uint64_t matrices = (uint64_t)delta->heads * delta->key_size * delta->value_size;
	return delta->heads ? sizeof(float) * (matrices + (delta->kernel - 1ull) * model_delta_channels(delta)) : 0;
}

uint32_t stage_state_count(const struct model_shape *shape, uint32_t batch_sequences)
{
	enum { SPARE = 2 }; // for a check of the devices, and for one request more that has ended
	return model_is_recurrent(shape) ? 2 * batch_sequences + SPARE : 0;
}

bool stage_tiles_fit(const struct model_shape *shape)
{
	const uint32_t tile_rows = 16; // of experts only whole tiles are written
	if (shape->experts && shape->expert_width % tile_rows)
		return false;
	const uint32_t states = shape->delta.key_size | shape->delta.value_size,
		       turned = shape->head_size - shape->latent.rank;
	const uint32_t queries = model_is_latent(shape) ? shape->latent.query_rank | shape->latent.key_size | turned
							: 0;
	return (shape->embedding | shape->feed_forward | shape->dense_width | model_attended(shape) | states |
		queries) %
		       4 ==
	       0;
}

static uint64_t whole(uint64_t count, uint64_t of)
{
	return (count + of - 1) / of * of;
}

uint32_t stage_tiled_head(const struct model_shape *shape)
{
	return (uint32_t)whole(shape->head_size, model_is_latent(shape) ? 32 : 8);
}

// The numbers of a slice of a layer's matrices, or, of no layer, of the token embedding.
static double matrix_values(const struct model_shape *shape, uint32_t slices, bool layer, bool tiled)
{
	const uint64_t rows = tiled ? 16 : 1, columns = tiled ? 128 : 1, embedding = shape->embedding;
	const uint64_t q = (uint64_t)model_attended(shape) / slices,
		       kv = (uint64_t)shape->kv_heads * shape->head_size / slices, ffn = shape->feed_forward / slices;
	const uint64_t in = layer ? whole(q, rows) + 2 * whole(kv, rows) + 2 * whole(ffn, rows)
				  : whole(shape->vocabulary, rows),
		       out = layer ? whole(q, columns) + whole(ffn, columns) : 0;
	const uint64_t width = shape->expert_width;
	const double experts = layer ? shape->experts : 0;
	const double expert = 2 * (double)whole(width, rows) * (double)whole(embedding, columns) +
			      (double)whole(embedding, rows) * (double)whole(width, columns);
	return (double)in * (double)whole(embedding, columns) + (double)whole(embedding, rows) * (double)out +
	       experts * (expert + (double)whole(embedding, columns));
}

static uint64_t padded(uint64_t bytes, const struct stage_params *params, bool layer)
{
	const uint32_t slices = params->slices ? params->slices : 1;
	const double values = matrix_values(params->shape, slices, layer, false);
	if (!params->tiled || values <= 0)
		return bytes;
	return (uint64_t)((double)bytes * matrix_values(params->shape, slices, layer, true) / values);
}

// Rows times experts of each that have memory at a time, with the room that devices with tiles leave between experts.
static uint64_t expert_slots(const struct stage_params *params)
{
	const uint64_t rows = params->batch_rows < STAGE_EXPERT_ROWS ? params->batch_rows : STAGE_EXPERT_ROWS;
	const uint64_t slots = rows * params->shape->experts_used, experts = params->shape->experts;
	if (!params->tiled || !slots)
		return slots;
	return slots + (slots < experts ? slots : experts) * (STAGE_EXPERT_ALIGN - 1) + STAGE_EXPERT_SPARE;
}

void stage_estimate(const struct stage_params *params, const struct model_sizes *sizes, struct stage_memory *memory)
{
	const struct model_shape *shape = params->shape;
	uint32_t slices = params->slices ? params->slices : 1;
	bool first = !params->slice;
	uint64_t layer = shape->layers ? padded(sizes->layers_bytes / shape->layers / slices, params, true) : 0;
	// The ends of an encoder are the host's.
	const bool embeds = params->embeds && first && !shape->encoder,
		   predicts = params->predicts && first && !shape->encoder;
	uint64_t embedding = padded(sizes->embedding_bytes, params, false);
	struct model_shape pages = *shape;
	pages.head_size = params->tiled ? stage_tiled_head(shape) : shape->head_size;
	uint64_t widest = shape->embedding + (2ull * model_widest_layer(shape) +
					      (shape->heads + 2ull * shape->kv_heads) * shape->head_size) /
						     slices;
	widest += slices > 1 || shape->post_norm ? shape->embedding : 0; // partial sums of slices, or values before a
									 // norm
	if (model_is_latent(shape)) // besides queries and results of latents: of heads, and what queries are made of
		widest += shape->heads * ((uint64_t)shape->latent.key_size + shape->latent.value_size) / 2 +
			  shape->latent.query_rank;
	const uint32_t with_state = model_delta_layers(shape, params->first_layer, params->layer_count);
	if (with_state)
		widest += 2ull * model_delta_channels(&shape->delta) +
			  2ull * shape->delta.heads * shape->delta.value_size;
	const uint64_t slot = shape->embedding + 2ull * shape->expert_width; // numbers of a row and one of its experts
	*memory = (struct stage_memory){
		.weights_bytes = layer * (params->layer_count - params->host_layers) + (embeds ? embedding : 0) +
				 (predicts ? padded(sizes->output_bytes, params, false) : 0),
		.kv_bytes = stage_page_bytes(&pages) / slices * params->page_count *
				    (params->layer_count - with_state) +
			    stage_state_bytes(shape) * stage_state_count(shape, params->batch_sequences) * with_state,
		.workspace_bytes = widest * params->batch_rows * 8 + slot * expert_slots(params) * 8 +
				   (predicts ? 4ull * shape->vocabulary * params->batch_outputs : 0) +
				   4 * model_rope_numbers(shape, params->context_tokens),
		.host_bytes = layer * params->host_layers,
	};
	if (shape->encoder)
		memory->host_bytes += (params->embeds && first ? sizes->embedding_bytes : 0) +
				      (params->predicts && first ? sizes->output_bytes : 0);
	if (embeds && predicts && shape->tied)
		memory->weights_bytes -= embedding;
}
