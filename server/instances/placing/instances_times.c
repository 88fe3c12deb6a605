/* How long the layers of an instance take: timed by its workers when they have loaded, corrected by what its parts take
 * for the tokens of one request, of several at once and for prompts, and kept for later placements (layer_times.h).
 * Thread: the loop's. */
#include "common/base/clock.h"
#include "server/instances/instances_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// A step through a stage: what lies outside is not believed.
static const double STAGE_LEAST_S = 1e-6, STAGE_MOST_S = 1000, SPREAD_MOST = 1000;
static const double ONE_ROW = 1.5;  // fewer are one
static const double OBSERVED = 0.5; // spread of the times of running steps: they count as four runs that did not differ

static double within(double seconds)
{
	return seconds >= STAGE_LEAST_S && seconds <= STAGE_MOST_S ? seconds : -1;
}

static void read_batches(double batch[STORE_BATCHES], const struct json *batch_s, double one_s)
{
	const struct json *one = json_first(batch_s);
	for (int i = 0; i < STORE_BATCHES; i++, one = one ? json_next(one) : NULL) {
		const double seconds = one ? within(json_number(one, -1)) : -1;
		batch[i] = seconds < 0 ? -1 : fmin(fmax(seconds / one_s, 1), 2 << i);
	}
}

static double blend(double measured, double known, double weight)
{
	return measured < 0 ? known : known < 0 ? measured : measured + (known - measured) * weight;
}

// A short run is disturbed by loading and hashing at the same time: the known time keeps half of the weight, and half
// of that for each day of its age. A time whose runs differed more counts less, by the square: on a busy machine layers
// take several times as long as they will take later.
static void blend_times(struct layer_time *time, const struct layer_time *known)
{
	const double day_ms = 24 * 3600e3, age_ms = fmax((double)(time->measured_ms - known->measured_ms), 0);
	const bool both = time->spread > 0 && known->spread > 0;
	const double now = both ? time->spread * time->spread : 1, then = both ? known->spread * known->spread : 1;
	const double weight = now / (now + then) * exp2(-age_ms / day_ms), layer_s = time->layer_s;
	time->spread = blend(time->spread, known->spread, weight);
	time->layer_s = blend(layer_s, known->layer_s, weight);
	if (time->output_bytes == known->output_bytes)
		time->output_s = blend(time->output_s, known->output_s, weight);
	time->prompt_s = blend(time->prompt_s, known->prompt_s, weight);
	for (int i = 0; i < STORE_BATCHES; i++) // seconds, as batches need not have been corrected with single rows
		time->batch[i] = blend(time->batch[i] * layer_s, known->batch[i] * known->layer_s, weight) /
				 time->layer_s;
}

void instance_take_times(struct instance *instance, unsigned stage, const struct json *times)
{
	struct instance_stage *at = &instance->stages[stage];
	struct model_sizes sizes = instance->model->sizes;
	const double spread = json_get_number(times, "spread", -1),
		     layers_s = within(json_get_number(times, "layers_s", -1)),
		     prompt_s = within(json_get_number(times, "prompt_row_s", -1)),
		     output_s = json_get_number(times, "output_s", -1), overhead_s = fmin(cost_stage_s(), layers_s / 2);
	if (json_type(times) != JSON_OBJECT || !at->layer_count || layers_s < 0 || output_s > STAGE_MOST_S)
		return;
	if (instance->held_format != FORMAT_UNKNOWN)
		placement_shrink(&sizes, instance->held_format);
	const double layer_s = (layers_s - overhead_s) / at->layer_count;
	struct layer_time time = {.format = sizes.main_format,
				  .layer_bytes = (uint64_t)model_layer_read(&instance->model->shape, &sizes, 1),
				  .output_bytes = sizes.output_bytes,
				  .layer_s = layer_s,
				  .output_s = output_s,
				  .prompt_s = prompt_s < 0 ? -1 : prompt_s / at->layer_count,
				  .spread = spread < 1 ? -1 : fmin(spread, SPREAD_MOST),
				  .measured_ms = clock_wall_ms()};
	snprintf(time.device_id, sizeof time.device_id, "%s", cluster_device_id(at->device));
	read_batches(time.batch, json_get(times, "batch_s"), layers_s);
	const struct layer_time *known = layer_times_find(instance->all->layer_times, time.device_id, time.format,
							  time.layer_bytes);
	if (known)
		blend_times(&time, known);
	at->seconds_per_token = layers_s + (time.layer_s - layer_s) * at->layer_count +
				(at->predicts ? fmax(time.output_s, 0) : 0);
	at->timed = time;
	at->stored = time;
	memset(at->corrected, 0, sizeof at->corrected);
	layer_times_put(instance->all->layer_times, &time);
}

// ---- what steps take ----

enum { SINGLE = STORE_BATCHES, PROMPT }; // of struct instance_stage's `corrected`, after the batches

// The weight of the measured steps, of which there are many in a second, against the known time: first a half, then a
// third and a quarter.
static double weight_of(const struct instance_stage *stage, int what)
{
	const double least = 0.25;
	return fmax(1.0 / (2 + stage->corrected[what]), least);
}

static bool changed(double value, double stored)
{
	const double store_from = 0.05; // what changes less is not worth a transaction
	return fabs(value / stored - 1) >= store_from;
}

// Other instances may have measured on the device since: only the corrected values change.
static void store_corrected(struct instance *instance, struct instance_stage *stage)
{
	struct layer_time *timed = &stage->timed;
	const struct layer_time *stored = &stage->stored;
	const struct layer_time *known = layer_times_find(instance->all->layer_times, timed->device_id, timed->format,
							  timed->layer_bytes);
	struct layer_time time = known ? *known : *timed;
	bool worth = false;
	for (int i = 0; i < STORE_BATCHES; i++)
		if (stage->corrected[i]) {
			time.batch[i] = timed->batch[i];
			worth |= changed(timed->batch[i], stored->batch[i]);
		}
	if (stage->corrected[PROMPT]) {
		time.prompt_s = timed->prompt_s;
		worth |= changed(timed->prompt_s, stored->prompt_s);
	}
	if (stage->corrected[SINGLE]) {
		if (known && time.output_s > 0)
			time.output_s *= timed->layer_s / stored->layer_s;
		time.layer_s = timed->layer_s;
		worth |= changed(timed->layer_s, stored->layer_s);
	}
	if (!worth)
		return;
	time.spread = OBSERVED;
	time.measured_ms = clock_wall_ms();
	*timed = time;
	stage->stored = time;
	layer_times_put(instance->all->layer_times, &time);
}

// By single rows. A processor that is held to a part of its time may compute them between two of its halts, while a
// batch that follows the last without a pause has its share of them: so what batches were seen to take stays.
static void correct_single(struct instance_stage *stage, double ratio)
{
	struct layer_time *timed = &stage->timed;
	const double factor = 1 + (ratio - 1) * weight_of(stage, SINGLE);
	stage->seconds_per_token *= factor;
	stage->corrected[SINGLE]++;
	timed->layer_s *= factor;
	if (timed->output_s > 0)
		timed->output_s *= factor;
	for (int i = 0; i < STORE_BATCHES; i++)
		if (stage->corrected[i])
			timed->batch[i] = fmax(timed->batch[i] / factor, 1);
}

// The two timed row counts around `rows`, or the same one twice if it is one of them. False if one was not measured, or
// `rows` is beyond the largest.
static bool beside(const struct layer_time *time, double rows, int *below, int *above)
{
	const double same = 0.01;
	if (rows > (1 << STORE_BATCHES) * (1 + same))
		return false;
	*above = 0;
	while (*above + 1 < STORE_BATCHES && rows > (2 << *above) * (1 + same))
		++*above;
	*below = fabs(rows / (2 << *above) - 1) <= same ? *above : *above - 1; // -1: a single row
	return time->batch[*above] > 0 && (*below < 0 || time->batch[*below] > 0);
}

static double batch_at(const struct layer_time *time, double rows)
{
	int below, above;
	if (!beside(time, rows, &below, &above))
		return -1;
	const double from = 1 << (below + 1), to = 2 << above;
	const double at = below < 0 ? 1 : time->batch[below], next = time->batch[above];
	return to > from ? at + (next - at) * fmin(rows - from, to - from) / (to - from) : next;
}

static void correct_batch(struct instance_stage *stage, double rows, double ratio)
{
	struct layer_time *timed = &stage->timed;
	int below, above;
	if (!beside(timed, rows, &below, &above))
		return;
	for (int i = below < 0 ? 0 : below; i <= above; i++) {
		const double factor = 1 + (ratio - 1) * weight_of(stage, i);
		timed->batch[i] = fmin(fmax(timed->batch[i] * factor, 1), 2 << i);
		stage->corrected[i]++;
	}
}

static void correct_prompt(struct instance_stage *stage, double ratio)
{
	stage->timed.prompt_s *= 1 + (ratio - 1) * weight_of(stage, PROMPT);
	stage->corrected[PROMPT]++;
}

// The known time of the stage in seconds, for a step of so many rows, or for one with a piece of a prompt; < 0: not
// known.
static double known_s(const struct instance_stage *stage, double rows, bool generating)
{
	if (!generating)
		return stage->timed.prompt_s < 0 ? -1 : stage->timed.prompt_s * stage->layer_count * rows;
	const double batch = rows < ONE_ROW ? 1 : batch_at(&stage->timed, rows);
	return batch < 0 ? -1 : stage->seconds_per_token * batch;
}

static void observe_part(struct instance *instance, unsigned part, double rows, bool generating, double took_s)
{
	const unsigned count = parts_count(instance->parts);
	struct instance_stage *first = instance->stages + (parts_stage(instance->parts, part) - instance->stages),
			      *end = part + 1 < count ? instance->stages + (parts_stage(instance->parts, part + 1) -
									    instance->stages)
						      : instance->stages + instance->stage_count;
	double all_s = 0;
	for (const struct instance_stage *stage = first; stage < end; stage++) {
		const bool timed = stage->timed.layer_s > 0 &&
				   (stage == first || stage->first_layer > stage[-1].first_layer);
		const double one_s = timed ? known_s(stage, rows, generating) : -1;
		if (one_s < 0)
			return;
		all_s += one_s;
	}
	if (took_s < STAGE_LEAST_S || took_s > STAGE_MOST_S || all_s <= 0)
		return;
	for (struct instance_stage *stage = first; stage < end; stage++) {
		if (!generating)
			correct_prompt(stage, took_s / all_s);
		else if (rows < ONE_ROW)
			correct_single(stage, took_s / all_s);
		else
			correct_batch(stage, rows, took_s / all_s);
		store_corrected(instance, stage);
	}
}

// Parts of one machine that compute at the same time share its memory.
static bool apart(const struct instance *instance)
{
	const struct parts *parts = instance->parts;
	for (unsigned i = 0; i < parts_count(parts); i++)
		for (unsigned k = 0; k < i; k++)
			if (!strcmp(parts_node_id(parts, i), parts_node_id(parts, k)))
				return false;
	return true;
}

void instance_observe(struct instance *instance, const struct json *steps_took)
{
	for (const struct json *one = json_first(steps_took); one; one = json_next(one)) {
		const struct json *parts_ms = json_get(one, "parts_ms"), *ms = json_first(parts_ms);
		const double rows = json_get_number(one, "rows", 0);
		const bool generating = json_get_bool(one, "generating", false),
			   alone = json_get_bool(one, "alone", false);
		const bool single = generating && rows < ONE_ROW;
		if (json_count(parts_ms) != parts_count(instance->parts) || !(alone || (!single && apart(instance))))
			continue;
		for (unsigned part = 0; part < parts_count(instance->parts); part++, ms = json_next(ms))
			observe_part(instance, part, rows, generating, json_number(ms, 0) * 1e-3);
	}
}
