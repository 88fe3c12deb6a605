/* See http.h. */
#include "common/files/kernels_built.h"
#include "server/api/nodes/tab.h"
#include "server/http/assets.h"
#include "server/http/host.h"
#include "server/http/http_inside.h"
#include "server/http/metrics.h"
#include "server/http/role.h"
#include "server/http/subprotocols.h"
#include "server/library/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Nothing from elsewhere, nothing inline, no frames: a page that is not ours gets nothing to hold on to. No
// Strict-Transport-Security: where the authority is the cluster's own, a browser that has once been told to insist on
// it could not be talked past a new authority or a certificate that ended, and everything else on that host would be
// held to TLS too. Nothing is lost without it: this port never speaks plain HTTP.
static const struct net_header security_headers[] = {
	{"content-security-policy:",
	 "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src "
	 "'self'; "
	 "manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
	{"x-content-type-options:", "nosniff"},
	{"referrer-policy:", "no-referrer"},
	{"cross-origin-opener-policy:", "same-origin"},
	{"cross-origin-resource-policy:", "same-origin"},
	{0},
};

// Which connection an upgrade has become: whose it is, and what is told it.
struct upgraded {
	const struct net_handler *to;
	void *user; // struct api_client, node_link, tab_door, worker_link or shards_link
};

static const struct net_handler to_client = {.opened = api_client_opened,
					     .message = api_client_message,
					     .drained = api_client_drained,
					     .closed = api_client_closed};
static const struct net_handler to_node = {
	.opened = node_link_opened, .message = node_link_message, .closed = node_link_closed};
static const struct net_handler to_stranger = {.opened = join_opened, .message = join_message, .closed = join_closed};
static const struct net_handler to_tab = {
	.opened = tab_door_opened, .message = tab_door_message, .closed = tab_door_closed};
static const struct net_handler to_worker = {.opened = worker_link_opened,
					     .message = worker_link_message,
					     .drained = worker_link_drained,
					     .closed = worker_link_closed};
static const struct net_handler to_model = {.opened = shards_link_opened,
					    .message = shards_link_message,
					    .drained = shards_link_drained,
					    .closed = shards_link_closed};

// Absent, as from programs, or exactly the page that this server served to that Host.
static bool origin_allowed(const struct net_request *request)
{
	char own[300];
	if (!request->origin[0])
		return true;
	snprintf(own, sizeof own, "%s://%s", request->tls ? "https" : "http", request->host);
	return !strcasecmp(request->origin, own);
}

void http_fail(struct net_response *response, enum status status, const char *message, const char *hint)
{
	struct json *json = json_new_object();
	json_set_string(json, "error", status_word(status));
	json_set_string(json, "message", message);
	json_set_string(json, "hint", hint);
	buffer_clear(&response->owned);
	json_print(json, &response->owned);
	buffer_append_byte(&response->owned, '\n');
	json_destroy(&json);
	response->status = status_http(status);
	response->content_type = "application/json";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
	response->no_store = true;
	if (status == STATUS_UNAUTHENTICATED)
		response->authenticate = "Bearer realm=\"exogpu\"";
}

bool http_check_host(const struct http *http, const struct net_request *request, struct net_response *response)
{
	if (request->passed || host_allowed(http->params.authority, request))
		return true;
	http_fail(response, STATUS_FORBIDDEN, "this server does not have the name in Host",
		  http->params.tls ? "use the address that it printed, or start it with --tls-name NAME"
				   : "open it by the address that it printed");
	return false;
}

// A page of this server's, or of an origin that the operator named, may use /v1; programs send no Origin. The token is
// what lets them in: this keeps a foreign page from using one that it was given by mistake, or from trying some.
static bool check_origin(const struct http *http, const struct net_request *request, struct net_response *response)
{
	if (origin_allowed(request) || infer_origin_named(http->infer, request->origin))
		return true;
	http_fail(response, STATUS_FORBIDDEN, "a page of another origin may not use /v1",
		  "start the server with --cors-origin and its origin");
	return false;
}

// Whether this request may read what `observe` may.
static bool may_observe(struct http *http, const struct net_request *request, struct net_response *response)
{
	struct caller caller;
	struct error error = {0};
	if (!access_admit(&http->access, request, SCOPE_OBSERVE, "metrics.read", &caller, &error)) {
		response->holder = access_holder(caller.token);
		return true;
	}
	http_fail(response, error.status, error.message, error.hint[0] ? error.hint : NULL);
	return false;
}

static void serve_schema(struct net_response *response)
{
	size_t length;
	response->status = 200;
	response->content_type = "application/json";
	response->body = (const uint8_t *)contract_text(CONTRACT_API, &length);
	response->body_bytes = length;
}

// Open, since it is public: what a phone needs to trust this server. The type makes phones offer to install it.
static void serve_authority(const struct http *http, struct net_response *response)
{
	response->status = 200;
	response->content_type = "application/x-x509-ca-cert";
	response->body = (const uint8_t *)authority_pem(http->params.authority);
	response->body_bytes = strlen(authority_pem(http->params.authority));
}

// /healthz: whether it lives, whether its devices are found yet, and what made the kernels of this binary, which are
// its own node's too; /readyz: the second, by the status too.
static void serve_health(const struct http *http, bool readiness, struct net_response *response)
{
	const bool ready = !cluster_discovering(http->params.cluster);
	struct kernels_built built;
	kernels_built_read(&built);
	buffer_printf(&response->owned,
		      "{\"status\":\"%s\",\"ready\":%s,\"version\":\"" EXOGPU_VERSION "\",\"cuda_kernels\":\"",
		      readiness && !ready ? "starting" : "ok", ready ? "true" : "false");
	kernels_built_print(&built, &response->owned); // no character that JSON would want escaped
	buffer_append_text(&response->owned, "\"");
	if (http->params.turn)
		role_print(http->params.turn, &response->owned);
	buffer_append_text(&response->owned, "}\n");
	response->status = readiness && !ready ? 503 : 200;
	response->content_type = "application/json";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
	response->no_store = true;
}

static void serve_metrics(struct http *http, const struct net_request *request, struct net_response *response)
{
	if (!may_observe(http, request, response))
		return;
	struct metrics_sources sources = {.api = http->params.api,
					  .events = http->params.events,
					  .cluster = http->params.cluster,
					  .topology = http->params.topology,
					  .tenants = http->params.tenants,
					  .alerts = http->params.alerts,
					  .usage = http->params.usage,
					  .channels = http->params.channels,
					  .traces = http->params.traces,
					  .store = http->params.store,
					  .started_ms = http->params.started_ms};
	metrics_print(&sources, &response->owned);
	response->status = response->owned.failed ? 500 : 200;
	response->content_type = "text/plain; version=0.0.4; charset=utf-8";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
	response->no_store = true;
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct http *http = context;
	if (!http_check_host(http, request, response))
		return;
	if (infer_takes(request->path) && !check_origin(http, request, response))
		return;
	if (infer_takes(request->path))
		infer_get(http->infer, request, response);
	else if (!strcmp(request->path, "/healthz") || !strcmp(request->path, "/readyz"))
		serve_health(http, request->path[1] == 'r', response);
	else if (!strcmp(request->path, "/schema/api.json"))
		serve_schema(response);
	else if (!strcmp(request->path, "/ca.pem"))
		serve_authority(http, response);
	else if (!strcmp(request->path, "/metrics"))
		serve_metrics(http, request, response);
	else if (!strcmp(request->path, "/ws") || !strcmp(request->path, "/node"))
		http_fail(response, STATUS_INVALID_REQUEST, "this address accepts WebSockets only",
			  "subprotocol exogpu.v1 at /ws");
	else if (!assets_serve(http->assets, request, response))
		http_fail(response, STATUS_NOT_FOUND, "there is nothing at this address", "the dashboard is at /");
}

static bool upgrade_client(struct http *http, const struct net_request *request, struct upgraded *upgraded,
			   struct net_response *response)
{
	struct token *token;
	struct error error = {0};
	enum status status = access_bearer(&http->access, request, SCOPE_OBSERVE, &token, &error);
	bool local = !token && access_is_owner(request);
	if (!status && request->local && !token && !local)
		status = error_set(&error, STATUS_FORBIDDEN, "this socket is its owner's");
	struct api_client *client = NULL;
	const struct api_client_params params = {
		.token = token, .local = local, .uid = request->peer_uid, .peer = access_peer(request)};
	if (!status)
		status = api_client_create(&client, http->params.api, &params, &error);
	if (status) {
		http_fail(response, status, error.message, error.hint[0] ? error.hint : NULL);
		return false;
	}
	*upgraded = (struct upgraded){.to = &to_client, .user = client};
	response->holder = token || local ? access_holder(token) : 0;
	return true;
}

// This machine's own node, one that proves by its certificate which it is, or a stranger, who may ask to join.
static bool upgrade_node(struct http *http, const struct net_request *request, struct upgraded *upgraded,
			 struct net_response *response)
{
	struct error error = {0};
	struct join *join;
	char node_id[STORE_ID_BYTES] = "";
	const bool local = access_is_owner(request);
	if (!local && !request->tls) {
		http_fail(response, STATUS_FORBIDDEN, "nodes on other machines must use TLS",
			  "start the server with --lan");
		return false;
	}
	if (local || authority_accepts(http->params.authority, &request->certificate, node_id)) {
		struct node_link_params link = {.local = local, .node_id = node_id, .peer = request->peer};
		*upgraded = (struct upgraded){.to = &to_node, .user = node_link_create(http->params.nodes, &link)};
		response->holder = NET_HOLDER_ANY;
		response->patient = true;
		return true;
	}
	// With a certificate all the same: a node that was removed.
	if (join_create(&join, http->params.joins, request->peer, request->certificate.uri[0] != 0, &error)) {
		http_fail(response, error.status, error.message, error.hint[0] ? error.hint : NULL);
		return false;
	}
	*upgraded = (struct upgraded){.to = &to_stranger, .user = join};
	return true;
}

static bool on_options(void *context, const struct net_request *request, struct net_response *response)
{
	struct http *http = context;
	if (!infer_takes(request->path))
		return false;
	if (http_check_host(http, request, response))
		infer_options(http->infer, request, response);
	return true;
}

static bool on_post(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct http *http = context;
	if (!infer_takes(request->path) || !http_check_host(http, request, response) ||
	    !check_origin(http, request, response))
		return false;
	return infer_post(http->infer, request, user, response);
}

// A browser tab, which says who it is by its first message. Without TLS it is one of this machine: no other is heard.
static bool upgrade_tab(struct http *http, const struct net_request *request, struct upgraded *upgraded,
			struct net_response *response)
{
	struct error error = {0};
	struct tab_door *door;
	const struct tab_door_params params = {.contract = http->params.contract,
					       .loop = http->params.loop,
					       .links = http->params.nodes,
					       .lends = http->params.lends,
					       .audit = http->params.audit,
					       .limits = http->params.limits,
					       .peer = access_peer(request)};
	if (tab_door_create(&door, &params, &error)) {
		http_fail(response, error.status, error.message, error.hint[0] ? error.hint : NULL);
		return false;
	}
	*upgraded = (struct upgraded){.to = &to_tab, .user = door};
	response->patient = true;
	return true;
}

// A node relays one of its workers, or a browser tab connects one: it has no certificate, and the key that it is about
// to say must be that of a worker of a tab.
static bool upgrade_worker(struct http *http, const struct net_request *request, struct upgraded *upgraded,
			   struct net_response *response)
{
	char node_id[STORE_ID_BYTES] = "";
	const bool tab = !request->local && request->origin[0] && !request->certificate.uri[0];
	if (!tab && !access_is_owner(request) &&
	    !authority_accepts(http->params.authority, &request->certificate, node_id)) {
		http_fail(response, STATUS_FORBIDDEN, "workers are connected by their node, with its certificate",
			  "join this machine to the cluster: exogpu node --join");
		return false;
	}
	*upgraded = (struct upgraded){
		.to = &to_worker,
		.user = worker_link_create(http->params.tenants, tab ? access_peer(request) : node_id, tab)};
	response->holder = upgraded->user && !tab ? NET_HOLDER_ANY : 0;
	response->patient = upgraded->user != NULL;
	if (!upgraded->user)
		http_fail(response, STATUS_RATE_LIMITED, "too many workers have not identified themselves", NULL);
	return upgraded->user;
}

// A node reads model files.
static bool upgrade_model(struct http *http, const struct net_request *request, struct upgraded *upgraded,
			  struct net_response *response)
{
	char node_id[STORE_ID_BYTES] = "";
	if (!access_is_owner(request) && !authority_accepts(http->params.authority, &request->certificate, node_id)) {
		http_fail(response, STATUS_FORBIDDEN, "only nodes, with their certificate, may read model files",
			  "join this machine to the cluster: exogpu node --join");
		return false;
	}
	*upgraded = (struct upgraded){.to = &to_model,
				      .user = shards_link_create(instances_shards(http->params.instances), node_id)};
	response->holder = NET_HOLDER_ANY;
	response->patient = true;
	return true;
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct http *http = context;
	struct upgraded made;
	bool taken = false;
	if (!http_check_host(http, request, response))
		return false;
	if (!origin_allowed(request)) {
		http_fail(response, STATUS_FORBIDDEN, "a page of another origin may not connect",
			  "open the dashboard of this server");
		return false;
	}
	if (!strcmp(request->path, "/ws"))
		taken = upgrade_client(http, request, &made, response);
	else if (!strcmp(request->path, "/node") && !strcmp(request->subprotocol, WORKER_SUBPROTOCOL))
		taken = upgrade_worker(http, request, &made, response);
	else if (!strcmp(request->path, "/node") && !strcmp(request->subprotocol, MODEL_SUBPROTOCOL))
		taken = upgrade_model(http, request, &made, response);
	else if (!strcmp(request->path, "/node") && !strcmp(request->subprotocol, TAB_SUBPROTOCOL))
		taken = upgrade_tab(http, request, &made, response);
	else if (!strcmp(request->path, "/node"))
		taken = upgrade_node(http, request, &made, response);
	else
		http_fail(response, STATUS_NOT_FOUND, "no WebSocket is served here", "clients connect to /ws");
	struct upgraded *kept = taken && made.user ? malloc(sizeof(*kept)) : NULL;
	if (taken && !kept) {
		http_fail(response, STATUS_OUT_OF_MEMORY, "out of memory", NULL);
		if (made.user)
			made.to->closed(made.user, NULL, 0);
		return false;
	}
	if (kept)
		*kept = made;
	*user = kept;
	return taken;
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct upgraded *upgraded = user;
	upgraded->to->opened(upgraded->user, conn);
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct upgraded *upgraded = user;
	upgraded->to->message(upgraded->user, conn, bytes, length, binary);
}

static void on_drained(void *user, struct net_conn *conn)
{
	struct upgraded *upgraded = user;
	if (upgraded->to->drained)
		upgraded->to->drained(upgraded->user, conn);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct upgraded *upgraded = user;
	upgraded->to->closed(upgraded->user, conn, code);
	free(upgraded);
}

bool http_arrived(void *context, const char *peer)
{
	return limits_connect(((struct http *)context)->params.limits, peer);
}

void http_left(void *context, const char *peer)
{
	limits_disconnect(((struct http *)context)->params.limits, peer);
}

static const struct net_handler handler = {.arrived = http_arrived,
					   .left = http_left,
					   .http = on_http,
					   .options = on_options,
					   .post = on_post,
					   .posted = infer_posted,
					   .misread = infer_misread,
					   .sent = infer_sent,
					   .over = infer_over,
					   .upgrade = on_upgrade,
					   .opened = on_opened,
					   .message = on_message,
					   .drained = on_drained,
					   .closed = on_closed};

// Bound to all addresses: by the name or address that others are likely to reach this machine by.
static void print_url(struct http *http)
{
	const char *host = http->params.address, *reachable = authority_reachable_name(http->params.authority);
	const bool all = !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
	if (all)
		host = reachable[0] ? reachable : "127.0.0.1";
	snprintf(http->url, sizeof http->url, strchr(host, ':') ? "%s://[%s]:%d/" : "%s://%s:%d/",
		 http->params.tls ? "https" : "http", host, net_listener_port(http->tcp));
}

enum status http_create(struct http **out, const struct http_params *params, struct error *error)
{
	struct http *http = calloc(1, sizeof(*http));
	*out = NULL;
	if (!http)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	http->params = *params;
	struct net_listener_params tcp = {.address = params->address,
					  .port = params->port,
					  .tls = params->tls,
					  .passed_key = params->passed_key,
					  .connections = (unsigned)limits_get(params->limits, LIMIT_CONNECTIONS_ID),
					  .strangers = (unsigned)limits_get(params->limits, LIMIT_STRANGERS_ID),
					  .stall_ms = (int)limits_get(params->limits, LIMIT_ANSWER_STALL_MS_ID),
					  .ping_s = LIMIT_CLIENT_PING_S,
					  .silence_s = LIMIT_CLIENT_SILENCE_S,
					  .subprotocols = http_subprotocols,
					  .headers = security_headers,
					  .handler = &handler,
					  .context = http};
	struct net_listener_params local = tcp;
	local.address = NULL;
	local.tls = NULL;
	local.passed_key = NULL;
	local.socket_path = params->socket_path;
	local.connections = 0;
	local.ping_s = LIMIT_NODE_PING_S; // how long it may be silent node_link.c watches over
	http->access = (struct access){.api = params->api, .tokens = params->tokens};
	const struct infer_params infer = {.access = &http->access,
					   .loop = params->loop,
					   .models = params->models,
					   .instances = params->instances,
					   .cluster = params->cluster,
					   .audit = params->audit,
					   .traces = params->traces,
					   .cors_origins = params->cors_origins,
					   .load_on_demand = params->load_on_demand};
	enum status status = assets_create(&http->assets, error);
	if (!status)
		status = infer_create(&http->infer, &infer, error);
	if (!status)
		status = net_listener_create(&http->tcp, params->loop, &tcp, error);
	if (!status)
		status = net_listener_create(&http->local, params->loop, &local, error);
	if (!status && params->ollama_token)
		status = http_open_for_ollama(http, &infer, &tcp, error);
	if (status) {
		http_destroy(&http);
		return status;
	}
	print_url(http);
	*out = http;
	return STATUS_OK;
}

bool http_answering(const struct http *http)
{
	return infer_answering(http->infer) || (http->open && infer_answering(http->open));
}

void http_destroy(struct http **pointer)
{
	struct http *http = *pointer;
	if (!http)
		return;
	*pointer = NULL;
	net_listener_destroy(&http->tcp);
	net_listener_destroy(&http->local);
	net_listener_destroy(&http->ollama);
	infer_destroy(&http->open);
	infer_destroy(&http->infer);
	assets_destroy(&http->assets);
	free(http);
}

int http_port(const struct http *http)
{
	return net_listener_port(http->tcp);
}

int http_ollama_port(const struct http *http)
{
	return http->ollama ? net_listener_port(http->ollama) : 0;
}

const char *http_url(const struct http *http)
{
	return http->url;
}
