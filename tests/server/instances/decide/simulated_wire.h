/* The connections of the simulated cluster (simulation.h), with the real endpoints of common/wire/rpc.h at both ends
 * and the contract of schema/node.json: the server asks each node for workers (tenant.open) and ends them
 * (tenant.close), by calls with deadlines. A node has workers of its own, which need not be those that the server
 * believes in. Messages take their time, and wait while a node is cut off; once its lease is over the connection ends,
 * and so do its workers. Nodes fail: an answer is lost, comes after its deadline, comes twice, is a refusal, or breaks
 * the contract.
 *
 * What must hold is in wire_check and where a node serves a call. */
#pragma once
#include "common/base/limits.h"
#include "common/wire/rpc.h"
#include "tests/server/instances/decide/simulation.h"

enum {
	WIRE_ASKED = 16384,
	WIRE_LETTERS = 512,
	WIRE_HELD = 256, // workers of a node, and its answers
	WIRE_PATIENCE_MS = 5000,
	WIRE_TEXT_BYTES = 512,
	WIRE_BEHIND_MS = LEASE_MS + 1000
};

enum wire_fate { FATE_WELL, FATE_LOST, FATE_LATE, FATE_TWICE, FATE_REFUSED, FATE_BREACH, FATES };

// A call of the server.
struct wire_asked {
	int device, instance, part;
	uint64_t epoch;
	int64_t id, due_ms;
	bool opens, sent;
	unsigned ended;
};

struct wire_letter {
	int device;
	bool to_node;
	int64_t at_ms;
	uint64_t order;
	char text[WIRE_TEXT_BYTES];
};

struct wire_worker {
	int instance, part, units;
	uint64_t epoch;
	bool loaded;
	int64_t unwanted_ms; // since when the server does not believe in it; -1: it does
};

struct wire_answer {
	int64_t id, at_ms;
	bool opens, refused;
	enum wire_fate fate;
	int instance, part;
	uint64_t epoch;
};

struct wire_node {
	struct rpc server, node; // the two ends
	bool open;
	int64_t to_node_ms, to_server_ms; // messages of one direction keep their order
	struct wire_worker workers[WIRE_HELD];
	struct wire_answer answers[WIRE_HELD];
	unsigned worker_count, answer_count;
	uint64_t newest[INSTANCES]; // epochs that it was asked for
};

static struct {
	struct contract *contract;
	struct world *world;
	struct wire_node nodes[DEVICES];
	struct wire_asked asked[WIRE_ASKED];
	struct wire_letter letters[WIRE_LETTERS];
	unsigned asked_count, letter_count;
	uint64_t order;
} wired;

static uint64_t wire_calls, wire_fates[FATES], wire_unasked;

static int64_t wire_now(void)
{
	return wired.world->now_ms;
}

// ---- letters ----

static enum status wire_post(int device, bool to_node, const char *text)
{
	struct wire_node *node = &wired.nodes[device];
	int64_t *last_ms = to_node ? &node->to_node_ms : &node->to_server_ms;
	const int64_t at_ms = wired.world->now_ms + 1 + (int64_t)draw(wired.world, 40);
	if (!node->open || wired.letter_count == WIRE_LETTERS || strlen(text) >= WIRE_TEXT_BYTES)
		return STATUS_UNAVAILABLE;
	struct wire_letter *letter = &wired.letters[wired.letter_count++];
	*letter = (struct wire_letter){.device = device, .to_node = to_node, .order = wired.order++};
	letter->at_ms = *last_ms = at_ms > *last_ms ? at_ms : *last_ms;
	snprintf(letter->text, sizeof letter->text, "%s", text);
	return STATUS_OK;
}

static enum status wire_send_to_node(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	(void)body;
	return wire_post((int)((struct wire_node *)arg - wired.nodes), true, buffer_text(head));
}

static enum status wire_send_to_server(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	(void)body;
	return wire_post((int)((struct wire_node *)arg - wired.nodes), false, buffer_text(head));
}

// ---- the server's end ----

static void wire_answered(struct world *world, const struct wire_asked *asked, enum status status)
{
	struct instance *one = &world->instances[asked->instance];
	const bool current = one->workers_are == WORKERS_BUSY && (unsigned)asked->part < one->worker_count &&
			     one->workers[asked->part].alive;
	const bool this_one = current && (one->epoch == asked->epoch || world->planted == PLANTED_OLD_ANSWER);
	bool all = true;
	if (!asked->opens || !this_one || one->workers[asked->part].ready)
		return;
	if (status) {
		lose(world, one, asked->part, false);
		return;
	}
	one->workers[asked->part].ready = true;
	for (unsigned i = 0; i < one->worker_count; i++)
		all &= one->workers[i].ready;
	if (all)
		one->busy_until_ms = world->now_ms;
}

static void wire_done(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct wire_asked *asked = context;
	(void)result, (void)error;
	if (asked->ended++)
		broken(wired.world, "each call ends once", &wired.world->instances[asked->instance], "it ends again");
	wire_answered(wired.world, asked, status);
}

static void wire_ask(struct world *world, struct instance *instance, int part, bool opens)
{
	const struct worker *worker = &instance->workers[part];
	char id[48];
	if (wired.asked_count == WIRE_ASKED) {
		broken(world, "the table of calls is long enough", instance, "it is not");
		return;
	}
	struct wire_asked *asked = &wired.asked[wired.asked_count++];
	struct json *params = json_new_object();
	struct rpc *rpc = &wired.nodes[worker->device].server;
	*asked = (struct wire_asked){.device = worker->device,
				     .instance = (int)(instance - world->instances),
				     .part = part,
				     .epoch = worker->epoch,
				     .due_ms = world->now_ms + WIRE_PATIENCE_MS,
				     .opens = opens,
				     .sent = true};
	snprintf(id, sizeof id, "%d %llu %d %d", asked->instance, (unsigned long long)asked->epoch, part,
		 worker->units);
	json_set_string(params, "worker_id", id);
	if (opens) {
		json_set_string(params, "key", "k");
		json_set_string(params, "backend", world->planted == PLANTED_WRONG_PARAMS ? "GPU" : "cuda");
	}
	const struct rpc_ask ask = {.method = opens ? "tenant.open" : "tenant.close",
				    .params = params,
				    .patience_ms = WIRE_PATIENCE_MS,
				    .done = wire_done,
				    .context = asked};
	wire_calls++;
	if (rpc_call(rpc, &ask)) { // told in the next turn
		asked->sent = false;
		asked->due_ms = world->now_ms;
	}
	asked->id = rpc->last_id;
}

static void wire_open(struct world *world, struct instance *instance, int part)
{
	wire_ask(world, instance, part, true);
}

static void wire_close(struct world *world, struct instance *instance, int part)
{
	if (world->planted != PLANTED_NO_CLOSE || draw(world, 4))
		wire_ask(world, instance, part, false);
}

// ---- the node's end ----

static void wire_check_room(struct world *world, const struct wire_node *node)
{
	int units = 0;
	for (unsigned i = 0; i < node->worker_count; i++)
		units += node->workers[i].units;
	if (units > world->planning->capacity)
		broken(world, "no memory has two owners", NULL, "a node has more workers than it has memory for");
}

// A call that waited while the node was cut off may come after another node has heard of a newer placement.
static void wire_check_epoch(struct world *world, struct wire_node *node, const struct wire_worker *worker)
{
	uint64_t *newest = &node->newest[worker->instance];
	bool again = worker->epoch < *newest;
	for (unsigned i = 0; i < node->worker_count; i++)
		again |= node->workers[i].instance == worker->instance && node->workers[i].part == worker->part &&
			 node->workers[i].epoch == worker->epoch;
	if (again)
		broken(world, "epochs only grow", &world->instances[worker->instance],
		       "a node is asked for a placement of before");
	*newest = worker->epoch > *newest ? worker->epoch : *newest;
}

static enum wire_fate wire_draw_fate(struct world *world, bool opens)
{
	const uint64_t drawn = draw(world, 60);
	enum wire_fate fate = world->faults && drawn && drawn < FATES ? (enum wire_fate)drawn : FATE_WELL;
	if (!opens && fate == FATE_REFUSED)
		fate = FATE_WELL;
	wire_fates[fate]++;
	return fate;
}

static struct wire_worker *wire_find(struct wire_node *node, int instance, int part, uint64_t epoch)
{
	for (unsigned i = 0; i < node->worker_count; i++)
		if (node->workers[i].instance == instance && node->workers[i].part == part &&
		    node->workers[i].epoch == epoch)
			return &node->workers[i];
	return NULL;
}

static enum status wire_serve(void *arg, const struct message *message, struct error *error)
{
	struct wire_node *node = arg;
	struct world *world = wired.world;
	struct wire_worker worker = {.unwanted_ms = -1};
	unsigned long long epoch;
	const bool opens = !strcmp(message->method, "tenant.open");
	const enum wire_fate fate = wire_draw_fate(world, opens);
	int64_t id = 0;
	if (!rpc_read_id(message, &id) || node->worker_count == WIRE_HELD || node->answer_count == WIRE_HELD ||
	    sscanf(json_get_string(message->params, "worker_id", ""), "%d %llu %d %d", &worker.instance, &epoch,
		   &worker.part, &worker.units) != 4)
		return error_set(error, STATUS_INVALID_PARAMS, "no such worker");
	worker.epoch = epoch;
	struct wire_worker *there = wire_find(node, worker.instance, worker.part, worker.epoch);
	if (opens)
		wire_check_epoch(world, node, &worker);
	if (fate == FATE_REFUSED)
		return error_set(error, STATUS_UNAVAILABLE, "the node does not want to");
	if (opens)
		node->workers[node->worker_count++] = worker;
	else if (there)
		*there = node->workers[--node->worker_count];
	wire_check_room(world, node);
	node->answers[node->answer_count++] = (struct wire_answer){.id = id,
								   .opens = opens,
								   .fate = fate,
								   .instance = worker.instance,
								   .part = worker.part,
								   .epoch = worker.epoch,
								   .at_ms = world->now_ms + 1 +
									    (int64_t)draw(world, opens ? 3000 : 20) +
									    (fate == FATE_LATE ? WIRE_PATIENCE_MS : 0)};
	return STATUS_PENDING;
}

// A worker that was ended while it was opened is an error by then.
static void wire_answer(struct wire_node *node, const struct wire_answer *answer)
{
	struct wire_worker *worker = wire_find(node, answer->instance, answer->part, answer->epoch);
	struct json *id = json_new_integer(answer->id);
	if (answer->opens && worker)
		worker->loaded = true;
	for (int i = 0; i < 1 + (answer->fate == FATE_TWICE) && answer->fate != FATE_LOST; i++) {
		struct error gone = {0};
		struct json *result = json_new_object(), *sandbox = json_new_object();
		json_set(sandbox, "applied", json_new_array());
		json_set(sandbox, "missing", json_new_array());
		if (answer->fate != FATE_BREACH)
			json_set_number(result, answer->opens ? "started_ms" : "ended_ms", 1);
		if (answer->opens)
			json_set(result, "sandbox", sandbox);
		else
			json_destroy(&sandbox);
		error_set(&gone, STATUS_NOT_FOUND, "the worker was ended");
		// Without its method: in debug builds a result that breaks the contract would be our own fault.
		rpc_answer(&node->node, NULL, id, result, answer->opens && !worker ? &gone : NULL);
	}
	json_destroy(&id);
}

// ---- connections ----

static const struct rpc_method wire_methods[] = {{"tenant.open", wire_serve}, {"tenant.close", wire_serve}};

static void wire_connect(int device)
{
	struct wire_node *node = &wired.nodes[device];
	rpc_init(&node->server, &(struct rpc_params){.contract = wired.contract,
						     .serves = "node-to-server",
						     .peer = "the node",
						     .most_calls = WIRE_HELD,
						     .send = wire_send_to_node,
						     .now_ms = wire_now,
						     .arg = node});
	rpc_init(&node->node, &(struct rpc_params){.contract = wired.contract,
						   .serves = "server-to-node",
						   .peer = "the server",
						   .methods = wire_methods,
						   .method_count = sizeof wire_methods / sizeof *wire_methods,
						   .most_calls = WIRE_HELD,
						   .send = wire_send_to_server,
						   .now_ms = wire_now,
						   .arg = node});
	node->to_node_ms = node->to_server_ms = 0;
	node->answer_count = 0;
	node->open = true;
}

// With a word to who waits, unless the server is gone.
static void wire_disconnect(int device, const struct error *error)
{
	struct wire_node *node = &wired.nodes[device];
	unsigned kept = 0;
	if (!node->open)
		return;
	node->open = false;
	for (unsigned i = 0; i < wired.letter_count; i++)
		if (wired.letters[i].device != device)
			wired.letters[kept++] = wired.letters[i];
	wired.letter_count = kept;
	rpc_close(&node->node, NULL);
	rpc_close(&node->server, error);
}

static void wire_begin(struct world *world)
{
	struct contract *contract = wired.contract;
	if (!contract && contract_create(&contract, CONTRACT_NODE, NULL))
		abort();
	for (int i = 0; i < DEVICES && wired.world; i++)
		wire_disconnect(i, NULL);
	memset(&wired, 0, sizeof wired);
	wired.contract = contract;
	wired.world = world;
	for (int i = 0; i < DEVICES; i++)
		wire_connect(i);
	for (int i = 0; i < INSTANCES; i++) {
		const struct instance *one = &world->instances[i];
		for (unsigned j = 0; j < one->worker_count; j++) {
			struct wire_node *node = &wired.nodes[one->workers[j].device];
			node->newest[i] = one->epoch;
			node->workers[node->worker_count++] = (struct wire_worker){.instance = i,
										   .part = (int)j,
										   .units = one->workers[j].units,
										   .epoch = one->epoch,
										   .loaded = true,
										   .unwanted_ms = -1};
		}
	}
}

static void wire_back(struct world *world, int device)
{
	(void)world;
	if (!wired.nodes[device].open)
		wire_connect(device);
}

static void wire_lease_ends(struct world *world, int device)
{
	struct error error = {0};
	(void)world;
	error_set(&error, STATUS_UNAVAILABLE, "the node is lost");
	wired.nodes[device].worker_count = 0;
	wire_disconnect(device, &error);
}

// The workers that are adopted are of the server's new epoch; nobody wants the others.
static void wire_restart(struct world *world)
{
	for (int i = 0; i < DEVICES; i++) {
		struct wire_node *node = &wired.nodes[i];
		unsigned kept = 0;
		wire_disconnect(i, NULL);
		for (unsigned j = 0; j < node->worker_count; j++) {
			struct wire_worker *worker = &node->workers[j];
			const struct instance *one = &world->instances[worker->instance];
			if ((unsigned)worker->part >= one->worker_count || !one->workers[worker->part].alive ||
			    one->workers[worker->part].device != i || !worker->loaded)
				continue;
			worker->epoch = one->epoch;
			node->workers[kept++] = *worker;
		}
		node->worker_count = kept;
	}
	for (unsigned i = 0; i < wired.asked_count; i++)
		wired.asked[i].ended = 1; // with their server
}

// ---- time ----

static int wire_next_letter(const struct world *world)
{
	int next = -1;
	for (unsigned i = 0; i < wired.letter_count; i++) {
		const struct wire_letter *one = &wired.letters[i];
		if (world->devices[one->device].online &&
		    (next < 0 || one->at_ms < wired.letters[next].at_ms ||
		     (one->at_ms == wired.letters[next].at_ms && one->order < wired.letters[next].order)))
			next = (int)i;
	}
	return next;
}

static int64_t wire_next(const struct world *world)
{
	const int letter = wire_next_letter(world);
	int64_t next = letter < 0 ? INT64_MAX : wired.letters[letter].at_ms;
	for (unsigned i = 0; i < wired.asked_count; i++)
		if (!wired.asked[i].ended && wired.asked[i].due_ms < next && wired.asked[i].due_ms > world->now_ms)
			next = wired.asked[i].due_ms;
	for (int i = 0; i < DEVICES; i++)
		for (unsigned j = 0; j < wired.nodes[i].answer_count; j++)
			if (wired.nodes[i].answers[j].at_ms < next)
				next = wired.nodes[i].answers[j].at_ms;
	return next;
}

// An answer that nobody waits for is passed over; a server that takes it is a fault that is planted.
static void wire_deliver(const struct wire_letter *letter)
{
	struct wire_node *node = &wired.nodes[letter->device];
	struct error error = {0};
	const enum rpc_heard heard = rpc_receive(letter->to_node ? &node->node : &node->server,
						 (const uint8_t *)letter->text, strlen(letter->text), false, &error);
	if (heard == RPC_GARBAGE || (heard == RPC_REFUSED && error.status != STATUS_UNAVAILABLE))
		broken(wired.world, "both ends understand each other", NULL, error.message);
	if (heard != RPC_UNASKED)
		return;
	wire_unasked++;
	const char *id = strstr(letter->text, "\"id\":");
	for (unsigned i = 0; i < wired.asked_count && wired.world->planted == PLANTED_ENDS_TWICE && id; i++)
		if (wired.asked[i].device == letter->device && wired.asked[i].id == strtoll(id + 5, NULL, 10))
			wire_done(&wired.asked[i], STATUS_OK, NULL, &error);
}

static void wire_happen(struct world *world)
{
	for (int at; (at = wire_next_letter(world)) >= 0 && wired.letters[at].at_ms <= world->now_ms;) {
		const struct wire_letter letter = wired.letters[at];
		wired.letters[at] = wired.letters[--wired.letter_count];
		wire_deliver(&letter);
	}
	for (int i = 0; i < DEVICES; i++) {
		struct wire_node *node = &wired.nodes[i];
		for (unsigned j = 0; j < node->answer_count;) {
			const struct wire_answer answer = node->answers[j];
			if (answer.at_ms > world->now_ms) {
				j++;
				continue;
			}
			node->answers[j] = node->answers[--node->answer_count];
			wire_answer(node, &answer);
		}
		if (node->open && world->planted != PLANTED_NO_DEADLINE)
			rpc_expire(&node->server);
	}
	for (unsigned i = 0; i < wired.asked_count; i++)
		if (!wired.asked[i].sent && !wired.asked[i].ended)
			wire_done(&wired.asked[i], STATUS_UNAVAILABLE, NULL, NULL);
}

// ---- what must hold ----

// The server believes in this worker of a node.
static bool wire_is_wanted(const struct world *world, int device, const struct wire_worker *worker)
{
	const struct instance *one = &world->instances[worker->instance];
	return (unsigned)worker->part < one->worker_count && one->workers[worker->part].alive &&
	       one->workers[worker->part].device == device && one->workers[worker->part].epoch == worker->epoch;
}

static void wire_check(struct world *world)
{
	int64_t waited_ms;
	for (int i = 0; i < DEVICES; i++) {
		struct wire_node *node = &wired.nodes[i];
		if (node->open && rpc_late(&node->server, &waited_ms))
			broken(world, "a call ends by its deadline", NULL, world->devices[i].name);
		for (unsigned j = 0; j < node->worker_count; j++) {
			struct wire_worker *worker = &node->workers[j];
			if (wire_is_wanted(world, i, worker))
				worker->unwanted_ms = -1;
			else if (worker->unwanted_ms < 0)
				worker->unwanted_ms = world->now_ms;
			else if (world->now_ms - worker->unwanted_ms > WIRE_BEHIND_MS)
				broken(world, "no worker is left behind", &world->instances[worker->instance],
				       world->devices[i].name);
		}
	}
	for (int i = 0; i < INSTANCES; i++) {
		struct instance *one = &world->instances[i];
		for (unsigned j = 0; j < one->worker_count && one->state == INSTANCE_RUNNING; j++) {
			const int device = one->workers[j].device;
			const struct wire_worker *worker = wire_find(&wired.nodes[device], i, (int)j, one->epoch);
			if (one->workers[j].alive && (!worker || !worker->loaded))
				broken(world, "what runs has its workers", one, world->devices[device].name);
		}
	}
}

static const struct wire real_wire = {.begin = wire_begin,
				      .open = wire_open,
				      .close = wire_close,
				      .back = wire_back,
				      .lease_ends = wire_lease_ends,
				      .restart = wire_restart,
				      .next = wire_next,
				      .happen = wire_happen,
				      .check = wire_check};
