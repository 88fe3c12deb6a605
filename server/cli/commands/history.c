/* `exogpu history`: the readings of a device over a time, as CSV. */
#include "common/base/clock.h"
#include "server/cli/commands/audit/audit.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <stdio.h>
#include <string.h>

enum { DAY_S = 86400, ASKED_MS = DAY_S * 1000 }; // a day is 1,440 rows, of the 2,000 that one answer has

static void print_cell(const char *text)
{
	char cell[128];
	snprintf(cell, sizeof cell, "%s", text);
	text_clean(cell);
	fputs(cell, stdout);
}

// A line of CSV. No value has a comma or a quotation mark: they are times, numbers and names of columns.
static void print_row(const struct json *row)
{
	bool first = true;
	for (const struct json *one = json_first(row); one; one = json_next(one), first = false) {
		if (!first)
			putchar(',');
		if (json_type(one) == JSON_STRING)
			print_cell(json_string(one, ""));
		else if (json_type(one) == JSON_NUMBER)
			printf("%.15g", json_number(one, 0));
	}
	fputs("\r\n", stdout);
}

struct span {
	const char *device_id;
	int64_t from_ms, to_ms;
	double step_s;
	bool json, headed; // headed: the line with the columns was printed
};

static enum status print_part(struct client *client, struct span *span, int64_t from_ms, struct error *error)
{
	char from[CLOCK_TEXT_BYTES], to[CLOCK_TEXT_BYTES];
	const int64_t to_ms = span->to_ms - from_ms > ASKED_MS ? from_ms + ASKED_MS : span->to_ms;
	struct json *params = json_new_object(), *answer = NULL;
	json_set_string(params, "device_id", span->device_id);
	json_set_string(params, "from", clock_format(from_ms, from));
	json_set_string(params, "to", clock_format(to_ms, to));
	json_set_number(params, "step_s", span->step_s);
	const struct client_call call = {.method = "telemetry.history", .params = params};
	const enum status status = client_ask(client, &call, &answer, error);
	if (status)
		return status;
	if (!span->headed && !span->json)
		print_row(json_get(answer, "columns"));
	span->headed = true;
	for (const struct json *row = json_first(json_get(answer, "rows")); row && !span->json; row = json_next(row))
		print_row(row);
	const enum status printed = span->json ? command_print_json(answer, error) : STATUS_OK;
	json_destroy(&answer);
	return printed;
}

// Without --from the last day.
static enum status read_span(const struct cli_arguments *arguments, struct span *span, struct error *error)
{
	int64_t step_s = 0;
	enum status status = audit_time("from", arguments->from ? arguments->from : "1d", &span->from_ms, error);
	if (!status)
		status = audit_time("to", arguments->to, &span->to_ms, error);
	if (!status && arguments->step)
		status = parse_duration(arguments->step, &step_s, error);
	if (!span->to_ms)
		span->to_ms = clock_wall_ms();
	span->step_s = (double)step_s;
	span->json = arguments->json;
	if (!status && span->from_ms >= span->to_ms)
		status = error_set(error, STATUS_INVALID_PARAMS, "--from must be before --to");
	return status;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *snapshot = NULL;
	const struct json *device = NULL;
	struct span span = {0};
	if (read_span(arguments, &span, error))
		return 2;
	int result = command_open(arguments, &target, &client, error);
	if (result)
		return result;
	enum status status = command_device(client, arguments->operand, &snapshot, &device, error);
	span.device_id = device ? json_get_string(device, "device_id", "") : arguments->operand;
	for (int64_t from_ms = span.from_ms; !status && from_ms < span.to_ms; from_ms += ASKED_MS)
		status = print_part(client, &span, from_ms, error);
	json_destroy(&snapshot);
	client_close(&client);
	return status ? 1 : 0;
}

static const struct flag flags[] = {
	{"from", "TIME", "from this time on: 2026-11-20, 2026-11-20T14:00:00Z, or 7d ago (default: 1d)",
	 offsetof(struct cli_arguments, from)},
	{"to", "TIME", "until before this time (default: now)", offsetof(struct cli_arguments, to)},
	{"step", "SPAN", "one line for this long, a minute or more (default: as it is kept)",
	 offsetof(struct cli_arguments, step)},
	{0},
};

const struct cli_command history_command = {
	.name = "history",
	.operand = "DEVICE",
	.summary = "print a device's readings over a time as CSV",
	.more = "A line for each minute: averages, and in the columns that end in _min and _max the least and the most "
		"of\n"
		"the minute. The last ten minutes come as sampled. What was not reported is empty; a time without\n"
		"readings has no line. Times are in UTC. With --json the answers of telemetry.history, one a line.\n"
		"  exogpu history GPU --from 7d > gpu.csv\n",
	.flags = flags,
	.run = run,
};
