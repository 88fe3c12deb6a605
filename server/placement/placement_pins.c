/* A placement whose devices and layers somebody has pinned: it is measured and explained, or said why it does not fit.
 */
#include "common/text/size_text.h"
#include "server/placement/placement_inside.h"

enum { MIB = 1024 * 1024 };

// The device's place, and how many layers each pin has. Errors: placement_find's.
static enum status read_pins(struct answer *answer, const struct problem *problem, struct chain *chain,
			     struct error *error)
{
	const struct placement_wanted *wanted = answer->wanted;
	const uint32_t all = wanted->shape->layers;
	uint32_t next = 0;
	chain->count = wanted->pin_count;
	for (unsigned i = 0; i < wanted->pin_count; i++) {
		const struct placement_pin *pin = &wanted->pins[i];
		const struct placement_device *device = &wanted->devices[pin->device];
		const bool last = i == wanted->pin_count - 1;
		chain->layers[i] = last && !pin->layer_count && pin->first_layer < all ? all - pin->first_layer
										       : pin->layer_count;
		while (problem->devices[chain->at[i]].index != pin->device)
			chain->at[i]++;
		const char *unusable = cost_unusable(wanted, pin->device);
		if (unusable)
			return error_set(error, STATUS_UNAVAILABLE, "%s cannot be used: %s", device->name, unusable);
		if (last && device->backend == PLACE_WEBGPU) {
			error_hint(error, "name another device for the last layers: the next token is chosen there");
			return error_set(error, STATUS_UNAVAILABLE,
					 "%s cannot be the last: a browser holds no last layers of a model",
					 device->name);
		}
		if (pin->first_layer != next || !chain->layers[i] || chain->layers[i] > all - next) {
			error_set(error, STATUS_INVALID_PARAMS, "pins must name all %u layers, in order and each once",
				  all);
			error_hint(error,
				   "the first begins at layer 0; the last may have layer_count 0: all that are left");
			return STATUS_INVALID_PARAMS;
		}
		next += chain->layers[i];
	}
	return next == all ? STATUS_OK
			   : error_set(error, STATUS_INVALID_PARAMS, "pins name %u of %u layers", next, all);
}

// Move the fewest layers of this stage to host memory so that it fits into `has`, beside other use of the host's
// memory.
static bool spill(const struct answer *answer, uint32_t pages, struct placement_stage *stage, uint64_t has)
{
	const struct placement_wanted *wanted = answer->wanted;
	const struct placement_device *device = &wanted->devices[stage->device];
	for (stage->host_layers = 0;; stage->host_layers++) {
		stage->memory = cost_memory(wanted, &answer->sizes, pages, stage);
		// For slices the memory is that of the first, which has the most.
		if (cost_on_device(&stage->memory) * (stage->slices ? stage->slices : 1) <= has)
			return cost_host_fits(wanted, stage->device, &stage->memory);
		if (stage->host_layers == stage->layer_count || device->backend == PLACE_CPU ||
		    device->backend == PLACE_WEBGPU || stage->slices)
			return false;
	}
}

// Whether all pinned stages fit with so many pages; the missing bytes are left in out.
static bool pins_fit(struct answer *answer, const struct problem *problem, uint32_t pages, struct chain *chain)
{
	const struct placement_wanted *wanted = answer->wanted;
	struct placement_stage stages[PLACEMENT_STAGES];
	uint32_t first = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		const unsigned device = problem->devices[chain->at[i]].index;
		uint64_t has = wanted->devices[device].free_bytes;
		for (unsigned j = 0; j < i; j++) // a device that is named twice
			if (stages[j].device == device) {
				const uint64_t held = cost_on_device(&stages[j].memory);
				has -= held < has ? held : has;
			}
		stages[i] = (struct placement_stage){.device = device,
						     .first_layer = first,
						     .layer_count = chain->layers[i],
						     .embeds = i == 0,
						     .predicts = i == chain->count - 1,
						     .slices = wanted->devices[device].slices};
		if (!cost_reaches(wanted, device, pages)) {
			answer->out->stages[0] = stages[i];
			answer->out->missing_bytes = 0;
			return false;
		}
		if (!spill(answer, pages, &stages[i], has)) {
			stages[i].host_layers = 0;
			stages[i].memory = cost_memory(wanted, &answer->sizes, pages, &stages[i]);
			const uint64_t slices = stages[i].slices ? stages[i].slices : 1;
			answer->out->missing_bytes = slices * cost_on_device(&stages[i].memory) - has;
			answer->out->stages[0] = stages[i];
			return false;
		}
		chain->host_layers[i] = stages[i].host_layers;
		first += chain->layers[i];
	}
	return true;
}

// For pins that do not fit: show their memory beside the available memory, and by how many layers the device that lacks
// the most would have to be relieved.
static void show_pins(struct answer *answer, const struct problem *problem, const struct chain *chain)
{
	struct placement *out = answer->out;
	const struct placement_wanted *wanted = answer->wanted;
	const struct placement_stage lacking = out->stages[0];
	struct placement_stage fewer = lacking;
	const uint64_t has = cost_on_device(&lacking.memory) - out->missing_bytes;
	uint32_t first = 0;
	while (wanted->remedies && --fewer.layer_count) {
		fewer.memory = cost_memory(wanted, &answer->sizes, problem->pages, &fewer);
		if (cost_on_device(&fewer.memory) <= has)
			break;
	}
	if (wanted->remedies && fewer.layer_count)
		remedy_add(out, (int)lacking.device, "with %u layer%s fewer on %s they would fit there",
			   lacking.layer_count - fewer.layer_count,
			   lacking.layer_count - fewer.layer_count == 1 ? "" : "s",
			   wanted->devices[lacking.device].name);
	if (wanted->remedies)
		remedy_add(out, (int)lacking.device, "with %llu MiB more on %s they would fit there",
			   (unsigned long long)(out->missing_bytes / MIB + 1), wanted->devices[lacking.device].name);
	for (unsigned i = 0; i < chain->count; i++) {
		struct placement_stage *stage = &out->stages[i];
		*stage = (struct placement_stage){.device = problem->devices[chain->at[i]].index,
						  .first_layer = first,
						  .layer_count = chain->layers[i],
						  .embeds = i == 0,
						  .predicts = i == chain->count - 1,
						  .seconds_per_token = -1};
		stage->memory = cost_memory(wanted, &answer->sizes, problem->pages, stage);
		first += chain->layers[i];
	}
	out->stage_count = chain->count;
}

// Say why pins do not fit, from what pins_fit has left in out.
static void say_pins_lack(struct answer *answer)
{
	struct placement *out = answer->out;
	struct solution *solution = answer->solution;
	const struct placement_stage *stage = &out->stages[0];
	const struct placement_device *device = &answer->wanted->devices[stage->device];
	if (!out->missing_bytes) {
		why_add(out, (int)stage->device,
			"the largest buffer is the limit: a layer keeps up to %s in one for its requests, and one on "
			"%s holds at most %s",
			SIZE_TEXT(cost_largest_piece(answer->wanted, solution->problem.pages)), device->name,
			SIZE_TEXT(device->largest_buffer));
		return;
	}
	why_add(out, (int)stage->device, "%s: its %u layer%s %s, and %s are missing", device->name, stage->layer_count,
		stage->layer_count == 1 ? " takes" : "s take",
		SIZE_TEXT((stage->slices ? stage->slices : 1) * cost_on_device(&stage->memory)),
		SIZE_TEXT(out->missing_bytes));
	if (!stage->slices)
		show_pins(answer, &solution->problem, &solution->chain);
}

enum status placement_place_pinned(struct answer *answer, struct error *error)
{
	const struct placement_wanted *wanted = answer->wanted;
	struct placement *out = answer->out;
	struct solution *solution = answer->solution;
	const struct problem_params params = {
		.wanted = wanted,
		.sizes = &answer->sizes,
		.pages = wanted->page_count ? wanted->page_count
					    : placement_pages(wanted->context_tokens, wanted->sequences),
		.pinned = true};
	*solution = (struct solution){.first_s = -1};
	problem_init(&solution->problem, &params);
	const enum status status = read_pins(answer, &solution->problem, &solution->chain, error);
	if (status)
		return status;
	bool fit = pins_fit(answer, &solution->problem, solution->problem.pages, &solution->chain);
	if (!fit && !wanted->page_count) {
		solution->problem.pages = placement_pages(wanted->context_tokens, 1);
		fit = pins_fit(answer, &solution->problem, solution->problem.pages, &solution->chain);
	}
	if (!fit) {
		out->proof = PROOF_INFEASIBLE;
		say_pins_lack(answer);
		return STATUS_OK;
	}
	chain_measure(&solution->problem, &solution->chain);
	placement_take(answer, &solution->problem, &solution->chain);
	out->value_s = solution->chain.value;
	return STATUS_OK;
}
