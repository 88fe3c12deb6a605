/* Relays: what connects the workers of sessions with a server on another machine.
 *
 *     worker, fd 4 <-- socket pair --> net_stream | relay | net_conn <-- TLS --> server, /node
 *
 * The node dials the server once for each worker, says whose it is (link.hello), and passes on every message as it is
 * in both directions; it looks into none. Whoever does not take what is sent to it is not sent more: its opposite is
 * not read while LIMIT_STREAM_FULL_BYTES wait. When either end goes the other one does; what a worker has said before
 * its end still goes to the server.
 *
 * A worker of a model instance is kept where the connection breaks and the server has not ended it: its stream is not
 * read until relay_return has dialled again, and what was on its way to or from it may be lost.
 *
 * A fence (lease.h) stops all of them at once: nothing is read, nothing that waits is sent, and nothing is lost.
 * Thread: the loop's. A relay is freed once its connection is closed, which may be after its owner has let it go. */
#pragma once
#include "common/net/ws.h"

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

struct relay_params {
	const char *worker_id, *key;
	// The server's end is gone, unasked: `ended` by the server, or it never came to be, or broke. The relay is
	// gone.
	void (*closed)(void *arg, bool ended);
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
// The worker is gone: what it has said still goes to the server, and then the relay does.
void relay_let_go(struct relay **relay);
// At once: nothing passes any more.
void relay_destroy(struct relay **relay);
