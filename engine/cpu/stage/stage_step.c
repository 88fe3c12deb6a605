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

// Of gate and up the same rows are one piece, which goes on to what they are for.
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

static void attended_groups_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage_padded(stage->shape->heads * stage->shape->head_size);
	cpu_prepare(stage, row, step->batch->row_count, stage->attended + row * n, n);
}

static void gate_groups_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage_padded(stage->shape->feed_forward);
	cpu_prepare(stage, row, step->batch->row_count, stage->gate + row * n, n);
}

// The bits of the layer that is computed.
static unsigned kinds_of(const struct step *step)
{
	return step->stage->shape->layer_kinds[step->stage->params.first_layer + step->layer_index];
}

static void turn(const struct step *step, float *head, uint32_t position)
{
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t pairs = kinds_of(step) & LAYER_UNTURNED ? 0 : shape->rope_size / 2;
	size_t at = kinds_of(step) & LAYER_LOCAL ? stage->params.context_tokens : 0;
	const float *table = stage->params.rope + (at + position) * shape->rope_size;
	for (uint32_t i = 0; i < pairs; i++) {
		float *a = head + (shape->rope_halves ? i : 2 * i), *b = shape->rope_halves ? a + pairs : a + 1;
		float x = *a, y = *b;
		*a = x * table[2 * i] - y * table[2 * i + 1];
		*b = x * table[2 * i + 1] + y * table[2 * i];
	}
}

// Of a row of queries.
static size_t q_stride(const struct model_shape *shape)
{
	return stage_padded(shape->heads * model_query_rows(shape));
}

// ---- keys and values ----

static uint8_t *layer_pages(const struct step *step)
{
	const struct backend_stage *stage = step->stage;
	return stage->kv->data +
	       (uint64_t)step->layer->kv_index * stage->params.page_count * stage_page_bytes(stage->shape);
}

static uint64_t head_bytes(const struct model_shape *shape)
{
	return (uint64_t)STAGE_PAGE_TOKENS * shape->head_size * sizeof(uint16_t);
}

static void keep(const struct step *step, uint32_t row, const float *k, const float *v)
{
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t position = stage->row_positions[row], size = shape->head_size, token = position % STAGE_PAGE_TOKENS;
	uint32_t page = step->batch->runs[stage->row_runs[row]].pages[position / STAGE_PAGE_TOKENS];
	uint8_t *keys = layer_pages(step) + page * stage_page_bytes(shape);
	for (uint32_t head = 0; head < shape->kv_heads; head++) {
		uint16_t *key = (uint16_t *)(void *)(keys + head * head_bytes(shape));
		uint16_t *value = (uint16_t *)(void *)(keys + (shape->kv_heads + head) * head_bytes(shape));
		for (uint32_t i = 0; i < size; i++) {
			key[i * STAGE_PAGE_TOKENS + token] = f32_to_f16(k[head * size + i]);
			value[token * size + i] = f32_to_f16(v[head * size + i]);
		}
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
	const uint32_t query = model_query_rows(shape);
	float *q = stage->q + row * q_stride(shape), *k = stage->k + row * kv_size;
	float *v = stage->v + row * kv_size;
	stage_add_bias(q, layer->q_bias, (size_t)shape->heads * size);
	stage_add_bias(k, layer->k_bias, kv_size);
	stage_add_bias(v, layer->v_bias, kv_size);
	if (shape->qk_norm == QK_NORM_WHOLE) {
		cpu_rms_norm(q, q, layer->q_norm, (size_t)shape->heads * size, shape->norm_epsilon);
		cpu_rms_norm(k, k, layer->k_norm, kv_size, shape->norm_epsilon);
	}
	for (uint32_t head = 0; head < shape->heads + shape->kv_heads; head++) {
		bool is_q = head < shape->heads;
		float *values = is_q ? q + (size_t)head * query : k + (size_t)(head - shape->heads) * size;
		if (shape->qk_norm == QK_NORM_HEADS)
			cpu_rms_norm(values, values, is_q ? layer->q_norm : layer->k_norm, size, shape->norm_epsilon);
		turn(step, values, stage->row_positions[row]);
	}
	keep(step, row, k, v);
}

// ---- attention ----

/* A piece is a row, or a few of a sequence, a head of keys with the heads of queries that share it, and a chunk of
 * positions. Where the rows give pieces enough there is one chunk; else the chunks' results are put together
 * afterwards. */
enum { CHUNK_TOKENS = 512 };

static void choose_chunks(struct step *step)
{
	const struct backend_stage *stage = step->stage;
	uint32_t most = 0;
	for (uint32_t row = 0; row < step->batch->row_count; row++)
		most = stage->row_ends[row] > most ? stage->row_ends[row] : most;
	step->chunks = 1;
	step->chunk_tokens = most;
	if ((uint64_t)step->batch->row_count * stage->shape->kv_heads >= STAGE_ATTENTION_PIECES)
		return;
	uint32_t chunks = (most + CHUNK_TOKENS - 1) / CHUNK_TOKENS;
	step->chunks = chunks < STAGE_CHUNKS ? chunks : STAGE_CHUNKS;
	uint32_t tokens = (most + step->chunks - 1) / step->chunks;
	step->chunk_tokens = (tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS * STAGE_PAGE_TOKENS;
}

// Where a chunk's results lie: (heads, head_size) sums, (heads) largest, (heads) totals.
static float *partial_at(const struct step *step, uint32_t row, uint32_t chunk)
{
	const struct model_shape *shape = step->stage->shape;
	return step->stage->partial +
	       ((size_t)row * step->chunks + chunk) * shape->heads * ((size_t)shape->head_size + 2);
}

// Heads of queries that share a head of keys.
static uint32_t share_of(const struct model_shape *shape)
{
	return shape->heads / shape->kv_heads;
}

static void attention_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t group = (uint32_t)(index % step->row_groups),
		 chunk = (uint32_t)(index / step->row_groups / shape->kv_heads);
	uint32_t kv_head = (uint32_t)(index / step->row_groups % shape->kv_heads), size = shape->head_size;
	uint32_t share = share_of(shape), first = chunk * step->chunk_tokens;
	uint32_t row = stage->row_groups[group], rows_end = stage->row_groups[group + 1];
	struct attention attention = {
		.kv = layer_pages(step) + kv_head * head_bytes(shape),
		.pages = step->batch->runs[stage->row_runs[row]].pages,
		.page_bytes = stage_page_bytes(shape),
		.values_offset = shape->kv_heads * head_bytes(shape),
		.head_size = size,
		.first = first,
		.scale = model_attention_scale(shape),
		.cap = shape->attention_cap,
	};
	const uint32_t window = model_layer_window(shape, stage->params.first_layer + step->layer_index);
	for (; row < rows_end; row++) {
		uint32_t end = stage->row_ends[row]; // a row shorter than others may have sums of nothing
		float *partial = partial_at(step, row, chunk);
		for (uint32_t i = 0; i < share; i++) {
			uint32_t head = kv_head * share + i;
			attention.queries[attention.count++] = (struct attention_query){
				.q = stage->q + row * q_stride(shape) + (size_t)head * model_query_rows(shape),
				.begin = end > window ? end - window : 0,
				.end = end < first + step->chunk_tokens ? end : first + step->chunk_tokens,
				.out = partial + (size_t)head * size,
				.most = partial + (size_t)shape->heads * size + head,
				.total = partial + (size_t)shape->heads * (size + 1) + head,
			};
			if (attention.count < ATTENTION_QUERIES && (i + 1 < share || row + 1 < rows_end))
				continue;
			stage->kernels->attend(&attention);
			attention.count = 0;
		}
	}
}

// A head's result times the sigmoid of its gate, which lies behind its query.
static void gate_head(const struct backend_stage *stage, uint32_t row, uint32_t head, float *out)
{
	const struct model_shape *shape = stage->shape;
	const float *gate = stage->q + row * q_stride(shape) + (size_t)head * model_query_rows(shape) +
			    shape->head_size;
	for (uint32_t i = 0; i < shape->head_size; i++)
		out[i] /= 1 + expf(-gate[i]);
}

static void gather_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	uint32_t heads = stage->shape->heads, size = stage->shape->head_size, row = (uint32_t)(index);
	float *out = stage->attended + row * (size_t)stage_padded(heads * size);
	const float *sinks = step->layer->sinks;
	for (uint32_t head = 0; head < heads; head++, out += size) {
		float most = sinks ? sinks[head] : -INFINITY, total;
		for (uint32_t chunk = 0; chunk < step->chunks; chunk++) {
			float its = partial_at(step, row, chunk)[(size_t)heads * size + head];
			most = its > most ? its : most;
		}
		memset(out, 0, size * sizeof(*out));
		total = sinks ? expf(sinks[head] - most) : 0;
		for (uint32_t chunk = 0; chunk < step->chunks; chunk++) {
			const float *partial = partial_at(step, row, chunk), *sums = partial + (size_t)head * size;
			float its = partial[(size_t)heads * size + head];
			float weight = its == most ? 1 : expf(its - most);
			total += weight * partial[(size_t)heads * (size + 1) + head];
			for (uint32_t i = 0; i < size; i++)
				out[i] += weight * sums[i];
		}
		for (uint32_t i = 0; i < size; i++)
			out[i] /= total;
		if (stage->shape->gated_attention)
			gate_head(stage, row, head, out);
	}
	attended_groups_piece(context, index);
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

static void compute_attention(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const struct stage_layer *layer = step->layer;
	size_t heads = stage_padded(shape->heads * shape->head_size);
	size_t kv_size = (size_t)shape->kv_heads * shape->head_size;
	uint32_t rows = step->batch->row_count;
	struct product product = {
		.panels = &layer->q,
		.values = stage->normed,
		.groups = stage->groups,
		.tiles = cpu_tiles(stage, rows),
		.value_stride = stage_padded(shape->embedding),
		.rows = rows,
		.output = stage->q,
		.output_stride = q_stride(shape),
	};
	struct products products = {.of = {product, product, product}, .count = 3};
	products.of[1].panels = &layer->k;
	products.of[1].output = stage->k;
	products.of[2].panels = &layer->v;
	products.of[2].output = stage->v;
	products.of[1].output_stride = products.of[2].output_stride = kv_size;
	norm_rows(step, layer->attention_norm);
	cpu_multiply(step, &products);
	team_run(step->team, place_piece, step, rows);
	team_run(step->team, attention_piece, step, step->row_groups * shape->kv_heads * step->chunks);
	team_run(step->team, gather_piece, step, rows);
	cpu_multiply(step, &(struct products){.of = {{.panels = &layer->attention_output,
						      .values = stage->attended,
						      .groups = stage->groups,
						      .tiles = cpu_tiles(stage, rows),
						      .value_stride = heads,
						      .rows = rows,
						      .output = sum_of(stage),
						      .output_stride = shape->embedding,
						      .add = sum_of(stage) == stage->x}},
					      .count = 1});
	if (shape->output_bias)
		team_run(step->team, output_bias_piece, step, rows);
	post_norm(step, layer->attention_post_norm);
	end_half(step, layer->output_bias, &layer->attention_end);
}

// The first half of a layer.
static void compute_mixer(struct step *step)
{
	float *sum = sum_of(step->stage);
	if (!(kinds_of(step) & LAYER_DELTA)) {
		compute_attention(step);
		return;
	}
	norm_rows(step, step->layer->attention_norm);
	cpu_delta_compute(step, sum, sum == step->stage->x);
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
		.output_stride = stage_padded(shape->feed_forward),
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
						      .value_stride = stage_padded(shape->feed_forward),
						      .rows = rows,
						      .output = sum,
						      .output_stride = shape->embedding,
						      .add = sum == stage->x}},
					      .count = 1});
}

// What experts are chosen by, and what the shared part is multiplied by.
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
	if (shape->experts)
		score_experts(step);
	if (shape->feed_forward)
		compute_dense(step, shape->shared_gate ? stage->summand : sum);
	if (shape->experts)
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
	uint32_t row = 0, share = share_of(stage->shape),
		 most = share < ATTENTION_QUERIES ? ATTENTION_QUERIES / share : 1;
	for (uint32_t i = 0; i < batch->run_count; i++)
		for (uint32_t j = 0; j < batch->runs[i].row_count; j++, row++) {
			stage->row_runs[row] = i;
			stage->row_positions[row] = batch->runs[i].position + j;
			stage->row_ends[row] = batch->runs[i].position +
					       (stage->shape->encoder ? batch->runs[i].row_count : j + 1);
			if (j % most == 0)
				stage->row_groups[step->row_groups++] = row;
		}
	stage->row_groups[step->row_groups] = row;
	choose_chunks(step);
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
