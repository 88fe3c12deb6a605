/* A step of a stage: which kernels, in which order.
 *
 *     few rows    [norm, q, k, v] [turn, put into pages, attend] [attention output, add] [norm, gate, up] [down, add]
 *     many rows   the same, with the rounding of each product's input, and turning, as kernels of their own
 *
 * Which way a product goes depends on the number of rows alone, so the same batch gives the same bits. */
#include "engine/cuda/stage.h"

#include <math.h>
#include <string.h>

enum {
	GEMM_ROWS_NARROW = 32,
	GEMM_ROWS_WIDE = 128,
	GEMM_TILES = 8, // rows of tiles of a block
	EMBED_BLOCK = 256,
	PREPARE_BLOCK = 512,
	ARGMAX_BLOCK = 256,
	ARGMAX_BLOCKS = 64, // of a row
	LONG_TILES = 100,   // of a multiprocessor
	UNIT_COST = 2,      // of a unit of few rows, in tiles
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

// ---- products ----

struct product {
	const struct stage_matrix *matrices[3];
	uint32_t count;
	CUdeviceptr x, norm; // norm: 0 for none
	bool gated;          // the input is silu of a row's first half, times its second
	CUdeviceptr from;    // which rows of x; 0: the first ones
	CUdeviceptr plain;   // what prepare gives unrounded; 0: nowhere
	CUdeviceptr y;
	uint32_t rows, columns, y_stride;
	enum gemv_mode mode; // STORE or ADD
};

static bool takes_pairs(unsigned format)
{
	return format == TILE_F32 || format == TILE_BF16;
}

static void kinds_of(const struct product *product, unsigned *halves, unsigned *pairs)
{
	*halves = *pairs = 0;
	for (uint32_t i = 0; i < product->count; i++)
		*(takes_pairs(product->matrices[i]->format) ? pairs : halves) = 1;
}

// As stage_gemv.cu divides it.
static uint32_t gemv_shared(const struct gemv_params *params, unsigned slots)
{
	uint32_t integers = params->integers ? 2 * params->padded + 64 : 0;
	uint32_t halves = params->halves ? params->padded * 2 + 32 : 0,
		 pairs = params->pairs ? params->padded * 4 + 32 : 0;
	uint32_t row = integers + halves + pairs + params->padded / 32 * 2 * 4;
	uint32_t sums = 2u * (params->mode == GEMV_GATED ? 2 : 1) * GEMV_WARPS * TILE_ROWS * params->rows;
	return GEMV_WARPS * slots * params->slot_bytes + params->rows * row +
	       (sums + 2 * GEMV_ROWS + 2 * GEMV_WARPS) * 4;
}

// False if it has to go the way of many rows.
static bool gemv_plan(const struct backend_stage *stage, const struct product *product, bool gated,
		      struct gemv_params *params, struct stage_launch *launch)
{
	// About 64 KiB of a block, as in stage_gemv.cu.
	static const unsigned slots[TILE_COUNT] = {2, 2, 4, 4, 4, 4, 2, 2, 2};
	uint32_t column_tiles = UINT32_MAX;
	unsigned format = product->matrices[0]->format;
	*params = (struct gemv_params){
		.x = product->x,
		.norm = product->norm,
		.y = product->y,
		.matrix_count = product->count,
		.rows = product->rows,
		.columns = product->columns,
		.padded = tile_padded(product->columns),
		.y_stride = product->y_stride,
		.mode = gated ? GEMV_GATED : product->mode,
		.epsilon = stage->shape.norm_epsilon,
	};
	if (product->rows > GEMV_ROWS || product->gated || product->from)
		return false;
	for (uint32_t i = 0; i < product->count; i++) {
		const struct stage_matrix *matrix = product->matrices[i];
		uint32_t bytes = tile_bytes(matrix->format);
		params->matrices[i] = *matrix;
		params->units += gated && i ? 0 : matrix->row_tiles;
		params->slot_bytes = params->slot_bytes > bytes ? params->slot_bytes : bytes;
		*(takes_pairs(matrix->format)  ? &params->pairs
		  : matrix->format == TILE_F16 ? &params->halves
					       : &params->integers) = 1;
		column_tiles = least(column_tiles, matrix->column_tiles);
		format = matrix->format == format ? format : TILE_NONE;
	}
	// How many warps share a unit: so that the busiest has the least to do.
	uint32_t best = UINT32_MAX, parts = gated ? 2 : 1, blocks = least(stage->units, params->units);
	// A long way goes twice as many warps to a multiprocessor; after a short one the next kernel's are there
	// already.
	if (params->rows == 1 && (uint64_t)params->units * column_tiles * parts / stage->units > LONG_TILES)
		blocks = least(2 * stage->units, params->units);
	for (uint32_t warps = GEMV_WARPS; warps > 1; warps /= 2) {
		uint32_t cost = parts_of(params->units, blocks * (GEMV_WARPS / warps)) *
				(parts * parts_of(column_tiles, warps) + UNIT_COST);
		if (cost < best)
			params->warps_of_unit = warps;
		best = least(best, cost);
	}
	*launch = (struct stage_launch){.kernel = STAGE_GEMV + format,
					.grid = {blocks, 1, 1},
					.block = GEMV_THREADS,
					.shared_bytes = gemv_shared(params, slots[format])};
	return launch->shared_bytes + 1024 <= stage->shared_bytes;
}

static uint32_t gemm_shared(unsigned format, uint32_t width)
{
	uint32_t columns = tile_columns(format), stages = format == TILE_F32 ? 2 : 3;
	uint32_t chunk = tile_bytes(format) * (columns < GEMM_DEPTH ? GEMM_DEPTH / columns : 1);
	uint32_t chunks = columns > GEMM_DEPTH ? 2 : stages;
	return stages * width * GEMM_DEPTH * 2 * (takes_pairs(format) ? 2 : 1) + chunks * chunk * GEMM_TILES;
}

static enum status gemm(struct backend_stage *stage, const struct product *product, const struct stage_matrix *matrix,
			unsigned halves, unsigned pairs, struct error *error)
{
	bool wide = product->rows > 2 * GEMM_ROWS_NARROW &&
		    gemm_shared(matrix->format, GEMM_ROWS_WIDE) + 1024 <= stage->shared_bytes;
	uint32_t width = wide ? GEMM_ROWS_WIDE : GEMM_ROWS_NARROW, columns = tile_columns(matrix->format);
	uint32_t across = parts_of(matrix->row_tiles, GEMM_TILES), down = parts_of(product->rows, width);
	uint32_t chunks = matrix->column_tiles / (columns < GEMM_DEPTH ? GEMM_DEPTH / columns : 1);
	uint64_t part_bytes = (uint64_t)product->rows * matrix->row_tiles * TILE_ROWS * sizeof(float);
	uint32_t splits = 1;
	while (across * down * splits < stage->units && splits * 4 <= chunks &&
	       2 * splits * part_bytes <= STAGE_PARTIAL_BYTES)
		splits *= 2;
	const struct gemm_params params = {
		.matrix = *matrix,
		.x = stage->prepared,
		.factors = stage->factors,
		.y = product->y,
		.partial = stage->partial,
		.ready = stage->ready,
		.rows = product->rows,
		.padded = tile_padded(product->columns),
		.planes = halves + 2 * pairs,
		.plane = takes_pairs(matrix->format) ? halves : 0,
		.y_stride = product->y_stride,
		.mode = product->mode,
		.splits = splits,
	};
	const struct stage_launch launch = {.kernel = (wide ? STAGE_GEMM_128 : STAGE_GEMM_32) + matrix->format,
					    .grid = {across, down, splits},
					    .block = GEMM_THREADS,
					    .shared_bytes = gemm_shared(matrix->format, width),
					    .params = &params};
	return stage_launch(stage, &launch, error);
}

// Whether it goes by Hopper's own products.
static bool goes_wide(const struct backend_stage *stage, const struct product *product)
{
	for (uint32_t i = 0; i < product->count; i++)
		if (!stage_wide_fits(stage, product->matrices[i]->format, product->rows))
			return false;
	return true;
}

static enum status prepare(struct backend_stage *stage, const struct product *product, bool blocks, struct error *error)
{
	unsigned halves, pairs;
	kinds_of(product, &halves, &pairs);
	const struct prepare_params params = {
		.x = product->gated ? product->x + product->columns * 4ull : product->x,
		.gate = product->gated ? product->x : 0,
		.norm = product->norm,
		.from = product->from,
		.out = stage->prepared,
		.factors = stage->factors,
		.plain = product->plain,
		.rows = product->rows,
		.x_stride = product->gated ? 2 * product->columns : product->columns,
		.columns = product->columns,
		.padded = tile_padded(product->columns),
		.planes = halves + 2 * pairs,
		.halves = halves,
		.pairs = pairs,
		.blocks = blocks,
		.epsilon = stage->shape.norm_epsilon,
	};
	const struct stage_launch launch = {
		.kernel = STAGE_PREPARE, .grid = {product->rows, 1, 1}, .block = PREPARE_BLOCK, .params = &params};
	return stage_launch(stage, &launch, error);
}

// Matrices of one format that follow each other are one product.
static enum status wide(struct backend_stage *stage, const struct product *product, struct error *error)
{
	enum status status = prepare(stage, product, true, error);
	for (uint32_t i = 0, count; !status && i < product->count; i += count) {
		struct stage_wide part = {.y = product->y,
					  .rows = product->rows,
					  .columns = product->columns,
					  .y_stride = product->y_stride,
					  .mode = product->mode};
		for (count = 0; i + count < product->count; count++) {
			part.matrices[count] = product->matrices[i + count];
			if (part.matrices[count]->format != part.matrices[0]->format)
				break;
		}
		part.count = count;
		status = stage_wide_multiply(stage, &part, error);
	}
	return status;
}

static enum status many_rows(struct backend_stage *stage, const struct product *product, struct error *error)
{
	unsigned halves, pairs;
	if (goes_wide(stage, product))
		return wide(stage, product, error);
	enum status status = prepare(stage, product, false, error);
	kinds_of(product, &halves, &pairs);
	for (uint32_t i = 0; !status && i < product->count; i++)
		status = gemm(stage, product, product->matrices[i], halves, pairs, error);
	return status;
}

static enum status multiply(struct backend_stage *stage, const struct product *product, struct error *error)
{
	struct gemv_params params;
	struct stage_launch launch;
	if (!gemv_plan(stage, product, false, &params, &launch))
		return many_rows(stage, product, error);
	launch.params = &params;
	return stage_launch(stage, &launch, error);
}

// ---- layers ----

static enum status attend(struct backend_stage *stage, const struct cuda_step *step, uint32_t layer, bool turned,
			  struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct cuda_layer *weights = &stage->layers[layer];
	uint64_t page = 2ull * shape->kv_heads * STAGE_PAGE_TOKENS * stage->head_padded;
	uint32_t blocks = shape->kv_heads * stage->head_blocks, lanes = 1, splits = 1;
	bool prompts = turned && step->tile_count;
	uint32_t rows = prompts ? step->single_count : step->rows;
	while (lanes < 32 && lanes * 8 < stage->head_padded)
		lanes *= 2;
	uint64_t part_bytes = (uint64_t)rows * blocks * ATTENTION_HEADS * (stage->head_padded + 2) * 4;
	while (splits < ATTENTION_SPLITS && rows * blocks * splits < 2 * stage->units &&
	       splits * 2 * part_bytes <= STAGE_PARTIAL_BYTES && rows * blocks <= STAGE_READY)
		splits *= 2;
	struct attention_params params = {
		.qkv = stage->qkv,
		.q_norm = weights->q_norm,
		.k_norm = weights->k_norm,
		.rope = stage->rope,
		.kv = stage->kv + layer * stage->params.page_count * page * sizeof(uint16_t),
		.positions = step->positions,
		.tables = step->tables,
		.pages = step->pages,
		.singles = prompts ? step->singles : 0,
		.tiles = step->tiles,
		.partial = stage->partial,
		.ready = stage->ready,
		.out = stage->attended,
		.rows = step->rows,
		.qkv_stride = (shape->heads + 2 * shape->kv_heads) * shape->head_size,
		.heads = shape->heads,
		.kv_heads = shape->kv_heads,
		.head_size = shape->head_size,
		.head_padded = stage->head_padded,
		.rope_size = shape->rope_size,
		.rope_halves = shape->rope_halves,
		.splits = splits,
		.head_blocks = stage->head_blocks,
		.lanes = lanes,
		.turned = turned,
		.epsilon = shape->norm_epsilon,
		.scale = (float)(1.4426950408889634 / sqrt((double)shape->head_size)),
	};
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
	uint32_t groups = ATTENTION_WARPS * 32 / lanes;
	launch.kernel = stage->head_padded > 256 ? STAGE_ATTEND_2 : STAGE_ATTEND_1;
	launch.grid[0] = blocks * splits;
	launch.grid[1] = rows;
	launch.grid[2] = 1;
	launch.shared_bytes = (ATTENTION_HEADS * stage->head_padded +
			       groups * ATTENTION_HEADS * (stage->head_padded + 2)) *
			      4;
	return stage_launch(stage, &launch, error);
}

// The second half of a layer: x += down(silu(gate(norm x)) * up(norm x)).
static enum status feed_forward(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
				struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct product in = {.matrices = {&layer->gate, &layer->up},
			     .count = 2,
			     .x = stage->x,
			     .norm = layer->ffn_norm,
			     .y = stage->up,
			     .rows = rows,
			     .columns = shape->embedding,
			     .y_stride = shape->feed_forward};
	struct product out = {.matrices = {&layer->down},
			      .count = 1,
			      .x = stage->up,
			      .y = stage->x,
			      .rows = rows,
			      .columns = shape->feed_forward,
			      .y_stride = shape->embedding,
			      .mode = GEMV_ADD};
	struct gemv_params params;
	struct stage_launch launch;
	enum status status;
	if (gemv_plan(stage, &in, true, &params, &launch)) {
		launch.params = &params;
		status = stage_launch(stage, &launch, error);
		return status ? status : multiply(stage, &out, error);
	}
	if (goes_wide(stage, &in) && layer->gate.format == layer->up.format) {
		in.mode = GEMV_GATED;
		in.y = out.x = stage->gate_up;
		status = wide(stage, &in, error);
		return status ? status : many_rows(stage, &out, error);
	}
	// Side by side, as one matrix of twice the rows would be: the second into its own half.
	struct stage_matrix up = layer->up;
	up.first = shape->feed_forward;
	in.matrices[1] = &up;
	in.y = stage->gate_up;
	in.y_stride = 2 * shape->feed_forward;
	status = many_rows(stage, &in, error);
	out.x = stage->gate_up;
	out.gated = true;
	return status ? status : many_rows(stage, &out, error);
}

static enum status run_layer(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, bool single,
			     struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct cuda_layer *layer = &stage->layers[index];
	uint32_t attended = shape->heads * shape->head_size;
	const struct product qkv = {.matrices = {&layer->q, &layer->k, &layer->v},
				    .count = 3,
				    .x = stage->x,
				    .norm = layer->attention_norm,
				    .y = stage->qkv,
				    .rows = step->rows,
				    .columns = shape->embedding,
				    .y_stride = attended + 2 * shape->kv_heads * shape->head_size};
	const struct product out = {.matrices = {&layer->attention_output},
				    .count = 1,
				    .x = stage->attended,
				    .y = stage->x,
				    .rows = step->rows,
				    .columns = attended,
				    .y_stride = shape->embedding,
				    .mode = GEMV_ADD};
	enum status status = multiply(stage, &qkv, error);
	if (!status)
		status = attend(stage, step, index, !single, error);
	if (!status)
		status = multiply(stage, &out, error);
	return status ? status : feed_forward(stage, layer, step->rows, error);
}

// Tokens to rows, and all layers. single: each row is of a run of its own.
static enum status run_layers(struct backend_stage *stage, const struct cuda_step *step, bool single,
			      struct error *error)
{
	const struct embed_params embed = {.table = stage->embedding,
					   .tokens = step->tokens,
					   .x = stage->x,
					   .rows = step->rows,
					   .columns = stage->shape.embedding};
	enum status status = STATUS_OK;
	if (stage->params.embeds)
		status = stage_launch(stage,
				      &(struct stage_launch){.kernel = STAGE_EMBED,
							     .grid = {step->rows, 4, 1},
							     .block = EMBED_BLOCK,
							     .params = &embed},
				      error);
	for (uint32_t i = 0; !status && i < stage->params.layer_count; i++)
		status = run_layer(stage, step, i, single, error);
	return status;
}

// Logits, the largest of each row and, if `hidden`, the rows after the norm.
static enum status predict(struct backend_stage *stage, const struct cuda_step *step, bool all, bool hidden,
			   struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct product product = {.matrices = {&stage->output},
					.count = 1,
					.x = stage->x,
					.norm = stage->output_norm,
					.from = all ? 0 : step->outputs,
					.plain = hidden ? stage->hidden : 0,
					.y = stage->logits,
					.rows = step->output_count,
					.columns = shape->embedding,
					.y_stride = shape->vocabulary};
	const struct argmax_params params = {.logits = stage->logits,
					     .out = (CUdeviceptr)(uintptr_t)stage->argmax,
					     .partial = stage->partial,
					     .ready = stage->ready,
					     .rows = step->output_count,
					     .count = shape->vocabulary};
	struct gemv_params gemv;
	struct stage_launch launch;
	enum status status = STATUS_OK;
	if (hidden && gemv_plan(stage, &product, false, &gemv, &launch))
		status = prepare(stage, &product, false, error);
	if (!status)
		status = multiply(stage, &product, error);
	if (status)
		return status;
	return stage_launch(stage,
			    &(struct stage_launch){.kernel = STAGE_ARGMAX,
						   .grid = {ARGMAX_BLOCKS, step->output_count, 1},
						   .block = ARGMAX_BLOCK,
						   .params = &params},
			    error);
}

// ---- steps ----

// Which rows are attended one by one, and which as parts of prompts. How many words that takes.
static uint32_t tell_prompts(const struct backend_stage *stage, const struct stage_batch *batch, uint32_t *out,
			     struct cuda_step *step)
{
	uint32_t row = 0;
	bool fits = stage->shape.head_size == 64 || stage->shape.head_size == 128;
	for (uint32_t i = 0; i < batch->run_count; row += batch->runs[i++].row_count)
		for (uint32_t k = 0; k < batch->runs[i].row_count; k++)
			if (!fits || batch->runs[i].row_count < PROMPT_LEAST)
				out[step->single_count++] = row + k;
	uint32_t *tiles = out + step->single_count;
	row = 0;
	for (uint32_t i = 0; i < batch->run_count; row += batch->runs[i++].row_count)
		for (uint32_t k = 0; fits && batch->runs[i].row_count >= PROMPT_LEAST && k < batch->runs[i].row_count;
		     k += PROMPT_ROWS) {
			tiles[step->tile_count * 2] = row + k;
			tiles[step->tile_count++ * 2 + 1] = least(batch->runs[i].row_count - k, PROMPT_ROWS);
		}
	return step->single_count + 2 * step->tile_count;
}

// What the step is told goes to the device in one copy.
static enum status tell(struct backend_stage *stage, const struct stage_batch *batch, struct cuda_step *step,
			struct error *error)
{
	uint32_t rows = batch->row_count, outputs = batch->output_count, row = 0;
	uint32_t *tokens = stage->told_host, *positions = tokens + rows, *tables = positions + rows;
	uint32_t *output_rows = tables + rows, *pages = output_rows + outputs, used = 0;
	if (batch->tokens && stage->params.embeds)
		memcpy(tokens, batch->tokens, rows * sizeof(*tokens));
	for (uint32_t i = 0; i < batch->run_count; i++) {
		const struct stage_run *run = &batch->runs[i];
		uint32_t count = parts_of(run->position + run->row_count, STAGE_PAGE_TOKENS);
		for (uint32_t k = 0; k < run->row_count; k++, row++) {
			positions[row] = run->position + k;
			tables[row] = used;
		}
		memcpy(pages + used, run->pages, count * sizeof(*pages));
		used += count;
	}
	if (outputs)
		memcpy(output_rows, batch->output_rows, outputs * sizeof(*output_rows));
	CUdeviceptr at = stage->told;
	*step = (struct cuda_step){.tokens = at,
				   .positions = at + rows * 4ull,
				   .tables = at + rows * 8ull,
				   .outputs = at + rows * 12ull,
				   .pages = at + rows * 12ull + outputs * 4ull,
				   .rows = rows,
				   .output_count = outputs};
	uint64_t words = (uint64_t)(pages + used - tokens) + tell_prompts(stage, batch, pages + used, step);
	step->singles = step->pages + used * 4ull;
	step->tiles = step->singles + step->single_count * 4ull;
	CUresult result = stage->cuda->cuMemcpyAsync(at, (CUdeviceptr)(uintptr_t)tokens, words * 4, stage->stream);
	if (!result && !stage->params.embeds)
		result = stage->cuda->cuMemcpyAsync(stage->x, (CUdeviceptr)(uintptr_t)batch->input,
						    (uint64_t)rows * stage->shape.embedding * 4, stage->stream);
	return cuda_check(stage->device, error, "a copy", result);
}

// What a graph of single rows does behind the layers.
enum ends { ENDS_LAYERS, ENDS_LOGITS, ENDS_HIDDEN };

static enum status run(struct backend_stage *stage, const struct cuda_step *step, bool single, bool all, enum ends ends,
		       struct error *error)
{
	enum status status = run_layers(stage, step, single, error);
	return status || ends == ENDS_LAYERS ? status : predict(stage, step, all, ends == ENDS_HIDDEN, error);
}

static enum status make_graph(struct backend_stage *stage, const struct cuda_step *step, enum ends ends,
			      CUgraphExec *out, struct error *error)
{
	struct cuda *cuda = stage->cuda;
	CUgraph graph = NULL;
	CUresult result = cuda->cuStreamBeginCapture_v2(stage->stream, CUDA_CAPTURE_THREAD);
	if (result)
		return cuda_failed(cuda, error, "cuStreamBeginCapture", result);
	enum status status = run(stage, step, true, true, ends, error);
	result = cuda->cuStreamEndCapture(stage->stream, &graph);
	if (!status)
		status = cuda_check(stage->device, error, "cuStreamEndCapture", result);
	if (!status)
		status = cuda_check(stage->device, error, "cuGraphInstantiate",
				    cuda->cuGraphInstantiateWithFlags(out, graph, 0));
	if (graph)
		cuda->cuGraphDestroy(graph);
	return status;
}

static bool has_graphs(const struct cuda *cuda)
{
	return cuda->cuStreamBeginCapture_v2 && cuda->cuStreamEndCapture && cuda->cuGraphInstantiateWithFlags &&
	       cuda->cuGraphLaunch && cuda->cuGraphDestroy && cuda->cuGraphExecDestroy;
}

static enum status compute(struct backend_stage *stage, const struct stage_batch *batch, const struct cuda_step *step,
			   struct error *error)
{
	bool single = batch->run_count == batch->row_count && batch->row_count <= GEMV_ROWS;
	bool all = batch->output_count == batch->row_count;
	enum ends ends = !batch->output_count ? ENDS_LAYERS : batch->hidden ? ENDS_HIDDEN : ENDS_LOGITS;
	CUgraphExec *graph = &stage->graphs[single ? batch->row_count : 0][ends];
	if (*graph)
		return cuda_check(stage->device, error, "cuGraphLaunch",
				  stage->cuda->cuGraphLaunch(*graph, stage->stream));
	enum status status = run(stage, step, single, all, ends, error);
	// The first one was without: kernels are loaded by it, which a capture does not allow. It gives the same bits.
	if (!status && single && (all || ends == ENDS_LAYERS) && has_graphs(stage->cuda))
		status = make_graph(stage, step, ends, graph, error);
	return status;
}

enum status cuda_stage_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct cuda *cuda = stage->cuda;
	struct cuda_step step;
	CUresult result = cuda_enter(stage->device);
	if (result)
		return cuda_failed(cuda, error, "cuCtxSetCurrent", result);
	enum status status = tell(stage, batch, &step, error);
	if (!status)
		status = compute(stage, batch, &step, error);
	if (!status)
		status = stage_wait(stage, error);
	if (status)
		return status;
	uint64_t outputs = batch->output_count;
	if (!stage->params.predicts)
		result = cuda->cuMemcpyDtoH_v2(batch->output, stage->x,
					       (uint64_t)batch->row_count * shape->embedding * sizeof(float));
	if (!result && outputs && batch->logits)
		result = cuda->cuMemcpyDtoH_v2(batch->logits, stage->logits,
					       outputs * shape->vocabulary * sizeof(float));
	if (!result && outputs && batch->hidden)
		result = cuda->cuMemcpyDtoH_v2(batch->hidden, stage->hidden,
					       outputs * shape->embedding * sizeof(float));
	if (outputs && batch->argmax)
		memcpy(batch->argmax, stage->argmax, outputs * sizeof(*batch->argmax));
	return cuda_check(stage->device, error, "a copy", result);
}
