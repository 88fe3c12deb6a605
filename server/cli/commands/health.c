/* `exogpu health`: whether a server answers, for scripts, service managers and containers. Thread: the process's only
 * one. */
#include "server/cli/commands/commands.h"

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct json *info;
	struct target target;
	const struct target_wanted wanted = {
		.data = arguments->data, .url = arguments->url, .ca = arguments->ca, .anonymous = true};
	enum status status = target_find(&target, &wanted, error);
	if (status)
		return status == STATUS_INVALID_PARAMS ? 2 : 1;
	status = client_call(&target, "server.info", NULL, &info, error);
	if (!status && arguments->json)
		status = command_print_json(info, error);
	else if (!status)
		command_print_text(stdout,
				   json_get_bool(info, "discovering", false) ? "ok, still searching for its devices: "
									     : "ok: ",
				   json_get_string(info, "name", ""));
	json_destroy(&info);
	return status ? 1 : 0;
}

const struct cli_command health_command = {
	.name = "health",
	.summary = "check whether a server answers",
	.more = "Ends with 0 if it does, with 1 if not. Needs no token.\n",
	.run = run,
};
