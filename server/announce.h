/* What `exogpu serve --lan` says on the local networks, so that nodes find it: which cluster, where, and the
 * fingerprint of its authority to compare. Nothing secret, and nothing that anybody should trust. Thread: the loop's.
 */
#pragma once
#include "common/net/announce.h"

struct announce_params {
	const char *cluster_id, *cluster_name;
	const uint8_t *authority_sha256; // (32)
	int port;
};
enum status announce_create(struct net_announcer **out, struct net_loop *loop, const struct announce_params *params,
			    struct error *error);
