/* Which server a node belongs to, and how it comes to belong to it: by what it was told (--join, --ticket), by what it
 * has joined before, by where its folder lies, or by finding one that announces itself. Thread: the loop's. */
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
	bool find; // the server is to be found first
};

// That of --join, else the one that it has joined, else this machine's if it has one; else it is to be found. `home` is
// zero but for its options. Errors: what stands against it, with a hint; those of credentials_load and join_check.
enum status home_choose(struct home *home, struct error *error);
// What a node of the server's machine shows to other nodes has a folder of its own: it has joined nobody.
void home_load_own(struct home *home);

struct home_meeting {
	struct net_loop *loop;
	const struct contract *contract;
	const char *node_id;
	const bool *stopping; // told to end
};
// From not knowing where the server of another machine is to belonging to its cluster; the loop runs meanwhile, for as
// long as a person takes. Errors: those of find_run and join_run; STATUS_CONFLICT: a ticket of another cluster.
enum status home_meet(struct home *home, const struct home_meeting *params, struct error *error);
