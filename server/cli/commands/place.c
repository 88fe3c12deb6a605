/* `exogpu place`: where a model goes, and loading it. See place.h. */
#include "server/cli/commands/place.h"

#include "server/cli/format.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 200, START_MS = 120000, ROOM_BYTES = 80 };

enum status place_find_model(struct client *client, const char *name, struct json **model, struct error *error)
{
	struct json *answer = NULL;
	char names[200] = "";
	*model = NULL;
	enum status status = client_ask(client, &(struct client_call){.method = "model.list"}, &answer, error);
	if (status)
		return status;
	for (const struct json *one = json_first(json_get(answer, "models")); one && !*model; one = json_next(one)) {
		const char *known = json_get_string(one, "name", "");
		size_t length = strlen(names);
		snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", known);
		if (!strcmp(known, name) || !strcmp(json_get_string(one, "model_id", ""), name))
			*model = json_copy(one);
	}
	json_destroy(&answer);
	if (*model)
		return STATUS_OK;
	error_set(error, STATUS_NOT_FOUND, "there is no model %.100s", name);
	if (names[0])
		error_hint(error, "there are: %s", names);
	else
		error_hint(error, "add it first: exogpu model add SOURCE");
	return STATUS_NOT_FOUND;
}

static enum status set_number(struct json *params, const char *name, const char *text, struct error *error)
{
	char *end;
	if (!text)
		return STATUS_OK;
	unsigned long long value = strtoull(text, &end, 10);
	if (text[0] < '1' || text[0] > '9' || *end || value > 16777216)
		return error_set(error, STATUS_INVALID_PARAMS, "%.40s is not a number of %s", text, name);
	json_set_integer(params, name, (int64_t)value);
	return STATUS_OK;
}

enum status place_number(struct json *json, const char *name, const char *text, struct error *error)
{
	char *end;
	if (!text)
		return STATUS_OK;
	const double value = strtod(text, &end);
	if (!text[0] || *end)
		return error_set(error, STATUS_INVALID_PARAMS, "%.40s is not a number of %s", text, name);
	json_set_number(json, name, value);
	return STATUS_OK;
}

enum status place_sampling(const struct cli_arguments *arguments, struct json *json, struct error *error)
{
	const struct {
		const char *name, *text;
	} all[] = {
		{"temperature", arguments->temperature},
		{"top_k", arguments->top_k},
		{"top_p", arguments->top_p},
		{"min_p", arguments->min_p},
		{"repetition_penalty", arguments->repetition_penalty},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
		status = place_number(json, all[i].name, all[i].text, error);
	return status;
}

enum status place_params(struct client *client, const struct cli_arguments *arguments, const struct json *model,
			 struct json **out, struct error *error)
{
	struct json *params = json_new_object(), *devices = NULL, *draft = NULL;
	const struct json *device;
	enum status status = set_number(params, "context_tokens", arguments->context, error);
	json_set_string(params, "model_id", json_get_string(model, "model_id", ""));
	if (!status)
		status = set_number(params, "sequences", arguments->sequences, error);
	if (arguments->format)
		json_set_string(params, "format", arguments->format);
	if (arguments->objective)
		json_set_string(params, "objective", arguments->objective);
	if (arguments->strategy)
		json_set_string(params, "strategy", arguments->strategy);
	if (arguments->chat_template)
		json_set_string(params, "chat_template", arguments->chat_template);
	if (arguments->gives_way)
		json_set_string(params, "gives_way", arguments->gives_way);
	if (!status && arguments->draft)
		status = place_find_model(client, arguments->draft, &draft, error);
	if (draft)
		json_set_string(params, "draft_model_id", json_get_string(draft, "model_id", ""));
	json_destroy(&draft);
	if (!status && arguments->device)
		status = command_device(client, arguments->device, &devices, &device, error);
	if (!status && arguments->device) {
		struct json *pins = json_new_array(), *pin = json_new_object();
		json_set_string(pin, "device_id",
				device ? json_get_string(device, "device_id", "") : arguments->device);
		json_set_integer(pin, "first_layer", 0);
		json_set_integer(pin, "layer_count", 0);
		json_push(pins, pin);
		json_set(params, "pins", pins);
	}
	json_destroy(&devices);
	if (status)
		json_destroy(&params);
	*out = params;
	return status;
}

// ---- loading ----

static void show_progress(const struct json *instance, bool terminal)
{
	char text[FORMAT_BYTES];
	const struct json *progress = json_get(instance, "progress");
	const int64_t total = json_get_integer(progress, "total_bytes", 0);
	if (terminal && total > 0)
		fprintf(stderr, "\rloading  %s\033[K",
			format_memory_of(json_get_integer(progress, "loaded_bytes", 0), total, text));
}

// The instance as it is now; NULL: it is gone.
static enum status look(struct client *client, const char *id, struct json **instance, struct error *error)
{
	struct json *answer = NULL;
	enum status status = client_ask(client, &(struct client_call){.method = "instance.list"}, &answer, error);
	const struct json *one = command_find(json_get(answer, "instances"), "instance_id", id, NULL);
	*instance = one ? json_copy(one) : NULL;
	json_destroy(&answer);
	return status;
}

enum status place_wait(struct client *client, const char *id, struct json **instance, struct error *error)
{
	const bool terminal = isatty(STDERR_FILENO);
	for (;;) {
		enum status status = look(client, id, instance, error);
		const char *state = json_get_string(*instance, "state", "");
		if (!status && !strcmp(state, "starting")) {
			show_progress(*instance, terminal);
			json_destroy(instance);
			nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
			continue;
		}
		if (terminal)
			fprintf(stderr, "\r\033[K");
		if (!status && !*instance)
			status = error_set(error, STATUS_UNAVAILABLE, "it was stopped before it was ready");
		else if (!status && strcmp(state, "running") != 0)
			status = error_set(error, STATUS_UNAVAILABLE, "it could not be started: %.358s",
					   json_get_string(*instance, "state_reason", "no reason given"));
		return status;
	}
}

enum status place_start(struct client *client, struct json *params, struct json **instance, struct error *error)
{
	struct json *answer = NULL;
	struct client_wait wait = {.timeout_ms = START_MS, .result = &answer};
	*instance = NULL;
	enum status status = client_send(client, &(struct client_call){.method = "instance.create", .params = params},
					 &wait.id, error);
	if (!status)
		status = client_wait(client, &wait, error);
	if (!status)
		status = place_wait(client, json_get_string(answer, "instance_id", ""), instance, error);
	json_destroy(&answer);
	return status;
}

// ---- place ----

static void print_texts(const struct json *texts, const char *before)
{
	for (const struct json *one = json_first(texts); one; one = json_next(one))
		command_print_text(stdout, before, json_get_string(one, "text", ""));
}

static const char *name_of(const struct json *list, const char *key, const char *id)
{
	return json_get_string(command_find(list, key, id, NULL), "name", id);
}

static void print_hops(const struct json *placement, const struct json *nodes)
{
	for (const struct json *one = json_first(json_get(placement, "hops")); one; one = json_next(one)) {
		char line[400], time[FORMAT_BYTES];
		const double seconds = json_get_number(one, "seconds_per_token", -1);
		snprintf(line, sizeof line, "from %.100s to %.100s (%.20s): %lld bytes a token, %s",
			 name_of(nodes, "node_id", json_get_string(one, "from_node_id", "")),
			 name_of(nodes, "node_id", json_get_string(one, "to_node_id", "")),
			 json_get_string(one, "class", ""), (long long)json_get_integer(one, "bytes_per_token", 0),
			 seconds < 0 ? "not measured yet" : format_quantity(seconds * 1e3, "ms", time));
		command_print_text(stdout, "", line);
	}
}

static void print_proof(const struct json *placement, bool pinned)
{
	const char *proof = json_get_string(placement, "proof", "");
	const double ms = json_get_number(placement, "search_ms", 0);
	if (!strcmp(proof, "optimal"))
		printf("proven to be the best, in %.0f ms\n", ms);
	else if (!strcmp(proof, "bound"))
		printf("the best found in %.0f ms; another one could take at most %.1f %% less time\n", ms,
		       json_get_number(placement, "gap", 0) * 100);
	else if (!strcmp(proof, "infeasible"))
		printf("%s\n", pinned ? "It does not fit there." : "It fits nowhere; this is proven.");
	else if (!strcmp(proof, "not_found"))
		printf("No placement was found in %.0f ms, but one may exist: exogpu serve "
		       "--placement-timeout allows more time.\n",
		       ms);
}

static const struct table_column score_columns[] = {
	{.title = "DEVICE", .narrowest = 12},
	{.title = "NODE", .narrowest = 8},
	{.title = "SCORE", .right = true},
	{.title = "COMPUTE", .right = true, .leave_out = 2},
	{.title = "MEMORY", .right = true, .leave_out = 3},
	{.title = "NETWORK", .right = true, .leave_out = 4},
	{.title = "HEAT", .right = true, .leave_out = 5},
	{.title = "BANDWIDTH", .right = true, .leave_out = 1},
};

static enum status print_scores(const struct json *placement, const struct json *snapshot, struct error *error)
{
	static const char *const names[] = {"total", "compute", "memory", "network", "thermal", "bandwidth"};
	const struct terminal terminal = terminal_of_stdout();
	struct table table;
	size_t rows = 0;
	table_init(&table, score_columns, sizeof score_columns / sizeof *score_columns);
	for (const struct json *one = json_first(json_get(placement, "devices")); one; one = json_next(one)) {
		const char *id = json_get_string(one, "device_id", "");
		const struct json *score = json_get(one, "score");
		const struct json *device = command_find(json_get(snapshot, "devices"), "device_id", id, NULL);
		if (json_type(score) != JSON_OBJECT)
			continue;
		table_add(&table, TONE_PLAIN, "%s", json_get_string(device, "name", id));
		table_add(&table, TONE_PLAIN, "%s",
			  name_of(json_get(snapshot, "nodes"), "node_id", json_get_string(device, "node_id", "")));
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			table_add(&table, TONE_PLAIN, "%.2f", json_get_number(score, names[i], 0));
		rows++;
	}
	if (rows)
		printf("\n");
	const enum status status = rows ? table_print(&table, stdout, &terminal, error) : STATUS_OK;
	table_finish(&table);
	return status;
}

const char *place_layers(const struct json *one, char text[PLACE_LAYERS_BYTES])
{
	const long long first = json_get_integer(one, "first_layer", 0),
			count = json_get_integer(one, "layer_count", 0);
	if (count > 1)
		snprintf(text, PLACE_LAYERS_BYTES, "layers %lld to %lld", first, first + count - 1);
	else
		snprintf(text, PLACE_LAYERS_BYTES, "layer %lld", first);
	return text;
}

static void print_stages(const struct json *placement, const struct json *snapshot)
{
	for (const struct json *one = json_first(json_get(placement, "stages")); one; one = json_next(one)) {
		char line[400], layers[PLACE_LAYERS_BYTES], label[COMMAND_LABEL_BYTES], weights[FORMAT_BYTES],
			kv[FORMAT_BYTES];
		snprintf(line, sizeof line, "%s on %s: %s of weights, %s of KV cache", place_layers(one, layers),
			 command_device_label(snapshot, json_get_string(one, "device_id", ""), label),
			 format_memory(json_get_integer(one, "weights_bytes", -1), weights),
			 format_memory(json_get_integer(one, "kv_bytes", -1), kv));
		command_print_text(stdout, "", line);
	}
}

// For how many requests there is room, of a preview or an instance: what was asked for may be more than the model has.
static const char *room_of(const struct json *one, char text[ROOM_BYTES])
{
	const long long sequences = json_get_integer(one, "sequences", 0);
	snprintf(text, ROOM_BYTES, "%lld request%s at once, %lld tokens each", sequences, sequences == 1 ? "" : "s",
		 (long long)json_get_integer(one, "context_tokens", 0));
	return text;
}

static void print_predicted(const struct json *placement)
{
	const struct json *predicted = json_get(placement, "predicted");
	const long long sequences = json_get_integer(placement, "sequences", 0);
	if (json_type(predicted) == JSON_OBJECT && sequences > 1)
		printf("about %.1f tokens a second for one request alone, %.1f for %lld together\n",
		       json_get_number(predicted, "tokens_per_s", 0),
		       json_get_number(predicted, "together_tokens_per_s", 0), sequences);
	else if (json_type(predicted) == JSON_OBJECT)
		printf("about %.1f tokens a second\n", json_get_number(predicted, "tokens_per_s", 0));
	if (json_get_number(predicted, "prompt_tokens_per_s", -1) > 0)
		printf("about %.0f tokens a second of a long prompt\n",
		       json_get_number(predicted, "prompt_tokens_per_s", 0));
}

static enum status preview(struct client *client, const struct cli_arguments *arguments, struct json *params,
			   struct error *error)
{
	struct json *placement = NULL, *snapshot = NULL;
	struct client_wait wait = {.timeout_ms = START_MS, .result = &placement};
	enum status status = client_send(client, &(struct client_call){.method = "placement.preview", .params = params},
					 &wait.id, error);
	if (!status)
		status = client_wait(client, &wait, error);
	if (!status && arguments->json) {
		status = command_print_json(placement, error);
	} else if (!status) {
		char room[ROOM_BYTES];
		client_ask(client, &(struct client_call){.method = "cluster.snapshot"}, &snapshot, NULL);
		print_stages(placement, snapshot);
		print_hops(placement, json_get(snapshot, "nodes"));
		printf("for %s\n", room_of(placement, room));
		print_predicted(placement);
		print_proof(placement, arguments->device != NULL);
		print_texts(json_get(placement, "why"), "  ");
		print_texts(json_get(placement, "remedies"), "  what would help: ");
		status = print_scores(placement, snapshot, error);
	}
	json_destroy(&snapshot);
	json_destroy(&placement);
	return status;
}

static enum status start(struct client *client, const struct cli_arguments *arguments, struct json *params,
			 struct error *error)
{
	struct json *instance = NULL;
	char line[400], took[FORMAT_BYTES], room[ROOM_BYTES];
	enum status status = place_start(client, params, &instance, error);
	if (!status && arguments->json) {
		status = command_print_json(instance, error);
	} else if (!status) {
		snprintf(line, sizeof line, "%.128s is ready after %s, %s (%.64s)",
			 json_get_string(instance, "model_name", ""),
			 format_quantity(json_get_number(instance, "load_ms", 0) / 1000, "s", took),
			 room_of(instance, room), json_get_string(instance, "instance_id", ""));
		command_print_text(stdout, "", line);
	}
	json_destroy(&instance);
	return status;
}

static int run_place(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *model = NULL, *params = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (result)
		return result;
	enum status status = place_find_model(client, arguments->operand, &model, error);
	if (!status)
		status = place_params(client, arguments, model, &params, error);
	struct json *sampling = json_new_object();
	if (!status)
		status = place_sampling(arguments, sampling, error);
	if (!status && json_count(sampling))
		json_set(params, "sampling", json_copy(sampling));
	json_destroy(&sampling);
	if (!status && arguments->least_format && !arguments->preview)
		json_set_string(params, "least_format", arguments->least_format);
	if (!status && arguments->preview)
		status = preview(client, arguments, params, error);
	else if (!status)
		status = start(client, arguments, params, error);
	json_destroy(&model);
	client_close(&client);
	return status ? 1 : 0;
}

static const struct flag flags[] = {
	{"preview", NULL, "only say where it would go and why", offsetof(struct cli_arguments, preview)},
	{"device", "DEVICE", "on this device: an id, a name, or the beginning of either",
	 offsetof(struct cli_arguments, device)},
	{"context", "N", "tokens of one request at most (default: the model's, or as memory allows)",
	 offsetof(struct cli_arguments, context)},
	{"sequences", "N", "requests that run at once (default: as memory allows, 8 to 32; to 128 on CUDA GPUs)",
	 offsetof(struct cli_arguments, sequences)},
	{"objective", "WHAT", "latency (default): the time per token of one request; throughput: all requests together",
	 offsetof(struct cli_arguments, objective)},
	{"strategy", "WHAT",
	 "auto (default): the faster one; pipeline: devices one after another; tensor: equal GPUs of a machine, "
	 "each with a slice of every layer; hybrid: several such groups one after another",
	 offsetof(struct cli_arguments, strategy)},
	{"chat-template", "NAME",
	 "write conversations like this, instead of by the file's own template: llama3, llama3.1, llama3.2, "
	 "chatml, "
	 "qwen1.5, qwen2, qwen2.5, qwen3, qwen3-instruct, qwen3-thinking, qwq, smollm2, llama2, mistral, mistral-v7, "
	 "deepseek-r1, deepseek-r1-0528, deepseek-v3, zephyr",
	 offsetof(struct cli_arguments, chat_template)},
	{"draft", "MODEL",
	 "a small model with the same tokens, which proposes tokens that MODEL computes several of in one step",
	 offsetof(struct cli_arguments, draft)},
	{"gives-way", "HOW",
	 "what happens when it is idle and another model needs its memory: spill (default): its layers go to the "
	 "host's memory; unload: it is unloaded; never: it stays",
	 offsetof(struct cli_arguments, gives_way)},
	{"format", "FORMAT", "hold 16- and 32-bit weights in Q8_0 or Q4_0; auto: only if memory is short",
	 offsetof(struct cli_arguments, format)},
	{"least-format", "FORMAT",
	 "while a device is held back for its heat, 16- and 32-bit weights may go down to Q8_0, or to Q4_0 "
	 "(default: heat does not change the format)",
	 offsetof(struct cli_arguments, least_format)},
	PLACE_SAMPLING_FLAGS,
	{0},
};

const struct cli_command place_command = {
	.name = "place",
	.operand = "MODEL",
	.summary = "load a model, or preview where it would go",
	.more = "MODEL is a name or an id of exogpu model list. Programs then use it at /v1, with the scope infer.\n"
		"Loading needs the scope admin, a preview does not.\n",
	.flags = flags,
	.run = run_place,
};
