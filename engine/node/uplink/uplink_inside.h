/* The connection to the server, as its own files see it: uplink.c registers, sends and answers, uplink_dial.c has where
 * and when the server is dialled, uplink_renew.c the node's certificate. Not for others. Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "common/wire/rpc.h"
#include "engine/node/uplink/find.h"
#include "engine/node/uplink/lease.h"
#include "engine/node/uplink/uplink.h"

enum {
	REDIAL_FIRST_MS = 100,
	PIECES = 64, // of bursts, that have no answer yet
};

struct piece {
	struct uplink *uplink; // NULL: free
	bool back;
	int64_t burst;
};

struct uplink {
	struct uplink_params params;
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1], host[256], node_id[128];
	char address[CREDENTIALS_ADDRESS_BYTES]; // of a server on another machine, as it is written down
	struct net_conn *conn;                   // NULL while there is none
	struct rpc rpc;                          // of this connection
	struct rpc_method *methods;              // (params.method_count, behind its own)
	struct piece pieces[PIECES];             // of this connection
	struct net_timer redial, send, renewal;
	struct find_place home;              // where it was last; host and port are where it is dialled now
	struct finder *finder;               // NULL: it is not looked for
	unsigned turn;                       // of the places where it is
	unsigned dialled;                    // places since the last connection, where servers take turns
	struct credentials_request renewing; // zero while no new certificate is asked for
	enum net_failure failure;            // why the last attempt did not open
	char fault[256];                     // and in words
	struct lease lease;
	int64_t redial_ms, lost_at_ms; // lost_at_ms: steady clock, of the last break or the start
	int64_t notice_ms;             // steady clock: when to say again that no server answers
	bool registering, registered;  // asked and not answered yet; answered
	bool met;                      // was registered once
	bool peer_speeds;              // taken by the server
	unsigned connections;          // until now
	pid_t parent;
	bool ended, leaving;
	bool record_due, devices_due;
	char reach[NET_ADDRESS_BYTES]; // of a server on this machine: where others may reach this node; "": nowhere
	bool anew;                     // it does not know the certificate that this node has
};

// uplink.c
extern const struct net_handler uplink_handler;
// Tell the owner, once, that there is no way on.
void uplink_end(struct uplink *uplink, enum status status, const char *why);
// A call of the server; `params` is taken. Errors are logged, and then `done` is not called.
enum status uplink_ask(struct uplink *uplink, const char *method, struct json *params, rpc_done *done);
void uplink_log_refused(const char *what, const struct error *error);
void uplink_closed(void *uplink, struct net_conn *conn, int code); // conn NULL: it was never open

// uplink_dial.c
void uplink_dial_next(void *uplink); // at once
void uplink_redial(struct uplink *uplink, int64_t now_ms);
// Whether to stop trying, after 30 s without the server. One that never came is waited for.
bool uplink_out_of_patience(const struct uplink *uplink, int64_t now_ms);
void uplink_wait_for_place(struct uplink *uplink);
// Servers that take turns: these are dialled one after the other.
void uplink_take_servers(struct uplink *uplink, const struct json *servers);
void uplink_remember_address(struct uplink *uplink); // where the server was found is where it is looked for next time

// uplink_renew.c
void uplink_look_at_age(void *uplink); // ask for another certificate when it is time
// Take a server's settings for direct links, from this machine's server; NULL: it serves this machine only.
void uplink_take_reach(struct uplink *uplink, const struct json *links);
