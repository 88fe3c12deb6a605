/* The inside of joining, for join.c and join_decide.c. Thread: the loop's. */
#pragma once
#include "common/wire/rpc.h"
#include "server/api/nodes/join.h"

enum { JOIN_GOODBYE_MS = 5000 }; // a node that was let in has this long to go and come back

struct renewal_time {
	char node_id[STORE_ID_BYTES];
	int64_t steady_ms;
};

struct joins {
	struct joins_params params;
	struct joining *joining;
	struct join *all;
	struct renewal_time renewals[LIMIT_RENEWALS]; // the latest, a ring
	size_t renewal_count;                         // ever
	int64_t said_ms;                              // steady clock: when the log last told of one that was refused
};

struct join {
	struct join *next, **link;
	struct joins *joins;
	struct net_conn *conn;
	struct rpc rpc;
	char peer[JOINING_PEER_BYTES];
	bool revoked, closed, evicted;
	bool asked;                      // join.request came: there is no second
	bool decided;                    // or being decided
	unsigned storing;                // changes under way; the struct lives until they are done
	struct joining_request *request; // NULL: it does not wait
	struct net_timer deadline;
	struct limits_waiter place;
};

// Close it when it is still there after so long.
void join_give_time(struct join *join, int64_t ms, void (*fn)(void *arg));
void join_late(void *arg);
void join_release(struct join *join); // if it is closed and nothing is under way, it is gone
// It does not wait any more. With a summary everyone who saw it wait is told.
void join_end_request(struct join *join, const char *summary);
// Tell the node: with a grant (taken) it is let in, else why not.
void join_decided(struct join *join, struct json *grant, const char *reason);
// Grant of schema/node.json.
struct json *joins_grant(const struct joins *joins, const char *pem);
