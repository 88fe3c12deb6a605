/* `exogpu instances`, `exogpu move`, `exogpu stop`: which models are loaded, and what becomes of them. */
#include "server/cli/commands/place.h"
#include "server/cli/format.h"

#include <stdio.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "MODEL", .narrowest = 12},
	{.title = "STATE"},
	{.title = "FORMAT", .leave_out = 3},
	{.title = "DEVICES", .right = true, .leave_out = 2},
	{.title = "MEMORY", .right = true},
	{.title = "RUNNING", .right = true},
	{.title = "WAITING", .right = true},
	{.title = "TOKENS/S", .right = true},
	{.title = "OFFERED", .right = true, .leave_out = 4},
	{.title = "SINCE", .right = true, .leave_out = 1},
	{.title = "ID"},
};

// How many times as fast it would be elsewhere.
static void add_offer(struct table *table, const struct json *offer)
{
	const double now = json_get_number(offer, "now_tokens_per_s", 0);
	if (now > 0)
		table_add(table, TONE_GOOD, "%.1f x", json_get_number(offer, "tokens_per_s", 0) / now);
	else
		table_add(table, TONE_PLAIN, "%s", "");
}

static int percent_of(const struct json *progress)
{
	const double total = json_get_number(progress, "total_bytes", 0),
		     percent = total > 0 ? 100 * json_get_number(progress, "loaded_bytes", 0) / total : 0;
	return percent < 100 ? (int)percent : 100; // whatever a worker says
}

static void add_row(struct table *table, const struct json *one)
{
	char text[FORMAT_BYTES];
	int64_t bytes = 0;
	const char *state = json_get_string(one, "state", "");
	const struct json *stages = json_get(one, "stages");
	enum table_tone tone = !strcmp(state, "running")  ? TONE_GOOD
			       : !strcmp(state, "failed") ? TONE_BAD
							  : TONE_ATTENTION;
	for (const struct json *stage = json_first(stages); stage; stage = json_next(stage))
		bytes += json_get_integer(stage, "weights_bytes", 0) + json_get_integer(stage, "kv_bytes", 0) +
			 json_get_integer(stage, "workspace_bytes", 0) + json_get_integer(stage, "host_bytes", 0);
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "model_name", ""));
	if (json_get_integer(json_get(one, "progress"), "total_bytes", 0) > 0)
		table_add(table, tone, "%s %d %%", state, percent_of(json_get(one, "progress")));
	else
		table_add(table, tone, "%s", state);
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "format", ""));
	table_add(table, TONE_PLAIN, "%zu", json_count(stages));
	table_add(table, TONE_PLAIN, "%s", format_memory(bytes, text));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(one, "running", 0));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(one, "waiting", 0));
	if (json_type(json_get(one, "tokens_per_s")) == JSON_NUMBER)
		table_add(table, TONE_PLAIN, "%.1f", json_get_number(one, "tokens_per_s", 0));
	else
		table_add(table, TONE_PLAIN, "%s", "");
	add_offer(table, json_get(one, "offer"));
	table_add(table, TONE_PLAIN, "%s", format_age(command_age_ms(one, "created_at"), text));
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "instance_id", ""));
}

// How far each of several devices is.
static void print_loading(const struct json *one, const struct json *snapshot, const char *before)
{
	struct buffer line;
	buffer_init(&line, 65536);
	const struct json *parts = json_get(json_get(one, "progress"), "parts");
	for (const struct json *part = json_first(parts); part; part = json_next(part))
		for (const struct json *device = json_first(json_get(part, "devices")); device;
		     device = json_next(device)) {
			char text[COMMAND_LABEL_BYTES + 16], label[COMMAND_LABEL_BYTES];
			snprintf(text, sizeof text, "%s%s %d %%", line.length ? ", " : "",
				 command_device_label(snapshot, json_get_string(device, "device_id", ""), label),
				 percent_of(device));
			buffer_append_text(&line, text);
		}
	if (json_count(json_get(one, "stages")) > 1 && line.length && !line.failed)
		command_print_text(stdout, before, buffer_text(&line));
	buffer_finish(&line);
}

// A line for each range of layers that is gone: what held it, and where it goes.
static void print_missing(const struct json *one, const struct json *snapshot, const char *before)
{
	const struct json *missing = json_first(json_get(one, "missing"));
	for (; missing; missing = json_next(missing)) {
		char text[2 * COMMAND_LABEL_BYTES + 96], layers[PLACE_LAYERS_BYTES], from[COMMAND_LABEL_BYTES],
			label[COMMAND_LABEL_BYTES];
		const char *to = json_get_string(missing, "to_device_id", NULL);
		command_device_label(snapshot, json_get_string(missing, "device_id", ""), from);
		place_layers(missing, layers);
		if (to)
			snprintf(text, sizeof text, "%s, which %s held, %s to %s", layers, from,
				 json_get_integer(missing, "layer_count", 0) > 1 ? "go" : "goes",
				 command_device_label(snapshot, to, label));
		else
			snprintf(text, sizeof text, "missing: %s, which %s held", layers, from);
		command_print_text(stdout, before, text);
	}
}

// How far it is; why it is paused or has failed, what it lacks, and what to do.
static void print_reason(const struct json *one, const struct json *snapshot)
{
	char before[160], remedy[192];
	const char *reason = json_get_string(one, "state_reason", NULL);
	snprintf(before, sizeof before, "%.128s: ", json_get_string(one, "model_name", ""));
	print_loading(one, snapshot, before);
	if (reason)
		command_print_text(stdout, before, reason);
	print_missing(one, snapshot, before);
	snprintf(remedy, sizeof remedy, "%swhat would help: ", before);
	for (const struct json *text = json_first(json_get(one, "remedies")); text; text = json_next(text))
		command_print_text(stdout, remedy, json_string(text, ""));
}

static int run_instances(const struct cli_arguments *arguments, struct error *error)
{
	// The snapshot has the names of what they are on, too.
	return command_list(arguments,
			    &(struct command_list){.method = arguments->json ? "instance.list" : "cluster.snapshot",
						   .member = "instances",
						   .columns = columns,
						   .column_count = sizeof columns / sizeof *columns,
						   .add = add_row,
						   .below = print_reason,
						   .nothing = "No model is loaded. exogpu place MODEL loads one."},
			    error);
}

// The id that the operand is, or that of the only instance of the model that it names.
static int find_id(const struct cli_arguments *arguments, char id[64], struct error *error)
{
	struct target target;
	struct client *client;
	struct json *answer = NULL;
	const struct json *named = NULL;
	size_t count = 0;
	int result = command_open(arguments, &target, &client, error);
	if (result)
		return result;
	enum status status = client_ask(client, &(struct client_call){.method = "instance.list"}, &answer, error);
	client_close(&client);
	for (const struct json *one = json_first(json_get(answer, "instances")); one; one = json_next(one)) {
		if (strcmp(json_get_string(one, "model_name", ""), arguments->operand) != 0)
			continue;
		named = one;
		count++;
	}
	snprintf(id, 64, "%s", count == 1 ? json_get_string(named, "instance_id", "") : arguments->operand);
	json_destroy(&answer);
	if (!status && count > 1) {
		status = error_set(error, STATUS_CONFLICT, "%.100s is loaded %zu times", arguments->operand, count);
		error_hint(error, "give the id of one, as exogpu instances shows it");
	}
	return status ? 1 : 0;
}

static int act_on(const struct cli_arguments *arguments, const char *method, const char *done, struct error *error)
{
	struct json *params, *answer = NULL;
	char id[64];
	int result = find_id(arguments, id, error);
	if (result)
		return result;
	params = json_new_object();
	json_set_string(params, "instance_id", id);
	if (arguments->format)
		json_set_string(params, "format", arguments->format);
	result = command_call(arguments, method, params, &answer, error);
	if (error->status == STATUS_NOT_FOUND) { // the server's hint names a method
		error->hint[0] = 0;
		error_hint(error, "see: exogpu instances");
	}
	if (answer)
		command_print_text(stdout, done, json_get_string(answer, "instance_id", ""));
	json_destroy(&answer);
	return result;
}

static int run_stop(const struct cli_arguments *arguments, struct error *error)
{
	return act_on(arguments, "instance.delete", "stopped ", error);
}

static int run_move(const struct cli_arguments *arguments, struct error *error)
{
	return act_on(arguments, "instance.move",
		      arguments->format ? "its weights are converted if there is room: "
					: "it moves if there is a faster place: ",
		      error);
}

static const struct flag move_flags[] = {
	{"format", "FORMAT", "hold 16- and 32-bit weights in Q8_0 or Q4_0 from now on; file: the file's formats",
	 offsetof(struct cli_arguments, format)},
	{0},
};

const struct cli_command instances_command = {
	.name = "instances",
	.summary = "list the models that are loaded",
	.more = "OFFERED is how many times as fast a model would be on new devices; exogpu move accepts the "
		"offer.\n",
	.run = run_instances,
};
const struct cli_command stop_command = {
	.name = "stop",
	.operand = "ID",
	.summary = "unload a model and free its memory",
	.more = "ID is an id of exogpu instances, or the name of a model that is loaded once. Running requests\n"
		"end with an error. Needs the scope admin.\n",
	.run = run_stop,
};
const struct cli_command move_command = {
	.name = "move",
	.operand = "ID",
	.summary = "move a loaded model to a faster place, or change its format",
	.more = "ID is an id of exogpu instances, which shows offers of a faster place, or the name of a "
		"model that\n"
		"is loaded once. Running answers pause and then continue. Needs the scope admin.\n",
	.flags = move_flags,
	.run = run_move,
};
