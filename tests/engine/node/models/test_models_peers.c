/* Model files from another node: two nodes with a cache, a direct link and a server each, on one loop. The first has a
 * model; the second fetches it, and takes it from the first; and from its server where the first lies, does not answer,
 * goes away in the middle, does not have it or has better to do. */
#include "common/base/clock.h"
#include "common/net/loop.h"
#include "common/net/ws/parts.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/node/links/links_models.h"
#include "engine/node/models/models.h"
#include "tests/common/net/certificates.h"
#include "tests/common/net/waiting.h"
#include "tests/engine/node/bare_node.h"

#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = LIMIT_MODEL_PIECE_BYTES, MODEL_BYTES = 5 * PIECE + 12345, PATIENCE_MS = 60000, HELD = 16 };

struct node {
	const char *id;
	char socket[64], cache[64];
	struct made made;
	struct credentials credentials;
	struct net_listener *listener; // its server
	struct net_conn *control, *bulk;
	struct uplink *uplink;
	struct links *links;
	struct node_models *models;
	bool up;             // its link to the other
	int read, digested;  // pieces, of its server
	struct json *result; // of model.fetch
	bool failed;         // likewise
	int calls;           // of the server
	struct link_request *held[HELD];
	int held_count, asked, gone_after;
	bool lies, silent, lacks; // to the other node
};

static struct fixture {
	struct net_loop *loop;
	struct contract *contract;
	struct made authority;
	struct node nodes[2];
	char folder[40];
	struct net_timer look, patience, vanish;
} all;
static struct node *const giver = &all.nodes[0], *const taker = &all.nodes[1];
static uint8_t *model; // (MODEL_BYTES)

static void run_until(bool (*enough)(void))
{
	assert_true(wait_until(all.loop, enough, PATIENCE_MS));
}

// ---- a node's server ----

static bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct node *node = context;
	(void)response;
	*user = strcmp(request->subprotocol, "exogpu.model.v1") ? &node->control : &node->bulk;
	return true;
}

static void opened(void *user, struct net_conn *conn)
{
	net_conn_trust(conn);
	*(struct net_conn **)user = conn;
}

static void read_model(struct node *node, struct net_conn *conn, const struct message *message)
{
	struct buffer head;
	uint8_t hash[32];
	char hex[65];
	const size_t offset = (size_t)json_get_integer(message->params, "offset", 0),
		     bytes = (size_t)json_get_integer(message->params, "bytes", 0);
	const bool digest = json_get_bool(message->params, "digest", false);
	assert_true(offset <= MODEL_BYTES && bytes <= MODEL_BYTES - offset);
	node->read += !digest;
	node->digested += digest;
	EVP_Digest(model + offset, bytes, hash, NULL, EVP_sha256(), NULL);
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	struct json *result = json_new_object();
	json_set_string(result, "sha256", hex);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	message_print_result(&head, message->id, result);
	if (digest)
		net_conn_send_text(conn, buffer_text(&head), head.length);
	else
		net_conn_send_parts(conn, &(struct net_parts){.head = head.data,
							      .head_bytes = head.length,
							      .body = model + offset,
							      .body_bytes = bytes});
	buffer_finish(&head);
}

static void take_control(struct node *node, struct net_conn *conn, const struct message *message)
{
	struct buffer text;
	struct error error = {0};
	if (message->kind == MESSAGE_REQUEST) {
		struct json *result = json_new_object();
		if (!strcmp(message->method, "node.register")) {
			json_set_integer(result, "protocol", 1);
			json_set_bool(result, "watched", false);
		}
		buffer_init(&text, LIMIT_HEAD_BYTES);
		message_print_result(&text, message->id, result);
		net_conn_send_text(conn, buffer_text(&text), text.length);
		buffer_finish(&text);
	} else if (message->kind != MESSAGE_NOTIFICATION) {
		node->failed = message->kind == MESSAGE_ERROR;
		node->result = node->failed ? json_new_object() : json_copy(message->result);
		if (!node->failed && contract_check_result(all.contract, contract_find(all.contract, "model.fetch"),
							   message->result, &error))
			fail_msg("%s", error.message);
	}
}

static void received(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct message message = {0};
	struct net_parts parts = {.head = bytes, .head_bytes = length};
	struct error error = {0};
	if (binary)
		assert_int_equal(net_conn_take_parts(conn, bytes, length, &parts), STATUS_OK);
	assert_int_equal(message_decode_text(&message, (const char *)parts.head, parts.head_bytes, NULL), STATUS_OK);
	for (struct node *node = all.nodes; node < all.nodes + 2; node++) {
		if (user == &node->control)
			take_control(node, conn, &message);
		if (user != &node->bulk)
			continue;
		if (contract_check_params(all.contract, contract_find(all.contract, "model.read"), message.params,
					  &error))
			fail_msg("%s", error.message);
		read_model(node, conn, &message);
	}
	net_frame_unref(&parts.holder);
	message_finish(&message);
}

static void closed(void *user, struct net_conn *conn, int code)
{
	(void)code;
	if (*(struct net_conn **)user == conn)
		*(struct net_conn **)user = NULL;
}

static const struct net_handler server = {.upgrade = upgrade, .opened = opened, .message = received, .closed = closed};

// ---- a node ----

static void serve(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	node_models_fetch(node->models, call);
}

static const struct uplink_method served[] = {{"model.fetch", serve}};

static void lost(void *arg)
{
	struct node *node = arg;
	node_models_lost(node->models);
}

static void tell(void *arg, struct json *params)
{
	struct node *node = arg;
	const struct json *link = json_first(json_get(params, "links"));
	node->up = link && !strcmp(json_get_string(link, "state", ""), "up");
	json_destroy(&params);
}

static void vanish(void *arg)
{
	struct node *node = arg;
	links_destroy(&node->links);
}

static void give(void *arg, struct link_request *request)
{
	struct error error = {0};
	struct node *node = arg;
	node->asked++;
	if (node->gone_after && node->asked > node->gone_after && !all.vanish.running)
		net_timer_start(all.loop, &all.vanish, 0, vanish, node);
	if (node->silent || (node->gone_after && node->asked > node->gone_after)) {
		assert_true(node->held_count < HELD);
		node->held[node->held_count++] = request;
	} else if (node->lies) {
		struct net_frame *frame = net_frame_alloc(request->bytes);
		memcpy(net_frame_data(frame), model + request->offset, request->bytes);
		net_frame_data(frame)[request->bytes / 2] ^= 1;
		link_request_answer(&request, frame, NULL);
		net_frame_unref(&frame);
	} else if (node->lacks) {
		error_set(&error, STATUS_NOT_FOUND, "it is not here");
		link_request_answer(&request, NULL, &error);
	} else {
		node_models_give(node->models, request);
	}
}

static void introduce(struct node *node, const struct node *other)
{
	struct json *params = json_new_object(), *peer = json_new_object(), *peers = json_new_array(),
		    *addresses = json_new_array();
	json_set_string(peer, "node_id", other->id);
	json_set_string(peer, "name", other->id);
	json_push(addresses, json_new_string("127.0.0.1"));
	json_set(peer, "addresses", addresses);
	json_set_integer(peer, "port", links_port(other->links));
	json_push(peers, peer);
	json_set(params, "peers", peers);
	links_set_peers(node->links, params);
	json_destroy(&params);
}

static void node_begin(struct node *node, const char *id)
{
	static const char *const subprotocols[] = {"exogpu.node.v1", "exogpu.model.v1", NULL};
	char uri[64];
	node->id = id;
	snprintf(uri, sizeof uri, "URI:exogpu:node:%s", id);
	snprintf(node->socket, sizeof node->socket, "%s/%s", all.folder, id);
	snprintf(node->cache, sizeof node->cache, "%s/%s.models", all.folder, id);
	node->made = make_signed(&all.authority, uri, "clientAuth,serverAuth");
	node->credentials = (struct credentials){.joined = true,
						 .chain_pem = node->made.pem,
						 .key_pem = node->made.key_pem,
						 .authority_pem = all.authority.pem};
	const struct net_listener_params listener = {
		.socket_path = node->socket, .subprotocols = subprotocols, .handler = &server, .context = node};
	const struct uplink_params uplink = {.loop = all.loop,
					     .contract = all.contract,
					     .socket_path = node->socket,
					     .record = no_record,
					     .devices = no_devices,
					     .complete = all_found,
					     .watched = not_told,
					     .methods = served,
					     .method_count = sizeof served / sizeof *served,
					     .lost = lost,
					     .fenced = not_told,
					     .gone = not_gone,
					     .arg = node};
	const struct links_params links = {.loop = all.loop,
					   .contract = all.contract,
					   .credentials = &node->credentials,
					   .node_id = id,
					   .tell = tell,
					   .read_model = give,
					   .arg = node};
	assert_int_equal(net_listener_create(&node->listener, all.loop, &listener, NULL), STATUS_OK);
	assert_int_equal(uplink_create(&node->uplink, &uplink, NULL), STATUS_OK);
	assert_int_equal(links_create(&node->links, &links, NULL), STATUS_OK);
	const struct node_models_params models = {.loop = all.loop,
						  .contract = all.contract,
						  .uplink = node->uplink,
						  .links = node->links,
						  .folder = node->cache};
	assert_int_equal(node_models_create(&node->models, &models, NULL), STATUS_OK);
}

static bool connected(void)
{
	return giver->control && taker->control && giver->up && taker->up;
}

static int begin_test(void **state)
{
	(void)state;
	all = (struct fixture){.folder = "/tmp/exogpu-peers-XXXXXX"};
	assert_non_null(mkdtemp(all.folder));
	assert_int_equal(net_loop_create(&all.loop, NULL), STATUS_OK);
	assert_int_equal(contract_create(&all.contract, CONTRACT_NODE, NULL), STATUS_OK);
	all.authority = make_authority("this cluster");
	node_begin(giver, "node_a");
	node_begin(taker, "node_b");
	introduce(giver, taker);
	introduce(taker, giver);
	run_until(connected);
	return 0;
}

static int end_test(void **state)
{
	char command[64];
	struct error error = {0};
	(void)state;
	error_set(&error, STATUS_UNAVAILABLE, "the test is over");
	net_close_all(all.loop, 1001);
	net_timer_stop(all.loop, &all.vanish);
	for (struct node *node = all.nodes; node < all.nodes + 2; node++) {
		while (node->held_count)
			link_request_answer(&node->held[--node->held_count], NULL, &error);
		links_destroy(&node->links);
		node_models_destroy(&node->models);
		uplink_destroy(&node->uplink);
		net_listener_destroy(&node->listener);
		json_destroy(&node->result);
		made_finish(&node->made);
	}
	net_loop_destroy(&all.loop);
	contract_destroy(&all.contract);
	made_finish(&all.authority);
	snprintf(command, sizeof command, "rm -rf %s", all.folder);
	return system(command);
}

// ---- the tests ----

static bool giver_done(void)
{
	return giver->result;
}

static bool taker_done(void)
{
	return taker->result;
}

// peers: what the server says of them, or "".
static void fetch(struct node *node, const char *ranges, const char *peers)
{
	char text[512];
	int length = snprintf(
		text, sizeof text,
		"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"model.fetch\",\"params\":{\"model_id\":\"mdl_1\","
		"\"key\":\"secret\",\"bytes\":%d,\"ranges\":[%s]%s}}",
		++node->calls, MODEL_BYTES, ranges, peers);
	json_destroy(&node->result);
	net_conn_send_text(node->control, text, (size_t)length);
	run_until(node == giver ? giver_done : taker_done);
	assert_false(node->failed);
}

static void check_file(const struct node *node, size_t offset, size_t bytes)
{
	int fd;
	uint8_t *got = malloc(bytes);
	assert_int_equal(node_models_open(node->models, "mdl_1", &fd, NULL), STATUS_OK);
	assert_int_equal(pread(fd, got, bytes, (off_t)offset), (ssize_t)bytes);
	assert_memory_equal(got, model + offset, bytes);
	free(got);
	close(fd);
}

#define WHOLE "[0,20983865]" // MODEL_BYTES
static const char from_giver[] = ",\"peers\":[{\"node_id\":\"node_x\",\"ranges\":[" WHOLE "]},"
				 "{\"node_id\":\"node_a\",\"ranges\":[" WHOLE "]}]";

static int64_t from_peers(void)
{
	print_message("%d pieces and %d digests of the server, %d requests of the other node: %lld bytes\n",
		      taker->read, taker->digested, giver->asked,
		      (long long)json_get_integer(taker->result, "peer_bytes", -1));
	check_file(taker, 0, MODEL_BYTES);
	return json_get_integer(taker->result, "peer_bytes", -1);
}

static void bytes_come_from_the_other_node(void **state)
{
	(void)state;
	assert_int_equal(strtol(WHOLE + 3, NULL, 10), MODEL_BYTES);
	fetch(giver, WHOLE, "");
	assert_int_equal(giver->read, 6);
	fetch(taker, WHOLE, from_giver); // node_x is none that it has a link to
	assert_int_equal(from_peers(), MODEL_BYTES);
	assert_int_equal(taker->read, 0);
	assert_int_equal(taker->digested, 6);
	assert_int_equal(giver->asked, 5 * PIECE / LIMIT_LINK_READ_BYTES + 1);
	assert_int_equal(json_get_integer(taker->result, "fetched_bytes", -1), MODEL_BYTES);
	assert_null(json_get(taker->result, "wrong_peers"));
}

static void it_gives_only_what_it_has_checked(void **state)
{
	(void)state;
	fetch(giver, "[0,8388608]", "");
	fetch(taker, WHOLE, from_giver);
	// Pieces are asked for in order, four at once; the third shows that what was said of it is not so.
	int64_t bytes = from_peers();
	assert_true(bytes <= 2 * PIECE && bytes % PIECE == 0);
	assert_int_equal(taker->read, 6 - bytes / PIECE);
}

static void a_node_that_lies_is_found_out(void **state)
{
	(void)state;
	giver->lies = true;
	fetch(taker, WHOLE, from_giver);
	assert_int_equal(from_peers(), 0);
	assert_int_equal(taker->read, 6);
	const struct json *wrong = json_get(taker->result, "wrong_peers");
	assert_int_equal(json_count(wrong), 1);
	assert_string_equal(json_string(json_first(wrong), ""), "node_a");
}

static void a_node_that_lacks_it_is_asked_no_more(void **state)
{
	(void)state;
	giver->lacks = true;
	fetch(taker, WHOLE, from_giver);
	assert_int_equal(from_peers(), 0);
	assert_true(giver->asked <= 4);
	assert_int_equal(taker->read, 6);
}

static void a_node_that_does_not_answer(void **state)
{
	(void)state;
	giver->silent = true;
	fetch(taker, WHOLE, from_giver);
	assert_int_equal(from_peers(), 0);
	assert_true(giver->asked <= 4);
	assert_int_equal(taker->read, 6);
}

static void a_node_that_goes_in_the_middle(void **state)
{
	(void)state;
	fetch(giver, WHOLE, "");
	giver->gone_after = 20;
	fetch(taker, WHOLE, from_giver);
	assert_true(from_peers() < MODEL_BYTES);
	assert_true(taker->read > 0);
	assert_null(giver->links);
}

static void a_node_that_is_cut_off_gives_nothing(void **state)
{
	(void)state;
	fetch(giver, WHOLE, "");
	links_fence(giver->links, true);
	fetch(taker, WHOLE, from_giver);
	assert_int_equal(from_peers(), 0);
	assert_int_equal(giver->asked, 0);
	assert_int_equal(taker->read, 6);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)
	const struct CMUnitTest tests[] = {
		TEST(bytes_come_from_the_other_node),       TEST(it_gives_only_what_it_has_checked),
		TEST(a_node_that_lies_is_found_out),        TEST(a_node_that_lacks_it_is_asked_no_more),
		TEST(a_node_that_does_not_answer),          TEST(a_node_that_goes_in_the_middle),
		TEST(a_node_that_is_cut_off_gives_nothing),
	};
	signal(SIGPIPE, SIG_IGN);
	model = malloc(MODEL_BYTES);
	for (size_t i = 0, value = 7; i < MODEL_BYTES; i++) {
		value = value * 1664525 + 1013904223;
		model[i] = (uint8_t)(value >> 24);
	}
	int failures = cmocka_run_group_tests(tests, NULL, NULL);
	free(model);
	return failures;
}
