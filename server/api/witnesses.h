/* The audit log's witnesses: nodes on other machines, which keep its newest head and sign it.
 *
 * Each is asked when it comes, and then whenever the log has grown, every LIMIT_WITNESS_MS at most. It is given the
 * proof that the head continues the one that it holds; its cosignature is checked, added to the head's note, and kept
 * in the database. A witness that refuses a head because it does not continue what it has signed is the sign that the
 * log was cut or replaced: an error in the log of the program, and an entry. The server's own node is not asked: who
 * can change the log's files can change that one's, too. Thread: the loop's. */
#pragma once
#include "server/cluster/cluster.h"

struct witnesses;

struct witnesses_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	struct cluster *cluster;
};
enum status witnesses_create(struct witnesses **out, const struct witnesses_params *params);
// After the connections of nodes are gone, before the cluster is.
void witnesses_destroy(struct witnesses **witnesses);

// A node of another machine is online now. Its connection's end is heard of when it is asked.
void witnesses_node_came(struct witnesses *witnesses, const char *node_id);
// Who has cosigned which size since the server started: an array of Witness of schema/api.json.
struct json *witnesses_json(const struct witnesses *witnesses);
