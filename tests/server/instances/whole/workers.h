/* The workers of the simulated nodes: they speak schema/node.json by the real rpc, load in virtual time, and generate
 * tokens that count from 0, so that a lost or repeated one is seen. What they hold of devices is known here, whatever
 * the server believes. What a node does about its workers is in nodes.h. */
#pragma once
#include "tests/server/instances/whole/wire.h"

enum { TOKEN_MS = 150 };

static void worker_dies(struct sim_worker *worker, const char *why);
static int64_t ring_slow_ms(const struct sim_worker *last);
static void devices_work(const struct sim_worker *last);

// A step of a worker that is due later; it may be dead by then.
struct worker_step {
	struct sim_worker *worker;
	int64_t id; // of the call that it answers
	uint64_t turn;
	unsigned slot;
	bool fails;
};

static struct worker_step *step_create(struct sim_worker *worker)
{
	struct worker_step *step = virtual_memory(sizeof *step);
	step->worker = worker;
	return step;
}

static bool is_fenced(const struct sim_worker *worker)
{
	const struct sim_node *node = &world.nodes[worker->node];
	return node->cut && virtual.now_ms - node->cut_ms >= LIMIT_LEASE_MS;
}

static enum status worker_send_up(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	const struct sim_worker *worker = arg;
	(void)body;
	if (worker->conn && worker->conn->node_open)
		post_letter(worker->conn, true, head->data, head->length, 0);
	return STATUS_OK; // what is said while the server is away is lost
}

// As a worker should, or, while there are faults, now and then twice or against the contract: the server ends it then.
static void answer_call(struct sim_worker *worker, const char *method, int64_t id, struct json *result,
			const struct error *error)
{
	struct json *number = json_new_integer(id);
	const enum fate fate = draw_fate();
	if (fate == FATE_BREACH || fate == FATE_TWICE)
		note_death(worker); // the server ends it
	if (fate == FATE_BREACH && result)
		json_set_string(result, "surprise", "!");
	if (fate == FATE_TWICE)
		rpc_answer(&worker->rpc, method, number, json_copy(result), error);
	rpc_answer(&worker->rpc, fate == FATE_BREACH ? NULL : method, number, result, error);
	json_destroy(&number);
}

// ---- loading ----

static struct json *loaded_json(const struct sim_worker *worker)
{
	struct json *result = json_new_object(), *memory = json_new_array();
	for (unsigned i = 0; i < worker->stage_count; i++) {
		struct json *one = json_new_object();
		json_set_integer(one, "weights_bytes", (int64_t)stage_bytes(&worker->stages[i]));
		json_set_integer(one, "kv_bytes", (int64_t)MIB);
		json_set_integer(one, "workspace_bytes", (int64_t)MIB);
		json_set_integer(one, "host_bytes", (int64_t)(worker->stages[i].host_layers * LAYER_BYTES));
		json_push(memory, one);
	}
	json_set(result, "memory", memory);
	json_set_number(result, "load_ms", 1000);
	json_set_integer(result, "loaded_bytes", (int64_t)MIB);
	json_set(result, "chat_template", json_new_null());
	json_set_integer(result, "vocabulary", 32000);
	json_set_integer(result, "embedding", 4096);
	return result;
}

static void has_loaded(void *arg)
{
	struct worker_step *step = arg;
	struct sim_worker *worker = step->worker;
	struct error error = {0};
	if (!worker->dead && step->fails) {
		worker->stage_count = 0;
		worker->loading = false;
		error_set(&error, draw(2) ? STATUS_OUT_OF_MEMORY : STATUS_UNAVAILABLE, "it does not load");
		answer_call(worker, "instance.load", step->id, NULL, &error);
	} else if (!worker->dead) {
		worker->loading = false;
		worker->loaded = true;
		world.loads++;
		answer_call(worker, "instance.load", step->id, loaded_json(worker), NULL);
	}
}

static void is_loading(void *arg)
{
	struct worker_step *step = arg;
	if (!step->worker->dead && step->worker->loading) {
		struct json *params = json_new_object();
		json_set_integer(params, "loaded_bytes", (int64_t)(stage_bytes(&step->worker->stages[0]) / 2));
		json_set_integer(params, "total_bytes", (int64_t)stage_bytes(&step->worker->stages[0]));
		rpc_notify(&step->worker->rpc, "instance.progress", params);
	}
}

static void check_room(void)
{
	for (unsigned i = 0; i < ALL_DEVICES; i++)
		if (used_bytes(i) > capacity_bytes(i))
			broken("no memory has two owners", "%s has %llu MiB loaded of %llu", world.devices[i].name,
			       (unsigned long long)(used_bytes(i) / MIB),
			       (unsigned long long)(capacity_bytes(i) / MIB));
}

// A part of a placement is loaded once, and placements have epochs of their own, which grow.
static void check_epoch(struct sim_worker *worker, const char *instance_id)
{
	snprintf(worker->instance_id, sizeof worker->instance_id, "%s", instance_id);
	for (unsigned i = 0; i < world.worker_count && instance_id[0]; i++) {
		const struct sim_worker *one = &world.workers[i];
		if (one != worker && !strcmp(one->instance_id, instance_id) &&
		    (one->epoch > worker->epoch || (one->epoch == worker->epoch && one->index == worker->index)))
			broken("epochs only grow", "%s: part %u of epoch %llu after part %u of %llu", instance_id,
			       worker->index, (unsigned long long)worker->epoch, one->index,
			       (unsigned long long)one->epoch);
	}
}

static enum status serve_load(void *arg, const struct message *message, struct error *error)
{
	struct sim_worker *worker = arg;
	struct worker_step *step = step_create(worker), *half = step_create(worker);
	const struct json *part = json_get(message->params, "part");
	const int64_t ms = draw_ms(100, draw(6) ? 2500 : 9000);
	(void)error;
	rpc_read_id(message, &step->id);
	step->fails = world.faults && !draw(12);
	worker->loading = true;
	worker->percent = 100;
	worker->epoch = (uint64_t)json_get_integer(part, "epoch", 0);
	worker->index = (unsigned)json_get_integer(part, "index", 0);
	worker->count = (unsigned)json_get_integer(part, "count", 1);
	worker->stage_count = 0;
	for (const struct json *one = json_first(json_get(message->params, "stages")); one; one = json_next(one)) {
		unsigned device = 0;
		while (device + 1 < ALL_DEVICES &&
		       strcmp(world.devices[device].device_id, json_get_string(one, "hardware_key", "")) != 0)
			device++;
		worker->stages[worker->stage_count++] = (struct sim_stage){
			.device = device,
			.first_layer = (unsigned)json_get_integer(one, "first_layer", 0),
			.layer_count = (unsigned)json_get_integer(one, "layer_count", 0),
			.host_layers = (unsigned)json_get_integer(one, "host_layers", 0)};
		world.spills += worker->stages[worker->stage_count - 1].host_layers != 0;
	}
	check_room();
	check_epoch(worker, json_get_string(part, "instance_id", ""));
	virtual_after(ms / 2, is_loading, half);
	virtual_after(ms, has_loaded, step);
	return STATUS_PENDING;
}

static enum status serve_adopt(void *arg, const struct message *message, struct error *error)
{
	struct sim_worker *worker = arg;
	const struct json *part = json_get(message->params, "part");
	int64_t id = 0;
	rpc_read_id(message, &id);
	if (!worker->loaded)
		return error_set(error, STATUS_CONFLICT, "nothing is loaded");
	worker->epoch = (uint64_t)json_get_integer(message->params, "epoch", 0);
	worker->index = (unsigned)json_get_integer(part, "index", worker->index);
	worker->count = (unsigned)json_get_integer(part, "count", worker->count);
	worker->percent = 100;
	memset(worker->generations, 0, sizeof worker->generations);
	world.adoptions++;
	answer_call(worker, "instance.adopt", id, loaded_json(worker), NULL);
	return STATUS_PENDING;
}

// ---- the ring ----

static struct sim_worker *worker_before(const struct sim_worker *worker)
{
	for (unsigned i = 0; i < world.worker_count; i++)
		if (!world.workers[i].dead && world.workers[i].hop_out[0] &&
		    !strcmp(world.workers[i].hop_out, worker->hop_in))
			return &world.workers[i];
	return NULL;
}

// Whether a step goes around: all parts are there, in order, of one epoch, each with all it needs of the model.
static bool ring_works(struct sim_worker *last)
{
	struct sim_worker *one = last;
	if (last->count < 2)
		return last->loaded && !is_fenced(last);
	for (unsigned i = 0; i < last->count; i++) {
		struct sim_worker *before = one->hop_in[0] ? worker_before(one) : NULL;
		if (!one->loaded || is_fenced(one) || world.nodes[one->node].cut || one->epoch != last->epoch ||
		    !before || before->index != (one->index + last->count - 1) % last->count)
			return false;
		one = before;
	}
	return one == last;
}

static void has_checked(void *arg)
{
	struct worker_step *step = arg;
	if (!step->worker->dead && !ring_works(step->worker)) {
		virtual_after(100, has_checked, step); // the token is late
		return;
	}
	if (!step->worker->dead) {
		struct json *result = json_new_object();
		json_set(result, "parts", json_new_array());
		json_set_number(result, "round_ms", 1);
		json_set_number(result, "logit", 1);
		json_set_integer(result, "token", 7);
		json_set_number(result, "expected_logit", 1);
		json_set_number(result, "spread", 1);
		answer_call(step->worker, "instance.check", step->id, result, NULL);
	}
}

static enum status serve_check(void *arg, const struct message *message, struct error *error)
{
	struct worker_step *step = step_create(arg);
	(void)error;
	step->worker->percent = 100;
	rpc_read_id(message, &step->id);
	virtual_after(draw_ms(5, 200), has_checked, step);
	return STATUS_PENDING;
}

// ---- requests ----

static void next_token(void *arg);

static void token_later(struct sim_worker *worker, unsigned slot)
{
	struct worker_step *step = step_create(worker);
	step->slot = slot;
	step->turn = ++worker->generations[slot].turn;
	const int64_t ms = draw_ms(TOKEN_MS / 2, TOKEN_MS * 3 / 2) + ring_slow_ms(worker);
	virtual_after(worker->percent ? ms * 100 / worker->percent : ms, next_token, step);
}

static void tell_token(struct sim_worker *worker, const struct sim_generation *generation)
{
	char text[16];
	struct json *params = json_new_object(), *tokens = json_new_array();
	snprintf(text, sizeof text, "%u ", generation->at);
	json_push(tokens, json_new_integer(1000 + generation->at));
	json_set_integer(params, "request", generation->number);
	json_set(params, "tokens", tokens);
	json_set_string(params, "text", text);
	rpc_notify(&worker->rpc, "generate.delta", params);
}

static void tell_end(struct sim_worker *worker, const struct sim_generation *generation, const char *reason)
{
	struct json *params = json_new_object();
	json_set_integer(params, "request", generation->number);
	json_set_string(params, "reason", reason);
	json_set_integer(params, "prompt_tokens", 1);
	json_set_integer(params, "cached_tokens", 0);
	json_set_integer(params, "generated_tokens", generation->at);
	json_set_number(params, "queued_ms", 0);
	json_set_number(params, "prompt_ms", 0);
	json_set_number(params, "generate_ms", 1);
	rpc_notify(&worker->rpc, "generate.end", params);
}

static void next_token(void *arg)
{
	struct worker_step *step = arg;
	struct sim_worker *worker = step->worker;
	struct sim_generation *generation = &worker->generations[step->slot];
	const bool current = !worker->dead && generation->number && generation->turn == step->turn;
	const unsigned slot = step->slot;
	if (!current)
		return;
	if (!ring_works(worker) || !worker->percent) {
		token_later(worker, slot);
		return;
	}
	devices_work(worker);
	if (generation->at == generation->most) {
		tell_end(worker, generation, "length");
		generation->number = 0;
		return;
	}
	tell_token(worker, generation);
	generation->at++;
	token_later(worker, slot);
}

static enum status serve_start(void *arg, const struct message *message, struct error *error)
{
	struct sim_worker *worker = arg;
	const struct json *tokens = json_first(json_get(message->params, "generated"));
	unsigned slot = 0;
	int64_t id = 0;
	while (slot < WORKER_REQUESTS && worker->generations[slot].number)
		slot++;
	if (slot == WORKER_REQUESTS || !rpc_read_id(message, &id))
		return error_set(error, STATUS_RATE_LIMITED, "it has enough to do");
	if (!worker->loaded || worker->index + 1 != worker->count)
		broken("requests go to the part that generates", "%s", worker->worker_id);
	struct sim_generation *generation = &worker->generations[slot];
	generation->number = json_get_integer(message->params, "request", 0);
	generation->most = (unsigned)json_get_integer(message->params, "max_tokens", 1);
	generation->at = 0;
	for (; tokens; tokens = json_next(tokens), generation->at++) {
		int64_t token = 0;
		json_integer(tokens, &token);
		if (token != 1000 + generation->at)
			broken("a request goes on where it was", "token %u is told as %lld", generation->at,
			       (long long)token);
	}
	struct json *result = json_new_object();
	json_set_integer(result, "prompt_tokens", 1);
	answer_call(worker, "generate.start", id, result, NULL);
	token_later(worker, slot);
	return STATUS_PENDING;
}

static enum status serve_cancel(void *arg, const struct message *message, struct error *error)
{
	struct sim_worker *worker = arg;
	const int64_t number = json_get_integer(message->params, "request", 0);
	(void)error;
	for (unsigned i = 0; i < WORKER_REQUESTS; i++)
		if (worker->generations[i].number == number) {
			tell_end(worker, &worker->generations[i], "cancelled");
			worker->generations[i].number = 0;
		}
	return STATUS_OK;
}

static enum status serve_pace(void *arg, const struct message *message, struct error *error)
{
	struct sim_worker *worker = arg;
	(void)error;
	worker->percent = (unsigned)json_get_integer(message->params, "percent", 100);
	return STATUS_OK;
}

static enum status serve_nothing(void *arg, const struct message *message, struct error *error)
{
	(void)arg, (void)message, (void)error;
	return STATUS_OK;
}

static const struct rpc_method worker_methods[] = {
	{"instance.load", serve_load},   {"instance.adopt", serve_adopt},   {"instance.check", serve_check},
	{"generate.start", serve_start}, {"generate.cancel", serve_cancel}, {"generate.forget", serve_nothing},
	{"instance.pace", serve_pace},
};

// ---- a line to the server ----

static void worker_hello(struct sim_worker *worker)
{
	struct buffer text;
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", worker->worker_id);
	json_set_string(params, "key", worker->key);
	worker->conn = conn_create(CONN_WORKER, worker->node, worker);
	if (!worker->conn) {
		json_destroy(&params);
		return;
	}
	buffer_init(&text, 4096);
	message_print_call(&text, NULL, "link.hello", params);
	post_letter(worker->conn, true, text.data, text.length, 0);
	buffer_finish(&text);
}

static struct sim_worker *worker_create(unsigned node, const struct json *params)
{
	if (world.worker_count == WORKERS)
		abort();
	struct sim_worker *worker = &world.workers[world.worker_count++];
	*worker = (struct sim_worker){
		.starting = true, .node = node, .count = 1, .percent = 100, .unwanted_ms = -1, .unpaced_ms = -1};
	snprintf(worker->worker_id, sizeof worker->worker_id, "%s", json_get_string(params, "worker_id", ""));
	snprintf(worker->key, sizeof worker->key, "%s", json_get_string(params, "key", ""));
	worker->ring = json_get_bool(params, "ring", false);
	rpc_init(&worker->rpc, &(struct rpc_params){.contract = server.node_contract,
						    .serves = "server-to-worker",
						    .peer = "the server",
						    .methods = worker_methods,
						    .method_count = sizeof worker_methods / sizeof *worker_methods,
						    .most_calls = 16,
						    .send = worker_send_up,
						    .arg = worker});
	return worker;
}
