/* The node's connection to its server: dial, register, report, answer; and dial again when it breaks.
 *
 * The server on this machine has a Unix socket in its data directory; a server on another machine is dialled by TLS,
 * with the node's certificate. The node dials, so the server never has to find a node. After a break it dials again
 * with a pause that doubles from 0.1 s to 2 s.||||A server on this machine: the node ends if the server is away for 30
 * s, or says that it stops. The server grants a certificate over the socket if other machines can reach it.||||A server
 * on another machine: the node waits for it without end, with pauses of up to 15 s, and of 60 s while the certificate
 * there is not trusted. After 8 s it also looks on the local networks for an announcement of its cluster at another
 * address, and tries both addresses in turn. The node ends when the cluster has removed it. Its certificate is renewed
 * at two thirds of its life.||||Nothing is queued without a connection: the full state is sent on connecting. A node
 * that has never reached its server waits for it, and logs that every 30 s; if its parent has ended it gives up after
 * the first 30 s, because the parent was that server. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/peer.h"
#include "common/wire/contract.h"
#include "engine/node/uplink/credentials.h"

struct uplink;

// A call of the server. It is answered once, by uplink_answer, at once or later.
struct uplink_call {
	char method[32];           // one of the contract, server to node
	const struct json *params; // checked against the contract; valid during `serve`
	struct uplink *uplink;
	struct json *id;     // NULL: a notification, which wants no answer
	unsigned connection; // that it came by: an answer does not go to another
};

// A method that the node serves: `serve` takes the call.
struct uplink_method {
	const char
		*name; // in the contract, server to node; not node.watch and node.servers, which are the uplink's own
	void (*serve)(void *arg, struct uplink_call *call);
};

struct uplink_params {
	struct net_loop *loop;
	const struct contract *contract;    // CONTRACT_NODE
	const char *socket_path;            // of a server on this machine, copied; or
	int parent;                         // the process that started it, a server; 0: whichever is its parent now
	const char *host;                   // of one on another, with
	int port;                           //
	struct credentials *credentials;    // who this node is to it
	const char *node_id;                // by its certificate
	struct json *(*record)(void *arg);  // NodeRecord, made at each call
	struct json *(*devices)(void *arg); // array of ReportedDevice
	bool (*complete)(void *arg);        // whether these are all, and each is verified or has failed
	// Array of PeerSpeeds, for a server that takes them. May be NULL.
	struct json *(*peer_speeds)(void *arg);
	struct json *(*end)(void *arg); // node.register's end; NULL: none. May be NULL
	void (*watched)(void *arg, bool watched);
	const struct uplink_method *methods; // (method_count), not copied
	size_t method_count;
	void (*lost)(void *arg); // a connection to the server ended
	// May be NULL, both. Told with the first registration of a connection: node.register's workers, or NULL.
	struct json *(*workers)(void *arg);
	void (*registered)(void *arg);          // one has been taken by the server
	void (*fenced)(void *arg, bool fenced); // the lease ran out, or goes on; see lease.h
	// May be NULL. A server on this machine, with each registration: where other nodes may reach this one by direct
	// links, for which the credentials are good now; NULL: nowhere.
	void (*reachable)(void *arg, const char *address);
	// May be NULL. When the piece came, ns of its receiver's clock from some point on; < 0: it was refused.
	void (*burst_answered)(void *arg, bool back, int64_t burst, int64_t ns);
	// The server stopped or stayed away (STATUS_OK), or does not take this node: STATUS_FORBIDDEN once it was
	// removed from the cluster, STATUS_CONFLICT while another speaks for it, STATUS_UNAVAILABLE otherwise.
	void (*gone)(void *arg, enum status status, const char *why);
	void *arg;
};

enum status uplink_create(struct uplink **out, const struct uplink_params *params, struct error *error);
void uplink_destroy(struct uplink **uplink); // after the loop's connections are closed
// Say goodbye: `gone` is called when the connection is closed, or at once if there is none.
void uplink_close(struct uplink *uplink);
// The record or the devices changed: sent soon, several changes at once; nothing while there is no connection.
void uplink_send_record(struct uplink *uplink);
void uplink_send_devices(struct uplink *uplink);
// A notification; `params` is taken. Left out while there is no connection.
void uplink_notify(struct uplink *uplink, const char *method, struct json *params);
// The same, and nothing is logged where it fails, which is for lines of the log itself. False: it was not sent.
bool uplink_tell(struct uplink *uplink, const char *method, struct json *params);
// Answer with a result (taken), or with an error if one is given; frees the call. Nothing is sent when the connection
// that it came by has ended. The uplink must still be there.
void uplink_answer(struct uplink_call **call, struct json *result, const struct error *error);
// Dial the same server once more, for something else: fills in where it is and who we are. As net_dial.
enum status uplink_dial(struct uplink *uplink, struct net_dial_params *params, struct error *error);
bool uplink_registered(const struct uplink *uplink);   // a server is connected and receives notifications
bool uplink_record_taken(const struct uplink *uplink); // and has the newest record and end
// Whether it is on another machine.
bool uplink_remote(const struct uplink *uplink);
// Measure the way to the server: begin a round trip, and tell the last one. False: there is no connection.
bool uplink_measure(struct uplink *uplink, double *rtt_ms, struct net_peer_path *path);
// A piece of a burst (node.burst), with a body of so many bytes, or (back) asking for one: params->burst_answered
// follows. False: there is no connection, or much waits on it.
bool uplink_burst(struct uplink *uplink, bool back, int64_t burst, size_t piece, size_t bytes);
// Send node.telemetry; `telemetry` is taken. Dropped while the server is slow to read.
void uplink_send_telemetry(struct uplink *uplink, struct json *telemetry);
