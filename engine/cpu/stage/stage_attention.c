/* The CPU back end: attention of a layer, from the norm's rows to the result that is added to x. It reads from bottom
 * to top. See stage_step.c for the phases of a step. */
#include "engine/cpu/stage/stage.h"
#include "engine/cpu/team.h"

#include <math.h>
#include <string.h>

void cpu_turn(const struct step *step, float *head, uint32_t position)
{
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t pairs = cpu_layer_kinds(step) & LAYER_UNTURNED ? 0 : shape->rope_size / 2;
	size_t at = cpu_layer_kinds(step) & LAYER_LOCAL ? stage->params.context_tokens : 0;
	const float *table = stage->params.rope + (at + position) * shape->rope_size;
	for (uint32_t i = 0; i < pairs; i++) {
		float *a = head + (shape->rope_halves ? i : 2 * i), *b = shape->rope_halves ? a + pairs : a + 1;
		float x = *a, y = *b;
		*a = x * table[2 * i] - y * table[2 * i + 1];
		*b = x * table[2 * i + 1] + y * table[2 * i];
	}
}

size_t cpu_query_stride(const struct model_shape *shape)
{
	return stage_padded(shape->heads * model_query_rows(shape));
}

// ---- keys and values ----

uint8_t *cpu_pages_of(const struct backend_stage *stage, const struct stage_layer *layer)
{
	return stage->kv->data + (uint64_t)layer->kv_index * stage->params.page_count * stage_page_bytes(stage->shape);
}

uint8_t *cpu_layer_pages(const struct step *step)
{
	return cpu_pages_of(step->stage, step->layer);
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
	uint8_t *keys = cpu_layer_pages(step) + page * stage_page_bytes(shape);
	for (uint32_t head = 0; head < shape->kv_heads; head++) {
		uint16_t *key = (uint16_t *)(void *)(keys + head * head_bytes(shape));
		uint16_t *value = (uint16_t *)(void *)(keys + (shape->kv_heads + head) * head_bytes(shape));
		for (uint32_t i = 0; i < size; i++) {
			key[i * STAGE_PAGE_TOKENS + token] = f32_to_f16(k[head * size + i]);
			value[token * size + i] = f32_to_f16(v[head * size + i]);
		}
	}
}

// Between the products of q, k and v, and attention: norms, rotation, and writing to the pages.
static void place_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const struct stage_layer *layer = step->layer;
	uint32_t row = (uint32_t)index, size = shape->head_size;
	size_t kv_size = (size_t)shape->kv_heads * size;
	const uint32_t query = model_query_rows(shape);
	float *q = stage->q + row * cpu_query_stride(shape), *k = stage->k + row * kv_size;
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
		cpu_turn(step, values, stage->row_positions[row]);
	}
	keep(step, row, k, v);
}

// ---- attention ----

/* A piece is a row, or a few of a sequence, a head of keys with the heads of queries that share it (of latents, which
 * all share, some of them), and a chunk of positions. Where there are many rows there is one chunk; else the chunks'
 * results are put together afterwards. How a row's positions are cut depends on their number alone, so that few rows
 * give the same bits as each by itself. */
enum { CHUNK_TOKENS = 512 };

static uint32_t chunks_of(uint32_t end)
{
	const uint32_t chunks = (end + CHUNK_TOKENS - 1) / CHUNK_TOKENS;
	return chunks < STAGE_CHUNKS ? chunks : STAGE_CHUNKS;
}

static uint32_t chunk_tokens_of(const struct step *step, uint32_t row)
{
	const uint32_t end = step->stage->row_ends[row], chunks = chunks_of(end), tokens = (end + chunks - 1) / chunks;
	return step->whole ? end : (tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS * STAGE_PAGE_TOKENS;
}

// Heads of queries of a piece, and the pieces that they make.
static uint32_t share_of(const struct model_shape *shape)
{
	const uint32_t share = shape->heads / shape->kv_heads;
	return model_is_latent(shape) && share > ATTENTION_QUERIES ? ATTENTION_QUERIES : share;
}

static uint32_t shares_of(const struct model_shape *shape)
{
	return (shape->heads + share_of(shape) - 1) / share_of(shape);
}

void cpu_attention_begin(struct step *step)
{
	const struct backend_stage *stage = step->stage;
	const uint32_t rows = step->batch->row_count, share = share_of(stage->shape);
	const uint32_t most = share < ATTENTION_QUERIES ? ATTENTION_QUERIES / share : 1;
	uint32_t first = 0; // of the group
	step->whole = rows > STAGE_CUT_ROWS && (uint64_t)rows * shares_of(stage->shape) >= STAGE_ATTENTION_PIECES;
	step->chunks = 1;
	for (uint32_t row = 0; row < rows; row++) {
		const uint32_t chunks = step->whole ? 1 : chunks_of(stage->row_ends[row]);
		const bool alike = step->whole || chunk_tokens_of(step, row) == chunk_tokens_of(step, first);
		step->chunks = chunks > step->chunks ? chunks : step->chunks;
		if (!row || stage->row_runs[row] != stage->row_runs[first] || row - first == most || !alike) {
			stage->row_groups[step->row_groups++] = row;
			first = row;
		}
	}
	stage->row_groups[step->row_groups] = rows;
}

// Where a chunk's results lie: (heads, model_value_size) sums, (heads) largest, (heads) totals.
static float *partial_at(const struct step *step, uint32_t row, uint32_t chunk)
{
	const struct model_shape *shape = step->stage->shape;
	return step->stage->partial +
	       ((size_t)row * step->chunks + chunk) * shape->heads * ((size_t)model_value_size(shape) + 2);
}

static void attention_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	uint32_t group = (uint32_t)(index % step->row_groups),
		 chunk = (uint32_t)(index / step->row_groups / shares_of(shape));
	uint32_t first_head = (uint32_t)(index / step->row_groups % shares_of(shape)) * share_of(shape);
	uint32_t kv_head = first_head / (shape->heads / shape->kv_heads), size = model_value_size(shape);
	uint32_t row = stage->row_groups[group], rows_end = stage->row_groups[group + 1];
	// All rows of a group are cut alike, or there is one chunk, which the last of them fills.
	const uint32_t chunk_tokens = chunk_tokens_of(step, rows_end - 1);
	uint32_t left = shape->heads - first_head, share = share_of(shape), first = chunk * chunk_tokens;
	share = share < left ? share : left;
	struct attention attention = {
		.kv = cpu_layer_pages(step) + kv_head * head_bytes(shape),
		.pages = step->batch->runs[stage->row_runs[row]].pages,
		.page_bytes = stage_page_bytes(shape),
		.values_offset = model_is_latent(shape) ? 0 : shape->kv_heads * head_bytes(shape),
		.latents = model_is_latent(shape),
		.head_size = shape->head_size,
		.value_size = size,
		.first = first,
		.scale = model_attention_scale(shape),
		.cap = shape->attention_cap,
	};
	const uint32_t window = model_layer_window(shape, stage->params.first_layer + step->layer_index);
	for (; row < rows_end; row++) {
		uint32_t end = stage->row_ends[row]; // a row shorter than others may have sums of nothing
		float *partial = partial_at(step, row, chunk);
		for (uint32_t i = 0; i < share; i++) {
			uint32_t head = first_head + i;
			attention.queries[attention.count++] = (struct attention_query){
				.q = stage->q + row * cpu_query_stride(shape) + (size_t)head * model_query_rows(shape),
				.begin = end > window ? end - window : 0,
				.end = end < first + chunk_tokens ? end : first + chunk_tokens,
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
	const float *gate = stage->q + row * cpu_query_stride(shape) + (size_t)head * model_query_rows(shape) +
			    shape->head_size;
	for (uint32_t i = 0; i < shape->head_size; i++)
		out[i] /= 1 + expf(-gate[i]);
}

static void attended_groups_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	struct backend_stage *stage = step->stage;
	size_t n = stage_padded(model_attended(stage->shape));
	cpu_prepare(stage, row, step->batch->row_count, stage->attended + row * n, n);
}

void cpu_gather_head(const struct step *step, uint32_t row, uint32_t head, float *out)
{
	const struct model_shape *shape = step->stage->shape;
	const uint32_t heads = shape->heads, size = model_value_size(shape);
	const float *sinks = step->layer->sinks;
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
}

static void gather_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	uint32_t heads = stage->shape->heads, size = stage->shape->head_size, row = (uint32_t)(index);
	float *out = stage->attended + row * (size_t)stage_padded(heads * size);
	for (uint32_t head = 0; head < heads; head++, out += size) {
		cpu_gather_head(step, row, head, out);
		if (stage->shape->gated_attention)
			gate_head(stage, row, head, out);
	}
	attended_groups_piece(context, index);
}

// Queries, and keys and values in their pages, of the norm's rows.
static void begin_heads(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const struct stage_layer *layer = step->layer;
	uint32_t rows = step->batch->row_count;
	struct product product = {
		.panels = &layer->q,
		.values = stage->normed,
		.groups = stage->groups,
		.tiles = cpu_tiles(stage, rows),
		.value_stride = stage_padded(shape->embedding),
		.rows = rows,
		.output = stage->q,
		.output_stride = cpu_query_stride(shape),
	};
	struct products products = {.of = {product, product, product}, .count = 3};
	products.of[1].panels = &layer->k;
	products.of[1].output = stage->k;
	products.of[2].panels = &layer->v;
	products.of[2].output = stage->v;
	products.of[1].output_stride = products.of[2].output_stride = (size_t)shape->kv_heads * shape->head_size;
	cpu_multiply(step, &products);
	team_run(step->team, place_piece, step, rows);
}

void cpu_attention_compute(struct step *step, float *sum, bool add)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const bool latent = model_is_latent(shape);
	uint32_t rows = step->batch->row_count;
	(latent ? cpu_latent_begin : begin_heads)(step);
	team_run(step->team, attention_piece, step, step->row_groups * shares_of(shape) * step->chunks);
	if (latent)
		cpu_latent_end(step);
	team_run(step->team, latent ? attended_groups_piece : gather_piece, step, rows);
	cpu_multiply(step, &(struct products){.of = {{.panels = &step->layer->attention_output,
						      .values = stage->attended,
						      .groups = stage->groups,
						      .tiles = cpu_tiles(stage, rows),
						      .value_stride = stage_padded(model_attended(shape)),
						      .rows = rows,
						      .output = sum,
						      .output_stride = shape->embedding,
						      .add = add}},
					      .count = 1});
}
