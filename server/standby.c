/* See standby.h. */
#include "server/standby.h"

#include "common/base/log.h"
#include "common/json/json.h"
#include "common/net/http/pass.h"
#include "common/work/jobs.h"
#include "server/http/host.h"
#include "server/http/role.h"
#include "server/http/subprotocols.h"
#include "server/security/certificates/certificate.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct standby {
	struct standby_params params;
	struct authority *authority;
	struct net_tls *tls;
	struct net_listener *tcp, *local;
	bool over;
	char url[TURN_ADDRESS_BYTES];
	struct net_pass *pass;
	struct net_timer look;
	char leader[TURN_ADDRESS_BYTES]; // whose address is looked for, or known
	struct jobs *resolver;
	bool resolving;
	unsigned again; // looks until an address that was not found is looked for again
};

enum { LOOK_MS = 200, AGAIN_LOOKS = 25 };

static const struct net_header headers[] = {
	{"x-content-type-options:", "nosniff"}, {"referrer-policy:", "no-referrer"}, {"retry-after:", "1"}, {0}};

static void answer_health(const struct standby *standby, bool readiness, struct net_response *response)
{
	buffer_append_text(&response->owned, readiness ? "{\"status\":\"starting\",\"ready\":false"
						       : "{\"status\":\"ok\",\"ready\":false");
	buffer_append_text(&response->owned, ",\"version\":\"" EXOGPU_VERSION "\"");
	role_print(standby->params.turn, &response->owned);
	buffer_append_text(&response->owned, "}\n");
	response->status = readiness ? 503 : 200;
}

// The ordinary server is about to stand here.
static bool is_over(const struct standby *standby)
{
	return standby->over || turn_leads(standby->params.turn);
}

static void refuse(const struct standby *standby, const struct net_request *request, struct net_response *response)
{
	struct turn_view view;
	char hint[TURN_ADDRESS_BYTES + 64];
	turn_look(standby->params.turn, &view);
	const bool known = view.leader[0] && !view.leads;
	snprintf(hint, sizeof hint, known ? "the server that leads is at %s" : "try again in a few seconds",
		 view.leader);
	enum status status = STATUS_UNAVAILABLE;
	const char *message = is_over(standby) ? "this server begins to lead" : "this server follows another one";
	if (request && !host_allowed(standby->authority, request)) {
		status = STATUS_FORBIDDEN;
		message = "this server does not have the name in Host";
		snprintf(hint, sizeof hint, "open it by the address that it printed");
	} else if (!request) {
		message = "the server that leads cannot be reached from here";
	}
	struct json *json = json_new_object();
	json_set_string(json, "error", status_word(status));
	json_set_string(json, "message", message);
	json_set_string(json, "hint", hint);
	json_print(json, &response->owned);
	json_destroy(&json);
	buffer_append_byte(&response->owned, '\n');
	response->status = status_http(status);
}

static void finish(struct net_response *response)
{
	response->content_type = "application/json";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
	response->no_store = true;
}

// Whether this request is for the server that leads.
static struct net_pass *pass(void *context, const struct net_request *request)
{
	struct standby *standby = context;
	const bool own = !strcmp(request->path, "/healthz") || !strcmp(request->path, "/readyz"),
		   node = !strcmp(request->path, "/node") && strcmp(request->subprotocol, TAB_SUBPROTOCOL) != 0;
	if (own || node || request->local || is_over(standby) || !standby->pass || !net_pass_can(standby->pass))
		return NULL;
	return host_allowed(standby->authority, request) ? standby->pass : NULL;
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct standby *standby = context;
	const bool health = !strcmp(request->path, "/healthz"), readiness = !strcmp(request->path, "/readyz");
	if ((health || readiness) && !is_over(standby))
		answer_health(standby, readiness, response);
	else
		refuse(standby, request, response);
	finish(response);
}

static bool on_post(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)user;
	refuse(context, request, response);
	finish(response);
	return false;
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	return on_post(context, request, user, response);
}

// The server that leads could not be reached.
static void on_absent(void *context, struct net_response *response)
{
	refuse(context, NULL, response);
	finish(response);
}

static const struct net_handler handler = {.pass = pass, .http = on_http, .post = on_post, .upgrade = on_upgrade};

// ---- where the server that leads is ----

struct resolving {
	struct job job; // first
	struct standby *standby;
	char leader[TURN_ADDRESS_BYTES], host[TURN_ADDRESS_BYTES], address[64];
	int port;
};

// SCHEME://HOST:PORT/ or SCHEME://[ADDRESS]:PORT/
static bool parse_url(struct resolving *resolving, bool *tls)
{
	const char *from = strstr(resolving->leader, "://"), *end;
	*tls = !strncmp(resolving->leader, "https:", 6);
	if (!from)
		return false;
	from += 3;
	const bool brackets = *from == '[';
	from += brackets;
	end = strchr(from, brackets ? ']' : ':');
	if (!end || end == from)
		return false;
	snprintf(resolving->host, sizeof resolving->host, "%.*s", (int)(end - from), from);
	end += brackets;
	char *rest = NULL;
	resolving->port = *end == ':' ? (int)strtol(end + 1, &rest, 10) : 0;
	return rest && *rest == '/' && resolving->port > 0 && resolving->port < 65536;
}

// A thread's.
static void resolve(struct job *job)
{
	struct resolving *resolving = (struct resolving *)job;
	const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
	struct addrinfo *found = NULL;
	if (getaddrinfo(resolving->host, NULL, &wanted, &found))
		return;
	if (getnameinfo(found->ai_addr, found->ai_addrlen, resolving->address, sizeof resolving->address, NULL, 0,
			NI_NUMERICHOST))
		resolving->address[0] = 0;
	freeaddrinfo(found);
}

// Without TLS nothing shows who is there: only this machine is spoken to, whatever the database says.
static bool may_be(const struct standby *standby, const char *address)
{
	return address[0] && (standby->tls || !strncmp(address, "127.", 4) || !strcmp(address, "::1"));
}

static void resolved(struct outbox_item *item, bool tell)
{
	struct resolving *resolving = (struct resolving *)item;
	struct standby *standby = resolving->standby;
	if (tell) {
		standby->resolving = false;
		const bool good = may_be(standby, resolving->address);
		standby->again = good ? 0 : AGAIN_LOOKS;
		if (!good)
			log_warning("turn", "nothing is passed on to the server that leads, %s: %s", resolving->leader,
				    resolving->address[0] ? "it is on another machine, and has no TLS"
							  : "its address cannot be found");
		if (!strcmp(resolving->leader, standby->leader) && !standby->over) // else it has changed meanwhile
			net_pass_to(standby->pass, good ? resolving->address : NULL, resolving->port);
	}
	free(resolving);
}

static void find_leader(struct standby *standby)
{
	bool tls = false;
	struct resolving *resolving = calloc(1, sizeof *resolving);
	if (!resolving)
		return;
	resolving->job = (struct job){.item = {.deliver = resolved}, .run = resolve};
	resolving->standby = standby;
	snprintf(resolving->leader, sizeof resolving->leader, "%s", standby->leader);
	if (!parse_url(resolving, &tls) || tls != (standby->tls != NULL)) {
		log_warning("turn", "nothing is passed on to the server that leads, %s: %s", standby->leader,
			    tls ? "it speaks TLS, and this one does not" : "this one speaks TLS, and it does not");
		free(resolving);
		return;
	}
	standby->resolving = true;
	jobs_put(standby->resolver, &resolving->job);
}

static void look(void *arg)
{
	struct standby *standby = arg;
	struct turn_view view;
	turn_look(standby->params.turn, &view);
	const char *leader = view.leads ? "" : view.leader;
	if (standby->again && !--standby->again)
		standby->leader[0] = 0;
	if (strcmp(leader, standby->leader) != 0 && !standby->resolving) {
		snprintf(standby->leader, sizeof standby->leader, "%s", leader);
		net_pass_to(standby->pass, NULL, 0);
		if (leader[0])
			find_leader(standby);
	}
	net_timer_start(standby->params.loop, &standby->look, LOOK_MS, look, standby);
}

static enum status begin_to_pass(struct standby *standby, struct error *error)
{
	const struct net_pass_params params = {.loop = standby->params.loop,
					       .authority_pem = standby->tls ? authority_pem(standby->authority) : NULL,
					       .server_uri = CERTIFICATE_SERVER_URI,
					       .key = standby->params.pass_key,
					       .absent = on_absent,
					       .context = standby};
	enum status status = jobs_create(&standby->resolver, standby->params.loop, 1, error);
	if (!status)
		status = net_pass_create(&standby->pass, &params, error);
	if (!status)
		look(standby);
	return status;
}

// Where there is no authority yet nobody has met it either: nothing to listen for.
static bool has_authority(const struct standby_params *params)
{
	char path[4224];
	snprintf(path, sizeof path, "%.4096s/tls/authority.pem", params->directory);
	return !access(path, F_OK);
}

static enum status create_tls(struct standby *standby, struct error *error)
{
	const struct standby_params *params = &standby->params;
	const struct authority_params authority = {.loop = params->loop,
						   .directory = params->directory,
						   .cluster_id = "",
						   .cluster_name = "exogpu",
						   .cert_file = params->tls_cert,
						   .key_file = params->tls_key,
						   .names = params->tls_names};
	enum status status = authority_stand_by(&standby->authority, &authority, error);
	if (!status)
		status = net_tls_create(&standby->tls, params->loop, authority_pem(standby->authority), error);
	return status ? status : authority_show(standby->authority, standby->tls, error);
}

static void print_url(struct standby *standby)
{
	const char *host = standby->params.address;
	const char *reachable = standby->authority ? authority_reachable_name(standby->authority) : "";
	if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::"))
		host = reachable[0] ? reachable : "127.0.0.1";
	snprintf(standby->url, sizeof standby->url, strchr(host, ':') ? "%s://[%s]:%d/" : "%s://%s:%d/",
		 standby->tls ? "https" : "http", host, net_listener_port(standby->tcp));
}

static enum status open_listeners(struct standby *standby, struct error *error)
{
	const struct standby_params *params = &standby->params;
	struct net_listener_params tcp = {.address = params->address,
					  .port = params->port,
					  .tls = standby->tls,
					  .ping_s = LIMIT_CLIENT_PING_S,
					  .silence_s = LIMIT_CLIENT_SILENCE_S,
					  .subprotocols = http_subprotocols,
					  .headers = headers,
					  .handler = &handler,
					  .context = standby};
	struct net_listener_params local = tcp;
	local.address = NULL;
	local.tls = NULL;
	local.socket_path = params->socket_path;
	enum status status = net_listener_create(&standby->local, params->loop, &local, error);
	if (!status && params->tls && !standby->tls)
		return STATUS_OK;
	if (!status)
		status = net_listener_create(&standby->tcp, params->loop, &tcp, error);
	if (!status)
		print_url(standby);
	return status;
}

enum status standby_create(struct standby **out, const struct standby_params *params, struct error *error)
{
	struct standby *standby = calloc(1, sizeof *standby);
	*out = standby;
	if (!standby)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	standby->params = *params;
	enum status status = params->tls && has_authority(params) ? create_tls(standby, error) : STATUS_OK;
	if (!status)
		status = open_listeners(standby, error);
	if (!status && standby->tcp)
		status = begin_to_pass(standby, error);
	standby->params.pass_key = NULL;
	if (status)
		standby_destroy(out);
	return status;
}

int standby_port(const struct standby *standby)
{
	return standby->tcp ? net_listener_port(standby->tcp) : 0;
}

const char *standby_url(const struct standby *standby)
{
	return standby->url;
}

void standby_end(struct standby *standby)
{
	standby->over = true;
	net_timer_stop(standby->params.loop, &standby->look);
	net_pass_destroy(&standby->pass);
	net_listener_destroy(&standby->tcp);
	net_listener_destroy(&standby->local);
}

void standby_destroy(struct standby **pointer)
{
	struct standby *standby = *pointer;
	if (!standby)
		return;
	*pointer = NULL;
	standby_end(standby);
	jobs_destroy(&standby->resolver); // which may wait for a name that is looked for: not when its turn comes
	authority_destroy(&standby->authority);
	net_tls_destroy(&standby->tls);
	free(standby);
}
