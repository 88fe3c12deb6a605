/* Access by HTTP: finds the token of a request and decides whether it may. Thread: the loop's. */
#pragma once
#include "server/api/api.h"

struct access {
	struct api *api;
	struct tokens *tokens;
	const char *acts_as;   // the id or the name of the token that every request is made with; NULL: it brings one
	struct token **acting; // with acts_as: that token, once there was one; from then on no other is taken
};

struct caller {
	struct token *token; // NULL: the machine's owner, or nobody yet
	struct audit_actor actor;
};

const char *access_peer(const struct net_request *request);
bool access_is_owner(const struct net_request *request); // by the Unix socket
// The number by which connections of a token are counted (net_response.holder); of the owner, where it is NULL.
uint64_t access_holder(const struct token *token);
// The token in the Authorization header, else in X-Api-Key, wanted for `scope`. NULL with status OK: there is neither.
// With `acts_as`
// it is that one, whatever stands there. A failure counts as one of its address. Errors: STATUS_UNAUTHENTICATED.
enum status access_bearer(const struct access *access, const struct net_request *request, uint32_t scope,
			  struct token **token, struct error *error);
// Whether this request may do what `scope` is for; takes one call of its token. `action` is what a refusal is counted
// as in the audit log. Errors: STATUS_UNAUTHENTICATED, STATUS_FORBIDDEN, STATUS_RATE_LIMITED, with hints.
enum status access_admit(const struct access *access, const struct net_request *request, uint32_t scope,
			 const char *action, struct caller *caller, struct error *error);
