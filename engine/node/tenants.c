/* See tenants.h. Order of reading: tenants_open, take_answer, process_ended, look_after.
 *
 * Everything that is waited for is a request of its tenant: a call to the worker, or a tenant.close that waits for the
 * end of the process. One timer looks after all: it asks each worker whether it still answers, and kills those with a
 * request that is overdue. A tenant is freed when its process is reaped and not before. */
#include "engine/node/tenants.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/wire/message.h"
#include "engine/node/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	LOOK_MS = 1000,
	OPEN_MS = 10000,
	DEVICE_MS = 20000, // as for a device that is verified
	PING_MS = 5000,
	STOP_MS = 500,
	REQUESTS = LIMIT_WORKER_DEVICES + 8, // of one tenant
};

enum request_kind {
	REQUEST_UNKNOWN,
	REQUEST_OPEN,
	REQUEST_INSTANCE,
	REQUEST_DEVICE,
	REQUEST_PING,
	REQUEST_CLOSE,
};

static const char *const method_of[] = {[REQUEST_OPEN] = "worker.open",
					[REQUEST_INSTANCE] = "worker.instance",
					[REQUEST_DEVICE] = "worker.device",
					[REQUEST_PING] = "worker.ping"};

struct request {
	struct request *next;
	enum request_kind kind;
	int64_t id, began_ns, due_ms;
	struct uplink_call *call; // NULL for a ping
};

struct tenant {
	struct tenant *next;
	struct tenants *all;
	char worker_id[65];
	enum backend_kind backend;
	struct process process;
	struct net_watch *socket;
	int socket_fd;          // owned by the watch
	struct relay *relay;    // of its stream; NULL: it has the server's socket, or the relay is gone
	struct hops_ring *ring; // NULL: it is no part of several
	struct buffer in;
	struct request *requests;
	size_t request_count;
	int64_t last_id;
	bool has_model;  // it is a model instance's
	bool open;       // worker.open, or worker.instance, was answered
	bool unwanted;   // the server asked for its end, or knows of it
	int64_t away_ms; // steady clock: since when it is kept without a connection to the server; 0: it has one
	char fault[96];  // why it was killed; "" if it was not, or not for a fault
};

struct tenants {
	struct tenants_params params;
	struct sockaddr_un stream;
	char cache[4096];
	struct tenant *list;
	size_t count;
	struct net_timer look; // runs while there are any
	bool sandbox_told;
	bool connected; // to the server
};

// ---- requests ----

static double elapsed_ms(int64_t began_ns)
{
	return (double)(clock_steady_ns() - began_ns) * 1e-6;
}

// NULL, with the error: too many, or no memory.
static struct request *add_request(struct tenant *tenant, enum request_kind kind, int64_t patience_ms,
				   struct error *error)
{
	struct request *request = tenant->request_count < REQUESTS ? calloc(1, sizeof(*request)) : NULL;
	if (!request) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "the worker has %zu calls under way", tenant->request_count);
		return NULL;
	}
	*request = (struct request){.kind = kind,
				    .id = ++tenant->last_id,
				    .began_ns = clock_steady_ns(),
				    .due_ms = clock_steady_ms() + patience_ms,
				    .next = tenant->requests};
	tenant->requests = request;
	tenant->request_count++;
	return request;
}

static void remove_request(struct tenant *tenant, struct request *request)
{
	struct request **at = &tenant->requests;
	while (*at != request)
		at = &(*at)->next;
	*at = request->next;
	tenant->request_count--;
	free(request);
}

static void fail_call(struct uplink_call *call, const struct error *error)
{
	uplink_answer(&call, NULL, error);
}

static void kill_for(struct tenant *tenant, const char *fault)
{
	if (!tenant->process.killed)
		snprintf(tenant->fault, sizeof(tenant->fault), "%s", fault);
	process_kill(&tenant->process);
}

static void send_request(struct tenant *tenant, const struct request *request, struct json *params)
{
	struct buffer head, out;
	struct json *id = json_new_integer(request->id);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	enum status status = message_print_call(&head, id, method_of[request->kind], params);
	if (!status)
		status = message_encode_stream(&out, (const char *)head.data, head.length, NULL, 0);
	// Calls are short and few: a socket that is full of them belongs to a worker that does not read.
	if (status || send(tenant->socket_fd, out.data, out.length, MSG_NOSIGNAL) != (ssize_t)out.length)
		kill_for(tenant, "the worker did not take a call");
	json_destroy(&id);
	buffer_finish(&head);
	buffer_finish(&out);
}

// ---- what workers say ----

// What a worker could not give up, once: it is so for every worker of this machine.
static void tell_sandbox(struct tenants *tenants, const struct json *result)
{
	const struct json *missing = json_get(json_get(result, "sandbox"), "missing");
	if (tenants->sandbox_told)
		return;
	tenants->sandbox_told = true;
	for (const struct json *one = json_first(missing); one; one = json_next(one))
		log_warning("node", "workers of sessions are not fully confined here: %s", json_string(one, ""));
}

// The answer to `request`, good or bad, goes to who asked.
static void settle(struct tenant *tenant, struct request *request, struct json *result, const struct error *error)
{
	struct uplink_call *call = request->call;
	bool opens = request->kind == REQUEST_OPEN || request->kind == REQUEST_INSTANCE;
	const char *time_name = opens ? "started_ms" : "opened_ms";
	if (opens)
		tenant->open = !error;
	if (opens && error) {
		tenant->unwanted = true; // the server will not hear of it again
		process_kill(&tenant->process);
	}
	if (opens && !error)
		tell_sandbox(tenant->all, result);
	if (!error)
		json_set_number(result, time_name, elapsed_ms(request->began_ns));
	remove_request(tenant, request);
	if (call)
		uplink_answer(&call, result, error);
	else
		json_destroy(&result);
}

static void take_answer(struct tenant *tenant, const uint8_t *frame, size_t length)
{
	struct message message = {0};
	struct error error = {0};
	struct request *request = NULL;
	int64_t id = 0;
	enum status status = message_decode(&message, frame, length, &error);
	if (!status && (message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR) && message.id)
		status = json_integer(message.id, &id);
	for (request = tenant->requests; request && (request->id != id || request->kind == REQUEST_CLOSE);)
		request = request->next;
	if (!status && message.kind == MESSAGE_RESULT && request) {
		const struct contract *contract = tenant->all->params.contract;
		status = contract_check_result(contract, contract_find(contract, method_of[request->kind]),
					       message.result, &error);
	}
	if (status || !request) {
		log_warning("node", "worker %s breaks the protocol: %s", tenant->worker_id,
			    error.message[0] ? error.message : "it answers what nobody asked");
		kill_for(tenant, "the worker broke the protocol");
	} else if (message.kind == MESSAGE_ERROR) {
		message_read_error(&message, &error);
		settle(tenant, request, NULL, &error);
	} else {
		settle(tenant, request, json_copy(message.result), NULL);
	}
	message_finish(&message);
}

// Read what is there. False once there is nothing more to come.
static bool read_socket(struct tenant *tenant)
{
	uint8_t bytes[4096];
	while (tenant->socket && !tenant->fault[0]) {
		ssize_t got = recv(tenant->socket_fd, bytes, sizeof(bytes), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
		const uint8_t *frame;
		size_t frame_bytes, used = 1;
		enum status status = buffer_append(&tenant->in, bytes, (size_t)got);
		while (!status && used && !tenant->fault[0]) {
			status = message_next(&tenant->in, &frame, &frame_bytes, &used);
			if (!status && used) {
				take_answer(tenant, frame, frame_bytes);
				buffer_consume(&tenant->in, used);
			}
		}
		if (status)
			kill_for(tenant, "the worker sent a message of no possible length");
	}
	return false;
}

static void socket_readable(void *arg, int fd)
{
	struct tenant *tenant = arg;
	(void)fd;
	if (!read_socket(tenant))
		net_watch_destroy(&tenant->socket); // the end of the process says the rest
}

// ---- the end of a worker ----

static void answer_ended(struct uplink_call *call, double ms)
{
	struct json *result = json_new_object();
	json_set_number(result, "ended_ms", ms);
	uplink_answer(&call, result, NULL);
}

static void release(struct tenant *tenant, const struct error *error, int *patience_ms)
{
	struct tenants *all = tenant->all;
	struct tenant **at = &all->list;
	process_finish(&tenant->process, patience_ms);
	while (tenant->requests) {
		struct request request = *tenant->requests;
		remove_request(tenant, tenant->requests);
		if (request.kind == REQUEST_CLOSE)
			answer_ended(request.call, elapsed_ms(request.began_ns));
		else if (request.call)
			fail_call(request.call, error);
	}
	while (*at != tenant)
		at = &(*at)->next;
	*at = tenant->next;
	if (!--all->count)
		net_timer_stop(all->params.loop, &all->look);
	net_watch_destroy(&tenant->socket);
	hops_ring_destroy(&tenant->ring);
	if (tenant->unwanted)
		relay_destroy(&tenant->relay);
	relay_let_go(&tenant->relay);
	buffer_finish(&tenant->in);
	free(tenant);
}

static void process_ended(void *arg, int wait_status)
{
	struct tenant *tenant = arg;
	struct tenants_params params = tenant->all->params;
	struct error error = {0};
	char worker_id[sizeof(tenant->worker_id)], words[sizeof(error.message)];
	read_socket(tenant); // what it sent before its end
	snprintf(worker_id, sizeof(worker_id), "%s", tenant->worker_id);
	process_describe(&tenant->process, wait_status, words, sizeof(words));
	if (tenant->fault[0])
		error_set(&error, STATUS_TIMEOUT, "%s and was killed", tenant->fault);
	else if (tenant->has_model && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGBUS)
		error_set(&error, STATUS_UNAVAILABLE,
			  "the model's file was cut off or could not be read any more while it was in use");
	else
		error_set(&error, tenant->unwanted ? STATUS_CONFLICT : STATUS_UNAVAILABLE, "%s", words);
	bool tell = tenant->open && !tenant->unwanted;
	if (!tenant->unwanted)
		log_warning("node", "worker %s of a %s: %s", worker_id, tenant->has_model ? "model" : "session",
			    error.message);
	release(tenant, &error, &(int){0});
	if (tell)
		params.ended(params.arg, worker_id, error.message);
}

// One that is kept: how long, and whether it can be connected again now.
static void look_at_away(struct tenant *tenant, int64_t now_ms)
{
	if (!tenant->away_ms || !tenant->relay)
		return;
	if (relay_is_open(tenant->relay))
		tenant->away_ms = 0;
	else if (now_ms - tenant->away_ms >= LIMIT_AWAY_MS)
		kill_for(tenant, "the worker was without the server for too long");
	else if (tenant->all->connected)
		relay_return(tenant->relay);
}

static void look_after(void *arg)
{
	struct tenants *all = arg;
	struct error error = {0};
	int64_t now_ms = clock_steady_ms();
	for (struct tenant *tenant = all->list; tenant; tenant = tenant->next) {
		bool asked = false;
		char fault[sizeof(tenant->fault)];
		read_socket(tenant); // it may have answered while this process was held up
		look_at_away(tenant, now_ms);
		for (struct request *request = tenant->requests; request; request = request->next) {
			asked = asked || request->kind == REQUEST_PING;
			if (request->kind == REQUEST_CLOSE || request->due_ms > now_ms)
				continue;
			snprintf(fault, sizeof(fault), "the worker did not answer %s in %.0f s",
				 method_of[request->kind], elapsed_ms(request->began_ns) / 1000);
			kill_for(tenant, fault);
		}
		if (asked || !tenant->open || tenant->process.killed)
			continue;
		struct request *ping = add_request(tenant, REQUEST_PING, PING_MS, &error);
		if (ping)
			send_request(tenant, ping, json_new_object());
	}
	net_timer_start(all->params.loop, &all->look, LOOK_MS, look_after, all);
}

// ---- the server's calls ----

static struct tenant *find(struct tenants *tenants, const struct uplink_call *call)
{
	const char *worker_id = json_get_string(call->params, "worker_id", "");
	struct tenant *tenant = tenants->list;
	while (tenant && strcmp(tenant->worker_id, worker_id))
		tenant = tenant->next;
	return tenant;
}

static void relay_closed(void *arg, bool ended)
{
	struct tenant *tenant = arg;
	tenant->relay = NULL;
	tenant->unwanted |= ended;
	kill_for(tenant, ended ? "" : "the worker lost its connection to the server");
}

// The connection is gone, and nobody said that the worker is to end. That to the server may break a moment later.
static void relay_broken(void *arg)
{
	struct tenant *tenant = arg;
	if (!tenant->open)
		kill_for(tenant, "the worker lost its connection to the server");
	else if (!tenant->away_ms)
		tenant->away_ms = clock_steady_ms();
}

// By a relay, which dials the server and says whose stream this is when it has it.
static enum status create_relay(struct tenant *tenant, const struct uplink_call *call, int *out, struct error *error)
{
	const struct relay_params params = {.worker_id = tenant->worker_id,
					    .key = json_get_string(call->params, "key", ""),
					    .closed = relay_closed,
					    .broken = tenant->has_model ? relay_broken : NULL,
					    .arg = tenant};
	return relay_create(&tenant->relay, tenant->all->params.relays, &params, out, error);
}

// Dial the server's socket for workers and say whose stream this is.
static enum status connect_stream(const struct tenants *tenants, const struct uplink_call *call, int *out,
				  struct error *error)
{
	struct buffer head, hello;
	struct json *params = json_new_object();
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&hello, LIMIT_WORKER_MESSAGE_BYTES);
	json_set_string(params, "worker_id", json_get_string(call->params, "worker_id", ""));
	json_set_string(params, "key", json_get_string(call->params, "key", ""));
	enum status status = message_print_call(&head, NULL, "link.hello", params);
	if (!status)
		status = message_encode_stream(&hello, (const char *)head.data, head.length, NULL, 0);
	if (status)
		error_set(error, status, "no memory to greet the server");
	else if (fd < 0 || connect(fd, (const struct sockaddr *)&tenants->stream, sizeof(tenants->stream)))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "connecting a worker to the server");
	else if (send(fd, hello.data, hello.length, MSG_NOSIGNAL) != (ssize_t)hello.length || fcntl(fd, F_SETFL, 0) < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "greeting the server for a worker");
	if (status && fd >= 0)
		close(fd);
	buffer_finish(&head);
	buffer_finish(&hello);
	*out = status ? -1 : fd;
	return status;
}

static const struct net_watch_events socket_events = {.readable = socket_readable};

// What a worker gets besides its socket; -1: nothing.
struct handed {
	int stream, model, ring_in, ring_out;
};

static void close_handed(const struct handed *handed)
{
	const int fds[] = {handed->stream, handed->model, handed->ring_in, handed->ring_out};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

// Start its process. A failure after which it runs all the same kills it; its end follows.
static enum status start(struct tenant *tenant, const struct handed *handed, struct error *error)
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

// Of a model instance: its file, opened here, since its worker reaches no files; else -1. A link at the end of the path
// is not followed, and what is no regular file is not waited for.
static enum status open_model(const struct tenants *tenants, const struct uplink_call *call, int *out,
			      struct error *error)
{
	const char *path = json_get_string(call->params, "model_path", NULL),
		   *model_id = json_get_string(call->params, "model_id", NULL);
	struct stat info;
	*out = -1;
	if (path && model_id)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "a model is given by its path or by its id, not by both");
	if (model_id)
		return node_models_open(tenants->params.models, model_id, out, error);
	if (!path)
		return STATUS_OK;
	if (tenants->params.relays) {
		error_hint(error, "have it fetched first (model.fetch), and give its model_id");
		return error_set(error, STATUS_UNAVAILABLE,
				 "a file of this machine is not given by its path to a server on another");
	}
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return error_errno(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, errno,
				   "opening the model's file");
	if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
		close(fd);
		return error_set(error, STATUS_INVALID_PARAMS, "the model's file is not a regular file");
	}
	*out = fd;
	return STATUS_OK;
}

static struct tenant *create(struct tenants *tenants, const struct uplink_call *call)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));
	if (!tenant)
		return NULL;
	*tenant = (struct tenant){.all = tenants,
				  .next = tenants->list,
				  .backend = backend_kind_parse(json_get_string(call->params, "backend", ""))};
	snprintf(tenant->worker_id, sizeof(tenant->worker_id), "%s", json_get_string(call->params, "worker_id", ""));
	buffer_init(&tenant->in, LIMIT_HEAD_BYTES); // its answers here have no body
	tenants->list = tenant;
	if (!tenants->count++)
		net_timer_start(tenants->params.loop, &tenants->look, LOOK_MS, look_after, tenants);
	return tenant;
}

// The call that makes a worker what it is to be.
static void send_open(struct tenant *tenant, const struct request *request, const struct json *given)
{
	const struct json *limit = json_get(given, "memory_limit_bytes");
	struct json *params = json_new_object();
	json_set_string(params, "backend", backend_kind_name(tenant->backend));
	if (limit && !tenant->has_model)
		json_set(params, "memory_limit_bytes", json_copy(limit));
	json_set_string(params, "cache_directory", tenant->all->cache);
	if (tenant->ring)
		json_set_bool(params, "ring", true);
	send_request(tenant, request, params);
}

// What it is handed, and the request that its opening is.
static enum status prepare(struct tenant *tenant, struct uplink_call *call, struct handed *handed,
			   struct request **request, struct error *error)
{
	struct tenants *tenants = tenant->all;
	enum status status = STATUS_OK;
	if (json_get_bool(call->params, "ring", false)) {
		if (!tenant->has_model)
			return error_set(error, STATUS_INVALID_PARAMS, "only a model's worker is part of a ring");
		status = hops_ring_create(&tenant->ring, tenants->params.hops, tenant->worker_id, &handed->ring_in,
					  &handed->ring_out, error);
	}
	if (!status)
		status = tenants->params.relays ? create_relay(tenant, call, &handed->stream, error)
						: connect_stream(tenants, call, &handed->stream, error);
	if (status)
		return status;
	*request = add_request(tenant, tenant->has_model ? REQUEST_INSTANCE : REQUEST_OPEN, OPEN_MS, error);
	return *request ? STATUS_OK : error->status;
}

void tenants_open(struct tenants *tenants, struct uplink_call *call)
{
	struct error error = {0};
	struct tenant *tenant = NULL;
	struct request *request = NULL;
	struct handed handed = {.stream = -1, .model = -1, .ring_in = -1, .ring_out = -1};
	if (find(tenants, call))
		error_set(&error, STATUS_CONFLICT, "there is a worker of this id");
	else if (tenants->count >= LIMIT_WORKERS)
		error_set(&error, STATUS_LIMIT_EXCEEDED, "this node has %zu workers, and takes no more",
			  tenants->count);
	else if (!open_model(tenants, call, &handed.model, &error) && !(tenant = create(tenants, call)))
		error_set(&error, STATUS_OUT_OF_MEMORY, "no memory for a worker");
	if (!tenant) {
		fail_call(call, &error);
		goto done;
	}
	tenant->has_model = handed.model >= 0;
	if (prepare(tenant, call, &handed, &request, &error)) {
		fail_call(call, &error);
		release(tenant, &error, &(int){0});
		goto done;
	}
	request->call = call;
	if (start(tenant, &handed, &error)) {
		log_error("node", "a worker could not be started: %s", error.message);
		release(tenant, &error, &(int){0}); // answers the call
		goto done;
	}
	send_open(tenant, request, call->params);
done:
	close_handed(&handed);
}

// Whether the device can be used through the worker's back end now.
static enum status check_device(const struct device_record *record, enum backend_kind kind, struct error *error)
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

void tenants_device(struct tenants *tenants, struct uplink_call *call)
{
	struct error error = {0};
	struct tenant *tenant = find(tenants, call);
	const char *device_id = json_get_string(call->params, "device_id", "");
	struct device_record *record = device_table_find(tenants->params.table, device_id);
	struct request *request = NULL;
	if (!tenant || tenant->process.killed)
		error_set(&error, STATUS_NOT_FOUND, "this node has no such worker");
	else if (!tenant->open)
		error_set(&error, STATUS_CONFLICT, "the worker is not open yet");
	else if (!check_device(record, tenant->backend, &error))
		request = add_request(tenant, REQUEST_DEVICE, DEVICE_MS, &error);
	if (!request) {
		fail_call(call, &error);
		return;
	}
	request->call = call;
	struct json *params = json_new_object();
	json_set_integer(params, "device", json_get_integer(call->params, "device", 0));
	json_set_string(params, "hardware_key", record->apis[tenant->backend].info.hardware_key);
	send_request(tenant, request, params);
}

void tenants_close(struct tenants *tenants, struct uplink_call *call)
{
	struct error error = {0};
	struct tenant *tenant = find(tenants, call);
	if (!tenant) {
		answer_ended(call, 0);
		return;
	}
	struct request *request = add_request(tenant, REQUEST_CLOSE, 0, &error);
	tenant->unwanted = true;
	relay_destroy(&tenant->relay);
	process_kill(&tenant->process); // whatever becomes of the call
	if (request)
		request->call = call;
	else
		fail_call(call, &error);
}

static void kill_quietly(struct tenant *tenant)
{
	tenant->unwanted = true;
	relay_destroy(&tenant->relay);
	process_kill(&tenant->process);
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
		release((*tenants)->list, &error, &patience_ms);
	free(*tenants);
	*tenants = NULL;
}
