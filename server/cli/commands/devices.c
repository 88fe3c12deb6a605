/* `exogpu devices`: every device with its newest readings. Readings of a device that is offline are old, and not shown.
 */
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <stdio.h>
#include <string.h>

enum { REASONS = 10 }; // printed at most

static const struct table_column columns[] = {
	{.title = "NAME", .narrowest = 12},
	{.title = "NODE", .narrowest = 6, .leave_out = 4},
	{.title = "API", .narrowest = 8, .leave_out = 2},
	{.title = "STATE"},
	{.title = "SUPPORT", .leave_out = 1},
	{.title = "MEMORY", .right = true},
	{.title = "USE", .right = true},
	{.title = "POWER", .right = true, .leave_out = 5},
	{.title = "TEMP", .right = true},
	{.title = "ID", .leave_out = 3},
};

static enum table_tone state_tone(const char *state)
{
	if (!strcmp(state, "computing"))
		return TONE_GOOD;
	if (!strcmp(state, "throttled") || !strcmp(state, "draining") || !strcmp(state, "resting"))
		return TONE_ATTENTION;
	if (!strcmp(state, "offline") || !strcmp(state, "unsupported"))
		return TONE_BAD;
	return TONE_PLAIN;
}

// "CUDA 9.0, Vulkan 1.3": the name of each API, and of its version the first two parts.
static void add_apis(struct table *table, const struct json *device)
{
	static const char *const names[][2] = {
		{"cuda", "CUDA"}, {"hip", "HIP"}, {"vulkan", "Vulkan"}, {"webgpu", "WebGPU"}, {"cpu", "CPU"}};
	char text[256] = "";
	size_t used = 0;
	for (const struct json *api = json_first(json_get(device, "apis")); api; api = json_next(api)) {
		const char *backend = json_get_string(api, "backend", ""), *name = backend;
		const char *version = strcmp(backend, "cpu") ? json_get_string(api, "api_version", "") : "";
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			if (!strcmp(backend, names[i][0]))
				name = names[i][1];
		size_t major = strcspn(version, "."),
		       minor = version[major] ? strcspn(version + major + 1, ".") + 1 : 0;
		int length = snprintf(text + used, sizeof text - used, "%s%s%s%.*s", used ? ", " : "", name,
				      version[0] ? " " : "", (int)(major + minor), version);
		if (length < 0 || (size_t)length >= sizeof text - used)
			break;
		used += (size_t)length;
	}
	table_add(table, TONE_PLAIN, "%s", text);
}

static void add_state(struct table *table, const struct json *device)
{
	char age[FORMAT_BYTES];
	const char *state = json_get_string(device, "state", "");
	int64_t since = strcmp(state, "offline") ? -1 : command_age_ms(device, "last_seen_at");
	if (since >= 0)
		table_add(table, state_tone(state), "%s %s", state, format_age(since, age));
	else
		table_add(table, state_tone(state), "%s", state);
}

static void add_support(struct table *table, const struct json *device)
{
	const char *verification = json_get_string(json_get(device, "verification"), "state", "");
	bool pending = !strcmp(verification, "pending");
	table_add(table, TONE_PLAIN, "%s%s", json_get_string(device, "support", ""),
		  pending ? ", not verified yet" : "");
}

static void add_readings(struct table *table, const struct json *device, const struct json *readings)
{
	char text[FORMAT_BYTES];
	int64_t total = json_get_integer(readings, "memory_total_bytes", -1);
	if (total < 0)
		total = json_get_integer(device, "memory_bytes", -1);
	int64_t used = json_get_integer(readings, "memory_used_bytes", -1);
	table_add(table, TONE_PLAIN, "%s", format_memory_of(used, total, text));
	table_add(table, TONE_PLAIN, "%s",
		  format_quantity(json_get_number(readings, "utilization_percent", -1), "%", text));
	table_add(table, TONE_PLAIN, "%s", format_quantity(json_get_number(readings, "power_watts", -1), "W", text));
	table_add(table, TONE_PLAIN, "%s",
		  format_quantity(json_get_number(readings, "temperature_celsius", -1), "°C", text));
}

static void add_device(struct table *table, const struct json *device, const struct json *node,
		       const struct json *readings)
{
	bool offline = !strcmp(json_get_string(device, "state", ""), "offline");
	table_add(table, TONE_PLAIN, "%s", json_get_string(device, "name", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(node, "name", ""));
	add_apis(table, device);
	add_state(table, device);
	add_support(table, device);
	add_readings(table, device, offline ? NULL : readings);
	table_add(table, TONE_PLAIN, "%s", json_get_string(device, "device_id", ""));
}

// Why a device is in this state or, else, in this class of support; "" if there is no more to say.
static const char *reason_of(const struct json *device, const char **word)
{
	const char *why = json_get_string(device, "state_reason", "");
	*word = json_get_string(device, "state", "");
	if (!strcmp(*word, "offline"))
		return ""; // the node says why
	if (why[0])
		return why;
	*word = json_get_string(device, "support", "");
	return json_get_string(device, "support_reason", "");
}

// To standard error, so that a pipe gets the table alone.
static void print_reasons(const struct json *snapshot)
{
	char line[COMMAND_LABEL_BYTES + 64], label[COMMAND_LABEL_BYTES];
	size_t count = 0;
	fflush(stdout); // the table comes first
	const struct json *device = json_first(json_get(snapshot, "devices"));
	for (; device; device = json_next(device)) {
		const char *word, *why = reason_of(device, &word);
		if (!why[0] || count++ >= REASONS)
			continue;
		snprintf(line, sizeof line, "%s is %.40s: ",
			 command_device_label(snapshot, json_get_string(device, "device_id", ""), label), word);
		command_print_text(stderr, line, why);
	}
	if (count > REASONS)
		fprintf(stderr, "and %zu more; --json has all\n", count - REASONS);
}

static void print_none(const struct json *snapshot)
{
	if (json_get_bool(snapshot, "discovering", false))
		fprintf(stderr,
			"No devices yet: this machine's are still being searched for. Try again in a moment.\n");
	else if (json_count(json_get(snapshot, "nodes")))
		fprintf(stderr, "No devices yet. A node reports its own within seconds of its start;\n"
				"exogpu nodes --wide shows which libraries each one found.\n");
	else
		fprintf(stderr,
			"No devices: no node has come yet. exogpu serve starts one for its own machine,\n"
			"unless it was told --no-local-node; exogpu node on another machine brings that one's.\n");
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct json *snapshot = NULL;
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *node = NULL, *readings = NULL;
	if (arguments->wide) {
		error_set(error, STATUS_INVALID_PARAMS, "there is no option --wide");
		error_hint(error, "exogpu nodes --wide shows the libraries of each machine");
		return 2;
	}
	int result = command_call(arguments, "cluster.snapshot", NULL, &snapshot, error);
	if (result || !snapshot)
		return result;
	const struct json *devices = json_get(snapshot, "devices"), *nodes = json_get(snapshot, "nodes");
	const struct json *telemetry = json_get(json_get(snapshot, "telemetry"), "devices");
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *device = json_first(devices); device; device = json_next(device)) {
		node = command_find(nodes, "node_id", json_get_string(device, "node_id", ""), node);
		readings = command_find(telemetry, "device_id", json_get_string(device, "device_id", ""), readings);
		add_device(&table, device, node, readings);
	}
	if (!json_count(devices)) {
		print_none(snapshot);
	} else {
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
		print_reasons(snapshot);
		if (json_get_bool(snapshot, "discovering", false))
			fprintf(stderr, "This machine's devices are still being searched for: there may be more in a "
					"moment.\n");
	}
	table_finish(&table);
	json_destroy(&snapshot);
	return result;
}

// No new work for a device, or work again.
static int set_drain(const struct cli_arguments *arguments, bool drain, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *snapshot = NULL, *answer = NULL, *params = json_new_object();
	const struct json *device = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (result) {
		json_destroy(&params);
		return result;
	}
	enum status status = command_device(client, arguments->operand, &snapshot, &device, error);
	json_set_string(params, "device_id", device ? json_get_string(device, "device_id", "") : arguments->operand);
	json_set_bool(params, "drain", drain);
	if (status)
		json_destroy(&params);
	else
		status = client_ask(client, &(struct client_call){.method = "device.drain", .params = params}, &answer,
				    error);
	if (!status && arguments->json) {
		status = command_print_json(answer, error);
	} else if (!status) {
		char line[COMMAND_LABEL_BYTES + 192], label[COMMAND_LABEL_BYTES];
		const char *id = json_get_string(answer, "device_id", "");
		snprintf(line, sizeof line, "%s (%.64s) %s", command_device_label(snapshot, id, label), id,
			 drain ? "is draining: models on it move away, and it gets no new work" : "is back in service");
		command_print_text(stdout, "", line);
	}
	json_destroy(&answer);
	json_destroy(&snapshot);
	client_close(&client);
	return status ? 1 : 0;
}

static int run_drain(const struct cli_arguments *arguments, struct error *error)
{
	return set_drain(arguments, true, error);
}

static int run_return(const struct cli_arguments *arguments, struct error *error)
{
	return set_drain(arguments, false, error);
}

const struct cli_command devices_drain_command = {
	.name = "devices drain",
	.operand = "DEVICE",
	.summary = "give a device no new work; models on it move away",
	.more = "DEVICE is an id, a name, or the beginning of either. Sessions keep the memory that they hold there;\n"
		"running answers pause and then continue. Needs the scope admin.\n",
	.run = run_drain,
};
const struct cli_command devices_return_command = {
	.name = "devices return",
	.operand = "DEVICE",
	.summary = "return a drained device to service",
	.run = run_return,
};

// Known, so that who looks for it here is told where it is.
static const struct flag flags[] = {
	{"wide", NULL, NULL, offsetof(struct cli_arguments, wide)},
	{0},
};

const struct cli_command devices_command = {
	.name = "devices",
	.summary = "list the devices with their newest readings",
	.more = "A reading that the hardware does not report is \"-\". With --json: the result of cluster.snapshot.\n",
	.flags = flags,
	.run = run,
};
