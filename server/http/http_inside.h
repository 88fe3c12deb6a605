/* What http.c and http_ollama.c share: the listeners, and what is asked of each request. */
#pragma once
#include "server/http/access.h"
#include "server/http/http.h"
#include "server/http/infer/infer.h"

struct http {
	struct http_params params;
	struct access access, assumed; // assumed: of the listener for Ollama's clients, as is `open`
	struct token *acting;          // of `assumed`
	struct infer *infer, *open;
	struct net_listener *tcp, *local, *ollama;
	struct assets *assets;
	char url[300];
};

// Answer with an error of this server's own form; the hint may be NULL.
void http_fail(struct net_response *response, enum status status, const char *message, const char *hint);
// Whether the name in Host is this server's; if not, that is answered.
bool http_check_host(const struct http *http, const struct net_request *request, struct net_response *response);
// A connection from an address comes, if it may, and goes. `context`: struct http.
bool http_arrived(void *context, const char *peer);
void http_left(void *context, const char *peer);

// ---- http_ollama.c ----
// The listener that needs no token: whoever comes acts as http->params.ollama_token. `infer` and `tcp`: of the port.
// Errors: those of net_listener_create and infer_create.
enum status http_open_for_ollama(struct http *http, const struct infer_params *infer,
				 const struct net_listener_params *tcp, struct error *error);
