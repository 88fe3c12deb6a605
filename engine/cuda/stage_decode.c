/* One row through all layers by one kernel: see stage.h and kernels/stage_decode.cu. */
#include "engine/cuda/stage.h"

#include <stdlib.h>

enum { SLOT_LEAST = 2048, SLOTS_LEAST = 3, SLOTS_MOST = 32, SUM_ROWS = 2 * DECODE_UNITS };

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

// Of each warp's part of a product's input, as the kernel's slice_of has it.
static uint32_t slice_bytes(const struct decode_product *product, unsigned format)
{
	uint32_t quantum = 1u << decode_shift(format);
	uint32_t columns = parts_of(parts_of(product->padded, quantum), DECODE_WARPS) * quantum;
	uint32_t bytes = 2 * columns + (format == TILE_F16 ? columns / 32 : 64 + columns / 4);
	return (bytes + 15) / 16 * 16;
}

// The format of all matrices of the layers, if it is one that there is a kernel for; else TILE_NONE.
static unsigned format_of(const struct backend_stage *stage)
{
	unsigned format = stage->layers[0].q.format;
	for (uint32_t i = 0; i < stage->params.layer_count; i++) {
		const struct cuda_layer *layer = &stage->layers[i];
		const struct stage_matrix *const matrices[DECODE_MATRICES] = {
			&layer->q,    &layer->k,  &layer->v,   &layer->attention_output,
			&layer->gate, &layer->up, &layer->down};
		for (unsigned k = 0; k < DECODE_MATRICES; k++)
			format = matrices[k]->format == format ? format : TILE_NONE;
	}
	return format == TILE_F16 || format == TILE_Q8_0 || format == TILE_Q4_0 || format == TILE_Q4_K ? format
												       : TILE_NONE;
}

static void put_product(struct backend_stage *stage, enum decode_kind kind, CUdeviceptr x, CUdeviceptr y,
			enum gemv_mode mode)
{
	struct decode_params *params = &stage->decode;
	const struct cuda_layer *layer = &stage->layers[0];
	const struct stage_matrix *const all[DECODE_KINDS][3] = {
		[DECODE_QKV] = {&layer->q, &layer->k, &layer->v},
		[DECODE_ATTENTION_OUTPUT] = {&layer->attention_output},
		[DECODE_GATE_UP] = {&layer->gate, &layer->up},
		[DECODE_DOWN] = {&layer->down},
		[DECODE_OUTPUT] = {&stage->output},
	};
	static const struct {
		unsigned count, matrix, norm, up_to;
	} places[DECODE_KINDS] = {
		[DECODE_QKV] = {3, 0, 0, 3},     [DECODE_ATTENTION_OUTPUT] = {1, 3, DECODE_NO_NORM, 1},
		[DECODE_GATE_UP] = {2, 4, 1, 1}, [DECODE_DOWN] = {1, 6, DECODE_NO_NORM, 1},
		[DECODE_OUTPUT] = {1, 0, 0, 1},
	};
	const struct model_shape *shape = &stage->shape;
	struct decode_product *product = &params->products[kind];
	*product = (struct decode_product){.x = x,
					   .y = y,
					   .count = places[kind].count,
					   .matrix = places[kind].matrix,
					   .norm = places[kind].norm,
					   .columns = kind == DECODE_DOWN ? shape->feed_forward
						      : kind == DECODE_ATTENTION_OUTPUT
							      ? shape->heads * shape->head_size
							      : shape->embedding,
					   .mode = mode};
	product->padded = tile_padded(product->columns);
	for (uint32_t i = 0; i < product->count; i++) {
		product->rows[i] = all[kind][i]->rows;
		product->row_tiles[i] = all[kind][i]->row_tiles;
		product->units += i < places[kind].up_to ? product->row_tiles[i] : 0;
	}
}

static void put_layer(struct decode_layer *to, const struct cuda_layer *from)
{
	const struct stage_matrix *const matrices[DECODE_MATRICES] = {
		&from->q, &from->k, &from->v, &from->attention_output, &from->gate, &from->up, &from->down};
	*to = (struct decode_layer){.norms = {from->attention_norm, from->ffn_norm},
				    .bias = {from->q.bias, from->k.bias, from->v.bias},
				    .q_norm = from->q_norm,
				    .k_norm = from->k_norm};
	for (unsigned i = 0; i < DECODE_MATRICES; i++)
		to->tiles[i] = matrices[i]->tiles;
}

// How shared memory is divided, as the kernel does it. False if a warp's ring gets too small.
static bool divide(struct backend_stage *stage)
{
	struct decode_params *params = &stage->decode;
	unsigned format = stage->decode_format;
	uint32_t piece = piece_bytes(format), units = 8 * 8, sums = SUM_ROWS * DECODE_WARPS * TILE_ROWS * 4;
	for (unsigned i = 0; i < DECODE_KINDS; i++)
		params->slice_bytes = most(params->slice_bytes, slice_bytes(&params->products[i], format));
	uint32_t padded = stage->head_padded;
	uint32_t attention = (ATTENTION_HEADS * padded + DECODE_WARPS * ATTENTION_HEADS * (padded + 2) + padded + 1) *
			     4;
	while (sums + DECODE_WARPS * params->slice_bytes < attention)
		params->slice_bytes += 16;
	params->at_once = parts_of(SLOT_LEAST, piece);
	params->slot_bytes = piece * params->at_once;
	uint32_t layers = (params->layer_count + 1) * (uint32_t)sizeof(struct decode_layer);
	uint32_t fixed = layers + units + DECODE_WARPS * 4 + parts_of(stage->shape.rope_size, 4) * 16 + sums +
			 DECODE_WARPS * params->slice_bytes;
	uint32_t room = stage->shared_bytes - 1024;
	params->slots = fixed < room ? (room - fixed) / DECODE_WARPS / (params->slot_bytes + 16) : 0;
	params->slots = params->slots < SLOTS_MOST ? params->slots : SLOTS_MOST;
	stage->decode_shared = fixed + DECODE_WARPS * params->slots * (params->slot_bytes + 16);
	return params->slots >= SLOTS_LEAST;
}

// Where it can be: on Hopper and later, of a whole stage all of whose layers are on the device; a head is shared by the
// lanes of a warp, and each head of k has a block at least.
static bool fits(const struct backend_stage *stage)
{
	return stage->overlaps && cuda_attribute(stage->cuda, stage->device->device, CUDA_COOPERATIVE_LAUNCH) &&
	       !stage->params.slices && !stage->params.host_layers && stage->params.layer_count &&
	       stage->head_padded <= 4 * 32 && stage->shape.kv_heads * stage->head_blocks <= stage->units;
}

enum status stage_decode_begin(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct decode_params *params = &stage->decode;
	uint32_t count = stage->params.layer_count + 1;
	CUdeviceptr table = 0;
	if (!fits(stage))
		return STATUS_OK;
	stage->decode_format = format_of(stage);
	if (!stage->decode_format)
		return STATUS_OK;
	*params = (struct decode_params){.layer_count = count - 1,
					 .tasks = shape->kv_heads * stage->head_blocks,
					 .predicts = stage->params.predicts &&
						     stage->output.format == stage->decode_format,
					 .epsilon = shape->norm_epsilon};
	put_product(stage, DECODE_QKV, stage->x, stage->qkv, GEMV_STORE);
	put_product(stage, DECODE_ATTENTION_OUTPUT, stage->attended, stage->x, GEMV_ADD);
	put_product(stage, DECODE_GATE_UP, stage->x, stage->up, GEMV_GATED);
	put_product(stage, DECODE_DOWN, stage->up, stage->x, GEMV_ADD);
	put_product(stage, DECODE_OUTPUT, stage->x, stage->logits, GEMV_STORE);
	if (!divide(stage))
		return STATUS_OK;
	struct decode_layer *layers = calloc(count, sizeof(*layers));
	if (!layers)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	for (uint32_t i = 0; i + 1 < count; i++)
		put_layer(&layers[i], &stage->layers[i]);
	layers[count - 1].tiles[0] = stage->output.tiles;
	layers[count - 1].norms[0] = stage->output_norm;
	enum status status = stage_take(stage, &table, count * sizeof(*layers), false, error);
	if (!status)
		status = cuda_check(stage->device, error, "filling memory",
				    stage->cuda->cuMemcpyHtoD_v2(table, layers, count * sizeof(*layers)));
	free(layers);
	params->layers = table;
	stage->sizes.workspace_bytes += count * sizeof(*layers);
	stage->decodes = !status;
	return status;
}

enum status stage_decode(struct backend_stage *stage, const struct attention_params *attention, bool predicts,
			 struct error *error)
{
	struct decode_params params = stage->decode;
	params.attention = *attention;
	params.attention.splits = stage->units / params.tasks;
	if (params.attention.splits > ATTENTION_SPLITS)
		params.attention.splits = ATTENTION_SPLITS;
	for (params.attention.lanes = 1; params.attention.lanes * 4 < stage->head_padded;) // of four values each
		params.attention.lanes *= 2;
	params.kv_layer = 2ull * stage->shape.kv_heads * STAGE_PAGE_TOKENS * stage->head_padded *
			  stage->params.page_count;
	params.arrived = stage->ready + STAGE_READY * sizeof(uint32_t);
	params.predicts = predicts;
	return stage_launch(stage,
			    &(struct stage_launch){.kernel = STAGE_DECODE + stage->decode_format,
						   .grid = {stage->units, 1, 1},
						   .block = DECODE_THREADS + 32,
						   .shared_bytes = stage->decode_shared,
						   .together = true,
						   .params = &params},
			    error);
}
