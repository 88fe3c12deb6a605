/* The CPU back end: a mixture of experts.
 *
 * Each row chooses its experts by their scores. Then rows are gathered by expert, so that an expert's weights are read
 * once for all rows that chose it, and not at all if none did: its rows are copied next to each other, go through gate,
 * up and down as products of that many rows, and the results are added row by row, in the order in which the row chose
 * its experts. So a row's result does not depend on the other rows, except for the rounding of the processor's tiles.
 * Many rows are computed in several turns. Thread: the device's. */
#include "engine/cpu/stage/stage.h"
#include "engine/cpu/team.h"

#include <math.h>
#include <string.h>

// Panels of a piece: many rows read their values less often by more, few rows are bound by weights and give pieces to
// all threads.
enum { PIECE_FEW = PRODUCT_PANELS, PIECE_MANY = 2 * PRODUCT_PANELS, ROWS_MANY = 64 };
enum { TILE_ROWS = 16, TILE_COLUMNS = TILE_GROUPS * PANEL_GROUP };

// Some rows on their way through the experts.
struct turn {
	struct step *step;
	uint32_t first_row, rows, jobs, piece; // piece: panels
	const struct panels *down;             // NULL: gate and up
	float *sum;
	bool add;
};

static uint32_t parts_of(uint32_t count, uint32_t of)
{
	return (count + of - 1) / of;
}

// ---- choosing ----

static float weight_scale(const struct model_shape *shape)
{
	return shape->expert_scale > 0 ? shape->expert_scale : 1;
}

// How good a group of experts is: as good as its best or, with sigmoids, as the sum of its best two.
static float group_score(const struct model_shape *shape, const float *scores, const float *bias, uint32_t group)
{
	const uint32_t size = shape->experts / shape->expert_groups;
	float best = -1e30f, second = -1e30f; // whatever the scores are, the sum is a number
	for (uint32_t e = group * size; e < (group + 1) * size; e++) {
		const float score = scores[e] + (bias ? bias[e] : 0);
		second = score > best ? best : score > second ? score : second;
		best = score > best ? score : best;
	}
	return bias && size > 1 ? best + second : best;
}

// Experts of all groups but the best are as if they were taken.
static void take_groups(const struct model_shape *shape, const float *scores, const float *bias, bool *taken)
{
	const uint32_t groups = shape->expert_groups, size = groups ? shape->experts / groups : 0;
	float of[MODEL_EXPERT_GROUPS_MOST];
	if (!groups)
		return;
	for (uint32_t i = 0; i < groups; i++)
		of[i] = group_score(shape, scores, bias, i);
	for (uint32_t i = 0; i < groups; i++) {
		uint32_t better = 0;
		for (uint32_t other = 0; other < groups; other++)
			better += of[other] > of[i] || (other < i && !(of[i] > of[other]));
		for (uint32_t e = i * size; better >= shape->expert_groups_used && e < (i + 1) * size; e++)
			taken[e] = true;
	}
}

// Scores become sigmoids; weights are those of the chosen experts, without the bias that they are chosen by.
static void choose_by_sigmoids(const struct step *step, float *scores, uint32_t *chosen, float *weights)
{
	const struct model_shape *shape = step->stage->shape;
	const float *bias = step->layer->router_choice;
	bool taken[LIMIT_MODEL_EXPERTS] = {false};
	float total = 0;
	for (uint32_t e = 0; e < shape->experts; e++)
		scores[e] = 1 / (1 + expf(-scores[e]));
	take_groups(shape, scores, bias, taken);
	for (uint32_t k = 0; k < shape->experts_used; k++) {
		uint32_t best = UINT32_MAX;
		for (uint32_t e = 0; e < shape->experts; e++)
			if (!taken[e] && (best == UINT32_MAX || scores[e] + bias[e] > scores[best] + bias[best]))
				best = e;
		taken[best] = true;
		chosen[k] = best;
		weights[k] = scores[best];
		total += weights[k];
	}
	total = shape->expert_share ? 1 : fmaxf(total, 6.1e-5f); // all sigmoids may underflow
	for (uint32_t k = 0; k < shape->experts_used; k++)
		weights[k] *= weight_scale(shape) / total;
}

// The largest scores' experts, the lowest number of equals first, and what each one's result is multiplied by.
static void choose_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	const struct model_shape *shape = step->stage->shape;
	const struct stage_experts *experts = &step->stage->experts;
	float *scores = experts->scores + row * shape->experts;
	uint32_t *chosen = experts->chosen + row * shape->experts_used;
	float *weights = experts->weights + row * shape->experts_used, total = 0;
	bool taken[LIMIT_MODEL_EXPERTS] = {false};
	if (shape->expert_sigmoid) {
		choose_by_sigmoids(step, scores, chosen, weights);
		return;
	}
	stage_add_bias(scores, step->layer->router_bias, shape->experts);
	take_groups(shape, scores, NULL, taken);
	for (uint32_t k = 0; k < shape->experts_used; k++) {
		uint32_t best = UINT32_MAX;
		for (uint32_t e = 0; e < shape->experts; e++)
			if (!taken[e] && (best == UINT32_MAX || scores[e] > scores[best]))
				best = e;
		taken[best] = true;
		chosen[k] = best;
		weights[k] = expf(scores[best] - scores[chosen[0]]);
		total += weights[k];
	}
	if (shape->expert_share) {
		total = 0;
		for (uint32_t e = 0; e < shape->experts; e++)
			total += expf(scores[e] - scores[chosen[0]]);
	}
	for (uint32_t k = 0; k < shape->experts_used; k++)
		weights[k] *= weight_scale(shape) / total;
}

static bool has_tiles(const struct backend_stage *stage, const struct stage_job *job)
{
	return stage->kernels->make_tiles && job->count >= TILES_LEAST;
}

// Slots by expert, and of each expert that somebody chose a job.
static void plan(struct turn *turn)
{
	const struct backend_stage *stage = turn->step->stage;
	const struct stage_experts *experts = &stage->experts;
	const uint32_t used = stage->shape->experts_used, *chosen = experts->chosen + (size_t)turn->first_row * used;
	uint32_t next[LIMIT_MODEL_EXPERTS] = {0}, slot = 0, tile = 0;
	for (uint32_t i = 0; i < turn->rows * used; i++)
		next[chosen[i]]++;
	turn->jobs = 0;
	for (uint32_t e = 0; e < stage->shape->experts; e++) {
		struct stage_job *job = &experts->jobs[turn->jobs];
		if (!next[e])
			continue;
		*job = (struct stage_job){.expert = e, .first = slot, .count = next[e], .tile = tile};
		tile += has_tiles(stage, job) ? parts_of(job->count, TILE_ROWS) : 0;
		next[e] = slot;
		slot += job->count;
		turn->jobs++;
	}
	for (uint32_t i = 0; i < turn->rows * used; i++) {
		experts->slots[i] = next[chosen[i]]++;
		experts->slot_rows[experts->slots[i]] = turn->first_row + i / used;
	}
}

// ---- products ----

static uint8_t *tiles_of(const struct backend_stage *stage, const struct stage_job *job, uint32_t columns)
{
	return stage->experts.tiles + (size_t)job->tile * parts_of(columns, TILE_COLUMNS) * TILE_ROW_BYTES;
}

// A slot's values (columns, in whole groups) as the kernels take them.
static void prepare(const struct turn *turn, uint32_t slot, const float *values, uint32_t columns)
{
	const struct backend_stage *stage = turn->step->stage;
	const struct stage_job *job = stage->experts.jobs;
	const uint32_t groups = columns / PANEL_GROUP;
	while (slot >= job->first + job->count)
		job++;
	if (has_tiles(stage, job))
		stage->kernels->make_tiles(&(struct product_row){.tiles = tiles_of(stage, job, columns),
								 .row = slot - job->first,
								 .rows = job->count,
								 .values = values,
								 .groups = groups});
	else
		stage->kernels->make_groups(stage->experts.groups + (size_t)slot * groups, values, groups);
}

static void gather_piece(void *context, uint64_t slot)
{
	const struct turn *turn = context;
	const struct backend_stage *stage = turn->step->stage;
	const uint32_t columns = stage_padded(stage->shape->embedding);
	float *to = stage->experts.values + slot * columns;
	memcpy(to, stage->normed + (size_t)stage->experts.slot_rows[slot] * columns, columns * sizeof(*to));
	prepare(turn, (uint32_t)slot, to, columns);
}

static void gated_piece(void *context, uint64_t slot)
{
	const struct turn *turn = context;
	const struct backend_stage *stage = turn->step->stage;
	const uint32_t columns = stage_padded(stage->shape->expert_width);
	prepare(turn, (uint32_t)slot, stage->experts.gate + slot * columns, columns);
}

static struct product product_of(const struct backend_stage *stage, const struct stage_job *job,
				 const struct panels *panels, const float *from, float *to, uint32_t to_stride)
{
	const uint32_t columns = panels->groups * PANEL_GROUP;
	return (struct product){
		.panels = panels,
		.values = from + (size_t)job->first * columns,
		.groups = stage->experts.groups + (size_t)job->first * panels->groups,
		.tiles = has_tiles(stage, job) ? tiles_of(stage, job, columns) : NULL,
		.value_stride = columns,
		.rows = job->count,
		.output = to + (size_t)job->first * to_stride,
		.output_stride = to_stride,
	};
}

// `count` panels from `first` on; without tiles the kernels take a few at a time.
static void multiply(const struct backend_stage *stage, const struct product *product, uint32_t first, uint32_t count)
{
	const uint32_t most = product->tiles ? count : PRODUCT_PANELS;
	for (uint32_t i = 0; i < count; i += most)
		stage->kernels->multiply(product, first + i, count - i < most ? count - i : most);
}

// The part of an expert's bias from column `at` on; of n columns the last ones may be more than there are.
static void add_expert_bias(const struct backend_stage *stage, float *values, const float *biases, uint32_t expert,
			    size_t at, size_t n)
{
	const size_t width = stage->shape->expert_width;
	if (biases)
		stage_add_bias(values, biases + expert * width + at, width - at < n ? width - at : n);
}

// Some panels of gate and up, or of down, of one job's expert.
static void job_piece(void *context, uint64_t index)
{
	const struct turn *turn = context;
	const struct backend_stage *stage = turn->step->stage;
	const struct stage_experts *experts = &stage->experts;
	const struct stage_layer *layer = turn->step->layer;
	const struct panels *first_of = turn->down ? turn->down : layer->expert_gate;
	const uint32_t most = turn->piece, pieces = parts_of(first_of->panel_count, most);
	const struct stage_job *job = &experts->jobs[index / pieces];
	const uint32_t first = (uint32_t)(index % pieces) * most, left = first_of->panel_count - first;
	const uint32_t count = left < most ? left : most;
	const uint32_t width = stage_padded(stage->shape->expert_width),
		       embedding = stage_padded(stage->shape->embedding);
	if (turn->down) {
		const struct product down = product_of(stage, job, &turn->down[job->expert], experts->gate,
						       experts->values, embedding);
		multiply(stage, &down, first, count);
		return;
	}
	const struct product gate = product_of(stage, job, &layer->expert_gate[job->expert], experts->values,
					       experts->gate, width);
	const struct product up = product_of(stage, job, &layer->expert_up[job->expert], experts->values, experts->up,
					     width);
	const size_t at = (size_t)first * PANEL_ROWS, n = (size_t)count * PANEL_ROWS;
	multiply(stage, &gate, first, count);
	multiply(stage, &up, first, count);
	for (uint32_t row = 0; row < job->count; row++) {
		float *from = gate.output + (size_t)row * width + at, *by = up.output + (size_t)row * width + at;
		add_expert_bias(stage, from, layer->expert_gate_bias, job->expert, at, n);
		add_expert_bias(stage, by, layer->expert_up_bias, job->expert, at, n);
		stage_gate(stage, from, by, n);
	}
}

// ---- results of the experts ----

static void add_piece(void *context, uint64_t index)
{
	const struct turn *turn = context;
	const struct backend_stage *stage = turn->step->stage;
	const struct stage_experts *experts = &stage->experts;
	const uint32_t used = stage->shape->experts_used, n = stage->shape->embedding, padded = stage_padded(n);
	const size_t row = turn->first_row + index;
	const float *weights = experts->weights + row * used;
	const float *shared = stage->shape->shared_gate ? stage->summand + row * n : NULL;
	const float by = shared ? 1 / (1 + expf(-experts->shared_score[row])) : 0;
	const float *bias = turn->step->layer->expert_down_bias;
	const uint32_t *chosen = experts->chosen + row * used;
	float *to = turn->sum + row * n;
	for (uint32_t k = 0; bias && k < used; k++)
		stage_add_bias(experts->values + (size_t)experts->slots[index * used + k] * padded,
			       bias + (size_t)chosen[k] * n, n);
	for (uint32_t i = 0; i < n; i++) {
		float sum = shared ? by * shared[i] : 0;
		for (uint32_t k = 0; k < used; k++)
			sum += weights[k] * experts->values[(size_t)experts->slots[index * used + k] * padded + i];
		to[i] = turn->add ? to[i] + sum : sum;
	}
}

void cpu_experts_compute(struct step *step, float *sum, bool add)
{
	const struct backend_stage *stage = step->stage;
	const struct stage_layer *layer = step->layer;
	const uint32_t rows = step->batch->row_count, most = stage->experts.rows, used = stage->shape->experts_used;
	team_run(step->team, choose_piece, step, rows);
	for (uint32_t first = 0; first < rows; first += most) {
		struct turn turn = {.step = step,
				    .first_row = first,
				    .rows = rows - first < most ? rows - first : most,
				    .piece = rows < ROWS_MANY ? PIECE_FEW : PIECE_MANY,
				    .sum = sum,
				    .add = add};
		plan(&turn);
		team_run(step->team, gather_piece, &turn, turn.rows * used);
		team_run(step->team, job_piece, &turn,
			 turn.jobs * parts_of(layer->expert_gate->panel_count, turn.piece));
		team_run(step->team, gated_piece, &turn, turn.rows * used);
		turn.down = layer->expert_down;
		team_run(step->team, job_piece, &turn, turn.jobs * parts_of(turn.down->panel_count, turn.piece));
		team_run(step->team, add_piece, &turn, turn.rows);
	}
}
