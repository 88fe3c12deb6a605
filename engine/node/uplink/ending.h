/* The end of a node whose machine is lent for a time only. Shortly before that, or when it is told to, it drains: its
 * server places nothing new on it and moves its models to other nodes. The node ends once no model and no session has a
 * worker on it, at the latest when its time is up. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

struct ending {
	struct net_loop *loop;
	int64_t drain_ms;           // how long it may drain
	bool (*told)(void *arg);    // the server has taken what ending_json says now, or there is none to be told
	bool (*in_use)(void *arg);  // a model or a session has a worker here
	void (*changed)(void *arg); // the server is to be told
	void (*done)(void *arg);    // the node ends now
	void *arg;
	int64_t ends_ms;  // steady; 0: it does not know
	int64_t until_ms; // of the draining, steady
	bool drains;
	struct net_timer timer;
};

// `ending` has its first members set. for_ms: from now; 0: until it is told.
void ending_begin(struct ending *ending, int64_t for_ms);
void ending_drain(struct ending *ending); // now; nothing happens if it does already
void ending_finish(struct ending *ending);
// `end` of node.register; NULL: there is nothing to tell.
struct json *ending_json(const struct ending *ending);
