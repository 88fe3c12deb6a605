/* Hops between the workers of a ring: by way of the server, or by the direct link of two nodes, which may be slow or
 * cut. What a node answers is here, too. */
#pragma once
#include "tests/server/instances/whole/workers.h"

struct node_step {
	struct sim_node *node;
	uint64_t life;
	struct sim_worker *worker;
	struct net_conn *conn;
	int64_t id;
	char model_id[16]; // that it fetches, and until when
	int64_t until_ms;
};

static struct node_step *node_step(struct sim_node *node)
{
	struct node_step *step = virtual_memory(sizeof *step);
	*step = (struct node_step){.node = node, .life = node->life};
	return step;
}

static enum status node_send(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	const struct sim_node *node = arg;
	(void)body;
	if (!node->uplink || !node->uplink->node_open)
		return STATUS_UNAVAILABLE;
	post_letter(node->uplink, true, head->data, head->length, 0);
	return STATUS_OK;
}

// As a node should, or, while there are faults, now and then twice, against the contract, or not at all.
static void node_answer(struct sim_node *node, const char *method, int64_t id, struct json *result,
			const struct error *error)
{
	struct json *number = json_new_integer(id);
	const enum fate fate = draw_fate();
	if (!node->uplink || fate == FATE_LOST) {
		json_destroy(&result);
	} else if (fate == FATE_BREACH) {
		json_set_string(result, "surprise", "!");
		rpc_answer(&node->rpc, NULL, number, result, error);
	} else {
		if (fate == FATE_TWICE)
			rpc_answer(&node->rpc, method, number, json_copy(result), error);
		rpc_answer(&node->rpc, method, number, result, error);
	}
	json_destroy(&number);
}

// ---- the ends of hops ----

static void tell_hop_ended(struct sim_worker *worker, const char *end, const char *hop_id)
{
	struct sim_node *node = &world.nodes[worker->node];
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", worker->worker_id);
	json_set_string(params, "end", end);
	json_set_string(params, "hop_id", hop_id);
	json_set_string(params, "message", "the other end was closed");
	if (node->uplink && node->registered)
		rpc_notify(&node->rpc, "hop.ended", params);
	else
		json_destroy(&params);
}

static void hop_breaks(const char *hop_id)
{
	char id[40];
	snprintf(id, sizeof id, "%s", hop_id);
	for (struct net_conn *conn = world.conns; conn; conn = conn->next)
		if (conn->kind == CONN_HOP && !strcmp(conn->hop_id, id))
			conn_close(conn, 1006);
	for (unsigned i = 0; i < world.worker_count && id[0]; i++) {
		struct sim_worker *one = &world.workers[i];
		const bool in = !strcmp(one->hop_in, id), out = !strcmp(one->hop_out, id);
		if (in)
			one->hop_in[0] = 0;
		if (out)
			one->hop_out[0] = 0;
		if (in && !one->dead)
			tell_hop_ended(one, "in", id);
		if (out && !one->dead)
			tell_hop_ended(one, "out", id);
	}
}

// ---- direct links ----

// A node has been asked for one end, and waits for the other node.
static void forget_end(struct sim_end *end)
{
	end->worker = NULL;
}

static struct sim_end *find_end(const char *hop_id)
{
	for (unsigned i = 0; i < SIM_ENDS; i++)
		if (world.ends[i].worker && !strcmp(world.ends[i].hop_id, hop_id))
			return &world.ends[i];
	return NULL;
}

static void answer_end(struct sim_worker *worker, int64_t call, const struct error *error)
{
	struct sim_node *node = &world.nodes[worker->node];
	if (!worker->dead)
		node_answer(node, "hop.connect", call, error ? NULL : json_new_object(), error);
}

static void take_hop(struct sim_worker *worker, const char *end, const char *hop_id, bool direct)
{
	char *own = end[0] == 'i' ? worker->hop_in : worker->hop_out;
	snprintf(own, sizeof worker->hop_in, "%s", hop_id);
	if (end[0] == 'o')
		worker->direct = direct;
	world.direct_hops += direct && end[0] == 'o';
}

static enum status connect_direct(struct sim_worker *worker, const struct json *params, int64_t call,
				  struct error *error)
{
	const char *end = json_get_string(params, "end", ""), *hop_id = json_get_string(params, "hop_id", "");
	struct sim_end *other = find_end(hop_id);
	if (other && (other->worker->dead || other->life != world.nodes[other->worker->node].life)) {
		forget_end(other);
		other = NULL;
	}
	if (!other) {
		for (unsigned i = 0; i < SIM_ENDS; i++)
			if (!world.ends[i].worker) {
				struct sim_end *own = &world.ends[i];
				*own = (struct sim_end){
					.worker = worker, .call = call, .life = world.nodes[worker->node].life};
				snprintf(own->hop_id, sizeof own->hop_id, "%s", hop_id);
				snprintf(own->end, sizeof own->end, "%s", end);
				return STATUS_PENDING;
			}
		return error_set(error, STATUS_UNAVAILABLE, "the node has no room for more hops");
	}
	const struct sim_end met = *other;
	forget_end(other);
	if (world.links[worker->node][met.worker->node] == LINK_CUT) {
		error_set(error, STATUS_UNAVAILABLE, "the link is cut");
		answer_end(met.worker, met.call, error);
		return error->status;
	}
	take_hop(worker, end, hop_id, true);
	take_hop(met.worker, met.end, hop_id, true);
	answer_end(met.worker, met.call, NULL);
	answer_end(worker, call, NULL);
	return STATUS_PENDING;
}

static struct sim_worker *worker_after(const struct sim_worker *worker)
{
	for (unsigned i = 0; i < world.worker_count && worker->hop_out[0]; i++)
		if (!world.workers[i].dead && !strcmp(world.workers[i].hop_in, worker->hop_out))
			return &world.workers[i];
	return NULL;
}

static enum link_state hop_link(const struct sim_worker *worker, const struct sim_worker *next)
{
	return worker->direct && next ? world.links[worker->node][next->node] : LINK_UP;
}

// What a step around the ring waits for slow links.
static int64_t ring_slow_ms(const struct sim_worker *last)
{
	int64_t ms = 0;
	const struct sim_worker *one = last;
	for (unsigned i = 0; i < last->count && one && last->count > 1; i++) {
		const struct sim_worker *next = worker_after(one);
		ms += hop_link(one, next) == LINK_SLOW ? SLOW_MS : 0;
		ms += !one->direct && next && (world.nodes[one->node].slow || world.nodes[next->node].slow) ? SLOW_MS
													    : 0;
		one = next;
	}
	return ms;
}

static void tell_links(struct sim_node *node);

static void link_becomes(unsigned one, unsigned other, enum link_state state)
{
	static const char *const words[] = {[LINK_UP] = "well", [LINK_SLOW] = "slow", [LINK_CUT] = "cut"};
	if (one == other || world.links[one][other] == state)
		return;
	TRACE("the link of %s and %s is %s", world.nodes[one].name, world.nodes[other].name, words[state]);
	world.broken_links += state != LINK_UP;
	world.links[one][other] = world.links[other][one] = state;
	for (unsigned i = 0; i < world.worker_count && state == LINK_CUT; i++) {
		struct sim_worker *worker = &world.workers[i], *next = worker_after(worker);
		if (!worker->dead && hop_link(worker, next) == LINK_CUT)
			hop_breaks(worker->hop_out);
	}
	tell_links(&world.nodes[one]);
	tell_links(&world.nodes[other]);
}

static struct json *link_json(const struct sim_node *node, const struct sim_node *peer)
{
	static const char *const unknown[] = {"interface",           "address",          "jitter_ms",
					      "loss_percent",        "sent_bytes_per_s", "throughput_back_bytes_per_s",
					      "interface_bits_per_s"};
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	const enum link_state state = world.links[node->number][peer->number];
	json_set_string(json, "peer_id", peer->node_id);
	json_set_string(json, "state", state == LINK_CUT ? "down" : "up");
	json_set_string(json, "reason", state == LINK_CUT ? "nothing answers" : NULL);
	json_set_string(json, "class", "ethernet");
	json_set_number(json, "rtt_ms", state == LINK_SLOW ? (double)SLOW_MS : 0.2);
	json_set_number(json, "throughput_bytes_per_s", state == LINK_SLOW ? 1e5 : 1e9);
	json_set_string(json, "throughput_at", clock_format(clock_wall_ms(), at));
	json_set_string(json, "measured_at", at);
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		json_set(json, unknown[i], json_new_null());
	return json;
}

static void tell_links(struct sim_node *node)
{
	if (!node->uplink || !node->registered)
		return;
	struct json *params = json_new_object(), *list = json_new_array();
	for (unsigned i = 0; i < NODES; i++)
		if (i != node->number && world.nodes[i].registered)
			json_push(list, link_json(node, &world.nodes[i]));
	json_set(params, "links", list);
	rpc_notify(&node->rpc, "node.links", params);
}

// ---- what the server asks ----

static enum status serve_connect(void *arg, const struct message *message, struct error *error)
{
	struct sim_node *node = arg;
	struct buffer text;
	const struct json *params = message->params;
	struct sim_worker *worker = sim_worker_by_id(json_get_string(params, "worker_id", ""));
	const char *end = json_get_string(params, "end", ""), *hop_id = json_get_string(params, "hop_id", "");
	if (!worker || worker->node != node->number || !worker->ring)
		return error_set(error, STATUS_NOT_FOUND, "there is no such worker");
	if (world.faults && !draw(40))
		return error_set(error, STATUS_UNAVAILABLE, "the hop cannot be connected");
	const bool direct = strcmp(json_get_string(params, "via", ""), "server") != 0;
	int64_t call = -1;
	if (direct && rpc_read_id(message, &call))
		return connect_direct(worker, params, call, error);
	struct net_conn *conn = conn_create(CONN_HOP, node->number, worker);
	if (!conn)
		return error_set(error, STATUS_UNAVAILABLE, "the server takes no more streams");
	snprintf(conn->hop_id, sizeof conn->hop_id, "%s", hop_id);
	snprintf(conn->end, sizeof conn->end, "%s", end);
	rpc_read_id(message, &conn->hop_call);
	struct json *hello = json_new_object();
	json_set_string(hello, "hop_id", hop_id);
	json_set_string(hello, "key", json_get_string(params, "key", ""));
	json_set_string(hello, "end", end);
	buffer_init(&text, 4096);
	message_print_call(&text, NULL, "hop.hello", hello);
	post_letter(conn, true, text.data, text.length, 0);
	buffer_finish(&text);
	return STATUS_PENDING;
}
