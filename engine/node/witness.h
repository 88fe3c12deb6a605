/* A node as a witness of its server's audit log: it keeps the newest head that it was shown and signs it, so that
 * whoever rewrites or cuts the log must change what lies on this machine, too.
 *
 *   DATA/node/witness/key         its own cosignature key, made once
 *                     head        the newest head, with the log's signature and its own: exogpu audit verify --witness
 *                     log-key     number, first entry and key of the segment that signed it
 *                     cluster     whose log this is; a node that joins another cluster sets the folder aside
 *                     refused-N   what it was shown and did not sign: evidence, the first few
 *
 * It never signs a smaller log, nor one that does not continue what it has signed; the log's keys it learns from the
 * certificates by which each passes the log on to the next. The first head that it ever sees it believes. What it signs
 * is on disk before it answers; a thread of its own waits for that. Files that are damaged are never begun anew by
 * themselves, since then a log that was cut would be signed again. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

struct witness;

struct witness_params {
	struct net_loop *loop;
	const char *directory; // DATA/node; copied, and not touched before the first head comes
	const char *node_id;   // copied
	const char *server;    // the URI of the cluster's servers; copied
};
enum status witness_create(struct witness **out, const struct witness_params *params);
// What waits is answered with STATUS_UNAVAILABLE. Before the loop goes.
void witness_destroy(struct witness **witness);

// The result (of schema/node.json) is taken; NULL with an error.
typedef void witness_done(void *context, struct json *result, const struct error *error);
// Serve audit.witness; params were checked against the contract. `done` is called once, now or later. Errors:
// STATUS_CONFLICT (the head does not continue what was signed: kept as evidence), STATUS_INVALID_PARAMS (it is no head
// of the log's key), STATUS_RATE_LIMITED (one is being saved), STATUS_UNAVAILABLE (the disk), with hints.
void witness_sign(struct witness *witness, const struct json *params, witness_done *done, void *context);
// Serve audit.held: the newest head that is held, with both signatures. Errors: STATUS_UNAVAILABLE (the disk, or what
// is there is damaged), with hints.
enum status witness_held(struct witness *witness, struct json **result, struct error *error);
