/* `exogpu usage`: what requests to models used, by token, model or device. */
#include "common/base/clock.h"
#include "server/cli/commands/audit/audit.h"
#include "server/cli/format.h"

#include <stdio.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "FROM", .leave_out = 1},
	{.title = "NAME"},
	{.title = "REQUESTS", .right = true},
	{.title = "PROMPT TOKENS", .right = true},
	{.title = "CACHED", .right = true, .leave_out = 2},
	{.title = "GENERATED", .right = true},
	{.title = "DEVICE TIME", .right = true},
	{.title = "ENERGY", .right = true},
	{.title = "IDLE", .right = true, .leave_out = 3},
};

// "not reported" for a negative one.
static const char *energy(double joules, char text[FORMAT_BYTES])
{
	if (joules < 0)
		snprintf(text, FORMAT_BYTES, "not reported");
	else if (joules < 3600)
		snprintf(text, FORMAT_BYTES, "%.1f J", joules);
	else if (joules < 3.6e6)
		snprintf(text, FORMAT_BYTES, "%.2f Wh", joules / 3600);
	else
		snprintf(text, FORMAT_BYTES, "%.2f kWh", joules / 3.6e6);
	return text;
}

static const char *seconds(double value, char text[FORMAT_BYTES])
{
	if (value < 120)
		snprintf(text, FORMAT_BYTES, "%.2f s", value);
	else if (value < 7200)
		snprintf(text, FORMAT_BYTES, "%.1f min", value / 60);
	else
		snprintf(text, FORMAT_BYTES, "%.1f h", value / 3600);
	return text;
}

static void add_row(struct table *table, const struct json *row)
{
	int64_t at_ms = -1;
	char text[FORMAT_BYTES];
	const char *source = json_get_string(row, "energy_source", "");
	const double joules = json_get_number(row, "energy_joules", -1), idle = json_get_number(row, "idle_joules", -1);
	clock_parse(json_get_string(row, "at", ""), &at_ms);
	table_add(table, TONE_FAINT, "%s", format_time(at_ms, text));
	table_add(table, TONE_PLAIN, "%s", json_get_string(row, "name", ""));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(row, "requests", 0));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(row, "prompt_tokens", 0));
	table_add(table, TONE_FAINT, "%lld", (long long)json_get_integer(row, "cached_tokens", 0));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(row, "completion_tokens", 0));
	table_add(table, TONE_PLAIN, "%s", seconds(json_get_number(row, "device_s", 0), text));
	table_add(table, joules < 0 ? TONE_FAINT : TONE_PLAIN, "%s%s", !strcmp(source, "integrated") ? "~" : "",
		  energy(joules, text));
	table_add(table, TONE_FAINT, "%s", idle < 0 ? "-" : energy(idle, text));
}

static enum status read_params(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	int64_t ms = 0, step_s = 0;
	char at[CLOCK_TEXT_BYTES];
	const char *by = arguments->by ? arguments->by : "model";
	if (strcmp(by, "token") != 0 && strcmp(by, "model") != 0 && strcmp(by, "device") != 0) {
		error_hint(error, "--by token, --by model or --by device");
		return error_set(error, STATUS_INVALID_PARAMS, "usage is not counted by %.64s", by);
	}
	json_set_string(params, "by", by);
	enum status status = audit_time("from", arguments->from, &ms, error);
	if (!status && arguments->from)
		json_set_string(params, "from", clock_format(ms, at));
	if (!status)
		status = audit_time("to", arguments->to, &ms, error);
	if (!status && arguments->to)
		json_set_string(params, "to", clock_format(ms, at));
	if (!status && arguments->step)
		status = parse_duration(arguments->step, &step_s, error);
	if (!status && step_s > 31622400)
		status = error_set(error, STATUS_INVALID_PARAMS, "--step is 366 days at most");
	json_set_integer(params, "step_s", step_s);
	return status;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct table table;
	struct json *params = json_new_object(), *answer = NULL;
	if (read_params(arguments, params, error)) {
		json_destroy(&params);
		return 2;
	}
	int result = command_call(arguments, "usage.list", params, &answer, error);
	if (result || !answer)
		return result;
	bool measured = false, integrated = false;
	const struct json *rows = json_get(answer, "rows");
	const struct terminal terminal = terminal_of_stdout();
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *row = json_first(rows); row; row = json_next(row)) {
		const char *source = json_get_string(row, "energy_source", "");
		measured |= source[0];
		integrated |= !strcmp(source, "integrated");
		add_row(&table, row);
	}
	if (json_count(rows))
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	else
		fprintf(stderr, "No request to a model has ended in that time. --from 30d looks further back.\n");
	table_finish(&table);
	if (json_count(rows) && !measured)
		fprintf(stderr, "No device that worked here reports its energy or power.\n");
	if (integrated)
		fprintf(stderr, "~: power times time, because a device has no counter of energy.\n");
	json_destroy(&answer);
	return result;
}

static const struct flag flags[] = {
	{"by", "WHAT", "token, model or device (default: model)", offsetof(struct cli_arguments, by)},
	{"from", "TIME", "from this time on: 2026-11-21, 2026-11-21T08:00:00Z, or 30d (default: 24h)",
	 offsetof(struct cli_arguments, from)},
	{"to", "TIME", "before this time (default: now)", offsetof(struct cli_arguments, to)},
	{"step", "SPAN", "a row for each such step: 1h, 1d (default: one for all)",
	 offsetof(struct cli_arguments, step)},
	{0},
};

const struct cli_command usage_command = {
	.name = "usage",
	.summary = "list what requests to models used",
	.more = "Hours are kept for 8 days, days (UTC) for a year. A token without the scope admin sees what it used\n"
		"itself. ENERGY is what devices drew for requests above idle; IDLE what they draw when idle.\n"
		"  exogpu usage --by token --from 30d --step 1d\n",
	.flags = flags,
	.run = run,
};
