/* Direct links between nodes: three nodes' links in one loop, over 127.0.0.1, with certificates of the test's own. Who
 * is let in and who is not, links that break and come back, hops in order and under back pressure, and what is
 * measured, all of it checked against the contract. */
#include "common/base/clock.h"
#include "common/net/loop.h"
#include "common/wire/contract.h"
#include "engine/node/links/links_inside.h"
#include "tests/common/net/certificates.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	WAIT_MS = 60000,
	NODES = 3,
	SMALL = 1000,
	LARGE_BYTES = 16 * 1024 * 1024,
	HELD_MESSAGES = 64,
	PIECES = 32,
	ECHOES = 2000
};

struct node {
	struct fixture *fixture;
	struct made made;
	struct credentials credentials;
	struct links *links;
	struct json *told; // the latest node.links
	size_t tellings;
};

struct fixture {
	struct net_loop *loop;
	struct contract *contract;
	struct made authority, foreign;
	struct node nodes[NODES]; // node_a, node_b, node_c
	struct net_timer look;
	bool (*enough)(struct fixture *fixture);
	bool seen;
	int64_t began_ms;
};

// One end of a hop, and what it saw.
struct end {
	struct fixture *fixture;
	struct link_hop *hop;
	size_t opened, messages, drained, closed, wrong, bytes, most_queued;
	char why[256];
	bool keep; // of one that was destroyed
};
static struct end out, in, back_out, back_in;

static const char *const ids[NODES] = {"node_a", "node_b", "node_c"};

// ---- the loop ----

static void on_look(void *arg)
{
	struct fixture *fixture = arg;
	fixture->seen = fixture->enough(fixture);
	if (fixture->seen || clock_steady_ms() - fixture->began_ms > WAIT_MS)
		net_loop_stop(fixture->loop);
	else
		net_timer_start(fixture->loop, &fixture->look, 1, on_look, fixture);
}

static bool never(struct fixture *fixture)
{
	(void)fixture;
	return false;
}

static void wait_until(struct fixture *fixture, bool (*enough)(struct fixture *fixture))
{
	fixture->enough = enough;
	fixture->began_ms = clock_steady_ms();
	net_timer_start(fixture->loop, &fixture->look, 0, on_look, fixture);
	net_loop_run(fixture->loop);
	assert_true(fixture->seen);
}

static void wait_ms(struct fixture *fixture, int64_t ms)
{
	fixture->enough = never;
	fixture->began_ms = clock_steady_ms() - WAIT_MS + ms;
	net_timer_start(fixture->loop, &fixture->look, 0, on_look, fixture);
	net_loop_run(fixture->loop);
}

// ---- nodes ----

static void tell(void *arg, struct json *params)
{
	struct node *node = arg;
	struct error error = {0};
	const struct contract *contract = node->fixture->contract;
	if (contract_check_params(contract, contract_find(contract, "node.links"), params, &error))
		fail_msg("node.links does not fit: %s", error.message);
	json_destroy(&node->told);
	node->told = params;
	node->tellings++;
}

static void node_begin(struct fixture *fixture, int which, const struct made *issuer, const char *uri)
{
	struct node *node = &fixture->nodes[which];
	struct error error = {0};
	node->fixture = fixture;
	node->made = make_signed(issuer, uri, "clientAuth,serverAuth");
	node->credentials = (struct credentials){.joined = true,
						 .chain_pem = node->made.pem,
						 .key_pem = node->made.key_pem,
						 .authority_pem = fixture->authority.pem};
	const struct links_params params = {.loop = fixture->loop,
					    .contract = fixture->contract,
					    .credentials = &node->credentials,
					    .node_id = ids[which],
					    .tell = tell,
					    .arg = node};
	if (links_create(&node->links, &params, &error))
		fail_msg("%s", error.message);
}

static void node_end(struct node *node)
{
	links_destroy(&node->links);
	made_finish(&node->made);
	json_destroy(&node->told);
}

static struct json *peer_of(const char *id, const char *address, int port)
{
	struct json *peer = json_new_object(), *addresses = json_new_array();
	json_set_string(peer, "node_id", id);
	json_set_string(peer, "name", id);
	if (address)
		json_push(addresses, json_new_string(address));
	json_set(peer, "addresses", addresses);
	json_set_integer(peer, "port", port);
	return peer;
}

static void set_peers(struct node *node, struct json *list)
{
	struct error error = {0};
	struct json *params = json_new_object();
	const struct contract *contract = node->fixture->contract;
	json_set(params, "peers", list);
	if (contract_check_params(contract, contract_find(contract, "node.peers"), params, &error))
		fail_msg("node.peers does not fit: %s", error.message);
	links_set_peers(node->links, params);
	json_destroy(&params);
}

// Each is told of all, itself too.
static void introduce_all(struct fixture *fixture, int count)
{
	for (int i = 0; i < count; i++) {
		struct json *list = json_new_array();
		for (int j = 0; j < count; j++)
			json_push(list, peer_of(ids[j], "127.0.0.1", links_port(fixture->nodes[j].links)));
		set_peers(&fixture->nodes[i], list);
	}
}

static const struct json *reading_of(const struct node *node, const char *peer_id)
{
	const struct json *reading = json_first(json_get(node->told, "links"));
	while (reading && strcmp(json_get_string(reading, "peer_id", ""), peer_id) != 0)
		reading = json_next(reading);
	return reading;
}

static bool is(const struct node *node, const char *peer_id, const char *state)
{
	return !strcmp(json_get_string(reading_of(node, peer_id), "state", ""), state);
}

static const char *reason(const struct node *node, const char *peer_id)
{
	return json_get_string(reading_of(node, peer_id), "reason", "");
}

static bool two_up(struct fixture *fixture)
{
	return is(&fixture->nodes[0], "node_b", "up") && is(&fixture->nodes[1], "node_a", "up");
}

static bool three_up(struct fixture *fixture)
{
	bool up = true;
	for (int i = 0; i < NODES; i++)
		for (int j = 0; j < NODES; j++)
			up &= i == j || is(&fixture->nodes[i], ids[j], "up");
	return up;
}

static int begin(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	struct error error = {0};
	signal(SIGPIPE, SIG_IGN);
	*state = fixture;
	assert_int_equal(contract_create(&fixture->contract, CONTRACT_NODE, &error), STATUS_OK);
	assert_int_equal(net_loop_create(&fixture->loop, &error), STATUS_OK);
	fixture->authority = make_authority("this cluster");
	fixture->foreign = make_authority("another cluster");
	out = (struct end){.fixture = fixture};
	in = (struct end){.fixture = fixture};
	return 0;
}

static int finish(void **state)
{
	struct fixture *fixture = *state;
	link_hop_destroy(&out.hop);
	link_hop_destroy(&in.hop);
	for (int i = 0; i < NODES; i++)
		node_end(&fixture->nodes[i]);
	net_loop_destroy(&fixture->loop);
	contract_destroy(&fixture->contract);
	made_finish(&fixture->authority);
	made_finish(&fixture->foreign);
	free(fixture);
	return 0;
}

static void begin_two(struct fixture *fixture)
{
	for (int i = 0; i < 2; i++) {
		char uri[64];
		snprintf(uri, sizeof uri, "URI:exogpu:node:%s", ids[i]);
		node_begin(fixture, i, &fixture->authority, uri);
	}
	introduce_all(fixture, 2);
	wait_until(fixture, two_up);
}

// ---- hops ----

static void on_opened(void *user, struct link_hop *hop)
{
	struct end *end = user;
	end->opened++;
	assert_ptr_equal(hop, end->hop);
}

// Each message begins with its number; the rest is that number's lowest byte.
static void on_message(void *user, struct link_hop *hop, const uint8_t *bytes, size_t length, struct net_frame *holder)
{
	struct end *end = user;
	uint32_t number = 0;
	assert_ptr_equal(hop, end->hop);
	assert_true(length >= sizeof number);
	memcpy(&number, bytes, sizeof number);
	end->wrong += number != end->messages || bytes[length - 1] != (length > 4 ? (uint8_t)number : bytes[3]);
	end->wrong += holder && (net_frame_data(holder) != bytes || net_frame_bytes(holder) != length);
	end->messages++;
	end->bytes += length;
}

static void on_drained(void *user, struct link_hop *hop)
{
	struct end *end = user;
	(void)hop;
	end->drained++;
}

static void on_closed(void *user, const char *why)
{
	struct end *end = user;
	end->closed++;
	end->hop = NULL;
	snprintf(end->why, sizeof end->why, "%s", why);
}

static const struct link_hop_handler handler = {
	.opened = on_opened, .message = on_message, .drained = on_drained, .closed = on_closed};

static void open_end(struct node *node, struct end *end, bool sends, const char *peer_id)
{
	struct error error = {0};
	const struct link_hop_params params = {.peer_id = peer_id,
					       .hop_id = "hop_1",
					       .key = "a key that nobody guesses",
					       .sends = sends,
					       .handler = &handler,
					       .user = end};
	if (link_hop_open(&end->hop, node->links, &params, &error))
		fail_msg("%s", error.message);
}

static bool both_opened(struct fixture *fixture)
{
	(void)fixture;
	return out.opened == 1 && in.opened == 1;
}

static void open_both(struct fixture *fixture, int from, int to)
{
	open_end(&fixture->nodes[to], &in, false, ids[from]);
	open_end(&fixture->nodes[from], &out, true, ids[to]);
	wait_until(fixture, both_opened);
}

static enum status send_number(size_t number, size_t length)
{
	uint8_t *bytes = malloc(length);
	const uint32_t first = (uint32_t)number;
	memset(bytes, (uint8_t)number, length);
	memcpy(bytes, &first, sizeof first);
	enum status status = link_hop_send(out.hop, bytes, length);
	if (link_hop_queued(out.hop) > out.most_queued)
		out.most_queued = link_hop_queued(out.hop);
	free(bytes);
	return status;
}

static bool small_ones_came(struct fixture *fixture)
{
	(void)fixture;
	return in.messages == SMALL;
}

static bool large_ones_came(struct fixture *fixture)
{
	(void)fixture;
	return in.messages == 4;
}

static bool one_closed(struct fixture *fixture)
{
	(void)fixture;
	return in.closed == 1;
}

static void hops_keep_order(void **state)
{
	struct fixture *fixture = *state;
	begin_two(fixture);
	open_both(fixture, 0, 1);
	for (size_t i = 0; i < SMALL; i++)
		assert_int_equal(send_number(i, 4 + i % 100), STATUS_OK);
	wait_until(fixture, small_ones_came);
	assert_int_equal(in.wrong, 0);
	link_hop_destroy(&out.hop);
	in.messages = in.opened = out.opened = 0;
	wait_until(fixture, one_closed);
	assert_non_null(strstr(in.why, "no longer needed"));
	// The other way, and larger than what may be under way.
	open_both(fixture, 1, 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(send_number(i, LARGE_BYTES - i), STATUS_OK);
	wait_until(fixture, large_ones_came);
	assert_int_equal(in.wrong, 0);
	assert_int_equal(in.bytes, (size_t)4 * LARGE_BYTES - 6 + SMALL * 4 + SMALL / 100 * 4950);
	assert_int_equal(out.drained, 1);
	assert_int_equal(link_hop_send(out.hop, NULL, (size_t)2 * LARGE_BYTES), STATUS_LIMIT_EXCEEDED);
}

static bool held_ones_came(struct fixture *fixture)
{
	(void)fixture;
	return in.messages == HELD_MESSAGES;
}

static bool round_trip_known(struct fixture *fixture)
{
	return json_get_number(reading_of(&fixture->nodes[0], "node_b"), "rtt_ms", -1) >= 0;
}

// One that is paused holds up neither the link nor its pings; nothing is lost.
static void pauses_and_fences(void **state)
{
	struct fixture *fixture = *state;
	begin_two(fixture);
	open_both(fixture, 0, 1);
	link_hop_pause(in.hop, true);
	for (size_t i = 0; i < HELD_MESSAGES / 2; i++)
		assert_int_equal(send_number(i, 1024 * 1024), STATUS_OK);
	wait_ms(fixture, 9000); // longer than a silent link lives
	assert_int_equal(in.messages, 0);
	assert_true(two_up(fixture));
	assert_true(link_hop_queued(out.hop) >= (size_t)(HELD_MESSAGES / 2 - 17) * 1024 * 1024);
	wait_until(fixture, round_trip_known);
	assert_int_equal(out.closed + in.closed + out.drained, 0);
	link_hop_pause(in.hop, false);
	links_fence(fixture->nodes[0].links, true);
	for (size_t i = HELD_MESSAGES / 2; i < HELD_MESSAGES; i++)
		assert_int_equal(send_number(i, 1000), STATUS_OK);
	wait_ms(fixture, 200);
	assert_true(in.messages < HELD_MESSAGES / 2);
	links_fence(fixture->nodes[0].links, false);
	links_fence(fixture->nodes[1].links, true);
	wait_ms(fixture, 50);
	links_fence(fixture->nodes[1].links, false);
	wait_until(fixture, held_ones_came);
	assert_int_equal(in.wrong, 0);
	assert_int_equal(out.drained, 1);
}

static bool out_closed(struct fixture *fixture)
{
	(void)fixture;
	return out.closed;
}

static void hops_that_do_not_meet(void **state)
{
	struct fixture *fixture = *state;
	struct error error = {0};
	begin_two(fixture);
	struct link_hop_params params = {
		.peer_id = "node_c", .hop_id = "hop_1", .key = "another key", .handler = &handler, .user = &in};
	assert_int_equal(link_hop_open(&in.hop, fixture->nodes[1].links, &params, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "no direct link to node node_c"));
	// The asking end first, then one with another key, then the right one.
	open_end(&fixture->nodes[0], &out, true, "node_b");
	wait_ms(fixture, 50);
	params.peer_id = "node_a";
	assert_int_equal(link_hop_open(&in.hop, fixture->nodes[1].links, &params, &error), STATUS_OK);
	wait_ms(fixture, 50);
	assert_int_equal(in.opened + out.opened + in.closed + out.closed, 0);
	link_hop_destroy(&in.hop);
	open_end(&fixture->nodes[1], &in, false, "node_a");
	wait_until(fixture, both_opened);
	link_hop_destroy(&in.hop);
	wait_until(fixture, out_closed);
	// Nobody there.
	out = (struct end){.fixture = fixture};
	open_end(&fixture->nodes[0], &out, true, "node_b");
	wait_until(fixture, out_closed);
	assert_non_null(strstr(out.why, "was not told of this hop"));
}

static bool both_closed(struct fixture *fixture)
{
	return out.closed && in.closed && is(&fixture->nodes[0], "node_b", "down");
}

static bool all_gone(struct fixture *fixture)
{
	return !json_count(json_get(fixture->nodes[0].told, "links")) && is(&fixture->nodes[1], "node_a", "down") &&
	       in.closed;
}

static void links_break_and_come_back(void **state)
{
	struct fixture *fixture = *state;
	begin_two(fixture);
	open_both(fixture, 0, 1);
	assert_int_equal(send_number(0, 100), STATUS_OK);
	// The other node ends, and another process takes its place, with the same certificate and another port.
	link_hop_destroy(&in.hop);
	in.closed = 1;
	links_destroy(&fixture->nodes[1].links);
	json_destroy(&fixture->nodes[1].told);
	wait_until(fixture, both_closed);
	assert_string_not_equal(out.why, "");
	assert_null(out.hop);
	const struct links_params params = {.loop = fixture->loop,
					    .contract = fixture->contract,
					    .credentials = &fixture->nodes[1].credentials,
					    .node_id = "node_b",
					    .tell = tell,
					    .arg = &fixture->nodes[1]};
	assert_int_equal(links_create(&fixture->nodes[1].links, &params, NULL), STATUS_OK);
	introduce_all(fixture, 2);
	wait_until(fixture, two_up);
	in = out = (struct end){.fixture = fixture};
	open_both(fixture, 0, 1);
	// The server takes it off the list: the link goes, with its hops.
	set_peers(&fixture->nodes[0], json_new_array());
	wait_until(fixture, out_closed);
	assert_non_null(strstr(out.why, "not in the cluster"));
	wait_until(fixture, all_gone);
	assert_int_equal(in.closed, 1);
}

static bool has_reason(struct fixture *fixture)
{
	return reason(&fixture->nodes[0], "node_b")[0] && strstr(reason(&fixture->nodes[0], "node_b"), "port");
}

static bool reported(struct fixture *fixture)
{
	return has_reason(fixture) && fixture->nodes[0].tellings > 1 && fixture->nodes[1].tellings > 1;
}

static void refused(struct fixture *fixture, const struct made *issuer, const char *uri, const char *words)
{
	char own[] = "URI:exogpu:node:node_a";
	node_begin(fixture, 0, &fixture->authority, own);
	node_begin(fixture, 1, issuer, uri);
	introduce_all(fixture, 2);
	fixture->nodes[0].tellings = fixture->nodes[1].tellings = 0;
	wait_until(fixture, reported);
	assert_true(is(&fixture->nodes[0], "node_b", "down"));
	assert_true(is(&fixture->nodes[1], "node_a", "down"));
	if (!strstr(reason(&fixture->nodes[0], "node_b"), words))
		fail_msg("\"%s\" says nothing of \"%s\"", reason(&fixture->nodes[0], "node_b"), words);
	node_end(&fixture->nodes[0]);
	node_end(&fixture->nodes[1]);
	fixture->nodes[0] = fixture->nodes[1] = (struct node){0};
}

static void strangers_are_refused(void **state)
{
	struct fixture *fixture = *state;
	refused(fixture, &fixture->foreign, "URI:exogpu:node:node_b", "certificate does not verify");
	refused(fixture, &fixture->authority, "URI:exogpu:node:node_x", "another node answers there");
	refused(fixture, &fixture->authority, "URI:exogpu:server:node_b", "not a node's");
	refused(fixture, &fixture->authority, "DNS:node_b", "not a node's");
}

static void three_nodes(void **state)
{
	struct fixture *fixture = *state;
	for (int i = 0; i < NODES; i++) {
		char uri[64];
		snprintf(uri, sizeof uri, "URI:exogpu:node:%s", ids[i]);
		node_begin(fixture, i, &fixture->authority, uri);
	}
	introduce_all(fixture, NODES);
	wait_until(fixture, three_up);
}

static bool measured(struct fixture *fixture)
{
	const struct json *there = reading_of(&fixture->nodes[0], "node_b"),
			  *back = reading_of(&fixture->nodes[1], "node_a");
	return json_get_number(there, "rtt_ms", -1) >= 0 && json_get_number(back, "rtt_ms", -1) >= 0 &&
	       json_get_number(there, "throughput_bytes_per_s", -1) > 0 &&
	       json_get_number(back, "throughput_bytes_per_s", -1) > 0;
}

static void what_is_measured(void **state)
{
	struct fixture *fixture = *state;
	begin_two(fixture);
	wait_until(fixture, measured);
	for (int i = 0; i < 2; i++) {
		const struct json *reading = reading_of(&fixture->nodes[i], ids[1 - i]);
		assert_string_equal(json_get_string(reading, "class", ""), "loopback");
		assert_string_equal(json_get_string(reading, "interface", ""), "lo");
		assert_string_equal(json_get_string(reading, "address", ""), "127.0.0.1");
		assert_true(json_get_number(reading, "jitter_ms", -1) >= 0);
		print_message("%s: rtt %.3f ms, jitter %.3f ms, %.1f MB/s, loss %.3f %%\n", ids[i],
			      json_get_number(reading, "rtt_ms", -1), json_get_number(reading, "jitter_ms", -1),
			      json_get_number(reading, "throughput_bytes_per_s", -1) / 1e6,
			      json_get_number(reading, "loss_percent", -1));
	}
}

static struct link_measures *measures_of(struct fixture *fixture, int from, int to)
{
	return &links_find(fixture->nodes[from].links, ids[to])->measures;
}

static bool all_measured(struct fixture *fixture)
{
	bool all = true;
	for (int i = 0; i < NODES; i++)
		for (int j = 0; j < NODES; j++)
			all &= i == j || measures_of(fixture, i, j)->throughput > 0;
	return all;
}

static bool generating(struct fixture *fixture, int64_t ms)
{
	(void)fixture;
	static int64_t sent_ms;
	if (clock_steady_ms() - sent_ms >= 100) {
		sent_ms = clock_steady_ms();
		send_number(out.messages++, 100);
	}
	return clock_steady_ms() - fixture->began_ms >= ms;
}

static bool generated_for_a_while(struct fixture *fixture)
{
	return generating(fixture, 9000);
}

static bool in_the_middle(struct fixture *fixture)
{
	const struct link_measures *measures = measures_of(fixture, 0, 2);
	return measures->bursting && measures->piece_count && measures->piece_count < LINK_PIECES / 2;
}

static bool burst_over(struct fixture *fixture)
{
	return !measures_of(fixture, 0, 2)->bursting;
}

// While data of a hop go from one node to the next nothing is measured by either of them, to the third one neither, and
// it does not by them; what has begun then ends at once.
static void bursts_wait_for_hops(void **state)
{
	struct fixture *fixture = *state;
	three_nodes(state);
	open_both(fixture, 0, 1);
	wait_until(fixture, generated_for_a_while); // each would have measured by now
	for (int i = 0; i < NODES; i++)
		for (int j = 0; j < NODES; j++)
			assert_true(i == j || measures_of(fixture, i, j)->throughput < 0);
	wait_until(fixture, all_measured);
	// A hop that goes by the server counts, too.
	struct link_measures *measures = measures_of(fixture, 0, 2);
	fixture->nodes[0].links->hop_ms = 0;
	links_hop_passed(fixture->nodes[0].links);
	assert_true(fixture->nodes[0].links->hop_ms > 0);
	fixture->nodes[0].links->hop_ms += 60000; // however late this machine is
	wait_until(fixture, burst_over);
	const uint64_t bursts = measures->burst;
	for (int i = 0; i < 20; i++) {
		measures->burst_due_ms = 0;
		wait_ms(fixture, 100);
		assert_true(measures->burst == bursts && !measures->bursting);
	}
	fixture->nodes[0].links->hop_ms -= 60000;
	// A long one, in the middle of which a generation begins.
	const int64_t at_ms = measures->throughput_at_ms;
	const uint64_t number = measures->burst;
	measures->burst_bytes = (size_t)16 * 1024 * 1024;
	measures->throughput = 1e6; // so little is under way at a time
	wait_until(fixture, in_the_middle);
	assert_true(measures->pieces_sent < LINK_PIECES);
	assert_int_equal(send_number(out.messages++, 100), STATUS_OK);
	wait_until(fixture, burst_over);
	assert_true(measures->pieces_sent < LINK_PIECES);
	wait_ms(fixture, 500);
	assert_true(measures->throughput_at_ms == at_ms && measures->burst == number + 1);
}

// A burst of which pieces are lost is done once more, and the second one is the last for a while.
static void bursts_that_are_lost_end(void **state)
{
	struct fixture *fixture = *state;
	begin_two(fixture);
	struct link *link = links_find(fixture->nodes[0].links, ids[1]);
	struct link_measures *measures = &link->measures;
	measures->throughput = -1;
	measures->doubted = 0;
	int64_t before_ms = clock_steady_ms();
	for (int turn = 0; turn < 2; turn++) {
		measures->bursting = true;
		measures->burst_began_ms = clock_steady_ms() - 10000;
		measures->burst_bytes = (size_t)16 * 1024 * 1024; // none is longer
		measures->piece_count = measures->pieces_sent = LINK_PIECES / 2;
		for (size_t i = 0; i < measures->piece_count; i++)
			measures->piece_ns[i] = (int64_t)(i + 1) * 1000000;
		const uint64_t number = measures->burst;
		link_measures_second(link);
		assert_true(measures->bursting == !turn && measures->burst == number + !turn);
		assert_true((measures->throughput > 0) == (turn == 1) && (measures->doubted > 0) == !turn);
	}
	assert_true(measures->burst_due_ms >= before_ms + 60000);
	// Too little came of it to tell anything.
	measures->bursting = true;
	measures->burst_began_ms = clock_steady_ms() - 10000;
	measures->piece_count = 1;
	measures->doubted = 1;
	measures->burst_due_ms = 0;
	const uint64_t number = measures->burst;
	before_ms = clock_steady_ms();
	link_measures_second(link);
	assert_true(!measures->bursting && measures->burst == number && measures->doubted <= 0);
	assert_true(measures->burst_due_ms >= before_ms + 10000);
}

// ---- what pieces of a burst tell of its way ----

// When the byte at this place of a stream comes by a way of so many bytes per second: in flights of TCP's slow start,
// each as long as the way lets it be and a round trip after the one before, until they fill the way.
static int64_t slow_start_ns(double byte, double bytes_per_s, double rtt_s)
{
	double flight = 14480, begins_s = 0, before = 0;
	while (byte >= before + flight && flight < rtt_s * bytes_per_s) {
		before += flight;
		begins_s += rtt_s;
		flight *= 2;
	}
	return (int64_t)((begins_s + (byte - before) / bytes_per_s) * 1e9);
}

static double rate_of(const int64_t *ns, size_t bytes, double rtt_ms, bool lossy, bool *growing)
{
	const struct link_pieces pieces = {
		.ns = ns, .count = LINK_PIECES, .bytes = bytes, .rtt_ms = rtt_ms, .lossy = lossy};
	return link_pieces_rate(&pieces, growing);
}

static void assert_near(double rate, double wanted, double part)
{
	if (rate < (1 - part) * wanted || rate > (1 + part) * wanted)
		fail_msg("%.3f Mbit/s are measured of %.3f", rate * 8e-6, wanted * 8e-6);
}

static void pieces_tell_the_rate(void **state)
{
	static const struct {
		double bits_per_s, rtt_ms;
		size_t bytes;
	} ways[] = {{400e6, 2, 39000}, {100e6, 10, 9700},  {10e6, 0.2, 8192},
		    {10e6, 100, 8192}, {50e6, 410, 97000}, {50e6, 410, 16384}};
	int64_t ns[LINK_PIECES];
	bool growing;
	(void)state;
	for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
		for (size_t i = 0; i < LINK_PIECES; i++)
			ns[i] = slow_start_ns((double)((i + 1) * ways[w].bytes), ways[w].bits_per_s / 8,
					      ways[w].rtt_ms / 1e3);
		assert_near(rate_of(ns, ways[w].bytes, ways[w].rtt_ms, false, &growing), ways[w].bits_per_s / 8, 0.15);
		assert_false(growing);
	}
	// Segments are lost: nothing comes for a while, and then all that waited for the lost one. What counts is the
	// whole time; to leave the pauses out would tell many times the rate.
	for (size_t i = 0; i < LINK_PIECES; i++)
		ns[i] = (int64_t)(i / 8 + 1) * 300000000 + (int64_t)(i % 8) * 100000;
	assert_near(rate_of(ns, 8192, 20, true, &growing), 8 * 8192 / 0.3, 0.3);
	// A sender that spreads its segments over the round trip: no pauses, and no end of growing yet.
	for (size_t i = 0; i < LINK_PIECES; i++)
		ns[i] = (int64_t)(log2(1 + (double)(i + 1) * 16384 / 14480) * 410e6);
	rate_of(ns, 16384, 410, false, &growing);
	assert_true(growing);
	// All at one time.
	for (size_t i = 0; i < LINK_PIECES; i++)
		ns[i] = 5;
	assert_true(rate_of(ns, 8192, 1, false, &growing) < 0);
}

// ---- what bursts, one after the other, tell of it ----

// Two bursts, of which the first is doubted.
static void take_rates(struct link_measures *measures, double rate, double again, bool lossy)
{
	const double known = measures->throughput;
	assert_true(link_measures_rate(measures, rate, lossy, true));
	assert_near(measures->throughput, known, 0.001);
	assert_false(link_measures_rate(measures, again, lossy, true));
	assert_true(measures->doubted <= 0);
}

static void rates_tell_the_way(void **state)
{
	struct link_measures measures = {.throughput = -1};
	(void)state;
	// The first is done twice: the better one, or where segments are lost the second.
	assert_true(link_measures_rate(&measures, 30e6, false, true));
	assert_false(link_measures_rate(&measures, 50e6, false, true));
	assert_near(measures.throughput, 50e6, 0.001);
	measures.throughput = -1;
	assert_true(link_measures_rate(&measures, 50e6, true, true));
	assert_false(link_measures_rate(&measures, 30e6, true, true));
	assert_near(measures.throughput, 30e6, 0.001);
	// What differs little goes in by half, at once.
	measures.throughput = 50e6;
	assert_false(link_measures_rate(&measures, 60e6, false, true));
	assert_near(measures.throughput, 55e6, 0.001);
	for (int lossy = 0; lossy < 2; lossy++) {
		// A way that has become another is told so by two bursts, the one of both that is nearer to what was
		// known.
		measures.throughput = 50e6;
		take_rates(&measures, 0.4e6, 0.5e6, lossy);
		assert_near(measures.throughput, 0.5e6, 0.001);
		take_rates(&measures, 60e6, 50e6, lossy);
		assert_near(measures.throughput, 50e6, 0.001);
	}
	// One burst that is late, or that came at one time, is no other way, wherever it stands of the two.
	take_rates(&measures, 1e6, 48e6, false);
	assert_near(measures.throughput, 49e6, 0.001);
	take_rates(&measures, 500e6, 51e6, false);
	assert_near(measures.throughput, 50e6, 0.001);
	take_rates(&measures, 30e6, 1e6, false);
	assert_near(measures.throughput, 40e6, 0.001);
	measures.throughput = 50e6;
	take_rates(&measures, 1e6, 500e6, false);
	assert_near(measures.throughput, 50e6, 0.001);
	// Where segments are lost bursts differ: the mean of two goes in by half.
	take_rates(&measures, 20e6, 60e6, true);
	assert_near(measures.throughput, 45e6, 0.001);
	// One that cannot be done again, as a generation needs the way, is no other way either.
	measures.throughput = 50e6;
	assert_false(link_measures_rate(&measures, 10e6, false, false));
	assert_near(measures.throughput, 30e6, 0.001);
}

// ---- what round trips tell of their way ----

static void take_round_trips(struct link_measures *measures, double rtt_ms, int count)
{
	for (int i = 0; i < count; i++)
		link_measures_round_trip(measures, rtt_ms + (i % 2 ? 0.25 : -0.25));
}

static void assert_round_trip(const struct link_measures *measures, double least_ms, double most_ms)
{
	if (measures->rtt_ms < least_ms || measures->rtt_ms > most_ms)
		fail_msg("%.3f ms, after %zu", measures->rtt_ms, measures->round_trip_count);
}

static void round_trips_tell_the_way(void **state)
{
	struct link_measures measures = {.rtt_ms = -1, .jitter_ms = -1};
	(void)state;
	// Of a machine that is busy at first nothing is left as soon as it is not any more.
	take_round_trips(&measures, 100, LINK_ROUND_TRIPS_LEAST - 1);
	assert_false(link_measures_tell(&measures));
	take_round_trips(&measures, 100, 1);
	assert_true(link_measures_tell(&measures));
	assert_round_trip(&measures, 99, 101);
	take_round_trips(&measures, 5, 6);
	assert_round_trip(&measures, 4.75, 5.25);
	assert_true(measures.jitter_ms <= 0.5);
	// Nor of one that is late now and then.
	for (int i = 0; i < 40; i++) {
		link_measures_round_trip(&measures, i % 4 ? 5 : 300);
		assert_round_trip(&measures, 4.75, 5.25);
	}
	// A way that has become longer is longer at once, and one that is uneven has jitter.
	take_round_trips(&measures, 50, 6);
	assert_round_trip(&measures, 49, 51);
	for (int i = 0; i < LINK_ROUND_TRIPS; i++)
		link_measures_round_trip(&measures, i % 2 ? 40 : 60);
	assert_round_trip(&measures, 49, 51);
	assert_true(measures.jitter_ms > 9 && measures.jitter_ms < 11);
}

// How many round trips count once this ping is answered, that was sent so many ns after a piece of another link's
// burst.
static size_t counted_after(struct link *link, int64_t ns)
{
	const struct link_answer answer = {.number = ++link->measures.ping_number};
	link->measures.ping_ns = link->links->burst_ns + ns;
	link_ping_answered(link, &answer);
	assert_int_equal(link->measures.ping_ns, 0);
	return link->measures.round_trip_count;
}

static void pings_beside_bursts_do_not_count(void **state)
{
	struct links links = {.burst_ns = clock_steady_ns() - 1000};
	struct link link = {.links = &links};
	struct link_conn conn = {.links = &links, .link = &link};
	struct error error = {0};
	const struct message piece = {.method = "peer.burst"};
	(void)state;
	assert_int_equal(counted_after(&link, 1), 1);
	assert_int_equal(counted_after(&link, -1), 1);
	link.measures.round_trip_ms -= 3600 * 1000; // none for an hour
	assert_int_equal(counted_after(&link, -1), 2);
	assert_int_equal(counted_after(&link, -1), 2);
	// A burst that comes by the link itself is no matter of time.
	link.measures.round_trip_ms -= 3600 * 1000;
	const int64_t before_ns = links.burst_ns;
	link.measures.ping_ns = before_ns + 1;
	link_serve_burst(&conn, &piece, &error);
	assert_int_equal(link.measures.ping_ns, 0);
	assert_true(links.burst_ns > before_ns);
}

// ---- how fast: printed, not judged ----

static bool all_came(struct fixture *fixture)
{
	(void)fixture;
	return in.messages == PIECES;
}

static bool back_came(struct fixture *fixture)
{
	(void)fixture;
	return back_in.messages == ECHOES;
}

static bool four_opened(struct fixture *fixture)
{
	return both_opened(fixture) && back_out.opened && back_in.opened;
}

static void bounce(void *user, struct link_hop *hop, const uint8_t *bytes, size_t length, struct net_frame *holder)
{
	struct end *end = user;
	(void)hop, (void)holder;
	end->messages++;
	if (end == &in || end->messages < ECHOES)
		assert_int_equal(link_hop_send(end == &in ? back_out.hop : out.hop, bytes, length), STATUS_OK);
}

static const struct link_hop_handler bouncing = {.opened = on_opened, .message = bounce, .closed = on_closed};

static void how_fast(void **state)
{
	struct fixture *fixture = *state;
	uint8_t bytes[8192] = {0};
	begin_two(fixture);
	open_both(fixture, 0, 1);
	int64_t began_ns = clock_steady_ns();
	for (size_t i = 0; i < PIECES; i++)
		assert_int_equal(send_number(i, 1024 * 1024), STATUS_OK);
	wait_until(fixture, all_came);
	print_message("%d MiB, both ends on one thread: %.0f MB/s\n", PIECES,
		      PIECES * 1048576.0 * 1e3 / (double)(clock_steady_ns() - began_ns));
	assert_int_equal(in.wrong, 0);
	link_hop_destroy(&out.hop);
	link_hop_destroy(&in.hop);
	in = out = back_in = back_out = (struct end){.fixture = fixture};
	const struct {
		struct end *end;
		int at;
		const char *hop_id;
	} ends[] = {{&in, 1, "there"}, {&out, 0, "there"}, {&back_in, 0, "back"}, {&back_out, 1, "back"}};
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		const struct link_hop_params params = {.peer_id = ids[1 - ends[i].at],
						       .hop_id = ends[i].hop_id,
						       .key = "a key",
						       .sends = ends[i].end == &out || ends[i].end == &back_out,
						       .handler = &bouncing,
						       .user = ends[i].end};
		assert_int_equal(link_hop_open(&ends[i].end->hop, fixture->nodes[ends[i].at].links, &params, NULL),
				 STATUS_OK);
	}
	wait_until(fixture, four_opened);
	began_ns = clock_steady_ns();
	assert_int_equal(link_hop_send(out.hop, bytes, sizeof bytes), STATUS_OK);
	wait_until(fixture, back_came);
	print_message("8 KiB by a hop: %.1f us\n", (double)(clock_steady_ns() - began_ns) / 1e3 / ECHOES / 2);
	link_hop_destroy(&back_in.hop);
	link_hop_destroy(&back_out.hop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(hops_keep_order, begin, finish),
		cmocka_unit_test_setup_teardown(pauses_and_fences, begin, finish),
		cmocka_unit_test_setup_teardown(hops_that_do_not_meet, begin, finish),
		cmocka_unit_test_setup_teardown(links_break_and_come_back, begin, finish),
		cmocka_unit_test_setup_teardown(strangers_are_refused, begin, finish),
		cmocka_unit_test_setup_teardown(three_nodes, begin, finish),
		cmocka_unit_test_setup_teardown(what_is_measured, begin, finish),
		cmocka_unit_test_setup_teardown(bursts_wait_for_hops, begin, finish),
		cmocka_unit_test_setup_teardown(bursts_that_are_lost_end, begin, finish),
		cmocka_unit_test(pieces_tell_the_rate),
		cmocka_unit_test(rates_tell_the_way),
		cmocka_unit_test(round_trips_tell_the_way),
		cmocka_unit_test(pings_beside_bursts_do_not_count),
		cmocka_unit_test_setup_teardown(how_fast, begin, finish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
