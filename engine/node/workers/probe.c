/* See probe.h. One job is one worker call; it names its device by id, since the table may change while it runs. */
#include "engine/node/workers/probe.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "engine/backend.h"
#include "engine/device/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENUMERATE_MS = 10000, VERIFY_MS = 20000, COMPILE_MS = 600000, PEERS_LOOK_MS = 3000 };

struct backend_state {
	bool compiled, asking, again, asked; // asked: has answered or failed at least once
	char failure[384];                   // of the last enumeration; "" if it answered
	struct library_info libraries[INFO_LIBRARIES];
	size_t library_count;
};

struct prober {
	struct prober_params params;
	struct children *children;
	struct backend_state backends[BACKEND_COUNT];
	size_t enumerating, verifying;
	bool compiling, peering;
	struct net_timer look;                     // runs while pairs of devices wait to be measured
	char measuring[LIMIT_PROBES_AT_ONCE][129]; // memory pools that are being measured; "" is free
};

struct job {
	struct prober *prober;
	enum backend_kind kind;
	char device_id[IDENTITY_ID_BYTES], peer_id[IDENTITY_ID_BYTES];
	char *pool; // of a measurement: its place in prober->measuring
};

static void pump(struct prober *prober);

static void call_worker(struct prober *prober, struct job *job, const char *method, struct json *params,
			int64_t deadline_ms, void (*done)(void *arg, const struct child_outcome *outcome))
{
	children_call(prober->children, &(struct child_call){.method = method,
							     .params = params,
							     .deadline_ms = deadline_ms,
							     .done = done,
							     .drop = free,
							     .arg = job});
}

static void take_libraries(struct backend_state *state, const struct json *libraries)
{
	state->library_count = 0;
	for (const struct json *item = json_first(libraries); item && state->library_count < INFO_LIBRARIES;
	     item = json_next(item))
		library_info_from_json(&state->libraries[state->library_count++], item);
}

static void enumeration_done(struct job *job, const struct json *result)
{
	struct prober *prober = job->prober;
	struct found *found = found_create();
	if (!found)
		return;
	const struct json *devices = json_get(result, "devices");
	for (const struct json *item = json_first(devices); item; item = json_next(item)) {
		struct device_info *info = found_add_device(found);
		if (!info)
			break;
		device_info_from_json(info, item);
	}
	device_table_found(prober->params.table, job->kind, found->devices, found->device_count);
	found_destroy(&found);
}

static void enumerated(void *arg, const struct child_outcome *outcome)
{
	struct job *job = arg;
	struct prober *prober = job->prober;
	struct backend_state *state = &prober->backends[job->kind];
	state->failure[0] = 0;
	state->asked = true;
	if (outcome->status) {
		snprintf(state->failure, sizeof(state->failure), "listing its devices failed: %.300s",
			 outcome->error->message);
		log_warning("node", "%s: %s", backend_kind_title(job->kind), state->failure);
		device_table_backend_failed(prober->params.table, job->kind, state->failure);
	} else {
		take_libraries(state, json_get(outcome->result, "libraries"));
		enumeration_done(job, outcome->result);
	}
	state->asking = false;
	prober->enumerating--;
	free(job);
	prober->params.record_changed(prober->params.arg);
	prober->params.devices_changed(prober->params.arg);
	if (state->again)
		prober_scan(prober);
	pump(prober);
}

static struct job *job_create(struct prober *prober, enum backend_kind kind, const char *device_id)
{
	struct job *job = calloc(1, sizeof(*job));
	if (!job) {
		log_error("node", "no memory to start a worker");
		return NULL;
	}
	job->prober = prober;
	job->kind = kind;
	text_copy(job->device_id, sizeof(job->device_id), device_id);
	return job;
}

void prober_scan(struct prober *prober)
{
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) {
		struct backend_state *state = &prober->backends[kind];
		state->again = state->asking;
		if (!state->compiled || !prober->params.enabled[kind] || state->asking)
			continue;
		struct job *job = job_create(prober, (enum backend_kind)kind, "");
		if (!job)
			continue;
		struct json *params = json_new_object();
		json_set_string(params, "backend", backend_kind_name((enum backend_kind)kind));
		state->asking = true;
		prober->enumerating++;
		call_worker(prober, job, "worker.enumerate", params, ENUMERATE_MS, enumerated);
	}
}

static struct json *verify_params(const struct prober *prober, const struct device_record *record,
				  enum backend_kind kind, bool measure)
{
	struct json *params = json_new_object();
	json_set_string(params, "backend", backend_kind_name(kind));
	json_set_string(params, "hardware_key", record->apis[kind].info.hardware_key);
	json_set_bool(params, "measure", measure);
	json_set_string(params, "cache_directory", prober->params.cache);
	return params;
}

static void verified(void *arg, const struct child_outcome *outcome)
{
	struct job *job = arg;
	struct prober *prober = job->prober;
	struct device_record *record = device_table_find(prober->params.table, job->device_id);
	record->apis[job->kind].verifying = false; // a record is never removed
	double duration_ms = json_get_number(outcome->result, "duration_ms", -1);
	char reason[704] = "";
	if (outcome->status)
		snprintf(reason, sizeof(reason), "%s%s%s", outcome->error->message, outcome->error->hint[0] ? "; " : "",
			 outcome->error->hint);
	device_record_verified(record, job->kind, duration_ms, reason);
	if (outcome->status)
		log_warning("node", "%s failed verification through %s: %s", record->apis[job->kind].info.name,
			    backend_kind_title(job->kind), reason);
	else
		log_info("node", "%s passed verification through %s in %.0f ms", record->apis[job->kind].info.name,
			 backend_kind_title(job->kind), duration_ms);
	prober->verifying--;
	if (!outcome->status && device_record_backend(record) == job->kind)
		prober->params.verified(prober->params.arg, record, job->kind, duration_ms);
	free(job);
	prober->params.devices_changed(prober->params.arg);
	pump(prober);
}

// Whether this API of the device waits to be verified now. The one that will be used comes first: a device is usable
// once that has passed, and drivers of two APIs that start at once only make each other wait.
static bool verify_next(const struct prober *prober, const struct device_record *record, enum backend_kind kind,
			bool first)
{
	return device_record_needs_verify(prober->params.table, record, kind) &&
	       (device_record_backend(record) == kind) == first;
}

static void start_verifying(struct prober *prober, bool first)
{
	struct device_table *table = prober->params.table;
	for (size_t i = 0; i < table->count; i++)
		for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) {
			struct device_record *record = table->records[i];
			if (prober->verifying == LIMIT_PROBES_AT_ONCE)
				return;
			if (!verify_next(prober, record, (enum backend_kind)kind, first))
				continue;
			struct job *job = job_create(prober, (enum backend_kind)kind, record->device_id);
			if (!job)
				return;
			record->apis[kind].verifying = true;
			prober->verifying++;
			call_worker(prober, job, "worker.verify",
				    verify_params(prober, record, (enum backend_kind)kind, false), VERIFY_MS, verified);
		}
}

static void verify_waiting(struct prober *prober)
{
	start_verifying(prober, true);
	if (!prober->enumerating && !prober->verifying)
		start_verifying(prober, false);
}

static void measured(void *arg, const struct child_outcome *outcome)
{
	struct job *job = arg;
	struct prober *prober = job->prober;
	struct device_record *record = device_table_find(prober->params.table, job->device_id);
	double bytes_per_s = json_get_number(outcome->result, "memory_bandwidth_bytes_per_s", 0);
	job->pool[0] = 0;
	if (bytes_per_s > 0 && device_record_backend(record) == job->kind) {
		device_record_measured(record, bytes_per_s);
		log_info("node", "%s reads memory at %.1f GB/s", record->apis[job->kind].info.name, bytes_per_s * 1e-9);
	} else {
		record->bandwidth.tried = true;
		log_warning("node", "the memory bandwidth of %s could not be measured: %s",
			    record->apis[job->kind].info.name,
			    outcome->status ? outcome->error->message : "it changed meanwhile");
	}
	free(job);
	prober->params.devices_changed(prober->params.arg);
	pump(prober);
}

static const char *pool_of(const struct device_record *record)
{
	const struct device_info *info = &record->apis[device_record_backend(record)].info;
	return info->memory_pool[0] ? info->memory_pool : record->hardware_key;
}

static bool is_measuring(const struct prober *prober)
{
	for (size_t i = 0; i < LIMIT_PROBES_AT_ONCE; i++)
		if (prober->measuring[i][0])
			return true;
	return false;
}

// A free place to note `pool` in; NULL if the pool is being measured, or all places are taken.
static char *claim_pool(struct prober *prober, const char *pool)
{
	char *place = NULL;
	for (size_t i = 0; i < LIMIT_PROBES_AT_ONCE; i++) {
		if (!strcmp(prober->measuring[i], pool))
			return NULL;
		if (!prober->measuring[i][0])
			place = prober->measuring[i];
	}
	return place;
}

static void measure_waiting(struct prober *prober)
{
	struct device_table *table = prober->params.table;
	for (size_t i = 0; i < table->count && !prober->peering; i++) {
		struct device_record *record = table->records[i];
		if (!device_record_needs_measure(record))
			continue;
		enum backend_kind kind = device_record_backend(record);
		const char *pool = pool_of(record);
		char *place = claim_pool(prober, pool);
		struct job *job = place ? job_create(prober, kind, record->device_id) : NULL;
		if (!job)
			continue;
		text_copy(place, sizeof(prober->measuring[0]), pool);
		job->pool = place;
		call_worker(prober, job, "worker.verify", verify_params(prober, record, kind, true), VERIFY_MS,
			    measured);
	}
}

// ---- pairs of devices ----

static void look_again(void *arg)
{
	pump(arg);
}

static void take_direction(struct device_record *from, const struct device_record *to, enum backend_kind kind,
			   const struct json *told, const struct child_outcome *outcome)
{
	const double bytes_per_s = json_get_number(told, "bytes_per_s", 0);
	const bool direct = json_get_bool(told, "direct", false);
	const char *names[] = {from->apis[kind].info.name, to->apis[kind].info.name};
	char reason[256];
	if (device_record_backend(from) == kind && bytes_per_s > 0) {
		device_peers_measured(from, to, bytes_per_s, direct);
		log_info("node", "%s (%s) copies to %s (%s) at %.1f GB/s%s", names[0], from->device_id, names[1],
			 to->device_id, bytes_per_s * 1e-9, direct ? "" : ", by way of the host's memory");
		return;
	}
	snprintf(reason, sizeof(reason), "%.250s",
		 outcome->status ? outcome->error->message
				 : json_get_string(told, "reason", "its back end changed meanwhile"));
	device_peers_failed(from, to, reason, clock_steady_ms());
	log_warning("node", "how fast %s (%s) copies to %s (%s) could not be measured: %s", names[0], from->device_id,
		    names[1], to->device_id, reason);
}

static void pair_measured(void *arg, const struct child_outcome *outcome)
{
	struct job *job = arg;
	struct prober *prober = job->prober;
	struct device_record *a = device_table_find(prober->params.table, job->device_id),
			     *b = device_table_find(prober->params.table, job->peer_id);
	take_direction(a, b, job->kind, json_get(outcome->result, "there"), outcome);
	take_direction(b, a, job->kind, json_get(outcome->result, "back"), outcome);
	prober->peering = false;
	free(job);
	prober->params.devices_changed(prober->params.arg);
	pump(prober);
}

static bool may_measure(struct prober *prober, enum backend_kind kind)
{
	if (!prober->params.in_use || !prober->params.in_use(prober->params.arg, kind))
		return true;
	char reason[128];
	snprintf(reason, sizeof(reason), "waits until no session and no model instance uses %s on its machine",
		 backend_kind_title(kind));
	if (device_peers_wait(prober->params.table, kind, reason, clock_steady_ms()))
		prober->params.devices_changed(prober->params.arg);
	return false;
}

// Measure one pair after the other, so that pairs do not share the path that is measured, and each is done soon. Memory
// is not measured and nothing is compiled meanwhile; when those are done this is called again.
static void peer_waiting(struct prober *prober)
{
	struct device_pair pair;
	bool later = false;
	if (prober->peering || prober->compiling || is_measuring(prober))
		return;
	const bool due = device_peers_next(prober->params.table, clock_steady_ms(), &pair, &later);
	struct job *job = due && may_measure(prober, pair.kind) ? job_create(prober, pair.kind, pair.a->device_id)
								: NULL;
	if (!job) {
		if ((due || later) && !prober->look.running)
			net_timer_start(prober->params.loop, &prober->look, PEERS_LOOK_MS, look_again, prober);
		return;
	}
	text_copy(job->peer_id, sizeof(job->peer_id), pair.b->device_id);
	struct json *params = json_new_object();
	json_set_string(params, "backend", backend_kind_name(pair.kind));
	json_set_string(params, "hardware_key", pair.a->apis[pair.kind].info.hardware_key);
	json_set_string(params, "peer_key", pair.b->apis[pair.kind].info.hardware_key);
	prober->peering = true;
	call_worker(prober, job, "worker.peers", params, longer_measurement_ms(VERIFY_MS), pair_measured);
}

static void compiled(void *arg, const struct child_outcome *outcome)
{
	struct job *job = arg;
	struct prober *prober = job->prober;
	const struct device_record *record = device_table_find(prober->params.table, job->device_id);
	const char *name = record->apis[job->kind].info.name, *title = backend_kind_title(job->kind);
	if (outcome->status)
		log_warning("node", "%s: the kernels for models could not be compiled ahead, through %s: %s", name,
			    title, outcome->error->message);
	else
		log_info("node", "%s: the kernels for models are compiled, through %s in %.1f s", name, title,
			 json_get_number(outcome->result, "duration_ms", 0) * 1e-3);
	prober->compiling = false;
	free(job);
	pump(prober);
}

// Kernels for models are compiled when there is nothing else to do, one device after the other: a device of the same
// kind then finds them done.
static void compile_waiting(struct prober *prober)
{
	struct device_table *table = prober->params.table;
	if (prober->peering || is_measuring(prober))
		return;
	for (size_t i = 0; i < table->count && !prober->compiling; i++) {
		struct device_record *record = table->records[i];
		enum backend_kind kind = device_record_backend(record);
		if (!prober->params.cache || !device_record_needs_compile(record))
			continue;
		record->apis[kind].compiled = true; // tried once
		const struct backend *backend = backend_find(kind);
		if (!backend || !backend->compiles)
			continue;
		struct job *job = job_create(prober, kind, record->device_id);
		struct json *params = verify_params(prober, record, kind, false);
		json_remove(params, "measure");
		if (!job) {
			json_destroy(&params);
			return;
		}
		prober->compiling = true;
		call_worker(prober, job, "worker.compile", params, COMPILE_MS, compiled);
	}
}

// Start all work that can start now.
static void pump(struct prober *prober)
{
	verify_waiting(prober);
	if (prober->enumerating || prober->verifying)
		return;
	measure_waiting(prober);
	peer_waiting(prober);
	compile_waiting(prober);
}

enum status prober_create(struct prober **out, const struct prober_params *params, struct error *error)
{
	struct prober *prober = calloc(1, sizeof(*prober));
	*out = prober;
	if (!prober)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the prober");
	prober->params = *params;
	size_t count;
	const struct backend *const *backends = backend_list(&count);
	for (size_t i = 0; i < count; i++)
		prober->backends[backends[i]->kind].compiled = true;
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++)
		if (!prober->backends[kind].compiled || !params->enabled[kind])
			device_table_backend_disabled(params->table, (enum backend_kind)kind);
	enum status status = children_create(&prober->children, params->loop, params->contract);
	if (status)
		prober_destroy(out);
	return status;
}

void prober_destroy(struct prober **prober)
{
	if (!*prober)
		return;
	net_timer_stop((*prober)->params.loop, &(*prober)->look);
	children_destroy(&(*prober)->children);
	free(*prober);
	*prober = NULL;
}

enum status prober_verify(struct prober *prober, const char *device_id, struct error *error)
{
	struct device_record *record = device_table_find(prober->params.table, device_id);
	if (!record)
		return error_set(error, STATUS_NOT_FOUND, "this node has no device %.64s", device_id);
	if (!device_record_present(record))
		return error_set(error, STATUS_CONFLICT, "the device is not there now");
	device_record_verify_again(record);
	device_peers_again(prober->params.table, record);
	prober->params.devices_changed(prober->params.arg);
	pump(prober);
	return STATUS_OK;
}

// Why a back end is not enabled: told not to, failed, or its library is not usable. NULL if it is.
static const char *disabled_reason(const struct prober *prober, int kind)
{
	const struct backend_state *state = &prober->backends[kind];
	if (!prober->params.enabled[kind])
		return "switched off by --backends";
	if (state->failure[0])
		return state->failure;
	if (state->library_count && state->libraries[0].reason[0]) // the first one is the library that the others need
		return state->libraries[0].reason;
	return NULL;
}

struct json *prober_backends(const struct prober *prober)
{
	struct json *backends = json_new_array();
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) {
		if (!prober->backends[kind].compiled)
			continue;
		const char *reason = disabled_reason(prober, kind);
		struct json *json = json_new_object();
		json_set_string(json, "backend", backend_kind_name((enum backend_kind)kind));
		json_set_bool(json, "enabled", !reason);
		json_set_string(json, "reason", reason);
		json_push(backends, json);
	}
	return backends;
}

struct json *prober_libraries(const struct prober *prober)
{
	struct json *libraries = json_new_array();
	size_t count = 0;
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++)
		for (size_t i = 0; i < prober->backends[kind].library_count && count < INFO_LIBRARIES; i++, count++)
			json_push(libraries, library_info_to_json(&prober->backends[kind].libraries[i]));
	return libraries;
}
