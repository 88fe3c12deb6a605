/* Workers that have come, and ends of hops: whose they are, what they answer, how they go. See inside.h.
 *
 * The node connects a worker to the server and says which one it is (link.hello) before the worker has the socket, with
 * a key that only the server and the node know. From then on every message must answer a call that was sent. When a
 * line ends by itself, the node is waited for, which knows why the process ended, but it comes by another way; when the
 * node is faster, the line is read to its end, since what the worker has answered last may still lie there. In between
 * calls are taken as if the worker still lived, and answered with its end. */
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "server/tenants/inside.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LAST_ANSWERS_MS = 1000, // that a line may last after its worker's node has said that it ended
	LAST_WORD_MS = 2000,    // that a node may take to say why its worker's stream ended
	WORD_MS = 500,          // and from then on if it was not heard: what it said first may be on the way
};

// Forget a worker that came; its line is closed, if it has one.
static void arrival_destroy(struct arrival **pointer)
{
	struct arrival *arrival = *pointer;
	struct tenancy *tenants = arrival->tenants;
	*pointer = NULL;
	net_timer_stop(tenants->params.loop, &arrival->deadline);
	if (arrival->worker)
		arrival->worker->stream = NULL;
	else if (!arrival->linked)
		tenants->not_linked--;
	LIST_REMOVE(arrival, link);
	if (arrival->line)
		arrival->line->destroy(&arrival->line);
	sharing_finish(arrival);
	free(arrival);
}

static void too_late(void *arg)
{
	struct arrival *arrival = arg;
	log_warning("tenants", "a stream did not say whose it is within %d s", LIMIT_LOGIN_MS / 1000);
	arrival_destroy(&arrival);
}

// Whether one more may come. One node alone does not keep those of others out.
static bool has_room(const struct tenancy *tenants, const char *node_id, bool tab)
{
	unsigned of_node = 0, of_tabs = 0;
	for (const struct arrival *arrival = tenants->arrivals; arrival; arrival = arrival->next) {
		of_node += !arrival->linked && arrival->tab == tab && !strcmp(arrival->node_id, node_id);
		of_tabs += !arrival->linked && arrival->tab;
	}
	if (tab && (of_tabs >= LIMIT_STREAMS_NOT_LINKED_OF_TABS || of_node >= LIMIT_STREAMS_NOT_LINKED_OF_TAB))
		return false;
	return tenants->not_linked < LIMIT_STREAMS_NOT_LINKED && of_node < LIMIT_STREAMS_NOT_LINKED_OF_NODE;
}

struct arrival *arrival_create(struct tenancy *tenants, struct line *line, const char *node_id, bool tab)
{
	struct arrival *arrival = has_room(tenants, node_id, tab) ? calloc(1, sizeof(*arrival)) : NULL;
	if (!arrival)
		return NULL;
	*arrival = (struct arrival){.tenants = tenants, .line = line, .tab = tab};
	snprintf(arrival->node_id, sizeof arrival->node_id, "%s", node_id);
	LIST_PUSH(&tenants->arrivals, arrival, link);
	tenants->not_linked++;
	net_timer_start(tenants->params.loop, &arrival->deadline, LIMIT_LOGIN_MS, too_late, arrival);
	return arrival;
}

// Whether workers of this node may come this way.
static bool brings(const struct arrival *arrival, const char *node_id)
{
	if (arrival->tab)
		return cluster_is_tab(arrival->tenants->params.cluster, node_id);
	return !arrival->node_id[0] || !strcmp(arrival->node_id, node_id);
}

// Whether the first message names a worker that is awaited, with its key, and of the node that brings it.
static struct worker *greeted(const struct arrival *arrival, const struct message *message)
{
	const struct tenancy *tenants = arrival->tenants;
	const struct contract *contract = tenants->params.contract;
	const struct contract_method *hello = contract_find(contract, "link.hello");
	if (!message->method || strcmp(message->method, hello->name) != 0 ||
	    contract_check_params(contract, hello, message->params, NULL))
		return NULL;
	struct worker *worker = worker_by_id(tenants, json_get_string(message->params, "worker_id", ""));
	const char *key = json_get_string(message->params, "key", "");
	if (!worker || (worker->stream && (!worker->instance || arrival->tab)) || !brings(arrival, worker->node_id) ||
	    !worker_knows_key(worker, key))
		return NULL;
	return worker;
}

// It has said whose it is.
static void set_linked(struct arrival *arrival)
{
	net_timer_stop(arrival->tenants->params.loop, &arrival->deadline);
	arrival->tenants->not_linked--;
	arrival->linked = true;
}

// Whether the first message is hop.hello of one that is awaited; then the arrival may be gone already.
static bool brings_hop(struct arrival *arrival, const struct message *message)
{
	const struct contract *contract = arrival->tenants->params.contract;
	const struct contract_method *hello = contract_find(contract, "hop.hello");
	if (!message->method || strcmp(message->method, hello->name) != 0 ||
	    contract_check_params(contract, hello, message->params, NULL))
		return false;
	set_linked(arrival);
	if (hop_relay_greeted(arrival, message->params))
		return true;
	log_warning("tenants", "a stream was refused: the hop that it names is not awaited");
	arrival_destroy(&arrival);
	return true;
}

static void say_hello(struct arrival *arrival, const struct message *message)
{
	struct worker *worker = greeted(arrival, message);
	if (!worker && brings_hop(arrival, message))
		return;
	if (!worker) {
		log_warning("tenants", "a stream was refused: its greeting is no awaited worker's");
		arrival_destroy(&arrival);
		return;
	}
	set_linked(arrival);
	worker->asks++;     // until it is looked at
	if (worker->stream) // its node is faster than the news that the old one broke
		worker_away(worker, "the connection to its worker broke, and was made again");
	worker->asks--;
	if (worker->ended) { // it had not been opened yet
		worker_let_go(worker);
		arrival_destroy(&arrival);
		return;
	}
	arrival->worker = worker;
	worker->stream = arrival;
	if (!worker->instance)
		OPENSSL_cleanse(worker->key, sizeof worker->key); // it opens nothing any more
	stream_hold(worker);
	worker_advance(worker);
}

// Whether a message is one that may come, and an answer as long as it must be; the rest is the contract's.
static enum status check_message(const struct worker *worker, const struct message *message,
				 const struct net_frame *body, struct error *error)
{
	int64_t id;
	const size_t body_bytes = body ? net_frame_bytes(body) : 0;
	if (message->kind == MESSAGE_REQUEST || (message->kind == MESSAGE_NOTIFICATION && body))
		return error_set(error, STATUS_INVALID_REQUEST, "nothing was asked that this answers");
	const struct worker_call *call = message->kind != MESSAGE_NOTIFICATION && rpc_read_id(message, &id)
						 ? rpc_find(&worker->rpc, id, NULL)
						 : NULL;
	if (!call)
		return STATUS_OK;
	const size_t wanted = message->kind == MESSAGE_RESULT && !call->place ? call->body_bytes : 0;
	if (body_bytes != wanted)
		return error_set(error, STATUS_INVALID_PARAMS, "a body of %zu bytes came where %zu were due",
				 body_bytes, wanted);
	if (call->counts && message->kind == MESSAGE_RESULT &&
	    json_get_integer(message->result, "bytes", -1) != (int64_t)call->bytes)
		return error_set(error, STATUS_INVALID_PARAMS, "it names another number of bytes");
	return STATUS_OK;
}

enum status worker_moved(void *arg, const struct message *message, struct error *error)
{
	struct worker *worker = arg;
	const int64_t id = json_get_integer(message->params, "call", 0); // of a copy inside the worker
	struct worker_call *call = rpc_find(&worker->rpc, id, id ? "memory.copy" : "memory.receive");
	if (worker->instance)
		return error_set(error, STATUS_METHOD_NOT_FOUND, "it says what none of a model does");
	if (!call)
		return error_set(error, STATUS_NOT_FOUND, "it tells of a copy that is not under way");
	if (id)
		copy_moved(call, message->params);
	else
		relays_moved(worker->tenant, worker, message->params);
	return STATUS_OK;
}

// The reads that the worker says by notes to be done. A look that finds none though there was to be one is one too
// many now and then, and no more. False: it is gone.
static bool take_notes(struct worker *worker)
{
	enum { LOOKS = 2 * NET_SHARED_NOTES };
	unsigned looks = 0;
	struct net_shared *memory = net_shared_ref(worker->stream->sharing.memory);
	struct net_shared_note note;
	worker->asks++;
	do {
		while (worker->stream && net_shared_get(memory, &note)) {
			const int64_t id = (int64_t)note.call;
			const struct worker_call *call = id > 0 ? rpc_find(&worker->rpc, id, NULL) : NULL;
			worker->stream->notes++;
			if (call && call->noted)
				rpc_settle(&worker->rpc, id);
			else
				arrival_broken(worker->stream, "nothing was asked that its note answers");
		}
	} while (worker->stream && !net_shared_wait(memory) && ++looks < LOOKS);
	if (worker->stream && looks == LOOKS)
		arrival_broken(worker->stream, "its notes come and go");
	worker->asks--;
	const bool there = worker->stream;
	net_shared_destroy(&memory);
	worker_let_go(worker);
	return there;
}

void arrival_message(struct arrival *arrival, const struct net_parts *parts)
{
	struct worker *worker = arrival->worker;
	struct message message;
	struct error error = {0};
	if (arrival->hop) {
		hop_relay_message(arrival, parts);
		return;
	}
	if (worker && arrival->sharing.memory && !take_notes(worker))
		return;
	if (worker && !parts->head_bytes && !parts->holder) { // it only wakes, for a note that is or was there
		if (++arrival->bells > arrival->notes)
			arrival_broken(arrival, "it wakes the server for nothing");
		return;
	}
	enum status status = message_decode_text(&message, (const char *)parts->head, parts->head_bytes, &error);
	if (!worker) {
		say_hello(arrival, &message);
		message_finish(&message);
		return;
	}
	worker->asks++; // whoever is told may end it
	if (!status)
		status = check_message(worker, &message, parts->holder, &error);
	if (!status) {
		worker->body = parts->holder;
		const enum rpc_heard heard = rpc_take(&worker->rpc, &message, &error);
		worker->body = NULL;
		if (heard != RPC_SERVED && heard != RPC_ANSWERED && !(heard == RPC_STALE && worker->instance))
			status = STATUS_INVALID_REQUEST;
	}
	if (status && worker->stream == arrival)
		arrival_broken(arrival, error.message);
	message_finish(&message);
	worker->asks--;
	worker_let_go(worker);
}

void arrival_broken(struct arrival *arrival, const char *why)
{
	struct worker *worker = arrival->worker;
	if (arrival->hop) {
		hop_relay_lost(arrival, "what came is no message");
		return;
	}
	if (!worker) {
		log_warning("tenants", "a stream was refused: what it said is no greeting");
		arrival_destroy(&arrival);
		return;
	}
	log_warning("tenants", "worker %s breaks the protocol and is ended: %s", worker->worker_id, why);
	worker_fail(worker, "its worker broke the protocol");
}

void arrival_drained(struct arrival *arrival)
{
	if (arrival->hop)
		hop_relay_drained(arrival);
	else if (arrival->worker)
		worker_relax(arrival->worker);
}

void arrival_drop(struct arrival *arrival)
{
	arrival_destroy(&arrival);
}

// The line of an instance's worker may have ended with its node's, which is then heard again or lost: its worker has
// not ended for that.
static bool may_be_cut_off(const struct arrival *arrival)
{
	const struct worker *worker = arrival->worker;
	return worker->instance && !worker->fault.status &&
	       cluster_node_silence_ms(arrival->tenants->params.cluster, worker->node_id) >
		       arrival->waited_ms - WORD_MS;
}

static void wait_for_word(struct arrival *arrival, int64_t ms);

static void waited_for(void *arg)
{
	struct arrival *arrival = arg;
	if (may_be_cut_off(arrival))
		wait_for_word(arrival, WORD_MS);
	else
		worker_told_all(arrival->worker);
}

static void wait_for_word(struct arrival *arrival, int64_t ms)
{
	arrival->waited_ms += ms;
	net_timer_start(arrival->tenants->params.loop, &arrival->deadline, ms, waited_for, arrival);
}

void arrival_closed(struct arrival *arrival, const char *why)
{
	arrival->line = NULL;
	if (arrival->hop) {
		hop_relay_lost(arrival, why);
		return;
	}
	if (!arrival->worker) {
		arrival_destroy(&arrival);
		return;
	}
	log_debug("tenants", "the stream of worker %s closed: %s", arrival->worker->worker_id, why);
	if (arrival->worker->fault.status)
		worker_told_all(arrival->worker);
	else
		wait_for_word(arrival, longer_last_wait_ms(LAST_WORD_MS));
}

bool stream_outlasts(struct worker *worker)
{
	struct arrival *arrival = worker->stream;
	if (!arrival || !arrival->line)
		return false;
	net_timer_start(worker->tenants->params.loop, &arrival->deadline, longer_last_wait_ms(LAST_ANSWERS_MS),
			waited_for, arrival);
	return true;
}

void streams_destroy(struct tenancy *tenants)
{
	net_stream_listener_destroy(&tenants->listener);
	while (tenants->arrivals) {
		struct arrival *arrival = tenants->arrivals;
		arrival_destroy(&arrival);
	}
}

enum status stream_send(struct worker *worker, const struct net_parts *message)
{
	struct line *line = worker->stream->line;
	return line ? line->send(line, message) : STATUS_OK; // nobody hears it; it is answered with the worker's end
}

size_t stream_queued(const struct worker *worker)
{
	const struct line *line = worker->stream ? worker->stream->line : NULL;
	return line ? line->queued(line) : 0;
}

void stream_drop(struct worker *worker)
{
	struct arrival *arrival = worker->stream;
	if (arrival)
		arrival_destroy(&arrival);
}

void stream_hold(struct worker *worker)
{
	bool hold = worker->tenant && worker->tenant->full_conns > 0;
	struct line *line = worker->stream ? worker->stream->line : NULL;
	if (!line || worker->held == hold)
		return;
	worker->held = hold;
	if (hold)
		line->pause(line);
	else
		line->resume(line);
}
