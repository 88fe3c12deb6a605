/* A node's connection, which node_link.c and its parts share. See node_link.h. Thread: the loop's. */
#pragma once
#include "common/wire/rpc.h"
#include "server/api/nodes/node_link.h"

enum { NODE_CLOSE_SUPERSEDED = 4409 };

struct node_links {
	struct node_links_params params;
	struct node_link *links;
	int64_t said_ms;               // steady: when the log last told of a tab that was refused
	struct net_timer servers_look; // of several servers: whether there are others than before
	char *servers;                 // the list that was told last, as JSON
	bool several;                  // there has been another server: watchers are told
	int64_t servers_read;          // turn_view's, when they were told last
};

struct node_link {
	struct cluster_link link; // first: the cluster knows this part
	struct node_link *next, **at;
	struct node_links *all;
	struct net_conn *conn;
	bool local, tab, closed;
	bool cut;                    // it was removed: nothing that it still says is heard
	bool skewed, other_version;  // the log has told that its clock is wrong, that it is of another version
	bool late;                   // silent for too long when it was last looked at
	char proven[STORE_ID_BYTES]; // who its certificate, or its secret, says it is; "" of a local one
	char peer[JOINING_PEER_BYTES];
	bool renewing;
	unsigned calls;               // in the second that began then
	int64_t second_ms, said_ms;   // steady; said_ms: when the log last told of a message that was refused
	struct net_timer rest;        // while it is not read
	int64_t burst, burst_ns;      // the latest of its bursts, and when it began, steady
	struct net_timer look;        // whether it is still there
	bool known;                   // a registration was stored: the cluster may point here until the node is lost
	char node_id[STORE_ID_BYTES]; // "" until registered; once known it stays
	struct net_timer deadline;
	struct rpc rpc;
	unsigned storing;     // registrations and reports under way; the struct lives until they are done
	unsigned registering; // of these, registrations
	// While another connection speaks for this node (node_link_contest.c):
	struct json *contest;   // the registration that waits; NULL: none does
	int64_t contest_ms;     // steady: since when
	unsigned contest_looks; // since then
	struct net_timer contested;
	bool admitted;   // it may register
	int64_t told_ms; // steady: when the audit log last had an entry of one that was refused for this one
};

// ---- node_link.c ----

// The registration of a connection that may have its place. Returns as handlers do: STATUS_PENDING is answered later.
// `arg` is the link.
enum status node_link_register(void *arg, const struct message *message, struct error *error);

// ---- node_link_reports.c: methods of schema/node.json; `arg` is the link ----

enum status node_link_burst(void *arg, const struct message *message, struct error *error); // node.burst
enum status node_link_log(void *arg, const struct message *message, struct error *error);   // node.log
enum status node_link_links(void *arg, const struct message *message, struct error *error); // node.links
enum status node_link_fetching(void *arg, const struct message *message, struct error *error);
enum status node_link_hop_ended(void *arg, const struct message *message, struct error *error);
enum status node_link_tenant_ended(void *arg, const struct message *message, struct error *error);

// ---- node_link_servers.c: several servers that take turns ----

void node_link_tell_servers(
	struct node_link *link);              // where they are; nothing where there is one, or to whom it is nothing
void node_links_look_at_servers(void *links); // tells all nodes when that changes, from now on

// ---- node_link_contest.c ----

// Whether this registration is to wait, since another connection speaks for the same node: STATUS_PENDING; STATUS_OK:
// nobody does. Errors: STATUS_CONFLICT (one waits already), STATUS_OUT_OF_MEMORY.
enum status node_contest(struct node_link *link, const struct message *message, struct error *error);
void node_contest_end(struct node_link *link); // the connection is gone

// ---- node_link_tab.c ----

// Whether a browser tab may be asked this.
bool node_tab_may_hear(const char *method, const struct json *params);
// The NodeRecord of a tab, of what it says of itself.
struct json *node_tab_record(const struct node_link *link, const struct json *told);
// Whether a tab may have these devices (params of node.devices). Errors: STATUS_INVALID_PARAMS, STATUS_LIMIT_EXCEEDED.
enum status node_tab_check_devices(const struct node_link *link, const struct json *params, struct error *error);
// What a tab says of its way to the server (params of node.links), and nothing else.
struct json *node_tab_links(const struct node_link *link, const struct json *params);
