/* Fuzz target: a node whose neighbour says anything, by the message: what fuzz_peer does by way of TLS, a hundred times
 * as fast, since the connection (common/net/peer.h) is this file's.
 *
 * Each line is a turn, by its first byte: `m`: a message, its head and, after a tab, its body; `x`: the connection
 * ends, and another is greeted; `X`: the same without a greeting; `d`: what was queued is gone; `f`: from now on much
 * waits; `F`: the queue is full; `t`: every timer runs; `g`: the node's own end of its hops says and closes something.
 * The node waits for hop "h" with key "k" both ways. All that it says is as the contract has it, it says nothing on a
 * connection that is gone, and in the end a new one is answered. */
#include "common/base/log.h"
#include "common/net/peer.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/node/links/links_models.h"
#include "engine/node/links/links_route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 64, MUCH = 64 << 20, TIMERS = 4096 };

struct net_peer {
	const struct net_peer_handler *handler;
	void *user;
	size_t queued;
	bool full, busy, gone; // busy: a callback is on the stack
};

static struct {
	struct net_loop *loop;
	struct contract *contract;
	struct net_peer_listen_params listen;
	struct net_peer *peer; // the connection now; NULL: none
	bool answered;
	struct links *links;
	struct link_hop *in, *out;
	struct net_timer *timers[TIMERS];
	size_t timer_count;
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- timers ----

void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg);
void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer);

static bool take_timer(struct net_timer *timer)
{
	for (size_t i = 0; i < world.timer_count; i++) {
		if (world.timers[i] != timer)
			continue;
		world.timers[i] = world.timers[--world.timer_count];
		return true;
	}
	return false;
}

void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg)
{
	(void)loop;
	require(delay_ms >= 0 && world.timer_count < TIMERS);
	take_timer(timer);
	*timer = (struct net_timer){.fn = fn, .arg = arg, .running = true};
	world.timers[world.timer_count++] = timer;
}

void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer)
{
	(void)loop;
	take_timer(timer);
	timer->running = false;
}

// ---- the connection ----

enum status __wrap_net_peer_tls_create(struct net_peer_tls **out, const char *authority_pem, struct error *error);
void __wrap_net_peer_tls_destroy(struct net_peer_tls **tls);
enum status __wrap_net_peer_tls_show(struct net_peer_tls *tls, const char *chain_pem, const char *key_pem,
				     struct error *error);
enum status __wrap_net_peer_listen(struct net_peer_listener **out, struct net_loop *loop,
				   const struct net_peer_listen_params *params, struct error *error);
int __wrap_net_peer_listener_port(const struct net_peer_listener *listener);
void __wrap_net_peer_listener_destroy(struct net_peer_listener **listener);
enum status __wrap_net_peer_dial(struct net_peer **out, struct net_loop *loop,
				 const struct net_peer_dial_params *params, struct error *error);
void __wrap_net_peer_destroy(struct net_peer **peer);
void __wrap_net_peer_trust(struct net_peer *peer);
enum status __wrap_net_peer_send(struct net_peer *peer, const void *head, size_t head_bytes, struct net_frame *holder,
				 const uint8_t *body, size_t body_bytes);
size_t __wrap_net_peer_queued(const struct net_peer *peer);
void __wrap_net_peer_tell_drained(struct net_peer *peer);
int64_t __wrap_net_peer_silence_ms(const struct net_peer *peer);
void __wrap_net_peer_path(const struct net_peer *peer, struct net_peer_path *path);

enum status __wrap_net_peer_tls_create(struct net_peer_tls **out, const char *authority_pem, struct error *error)
{
	(void)authority_pem, (void)error;
	*out = (struct net_peer_tls *)&world;
	return STATUS_OK;
}

void __wrap_net_peer_tls_destroy(struct net_peer_tls **tls)
{
	*tls = NULL;
}

enum status __wrap_net_peer_tls_show(struct net_peer_tls *tls, const char *chain_pem, const char *key_pem,
				     struct error *error)
{
	(void)tls, (void)chain_pem, (void)key_pem, (void)error;
	return STATUS_OK;
}

enum status __wrap_net_peer_listen(struct net_peer_listener **out, struct net_loop *loop,
				   const struct net_peer_listen_params *params, struct error *error)
{
	(void)loop, (void)error;
	world.listen = *params;
	*out = (struct net_peer_listener *)&world;
	return STATUS_OK;
}

int __wrap_net_peer_listener_port(const struct net_peer_listener *listener)
{
	(void)listener;
	return 1;
}

void __wrap_net_peer_listener_destroy(struct net_peer_listener **listener)
{
	*listener = NULL;
}

enum status __wrap_net_peer_dial(struct net_peer **out, struct net_loop *loop,
				 const struct net_peer_dial_params *params, struct error *error)
{
	(void)out, (void)loop, (void)params;
	return error_set(error, STATUS_UNAVAILABLE, "nobody is dialled here");
}

void __wrap_net_peer_destroy(struct net_peer **pointer)
{
	struct net_peer *peer = *pointer;
	*pointer = NULL;
	if (!peer)
		return;
	require(!peer->gone);
	peer->gone = true;
	if (world.peer == peer)
		world.peer = NULL;
	if (!peer->busy)
		free(peer);
}

void __wrap_net_peer_trust(struct net_peer *peer)
{
	require(!peer->gone);
}

// The interfaces of this machine are not looked through.
void __wrap_link_route_read(struct link_route *route, const char *local_address, const char *root);
void __wrap_link_route_read(struct link_route *route, const char *local_address, const char *root)
{
	(void)local_address, (void)root;
	*route = (struct link_route){.interface = "eth0", .class = "ethernet", .bits_per_s = 1e9};
}

// A head that is no JSON is hop.data's, whose text the node makes by itself.
enum status __wrap_net_peer_send(struct net_peer *peer, const void *head, size_t head_bytes, struct net_frame *holder,
				 const uint8_t *body, size_t body_bytes)
{
	struct message message;
	(void)holder;
	require(!peer->gone && (body || !body_bytes));
	if (peer->full)
		return STATUS_LIMIT_EXCEEDED;
	require(!message_decode_text(&message, head, head_bytes, NULL));
	if (message.method)
		require(!contract_check_params(world.contract, contract_find(world.contract, message.method),
					       message.params, NULL));
	world.answered |= message.kind == MESSAGE_RESULT && !strcmp(json_string(message.id, ""), "last");
	message_finish(&message);
	return STATUS_OK;
}

size_t __wrap_net_peer_queued(const struct net_peer *peer)
{
	require(!peer->gone);
	return peer->queued;
}

void __wrap_net_peer_tell_drained(struct net_peer *peer)
{
	require(!peer->gone);
}

int64_t __wrap_net_peer_silence_ms(const struct net_peer *peer)
{
	require(!peer->gone);
	return 0;
}

void __wrap_net_peer_path(const struct net_peer *peer, struct net_peer_path *path)
{
	require(!peer->gone);
	*path = (struct net_peer_path){.local = "127.0.0.1", .remote = "127.0.0.1", .segments = 1};
}

// ---- the node ----

static void tell(void *arg, struct json *params)
{
	(void)arg;
	require(!contract_check_params(world.contract, contract_find(world.contract, "node.links"), params, NULL));
	json_destroy(&params);
}

static void read_model(void *arg, struct link_request *request)
{
	struct error error = {0};
	(void)arg;
	error_set(&error, STATUS_NOT_FOUND, "it is not here");
	link_request_answer(&request, NULL, &error);
}

static void hop_opened(void *user, struct link_hop *hop)
{
	(void)user;
	link_hop_send(hop, (const uint8_t *)"\0\0\0\0", 4); // of the in end nobody asks that; it is no fault either
}

static void hop_message(void *user, struct link_hop *hop, const uint8_t *bytes, size_t length, struct net_frame *holder)
{
	(void)user, (void)bytes, (void)holder;
	link_hop_pause(hop, length % 2);
}

static void hop_drained(void *user, struct link_hop *hop)
{
	(void)user, (void)hop;
}

static void hop_closed(void *user, const char *why)
{
	require(why[0]);
	*(struct link_hop **)user = NULL;
}

static const struct link_hop_handler hop_handler = {
	.opened = hop_opened, .message = hop_message, .drained = hop_drained, .closed = hop_closed};

static void open_hop(struct link_hop **hop, bool sends)
{
	const struct link_hop_params params = {
		.peer_id = "a", .hop_id = "h", .key = "k", .sends = sends, .handler = &hop_handler, .user = hop};
	if (!*hop)
		link_hop_open(hop, world.links, &params, NULL);
}

// ---- the neighbour ----

static void deliver(const uint8_t *head, size_t head_bytes, const uint8_t *body, size_t body_bytes)
{
	struct net_peer *peer = world.peer;
	if (!peer)
		return;
	struct net_frame *frame = body_bytes ? net_frame_create(body, body_bytes, false) : NULL;
	uint8_t *copy = malloc(head_bytes ? head_bytes : 1); // of just that length, so that reading past its end shows
	require(copy);
	if (head_bytes)
		memcpy(copy, head, head_bytes);
	peer->busy = true;
	peer->handler->message(peer->user, peer, copy, head_bytes, frame);
	peer->busy = false;
	free(copy);
	net_frame_unref(&frame);
	if (peer->gone)
		free(peer);
}

static void say(const char *text)
{
	deliver((const uint8_t *)text, strlen(text), NULL, 0);
}

static void hang_up(void)
{
	struct net_peer *peer = world.peer;
	if (!peer)
		return;
	world.peer = NULL;
	peer->busy = true;
	peer->handler->closed(peer->user, peer, "the neighbour went");
	peer->gone = true;
	free(peer);
}

static void come(bool greets)
{
	struct net_certificate certificate = {.uri = "exogpu:node:a"};
	hang_up();
	struct net_peer *peer = calloc(1, sizeof *peer);
	require(peer != NULL);
	peer->handler = world.listen.handler;
	peer->user = world.listen.accepted(world.listen.context, peer);
	require(peer->user != NULL);
	world.peer = peer;
	peer->handler->opened(peer->user, peer, &certificate);
	if (greets)
		say("{\"jsonrpc\":\"2.0\",\"method\":\"peer.hello\",\"params\":{\"protocol\":1,\"node_id\":\"a\"}}");
	open_hop(&world.in, false);
	open_hop(&world.out, true);
}

// Every timer that runs now, once.
static void run_timers(void)
{
	size_t count = world.timer_count;
	struct net_timer *due[TIMERS];
	memcpy(due, world.timers, count * sizeof *due);
	for (size_t i = 0; i < count; i++) {
		if (!take_timer(due[i])) // one before it has stopped it
			continue;
		due[i]->running = false;
		due[i]->fn(due[i]->arg);
	}
}

static void use_hops(void)
{
	if (world.out)
		link_hop_send(world.out, (const uint8_t *)"\5\0\0\0\0\0\0\0x", 9);
	if (world.in)
		link_hop_pause(world.in, false);
}

static void turn(const uint8_t *line, size_t length)
{
	const uint8_t *tab = memchr(line, '\t', length);
	const size_t own = tab ? (size_t)(tab - line) : length;
	if (line[0] == 'm')
		deliver(line + 1, own - 1, tab ? tab + 1 : NULL, tab ? length - own - 1 : 0);
	else if (line[0] == 'x' || line[0] == 'X')
		come(line[0] == 'x');
	else if (line[0] == 't')
		run_timers();
	else if (line[0] == 'g')
		use_hops();
	else if (line[0] == 'c')
		link_hop_destroy(&world.out);
	else if (world.peer && (line[0] == 'f' || line[0] == 'F' || line[0] == 'd')) {
		world.peer->full = line[0] == 'F';
		world.peer->queued = line[0] == 'd' ? 0 : MUCH;
		if (line[0] == 'd')
			world.peer->handler->drained(world.peer->user, world.peer);
	}
}

static void begin(void)
{
	static const char list[] = "{\"peers\":[{\"node_id\":\"a\",\"name\":\"a\",\"addresses\":[],\"port\":1}]}";
	static const struct credentials credentials = {
		.joined = true, .chain_pem = "", .key_pem = "", .authority_pem = ""};
	struct json *peers = NULL;
	if (!world.loop) {
		log_set_level(LOG_ERROR);
		require(!net_loop_create(&world.loop, NULL) && !contract_create(&world.contract, CONTRACT_NODE, NULL));
	}
	const struct links_params params = {.loop = world.loop,
					    .contract = world.contract,
					    .credentials = &credentials,
					    .node_id = "b",
					    .tell = tell,
					    .read_model = read_model};
	require(!links_create(&world.links, &params, NULL));
	require(!json_parse(&peers, list, sizeof list - 1, NULL));
	links_set_peers(world.links, peers);
	json_destroy(&peers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	come(true);
	for (size_t at = 0, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		const size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length)
			turn(data + at, length);
		at += length + 1;
	}
	world.answered = false;
	come(true);
	say("{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"peer.ping\",\"params\":{\"number\":1}}");
	require(world.answered);
	link_hop_destroy(&world.in);
	link_hop_destroy(&world.out);
	hang_up();
	links_destroy(&world.links);
	require(!world.timer_count);
	return 0;
}
