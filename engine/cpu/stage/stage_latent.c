/* The CPU back end: multi-head latent attention (struct model_latent), before and after attention itself. The matrices
 * of each head are applied to its query and to its result, so that heads attend to latents, as they are kept.
 *
 *     query, k = norm(x) * W | norm(query) | heads of queries = query * W | q = k_b of each head; k into its page
 *     | attention (stage_attention.c) | v_b of each head
 *
 * A piece of the products of heads is a head and a few rows. */
#include "engine/cpu/stage/stage.h"
#include "engine/cpu/team.h"

#include <string.h>

enum { PIECE_ROWS = 8, PIECE_VALUES = PIECE_ROWS * LIMIT_MODEL_HEAD_SIZE };

struct piece {
	const struct step *step;
	uint32_t head, row, rows;
};

static struct piece piece_of(const struct step *step, uint64_t index)
{
	const uint32_t heads = step->stage->shape->heads, row = (uint32_t)(index / heads) * PIECE_ROWS,
		       left = step->batch->row_count - row;
	return (struct piece){step, (uint32_t)(index % heads), row, left < PIECE_ROWS ? left : PIECE_ROWS};
}

static uint32_t pieces_of(const struct step *step)
{
	return (step->batch->row_count + PIECE_ROWS - 1) / PIECE_ROWS * step->stage->shape->heads;
}

// The product of a head's matrix with the piece's rows of values, which are whole groups.
static void multiply(const struct piece *piece, const struct panels *panels, const float *values, float *output,
		     size_t output_stride)
{
	struct stage_group groups[PIECE_VALUES / PANEL_GROUP];
	const struct stage_kernels *kernels = piece->step->stage->kernels;
	const struct product product = {.panels = panels,
					.values = values,
					.groups = groups,
					.value_stride = (size_t)panels->groups * PANEL_GROUP,
					.rows = piece->rows,
					.output = output,
					.output_stride = output_stride};
	kernels->make_groups(groups, values, piece->rows * panels->groups);
	for (uint32_t first = 0; first < panels->panel_count; first += PRODUCT_PANELS) {
		const uint32_t left = panels->panel_count - first;
		kernels->multiply(&product, first, left < PRODUCT_PANELS ? left : PRODUCT_PANELS);
	}
}

// ---- queries and latents ----

static size_t head_q_stride(const struct model_shape *shape)
{
	return (size_t)shape->heads * shape->latent.key_size;
}

static void query_norm_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const uint32_t rank = stage->shape->latent.query_rank;
	float *query = stage->query + row * stage_padded(rank);
	cpu_rms_norm(query, query, step->layer->q_norm, rank, stage->shape->norm_epsilon);
	cpu_prepare(stage, row, step->batch->row_count, query, stage_padded(rank));
}

static void query_piece(void *context, uint64_t index)
{
	const struct piece piece = piece_of(context, index);
	const struct backend_stage *stage = piece.step->stage;
	const struct model_shape *shape = stage->shape;
	const uint32_t rank = shape->latent.rank, turned = shape->head_size - rank,
		       plain = shape->latent.key_size - turned;
	float values[PIECE_VALUES] = {0};
	float *q = stage->q + piece.row * cpu_query_stride(shape) + (size_t)piece.head * shape->head_size;
	for (uint32_t i = 0; i < piece.rows; i++) {
		const uint32_t row = piece.row + i;
		const float *from = stage->head_q + row * head_q_stride(shape) +
				    (size_t)piece.head * shape->latent.key_size;
		float *to = q + i * cpu_query_stride(shape) + rank;
		memcpy(values + (size_t)i * stage_padded(plain), from, plain * sizeof(*from));
		memcpy(to, from + plain, turned * sizeof(*from));
		cpu_turn(piece.step, to, stage->row_positions[row]);
	}
	multiply(&piece, &piece.step->layer->k_b[piece.head], values, q, cpu_query_stride(shape));
}

// A row's latent, with the key that turns, into its page.
static void keep_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const uint32_t size = shape->head_size, rank = shape->latent.rank, position = stage->row_positions[row];
	const uint32_t page = step->batch->runs[stage->row_runs[row]].pages[position / STAGE_PAGE_TOKENS];
	float *k = stage->k + row * size;
	uint16_t *to = (uint16_t *)(void *)(cpu_layer_pages(step) + page * stage_page_bytes(shape));
	cpu_rms_norm(k, k, step->layer->k_norm, rank, shape->norm_epsilon);
	cpu_turn(step, k + rank, position);
	to += (size_t)position % STAGE_PAGE_TOKENS * size;
	for (uint32_t i = 0; i < size; i++)
		to[i] = f32_to_f16(k[i]);
}

void cpu_latent_begin(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_shape *shape = stage->shape;
	const struct stage_layer *layer = step->layer;
	const uint32_t rows = step->batch->row_count, query_rank = shape->latent.query_rank;
	struct product product = {
		.panels = query_rank ? &layer->q_a : &layer->q,
		.values = stage->normed,
		.groups = stage->groups,
		.tiles = cpu_tiles(stage, rows),
		.value_stride = stage_padded(shape->embedding),
		.rows = rows,
		.output = query_rank ? stage->query : stage->head_q,
		.output_stride = query_rank ? stage_padded(query_rank) : head_q_stride(shape),
	};
	struct products products = {.of = {product, product}, .count = 2};
	products.of[1].panels = &layer->k;
	products.of[1].output = stage->k;
	products.of[1].output_stride = shape->head_size;
	cpu_multiply(step, &products);
	if (query_rank) {
		product.panels = &layer->q;
		product.values = stage->query;
		product.value_stride = stage_padded(query_rank);
		product.output = stage->head_q;
		product.output_stride = head_q_stride(shape);
		team_run(step->team, query_norm_piece, step, rows);
		cpu_multiply(step, &(struct products){.of = {product}, .count = 1});
	}
	team_run(step->team, keep_piece, step, rows);
	team_run(step->team, query_piece, step, pieces_of(step));
}

// ---- results ----

static void result_piece(void *context, uint64_t index)
{
	const struct piece piece = piece_of(context, index);
	const struct backend_stage *stage = piece.step->stage;
	const struct model_shape *shape = stage->shape;
	const size_t stride = stage_padded(model_attended(shape)), padded = stage_padded(shape->latent.rank);
	float values[PIECE_VALUES] = {0};
	for (uint32_t i = 0; i < piece.rows; i++)
		cpu_gather_head(piece.step, piece.row + i, piece.head, values + i * padded);
	multiply(&piece, &piece.step->layer->v_b[piece.head], values,
		 stage->attended + piece.row * stride + (size_t)piece.head * shape->latent.value_size, stride);
}

void cpu_latent_end(struct step *step)
{
	team_run(step->team, result_piece, step, pieces_of(step));
}
