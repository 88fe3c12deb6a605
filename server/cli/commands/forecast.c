/* `exogpu forecast`: how hot devices will be, when they slow down, and what the server does before they do. */
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASONS = 10, MINUTE_S = 60 };

static const struct table_column columns[] = {
	{.title = "DEVICE", .narrowest = 12},
	{.title = "FORECAST"},
	{.title = "POWER", .right = true, .leave_out = 3},
	{.title = "NOW", .right = true},
	{.title = "IN 1 MIN", .right = true},
	{.title = "LIMIT", .right = true},
	{.title = "REACHED IN", .right = true},
	{.title = "SUSTAINS", .right = true, .leave_out = 2},
	{.title = "ERROR", .right = true, .leave_out = 1},
};

// The first point at `in_s` or later; NULL if there is none.
static const struct json *point_at(const struct json *forecast, double in_s)
{
	const struct json *point = json_first(json_get(forecast, "points"));
	while (point && json_get_number(point, "in_s", 0) < in_s)
		point = json_next(point);
	return point;
}

static bool is_ready(const struct json *forecast)
{
	return !strcmp(json_get_string(forecast, "state", ""), "ready");
}

static const char *say_reached(const struct json *forecast, char text[FORMAT_BYTES])
{
	const double in_s = json_get_number(forecast, "throttles_in_s", -1);
	if (in_s >= 0)
		return format_age((int64_t)(in_s * 1000), text);
	return is_ready(forecast) && json_get_number(forecast, "limit_celsius", -1) >= 0 ? "not" : "-";
}

static void add_forecast(struct table *table, const struct json *snapshot, const struct json *forecast)
{
	char text[FORMAT_BYTES], label[COMMAND_LABEL_BYTES];
	const bool warns = json_get_bool(forecast, "warns", false);
	const char *id = json_get_string(forecast, "device_id", "");
	table_add(table, TONE_PLAIN, "%s", command_device_label(snapshot, id, label));
	table_add(table, is_ready(forecast) ? TONE_GOOD : TONE_FAINT, "%s", json_get_string(forecast, "state", ""));
	table_add(table, TONE_PLAIN, "%s", format_quantity(json_get_number(forecast, "power_watts", -1), "W", text));
	table_add(table, TONE_PLAIN, "%s",
		  format_quantity(json_get_number(forecast, "temperature_celsius", -1), "°C", text));
	table_add(table, TONE_PLAIN, "%s",
		  format_quantity(json_get_number(point_at(forecast, MINUTE_S), "celsius", -1), "°C", text));
	table_add(table, TONE_PLAIN, "%s", format_quantity(json_get_number(forecast, "limit_celsius", -1), "°C", text));
	table_add(table, warns ? TONE_BAD : TONE_PLAIN, "%s", say_reached(forecast, text));
	table_add(table, TONE_PLAIN, "%s",
		  format_quantity(json_get_number(forecast, "sustainable_watts", -1), "W", text));
	table_add(table, TONE_PLAIN, "%s", format_quantity(json_get_number(forecast, "error_celsius", -1), "°C", text));
}

static enum status read_options(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	int64_t seconds = 0;
	enum status status = STATUS_OK;
	if (arguments->lasting) {
		status = parse_duration(arguments->lasting, &seconds, error);
		if (!status && seconds > 3600)
			status = error_set(error, STATUS_INVALID_PARAMS, "--for takes 1 h at most");
		json_set_integer(params, "horizon_s", seconds);
	}
	if (!status && arguments->watts) {
		char *end;
		errno = 0;
		const double watts = strtod(arguments->watts, &end);
		if (end == arguments->watts || *end || errno || !(watts >= 0 && watts <= 10000))
			status = error_set(error, STATUS_INVALID_PARAMS, "--watts takes a power, such as 350");
		json_set_number(params, "power_watts", watts);
	}
	if (arguments->memory)
		json_set_string(params, "sensor", "memory");
	return status;
}

static void print_reason(const struct json *snapshot, const struct json *forecast)
{
	char line[COMMAND_LABEL_BYTES + 64], label[COMMAND_LABEL_BYTES];
	const int64_t percent = json_get_integer(forecast, "work_percent", 100);
	if (percent < 100) {
		char text[64] = "models on it pause";
		if (percent)
			snprintf(text, sizeof text, "models on it get %lld %% of the time", (long long)percent);
		snprintf(line, sizeof line, "%s is held back for its heat: ",
			 command_device_label(snapshot, json_get_string(forecast, "device_id", ""), label));
		command_print_text(stderr, line, text);
	}
	if (is_ready(forecast))
		return;
	snprintf(line, sizeof line,
		 "%s is %.40s: ", command_device_label(snapshot, json_get_string(forecast, "device_id", ""), label),
		 json_get_string(forecast, "state", ""));
	command_print_text(stderr, line, json_get_string(forecast, "state_reason", ""));
}

static enum status ask(struct client *client, const struct json *options, const char *device_id, struct json **forecast,
		       struct error *error)
{
	struct json *params = json_copy(options);
	json_set_string(params, "device_id", device_id);
	return client_ask(client, &(struct client_call){.method = "thermal.forecast", .params = params}, forecast,
			  error);
}

static enum status print_table(const struct json *snapshot, const struct json *forecasts, struct error *error)
{
	struct table table;
	const struct terminal terminal = terminal_of_stdout();
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *one = json_first(forecasts); one; one = json_next(one))
		add_forecast(&table, snapshot, one);
	enum status status = STATUS_OK;
	if (json_count(forecasts))
		status = table_print(&table, stdout, &terminal, error);
	else
		fprintf(stderr, "No devices yet; exogpu devices says more.\n");
	table_finish(&table);
	fflush(stdout); // the table comes first
	size_t said = 0;
	for (const struct json *one = json_first(forecasts); one && said < REASONS; one = json_next(one), said++)
		print_reason(snapshot, one);
	return status;
}

// The forecast of a device, or of all.
static enum status gather(struct client *client, const struct cli_arguments *arguments, const struct json *options,
			  struct json **snapshot, struct json *forecasts, struct error *error)
{
	const struct json *device = NULL;
	enum status status;
	if (arguments->operand) {
		status = command_device(client, arguments->operand, snapshot, &device, error);
	} else {
		status = client_ask(client, &(struct client_call){.method = "cluster.snapshot"}, snapshot, error);
		device = json_first(json_get(*snapshot, "devices"));
	}
	for (; !status && device; device = arguments->operand ? NULL : json_next(device)) {
		struct json *forecast = NULL;
		status = ask(client, options, json_get_string(device, "device_id", ""), &forecast, error);
		if (!status)
			json_push(forecasts, forecast);
	}
	return status;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *snapshot = NULL, *options = json_new_object(), *forecasts = json_new_array();
	int result = read_options(arguments, options, error) ? 2 : command_open(arguments, &target, &client, error);
	if (!result) {
		enum status status = gather(client, arguments, options, &snapshot, forecasts, error);
		if (!status && arguments->json)
			status = command_print_json(arguments->operand ? json_first(forecasts) : forecasts, error);
		else if (!status)
			status = print_table(snapshot, forecasts, error);
		client_close(&client);
		result = status ? 1 : 0;
	}
	json_destroy(&options);
	json_destroy(&forecasts);
	json_destroy(&snapshot);
	return result;
}

static const struct flag flags[] = {
	{"for", "SPAN", "how far ahead the points of --json go: 10m (1h at most)",
	 offsetof(struct cli_arguments, lasting)},
	{"watts", "W", "if it draws this much from now on; without it, as much as now",
	 offsetof(struct cli_arguments, watts)},
	{"memory", NULL, "of its memory instead of its core", offsetof(struct cli_arguments, memory)},
	{0},
};

const struct cli_command forecast_command = {
	.name = "forecast",
	.operand = "[DEVICE]",
	.summary = "how hot devices will be, and when they slow down",
	.more = "DEVICE is an id, a name, or the beginning of either; without it, all devices. REACHED IN is the time "
		"until\n"
		"the device slows itself down for heat, if it goes on as now. SUSTAINS is the power that it can draw "
		"for\n"
		"ever and stay 5 °C under its limit. ERROR is the mean error of forecasts a minute ahead.\n",
	.flags = flags,
	.run = run,
};

// ---- its policy ----

static enum status read_celsius(const char *flag, const char *text, struct json *params, const char *name,
				struct error *error)
{
	char *end;
	errno = 0;
	const double value = text ? strtod(text, &end) : 0;
	if (!text)
		return STATUS_OK;
	if (end == text || *end || errno || !(value >= 1 && value <= 40))
		return error_set(error, STATUS_INVALID_PARAMS, "--%s takes degrees from 1 to 40, such as 5", flag);
	json_set_number(params, name, value);
	return STATUS_OK;
}

// "limit,pause", or "none". The server refuses words that it does not know.
static enum status read_actions(const char *text, struct json *params, struct error *error)
{
	char word[32];
	if (!text)
		return STATUS_OK;
	struct json *actions = json_new_array();
	json_set(params, "actions", actions);
	for (const char *at = strcmp(text, "none") ? text : ""; *at; at += at[0] == ',') {
		const size_t length = strcspn(at, ",");
		if (!length || length >= sizeof word)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "--actions takes words with commas between, such as limit,pause");
		snprintf(word, sizeof word, "%.*s", (int)length, at);
		json_push(actions, json_new_string(word));
		at += length;
	}
	return STATUS_OK;
}

static void print_policy(const struct json *policy, const char *label)
{
	char line[COMMAND_LABEL_BYTES + 256], list[128] = "";
	for (const struct json *one = json_first(json_get(policy, "actions")); one; one = json_next(one)) {
		const size_t length = strlen(list);
		snprintf(list + length, sizeof list - length, "%s%.20s", length ? ", " : "", json_string(one, ""));
	}
	snprintf(line, sizeof line, "%s: ", label);
	command_print_text(stdout, line, list[0] ? list : "nothing is done before the limit");
	command_say(stdout, "The target is %g °C under the limit; models work freely again %g °C under the target.",
		    json_get_number(policy, "margin_celsius", 0), json_get_number(policy, "resume_celsius", 0));
}

static int run_policy(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	const struct json *device = NULL;
	struct json *snapshot = NULL, *policy = NULL, *params = json_new_object();
	enum status status = read_celsius("margin", arguments->margin, params, "margin_celsius", error);
	if (!status)
		status = read_celsius("resume", arguments->resume, params, "resume_celsius", error);
	if (!status)
		status = read_actions(arguments->actions, params, error);
	int result = status ? 2 : command_open(arguments, &target, &client, error);
	if (!result) {
		const char *method = json_count(params) ? "thermal.policy_set" : "thermal.policy";
		status = command_device(client, arguments->operand, &snapshot, &device, error);
		if (!status) {
			json_set_string(params, "device_id",
					device ? json_get_string(device, "device_id", "") : arguments->operand);
			status = client_ask(client,
					    &(struct client_call){.method = method, .params = json_copy(params)},
					    &policy, error);
		}
		char label[COMMAND_LABEL_BYTES];
		if (!status && arguments->json)
			status = command_print_json(policy, error);
		else if (!status)
			print_policy(policy,
				     command_device_label(snapshot, json_get_string(policy, "device_id", ""), label));
		client_close(&client);
		result = status ? 1 : 0;
	}
	json_destroy(&params);
	json_destroy(&policy);
	json_destroy(&snapshot);
	return result;
}

static const struct flag policy_flags[] = {
	{"margin", "CELSIUS", "how far under the device's limit the target is", offsetof(struct cli_arguments, margin)},
	{"resume", "CELSIUS", "how much cooler than the target it is before models work freely again",
	 offsetof(struct cli_arguments, resume)},
	{"actions", "LIST", "what the server may do: limit,step_down,move,pause; none: nothing",
	 offsetof(struct cli_arguments, actions)},
	{0},
};

const struct cli_command forecast_policy_command = {
	.name = "forecast policy",
	.operand = "DEVICE",
	.summary = "what the server does before a device is too hot, or change it",
	.more = "Without an option it prints the policy. What is not given stays as it is; a change needs the scope "
		"admin.\n"
		"limit gives models less time, step_down loads them in a smaller format, move loads them on a cooler "
		"device,\n"
		"pause stops them until the device is cool again.\n",
	.flags = policy_flags,
	.run = run_policy,
};
