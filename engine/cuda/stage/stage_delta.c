/* Layers with a gated delta rule or a short convolution: see stage.h and kernels/stage_delta.cu.
 *
 * Products of the norm's rows lie behind each other in one row of stage->delta.in: the channels of the convolution, the
 * heads' gates, beta and alpha; of a short convolution x, c and b. */
#include "engine/cuda/stage/stage_product.h"

enum { CONVOLVE_PIECES = 64, CONVOLVE_FEW = 4 };             // blocks of a run; rows of the smaller kernel
enum { DELTA_THREADS = DELTA_BLOCK + 32, DELTA_PLACES = 3 }; // as in kernels/stage_delta.cu

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

uint32_t stage_delta_width(const struct model_shape *shape)
{
	const struct model_delta *sizes = &shape->delta;
	const uint32_t alpha = model_has_role(shape, ROLE_DELTA_ALPHA) ? sizes->heads : 0;
	const uint32_t width = model_delta_channels(sizes) + sizes->heads * sizes->value_size +
			       model_delta_betas(sizes) + alpha;
	return parts_of(width, 4) * 4;
}

void stage_delta_place(const struct model_shape *shape, struct cuda_layer *layer)
{
	const struct model_delta *sizes = &shape->delta;
	layer->delta_gate.first = model_delta_channels(sizes);
	layer->delta_beta.first = layer->delta_gate.first + sizes->heads * sizes->value_size;
	layer->delta_alpha.first = layer->delta_beta.first + model_delta_betas(sizes);
}

static CUdeviceptr states_of(const struct backend_stage *stage, const struct cuda_layer *layer)
{
	return stage->states + layer->place * stage_state_bytes(&stage->shape) *
				       stage_state_count(&stage->shape, stage->params.batch_sequences);
}

// Matrices of scores, which are small, apart: they often have another format.
static enum status multiply(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			    struct error *error)
{
	const bool is_short = model_delta_is_short(&stage->shape.delta);
	struct stage_product product = {.matrices = {&layer->delta_qkv, &layer->delta_gate, &layer->delta_beta},
					.count = is_short ? 3 : 2,
					.x = stage->x,
					.norm = layer->attention_norm,
					.y = stage->delta.in,
					.rows = rows,
					.columns = stage->shape.embedding,
					.y_stride = stage_delta_width(&stage->shape)};
	enum status status = stage_product_multiply(stage, &product, error);
	if (status || is_short)
		return status;
	product.matrices[0] = &layer->delta_beta;
	product.matrices[1] = &layer->delta_alpha;
	product.count = model_has_role(&stage->shape, ROLE_DELTA_ALPHA) ? 2 : 1;
	return stage_product_multiply(stage, &product, error);
}

static enum status convolve(struct backend_stage *stage, const struct cuda_layer *layer, const struct cuda_step *step,
			    struct error *error)
{
	const struct model_delta *sizes = &stage->shape.delta;
	const bool is_short = model_delta_is_short(sizes);
	const struct convolve_params params = {
		.in = stage->delta.in,
		.weights = layer->delta_conv,
		.states = states_of(stage, layer),
		.runs = step->runs,
		.out = is_short ? stage->delta.out : stage->delta.mixed,
		.in_stride = stage_delta_width(&stage->shape),
		.channels = model_delta_channels(sizes),
		.kernel = sizes->kernel,
		.state_size = (uint32_t)(stage_state_bytes(&stage->shape) / sizeof(float)),
		.is_short = is_short,
	};
	const struct stage_launch launch = {
		.kernel = sizes->kernel <= CONVOLVE_FEW ? STAGE_CONVOLVE_4 : STAGE_CONVOLVE_16,
		.grid = {parts_of(params.channels, CONVOLVE_BLOCK), step->run_count,
			 least(parts_of(step->longest_run, CONVOLVE_ROWS), CONVOLVE_PIECES)},
		.block = CONVOLVE_BLOCK,
		.params = &params};
	return stage_launch(stage, &launch, error);
}

static enum status heads(struct backend_stage *stage, const struct cuda_layer *layer, const struct cuda_step *step,
			 struct error *error)
{
	const struct model_delta *sizes = &stage->shape.delta;
	uint32_t lanes = 8; // that share a column
	while (lanes * DELTA_HELD < sizes->key_size)
		lanes *= 2;
	const uint32_t columns = DELTA_BLOCK / lanes * DELTA_COLUMNS, row = 2 * lanes * DELTA_HELD + columns,
		       factors = 5;
	const struct delta_params params = {
		.mixed = stage->delta.mixed,
		.in = stage->delta.in,
		.decay = layer->delta_decay,
		.bias = layer->delta_bias,
		.norm = layer->delta_norm,
		.states = states_of(stage, layer),
		.runs = step->runs,
		.out = stage->delta.out,
		.in_stride = stage_delta_width(&stage->shape),
		.channels = model_delta_channels(sizes),
		.gate_at = layer->delta_gate.first,
		.beta_at = layer->delta_beta.first,
		.state_size = (uint32_t)(stage_state_bytes(&stage->shape) / sizeof(float)),
		.state_at = (sizes->kernel - 1) * model_delta_channels(sizes),
		.heads = sizes->heads,
		.key_heads = sizes->key_heads,
		.key_size = sizes->key_size,
		.value_size = sizes->value_size,
		.grouped = sizes->grouped,
		.column_blocks = parts_of(sizes->value_size, columns),
		.epsilon = stage->shape.norm_epsilon,
	};
	struct stage_launch launch = {.kernel = lanes == 8    ? STAGE_DELTA_8
						: lanes == 16 ? STAGE_DELTA_16
							      : STAGE_DELTA_32,
				      .grid = {sizes->heads * params.column_blocks, step->run_count, 1},
				      .block = DELTA_THREADS,
				      .shared_bytes = DELTA_PLACES * DELTA_AT_ONCE * (row + factors) *
						      (uint32_t)sizeof(float),
				      .params = &params};
	enum status status = stage_launch(stage, &launch, error);
	launch = (struct stage_launch){.kernel = STAGE_DELTA_OUT,
				       .grid = {parts_of(sizes->heads, DELTA_OUT_WARPS), step->rows, 1},
				       .block = DELTA_OUT_WARPS * 32,
				       .params = &params};
	return status ? status : stage_launch(stage, &launch, error);
}

enum status stage_delta(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, struct error *error)
{
	const struct model_delta *sizes = &stage->shape.delta;
	const struct cuda_layer *layer = &stage->layers[index];
	enum status status = multiply(stage, layer, step->rows, error);
	if (!status)
		status = convolve(stage, layer, step, error);
	if (!status && !model_delta_is_short(sizes))
		status = heads(stage, layer, step, error);
	const struct stage_product out = {.matrices = {&layer->delta_output},
					  .count = 1,
					  .x = stage->delta.out,
					  .y = stage->x,
					  .rows = step->rows,
					  .columns = sizes->heads * sizes->value_size,
					  .y_stride = stage->shape.embedding,
					  .mode = GEMV_ADD};
	return status ? status : stage_product_multiply(stage, &out, error);
}
