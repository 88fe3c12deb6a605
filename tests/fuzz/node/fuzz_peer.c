/* A node whose neighbour says anything: real links, over TLS on 127.0.0.1, and the input behind a certificate that is
 * good.
 *
 * The first byte says how (bits): 1: peer.hello is left out. 2: the rest is bytes as they come, else it is messages,
 * one a line, a head and, after a tab, a body. 4: it is fenced. The node waits for hop "h" with key "k" both ways.
 * Whatever comes, it goes on: in the end the neighbour's place is taken by a new connection, whose ping is answered. */
#include "common/base/log.h"
#include "common/net/peer_inside.h"
#include "common/wire/contract.h"
#include "engine/node/links/links.h"
#include "tests/fuzz/node/certificates.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT_MS = 3, WAIT_MS = 10000, LINES = 64 };
static const char ping[] = "{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"peer.ping\",\"params\":{\"number\":1}}";

static struct {
	struct net_loop *loop;
	struct contract *contract;
	struct net_peer_tls *tls;
	struct made authority, ours, theirs;
	const uint8_t *input; // NULL: the last connection, which pings
	size_t size;
	bool answered;
	struct links *links;
	struct link_hop *in, *out;
	struct net_timer patience;
} world;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void begin_once(void)
{
	if (world.loop)
		return;
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_ERROR);
	require(net_loop_create(&world.loop, NULL) == STATUS_OK);
	require(contract_create(&world.contract, CONTRACT_NODE, NULL) == STATUS_OK);
	world.authority = make(NULL, NULL);
	world.ours = make(&world.authority, "URI:exogpu:node:b");
	world.theirs = make(&world.authority, "URI:exogpu:node:a");
	require(net_peer_tls_create(&world.tls, world.authority.pem, NULL) == STATUS_OK);
	require(net_peer_tls_show(world.tls, world.theirs.pem, world.theirs.key_pem, NULL) == STATUS_OK);
}

// ---- the node ----

static void tell(void *arg, struct json *params)
{
	(void)arg;
	require(!contract_check_params(world.contract, contract_find(world.contract, "node.links"), params, NULL));
	json_destroy(&params);
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

static void hop_closed(void *user, const char *why)
{
	require(why[0]);
	*(struct link_hop **)user = NULL;
}

static const struct link_hop_handler hop_handler = {.opened = hop_opened, .message = hop_message, .closed = hop_closed};

static void open_hop(struct link_hop **hop, bool sends)
{
	const struct link_hop_params params = {
		.peer_id = "a", .hop_id = "h", .key = "k", .sends = sends, .handler = &hop_handler, .user = hop};
	require(link_hop_open(hop, world.links, &params, NULL) == STATUS_OK);
}

// ---- the neighbour ----

static void say(struct net_peer *peer, const char *head, size_t head_bytes, const uint8_t *body, size_t body_bytes)
{
	require(net_peer_send(peer, head, head_bytes, NULL, body, body_bytes) == STATUS_OK);
}

static void say_lines(struct net_peer *peer)
{
	const char *at = (const char *)world.input + 1, *end = (const char *)world.input + world.size;
	for (size_t lines = 0; at < end && lines < LINES; lines++) {
		const char *line = memchr(at, '\n', (size_t)(end - at));
		const size_t length = (size_t)((line ? line : end) - at);
		const char *tab = memchr(at, '\t', length);
		const size_t head = tab ? (size_t)(tab - at) : length;
		say(peer, at, head, (const uint8_t *)at + head + 1, tab ? length - head - 1 : 0);
		at += length + 1;
	}
}

static void silent(void *arg)
{
	(void)arg;
	net_loop_stop(world.loop);
}

static void say_input(struct net_peer *peer)
{
	if (world.input[0] & 2)
		SSL_write(peer->ssl, world.input + 1, (int)world.size - 1);
	else
		say_lines(peer);
	net_timer_start(world.loop, &world.patience, SILENT_MS, silent, NULL);
}

static void on_opened(void *user, struct net_peer *peer, const struct net_certificate *certificate)
{
	static const char hello[] = "{\"jsonrpc\":\"2.0\",\"method\":\"peer.hello\",\"params\":{\"protocol\":1,"
				    "\"node_id\":\"a\"}}";
	(void)user;
	require(!strcmp(certificate->uri, "exogpu:node:b"));
	net_peer_trust(peer);
	if (world.input && (world.input[0] & 1)) {
		say_input(peer);
		return;
	}
	say(peer, hello, sizeof hello - 1, NULL, 0);
	say(peer, ping, sizeof ping - 1, NULL, 0);
}

// The ping's answer: the link is up.
static void on_message(void *user, struct net_peer *peer, const uint8_t *head, size_t head_bytes,
		       struct net_frame *body)
{
	static const char answer[] = "\"id\":\"last\"";
	(void)user, (void)body;
	if (world.answered || !memmem(head, head_bytes, answer, sizeof answer - 1))
		return;
	world.answered = true;
	if (!world.input) {
		net_loop_stop(world.loop);
		return;
	}
	open_hop(&world.in, false);
	open_hop(&world.out, true);
	say_input(peer);
}

static void on_closed(void *user, struct net_peer *peer, const char *why)
{
	(void)peer, (void)why;
	*(struct net_peer **)user = NULL;
	net_loop_stop(world.loop);
}

static const struct net_peer_handler neighbour = {.opened = on_opened, .message = on_message, .closed = on_closed};

static void meet(void)
{
	struct net_peer *peer = NULL;
	const struct net_peer_dial_params params = {.tls = world.tls,
						    .address = "127.0.0.1",
						    .port = links_port(world.links),
						    .handler = &neighbour,
						    .user = &peer};
	require(net_peer_dial(&peer, world.loop, &params, NULL) == STATUS_OK);
	net_timer_start(world.loop, &world.patience, WAIT_MS, silent, NULL);
	net_loop_run(world.loop);
	net_timer_stop(world.loop, &world.patience);
	net_peer_destroy(&peer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char list[] = "{\"peers\":[{\"node_id\":\"a\",\"name\":\"a\",\"addresses\":[],\"port\":1}]}";
	struct json *peers = NULL;
	if (size < 2 || size > 65536)
		return 0;
	begin_once();
	const struct credentials credentials = {.joined = true,
						.chain_pem = world.ours.pem,
						.key_pem = world.ours.key_pem,
						.authority_pem = world.authority.pem};
	const struct links_params params = {.loop = world.loop,
					    .contract = world.contract,
					    .credentials = &credentials,
					    .node_id = "b",
					    .tell = tell};
	require(links_create(&world.links, &params, NULL) == STATUS_OK);
	require(json_parse(&peers, list, sizeof list - 1, NULL) == STATUS_OK);
	links_set_peers(world.links, peers);
	json_destroy(&peers);
	links_fence(world.links, data[0] & 4);
	world.input = data;
	world.size = size;
	world.answered = false;
	meet();
	world.input = NULL;
	world.answered = false;
	meet();
	require(world.answered);
	link_hop_destroy(&world.in);
	link_hop_destroy(&world.out);
	links_destroy(&world.links);
	return 0;
}
