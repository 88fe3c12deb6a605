/* The costs of a placement: bytes of memory, and seconds. All fitted and assumed constants are here, with the unit in
 * the name; docs/placement.md gives their sources.
 *
 * A decoded token reads every weight of its layers once, of a mixture of experts those of the experts that it takes
 * (model_layer_read), and the output matrix: bytes / (measured bandwidth x the share of it that our kernels reach),
 * plus a constant for each layer and stage. If a layer of the format was timed, on the device or on one of the same
 * back end, the computed time is multiplied by the ratio of the measured to the computed time of that layer: for a
 * layer of the same size on the same device this gives the measured time. */
#include "server/placement/placement_inside.h"

#include <math.h>
#include <string.h>

// The share of the bandwidth that decoding reaches, and how many times as long as one sequence a batch of 8, 32 and 128
// takes. From the tables of docs/performance.md, for an H200 (CUDA; its reading 4.36 TB/s) and a Sapphire Rapids (CPU).
// Vulkan has not been measured there: it is assumed to be somewhat slower than CUDA.
enum { BATCHES_ALWAYS = 5 }; // every device is timed with up to 32 rows
enum { WIDE, EIGHT_BITS, FOUR_BITS, FOUR_BITS_K, WIDTHS };
struct fitted {
	double reached[WIDTHS], of_8[WIDTHS], of_32[WIDTHS], of_128[WIDTHS]; // < 0: as steep as before
	double layer_overhead_s;
	double assumed_bandwidth; // bytes a second, where it was not measured
};
static const struct fitted fitted_cuda = {.reached = {1.0, 0.93, 0.77, 0.6},
					  .of_8 = {1.35, 1.7, 2.05, 2.05},
					  .of_32 = {2.55, 4.1, 5.65, 5.65},
					  .of_128 = {2.6, 4.15, 6.5, 6.5},
					  .layer_overhead_s = 25e-6,
					  .assumed_bandwidth = 300e9};
static const struct fitted fitted_vulkan = {.reached = {0.8, 0.75, 0.6, 0.5},
					    .of_8 = {1.7, 2.05, 2.4, 2.4},
					    .of_32 = {4.1, 5.65, 7.2, 7.2},
					    .of_128 = {-1, -1, -1, -1},
					    .layer_overhead_s = 60e-6,
					    .assumed_bandwidth = 50e9};
static const struct fitted fitted_cpu = {.reached = {0.92, 0.91, 0.8, 0.77},
					 .of_8 = {1.9, 1.9, 3.3, 3.2},
					 .of_32 = {4.2, 7.0, 13, 12.5},
					 .of_128 = {-1, -1, -1, -1},
					 .layer_overhead_s = 5e-6,
					 .assumed_bandwidth = 20e9};

// A browser's kernels have not been timed on a real GPU, nor has what WebGPU adds: assumed.
static const struct fitted fitted_webgpu = {.reached = {0.5, 0.4, 0.3, 0.25},
					    .of_8 = {1.7, 2.05, 2.4, 2.4},
					    .of_32 = {4.1, 5.65, 7.2, 7.2},
					    .of_128 = {-1, -1, -1, -1},
					    .layer_overhead_s = 150e-6,
					    .assumed_bandwidth = 20e9};

static const double slice_sum_s = 3e-6;   // adding up what slices give, twice a layer; two H200s over NVLink
static const double staged_sum_s = 30e-6; // the same by way of the host's memory; assumed
static const double heat_rates[] = {1, 0.9, 0.6, 0.3}; // of a device's rate, by enum placement_heat; assumed
static const double host_bandwidth = 20e9;             // weights in host memory, read by a GPU, bytes a second; assumed
static const double stage_overhead_s = 20e-6;          // of a step, for each stage
static const double inside_hop_s = 30e-6;              // from a device to the next of the same worker, by host memory
static const double local_hop_s = 150e-6;              // to another worker of the same node
static const double local_bandwidth = 2e9;             // and bytes a second
static const double remote_hop_s = 200e-6;             // what both ends and their nodes add to the network's time
static const double scale_of_hops_s = 1e-3;            // a hop of so long halves the network's part of the score

// Assumed values of a link by its class: half of what such a link should reach (C2), or less.
static const struct assumed_link {
	const char *link_class;
	double round_trip_s, bytes_per_s;
} assumed_links[] = {
	{"process", 0.1e-3, 2e9},     {"loopback", 0.1e-3, 1e9},  {"peer", 0.1e-3, 5e9},      {"rdma", 0.1e-3, 5e9},
	{"thunderbolt", 0.5e-3, 1e9}, {"virtual", 0.5e-3, 250e6}, {"ethernet", 1e-3, 62.5e6}, {"wifi", 10e-3, 6.25e6},
	{"cellular", 100e-3, 2.5e6},  {"relay", 5e-3, 25e6},      {"unknown", 5e-3, 12.5e6},
};

double cost_stage_s(void)
{
	return stage_overhead_s;
}

static const struct fitted *fitted_of(enum placement_backend backend)
{
	switch (backend) {
	case PLACE_CUDA:
		return &fitted_cuda;
	case PLACE_VULKAN:
		return &fitted_vulkan;
	case PLACE_WEBGPU:
		return &fitted_webgpu;
	case PLACE_CPU:
	case PLACE_UNKNOWN:
		break;
	}
	return &fitted_cpu;
}

static int width_of(enum tensor_format format)
{
	const struct format_info *info = format_info(format);
	const double bits = 8.0 * info->block_bytes / info->block_values;
	return bits > 12 ? WIDE : bits > 8 ? EIGHT_BITS : format == FORMAT_Q4_0 ? FOUR_BITS : FOUR_BITS_K;
}

double cost_bandwidth(const struct placement_device *device)
{
	const double measured = device->bandwidth > 0 ? device->bandwidth
						      : fitted_of(device->backend)->assumed_bandwidth;
	return measured * cost_heat_rate(device);
}

double cost_heat_rate(const struct placement_device *device)
{
	return device->heat_rate > 0 && device->heat < HEAT_THROTTLED ? device->heat_rate : heat_rates[device->heat];
}

bool cost_linked(const struct placement_wanted *wanted, unsigned first, unsigned second)
{
	const unsigned all = wanted->device_count;
	return wanted->copies && wanted->copies[first * all + second] && wanted->copies[second * all + first];
}

// ---- memory ----

// If there is a CUDA device, its padding counts for all devices, although the others do not need it.
static bool any_tiled(const struct placement_wanted *wanted)
{
	for (unsigned i = 0; i < wanted->device_count; i++)
		if (wanted->devices[i].backend == PLACE_CUDA && stage_tiles_fit(wanted->shape))
			return true;
	return false;
}

const char *cost_unusable(const struct placement_wanted *wanted, unsigned device)
{
	const struct placement_device *one = &wanted->devices[device];
	if (!one->unusable && one->backend == PLACE_CUDA && !stage_tiles_fit(wanted->shape))
		return "CUDA computes models whose widths are multiples of 4 (also those of heads with a state; of "
		       "experts, of 16), and not all of this one's are";
	return !one->unusable && one->backend == PLACE_WEBGPU ? browser_refuses(wanted) : one->unusable;
}

struct stage_memory cost_memory(const struct placement_wanted *wanted, const struct model_sizes *sizes, uint32_t pages,
				const struct placement_stage *stage)
{
	struct stage_memory memory;
	const struct stage_params params = {.shape = wanted->shape,
					    .first_layer = stage->first_layer,
					    .layer_count = stage->layer_count,
					    .embeds = stage->embeds,
					    .predicts = stage->predicts,
					    .context_tokens = wanted->context_tokens,
					    .page_count = pages,
					    .batch_rows = placement_rows(wanted->shape, wanted->context_tokens),
					    .batch_sequences = wanted->sequences,
					    .batch_outputs = wanted->sequences,
					    .host_layers = stage->host_layers,
					    .slice = stage->slice,
					    .slices = stage->slices,
					    .tiled = any_tiled(wanted)};
	stage_estimate(&params, sizes, &memory);
	if (stage->predicts && !stage->slice) {
		memory.weights_bytes += wanted->draft.weights_bytes;
		memory.kv_bytes += wanted->draft.kv_bytes;
		memory.workspace_bytes += wanted->draft.workspace_bytes;
	}
	return memory;
}

// As engine/vulkan/stage/stage.c has them; weights it cuts into pieces of any size. Other back ends have no such limit.
uint64_t cost_largest_piece(const struct placement_wanted *wanted, uint32_t pages)
{
	const struct model_shape *shape = wanted->shape;
	const uint64_t head = (shape->head_size + 7) & ~7u,
		       keys = 2 * head * shape->kv_heads * STAGE_PAGE_TOKENS * pages,
		       states = stage_state_bytes(shape) * stage_state_count(shape, wanted->sequences),
		       outputs = 4ull * shape->vocabulary, most = keys > states ? keys : states;
	return most > outputs ? most : outputs;
}

bool cost_reaches(const struct placement_wanted *wanted, unsigned device, uint32_t pages)
{
	const uint64_t reached = wanted->devices[device].largest_buffer;
	return !reached || cost_largest_piece(wanted, pages) <= reached;
}

static void find_room(struct problem *problem, struct place_device *device)
{
	device->reaches = cost_reaches(problem->wanted, device->index, problem->pages);
	for (unsigned flags = 0; flags < 4; flags++) {
		// For slices: the first one has the most, and the others leave the same amount unused.
		const unsigned slices = problem->wanted->devices[device->index].slices;
		const struct placement_stage none = {
			.embeds = flags & ROOM_EMBEDS, .predicts = flags & ROOM_PREDICTS, .slices = slices};
		const struct stage_memory memory = cost_memory(problem->wanted, &problem->sizes, problem->pages, &none);
		const uint64_t fixed = cost_on_device(&memory) * (slices ? slices : 1), has = device->free_bytes;
		const uint64_t room = has < fixed || !problem->layer_bytes ? 0 : (has - fixed) / problem->layer_bytes;
		device->fixed_bytes[flags] = fixed;
		// What a first or last part sees is text; a browser may be the first only where it is pinned.
		const bool bars = flags && problem->wanted->devices[device->index].backend == PLACE_WEBGPU;
		device->room[flags] = has < fixed || !device->reaches || bars ? -1
				      : room < problem->layers                ? (int32_t)room
									      : (int32_t)problem->layers;
	}
}

// ---- time ----

struct estimate {
	double layer_s, output_s; // from the bandwidth of its memory
};

static struct estimate estimate_of(const struct placement_device *device, enum tensor_format format, double layer_bytes,
				   double output_bytes)
{
	const struct fitted *fitted = fitted_of(device->backend);
	const double rate = cost_bandwidth(device) * fitted->reached[width_of(format)];
	return (struct estimate){.layer_s = layer_bytes / rate + fitted->layer_overhead_s,
				 .output_s = output_bytes / rate};
}

static bool same_size(uint64_t bytes, double wanted)
{
	return fabs((double)bytes - wanted) <= wanted * 0.01;
}

// How much a measurement tells of this device: the less, the more. INFINITY: nothing.
static double distance(const struct placement_wanted *wanted, const struct placement_timed *timed, unsigned device,
		       double layer_bytes)
{
	const struct placement_device *on = &wanted->devices[timed->device], *of = &wanted->devices[device];
	const double other_device = 1e6, other_hardware = 1e3;
	const double size = fabs(log((double)timed->layer_bytes / layer_bytes));
	if (timed->device == device)
		return size;
	if (on->backend != of->backend || on->software != of->software || on->bandwidth <= 0 || of->bandwidth <= 0)
		return INFINITY;
	return other_device + size + other_hardware * fabs(log(on->bandwidth / of->bandwidth));
}

// Equal devices must stay equal in spite of the noise of measurements, because the search skips equal devices.
static double rounded(double factor)
{
	const double steps = 32; // to the double, 2.2 % each
	return exp2(round(log2(factor) * steps) / steps);
}

// Interpolate the timed values, from one row on, and extrapolate with the last slope. More rows take no less time, and
// no longer than one after another. Beyond 32 rows, which are timed on every device, each row takes at least half as
// long as each of those 32: no step computes any number of rows in the time of one.
static void fill_batch(double full[1 + PLACEMENT_BATCHES], const double known[PLACEMENT_BATCHES])
{
	unsigned last = 0;
	double slope = 0; // of a row more
	full[0] = 1;
	for (unsigned i = 1; i <= PLACEMENT_BATCHES; i++) {
		const double from = 1u << last, rows = 1u << i, at = known[i - 1];
		if (at < 0)
			continue;
		full[i] = fmin(fmax(rounded(at), full[last]), rows);
		slope = (full[i] - full[last]) / (rows - from);
		for (unsigned k = last + 1; k < i; k++)
			full[k] = full[last] + slope * ((1u << k) - from);
		last = i;
	}
	for (unsigned i = last + 1; i <= PLACEMENT_BATCHES; i++) {
		const double rows = 1u << i,
			     least = i > BATCHES_ALWAYS ? full[BATCHES_ALWAYS] / (2 << BATCHES_ALWAYS) : 0;
		full[i] = fmin(full[i - 1] + fmax(slope, least) * rows / 2, rows);
	}
}

// Beyond the most that are timed it goes on as fill_batch does.
double cost_batch(const struct place_device *device, double rows)
{
	unsigned i = 0;
	while (i + 1 < PLACEMENT_BATCHES && rows > 2u << i)
		i++;
	const double from = 1u << i; // and so many to the next
	const double at = device->batch[i], next = device->batch[i + 1], slope = (next - at) / from;
	if (rows <= 2 * from)
		return at + slope * (rows - from);
	return fmin(next + fmax(slope, next / (4 * from)) * (rows - 2 * from), rows);
}

// More rows read more experts. A measurement of another model does not say so; one of this model, on any device, does.
static void add_experts(double batch[1 + PLACEMENT_BATCHES], const struct model_shape *shape,
			const struct model_sizes *sizes)
{
	for (unsigned i = 1; shape->experts && i <= PLACEMENT_BATCHES; i++) {
		const double rows = 1u << i;
		batch[i] *= model_layer_read(shape, sizes, rows) / model_layer_read(shape, sizes, 1);
		batch[i] = fmin(batch[i], rows);
	}
}

static bool any_batch(const struct placement_timed *timed)
{
	bool any = false;
	for (unsigned i = 0; i < PLACEMENT_BATCHES; i++)
		any |= timed->batch[i] >= 0;
	return any;
}

struct cost_time cost_time(const struct placement_wanted *wanted, const struct model_sizes *sizes, unsigned device)
{
	const struct placement_device *of = &wanted->devices[device];
	const double bytes = model_layer_read(wanted->shape, sizes, 1), output_bytes = (double)sizes->output_bytes;
	const struct estimate estimate = estimate_of(of, sizes->main_format, bytes, output_bytes);
	struct cost_time time = {
		.layer_s = estimate.layer_s, .output_s = estimate.output_s, .prompt_s = -1, .known = of->bandwidth > 0};
	const struct fitted *fitted = fitted_of(of->backend);
	const int width = width_of(sizes->main_format);
	const double batch[PLACEMENT_BATCHES] = {
		-1, -1, fitted->of_8[width], -1, fitted->of_32[width], -1, fitted->of_128[width]};
	double least = INFINITY;
	for (unsigned i = 0; i < wanted->timed_count && bytes > 0; i++) {
		const struct placement_timed *timed = &wanted->timed[i];
		const double far = timed->format == sizes->main_format ? distance(wanted, timed, device, bytes)
								       : INFINITY;
		if (far < least) {
			least = far;
			time.by = timed;
		}
	}
	fill_batch(time.batch, time.by && any_batch(time.by) ? time.by->batch : batch);
	time.here = time.by && time.by->device == device;
	time.same_size = time.by && same_size(time.by->layer_bytes, bytes);
	if (!time.same_size)
		add_experts(time.batch, wanted->shape, sizes);
	if (!time.by)
		return time;
	struct placement_device on = wanted->devices[time.by->device];
	on.heat_rate = 0;
	on.heat = HEAT_NORMAL; // it was, as far as is known
	const struct estimate there = estimate_of(&on, time.by->format, (double)time.by->layer_bytes,
						  (double)time.by->output_bytes);
	const double factor = rounded(time.by->layer_s / there.layer_s);
	time.layer_s *= factor;
	time.output_s *= time.by->output_s > 0 && there.output_s > 0 ? rounded(time.by->output_s / there.output_s)
								     : factor;
	// A prompt's time is arithmetic, which bandwidths do not predict: it scales with the weights, and only a time
	// of this device counts.
	if (time.here && time.by->prompt_s > 0)
		time.prompt_s = time.by->prompt_s * bytes / (double)time.by->layer_bytes / cost_heat_rate(of);
	time.known |= time.here;
	return time;
}

static void layer_seconds(const struct problem *problem, struct place_device *device)
{
	const struct placement_wanted *wanted = problem->wanted;
	const struct placement_device *from = &wanted->devices[device->index];
	struct cost_time time = cost_time(wanted, &problem->sizes, device->index);
	const double overhead_s = fitted_of(from->backend)->layer_overhead_s;
	if (from->slices) // the output matrix is the first one's
		time.layer_s = fmax(time.layer_s - overhead_s, 0) / from->slices + overhead_s +
			       2 * (from->staged ? staged_sum_s : slice_sum_s);
	const double rate = fmin(host_bandwidth, cost_bandwidth(from));
	device->layer_s = time.layer_s;
	device->output_s = time.output_s;
	device->prompt_s = from->slices ? -1 : time.prompt_s;
	memcpy(device->batch, time.batch, sizeof device->batch);
	device->known = time.known;
	device->host_layer_s = fmax(time.layer_s,
				    model_layer_read(wanted->shape, &problem->sizes, 1) / rate + overhead_s);
}

struct placement_link cost_link(const struct placement_wanted *wanted, unsigned from_node, unsigned to_node,
				bool *measured)
{
	struct placement_link link = {.link_class = "unknown", .round_trip_s = -1, .bytes_per_s = -1};
	const struct assumed_link *assumed = assumed_links;
	if (wanted->links)
		link = wanted->links[from_node * wanted->node_count + to_node];
	if (!link.link_class)
		link.link_class = "unknown";
	while (strcmp(assumed->link_class, link.link_class) != 0 && strcmp(assumed->link_class, "unknown") != 0)
		assumed++;
	*measured = link.known && link.round_trip_s >= 0 && link.bytes_per_s > 0;
	if (!link.known || link.round_trip_s < 0)
		link.round_trip_s = assumed->round_trip_s;
	if (!link.known || link.bytes_per_s <= 0)
		link.bytes_per_s = assumed->bytes_per_s;
	return link;
}

double cost_way_s(const struct placement_link *link, uint64_t bytes)
{
	return link ? link->round_trip_s / 2 + remote_hop_s + (double)bytes / link->bytes_per_s
		    : local_hop_s + (double)bytes / local_bandwidth;
}

static void find_hops(struct problem *problem)
{
	const struct placement_wanted *wanted = problem->wanted;
	bool measured;
	problem->least_hop_s = 1e9;
	for (unsigned i = 0; i < wanted->node_count; i++)
		problem->least_out_s[i] = problem->least_in_s[i] = 1e9;
	for (unsigned i = 0; i < wanted->node_count; i++)
		for (unsigned j = 0; j < wanted->node_count; j++) {
			const struct placement_link link = cost_link(wanted, i, j, &measured);
			const double hop = cost_way_s(i == j ? NULL : &link, problem->hop_bytes);
			problem->hop_latency_s[i][j] = cost_way_s(i == j ? NULL : &link, 0);
			problem->hop_wire_s[i][j] = hop - problem->hop_latency_s[i][j];
			if (i == j)
				continue;
			problem->least_out_s[i] = hop < problem->least_out_s[i] ? hop : problem->least_out_s[i];
			problem->least_in_s[j] = hop < problem->least_in_s[j] ? hop : problem->least_in_s[j];
			problem->least_hop_s = hop < problem->least_hop_s ? hop : problem->least_hop_s;
		}
}

double cost_hop_s(const struct problem *problem, unsigned from, unsigned to, double rows)
{
	const struct place_device *a = &problem->devices[from], *b = &problem->devices[to];
	return a->group == b->group
		       ? inside_hop_s
		       : problem->hop_latency_s[a->node][b->node] + rows * problem->hop_wire_s[a->node][b->node];
}

double cost_hop_busy_s(const struct problem *problem, unsigned from, unsigned to, double rows)
{
	const struct place_device *a = &problem->devices[from], *b = &problem->devices[to];
	return a->group == b->group ? 0 : rows * problem->hop_wire_s[a->node][b->node];
}

double cost_close_s(const struct problem *problem, unsigned last, unsigned first)
{
	return problem->hop_latency_s[problem->devices[last].node][problem->devices[first].node];
}

// ---- the problem ----

static bool can_be_used(const struct problem_params *params, unsigned index)
{
	const struct placement_wanted *wanted = params->wanted;
	const struct placement_device *device = &wanted->devices[index];
	for (unsigned i = 0; params->pinned && i < wanted->pin_count; i++)
		if (wanted->pins[i].device == index)
			return true;
	return !params->pinned && !cost_unusable(wanted, index) && !device->software &&
	       !(params->gpus_only && device->backend == PLACE_CPU);
}

static bool faster(const struct place_device *a, const struct place_device *b)
{
	return a->layer_s != b->layer_s         ? a->layer_s < b->layer_s
	       : a->free_bytes != b->free_bytes ? a->free_bytes > b->free_bytes
						: a->index < b->index;
}

static void add_device(struct problem *problem, unsigned index)
{
	unsigned at = problem->count++;
	const struct placement_device *from = &problem->wanted->devices[index];
	struct place_device device = {
		.index = index, .node = from->node, .twin = NOBODY, .pool = NOBODY, .free_bytes = from->free_bytes};
	layer_seconds(problem, &device);
	find_room(problem, &device);
	while (at && faster(&device, &problem->devices[at - 1])) {
		problem->devices[at] = problem->devices[at - 1];
		at--;
	}
	problem->devices[at] = device;
}

bool cost_shares_memory(const struct placement_device *a, const struct placement_device *b)
{
	return a->pool[0] && a->node == b->node && !strcmp(a->pool, b->pool);
}

bool cost_host_fits(const struct placement_wanted *wanted, unsigned device, const struct stage_memory *memory)
{
	const struct placement_device *own = &wanted->devices[device], *host = NULL;
	for (unsigned i = 0; i < wanted->device_count; i++)
		if (wanted->devices[i].backend == PLACE_CPU && wanted->devices[i].node == own->node)
			host = &wanted->devices[i];
	const uint64_t bytes = memory->host_bytes + (host && memory->host_bytes && cost_shares_memory(own, host)
							     ? cost_on_device(memory)
							     : 0);
	return bytes <= (host ? host->free_bytes : 0);
}

// Number the groups and pools; a device with unshared memory has no pool.
static void find_groups(struct problem *problem)
{
	const struct placement_device *all = problem->wanted->devices;
	for (unsigned i = 0; i < problem->count; i++) {
		struct place_device *one = &problem->devices[i];
		unsigned same = i;
		for (unsigned j = 0; j < problem->count; j++) {
			const struct place_device *other = &problem->devices[j];
			if (j < same && other->node == one->node &&
			    all[other->index].backend == all[one->index].backend)
				same = j;
			if (i != j && cost_shares_memory(&all[one->index], &all[other->index]) &&
			    (one->pool < 0 || (int)j < one->pool))
				one->pool = (int)(j < i ? j : i);
		}
		one->group = same < i ? problem->devices[same].group : problem->group_count++;
	}
}

static bool alike(const struct place_device *a, const struct place_device *b)
{
	return a->layer_s == b->layer_s && a->output_s == b->output_s && a->pool < 0 && b->pool < 0 &&
	       !memcmp(a->batch, b->batch, sizeof a->batch) && !memcmp(a->room, b->room, sizeof a->room);
}

// Whether two nodes may be exchanged: the same devices, and the same hops to everyone and to each other.
static bool nodes_alike(const struct problem *problem, unsigned a, unsigned b)
{
	const unsigned nodes = problem->wanted->node_count;
	unsigned at[2] = {0, 0};
	for (unsigned i = 0; i < nodes; i++) {
		const unsigned with_a = i == a ? b : i, with_b = i == a ? a : i;
		if (i == b)
			continue;
		if (problem->hop_latency_s[a][with_a] != problem->hop_latency_s[b][with_b] ||
		    problem->hop_latency_s[with_a][a] != problem->hop_latency_s[with_b][b] ||
		    problem->hop_wire_s[a][with_a] != problem->hop_wire_s[b][with_b] ||
		    problem->hop_wire_s[with_a][a] != problem->hop_wire_s[with_b][b])
			return false;
	}
	for (;; at[0]++, at[1]++) {
		while (at[0] < problem->count && problem->devices[at[0]].node != a)
			at[0]++;
		while (at[1] < problem->count && problem->devices[at[1]].node != b)
			at[1]++;
		if (at[0] == problem->count || at[1] == problem->count)
			return at[0] == at[1];
		const struct place_device *x = &problem->devices[at[0]], *y = &problem->devices[at[1]];
		const enum placement_backend backends[2] = {problem->wanted->devices[x->index].backend,
							    problem->wanted->devices[y->index].backend};
		if (!alike(x, y) || backends[0] != backends[1])
			return false;
	}
}

static void find_twins(struct problem *problem)
{
	for (unsigned i = 0; i < problem->count; i++)
		for (unsigned j = 0; j < i; j++)
			if (problem->devices[j].group == problem->devices[i].group &&
			    alike(&problem->devices[i], &problem->devices[j]))
				problem->devices[i].twin = (int)j;
	for (unsigned i = 0; i < problem->wanted->node_count; i++) {
		problem->node_twin[i] = NOBODY;
		for (unsigned j = 0; j < i; j++)
			if (nodes_alike(problem, i, j))
				problem->node_twin[i] = (int)j;
	}
}

void problem_init(struct problem *problem, const struct problem_params *params)
{
	const struct placement_wanted *wanted = params->wanted;
	const struct placement_stage none = {0}, whole = {.layer_count = wanted->shape->layers};
	memset(problem, 0, sizeof *problem);
	problem->wanted = wanted;
	problem->sizes = *params->sizes;
	problem->pages = params->pages;
	problem->layers = wanted->shape->layers;
	problem->most = problem->layers < PLACEMENT_STAGES ? problem->layers : PLACEMENT_STAGES;
	problem->hop_bytes = 4ull * wanted->shape->embedding; // f32
	const struct stage_memory without = cost_memory(wanted, params->sizes, params->pages, &none),
				  with = cost_memory(wanted, params->sizes, params->pages, &whole);
	// The mean: layers with a state in the place of keys and values take other memory than those beside them.
	problem->layer_bytes = (cost_on_device(&with) - cost_on_device(&without)) / problem->layers;
	for (unsigned i = 0; i < wanted->device_count; i++)
		if (can_be_used(params, i))
			add_device(problem, i);
	find_groups(problem);
	find_hops(problem);
	find_twins(problem);
}

// ---- the score ----

void cost_score(const struct problem *problem, unsigned device, const struct problem *usable,
		struct placement_score *out)
{
	const struct place_device *one = &problem->devices[device];
	const struct placement_device *from = &problem->wanted->devices[one->index];
	const int both = ROOM_EMBEDS | ROOM_PREDICTS;
	const double needed = (double)(one->fixed_bytes[both] + problem->layers * problem->layer_bytes);
	double hops = 0, fastest = usable->count ? usable->devices[0].layer_s : one->layer_s;
	unsigned others = 0;
	bool peers = false, near = false, measured;
	for (unsigned i = 0; i < problem->wanted->node_count; i++) {
		if (i == one->node)
			continue;
		others++;
		hops += problem->hop_latency_s[one->node][i] + problem->hop_wire_s[one->node][i];
		near |= cost_link(problem->wanted, one->node, i, &measured).direct;
	}
	for (unsigned i = 0; i < usable->count; i++) {
		const struct place_device *other = &usable->devices[i];
		if (other->index == one->index || other->node != one->node)
			continue;
		near = true;
		peers |= cost_linked(problem->wanted, one->index, other->index);
	}
	out->compute = fastest < one->layer_s ? fastest / one->layer_s : 1;
	out->memory = (double)one->free_bytes < needed ? (double)one->free_bytes / needed : 1;
	out->network = others ? scale_of_hops_s / (scale_of_hops_s + hops / others) : 1;
	out->thermal = from->heat >= HEAT_THROTTLED ? 0 : from->heat_room < 0 ? 0.5 : from->heat_room;
	out->bandwidth = peers || usable->count < 2 ? 1 : near ? 0.5 : 0;
	out->total = 0.4 * out->compute + 0.3 * out->memory + 0.15 * out->network + 0.1 * out->thermal +
		     0.05 * out->bandwidth;
}
