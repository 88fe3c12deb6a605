/* The halves of a layer, and the steps before the first and after the last layer, as kernels of a stream. Products:
 * stage_product.c; experts: stage_experts.c. In which order: stage_step.c. */
#include "engine/cuda/stage/stage_product.h"

#include <math.h>

enum {
	EMBED_BLOCK = 256,
	ARGMAX_BLOCK = 256,
	ARGMAX_BLOCKS = 64, // of a row
	CANDIDATES_BLOCK = 1024,
};

uint32_t stage_qkv_width(const struct model_shape *shape)
{
	return shape->heads * model_query_rows(shape) + 2 * shape->kv_heads * shape->head_size;
}

uint64_t stage_kv_page(const struct backend_stage *stage)
{
	if (model_is_latent(&stage->shape))
		return (uint64_t)STAGE_PAGE_TOKENS * stage->head_padded * sizeof(uint16_t);
	return 2ull * stage->shape.kv_heads * STAGE_PAGE_TOKENS * stage->head_padded * sizeof(uint16_t);
}

struct attention_params stage_attention_params(const struct backend_stage *stage, const struct cuda_step *step,
					       uint32_t layer)
{
	const struct model_shape *shape = &stage->shape;
	const struct cuda_layer *weights = &stage->layers[layer];
	const uint32_t number = stage->params.first_layer + layer;
	const unsigned kinds = shape->layer_kinds[number];
	const bool of_heads = shape->qk_norm == QK_NORM_HEADS;
	const double log2_e = 1.4426950408889634;
	uint64_t local = kinds & LAYER_LOCAL ? 4ull * stage->params.context_tokens * shape->rope_size : 0;
	uint32_t lanes = 1;
	while (lanes < 32 && lanes * 8 < stage->head_padded)
		lanes *= 2;
	return (struct attention_params){
		.qkv = stage->qkv,
		.q_norm = of_heads ? weights->q_norm : 0,
		.k_norm = of_heads ? weights->k_norm : 0,
		.rope = stage->rope + local,
		.kv = stage->kv + weights->place * stage->params.page_count * stage_kv_page(stage),
		.positions = step->positions,
		.ends = shape->encoder ? step->tokens : 0,
		.tables = step->tables,
		.pages = step->pages,
		.tiles = step->tiles,
		.partial = stage->partial,
		.ready = stage->ready,
		.out = stage->attended,
		.rows = step->rows,
		.qkv_stride = stage_qkv_width(shape),
		.q_rows = model_query_rows(shape),
		.heads = shape->heads,
		.kv_heads = shape->kv_heads,
		.head_size = shape->head_size,
		.head_padded = stage->head_padded,
		.rope_size = kinds & LAYER_UNTURNED ? 0 : shape->rope_size,
		.rope_halves = shape->rope_halves,
		.head_blocks = stage->head_blocks,
		.lanes = lanes,
		.epsilon = shape->norm_epsilon,
		.window = model_layer_window(shape, number),
		.sinks = weights->sinks,
		.scale = (float)(shape->attention_scale > 0 ? log2_e * (double)shape->attention_scale
							    : log2_e / sqrt((double)shape->head_size)),
		.cap = (float)(log2_e * (double)shape->attention_cap),
	};
}

static enum status attend(struct backend_stage *stage, const struct cuda_step *step, uint32_t layer, bool turned,
			  struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct attention_params params = stage_attention_params(stage, step, layer);
	uint32_t blocks = shape->kv_heads * stage->head_blocks, splits = 1;
	bool prompts = turned && step->tile_count;
	uint32_t rows = prompts ? step->single_count : step->rows;
	uint64_t part_bytes = (uint64_t)rows * blocks * ATTENTION_HEADS * (stage->head_padded + 2) * 4;
	while (splits < ATTENTION_SPLITS && rows * blocks * splits < 2 * stage->units &&
	       splits * 2 * part_bytes <= STAGE_PARTIAL_BYTES && rows * blocks <= STAGE_READY)
		splits *= 2;
	params.singles = prompts ? step->singles : 0;
	params.splits = splits;
	params.turned = turned;
	struct stage_launch launch = {.block = ATTENTION_WARPS * 32, .params = &params};
	enum status status = STATUS_OK;
	if (turned) {
		launch.kernel = STAGE_TURN_ROWS;
		launch.grid[0] = shape->kv_heads;
		launch.grid[1] = step->rows;
		launch.grid[2] = 1;
		launch.shared_bytes = ATTENTION_WARPS * stage->head_padded * 4;
		status = stage_launch(stage, &launch, error);
	}
	if (!status && prompts) {
		launch.kernel = shape->head_size == 64 ? STAGE_PROMPT_64 : STAGE_PROMPT_128;
		launch.block = PROMPT_ROWS * 2;
		launch.grid[0] = shape->heads;
		launch.grid[1] = step->tile_count;
		launch.shared_bytes = 4 * PROMPT_KEYS * shape->head_size * 2;
		status = stage_launch(stage, &launch, error);
		launch.block = ATTENTION_WARPS * 32;
	}
	if (status || !rows)
		return status;
	launch.kernel = stage->head_padded > 256 ? STAGE_ATTEND_2 : STAGE_ATTEND_1;
	launch.grid[0] = blocks * splits;
	launch.grid[1] = rows;
	launch.grid[2] = 1;
	launch.shared_bytes = (ATTENTION_HEADS * stage->head_padded +
			       ATTENTION_WARPS * ATTENTION_HEADS * (stage->head_padded + 2)) *
			      4;
	return stage_launch(stage, &launch, error);
}

// A norm of whole rows, in place or, if `add`, added to stage->x.
static enum status post(struct backend_stage *stage, const struct post_params *params, uint32_t rows,
			struct error *error)
{
	return stage_launch(stage,
			    &(struct stage_launch){
				    .kernel = STAGE_POST, .grid = {rows, 1, 1}, .block = EMBED_BLOCK, .params = params},
			    error);
}

// x += the norm of what half a layer gives, of models that have it.
static enum status add_post(struct backend_stage *stage, CUdeviceptr norm, uint32_t rows, struct error *error)
{
	const uint32_t embedding = stage->shape.embedding;
	if (!stage->shape.post_norm)
		return STATUS_OK;
	return post(stage,
		    &(struct post_params){.from = stage->post,
					  .norm = norm,
					  .to = stage->x,
					  .columns = embedding,
					  .stride = embedding,
					  .mode = POST_ADD,
					  .epsilon = stage->shape.norm_epsilon},
		    rows, error);
}

// The end of half a layer of an encoder: x = norm(x + bias).
static enum status end_half(struct backend_stage *stage, const struct post_params *of, uint32_t rows,
			    struct error *error)
{
	struct post_params params = *of;
	if (!stage->shape.encoder)
		return STATUS_OK;
	params.from = params.to = stage->x;
	params.columns = params.stride = stage->shape.embedding;
	params.mode = POST_END;
	params.epsilon = stage->shape.norm_epsilon;
	return post(stage, &params, rows, error);
}

// A feed-forward network without a gate: up, and GELU of it with its bias.
static enum status up_alone(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			    struct error *error)
{
	const uint32_t columns = stage->shape.feed_forward;
	const struct stage_product up = {.matrices = {&layer->up},
					 .count = 1,
					 .x = stage->x,
					 .norm = layer->ffn_norm,
					 .y = stage->gate_up,
					 .rows = rows,
					 .columns = stage->shape.embedding,
					 .y_stride = columns};
	enum status status = stage_product_multiply(stage, &up, error);
	return status ? status
		      : post(stage,
			     &(struct post_params){.from = stage->gate_up,
						   .to = stage->gate_up,
						   .bias = layer->up_bias,
						   .columns = columns,
						   .stride = columns,
						   .mode = POST_GELU},
			     rows, error);
}

// For olmo2: norms of q and k over all their heads.
static enum status whole_norms(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			       struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct post_params params = {.from = stage->qkv,
				     .norm = layer->q_norm,
				     .to = stage->qkv,
				     .columns = shape->heads * shape->head_size,
				     .stride = stage_qkv_width(shape),
				     .epsilon = shape->norm_epsilon};
	if (shape->qk_norm != QK_NORM_WHOLE)
		return STATUS_OK;
	enum status status = post(stage, &params, rows, error);
	params.from = params.to = stage->qkv + params.columns * 4ull;
	params.norm = layer->k_norm;
	params.columns = shape->kv_heads * shape->head_size;
	return status ? status : post(stage, &params, rows, error);
}

// The place of half a layer's result: x, or a buffer if it is processed before it is added.
static CUdeviceptr result_of(const struct backend_stage *stage, unsigned half)
{
	if (stage->params.slices)
		return stage->slice.summands[half];
	return stage->shape.post_norm ? stage->post : stage->x;
}

// The part for all rows, `width` wide: down(silu(gate(norm x)) * up(norm x)). beside: there are experts, too.
static enum status feed_forward(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t width,
				bool beside, uint32_t rows, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	bool apart = stage->params.slices || shape->post_norm || beside;
	const bool silu = shape->gate == GATE_SILU;
	struct stage_product in = {.matrices = {&layer->gate, &layer->up},
				   .count = 2,
				   .x = stage->x,
				   .norm = layer->ffn_norm,
				   .y = stage->up,
				   .rows = rows,
				   .columns = shape->embedding,
				   .y_stride = width};
	struct stage_product out = {.matrices = {&layer->down},
				    .count = 1,
				    .x = stage->up,
				    .y = beside ? stage->post : result_of(stage, 0),
				    .rows = rows,
				    .columns = width,
				    .y_stride = shape->embedding,
				    .mode = apart ? GEMV_STORE : GEMV_ADD};
	struct gemv_params params;
	struct stage_launch launch;
	enum status status;
	if (shape->gate == GATE_NONE) {
		status = up_alone(stage, layer, rows, error);
		out.x = stage->gate_up;
		return status ? status : stage_product_multiply(stage, &out, error);
	}
	if (silu && stage_gemv_plan(stage, &in, true, &params, &launch)) {
		launch.params = &params;
		status = stage_launch(stage, &launch, error);
		return status ? status : stage_product_multiply(stage, &out, error);
	}
	if (silu && stage_goes_wide(stage, &in) && layer->gate.format == layer->up.format) {
		in.mode = GEMV_GATED;
		in.y = out.x = stage->gate_up;
		status = stage_product_wide(stage, &in, error);
		return status ? status : stage_product_many(stage, &out, error);
	}
	// Side by side, as one matrix of twice the rows would be: the second into its own half.
	struct stage_matrix up = layer->up;
	up.first = width;
	in.matrices[1] = &up;
	in.y = stage->gate_up;
	in.y_stride = 2 * width;
	status = stage_product_many(stage, &in, error);
	out.x = stage->gate_up;
	out.gated = true;
	return status ? status : stage_product_many(stage, &out, error);
}

enum status stage_feed_forward(struct backend_stage *stage, const struct cuda_step *step, uint32_t index,
			       struct error *error)
{
	const struct cuda_layer *layer = &stage->layers[index];
	const uint32_t number = stage->params.first_layer + index, width = model_layer_width(&stage->shape, number);
	const bool experts = model_layer_has_experts(&stage->shape, number);
	enum status status = STATUS_OK;
	if (width)
		status = feed_forward(stage, layer, width, experts, step->rows, error);
	if (!status && experts)
		status = stage_experts(stage, layer, step->rows, error);
	if (!status)
		status = add_post(stage, layer->ffn_post_norm, step->rows, error);
	const struct post_params end = {
		.norm = layer->ffn_post_norm, .bias = layer->down_bias, .shift = layer->ffn_post_bias};
	return status ? status : end_half(stage, &end, step->rows, error);
}

enum status stage_attention(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, bool single,
			    struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct cuda_layer *layer = &stage->layers[index];
	uint32_t attended = shape->heads * shape->head_size;
	bool apart = stage->params.slices || shape->post_norm;
	const struct stage_product qkv = {.matrices = {&layer->q, &layer->k, &layer->v},
					  .count = 3,
					  .x = stage->x,
					  .norm = layer->attention_norm,
					  .y = stage->qkv,
					  .rows = step->rows,
					  .columns = shape->embedding,
					  .y_stride = stage_qkv_width(shape)};
	const struct stage_product out = {.matrices = {&layer->attention_output},
					  .count = 1,
					  .x = stage->attended,
					  .y = result_of(stage, 1),
					  .rows = step->rows,
					  .columns = attended,
					  .y_stride = shape->embedding,
					  .mode = apart ? GEMV_STORE : GEMV_ADD};
	enum status status = stage_product_multiply(stage, &qkv, error);
	if (!status)
		status = whole_norms(stage, layer, step->rows, error);
	if (!status)
		status = attend(stage, step, index, !single, error);
	if (!status)
		status = stage_product_multiply(stage, &out, error);
	if (!status)
		status = add_post(stage, layer->attention_post_norm, step->rows, error);
	const struct post_params end = {
		.norm = layer->attention_post_norm, .bias = layer->output_bias, .shift = layer->attention_post_bias};
	return status ? status : end_half(stage, &end, step->rows, error);
}

enum status stage_embed(struct backend_stage *stage, const struct cuda_step *step, struct error *error)
{
	const struct embed_params embed = {.table = stage->embedding,
					   .tokens = step->tokens,
					   .x = stage->params.slices ? stage->slice.summands[0] : stage->x,
					   .rows = step->rows,
					   .columns = stage->shape.embedding,
					   .scale = stage->shape.embedding_scale > 0 ? stage->shape.embedding_scale
										     : 1};
	return stage_launch(
		stage,
		&(struct stage_launch){
			.kernel = STAGE_EMBED, .grid = {step->rows, 4, 1}, .block = EMBED_BLOCK, .params = &embed},
		error);
}

static enum status argmax(struct backend_stage *stage, const struct cuda_step *step, struct error *error)
{
	const struct argmax_params params = {.logits = stage->logits,
					     .out = (CUdeviceptr)(uintptr_t)stage->argmax,
					     .partial = stage->partial,
					     .ready = stage->ready,
					     .rows = step->output_count,
					     .count = stage->shape.vocabulary};
	return stage_launch(stage,
			    &(struct stage_launch){.kernel = STAGE_ARGMAX,
						   .grid = {ARGMAX_BLOCKS, step->output_count, 1},
						   .block = ARGMAX_BLOCK,
						   .params = &params},
			    error);
}

_Static_assert(sizeof(struct candidate_list) == sizeof(struct stage_candidates) &&
		       (int)CANDIDATES_MOST == (int)STAGE_CANDIDATES_MOST &&
		       (int)CANDIDATES_LEAST == (int)STAGE_CANDIDATES_LEAST,
	       "the kernel writes what the host reads");

enum status stage_find_candidates(struct backend_stage *stage, const struct cuda_step *step, struct error *error)
{
	const struct candidates_params params = {.logits = stage->logits,
						 .out = (CUdeviceptr)(uintptr_t)stage->candidates,
						 .count = stage->shape.vocabulary};
	return stage_launch(stage,
			    &(struct stage_launch){.kernel = STAGE_CANDIDATES,
						   .grid = {step->output_count, 1, 1},
						   .block = CANDIDATES_BLOCK,
						   .params = &params},
			    error);
}

enum status stage_predict(struct backend_stage *stage, const struct cuda_step *step, bool all, bool hidden, bool there,
			  struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct stage_product product = {.matrices = {&stage->output},
					      .count = 1,
					      .x = stage->x,
					      .norm = stage->output_norm,
					      .from = all ? 0 : step->outputs,
					      .plain = hidden ? stage->hidden : 0,
					      .y = stage->logits,
					      .rows = step->output_count,
					      .columns = shape->embedding,
					      .y_stride = shape->vocabulary};
	struct gemv_params gemv;
	struct stage_launch launch;
	enum status status = STATUS_OK;
	if (hidden && stage_gemv_plan(stage, &product, false, &gemv, &launch))
		status = stage_product_prepare(stage, &product, false, error);
	if (!status && !there)
		status = stage_product_multiply(stage, &product, error);
	return status ? status : argmax(stage, step, error);
}
