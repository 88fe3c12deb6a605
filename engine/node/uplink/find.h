/* Finds a server on the local networks by the announcements of servers (common/net/mdns/presence.h).
 *
 * find_run is for a node that has not joined yet: it logs the servers that it finds, and takes one if all of them are
 * of one cluster. A finder is for a node that has joined and whose server has moved: it looks for the same cluster at
 * another address. An announcement only gives an address; the certificate proves the identity. Thread: the loop's. */
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
// Runs the loop until there is a server; while there is none it logs what to do. Errors: STATUS_CONFLICT without a
// message: the node must end. STATUS_INVALID_PARAMS (servers of several clusters are announced; the log lists them) and
// STATUS_OUT_OF_MEMORY, with a message and a hint.
enum status find_run(const struct find_params *params, struct find_place *found, struct error *error);

struct finder;
// Listens from now on. `server_uri` is what the certificate of the cluster's server carries.
enum status finder_create(struct finder **out, struct net_loop *loop, const char *server_uri,
			  const uint8_t *authority_sha256, struct error *error);
void finder_destroy(struct finder **finder);
// An announced place of the cluster's server: the `turn`th of the places that are not `known`, in rotation. False:
// there is none.
bool finder_elsewhere(const struct finder *finder, const struct find_place *known, unsigned turn,
		      struct find_place *out);
