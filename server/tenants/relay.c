/* A copy between two workers. See inside.h.
 *
 * It goes by a channel (direct.c) from the one to the other, where they are of one node or their nodes have a direct
 * link; what that leaves, or all of it, goes by relay: read from the one, written to the other, a few pieces at a time.
 *
 * A piece is under way from the read that is sent to the write that is answered. The first failure, or the end of
 * either worker, answers the client; the pieces that are still under way then come in and are dropped, and the last one
 * lets the relay go. A worker that ends answers all of its own, so none is waited for in vain. */
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/cluster/topology/topology.h"
#include "server/tenants/inside.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1024 * 1024, PIECES = 4 };

struct relay {
	struct relay *next, **link; // of its tenant
	struct tenant *tenant;
	struct worker *from, *to;
	uint32_t from_handle, to_handle;
	uint64_t from_offset, to_offset, bytes, asked, done;
	unsigned under_way;
	struct direct *direct;     // NULL: it goes by relay
	const char *path;          // what the client is told; static
	struct tenant_call client; // its done is NULL once it was answered
	struct net_timer progress;
};

static void advance(struct relay *relay);

static void tell_progress(void *arg)
{
	struct relay *relay = arg;
	struct net_loop *loop = relay->tenant->tenants->params.loop;
	copy_tell(&relay->client, relay->done, relay->bytes);
	net_timer_start(loop, &relay->progress, LIMIT_COPY_TELL_MS, tell_progress, relay);
}

// Answer the client, once.
static void answer(struct relay *relay, enum status status, const struct error *error)
{
	struct json *result = NULL;
	struct tenant_call client = relay->client;
	if (!client.done)
		return;
	relay->client = (struct tenant_call){0};
	net_timer_stop(relay->tenant->tenants->params.loop, &relay->progress);
	direct_close(&relay->direct);
	if (!status) {
		result = json_new_object();
		json_set_integer(result, "bytes", (int64_t)relay->bytes);
		json_set_string(result, "path", relay->path);
	}
	client.done(client.context, status, result, NULL, error);
}

static void release(struct relay *relay)
{
	if (relay->under_way || relay->client.done)
		return;
	relay->tenant->relay_count--;
	LIST_REMOVE(relay, link);
	free(relay);
}

// A piece has gone through, or has come to nothing.
static void piece_done(struct relay *relay, uint64_t bytes, enum status status, const struct error *error)
{
	relay->under_way--;
	relay->done += bytes;
	relay->tenant->tenants->stats.relayed_bytes += bytes;
	if (status)
		answer(relay, status, error);
	else if (relay->done == relay->bytes)
		answer(relay, STATUS_OK, NULL);
	else
		advance(relay);
	release(relay);
}

static void piece_written(struct worker_call *call, enum status status, const struct json *result,
			  struct net_frame *body, const struct error *error)
{
	(void)result, (void)body;
	piece_done(call->context, status ? 0 : call->bytes, status, error);
}

static void piece_read(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		       const struct error *error)
{
	struct error fault = {0};
	struct relay *relay = call->context;
	struct worker_call *write = NULL;
	(void)result;
	if (status || !relay->client.done) {
		piece_done(relay, 0, status, error);
		return;
	}
	write = worker_call_create(NULL, piece_written);
	if (!write) {
		status = error_set(&fault, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	} else {
		struct json *params = json_new_object();
		const uint64_t at = call->client.body_bytes; // of this piece, from the start of the range
		json_set_integer(params, "handle", relay->to_handle);
		json_set_integer(params, "offset", (int64_t)(relay->to_offset + at));
		write->context = relay;
		write->counts = true;
		write->bytes = call->bytes;
		const struct worker_send_params send = {.method = "memory.write",
							.params = params,
							.holder = body,
							.body = net_frame_data(body),
							.body_bytes = net_frame_bytes(body)};
		status = worker_send(relay->to, write, &send, &fault);
	}
	if (!status)
		return;
	worker_call_destroy(&write);
	piece_done(relay, 0, status, &fault);
}

static enum status read_piece(struct relay *relay, struct error *error)
{
	uint64_t left = relay->bytes - relay->asked, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
	struct worker_call *call = worker_call_create(NULL, piece_read);
	if (!call)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	struct json *params = json_new_object();
	json_set_integer(params, "handle", relay->from_handle);
	json_set_integer(params, "offset", (int64_t)(relay->from_offset + relay->asked));
	json_set_integer(params, "bytes", (int64_t)bytes);
	call->context = relay;
	call->counts = true;
	call->bytes = bytes;
	call->body_bytes = (size_t)bytes;
	call->client.body_bytes = (size_t)relay->asked;
	enum status status = worker_send(
		relay->from, call, &(struct worker_send_params){.method = "memory.read", .params = params}, error);
	if (status) {
		worker_call_destroy(&call);
		return status;
	}
	relay->asked += bytes;
	relay->under_way++;
	return STATUS_OK;
}

static void advance(struct relay *relay)
{
	struct error error = {0};
	while (relay->client.done && !relay->direct && relay->asked < relay->bytes && relay->under_way < PIECES)
		if (read_piece(relay, &error))
			answer(relay, error.status, &error);
}

// Answered before the worker goes, so that no piece that is still read from the other one is written to it.
void relays_lose_worker(struct tenant *tenant, const struct worker *worker, const struct error *fault)
{
	for (struct relay *relay = tenant->relays, *next; relay; relay = next) {
		next = relay->next;
		if (relay->from == worker || relay->to == worker) {
			answer(relay, fault->status, fault);
			release(relay);
		}
	}
}

// ---- by a channel ----

// The rest, if any, goes by relay.
static void direct_ended(void *context, uint64_t done, const struct error *error)
{
	struct relay *relay = context;
	direct_close(&relay->direct);
	relay->done = relay->asked = done;
	if (error) {
		answer(relay, error->status, error);
	} else if (done == relay->bytes) {
		answer(relay, STATUS_OK, NULL);
	} else {
		log_info("tenants", "a copy from worker %s to %s goes on through the server after %llu of %llu bytes",
			 relay->from->worker_id, relay->to->worker_id, (unsigned long long)done,
			 (unsigned long long)relay->bytes);
		relay->path = "relay";
		advance(relay);
	}
	release(relay);
}

// "local", "link", or "relay": by what it can go.
static const char *path_of(const struct relay *relay)
{
	struct topology_reading reading = {0};
	const struct topology *topology = relay->tenant->tenants->params.topology;
	if (!strcmp(relay->from->node_id, relay->to->node_id))
		return "local";
	topology_find(topology, relay->from->node_id, relay->to->node_id, &reading);
	return reading.direct ? "link" : "relay";
}

static void begin(struct relay *relay)
{
	relay->path = path_of(relay);
	if (!relay->bytes) {
		answer(relay, STATUS_OK, NULL);
		return;
	}
	const struct direct_params params = {.from = relay->from,
					     .to = relay->to,
					     .link = !strcmp(relay->path, "link"),
					     .from_handle = relay->from_handle,
					     .to_handle = relay->to_handle,
					     .from_offset = relay->from_offset,
					     .to_offset = relay->to_offset,
					     .bytes = relay->bytes,
					     .ended = direct_ended,
					     .context = relay};
	if (!strcmp(relay->path, "relay") || direct_open(&relay->direct, &params)) {
		relay->path = "relay";
		advance(relay);
	}
}

void relays_moved(struct tenant *tenant, const struct worker *worker, const struct json *params)
{
	const char *id = json_get_string(params, "channel", "");
	const uint64_t done = (uint64_t)json_get_integer(params, "done_bytes", 0);
	for (struct relay *relay = tenant->relays; relay; relay = relay->next)
		if (relay->direct && relay->to == worker && !strcmp(direct_id(relay->direct), id) &&
		    done <= relay->bytes)
			relay->done = done;
}

enum status relay_start(const struct relay_params *params, struct error *error)
{
	struct tenant *tenant = params->call->tenant;
	if (tenant->relay_count >= LIMIT_RELAYS_OF_SESSION) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "%d copies between workers are under way in this session",
			  LIMIT_RELAYS_OF_SESSION);
		error_hint(error, "wait for one of them");
		return STATUS_LIMIT_EXCEEDED;
	}
	struct relay *relay = calloc(1, sizeof(*relay));
	if (!relay)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*relay = (struct relay){.tenant = tenant,
				.from = params->from->worker,
				.to = params->to->worker,
				.from_handle = params->from->handle,
				.to_handle = params->to->handle,
				.from_offset = params->from_offset,
				.to_offset = params->to_offset,
				.bytes = params->bytes,
				.client = *params->call};
	LIST_PUSH(&tenant->relays, relay, link);
	tenant->relay_count++;
	net_timer_start(tenant->tenants->params.loop, &relay->progress, LIMIT_COPY_TELL_MS, tell_progress, relay);
	begin(relay);
	release(relay);
	return STATUS_OK;
}
