/* The CPU back end: the forward pass of a stage. It reads from bottom to top: cpu_stage_step is at the end.
 *
 * A step is a row of phases (norm, q k v, attention, ...), each of which is cut into pieces for the device's threads:
 * panels of matrices, rows of the batch, heads of attention. Every number is computed by one piece, in an order that
 * does not depend on who computes it. */
#include "engine/cpu/stage.h"

#include <math.h>
#include <string.h>

struct step {
	struct backend_stage *stage;
	const struct stage_batch *batch;
	const struct stage_layer *layer;
	uint32_t layer_index;
};

static void run(struct step *step, void (*piece)(void *context, uint64_t index), uint64_t count)
{
	pool_run(step->stage->device->pool, piece, step, count);
}

// ---- products with matrices ----

struct product {
	const struct panels *panels;
	const float *input; // (rows, padded columns)
	size_t input_stride;
	uint32_t rows;
	float *output; // (rows, panels->rows)
	size_t output_stride;
	bool add; // to what is there
};

enum { PRODUCT_ROWS = 64 }; // at once

static void product_rows(const struct product *product, uint32_t panel, uint32_t first, uint32_t rows)
{
	const struct panels *panels = product->panels;
	float sums[PRODUCT_ROWS][PANEL_ROWS], values[PANEL_GROUP][PANEL_ROWS];
	memset(sums, 0, sizeof(sums));
	for (uint32_t group = 0; group < panels->groups; group++) {
		panels_values(panels, panel, group, values);
		for (uint32_t row = 0; row < rows; row++) {
			const float *input = product->input + (first + row) * product->input_stride +
					     (size_t)group * PANEL_GROUP;
			for (unsigned k = 0; k < PANEL_GROUP; k++)
				for (unsigned lane = 0; lane < PANEL_ROWS; lane++)
					sums[row][lane] += input[k] * values[k][lane];
		}
	}
	uint32_t column = panel * PANEL_ROWS, have = panels->rows - column;
	for (uint32_t row = 0; row < rows; row++) {
		float *to = product->output + (first + row) * product->output_stride + column;
		for (uint32_t lane = 0; lane < PANEL_ROWS && lane < have; lane++)
			to[lane] = product->add ? to[lane] + sums[row][lane] : sums[row][lane];
	}
}

static void product_piece(void *context, uint64_t index)
{
	const struct product *product = context;
	for (uint32_t first = 0; first < product->rows; first += PRODUCT_ROWS)
		product_rows(product, (uint32_t)index, first,
			     product->rows - first < PRODUCT_ROWS ? product->rows - first : PRODUCT_ROWS);
}

static void multiply(struct step *step, const struct product *product)
{
	pool_run(step->stage->device->pool, product_piece, (void *)product, product->panels->panel_count);
}

// ---- rows ----

// to = from, scaled to a mean square of 1, times weights. May be in place.
static void rms_norm(float *to, const float *from, const float *weights, size_t n, float epsilon)
{
	double squares = 0;
	for (size_t i = 0; i < n; i++)
		squares += (double)from[i] * (double)from[i];
	float scale = (float)(1.0 / sqrt(squares / (double)n + (double)epsilon));
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] * scale * weights[i];
}

static void norm_rows(struct step *step, const float *weights)
{
	struct backend_stage *stage = step->stage;
	size_t n = stage->shape->embedding;
	for (uint32_t row = 0; row < step->batch->row_count; row++)
		rms_norm(stage->normed + row * n, stage->x + row * n, weights, n, stage->shape->norm_epsilon);
}

static void turn(const struct backend_stage *stage, float *head, uint32_t position)
{
	const struct model_shape *shape = stage->shape;
	uint32_t pairs = shape->rope_size / 2;
	const float *table = stage->params.rope + (size_t)position * shape->rope_size;
	for (uint32_t i = 0; i < pairs; i++) {
		float *a = head + (shape->rope_halves ? i : 2 * i), *b = shape->rope_halves ? a + pairs : a + 1;
		float x = *a, y = *b;
		*a = x * table[2 * i] - y * table[2 * i + 1];
		*b = x * table[2 * i + 1] + y * table[2 * i];
	}
}

static void add_bias(float *row, const float *bias, size_t n)
{
	for (size_t i = 0; bias && i < n; i++)
		row[i] += bias[i];
}

// The keys (0) or values (1) of a head in a page: (STAGE_PAGE_TOKENS, head_size)
static uint16_t *page_part(const struct backend_stage *stage, uint32_t layer, uint32_t page, unsigned which,
			   uint32_t head)
{
	const struct model_shape *shape = stage->shape;
	uint16_t *at = (uint16_t *)(void *)(stage->kv->data + ((uint64_t)layer * stage->params.page_count + page) *
								      stage_page_bytes(shape));
	return at + ((size_t)which * shape->kv_heads + head) * STAGE_PAGE_TOKENS * shape->head_size;
}

static void keep(const struct step *step, uint32_t row, unsigned which, const float *values)
{
	const struct backend_stage *stage = step->stage;
	uint32_t position = stage->row_positions[row], size = stage->shape->head_size;
	uint32_t page = step->batch->runs[stage->row_runs[row]].pages[position / STAGE_PAGE_TOKENS];
	for (uint32_t head = 0; head < stage->shape->kv_heads; head++) {
		uint16_t *to = page_part(stage, step->layer_index, page, which, head) +
			       (size_t)(position % STAGE_PAGE_TOKENS) * size;
		for (uint32_t i = 0; i < size; i++)
			to[i] = f32_to_f16(values[head * size + i]);
	}
}

// What lies between the products of q, k and v, and attention.
static void place_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const struct stage_layer *layer = step->layer;
	uint32_t row = (uint32_t)index, size = shape->head_size;
	size_t kv_size = (size_t)shape->kv_heads * size;
	float *q = stage->q + row * (size_t)stage_padded(shape->heads * size), *k = stage->k + row * kv_size;
	float *v = stage->v + row * kv_size;
	add_bias(q, layer->q_bias, (size_t)shape->heads * size);
	add_bias(k, layer->k_bias, kv_size);
	add_bias(v, layer->v_bias, kv_size);
	for (uint32_t head = 0; head < shape->heads + shape->kv_heads; head++) {
		bool is_q = head < shape->heads;
		float *values = is_q ? q + (size_t)head * size : k + (size_t)(head - shape->heads) * size;
		if (shape->qk_norm)
			rms_norm(values, values, is_q ? layer->q_norm : layer->k_norm, size, shape->norm_epsilon);
		turn(stage, values, stage->row_positions[row]);
	}
	keep(step, row, 0, k);
	keep(step, row, 1, v);
}

// ---- attention ----

static void attention_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t row = (uint32_t)(index / shape->heads), head = (uint32_t)(index % shape->heads);
	uint32_t kv_head = head / (shape->heads / shape->kv_heads), size = shape->head_size;
	size_t at = row * (size_t)stage_padded(shape->heads * size) + (size_t)head * size;
	const float *q = stage->q + at;
	float *to = stage->attended + at, most = -INFINITY, sum = 0, scale = 1 / sqrtf((float)size);
	const uint32_t *pages = step->batch->runs[stage->row_runs[row]].pages;
	memset(to, 0, size * sizeof(*to));
	for (uint32_t position = 0; position <= stage->row_positions[row]; position++) {
		uint32_t page = pages[position / STAGE_PAGE_TOKENS];
		size_t offset = (size_t)(position % STAGE_PAGE_TOKENS) * size;
		const uint16_t *key = page_part(stage, step->layer_index, page, 0, kv_head) + offset;
		const uint16_t *value = page_part(stage, step->layer_index, page, 1, kv_head) + offset;
		float dot = 0;
		for (uint32_t i = 0; i < size; i++)
			dot += q[i] * f16_to_f32(key[i]);
		dot *= scale;
		if (dot > most) {
			float shrink = expf(most - dot);
			sum *= shrink;
			for (uint32_t i = 0; i < size; i++)
				to[i] *= shrink;
			most = dot;
		}
		float weight = expf(dot - most);
		sum += weight;
		for (uint32_t i = 0; i < size; i++)
			to[i] += weight * f16_to_f32(value[i]);
	}
	for (uint32_t i = 0; i < size; i++)
		to[i] /= sum;
}

// ---- layers ----

static void gate_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	size_t n = step->stage->shape->feed_forward;
	float *gate = step->stage->gate + index * n;
	const float *up = step->stage->up + index * n;
	for (size_t i = 0; i < n; i++)
		gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
}

static void compute_attention(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const struct stage_layer *layer = step->layer;
	size_t heads = stage_padded(shape->heads * shape->head_size);
	size_t kv_size = (size_t)shape->kv_heads * shape->head_size;
	uint32_t rows = step->batch->row_count;
	struct product product = {.input = stage->normed, .input_stride = shape->embedding, .rows = rows};
	norm_rows(step, layer->attention_norm);
	product.panels = &layer->q;
	product.output = stage->q;
	product.output_stride = heads;
	multiply(step, &product);
	product.panels = &layer->k;
	product.output = stage->k;
	product.output_stride = kv_size;
	multiply(step, &product);
	product.panels = &layer->v;
	product.output = stage->v;
	multiply(step, &product);
	run(step, place_piece, rows);
	run(step, attention_piece, (uint64_t)rows * shape->heads);
	multiply(step, &(struct product){.panels = &layer->attention_output,
					 .input = stage->attended,
					 .input_stride = heads,
					 .rows = rows,
					 .output = stage->x,
					 .output_stride = shape->embedding,
					 .add = true});
}

static void compute_ffn(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t rows = step->batch->row_count;
	struct product product = {.panels = &step->layer->gate,
				  .input = stage->normed,
				  .input_stride = shape->embedding,
				  .rows = rows,
				  .output = stage->gate,
				  .output_stride = shape->feed_forward};
	norm_rows(step, step->layer->ffn_norm);
	multiply(step, &product);
	product.panels = &step->layer->up;
	product.output = stage->up;
	multiply(step, &product);
	run(step, gate_piece, rows);
	multiply(step, &(struct product){.panels = &step->layer->down,
					 .input = stage->gate,
					 .input_stride = shape->feed_forward,
					 .rows = rows,
					 .output = stage->x,
					 .output_stride = shape->embedding,
					 .add = true});
}

// ---- beginning and end ----

static void begin(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct stage_batch *batch = step->batch;
	size_t n = stage->shape->embedding;
	uint32_t row = 0;
	for (uint32_t i = 0; i < batch->run_count; i++)
		for (uint32_t j = 0; j < batch->runs[i].row_count; j++, row++) {
			stage->row_runs[row] = i;
			stage->row_positions[row] = batch->runs[i].position + j;
		}
	if (!stage->params.embeds)
		memcpy(stage->x, batch->input, batch->row_count * n * sizeof(float));
	else
		for (row = 0; row < batch->row_count; row++)
			panels_row(&stage->embedding, batch->tokens[row], stage->x + row * n);
}

static uint32_t largest(const float *values, uint32_t n)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < n; i++)
		if (values[i] > values[best])
			best = i;
	return best;
}

static void predict(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct stage_batch *batch = step->batch;
	const struct model_shape *shape = stage->shape;
	size_t n = shape->embedding;
	for (uint32_t i = 0; i < batch->output_count; i++)
		rms_norm(stage->normed + i * n, stage->x + batch->output_rows[i] * n, stage->output_norm, n,
			 shape->norm_epsilon);
	if (batch->hidden)
		memcpy(batch->hidden, stage->normed, batch->output_count * n * sizeof(float));
	if ((!batch->logits && !batch->argmax) || !batch->output_count)
		return;
	float *logits = batch->logits ? batch->logits : stage->logits;
	multiply(step, &(struct product){.panels = &stage->output,
					 .input = stage->normed,
					 .input_stride = n,
					 .rows = batch->output_count,
					 .output = logits,
					 .output_stride = shape->vocabulary});
	for (uint32_t i = 0; batch->argmax && i < batch->output_count; i++)
		batch->argmax[i] = largest(logits + (size_t)i * shape->vocabulary, shape->vocabulary);
}

enum status cpu_stage_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	struct step step = {.stage = stage, .batch = batch};
	begin(&step);
	for (uint32_t i = 0; i < stage->params.layer_count; i++) {
		step.layer = &stage->layers[i];
		step.layer_index = i;
		compute_attention(&step);
		compute_ffn(&step);
	}
	if (stage->params.predicts)
		predict(&step);
	else
		memcpy(batch->output, stage->x, (size_t)batch->row_count * stage->shape->embedding * sizeof(float));
	if (pool_stopped(stage->device->pool))
		return error_set(error, STATUS_DEVICE_LOST, "the device is being closed");
	return STATUS_OK;
}
