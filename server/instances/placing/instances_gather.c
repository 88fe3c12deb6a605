/* Gathers the input of placement.h: the devices of all connected nodes with their free memory now, and the request. All
 * texts are copied, so that a placement can be searched for on another thread while devices come and go. Thread: the
 * loop's. */
#include "common/base/clock.h"
#include "server/cluster/heat.h"
#include "server/instances/instances_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	MOST_SEQUENCES = 256, // that can be asked for
	SHOWN_MS = 1000,      // a reading that came as long after a load was taken after it
	RELEASE_MS = 7000,    // until readings show freed memory: a worker's end, an idle device's interval
	RELEASE_LEAST = 1024, // parts of a device: less makes no difference
	REFUSED_MS = 60000,   // what a device refused is believed as long
};
static const double refused_share = 0.75; // of the refused memory is tried next

// ---- devices ----

static enum placement_backend backend_of(const struct json *record)
{
	const char *name = json_get_string(record, "backend", "");
	return !strcmp(name, "cuda")     ? PLACE_CUDA
	       : !strcmp(name, "vulkan") ? PLACE_VULKAN
	       : !strcmp(name, "cpu")    ? PLACE_CPU
	       : !strcmp(name, "webgpu") ? PLACE_WEBGPU
					 : PLACE_UNKNOWN;
}

bool gather_same_pool(const struct cluster_device *a, const struct cluster_device *b)
{
	const char *pool = json_get_string(cluster_device_record(a), "memory_pool", "");
	return a == b || (pool[0] && !strcmp(cluster_device_node_id(a), cluster_device_node_id(b)) &&
			  !strcmp(json_get_string(cluster_device_record(b), "memory_pool", ""), pool));
}

struct naming {
	const struct cluster_device *device;
	bool among_several;
};

static void look_node(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	struct naming *naming = context;
	(void)telemetry;
	naming->among_several |= strcmp(cluster_device_node_id(device), cluster_device_node_id(naming->device)) != 0;
}

const char *gather_name(const struct instances *instances, const struct cluster_device *device,
			char text[GATHER_NAME_BYTES])
{
	struct naming naming = {.device = device};
	struct json *node = cluster_describe_node(instances->params.cluster, cluster_device_node_id(device));
	cluster_each_device(instances->params.cluster, look_node, &naming);
	char title[CLUSTER_TITLE_BYTES];
	snprintf(text, GATHER_NAME_BYTES, "%.*s%s%.64s", GATHER_NAME_BYTES - 70,
		 cluster_device_title(instances->params.cluster, device, title), naming.among_several ? " of " : "",
		 naming.among_several ? json_get_string(node, "name", cluster_device_node_id(device)) : "");
	json_destroy(&node);
	return text;
}

struct gathering {
	struct placing *placing;
	const struct instances *instances;
	const struct placing_excluded *excluded; // may be NULL
	bool usable;                             // those that can be used; else the others, for the reasons
};

// The bytes of this memory that an instance holds.
uint64_t gather_held_by(const struct instance *instance, const struct cluster_device *device)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		bytes += gather_same_pool(device, stage->device) ? stage->held : 0;
		bytes += stage->host && gather_same_pool(device, stage->host) ? stage->host_held : 0;
	}
	return bytes;
}

// How much there is by its record and by the newest reading, whichever says less: a limit may have been set since.
static int64_t total_bytes(const struct cluster_device *device, const struct json *telemetry)
{
	const int64_t total = json_get_integer(cluster_device_record(device), "memory_bytes", 0),
		      seen = json_get_integer(telemetry, "memory_total_bytes", 0);
	return total <= 0 || (seen > 0 && seen < total) ? seen : total;
}

// The bytes of this memory that instances hold and that the newest reading does not show yet, or not fully.
static uint64_t not_shown(const struct instances *instances, const struct cluster_device *device)
{
	const int64_t read_ms = cluster_newest_sample_ms(device);
	uint64_t bytes = 0;
	for (const struct instance *one = instances->first; one; one = one->next)
		if (!one->ready_ms || (one->state == INSTANCE_PAUSED && instance_is_anew(one)) ||
		    read_ms - one->ready_ms < SHOWN_MS)
			bytes += gather_held_by(one, device);
	return bytes;
}

void gather_released_stage(const struct instance *instance, const struct instance_stage *stage)
{
	struct instances *instances = instance->all;
	if (!stage->held)
		return;
	struct released *one = &instances->released[instances->released_count++ % LIMIT_INSTANCES];
	*one = (struct released){.bytes = stage->held, .at_ms = instances_now(instances)};
	snprintf(one->device_id, sizeof one->device_id, "%s", cluster_device_id(stage->device));
	snprintf(one->instance_id, sizeof one->instance_id, "%s", instance->instance_id);
}

void gather_released(const struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		gather_released_stage(instance, &instance->stages[i]);
}

// The most that has just been freed at once where a reading says that as much is used as if it were still held; by this
// instance, or NULL: by any.
static uint64_t lagging(const struct instances *instances, const struct instance *by,
			const struct cluster_device *device, uint64_t used, uint64_t total)
{
	const size_t count = instances->released_count < LIMIT_INSTANCES ? instances->released_count : LIMIT_INSTANCES;
	const uint64_t held = tenancy_held_bytes(instances->params.tenants, device);
	uint64_t most = 0;
	for (size_t i = 0; i < count; i++) {
		const struct released *one = &instances->released[i];
		if (one->bytes >= total / RELEASE_LEAST && used >= held + one->bytes / 2 && one->bytes > most &&
		    instances_now(instances) - one->at_ms < RELEASE_MS &&
		    !strcmp(one->device_id, cluster_device_id(device)) &&
		    (!by || !strcmp(one->instance_id, by->instance_id)))
			most = one->bytes;
	}
	return most;
}

// The most that this memory can have free, after what it refused; UINT64_MAX: no bound. The bound is dropped once as
// much has been freed since.
static uint64_t most_free(const struct instance *instance, const struct cluster_device *device, int64_t used)
{
	uint64_t most = UINT64_MAX;
	for (unsigned i = 0; i < PLACEMENT_STAGES; i++) {
		const struct refused *one = &instance->recovery.refused[i];
		const uint64_t next = (uint64_t)((double)one->bytes * refused_share);
		const struct cluster_device *by = one->device_id[0] ? cluster_find_device(instance->all->params.cluster,
											  one->device_id)
								    : NULL;
		const bool freed = used >= 0 && one->used_bytes >= used &&
				   (uint64_t)(one->used_bytes - used) >= one->bytes;
		if (by && gather_same_pool(by, device) && instances_now(instance->all) - one->at_ms < REFUSED_MS &&
		    !freed && next < most)
			most = next;
	}
	return most;
}

struct fullest {
	const struct instance *instance;
	const struct instance_stage *first;
	const struct cluster_device *device; // NULL: none yet
	bool known;                          // it has refused something before
	int64_t left, used_bytes;            // were it loaded, by the newest reading; may be below 0
};

// It must be one of the part that begins with stage `first`: the next ones on that node, with that back end.
static bool is_of_part(const struct fullest *fullest, const struct cluster_device *device)
{
	const struct instance *instance = fullest->instance;
	const struct cluster_device *first = fullest->first->device;
	const char *backend = json_get_string(cluster_device_record(first), "backend", "");
	for (const struct instance_stage *one = fullest->first; one < instance->stages + instance->stage_count; one++) {
		if (strcmp(cluster_device_node_id(one->device), cluster_device_node_id(first)) != 0 ||
		    strcmp(json_get_string(cluster_device_record(one->device), "backend", ""), backend) != 0)
			return false;
		if (one->device == device || one->host == device)
			return true;
	}
	return false;
}

static void look_fullest(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	struct fullest *fullest = context;
	const uint64_t own = gather_held_by(fullest->instance, device);
	const int64_t used = json_get_integer(telemetry, "memory_used_bytes", -1),
		      left = total_bytes(device, telemetry) - (used > 0 ? used : 0) - (int64_t)own;
	const bool known = most_free(fullest->instance, device, used) != UINT64_MAX;
	if (!own || !is_of_part(fullest, device) ||
	    (fullest->device && (known == fullest->known ? left >= fullest->left : fullest->known)))
		return;
	fullest->device = device;
	fullest->known = known;
	fullest->left = left;
	fullest->used_bytes = used;
}

void gather_refused(struct instance *instance, const struct instance_stage *first)
{
	struct recovery *recovery = &instance->recovery;
	struct fullest fullest = {.instance = instance, .first = first};
	cluster_each_device(instance->all->params.cluster, look_fullest, &fullest);
	if (!fullest.device)
		return;
	struct refused *one = &recovery->refused[recovery->refused_count++ % PLACEMENT_STAGES];
	*one = (struct refused){.bytes = gather_held_by(instance, fullest.device),
				.used_bytes = fullest.used_bytes,
				.at_ms = instances_now(instance->all)};
	snprintf(one->device_id, sizeof one->device_id, "%s", cluster_device_id(fullest.device));
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
	return bytes > by ? bytes - by : 0;
}

// Free memory: the smaller of the newest reading and the memory that is not reserved. Memory of an instance that is
// placed again counts as free while its workers run and, after the end of one, for as long as readings lag.
static void read_memory(struct placement_device *out, const struct gathering *gathering,
			const struct cluster_device *device, const struct json *telemetry)
{
	const struct instances *instances = gathering->instances;
	const struct instance *ending = gathering->excluded ? gathering->excluded->ending : NULL;
	const int64_t total = total_bytes(device, telemetry),
		      used = json_get_integer(telemetry, "memory_used_bytes", -1);
	out->memory_bytes = total > 0 ? (uint64_t)total : 0;
	out->free_known = used >= 0;
	if (used >= 0 && lagging(instances, NULL, device, (uint64_t)used, out->memory_bytes))
		gathering->placing->lags = true;
	const uint64_t own = ending ? gather_held_by(ending, device) : 0,
		       most = ending ? most_free(ending, device, used) : UINT64_MAX,
		       held = less(tenancy_held_bytes(instances->params.tenants, device), own);
	uint64_t taken = used >= 0 ? (uint64_t)used + not_shown(instances, device) : 0;
	if (ending && own)
		taken = less(taken, own);
	else if (ending && used >= 0 && most == UINT64_MAX)
		taken = less(taken, lagging(instances, ending, device, (uint64_t)used, out->memory_bytes));
	taken = taken > held ? taken : held;
	taken += placement_reserve(out->memory_bytes, out->backend == PLACE_CPU, instances->params.headroom);
	out->free_bytes = less(out->memory_bytes, taken);
	out->free_bytes = out->free_bytes < most ? out->free_bytes : most;
	gathering->placing->lacking[out - gathering->placing->devices] = less(taken, out->memory_bytes);
}

static bool is_excluded(const struct placing_excluded *excluded, const struct cluster_device *device)
{
	for (unsigned i = 0; excluded && i < excluded->count; i++)
		if (!strcmp(excluded->ids[i], cluster_device_node_id(device)) ||
		    !strcmp(excluded->ids[i], cluster_device_id(device)))
			return true;
	return false;
}

static const char *not_usable(const struct gathering *gathering, const struct cluster_device *device)
{
	const char *reason = NULL;
	const struct cluster_device *found;
	const char *state = cluster_device_state(device, &reason);
	if (is_excluded(gathering->excluded, device))
		return gathering->excluded->why;
	if (gathering->excluded && gathering->excluded->cool && cluster_heat_held(device).held)
		return "it is held back for its heat";
	if (gathering->excluded && gathering->excluded->stays &&
	    !instance_is_on(gathering->excluded->ending, cluster_device_id(device)))
		return "the instance stays where it is";
	if (!tenant_find_device(gathering->instances->params.tenants, cluster_device_id(device), &found, NULL))
		return NULL;
	return !strcmp(state, "draining") ? "it is draining" : reason ? reason : "it is not verified, or offline";
}

// The place of a node in the list of nodes; PLACEMENT_NODES: there are too many.
static unsigned node_place(struct placing *placing, const char *node_id)
{
	unsigned at = 0;
	while (at < placing->wanted.node_count && strcmp(placing->node_ids[at], node_id) != 0)
		at++;
	if (at == placing->wanted.node_count && at < PLACEMENT_NODES) {
		snprintf(placing->node_ids[at], sizeof placing->node_ids[at], "%s", node_id);
		placing->wanted.node_count++;
	}
	return at;
}

static void add_device(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	const struct gathering *gathering = context;
	struct placing *placing = gathering->placing;
	const struct json *record = cluster_device_record(device);
	const char *unusable = not_usable(gathering, device), *reason;
	if (!unusable != gathering->usable || placing->wanted.device_count == PLACEMENT_DEVICES ||
	    backend_of(record) == PLACE_UNKNOWN)
		return;
	unsigned node = node_place(placing, cluster_device_node_id(device));
	if (node == PLACEMENT_NODES)
		return;
	unsigned at = placing->wanted.device_count++;
	struct placement_device *out = &placing->devices[at];
	struct placing_texts *texts = &placing->texts[at];
	char title[CLUSTER_TITLE_BYTES];
	placing->where[at] = device;
	snprintf(texts->device_id, sizeof texts->device_id, "%s", cluster_device_id(device));
	snprintf(texts->name, sizeof texts->name, "%.90s",
		 cluster_device_title(gathering->instances->params.cluster, device, title));
	snprintf(texts->pool, sizeof texts->pool, "%s", json_get_string(record, "memory_pool", ""));
	snprintf(texts->unusable, sizeof texts->unusable, "%s", unusable ? unusable : "");
	*out = (struct placement_device){.device_id = texts->device_id,
					 .name = texts->name,
					 .node_id = placing->node_ids[node],
					 .node = node,
					 .pool = texts->pool,
					 .backend = backend_of(record),
					 .unusable = unusable ? texts->unusable : NULL,
					 .ends_soon = cluster_ends_soon(device),
					 .draining = unusable && !is_excluded(gathering->excluded, device) &&
						     !strcmp(cluster_device_state(device, &reason), "draining")};
	out->software = out->backend != PLACE_CPU && !strcmp(json_get_string(record, "kind", ""), "cpu");
	out->bandwidth = json_get_number(record, "memory_bandwidth_bytes_per_s", 0);
	out->largest_buffer = (uint64_t)json_get_integer(record, "largest_buffer_bytes", 0);
	if (!gathering->excluded || !gathering->excluded->stays) // else what it is compared with is as hot
		gather_heat(out, device, telemetry);
	read_memory(out, gathering, device, telemetry);
}

static void gather_peers(struct placing *placing)
{
	const unsigned count = placing->wanted.device_count;
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < count; j++)
			placing->copies[i * count + j] = i != j && cluster_copies(placing->where[i], placing->where[j]);
	placing->wanted.copies = placing->copies;
}

// ---- the request ----

static enum status read_pins(struct placing *placing, const struct json *pins, const struct instances *instances,
			     struct error *error)
{
	for (const struct json *pin = json_first(pins); pin; pin = json_next(pin)) {
		const char *device_id = json_get_string(pin, "device_id", "");
		unsigned at = 0;
		while (at < placing->wanted.device_count && strcmp(placing->devices[at].device_id, device_id) != 0)
			at++;
		if (at == placing->wanted.device_count && cluster_find_device(instances->params.cluster, device_id)) {
			error_set(error, STATUS_UNAVAILABLE,
				  "models run by cuda, vulkan, cpu or webgpu; %.64s does not", device_id);
			return STATUS_UNAVAILABLE;
		}
		if (at == placing->wanted.device_count) {
			const bool may_come = cluster_discovering(instances->params.cluster);
			error_set(error, may_come ? STATUS_UNAVAILABLE : STATUS_NOT_FOUND, "there is no device %.64s%s",
				  device_id,
				  may_come ? " yet: devices of this machine are still being searched for" : "");
			error_hint(error, may_come ? "try again in a few seconds" : "see: exogpu devices");
			return error->status;
		}
		int64_t first = json_get_integer(pin, "first_layer", 0),
			count = json_get_integer(pin, "layer_count", 0);
		if (first > UINT32_MAX || count > UINT32_MAX)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "a pin names layers that the model does not have");
		placing->pins[placing->wanted.pin_count++] = (struct placement_pin){
			.device = at, .first_layer = (uint32_t)first, .layer_count = (uint32_t)count};
	}
	return STATUS_OK;
}

static enum status read_model(struct placing *placing, const struct instances *instances, const struct json *params,
			      struct error *error)
{
	const char *id = json_get_string(params, "model_id", ""),
		   *strategy = json_get_string(params, "strategy", "auto");
	placing->model = models_find(instances->params.models, id);
	if (!placing->model) {
		error_set(error, STATUS_NOT_FOUND, "there is no model %.128s", id);
		error_hint(error, "see: exogpu model list");
		return STATUS_NOT_FOUND;
	}
	if (placing->model->state != MODEL_READY) {
		const char *reason = models_why(placing->model); // any token may ask
		return error_set(error, STATUS_CONFLICT, "%s is not ready%s%s", placing->model->name,
				 reason[0] ? ": " : "", reason);
	}
	// hybrid: groups of devices that hold slices, one behind another if one does not hold the model.
	placing->wanted.strategy = !strcmp(strategy, "pipeline") ? PLACE_PIPELINE
				   : !strcmp(strategy, "auto")   ? PLACE_ANY
								 : PLACE_TENSOR;
	return STATUS_OK;
}

static void read_wanted(struct placing *placing, const struct placing_request *asked, double timeout_s)
{
	const struct model_record *model = placing->model;
	const struct json *params = asked->params;
	const char *format = json_get_string(params, "format", NULL);
	snprintf(placing->model_id, sizeof placing->model_id, "%s", model ? model->model_id : "");
	placing->foreseen = !model;
	placing->shape = model ? model->shape : *asked->of->shape;
	placing->sizes = model ? model->sizes : *asked->of->sizes;
	placing->wanted.shape = &placing->shape;
	placing->wanted.sizes = &placing->sizes;
	placing->wanted.devices = placing->devices;
	placing->wanted.pins = placing->pins;
	placing->wanted.objective = !strcmp(json_get_string(params, "objective", "latency"), "throughput")
					    ? PLACE_THROUGHPUT
					    : PLACE_LATENCY;
	placing->wanted.timeout_s = json_get_number(params, "timeout_s", timeout_s);
	placing->wanted.may_shrink = format && !strcmp(format, "auto");
	placing->wanted.format = format && !placing->wanted.may_shrink ? format_parse(format) : FORMAT_UNKNOWN;
}

// Defaults follow from the memory; for an instance that is placed again they are the present values.
static void read_usual(struct placing *placing, const struct json *params, const struct instance *ending)
{
	const uint32_t most = placing->shape.context;
	const int64_t context = json_get_integer(params, "context_tokens", ending ? ending->context_tokens : 0);
	struct placement_wanted *wanted = &placing->wanted;
	const int64_t sequences = json_get_integer(params, "sequences", ending ? ending->sequences : 0);
	wanted->context_tokens = (uint32_t)(context < most ? context : most);
	wanted->sequences = sequences <= MOST_SEQUENCES ? (uint32_t)sequences : 0;
	placement_usual(wanted, &wanted->context_tokens, &wanted->sequences);
}

// Whether a place was looked for in vain: only then what would give it one, which takes a while longer.
static bool waits(const struct instance *instance)
{
	return instance && instance->state == INSTANCE_PAUSED && instance->recovery.in_vain_ms;
}

static void gather_devices(struct placing *placing, const struct instances *instances,
			   const struct placing_excluded *excluded)
{
	struct gathering gathering = {.placing = placing, .instances = instances, .excluded = excluded, .usable = true};
	cluster_each_device(instances->params.cluster, add_device, &gathering);
	gathering.usable = false;
	cluster_each_device(instances->params.cluster, add_device, &gathering);
	gather_peers(placing);
}

void instances_look_room(void *context, struct models_room *room)
{
	const struct instances *instances = context;
	struct placing *placing = instances ? calloc(1, sizeof(*placing)) : NULL;
	*room = (struct models_room){0};
	if (!placing)
		return;
	gather_devices(placing, instances, NULL);
	models_room(placing->devices, placing->wanted.device_count, room);
	free(placing);
}

enum status placing_gather_memory(struct placing **out, const struct instances *instances,
				  const struct model_record *model)
{
	struct placing *placing = *out = calloc(1, sizeof(*placing));
	if (!placing)
		return STATUS_OUT_OF_MEMORY;
	placing->model = model;
	gather_devices(placing, instances, NULL);
	evict_gather(placing, instances);
	return STATUS_OK;
}

// In texts, devices of several nodes are distinguished by the nodes' names.
static void name_nodes(struct placing *placing, const struct cluster *cluster)
{
	for (unsigned i = 0; i < placing->wanted.node_count; i++) {
		struct json *node = cluster_describe_node(cluster, placing->node_ids[i]);
		snprintf(placing->node_names[i], sizeof placing->node_names[i], "%.64s",
			 json_get_string(node, "name", placing->node_ids[i]));
		json_destroy(&node);
	}
	for (unsigned i = 0; i < placing->wanted.device_count; i++) {
		struct placement_device *device = &placing->devices[i];
		char *name = placing->texts[i].name, told[sizeof placing->texts[i].name];
		device->node_name = placing->node_names[device->node];
		if (placing->wanted.node_count == 1)
			continue;
		snprintf(told, sizeof told, "%.*s of %.64s", (int)sizeof told - 70, name, device->node_name);
		memcpy(name, told, sizeof told);
	}
}

static void gather_times(struct placing *placing, const struct layer_times *times)
{
	const int64_t now_ms = clock_wall_ms();
	const struct layer_time *one;
	for (size_t i = 0; (one = layer_times_at(times, i)) && placing->wanted.timed_count < PLACEMENT_TIMED; i++) {
		unsigned at = 0;
		while (at < placing->wanted.device_count && strcmp(placing->devices[at].device_id, one->device_id) != 0)
			at++;
		if (at == placing->wanted.device_count)
			continue;
		placing->timed[placing->wanted.timed_count] = (struct placement_timed){
			.device = at,
			.format = one->format,
			.layer_bytes = one->layer_bytes,
			.output_bytes = one->output_bytes,
			.layer_s = one->layer_s,
			.output_s = one->output_s,
			.prompt_s = one->prompt_s,
			.spread = one->spread,
			.age_s = now_ms > one->measured_ms ? (now_ms - one->measured_ms) / 1000 : 0};
		_Static_assert((int)PLACEMENT_BATCHES == (int)STORE_BATCHES, "the same are kept");
		memcpy(placing->timed[placing->wanted.timed_count++].batch, one->batch, sizeof one->batch);
	}
	placing->wanted.timed = placing->timed;
}

static void gather_links(struct placing *placing, const struct topology *topology)
{
	const unsigned nodes = placing->wanted.node_count;
	for (unsigned i = 0; i < nodes * nodes; i++) {
		struct topology_reading reading = {.rtt_ms = -1, .throughput_bytes_per_s = -1};
		if (topology)
			topology_find(topology, placing->node_ids[i / nodes], placing->node_ids[i % nodes], &reading);
		placing->links[i] = (struct placement_link){.known = reading.known,
							    .direct = reading.direct,
							    .link_class = reading.link_class,
							    .round_trip_s = reading.rtt_ms / 1e3,
							    .bytes_per_s = reading.throughput_bytes_per_s};
	}
	placing->wanted.links = placing->links;
}

enum status placing_gather(struct placing **out, const struct instances *instances, const struct placing_request *asked,
			   struct error *error)
{
	const struct json *params = asked->params;
	const struct placing_excluded *excluded = asked->excluded;
	struct placing *placing = calloc(1, sizeof(*placing));
	*out = NULL;
	if (!placing)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	enum status status = asked->of ? STATUS_OK : read_model(placing, instances, params, error);
	if (!status) {
		read_wanted(placing, asked, instances->params.placement_timeout_s);
		placing->wanted.remedies = !asked->of && (!excluded || waits(excluded->ending));
		gather_devices(placing, instances, excluded);
		name_nodes(placing, instances->params.cluster);
		gather_links(placing, instances->params.topology);
		gather_times(placing, instances->layer_times);
		status = read_pins(placing, json_get(params, "pins"), instances, error);
		read_usual(placing, params, excluded ? excluded->ending : NULL);
		if (!status)
			status = placing_read_draft(placing, instances, params, excluded && excluded->ending, error);
		if (!asked->of && (!excluded || excluded->evicts)) // what is foreseen evicts nothing
			evict_gather(placing, instances);
		if (excluded && excluded->keeps)
			keep_gather(placing, excluded->ending);
		if (excluded && excluded->eases)
			ease_gather(placing, excluded->ending);
	}
	if (status)
		free(placing);
	else
		*out = placing;
	return status;
}

bool placing_stands(struct placing *placing, const struct instances *instances)
{
	const struct placement *placement = &placing->placement;
	placing->model = placing->foreseen ? NULL : models_find(instances->params.models, placing->model_id);
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		placing->where[i] = cluster_find_device(instances->params.cluster, placing->texts[i].device_id);
	for (unsigned i = 0; i < placement->stage_count; i++) {
		const struct cluster_device *found, *device = placing->where[placement->stages[i].device];
		if (!device || (placement->feasible &&
				tenant_find_device(instances->params.tenants, cluster_device_id(device), &found, NULL)))
			return false;
	}
	return placing->foreseen || placing->model != NULL;
}
