/* The stage slots of the Vulkan back end: life of a stage, and a batch in parts. See stage.h. */
#include "engine/vulkan/stage/stage.h"

#include "common/base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROWS_SOFTWARE = 64,  // of a part: a processor takes its time for each
	TILE_MOST = 16,      // queries of a group of attention
	TILE_FLOATS = 4096,  // that they have
	PAGE_LIST = 1 << 20, // pages of all sequences of a part, unless one has more
	SPLIT_QUERIES = 4096,
	SPLITS_MOST = 64,    // that stage_combine.comp takes
	SPLIT_PAGES = 2,     // of a part of a context, at least
	GROUPS_ENOUGH = 512, // of attention, for a large GPU to be busy
	GROUPS_ENOUGH_SOFTWARE = 8,
	LOOP_TURNS = 65535,       // llvmpipe leaves a loop after so many, and says nothing
	SHARED_BYTES = 24 * 1024, // that the shaders need
};
static const uint64_t logits_bytes = 128ull << 20; // of a part

static uint32_t up(uint64_t count, uint32_t of)
{
	return (uint32_t)((count + of - 1) / of);
}

static uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

// ---- sizes ----

// Sets the offsets in `step` for a part with so many rows; returns the total number of words.
static uint64_t place_step(struct backend_stage *stage, uint32_t rows, struct stage_places *places)
{
	uint64_t at = 0;
	const struct {
		uint32_t *place;
		uint64_t words;
	} runs[] = {
		{&places->tokens, 1}, // nothing lies at 0
		{&places->slots, rows},
		{&places->outputs, rows},
		{&places->tiles, stage->outputs},
		{&places->rope, (uint64_t)stage->tiles * sizeof(struct stage_tile) / 4},
		{&places->runs, model_rope_numbers(&stage->shape, rows)},
		{&places->input, model_is_recurrent(&stage->shape) ? 4ull * stage->params.batch_sequences : 0},
		{&places->pages, stage->params.embeds ? 0 : (uint64_t)rows * stage->shape.embedding},
		{&places->words, stage->page_list},
	};
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		at += runs[i].words;
		*runs[i].place = (uint32_t)at;
	}
	return at;
}

static uint64_t widest(const struct model_shape *shape)
{
	const uint64_t slot = shape->expert_width > shape->embedding ? shape->expert_width : shape->embedding;
	const uint64_t all[] = {(uint64_t)shape->heads * model_query_rows(shape),
				model_widest_layer(shape),
				shape->experts_used * slot,
				shape->experts,
				model_delta_channels(&shape->delta),
				stage_latent_widest(shape)};
	uint64_t most = shape->embedding;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		most = all[i] > most ? all[i] : most;
	return (most + 31ull * (shape->experts_used + 1)) & ~31ull;
}

// Rows, outputs and tiles of a part, such that everything fits what a binding reaches.
static enum status choose_sizes(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct stage_params *params = &stage->params;
	const struct backend_device *device = stage->device;
	uint64_t range = device->properties.limits.maxStorageBufferRange, words;
	uint32_t per_kv = shape->heads / shape->kv_heads, pages = up(params->context_tokens, STAGE_PAGE_TOKENS);
	stage->padded = (shape->head_size + 7) & ~7u;
	stage->padded_value = (model_value_size(shape) + 7) & ~7u;
	stage->scale = model_attention_scale(shape);
	stage->tile_many = least(TILE_MOST, TILE_FLOATS / stage->padded);
	stage->tile_few = least(per_kv, stage->tile_many);
	stage->page_list = least((uint64_t)params->batch_sequences * pages, PAGE_LIST > pages ? PAGE_LIST : pages);
	const uint32_t longest = shape->encoder ? params->context_tokens : 1;
	stage->rows = least(params->batch_rows, device->gpu ? STAGE_ROWS : ROWS_SOFTWARE);
	stage->rows = stage->rows < longest ? longest : stage->rows;
	for (;; stage->rows /= 2) {
		stage->outputs = least(params->batch_outputs, stage->rows);
		while (stage->outputs > 1 && 4ull * stage->outputs * shape->vocabulary > least(logits_bytes, range))
			stage->outputs /= 2;
		stage->tiles = stage->rows * up(per_kv, stage->tile_few);
		words = place_step(stage, stage->rows, &stage->places);
		if (stage->rows == 1 || (4 * words <= range && 4 * widest(shape) * stage->rows <= range))
			break;
	}
	uint64_t page = (uint64_t)shape->kv_heads * stage->padded * STAGE_PAGE_TOKENS * 2;
	if (shape->experts && (shape->bare_input || shape->post_norm))
		return error_set(
			error, STATUS_UNAVAILABLE,
			"the Vulkan back end needs a norm before the experts of a mixture, and none after them");
	if (device->spirv.shared_bytes < SHARED_BYTES)
		return error_set(error, STATUS_UNAVAILABLE, "the device's groups share %u bytes; models need %u",
				 device->spirv.shared_bytes, SHARED_BYTES);
	const uint64_t states = stage_state_bytes(shape) * stage_state_count(shape, params->batch_sequences);
	if (states > range) {
		error_hint(error, "run fewer requests at once");
		return error_set(error, STATUS_OUT_OF_MEMORY,
				 "a layer's states take %llu bytes; this device's shaders reach %llu in one piece",
				 (unsigned long long)states, (unsigned long long)range);
	}
	if (stage->rows < longest || 4 * words > range || page * params->page_count > range ||
	    4ull * shape->vocabulary > range || (device->software && pages > LOOP_TURNS)) {
		error_hint(error, "use a shorter context, or fewer requests at once");
		return error_set(error, STATUS_OUT_OF_MEMORY,
				 "a layer's keys take %llu bytes; this device's shaders reach %llu in one piece",
				 (unsigned long long)(page * params->page_count), (unsigned long long)range);
	}
	return STATUS_OK;
}

// ---- buffers ----

enum status stage_buffer_make(struct backend_stage *stage, struct backend_buffer **out, uint64_t bytes,
			      enum exogpu_memory memory, struct error *error)
{
	struct backend_buffer_params params = {.bytes = bytes ? bytes : 4, .memory = memory};
	enum status status = vulkan_buffer_create(stage->device, out, &params, error);
	if (status || memory != EXOGPU_MEMORY_DEVICE)
		return status;
	return vulkan_fill(stage->stream, *out, 0, params.bytes, 0, error);
}

static enum status make_workspace(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	uint64_t rows = 4ull * stage->rows, head = shape->head_size; // rows of floats, in bytes
	uint64_t embedding = (shape->embedding + 31) & ~31ull, ffn = (model_widest_layer(shape) + 31) & ~31ull;
	uint64_t attended = (model_attended(shape) + 31ull) & ~31ull;
	const uint64_t slots = rows * shape->experts_used, width = (shape->expert_width + 31) & ~31ull;
	struct stage_experts *experts = &stage->experts;
	struct stage_delta *delta = &stage->delta;
	const uint64_t channels = model_delta_channels(&shape->delta),
		       values = (uint64_t)shape->delta.heads * shape->delta.value_size;
	bool layers = stage->params.layer_count, predicts = stage->params.predicts;
	uint64_t parts = (uint64_t)SPLIT_QUERIES * (stage->padded + 2) * 4;
	uint64_t bests = 8ull * stage->outputs * up(shape->vocabulary, STAGE_ARGMAX_RUN);
	const struct {
		struct backend_buffer **buffer;
		uint64_t bytes;
		enum exogpu_memory memory;
	} wanted[] = {
		{&stage->x, rows * embedding, EXOGPU_MEMORY_DEVICE},
		{&stage->h, rows * embedding, EXOGPU_MEMORY_DEVICE},
		{&stage->q, layers * rows * shape->heads * model_query_rows(shape), EXOGPU_MEMORY_DEVICE},
		{&stage->k, layers * rows * shape->kv_heads * head, EXOGPU_MEMORY_DEVICE},
		{&stage->v, layers * rows * shape->kv_heads * head, EXOGPU_MEMORY_DEVICE},
		{&stage->a, layers * rows * attended, EXOGPU_MEMORY_DEVICE},
		{&stage->gate, layers * rows * ffn, EXOGPU_MEMORY_DEVICE},
		{&stage->f, layers * rows * ffn, EXOGPU_MEMORY_DEVICE},
		{&delta->channels, layers * rows * channels, EXOGPU_MEMORY_DEVICE},
		{&delta->mixed, layers * rows * channels, EXOGPU_MEMORY_DEVICE},
		{&delta->gate, layers * rows * values, EXOGPU_MEMORY_DEVICE},
		{&delta->out, layers * rows * ((values + 31) & ~31ull), EXOGPU_MEMORY_DEVICE},
		{&delta->scores.buffer, layers * rows * model_delta_betas(&shape->delta), EXOGPU_MEMORY_DEVICE},
		{&delta->alpha, layers * rows * shape->delta.heads, EXOGPU_MEMORY_DEVICE},
		{&experts->scores, layers * rows * shape->experts, EXOGPU_MEMORY_DEVICE},
		{&experts->shared_scores, layers * shape->shared_gate * rows, EXOGPU_MEMORY_DEVICE},
		{&experts->lists, layers * (3 * slots + 4ull * (shape->experts + 1)), EXOGPU_MEMORY_DEVICE},
		{&experts->gate, layers * slots * width, EXOGPU_MEMORY_DEVICE},
		{&experts->f, layers * slots * width, EXOGPU_MEMORY_DEVICE},
		{&experts->out, layers * slots * shape->embedding, EXOGPU_MEMORY_DEVICE},
		{&stage->logits, predicts * 4ull * stage->outputs * shape->vocabulary, EXOGPU_MEMORY_DEVICE},
		{&stage->partial, parts > bests ? parts : bests, EXOGPU_MEMORY_DEVICE},
		{&stage->step, 4ull * stage->places.words,
		 stage->device->types[EXOGPU_MEMORY_MAPPED].count ? EXOGPU_MEMORY_MAPPED : EXOGPU_MEMORY_HOST},
		{&stage->told_rows, rows * shape->embedding, EXOGPU_MEMORY_HOST},
		{&stage->told_tokens, 4ull * stage->outputs, EXOGPU_MEMORY_HOST},
		{&stage->told_logits, predicts * 4ull * stage->outputs * shape->vocabulary, EXOGPU_MEMORY_HOST},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		status = stage_buffer_make(stage, wanted[i].buffer, wanted[i].bytes, wanted[i].memory, error);
		stage->memory.workspace_bytes += wanted[i].memory == EXOGPU_MEMORY_HOST ? 0 : wanted[i].bytes;
	}
	return !status && layers ? stage_latent_make(stage, error) : status;
}

static enum status make_pages(struct backend_stage *stage, struct error *error)
{
	uint64_t bytes = 2ull * stage->shape.kv_heads * stage->padded * STAGE_PAGE_TOKENS * stage->params.page_count;
	const uint64_t states = stage_state_bytes(&stage->shape) *
				stage_state_count(&stage->shape, stage->params.batch_sequences);
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < stage->params.layer_count; i++) {
		struct stage_layer *layer = &stage->layers[i];
		if (stage->shape.layer_kinds[stage->params.first_layer + i] & LAYER_DELTA) {
			status = stage_buffer_make(stage, &layer->states, states, EXOGPU_MEMORY_DEVICE, error);
			stage->memory.kv_bytes += states;
			continue;
		}
		status = stage_buffer_make(stage, &layer->keys, bytes, EXOGPU_MEMORY_DEVICE, error);
		if (!status && !model_is_latent(&stage->shape))
			status = stage_buffer_make(stage, &layer->values, bytes, EXOGPU_MEMORY_DEVICE, error);
		stage->memory.kv_bytes += layer->values ? 2 * bytes : bytes;
	}
	return status;
}

// The matrix bound beside a chunk: for the gate that of up, if they have the same layout; else the chunk itself.
static const struct backend_buffer *second_of(const struct stage_layer *layer, int role, uint32_t chunk)
{
	const bool gate = role == ROLE_FFN_GATE || role == ROLE_EXPERT_GATE;
	const struct stage_matrix *other = &layer->matrices[role == ROLE_FFN_GATE ? ROLE_FFN_UP : ROLE_EXPERT_UP];
	const bool pair = gate && layer->matrices[role].format == other->format;
	return pair ? other->chunks[chunk].buffer : layer->matrices[role].chunks[chunk].buffer;
}

static enum status make_sets(struct backend_stage *stage, struct error *error)
{
	enum status status = stage_layouts_make(stage, error);
	for (uint32_t i = 0; i <= stage->params.layer_count; i++) {
		struct stage_layer *layer = i ? &stage->layers[i - 1] : &stage->ends;
		for (int role = 0; role < ROLE_COUNT; role++)
			for (uint32_t j = 0; !status && j < layer->matrices[role].chunk_count; j++)
				status = stage_set_weights(stage, &layer->matrices[role].chunks[j],
							   second_of(layer, role, j), error);
		if (!status && i)
			status = stage_set_pages(stage, layer, error);
	}
	if (!status && model_is_recurrent(&stage->shape))
		status = stage_set_weights(stage, &stage->delta.scores, stage->delta.alpha, error);
	return status;
}

// ---- life ----

enum status vulkan_stage_settle(struct backend_stage *stage, struct error *error)
{
	uint64_t point;
	enum status status = vulkan_mark(stage->stream, &point, error);
	return status ? status : vulkan_wait(stage->stream, point, stage_timeout_ns(stage->device), error);
}

static void stage_finish(struct backend_device *device, struct backend_stage **out)
{
	struct backend_stage *stage = *out;
	if (!stage)
		return;
	*out = NULL;
	if (!vulkan_streams_idle(device, stage_timeout_ns(device))) {
		log_warning("vulkan", "a step never ended: its stage's memory stays until this process ends");
		return;
	}
	struct backend_buffer **buffers[] = {&stage->x,
					     &stage->h,
					     &stage->q,
					     &stage->k,
					     &stage->v,
					     &stage->a,
					     &stage->gate,
					     &stage->f,
					     &stage->logits,
					     &stage->partial,
					     &stage->step,
					     &stage->told_rows,
					     &stage->told_tokens,
					     &stage->told_logits,
					     &stage->moved,
					     &stage->experts.scores,
					     &stage->experts.shared_scores,
					     &stage->experts.lists,
					     &stage->experts.gate,
					     &stage->experts.f,
					     &stage->experts.out,
					     &stage->delta.channels,
					     &stage->delta.mixed,
					     &stage->delta.gate,
					     &stage->delta.out,
					     &stage->delta.scores.buffer,
					     &stage->delta.alpha};
	stage_programs_finish(stage);
	stage_layouts_finish(stage);
	stage_weights_finish(stage);
	stage_latent_finish(stage);
	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
		vulkan_buffer_destroy(device, buffers[i]);
	for (uint32_t i = 0; stage->layers && i < stage->params.layer_count; i++) {
		vulkan_buffer_destroy(device, &stage->layers[i].keys);
		vulkan_buffer_destroy(device, &stage->layers[i].values);
		vulkan_buffer_destroy(device, &stage->layers[i].states);
	}
	vulkan_stream_destroy(device, &stage->stream);
	free(stage->runs);
	free(stage->layers);
	free(stage);
}

static enum status stage_make(struct backend_device *device, struct backend_stage **out,
			      const struct stage_params *params, struct error *error)
{
	struct backend_stage *stage = calloc(1, sizeof(*stage));
	*out = NULL;
	if (!stage)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage's record");
	stage->device = device;
	stage->params = *params;
	stage->shape = *params->shape;
	stage->layers = calloc(params->layer_count + 1ull, sizeof(*stage->layers));
	stage->runs = calloc(params->batch_sequences, sizeof(*stage->runs));
	VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
					.queueFamilyIndex = device->queue_family};
	enum status status = stage->layers && stage->runs
				     ? choose_sizes(stage, error)
				     : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage's record");
	if (!status)
		status = vulkan_stream_create(device, &stage->stream, error);
	if (!status) {
		VkResult result = VULKAN_MADE(
			stage->commands, device->fn.vkCreateCommandPool(device->device, &pool, NULL, &stage->commands));
		status = result ? vulkan_device_failed(device, error, "vkCreateCommandPool", result) : STATUS_OK;
	}
	if (!status)
		status = make_workspace(stage, error);
	if (!status)
		status = make_pages(stage, error);
	if (!status)
		status = stage_weights_load(stage, error);
	if (!status)
		status = make_sets(stage, error);
	if (!status)
		status = vulkan_stage_settle(stage, error);
	if (status)
		stage_finish(device, &stage);
	*out = stage;
	return status;
}

static void tell_memory(const struct backend_stage *stage, struct stage_memory *memory)
{
	*memory = stage->memory;
}

// ---- a part of a batch ----

struct part {
	uint32_t first_row, rows;
	uint32_t first_output, outputs;
	uint32_t run, run_row; // where it begins in the batch's runs
	uint32_t runs;         // in stage->runs
};

// Take as many rows as fit, from the end of the last part on.
static void cut(struct backend_stage *stage, const struct stage_batch *batch, struct part *part)
{
	uint32_t most = least(stage->rows, batch->row_count - part->first_row), pages = 0;
	uint32_t next_output = part->first_output + stage->outputs;
	if (next_output < batch->output_count)
		most = least(most, batch->output_rows[next_output] - part->first_row);
	part->rows = part->runs = 0;
	while (part->rows < most) {
		const struct stage_run *run = &batch->runs[part->run];
		uint32_t position = run->position + part->run_row;
		uint32_t rows = least(run->row_count - part->run_row, most - part->rows);
		if (stage->shape.encoder && rows < run->row_count)
			break; // a text is not cut: there is room for the longest
		uint32_t needs = up((uint64_t)position + rows, STAGE_PAGE_TOKENS);
		if (part->runs && needs > stage->page_list - pages)
			break;
		pages += needs;
		stage->runs[part->runs++] = (struct stage_run){.row_count = rows,
							       .position = position,
							       .pages = run->pages,
							       .state_from = part->run_row ? run->state_to
											   : run->state_from,
							       .state_to = run->state_to};
		part->rows += rows;
		part->run_row += rows;
		if (part->run_row == run->row_count) {
			part->run++;
			part->run_row = 0;
		}
	}
	part->outputs = 0;
	for (uint32_t i = part->first_output;
	     i < batch->output_count && batch->output_rows[i] < part->first_row + part->rows; i++)
		part->outputs++;
}

// Parts of the context that attention is shared out to, so that a GPU has enough to do.
static uint32_t choose_splits(const struct backend_stage *stage, const struct part *part, uint32_t tiles)
{
	uint32_t groups = tiles * stage->shape.kv_heads, pages = 0, splits = 1;
	uint32_t enough = stage->device->gpu ? GROUPS_ENOUGH : GROUPS_ENOUGH_SOFTWARE;
	for (uint32_t i = 0; i < part->runs; i++) {
		uint32_t needs = up((uint64_t)stage->runs[i].position + stage->runs[i].row_count, STAGE_PAGE_TOKENS);
		pages = needs > pages ? needs : pages;
	}
	while (2 * splits <= SPLITS_MOST && 2ull * splits * groups <= enough && 2ull * splits * SPLIT_PAGES <= pages &&
	       2ull * splits * part->rows * stage->shape.heads <= SPLIT_QUERIES)
		splits *= 2;
	return splits;
}

// Pages, slots, positions and tiles of a part's runs, into `step`.
static uint32_t write_runs(struct backend_stage *stage, const struct part *part, uint32_t tile)
{
	uint32_t *step = (uint32_t *)(void *)stage->step->pointer, *pages = step + stage->places.pages;
	uint32_t *slots = step + stage->places.slots, *rope = step + stage->places.rope;
	uint32_t size = stage->shape.rope_size, per_kv = stage->shape.heads / stage->shape.kv_heads;
	uint32_t tiles = 0, row = 0, page = 0;
	for (uint32_t i = 0; i < part->runs; i++) {
		const struct stage_run *run = &stage->runs[i];
		uint32_t queries = run->row_count * per_kv;
		for (uint32_t first = 0; first < queries; first += tile) {
			const uint32_t all = stage->shape.encoder ? run->position + run->row_count : 0;
			struct stage_tile made = {row, run->position, first, least(tile, queries - first), page, all};
			memcpy(step + stage->places.tiles + tiles++ * (sizeof(made) / 4), &made, sizeof(made));
		}
		for (uint32_t j = 0; j < run->row_count; j++) {
			uint32_t position = run->position + j;
			slots[row + j] = run->pages[position / STAGE_PAGE_TOKENS] * STAGE_PAGE_TOKENS +
					 position % STAGE_PAGE_TOKENS;
		}
		if (model_is_recurrent(&stage->shape))
			memcpy(step + stage->places.runs + 4ull * i,
			       (uint32_t[]){row, run->row_count, run->state_from, run->state_to}, 16);
		uint32_t needs = up((uint64_t)run->position + run->row_count, STAGE_PAGE_TOKENS);
		memcpy(pages + page, run->pages, needs * sizeof(*pages));
		for (uint32_t table = 0; table < (stage->shape.rope_local ? 2 : 1); table++)
			memcpy(rope + ((size_t)table * stage->rows + row) * size,
			       stage->params.rope +
				       ((size_t)table * stage->params.context_tokens + run->position) * size,
			       (size_t)run->row_count * size * sizeof(*rope));
		row += run->row_count;
		page += needs;
	}
	return tiles;
}

static void write_part(struct backend_stage *stage, const struct stage_batch *batch, const struct part *part,
		       struct stage_shape *shape)
{
	uint32_t *step = (uint32_t *)(void *)stage->step->pointer, embedding = stage->shape.embedding;
	bool many = part->rows > 2 * part->runs;
	memset(shape, 0, sizeof(*shape));
	shape->rows = part->rows;
	shape->outputs = part->outputs;
	shape->logits = batch->logits && part->outputs;
	shape->argmax = batch->argmax && part->outputs;
	shape->hidden = batch->hidden && part->outputs;
	shape->tile = many ? stage->tile_many : stage->tile_few;
	shape->tiles = write_runs(stage, part, shape->tile);
	shape->splits = choose_splits(stage, part, shape->tiles);
	shape->runs = model_is_recurrent(&stage->shape) ? part->runs : 0;
	if (stage->params.embeds)
		memcpy(step + stage->places.tokens, batch->tokens + part->first_row, part->rows * sizeof(*step));
	else
		memcpy(step + stage->places.input, batch->input + (size_t)part->first_row * embedding,
		       (size_t)part->rows * embedding * sizeof(float));
	for (uint32_t i = 0; i < part->outputs; i++)
		step[stage->places.outputs + i] = batch->output_rows[part->first_output + i] - part->first_row;
}

// Submit the program's segments; one is on its way while the next is handed over.
static enum status run_program(struct backend_stage *stage, const struct stage_program *program, struct error *error)
{
	const struct vulkan_device_functions *fn = &stage->device->fn;
	struct backend_stream *stream = stage->stream;
	uint64_t point = 0;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < program->segment_count; i++) {
		uint64_t before = point;
		status = vulkan_stream_begin(stream, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, error);
		if (status)
			break;
		fn->vkCmdExecuteCommands(stream->commands, 1, &program->segments[i]);
		stream->host_sees = true;
		if (program->shape.logits && i + 1 == program->segment_count) {
			struct backend_copy copy = {.to = stage->told_logits,
						    .from = stage->logits,
						    .bytes = 4ull * program->shape.outputs * stage->shape.vocabulary};
			status = vulkan_copy(stream, &copy, error);
		}
		if (!status)
			status = vulkan_mark(stream, &point, error);
		if (!status && before)
			status = vulkan_wait(stream, before, stage_timeout_ns(stage->device), error);
	}
	return status ? status : vulkan_wait(stream, point, stage_timeout_ns(stage->device), error);
}

static void deliver(const struct backend_stage *stage, const struct stage_batch *batch, const struct part *part)
{
	size_t embedding = stage->shape.embedding, vocabulary = stage->shape.vocabulary, at = part->first_output;
	if (!stage->params.predicts)
		memcpy(batch->output + part->first_row * embedding, stage->told_rows->pointer,
		       part->rows * embedding * sizeof(float));
	if (!part->outputs)
		return;
	if (batch->logits)
		memcpy(batch->logits + at * vocabulary, stage->told_logits->pointer,
		       part->outputs * vocabulary * sizeof(float));
	if (batch->argmax)
		memcpy(batch->argmax + at, stage->told_tokens->pointer, part->outputs * sizeof(uint32_t));
	if (batch->hidden)
		memcpy(batch->hidden + at * embedding, stage->told_rows->pointer,
		       part->outputs * embedding * sizeof(float));
}

static enum status step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	struct part part = {0};
	enum status status = STATUS_OK;
	while (!status && part.first_row < batch->row_count) {
		struct stage_shape shape;
		struct stage_program *program;
		cut(stage, batch, &part);
		write_part(stage, batch, &part, &shape);
		status = stage_program(stage, &shape, &program, error);
		if (!status)
			status = run_program(stage, program, error);
		if (!status)
			deliver(stage, batch, &part);
		part.first_row += part.rows;
		part.first_output += part.outputs;
	}
	return status;
}

const struct stage_slots vulkan_stage = {
	.create = stage_make,
	.destroy = stage_finish,
	.memory = tell_memory,
	.step = step,
	.zero = vulkan_stage_zero,
	.read_pages = vulkan_stage_read_pages,
	.write_pages = vulkan_stage_write_pages,
};
