/* How long the layers of an instance take: timed by its workers when they have loaded, corrected by what its parts take
 * for the tokens of one request, and kept for later placements (layer_times.h). Thread: the loop's. */
#include "common/base/clock.h"
#include "server/models/instances_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// A step through a stage: what lies outside is not believed.
static const double STAGE_LEAST_S = 1e-6, STAGE_MOST_S = 1000, SPREAD_MOST = 1000;

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

// A short run is disturbed by whatever loads and hashes beside it: what was known keeps half of the weight, and half of
// that for each day that it is old. Where the runs of one differed more than those of the other it counts for less, by
// the square: on a busy machine layers take several times as long, and that is not how they will run.
static void blend_times(struct layer_time *time, const struct layer_time *known)
{
	const double day_ms = 24 * 3600e3, age_ms = fmax((double)(time->measured_ms - known->measured_ms), 0);
	const bool both = time->spread > 0 && known->spread > 0;
	const double now = both ? time->spread * time->spread : 1, then = both ? known->spread * known->spread : 1;
	const double weight = now / (now + then) * exp2(-age_ms / day_ms);
	time->spread = blend(time->spread, known->spread, weight);
	time->layer_s = blend(time->layer_s, known->layer_s, weight);
	if (time->output_bytes == known->output_bytes)
		time->output_s = blend(time->output_s, known->output_s, weight);
	time->prompt_s = blend(time->prompt_s, known->prompt_s, weight);
	for (int i = 0; i < STORE_BATCHES; i++)
		time->batch[i] = blend(time->batch[i], known->batch[i], weight);
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
				  .layer_bytes = sizes.layers_bytes / instance->model->shape.layers,
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
	at->stored_s = time.layer_s;
	layer_times_put(instance->all->layer_times, &time);
}

// Other instances may have measured on the device since: of theirs all but what is corrected stays.
static void correct(struct instance *instance, struct instance_stage *stage, double factor)
{
	const double store_from = 0.05; // what changes less is not worth a transaction
	stage->seconds_per_token *= factor;
	stage->timed.layer_s *= factor;
	if (stage->timed.output_s > 0)
		stage->timed.output_s *= factor;
	if (fabs(stage->timed.layer_s / stage->stored_s - 1) < store_from)
		return;
	const struct layer_time *known = layer_times_find(instance->all->layer_times, stage->timed.device_id,
							  stage->timed.format, stage->timed.layer_bytes);
	struct layer_time time = known ? *known : stage->timed;
	if (known && time.output_s > 0)
		time.output_s *= stage->timed.layer_s / stage->stored_s;
	time.layer_s = stage->timed.layer_s;
	time.spread = -1; // what tokens took, however busy the device was when it was timed
	time.measured_ms = clock_wall_ms();
	stage->timed = time;
	stage->stored_s = time.layer_s;
	layer_times_put(instance->all->layer_times, &time);
}

void instance_observe(struct instance *instance, const struct json *single_ms)
{
	const double weight = 0.25; // of a second, beside what was known
	const struct json *one = json_first(single_ms);
	if (json_count(single_ms) != parts_count(instance->parts))
		return;
	for (unsigned part = 0; part < parts_count(instance->parts); part++, one = json_next(one)) {
		const struct instance_stage *first = parts_stage(instance->parts, part);
		const unsigned begin = (unsigned)(first - instance->stages),
			       end = part + 1 < parts_count(instance->parts)
					     ? (unsigned)(parts_stage(instance->parts, part + 1) - instance->stages)
					     : instance->stage_count;
		double known_s = 0;
		bool timed = true;
		for (unsigned i = begin; i < end; i++) {
			known_s += instance->stages[i].seconds_per_token;
			timed &= instance->stages[i].timed.layer_s > 0 &&
				 (i == begin || instance->stages[i].first_layer > instance->stages[i - 1].first_layer);
		}
		const double observed_s = json_number(one, 0) * 1e-3;
		timed &= observed_s >= STAGE_LEAST_S && observed_s <= STAGE_MOST_S;
		for (unsigned i = begin; i < end && timed; i++)
			correct(instance, &instance->stages[i], 1 + (observed_s / known_s - 1) * weight);
	}
}
