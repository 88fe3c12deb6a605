/* An accepted connection, from its first moment to its last: the sockets around the
 * policy of door.h. A plain connection is served when its first bytes arrive, a TLS
 * connection when the whole first message of the client has arrived. One is served
 * between two rounds over all others (NET_LINE_NEW), because a TLS handshake is the most
 * expensive thing that a stranger can ask for. Late connections are ended, a few at a
 * time. An ended one is freed a moment later, when none of its code is running. Thread:
 * the loop's. */
#include "common/net/http/arrival.h"

#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/net/http/hello.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	SWEEP_MS = 250,
	LATE_A_SWEEP = 256,
	SWEEP_ON_MS = 10, // more are late than one sweep ends
	TAKEN_DOWN_A_TURN = 32,
	TAKE_ON_MS = 1, // more are over than one turn takes down
};

static struct net_arrival *of_guest(struct guest *guest)
{
	return guest ? (struct net_arrival *)((char *)guest - offsetof(struct net_arrival, guest)) : NULL;
}

static int64_t now_at(const struct net_listener *listener)
{
	return door_now(listener->door, clock_steady_ms());
}

static void read_peer(int fd, char *text, size_t size)
{
	struct sockaddr_storage peer = {0};
	socklen_t length = sizeof peer;
	if (getpeername(fd, (struct sockaddr *)&peer, &length) ||
	    getnameinfo((struct sockaddr *)&peer, length, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
		text[0] = 0;
}

// It counts no more, though its socket may last a moment longer.
static void release(struct net_arrival *arrival)
{
	struct net_listener *listener = arrival->listener;
	if (arrival->gone)
		return;
	arrival->gone = true;
	listener->open--;
	if (listener->door)
		door_leave(listener->door, &arrival->guest);
	if (!listener->over && !listener->socket_path[0] && listener->handler->left)
		listener->handler->left(listener->handler_context, arrival->peer);
}

static void leave_line(struct net_arrival *arrival)
{
	if (arrival->state != ARRIVAL_IN_LINE)
		return;
	arrival->state = ARRIVAL_SILENT;
	arrival->listener->in_line--;
	door_wait(&arrival->guest, false);
}

// Whatever it is at is told so.
static void leave_session(struct net_arrival *arrival)
{
	struct net_session *session = arrival->session;
	arrival->session = NULL;
	if (session && session->kind == SESSION_HTTP)
		net_http_finish(arrival, session);
	else if (session && session->kind == SESSION_POST)
		net_exchange_finish(session);
	else if (session && session->kind == SESSION_PASSED)
		net_passed_finish(session);
	else if (session)
		net_conn_finish(session);
}

// Not from inside a call about it.
static void destroy(struct net_arrival *arrival)
{
	arrival->ending = true;
	leave_session(arrival);
	leave_line(arrival);
	release(arrival);
	LIST_REMOVE(arrival, link);
	net_arrival_close(arrival);
	free(arrival);
}

// A connection that has sent everything is closed with a goodbye, any other at once; a few a turn, the first to end
// first.
static void take_down(void *arg)
{
	struct net_listener *listener = arg;
	for (int i = 0; i < TAKEN_DOWN_A_TURN && listener->ending; i++) {
		struct net_arrival *arrival = listener->ending;
		listener->ending = arrival->next_ending;
		leave_session(arrival);
		if (arrival->gone || net_arrival_keeps(arrival)) {
			destroy(arrival);
			continue;
		}
		arrival->ending = false;
		net_arrival_leave(arrival);
	}
	if (listener->ending)
		net_timer_start(listener->loop, &listener->takes_down, TAKE_ON_MS, take_down, listener);
}

void net_arrival_finish(struct net_arrival *arrival)
{
	struct net_listener *listener = arrival->listener;
	if (arrival->ending)
		return;
	arrival->ending = true;
	net_watch_want_read(arrival->watch, false);
	arrival->next_ending = NULL;
	if (!listener->ending)
		listener->last_ending = &listener->ending;
	*listener->last_ending = arrival;
	listener->last_ending = &arrival->next_ending;
	if (!listener->takes_down.running)
		net_timer_start(listener->loop, &listener->takes_down, 0, take_down, listener);
}

void net_arrival_end(struct net_arrival *arrival)
{
	if (!arrival || arrival->gone)
		return;
	leave_line(arrival);
	release(arrival);
	net_arrival_finish(arrival);
}

void net_arrival_stage(struct net_arrival *arrival, enum door_stage stage)
{
	struct net_listener *listener = arrival->listener;
	if (!arrival->gone && listener->door)
		door_stage(listener->door, &arrival->guest, stage, now_at(listener));
}

void net_arrival_progress(struct net_arrival *arrival, size_t bytes)
{
	struct net_listener *listener = arrival->listener;
	if (!arrival->gone && listener->door)
		door_progress(listener->door, &arrival->guest, bytes, now_at(listener));
}

void net_arrival_know(struct net_arrival *arrival, uint64_t holder)
{
	struct net_listener *listener = arrival->listener;
	const int room = SEND_ROOM_BYTES;
	if (!arrival->gone && holder && !arrival->guest.known)
		setsockopt(net_arrival_fd(arrival), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	if (!arrival->gone && listener->door)
		net_arrival_end(of_guest(door_know(listener->door, &arrival->guest, holder)));
}

static void on_sweep(void *arg)
{
	struct net_listener *listener = arg;
	const int64_t now_ms = listener->door ? now_at(listener) : 0;
	struct guest *late = NULL;
	for (int i = 0; i < LATE_A_SWEEP && listener->door && (late = door_late(listener->door, now_ms)); i++)
		net_arrival_end(of_guest(late));
	net_conns_sweep(listener);
	if (listener->open)
		net_timer_start(listener->loop, &listener->sweep, late ? SWEEP_ON_MS : SWEEP_MS, on_sweep, listener);
}

// Poll shows the socket when so much is there, or its end.
static void look_again_at(struct net_arrival *arrival, int fd, int bytes)
{
	arrival->awaited = bytes;
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

// It is somebody's turn in the line: that of an address with few of them, which stood before or after this one.
static void take_turn(struct net_arrival *arrival)
{
	struct net_arrival *next = of_guest(door_next(arrival->listener->door));
	if (next && next != arrival && next->state == ARRIVAL_IN_LINE)
		net_watch_swap(arrival->watch, next->watch);
	else
		next = arrival;
	leave_line(next);
	net_arrival_serve(next);
}

void net_arrival_first_bytes(struct net_arrival *arrival, int fd)
{
	static uint8_t hello[LIMIT_HELLO_BYTES]; // the loop's thread alone looks
	struct net_listener *listener = arrival->listener;
	if (arrival->state == ARRIVAL_IN_LINE) {
		take_turn(arrival);
		return;
	}
	ssize_t got = recv(fd, hello, listener->context ? sizeof hello : 1, MSG_PEEK | MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	const size_t wanted = got > 0 && listener->context ? net_hello_wants(hello, (size_t)got) : 0;
	if (got <= 0 || wanted > sizeof hello || (wanted && got < arrival->awaited)) {
		net_arrival_end(arrival);
		return;
	}
	if (wanted) {
		look_again_at(arrival, fd, (int)wanted);
		return;
	}
	if (arrival->awaited > 1)
		look_again_at(arrival, fd, 1);
	if (listener->socket_path[0]) { // whoever may come by it stands in no line with strangers
		net_arrival_serve(arrival);
		return;
	}
	arrival->state = ARRIVAL_IN_LINE;
	listener->in_line++;
	door_wait(&arrival->guest, true);
	net_watch_again(arrival->watch, NET_LINE_NEW);
}

// Room for one more from `peer`, be it that of one who goes for it. False: there is none.
static bool make_room(struct net_listener *listener, const char *peer, bool *crowded)
{
	const struct net_handler *handler = listener->handler;
	struct net_address address;
	struct guest *slowest = NULL;
	if (listener->open >= listener->most && !(slowest = door_slowest(listener->door)))
		return false;
	net_arrival_end(of_guest(slowest));
	if (listener->socket_path[0] || !handler->arrived || handler->arrived(listener->handler_context, peer))
		return true;
	*crowded = true;
	if (!net_address_read(&address, peer) || !(slowest = door_slowest_of(listener->door, &address)))
		return false;
	net_arrival_end(of_guest(slowest));
	return handler->arrived(listener->handler_context, peer);
}

bool net_arrival_create(struct net_listener *listener, int fd, bool *crowded)
{
	const enum door_stage stage = listener->context ? DOOR_HANDSHAKE : DOOR_HEAD;
	char peer[sizeof((struct net_arrival *)NULL)->peer] = "";
	*crowded = false;
	if (!listener->socket_path[0])
		read_peer(fd, peer, sizeof peer);
	struct net_arrival *arrival = calloc(1, sizeof(*arrival));
	if (!arrival || net_watch_create(&arrival->watch, listener->loop, fd, &net_arrival_events, arrival, NULL)) {
		free(arrival);
		return false;
	}
	if (!make_room(listener, peer, crowded)) {
		net_watch_release(&arrival->watch);
		free(arrival);
		return false;
	}
	arrival->listener = listener;
	arrival->begins = true;
	buffer_init(&arrival->behind, BEHIND_MOST_BYTES);
	memcpy(arrival->peer, peer, sizeof peer);
	LIST_PUSH(net_loop_arrivals(listener->loop), arrival, link);
	listener->open++;
	net_arrival_end(of_guest(door_arrive(listener->door, &arrival->guest, peer, stage, now_at(listener))));
	if (!listener->sweep.running)
		net_timer_start(listener->loop, &listener->sweep, SWEEP_MS, on_sweep, listener);
	return true;
}

bool net_arrival_speaks_for(struct net_arrival *arrival, const char *peer)
{
	struct net_listener *listener = arrival->listener;
	const struct net_handler *handler = listener->handler;
	struct guest *guest = &arrival->guest;
	if (handler->arrived && !handler->arrived(listener->handler_context, peer))
		return false;
	if (handler->left)
		handler->left(listener->handler_context, arrival->peer);
	snprintf(arrival->peer, sizeof arrival->peer, "%s", peer);
	door_leave(listener->door, guest);
	*guest = (struct guest){0};
	net_arrival_end(of_guest(door_arrive(listener->door, guest, peer, DOOR_HEAD, now_at(listener))));
	return true;
}

// Connections that are being served stay, and no longer count as guests.
void net_arrivals_forget(struct net_listener *listener)
{
	struct guest *guest;
	while (listener->door && (guest = door_any(listener->door))) {
		struct net_arrival *arrival = of_guest(guest);
		if (arrival->state == ARRIVAL_SILENT || arrival->state == ARRIVAL_IN_LINE)
			net_arrival_end(arrival);
		else
			door_leave(listener->door, guest);
	}
	door_destroy(&listener->door);
}

void net_arrivals_destroy(struct net_loop *loop)
{
	struct net_arrival **first = net_loop_arrivals(loop);
	while (*first)
		destroy(*first);
}
