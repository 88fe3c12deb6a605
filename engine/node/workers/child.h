/* One worker process, one call.
 *
 * A child is spawned from this very binary with a socket on descriptor 3 and nothing else open, asked one thing, and
 * reaped. Whatever happens to it (a crash, silence until the deadline, an answer that breaks the contract) becomes the
 * call's failure, in words: the signal, the deadline, the last line that it printed.
 * Thread: the loop's. A child owns its process, socket and pipe, and frees itself when the process is reaped;
 * `children` owns all of them. */
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
	int64_t deadline_ms;
	void (*done)(void *arg, const struct child_outcome *outcome); // exactly once, never from inside children_call
	void (*drop)(void *arg); // instead of `done`, when the children are destroyed first; may be NULL
	void *arg;
};

// `contract` is CONTRACT_NODE and outlives the children.
enum status children_create(struct children **out, struct net_loop *loop, const struct contract *contract);
// Kills and reaps what still runs, half a second at most; calls under way are dropped.
void children_destroy(struct children **children);
void children_call(struct children *children, const struct child_call *call);
// Those that run, also the ones that have answered and are about to end.
size_t children_count(const struct children *children);
