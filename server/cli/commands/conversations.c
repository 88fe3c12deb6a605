/* `exogpu conversations`: what a token keeps on the server of the Playground: listed, exported, deleted. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "ID"},
	{.title = "SIZE", .right = true},
	{.title = "CHANGED"},
	{.title = "EXPIRES", .leave_out = 1},
};

static int64_t time_of(const struct json *one, const char *name)
{
	int64_t at;
	return clock_parse(json_get_string(one, name, ""), &at) ? -1 : at;
}

static void add_one(struct table *table, const struct json *one)
{
	char text[FORMAT_BYTES];
	const bool deleted = json_get_bool(one, "deleted", false);
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "conversation_id", ""));
	if (deleted)
		table_add(table, TONE_FAINT, "deleted");
	else
		table_add(table, TONE_PLAIN, "%s", format_memory(json_get_integer(one, "bytes", -1), text));
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(one, "updated_at"), text));
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(one, "expires_at"), text));
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {
		.method = "conversation.list",
		.member = "conversations",
		.columns = columns,
		.column_count = sizeof columns / sizeof *columns,
		.add = add_one,
		.nothing = "No conversations. The Playground keeps some here if its switch is on."};
	return command_list(arguments, &list, error);
}

// ---- export ----

// The Playground's text, with its id, as the Playground itself exports it.
static enum status fetch(struct client *client, const char *id, struct json **out, struct error *error)
{
	struct json *params = json_new_object();
	struct buffer text;
	int64_t call;
	buffer_init(&text, LIMIT_CONVERSATION_BYTES);
	json_set_string(params, "conversation_id", id);
	enum status status = client_send(
		client, &(struct client_call){.method = "conversation.read", .params = params, .body_to = &text}, &call,
		error);
	if (!status)
		status = client_wait(client, &(struct client_wait){.id = call}, error);
	if (!status &&
	    (json_parse(out, (const char *)text.data, text.length, NULL) || json_type(*out) != JSON_OBJECT)) {
		json_destroy(out);
		status = error_set(error, STATUS_UNAVAILABLE, "conversation %.64s is in no form that is known here",
				   id);
	}
	if (!status)
		json_set_string(*out, "id", id);
	buffer_finish(&text);
	return status;
}

static enum status fetch_all(struct client *client, struct json *all, struct error *error)
{
	struct json *answer = NULL;
	enum status status = client_ask(client, &(struct client_call){.method = "conversation.list"}, &answer, error);
	for (const struct json *one = json_first(json_get(answer, "conversations")); one && !status;
	     one = json_next(one)) {
		struct json *conversation = NULL;
		if (json_get_bool(one, "deleted", false))
			continue;
		status = fetch(client, json_get_string(one, "conversation_id", ""), &conversation, error);
		if (!status)
			json_push(all, conversation);
	}
	json_destroy(&answer);
	return status;
}

static enum status write_out(const char *path, const struct json *export, struct error *error)
{
	struct buffer text;
	FILE *out = stdout;
	buffer_init(&text, 2 * LIMIT_CONVERSATION_BYTES_OF_TOKEN);
	enum status status = json_print(export, &text);
	if (status)
		error_set(error, status, "the export cannot be printed: %s", status_text(status));
	if (!status && path) {
		const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		out = fd < 0 ? NULL : fdopen(fd, "w");
	}
	if (!status && (!out || fprintf(out, "%s\n", buffer_text(&text)) < 0 || fflush(out)))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "cannot write %.200s",
				     path ? path : "the export");
	if (out && out != stdout && fclose(out) && !status)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "cannot write %.200s", path);
	buffer_finish(&text);
	return status;
}

static int run_export(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *export = json_new_object(), *all = json_new_array();
	int result = command_open(arguments, &target, &client, error);
	if (!result)
		result = fetch_all(client, all, error) ? 1 : 0;
	client_close(&client);
	const size_t count = json_count(all);
	json_set(export, "conversations", all);
	if (!result)
		result = write_out(arguments->operand, export, error) ? 1 : 0;
	if (!result)
		fprintf(stderr, "%zu conversation%s\n", count, count == 1 ? "" : "s");
	json_destroy(&export);
	return result;
}

// ---- delete ----

static int run_delete(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params, *answer = NULL;
	if (!arguments->operand == !arguments->all) {
		error_set(error, STATUS_INVALID_PARAMS, "give the id of one, or --all");
		error_hint(error, "see: exogpu conversations list");
		return 2;
	}
	params = json_new_object();
	if (arguments->all)
		json_set_bool(params, "all", true);
	else
		json_set_string(params, "conversation_id", arguments->operand);
	int result = command_call(arguments, "conversation.delete", params, &answer, error);
	if (answer)
		printf("deleted %lld\n", (long long)json_get_integer(answer, "deleted", 0));
	json_destroy(&answer);
	return result;
}

static const struct flag delete_flags[] = {
	{"all", NULL, "all of this token", offsetof(struct cli_arguments, all)},
	{0},
};

const struct cli_command conversations_list_command = {
	.name = "conversations list",
	.summary = "list the conversations that the token keeps on the server",
	.more = "Conversations belong to a token, so give the server's address and, in EXOGPU_TOKEN, the token:\n"
		"  EXOGPU_TOKEN=exo_... exogpu conversations list --url http://127.0.0.1:52415\n",
	.run = run_list,
};
const struct cli_command conversations_export_command = {
	.name = "conversations export",
	.operand = "[FILE]",
	.summary = "write them to a file or standard output, as JSON",
	.more = "The file has the form in which the Playground exports conversations; its mode is 0600.\n",
	.run = run_export,
};
const struct cli_command conversations_delete_command = {
	.name = "conversations delete",
	.operand = "[ID]",
	.summary = "delete one from the server, or all",
	.more = "Browsers that keep conversations on the server with this token delete it as well.\n",
	.flags = delete_flags,
	.run = run_delete,
};
