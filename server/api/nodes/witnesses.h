/* The audit log's witnesses: nodes on other machines, which keep its newest head and sign it.
 *
 * Each is asked when it comes, and then whenever the log has grown, every LIMIT_WITNESS_MS at most. It is given the
 * proof that the head continues the one that it holds; its cosignature is checked, added to the head's note, and kept
 * in the database. A witness that refuses a head because it does not continue what it has signed is the sign that the
 * log was cut or replaced: an alert, and an entry, until it signs again or is removed. The server's own node is not
 * asked: who can change the log's files can change that one's, too. Thread: the loop's. */
#pragma once
#include "server/alerts/alerts.h"
#include "server/cluster/cluster.h"

struct witnesses;

struct witnesses_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	struct cluster *cluster;
	struct alerts *alerts;
};
enum status witnesses_create(struct witnesses **out, const struct witnesses_params *params);
// After the connections of nodes are gone, before the cluster is.
void witnesses_destroy(struct witnesses **witnesses);

// A node of another machine is online now. Its connection's end is heard of when it is asked.
void witnesses_node_came(struct witnesses *witnesses, const char *node_id);
// Who has cosigned which size since the server started: an array of Witness of schema/api.json.
struct json *witnesses_json(const struct witnesses *witnesses);

// Ask each what it holds now, for a verification: an array of AuditWitness of schema/api.json, and in each, of who has
// answered, the state "asked" and a `note`: the head that it holds, signed by it and perhaps by the log. `done` is
// called once, with NULL if the server stops. Errors: STATUS_CONFLICT (they are being asked).
enum status witnesses_gather(struct witnesses *witnesses, void (*done)(void *context, struct json *answers),
			     void *context);
// A verification has found that this witness holds another log, with so many entries.
void witnesses_conflict(struct witnesses *witnesses, const char *node_id, uint64_t size);
