/* The relay between a worker and a server on another machine: what passes, who is held back, how either end goes, and
 * the fence. The server is a listener on a Unix socket, the worker a stream; all on one loop. */
#include "common/base/clock.h"
#include "common/net/stream.h"
#include "common/net/ws/parts.h"
#include "common/wire/message.h"
#include "engine/node/links/relay.h"
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

enum { MIB = 1024 * 1024, LARGEST = LIMIT_BODY_BYTES, HELD_BYTES = 8 * MIB };

// One end's view of what came: message n has the head {"n":n} and a body that begins at n in the pattern.
struct seen {
	unsigned messages;
	size_t bytes;
	bool bad;
};

static struct fixture {
	struct net_loop *loop;
	struct net_listener *listener;
	struct net_conn *conn;     // the server's
	struct net_stream *worker; // the worker's end
	struct relays *relays;
	struct relay *relay;
	struct seen at_server, at_worker;
	char folder[40], path[64], worker_id[65], key[65];
	uint8_t *pattern; // (LARGEST + 1024)
	bool refuse, server_closed, worker_closed, relay_closed;
	enum relay_end relay_end;
	bool keeps; // the relay stays when its connection breaks
	int breaks, hellos;
	int close_code;
} all;

static bool run(bool (*enough)(void), int64_t patience_ms)
{
	return wait_until(all.loop, enough, patience_ms);
}

static bool never(void)
{
	return false;
}

static void settle(void)
{
	run(never, 300);
}

static void take(struct seen *seen, const uint8_t *head, size_t head_bytes, const uint8_t *body, size_t body_bytes)
{
	char due[32];
	int length = snprintf(due, sizeof(due), "{\"n\":%u}", seen->messages);
	if ((size_t)length != head_bytes || memcmp(head, due, head_bytes) != 0 ||
	    (body_bytes && memcmp(body, all.pattern + seen->messages % 1024, body_bytes) != 0))
		seen->bad = true;
	seen->messages++;
	seen->bytes += body_bytes;
}

// ---- the server ----

static bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)context, (void)response;
	assert_string_equal(request->path, "/node");
	assert_string_equal(request->subprotocol, "exogpu.worker.v1");
	*user = &all;
	if (all.refuse)
		response->status = 403;
	return !all.refuse;
}

static void server_opened(void *user, struct net_conn *conn)
{
	(void)user;
	all.conn = conn;
	net_conn_trust(conn);
}

static void server_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct net_parts parts;
	(void)user;
	assert_true(binary);
	assert_int_equal(net_conn_take_parts(conn, bytes, length, &parts), STATUS_OK);
	if (all.worker_id[0]) {
		take(&all.at_server, parts.head, parts.head_bytes, parts.body, parts.body_bytes);
	} else {
		struct message message;
		assert_int_equal(message_decode_text(&message, (const char *)parts.head, parts.head_bytes, NULL), 0);
		assert_string_equal(message.method, "link.hello");
		snprintf(all.worker_id, 65, "%s", json_get_string(message.params, "worker_id", ""));
		snprintf(all.key, 65, "%s", json_get_string(message.params, "key", ""));
		all.hellos++;
		message_finish(&message);
	}
	net_frame_unref(&parts.holder);
}

static void server_closed(void *user, struct net_conn *conn, int code)
{
	(void)user, (void)conn;
	all.conn = NULL;
	all.server_closed = true;
	all.close_code = code;
}

static const struct net_handler server = {
	.upgrade = upgrade, .opened = server_opened, .message = server_message, .closed = server_closed};

// ---- the worker ----

static void worker_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			   struct net_frame *body)
{
	(void)user, (void)stream;
	take(&all.at_worker, head, head_bytes, body ? net_frame_data(body) : NULL, body ? net_frame_bytes(body) : 0);
}

static void worker_closed(void *user, struct net_stream *stream, const char *why)
{
	(void)user, (void)stream, (void)why;
	all.worker = NULL;
	all.worker_closed = true;
}

static const struct net_stream_handler worker = {.message = worker_message, .closed = worker_closed};

// ---- the relay ----

static enum status dial(void *arg, struct net_dial_params *params, struct error *error)
{
	(void)arg;
	params->socket_path = all.path;
	return net_dial(all.loop, params, error);
}

static void relay_closed(void *arg, enum relay_end end)
{
	(void)arg;
	all.relay = NULL;
	all.relay_closed = true;
	all.relay_end = end;
}

static void relay_broken(void *arg)
{
	(void)arg;
	all.breaks++;
}

static bool greeted(void)
{
	return all.worker_id[0] != 0;
}

static int start_relay(void)
{
	int fd;
	struct error error = {0};
	const struct relay_params params = {.worker_id = "wrk_1",
					    .key = "secret",
					    .closed = relay_closed,
					    .broken = all.keeps ? relay_broken : NULL};
	if (relay_create(&all.relay, all.relays, &params, &fd, &error))
		fail_msg("%s", error.message);
	return fd;
}

static void start_worker(void)
{
	int fd = start_relay();
	fcntl(fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(net_stream_create(&all.worker, all.loop, fd, &worker, NULL, NULL), STATUS_OK);
	assert_true(run(greeted, 5000));
}

static int begin_test(void **state)
{
	static const char *const subprotocols[] = {"exogpu.node.v1", "exogpu.worker.v1", NULL};
	struct error error = {0};
	(void)state;
	all = (struct fixture){.folder = "/tmp/exogpu-relay-XXXXXX"};
	if (!mkdtemp(all.folder) || net_loop_create(&all.loop, NULL))
		return -1;
	snprintf(all.path, sizeof(all.path), "%s/server", all.folder);
	all.pattern = malloc(LARGEST + 1024);
	for (size_t i = 0, value = 1; i < LARGEST + 1024; i++) {
		value = value * 1664525 + 1013904223;
		all.pattern[i] = (uint8_t)(value >> 24);
	}
	const struct net_listener_params listener = {
		.socket_path = all.path, .subprotocols = subprotocols, .handler = &server};
	const struct relays_params relays = {.loop = all.loop, .dial = dial};
	return net_listener_create(&all.listener, all.loop, &listener, &error) ||
	       relays_create(&all.relays, &relays, NULL);
}

static int end_test(void **state)
{
	(void)state;
	net_close_all(all.loop, 1001);
	net_stream_destroy(&all.worker);
	relay_destroy(&all.relay);
	relays_destroy(&all.relays);
	net_listener_destroy(&all.listener);
	net_loop_destroy(&all.loop);
	free(all.pattern);
	unlink(all.path);
	return rmdir(all.folder);
}

// Message `n` with this much of the pattern.
static enum status say(bool to_server, unsigned n, size_t bytes)
{
	char head[32];
	int length = snprintf(head, sizeof(head), "{\"n\":%u}", n);
	const struct net_parts parts = {.head = (const uint8_t *)head,
					.head_bytes = (size_t)length,
					.body = bytes ? all.pattern + n % 1024 : NULL,
					.body_bytes = bytes};
	return to_server ? net_stream_send(all.worker, head, (size_t)length, NULL, parts.body, bytes)
			 : net_conn_send_parts(all.conn, &parts);
}

static unsigned due_at_server, due_at_worker;

static bool all_came(void)
{
	return all.at_server.messages >= due_at_server && all.at_worker.messages >= due_at_worker;
}

static void wait_for_all(unsigned server_messages, unsigned worker_messages)
{
	due_at_server = server_messages;
	due_at_worker = worker_messages;
	run(all_came, 30000);
	assert_int_equal(all.at_server.messages, server_messages);
	assert_int_equal(all.at_worker.messages, worker_messages);
	assert_false(all.at_server.bad || all.at_worker.bad);
}

static bool both_closed(void)
{
	return all.relay_closed && all.worker_closed;
}

static bool server_hung_up(void)
{
	return all.server_closed;
}

// ---- the tests ----

static void messages_pass_as_they_are(void **state)
{
	static const size_t sizes[] = {0, 1, 1000, 20000, 65535, 65536, 300000, MIB, 5 * MIB + 1, LARGEST, 0, 7};
	const unsigned count = sizeof(sizes) / sizeof(sizes[0]);
	(void)state;
	start_worker();
	assert_string_equal(all.worker_id, "wrk_1");
	assert_string_equal(all.key, "secret");
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(say(true, i, sizes[i]), STATUS_OK);
		assert_int_equal(say(false, i, sizes[i]), STATUS_OK);
	}
	wait_for_all(count, count);
}

static void a_worker_that_does_not_read_holds_the_server(void **state)
{
	enum { COUNT = 48 };
	(void)state;
	start_worker();
	net_stream_pause(all.worker);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(say(false, i, MIB), STATUS_OK);
	settle();
	size_t waits = net_conn_queued_bytes(all.conn);
	print_message("of %d MiB %.1f wait at the server\n", COUNT, (double)waits / MIB);
	assert_true(waits > (COUNT * (size_t)MIB) - HELD_BYTES);
	net_stream_resume(all.worker);
	wait_for_all(0, COUNT);
}

static void a_server_that_does_not_read_holds_the_worker(void **state)
{
	enum { COUNT = 48 };
	(void)state;
	start_worker();
	net_conn_pause(all.conn);
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(say(true, i, MIB), STATUS_OK);
	settle();
	size_t waits = net_stream_queued(all.worker);
	print_message("of %d MiB %.1f wait at the worker\n", COUNT, (double)waits / MIB);
	assert_true(waits > (COUNT * (size_t)MIB) - HELD_BYTES);
	net_conn_resume(all.conn);
	wait_for_all(COUNT, 0);
}

static void what_a_worker_said_before_its_end_arrives(void **state)
{
	(void)state;
	start_worker();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(say(true, i, 100), STATUS_OK); // the socket takes these at once
	net_stream_destroy(&all.worker);
	relay_let_go(&all.relay); // as when its process is reaped
	assert_true(run(server_hung_up, 5000));
	assert_int_equal(all.at_server.messages, 3);
	assert_int_equal(all.close_code, 1000);
	assert_false(all.relay_closed); // nobody is told who let it go
}

static void the_server_ends_a_worker(void **state)
{
	(void)state;
	start_worker();
	net_conn_close(all.conn, 4410, "the worker was ended");
	assert_true(run(both_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_SERVER_ENDED);
}

static void a_connection_that_breaks_ends_the_worker(void **state)
{
	(void)state;
	start_worker();
	net_conn_close(all.conn, 1011, "a fault");
	assert_true(run(both_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_LOST);
}

static bool relay_is_closed(void)
{
	return all.relay_closed;
}

// The node must not take a worker that ended by itself for one that lost its server: then its own reason would be lost.
static void a_worker_that_closes_its_stream_is_told_as_gone(void **state)
{
	(void)state;
	start_worker();
	net_stream_destroy(&all.worker);
	assert_true(run(relay_is_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_WORKER_GONE);
	assert_true(run(server_hung_up, 5000));
	assert_int_equal(all.close_code, 1000);
}

static void a_server_that_refuses_is_told(void **state)
{
	char byte;
	(void)state;
	all.refuse = true;
	int fd = start_relay();
	assert_true(run(relay_is_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_LOST);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	close(fd);
}

static void no_server_is_an_error_or_told(void **state)
{
	int fd = -1;
	struct error error = {0};
	(void)state;
	net_listener_destroy(&all.listener);
	const struct relay_params params = {.worker_id = "wrk_1", .key = "secret", .closed = relay_closed};
	enum status status = relay_create(&all.relay, all.relays, &params, &fd, &error);
	if (status) {
		assert_int_equal(status, STATUS_UNAVAILABLE);
		assert_null(all.relay);
		assert_int_equal(fd, -1);
		assert_false(all.relay_closed);
		return;
	}
	assert_true(run(relay_is_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_LOST);
	close(fd);
}

static void one_that_is_destroyed_passes_nothing_more(void **state)
{
	(void)state;
	start_worker();
	net_conn_pause(all.conn);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(say(true, i, MIB), STATUS_OK);
	settle();
	relay_destroy(&all.relay);
	net_conn_resume(all.conn);
	assert_true(run(server_hung_up, 10000));
	print_message("%u of 16 MiB had left before\n", all.at_server.messages);
	assert_true(all.at_server.messages < 12);
	assert_false(all.at_server.bad);
	assert_false(all.relay_closed);
}

static void one_destroyed_before_it_is_open_goes(void **state)
{
	char byte;
	(void)state;
	int fd = start_relay();
	relay_destroy(&all.relay);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	assert_true(run(server_hung_up, 5000));
	assert_string_equal(all.worker_id, ""); // the key stays here
	close(fd);
}

static void a_worker_that_sends_what_is_no_message_is_cut_off(void **state)
{
	static const uint8_t lies[] = {255, 255, 255, 127, 2, 0, 0, 0};
	(void)state;
	int fd = start_relay();
	assert_true(run(greeted, 5000));
	assert_int_equal(send(fd, lies, sizeof(lies), 0), sizeof(lies));
	assert_true(run(server_hung_up, 5000));
	close(fd);
}

static void a_flood_of_tiny_messages_ends_its_relay_at_most(void **state)
{
	static uint8_t flood[64 * 1024]; // each: total 4, head 0
	(void)state;
	for (size_t i = 0; i < sizeof(flood); i += 8)
		flood[i] = 4;
	int fd = start_relay();
	assert_true(run(greeted, 5000));
	net_conn_pause(all.conn);
	size_t sent = 0;
	for (int turn = 0; turn < 200 && !all.relay_closed; turn++) {
		ssize_t now = send(fd, flood, sizeof(flood), MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += now > 0 ? (size_t)now : 0;
		run(never, 2);
	}
	print_message("%zu tiny messages were taken%s\n", sent / 8, all.relay_closed ? ", then it was ended" : "");
	close(fd);
	if (all.conn)
		net_conn_resume(all.conn);
	assert_int_not_equal(all.relay_end, RELAY_SERVER_ENDED);
}

static void a_fence_lets_nothing_pass_and_loses_nothing(void **state)
{
	enum { COUNT = 24 };
	(void)state;
	start_worker();
	// Both ends have something on its way that is not taken: it waits in the relay, and may not go on either.
	net_conn_pause(all.conn);
	net_stream_pause(all.worker);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(say(true, i, MIB), STATUS_OK);
		assert_int_equal(say(false, i, MIB), STATUS_OK);
	}
	settle();
	relays_fence(all.relays, true);
	relays_fence(all.relays, true); // twice is once
	net_conn_resume(all.conn);
	net_stream_resume(all.worker);
	settle(); // what sockets had taken before arrives
	struct seen server_saw = all.at_server, worker_saw = all.at_worker;
	settle();
	print_message("behind the fence: %u and %u of %d, then nothing\n", server_saw.messages, worker_saw.messages,
		      COUNT);
	assert_int_equal(all.at_server.messages, server_saw.messages);
	assert_int_equal(all.at_worker.messages, worker_saw.messages);
	assert_true(server_saw.messages < COUNT && worker_saw.messages < COUNT);
	relays_fence(all.relays, false);
	wait_for_all(COUNT, COUNT);
}

static void one_that_opens_behind_the_fence_waits_for_it(void **state)
{
	(void)state;
	relays_fence(all.relays, true);
	int fd = start_relay();
	settle();
	assert_non_null(all.conn);
	assert_string_equal(all.worker_id, "");
	relays_fence(all.relays, false);
	assert_true(run(greeted, 5000));
	close(fd);
	assert_true(run(server_hung_up, 5000));
}

static void behind_the_fence_either_end_may_go(void **state)
{
	(void)state;
	start_worker();
	relays_fence(all.relays, true);
	net_conn_close(all.conn, 4410, "the worker was ended");
	net_stream_destroy(&all.worker);
	settle();
	relays_fence(all.relays, false);
	assert_true(run(relay_is_closed, 10000));
}

// ---- relays that stay ----

static bool broken(void)
{
	return all.breaks > 0;
}

static void come_back(void)
{
	all.worker_id[0] = all.key[0] = 0;
	relay_return(all.relay);
	relay_return(all.relay); // twice is once
	assert_true(run(greeted, 10000));
	assert_string_equal(all.worker_id, "wrk_1");
	assert_string_equal(all.key, "secret");
	assert_true(relay_is_open(all.relay));
}

static void a_kept_worker_waits_for_its_server(void **state)
{
	enum { COUNT = 12 };
	(void)state;
	all.keeps = true;
	start_worker();
	assert_int_equal(say(true, 0, 1000), STATUS_OK);
	assert_int_equal(say(false, 0, 1000), STATUS_OK);
	wait_for_all(1, 1);
	for (int round = 1; round <= 3; round++) {
		all.breaks = 0;
		net_conn_close(all.conn, 1011, "a fault");
		assert_true(run(broken, 5000));
		assert_false(relay_is_open(all.relay));
		const unsigned next = all.at_server.messages;
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(say(true, next + i, MIB), STATUS_OK);
		settle();
		size_t waits = net_stream_queued(all.worker);
		print_message("of %d MiB %.1f wait at the worker\n", COUNT, (double)waits / MIB);
		assert_true(waits > (COUNT - 4) * (size_t)MIB);
		come_back();
		assert_int_equal(say(false, all.at_worker.messages, 1000), STATUS_OK);
		wait_for_all(next + COUNT, (unsigned)round + 1);
	}
	assert_int_equal(all.hellos, 4);
	assert_false(all.relay_closed || all.worker_closed);
	net_conn_close(all.conn, 4410, "the worker was ended");
	assert_true(run(both_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_SERVER_ENDED);
}

static void a_server_that_was_left_is_returned_to(void **state)
{
	(void)state;
	all.keeps = true;
	start_worker();
	relay_leave(all.relay);
	relay_leave(all.relay);
	assert_false(relay_is_open(all.relay));
	assert_int_equal(say(true, 0, 1000), STATUS_OK);
	come_back(); // while the old connection is still closing
	wait_for_all(1, 0);
	relay_leave(all.relay);
	all.server_closed = false;
	assert_true(run(server_hung_up, 10000));
	settle();
	assert_int_equal(all.breaks, 0); // who left knows
	come_back();
	assert_int_equal(say(true, 1, 1000), STATUS_OK);
	wait_for_all(2, 0);
	assert_int_equal(all.breaks, 0);
	assert_false(all.relay_closed || all.worker_closed);
}

static void a_kept_worker_without_a_server_ends(void **state)
{
	(void)state;
	all.keeps = true;
	start_worker();
	net_conn_close(all.conn, 1011, "a fault");
	assert_true(run(broken, 5000));
	net_listener_destroy(&all.listener);
	all.breaks = 0;
	relay_return(all.relay);
	assert_true(run(broken, 5000)); // nobody answers
	assert_false(all.relay_closed);
	if (all.breaks > 1) // it is told once each time
		fail_msg("%d", all.breaks);
	relay_destroy(&all.relay);
	assert_false(all.relay_closed);
}

static void a_kept_worker_that_goes_meanwhile(void **state)
{
	(void)state;
	all.keeps = true;
	start_worker();
	net_conn_close(all.conn, 1011, "a fault");
	assert_true(run(broken, 5000));
	net_stream_destroy(&all.worker);
	relay_let_go(&all.relay);
	settle();
	assert_int_equal(all.hellos, 1);
	assert_false(all.relay_closed);
}

static void a_server_that_wants_it_no_more_refuses(void **state)
{
	(void)state;
	all.keeps = true;
	start_worker();
	net_conn_close(all.conn, 1011, "a fault");
	assert_true(run(broken, 5000));
	come_back();
	net_conn_close(all.conn, 4410, "nobody awaits it");
	assert_true(run(both_closed, 5000));
	assert_int_equal(all.relay_end, RELAY_SERVER_ENDED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)
	const struct CMUnitTest tests[] = {
		TEST(messages_pass_as_they_are),
		TEST(a_worker_that_does_not_read_holds_the_server),
		TEST(a_server_that_does_not_read_holds_the_worker),
		TEST(what_a_worker_said_before_its_end_arrives),
		TEST(the_server_ends_a_worker),
		TEST(a_connection_that_breaks_ends_the_worker),
		TEST(a_worker_that_closes_its_stream_is_told_as_gone),
		TEST(a_server_that_refuses_is_told),
		TEST(no_server_is_an_error_or_told),
		TEST(one_that_is_destroyed_passes_nothing_more),
		TEST(one_destroyed_before_it_is_open_goes),
		TEST(a_worker_that_sends_what_is_no_message_is_cut_off),
		TEST(a_flood_of_tiny_messages_ends_its_relay_at_most),
		TEST(a_fence_lets_nothing_pass_and_loses_nothing),
		TEST(one_that_opens_behind_the_fence_waits_for_it),
		TEST(behind_the_fence_either_end_may_go),
		TEST(a_kept_worker_waits_for_its_server),
		TEST(a_server_that_was_left_is_returned_to),
		TEST(a_kept_worker_without_a_server_ends),
		TEST(a_kept_worker_that_goes_meanwhile),
		TEST(a_server_that_wants_it_no_more_refuses),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
