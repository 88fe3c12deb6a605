/* See lease.h. */
#include "engine/node/uplink/lease.h"

#include "common/base/log.h"

enum { LOOK_FENCED_MS = 50 };

static void look(void *arg)
{
	struct lease *lease = arg;
	int64_t silence_ms = net_conn_silence_ms(lease->conn);
	bool fenced = silence_ms >= LIMIT_LEASE_MS;
	net_timer_start(lease->loop, &lease->look, fenced ? LOOK_FENCED_MS : LIMIT_LEASE_MS - silence_ms, look, lease);
	if (fenced == lease->fenced)
		return;
	lease->fenced = fenced;
	if (fenced)
		log_warning("node", "no byte from the server for %.1f s: its sessions here are paused until it answers",
			    (double)silence_ms / 1000);
	else
		log_info("node", "the server is heard again: its sessions go on");
	lease->changed(lease->arg, fenced);
}

void lease_begin(struct lease *lease, struct net_conn *conn)
{
	lease->conn = conn;
	look(lease);
}

void lease_heard(struct lease *lease)
{
	if (lease->fenced)
		look(lease);
}

void lease_end(struct lease *lease)
{
	net_timer_stop(lease->loop, &lease->look);
	lease->conn = NULL;
	if (!lease->fenced)
		return;
	lease->fenced = false;
	lease->changed(lease->arg, false);
}
