/* A node as a witness of its server's audit log: it keeps and signs the newest head that it was shown. So a person who
 * rewrites or cuts the log must also change files on this machine.
 *
 *   DATA/node/witness/key         its own cosignature key, made once
 *                     head        the newest head, with the log's signature and its own: exogpu audit verify --witness
 *                     log-key     number, first entry and key of the segment that signed the head
 *                     cluster     the cluster of this log; a node that joins another cluster sets the folder aside
 *                     refused-N   the first few heads that it refused to sign: evidence
 *
 * It never signs a smaller log, nor one that does not continue the head that it has signed. It learns the log's keys
 * from the certificates by which each key hands over to the next. It trusts the first head that it ever sees. A signed
 * head is on disk before the answer is sent; a thread of its own waits for that. Damaged files are never started again
 * automatically, because then a log that was cut would be signed again. Thread: the loop's. */
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
// Pending requests are answered with STATUS_UNAVAILABLE. Call it before the loop is destroyed.
void witness_destroy(struct witness **witness);

// The result (of schema/node.json) is taken; NULL with an error.
typedef void witness_done(void *context, struct json *result, const struct error *error);
// Serve audit.witness; params were checked against the contract. `done` is called once, now or later. Errors:
// STATUS_CONFLICT (the head does not continue the signed one: kept as evidence), STATUS_INVALID_PARAMS (the log's key
// has not signed it), STATUS_RATE_LIMITED (one is being saved), STATUS_UNAVAILABLE (the disk), with hints.
void witness_sign(struct witness *witness, const struct json *params, witness_done *done, void *context);
// Serve audit.held: the newest head, with both signatures. Errors: STATUS_UNAVAILABLE (the disk, or a damaged file),
// with hints.
enum status witness_held(struct witness *witness, struct json **result, struct error *error);
