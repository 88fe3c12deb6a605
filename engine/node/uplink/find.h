/* Finding a server on the local networks, by what servers announce of themselves (common/net/mdns/presence.h).
 *
 * find_run is for a node that has not joined yet: it says what it hears, and takes the server if all that can be meant
 * are of one cluster. A finder is for one that has joined and whose server is not where it was: the same cluster at
 * another address. What is announced only says where to knock; who is there, the certificate shows. Thread: the
 * loop's. */
#pragma once
#include "common/net/loop.h"
#include "common/net/mdns/presence.h"

struct find_place {
	char host[256];
	int port;
};

struct find_params {
	struct net_loop *loop;
	const uint8_t *authority_sha256; // (32) of the ticket: only this authority's cluster is meant; NULL: any
	const bool *stopping;            // the loop was stopped because the node is to end
};
// Runs the loop itself, until there is a server; where there is none it says what to do, and goes on listening.
// Errors: STATUS_CONFLICT without a message: the node is to end. STATUS_INVALID_PARAMS (servers of several clusters are
// announced; the log lists them) and STATUS_OUT_OF_MEMORY, with what went wrong and a hint.
enum status find_run(const struct find_params *params, struct find_place *found, struct error *error);

struct finder;
// Listens from now on. `server_uri` is what the certificate of the cluster's server carries.
enum status finder_create(struct finder **out, struct net_loop *loop, const char *server_uri,
			  const uint8_t *authority_sha256, struct error *error);
void finder_destroy(struct finder **finder);
// Where the cluster's server is heard, the `turn`th of the places that are not `known`, turn after turn. False: nowhere
// else.
bool finder_elsewhere(const struct finder *finder, const struct find_place *known, unsigned turn,
		      struct find_place *out);
