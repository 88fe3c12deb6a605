/* Joining a cluster: the first meeting of this node with a server on another machine.
 *
 * A ticket contains the SHA-256 of the authority, so the node knows which server to trust; it shows the ticket, and
 * gets its certificate at once. Without a ticket the authority that the server shows is only a candidate: both sides
 * compute six digits from what they saw (common/net/tls/pairing.h), and a person compares them on both sides: at the
 * dashboard, before the server admits the node, and here, before the node accepts the grant. The second comparison
 * matters as much as the first, because an attacker in the middle would admit the node to a cluster of their own. Runs
 * the loop itself, and waits for a server that does not answer. Thread: the loop's. */
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
	bool accept_code;                  // no person here compares the digits
	struct json *(*record)(void *arg); // NodeRecord
	void *arg;
	const bool *stopping; // the loop was stopped because the node is to end
	bool *away;           // NULL, or: the server was only heard of; set when nothing has answered there for 30 s
};
// Errors: STATUS_CONFLICT without a message: the node must end. All others with a message and a hint: STATUS_TIMEOUT
// with *away, STATUS_INVALID_PARAMS (the ticket is malformed; no person is there to compare digits), STATUS_FORBIDDEN
// (another server than the ticket's, turned away, the digits differ), STATUS_UNAUTHENTICATED (the ticket is used up,
// expired, revoked or unknown), STATUS_TIMEOUT (no person has decided), the server's, and those of credentials_take.
enum status join_run(const struct join_params *params, struct error *error);
