/* Joining: connections of /node that nobody has vouched for, and what is decided about them.
 *
 * A stranger's connection may send join.request and join.reveal, each once, in messages of LIMIT_LOGIN_BYTES at most,
 * and is told join.decided; everything else is refused. By ticket, a use, the certificate's row, the node's row and the
 * audit entry are one transaction, and the answer follows it. Without one, the request waits for a person
 * (server/security/joining.h), who says yes by node.approve. A node whose certificate was revoked is told so, by 4403.
 * A node that is let in closes, and comes back with its certificate: that is server/api/nodes/node_link.c's. Thread:
 * the loop's. */
#pragma once
#include "common/net/ws/ws.h"
#include "common/wire/contract.h"
#include "server/cluster/cluster.h"
#include "server/security/certificates/authority.h"
#include "server/security/joining.h"
#include "server/security/lends.h"
#include "server/security/limits.h"
#include "server/security/tickets.h"

struct joins;

struct joins_params {
	struct net_loop *loop;
	struct store *store;
	const struct contract *contract; // CONTRACT_NODE
	struct cluster *cluster;
	struct authority *authority;
	struct tickets *tickets;
	struct lends *lends;
	struct audit *audit;
	struct limits *limits;
	// End the connections that speak for this node, with 4403. Set by node_links_create.
	void (*cut)(void *context, const char *node_id, const char *reason);
	void *context;
};
// Errors: STATUS_OUT_OF_MEMORY.
enum status joins_create(struct joins **out, const struct joins_params *params, struct error *error);
void joins_destroy(struct joins **joins); // after the loop's connections are closed
void joins_set_cut(struct joins *joins, void (*cut)(void *context, const char *node_id, const char *reason),
		   void *context);
// End the connections that speak for this node, with 4403.
void joins_cut(struct joins *joins, const char *node_id, const char *reason);
// Say goodbye to all that wait: close with 1001.
void joins_shut_down(struct joins *joins);

// A stranger's connection; peer: its address. With `revoked` it showed a certificate that is not taken any more, and
// is told so. Its functions are those of struct net_handler. Errors: STATUS_RATE_LIMITED (too many that nobody has
// vouched for), STATUS_OUT_OF_MEMORY.
struct join;
enum status join_create(struct join **out, struct joins *joins, const char *peer, bool revoked, struct error *error);
void join_opened(void *user, struct net_conn *conn);
void join_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void join_closed(void *user, struct net_conn *conn, int code);

// What a person decides. `done` is called once it is on disk; node_id: of whom. Errors at once, and then `done` is not
// called: STATUS_NOT_FOUND (nobody of this id waits), STATUS_CONFLICT (the code is not known yet, it is decided
// already, it would take the place of the server's own node, or the one that waits has another code), those of what is
// written.
struct joins_decision {
	const char *node_id;
	const char *code; // of an approval: the digits that were compared; NULL: whoever waits under that id
	const struct audit_actor *by;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};
enum status joins_approve(struct joins *joins, const struct joins_decision *decision, struct error *error);
enum status joins_refuse(struct joins *joins, const struct joins_decision *decision, struct error *error);
// Remove a node: its certificates are good for nothing and its connections closed when this returns, whatever comes of
// the rest. Errors: those of cluster_remove_node.
enum status joins_remove(struct joins *joins, const struct joins_decision *decision, struct error *error);
// A new certificate for a node that has proved who it is. `done` gets a Grant of schema/node.json (taken), or an error.
struct joins_renewal {
	const char *node_id, *peer, *request_pem;
	bool local; // the server's own node, which needs no certificate to ask for one
	void (*done)(void *context, enum status status, struct json *grant, const struct error *error);
	void *context;
};
// Errors also: STATUS_RATE_LIMITED (it has asked within LIMIT_RENEW_MS).
enum status joins_renew(struct joins *joins, const struct joins_renewal *renewal, struct error *error);
// Whether the cluster knows a good certificate of this node.
bool joins_has_certificate(const struct joins *joins, const char *node_id);

// All that wait: an array of WaitingNode of schema/api.json; and those that the cluster does not know yet, added to
// `nodes`, an array of Node.
struct json *joins_waiting(const struct joins *joins);
bool joins_waits(const struct joins *joins, const char *node_id);
void joins_add_nodes(const struct joins *joins, struct json *nodes);
