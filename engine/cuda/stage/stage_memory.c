/* Memory of a stage on the device: see stage.h. All allocations are in one list, so that one place frees them. */
#include "engine/cuda/stage/stage.h"

#include <stdlib.h>

static enum status out_of_memory(struct backend_stage *stage, uint64_t bytes, CUresult result, struct error *error)
{
	size_t unused = 0, total = 0;
	if (result != CUDA_ERROR_OUT_OF_MEMORY || stage->cuda->cuMemGetInfo_v2(&unused, &total))
		return cuda_failed(stage->cuda, error, "allocating memory", result);
	error_hint(error, "keep more layers in host memory, or use a smaller format or another device");
	return error_set(error, STATUS_OUT_OF_MEMORY, "%llu MiB more cannot be allocated on the device: %llu are free",
			 (unsigned long long)(bytes >> 20), (unsigned long long)(unused >> 20));
}

enum status stage_take(struct backend_stage *stage, CUdeviceptr *out, uint64_t bytes, bool host, struct error *error)
{
	struct cuda_memory *memory = calloc(1, sizeof(*memory));
	void *pointer = NULL;
	if (!memory)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	memory->host = host;
	bytes = bytes ? bytes : 1;
	CUresult result = host ? stage->cuda->cuMemHostAlloc(&pointer, bytes, CUDA_HOST_PORTABLE)
			       : stage->cuda->cuMemAlloc_v2(&memory->pointer, bytes);
	if (result) {
		free(memory);
		return host ? cuda_failed(stage->cuda, error, "cuMemHostAlloc", result)
			    : out_of_memory(stage, bytes, result, error);
	}
	if (host)
		memory->pointer = (CUdeviceptr)(uintptr_t)pointer;
	memory->next = stage->memory;
	stage->memory = memory;
	*out = memory->pointer;
	return STATUS_OK;
}

void stage_free(struct backend_stage *stage)
{
	while (stage->memory) {
		struct cuda_memory *memory = stage->memory;
		stage->memory = memory->next;
		if (memory->host && !stage->device->abandoned)
			stage->cuda->cuMemFreeHost((void *)(uintptr_t)memory->pointer);
		else if (!stage->device->abandoned)
			stage->cuda->cuMemFree_v2(memory->pointer);
		free(memory);
	}
}

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static enum status take_step(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const uint64_t run_words = sizeof(struct state_run) / 4;
	uint64_t pages = (params->context_tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	CUdeviceptr host = 0, argmax = 0, candidates = 0;
	stage->told_words = 4ull * params->batch_rows + params->batch_rows / (PROMPT_LEAST / 2) +
			    params->batch_outputs + (pages + run_words) * params->batch_sequences;
	enum status status = stage_take(stage, &stage->told, stage->told_words * 4, false, error);
	if (!status)
		status = stage_take(stage, &host, stage->told_words * 4, true, error);
	if (!status)
		status = stage_take(stage, &argmax, 4ull * params->batch_outputs, true, error);
	if (!status && params->predicts)
		status = stage_take(stage, &candidates, params->batch_outputs * sizeof(struct stage_candidates), true,
				    error);
	stage->candidates = (struct stage_candidates *)(uintptr_t)candidates;
	stage->told_host = (uint32_t *)(uintptr_t)host;
	stage->argmax = (uint32_t *)(uintptr_t)argmax;
	return status;
}

static enum status take_kv(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const struct model_shape *shape = &stage->shape;
	const uint32_t with_state = model_delta_layers(shape, params->first_layer, params->layer_count);
	const uint64_t kv = stage_kv_page(stage) * params->page_count * (params->layer_count - with_state);
	const uint64_t states = stage_state_bytes(shape) * stage_state_count(shape, params->batch_sequences) *
				with_state;
	uint64_t rope = model_rope_numbers(shape, params->context_tokens) * sizeof(float);
	stage->sizes.kv_bytes = kv + states;
	enum status status = stage_take(stage, &stage->kv, kv, false, error);
	if (!status && states)
		status = stage_take(stage, &stage->states, states, false, error);
	if (!status)
		status = stage_take(stage, &stage->rope, rope, false, error);
	if (status)
		return status;
	CUresult result = stage->cuda->cuMemcpyHtoD_v2(stage->rope, params->rope, rope);
	if (!result && kv)
		result = stage->cuda->cuMemsetD8Async(stage->kv, 0, kv, stage->stream);
	if (!result && states)
		result = stage->cuda->cuMemsetD8Async(stage->states, 0, states, stage->stream);
	return cuda_check(stage->device, error, "filling memory", result);
}

enum status stage_take_workspace(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	const struct model_shape *shape = &stage->shape;
	uint64_t rows = params->batch_rows, outputs = params->predicts ? params->batch_outputs : 0, total = 0;
	const bool latent = model_is_latent(shape) && params->layer_count;
	uint32_t attended = model_attended(shape), ffn = params->layer_count ? model_widest_layer(shape) : 0;
	// Memory for the rows of layers with a state, if there are any here.
	const bool with_state = model_delta_layers(shape, params->first_layer, params->layer_count);
	const uint64_t delta_rows = with_state ? rows : 0;
	const uint32_t values = with_state ? shape->delta.heads * shape->delta.value_size : 0;
	uint32_t widest = tile_padded(
		most(most(attended, ffn), most(shape->embedding, most(values, shape->latent.query_rank))));
	struct cuda_experts *experts = &stage->experts;
	experts->rows = params->batch_rows < STAGE_EXPERT_ROWS ? params->batch_rows : STAGE_EXPERT_ROWS;
	const uint32_t chosen = params->layer_count ? experts->rows * shape->experts_used : 0;
	const uint64_t slots = chosen ? stage_expert_slots(stage, chosen) : 0;
	const uint64_t of_experts = slots ? rows * shape->experts : 0, planes = stage->halves + 2u * stage->pairs;
	const uint64_t blocks = (rows + 2 * WIDE_ROWS - 1) / (2 * WIDE_ROWS) * (2 * WIDE_ROWS) * widest;
	stage->latent.rows = latent ? stage_latent_rows(stage) : 0;
	const uint64_t of_heads = latent ? rows * shape->heads : 0,
		       of_turn = (uint64_t)stage->latent.rows * shape->heads;
	const uint64_t by_head = of_turn * tile_padded(most(shape->latent.key_size, shape->latent.rank));
	const uint64_t by_expert = slots * tile_padded(most(shape->embedding, shape->expert_width));
	const uint64_t by_slot = by_head > by_expert ? by_head : by_expert;
	const uint64_t most_slots = slots > of_turn ? slots : of_turn;
	const struct {
		CUdeviceptr *out;
		uint64_t bytes;
	} pieces[] = {
		{&stage->x, rows * shape->embedding * 4},
		{&stage->qkv, latent ? 0 : rows * stage_qkv_width(shape) * 4},
		{&stage->attended, rows * attended * 4},
		{&stage->post, shape->post_norm || (slots && ffn) ? rows * shape->embedding * 4 : 0},
		{&stage->up, (rows < GEMV_ROWS ? rows : GEMV_ROWS) * ffn * 4},
		{&stage->gate_up, rows * 2 * ffn * 4},
		// in blocks: whole ones, and the rows of a block of results
		{&stage->prepared, (blocks > by_slot ? blocks : by_slot) * planes * 2},
		{&stage->factors, (rows > most_slots ? rows : most_slots) * 4},
		{&experts->scores, of_experts * 4},
		{&experts->shared_score, shape->shared_gate ? rows * 4 : 0},
		{&experts->chosen, slots ? rows * shape->experts_used * 4 : 0},
		{&experts->weights, slots ? rows * shape->experts_used * 4 : 0},
		{&experts->places, slots * 4},
		{&experts->slot_rows, slots * 4},
		{&experts->groups,
		 slots ? stage_expert_groups(stage, (uint32_t)slots, STAGE_EXPERT_ALIGN) * sizeof(struct gemm_group)
		       : 0},
		{&experts->gate_up, slots * 2 * shape->expert_width * 4},
		{&experts->out, slots * shape->embedding * 4},
		{&stage->latent.query, latent ? rows * shape->latent.query_rank * 4 : 0},
		{&stage->latent.k, latent ? rows * shape->head_size * 4 : 0},
		{&stage->latent.queries, of_heads * shape->latent.key_size * 4},
		{&stage->latent.q, of_turn * shape->head_size * 4},
		{&stage->latent.attended, of_turn * stage_latent_stride(shape) * 4},
		{&stage->delta.in, delta_rows * stage_delta_width(shape) * 4},
		{&stage->delta.mixed, delta_rows * model_delta_channels(&shape->delta) * 4},
		{&stage->delta.out, delta_rows * values * 4},
		{&stage->partial, STAGE_PARTIAL_BYTES},
		{&stage->ready, (STAGE_READY + 2) * 4},
		{&stage->logits, outputs * shape->vocabulary * 4},
		{&stage->hidden, outputs * shape->embedding * 4},
	};
	enum status status = take_step(stage, error);
	for (size_t i = 0; !status && i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		total += pieces[i].bytes;
		status = stage_take(stage, pieces[i].out, pieces[i].bytes, false, error);
	}
	if (!status)
		status = take_kv(stage, error);
	stage->sizes.workspace_bytes = total + stage->told_words * 4 +
				       4 * model_rope_numbers(shape, params->context_tokens);
	if (status)
		return status;
	return cuda_check(stage->device, error, "cuMemsetD8Async",
			  stage->cuda->cuMemsetD8Async(stage->ready, 0, (STAGE_READY + 2) * 4, stage->stream));
}
