/* Relays: they connect the workers of sessions with a server on another machine.
 *
 *     worker, fd 4 <-- socket pair --> net_stream | relay | net_conn <-- TLS --> server, /node
 *
 * The node dials the server once for each worker, names the worker (link.hello), and forwards every message unchanged
 * in both directions, without parsing it. Back-pressure: while LIMIT_STREAM_FULL_BYTES wait for one end, the other is
 * not read. When one end closes, so does the other; messages that a worker sent before its end still go to the server.
 *
 * If the connection of a model instance's worker breaks, and the server has not ended the worker, it is kept: its
 * stream is not read until relay_return has dialled again, and messages in flight to or from it may be lost.
 *
 * A fence (lease.h) stops all relays at once: nothing is read, queued messages stay, and nothing is lost. Thread: the
 * loop's. A relay is freed when its connection is closed, which may be after relay_let_go. */
#pragma once
#include "common/net/ws/ws.h"

struct relay;
struct relays;

struct relays_params {
	struct net_loop *loop;
	// Dial the server: these say what for, where and with whose credentials it knows. As net_dial.
	enum status (*dial)(void *arg, struct net_dial_params *params, struct error *error);
	void *arg;
};
enum status relays_create(struct relays **out, const struct relays_params *params, struct error *error);
void relays_destroy(struct relays **relays); // after the loop's connections are closed
void relays_fence(struct relays *relays, bool fenced);

// Which end closed first.
enum relay_end {
	RELAY_LOST,         // the connection to the server: it was refused, or it broke
	RELAY_SERVER_ENDED, // the server ended the worker
	RELAY_WORKER_GONE,  // the worker closed its stream: its process has ended, or is about to
};

struct relay_params {
	const char *worker_id, *key;
	// Both ends are closed, without relay_destroy; the relay is gone.
	void (*closed)(void *arg, enum relay_end end);
	// NULL: a connection that broke is the end, as above. Else the relay stays, without one.
	void (*broken)(void *arg);
	void *arg;
};
// *fd: the worker's end, the caller's to close. Errors: STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status relay_create(struct relay **out, struct relays *relays, const struct relay_params *params, int *fd,
			 struct error *error);
// The server is cut off: give the connection up, without `broken`; of a relay that stays.
void relay_leave(struct relay *relay);
// Dial again, at once or when the last connection is closed; nothing where there is one. `broken` if that fails.
void relay_return(struct relay *relay);
bool relay_is_open(const struct relay *relay);
// The worker is gone: its last messages still go to the server, and then the relay ends.
void relay_let_go(struct relay **relay);
// At once: nothing passes any more.
void relay_destroy(struct relay **relay);
