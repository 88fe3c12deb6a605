/* `exogpu alerts channels`: where alerts are sent to. */
#include "common/base/clock.h"
#include "common/files/private_file.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { SECRET_BYTES = 512 };

static const struct table_column columns[] = {
	{.title = "ID"},
	{.title = "KIND", .leave_out = 2},
	{.title = "WHERE", .narrowest = 16},
	{.title = "SEVERITIES", .leave_out = 1},
	{.title = "QUIET", .leave_out = 3},
	{.title = "WAITING", .right = true},
	{.title = "LAST", .narrowest = 16},
};

static void add_last(struct table *table, const struct json *last)
{
	char text[FORMAT_BYTES];
	int64_t at = -1;
	if (json_type(last) != JSON_OBJECT) {
		table_add(table, TONE_FAINT, "nothing was sent yet");
		return;
	}
	if (clock_parse(json_get_string(last, "at", ""), &at))
		at = -1;
	if (json_get_bool(last, "delivered", false))
		table_add(table, TONE_GOOD, "delivered %s", format_time(at, text));
	else
		table_add(table, TONE_BAD, "failed %s: %s", format_time(at, text),
			  json_get_string(last, "message", "no reason is known"));
}

static void add_channel(struct table *table, const struct json *channel)
{
	char severities[64] = "";
	const struct json *quiet = json_get(channel, "quiet_hours");
	for (const struct json *one = json_first(json_get(channel, "severities")); one; one = json_next(one))
		snprintf(severities + strlen(severities), sizeof severities - strlen(severities), "%s%.16s",
			 severities[0] ? "," : "", json_string(one, ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(channel, "channel_id", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(channel, "kind", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(channel, "url", ""));
	table_add(table, TONE_PLAIN, "%s", severities);
	if (json_type(quiet) == JSON_OBJECT)
		table_add(table, TONE_PLAIN, "%s-%s", json_get_string(quiet, "from", ""),
			  json_get_string(quiet, "to", ""));
	else
		table_add(table, TONE_FAINT, "never");
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(channel, "waiting", 0));
	add_last(table, json_get(channel, "last"));
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {
		.method = "alert.channel_list",
		.member = "channels",
		.columns = columns,
		.column_count = sizeof columns / sizeof *columns,
		.add = add_channel,
		.nothing = "No channels: alerts are shown here and on the dashboard alone. exogpu alerts channels add"};
	return command_list(arguments, &list, error);
}

// ---- adding ----

static enum status read_secret(struct json *params, const char *path, struct error *error)
{
	struct buffer text;
	if (!path)
		return STATUS_OK;
	buffer_init(&text, SECRET_BYTES);
	enum status status = private_file_read(path, &text, error);
	if (status == STATUS_NOT_FOUND)
		error_set(error, status, "there is no file %.200s", path);
	while (!status && text.length && strchr("\r\n\t ", text.data[text.length - 1]))
		text.data[--text.length] = 0;
	if (!status)
		json_set_string(params, "secret", buffer_text(&text));
	if (text.data)
		OPENSSL_cleanse(text.data, text.length);
	buffer_finish(&text);
	return status;
}

static enum status read_quiet(struct json *params, const char *text, struct error *error)
{
	char from[6], to[6];
	if (!text)
		return STATUS_OK;
	if (strlen(text) != 11 || text[5] != '-') {
		error_set(error, STATUS_INVALID_PARAMS, "--quiet takes two times of the day, such as 22:00-07:00");
		return STATUS_INVALID_PARAMS;
	}
	struct json *quiet = json_new_object();
	snprintf(from, sizeof from, "%.5s", text);
	snprintf(to, sizeof to, "%.5s", text + 6);
	json_set_string(quiet, "from", from);
	json_set_string(quiet, "to", to);
	json_set(params, "quiet_hours", quiet);
	return STATUS_OK;
}

static void read_severities(struct json *params, const char *text)
{
	char word[32];
	struct json *array = json_new_array();
	while (*text) {
		const size_t length = strcspn(text, ",");
		snprintf(word, sizeof word, "%.*s", (int)(length > 30 ? 30 : length), text);
		json_push(array, json_new_string(word));
		text += length + (text[length] == ',');
	}
	json_set(params, "severities", array);
}

static int run_add(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params = json_new_object(), *channel = NULL;
	json_set_string(params, "kind", arguments->operand);
	json_set_string(params, "url", arguments->second);
	if (arguments->severities)
		read_severities(params, arguments->severities);
	enum status status = read_quiet(params, arguments->quiet, error);
	if (!status)
		status = read_secret(params, arguments->secret_file, error);
	if (status) {
		json_destroy(&params);
		return 2;
	}
	const int result = command_call(arguments, "alert.channel_add", params, &channel, error);
	if (channel) {
		const char *secret = json_get_string(channel, "secret", "");
		command_print_text(stdout, "", json_get_string(channel, "channel_id", ""));
		if (secret[0])
			command_print_text(stdout, "secret, shown this once: ", secret);
		command_say(stderr, "exogpu alerts channels test %s sends a test message.",
			    json_get_string(channel, "channel_id", ""));
	}
	json_destroy(&channel);
	return result;
}

// ---- testing and removing ----

static struct json *channel_params(const struct cli_arguments *arguments)
{
	struct json *params = json_new_object();
	json_set_string(params, "channel_id", arguments->operand);
	return params;
}

static int run_test(const struct cli_arguments *arguments, struct error *error)
{
	struct json *answer = NULL;
	const int result = command_call(arguments, "alert.channel_test", channel_params(arguments), &answer, error);
	if (result || !answer)
		return result;
	const bool delivered = json_get_bool(answer, "delivered", false);
	if (delivered) {
		printf("delivered: the receiver answered %lld\n", (long long)json_get_integer(answer, "status", 0));
	} else {
		error_set(error, STATUS_UNAVAILABLE, "not delivered: %.300s", json_get_string(answer, "message", ""));
		error_hint(error, "look at the receiver; alerts wait for it for three days");
	}
	json_destroy(&answer);
	return delivered ? 0 : 1;
}

static int run_remove(const struct cli_arguments *arguments, struct error *error)
{
	struct json *answer = NULL;
	const int result = command_call(arguments, "alert.channel_remove", channel_params(arguments), &answer, error);
	if (answer)
		command_print_text(stdout, "removed ", json_get_string(answer, "channel_id", ""));
	json_destroy(&answer);
	return result;
}

static const struct flag add_flags[] = {
	{"severities", "WORD,...", "of info, warning and critical (default: warning,critical)",
	 offsetof(struct cli_arguments, severities)},
	{"quiet", "FROM-TO", "when alerts that are not critical wait, in the server's local time: 22:00-07:00",
	 offsetof(struct cli_arguments, quiet)},
	{"secret-file", "FILE",
	 "a file that only you can read, with the secret that signs a webhook (default: the server makes one and\n"
	 "shows it once), or an access token of ntfy",
	 offsetof(struct cli_arguments, secret_file)},
	{0},
};

const struct cli_command alerts_channels_command = {
	.name = "alerts channels",
	.summary = "list where alerts are sent to",
	.run = run_list,
};
const struct cli_command alerts_channels_add_command = {
	.name = "alerts channels add",
	.operand = "KIND URL",
	.summary = "send alerts to a webhook or an ntfy topic",
	.more = "  exogpu alerts channels add webhook https://hooks.example.com/exogpu\n"
		"  exogpu alerts channels add ntfy https://ntfy.sh/TOPIC --severities critical --quiet 22:00-07:00\n"
		"Addresses of private networks need serve --alert-host HOST.\n",
	.flags = add_flags,
	.run = run_add,
};
const struct cli_command alerts_channels_test_command = {
	.name = "alerts channels test",
	.operand = "ID",
	.summary = "send a test message now",
	.run = run_test,
};
const struct cli_command alerts_channels_remove_command = {
	.name = "alerts channels remove",
	.operand = "ID",
	.summary = "send no more alerts there",
	.more = "What was not delivered yet is dropped.\n",
	.run = run_remove,
};
