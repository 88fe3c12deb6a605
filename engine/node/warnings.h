/* What this node warns of, told to its server: each warning and error of its log as a node.log.
 *
 * A minute has LIMIT_NODE_LINES_PER_MIN of them, as many as the server keeps; those over that, what could not be sent,
 * and the oldest where as many wait for a server already, are counted in the next one. Thread: the loop's; lines may be
 * logged by any. One at a time in a process. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

struct warnings;

struct warnings_params {
	struct net_loop *loop;
	bool (*ready)(void *arg); // the server hears what is told
	// node.log; params are taken. False: it was not sent. Must not log.
	bool (*tell)(void *arg, struct json *params);
	void *arg;
};
enum status warnings_create(struct warnings **out, const struct warnings_params *params);
// After the loop has run what was posted to it. Accepts NULL, leaves NULL behind.
void warnings_destroy(struct warnings **warnings);
void warnings_flush(struct warnings *warnings);       // the server hears now: tell it what waits
void warnings_next_minute(struct warnings *warnings); // for tests: as if the minute were over
