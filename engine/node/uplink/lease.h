/* The lease of a node: each byte from its server renews it for LIMIT_LEASE_MS.
 *
 * A node without a byte from its server for so long cannot know what has been revoked. So it is fenced: it forwards
 * nothing to or from its sessions, and keeps their memory. If a byte comes before the connection is given up
 * (LIMIT_NODE_SILENCE_S), it continues where it stopped. Pings every LIMIT_NODE_PING_S ensure that a healthy server
 * sends in time. Thread: the loop's. Embedded in its owner; all zero except `loop`, `changed` and `arg` before first
 * use. */
#pragma once
#include "common/net/ws/ws.h"

struct lease {
	struct net_loop *loop;
	void (*changed)(void *arg, bool fenced);
	void *arg;
	struct net_conn *conn; // NULL: not connected
	struct net_timer look;
	bool fenced;
};

void lease_begin(struct lease *lease, struct net_conn *conn);
// A message has come: before it is served, nothing is fenced any more.
void lease_heard(struct lease *lease);
// The connection is over, and the fence with it.
void lease_end(struct lease *lease);
