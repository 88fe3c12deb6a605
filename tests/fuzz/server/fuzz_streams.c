/* Fuzz target: what comes on the connections that nodes open beside their own: ends of hops by way of the server
 * (hop.hello, server/tenants), a model's worker that has outlived a server (link.hello, and what it answers to
 * instance.adopt), and pieces of model files (model.read, server/library/shards.h).
 *
 * Each line is for one of four connections, by its first byte: `a` is of this machine's owner, `b` and `c` are of nodes
 * n1 and n2, `m` reads a model as n1. `A`, `B`, `C` close what the small letter names, `d` empties all queues. The rest
 * is a message's head and, after a tab, its body; `%` stands for the key. Hop h goes from n1 to n2, and worker w is of
 * n1: whenever it has come it is asked to be taken up, each time by one number more from ADOPTION on, and what it
 * answers is heard once, and is what the contract says. Where the first line is `t`, n1 is a browser tab: `b` comes
 * from its page, without a certificate, and w is also sent a piece of weights each time. Nobody passes an end or is a
 * worker that is not his, all that passes comes out whole, who is paused is let go on, and nothing is read past a
 * file's end. */
#include "common/base/log.h"
#include "server/cluster/state.h"
#include "server/library/shards.h"
#include "server/tenants/hop.h"
#include "server/tenants/inside.h"
#include "tests/tools/model_file.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINES = 64, FULL = LIMIT_STREAM_FULL_BYTES, BODY_BYTES = 65536, ENDS = 3 };
enum { EPOCH = 3, ADOPTION = (EPOCH << 20) + 1 }; // server/tenants/outlive.c

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const char *const nodes[ENDS] = {"", "n1", "n2"};

struct end {
	struct line line; // first
	struct arrival *arrival;
	size_t queued, passed;
	unsigned pauses, told;
};

static struct {
	struct net_loop *loop;
	struct contract *contract;
	struct shards *shards;
	struct shards_file *file;
	uint64_t file_bytes;
	bool opened, answered;
	size_t asked;
	struct tenancy tenants;
	struct end ends[ENDS];
	struct hop *hop;
	struct cluster cluster; // of nobody: no node can be asked
	struct cluster_node node;
	struct cluster_device device;
	struct instance_worker *worker;
	unsigned adoptions;   // of it that are not answered
	unsigned writes;      // likewise
	struct json *browser; // the record of n1 where it is a tab
} world;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the server's ends ----

static enum status end_send(struct line *line, const struct net_parts *parts)
{
	struct end *end = (struct end *)line;
	if (end->queued > 4 * FULL)
		return STATUS_LIMIT_EXCEEDED;
	end->told++;
	if (!end->arrival || !end->arrival->worker) // else it is weights
		end->passed += parts->body_bytes;
	end->queued += parts->head_bytes + parts->body_bytes * 256; // so that it is full now and then
	return STATUS_OK;
}

static size_t end_queued(const struct line *line)
{
	return ((const struct end *)line)->queued;
}

static void end_pause(struct line *line)
{
	((struct end *)line)->pauses++;
}

static void end_resume(struct line *line)
{
	struct end *end = (struct end *)line;
	require(end->pauses-- > 0);
}

static void end_destroy(struct line **line)
{
	struct end *end = (struct end *)*line;
	*line = NULL;
	end->arrival = NULL;
}

static void open_end(unsigned which)
{
	struct end *end = &world.ends[which];
	*end = (struct end){.line = {.send = end_send,
				     .queued = end_queued,
				     .pause = end_pause,
				     .resume = end_resume,
				     .destroy = end_destroy}};
	const bool tab = which == 1 && world.node.record;
	end->arrival = arrival_create(&world.tenants, &end->line, tab ? "192.0.2.9" : nodes[which], tab);
	require(end->arrival != NULL);
}

static void close_end(unsigned which)
{
	struct arrival *arrival = world.ends[which].arrival;
	world.ends[which].arrival = NULL;
	if (arrival)
		arrival_closed(arrival, "it was closed");
}

static void hop_ended(void *context)
{
	(void)context;
	world.hop = NULL;
}

static void hear(unsigned which, struct net_parts *parts)
{
	struct end *end = &world.ends[which];
	if (!end->arrival)
		open_end(which);
	if (parts->body_bytes) {
		parts->holder = net_frame_create(parts->body, parts->body_bytes, false);
		require(parts->holder != NULL);
		parts->body = net_frame_data(parts->holder);
	}
	size_t passed = 0, now = 0;
	for (unsigned i = 0; i < ENDS; i++)
		passed += world.ends[i].passed;
	const bool was_linked = end->arrival->linked;
	arrival_message(end->arrival, parts);
	for (unsigned i = 0; i < ENDS; i++)
		now += world.ends[i].passed;
	require(now == passed || (was_linked && now == passed + parts->body_bytes));
	require(!end->arrival || !end->arrival->linked || end->arrival->worker || end->arrival->hop == world.hop);
	require(!end->arrival || !end->arrival->worker || which < 2); // the owner's, or of its node
	net_frame_unref(&parts->holder);
}

static void drain(void)
{
	for (unsigned i = 0; i < ENDS; i++) {
		world.ends[i].queued = 0;
		if (world.ends[i].arrival)
			arrival_drained(world.ends[i].arrival);
	}
	for (unsigned i = 0; i < ENDS; i++)
		require(!world.ends[i].arrival || !world.ends[i].pauses);
}

// ---- a worker that is taken up ----

static void adopted(void *context, enum status status, const struct json *result, const struct error *error)
{
	const struct contract_method *method = contract_find(world.contract, "instance.adopt");
	(void)context;
	require(world.adoptions-- > 0);
	require(status ? error && error->message[0] : !contract_check_result(world.contract, method, result, NULL));
}

// As server/instances/parts/parts_tab.c sends weights.
static void written(void *context, enum status status, const struct json *result, const struct error *error)
{
	(void)context, (void)result;
	require(world.writes-- > 0);
	require(!status || (error && error->message[0]));
}

static void send_weights(void)
{
	struct json *params = json_new_object();
	struct net_frame *piece = net_frame_create("weights", 7, false);
	json_set_integer(params, "tensor", 0);
	json_set_integer(params, "offset", 0);
	require(piece != NULL);
	world.writes++;
	if (instance_worker_write(world.worker, "stage.write", params, piece, 7, written, NULL, NULL))
		world.writes--;
	net_frame_unref(&piece);
}

static void worker_back(void *context)
{
	struct json *params = json_new_object();
	(void)context;
	require(!instance_worker_is_away(world.worker));
	json_set_integer(params, "epoch", EPOCH);
	world.adoptions++;
	if (instance_worker_call(world.worker, "instance.adopt", params, adopted, NULL, NULL))
		world.adoptions--;
	if (world.node.record)
		send_weights();
}

static void worker_told(void *context, const char *method, const struct json *params)
{
	(void)context;
	require(!contract_check_params(world.contract, contract_find(world.contract, method), params, NULL));
}

static void worker_is_away(void *context, const char *why)
{
	(void)context;
	require(why[0] && !world.adoptions && !world.writes);
}

static void worker_ended(void *context, const struct error *fault, bool died)
{
	(void)context, (void)died;
	require(fault->message[0] && !world.adoptions && !world.writes);
	world.worker = NULL;
}

static void restore_worker(void)
{
	const struct cluster_device *devices[] = {&world.device};
	struct instance_worker_left left = {.worker_id = "w", .epoch = EPOCH};
	const struct instance_worker_params params = {.instance_id = "i",
						      .model_id = "mdl_1",
						      .devices = devices,
						      .device_count = 1,
						      .notice = worker_told,
						      .away = worker_is_away,
						      .back = worker_back,
						      .ended = worker_ended};
	require(EVP_Digest(key, sizeof key - 1, left.key_sha256, NULL, EVP_sha256(), NULL) == 1);
	require(instance_worker_restore(&world.worker, &world.tenants, &params, &left, NULL) == STATUS_OK);
}

// ---- a model's bytes ----

static void file_opened(void *context, const struct error *error)
{
	(void)context;
	require(!error);
	world.opened = true;
	net_loop_stop(world.loop);
}

static void piece_done(void *context, const struct error *error, struct net_frame *frame, const char *sha256)
{
	(void)context;
	require(!error && net_frame_bytes(frame) == world.asked && strlen(sha256) == 64);
	world.answered = true;
	net_loop_stop(world.loop);
}

// As server/library/shards_link.c.
static void read_model(const struct net_parts *parts)
{
	struct message message;
	struct error error = {0};
	struct shards_read *read = NULL;
	const struct contract_method *method = contract_find(world.contract, "model.read");
	enum status status = message_decode_text(&message, (const char *)parts->head, parts->head_bytes, &error);
	if (!status && (message.kind != MESSAGE_REQUEST || strcmp(message.method, method->name) != 0))
		status = STATUS_METHOD_NOT_FOUND;
	if (!status)
		status = contract_check_params(world.contract, method, message.params, &error);
	if (!status) {
		const uint64_t offset = (uint64_t)json_get_integer(message.params, "offset", 0);
		const struct shards_read_params wanted = {
			.node_id = "n1",
			.model_id = json_get_string(message.params, "model_id", ""),
			.key = json_get_string(message.params, "key", ""),
			.offset = offset,
			.bytes = world.asked = (size_t)json_get_integer(message.params, "bytes", 0),
			.done = piece_done};
		status = shards_read_start(&read, world.shards, &wanted, &error);
		require(status || (offset <= world.file_bytes && world.asked <= world.file_bytes - offset &&
				   !strcmp(wanted.key, key)));
		require(!status || error.message[0]);
	}
	world.answered = status != STATUS_OK;
	while (!world.answered)
		net_loop_run(world.loop);
	message_finish(&message);
}

static void begin_once(void)
{
	char path[] = "/tmp/exogpu-fuzz-XXXXXX";
	const struct model_file small = model_file_small();
	const struct shards_part parts[] = {{.first_layer = 0, .layer_count = 1, .embeds = true}};
	if (world.loop)
		return;
	log_set_level(LOG_ERROR);
	int fd = mkstemp(path);
	require(fd >= 0 && !close(fd) && model_file_save(&small, path));
	require(net_loop_create(&world.loop, NULL) == STATUS_OK);
	require(contract_create(&world.contract, CONTRACT_NODE, NULL) == STATUS_OK);
	const struct shards_params params = {.loop = world.loop, .contract = world.contract};
	const struct shards_open_params file = {
		.model_id = "mdl_1", .path = path, .parts = parts, .part_count = 1, .done = file_opened};
	require(shards_create(&world.shards, &params, NULL) == STATUS_OK);
	require(shards_open(&world.file, world.shards, &file, NULL) == STATUS_OK);
	while (!world.opened)
		net_loop_run(world.loop);
	unlink(path); // it stays open
	world.file_bytes = shards_file_bytes(world.file);
	require(shards_allow(world.file, "n1", key) == STATUS_OK);
	world.tenants.params.loop = world.loop;
	world.tenants.params.contract = world.contract;
	world.tenants.params.cluster = &world.cluster;
	static struct cluster_node *known[] = {&world.node};
	world.cluster.nodes = known;
	world.cluster.node_count = 1;
	world.browser = json_new_object();
	json_set_string(world.browser, "kind", "browser");
	snprintf(world.node.node_id, sizeof world.node.node_id, "n1");
	world.device = (struct cluster_device){.device_id = "d", .node = &world.node, .record = json_new_object()};
	json_set_string(world.device.record, "backend", "cpu");
	buffer_init(&world.tenants.text, LIMIT_HEAD_BYTES);
}

static void take_line(const uint8_t *line, size_t length, struct buffer *head)
{
	const uint8_t *tab = memchr(line, '\t', length);
	const size_t own = tab ? (size_t)(tab - line) : length;
	struct net_parts parts = {.body = tab ? tab + 1 : NULL, .body_bytes = tab ? length - own - 1 : 0};
	buffer_clear(head);
	for (size_t i = 1; i < own; i++)
		buffer_append(head, line[i] == '%' ? key : (const char *)line + i, line[i] == '%' ? sizeof key - 1 : 1);
	require(!head->failed);
	parts.head = head->data;
	parts.head_bytes = head->length;
	if (line[0] == 'd')
		drain();
	else if (line[0] >= 'A' && line[0] < 'A' + ENDS)
		close_end(line[0] - 'A');
	else if (line[0] >= 'a' && line[0] < 'a' + ENDS)
		hear(line[0] - 'a', &parts);
	else if (line[0] == 'm')
		read_model(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct hop_params hop = {
		.hop_id = "h", .key = key, .out_node_id = "n1", .in_node_id = "n2", .ended = hop_ended};
	struct buffer head;
	if (size > BODY_BYTES)
		return 0;
	begin_once();
	world.node.record = size > 1 && data[0] == 't' && data[1] == '\n' ? world.browser : NULL;
	buffer_init(&head, BODY_BYTES * sizeof key);
	buffer_append(&head, "", 0);
	require(hop_relay_create(&world.hop, &world.tenants, &hop, NULL) == STATUS_OK);
	restore_worker();
	for (size_t at = 0, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		const size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length)
			take_line(data + at, length, &head);
		at += length + 1;
	}
	hop_relay_destroy(&world.hop);
	for (unsigned i = 0; i < ENDS; i++)
		close_end(i);
	instance_worker_destroy(&world.worker, "it is over");
	require(!world.tenants.arrivals && !world.tenants.not_linked && !world.tenants.hop_count);
	require(!world.tenants.tenants && !world.adoptions && !world.writes);
	buffer_finish(&head);
	return 0;
}
