/* `exogpu log`: what the server says, and what its nodes warn of. */
#include "common/base/clock.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_UNLESS_SAID = 50, LINES_MOST = 500 };

// `at`: when the server heard it. Lines of JSON where that was asked.
static enum status print_line(const struct cli_arguments *arguments, const struct json *line, const char *at,
			      struct error *error)
{
	char before[300], text[FORMAT_BYTES];
	int64_t at_ms = 0;
	const int64_t dropped = json_get_integer(line, "dropped", 0);
	const char *node = json_get_string(line, "node_name", NULL);
	if (arguments->json)
		return command_print_json(line, error);
	clock_parse(at, &at_ms);
	snprintf(before, sizeof before, "%s  %-7.7s  %.64s%s%.24s: ", format_time_s(at_ms, text),
		 json_get_string(line, "level", ""), node ? node : "", node ? "  " : "",
		 json_get_string(line, "area", ""));
	command_print_text(stdout, before, json_get_string(line, "text", ""));
	if (dropped > 0)
		printf("  and %" PRId64 " earlier ones that were dropped\n", dropped);
	return STATUS_OK;
}

struct following {
	const struct cli_arguments *arguments;
	struct error *error;
	int64_t last; // seq that was printed
};

static bool on_notice(void *context, const char *method, const struct json *params)
{
	struct following *following = context;
	const int64_t seq = json_get_integer(params, "seq", -1);
	if (strcmp(method, "event") != 0 || strcmp(json_get_string(params, "topic", ""), "log") != 0 ||
	    seq <= following->last)
		return true;
	const char *at = json_get_string(params, "at", "");
	struct json *line = json_copy(json_get(params, "data"));
	json_set_integer(line, "seq", seq);
	json_set_string(line, "at", at);
	const enum status status = print_line(following->arguments, line, at, following->error);
	json_destroy(&line);
	return !status && !fflush(stdout);
}

static int print_all(struct following *following, const struct json *lines)
{
	for (const struct json *line = json_first(lines); line; line = json_next(line)) {
		following->last = json_get_integer(line, "seq", 0);
		if (print_line(following->arguments, line, json_get_string(line, "at", ""), following->error))
			return 1;
	}
	fflush(stdout);
	return 0;
}

static enum status subscribe(struct client *client, struct error *error)
{
	struct json *params = json_new_object(), *topics = json_new_array(), *answer = NULL;
	json_push(topics, json_new_string("log"));
	json_set(params, "topics", topics);
	const enum status status = client_ask(
		client, &(struct client_call){.method = "events.subscribe", .params = params}, &answer, error);
	json_destroy(&answer);
	return status;
}

// Subscribed before the list, so that none falls between; what comes with it is heard once, by its seq.
static int show(struct client *client, const struct cli_arguments *arguments, int64_t limit, struct error *error)
{
	struct following following = {.arguments = arguments, .error = error, .last = -1};
	struct json *params = json_new_object(), *answer = NULL;
	json_set_integer(params, "limit", limit);
	const struct client_call call = {.method = "log.list", .params = params};
	if (arguments->follow && (client_catch(client, error) || subscribe(client, error))) {
		json_destroy(&params);
		return 1;
	}
	if (client_ask(client, &call, &answer, error))
		return 1;
	int result = 0;
	if (arguments->json && !arguments->follow)
		result = command_print_json(answer, error) ? 1 : 0;
	else
		result = print_all(&following, json_get(answer, "lines"));
	json_destroy(&answer);
	if (result || !arguments->follow)
		return result;
	return client_stay(client, on_notice, &following, error) ? 1 : 0;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client = NULL;
	char *end;
	const int64_t limit = arguments->limit ? strtoll(arguments->limit, &end, 10) : LINES_UNLESS_SAID;
	if (limit < 1 || limit > LINES_MOST || (arguments->limit && *end)) {
		error_set(error, STATUS_INVALID_PARAMS, "--limit takes a number from 1 to %d", LINES_MOST);
		return 2;
	}
	int result = command_open(arguments, &target, &client, error);
	if (!result)
		result = show(client, arguments, limit, error);
	client_close(&client);
	return result;
}

static const struct flag flags[] = {
	{"limit", "N", "how many of the newest (default 50, at most 500)", offsetof(struct cli_arguments, limit)},
	{"follow", NULL, "keep running and print new ones, until Ctrl-C", offsetof(struct cli_arguments, follow)},
	{0},
};

const struct cli_command log_command = {
	.name = "log",
	.summary = "show the server's log and its nodes' warnings",
	.more = "Since the server started; earlier lines are in its terminal or the system's journal.\n",
	.flags = flags,
	.run = run,
};
