/* Fuzz target: what a node is sent of a model that it fetches: by the server (model.read's answers) and, for pieces
 * that another node has, by that one (model.piece's).
 *
 * Five pieces are lacking, of which two nodes have some. Each line is a turn, by its first byte: `s`: the server
 * answers; `p`, `q`: a node does; `P`, `Q`: the link to it breaks; `w`: the oldest piece that is to be written is; `W`:
 * it has another digest; `f`: the disk is full. Where the first byte of all is `L`, the third piece comes in two parts.
 * An answer is its head and, after a tab, how many bytes its body has; `%` stands for the id that was asked for last.
 * The sockets, the disk and its thread are not there. Nobody is asked for what is not lacking, what is written has the
 * size that was asked for, and the fetch ends once, with all or an error. */
#include "common/base/log.h"
#include "common/net/ws/parts.h"
#include "engine/node/links/links_inside.h"
#include "engine/node/models/models_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 64, GAPS = 5, PEERS = 2, MOST_BODY = 2 * LIMIT_LINK_READ_BYTES, ASKED = 256 };

static struct {
	struct contract *contract;
	struct links links;
	struct link peers[PEERS];
	struct link_conn conns[PEERS];
	struct node_models models;
	struct fetch fetch;
	struct model model;
	struct outbox_item *jobs, **last_job;
	int64_t last_id[1 + PEERS]; // that the server, and each node, was asked with
	struct {
		struct link *link; // NULL: it is answered
		struct link_call call;
	} asked[ASKED]; // (asked_count): of nodes; the id is the index
	size_t asked_count;
	bool written[GAPS];
	unsigned ends;
	struct net_frame *body; // of the message that is being heard
} world;

static struct model_span gaps[GAPS] = {
	{0, 8}, {8, 5}, {100, LIMIT_LINK_READ_BYTES + 3}, {1 << 20, 8}, {(1ull << 53) - 9, 8}};

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- what is not there ----

enum status __wrap_net_conn_send_parts(struct net_conn *conn, const struct net_parts *parts);
enum status __wrap_net_conn_take_parts(struct net_conn *conn, const uint8_t *bytes, size_t length,
				       struct net_parts *parts);
void __wrap_node_models_put_job(struct node_models *models, struct disk_job *job);
void __wrap_node_models_fail(struct fetch *fetch, const struct error *error);
void __wrap_node_models_finish(struct fetch *fetch);
enum status __wrap_link_call(struct link *link, const struct link_call *call);

static size_t gap_of(uint64_t offset, uint64_t bytes)
{
	for (size_t i = 0; i < GAPS; i++)
		if (offset >= gaps[i].offset && offset + bytes <= gaps[i].offset + gaps[i].bytes)
			return i;
	abort();
}

static size_t check_asked(const char *method, const struct json *params)
{
	require(!contract_check_params(world.contract, contract_find(world.contract, method), params, NULL));
	const size_t gap = gap_of((uint64_t)json_get_integer(params, "offset", -1),
				  (uint64_t)json_get_integer(params, "bytes", 0));
	require(!world.written[gap] && !world.fetch.over);
	return gap;
}

enum status __wrap_net_conn_send_parts(struct net_conn *conn, const struct net_parts *parts)
{
	struct message message;
	(void)conn;
	require(!message_decode_text(&message, (const char *)parts->head, parts->head_bytes, NULL));
	require(!json_integer(message.id, &world.last_id[0]) && message.kind == MESSAGE_REQUEST);
	check_asked("model.read", message.params);
	message_finish(&message);
	return STATUS_OK;
}

enum status __wrap_net_conn_take_parts(struct net_conn *conn, const uint8_t *bytes, size_t length,
				       struct net_parts *parts)
{
	(void)conn;
	*parts = (struct net_parts){.head = bytes, .head_bytes = length, .holder = net_frame_ref(world.body)};
	parts->body = net_frame_data(world.body);
	parts->body_bytes = net_frame_bytes(world.body);
	return STATUS_OK;
}

enum status __wrap_link_call(struct link *link, const struct link_call *call)
{
	struct json *params = call->params;
	require(link->conn && call->patience_ms);
	check_asked(call->method, params);
	json_destroy(&params);
	if (world.asked_count == ASKED)
		return STATUS_UNAVAILABLE;
	world.asked[world.asked_count].link = link;
	world.asked[world.asked_count].call = *call;
	world.last_id[1 + (link - world.peers)] = (int64_t)world.asked_count++;
	return STATUS_OK;
}

// As links.c and rpc.c do.
static void answer_call(size_t id, const struct json *result, const struct error *error)
{
	struct link *link = world.asked[id].link;
	const struct link_call *call = &world.asked[id].call;
	world.asked[id].link = NULL;
	call->answered(link, &(struct link_answer){.context = call->context,
						   .number = call->number,
						   .result = result,
						   .body = error ? NULL : world.body,
						   .error = error});
}

// What waits for this node fails; NULL: for any.
static void end_calls(const struct link *link)
{
	const struct error error = {.status = STATUS_UNAVAILABLE, .message = "the link broke"};
	for (size_t i = 0; i < world.asked_count; i++)
		if (world.asked[i].link && (!link || world.asked[i].link == link))
			answer_call(i, NULL, &error);
}

void __wrap_node_models_put_job(struct node_models *models, struct disk_job *job)
{
	require(models == &world.models && job->kind == JOB_PUT && job->fetch == &world.fetch);
	const size_t gap = gap_of(job->piece.at.offset, job->piece.at.bytes);
	require(!world.written[gap] && job->piece.at.bytes == gaps[gap].bytes && job->piece.checked);
	require(net_frame_bytes(job->bytes) == gaps[gap].bytes);
	job->job.item.next = NULL;
	*world.last_job = &job->job.item;
	world.last_job = &job->job.item.next;
}

void __wrap_node_models_finish(struct fetch *fetch)
{
	require(!fetch->over && !world.ends++);
	fetch->over = true;
	node_models_cancel_pieces(fetch);
	for (size_t i = 0; i < GAPS && !fetch->error.status; i++)
		require(world.written[i]);
}

void __wrap_node_models_fail(struct fetch *fetch, const struct error *error)
{
	require(error->status && error->message[0]);
	if (!fetch->error.status)
		fetch->error = *error;
	if (!fetch->over)
		__wrap_node_models_finish(fetch);
}

// ---- a run ----

static void begin(bool large)
{
	static const char holders[] =
		"[{\"node_id\":\"p\",\"ranges\":[[0,13],[100,524291]]},{\"node_id\":\"q\",\"ranges\":[[8,1048576]]}]";
	struct json *list = NULL;
	if (!world.contract) {
		log_set_level(LOG_ERROR);
		require(!contract_create(&world.contract, CONTRACT_NODE, NULL));
	}
	gaps[2].bytes = large ? LIMIT_LINK_READ_BYTES + 3 : 3;
	world.links = (struct links){.params = {.contract = world.contract}, .first = &world.peers[0]};
	for (int i = 0; i < PEERS; i++) {
		world.peers[i] = (struct link){.links = &world.links, .conn = &world.conns[i], .up = true};
		world.peers[i].next = i + 1 < PEERS ? &world.peers[i + 1] : NULL;
		snprintf(world.peers[i].peer_id, sizeof world.peers[i].peer_id, "%c", "pq"[i]);
		world.conns[i] = (struct link_conn){.links = &world.links, .link = &world.peers[i]};
	}
	world.models = (struct node_models){.params = {.contract = world.contract, .links = &world.links}};
	world.model = (struct model){.id = "mdl_1"};
	world.fetch = (struct fetch){.all = &world.models,
				     .model = &world.model,
				     .key = "k",
				     .wanted = {.gaps = gaps, .gap_count = GAPS},
				     .begun = true};
	node_models_calls_init(&world.fetch);
	world.jobs = NULL;
	world.last_job = &world.jobs;
	world.ends = 0;
	world.asked_count = 0;
	memset(world.written, 0, sizeof world.written);
	require(!json_parse(&list, holders, sizeof holders - 1, NULL));
	require((world.fetch.peers = model_peers_create(&world.links, "mdl_1", list)) != NULL);
	json_destroy(&list);
	node_models_ask_more(&world.fetch);
}

static void job_done(enum status status)
{
	struct disk_job *job = (struct disk_job *)world.jobs;
	if (!job)
		return;
	world.jobs = job->job.item.next;
	if (!world.jobs)
		world.last_job = &world.jobs;
	if (status)
		error_set(&job->error, status, "it is not written");
	else
		world.written[gap_of(job->piece.at.offset, job->piece.at.bytes)] = true;
	if (status != STATUS_INVALID_REQUEST || job->from_peer || !world.fetch.over)
		node_models_piece_written(&world.fetch, job);
	net_frame_unref(&job->bytes);
	free(job);
}

static void hear_server(const struct buffer *head)
{
	node_models_take_answer(&world.fetch, NULL, head->data, head->length, world.body != NULL);
}

static void hear_peer(struct link *link, const struct buffer *head)
{
	struct message message;
	int64_t id = 0;
	struct error error = {0};
	const bool heard = !message_decode_text(&message, buffer_text(head), head->length, NULL) && link->conn &&
			   (message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR) &&
			   !json_integer(message.id, &id) && id >= 0 && (uint64_t)id < world.asked_count &&
			   world.asked[id].link == link;
	if (heard && message.kind == MESSAGE_ERROR)
		message_read_error(&message, &error);
	else if (heard)
		contract_check_result(world.contract, contract_find(world.contract, "model.piece"), message.result,
				      &error);
	if (heard)
		answer_call((size_t)id, message.result, error.status ? &error : NULL);
	message_finish(&message);
}

static void hear(size_t whom, const uint8_t *text, size_t length)
{
	struct buffer head;
	const uint8_t *tab = memchr(text, '\t', length);
	const size_t own = tab ? (size_t)(tab - text) : length;
	size_t body = 0;
	for (size_t i = own + 1; i < length && text[i] >= '0' && text[i] <= '9' && body <= MOST_BODY; i++)
		body = 10 * body + (text[i] - '0');
	world.body = tab && body <= MOST_BODY ? net_frame_alloc(body) : NULL;
	buffer_init(&head, 1 << 20);
	buffer_append(&head, "", 0);
	for (size_t i = 0; i < own; i++)
		if (text[i] == '%')
			buffer_printf(&head, "%lld", (long long)world.last_id[whom]);
		else
			buffer_append_byte(&head, text[i]);
	if (whom)
		hear_peer(&world.peers[whom - 1], &head);
	else
		hear_server(&head);
	buffer_finish(&head);
	net_frame_unref(&world.body);
}

static void turn(const uint8_t *line, size_t length)
{
	switch (line[0]) {
	case 's':
		hear(0, line + 1, length - 1);
		break;
	case 'p':
	case 'q':
		hear(1u + line[0] - 'p', line + 1, length - 1);
		break;
	case 'P':
	case 'Q':
		world.peers[line[0] - 'P'].conn = NULL;
		end_calls(&world.peers[line[0] - 'P']);
		break;
	case 'w':
		job_done(STATUS_OK);
		break;
	case 'W':
		job_done(STATUS_INVALID_REQUEST);
		break;
	case 'f':
		job_done(STATUS_LIMIT_EXCEEDED);
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin(size && data[0] == 'L');
	for (size_t at = 0, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		const size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length)
			turn(data + at, length);
		at += length + 1;
	}
	if (!world.fetch.over)
		node_models_cancel_pieces(&world.fetch);
	rpc_close(&world.fetch.rpc, NULL);
	world.fetch.over = true;
	while (world.jobs)
		job_done(STATUS_OK);
	require(!world.links.reads);
	end_calls(NULL);
	model_peers_destroy(&world.fetch.peers);
	return 0;
}
