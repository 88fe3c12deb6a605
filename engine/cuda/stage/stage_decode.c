/* One row through all layers by one kernel: see stage.h and kernels/stage_decode.cu. */
#include "engine/cuda/stage/stage.h"

#include <math.h>
#include <stdlib.h>

enum { COPIES_LEAST = 3, COPIES_MOST = 32, SUM_ROWS = 2 * DECODE_UNITS };

static const struct {
	const char *name;
	unsigned formats;
} sets[] = {
#define SET(name, formats) {#name, formats},
	DECODE_SETS(SET)
#undef SET
};
enum { SETS = sizeof(sets) / sizeof(sets[0]) };
_Static_assert((int)SETS == (int)STAGE_DECODE_SETS, "each kernel of stage_decode.cu has a place in enum stage_kernel");

const char *stage_decode_name(unsigned set)
{
	return sets[set].name;
}

const char *cuda_stage_single_kernel(const struct backend_stage *stage)
{
	return stage->decodes ? sets[stage->decode_set].name : NULL;
}

unsigned stage_decode_set(unsigned formats)
{
	unsigned set = 0;
	while (set < SETS && formats & ~sets[set].formats)
		set++;
	return set;
}

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

static uint32_t aligned(uint32_t bytes)
{
	return parts_of(bytes, DECODE_ALIGN) * DECODE_ALIGN;
}

// The formats to which a product's input is rounded for matrices of these formats.
static unsigned char inputs_of(const unsigned char *formats, uint32_t count)
{
	unsigned inputs = 0;
	for (uint32_t i = 0; i < count; i++) {
		inputs |= formats[i] >= TILE_Q8_0  ? DECODE_INTEGERS
			  : formats[i] == TILE_F16 ? DECODE_HALVES
						   : DECODE_PAIRS;
		inputs |= piece_columns(formats[i]) == 256 ? DECODE_BY_256 : 0;
	}
	return (unsigned char)inputs;
}

// The bytes of each warp's part of a product's input, as in the kernel's slice_of.
static uint32_t slice_bytes(const struct decode_product *product, unsigned inputs)
{
	uint32_t quantum = inputs & DECODE_BY_256 ? 256 : 128;
	uint32_t columns = parts_of(parts_of(product->padded, quantum), DECODE_WARPS) * quantum, bytes = 0;
	if (inputs & DECODE_INTEGERS)
		bytes += 2 * columns + 64 + columns / 4;
	if (inputs & DECODE_HALVES)
		bytes += 2 * columns + (columns / 32 + 15) / 16 * 16;
	if (inputs & DECODE_PAIRS)
		bytes += 4 * columns;
	return (bytes + 15) / 16 * 16;
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
	for (unsigned i = 0; i < DECODE_MATRICES; i++) {
		to->tiles[i] = matrices[i]->tiles;
		to->formats[i] = (unsigned char)matrices[i]->format;
	}
	to->inputs[DECODE_QKV] = inputs_of(to->formats, 3);
	to->inputs[DECODE_ATTENTION_OUTPUT] = inputs_of(to->formats + 3, 1);
	to->inputs[DECODE_GATE_UP] = inputs_of(to->formats + 4, 2);
	to->inputs[DECODE_DOWN] = inputs_of(to->formats + 6, 1);
}

static void put_output(struct backend_stage *stage, struct decode_layer *to)
{
	to->tiles[0] = stage->output.tiles;
	to->norms[0] = stage->output_norm;
	to->formats[0] = (unsigned char)stage->output.format;
	to->inputs[DECODE_OUTPUT] = inputs_of(to->formats, 1);
}

// The formats of all matrices: bits 1 << enum tile_format.
static unsigned formats_of(const struct decode_layer *layers, uint32_t count)
{
	unsigned formats = 0;
	for (uint32_t i = 0; i < count; i++)
		for (unsigned k = 0; k < DECODE_MATRICES; k++)
			formats |= layers[i].tiles[k] ? 1u << layers[i].formats[k] : 0;
	return formats;
}

// Shared memory that is no ring, as the kernel divides it.
static uint32_t fixed_bytes(const struct backend_stage *stage, uint32_t layers)
{
	uint32_t units = 8 * 8 + DECODE_WARPS * 16, sums = SUM_ROWS * DECODE_WARPS * TILE_ROWS * 4;
	return layers * (uint32_t)sizeof(struct decode_layer) + units + DECODE_WARPS * 4 + DECODE_ALIGN +
	       parts_of(stage->shape.rope_size, 4) * 16 + sums + DECODE_WARPS * stage->decode.slice_bytes;
}

// How shared memory is divided, as the kernel does it. False if a warp's ring gets too small.
static bool divide(struct backend_stage *stage, const struct decode_layer *layers, unsigned formats)
{
	struct decode_params *params = &stage->decode;
	uint32_t count = params->layer_count + 1, kinds = DECODE_KINDS, longest = 0, shortest = UINT32_MAX;
	for (uint32_t i = 0; i < count; i++)
		for (unsigned k = 0; k < kinds; k++)
			params->slice_bytes = most(params->slice_bytes,
						   slice_bytes(&params->products[k], layers[i].inputs[k]));
	uint32_t sums = SUM_ROWS * DECODE_WARPS * TILE_ROWS * 4, padded = stage->head_padded;
	uint32_t attention = (ATTENTION_HEADS * padded + DECODE_WARPS * ATTENTION_HEADS * (padded + 2) + padded + 1) *
			     4;
	while (sums + DECODE_WARPS * params->slice_bytes < attention)
		params->slice_bytes += 16;
	for (unsigned format = TILE_F32; format < TILE_COUNT; format++) {
		uint32_t bytes = piece_bytes(format);
		params->at_once[format] = (unsigned char)decode_at_once(format);
		if (!(formats >> format & 1))
			continue;
		longest = most(longest, aligned(params->at_once[format] * bytes));
		shortest = aligned(bytes) < shortest ? aligned(bytes) : shortest;
	}
	uint32_t fixed = fixed_bytes(stage, count), room = stage->shared_bytes - 1024;
	uint32_t ring = fixed < room ? (room - fixed) / DECODE_WARPS : 0;
	params->slots = ring / shortest < COPIES_MOST ? ring / shortest : COPIES_MOST;
	params->ring_bytes = ring - params->slots * 8;
	params->ring_bytes -= params->ring_bytes % DECODE_ALIGN;
	stage->decode_shared = fixed + DECODE_WARPS * (params->ring_bytes + params->slots * 8);
	return params->ring_bytes >= COPIES_LEAST * longest;
}

// Whether it is possible: on Hopper and later, for a whole stage with all its layers on the device.
static bool fits(const struct backend_stage *stage)
{
	return stage->overlaps && model_is_plain(&stage->shape) &&
	       cuda_attribute(stage->cuda, stage->device->device, CUDA_COOPERATIVE_LAUNCH) && !stage->params.slices &&
	       !stage->params.host_layers && stage->params.layer_count && stage->head_padded <= 4 * 32 &&
	       stage->shape.kv_heads * stage->head_blocks <= STAGE_READY;
}

enum status stage_decode_begin(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct decode_params *params = &stage->decode;
	uint32_t count = stage->params.layer_count + 1, tasks = shape->kv_heads * stage->head_blocks;
	if (!fits(stage))
		return STATUS_OK;
	struct decode_layer *layers = calloc(count, sizeof(*layers));
	if (!layers)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stage");
	for (uint32_t i = 0; i + 1 < count; i++)
		put_layer(&layers[i], &stage->layers[i]);
	*params = (struct decode_params){.layer_count = count - 1, .tasks = tasks, .epsilon = shape->norm_epsilon};
	put_product(stage, DECODE_QKV, stage->x, stage->qkv, GEMV_STORE);
	put_product(stage, DECODE_ATTENTION_OUTPUT, stage->attended, stage->x, GEMV_ADD);
	put_product(stage, DECODE_GATE_UP, stage->x, stage->up, GEMV_GATED);
	put_product(stage, DECODE_DOWN, stage->up, stage->x, GEMV_ADD);
	if (stage->params.predicts) {
		put_product(stage, DECODE_OUTPUT, stage->x, stage->logits, GEMV_STORE);
		put_output(stage, &layers[count - 1]);
	}
	const unsigned formats = formats_of(layers, count);
	stage->decode_set = stage_decode_set(formats);
	stage->decodes = stage->decode_set < SETS && divide(stage, layers, formats);
	enum status status = STATUS_OK;
	CUdeviceptr table = 0;
	if (stage->decodes)
		status = stage_take(stage, &table, count * sizeof(*layers), false, error);
	params->layers = table;
	if (stage->decodes && !status)
		status = cuda_check(stage->device, error, "filling memory",
				    stage->cuda->cuMemcpyHtoD_v2(table, layers, count * sizeof(*layers)));
	free(layers);
	return status;
}

enum status stage_decode(struct backend_stage *stage, const struct attention_params *attention, bool predicts,
			 struct error *error)
{
	struct decode_params params = stage->decode;
	params.attention = *attention;
	params.attention.splits = most(1, stage->units / params.tasks);
	if (params.attention.splits > ATTENTION_SPLITS)
		params.attention.splits = ATTENTION_SPLITS;
	for (params.attention.lanes = 1; params.attention.lanes * 4 < stage->head_padded;) // of four values each
		params.attention.lanes *= 2;
	params.kv_layer = 2ull * stage->shape.kv_heads * STAGE_PAGE_TOKENS * stage->head_padded *
			  stage->params.page_count;
	params.arrived = stage->ready + STAGE_READY * sizeof(uint32_t);
	params.predicts = predicts;
	return stage_launch(stage,
			    &(struct stage_launch){.kernel = STAGE_DECODE + stage->decode_set,
						   .grid = {stage->units, 1, 1},
						   .block = DECODE_THREADS,
						   .shared_bytes = stage->decode_shared,
						   .together = true,
						   .params = &params},
			    error);
}
