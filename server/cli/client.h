/* One call to a server: dial, log in where a token is needed, ask, hang up.
 *
 * The login is a call of its own rather than a header of the upgrade, because its refusal then comes with the server's
 * own words and hint. All of it may take CLIENT_TIMEOUT_MS. Runs a loop of its own: not from inside another one. */
#pragma once
#include "common/json/json.h"
#include "server/cli/target.h"

enum { CLIENT_TIMEOUT_MS = 10000 };

// `params` is taken and may be NULL. *result is the method's result, to be destroyed by the caller.
// Errors: what the server answered; STATUS_TIMEOUT; STATUS_UNAVAILABLE (not reached, or the connection broke).
enum status client_call(const struct target *target, const char *method, struct json *params, struct json **result,
			struct error *error);
