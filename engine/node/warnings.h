/* Sends this node's warnings to its server: each warning and error of its log as a node.log.
 *
 * A minute has at most LIMIT_NODE_LINES_PER_MIN, as many as the server keeps. Further ones, those that could not be
 * sent, and the oldest when as many wait already, are counted in the next one. Thread: the loop's; any thread may log.
 * At most one in a process. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

struct warnings;

struct warnings_params {
	struct net_loop *loop;
	bool (*ready)(void *arg); // whether the server receives notifications
	// node.log; params are taken. False: it was not sent. Must not log.
	bool (*tell)(void *arg, struct json *params);
	void *arg;
};
enum status warnings_create(struct warnings **out, const struct warnings_params *params);
// Call it after the loop has run its posted work. Accepts NULL, leaves NULL behind.
void warnings_destroy(struct warnings **warnings);
void warnings_flush(struct warnings *warnings);       // the server is connected: send what waits
void warnings_next_minute(struct warnings *warnings); // for tests: as if the minute were over
