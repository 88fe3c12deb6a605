/* A step of a stage: which kernels, in which order.
 *
 *     few rows    [norm, q, k, v] [turn, put into pages, attend] [attention output, add] [norm, gate, up] [down, add]
 *     many rows   the same, with the rounding of each product's input, and turning, as kernels of their own
 *     experts     instead of the last two: [norm, scores] [choose] [order] [gate, up by expert] [down by expert] [add]
 *     a state     instead of the first three: [norm, channels, gate] [norm, beta, alpha] [convolve] [heads]
 *                 [norm, gate] [output, add]; a short convolution has no [norm, beta, alpha], no heads and no [norm,
 * gate] one row     on Hopper and later, where all matrices are of one format that it knows: all layers and the output
 *                 matrix as one kernel (stage_decode.c)
 *
 * The kernels of a layer: stage_layer.c. */
#include "common/base/log.h"
#include "engine/cuda/stage/stage_product.h"

#include <string.h>

enum { BEFORE_TIMED = 3 };

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t parts_of(uint32_t n, uint32_t size)
{
	return (n + size - 1) / size;
}

// Which rows are attended one by one, and which as parts of prompts. How many words that takes.
static uint32_t tell_prompts(const struct backend_stage *stage, const struct stage_batch *batch, uint32_t *out,
			     struct cuda_step *step)
{
	uint32_t row = 0;
	// The kernel for prompts attends to earlier positions only; rows of encoders attend to all of their text.
	bool fits = !stage->shape.encoder && !model_is_latent(&stage->shape) &&
		    (stage->shape.head_size == 64 || stage->shape.head_size == 128);
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

// The states of the runs. How many words that takes.
static uint32_t tell_states(const struct backend_stage *stage, const struct stage_batch *batch, uint32_t *out,
			    struct cuda_step *step)
{
	struct state_run *runs = (struct state_run *)(void *)out;
	uint32_t row = 0;
	if (!model_is_recurrent(&stage->shape))
		return 0;
	step->run_count = batch->run_count;
	for (uint32_t i = 0; i < batch->run_count; row += batch->runs[i++].row_count) {
		const struct stage_run *run = &batch->runs[i];
		runs[i] = (struct state_run){row, run->row_count, run->state_from, run->state_to};
		step->longest_run = run->row_count > step->longest_run ? run->row_count : step->longest_run;
	}
	return batch->run_count * (uint32_t)(sizeof(struct state_run) / sizeof(uint32_t));
}

// Copy the input of the step to the device at once.
static enum status tell(struct backend_stage *stage, const struct stage_batch *batch, struct cuda_step *step,
			struct error *error)
{
	// A stage that predicts has outputs. The order is fixed, so graphs, which are kept by rows and ends, find all
	// arrays at the same places.
	uint32_t outputs = stage->params.predicts ? batch->output_count : 0;
	uint32_t rows = batch->row_count, row = 0;
	uint32_t *tokens = stage->told_host, *positions = tokens + rows, *tables = positions + rows;
	uint32_t *runs = tables + rows, used = 0;
	*step = (struct cuda_step){.rows = rows, .output_count = outputs};
	uint32_t *output_rows = runs + tell_states(stage, batch, runs, step), *pages = output_rows + outputs;
	if (batch->tokens && stage->params.embeds)
		memcpy(tokens, batch->tokens, rows * sizeof(*tokens));
	for (uint32_t i = 0; i < batch->run_count; i++) {
		const struct stage_run *run = &batch->runs[i];
		uint32_t count = parts_of(run->position + run->row_count, STAGE_PAGE_TOKENS);
		for (uint32_t k = 0; k < run->row_count; k++, row++) {
			positions[row] = run->position + k;
			tables[row] = used;
			if (stage->shape.encoder)
				tokens[row] = run->position + run->row_count;
		}
		memcpy(pages + used, run->pages, count * sizeof(*pages));
		used += count;
	}
	if (outputs)
		memcpy(output_rows, batch->output_rows, outputs * sizeof(*output_rows));
	CUdeviceptr at = stage->told;
	step->tokens = at;
	step->positions = at + rows * 4ull;
	step->tables = at + rows * 8ull;
	step->runs = at + rows * 12ull;
	step->outputs = at + (uint64_t)(output_rows - tokens) * 4;
	step->pages = at + (uint64_t)(pages - tokens) * 4;
	uint64_t words = (uint64_t)(pages + used - tokens) + tell_prompts(stage, batch, pages + used, step);
	step->singles = step->pages + used * 4ull;
	step->tiles = step->singles + step->single_count * 4ull;
	CUresult result = stage->cuda->cuMemcpyAsync(at, (CUdeviceptr)(uintptr_t)tokens, words * 4, stage->stream);
	if (!result && !stage->params.embeds && !stage->params.slice)
		result = stage->cuda->cuMemcpyAsync(stage->params.slices ? stage->slice.summands[0] : stage->x,
						    (CUdeviceptr)(uintptr_t)batch->input,
						    (uint64_t)rows * stage->shape.embedding * 4, stage->stream);
	return cuda_check(stage->device, error, "a copy", result);
}

// The work of a graph of single rows after the layers.
enum ends { ENDS_LAYERS, ENDS_LOGITS, ENDS_HIDDEN };

struct plan {
	const struct cuda_step *step;
	bool single, all; // each row is of a run of its own; outputs are wanted of all
	enum ends ends;
};

// A step is made of pieces: the rows, the two halves of each layer, and the work after the layers. Slices synchronise
// at the end of each piece but the last.
static uint32_t piece_count(const struct backend_stage *stage)
{
	return 2 * stage->params.layer_count + 2;
}

static enum status run_piece(struct backend_stage *stage, const struct plan *plan, uint32_t piece, struct error *error)
{
	const struct cuda_step *step = plan->step;
	uint32_t layer = (piece - 1) / 2;
	enum status status = STATUS_OK;
	enum stage_reduction reduction = STAGE_SPREAD;
	if (piece + 1 == piece_count(stage))
		return plan->ends == ENDS_LAYERS
			       ? STATUS_OK
			       : stage_predict(stage, step, plan->all, plan->ends == ENDS_HIDDEN, false, error);
	if (!piece && stage->params.embeds) {
		status = stage_embed(stage, step, error);
	} else if (piece % 2) {
		const bool state = stage->shape.layer_kinds[stage->params.first_layer + layer] & LAYER_DELTA;
		status = state                            ? stage_delta(stage, step, layer, error)
			 : model_is_latent(&stage->shape) ? stage_latent(stage, step, layer, plan->single, error)
							  : stage_attention(stage, step, layer, plan->single, error);
		reduction = STAGE_ADD_ATTENTION;
	} else if (piece) {
		status = stage_feed_forward(stage, step, layer, error);
		reduction = STAGE_ADD_FFN;
	}
	return status || !stage->params.slices ? status : stage_reduce(stage, step->rows, reduction, error);
}

// One row, by the persistent kernel.
static enum status run_decode(struct backend_stage *stage, const struct plan *plan, struct error *error)
{
	const struct attention_params attention = stage_attention_params(stage, plan->step, 0);
	enum status status = stage->params.embeds ? stage_embed(stage, plan->step, error) : STATUS_OK;
	if (!status)
		status = stage_decode(stage, &attention, plan->ends != ENDS_LAYERS, error);
	if (status || plan->ends == ENDS_LAYERS)
		return status;
	return stage_predict(stage, plan->step, true, plan->ends == ENDS_HIDDEN, true, error);
}

static enum status run(struct backend_stage *stage, const struct plan *plan, struct error *error)
{
	enum status status = STATUS_OK;
	if (stage->decodes && plan->single && plan->step->rows == 1 && plan->step->output_count <= 1)
		return run_decode(stage, plan, error);
	for (uint32_t piece = 0; !status && piece < piece_count(stage); piece++)
		status = run_piece(stage, plan, piece, error);
	return status;
}

static enum status make_graph(struct backend_stage *stage, const struct plan *plan, CUgraphExec *out,
			      struct error *error)
{
	struct cuda *cuda = stage->cuda;
	CUgraph graph;
	CUgraphExec made;
	CUresult result = cuda->cuStreamBeginCapture_v2(stage->stream, CUDA_CAPTURE_THREAD);
	if (result)
		return cuda_failed(cuda, error, "cuStreamBeginCapture", result);
	enum status status = run(stage, plan, error);
	result = cuda->cuStreamEndCapture(stage->stream, &graph);
	if (result)
		return status ? status : cuda_failed(cuda, error, "cuStreamEndCapture", result);
	if (!status) {
		result = cuda->cuGraphInstantiateWithFlags(&made, graph, 0);
		status = cuda_check(stage->device, error, "cuGraphInstantiate", result);
	}
	if (!status)
		*out = made;
	if (graph) // a capture that was spoilt gives none
		cuda->cuGraphDestroy(graph);
	return status;
}

// The step has been computed without: that there is no memory for a graph costs it nothing, and others some time.
static enum status try_graph(struct backend_stage *stage, const struct plan *plan, CUgraphExec *out,
			     struct error *error)
{
	struct error fault = {0};
	const enum status status = make_graph(stage, plan, out, &fault);
	if (status == STATUS_DEVICE_LOST)
		return error_set(error, status, "%s", fault.message);
	if (status)
		log_warning("cuda", "steps continue without graphs, which is slower: %s", fault.message);
	stage->graphless = status;
	return STATUS_OK;
}

static bool has_graphs(const struct cuda *cuda)
{
	return cuda->cuStreamBeginCapture_v2 && cuda->cuStreamEndCapture && cuda->cuGraphInstantiateWithFlags &&
	       cuda->cuGraphLaunch && cuda->cuGraphDestroy && cuda->cuGraphExecDestroy;
}

// The number of rows, one of each sequence, up to which a step is a graph.
static uint32_t single_rows(const struct backend_stage *stage)
{
	return stage->params.slices ? GEMV_ROWS : STAGE_SINGLE_ROWS;
}

static struct plan plan_of(const struct backend_stage *stage, const struct stage_batch *batch,
			   const struct cuda_step *step)
{
	bool outputs = batch->output_count && stage->params.predicts;
	return (struct plan){
		.step = step,
		.single = batch->run_count == batch->row_count && batch->row_count <= single_rows(stage),
		.all = batch->output_count == batch->row_count,
		.ends = !outputs        ? ENDS_LAYERS
			: batch->hidden ? ENDS_HIDDEN
					: ENDS_LOGITS,
	};
}

// Where its graph is, or is to be.
static CUgraphExec *graph_of(struct backend_stage *stage, const struct plan *plan)
{
	return &stage->graphs[plan->single ? plan->step->rows : 0][plan->ends];
}

static bool takes_graph(const struct backend_stage *stage, const struct plan *plan)
{
	return plan->single && (plan->all || plan->ends == ENDS_LAYERS) && !stage->graphless && has_graphs(stage->cuda);
}

static enum status launch_graph(struct backend_stage *stage, CUgraphExec graph, struct error *error)
{
	return cuda_check(stage->device, error, "cuGraphLaunch", stage->cuda->cuGraphLaunch(graph, stage->stream));
}

static enum status compute(struct backend_stage *stage, const struct plan *plan, struct error *error)
{
	CUgraphExec *graph = graph_of(stage, plan);
	if (*graph)
		return launch_graph(stage, *graph, error);
	enum status status = run(stage, plan, error);
	// The first one was without: kernels are loaded by it, which a capture does not allow. It gives the same bits.
	return status || !takes_graph(stage, plan) ? status : try_graph(stage, plan, graph, error);
}

static enum status enter(struct backend_stage *stage, struct error *error)
{
	CUresult result = cuda_enter(stage->device);
	return result ? cuda_failed(stage->cuda, error, "cuCtxSetCurrent", result) : STATUS_OK;
}

// What was wanted, once it is there.
static enum status give(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	struct cuda *cuda = stage->cuda;
	CUresult result = CUDA_SUCCESS;
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

enum status cuda_stage_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	struct cuda_step step;
	enum status status = enter(stage, error);
	if (status)
		return status;
	status = tell(stage, batch, &step, error);
	const struct plan plan = plan_of(stage, batch, &step);
	if (!status)
		status = compute(stage, &plan, error);
	if (!status && batch->candidates && step.output_count)
		status = stage_find_candidates(stage, &step, error);
	if (status) { // what has begun reads what the next step writes
		stage_wait_event(stage, NULL, NULL);
		return status;
	}
	status = stage_wait(stage, error);
	return status ? status : give(stage, batch, error);
}

enum status cuda_stage_time(struct backend_stage *stage, const struct stage_batch *batch, stage_timing_fn *each,
			    void *context, struct error *error)
{
	struct cuda_step step;
	enum status status = enter(stage, error), ended;
	if (!status)
		status = tell(stage, batch, &step, error);
	const struct plan plan = plan_of(stage, batch, &step);
	// The GPU is kept busy meanwhile: the time between two events is never that of the host, which launches later.
	for (int i = 0; !status && i < BEFORE_TIMED; i++)
		status = run(stage, &plan, error);
	if (!status)
		status = stage_timer_begin(stage, error);
	if (!status)
		status = run(stage, &plan, error);
	ended = status ? stage_wait_event(stage, NULL, NULL) : stage_wait(stage, error);
	status = status ? status : ended;
	ended = stage_timer_end(stage, status ? NULL : each, context, error);
	return status ? status : ended;
}

// ---- slices ----

// To load a kernel the driver may wait for what runs: for a slice that waits for this one, for ever.
static enum status load_kernels(struct backend_stage *stage, const struct plan *plan, struct error *error)
{
	enum status status = enter(stage, error);
	stage->slice.loading = true;
	if (!status)
		status = run(stage, plan, error);
	stage->slice.loading = false;
	return status;
}

// Piece by piece, one slice after the other: where a launch waits for room in its stream, that comes, since all that
// the work before it may be waiting for is there already.
static enum status run_joined(struct backend_stage *const *slices, uint32_t count, const struct plan *plans,
			      struct error *error)
{
	enum status status = STATUS_OK;
	bool graphs = true;
	for (uint32_t i = 0; !status && i < count; i++)
		status = load_kernels(slices[i], &plans[i], error);
	for (uint32_t piece = 0; piece < piece_count(slices[0]); piece++)
		for (uint32_t i = 0; !status && i < count; i++) {
			status = enter(slices[i], error);
			if (!status)
				status = run_piece(slices[i], &plans[i], piece, error);
		}
	for (uint32_t i = 0; i < count; i++)
		graphs = graphs && takes_graph(slices[i], &plans[i]);
	for (uint32_t i = 0; graphs && !status && i < count; i++) {
		CUgraphExec *graph = graph_of(slices[i], &plans[i]);
		status = enter(slices[i], error);
		if (!status && !*graph)
			status = try_graph(slices[i], &plans[i], graph, error);
	}
	return status;
}

static enum status compute_joined(struct backend_stage *const *slices, uint32_t count, const struct plan *plans,
				  struct error *error)
{
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < count; i++)
		if (!*graph_of(slices[i], &plans[i]))
			return run_joined(slices, count, plans, error);
	for (uint32_t i = 0; !status && i < count; i++) {
		status = enter(slices[i], error);
		if (!status)
			status = launch_graph(slices[i], *graph_of(slices[i], &plans[i]), error);
	}
	return status;
}

// No slice waits for another any longer, and when this returns none reads another's memory, or none is freed.
static void give_up(struct backend_stage *const *slices, uint32_t count, int64_t limit_ns)
{
	*slices[0]->slice.failed = 1;
	stage_settle(slices, count, limit_ns);
}

// Slices that did not all get the same work no longer agree on whose turn it is: the stage is lost with any fault.
enum status cuda_stage_step_joined(struct backend_stage *const *slices, uint32_t count, const struct stage_batch *batch,
				   struct error *error)
{
	struct cuda_step steps[STAGE_SLICES] = {0};
	struct plan plans[STAGE_SLICES] = {0};
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < count; i++) {
		status = enter(slices[i], error);
		if (!status)
			status = tell(slices[i], batch, &steps[i], error);
		plans[i] = plan_of(slices[i], batch, &steps[i]);
	}
	if (!status)
		status = compute_joined(slices, count, plans, error);
	for (uint32_t i = 0; !status && i < count; i++) {
		status = enter(slices[i], error);
		if (!status)
			status = stage_wait(slices[i], error);
	}
	if (!status && *slices[0]->slice.failed)
		status = error_set(error, STATUS_DEVICE_LOST, "a slice of the stage did not arrive in time");
	if (status) {
		give_up(slices, count, status == STATUS_TIMEOUT ? STAGE_CLOSE_NS : slices[0]->device->timeout_ns);
		return STATUS_DEVICE_LOST;
	}
	status = enter(slices[0], error);
	return status ? status : give(slices[0], batch, error);
}
