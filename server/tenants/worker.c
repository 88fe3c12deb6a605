/* A worker's life: asked for, ready, ended. See inside.h.
 *
 * It is ready once the node has answered tenant.open and its stream has said whose it is, in either order; then each
 * device that is wanted is opened (tenant.device), and what waits for it is sent. Ending is one function, for every
 * reason there is. A model takes the place of another: an instance's worker is asked for once the processes of those
 * that are ending on its node are gone, and their memory is free. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/security/random_id.h"
#include "server/tenants/inside.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSING_MS = 10000 }; // that a worker waits for what ends on its node

struct worker *worker_by_id(const struct tenancy *tenants, const char *worker_id)
{
	for (const struct tenant *tenant = tenants->tenants; tenant; tenant = tenant->next)
		for (struct worker *worker = tenant->workers; worker; worker = worker->next)
			if (!strcmp(worker->worker_id, worker_id))
				return worker;
	return NULL;
}

void worker_let_go(struct worker *worker)
{
	if (!worker->ended || worker->asks)
		return;
	rpc_close(&worker->rpc, NULL);
	free(worker);
}

// ---- ending ----

// An instance's worker that its node was told to end.
struct closing {
	struct closing *next, **link; // of tenants->closings
	struct tenancy *tenants;      // NULL: it is gone
	char node_id[STORE_ID_BYTES];
};

static bool closes(const struct tenancy *tenants, const char *node_id)
{
	const struct closing *one = tenants->closings;
	while (one && strcmp(one->node_id, node_id) != 0)
		one = one->next;
	return one != NULL;
}

static void open_waiting(struct tenancy *tenants);

static void closed(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct closing *closing = context;
	struct tenancy *tenants = closing->tenants;
	(void)status, (void)result, (void)error; // a node that cannot be asked says so to the next, too
	LIST_REMOVE(closing, link);
	free(closing);
	if (tenants)
		open_waiting(tenants);
}

void worker_tell_closed(struct tenancy *tenants, const char *node_id, const char *worker_id, bool waited_for)
{
	struct closing *closing = waited_for ? calloc(1, sizeof *closing) : NULL;
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", worker_id);
	if (!closing ||
	    cluster_ask(tenants->params.cluster, node_id, "tenant.close", json_copy(params), closed, closing)) {
		free(closing);
		cluster_ask(tenants->params.cluster, node_id, "tenant.close", params, NULL, NULL);
		return;
	}
	json_destroy(&params);
	*closing = (struct closing){.tenants = tenants};
	snprintf(closing->node_id, sizeof closing->node_id, "%s", node_id);
	LIST_PUSH(&tenants->closings, closing, link);
}

void workers_forget_closings(struct tenancy *tenants)
{
	for (struct closing *one = tenants->closings, *next; one; one = next) {
		next = one->next;
		one->tenants = NULL;
		one->next = NULL;
		one->link = &one->next; // takes itself out of no list
	}
	tenants->closings = NULL;
}

// That a session lost what it had on a device is an entry of its own: nobody asked for it.
static void put_on_record(const struct worker *worker, unsigned place, uint64_t bytes)
{
	const struct cluster_device *device = worker->devices[place].device;
	struct audit_actor by = audit_server;
	snprintf(by.session_id, sizeof by.session_id, "%s", worker->tenant->session_id);
	audit_tell(worker->tenants->params.audit, &(struct audit_tally){.by = &by,
									.action = "session.device_lost",
									.target = by.session_id,
									.node_id = worker->node_id,
									.device_id = cluster_device_id(device),
									.outcome = STATUS_DEVICE_LOST,
									.bytes = bytes});
}

// Tell the tenant what it had on one device, and forget it.
static void lose_items(struct worker *worker, unsigned place, const char *message)
{
	uint64_t bytes = 0;
	struct json *allocations = json_new_array(), *modules = json_new_array(), *params = json_new_object();
	for (struct item *item = worker->items, *next; item; item = next) {
		next = item->next;
		if (item->device != place)
			continue;
		if (item->ready) {
			json_push(item->kind == ITEM_ALLOCATION ? allocations : modules, json_new_string(item->id));
			bytes += item->bytes;
			item_lose(item);
		}
		item_destroy(&item);
	}
	bool any = json_first(allocations) || json_first(modules);
	json_set_string(params, "device_id", cluster_device_id(worker->devices[place].device));
	said_set(params, "message", message);
	json_set(params, "allocations", allocations);
	json_set(params, "modules", modules);
	if (any && !worker->tenant->over)
		put_on_record(worker, place, bytes);
	if (any)
		tenant_notify(worker->tenant, NULL, "session.device_lost", params);
	else
		json_destroy(&params);
}

void worker_end(struct worker *worker, const struct worker_end_params *how)
{
	struct tenancy *tenants = worker->tenants;
	struct tenant *tenant = worker->tenant;
	if (worker->ended)
		return;
	worker->ended = true;
	worker->asks++; // until the end of this
	for (struct worker **at = &tenant->workers; *at; at = &(*at)->next)
		if (*at == worker) {
			*at = worker->next;
			break;
		}
	tenants->stats.workers--;
	net_timer_stop(tenants->params.loop, &worker->start_limit);
	stream_drop(worker);
	if (!how->gone && !worker->fault.status && !worker->opens)
		worker_tell_closed(tenants, worker->node_id, worker->worker_id, worker->instance != NULL);
	json_destroy(&worker->opens);
	log_info("tenants", "worker %s of %s is closed: %s", worker->worker_id, tenant->session_id,
		 how->fault->message);
	relays_lose_worker(tenant, worker, how->fault);
	worker_fail_calls(worker, how->fault);
	for (unsigned place = 0; place < worker->device_count; place++)
		lose_items(worker, place, how->fault->message);
	worker_relax(worker);
	OPENSSL_cleanse(worker->key, sizeof worker->key);
	worker->tenant = NULL;
	if (worker->instance)
		instance_worker_ended(worker->instance, how->fault);
	worker->asks--;
	worker_let_go(worker);
}

void worker_lose(struct worker *worker, const char *why)
{
	struct error fault = {0};
	error_set(&fault, STATUS_DEVICE_LOST, "%s", why);
	error_hint(&fault, worker->instance ? "start the model again" : "allocate and load again to go on");
	worker_end(worker, &(struct worker_end_params){.fault = &fault});
}

void worker_fail(struct worker *worker, const char *why)
{
	worker->failed = true;
	worker_lose(worker, why);
}

void worker_told_all(struct worker *worker)
{
	const struct error fault = worker->fault;
	worker->failed = true;
	if (fault.status)
		worker_end(worker, &(struct worker_end_params){.fault = &fault});
	else
		worker_lose(worker, "its worker ended");
}

static void stayed_away(void *arg)
{
	worker_lose(arg, "its node did not come back in time");
}

void worker_away(struct worker *worker, const char *why)
{
	struct error fault = {0};
	if (worker->ended || worker->away)
		return;
	if (worker->fault.status) {
		worker_told_all(worker);
		return;
	}
	if (!worker->opened || !worker->stream) { // it was not there yet
		worker_lose(worker, why);
		return;
	}
	error_set(&fault, STATUS_DEVICE_LOST, "%s", why);
	worker->away = true;
	stream_drop(worker);
	net_timer_start(worker->tenants->params.loop, &worker->start_limit, LIMIT_AWAY_MS, stayed_away, worker);
	worker->asks++; // whoever is told may end it
	worker_fail_calls(worker, &fault);
	if (!worker->ended)
		instance_worker_away(worker->instance, why);
	worker->asks--;
	worker_let_go(worker);
}

void tenancy_worker_ended(struct tenancy *tenants, const char *node_id, const char *worker_id, const char *message)
{
	struct worker *worker = worker_by_id(tenants, worker_id);
	if (!worker || strcmp(worker->node_id, node_id) != 0 || worker->fault.status)
		return;
	// What a user's own kernel does to its worker says nothing of the device.
	for (unsigned place = 0; place < worker->device_count && !worker->own_code; place++)
		cluster_note_end(tenants->params.cluster, worker->devices[place].device);
	error_set(&worker->fault, STATUS_DEVICE_LOST, "its worker ended: %s", message);
	error_hint(&worker->fault, worker->instance ? "start the model again" : "allocate and load again to go on");
	if (!stream_outlasts(worker))
		worker_told_all(worker);
}

// ---- devices ----

struct opening {
	struct worker *worker;
	unsigned place;
};

static void device_opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct opening *opening = context;
	struct worker *worker = opening->worker;
	unsigned place = opening->place;
	free(opening);
	worker->asks--;
	if (!worker->ended) {
		worker->devices[place].state = status ? DEVICE_WANTED : DEVICE_OPEN;
		if (!status)
			log_debug("tenants", "worker %s opened %s in %.0f ms", worker->worker_id,
				  cluster_device_id(worker->devices[place].device),
				  json_get_number(result, "opened_ms", 0));
		worker_release(worker, place, status ? error : NULL);
		return;
	}
	worker_let_go(worker);
}

static void open_device(struct worker *worker, unsigned place)
{
	struct error error = {0};
	struct worker_device *device = &worker->devices[place];
	struct opening *opening = malloc(sizeof(*opening));
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", worker->worker_id);
	json_set_string(params, "device_id", cluster_device_id(device->device));
	json_set_integer(params, "device", place);
	enum status status = STATUS_OUT_OF_MEMORY;
	if (opening) {
		*opening = (struct opening){.worker = worker, .place = place};
		status = cluster_ask(worker->tenants->params.cluster, worker->node_id, "tenant.device", params,
				     device_opened, opening);
	} else {
		json_destroy(&params);
	}
	if (!status) {
		device->state = DEVICE_OPENING;
		worker->asks++;
		return;
	}
	free(opening);
	error_set(&error, status, "the device's node cannot be asked now");
	worker_release(worker, place, &error);
}

// ---- starting ----

void worker_advance(struct worker *worker)
{
	if (!worker->opened || !worker->stream)
		return;
	if (worker->away) {
		worker->away = false;
		net_timer_stop(worker->tenants->params.loop, &worker->start_limit);
		log_info("tenants", "worker %s of %s is back", worker->worker_id, worker->tenant->session_id);
		instance_worker_back(worker->instance);
		return;
	}
	if (worker->start_limit.running)
		log_info("tenants", "worker %s of %s is ready after %lld ms, %s on node %s", worker->worker_id,
			 worker->tenant->session_id, (long long)(clock_steady_ms() - worker->asked_ms), worker->backend,
			 worker->node_id);
	net_timer_stop(worker->tenants->params.loop, &worker->start_limit);
	if (worker->instance) { // it opens its devices itself
		instance_worker_ready(worker->instance);
		return;
	}
	for (unsigned place = 0; place < worker->device_count; place++)
		if (worker->devices[place].state == DEVICE_WANTED)
			open_device(worker, place);
}

static void opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct worker *worker = context;
	(void)result;
	worker->asks--;
	if (worker->ended) {
		worker_let_go(worker);
	} else if (status) {
		struct error fault = {0};
		error_set(&fault, status, "no worker could be started: %s", error->message);
		if (error->hint[0])
			error_hint(&fault, "%s", error->hint);
		worker_end(worker, &(struct worker_end_params){.fault = &fault, .gone = true});
	} else {
		worker->opened = true;
		worker_advance(worker);
	}
}

static void start_late(void *arg)
{
	struct error fault = {0};
	error_set(&fault, STATUS_UNAVAILABLE, "no worker was ready within %d s", LIMIT_WORKER_START_MS / 1000);
	error_hint(&fault, "try again; the node's log says what it waits for");
	worker_end(arg, &(struct worker_end_params){.fault = &fault});
}

static enum status make_names(struct worker *worker)
{
	unsigned char key[(WORKER_KEY_BYTES - 1) / 2];
	if (random_id("wrk_", worker->worker_id, sizeof worker->worker_id) || RAND_bytes(key, sizeof key) != 1)
		return STATUS_UNAVAILABLE;
	for (size_t i = 0; i < sizeof key; i++)
		snprintf(worker->key + 2 * i, 3, "%02x", key[i]);
	OPENSSL_cleanse(key, sizeof key);
	return STATUS_OK;
}

static unsigned workers_of_node(const struct tenancy *tenants, const char *node_id)
{
	unsigned count = 0;
	for (const struct tenant *tenant = tenants->tenants; tenant; tenant = tenant->next)
		for (const struct worker *worker = tenant->workers; worker; worker = worker->next)
			count += !strcmp(worker->node_id, node_id);
	return count;
}

static struct json *open_params(const struct worker *worker, const struct worker_start_params *start)
{
	const struct token *token = worker->tenant->token;
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", worker->worker_id);
	json_set_string(params, "key", worker->key);
	json_set_string(params, "backend", worker->backend);
	if (token && token->memory_limit_bytes)
		json_set_integer(params, "memory_limit_bytes", token->memory_limit_bytes);
	if (start->device_id)
		json_set_string(params, "device_id", start->device_id);
	if (start->model_path)
		json_set_string(params, "model_path", start->model_path);
	if (start->model_id)
		json_set_string(params, "model_id", start->model_id);
	if (start->draft_path)
		json_set_string(params, "draft_path", start->draft_path);
	if (start->draft_id)
		json_set_string(params, "draft_id", start->draft_id);
	if (start->ring)
		json_set_bool(params, "ring", true);
	return params;
}

static enum status ask_open(struct worker *worker, struct json *params)
{
	enum status status = cluster_ask(worker->tenants->params.cluster, worker->node_id, "tenant.open", params,
					 opened, worker);
	worker->asks += !status;
	return status;
}

static struct worker *first_waiting(const struct tenancy *tenants)
{
	for (const struct tenant *tenant = tenants->tenants; tenant; tenant = tenant->next)
		for (struct worker *worker = tenant->workers; worker; worker = worker->next)
			if (worker->opens && !closes(tenants, worker->node_id))
				return worker;
	return NULL;
}

static void open_now(struct worker *worker)
{
	struct error fault = {0};
	struct json *params = worker->opens;
	worker->opens = NULL;
	const enum status status = ask_open(worker, params);
	if (!status) {
		net_timer_start(worker->tenants->params.loop, &worker->start_limit, LIMIT_WORKER_START_MS, start_late,
				worker);
		return;
	}
	error_set(&fault, status, "no worker can be started now");
	worker_end(worker, &(struct worker_end_params){.fault = &fault, .gone = true});
}

// Those whose nodes have ended what was to end.
static void open_waiting(struct tenancy *tenants)
{
	for (struct worker *worker; (worker = first_waiting(tenants));)
		open_now(worker);
}

// A process that does not end, in a driver maybe, holds up nothing else of its node.
static void waited(void *arg)
{
	open_now(arg);
}

enum status worker_start(struct worker **out, struct tenant *tenant, const struct worker_start_params *params,
			 struct error *error)
{
	struct tenancy *tenants = tenant->tenants;
	*out = NULL;
	if (workers_of_node(tenants, params->node_id) >= LIMIT_WORKERS) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "the device's node has its %d workers", LIMIT_WORKERS);
		error_hint(error, "a session's worker ends with it; close sessions that are not needed");
		return STATUS_LIMIT_EXCEEDED;
	}
	struct worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	worker->tenants = tenants;
	worker->tenant = tenant;
	worker->asked_ms = clock_steady_ms();
	worker->last_item = &worker->items;
	worker_calls_init(worker, 0);
	snprintf(worker->node_id, sizeof worker->node_id, "%s", params->node_id);
	snprintf(worker->backend, sizeof worker->backend, "%s", params->backend);
	enum status status = make_names(worker);
	if (!status && (params->model_path || params->model_id) && closes(tenants, worker->node_id))
		worker->opens = open_params(worker, params);
	else if (!status)
		status = ask_open(worker, open_params(worker, params));
	if (status) {
		free(worker);
		return error_set(error, status, "no worker can be started now");
	}
	worker->next = tenant->workers;
	tenant->workers = worker;
	tenants->stats.workers++;
	net_timer_start(tenants->params.loop, &worker->start_limit, worker->opens ? CLOSING_MS : LIMIT_WORKER_START_MS,
			worker->opens ? waited : start_late, worker);
	*out = worker;
	return STATUS_OK;
}

enum status worker_for(struct worker **out, unsigned *place, struct tenant *tenant, const struct cluster_device *device,
		       struct error *error)
{
	const char *backend = json_get_string(cluster_device_record(device), "backend", "");
	struct worker *worker = tenant->workers;
	enum status status = STATUS_OK;
	while (worker &&
	       (strcmp(worker->node_id, cluster_device_node_id(device)) != 0 || strcmp(worker->backend, backend) != 0))
		worker = worker->next;
	if (!worker)
		status = worker_start(&worker, tenant,
				      &(struct worker_start_params){.node_id = cluster_device_node_id(device),
								    .backend = backend,
								    .device_id = cluster_device_id(device)},
				      error);
	*out = worker;
	if (status)
		return status;
	for (*place = 0; *place < worker->device_count; (*place)++)
		if (worker->devices[*place].device == device)
			return STATUS_OK;
	if (worker->device_count == LIMIT_WORKER_DEVICES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "this session uses its %d devices of one back end",
				 LIMIT_WORKER_DEVICES);
	worker->devices[worker->device_count++] = (struct worker_device){.device = device};
	return STATUS_OK;
}
