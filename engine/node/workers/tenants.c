/* See tenants.h. Order of reading: tenants_open, opened, process_ended.
 *
 * What is asked of a worker waits in its tenant's rpc, and fails with the end of the process at the latest;
 * tenants_calls.c
 * has that, tenants_watch.c looks after it. A tenant is freed when its process is reaped and not before. */
#include "engine/node/workers/tenants.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/node/workers/tenants_inside.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	STOP_MS = 500,
};

static void fail_call(struct uplink_call *call, const struct error *error)
{
	uplink_answer(&call, NULL, error);
}

void tenant_kill_for(struct tenant *tenant, const char *fault)
{
	if (!tenant->process.killed)
		snprintf(tenant->fault, sizeof(tenant->fault), "%s", fault);
	process_kill(&tenant->process);
}

// ---- what workers say ----

void tenant_tell_sandbox(struct tenants *tenants, const struct json *result)
{
	const struct json *missing = json_get(json_get(result, "sandbox"), "missing");
	if (tenants->sandbox_told)
		return;
	tenants->sandbox_told = true;
	for (const struct json *one = json_first(missing); one; one = json_next(one))
		log_warning("node", "workers of sessions are not fully confined here: %s", json_string(one, ""));
}

// ---- devices ----

enum status tenant_check_device(const struct device_record *record, enum backend_kind kind, struct error *error)
{
	if (!record)
		return error_set(error, STATUS_NOT_FOUND, "this node has no such device");
	const struct device_api *api = &record->apis[kind];
	if (!device_record_present(record))
		return error_set(error, STATUS_UNAVAILABLE, "the device is not there now");
	if (!api->known || !api->listed)
		return error_set(error, STATUS_CONFLICT, "%s does not see this device", backend_kind_title(kind));
	if (api->verification.state == VERIFICATION_FAILED)
		return error_set(error, STATUS_UNAVAILABLE, "the device failed verification through %s: %.200s",
				 backend_kind_title(kind), api->verification.error);
	if (api->verification.state != VERIFICATION_PASSED) {
		error_hint(error, "try again in a few seconds");
		return error_set(error, STATUS_UNAVAILABLE, "the device is still being verified through %s",
				 backend_kind_title(kind));
	}
	return STATUS_OK;
}

// ---- answers ----

// worker.open or worker.instance failed: the server will not hear of this worker again.
static void opening_failed(struct tenant *tenant)
{
	if (tenant->rpc.closed)
		return; // it has ended
	tenant->open = false;
	tenant->unwanted = true;
	process_kill(&tenant->process);
}

static void opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct ask *ask = context;
	struct tenant *tenant = ask->tenant;
	struct json *answer = json_copy(result);
	if (status) {
		opening_failed(tenant);
	} else {
		tenant->open = true;
		tenant->start_ms = tenant_elapsed_ms(ask->began_ns);
		tenant_tell_sandbox(tenant->all, result);
		json_set_number(answer, "started_ms", tenant->start_ms);
	}
	tenant_answer(ask, answer, status ? error : NULL);
}

// A spare has got its session, which gets the answer of worker.open.
static void bound(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct ask *ask = context;
	struct tenant *tenant = ask->tenant;
	struct json *answer = NULL;
	(void)result;
	if (status) {
		opening_failed(tenant);
	} else {
		tenant->open = true;
		answer = tenant->opened;
		tenant->opened = NULL;
		json_set_bool(answer, "spare", true);
		json_set_number(answer, "started_ms", tenant_elapsed_ms(ask->began_ns));
	}
	tenant_answer(ask, answer, status ? error : NULL);
}

static void device_opened(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct ask *ask = context;
	struct tenant *tenant = ask->tenant;
	struct json *answer = json_copy(result);
	const double took_ms = tenant_elapsed_ms(ask->began_ns);
	if (!status) {
		json_set_number(answer, "opened_ms", took_ms);
		if (!tenant->used)
			spare_note_use(tenant, took_ms);
		tenant->used = true;
	}
	tenant_answer(ask, answer, status ? error : NULL);
}

static void channel_taken(void *context, enum status status, const struct json *result, const struct error *error)
{
	tenant_answer(context, json_copy(result), status ? error : NULL);
}

static void socket_readable(void *arg, int fd)
{
	struct tenant *tenant = arg;
	(void)fd;
	if (!tenant_take_answers(tenant))
		net_watch_destroy(&tenant->socket); // the end of the process says the rest
}

// ---- the end of a worker ----

static void answer_ended(struct uplink_call *call, double ms)
{
	struct json *result = json_new_object();
	json_set_number(result, "ended_ms", ms);
	uplink_answer(&call, result, NULL);
}

void tenant_release(struct tenant *tenant, const struct error *error, int *patience_ms)
{
	struct tenants *all = tenant->all;
	struct tenant **at = &all->list;
	process_finish(&tenant->process, patience_ms);
	rpc_close(&tenant->rpc, error);
	while (tenant->closing) {
		struct ask *closing = tenant->closing;
		tenant->closing = closing->next;
		answer_ended(closing->call, tenant_elapsed_ms(closing->began_ns));
		free(closing);
	}
	while (*at != tenant)
		at = &(*at)->next;
	*at = tenant->next;
	all->count--;
	if (tenant->place)
		tenant->place->worker = NULL;
	json_destroy(&tenant->opened);
	net_watch_destroy(&tenant->socket);
	refusals_destroy(&tenant->refusals);
	hops_ring_destroy(&tenant->ring);
	if (tenant->worker_id[0])
		hops_drop_channels(all->params.hops, tenant->worker_id);
	if (tenant->unwanted)
		relay_destroy(&tenant->relay);
	relay_let_go(&tenant->relay);
	buffer_finish(&tenant->in);
	free(tenant);
}

// A tenant can end its workers at any time, and make them print anything: so this is no warning, and the text is not
// logged.
static void log_session_end(const struct tenant *tenant, int wait_status)
{
	char words[256];
	const struct process silent = {.killed = tenant->process.killed};
	process_describe(&silent, wait_status, words, sizeof words);
	log_info("node", "worker %s of a session: %s%s", tenant->worker_id, tenant->fault[0] ? tenant->fault : words,
		 tenant->fault[0] ? " and was killed" : "");
}

static void process_ended(void *arg, int wait_status)
{
	struct tenant *tenant = arg;
	struct tenants_params params = tenant->all->params;
	struct error error = {0};
	char worker_id[sizeof(tenant->worker_id)], words[sizeof(error.message)];
	tenant_take_answers(tenant); // answers that it sent before its end
	snprintf(worker_id, sizeof(worker_id), "%s", tenant->worker_id);
	process_describe(&tenant->process, wait_status, words, sizeof(words));
	if (tenant->fault[0] && !WIFEXITED(wait_status)) // one that exited did so before it could be killed
		error_set(&error, STATUS_TIMEOUT, "%s and was killed", tenant->fault);
	else if (tenant->has_model && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGBUS)
		error_set(&error, STATUS_UNAVAILABLE,
			  "the model's file was cut off or could not be read any more while it was in use");
	else
		error_set(&error, tenant->unwanted ? STATUS_CONFLICT : STATUS_UNAVAILABLE, "%s", words);
	bool tell = tenant->open && !tenant->unwanted && !tenant->spare;
	if (tenant->place && !tenant->unwanted)
		log_warning("node", "the spare worker of %s: %s; another is started in %.1f s",
			    tenant->place->device_id, error.message,
			    (double)spares_failed(tenant->place, clock_steady_ms()) * 1e-3);
	else if (!tenant->unwanted && tenant->has_model)
		log_warning("node", "worker %s of a model: %s", worker_id, error.message);
	else if (!tenant->unwanted)
		log_session_end(tenant, wait_status);
	tenant_release(tenant, &error, &(int){0});
	if (tell)
		params.ended(params.arg, worker_id, error.message);
}

// ---- the server's calls ----

static struct tenant *find_id(struct tenants *tenants, const char *worker_id)
{
	struct tenant *tenant = tenants->list;
	while (tenant && (tenant->spare || strcmp(tenant->worker_id, worker_id) != 0))
		tenant = tenant->next;
	return tenant;
}

bool tenants_any(const struct tenants *tenants)
{
	const struct tenant *tenant = tenants->list;
	while (tenant && tenant->spare)
		tenant = tenant->next;
	return tenant;
}

bool tenants_use(const struct tenants *tenants, enum backend_kind backend)
{
	const struct tenant *tenant = tenants->list;
	while (tenant && (tenant->spare || tenant->backend != backend))
		tenant = tenant->next;
	return tenant;
}

static struct tenant *find(struct tenants *tenants, const struct uplink_call *call)
{
	return find_id(tenants, json_get_string(call->params, "worker_id", ""));
}

static void relay_closed(void *arg, enum relay_end end)
{
	struct tenant *tenant = arg;
	tenant->relay = NULL;
	tenant->unwanted |= end == RELAY_SERVER_ENDED;
	if (end == RELAY_WORKER_GONE) // its own end tells why
		process_expect_end(&tenant->process);
	else
		tenant_kill_for(tenant,
				end == RELAY_SERVER_ENDED ? "" : "the worker lost its connection to the server");
}

// The connection is gone, and the server has not ended the worker. The node's own connection to the server may break a
// moment later.
static void relay_broken(void *arg)
{
	struct tenant *tenant = arg;
	if (!tenant->open)
		tenant_kill_for(tenant, "the worker lost its connection to the server");
	else if (!tenant->away_ms)
		tenant->away_ms = clock_steady_ms();
}

// Create a relay, which dials the server and names the worker.
static enum status create_relay(struct tenant *tenant, const struct uplink_call *call, int *out, struct error *error)
{
	const struct relay_params params = {.worker_id = tenant->worker_id,
					    .key = json_get_string(call->params, "key", ""),
					    .closed = relay_closed,
					    .broken = tenant->has_model ? relay_broken : NULL,
					    .arg = tenant};
	return relay_create(&tenant->relay, tenant->all->params.relays, &params, out, error);
}

static const struct net_watch_events socket_events = {.readable = socket_readable};

enum status tenant_start(struct tenant *tenant, const struct handed *handed, struct error *error)
{
	int sockets[2] = {-1, -1};
	struct net_loop *loop = tenant->all->params.loop;
	enum status status = STATUS_OK;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) {
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "a worker's socket");
		goto done;
	}
	struct process_params process = {.loop = loop,
					 .socket = sockets[1],
					 .stream = handed->stream,
					 .model = handed->model,
					 .ring_in = handed->ring_in,
					 .ring_out = handed->ring_out,
					 .draft = handed->draft,
					 .alone = true,
					 .ended = process_ended,
					 .arg = tenant};
	tenant->socket_fd = sockets[0];
	status = net_watch_create(&tenant->socket, loop, sockets[0], &socket_events, tenant, error);
	if (status)
		goto done;
	sockets[0] = -1; // the watch has it
	status = process_start(&tenant->process, &process, error);
done:
	for (int i = 0; i < 2; i++)
		if (sockets[i] >= 0)
			close(sockets[i]);
	return status;
}

struct tenant *tenant_add(struct tenants *tenants, const char *worker_id, enum backend_kind backend)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));
	if (!tenant)
		return NULL;
	*tenant = (struct tenant){.all = tenants, .next = tenants->list, .backend = backend};
	snprintf(tenant->worker_id, sizeof(tenant->worker_id), "%s", worker_id);
	buffer_init(&tenant->in, LIMIT_HEAD_BYTES); // its answers here have no body
	tenant_calls_init(tenant);
	tenants->list = tenant;
	tenants->count++;
	tenants_look(tenants);
	return tenant;
}

static enum status bind_spare(struct tenant *tenant, struct uplink_call *call, int stream, struct error *error)
{
	const struct json *limit = json_get(call->params, "memory_limit_bytes");
	struct json *params = json_new_object();
	if (limit)
		json_set(params, "memory_limit_bytes", json_copy(limit));
	return tenant_call(tenant,
			   &(struct tenant_ask){.method = "worker.bind",
						.params = params,
						.patience_ms = TENANT_OPEN_MS,
						.done = bound,
						.call = call,
						.passed = stream},
			   error);
}

enum status tenant_call_open(struct tenant *tenant, struct uplink_call *call, struct error *error)
{
	const struct json *limit = call ? json_get(call->params, "memory_limit_bytes") : NULL;
	struct json *params = json_new_object();
	json_set_string(params, "backend", backend_kind_name(tenant->backend));
	if (limit && !tenant->has_model)
		json_set(params, "memory_limit_bytes", json_copy(limit));
	json_set_string(params, "cache_directory", tenant->all->cache);
	if (tenant->ring)
		json_set_bool(params, "ring", true);
	if (tenant->spare)
		json_set_bool(params, "spare", true);
	return tenant_call(tenant,
			   &(struct tenant_ask){.method = tenant->has_model ? "worker.instance" : "worker.open",
						.params = params,
						.patience_ms = TENANT_OPEN_MS,
						.done = call ? opened : spare_opened,
						.call = call,
						.passed = -1},
			   error);
}

// Choose a worker for a session or a model instance: a spare, or one whose process is not started yet. NULL, with the
// error.
static struct tenant *choose(struct tenants *tenants, const struct uplink_call *call, struct handed *handed,
			     struct error *error)
{
	const struct handed_from from = {.models = tenants->params.models, .elsewhere = tenants->params.relays};
	struct tenant *tenant = NULL;
	if (find(tenants, call))
		error_set(error, STATUS_CONFLICT, "there is a worker of this id");
	else if (tenants->count - spares_count(&tenants->spares) >= LIMIT_WORKERS)
		error_set(error, STATUS_LIMIT_EXCEEDED, "this node has %d workers, which is the limit", LIMIT_WORKERS);
	else if (!handed_open_models(&from, call->params, handed, error)) {
		if (handed->model < 0)
			tenant = spare_take(tenants, call);
		if (!tenant)
			tenant = tenant_add(tenants, json_get_string(call->params, "worker_id", ""),
					    backend_kind_parse(json_get_string(call->params, "backend", "")));
		if (!tenant)
			error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a worker");
	}
	return tenant;
}

// Open its end of a ring, and its stream.
static enum status prepare(struct tenant *tenant, const struct uplink_call *call, struct handed *handed,
			   struct error *error)
{
	struct tenants *tenants = tenant->all;
	enum status status = STATUS_OK;
	if (json_get_bool(call->params, "ring", false)) {
		if (!tenant->has_model)
			return error_set(error, STATUS_INVALID_PARAMS, "only a model's worker is part of a ring");
		status = hops_ring_create(&tenant->ring, tenants->params.hops, tenant->worker_id, &handed->ring_in,
					  &handed->ring_out, error);
	}
	if (status)
		return status;
	return tenants->params.relays ? create_relay(tenant, call, &handed->stream, error)
				      : handed_connect(&tenants->stream, call->params, &handed->stream, error);
}

void tenants_open(struct tenants *tenants, struct uplink_call *call)
{
	struct error error = {0};
	struct handed handed = {.stream = -1, .model = -1, .ring_in = -1, .ring_out = -1, .draft = -1};
	struct tenant *tenant = choose(tenants, call, &handed, &error);
	if (!tenant) {
		fail_call(call, &error);
		goto done;
	}
	const bool was_spare = tenant->process.pid != 0;
	tenant->has_model = handed.model >= 0;
	enum status status = prepare(tenant, call, &handed, &error);
	if (!status && !was_spare) {
		status = tenant_start(tenant, &handed, &error);
		if (status)
			log_error("node", "a worker could not be started: %s", error.message);
	}
	if (!status)
		status = was_spare ? bind_spare(tenant, call, handed.stream, &error)
				   : tenant_call_open(tenant, call, &error);
	if (!status)
		goto done;
	fail_call(call, &error);
	tenant->unwanted = true;
	if (tenant->process.pid)
		process_kill(&tenant->process); // its end follows
	else
		tenant_release(tenant, &error, &(int){0});
done:
	handed_close(&handed);
}

void tenants_device(struct tenants *tenants, struct uplink_call *call)
{
	struct error error = {0};
	struct tenant *tenant = find(tenants, call);
	const char *device_id = json_get_string(call->params, "device_id", "");
	struct device_record *record = device_table_find(tenants->params.table, device_id);
	enum status status;
	if (!tenant || tenant->process.killed)
		status = error_set(&error, STATUS_NOT_FOUND, "this node has no such worker");
	else if (!tenant->open)
		status = error_set(&error, STATUS_CONFLICT, "the worker is not open yet");
	else
		status = tenant_check_device(record, tenant->backend, &error);
	if (!status) {
		struct json *params = json_new_object();
		json_set_integer(params, "device", json_get_integer(call->params, "device", 0));
		json_set_string(params, "hardware_key", record->apis[tenant->backend].info.hardware_key);
		if (!tenant->device_id[0])
			snprintf(tenant->device_id, sizeof(tenant->device_id), "%s", device_id);
		status = tenant_call(tenant,
				     &(struct tenant_ask){.method = "worker.device",
							  .params = params,
							  .patience_ms = TENANT_DEVICE_MS,
							  .done = device_opened,
							  .call = call,
							  .passed = -1},
				     &error);
	}
	if (status)
		fail_call(call, &error);
}

void tenants_channel(struct tenants *tenants, struct uplink_call *call, const struct hops_channel *channel)
{
	struct error error = {0};
	struct tenant *tenant = find_id(tenants, channel->worker_id);
	enum status status = STATUS_OK;
	if (!tenant || tenant->process.killed)
		status = error_set(&error, STATUS_NOT_FOUND, "this node has no such worker");
	else if (!tenant->open)
		status = error_set(&error, STATUS_CONFLICT, "the worker is not open yet");
	if (!status) {
		struct json *params = json_new_object();
		json_set_string(params, "channel", channel->channel);
		json_set_string(params, "end", channel->sends ? "out" : "in");
		status = tenant_call(tenant,
				     &(struct tenant_ask){.method = "worker.channel",
							  .params = params,
							  .patience_ms = TENANT_OPEN_MS,
							  .done = channel_taken,
							  .call = call,
							  .passed = channel->fd},
				     &error);
	}
	if (status)
		fail_call(call, &error);
	close(channel->fd);
}

static void kill_quietly(struct tenant *tenant)
{
	tenant->unwanted = true;
	relay_destroy(&tenant->relay);
	process_kill(&tenant->process);
}

void tenants_close(struct tenants *tenants, struct uplink_call *call)
{
	struct error error = {0};
	struct tenant *tenant = find(tenants, call);
	if (!tenant) {
		answer_ended(call, 0);
		return;
	}
	struct ask *closing = tenant->closing_count < TENANT_CALLS ? malloc(sizeof(*closing)) : NULL;
	kill_quietly(tenant); // whatever becomes of the call
	if (!closing) {
		error_set(&error, STATUS_LIMIT_EXCEEDED, "%u calls wait for the end of this worker",
			  tenant->closing_count);
		fail_call(call, &error);
		return;
	}
	*closing = (struct ask){.next = tenant->closing, .call = call, .began_ns = clock_steady_ns()};
	tenant->closing = closing;
	tenant->closing_count++;
}

void tenants_lost(struct tenants *tenants)
{
	tenants->connected = false;
	for (struct tenant *tenant = tenants->list; tenant; tenant = tenant->next) {
		if (!tenant->has_model || !tenant->open || !tenant->relay || tenant->process.killed) {
			kill_quietly(tenant);
			continue;
		}
		if (!tenant->away_ms || relay_is_open(tenant->relay))
			tenant->away_ms = clock_steady_ms();
		relay_leave(tenant->relay);
	}
}

struct json *tenants_kept(const struct tenants *tenants)
{
	struct json *list = NULL;
	for (const struct tenant *tenant = tenants->list; tenant; tenant = tenant->next) {
		if (!tenant->away_ms || tenant->process.killed)
			continue;
		if (!list)
			list = json_new_array();
		json_push(list, json_new_string(tenant->worker_id));
	}
	return list;
}

void tenants_back(struct tenants *tenants)
{
	tenants->connected = true;
	for (struct tenant *tenant = tenants->list; tenant; tenant = tenant->next)
		if (tenant->away_ms && tenant->relay && !tenant->process.killed)
			relay_return(tenant->relay);
}

enum status tenants_create(struct tenants **out, const struct tenants_params *params, struct error *error)
{
	*out = NULL;
	if (strlen(params->stream_path) > LIMIT_SOCKET_PATH_BYTES) {
		error_hint(error, "use a data directory with a shorter path");
		return error_set(error, STATUS_INVALID_PARAMS, "the path of the server's socket is over %d bytes",
				 LIMIT_SOCKET_PATH_BYTES);
	}
	struct tenants *tenants = calloc(1, sizeof(*tenants));
	if (!tenants)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the sessions' workers");
	tenants->params = *params;
	tenants->spares.setting = params->spares;
	tenants->stream.sun_family = AF_UNIX;
	snprintf(tenants->stream.sun_path, sizeof(tenants->stream.sun_path), "%s", params->stream_path);
	snprintf(tenants->cache, sizeof(tenants->cache), "%s", params->cache);
	*out = tenants;
	return STATUS_OK;
}

void tenants_destroy(struct tenants **tenants)
{
	if (!*tenants)
		return;
	int patience_ms = STOP_MS;
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node stops");
	for (struct tenant *tenant = (*tenants)->list; tenant; tenant = tenant->next)
		kill_quietly(tenant);
	while ((*tenants)->list)
		tenant_release((*tenants)->list, &error, &patience_ms);
	net_timer_stop((*tenants)->params.loop, &(*tenants)->look);
	free(*tenants);
	*tenants = NULL;
}
