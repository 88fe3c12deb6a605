/* The server's parts, of app.c; app_parts.c makes those that need others to be handed to them. */
#pragma once
#include "common/net/supervisor.h"
#include "server/alerts/watch.h"
#include "server/api/api.h"
#include "server/api/nodes/node_link.h"
#include "server/api/nodes/witnesses.h"
#include "server/cluster/discovery.h"
#include "server/cluster/log_lines.h"
#include "server/http/http.h"
#include "server/identity.h"
#include "server/instances/instances.h"
#include "server/library/catalog.h"
#include "server/library/models.h"
#include "server/local_node.h"
#include "server/options.h"
#include "server/secrets.h"
#include "server/standby.h"
#include "server/tenants/tenants.h"
#include "server/traces/traces.h"

struct app {
	struct options options;
	int lock;
	struct net_loop *loop;
	struct net_watch *signals;
	struct supervisor supervisor;
	struct turn *turn; // NULL: this server has the store alone; so with the next two
	struct secrets *secrets;
	struct standby *standby;
	bool waiting; // for its turn
	struct store *store;
	struct limits *limits;
	struct audit *audit;
	struct contract *api_contract, *node_contract;
	struct tokens *tokens;
	struct authority *authority;
	struct tickets *tickets;
	struct lends *lends;
	struct joins *joins;
	struct discovery *discovery;
	struct witnesses *witnesses;
	struct net_tls *tls; // NULL: on loopback plain HTTP is spoken
	struct events *events;
	struct alerts *alerts;
	struct usage *usage;
	struct conversations *conversations;
	bool watched, hurries; // nodes read their devices every second at least: somebody watches; usage wants it
	struct watch *watch;
	struct channels *channels;
	struct traces *traces; // NULL: no collector is configured
	struct log_lines *log_lines;
	struct cluster *cluster;
	struct topology *topology;
	struct models *models;
	struct catalog *catalog;
	struct instances *instances;
	struct tenancy *tenants;
	struct api *api;
	struct node_links *nodes;
	struct http *http;
	struct local_node *local_node;
	struct net_timer stop_timer;
	bool stopping, node_ended;
	int64_t started_ms, stop_by_ms;
	int64_t flush_by_ms; // once all else is over; 0: it is not
	struct identity identity;
	char socket_path[4112], token_path[4112];
};

// In this order; each makes what the list in app.c names, and is undone by destroy() there. Errors: those of the parts.
enum status app_take_turn(struct app *app, struct error *error);        // wait until this server leads, or is to stop
enum status app_create_state(struct app *app, struct error *error);     // store to events: what others rest on
enum status app_create_cluster(struct app *app, struct error *error);   // what there is, and what runs on it
enum status app_create_joins(struct app *app, struct error *error);     // who asks to join
enum status app_create_discovery(struct app *app, struct error *error); // who is on the local networks
enum status app_create_doors(struct app *app, struct error *error);     // calls, reports of nodes, the port
