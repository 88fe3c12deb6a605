/* Fuzz target: what a browser tab says while it gets the weights of its layers and passes on what a ring brings
 * (server/instances/parts/parts_tab.c).
 *
 * The first three bytes choose the sizes of its three tensors. Each line then is an event:
 *
 *     0TEXT to 9TEXT  the tab answers the question of that number among those that wait, by TEXT; an answer outside
 *                     the contract is an error, as for every caller of a worker
 *     !               and ?: the oldest question fails; it fails since the tab is lost
 *     r, f            the piece that is read is there; its file has changed
 *     n               the next question is refused, since too much waits
 *     lN              five seconds and N more are over
 *     +, -            a message of the ring has come to the tab; has gone from it
 *     X               all ends
 *
 * Every byte of every tensor is sent or kept once, in order, none is asked for beyond its end, and only then are the
 * layers loaded, once; two pieces at most are under way, one is read; nothing is offered to a tab that keeps nothing;
 * after a failure or the end nothing more is asked; a tab is ended for silence only if it has kept a message for as
 * long as that. */
#include "common/base/log.h"
#include "server/instances/parts/parts_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 96, TENSORS = 3, TAB = 1, PARTS = 3, QUESTIONS = 8, PIECE = 2 * 1024 * 1024 };

struct question {
	const char *method;
	cluster_answer *answer;
	void *context;
	size_t tensor;
	uint64_t bytes;
};

static struct {
	struct contract *contract;
	struct net_frame *frame;
	struct instances all;
	struct instance instance;
	struct parts *parts;
	uint64_t sizes[TENSORS], told[TENSORS]; // told: how much of each was read
	uint64_t there;                         // bytes that the tab has said it has
	struct question questions[QUESTIONS];   // (count)
	size_t count;
	struct shards_read_params read; // bytes 0: none
	struct net_timer *look;
	void (*look_fn)(void *arg);
	int64_t now_ms, quiet_since_ms;
	uint64_t come, gone;
	bool refuse, keeps, loading, failed, over;
} world;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static struct part *tab(void)
{
	return &world.parts->part[TAB];
}

// ---- its worker ----

enum status __wrap_instance_worker_call(struct instance_worker *worker, const char *method, struct json *params,
					cluster_answer *answer, void *context, struct error *error);
enum status __wrap_instance_worker_write(struct instance_worker *worker, const char *method, struct json *params,
					 struct net_frame *frame, size_t bytes, cluster_answer *answer, void *context,
					 struct error *error);
void __wrap_instance_worker_fail(struct instance_worker *worker, const char *why);
void __wrap_instance_worker_destroy(struct instance_worker **worker, const char *why);

static void forget(void)
{
	if (world.parts)
		parts_destroy(&world.parts, "it is over");
	world.over = true;
}

static enum status ask(const char *method, struct json *params, uint64_t bytes, cluster_answer *answer, void *context,
		       struct error *error)
{
	const struct contract_method *known = contract_find(world.contract, method);
	const size_t tensor = (size_t)json_get_integer(params, "tensor", 0);
	static bool opened; // the same each time
	if (!opened || strcmp(method, "stage.open") != 0)
		require(known && !contract_check_params(world.contract, known, params, NULL));
	opened = true;
	json_destroy(&params);
	require(!world.failed && !world.over && !world.loading && world.count < QUESTIONS);
	if (world.refuse) {
		world.refuse = false;
		return error_set(error, STATUS_LIMIT_EXCEEDED, "too much waits");
	}
	world.questions[world.count++] = (struct question){method, answer, context, tensor, bytes};
	return STATUS_OK;
}

enum status __wrap_instance_worker_call(struct instance_worker *worker, const char *method, struct json *params,
					cluster_answer *answer, void *context, struct error *error)
{
	const bool offer = !strcmp(method, "stage.offer");
	require(worker && (!offer || world.keeps));
	return ask(method, params, offer ? (uint64_t)json_get_integer(params, "bytes", 0) : 0, answer, context, error);
}

enum status __wrap_instance_worker_write(struct instance_worker *worker, const char *method, struct json *params,
					 struct net_frame *frame, size_t bytes, cluster_answer *answer, void *context,
					 struct error *error)
{
	require(worker && frame == world.frame && bytes);
	return ask(method, params, bytes, answer, context, error);
}

// Its end is told at once, and everything ends with it.
void __wrap_instance_worker_fail(struct instance_worker *worker, const char *why)
{
	require(worker && why[0] && world.come > world.gone && world.now_ms - world.quiet_since_ms >= SILENCE_PASS_MS);
	forget();
}

void __wrap_instance_worker_destroy(struct instance_worker **worker, const char *why)
{
	require(why[0]);
	*worker = NULL;
}

// ---- the model's file ----

struct json *__wrap_shards_stage_json(const struct shards_file *file, unsigned part);
bool __wrap_shards_stage_tensor(const struct shards_file *file, unsigned part, size_t index, uint64_t *offset,
				uint64_t *bytes);
enum status __wrap_shards_allow(struct shards_file *file, const char *node_id, const char *key);
enum status __wrap_shards_read_start(struct shards_read **out, struct shards *shards,
				     const struct shards_read_params *params, struct error *error);
void __wrap_shards_read_cancel(struct shards_read **read);
void __wrap_shards_close(struct shards_file **file);

struct json *__wrap_shards_stage_json(const struct shards_file *file, unsigned part)
{
	static const char text[] =
		"{\"first_layer\":1,\"layer_count\":1,\"embeds\":false,\"tensors\":[],\"shape\":{\"embedding\":32,"
		"\"feed_forward\":32,\"heads\":1,\"kv_heads\":1,\"head_size\":32,\"vocabulary\":32,\"norm_epsilon\":1,"
		"\"embedding_scale\":1,\"attention_scale\":1,\"gate\":\"silu\",\"qkv_bias\":false,\"qk_norm\":false,"
		"\"rope_size\":0,\"rope_halves\":false,\"rope_magnitude\":1,\"rope_frequency\":[],\"unturned\":[]}}";
	static struct json *json;
	(void)file;
	require(part == TAB && (json || !json_parse(&json, text, sizeof text - 1, NULL)));
	return json_copy(json);
}

bool __wrap_shards_stage_tensor(const struct shards_file *file, unsigned part, size_t index, uint64_t *offset,
				uint64_t *bytes)
{
	(void)file;
	require(part == TAB && index <= TENSORS);
	if (index == TENSORS)
		return false;
	*offset = index << 32;
	*bytes = world.sizes[index];
	return true;
}

enum status __wrap_shards_allow(struct shards_file *file, const char *node_id, const char *key)
{
	(void)file;
	require(!strcmp(node_id, "nod_t") && strlen(key) == PARTS_KEY_BYTES - 1);
	return STATUS_OK;
}

enum status __wrap_shards_read_start(struct shards_read **out, struct shards *shards,
				     const struct shards_read_params *params, struct error *error)
{
	const size_t tensor = (size_t)(params->offset >> 32);
	(void)shards, (void)error;
	require(!world.read.bytes && !world.failed && !world.over && params->bytes && params->bytes <= PIECE);
	require(tensor < TENSORS && (uint32_t)params->offset == world.told[tensor]);
	world.told[tensor] += params->bytes;
	require(world.told[tensor] <= world.sizes[tensor]);
	for (size_t i = 0; i < tensor; i++)
		require(world.told[i] == world.sizes[i]);
	world.read = *params;
	*out = (struct shards_read *)&world.read;
	return STATUS_OK;
}

void __wrap_shards_read_cancel(struct shards_read **read)
{
	require(!*read || world.read.bytes);
	if (*read)
		world.read.bytes = 0;
	*read = NULL;
}

void __wrap_shards_close(struct shards_file **file)
{
	*file = NULL;
}

// ---- the rest of its instance ----

void __wrap_parts_fail_at(struct parts *parts, unsigned part, const char *what, const struct error *error);
void __wrap_parts_load(struct part *part);
void __wrap_parts_limit_step(struct parts *parts);
void __wrap_parts_disconnect(struct parts *parts);
void __wrap_recover_moved(struct instance *instance);
void __wrap_instance_parts_moved(struct instance *instance);
int64_t __wrap_instances_now(const struct instances *all);
uint64_t __wrap_hop_relay_passed(const struct hop *hop);
void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg);
void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer);

void __wrap_parts_fail_at(struct parts *parts, unsigned part, const char *what, const struct error *error)
{
	require(part == TAB && what[0] && error->message[0] && !world.loading);
	parts->failed = world.failed = true;
}

void __wrap_parts_load(struct part *part)
{
	require(part == tab() && !world.loading && !world.failed && !world.over && !world.count);
	for (size_t i = 0; i < TENSORS; i++)
		require(world.told[i] == world.sizes[i]);
	require(part->loaded_bytes == part->load_bytes && world.there == part->load_bytes);
	world.loading = true;
	parts_tab_watch(world.parts); // as once the ring stands
}

void __wrap_parts_limit_step(struct parts *parts)
{
	require(parts == world.parts && !world.failed && !world.over);
}

void __wrap_parts_disconnect(struct parts *parts)
{
	for (unsigned i = 0; i < parts->count; i++)
		parts->part[i].hop = NULL;
	__wrap_net_timer_stop(NULL, &parts->watch);
}

void __wrap_recover_moved(struct instance *instance)
{
	require(instance == &world.instance && world.there <= tab()->load_bytes);
}

void __wrap_instance_parts_moved(struct instance *instance)
{
	require(instance == &world.instance && tab()->loaded_bytes <= tab()->load_bytes);
}

int64_t __wrap_instances_now(const struct instances *all)
{
	require(all == &world.all);
	return world.now_ms;
}

uint64_t __wrap_hop_relay_passed(const struct hop *hop)
{
	return (const void *)hop == &world.come ? world.come : world.gone;
}

void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg)
{
	(void)loop;
	require(timer == &world.parts->watch && arg == world.parts && delay_ms > 0);
	world.look = timer;
	world.look_fn = fn;
}

void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer)
{
	(void)loop;
	world.look = world.look == timer ? NULL : world.look;
}

// ---- what happens ----

static void answer(size_t which, enum status status, const char *text, size_t length)
{
	struct error error = {0};
	struct json *result = NULL;
	if (which >= world.count)
		return;
	const struct question question = world.questions[which];
	memmove(&world.questions[which], &world.questions[which + 1],
		(--world.count - which) * sizeof *world.questions);
	if (status)
		error_set(&error, status, "the tab says no");
	else if ((status = json_parse(&result, text, length, &error)) == STATUS_OK)
		status = contract_check_result(world.contract, contract_find(world.contract, question.method), result,
					       &error);
	if (!status && !strcmp(question.method, "stage.open"))
		world.keeps = json_get_bool(result, "keeps", false);
	else if (!status && (!strcmp(question.method, "stage.write") || json_get_bool(result, "kept", false)))
		world.there += question.bytes;
	question.answer(question.context, status, status ? NULL : result, status ? &error : NULL);
	json_destroy(&result);
}

static void piece_read(bool changed)
{
	static const char sha256[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	struct error error = {0};
	const struct shards_read_params read = world.read;
	if (!read.bytes)
		return;
	world.read.bytes = 0;
	error_set(&error, STATUS_CONFLICT, "the file has changed");
	read.done(read.context, changed ? &error : NULL, changed ? NULL : world.frame, changed ? NULL : sha256);
}

static void look(unsigned more_s)
{
	struct net_timer *timer = world.look;
	world.now_ms += 5000 + 1000 * (int64_t)more_s;
	world.look = NULL;
	if (timer)
		world.look_fn(world.parts);
}

static void pass(bool came)
{
	if (!came && world.gone == world.come)
		return; // what has not come cannot go on
	if (world.come == world.gone || !came)
		world.quiet_since_ms = world.now_ms;
	world.come += came;
	world.gone += !came;
}

static void take_line(const char *line, size_t length)
{
	switch (line[0]) {
	case '!':
	case '?':
		answer(0, line[0] == '!' ? STATUS_INTERNAL : STATUS_DEVICE_LOST, NULL, 0);
		break;
	case 'r':
	case 'f':
		piece_read(line[0] == 'f');
		break;
	case 'n':
		world.refuse = true;
		break;
	case 'l':
		look(length > 1 ? (unsigned char)line[1] : 0);
		break;
	case '+':
	case '-':
		pass(line[0] == '+');
		break;
	case 'X':
		forget();
		break;
	default:
		if (line[0] >= '0' && line[0] <= '9')
			answer((size_t)(line[0] - '0'), STATUS_OK, line + 1, length - 1);
	}
	if (world.over)
		return;
	unsigned under_way = 0;
	for (unsigned i = 0; i < PART_PIECES; i++)
		under_way += tab()->pieces[i].used;
	require(world.failed ||
		under_way >= world.count - (world.count && !strcmp(world.questions[0].method, "stage.open")));
	require(world.there <= tab()->load_bytes);
}

// The size of a tensor: small, or near pieces, by a byte.
static uint64_t size_of(uint8_t byte)
{
	return (uint64_t)(byte >> 4) * PIECE / 2 + 4 * (byte & 15);
}

static void begin(const uint8_t *sizes)
{
	struct contract *contract = world.contract;
	struct net_frame *frame = world.frame;
	if (!contract) {
		log_set_level(LOG_ERROR);
		require(!contract_create(&contract, CONTRACT_NODE, NULL));
		require((frame = net_frame_create("w", 1, false)) != NULL);
	}
	memset(&world, 0, sizeof world);
	world.contract = contract;
	world.frame = frame;
	for (unsigned i = 0; i < TENSORS; i++)
		world.sizes[i] = size_of(sizes[i]);
	world.instance.all = &world.all;
	snprintf(world.instance.model_name, sizeof world.instance.model_name, "a model");
	require((world.parts = calloc(1, sizeof *world.parts)) != NULL);
	world.parts->instance = &world.instance;
	world.parts->count = PARTS;
	for (unsigned i = 0; i < PARTS; i++)
		world.parts->part[i] = (struct part){.parts = world.parts,
						     .index = i,
						     .tab = i == TAB,
						     .worker = (struct instance_worker *)&world.all};
	snprintf(tab()->node_id, sizeof tab()->node_id, "nod_t");
	world.parts->part[TAB - 1].hop = (struct hop *)&world.come;
	tab()->hop = (struct hop *)&world.gone;
	parts_tab_send(tab());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < TENSORS)
		return 0;
	begin(data);
	for (size_t at = TENSORS, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		const size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length)
			take_line((const char *)data + at, length);
		at += length + 1;
	}
	forget();
	while (world.count) // who answers now is heard by nobody
		answer(0, STATUS_DEVICE_LOST, NULL, 0);
	require(!world.look && !world.read.bytes);
	return 0;
}
