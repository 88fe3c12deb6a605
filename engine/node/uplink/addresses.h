/* The addresses of this machine, which other nodes dial, and word when they are others: a cable is plugged in, a
 * network gives a new one. The server hears of them by the node's record; a node that is connected by one interface
 * would else stay at an old address of another for as long as that connection lasts. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

// An array of texts, of interfaces that are up: not loopback, not link-local (they mean nothing to another machine).
struct json *addresses_list(void);

// Why nobody can be dialled by this name, for a person: it cannot be looked up now. NULL: it can, or is an address.
// Waits for the answer of whoever is asked. Static.
const char *addresses_unknown(const char *host);

// Embedded in its owner, zero but for `loop`, `changed` and `arg` before addresses_watch.
struct addresses {
	struct net_loop *loop;
	void (*changed)(void *arg);
	void *arg;
	struct net_timer look;
	struct json *last;
};

void addresses_watch(struct addresses *addresses);
void addresses_finish(struct addresses *addresses); // also of one that was never watched
