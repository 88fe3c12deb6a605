/* See placement.h. The order of the functions is the order in which the steps are tried. */
#include "server/models/placement.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MIB = 1024 * 1024, SHARE_OF_OTHERS = 8 };

struct search {
	const struct placement_wanted *wanted;
	struct placement *out;
	struct model_sizes sizes; // in the format that is looked at
	uint32_t pages;
	unsigned candidates[PLACEMENT_DEVICES], count; // of one back end, the most free memory first
};

uint32_t placement_pages(uint32_t context_tokens, uint32_t sequences)
{
	uint32_t one = (context_tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	uint32_t share = (one + SHARE_OF_OTHERS - 1) / SHARE_OF_OTHERS;
	return one + (sequences - 1) * share;
}

uint64_t placement_reserve(uint64_t memory_bytes)
{
	uint64_t reserve = memory_bytes / 32;
	return reserve < 64 * (uint64_t)MIB ? 64 * (uint64_t)MIB : reserve > 1024ull * MIB ? 1024ull * MIB : reserve;
}

void placement_shrink(struct model_sizes *sizes, enum tensor_format format)
{
	double before = 0, after = 0;
	for (int i = FORMAT_F32; i < FORMAT_COUNT; i++) {
		const struct format_info *from = format_info((enum tensor_format)i), *to = format_info(format);
		double bytes = (double)sizes->format_bytes[i];
		bool wide = i == FORMAT_F32 || i == FORMAT_F16 || i == FORMAT_BF16;
		before += bytes;
		after += wide ? bytes / from->block_bytes * from->block_values / to->block_values * to->block_bytes
			      : bytes;
	}
	double scale = before > 0 && after < before ? after / before : 1;
	sizes->embedding_bytes = (uint64_t)((double)sizes->embedding_bytes * scale);
	sizes->output_bytes = (uint64_t)((double)sizes->output_bytes * scale);
	sizes->layer_bytes = (uint64_t)((double)sizes->layer_bytes * scale);
	sizes->layers_bytes = (uint64_t)((double)sizes->layers_bytes * scale);
	sizes->main_format = scale < 1 ? format : sizes->main_format;
}

__attribute__((format(printf, 3, 4))) static void why(struct placement *out, int device, const char *text, ...)
{
	va_list arguments;
	if (out->why_count == PLACEMENT_WHYS)
		return;
	out->whys[out->why_count].device = device;
	va_start(arguments, text);
	vsnprintf(out->whys[out->why_count].text, PLACEMENT_TEXT_BYTES, text, arguments);
	va_end(arguments);
	out->why_count++;
}

static double gib(uint64_t bytes)
{
	return (double)bytes / (1024.0 * MIB);
}

// ---- what a stage takes ----

static struct stage_memory estimate(const struct search *search, const struct placement_stage *stage)
{
	struct stage_memory memory;
	const struct placement_wanted *wanted = search->wanted;
	const struct stage_params params = {.shape = wanted->shape,
					    .first_layer = stage->first_layer,
					    .layer_count = stage->layer_count,
					    .embeds = stage->embeds,
					    .predicts = stage->predicts,
					    .context_tokens = wanted->context_tokens,
					    .page_count = search->pages,
					    .batch_rows = PLACEMENT_BATCH_ROWS,
					    .batch_sequences = wanted->sequences,
					    .batch_outputs = wanted->sequences,
					    .host_layers = stage->host_layers};
	stage_estimate(&params, &search->sizes, &memory);
	return memory;
}

static uint64_t needs(const struct search *search, const struct placement_stage *stage)
{
	const struct stage_memory memory = estimate(search, stage);
	return memory.weights_bytes + memory.kv_bytes + memory.workspace_bytes;
}

// The layers that this device holds beside what the stage has besides layers; -1: not even that.
static int64_t holds(const struct search *search, unsigned device, bool embeds, bool predicts)
{
	const struct placement_stage none = {.embeds = embeds, .predicts = predicts};
	const struct placement_stage one = {.layer_count = 1, .embeds = embeds, .predicts = predicts};
	uint64_t fixed = needs(search, &none), layer = needs(search, &one) - fixed;
	uint64_t has = search->wanted->devices[device].free_bytes;
	return has < fixed ? -1 : layer ? (int64_t)((has - fixed) / layer) : (int64_t)UINT32_MAX;
}

// ---- splitting ----

// The order of `count` devices as stages: one that has room for the embedding first, and for the output last.
struct chain {
	unsigned devices[PLACEMENT_STAGES], count;
	int64_t room[PLACEMENT_STAGES]; // in layers
};

static int64_t chain_fill(const struct search *search, struct chain *chain)
{
	int64_t all = 0;
	for (unsigned i = 0; i < chain->count; i++) {
		chain->room[i] = holds(search, chain->devices[i], i == 0, i == chain->count - 1);
		if (chain->room[i] < 1)
			return -1;
		all += chain->room[i];
	}
	return all;
}

// Of the first `count` candidates, the chain with the most room. Returns its room in layers, -1 if there is none.
static int64_t best_chain(const struct search *search, unsigned count, struct chain *best)
{
	int64_t most = -1;
	for (unsigned first = 0; first < count; first++)
		for (unsigned last = 0; last < count; last++) {
			struct chain chain = {.count = count};
			unsigned at = 0;
			if (first == last && count > 1)
				continue;
			chain.devices[at++] = search->candidates[first];
			for (unsigned i = 0; i < count; i++)
				if (i != first && i != last)
					chain.devices[at++] = search->candidates[i];
			if (count > 1)
				chain.devices[at] = search->candidates[last];
			int64_t room = chain_fill(search, &chain);
			if (room > most) {
				most = room;
				*best = chain;
			}
		}
	return most;
}

// Share the layers in proportion to room; none gets more than it has, each gets one at least.
static void share(const struct chain *chain, uint32_t layers, uint32_t out[PLACEMENT_STAGES])
{
	int64_t all = 0, left = layers;
	for (unsigned i = 0; i < chain->count; i++)
		all += chain->room[i];
	for (unsigned i = 0; i < chain->count; i++) {
		int64_t part = (int64_t)((double)layers * (double)chain->room[i] / (double)all);
		out[i] = (uint32_t)(part < 1 ? 1 : part > chain->room[i] ? chain->room[i] : part);
		left -= out[i];
	}
	for (unsigned i = 0; left; i = (i + 1) % chain->count)
		if (left > 0 && out[i] < (uint64_t)chain->room[i]) {
			out[i]++;
			left--;
		} else if (left < 0 && out[i] > 1) {
			out[i]--;
			left++;
		}
}

static void take(struct search *search, const struct chain *chain, const uint32_t *layers, uint32_t host_layers)
{
	uint32_t first = 0;
	struct placement *out = search->out;
	out->feasible = true;
	out->page_count = search->pages;
	out->stage_count = chain->count;
	for (unsigned i = 0; i < chain->count; i++) {
		out->stages[i] = (struct placement_stage){.device = chain->devices[i],
							  .first_layer = first,
							  .layer_count = layers[i],
							  .host_layers = i == chain->count - 1 ? host_layers : 0,
							  .embeds = i == 0,
							  .predicts = i == chain->count - 1};
		out->stages[i].memory = estimate(search, &out->stages[i]);
		first += layers[i];
	}
}

// ---- steps ----

// The fewest candidates that hold all layers. Of single devices that do, the one with the most bandwidth.
static bool place_whole(struct search *search)
{
	struct chain chain;
	uint32_t layers[PLACEMENT_STAGES];
	const struct placement_device *devices = search->wanted->devices;
	const uint32_t all = search->wanted->shape->layers;
	unsigned most = search->count < PLACEMENT_STAGES ? search->count : PLACEMENT_STAGES;
	int best = -1;
	for (unsigned i = 0; i < search->count; i++) {
		unsigned device = search->candidates[i];
		if (holds(search, device, true, true) >= all &&
		    (best < 0 || devices[device].bandwidth > devices[best].bandwidth))
			best = (int)device;
	}
	if (best >= 0) {
		take(search, &(struct chain){.devices = {(unsigned)best}, .count = 1}, &all, 0);
		return true;
	}
	for (unsigned count = 2; count <= most && count <= all; count++)
		if (best_chain(search, count, &chain) >= all) {
			share(&chain, all, layers);
			take(search, &chain, layers, 0);
			return true;
		}
	return false;
}

// With fewer pages for the others, if that is what it takes.
static bool place_pages(struct search *search)
{
	const struct placement_wanted *wanted = search->wanted;
	search->pages = placement_pages(wanted->context_tokens, wanted->sequences);
	if (place_whole(search))
		return true;
	search->pages = placement_pages(wanted->context_tokens, 1);
	if (wanted->sequences == 1 || !place_whole(search))
		return false;
	why(search->out, -1,
	    "memory for keys and values is for %u tokens in all, one request's context: others wait when it is full",
	    search->pages * STAGE_PAGE_TOKENS);
	return true;
}

// What the host has free for layers of a GPU: the memory of its node's CPU.
static uint64_t host_free(const struct search *search, unsigned device)
{
	const struct placement_device *devices = search->wanted->devices;
	for (unsigned i = 0; i < search->wanted->device_count; i++)
		if (devices[i].backend == PLACE_CPU && !strcmp(devices[i].node_id, devices[device].node_id))
			return devices[i].free_bytes;
	return 0;
}

// The layers of this stage that must lie in host memory; -1: that does not help.
static int64_t spill(const struct search *search, struct placement_stage *stage, uint64_t has)
{
	stage->host_layers = stage->layer_count;
	if (needs(search, stage) > has)
		return -1;
	uint32_t low = 0, high = stage->layer_count;
	while (low < high) {
		stage->host_layers = (low + high) / 2;
		if (needs(search, stage) <= has)
			high = stage->host_layers;
		else
			low = stage->host_layers + 1;
	}
	stage->host_layers = low;
	return estimate(search, stage).host_bytes <= host_free(search, stage->device) ? (int64_t)low : -1;
}

// On the candidate with the most free memory, which has memory of its own.
static bool place_spilled(struct search *search)
{
	const struct placement_wanted *wanted = search->wanted;
	const uint32_t all = wanted->shape->layers;
	if (!search->count || wanted->devices[search->candidates[0]].backend == PLACE_CPU)
		return false;
	unsigned device = search->candidates[0];
	struct placement_stage stage = {.device = device, .layer_count = all, .embeds = true, .predicts = true};
	search->pages = placement_pages(wanted->context_tokens, 1);
	if (spill(search, &stage, wanted->devices[device].free_bytes) < 0)
		return false;
	take(search, &(struct chain){.devices = {device}, .count = 1}, &all, stage.host_layers);
	search->out->step = STEP_SPILLED;
	why(search->out, (int)device,
	    "%u of %u layers (%.2f GiB) stay in the host's memory, since %s has only %.2f GiB free: slower",
	    stage.host_layers, all, gib(search->out->stages[0].memory.host_bytes), wanted->devices[device].name,
	    gib(wanted->devices[device].free_bytes));
	return true;
}

// ---- candidates ----

static bool shares_pool(const struct placement_device *a, const struct placement_device *b)
{
	return a->pool[0] && !strcmp(a->pool, b->pool) && !strcmp(a->node_id, b->node_id);
}

// Those of one back end (PLACE_UNKNOWN: of all), the most free memory first; of those that share memory one.
static void gather(struct search *search, enum placement_backend backend)
{
	const struct placement_device *devices = search->wanted->devices;
	search->count = 0;
	for (unsigned i = 0; i < search->wanted->device_count; i++) {
		unsigned at = search->count;
		bool taken = false;
		if ((backend != PLACE_UNKNOWN && devices[i].backend != backend) || devices[i].unusable ||
		    devices[i].software)
			continue;
		for (unsigned j = 0; j < search->count; j++)
			taken |= shares_pool(&devices[search->candidates[j]], &devices[i]);
		if (taken)
			continue;
		while (at && devices[search->candidates[at - 1]].free_bytes < devices[i].free_bytes) {
			search->candidates[at] = search->candidates[at - 1];
			at--;
		}
		search->candidates[at] = i;
		search->count++;
	}
}

static const enum placement_backend order[] = {PLACE_CUDA, PLACE_VULKAN, PLACE_CPU};
enum { ORDER = sizeof order / sizeof *order };

// What stands in the way of the device that comes nearest.
static void explain(struct search *search, unsigned device)
{
	const struct placement_wanted *wanted = search->wanted;
	const struct placement_device *one = &wanted->devices[device];
	const struct placement_stage whole = {.layer_count = wanted->shape->layers, .embeds = true, .predicts = true};
	search->pages = placement_pages(wanted->context_tokens, 1);
	const struct stage_memory memory = estimate(search, &whole);
	uint64_t all = memory.weights_bytes + memory.kv_bytes + memory.workspace_bytes;
	uint64_t missing = all > one->free_bytes ? all - one->free_bytes : 0;
	if (!search->out->missing_bytes || missing < search->out->missing_bytes)
		search->out->missing_bytes = missing;
	why(search->out, (int)device,
	    "%s: %.2f GiB of weights, %.2f GiB of keys and values for %u tokens and %.2f GiB to work in make %.2f GiB; "
	    "%.2f GiB %s, so %.2f GiB are missing",
	    one->name, gib(memory.weights_bytes), gib(memory.kv_bytes), wanted->context_tokens,
	    gib(memory.workspace_bytes), gib(all), gib(one->free_bytes),
	    one->free_known ? "are free" : "are there, as far as is known", gib(missing));
}

static void explain_taken(struct search *search)
{
	const struct placement *out = search->out;
	const struct placement_device *devices = search->wanted->devices;
	const struct placement_device *first = &devices[out->stages[0].device];
	if (out->stage_count > 1) {
		why(search->out, -1, "no device alone holds it: %u devices share its layers by their free memory",
		    out->stage_count);
		return;
	}
	why(search->out, (int)out->stages[0].device, "%s holds all of it: %.2f GiB of %.2f GiB free", first->name,
	    gib(out->stages[0].memory.weights_bytes + out->stages[0].memory.kv_bytes +
		out->stages[0].memory.workspace_bytes),
	    gib(first->free_bytes));
}

static void explain_left_out(struct search *search)
{
	const struct placement_device *devices = search->wanted->devices;
	for (unsigned i = 0; i < search->wanted->device_count; i++)
		if (devices[i].unusable)
			why(search->out, (int)i, "%s is left out: %s", devices[i].name, devices[i].unusable);
		else if (devices[i].software)
			why(search->out, (int)i,
			    "%s is left out: it computes on the processor; pin it to use it all the same",
			    devices[i].name);
}

// ---- the whole ----

static bool any_gpu(const struct search *search)
{
	const struct placement_device *devices = search->wanted->devices;
	for (unsigned i = 0; i < search->wanted->device_count; i++)
		if (devices[i].backend != PLACE_CPU && !devices[i].unusable && !devices[i].software)
			return true;
	return false;
}

static bool place_gpus(struct search *search)
{
	for (int i = 0; i < ORDER; i++) {
		gather(search, order[i]);
		if (order[i] != PLACE_CPU && search->count && place_pages(search))
			return true;
	}
	for (int i = 0; i < ORDER; i++) {
		gather(search, order[i]);
		if (place_spilled(search))
			return true;
	}
	return false;
}

static bool place_smaller(struct search *search, bool gpus)
{
	static const enum tensor_format smaller[] = {FORMAT_Q8_0, FORMAT_Q4_0};
	const struct model_sizes before = search->sizes;
	for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++) {
		search->sizes = before;
		placement_shrink(&search->sizes, smaller[i]);
		bool found = false;
		for (int j = 0; j < ORDER && !found; j++) {
			gather(search, order[j]);
			found = (order[j] != PLACE_CPU) == gpus && search->count && place_pages(search);
		}
		uint64_t saved = before.layers_bytes - search->sizes.layers_bytes;
		if (!found || !saved)
			continue;
		if (search->wanted->may_shrink) {
			search->out->format = smaller[i];
			search->out->step = STEP_SMALLER_FORMAT;
			why(search->out, -1,
			    "weights are held in %s, which takes %.2f GiB less; answers differ a little",
			    format_info(smaller[i])->name, gib(saved));
			return true;
		}
		search->out->feasible = false;
		search->out->stage_count = 0;
		why(search->out, -1,
		    "in the format %s it would fit %s: %.2f GiB less; ask for that format to have it so",
		    format_info(smaller[i])->name, gpus ? "the GPU" : "the memory there is", gib(saved));
		break;
	}
	search->sizes = before;
	return false;
}

static void place_free(struct search *search)
{
	struct placement *out = search->out;
	bool gpu = any_gpu(search), found = gpu && place_gpus(search);
	if (!found && gpu) {
		for (int i = 0; i < ORDER; i++) {
			gather(search, order[i]);
			if (order[i] != PLACE_CPU && search->count)
				explain(search, search->candidates[0]);
		}
		found = place_smaller(search, true);
	}
	if (!found) {
		gather(search, PLACE_CPU);
		found = search->count && place_pages(search);
		if (found && gpu) {
			out->step = STEP_CPU;
			why(out, -1, "no GPU here holds it, so it runs on the CPU");
		}
	}
	if (!found && search->count)
		explain(search, search->candidates[0]);
	if (!found) {
		gather(search, PLACE_UNKNOWN);
		found = search->count && place_pages(search);
	}
	if (!found)
		found = place_smaller(search, false);
	if (found)
		explain_taken(search);
	explain_left_out(search);
}

static enum status place_pinned(struct search *search, struct error *error)
{
	const struct placement_wanted *wanted = search->wanted;
	const struct placement_device *devices = wanted->devices;
	const uint32_t all = wanted->shape->layers;
	struct chain chain = {.count = wanted->pin_count};
	uint32_t layers[PLACEMENT_STAGES], host_layers[PLACEMENT_STAGES], next = 0;
	bool fits = true;
	search->pages = placement_pages(wanted->context_tokens, wanted->sequences);
	for (unsigned i = 0; i < wanted->pin_count; i++) {
		const struct placement_pin *pin = &wanted->pins[i];
		const struct placement_device *device = &devices[pin->device];
		const bool last = i == wanted->pin_count - 1;
		layers[i] = last && !pin->layer_count && pin->first_layer < all ? all - pin->first_layer
										: pin->layer_count;
		chain.devices[i] = pin->device;
		if (device->unusable)
			return error_set(error, STATUS_UNAVAILABLE, "%s cannot be used: %s", device->name,
					 device->unusable);
		if (pin->first_layer != next || !layers[i] || layers[i] > all - next) {
			error_set(error, STATUS_INVALID_PARAMS, "pins must name all %u layers, in order and each once",
				  all);
			error_hint(error,
				   "the first begins at layer 0; the last may have layer_count 0: all that are left");
			return STATUS_INVALID_PARAMS;
		}
		next += layers[i];
	}
	if (next != all)
		return error_set(error, STATUS_INVALID_PARAMS, "pins name %u of %u layers", next, all);
	for (unsigned i = 0; i < wanted->pin_count; i++) {
		uint64_t has = devices[chain.devices[i]].free_bytes;
		for (unsigned j = 0; j < i; j++) // a device that is named twice
			if (chain.devices[j] == chain.devices[i])
				has -= has < search->out->stages[j].memory.weights_bytes +
							       search->out->stages[j].memory.kv_bytes
					       ? has
					       : search->out->stages[j].memory.weights_bytes +
							 search->out->stages[j].memory.kv_bytes;
		struct placement_stage *stage = &search->out->stages[i];
		*stage = (struct placement_stage){.device = chain.devices[i],
						  .layer_count = layers[i],
						  .embeds = i == 0,
						  .predicts = i == wanted->pin_count - 1};
		int64_t spilled = spill(search, stage, has);
		if (spilled < 0 && search->pages > placement_pages(wanted->context_tokens, 1)) {
			search->pages = placement_pages(wanted->context_tokens, 1);
			i = (unsigned)-1; // all again, with fewer pages
			continue;
		}
		fits &= spilled >= 0 && (!spilled || devices[chain.devices[i]].backend != PLACE_CPU);
		host_layers[i] = spilled > 0 ? (uint32_t)spilled : 0;
		stage->memory = estimate(search, stage);
		if (!fits) {
			explain(search, chain.devices[i]);
			return STATUS_OK;
		}
	}
	take(search, &chain, layers, 0);
	for (unsigned i = 0; i < chain.count; i++) {
		struct placement_stage *stage = &search->out->stages[i];
		stage->host_layers = host_layers[i];
		stage->memory = estimate(search, stage);
		if (host_layers[i]) {
			search->out->step = STEP_SPILLED;
			why(search->out, (int)stage->device,
			    "%u of its layers (%.2f GiB) stay in the host's memory: slower", host_layers[i],
			    gib(stage->memory.host_bytes));
		}
	}
	why(search->out, -1, "the devices are those that were asked for");
	return STATUS_OK;
}

// A decoded token reads every weight of its layers once, and the output matrix.
static void predict(struct search *search)
{
	struct placement *out = search->out;
	out->seconds_per_token = 0;
	for (unsigned i = 0; i < out->stage_count; i++) {
		struct placement_stage *stage = &out->stages[i];
		double bandwidth = search->wanted->devices[stage->device].bandwidth;
		const struct placement_stage layers = {.layer_count = stage->layer_count, .predicts = stage->predicts};
		double bytes = (double)estimate(search, &layers).weights_bytes;
		stage->seconds_per_token = bandwidth > 0 && !stage->host_layers ? bytes / bandwidth : -1;
		if (stage->seconds_per_token < 0)
			out->seconds_per_token = -1;
		else if (out->seconds_per_token >= 0)
			out->seconds_per_token += stage->seconds_per_token;
	}
}

enum status placement_find(struct placement *out, const struct placement_wanted *wanted, struct error *error)
{
	struct search search = {.wanted = wanted, .out = out, .sizes = *wanted->sizes};
	enum status status = STATUS_OK;
	*out = (struct placement){.format = wanted->format, .seconds_per_token = -1};
	if (wanted->format != FORMAT_UNKNOWN)
		placement_shrink(&search.sizes, wanted->format);
	if (!wanted->device_count) {
		error_set(error, STATUS_UNAVAILABLE, "there is no device that models run on");
		error_hint(error, "start the server without --no-local-node, or let a node join: exogpu node");
		return STATUS_UNAVAILABLE;
	}
	if (wanted->pin_count)
		status = place_pinned(&search, error);
	else
		place_free(&search);
	if (out->format != wanted->format)
		placement_shrink(&search.sizes, out->format);
	if (!status && out->feasible)
		predict(&search);
	return status;
}
