/* Hops of a ring that go by way of the server: two streams, and what comes from the one goes out on the other.
 *
 *     node of part i --> stream, hop.hello "out" | hop | stream, hop.hello "in" --> node of part i + 1
 *
 * A stream is one as workers have (inside.h's struct line): by the socket of this machine, or by a WebSocket of its
 * node, and then it may only bring the end that is that node's. A hop is awaited before its nodes are told of it
 * (hop.connect); streams that name another, or without its key, are refused. When both ends are there each hears
 * hop.hello, and from then on messages pass whole and unchanged. While much waits for the one end the
 * other is not read, so that a hop takes its turn with everything else and grows nothing. It ends with either stream.
 *
 * The server can be one end of a hop itself, and see what passes between two others: so it checks what a browser
 * computes (server/instances/spot). Thread: the loop's. */
#pragma once
#include "common/net/ws/parts.h"
#include "server/tenants/tenants.h"

struct hop;

typedef void hop_message(void *context, const struct net_parts *message); // valid during the call
typedef bool hop_gate(void *context, const struct net_parts *message);    // the same; false: it goes nowhere

struct hop_params {
	const char *hop_id, *key;             // copied
	const char *out_node_id, *in_node_id; // who may bring which end; copied. NULL, of one at most: the server
	void (*opened)(void *context);        // of a hop with an end at the server: the other is there
	hop_message *came;                    // the same, where nodes send: it may not destroy the hop
	void (*ended)(void *context);         // the last call; the hop is gone
	void *context;
};
// Errors: STATUS_LIMIT_EXCEEDED (LIMIT_HOPS), STATUS_OUT_OF_MEMORY.
enum status hop_relay_create(struct hop **out, struct tenancy *tenants, const struct hop_params *params,
			     struct error *error);
// Send a message on a hop that begins at the server, once it is open. Errors: those of a line's queue.
enum status hop_relay_send(struct hop *hop, const struct net_parts *message);
// Asked about each message before it passes, from now on; and see each that has passed. Neither may destroy the hop.
// NULL: no longer.
void hop_relay_gate(struct hop *hop, hop_gate *gate, void *context);
void hop_relay_tap(struct hop *hop, hop_message *tap, void *context);
uint64_t hop_relay_passed(const struct hop *hop); // messages, since the last hop_relay_recount
void hop_relay_recount(struct hop *hop);
// Both streams are closed; `ended` is not called. Accepts NULL, leaves NULL behind.
void hop_relay_destroy(struct hop **hop);
