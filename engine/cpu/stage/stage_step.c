/* The CPU back end: the forward pass of a stage. It reads from bottom to top: cpu_stage_step is at the end.
 *
 * A step is a row of phases (norm, q k v, attention, ...), each of which is cut into pieces for the device's threads:
 * panels of matrices, rows of the batch, heads of attention. Every number is computed by one piece, in an order that
 * does not depend on who computes it. */
#include "engine/cpu/stage/stage.h"
#include "engine/cpu/team.h"

#include <math.h>
#include <string.h>

// ---- products with matrices ----

// With tiles the more panels a piece has the less often activations are read; many threads need pieces for all.
static uint32_t piece_panels(const struct products *products, const struct product *product)
{
	enum { THREADS_MANY = 8 };
	if (!product->tiles)
		return PRODUCT_PANELS;
	return products->stage->device->threads < THREADS_MANY ? TILE_PANELS : TILE_PANELS / 2;
}

static uint32_t product_pieces(const struct products *products, const struct product *product)
{
	const uint32_t most = piece_panels(products, product);
	return (product->panels->panel_count + most - 1) / most;
}

static void product_piece(void *context, uint64_t index)
{
	const struct products *products = context;
	const struct product *product = products->of;
	while (index >= product_pieces(products, product))
		index -= product_pieces(products, product++);
	uint32_t most = piece_panels(products, product), first = (uint32_t)index * most;
	uint32_t left = product->panels->panel_count - first;
	products->stage->kernels->multiply(product, first, left < most ? left : most);
}

void cpu_multiply(struct step *step, struct products *products)
{
	uint32_t pieces = 0;
	products->stage = step->stage;
	for (unsigned i = 0; i < products->count; i++)
		pieces += product_pieces(products, &products->of[i]);
	team_run(step->team, product_piece, products, pieces);
}

// The same rows of gate and up are one piece, followed by the activation.
static void gate_piece(void *context, uint64_t index)
{
	const struct products *products = context;
	const struct stage_kernels *kernels = products->stage->kernels;
	const struct product *gate = &products->of[0], *up = &products->of[1];
	uint32_t most = piece_panels(products, gate), first = (uint32_t)index * most,
		 left = gate->panels->panel_count - first;
	uint32_t count = left < most ? left : most;
	size_t at = (size_t)first * PANEL_ROWS, n = (size_t)count * PANEL_ROWS;
	kernels->multiply(gate, first, count);
	if (products->bias) {
		const size_t columns = products->stage->shape->feed_forward - at;
		for (uint32_t row = 0; row < gate->rows; row++)
			cpu_encoder_gelu(gate->output + row * gate->output_stride + at, products->bias + at,
					 n < columns ? n : columns);
		return;
	}
	kernels->multiply(up, first, count);
	for (uint32_t row = 0; row < gate->rows; row++)
		stage_gate(products->stage, gate->output + row * gate->output_stride + at,
			   up->output + row * up->output_stride + at, n);
}

// ---- rows ----

void cpu_rms_norm(float *to, const float *from, const float *weights, size_t n, float epsilon)
{
	enum { LANES = 16 };
	double sums[LANES] = {0}, squares = 0;
	for (size_t i = 0; i < n; i++)
		sums[i % LANES] += (double)from[i] * (double)from[i];
	for (size_t i = 0; i < LANES; i++)
		squares += sums[i];
	float scale = (float)(1.0 / sqrt(squares / (double)n + (double)epsilon));
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] * scale * weights[i];
}

uint8_t *cpu_tiles(const struct backend_stage *stage, uint32_t rows)
{
	return stage->kernels->make_tiles && rows >= TILES_LEAST ? stage->tiles : NULL;
}

void cpu_prepare(const struct backend_stage *stage, uint64_t row, uint32_t rows, const float *values, size_t n)
{
	uint32_t groups = (uint32_t)(n / PANEL_GROUP);
	if (cpu_tiles(stage, rows))
		stage->kernels->make_tiles(&(struct product_row){
			.tiles = stage->tiles, .row = (uint32_t)row, .rows = rows, .values = values, .groups = groups});
	else
		stage->kernels->make_groups(stage->groups + row * groups, values, groups);
}

static void norm_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage->shape->embedding, padded = stage_padded(stage->shape->embedding);
	float *to = stage->normed + row * padded;
	if (step->weights)
		cpu_rms_norm(to, stage->x + row * n, step->weights, n, stage->shape->norm_epsilon);
	else
		memcpy(to, stage->x + row * n, n * sizeof(*to));
	cpu_prepare(stage, row, step->batch->row_count, to, padded);
}

static void norm_rows(struct step *step, const float *weights)
{
	step->weights = weights;
	team_run(step->team, norm_piece, step, step->batch->row_count);
}

// x += the norm of what half a layer gives.
static void post_norm_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage->shape->embedding;
	float *sum = stage->summand + row * n, *x = stage->x + row * n;
	cpu_rms_norm(sum, sum, step->weights, n, stage->shape->norm_epsilon);
	for (size_t i = 0; i < n; i++)
		x[i] += sum[i];
}

static void post_norm(struct step *step, const float *weights)
{
	step->weights = weights;
	if (step->stage->shape->post_norm)
		team_run(step->team, post_norm_piece, step, step->batch->row_count);
}

static void end_half_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage->shape->embedding;
	cpu_encoder_norm(stage->x + row * n, step->end_bias, step->end, n, stage->shape->norm_epsilon);
}

// The end of half a layer of an encoder: x = norm(x + bias).
static void end_half(struct step *step, const float *bias, const struct encoder_norm *norm)
{
	step->end = norm;
	step->end_bias = bias;
	if (step->stage->shape->encoder)
		team_run(step->team, end_half_piece, step, step->batch->row_count);
}

// The feed-forward network of the layer that is computed.
static uint32_t layer_width(const struct step *step)
{
	return model_layer_width(step->stage->shape, step->stage->params.first_layer + step->layer_index);
}

static void gate_groups_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage_padded(layer_width(step));
	cpu_prepare(stage, row, step->batch->row_count, stage->gate + row * n, n);
}

// ---- layers ----

// Where half a layer's result is added; of a slice, or if it has a norm first, where it is put.
static float *sum_of(const struct backend_stage *stage)
{
	return stage->params.slices || stage->shape->post_norm ? stage->summand : stage->x;
}

static void output_bias_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	const size_t n = step->stage->shape->embedding;
	stage_add_bias(sum_of(step->stage) + row * n, step->layer->output_bias, n);
}

// The first half of a layer.
static void compute_mixer(struct step *step)
{
	const struct backend_stage *stage = step->stage;
	const struct stage_layer *layer = step->layer;
	float *sum = sum_of(stage);
	norm_rows(step, layer->attention_norm);
	if (cpu_layer_kinds(step) & LAYER_DELTA) {
		cpu_delta_compute(step, sum, sum == stage->x);
		return;
	}
	cpu_attention_compute(step, sum, sum == stage->x);
	if (stage->shape->output_bias)
		team_run(step->team, output_bias_piece, step, step->batch->row_count);
	post_norm(step, layer->attention_post_norm);
	end_half(step, layer->output_bias, &layer->attention_end);
}

// The part of the feed-forward network that all rows go through.
static void compute_dense(struct step *step, float *sum)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t rows = step->batch->row_count;
	struct product product = {
		.panels = &step->layer->gate,
		.values = stage->normed,
		.groups = stage->groups,
		.tiles = cpu_tiles(stage, rows),
		.value_stride = stage_padded(shape->embedding),
		.rows = rows,
		.output = stage->gate,
		.output_stride = stage_padded(layer_width(step)),
	};
	struct products products = {.stage = stage, .of = {product, product}, .count = 2};
	products.of[1].panels = &step->layer->up;
	products.of[1].output = stage->up;
	if (shape->gate == GATE_NONE) {
		products.of[0].panels = &step->layer->up;
		products.bias = step->layer->up_bias;
	}
	team_run(step->team, gate_piece, &products, product_pieces(&products, &products.of[0]));
	team_run(step->team, gate_groups_piece, step, rows);
	cpu_multiply(step, &(struct products){.of = {{.panels = &step->layer->down,
						      .values = stage->gate,
						      .groups = stage->groups,
						      .tiles = cpu_tiles(stage, rows),
						      .value_stride = stage_padded(layer_width(step)),
						      .rows = rows,
						      .output = sum,
						      .output_stride = shape->embedding,
						      .add = sum == stage->x}},
					      .count = 1});
}

// The scores of the experts, and the score of the shared expert.
static void score_experts(struct step *step)
{
	struct backend_stage *stage = step->stage;
	uint32_t rows = step->batch->row_count;
	struct product product = {
		.panels = &step->layer->router,
		.values = stage->normed,
		.groups = stage->groups,
		.tiles = cpu_tiles(stage, rows),
		.value_stride = stage_padded(stage->shape->embedding),
		.rows = rows,
		.output = stage->experts.scores,
		.output_stride = stage->shape->experts,
	};
	struct products products = {.of = {product, product}, .count = stage->shape->shared_gate ? 2 : 1};
	products.of[1].panels = &step->layer->shared_gate;
	products.of[1].output = stage->experts.shared_score;
	products.of[1].output_stride = 1;
	cpu_multiply(step, &products);
}

static void compute_ffn(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	float *sum = sum_of(stage);
	norm_rows(step, step->layer->ffn_norm);
	const uint32_t layer = stage->params.first_layer + step->layer_index;
	const bool experts = model_layer_has_experts(shape, layer);
	if (experts)
		score_experts(step);
	if (model_layer_width(shape, layer))
		compute_dense(step, shape->shared_gate && experts ? stage->summand : sum);
	if (experts)
		cpu_experts_compute(step, sum, sum == stage->x || (shape->feed_forward && !shape->shared_gate));
	post_norm(step, step->layer->ffn_post_norm);
	end_half(step, step->layer->down_bias, &step->layer->ffn_end);
}

// ---- beginning and end ----

static void embed_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	const float scale = stage->shape->embedding_scale;
	float *x = stage->x + row * stage->shape->embedding;
	panels_row(&stage->embedding, step->batch->tokens[row], x);
	for (uint32_t i = 0; scale > 0 && i < stage->shape->embedding; i++)
		x[i] *= scale;
}

static void begin(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct stage_batch *batch = step->batch;
	uint32_t row = 0;
	for (uint32_t i = 0; i < batch->run_count; i++)
		for (uint32_t j = 0; j < batch->runs[i].row_count; j++, row++) {
			stage->row_runs[row] = i;
			stage->row_positions[row] = batch->runs[i].position + j;
			stage->row_ends[row] = batch->runs[i].position +
					       (stage->shape->encoder ? batch->runs[i].row_count : j + 1);
		}
	cpu_attention_begin(step);
	if (stage->params.embeds)
		team_run(step->team, embed_piece, step, batch->row_count);
	else if (!stage->params.slice)
		memcpy(stage->x, batch->input, batch->row_count * (size_t)stage->shape->embedding * sizeof(float));
}

static uint32_t largest(const float *values, uint32_t n)
{
	uint32_t best = 0, bad = 0;
	for (uint32_t i = 0; i < n; i++)
		bad |= isfinite(values[i]) ? 0u : 1u;
	if (bad)
		return STAGE_NO_TOKEN;
	for (uint32_t i = 1; i < n; i++)
		if (values[i] > values[best])
			best = i;
	return best;
}

static void largest_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	uint32_t n = step->stage->shape->vocabulary;
	const float *logits = step->batch->logits ? step->batch->logits : step->stage->logits;
	step->batch->argmax[index] = largest(logits + index * n, n);
}

static void output_norm_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage->shape->embedding, padded = stage_padded(stage->shape->embedding);
	float *to = stage->normed + index * padded, *hidden = step->batch->hidden;
	cpu_rms_norm(to, stage->x + step->batch->output_rows[index] * n, stage->output_norm, n,
		     stage->shape->norm_epsilon);
	if (hidden)
		memcpy(hidden + index * n, to, n * sizeof(*to));
	cpu_prepare(stage, index, step->batch->output_count, to, padded);
}

static void predict(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct stage_batch *batch = step->batch;
	const struct model_shape *shape = stage->shape;
	uint32_t rows = batch->output_count;
	team_run(step->team, output_norm_piece, step, rows);
	if ((!batch->logits && !batch->argmax) || !batch->output_count)
		return;
	cpu_multiply(step, &(struct products){.of = {{.panels = &stage->output,
						      .values = stage->normed,
						      .groups = stage->groups,
						      .tiles = cpu_tiles(stage, rows),
						      .value_stride = stage_padded(shape->embedding),
						      .rows = rows,
						      .output = batch->logits ? batch->logits : stage->logits,
						      .output_stride = shape->vocabulary}},
					      .count = 1});
	if (batch->argmax)
		team_run(step->team, largest_piece, step, batch->output_count);
}

static void end(struct step *step)
{
	const struct backend_stage *stage = step->stage;
	const struct stage_batch *batch = step->batch;
	if (stage->params.predicts)
		predict(step);
	else if (!stage->params.slice)
		memcpy(batch->output, stage->x, (size_t)batch->row_count * stage->shape->embedding * sizeof(float));
}

static void lead(struct team *team, void *context)
{
	struct step *step = context;
	struct backend_stage *stage = step->stage;
	step->team = team;
	begin(step);
	for (uint32_t i = 0; i < stage->params.layer_count; i++) {
		step->layer = &stage->layers[i];
		step->layer_index = i;
		compute_mixer(step);
		compute_ffn(step);
	}
	end(step);
}

enum status cpu_stage_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	struct step step = {.stage = stage, .batch = batch};
	team_lead(stage->device->pool, stage->device->threads, lead, &step);
	if (pool_stopped(stage->device->pool))
		return error_set(error, STATUS_DEVICE_LOST, "the device is being closed");
	return STATUS_OK;
}

// ---- slices: one after another, half a layer each ----

// A part of the step of one slice, by the threads of its device.
struct part {
	struct step *step;
	void (*compute)(struct step *step);
};

static void lead_part(struct team *team, void *context)
{
	const struct part *part = context;
	part->step->team = team;
	part->compute(part->step);
}

static void each(struct step *steps, uint32_t count, void (*compute)(struct step *step))
{
	for (uint32_t i = 0; i < count; i++) {
		struct backend_device *device = steps[i].stage->device;
		team_lead(device->pool, device->threads, lead_part, &(struct part){&steps[i], compute});
	}
}

// x += what the slices give, in their order.
static void add_up(const struct step *steps, uint32_t count)
{
	float *x = steps[0].stage->x;
	size_t numbers = (size_t)steps[0].batch->row_count * steps[0].stage->shape->embedding;
	for (size_t i = 0; i < numbers; i++) {
		float sum = 0;
		for (uint32_t k = 0; k < count; k++)
			sum += steps[k].stage->summand[i];
		x[i] += sum;
	}
}

enum status cpu_stage_step_joined(struct backend_stage *const *slices, uint32_t count, const struct stage_batch *batch,
				  struct error *error)
{
	struct step steps[STAGE_SLICES] = {0};
	for (uint32_t i = 0; i < count; i++)
		steps[i] = (struct step){.stage = slices[i], .batch = batch};
	each(steps, count, begin);
	for (uint32_t layer = 0; layer < slices[0]->params.layer_count; layer++) {
		for (uint32_t i = 0; i < count; i++) {
			steps[i].layer = &slices[i]->layers[layer];
			steps[i].layer_index = layer;
		}
		each(steps, count, compute_mixer);
		add_up(steps, count);
		each(steps, count, compute_ffn);
		add_up(steps, count);
	}
	each(steps, 1, end);
	for (uint32_t i = 0; i < count; i++)
		if (pool_stopped(slices[i]->device->pool))
			return error_set(error, STATUS_DEVICE_LOST, "the device is being closed");
	return STATUS_OK;
}
