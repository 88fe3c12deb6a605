/* The addresses of this machine, which other nodes dial, and a callback when they change: a cable is plugged in, or a
 * network assigns a new one. The server gets them with the node's record; otherwise a node that is connected by one
 * interface would keep an old address of another for as long as that connection lasts. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

// An array of texts, of interfaces that are up: not loopback, not link-local (they mean nothing to another machine).
struct json *addresses_list(void);

// Why this name cannot be dialled now, for a person: it cannot be resolved. NULL: it can, or it is an address. Blocks
// until the resolver answers. Static.
const char *addresses_unknown(const char *host);

// Embedded in its owner; all zero except `loop`, `changed` and `arg` before addresses_watch.
struct addresses {
	struct net_loop *loop;
	void (*changed)(void *arg);
	void *arg;
	struct net_timer look;
	struct json *last;
};

void addresses_watch(struct addresses *addresses);
void addresses_finish(struct addresses *addresses); // also for one that was never watched
