/* The CPU back end: stages of models. See stage.h for what lies where; this is making, loading and freeing them. */
#include "engine/cpu/stage/stage.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, TILE_COLUMNS = TILE_GROUPS * PANEL_GROUP };

// The first buffer of an arena, and the largest that one tensor does not need alone: each is twice the one before.
static const uint64_t arena_least = 4ull << 20, arena_most = 512ull << 20;

static enum status no_memory(struct error *error)
{
	return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage's records");
}

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// A buffer of so many bytes or, if there is no room for that, of fewer: the rest of a model may need less.
static enum status arena_grow(struct backend_stage *stage, struct backend_buffer **out, uint64_t bytes, uint64_t least,
			      struct error *error)
{
	for (;;) {
		struct backend_buffer_params params = {.bytes = bytes, .memory = EXOGPU_MEMORY_DEVICE};
		*error = (struct error){0};
		enum status status = cpu_buffer_create(stage->device, out, &params, error);
		if (status != STATUS_OUT_OF_MEMORY || bytes == least)
			return status;
		bytes = aligned(bytes / 2);
		bytes = bytes < least ? least : bytes;
	}
}

static enum status arena_take(struct backend_stage *stage, void **out, uint64_t bytes, struct error *error)
{
	struct stage_arena *arena = &stage->arena;
	struct backend_buffer *last = arena->buffer_count ? arena->buffers[arena->buffer_count - 1] : NULL;
	bytes = aligned(bytes);
	if (!last || bytes > last->bytes - arena->buffer_used) {
		uint64_t next = last ? last->bytes * 2 : arena_least;
		next = next > arena_most ? arena_most : next;
		next = next < bytes ? bytes : next;
		struct backend_buffer **grown = realloc(arena->buffers,
							(arena->buffer_count + 1) * sizeof(struct backend_buffer *));
		if (!grown)
			return no_memory(error);
		arena->buffers = grown;
		enum status status = arena_grow(stage, &last, next, bytes, error);
		if (status)
			return status;
		arena->buffers[arena->buffer_count++] = last;
		arena->buffer_used = 0;
	}
	*out = last->data + arena->buffer_used;
	arena->buffer_used += bytes;
	arena->used += bytes;
	return STATUS_OK;
}

const struct stage_kernels *stage_kernels(const struct cpu_level *level)
{
#ifdef __x86_64__
#ifndef EXOGPU_WITHOUT_STAGE_AVX512
	__builtin_cpu_init();
	if (level == &cpu_level_amx)
		return &stage_kernels_amx;
	if (level == &cpu_level_avx512 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vnni"))
		return &stage_kernels_avx512;
#endif
	// Every processor with AVX2 has F16C.
	if (level != &cpu_level_scalar)
		return &stage_kernels_avx2;
#endif
	(void)level;
	return &stage_kernels_scalar;
}

// ---- loading ----

struct packing {
	const struct panels *panels;
	const struct model_tensor *tensor;
};

static void pack_piece(void *context, uint64_t index)
{
	const struct packing *packing = context;
	panels_pack(packing->panels, packing->tensor, (uint32_t)index);
}

static enum status ask(struct backend_stage *stage, enum model_role role, uint32_t layer, struct model_tensor *tensor,
		       struct error *error)
{
	*tensor = (struct model_tensor){0};
	return stage->params.tensor(stage->params.context, role, layer, tensor, error);
}

static enum status tell_progress(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	return params->progress ? params->progress(params->context, stage->arena.used, error) : STATUS_OK;
}

static enum status load_matrix(struct backend_stage *stage, struct panels *panels, enum model_role role, uint32_t layer,
			       struct error *error)
{
	struct model_tensor tensor;
	void *data = NULL;
	enum status status = ask(stage, role, layer, &tensor, error);
	if (status)
		return status;
	panels_init(panels, &tensor);
	status = arena_take(stage, &data, panels_bytes(panels), error);
	if (status)
		return status;
	panels->data = data;
	struct packing packing = {panels, &tensor};
	pool_run(stage->device->pool, pack_piece, &packing, panels->panel_count);
	return tell_progress(stage, error);
}

// A tensor with the rows of all experts, or of all heads: each has panels of its own.
static enum status load_experts(struct backend_stage *stage, struct panels **out, enum model_role role, uint32_t layer,
				struct error *error)
{
	struct model_tensor all;
	const uint32_t experts = model_role_is_heads(role) ? stage->shape->heads : stage->shape->experts;
	enum status status = ask(stage, role, layer, &all, error);
	if (status)
		return status;
	*out = calloc(experts, sizeof(**out));
	if (!*out)
		return no_memory(error);
	for (uint32_t i = 0; !status && i < experts; i++) {
		struct model_tensor one = all;
		void *data = NULL;
		one.rows = all.rows / experts;
		one.bytes = all.bytes / experts;
		one.data = all.data + i * one.bytes;
		panels_init(&(*out)[i], &one);
		status = arena_take(stage, &data, panels_bytes(&(*out)[i]), error);
		if (status)
			return status;
		(*out)[i].data = data;
		struct packing packing = {&(*out)[i], &one};
		pool_run(stage->device->pool, pack_piece, &packing, (*out)[i].panel_count);
	}
	return tell_progress(stage, error);
}

static enum status load_vector(struct backend_stage *stage, float **out, enum model_role role, uint32_t layer,
			       struct error *error)
{
	struct model_tensor tensor;
	void *data = NULL;
	enum status status = ask(stage, role, layer, &tensor, error);
	if (!status)
		status = arena_take(stage, &data, tensor.bytes, error);
	if (status)
		return status;
	memcpy(data, tensor.data, tensor.bytes);
	*out = data;
	return tell_progress(stage, error);
}

static enum status load_layer(struct backend_stage *stage, struct stage_layer *layer, uint32_t number,
			      struct error *error)
{
	const struct {
		enum model_role role;
		float **vector;
		struct panels *matrix, **experts;
	} parts[] = {
		{ROLE_ATTENTION_NORM, &layer->attention_norm, NULL, NULL},
		{ROLE_Q, NULL, &layer->q, NULL},
		{ROLE_K, NULL, &layer->k, NULL},
		{ROLE_V, NULL, &layer->v, NULL},
		{ROLE_Q_BIAS, &layer->q_bias, NULL, NULL},
		{ROLE_K_BIAS, &layer->k_bias, NULL, NULL},
		{ROLE_V_BIAS, &layer->v_bias, NULL, NULL},
		{ROLE_Q_NORM, &layer->q_norm, NULL, NULL},
		{ROLE_K_NORM, &layer->k_norm, NULL, NULL},
		{ROLE_Q_A, NULL, &layer->q_a, NULL},
		{ROLE_K_B, NULL, NULL, &layer->k_b},
		{ROLE_V_B, NULL, NULL, &layer->v_b},
		{ROLE_ATTENTION_OUTPUT, NULL, &layer->attention_output, NULL},
		{ROLE_ATTENTION_OUTPUT_BIAS, &layer->output_bias, NULL, NULL},
		{ROLE_ATTENTION_POST_NORM, &layer->attention_post_norm, NULL, NULL},
		{ROLE_ATTENTION_POST_BIAS, &layer->attention_end.bias, NULL, NULL},
		{ROLE_FFN_NORM, &layer->ffn_norm, NULL, NULL},
		{ROLE_FFN_GATE, NULL, &layer->gate, NULL},
		{ROLE_FFN_UP, NULL, &layer->up, NULL},
		{ROLE_FFN_UP_BIAS, &layer->up_bias, NULL, NULL},
		{ROLE_FFN_DOWN, NULL, &layer->down, NULL},
		{ROLE_FFN_DOWN_BIAS, &layer->down_bias, NULL, NULL},
		{ROLE_FFN_POST_NORM, &layer->ffn_post_norm, NULL, NULL},
		{ROLE_FFN_POST_BIAS, &layer->ffn_end.bias, NULL, NULL},
		{ROLE_ROUTER, NULL, &layer->router, NULL},
		{ROLE_EXPERT_GATE, NULL, NULL, &layer->expert_gate},
		{ROLE_EXPERT_UP, NULL, NULL, &layer->expert_up},
		{ROLE_EXPERT_DOWN, NULL, NULL, &layer->expert_down},
		{ROLE_SHARED_GATE, NULL, &layer->shared_gate, NULL},
		{ROLE_DELTA_QKV, NULL, &layer->delta.qkv, NULL},
		{ROLE_DELTA_GATE, NULL, &layer->delta.gate, NULL},
		{ROLE_DELTA_BETA, NULL, &layer->delta.beta, NULL},
		{ROLE_DELTA_ALPHA, NULL, &layer->delta.alpha, NULL},
		{ROLE_DELTA_CONV, &layer->delta.conv, NULL, NULL},
		{ROLE_DELTA_DECAY, &layer->delta.decay, NULL, NULL},
		{ROLE_DELTA_BIAS, &layer->delta.bias, NULL, NULL},
		{ROLE_DELTA_NORM, &layer->delta.norm, NULL, NULL},
		{ROLE_DELTA_OUTPUT, NULL, &layer->delta.output, NULL},
		{ROLE_SINKS, &layer->sinks, NULL, NULL},
		{ROLE_ROUTER_BIAS, &layer->router_bias, NULL, NULL},
		{ROLE_ROUTER_CHOICE, &layer->router_choice, NULL, NULL},
		{ROLE_EXPERT_GATE_BIAS, &layer->expert_gate_bias, NULL, NULL},
		{ROLE_EXPERT_UP_BIAS, &layer->expert_up_bias, NULL, NULL},
		{ROLE_EXPERT_DOWN_BIAS, &layer->expert_down_bias, NULL, NULL},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (!model_layer_has_role(stage->shape, number, parts[i].role))
			continue;
		if (parts[i].experts)
			status = load_experts(stage, parts[i].experts, parts[i].role, number, error);
		else if (parts[i].matrix)
			status = load_matrix(stage, parts[i].matrix, parts[i].role, number, error);
		else
			status = load_vector(stage, parts[i].vector, parts[i].role, number, error);
	}
	layer->attention_end.weights = layer->attention_post_norm;
	layer->ffn_end.weights = layer->ffn_post_norm;
	return status;
}

static enum status load(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	enum status status = STATUS_OK;
	if (params->embeds)
		status = load_matrix(stage, &stage->embedding, ROLE_TOKEN_EMBEDDING, 0, error);
	for (uint32_t i = 0; !status && i < params->layer_count; i++)
		status = load_layer(stage, &stage->layers[i], params->first_layer + i, error);
	if (status || !params->predicts)
		return status;
	status = load_vector(stage, &stage->output_norm, ROLE_OUTPUT_NORM, 0, error);
	if (status)
		return status;
	if (params->embeds && stage->shape->tied)
		stage->output = stage->embedding;
	else
		status = load_matrix(stage, &stage->output, ROLE_OUTPUT, 0, error);
	return status;
}

// ---- memory that steps use ----

struct workspace_part {
	void *pointer; // to a pointer
	uint64_t count;
};
enum { EXPERT_PARTS = 12, DELTA_PARTS = 7, WORKSPACE_PARTS = 19 };

// The parts of the workspace for a mixture of experts; other models have none.
static void list_experts(struct backend_stage *stage, struct workspace_part parts[EXPERT_PARTS])
{
	const struct model_shape *shape = stage->shape;
	struct stage_experts *experts = &stage->experts;
	const uint64_t rows = shape->experts ? stage->params.batch_rows : 0, used = shape->experts_used;
	const uint64_t embedding = stage_padded(shape->embedding), width = stage_padded(shape->expert_width);
	const uint64_t widest = width > embedding ? width : embedding;
	experts->rows = (uint32_t)(rows < STAGE_EXPERT_ROWS ? rows : STAGE_EXPERT_ROWS);
	const uint64_t slots = experts->rows * used;
	// Jobs with tiles have at least TILES_LEAST rows each, and the last tile of a job may be almost empty.
	const uint64_t tiles = stage->kernels->make_tiles ? slots / 16 + slots / TILES_LEAST : 0;
	const struct workspace_part all[EXPERT_PARTS] = {
		{&experts->scores, rows * shape->experts},
		{&experts->shared_score, shape->shared_gate ? rows : 0},
		{&experts->chosen, rows * used},
		{&experts->weights, rows * used},
		{&experts->slots, slots},
		{&experts->slot_rows, slots},
		{&experts->values, slots * embedding},
		{&experts->gate, slots * width},
		{&experts->up, slots * width},
		{&experts->groups, slots * (widest / PANEL_GROUP) * sizeof(struct stage_group) / sizeof(float)},
		{&experts->tiles,
		 tiles * ((widest + TILE_COLUMNS - 1) / TILE_COLUMNS) * TILE_ROW_BYTES / sizeof(float)},
		{&experts->jobs, shape->experts * sizeof(struct stage_job) / sizeof(float)},
	};
	memcpy(parts, all, sizeof(all));
}

// The parts of the workspace for layers with a state; other models have none.
static void list_delta(struct backend_stage *stage, struct workspace_part parts[DELTA_PARTS])
{
	const struct model_delta *sizes = &stage->shape->delta;
	struct stage_delta *delta = &stage->delta;
	const uint64_t rows = stage->params.batch_rows, values = (uint64_t)sizes->heads * sizes->value_size;
	const struct workspace_part all[DELTA_PARTS] = {
		{&delta->channels, rows * model_delta_channels(sizes)},
		{&delta->mixed, rows * model_delta_channels(sizes)},
		{&delta->gate, rows * values},
		{&delta->beta, rows * model_delta_betas(sizes)},
		{&delta->alpha, rows * sizes->heads},
		{&delta->out, rows * stage_padded((uint32_t)values)},
		{&delta->run_rows, sizes->heads ? stage->params.batch_sequences : 0},
	};
	memcpy(parts, all, sizeof(all));
}

static enum status make_workspace(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const struct model_shape *shape = stage->shape;
	uint64_t rows = params->batch_rows, kv_size = (uint64_t)shape->kv_heads * shape->head_size;
	uint64_t embedding = stage_padded(shape->embedding), heads = stage_padded(model_attended(shape));
	const uint64_t query_rank = stage_padded(shape->latent.query_rank);
	uint64_t widest = heads > embedding ? heads : embedding, feed_forward = stage_padded(model_widest_layer(shape));
	const uint64_t values = stage_padded(shape->delta.heads * shape->delta.value_size);
	widest = widest > feed_forward ? widest : feed_forward;
	widest = widest > values ? widest : values;
	widest = widest > query_rank ? widest : query_rank;
	uint64_t cut = STAGE_CHUNKS * (rows < STAGE_ATTENTION_PIECES ? rows : STAGE_ATTENTION_PIECES);
	uint64_t partials = rows > cut ? rows : cut, group_floats = sizeof(struct stage_group) / sizeof(float);
	uint64_t tile_runs = stage->kernels->make_tiles
				     ? (rows + 15) / 16 * ((widest + TILE_COLUMNS - 1) / TILE_COLUMNS)
				     : 0;
	struct workspace_part parts[] = {
		{&stage->x, params->slice ? 0 : rows * embedding},
		{&stage->summand, params->slices || shape->post_norm || shape->shared_gate ? rows * embedding : 0},
		{&stage->normed, rows * embedding},
		{&stage->q, rows * stage_padded(shape->heads * model_query_rows(shape))},
		{&stage->attended, rows * heads},
		{&stage->k, rows * kv_size},
		{&stage->v, model_is_latent(shape) ? 0 : rows * kv_size},
		{&stage->query, rows * query_rank},
		{&stage->head_q, rows * shape->heads * shape->latent.key_size},
		{&stage->gate, rows * feed_forward},
		{&stage->up, rows * feed_forward},
		{&stage->logits, params->predicts ? (uint64_t)params->batch_outputs * shape->vocabulary : 0},
		{&stage->partial, partials * shape->heads * ((uint64_t)model_value_size(shape) + 2)},
		{&stage->groups, rows * (widest / PANEL_GROUP) * group_floats},
		{&stage->tiles, tile_runs * TILE_ROW_BYTES / sizeof(float)},
		{&stage->row_positions, rows},
		{&stage->row_ends, rows},
		{&stage->row_runs, rows},
		{&stage->row_groups, rows + 1},
		[WORKSPACE_PARTS + EXPERT_PARTS + DELTA_PARTS - 1] = {NULL, 0},
	};
	list_experts(stage, parts + WORKSPACE_PARTS);
	list_delta(stage, parts + WORKSPACE_PARTS + EXPERT_PARTS);
	struct backend_buffer_params buffer = {.memory = EXOGPU_MEMORY_DEVICE};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		buffer.bytes += aligned(parts[i].count * sizeof(float));
	enum status status = cpu_buffer_create(stage->device, &stage->workspace, &buffer, error);
	if (status)
		return status;
	uint8_t *at = stage->workspace->data;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		memcpy(parts[i].pointer, &at, sizeof(at));
		at += aligned(parts[i].count * sizeof(float));
	}
	return STATUS_OK;
}

static enum status make_memory(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const uint32_t with_state = model_delta_layers(stage->shape, params->first_layer, params->layer_count);
	struct backend_buffer_params kv = {
		.bytes = stage_page_bytes(stage->shape) * params->page_count * (params->layer_count - with_state),
		.memory = EXOGPU_MEMORY_DEVICE,
	};
	const struct backend_buffer_params states = {
		.bytes = stage_state_bytes(stage->shape) * stage_state_count(stage->shape, params->batch_sequences) *
			 with_state,
		.memory = EXOGPU_MEMORY_DEVICE,
	};
	uint32_t kv_index = 0, delta_index = 0;
	for (uint32_t i = 0; i < params->layer_count; i++) {
		const bool delta = stage->shape->layer_kinds[params->first_layer + i] & LAYER_DELTA;
		stage->layers[i].kv_index = delta ? 0 : kv_index++;
		stage->layers[i].delta.index = delta ? delta_index++ : 0;
	}
	enum status status = kv.bytes ? cpu_buffer_create(stage->device, &stage->kv, &kv, error) : STATUS_OK;
	if (!status && states.bytes)
		status = cpu_buffer_create(stage->device, &stage->states, &states, error);
	return status ? status : make_workspace(stage, error);
}

static void cpu_stage_destroy(struct backend_device *device, struct backend_stage **stage_pointer)
{
	struct backend_stage *stage = *stage_pointer;
	if (!stage)
		return;
	for (uint32_t i = 0; stage->layers && i < stage->params.layer_count; i++) {
		free(stage->layers[i].expert_gate);
		free(stage->layers[i].expert_up);
		free(stage->layers[i].expert_down);
		free(stage->layers[i].k_b);
		free(stage->layers[i].v_b);
	}
	for (uint32_t i = 0; i < stage->arena.buffer_count; i++)
		cpu_buffer_destroy(device, &stage->arena.buffers[i]);
	free(stage->arena.buffers);
	cpu_buffer_destroy(device, &stage->kv);
	cpu_buffer_destroy(device, &stage->states);
	cpu_buffer_destroy(device, &stage->workspace);
	free(stage->layers);
	free(stage);
	*stage_pointer = NULL;
}

static enum status cpu_stage_create(struct backend_device *device, struct backend_stage **out,
				    const struct stage_params *params, struct error *error)
{
	struct backend_stage *stage = calloc(1, sizeof(*stage));
	if (!stage)
		return no_memory(error);
	*stage = (struct backend_stage){
		.device = device, .params = *params, .shape = params->shape, .kernels = stage_kernels(device->level)};
	stage->layers = calloc(params->layer_count ? params->layer_count : 1, sizeof(*stage->layers));
	enum status status = stage->layers ? make_memory(stage, error) : no_memory(error);
	if (!status)
		status = load(stage, error);
	if (status)
		cpu_stage_destroy(device, &stage);
	*out = stage;
	return status;
}

static void cpu_stage_memory(const struct backend_stage *stage, struct stage_memory *memory)
{
	*memory = (struct stage_memory){
		.weights_bytes = stage->arena.used,
		.kv_bytes = (stage->kv ? stage->kv->bytes : 0) + (stage->states ? stage->states->bytes : 0),
		.workspace_bytes = stage->workspace->bytes,
	};
}

static enum status cpu_stage_zero(struct backend_stage *stage, const uint32_t *pages, uint32_t count,
				  struct error *error)
{
	const struct stage_params *params = &stage->params;
	const uint64_t page_bytes = stage_page_bytes(stage->shape);
	const uint32_t with_state = model_delta_layers(stage->shape, params->first_layer, params->layer_count);
	const uint64_t state_bytes = stage_state_bytes(stage->shape) * with_state;
	(void)error;
	for (uint32_t i = 0; i < count; i++) {
		const bool is_state = pages[i] >= params->page_count;
		if (is_state && state_bytes)
			memset(stage->states->data + (pages[i] - params->page_count) * state_bytes, 0, state_bytes);
		for (uint32_t layer = 0; layer < params->layer_count - with_state && !is_state; layer++)
			memset(stage->kv->data + ((uint64_t)layer * params->page_count + pages[i]) * page_bytes, 0,
			       page_bytes);
	}
	return STATUS_OK;
}

static enum status cpu_stage_join(struct backend_stage *const *slices, uint32_t count, bool *linked,
				  struct error *error)
{
	(void)error;
	for (uint32_t i = 1; i < count; i++)
		slices[i]->x = slices[0]->x;
	*linked = true;
	return STATUS_OK;
}

const struct stage_slots cpu_stage = {
	.create = cpu_stage_create,
	.destroy = cpu_stage_destroy,
	.memory = cpu_stage_memory,
	.step = cpu_stage_step,
	.zero = cpu_stage_zero,
	.read_pages = cpu_stage_read_pages,
	.write_pages = cpu_stage_write_pages,
	.join = cpu_stage_join,
	.step_joined = cpu_stage_step_joined,
};
