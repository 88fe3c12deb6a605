/* One worker process, one call.
 *
 * A child runs this binary with only a socket on descriptor 3, gets one call, and is reaped. A crash, no answer until
 * the deadline, or an answer that breaks the contract fails the call with a message: the signal, the deadline, the last
 * line that it printed. Thread: the loop's. A child owns its process, socket and pipe, and frees itself when the
 * process is reaped; `children` owns all of them. */
#pragma once
#include "common/net/loop.h"
#include "common/wire/contract.h"

struct children;

struct child_outcome {
	enum status status;        // STATUS_OK, or why there is no result
	const struct json *result; // valid during the callback; checked against the contract
	const struct error *error;
};

struct child_call {
	const char *method;  // of schema/node.json, node to worker; static
	struct json *params; // taken
	int given;           // the worker's descriptor 5; 0: none. It stays the caller's
	int64_t deadline_ms;
	void (*done)(void *arg, const struct child_outcome *outcome); // exactly once, never from inside children_call
	void (*drop)(void *arg); // instead of `done`, when the children are destroyed first; may be NULL
	void *arg;
};

// `contract` is CONTRACT_NODE and outlives the children.
enum status children_create(struct children **out, struct net_loop *loop, const struct contract *contract);
// Kills and reaps running children, for at most half a second; calls in progress are dropped.
void children_destroy(struct children **children);
void children_call(struct children *children, const struct child_call *call);
// Running children, also those that have answered and are about to end.
size_t children_count(const struct children *children);
