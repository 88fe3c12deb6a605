/* `exogpu nodes`: every machine; with --wide also its back ends and run-time libraries, each with what to do about it.
 */
#include "common/base/clock.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct table_column columns[] = {
	{.title = "NAME", .narrowest = 8},
	{.title = "STATE"},
	{.title = "OS", .narrowest = 10, .leave_out = 3},
	{.title = "CPU", .narrowest = 12, .leave_out = 4},
	{.title = "MEMORY", .right = true},
	{.title = "DEVICES", .right = true},
	{.title = "VERSION", .leave_out = 2},
	{.title = "ID", .leave_out = 1},
};

static enum table_tone state_tone(const char *state)
{
	if (!strcmp(state, "online"))
		return TONE_GOOD;
	return strcmp(state, "offline") ? TONE_ATTENTION : TONE_BAD;
}

static void add_cpu(struct table *table, const struct json *node)
{
	const char *model = json_get_string(node, "cpu_model", "");
	int64_t cores = json_get_integer(node, "cpu_cores", -1);
	if (cores < 0)
		table_add(table, TONE_PLAIN, "%s", model);
	else
		table_add(table, TONE_PLAIN, "%s%s%lld core%s", model, model[0] ? ", " : "", (long long)cores,
			  cores == 1 ? "" : "s");
}

// How many of its devices can be used, where that is not all of them.
static void add_devices(struct table *table, const struct json *devices, const char *node_id)
{
	unsigned all = 0, usable = 0;
	for (const struct json *device = json_first(devices); device; device = json_next(device)) {
		const char *state = json_get_string(device, "state", "");
		if (strcmp(json_get_string(device, "node_id", ""), node_id) != 0)
			continue;
		all++;
		usable += strcmp(state, "offline") != 0 && strcmp(state, "unsupported") != 0;
	}
	if (usable == all)
		table_add(table, TONE_PLAIN, "%u", all);
	else
		table_add(table, TONE_PLAIN, "%u of %u", usable, all);
}

static void add_node(struct table *table, const struct json *node, const struct json *devices,
		     const struct json *readings)
{
	char text[FORMAT_BYTES];
	const char *state = json_get_string(node, "state", ""), *node_id = json_get_string(node, "node_id", "");
	bool offline = !strcmp(state, "offline");
	int64_t since = offline ? command_age_ms(node, "last_seen_at") : -1;
	int64_t total = json_get_integer(readings, "memory_total_bytes", json_get_integer(node, "memory_bytes", -1));
	int64_t available = offline ? -1 : json_get_integer(readings, "memory_available_bytes", -1);
	table_add(table, TONE_PLAIN, "%s", json_get_string(node, "name", ""));
	int64_t ends_ms;
	if (!clock_parse(json_get_string(node, "ends_at", ""), &ends_ms)) {
		const int64_t left_ms = ends_ms - clock_wall_ms();
		table_add(table, TONE_ATTENTION, "%s, leaves in %s", state,
			  format_age(left_ms < 0 ? 0 : left_ms, text));
	} else {
		table_add(table, state_tone(state), "%s%s%s", state, since < 0 ? "" : " ",
			  since < 0 ? "" : format_age(since, text));
	}
	table_add(table, TONE_PLAIN, "%s", json_get_string(node, "os", ""));
	add_cpu(table, node);
	table_add(table, TONE_PLAIN, "%s",
		  format_memory_of(available < 0 || available > total ? -1 : total - available, total, text));
	add_devices(table, devices, node_id);
	table_add(table, TONE_PLAIN, "%s", json_get_string(node, "version", ""));
	table_add(table, TONE_PLAIN, "%s", node_id);
}

static void print_libraries(const struct json *node)
{
	size_t widest = 0;
	const struct json *libraries = json_get(node, "libraries");
	for (const struct json *one = json_first(libraries); one; one = json_next(one)) {
		size_t width = text_width(json_get_string(one, "name", ""));
		widest = width > widest ? width : widest;
	}
	for (const struct json *one = json_first(libraries); one; one = json_next(one)) {
		char line[256];
		const char *name = json_get_string(one, "name", ""), *state = json_get_string(one, "state", "");
		const char *version = json_get_string(one, "version", ""),
			   *minimum = json_get_string(one, "minimum_version", "");
		bool old = !strcmp(state, "too_old");
		snprintf(line, sizeof line, "%s%*s  %-7s  %.60s%s%.60s", name, (int)(widest - text_width(name)), "",
			 old ? "too old" : state, version, old && minimum[0] ? ", needs " : "", old ? minimum : "");
		command_print_text(stdout, "  ", line);
		if (json_get_string(one, "reason", "")[0])
			command_print_text(stdout, "      ", json_get_string(one, "reason", ""));
		if (json_get_string(one, "hint", "")[0])
			command_print_text(stdout, "      ", json_get_string(one, "hint", ""));
	}
}

static void print_wide(const struct json *node)
{
	char line[512];
	printf("\n");
	snprintf(line, sizeof line, "%.100s: host %.100s, %.100s, %.60s", json_get_string(node, "name", ""),
		 json_get_string(node, "host_name", "-"), json_get_string(node, "kernel", "-"),
		 json_get_string(node, "arch", "-"));
	command_print_text(stdout, "", line);
	if (json_get_string(node, "state_reason", "")[0])
		command_print_text(stdout, "  ", json_get_string(node, "state_reason", ""));
	for (const struct json *one = json_first(json_get(node, "backends")); one; one = json_next(one)) {
		const char *reason = json_get_string(one, "reason", "");
		snprintf(line, sizeof line, "back end %.16s: %s%s%.300s", json_get_string(one, "backend", ""),
			 json_get_bool(one, "enabled", false) ? "on" : "off", reason[0] ? ", " : "", reason);
		command_print_text(stdout, "  ", line);
	}
	print_libraries(node);
}

// Those that wait to be let in, with what to compare. Where the token is no admin's, nothing is said of them.
static void print_waiting(const struct cli_arguments *arguments)
{
	struct json *answer = NULL;
	struct error error = {0};
	char line[512], age[FORMAT_BYTES];
	struct cli_arguments quiet = *arguments;
	quiet.json = false;
	if (command_call(&quiet, "node.waiting", NULL, &answer, &error))
		return;
	for (const struct json *one = json_first(json_get(answer, "waiting")); one; one = json_next(one)) {
		const char *code = json_get_string(one, "code", NULL), *id = json_get_string(one, "node_id", "");
		int64_t since = command_age_ms(one, "requested_at");
		printf("\n");
		snprintf(line, sizeof line, "%.64s (%.64s) has waited for %s, from %.64s%s",
			 json_get_string(one, "name", ""), id, format_age(since, age), json_get_string(one, "peer", ""),
			 json_get_bool(one, "known", false) ? "; it would replace the node with this id" : "");
		command_print_text(stdout, "", line);
		if (code && strlen(code) == 6)
			snprintf(line, sizeof line,
				 "code %.3s %.3s: if the node shows the same, exogpu nodes approve %.64s %.6s", code,
				 code + 3, id, code);
		else
			snprintf(line, sizeof line, "its code is not known yet");
		command_print_text(stdout, "  ", line);
	}
	json_destroy(&answer);
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct json *snapshot = NULL;
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *readings = NULL;
	int result = command_call(arguments, "cluster.snapshot", NULL, &snapshot, error);
	if (result || !snapshot)
		return result;
	const struct json *nodes = json_get(snapshot, "nodes"), *devices = json_get(snapshot, "devices");
	const struct json *telemetry = json_get(json_get(snapshot, "telemetry"), "nodes");
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *node = json_first(nodes); node; node = json_next(node)) {
		readings = command_find(telemetry, "node_id", json_get_string(node, "node_id", ""), readings);
		add_node(&table, node, devices, readings);
	}
	if (!json_count(nodes))
		fprintf(stderr,
			"No nodes yet. exogpu serve starts one for its own machine, unless it was told "
			"--no-local-node;\n"
			"then exogpu node, with the same --data, brings it by hand. On another machine exogpu node\n"
			"finds a server that was started with --lan, and asks to be let in.\n");
	else
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	for (const struct json *node = json_first(nodes); node && !result && arguments->wide; node = json_next(node))
		print_wide(node);
	table_finish(&table);
	bool pending = false;
	for (const struct json *node = json_first(nodes); node; node = json_next(node))
		pending |= !strcmp(json_get_string(node, "state", ""), "pending");
	if (!result && pending)
		print_waiting(arguments);
	json_destroy(&snapshot);
	return result;
}

// One of the decisions about a node. code: as it is shown, also "622 249"; or NULL.
static int decide(const struct cli_arguments *arguments, const char *method, const char *node_id, const char *code,
		  const char *done, struct error *error)
{
	struct json *params = json_new_object(), *answer = NULL;
	char digits[16] = "";
	json_set_string(params, "node_id", node_id);
	for (size_t i = 0, used = 0; code && code[i] && used + 1 < sizeof digits; i++)
		if (code[i] != ' ')
			digits[used++] = code[i];
	if (code)
		json_set_string(params, "code", digits);
	int result = command_call(arguments, method, params, &answer, error);
	if (answer)
		command_print_text(stdout, done, json_get_string(answer, "node_id", ""));
	json_destroy(&answer);
	return result;
}

// The id of the node of this id, or of the one of this name that waits, or else is in the cluster; where there is none,
// the text as it is.
static enum status find_node(const struct json *nodes, const char *text, bool waits, const char **node_id,
			     struct error *error)
{
	unsigned count = 0;
	*node_id = text;
	if (command_find(nodes, "node_id", text, NULL))
		return STATUS_OK;
	for (const struct json *one = json_first(nodes); one; one = json_next(one)) {
		if (strcasecmp(json_get_string(one, "name", ""), text) != 0 ||
		    !strcmp(json_get_string(one, "state", ""), "pending") != waits)
			continue;
		*node_id = json_get_string(one, "node_id", "");
		count++;
	}
	if (count < 2)
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "%u nodes are called \"%.60s\"", count, text);
	error_hint(error, "give the id of one of them; exogpu nodes shows them");
	return STATUS_CONFLICT;
}

// A decision about the node that the operand names, of those that wait or of those in the cluster.
static int decide_named(const struct cli_arguments *arguments, const char *method, bool waits, const char *done,
			struct error *error)
{
	struct json *snapshot = NULL;
	struct cli_arguments quiet = *arguments;
	const char *text = arguments->operand, *node_id;
	quiet.json = false;
	int result = command_call(&quiet, "cluster.snapshot", NULL, &snapshot, error);
	if (!result)
		result = find_node(json_get(snapshot, "nodes"), text, waits, &node_id, error) ? 1 : 0;
	if (!result && waits && strcmp(node_id, text) != 0 && !arguments->second) {
		error_set(error, STATUS_INVALID_PARAMS, "to let a node in by its name, add its digits");
		error_hint(error, "any machine could have that name: add the six digits that it shows");
		result = 1;
	}
	if (!result)
		result = decide(arguments, method, node_id, arguments->second, done, error);
	json_destroy(&snapshot);
	return result;
}

static int run_approve(const struct cli_arguments *arguments, struct error *error)
{
	return decide_named(arguments, "node.approve", true, "let in ", error);
}

static int run_refuse(const struct cli_arguments *arguments, struct error *error)
{
	return decide(arguments, "node.refuse", arguments->operand, NULL, "turned away ", error);
}

static int run_remove(const struct cli_arguments *arguments, struct error *error)
{
	return decide_named(arguments, "node.remove", false, "removed ", error);
}

static const struct flag flags[] = {
	{"wide", NULL, "also the back ends and run-time libraries of each, with what to do about them",
	 offsetof(struct cli_arguments, wide)},
	{0},
};

const struct cli_command nodes_command = {
	.name = "nodes",
	.summary = "list the machines",
	.more = "With --json: the result of cluster.snapshot.\n",
	.flags = flags,
	.run = run,
};
const struct cli_command nodes_approve_command = {
	.name = "nodes approve",
	.operand = "NODE [CODE]",
	.summary = "let a waiting node in; first compare its six digits",
	.more = "NODE is an id, or with CODE a name, of exogpu nodes, which shows the digits. Let a node in only\n"
		"if it shows the same ones itself: if they differ, somebody is between it and this server. With\n"
		"CODE the node is let in only if its digits are CODE.\n",
	.run = run_approve,
};
const struct cli_command nodes_refuse_command = {
	.name = "nodes refuse",
	.operand = "ID",
	.summary = "turn a waiting node away",
	.run = run_refuse,
};
const struct cli_command nodes_remove_command = {
	.name = "nodes remove",
	.operand = "NODE",
	.summary = "remove a node: it is cut off at once, its certificate revoked",
	.more = "NODE is an id or a name of exogpu nodes. What sessions hold on its devices is lost. To come back\n"
		"the node must join again: exogpu node --join auto on its machine.\n",
	.run = run_remove,
};
