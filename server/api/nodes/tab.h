/* Browser tabs: connections of /node with the subprotocol exogpu.tab.v1.
 *
 * A tab has no certificate. Its first message says who it is: tab.join, with the token of an address (server/security/
 * lends.h), or tab.hello, with the secret that it was given then. There is one try a connection, in LIMIT_LOGIN_MS, and
 * until then it has a place among those that nobody has vouched for. Afterwards the connection is the node's, as
 * server/api/nodes/node_link.h has it, with fewer rights (node_link_tab.c). Thread: the loop's. */
#pragma once
#include "server/api/nodes/node_link.h"

struct tab_door;

struct tab_door_params {
	const struct contract *contract; // CONTRACT_NODE
	struct net_loop *loop;
	struct node_links *links;
	struct lends *lends;
	struct audit *audit;
	struct limits *limits;
	const char *peer; // the tab's network address
};
// Its functions are those of struct net_handler. Errors: STATUS_RATE_LIMITED (too many that nobody has vouched for),
// STATUS_OUT_OF_MEMORY.
enum status tab_door_create(struct tab_door **out, const struct tab_door_params *params, struct error *error);
void tab_door_opened(void *user, struct net_conn *conn);
void tab_door_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void tab_door_closed(void *user, struct net_conn *conn, int code);
