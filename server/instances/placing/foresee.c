/* Placements of models that are not in the library: whether they fit, how fast they would be, or what is missing.
 *
 * The planner searches for them as previews, one after the other: each begins when the previous one has been reported,
 * as long as the connection is there that asked for them.
 * Thread: the loop's. */
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double search_s = 0.05; // for one model: the first answer comes within a few milliseconds

struct foreseeing {
	const struct instances *instances;
	struct instances_foreseen *models; // (count), owned
	size_t count, at;
	const void *asker, *connection;
	bool left; // the connection has ended: nobody reads the answer
	struct json *params;
	void (*done)(void *context, const struct instances_foreseen *found, size_t count);
	void *context;
};

static void foreseeing_destroy(struct foreseeing **pointer)
{
	struct foreseeing *foreseeing = *pointer;
	*pointer = NULL;
	json_destroy(&foreseeing->params);
	free(foreseeing->models);
	free(foreseeing);
}

// "NVIDIA H200", "NVIDIA H200 and 2 more devices"
static void name_devices(const struct placing *placing, char *text, size_t size)
{
	const struct placement *placement = &placing->placement;
	unsigned devices = 0;
	bool counted[PLACEMENT_DEVICES] = {false};
	for (unsigned i = 0; i < placement->stage_count; i++) {
		devices += !counted[placement->stages[i].device];
		counted[placement->stages[i].device] = true;
	}
	const char *first = placing->devices[placement->stages[0].device].name;
	if (devices > 1)
		snprintf(text, size, "%.120s and %u more device%s", first, devices - 1, devices > 2 ? "s" : "");
	else
		snprintf(text, size, "%.120s", first);
}

static void take_place(struct instances_foreseen *out, const struct placing *placing)
{
	char devices[200];
	const struct placement *placement = &placing->placement;
	const char *step = placement->step == STEP_SPILLED ? ", with some layers in host memory, which is slow"
			   : placement->step == STEP_CPU   ? ", since no GPU has the memory for it"
							   : "";
	out->fit = FIT_DEVICE;
	for (unsigned i = 1; i < placement->stage_count; i++)
		if (placement->stages[i].device != placement->stages[0].device)
			out->fit = FIT_DEVICES;
	if (placement->seconds_per_token > 0)
		out->tokens_per_s = 1 / placement->seconds_per_token;
	name_devices(placing, devices, sizeof devices);
	snprintf(out->why, sizeof out->why, "%.200s%s", devices, step);
}

static void take_none(struct instances_foreseen *out, const struct placing *placing)
{
	const struct placement *placement = &placing->placement;
	out->fit = placement->proof == PROOF_NOT_FOUND ? FIT_UNKNOWN : FIT_NO;
	out->missing_bytes = placement->missing_bytes;
	snprintf(out->why, sizeof out->why, "%s", placement->why_count ? placement->whys[0].text : "");
}

static bool begin_next(struct foreseeing *foreseeing, struct error *error);

static void found(void *context, enum status status, struct placing *placing, const struct error *error)
{
	struct error ignored = {0};
	struct foreseeing *foreseeing = context;
	struct instances_foreseen *out = &foreseeing->models[foreseeing->at++];
	if (status)
		snprintf(out->why, sizeof out->why, "%s", error->message);
	else if (placing->placement.feasible)
		take_place(out, placing);
	else
		take_none(out, placing);
	free(placing);
	if (!foreseeing->left && begin_next(foreseeing, &ignored))
		return;
	foreseeing->done(foreseeing->context, foreseeing->models, foreseeing->count);
	foreseeing_destroy(&foreseeing);
}

// False: none is left that can be searched for.
static bool begin_next(struct foreseeing *foreseeing, struct error *error)
{
	for (; foreseeing->at < foreseeing->count; foreseeing->at++) {
		struct error refused = {0};
		struct instances_foreseen *one = &foreseeing->models[foreseeing->at];
		const struct placing_request request = {.kind = PLACING_PREVIEW,
							.params = foreseeing->params,
							.of = one,
							.asker = foreseeing->asker,
							.connection = foreseeing->connection,
							.left = &foreseeing->left,
							.done = found,
							.context = foreseeing};
		if (!one->shape)
			continue;
		if (!placing_start(foreseeing->instances, &request, &refused))
			return true;
		snprintf(one->why, sizeof one->why, "%s", refused.message);
		if (!error->status)
			*error = refused;
	}
	return false;
}

enum status instances_foresee(const struct instances *instances, const struct instances_foresight *foresight,
			      struct error *error)
{
	struct foreseeing *foreseeing = calloc(1, sizeof *foreseeing);
	const size_t count = foresight->count;
	if (foreseeing)
		*foreseeing = (struct foreseeing){.instances = instances,
						  .models = calloc(count + 1, sizeof *foreseeing->models),
						  .count = count,
						  .asker = foresight->asker,
						  .connection = foresight->connection,
						  .params = json_new_object(),
						  .done = foresight->done,
						  .context = foresight->context};
	if (!foreseeing || !foreseeing->models) {
		if (foreseeing)
			foreseeing_destroy(&foreseeing);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	json_set_number(foreseeing->params, "timeout_s", search_s);
	for (size_t i = 0; i < count; i++)
		foreseeing->models[i] = (struct instances_foreseen){
			.shape = foresight->models[i].shape, .sizes = foresight->models[i].sizes, .tokens_per_s = -1};
	if (begin_next(foreseeing, error))
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "of no model enough is known to foresee its place");
	foreseeing_destroy(&foreseeing);
	return error->status;
}
