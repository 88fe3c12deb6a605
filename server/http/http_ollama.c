/* The listener for Ollama's clients, which know of no tokens. */
#include "common/base/log.h"
#include "server/http/http_inside.h"

#include <string.h>

// Who comes here needs no token, so a page must not get here through a browser that runs on this machine: by a name
// that it rebinds (check_host), or by requests that browsers send for it: these name its origin, and those that need
// none, as for an image, have a Sec-Fetch-Site that says that another site asks.
static bool open_admits(const struct http *http, const struct net_request *request, struct net_response *response)
{
	if (!http_check_host(http, request, response))
		return false;
	const char *site = request->fetch_site;
	const bool foreign = site[0] && strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0;
	if ((!request->origin[0] && !foreign) || infer_origin_named(http->open, request->origin))
		return true;
	http_fail(response, STATUS_FORBIDDEN, "a page may not use this address",
		  "start the server with --cors-origin and its origin");
	return false;
}

static void on_open_http(void *context, const struct net_request *request, struct net_response *response)
{
	static const char greeting[] = "Ollama is running"; // by which clients know it
	struct http *http = context;
	if (!open_admits(http, request, response))
		return;
	if (infer_takes(request->path)) {
		infer_get(http->open, request, response);
	} else if (!strcmp(request->path, "/")) {
		response->status = 200;
		response->content_type = "text/plain; charset=utf-8";
		response->body = (const uint8_t *)greeting;
		response->body_bytes = sizeof greeting - 1;
	} else {
		http_fail(response, STATUS_NOT_FOUND, "there is nothing at this address",
			  "/api and /v1 are served here");
	}
}

static bool on_open_options(void *context, const struct net_request *request, struct net_response *response)
{
	struct http *http = context;
	if (!infer_takes(request->path))
		return false;
	if (open_admits(http, request, response))
		infer_options(http->open, request, response);
	return true;
}

static bool on_open_post(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct http *http = context;
	if (!infer_takes(request->path) || !open_admits(http, request, response))
		return false;
	return infer_post(http->open, request, user, response);
}

static bool on_open_upgrade(void *context, const struct net_request *request, void **user,
			    struct net_response *response)
{
	(void)context, (void)request, (void)user;
	http_fail(response, STATUS_NOT_FOUND, "no WebSocket is served here", NULL);
	return false;
}

static const struct net_handler open_handler = {.arrived = http_arrived,
						.left = http_left,
						.http = on_open_http,
						.options = on_open_options,
						.post = on_open_post,
						.posted = infer_posted,
						.misread = infer_misread,
						.sent = infer_sent,
						.over = infer_over,
						.upgrade = on_open_upgrade};

enum status http_open_for_ollama(struct http *http, const struct infer_params *infer,
				 const struct net_listener_params *tcp, struct error *error)
{
	struct infer_params inside = *infer;
	struct net_listener_params listener = *tcp;
	http->assumed = http->access;
	http->assumed.acts_as = http->params.ollama_token;
	http->assumed.acting = &http->acting;
	if (!tokens_named(http->params.tokens, http->params.ollama_token, &http->acting, NULL) &&
	    http->acting->scopes != SCOPE_INFER)
		log_warning("ollama",
			    "everybody on this machine acts as the token %s, which has more than the scope infer",
			    http->acting->token_id);
	inside.access = &http->assumed;
	listener.address = http->params.ollama_address;
	listener.port = http->params.ollama_port;
	listener.tls = NULL;
	listener.handler = &open_handler;
	enum status status = infer_create(&http->open, &inside, error);
	if (!status)
		status = net_listener_create(&http->ollama, http->params.loop, &listener, error);
	if (status == STATUS_CONFLICT && error)
		error->hint[0] = 0; // which is about --listen
	if (status == STATUS_CONFLICT)
		error_hint(error, "end the Ollama that runs there, or choose another address: --ollama-listen "
				  "127.0.0.1:PORT");
	return status;
}
