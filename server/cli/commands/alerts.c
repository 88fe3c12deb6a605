/* `exogpu alerts`: what somebody should look at, that somebody has, and the rules that find it. */
#include "common/base/clock.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "RAISED"},
	{.title = "SEVERITY", .leave_out = 3},
	{.title = "KIND", .leave_out = 2},
	{.title = "WHAT", .narrowest = 24},
	{.title = "STATE"},
	{.title = "ID", .leave_out = 1},
};

static int64_t time_of(const struct json *alert, const char *name)
{
	int64_t at;
	return clock_parse(json_get_string(alert, name, ""), &at) ? -1 : at;
}

static void add_alert(struct table *table, const struct json *alert)
{
	char text[FORMAT_BYTES];
	const char *severity = json_get_string(alert, "severity", ""),
		   *by = json_get_string(alert, "acknowledged_by", "");
	const bool cleared = json_get_string(alert, "cleared_at", "")[0], critical = !strcmp(severity, "critical");
	const enum table_tone tone = cleared ? TONE_FAINT : critical ? TONE_BAD : TONE_ATTENTION;
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(alert, "raised_at"), text));
	table_add(table, tone, "%s", severity);
	table_add(table, TONE_PLAIN, "%s", json_get_string(alert, "kind", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(alert, "message", ""));
	if (cleared)
		table_add(table, TONE_FAINT, "cleared %s", format_time(time_of(alert, "cleared_at"), text));
	else if (by[0])
		table_add(table, TONE_PLAIN, "stands, seen by %s", by);
	else
		table_add(table, tone, "stands");
	table_add(table, TONE_PLAIN, "%s", json_get_string(alert, "alert_id", ""));
}

static void print_hint(const struct json *alert, const struct json *answer)
{
	char line[1100];
	(void)answer;
	if (json_get_string(alert, "cleared_at", "")[0])
		return;
	snprintf(line, sizeof line, "%.500s: %.500s", json_get_string(alert, "message", ""),
		 json_get_string(alert, "hint", ""));
	command_print_text(stdout, "", line);
}

// An answer in full for programs, a table for people.
static int list(const struct cli_arguments *arguments, struct json *params, const struct command_list *how,
		struct error *error)
{
	struct table table;
	struct json *answer = NULL;
	int result = command_call(arguments, how->method, params, &answer, error);
	if (result || !answer)
		return result;
	const struct json *rows = json_get(answer, how->member);
	if (!json_count(rows)) {
		fprintf(stderr, "%s\n", how->nothing);
		json_destroy(&answer);
		return 0;
	}
	const struct terminal terminal = terminal_of_stdout();
	table_init(&table, how->columns, how->column_count);
	for (const struct json *one = json_first(rows); one; one = json_next(one))
		how->add(&table, one);
	result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	table_finish(&table);
	for (const struct json *one = json_first(rows); one && !result && how->below; one = json_next(one))
		how->below(one, answer);
	json_destroy(&answer);
	return result;
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params = json_new_object();
	const struct command_list how = {.method = "alert.list",
					 .member = "alerts",
					 .columns = columns,
					 .column_count = sizeof columns / sizeof *columns,
					 .add = add_alert,
					 .below = print_hint,
					 .nothing = arguments->all ? "No alert was ever raised here."
								   : "No alerts. exogpu alerts --all lists past ones."};
	json_set_string(params, "state", arguments->all ? "all" : "active");
	json_set_integer(params, "limit", 1000);
	return list(arguments, params, &how, error);
}

static int run_ack(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params = json_new_object(), *alert = NULL;
	json_set_string(params, "alert_id", arguments->operand);
	const int result = command_call(arguments, "alert.acknowledge", params, &alert, error);
	if (alert) {
		char line[700];
		snprintf(line, sizeof line, "%.500s (seen by %.100s)", json_get_string(alert, "message", ""),
			 json_get_string(alert, "acknowledged_by", ""));
		command_print_text(stdout, "", line);
	}
	json_destroy(&alert);
	return result;
}

// ---- rules ----

static const struct table_column rule_columns[] = {
	{.title = "RULE"},
	{.title = "SUBJECT", .leave_out = 2},
	{.title = "SEVERITY", .leave_out = 1},
	{.title = "RAISED AT", .right = true},
	{.title = "FOR", .right = true},
	{.title = "CLEARED AT", .right = true},
	{.title = "STATE"},
};

static void add_threshold(struct table *table, const struct json *rule, const char *name, bool under)
{
	const char *unit = json_get_string(rule, "unit", NULL);
	const double value = json_get_number(rule, name, 0);
	if (!unit)
		table_add(table, TONE_PLAIN, "%s", value >= 1 ? "yes" : "no");
	else
		table_add(table, TONE_PLAIN, "%s %g %s", under ? "\u2264" : "\u2265", value,
			  !strcmp(unit, "percent") ? "%" : unit);
}

static void add_rule(struct table *table, const struct json *rule)
{
	char text[FORMAT_BYTES];
	const bool below = json_get_bool(rule, "below", false), enabled = json_get_bool(rule, "enabled", true);
	const int64_t for_s = json_get_integer(rule, "for_s", 0);
	table_add(table, TONE_PLAIN, "%s", json_get_string(rule, "rule_id", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(rule, "subject_type", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(rule, "severity", ""));
	add_threshold(table, rule, "threshold", below);
	table_add(table, TONE_PLAIN, "%s", for_s ? format_age(for_s * 1000, text) : "2 samples");
	add_threshold(table, rule, "clear_threshold", !below);
	table_add(table, enabled ? TONE_GOOD : TONE_FAINT, enabled ? "on" : "off");
}

static int run_rules(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list how = {.method = "alert.rules",
					 .member = "rules",
					 .columns = rule_columns,
					 .column_count = sizeof rule_columns / sizeof *rule_columns,
					 .add = add_rule,
					 .nothing = "No rules."};
	return list(arguments, NULL, &how, error);
}

static enum status read_number(const char *flag, const char *text, struct json *params, const char *name,
			       struct error *error)
{
	char *end;
	errno = 0;
	const double value = strtod(text, &end);
	if (end == text || *end || errno || value < -1e6 || value > 1e6)
		return error_set(error, STATUS_INVALID_PARAMS, "--%s takes a number, such as 90", flag);
	json_set_number(params, name, value);
	return STATUS_OK;
}

static enum status read_rule(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	int64_t seconds = 0;
	enum status status = STATUS_OK;
	if (arguments->on && arguments->off)
		return error_set(error, STATUS_INVALID_PARAMS, "--on and --off exclude each other");
	if (arguments->on || arguments->off)
		json_set_bool(params, "enabled", arguments->on);
	if (arguments->threshold)
		status = read_number("threshold", arguments->threshold, params, "threshold", error);
	if (!status && arguments->clear)
		status = read_number("clear", arguments->clear, params, "clear_threshold", error);
	if (!status && arguments->lasting && strcmp(arguments->lasting, "0") != 0)
		status = parse_duration(arguments->lasting, &seconds, error);
	if (!status && arguments->lasting)
		json_set_integer(params, "for_s", seconds);
	if (!status && json_count(params) == 1) {
		status = error_set(error, STATUS_INVALID_PARAMS, "there is nothing to change");
		error_hint(error, "give --threshold, --clear, --for, --on or --off");
	}
	return status;
}

static int run_rule(const struct cli_arguments *arguments, struct error *error)
{
	struct table table;
	struct json *params = json_new_object(), *rule = NULL;
	json_set_string(params, "rule_id", arguments->operand);
	if (read_rule(arguments, params, error)) {
		json_destroy(&params);
		return 2;
	}
	int result = command_call(arguments, "alert.rule_set", params, &rule, error);
	if (rule) {
		const struct terminal terminal = terminal_of_stdout();
		table_init(&table, rule_columns, sizeof rule_columns / sizeof *rule_columns);
		add_rule(&table, rule);
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
		table_finish(&table);
	}
	json_destroy(&rule);
	return result;
}

static const struct flag list_flags[] = {
	{"all", NULL, "also those that were cleared", offsetof(struct cli_arguments, all)},
	{0},
};
static const struct flag rule_flags[] = {
	{"threshold", "N", "raise at this figure", offsetof(struct cli_arguments, threshold)},
	{"clear", "N", "clear at this figure", offsetof(struct cli_arguments, clear)},
	{"for", "SPAN", "how long either must last: 0, 30s, 10m (24h at most)",
	 offsetof(struct cli_arguments, lasting)},
	{"on", NULL, "use the rule", offsetof(struct cli_arguments, on)},
	{"off", NULL, "do not use it; its alerts are cleared", offsetof(struct cli_arguments, off)},
	{0},
};

const struct cli_command alerts_command = {
	.name = "alerts",
	.summary = "list what somebody should look at",
	.more = "Each alert is raised once and cleared once, when its reason is gone. The newest 1,000 are kept.\n",
	.flags = list_flags,
	.run = run_list,
};
const struct cli_command alerts_ack_command = {
	.name = "alerts ack",
	.operand = "ID",
	.summary = "say that you have seen an alert",
	.more = "The alert stands until its reason is gone. Others see who has seen it.\n",
	.run = run_ack,
};
const struct cli_command alerts_rules_command = {
	.name = "alerts rules",
	.summary = "list the rules that raise alerts",
	.run = run_rules,
};
const struct cli_command alerts_rule_command = {
	.name = "alerts rule",
	.operand = "ID",
	.summary = "change a rule; what is not given stays",
	.more = "  exogpu alerts rule memory_full.device --threshold 99 --clear 95 --for 5m\n",
	.flags = rule_flags,
	.run = run_rule,
};
