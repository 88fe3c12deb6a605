/* A node with hops for the suites that look at them: workers are streams here, the server a listener on the Unix socket
 * of workers that splices two streams as it should, and one for WebSockets, for a server on another machine; all on one
 * loop. */
#pragma once
#include "common/base/clock.h"
#include "common/net/stream.h"
#include "common/net/ws/parts.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/node/links/hops.h"
#include "tests/common/net/waiting.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { MIB = 1024 * 1024, LARGEST = LIMIT_BODY_BYTES, WORKERS = 3, LINES = 16, ANSWERS = 32 };

// A worker's two ends. Message n has the head {"n":n} and a body that begins at n in the pattern.
struct worker {
	struct hops_ring *ring;
	struct net_stream *in, *out;
	unsigned messages;
	size_t bytes;
	bool bad, echoes;
};

// One end of a hop as the server sees it.
struct line {
	bool full;
	struct net_stream *stream; // or
	struct net_conn *conn;
	struct line *other;
	bool greeted;
	char hop_id[65], key[65], end[4];
};

struct answer {
	bool come, failed;
	enum status status;
};

// A worker's end of a channel, once it has it.
struct handed {
	struct net_stream *stream;
	char worker_id[65], channel[65];
	unsigned messages;
	size_t bytes;
	bool bad, closed;
};

static struct fixture {
	struct net_loop *loop;
	struct contract *contract;
	struct net_stream_listener *streams;
	struct net_listener *listener;
	struct uplink *uplink;
	struct hops *hops;
	struct worker workers[WORKERS];
	struct handed handed[2]; // in, out
	bool refuses;            // no worker takes its end
	struct line lines[LINES];
	int line_count;
	struct answer answers[ANSWERS];
	int last_call, ended;
	char ended_worker[65], ended_end[8], ended_hop[65], ended_why[512];
	char folder[40], stream_path[64], path[64];
	uint8_t *pattern; // (LARGEST + 1024)
	bool mute;
	unsigned rounds; // of messages to and fro, that are left
	size_t round_bytes;
	struct net_conn *control;
} all;

// ---- waiting ----

static inline bool run(bool (*enough)(void), int64_t patience_ms)
{
	return wait_until(all.loop, enough, patience_ms);
}

static inline bool never(void)
{
	return false;
}

static inline void settle(void)
{
	run(never, 200);
}

// ---- the workers ----

static inline void say(int number, unsigned n, size_t bytes);

static inline void worker_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
				  struct net_frame *body)
{
	char due[32];
	struct worker *worker = user;
	int length = snprintf(due, sizeof(due), "{\"n\":%u}", worker->messages);
	(void)stream;
	if ((size_t)length != head_bytes || memcmp(head, due, head_bytes) != 0 ||
	    (body && memcmp(net_frame_data(body), all.pattern + worker->messages % 1024, net_frame_bytes(body)) != 0))
		worker->bad = true;
	worker->messages++;
	worker->bytes += body ? net_frame_bytes(body) : 0;
	if (worker == all.workers && all.rounds && --all.rounds)
		say(0, worker->messages, all.round_bytes);
	else if (worker == all.workers && all.round_bytes)
		net_loop_stop(all.loop);
	if (worker->echoes)
		net_stream_send(worker->out, head, head_bytes, body, body ? net_frame_data(body) : NULL,
				body ? net_frame_bytes(body) : 0);
}

static inline void worker_closed(void *user, struct net_stream *stream, const char *why)
{
	struct worker *worker = user;
	(void)why;
	if (worker->in == stream)
		worker->in = NULL;
	else
		worker->out = NULL;
}

static const struct net_stream_handler worker_handler = {.message = worker_message, .closed = worker_closed};

static inline void start_worker(int number)
{
	char id[16];
	int in, out;
	struct worker *worker = &all.workers[number];
	snprintf(id, sizeof(id), "wrk_%d", number);
	assert_int_equal(hops_ring_create(&worker->ring, all.hops, id, &in, &out, NULL), STATUS_OK);
	fcntl(in, F_SETFL, O_NONBLOCK);
	fcntl(out, F_SETFL, O_NONBLOCK);
	assert_int_equal(net_stream_create(&worker->in, all.loop, in, &worker_handler, worker, NULL), STATUS_OK);
	assert_int_equal(net_stream_create(&worker->out, all.loop, out, &worker_handler, worker, NULL), STATUS_OK);
}

// Message `n` of a worker, with this much of the pattern.
static inline void say(int number, unsigned n, size_t bytes)
{
	char head[32];
	int length = snprintf(head, sizeof(head), "{\"n\":%u}", n);
	assert_int_equal(net_stream_send(all.workers[number].out, head, (size_t)length, NULL,
					 bytes ? all.pattern + n % 1024 : NULL, bytes),
			 STATUS_OK);
}

static unsigned due;
static int due_at;

static inline bool all_came(void)
{
	return all.workers[due_at].messages >= due;
}

static inline void wait_for(int number, unsigned messages)
{
	due = messages;
	due_at = number;
	run(all_came, 30000);
	assert_int_equal(all.workers[number].messages, messages);
	assert_false(all.workers[number].bad);
}

// ---- the server ----

static inline void line_send(struct line *line, const struct net_parts *parts)
{
	if (line->stream)
		assert_int_equal(net_stream_send(line->stream, parts->head, parts->head_bytes, parts->holder,
						 parts->body, parts->body_bytes),
				 STATUS_OK);
	else if (line->conn)
		assert_int_equal(net_conn_send_parts(line->conn, parts), STATUS_OK);
}

// What is not taken of one is not read of the other.
static inline void line_hold(struct line *line, bool held)
{
	if (!line || line->full == held)
		return;
	line->full = held;
	if (line->stream)
		held ? net_stream_pause(line->stream) : net_stream_resume(line->stream);
	else if (line->conn)
		held ? net_conn_pause(line->conn) : net_conn_resume(line->conn);
}

static inline size_t line_queued(const struct line *line)
{
	return line->stream ? net_stream_queued(line->stream) : line->conn ? net_conn_queued_bytes(line->conn) : 0;
}

static inline void say_hello(struct line *line)
{
	char text[256];
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"method\":\"hop.hello\",\"params\":{\"hop_id\":\"%s\",\"key\":"
			      "\"%s\",\"end\":\"%s\"}}",
			      line->hop_id, line->key, line->end);
	line_send(line, &(struct net_parts){.head = (const uint8_t *)text, .head_bytes = (size_t)length});
}

static inline void line_close(struct line *line)
{
	struct line *other = line->other;
	line->other = NULL;
	line_hold(line, false); // or its end would not be heard
	if (line->stream)
		net_stream_destroy(&line->stream);
	else if (line->conn)
		net_conn_close(line->conn, 4410, "the other end is gone");
	line->conn = NULL;
	if (!other)
		return;
	other->other = NULL;
	line_close(other);
}

static inline void line_greeted(struct line *line, const struct net_parts *parts)
{
	struct message message = {0};
	assert_int_equal(message_decode_text(&message, (const char *)parts->head, parts->head_bytes, NULL), STATUS_OK);
	assert_string_equal(message.method, "hop.hello");
	assert_int_equal(
		contract_check_params(all.contract, contract_find(all.contract, "hop.hello"), message.params, NULL),
		STATUS_OK);
	snprintf(line->hop_id, 65, "%s", json_get_string(message.params, "hop_id", ""));
	snprintf(line->key, 65, "%s", json_get_string(message.params, "key", ""));
	snprintf(line->end, 4, "%s", json_get_string(message.params, "end", ""));
	message_finish(&message);
	line->greeted = true;
	for (int i = 0; i < all.line_count && !all.mute; i++) {
		struct line *other = &all.lines[i];
		if (other == line || other->other || strcmp(other->hop_id, line->hop_id) != 0 ||
		    !strcmp(other->end, line->end) || (!other->stream && !other->conn))
			continue;
		assert_string_equal(other->key, line->key);
		line->other = other;
		other->other = line;
		say_hello(line);
		say_hello(other);
		return;
	}
}

static inline void line_message(struct line *line, const struct net_parts *parts)
{
	if (!line->greeted)
		line_greeted(line, parts);
	else if (line->other)
		line_send(line->other, parts);
	if (line->other && line_queued(line->other) > LIMIT_STREAM_FULL_BYTES)
		line_hold(line, true);
}

static inline void *stream_accepted(void *context, struct net_stream *stream)
{
	(void)context;
	assert_true(all.line_count < LINES);
	all.lines[all.line_count].stream = stream;
	return &all.lines[all.line_count++];
}

static inline void stream_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
				  struct net_frame *body)
{
	(void)stream;
	line_message(user, &(struct net_parts){.head = head,
					       .head_bytes = head_bytes,
					       .body = body ? net_frame_data(body) : NULL,
					       .body_bytes = body ? net_frame_bytes(body) : 0,
					       .holder = body});
}

static inline void stream_closed(void *user, struct net_stream *stream, const char *why)
{
	struct line *line = user;
	(void)stream, (void)why;
	line->stream = NULL;
	line_close(line);
}

static inline void stream_drained(void *user, struct net_stream *stream)
{
	(void)stream;
	line_hold(((struct line *)user)->other, false);
}

static const struct net_stream_handler stream_handler = {
	.message = stream_message, .drained = stream_drained, .closed = stream_closed};

static inline bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)context, (void)response;
	*user = &all;
	if (!strcmp(request->subprotocol, "exogpu.worker.v1")) {
		assert_true(all.line_count < LINES);
		*user = &all.lines[all.line_count++];
	}
	return true;
}

static inline void opened(void *user, struct net_conn *conn)
{
	net_conn_trust(conn);
	if (user == &all)
		all.control = conn;
	else
		((struct line *)user)->conn = conn;
}

// To hop.connect; the uplink's registration nobody answers here.
static inline void take_answer(const uint8_t *bytes, size_t length)
{
	struct error error = {0};
	struct message message = {0};
	int64_t id = 0;
	assert_int_equal(message_decode_text(&message, (const char *)bytes, length, NULL), STATUS_OK);
	if (!message.method && !json_integer(message.id, &id) && id > 0 && id < ANSWERS) {
		assert_false(all.answers[id].come);
		all.answers[id] = (struct answer){.come = true, .failed = message.kind == MESSAGE_ERROR};
		if (message.kind == MESSAGE_ERROR) {
			message_read_error(&message, &error);
			all.answers[id].status = error.status;
		}
	}
	message_finish(&message);
}

static inline void conn_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct net_parts parts = {0};
	if (user == &all) {
		take_answer(bytes, length);
		return;
	}
	assert_true(binary);
	assert_int_equal(net_conn_take_parts(conn, bytes, length, &parts), STATUS_OK);
	line_message(user, &parts);
	net_frame_unref(&parts.holder);
}

static inline void conn_closed(void *user, struct net_conn *conn, int code)
{
	(void)conn, (void)code;
	if (user == &all) {
		all.control = NULL;
		return;
	}
	((struct line *)user)->conn = NULL;
	line_close(user);
}

static inline void conn_drained(void *user, struct net_conn *conn)
{
	(void)conn;
	if (user != &all)
		line_hold(((struct line *)user)->other, false);
}

static const struct net_handler conn_handler = {
	.upgrade = upgrade, .opened = opened, .message = conn_message, .drained = conn_drained, .closed = conn_closed};

// ---- the node ----

static inline bool all_found(void *arg)
{
	(void)arg;
	return true;
}

static struct json *no_record(void *arg)
{
	(void)arg;
	return json_new_object();
}

static inline void not_watched(void *arg, bool watched)
{
	(void)arg, (void)watched;
}

static inline void serve_hop(void *arg, struct uplink_call *call)
{
	(void)arg;
	hops_connect(all.hops, call);
}

static inline void serve_copy(void *arg, struct uplink_call *call)
{
	(void)arg;
	hops_connect_channel(all.hops, call);
}

static const struct uplink_method served[] = {{"hop.connect", serve_hop}, {"copy.connect", serve_copy}};

static inline void handed_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
				  struct net_frame *body)
{
	char wanted[32];
	struct handed *end = user;
	int length = snprintf(wanted, sizeof(wanted), "{\"n\":%u}", end->messages);
	(void)stream;
	end->bad |= (size_t)length != head_bytes || memcmp(head, wanted, head_bytes) != 0 || !body ||
		    memcmp(net_frame_data(body), all.pattern + end->messages % 1024, net_frame_bytes(body)) != 0;
	end->messages++;
	end->bytes += body ? net_frame_bytes(body) : 0;
}

static inline void handed_closed(void *user, struct net_stream *stream, const char *why)
{
	struct handed *end = user;
	(void)stream, (void)why;
	end->stream = NULL;
	end->closed = true;
}

static const struct net_stream_handler handed_handler = {.message = handed_message, .closed = handed_closed};

static inline void hand_over(void *arg, struct uplink_call *call, const struct hops_channel *channel)
{
	struct error error = {0};
	struct handed *end = &all.handed[channel->sends];
	(void)arg;
	if (all.refuses) {
		close(channel->fd);
		error_set(&error, STATUS_NOT_FOUND, "there is no such worker");
		uplink_answer(&call, NULL, &error);
		return;
	}
	assert_null(end->stream);
	*end = (struct handed){0};
	snprintf(end->worker_id, sizeof(end->worker_id), "%s", channel->worker_id);
	snprintf(end->channel, sizeof(end->channel), "%s", channel->channel);
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(net_stream_create(&end->stream, all.loop, channel->fd, &handed_handler, end, NULL), STATUS_OK);
	uplink_answer(&call, json_new_object(), NULL);
}

static inline void nothing_lost(void *arg)
{
	(void)arg;
}

static inline void not_fenced(void *arg, bool fenced)
{
	(void)arg, (void)fenced;
}

static inline void not_gone(void *arg, enum status status, const char *why)
{
	(void)arg, (void)status, (void)why;
}

static inline void hop_is_over(void *arg, struct json *params)
{
	struct error error = {0};
	(void)arg;
	if (contract_check_params(all.contract, contract_find(all.contract, "hop.ended"), params, &error))
		fail_msg("%s", error.message);
	all.ended++;
	snprintf(all.ended_worker, sizeof(all.ended_worker), "%s", json_get_string(params, "worker_id", ""));
	snprintf(all.ended_end, sizeof(all.ended_end), "%s", json_get_string(params, "end", ""));
	snprintf(all.ended_hop, sizeof(all.ended_hop), "%s", json_get_string(params, "hop_id", ""));
	snprintf(all.ended_why, sizeof(all.ended_why), "%s", json_get_string(params, "message", ""));
	json_destroy(&params);
}

static inline bool connected(void)
{
	return all.control;
}

static inline int begin(bool far)
{
	static const char *const subprotocols[] = {"exogpu.node.v1", "exogpu.worker.v1", NULL};
	struct error error = {0};
	all = (struct fixture){.folder = "/tmp/exogpu-hops-XXXXXX"};
	if (!mkdtemp(all.folder) || net_loop_create(&all.loop, NULL) ||
	    contract_create(&all.contract, CONTRACT_NODE, NULL))
		return -1;
	snprintf(all.path, sizeof(all.path), "%s/server", all.folder);
	snprintf(all.stream_path, sizeof(all.stream_path), "%s/streams", all.folder);
	all.pattern = malloc(LARGEST + 1024);
	for (size_t i = 0, value = 1; i < LARGEST + 1024; i++) {
		value = value * 1664525 + 1013904223;
		all.pattern[i] = (uint8_t)(value >> 24);
	}
	const struct net_listener_params listener = {
		.socket_path = all.path, .subprotocols = subprotocols, .handler = &conn_handler};
	const struct net_stream_listener_params streams = {
		.socket_path = all.stream_path, .handler = &stream_handler, .accepted = stream_accepted};
	const struct uplink_params uplink = {.loop = all.loop,
					     .contract = all.contract,
					     .socket_path = all.path,
					     .record = no_record,
					     .devices = no_record,
					     .complete = all_found,
					     .watched = not_watched,
					     .methods = served,
					     .method_count = sizeof served / sizeof *served,
					     .lost = nothing_lost,
					     .fenced = not_fenced,
					     .gone = not_gone};
	if (net_listener_create(&all.listener, all.loop, &listener, &error) ||
	    net_stream_listen(&all.streams, all.loop, &streams, &error) || uplink_create(&all.uplink, &uplink, &error))
		return -1;
	const struct hops_params hops = {.loop = all.loop,
					 .uplink = all.uplink,
					 .stream_path = far ? NULL : all.stream_path,
					 .ended = hop_is_over,
					 .hand_over = hand_over};
	if (hops_create(&all.hops, &hops, &error) || !run(connected, 5000))
		return -1;
	for (int i = 0; i < WORKERS; i++)
		start_worker(i);
	return 0;
}

static inline int begin_near(void **state)
{
	(void)state;
	return begin(false);
}

static inline int begin_far(void **state)
{
	(void)state;
	return begin(true);
}

static inline int end_test(void **state)
{
	(void)state;
	net_close_all(all.loop, 1001);
	for (int i = 0; i < WORKERS; i++) {
		hops_ring_destroy(&all.workers[i].ring);
		net_stream_destroy(&all.workers[i].in);
		net_stream_destroy(&all.workers[i].out);
	}
	hops_destroy(&all.hops);
	for (int i = 0; i < 2; i++)
		net_stream_destroy(&all.handed[i].stream);
	uplink_destroy(&all.uplink);
	for (int i = 0; i < all.line_count; i++)
		net_stream_destroy(&all.lines[i].stream);
	net_stream_listener_destroy(&all.streams);
	net_listener_destroy(&all.listener);
	net_loop_destroy(&all.loop);
	contract_destroy(&all.contract);
	free(all.pattern);
	unlink(all.path);
	unlink(all.stream_path);
	return rmdir(all.folder);
}

// Have one end of a worker connected; the number of the call.
static inline int connect_end(int number, const char *end, const char *hop_id, const char *via)
{
	char text[512];
	assert_true(all.last_call + 1 < ANSWERS);
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"hop.connect\",\"params\":{\"worker_id\":"
			      "\"wrk_%d\",\"end\":\"%s\",\"hop_id\":\"%s\",\"key\":\"key_of_%s\",\"via\":\"%s\"}}",
			      ++all.last_call, number, end, hop_id, hop_id, via);
	net_conn_send_text(all.control, text, (size_t)length);
	return all.last_call;
}

static inline bool all_answered(void)
{
	for (int i = 1; i <= all.last_call; i++)
		if (!all.answers[i].come)
			return false;
	return true;
}

static inline void connect_both(int from, int to, const char *hop_id, const char *via)
{
	int one = connect_end(from, "out", hop_id, via), other = connect_end(to, "in", hop_id, via);
	assert_true(run(all_answered, 15000));
	assert_false(all.answers[one].failed || all.answers[other].failed);
}
