/* Connections before libwebsockets has them: who goes without a word is told gone, who speaks is served however late,
 * and those who still say nothing end with the listener; of many that are late at once a few are taken down a turn. The
 * clients are plain sockets of this thread. */
#include "common/net/ws/ws.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 40, GOING = 30, SLOW = 200, OVER_A_TURN = 32, PATIENCE_MS = 60000 };

struct seen {
	struct net_loop *loop;
	unsigned arrived, left, served, wanted;
	unsigned over, over_now, most_over; // POSTs: all, in this turn, in any turn
	bool late;
};

static void step(struct seen *seen)
{
	if (seen->arrived + seen->left + seen->served == seen->wanted)
		net_loop_stop(seen->loop);
}

static bool on_arrived(void *context, const char *peer)
{
	struct seen *seen = context;
	assert_string_equal(peer, "127.0.0.1");
	seen->arrived++;
	step(seen);
	return true;
}

static void on_left(void *context, const char *peer)
{
	struct seen *seen = context;
	assert_string_equal(peer, "127.0.0.1");
	seen->left++;
	step(seen);
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct seen *seen = context;
	assert_string_equal(request->path, "/late");
	response->status = 404;
	seen->served++;
	step(seen);
}

static void on_late(void *arg)
{
	struct seen *seen = arg;
	seen->late = true;
	net_loop_stop(seen->loop);
}

static void run_until(struct seen *seen, unsigned events)
{
	struct net_timer timer = {0};
	seen->wanted = events;
	net_timer_start(seen->loop, &timer, PATIENCE_MS, on_late, seen);
	net_loop_run(seen->loop);
	net_timer_stop(seen->loop, &timer);
	assert_false(seen->late);
}

static void silent_ones_come_and_go(void **state)
{
	(void)state;
	static const char request[] = "GET /late HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	static const struct net_handler handler = {.arrived = on_arrived, .left = on_left, .http = on_http};
	struct seen seen = {0};
	struct net_listener *listener;
	int clients[CLIENTS];
	assert_int_equal(net_loop_create(&seen.loop, NULL), STATUS_OK);
	const struct net_listener_params params = {.address = "127.0.0.1", .handler = &handler, .context = &seen};
	assert_int_equal(net_listener_create(&listener, seen.loop, &params, NULL), STATUS_OK);
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)net_listener_port(listener)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(clients[i], (struct sockaddr *)&address, sizeof address), 0);
	}
	run_until(&seen, CLIENTS);
	assert_int_equal(seen.arrived, CLIENTS);
	for (int i = 0; i < GOING; i++)
		close(clients[i]);
	run_until(&seen, CLIENTS + GOING);
	assert_int_equal(seen.left, GOING);
	assert_int_equal(send(clients[GOING], request, sizeof request - 1, 0), sizeof request - 1);
	run_until(&seen, CLIENTS + GOING + 2); // served, and gone
	assert_int_equal(seen.served, 1);
	assert_int_equal(seen.left, GOING + 1);
	assert_int_equal(send(clients[GOING + 1], request, 1, 0), 1); // it may be handed over, in line or silent
	net_listener_destroy(&listener);
	net_loop_destroy(&seen.loop);
	for (int i = GOING; i < CLIENTS; i++)
		close(clients[i]);
}

static bool on_post(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)request, (void)response;
	*user = context;
	return true;
}

static void on_next_turn(void *arg)
{
	struct seen *seen = arg;
	seen->over_now = 0;
	if (seen->over == SLOW)
		net_loop_stop(seen->loop);
}

static void on_over(void *user)
{
	struct seen *seen = user;
	seen->over++;
	if (!seen->over_now++)
		assert_int_equal(net_loop_post(seen->loop, on_next_turn, seen), STATUS_OK);
	if (seen->over_now > seen->most_over)
		seen->most_over = seen->over_now;
}

static bool on_any(void *context, const char *peer)
{
	(void)context, (void)peer;
	return true;
}

// Bodies that do not come are late in one moment: what that costs is spread over turns, between which others are
// served.
static void many_that_are_late_go_a_few_a_turn(void **state)
{
	(void)state;
	static const char request[] = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
	static const struct net_handler handler = {.arrived = on_any, .post = on_post, .over = on_over};
	struct seen seen = {0};
	struct net_listener *listener;
	struct net_timer timer = {0};
	int clients[SLOW];
	assert_int_equal(net_loop_create(&seen.loop, NULL), STATUS_OK);
	const struct net_listener_params params = {.address = "127.0.0.1", .handler = &handler, .context = &seen};
	assert_int_equal(net_listener_create(&listener, seen.loop, &params, NULL), STATUS_OK);
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)net_listener_port(listener)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (int i = 0; i < SLOW; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(clients[i], (struct sockaddr *)&address, sizeof address), 0);
		assert_int_equal(send(clients[i], request, sizeof request - 1, 0), sizeof request - 1);
	}
	net_timer_start(seen.loop, &timer, PATIENCE_MS, on_late, &seen);
	net_loop_run(seen.loop);
	net_timer_stop(seen.loop, &timer);
	assert_int_equal(seen.over, SLOW);
	// On a busy machine a second turn may begin before the loop comes to what was posted in the first.
	assert_in_range(seen.most_over, 1, 2 * OVER_A_TURN);
	net_listener_destroy(&listener);
	net_loop_destroy(&seen.loop);
	for (int i = 0; i < SLOW; i++)
		close(clients[i]);
}

static void on_asked(void *context, const struct net_request *request, struct net_response *response)
{
	struct seen *seen = context;
	response->holder = strcmp(request->path, "/known") ? 0 : 7;
	response->status = 404;
	seen->served++;
}

// How much the system keeps for this connection at the listener's end, which is a socket of this process, too.
static int send_room(int client)
{
	struct sockaddr_in own, peer;
	socklen_t length = sizeof own;
	assert_int_equal(getsockname(client, (struct sockaddr *)&own, &length), 0);
	for (int fd = 3; fd < 1024; fd++) {
		int room = 0;
		length = sizeof peer;
		if (getpeername(fd, (struct sockaddr *)&peer, &length) || peer.sin_port != own.sin_port)
			continue;
		length = sizeof room;
		assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &length), 0);
		return room;
	}
	fail_msg("the listener has not accepted it");
	return 0;
}

// A stranger who asks and does not read makes the system keep little; whoever is known has more.
static void a_stranger_has_little_room(void **state)
{
	(void)state;
	static const char *const requests[] = {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
					       "GET /known HTTP/1.1\r\nHost: localhost\r\n\r\n"};
	static const struct net_handler handler = {.arrived = on_any, .http = on_asked};
	struct seen seen = {0};
	struct net_listener *listener;
	char answer[1024];
	int rooms[2];
	assert_int_equal(net_loop_create(&seen.loop, NULL), STATUS_OK);
	const struct net_listener_params params = {.address = "127.0.0.1", .handler = &handler, .context = &seen};
	assert_int_equal(net_listener_create(&listener, seen.loop, &params, NULL), STATUS_OK);
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)net_listener_port(listener)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
	for (int i = 0; i < 2; i++) {
		struct net_timer timer = {0};
		assert_true(send(client, requests[i], strlen(requests[i]), 0) > 0);
		for (int tries = 0; recv(client, answer, sizeof answer, MSG_DONTWAIT) <= 0 && tries < 1000; tries++) {
			net_timer_start(seen.loop, &timer, 5, on_late, &seen);
			net_loop_run(seen.loop);
		}
		rooms[i] = send_room(client);
	}
	assert_int_equal(seen.served, 2);
	assert_in_range(rooms[0], 1, 2 * 64 * 1024); // Linux doubles what it is told
	assert_true(rooms[1] > rooms[0]);
	net_listener_destroy(&listener);
	net_loop_destroy(&seen.loop);
	close(client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(silent_ones_come_and_go),
					   cmocka_unit_test(many_that_are_late_go_a_few_a_turn),
					   cmocka_unit_test(a_stranger_has_little_room)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
