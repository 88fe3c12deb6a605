/* The API: JSON-RPC calls of clients, in; domain calls and answers, out.
 *
 * The contract decides: a method's scope and parameters are checked from schema/api.json before its handler runs, and
 * in debug builds its result after. A handler lives in the file of its noun and does what it is named for, nothing
 * else. Thread: the loop's. */
#pragma once
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "server/alerts/watch.h"
#include "server/api/nodes/join.h"
#include "server/api/nodes/witnesses.h"
#include "server/cluster/cluster.h"
#include "server/cluster/discovery.h"
#include "server/cluster/topology/topology.h"
#include "server/instances/instances.h"
#include "server/instances/requests/requests.h"
#include "server/library/models.h"
#include "server/security/certificates/authority.h"
#include "server/security/limits.h"
#include "server/security/tokens/tokens.h"
#include "server/store/turn.h"
#include "server/tenants/tenants.h"

struct api;
struct api_client; // one connection
struct conversations;

struct api_params {
	struct net_loop *loop;
	const struct contract *contract;
	struct store *store;
	struct tokens *tokens;
	struct audit *audit;
	struct limits *limits;
	struct events *events;
	struct log_lines *log_lines;
	struct cluster *cluster;
	struct topology *topology;
	struct models *models;
	struct instances *instances;
	const struct catalog *catalog;
	struct tenancy *tenants;
	struct joins *joins;
	struct tickets *tickets;
	struct lends *lends;
	struct witnesses *witnesses;
	struct alerts *alerts;
	struct usage *usage;
	struct conversations *conversations;
	struct watch *watch;
	struct channels *channels;
	const struct discovery *discovery;
	const struct authority *authority;
	bool tls;                // clients reach this server by it
	bool load_on_demand;     // a request loads its model, whoever asks
	const struct turn *turn; // NULL: there are no other servers
	const char *name, *cluster_id, *schema_sha256;
	int64_t started_ms;
};
// Errors: STATUS_INTERNAL if a method of the contract has no handler, or a handler no method: then the server must not
// start.
enum status api_create(struct api **out, const struct api_params *params, struct error *error);
void api_destroy(struct api **api);

// What the connections of /ws call: opened, message, closed of struct net_handler, with a struct api_client as user.
struct api_client_params {
	struct token *token; // NULL: not logged in yet, or, with `local`, the machine's owner, who may do everything
	bool local;
	uid_t uid;        // of a local one
	const char *peer; // the address it comes from; "unix" for a local one
};
// Errors: STATUS_RATE_LIMITED (too many that have not logged in, of its address or in all), STATUS_OUT_OF_MEMORY.
enum status api_client_create(struct api_client **out, struct api *api, const struct api_client_params *params,
			      struct error *error);
void api_client_opened(void *user, struct net_conn *conn);
void api_client_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void api_client_drained(void *user, struct net_conn *conn);
void api_client_closed(void *user, struct net_conn *conn, int code);

// A log-in from this address failed, with this text. Returns how long the answer must wait, in ms.
int64_t api_login_failed(struct api *api, const char *peer, const char *text, enum status why);
// A request of a token's holder that is no call of the API was refused: count it under this name.
void api_request_refused(struct api *api, const struct token *token, const char *peer, const char *action,
			 enum status why);
// End the workers of this token's sessions and close its connections with 4410. For tokens_revoke.
void api_end_token(void *api, struct token *token);
// Close all with 1001.
void api_shut_down(struct api *api);

// Where other machines find this server, once it listens: a URL. For those who hand out tickets.
void api_set_url(struct api *api, const char *url);
// The dashboard's address with a new login code of the machine's owner (security/login_codes.h). To be wiped after use.
// Errors: login_codes_make's.
enum { API_LOGIN_URL_BYTES = 384 };
enum status api_login_url(struct api *api, char url[API_LOGIN_URL_BYTES], struct error *error);

// Figures for /metrics.
struct api_stats {
	uint64_t calls, failed_calls, failed_logins;
	size_t connections, sessions, under_way; // under_way: calls that are not answered yet
};
void api_read_stats(const struct api *api, struct api_stats *stats);
