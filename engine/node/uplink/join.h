/* Joining a cluster: the first meeting of this node with a server on another machine.
 *
 * With a ticket the node knows by the authority's SHA-256 in it which server to trust, shows it the ticket, and has its
 * certificate at once. Without one it takes whichever authority the server comes with for a candidate, both sides make
 * six digits of what they saw (common/net/tls/pairing.h), and two people, or one who looks at both, say whether these
 * are the same: at the dashboard, before the server lets the node in, and here, before the node takes what it is
 * granted. The second matters as much as the first: who stands between would let the node into a cluster of his own.
 * Runs the loop itself. A server that does not answer is waited for. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"
#include "common/wire/contract.h"
#include "engine/node/uplink/credentials.h"

// Whether somebody can compare six digits here, or need not. Errors: STATUS_INVALID_PARAMS with a hint.
enum status join_check(const char *ticket, bool accept_code, struct error *error);

struct join_params {
	struct net_loop *loop;
	const struct contract *contract; // CONTRACT_NODE
	struct credentials *credentials; // are the node's afterwards
	const char *node_id, *host;
	int port;
	const char *ticket;                // NULL: six digits are compared
	bool accept_code;                  // nobody is asked here whether they are the same
	struct json *(*record)(void *arg); // NodeRecord
	void *arg;
	const bool *stopping; // the loop was stopped because the node is to end
	bool *away;           // NULL, or: the server was only heard of; set when nothing has answered there for 30 s
};
// Errors: STATUS_CONFLICT without a message: the node is to end. All others with what went wrong, and a hint:
// STATUS_TIMEOUT with *away, STATUS_INVALID_PARAMS (the ticket is none; nobody is there to compare digits),
// STATUS_FORBIDDEN (another server than the ticket's, turned away, the digits differ), STATUS_UNAUTHENTICATED (the
// ticket is used up, expired, revoked or unknown), STATUS_TIMEOUT (nobody has decided), the server's, and those of
// credentials_take.
enum status join_run(const struct join_params *params, struct error *error);
