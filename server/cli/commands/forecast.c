/* `exogpu forecast`: how hot devices will be, and when they slow down. */
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
