/* Chooses the server of a node, and joins it: by options (--join, --ticket), by an earlier join, by the location of its
 * folder, or by finding a server that announces itself. Thread: the loop's. */
#pragma once
#include "common/net/loop.h"
#include "common/wire/contract.h"
#include "engine/node/options.h"
#include "engine/node/uplink/credentials.h"

struct home {
	const struct node_options *options;
	struct credentials credentials; // of a node of the server's machine: for links only
	char host[256];                 // of the server, if it is on another machine
	int port;
	bool find; // the server must be found first
};

// Choose the server of --join, else the one that it has joined, else this machine's if it has one; else one must be
// found. `home` is zero except for its options. Errors: the reason with a hint; those of credentials_load and
// join_check.
enum status home_choose(struct home *home, struct error *error);
// Load the certificate that a node on the server's machine shows to other nodes. It has a folder of its own, because
// this node has joined no server.
void home_load_own(struct home *home);

struct home_meeting {
	struct net_loop *loop;
	const struct contract *contract;
	const char *node_id;
	const bool *stopping; // told to end
};
// Find the server on another machine if necessary, and join its cluster. The loop runs meanwhile, for as long as a
// person takes. Errors: those of find_run and join_run; STATUS_CONFLICT: the ticket is for another cluster.
enum status home_meet(struct home *home, const struct home_meeting *params, struct error *error);
