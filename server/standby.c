/* See standby.h. */
#include "server/standby.h"

#include "common/json/json.h"
#include "server/http/role.h"

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
	char leader[TURN_ADDRESS_BYTES]; // of `to_leader`
	struct net_header to_leader[2];
};

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

static void refuse(const struct standby *standby, struct net_response *response)
{
	struct turn_view view;
	char hint[TURN_ADDRESS_BYTES + 64];
	turn_look(standby->params.turn, &view);
	const bool known = view.leader[0] && !view.leads;
	snprintf(hint, sizeof hint, known ? "the server that leads is at %s" : "try again in a few seconds",
		 view.leader);
	struct json *json = json_new_object();
	json_set_string(json, "error", status_word(STATUS_UNAVAILABLE));
	json_set_string(json, "message",
			is_over(standby) ? "this server begins to lead" : "this server follows another one");
	json_set_string(json, "hint", hint);
	json_print(json, &response->owned);
	json_destroy(&json);
	buffer_append_byte(&response->owned, '\n');
	response->status = status_http(STATUS_UNAVAILABLE);
}

static void finish(struct net_response *response)
{
	response->content_type = "application/json";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
	response->no_store = true;
}

// A person who opens the dashboard here is sent to the leader's.
static bool send_on(struct standby *standby, struct net_response *response)
{
	struct turn_view view;
	turn_look(standby->params.turn, &view);
	if (!view.leader[0] || view.leads)
		return false;
	snprintf(standby->leader, sizeof standby->leader, "%s", view.leader);
	standby->to_leader[0] = (struct net_header){"location:", standby->leader};
	response->more = standby->to_leader;
	response->status = 307;
	return true;
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct standby *standby = context;
	const bool health = !strcmp(request->path, "/healthz"), readiness = !strcmp(request->path, "/readyz");
	if ((health || readiness) && !is_over(standby))
		answer_health(standby, readiness, response);
	else if (strcmp(request->path, "/") != 0 || !send_on(standby, response))
		refuse(standby, response);
	finish(response);
}

static bool on_post(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)request, (void)user;
	refuse(context, response);
	finish(response);
	return false;
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	return on_post(context, request, user, response);
}

static const struct net_handler handler = {.http = on_http, .post = on_post, .upgrade = on_upgrade};

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

static enum status listen(struct standby *standby, struct error *error)
{
	const struct standby_params *params = &standby->params;
	struct net_listener_params tcp = {.address = params->address,
					  .port = params->port,
					  .tls = standby->tls,
					  .ping_s = LIMIT_CLIENT_PING_S,
					  .silence_s = LIMIT_CLIENT_SILENCE_S,
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
		status = listen(standby, error);
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
	authority_destroy(&standby->authority);
	net_tls_destroy(&standby->tls);
	free(standby);
}
