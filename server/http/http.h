/* The port: which request goes where, and who is let in.
 *
 * Every answer carries the security headers. On TCP the Host must be a name of this server's or an address, and an
 * Origin must be the page's own (DNS rebinding and hostile pages end here); the Unix socket belongs to the data
 * directory's owner. Thread: the loop's. */
#pragma once
#include "server/api/api.h"
#include "server/api/nodes/node_link.h"
#include "server/security/certificates/authority.h"
#include "server/store/turn.h"

struct http;

struct http_params {
	struct net_loop *loop;
	struct api *api;
	struct node_links *nodes;
	struct joins *joins;
	struct lends *lends;
	const struct contract *contract; // CONTRACT_NODE
	struct tokens *tokens;
	struct events *events;
	struct cluster *cluster;
	struct topology *topology;
	struct tenancy *tenants;
	struct alerts *alerts;
	struct usage *usage;
	struct channels *channels;
	struct models *models;
	struct instances *instances;
	struct audit *audit;
	struct traces *traces;           // NULL: no traces are made
	const char *const *cors_origins; // whose pages may use /v1; ends with NULL
	bool load_on_demand;             // as in struct openai_params
	struct store *store;
	struct limits *limits;
	const struct authority *authority;
	struct net_tls *tls; // NULL: plain HTTP
	const char *address; // to listen on, numeric
	int port;            // 0: any
	const char *socket_path;
	// A second listener for Ollama's clients, which send no token: plain HTTP on a loopback address, acting as this
	// token (its id or name) and serving /api and /v1 alone. NULL: there is none.
	const char *ollama_token, *ollama_address;
	int ollama_port;
	const struct turn *turn; // NULL: this server has the store alone
	// The key of followers that pass connections on (common/net/http/pass.h). NULL: there are none.
	const uint8_t *passed_key;
	int64_t started_ms;
};
// Listens on all of them. Errors: those of net_listener_create.
enum status http_create(struct http **out, const struct http_params *params, struct error *error);
void http_destroy(struct http **http);
bool http_answering(const struct http *http); // an answer of /v1 is under way
// Where the dashboard is, for somebody elsewhere if it can be reached from there: http://127.0.0.1:52415/
const char *http_url(const struct http *http);
int http_port(const struct http *http);
int http_ollama_port(const struct http *http); // 0: there is none
