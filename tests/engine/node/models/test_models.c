/* The cache of model files on a node: what is fetched, kept, checked and fetched anew, and what becomes of a cut, a
 * full disk and a server that lies. The server is a listener on a Unix socket, with the model in memory; all on one
 * loop, but for the cache's own thread. */
#include "common/base/clock.h"
#include "common/net/ws/parts.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/node/models/models.h"
#include "engine/node/models/models_index.h"
#include "tests/common/net/waiting.h"
#include "tests/engine/node/bare_node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { MIB = 1024 * 1024, PIECE = LIMIT_MODEL_PIECE_BYTES, MODEL_BYTES = 48 * MIB + 12345, ANSWERS = 64 };

struct answer {
	bool come, failed;
	int64_t fetched, reused, freed;
	struct error error;
};

static struct fixture {
	struct net_loop *loop;
	struct contract *contract;
	struct net_listener *listener;
	struct uplink *uplink;
	struct node_models *models;
	struct net_conn *control, *bulk;
	struct answer answers[ANSWERS];
	int last_call;
	char folder[40], cache[64], path[64];
	// What the server does.
	int reads, progress, close_after; // close_after: reads; 0: never
	int64_t told_bytes, told_reused, told_total;
	bool lie, cut_short, refuse, silent, unregistered;
} all;
static uint8_t *model; // (MODEL_BYTES)

static bool run(bool (*enough)(void), int64_t patience_ms)
{
	return wait_until(all.loop, enough, patience_ms);
}

// ---- the server ----

static bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)context, (void)response;
	*user = strcmp(request->subprotocol, "exogpu.model.v1") ? (void *)&all.control : (void *)&all.bulk;
	return true;
}

static void opened(void *user, struct net_conn *conn)
{
	net_conn_trust(conn);
	*(struct net_conn **)user = conn;
}

static void read_model(struct net_conn *conn, const struct message *message)
{
	struct buffer head;
	uint8_t hash[32];
	char hex[65];
	struct error error = {0};
	const char *key = json_get_string(message->params, "key", "");
	const size_t offset = (size_t)json_get_integer(message->params, "offset", 0);
	size_t bytes = (size_t)json_get_integer(message->params, "bytes", 0);
	assert_string_equal(key, "secret");
	assert_true(offset <= MODEL_BYTES && bytes <= MODEL_BYTES - offset);
	all.reads++;
	if (all.silent)
		return;
	if (all.close_after && all.reads > all.close_after) {
		net_conn_close(conn, 1011, "a fault");
		return;
	}
	buffer_init(&head, LIMIT_HEAD_BYTES);
	if (all.refuse) {
		error_set(&error, STATUS_FORBIDDEN, "not this model");
		message_print_error(&head, message->id, &error);
		net_conn_send_parts(conn, &(struct net_parts){.head = head.data, .head_bytes = head.length});
		buffer_finish(&head);
		return;
	}
	EVP_Digest(model + offset, bytes, hash, NULL, EVP_sha256(), NULL);
	hash[0] = (uint8_t)(hash[0] ^ (all.lie && all.reads == 3 ? 1 : 0));
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	if (all.cut_short && all.reads == 2)
		bytes--;
	struct json *result = json_new_object();
	json_set_string(result, "sha256", hex);
	message_print_result(&head, message->id, result);
	assert_int_equal(net_conn_send_parts(conn, &(struct net_parts){.head = head.data,
								       .head_bytes = head.length,
								       .body = model + offset,
								       .body_bytes = bytes}),
			 STATUS_OK);
	buffer_finish(&head);
}

static void register_node(struct net_conn *conn, const struct message *message)
{
	struct buffer text;
	struct json *result = json_new_object();
	json_set_integer(result, "protocol", 1);
	json_set_bool(result, "watched", false);
	buffer_init(&text, LIMIT_HEAD_BYTES);
	message_print_result(&text, message->id, strcmp(message->method, "node.register") ? json_new_object() : result);
	if (strcmp(message->method, "node.register") != 0)
		json_destroy(&result);
	net_conn_send_text(conn, buffer_text(&text), text.length);
	buffer_finish(&text);
}

static void take_control(struct net_conn *conn, const struct message *message)
{
	int64_t id = 0;
	struct error error = {0};
	if (message->kind == MESSAGE_REQUEST) {
		register_node(conn, message);
	} else if (message->kind == MESSAGE_NOTIFICATION) {
		assert_string_equal(message->method, "model.fetching");
		if (contract_check_params(all.contract, contract_find(all.contract, "model.fetching"), message->params,
					  &error))
			fail_msg("%s", error.message);
		all.progress++;
		all.told_bytes = json_get_integer(message->params, "fetched_bytes", -1);
		all.told_reused = json_get_integer(message->params, "reused_bytes", -1);
		all.told_total = json_get_integer(message->params, "total_bytes", -1);
	} else if (!json_integer(message->id, &id) && id > 0 && id < ANSWERS) {
		struct answer *answer = &all.answers[id];
		assert_false(answer->come);
		*answer = (struct answer){.come = true, .failed = message->kind == MESSAGE_ERROR};
		if (answer->failed)
			message_read_error(message, &answer->error);
		answer->fetched = json_get_integer(message->result, "fetched_bytes", -1);
		answer->reused = json_get_integer(message->result, "reused_bytes", -1);
		answer->freed = json_get_integer(message->result, "freed_bytes", -1);
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
	if (user == &all.control) {
		take_control(conn, &message);
	} else {
		assert_string_equal(message.method, "model.read");
		if (contract_check_params(all.contract, contract_find(all.contract, "model.read"), message.params,
					  &error))
			fail_msg("%s", error.message);
		read_model(conn, &message);
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

// ---- the node ----

static void serve_fetch(void *arg, struct uplink_call *call)
{
	(void)arg;
	node_models_fetch(all.models, call);
}

static void serve_forget(void *arg, struct uplink_call *call)
{
	(void)arg;
	node_models_forget(all.models, call);
}

static const struct uplink_method served[] = {{"model.fetch", serve_fetch}, {"model.forget", serve_forget}};

static void lost(void *arg)
{
	(void)arg;
	node_models_lost(all.models);
}

static bool connected(void)
{
	return all.control && !all.unregistered;
}

static void start_cache(void)
{
	struct error error = {0};
	const struct node_models_params params = {
		.loop = all.loop, .contract = all.contract, .uplink = all.uplink, .folder = all.cache};
	if (node_models_create(&all.models, &params, &error))
		fail_msg("%s", error.message);
}

static int begin_test(void **state)
{
	static const char *const subprotocols[] = {"exogpu.node.v1", "exogpu.model.v1", NULL};
	(void)state;
	all = (struct fixture){.folder = "/tmp/exogpu-cache-XXXXXX"};
	if (!mkdtemp(all.folder) || net_loop_create(&all.loop, NULL) ||
	    contract_create(&all.contract, CONTRACT_NODE, NULL))
		return -1;
	snprintf(all.path, sizeof(all.path), "%s/server", all.folder);
	snprintf(all.cache, sizeof(all.cache), "%s/models", all.folder);
	const struct net_listener_params listener = {
		.socket_path = all.path, .subprotocols = subprotocols, .handler = &server};
	const struct uplink_params uplink = {.loop = all.loop,
					     .contract = all.contract,
					     .socket_path = all.path,
					     .record = no_record,
					     .devices = no_devices,
					     .complete = all_found,
					     .watched = not_told,
					     .methods = served,
					     .method_count = sizeof served / sizeof *served,
					     .lost = lost,
					     .fenced = not_told,
					     .gone = not_gone};
	if (net_listener_create(&all.listener, all.loop, &listener, NULL) || uplink_create(&all.uplink, &uplink, NULL))
		return -1;
	start_cache();
	return run(connected, 5000) ? 0 : -1;
}

static int end_test(void **state)
{
	char command[160];
	(void)state;
	net_close_all(all.loop, 1001);
	node_models_destroy(&all.models);
	uplink_destroy(&all.uplink);
	net_listener_destroy(&all.listener);
	net_loop_destroy(&all.loop);
	contract_destroy(&all.contract);
	umount2(all.cache, MNT_DETACH);
	snprintf(command, sizeof(command), "rm -rf %s", all.folder);
	return system(command);
}

static int send_call(const char *method, const char *model_id, const char *more)
{
	char text[512];
	assert_true(all.last_call + 1 < ANSWERS);
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"%s\",\"params\":{\"model_id\":\"%s\"%s}}",
			      ++all.last_call, method, model_id, more);
	net_conn_send_text(all.control, text, (size_t)length);
	return all.last_call;
}

static int send_fetch(const char *model_id, const char *ranges)
{
	char more[256];
	snprintf(more, sizeof(more), ",\"key\":\"secret\",\"bytes\":%d,\"ranges\":[%s]", MODEL_BYTES, ranges);
	return send_call("model.fetch", model_id, more);
}

static bool all_answered(void)
{
	for (int i = 1; i <= all.last_call; i++)
		if (!all.answers[i].come)
			return false;
	return true;
}

static struct answer *fetch(const char *model_id, const char *ranges)
{
	int call = send_fetch(model_id, ranges);
	assert_true(run(all_answered, 60000));
	return &all.answers[call];
}

static void fetch_well(const char *model_id, const char *ranges, int64_t fetched, int64_t reused)
{
	struct answer *answer = fetch(model_id, ranges);
	if (answer->failed)
		fail_msg("%s", answer->error.message);
	assert_int_equal(answer->fetched, fetched);
	assert_int_equal(answer->reused, reused);
}

static void fetch_ill(const char *model_id, const char *ranges, enum status status)
{
	struct answer *answer = fetch(model_id, ranges);
	print_message("%s; %s\n", answer->error.message, answer->error.hint);
	assert_true(answer->failed);
	assert_int_equal(answer->error.status, status);
}

// What a worker would get has the model's bytes there.
static void check_file(const char *model_id, size_t offset, size_t bytes)
{
	int fd;
	struct stat info;
	assert_int_equal(node_models_open(all.models, model_id, &fd, NULL), STATUS_OK);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fstat(fd, &info), 0);
	assert_int_equal(info.st_size, MODEL_BYTES);
	uint8_t *got = malloc(bytes);
	assert_int_equal(pread(fd, got, bytes, (off_t)offset), (ssize_t)bytes);
	assert_memory_equal(got, model + offset, bytes);
	free(got);
	close(fd);
}

static void file_of(char *path, size_t size, const char *model_id, const char *end)
{
	snprintf(path, size, "%s/%s.%s", all.cache, model_id, end);
}

static void restart_cache(void)
{
	net_close_all(all.loop, 1001);
	node_models_destroy(&all.models);
	start_cache();
	uplink_destroy(&all.uplink);
	const struct uplink_params uplink = {.loop = all.loop,
					     .contract = all.contract,
					     .socket_path = all.path,
					     .record = no_record,
					     .devices = no_devices,
					     .complete = all_found,
					     .watched = not_told,
					     .methods = served,
					     .method_count = sizeof served / sizeof *served,
					     .lost = lost,
					     .fenced = not_told,
					     .gone = not_gone};
	all.control = all.bulk = NULL;
	node_models_destroy(&all.models);
	assert_int_equal(uplink_create(&all.uplink, &uplink, NULL), STATUS_OK);
	start_cache();
	assert_true(run(connected, 5000));
}

// ---- the tests ----

static void ranges_are_fetched_and_the_rest_is_holes(void **state)
{
	struct stat info;
	char path[128];
	int fd;
	(void)state;
	assert_int_equal(node_models_open(all.models, "mdl_1", &fd, NULL), STATUS_NOT_FOUND);
	fetch_well("mdl_1", "[0,100],[20000000,9000000],[29000000,1000]", 9001100, 0);
	assert_int_equal(all.reads, 4); // 100; 9001000 in three
	check_file("mdl_1", 0, 100);
	check_file("mdl_1", 20000000, 9001000);
	file_of(path, sizeof(path), "mdl_1", "part");
	assert_int_equal(stat(path, &info), 0);
	print_message("%lld of %d bytes lie on the disk\n", (long long)info.st_blocks * 512, MODEL_BYTES);
	assert_true(info.st_blocks * 512 < 10 * MIB);
	assert_int_equal(info.st_mode & 0777, 0600);
	fetch_well("mdl_1", "[0,100],[20000000,9000000]", 0, 9000100);
	assert_int_equal(all.reads, 4);
	fetch_well("mdl_1", "[50,100],[19999000,2000]", 1050, 1050);
	check_file("mdl_1", 19999000, 9002000);
	check_file("mdl_1", 0, 150);
	fetch_well("mdl_1", "", 0, 0);
}

static void a_whole_model_comes_and_progress_is_told(void **state)
{
	char ranges[64];
	(void)state;
	snprintf(ranges, sizeof(ranges), "[0,%d]", MODEL_BYTES);
	int64_t began_ns = clock_steady_ns();
	fetch_well("mdl_1", ranges, MODEL_BYTES, 0);
	double seconds = (double)(clock_steady_ns() - began_ns) * 1e-9;
	print_message("%.0f MB/s, server and node on one thread; told %d times\n", MODEL_BYTES / seconds / 1e6,
		      all.progress);
	check_file("mdl_1", 0, MODEL_BYTES);
	assert_int_equal(all.reads, (MODEL_BYTES + PIECE - 1) / PIECE);
	assert_true(all.progress <= seconds * 4 + 1);
	assert_true(all.told_bytes <= MODEL_BYTES);
}

static bool told_of_progress(void)
{
	return all.progress > 0;
}

static void what_is_there_is_told_apart(void **state)
{
	(void)state;
	fetch_well("mdl_1", "[0,12582912]", 3 * PIECE, 0);
	all.progress = 0;
	all.silent = true;
	send_fetch("mdl_1", "[0,41943040]"); // end_test ends it
	assert_true(run(told_of_progress, 10000));
	assert_int_equal(all.told_bytes, 3 * PIECE);
	assert_int_equal(all.told_reused, 3 * PIECE);
	assert_int_equal(all.told_total, 10 * PIECE);
}

static void what_is_there_is_checked_again_after_a_start(void **state)
{
	char path[128], byte;
	(void)state;
	fetch_well("mdl_1", "[0,20971520]", 5 * PIECE, 0);
	restart_cache();
	fetch_well("mdl_1", "[0,20971520]", 0, 5 * PIECE);
	assert_int_equal(all.reads, 5);
	file_of(path, sizeof(path), "mdl_1", "part");
	int fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &byte, 1, 2 * PIECE + 17), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, 2 * PIECE + 17), 1);
	close(fd);
	restart_cache();
	fetch_well("mdl_1", "[0,20971520]", PIECE, 4 * PIECE);
	check_file("mdl_1", 0, 5 * PIECE);
	assert_int_equal(all.reads, 6);
}

static void a_damaged_index_is_none(void **state)
{
	char path[128];
	(void)state;
	for (int round = 0; round < 3; round++) {
		fetch_well("mdl_1", "[0,5000000]", 5000000, 0);
		file_of(path, sizeof(path), "mdl_1", "index");
		int fd = open(path, O_RDWR);
		if (round == 0)
			assert_int_equal(pwrite(fd, "x", 1, 30), 1);
		else if (round == 1)
			assert_int_equal(ftruncate(fd, 40), 0);
		else
			unlink(path);
		close(fd);
		restart_cache();
	}
	fetch_well("mdl_1", "[0,5000000]", 5000000, 0);
	check_file("mdl_1", 0, 5000000);
}

static void a_cut_leaves_what_was_fetched(void **state)
{
	(void)state;
	all.close_after = 5;
	fetch_ill("mdl_1", "[0,41943040]", STATUS_UNAVAILABLE);
	all.close_after = 0;
	struct answer *answer = fetch("mdl_1", "[0,41943040]");
	assert_false(answer->failed);
	print_message("after the cut %lld were there\n", (long long)answer->reused);
	assert_true(answer->reused >= PIECE);
	assert_int_equal(answer->fetched + answer->reused, 10 * PIECE);
	check_file("mdl_1", 0, 10 * PIECE);
}

static void a_server_that_lies_is_not_believed(void **state)
{
	(void)state;
	all.lie = true;
	fetch_ill("mdl_1", "[0,41943040]", STATUS_INVALID_REQUEST);
	all.lie = false;
	all.cut_short = true;
	all.reads = 0;
	fetch_ill("mdl_1", "[0,41943040]", STATUS_INVALID_REQUEST);
	all.cut_short = false;
	all.refuse = true;
	fetch_ill("mdl_1", "[0,41943040]", STATUS_FORBIDDEN);
	all.refuse = false;
	assert_false(fetch("mdl_1", "[0,41943040]")->failed);
	check_file("mdl_1", 0, 10 * PIECE);
}

static void what_cannot_be_is_refused(void **state)
{
	(void)state;
	fetch_ill("mdl_1", "[0,999999999]", STATUS_INVALID_PARAMS);
	fetch_ill("mdl_1", "[50343993,1]", STATUS_INVALID_PARAMS);
	fetch_ill("../mdl", "[0,1]", STATUS_INVALID_PARAMS);
	fetch_ill(".hidden", "[0,1]", STATUS_INVALID_PARAMS);
	send_call("model.fetch", "mdl_1", ",\"key\":\"secret\",\"bytes\":9007199254740991,\"ranges\":[]");
	assert_true(run(all_answered, 5000));
	assert_int_equal(all.answers[all.last_call].error.status, STATUS_LIMIT_EXCEEDED);
	assert_int_equal(all.reads, 0);
}

static void a_model_of_another_length_begins_anew(void **state)
{
	char path[128];
	struct stat info;
	(void)state;
	fetch_well("mdl_1", "[0,5000000]", 5000000, 0);
	send_call("model.fetch", "mdl_1", ",\"key\":\"secret\",\"bytes\":6000000,\"ranges\":[[0,5000000]]");
	assert_true(run(all_answered, 5000));
	assert_int_equal(all.answers[all.last_call].fetched, 5000000);
	file_of(path, sizeof(path), "mdl_1", "part");
	assert_int_equal(stat(path, &info), 0);
	assert_int_equal(info.st_size, 6000000);
}

static void several_fetches_at_once(void **state)
{
	(void)state;
	int first = send_fetch("mdl_1", "[0,20971520]"), same = send_fetch("mdl_1", "[16777216,8388608]"),
	    other = send_fetch("mdl_2", "[100,10000000]"), broken = send_fetch("mdl_1", "[0,999999999]");
	assert_true(run(all_answered, 60000));
	assert_int_equal(all.answers[first].fetched, 5 * PIECE);
	assert_int_equal(all.answers[same].fetched, PIECE);
	assert_int_equal(all.answers[same].reused, PIECE);
	assert_int_equal(all.answers[other].fetched, 10000000);
	assert_true(all.answers[broken].failed);
	check_file("mdl_1", 0, 6 * PIECE);
	check_file("mdl_2", 100, 10000000);
}

static bool asked(void)
{
	return all.reads > 0;
}

static void a_model_is_forgotten(void **state)
{
	char path[128];
	int fd, used;
	(void)state;
	fetch_well("mdl_1", "[0,5000000]", 5000000, 0);
	assert_int_equal(node_models_open(all.models, "mdl_1", &used, NULL), STATUS_OK);
	int call = send_call("model.forget", "mdl_1", "");
	assert_true(run(all_answered, 5000));
	print_message("forgotten: %lld bytes\n", (long long)all.answers[call].freed);
	assert_true(all.answers[call].freed >= 5000000);
	assert_int_equal(node_models_open(all.models, "mdl_1", &fd, NULL), STATUS_NOT_FOUND);
	file_of(path, sizeof(path), "mdl_1", "part");
	assert_int_equal(access(path, F_OK), -1);
	file_of(path, sizeof(path), "mdl_1", "index");
	assert_int_equal(access(path, F_OK), -1);
	uint8_t byte; // who has it has it on
	assert_int_equal(pread(used, &byte, 1, 4999999), 1);
	assert_int_equal(byte, model[4999999]);
	close(used);
	all.silent = true;
	all.reads = 0;
	int fetching = send_fetch("mdl_1", "[0,5000000]");
	assert_true(run(asked, 5000));
	call = send_call("model.forget", "mdl_1", "");
	assert_true(run(all_answered, 10000));
	assert_int_equal(all.answers[fetching].error.status, STATUS_CONFLICT);
	assert_int_equal(access(path, F_OK), -1);
	all.silent = false;
	fetch_well("mdl_1", "[0,5000000]", 5000000, 0);
	check_file("mdl_1", 0, 5000000);
}

static bool both_told(void)
{
	return all.progress >= 2;
}

// The server gives up a node that says nothing: it tells of fetches to which nothing comes, and of those that wait.
static void silent_fetches_are_told_of(void **state)
{
	(void)state;
	all.silent = true;
	all.progress = 0;
	send_fetch("mdl_1", "[0,41943040]");
	send_fetch("mdl_1", "[0,41943040]"); // which begins after the first
	assert_true(run(both_told, 6 * LIMIT_FETCH_TELL_MS));
	assert_int_equal(all.told_bytes, 0);
	assert_int_equal(all.told_total, 10 * PIECE);
	send_call("model.forget", "mdl_1", "");
	assert_true(run(all_answered, 10000));
	all.silent = false;
}

static bool gone_and_back(void)
{
	return all.control && all.progress == -1;
}

static void a_server_that_goes_ends_fetches(void **state)
{
	(void)state;
	all.silent = true;
	send_fetch("mdl_1", "[0,41943040]");
	send_fetch("mdl_1", "[0,41943040]");
	assert_true(run(asked, 5000));
	net_conn_close(all.control, 1011, "a fault");
	all.progress = -1;
	all.control = NULL;
	assert_true(run(gone_and_back, 10000));
	all.progress = 0;
	all.silent = false;
	all.last_call = 4;
	for (int i = 1; i <= 4; i++)
		all.answers[i] = (struct answer){.come = true};
	assert_false(fetch("mdl_1", "[0,41943040]")->failed);
	check_file("mdl_1", 0, 10 * PIECE);
}

static bool asked_by_two(void)
{
	return all.reads > 4;
}

static void a_node_that_stops_meanwhile(void **state)
{
	(void)state;
	all.silent = true;
	send_fetch("mdl_1", "[0,41943040]");
	send_fetch("mdl_1", "[0,41943040]");
	send_fetch("mdl_2", "[0,41943040]");
	assert_true(run(asked_by_two, 5000)); // the rest is end_test's
}

static void a_file_that_may_not_grow_is_told(void **state)
{
	struct rlimit before, small = {.rlim_cur = 6 * MIB};
	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	small.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	struct answer *answer = fetch("mdl_1", "[0,41943040]");
	setrlimit(RLIMIT_FSIZE, &before);
	print_message("%s; %s\n", answer->error.message, answer->error.hint);
	assert_int_equal(answer->error.status, STATUS_LIMIT_EXCEEDED);
	assert_false(fetch("mdl_1", "[0,41943040]")->failed);
}

static void a_full_disk_is_made_room_on(void **state)
{
	int used;
	(void)state;
	assert_int_equal(mkdir(all.cache, 0700), 0);
	if (mount("none", all.cache, "tmpfs", 0, "size=32m")) {
		print_message("skipped: no file system can be mounted here: %s\n", strerror(errno));
		skip();
	}
	fetch_well("mdl_1", "[0,8388608]", 2 * PIECE, 0);
	fetch_well("mdl_2", "[0,8388608]", 2 * PIECE, 0);
	fetch_well("mdl_3", "[0,8388608]", 2 * PIECE, 0);
	assert_int_equal(node_models_open(all.models, "mdl_1", &used, NULL), STATUS_OK);
	fetch_well("mdl_4", "[0,8388608]", 2 * PIECE, 0); // in the place of mdl_2
	check_file("mdl_1", 0, 2 * PIECE);
	check_file("mdl_3", 0, 2 * PIECE);
	check_file("mdl_4", 0, 2 * PIECE);
	int fd;
	assert_int_equal(node_models_open(all.models, "mdl_2", &fd, NULL), STATUS_NOT_FOUND);
	fetch_ill("mdl_5", "[0,41943040]", STATUS_LIMIT_EXCEEDED);
	check_file("mdl_1", 0, 2 * PIECE);
	check_file("mdl_3", 0, 2 * PIECE); // nothing is deleted where it would not help
	close(used);
	fetch_well("mdl_2", "[0,8388608]", 2 * PIECE, 0);
	assert_int_equal(node_models_open(all.models, "mdl_4", &fd, NULL), STATUS_NOT_FOUND);
	check_file("mdl_2", 0, 2 * PIECE);
}

// Spans and gaps against a map of bytes.
static void gaps_are_what_pieces_leave(void **state)
{
	enum { BYTES = 512 };
	(void)state;
	srand(1);
	for (int round = 0; round < 2000; round++) {
		bool wanted[BYTES] = {0}, there[BYTES] = {0}, left[BYTES] = {0};
		struct model_span spans[6];
		struct model_index index = {.file_bytes = BYTES};
		for (int i = 0; i < 6; i++) {
			spans[i].offset = (uint64_t)(rand() % BYTES);
			spans[i].bytes = (uint64_t)rand() % (BYTES - spans[i].offset + 1);
			spans[i].bytes = rand() % 2 ? spans[i].bytes % 40 : spans[i].bytes;
			for (uint64_t at = 0; at < spans[i].bytes; at++)
				wanted[spans[i].offset + at] = true;
		}
		for (int i = 0; i < 20; i++) {
			struct model_piece piece = {.at = {(uint64_t)(rand() % BYTES), (uint64_t)(1 + rand() % 30)}};
			bool clash = piece.at.offset + piece.at.bytes > BYTES;
			for (uint64_t at = 0; at < piece.at.bytes && !clash; at++)
				clash = there[piece.at.offset + at];
			if (clash)
				continue;
			assert_int_equal(model_index_add(&index, &piece, NULL), STATUS_OK);
			for (uint64_t at = 0; at < piece.at.bytes; at++)
				there[piece.at.offset + at] = true;
		}
		size_t count = model_spans_join(spans, 6);
		for (size_t i = 0; i < count; i++) {
			struct model_span rest = spans[i], gap;
			while ((gap = model_index_gap(&index, &rest)).bytes) {
				for (uint64_t at = 0; at < gap.bytes; at++) {
					assert_false(left[gap.offset + at]);
					left[gap.offset + at] = true;
				}
				rest.bytes = rest.offset + rest.bytes - gap.offset - gap.bytes;
				rest.offset = gap.offset + gap.bytes;
			}
		}
		for (int at = 0; at < BYTES; at++)
			assert_int_equal(left[at], wanted[at] && !there[at]);
		for (size_t i = 1; i < index.count; i++)
			assert_true(index.pieces[i].at.offset >=
				    index.pieces[i - 1].at.offset + index.pieces[i - 1].at.bytes);
		model_index_finish(&index);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gaps_are_what_pieces_leave),
		TEST(ranges_are_fetched_and_the_rest_is_holes),
		TEST(a_whole_model_comes_and_progress_is_told),
		TEST(what_is_there_is_told_apart),
		TEST(what_is_there_is_checked_again_after_a_start),
		TEST(a_damaged_index_is_none),
		TEST(a_cut_leaves_what_was_fetched),
		TEST(a_server_that_lies_is_not_believed),
		TEST(what_cannot_be_is_refused),
		TEST(a_model_of_another_length_begins_anew),
		TEST(several_fetches_at_once),
		TEST(a_model_is_forgotten),
		TEST(silent_fetches_are_told_of),
		TEST(a_server_that_goes_ends_fetches),
		TEST(a_node_that_stops_meanwhile),
		TEST(a_file_that_may_not_grow_is_told),
		TEST(a_full_disk_is_made_room_on),
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
