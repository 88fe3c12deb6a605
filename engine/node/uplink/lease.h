/* The lease that a node has from its server: each byte that comes renews it for LIMIT_LEASE_MS.
 *
 * A node that has not heard its server for so long cannot know what has been revoked meanwhile. So it is fenced: it
 * lets nothing out and takes nothing in for its sessions, and keeps all that they have. If the server is heard again
 * before the connection is given up (LIMIT_NODE_SILENCE_S), it goes on where it stood. Pings of LIMIT_NODE_PING_S see
 * to it that a server that is well is heard in time. Thread: the loop's. Embedded in its owner, zero but for `loop`,
 * `changed` and `arg` before first use. */
#pragma once
#include "common/net/ws.h"

struct lease {
	struct net_loop *loop;
	void (*changed)(void *arg, bool fenced);
	void *arg;
	struct net_conn *conn; // NULL: there is none
	struct net_timer look;
	bool fenced;
};

void lease_begin(struct lease *lease, struct net_conn *conn);
// A message has come: before it is served, nothing is fenced any more.
void lease_heard(struct lease *lease);
// The connection is over, and with it what was fenced.
void lease_end(struct lease *lease);
