/* The simulated nodes: they dial the server, register, tell of devices and readings, start and end workers, connect
 * hops, and keep workers of models for a while without the server, as engine/node does. They speak schema/node.json by
 * the real rpc; their faults are test_whole.c's. */
#pragma once
#include "tests/server/instances/whole/heat.h"

enum { READING_MS = 2000, REDIAL_MS = 1500, GIVE_UP_MS = 8000 };

static void node_dial(void *arg);
static void worker_return(void *arg);

// ---- the ends of workers ----

// It is gone, whoever ended it: its memory is free.
static void worker_gone(struct sim_worker *worker)
{
	if (worker->dead)
		return;
	worker->dead = true;
	worker->stage_count = 0;
	conn_close(worker->conn, 1000);
	worker->conn = NULL;
	rpc_close(&worker->rpc, NULL);
	hop_breaks(worker->hop_in);
	hop_breaks(worker->hop_out);
}

// By itself: its node tells of it.
static void worker_dies(struct sim_worker *worker, const char *why)
{
	struct sim_node *node = &world.nodes[worker->node];
	struct json *params = json_new_object();
	if (worker->dead) {
		json_destroy(&params);
		return;
	}
	TRACE("worker %s on %s dies: %s", worker->worker_id, node->name, why);
	note_death(worker);
	json_set_string(params, "worker_id", worker->worker_id);
	json_set_string(params, "message", why);
	if (node->uplink && node->registered)
		rpc_notify(&node->rpc, "tenant.ended", params);
	else
		json_destroy(&params);
	worker_gone(worker);
}

// ---- what the server asks ----

static void answer_opened(void *arg)
{
	struct node_step *step = arg;
	struct error error = {0};
	if (step->life == step->node->life && !step->worker->dead) {
		struct json *result = json_new_object(), *sandbox = json_new_object();
		json_set(sandbox, "applied", json_new_array());
		json_set(sandbox, "missing", json_new_array());
		json_set_number(result, "started_ms", 1);
		json_set(result, "sandbox", sandbox);
		step->worker->starting = false; // it is open
		node_answer(step->node, "tenant.open", step->id, result, NULL);
	} else if (step->life == step->node->life) {
		error_set(&error, STATUS_UNAVAILABLE, "the worker did not start");
		node_answer(step->node, "tenant.open", step->id, NULL, &error);
	}
}

static enum status serve_open(void *arg, const struct message *message, struct error *error)
{
	struct sim_node *node = arg;
	if (world.faults && !draw(25))
		return error_set(error, STATUS_UNAVAILABLE, "the node starts no worker now");
	struct node_step *step = node_step(node);
	step->worker = worker_create(node->number, message->params);
	rpc_read_id(message, &step->id);
	TRACE("%s opens %s", node->name, step->worker->worker_id);
	worker_hello(step->worker);
	virtual_after(draw_ms(5, 400), answer_opened, step);
	return STATUS_PENDING;
}

static void answer_closed(void *arg)
{
	struct node_step *step = arg;
	struct json *result = json_new_object();
	json_set_number(result, "ended_ms", 1);
	if (step->worker && step->life == step->node->life)
		worker_gone(step->worker);
	if (step->life == step->node->life)
		node_answer(step->node, "tenant.close", step->id, result, NULL);
	else
		json_destroy(&result);
}

static enum status serve_close(void *arg, const struct message *message, struct error *error)
{
	struct sim_node *node = arg;
	struct node_step *step = node_step(node);
	(void)error;
	step->worker = sim_worker_by_id(json_get_string(message->params, "worker_id", ""));
	if (step->worker && step->worker->node != node->number)
		step->worker = NULL;
	step->id = -1;
	rpc_read_id(message, &step->id);
	virtual_after(draw_ms(1, draw(5) ? 60 : 1500), answer_closed, step);
	return STATUS_PENDING;
}

static void answer_fetched(void *arg)
{
	struct node_step *step = arg;
	struct error error = {0};
	struct json *result = json_new_object();
	json_set_integer(result, "fetched_bytes", 1000);
	json_set_integer(result, "reused_bytes", 0);
	error_set(&error, STATUS_UNAVAILABLE, "the model could not be fetched");
	if (step->life == step->node->life)
		node_answer(step->node, "model.fetch", step->id, result, world.faults && !draw(30) ? &error : NULL);
	else
		json_destroy(&result);
}

static void tell_fetching(void *arg)
{
	const struct node_step *step = arg;
	struct sim_node *node = step->node;
	if (step->life != node->life || !node->uplink || !node->registered || virtual.now_ms >= step->until_ms)
		return;
	struct json *params = json_new_object();
	json_set_string(params, "model_id", step->model_id);
	json_set_integer(params, "fetched_bytes", 500);
	json_set_integer(params, "total_bytes", 1000);
	rpc_notify(&node->rpc, "model.fetching", params);
	virtual_after(LIMIT_FETCH_TELL_MS, tell_fetching, arg);
}

// Now and then it takes long, and its node tells of that all the time.
static enum status serve_fetch(void *arg, const struct message *message, struct error *error)
{
	struct node_step *step = node_step(arg);
	const int64_t ms = draw_ms(5, draw(4) ? 300 : draw(8) ? 4000 : 60000);
	(void)error;
	rpc_read_id(message, &step->id);
	snprintf(step->model_id, sizeof step->model_id, "%s", json_get_string(message->params, "model_id", ""));
	step->until_ms = virtual.now_ms + ms;
	if (world.faults && !draw(40)) { // it hangs
		TRACE("%s never answers model.fetch", world.nodes[step->node->number].name);
		return STATUS_PENDING;
	}
	virtual_after(LIMIT_FETCH_TELL_MS, tell_fetching, step);
	virtual_after(ms, answer_fetched, step);
	return STATUS_PENDING;
}

static enum status serve_no(void *arg, const struct message *message, struct error *error)
{
	(void)arg, (void)message, (void)error;
	return STATUS_OK;
}

static const struct rpc_method node_methods[] = {
	{"tenant.open", serve_open}, {"tenant.close", serve_close},  {"model.fetch", serve_fetch},
	{"model.forget", serve_no},  {"hop.connect", serve_connect}, {"node.peers", serve_no},
	{"node.watch", serve_no},    {"node.servers", serve_no},     {"device.verify", serve_no},
};

// ---- connected ----

static struct json *node_json(const struct sim_node *node)
{
	static const char *const unknown[] = {"os",        "kernel",      "arch",        "cpu_model",
					      "cpu_cores", "cpu_threads", "memory_bytes"};
	static const char *const lists[] = {"addresses", "backends", "libraries", "capabilities"};
	struct json *json = json_new_object();
	json_set_integer(json, "link_port", 0);
	json_set_string(json, "node_id", node->node_id);
	json_set_string(json, "name", node->name);
	json_set_string(json, "host_name", node->name);
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		json_set(json, unknown[i], json_new_null());
	json_set_string(json, "version", EXOGPU_VERSION);
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		json_set(json, lists[i], json_new_array());
	return json;
}

static struct json *device_json(const struct sim_device *device)
{
	static const char *const unknown[] = {"family",      "memory_budget_bytes", "largest_buffer_bytes",
					      "api_version", "driver_version",      "uuid",
					      "pci_address", "support_reason",      "compute_units"};
	static const char *const lists[] = {"apis", "formats", "features", "peers"};
	static const char *const no[] = {"removable", "low_power", "unified_memory"};
	const unsigned number = (unsigned)(device - world.devices);
	struct json *json = json_new_object(), *verification = json_new_object();
	json_set_string(json, "device_id", device->device_id);
	json_set_string(json, "hardware_key", device->device_id);
	json_set_string(json, "name", device->name);
	json_set_string(json, "vendor", "v");
	json_set_string(json, "model", "m");
	json_set_string(json, "backend", number < DEVICES ? "cuda" : "cpu");
	json_set_string(json, "kind", number < DEVICES ? "discrete" : "cpu");
	json_set_string(json, "memory_pool", "");
	json_set_integer(json, "memory_bytes", (int64_t)capacity_bytes(number));
	json_set_number(json, "memory_bandwidth_bytes_per_s", number < DEVICES ? 5e11 + 1e11 * number : 4e10);
	json_set_string(json, "support", "full");
	json_set_bool(json, "present", !device->absent);
	for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
		json_set(json, unknown[i], json_new_null());
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		json_set(json, lists[i], json_new_array());
	for (size_t i = 0; i < sizeof no / sizeof *no; i++)
		json_set_bool(json, no[i], false);
	json_set_string(verification, "state", "passed");
	json_set(verification, "at", json_new_null());
	json_set_number(verification, "duration_ms", 1);
	json_set(verification, "error", json_new_null());
	json_set(json, "verification", verification);
	return json;
}

static void tell_devices(struct sim_node *node)
{
	struct json *params = json_new_object(), *list = json_new_array();
	for (unsigned i = 0; i < node->device_count; i++)
		json_push(list, device_json(&world.devices[node->first_device + i]));
	if (world.kinds & KIND_SPILL)
		json_push(list, device_json(&world.devices[host_of(node->number)]));
	json_set(params, "devices", list);
	rpc_notify(&node->rpc, "node.devices", params);
}

static void tell_readings(void *arg)
{
	struct node_step *step = arg;
	struct sim_node *node = step->node;
	if (step->conn != node->uplink || !node->uplink)
		return;
	struct json *params = json_new_object(), *list = json_new_array();
	for (unsigned i = 0; i < node->device_count; i++)
		if (!world.devices[node->first_device + i].absent)
			json_push(list, reading_json(node->first_device + i));
	if (world.kinds & KIND_SPILL)
		json_push(list, reading_json(host_of(node->number)));
	json_set(params, "node", json_new_null());
	json_set(params, "devices", list);
	rpc_notify(&node->rpc, "node.telemetry", params);
	if (world.kinds & KIND_LINKS)
		tell_links(node);
	virtual_after(READING_MS, tell_readings, step);
}

static void registered_here(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct sim_node *node = context;
	(void)result, (void)error;
	if (status)
		return; // its connection ends, or it dials again
	node->registered = true;
	tell_devices(node);
	struct node_step *step = node_step(node);
	step->conn = node->uplink;
	virtual_after(draw_ms(1, READING_MS), tell_readings, step);
	for (unsigned i = 0; i < world.worker_count; i++) {
		struct sim_worker *worker = &world.workers[i];
		if (worker->node != node->number || worker->dead || worker->conn)
			continue;
		struct node_step *back = node_step(node);
		back->worker = worker;
		virtual_after(draw_ms(1, 500), worker_return, back);
	}
}

static void worker_return(void *arg)
{
	struct node_step *step = arg;
	const struct sim_node *node = step->node;
	if (step->life == node->life && node->uplink && node->registered && !step->worker->dead && !step->worker->conn)
		worker_hello(step->worker);
	if (!step->worker->dead && !step->worker->conn && step->life == node->life) // again, while it is kept
		virtual_after(500, worker_return, step);
}

static void dial_later(struct sim_node *node, int64_t ms)
{
	virtual_after(ms, node_dial, node_step(node));
}

static void node_dial(void *arg)
{
	struct node_step *step = arg;
	struct sim_node *node = step->node;
	const bool current = step->life == node->life && !node->uplink && !node->down;
	if (!current)
		return;
	if (!(node->uplink = conn_create(CONN_NODE, node->number, NULL))) {
		dial_later(node, draw_ms(200, REDIAL_MS));
		return;
	}
	rpc_init(&node->rpc, &(struct rpc_params){.contract = server.node_contract,
						  .serves = "server-to-node",
						  .peer = "the server",
						  .methods = node_methods,
						  .method_count = sizeof node_methods / sizeof *node_methods,
						  .most_calls = 64,
						  .send = node_send,
						  .arg = node});
	struct json *params = json_new_object(), *kept = json_new_array();
	for (unsigned i = 0; i < world.worker_count; i++)
		if (!world.workers[i].dead && world.workers[i].node == node->number)
			json_push(kept, json_new_string(world.workers[i].worker_id));
	json_set_integer(params, "protocol", 1);
	json_set(params, "node", node_json(node));
	json_set(params, "workers", kept);
	node->away_ms = -1;
	rpc_call(&node->rpc,
		 &(struct rpc_ask){
			 .method = "node.register", .params = params, .done = registered_here, .context = node});
}

// ---- without the server ----

static void away_too_long(void *arg)
{
	struct node_step *step = arg;
	const struct sim_node *node = step->node;
	if (step->life == node->life && node->away_ms >= 0 && virtual.now_ms - node->away_ms >= LIMIT_AWAY_MS)
		for (unsigned i = 0; i < world.worker_count; i++)
			if (world.workers[i].node == node->number)
				worker_gone(&world.workers[i]);
}

// Its control connection is gone: workers that were open are kept for a while.
static void node_loses_server(struct sim_node *node, int code)
{
	struct net_conn *conn = node->uplink;
	if (!conn)
		return;
	node->uplink = NULL;
	node->registered = false;
	node->away_ms = virtual.now_ms;
	rpc_close(&node->rpc, NULL);
	conn_close(conn, code);
	for (unsigned i = 0; i < world.worker_count; i++) {
		struct sim_worker *worker = &world.workers[i];
		if (worker->dead || worker->node != node->number)
			continue;
		if (worker->starting) { // it was not open yet
			worker_gone(worker);
			continue;
		}
		conn_close(worker->conn, 1000);
		worker->conn = NULL;
	}
	virtual_after(LIMIT_AWAY_MS, away_too_long, node_step(node));
	dial_later(node, draw_ms(50, REDIAL_MS));
}

static void line_again(struct sim_worker *worker)
{
	struct node_step *step = node_step(&world.nodes[worker->node]);
	step->worker = worker;
	virtual_after(draw_ms(10, 600), worker_return, step);
}

static void node_closed(struct net_conn *conn, int code)
{
	struct sim_node *node = &world.nodes[conn->node];
	const bool open = conn->node_open;
	conn->node_open = false;
	if (!open)
		return;
	if (conn->kind == CONN_NODE) {
		if (node->uplink == conn)
			node_loses_server(node, 1000);
	} else if (conn->kind == CONN_HOP) {
		hop_breaks(conn->hop_id);
	} else if (conn->worker->conn == conn && !conn->worker->dead) {
		conn->worker->conn = NULL;
		if (code == 4410 || conn->worker->starting) // the server has ended it, or it was not open yet
			worker_gone(conn->worker);
		else
			line_again(conn->worker);
	}
}

static void node_heard(struct net_conn *conn, const char *bytes, size_t length)
{
	struct sim_node *node = &world.nodes[conn->node];
	struct error error = {0};
	enum rpc_heard heard = RPC_SERVED;
	if (conn->kind == CONN_NODE && node->uplink == conn)
		heard = rpc_receive(&node->rpc, (const uint8_t *)bytes, length, false, &error);
	else if (conn->kind == CONN_WORKER && conn->worker->conn == conn && !conn->worker->dead)
		heard = rpc_receive(&conn->worker->rpc, (const uint8_t *)bytes, length, false, &error);
	if (heard == RPC_BROKEN || heard == RPC_GARBAGE ||
	    (heard == RPC_REFUSED && error.status != STATUS_UNAVAILABLE && error.status != STATUS_NOT_FOUND &&
	     error.status != STATUS_CONFLICT && error.status != STATUS_RATE_LIMITED))
		broken("both ends understand each other", "%.200s: %.200s", error.message, bytes);
	if (conn->kind != CONN_HOP || conn->worker->dead || conn->hop_call < 0)
		return;
	take_hop(conn->worker, conn->end, conn->hop_id, false); // the server says hello: both are there
	node_answer(node, "hop.connect", conn->hop_call, json_new_object(), NULL);
	conn->hop_call = -1;
}

// ---- what happens to nodes ----

static void gives_up(void *arg)
{
	struct node_step *step = arg;
	struct sim_node *node = step->node;
	if (step->life == node->life && node->cut && virtual.now_ms - node->cut_ms >= GIVE_UP_MS)
		node_loses_server(node, 1006);
}

static void node_cut(struct sim_node *node)
{
	node->cut = true;
	node->cut_ms = virtual.now_ms;
	TRACE("%s is cut off", node->name);
	virtual_after(GIVE_UP_MS, gives_up, node_step(node));
}

static void node_uncut(struct sim_node *node)
{
	if (!node->cut)
		return;
	TRACE("%s is reached again", node->name);
	node->cut = false;
	wire_back(node->number);
}

static void node_ends(struct sim_node *node)
{
	TRACE("%s ends", node->name);
	node->life++;
	node->down = true;
	for (unsigned i = 0; i < world.worker_count; i++)
		if (world.workers[i].node == node->number)
			worker_gone(&world.workers[i]);
	if (node->uplink) {
		rpc_close(&node->rpc, NULL);
		conn_close(node->uplink, 1006);
	}
	for (struct net_conn *conn = world.conns; conn; conn = conn->next)
		if (conn->node == node->number)
			conn_close(conn, 1006);
	node->uplink = NULL;
	node->registered = false;
	node->away_ms = -1;
}

static void node_starts(struct sim_node *node)
{
	if (!node->down)
		return;
	node->down = false;
	dial_later(node, draw_ms(1, 500));
}
