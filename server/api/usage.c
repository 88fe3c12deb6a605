/* usage.list: what requests used. A token with the scope admin, and the machine's owner, see all of it; any other token
 * sees what it used itself, and unless it may observe neither devices nor ids of models. Thread: the loop's. */
#include "server/api/call.h"

#include <string.h>

static enum status list(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	const struct token *token = call->client->session->token;
	const bool sees_all = !token || token_allows(token, SCOPE_ADMIN),
		   observes = sees_all || token_allows(token, SCOPE_OBSERVE);
	const struct usage_asker asker = {.token_id = sees_all ? NULL : token->token_id, .no_ids = !observes};
	if (!strcmp(json_get_string(params, "by", ""), "device") && !observes) {
		error_hint(error, "ask by token or by model");
		return error_set(error, STATUS_FORBIDDEN, "usage by device needs the scope observe as well");
	}
	return usage_list(call->api->params.usage, params, &asker, result, error);
}

const struct api_handler usage_handlers[] = {
	{"usage.list", .run = list},
	{0},
};
