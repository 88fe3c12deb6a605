/* See access.h. */
#include "server/http/access.h"

#include "common/base/clock.h"
#include "common/base/keyed_hash.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *access_peer(const struct net_request *request)
{
	return request->local ? "unix" : request->peer;
}

bool access_is_owner(const struct net_request *request)
{
	return request->local && (request->peer_uid == geteuid() || request->peer_uid == 0);
}

uint64_t access_holder(const struct token *token)
{
	const uint64_t hash = token ? keyed_hash(token->token_id, strlen(token->token_id)) : 0;
	return hash ? hash : NET_HOLDER_ANY;
}

enum status access_bearer(const struct access *access, const struct net_request *request, uint32_t scope,
			  struct token **token, struct error *error)
{
	const char *text = request->authorization[0] ? request->authorization + 7 : request->api_key;
	*token = NULL;
	if (access->acts_as) {
		enum status named = *access->acting
					    ? token_usable(*access->acting, token_clock_ms(), error)
					    : tokens_named(access->tokens, access->acts_as, access->acting, error);
		*token = named ? NULL : *access->acting;
		return named;
	}
	if (!text[0] && !request->authorization[0])
		return STATUS_OK;
	if (request->authorization[0] && strncasecmp(request->authorization, "Bearer ", 7) != 0) {
		error_set(error, STATUS_UNAUTHENTICATED, "the Authorization header must use Bearer");
		error_hint(error, "Authorization: Bearer TOKEN");
		return STATUS_UNAUTHENTICATED;
	}
	enum status status = tokens_authenticate(access->tokens, text, scope, token, error);
	if (status) // answered at once: there is nothing to hold back, and the connection goes
		api_login_failed(access->api, access_peer(request), text, status);
	return status;
}

static void name_caller(struct caller *caller, const struct net_request *request)
{
	struct audit_actor *actor = &caller->actor;
	if (caller->token) {
		snprintf(actor->actor, sizeof actor->actor, "token:%s", caller->token->token_id);
		snprintf(actor->name, sizeof actor->name, "%s", caller->token->name);
	} else {
		snprintf(actor->actor, sizeof actor->actor, "owner:%u", (unsigned)request->peer_uid);
		snprintf(actor->name, sizeof actor->name, "the machine's owner");
	}
	snprintf(actor->peer, sizeof actor->peer, "%s", access_peer(request));
}

enum status access_admit(const struct access *access, const struct net_request *request, uint32_t scope,
			 const char *action, struct caller *caller, struct error *error)
{
	char name[TOKEN_SCOPES_BYTES];
	*caller = (struct caller){0};
	token_scopes_print(scope, ',', name);
	enum status status = access_bearer(access, request, scope, &caller->token, error);
	struct token *token = caller->token;
	if (!status && !token && !access_is_owner(request)) {
		status = error_set(error, STATUS_UNAUTHENTICATED, "a token is required here");
		error_hint(error, "Authorization: Bearer TOKEN, of the scope %s", name);
	}
	if (!status && token)
		status = token_take_call(token, clock_steady_ms(), error);
	if (!status && token && !token_allows(token, scope)) {
		status = error_set(error, STATUS_FORBIDDEN, "this token lacks the scope %s", name);
		error_hint(error, "see: exogpu token create --name NAME --scopes %s", name);
	}
	if (status && token)
		api_request_refused(access->api, token, access_peer(request), action, status);
	if (status)
		return status;
	name_caller(caller, request);
	if (token)
		tokens_touch(access->tokens, token, clock_wall_ms());
	return STATUS_OK;
}
