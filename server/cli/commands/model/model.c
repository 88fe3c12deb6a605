/* `exogpu model`: make models known, list, remove and look for them. What the progress of an addition looks like is in
 * model_progress.c. */
#include "common/files/private_file.h"
#include "server/cli/commands/commands.h"
#include "server/cli/commands/model/model_progress.h"
#include "server/cli/format.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

enum { ACCESS_TOKEN_BYTES = 512, SEARCH_MS = 30000 };

// ---- add ----

static bool has_scheme(const char *source)
{
	static const char *const schemes[] = {"hf:", "ollama:", "file:", "http://", "https://"};
	for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
		if (!strncmp(source, schemes[i], strlen(schemes[i])))
			return true;
	return false;
}

// A path means this machine's where the server runs on it, and is made absolute here.
static enum status set_source(struct json *params, const char *source, const struct target *target, struct error *error)
{
	if (has_scheme(source) || (!target->socket_path[0] && *source == '/')) {
		json_set_string(params, "source", source);
		return STATUS_OK;
	}
	if (!target->socket_path[0]) {
		error_set(error, STATUS_INVALID_PARAMS, "%.200s is not a path on another machine: it is not absolute",
			  source);
		error_hint(error, "exogpu model upload %.180s sends a file of this machine to the server", source);
		return STATUS_INVALID_PARAMS;
	}
	char *path = realpath(source, NULL);
	if (!path) {
		error_errno(error, STATUS_NOT_FOUND, errno, "%.200s cannot be read", source);
		error_hint(error, "models come from a path of a file or a directory, https://..., "
				  "hf:owner/repo/file.gguf, hf:owner/repo or "
				  "ollama:name:tag");
		return STATUS_NOT_FOUND;
	}
	json_set_string(params, "source", path);
	free(path);
	return STATUS_OK;
}

static enum status set_token(struct json *params, const char *path, struct error *error)
{
	struct buffer text;
	if (!path)
		return STATUS_OK;
	buffer_init(&text, ACCESS_TOKEN_BYTES);
	enum status status = private_file_read(path, &text, error);
	if (status == STATUS_NOT_FOUND)
		error_set(error, status, "there is no file %.200s", path);
	while (!status && text.length && strchr("\r\n\t ", text.data[text.length - 1]))
		text.data[--text.length] = 0;
	if (!status && (!text.length || strlen(buffer_text(&text)) != text.length))
		status = error_set(error, STATUS_INVALID_PARAMS, "there is no token in %.200s", path);
	if (!status)
		json_set_string(params, "access_token", buffer_text(&text));
	if (text.data)
		OPENSSL_cleanse(text.data, text.capacity);
	buffer_finish(&text);
	return status;
}

static enum status add(struct client *client, const struct target *target, const struct cli_arguments *arguments,
		       struct error *error)
{
	struct json *params = json_new_object(), *model = NULL;
	enum status status = set_source(params, arguments->operand, target, error);
	if (arguments->name)
		json_set_string(params, "name", arguments->name);
	if (!status)
		status = set_token(params, arguments->token_file, error);
	if (status)
		json_destroy(&params);
	else
		status = client_ask(client, &(struct client_call){.method = "model.add", .params = params}, &model,
				    error);
	bool left = false;
	if (!status && !arguments->no_wait)
		status = model_progress_follow(client, &model, &left, error);
	if (!status && arguments->json)
		status = command_print_json(model, error);
	else if (!status)
		model_progress_print(model, left);
	json_destroy(&model);
	return status;
}

static int run_add(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	int result = command_open(arguments, &target, &client, error);
	if (!result)
		result = add(client, &target, arguments, error) ? 1 : 0;
	client_close(&client);
	return result;
}

// ---- list ----

static const struct table_column list_columns[] = {
	{.title = "NAME", .narrowest = 12},
	{.title = "STATE"},
	{.title = "FORMAT"},
	{.title = "KIND", .leave_out = 4},
	{.title = "PARAMETERS", .right = true, .leave_out = 2},
	{.title = "SIZE", .right = true},
	{.title = "INSTANCES", .right = true, .leave_out = 3},
	{.title = "SOURCE", .narrowest = 12, .leave_out = 1},
	{.title = "ID"},
};

static void add_row(struct table *table, const struct json *model)
{
	char text[FORMAT_BYTES], held[48];
	const struct json *architecture = json_get(model, "architecture"), *progress = json_get(model, "progress");
	const char *state = json_get_string(model, "state", "");
	const int64_t parameters = json_get_integer(architecture, "parameters", 0);
	const int64_t total = json_get_integer(progress, "total_bytes", 0);
	enum table_tone tone = !strcmp(state, "ready")         ? TONE_GOOD
			       : !strcmp(state, "downloading") ? TONE_ATTENTION
							       : TONE_BAD;
	table_add(table, TONE_PLAIN, "%s", json_get_string(model, "name", ""));
	if (total > 0)
		table_add(table, tone, "%s %d %%", json_get_string(progress, "step", ""),
			  (int)(100 * json_get_integer(progress, "done_bytes", 0) / total));
	else
		table_add(table, tone, "%s", state);
	table_add(table, TONE_PLAIN, "%s", model_format_text(architecture, held, sizeof held));
	table_add(table, TONE_PLAIN, "%s", json_get_string(architecture, "task", ""));
	table_add(table, TONE_PLAIN, "%s", parameters ? format_count((double)parameters, text) : "");
	table_add(table, TONE_PLAIN, "%s", format_memory(json_get_integer(model, "file_bytes", -1), text));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(model, "instances", 0));
	table_add(table, TONE_FAINT, "%s", json_get_string(model, "source", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(model, "model_id", ""));
}

static const struct table_column usable_columns[] = {
	{.title = "NAME", .narrowest = 12}, {.title = "STATE"}, {.title = "KIND"}, {.title = "SINCE"}};

static void add_usable(struct table *table, const struct json *model)
{
	const char *state = json_get_string(model, "state", "");
	table_add(table, TONE_PLAIN, "%s", json_get_string(model, "name", ""));
	table_add(table, !strcmp(state, "ready") ? TONE_GOOD : TONE_ATTENTION, "%s",
		  strcmp(state, "not_loaded") ? state : "not loaded");
	table_add(table, TONE_PLAIN, "%s", json_get_string(model, "task", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(model, "since", ""));
}

// With a token that may only use models: which there are, and whether they answer.
static int list_usable(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {.method = "chat.models",
					  .member = "models",
					  .columns = usable_columns,
					  .column_count = sizeof usable_columns / sizeof *usable_columns,
					  .add = add_usable,
					  .nothing = "No models. An admin adds them."};
	return command_list(arguments, &list, error);
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	struct error narrow = {0};
	const struct command_list list = {.method = "model.list",
					  .member = "models",
					  .columns = list_columns,
					  .column_count = sizeof list_columns / sizeof *list_columns,
					  .add = add_row,
					  .nothing = "No models. exogpu model add SOURCE adds one."};
	const int result = command_list(arguments, &list, error);
	if (error->status != STATUS_FORBIDDEN)
		return result;
	const int narrow_result = list_usable(arguments, &narrow);
	if (narrow.status == STATUS_FORBIDDEN) // the first refusal names the scope that shows most
		return result;
	*error = narrow;
	return narrow_result;
}

// ---- remove ----

// By its id, or by its name.
static enum status find_id(struct client *client, const char *text, char id[80], struct error *error)
{
	struct json *answer = NULL;
	snprintf(id, 80, "%.64s", text);
	enum status status = client_ask(client, &(struct client_call){.method = "model.list"}, &answer, error);
	const struct json *named = command_find(json_get(answer, "models"), "name", text, NULL);
	if (!status && named)
		snprintf(id, 80, "%.64s", json_get_string(named, "model_id", ""));
	json_destroy(&answer);
	return status;
}

static int run_remove(const struct cli_arguments *arguments, struct error *error)
{
	char id[80], line[200], size[FORMAT_BYTES];
	struct target target;
	struct client *client;
	struct json *answer = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (!result && find_id(client, arguments->operand, id, error))
		result = 1;
	if (!result) {
		struct json *params = json_new_object();
		json_set_string(params, "model_id", id);
		const struct client_call call = {.method = "model.remove", .params = params};
		result = client_ask(client, &call, &answer, error) ? 1 : 0;
	}
	if (answer && arguments->json) {
		result = command_print_json(answer, error) ? 1 : 0;
	} else if (answer) {
		const int64_t freed = json_get_integer(answer, "freed_bytes", 0);
		snprintf(line, sizeof line, "%s%s%s", json_get_string(answer, "model_id", ""), freed ? "; freed " : "",
			 freed ? format_memory(freed, size) : "");
		command_print_text(stdout, "removed ", line);
	}
	client_close(&client);
	json_destroy(&answer);
	return result;
}

// ---- search ----

static const struct table_column found_columns[] = {
	{.title = "SOURCE", .narrowest = 24},
	{.title = "FORMAT", .leave_out = 2},
	{.title = "SIZE", .right = true},
	{.title = "FITS"},
	{.title = "DOWNLOADS", .right = true, .leave_out = 1},
};

static void add_found(struct table *table, const struct json *found)
{
	char text[FORMAT_BYTES];
	const char *fits = json_get_string(found, "fits", "");
	const int64_t downloads = json_get_integer(found, "downloads", -1);
	const char *source = json_get_string(found, "source", ""), *end = strrchr(source, '/');
	const bool converted = end && !strcmp(end, "/model.safetensors");
	table_add(table, TONE_PLAIN, "%s", source);
	table_add(table, TONE_PLAIN, "%s", json_get_string(found, "format", converted ? "converted" : ""));
	table_add(table, TONE_PLAIN, "%s", format_memory(json_get_integer(found, "bytes", -1), text));
	if (json_get_bool(found, "added", false))
		table_add(table, TONE_GOOD, "added");
	else if (!strcmp(fits, "device"))
		table_add(table, TONE_GOOD, "one device");
	else if (!strcmp(fits, "devices"))
		table_add(table, TONE_ATTENTION, "several devices");
	else
		table_add(table, TONE_FAINT, "%s", !strcmp(fits, "no") ? "no" : "");
	table_add(table, TONE_FAINT, "%s", downloads >= 0 ? format_count((double)downloads, text) : "");
}

static int print_found(const struct json *answer, struct error *error)
{
	int result = 0;
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *rows = json_get(answer, "results");
	table_init(&table, found_columns, sizeof found_columns / sizeof *found_columns);
	for (const struct json *row = json_first(rows); row; row = json_next(row))
		add_found(&table, row);
	const struct json *silent = json_get(answer, "unreachable");
	if (json_count(rows)) {
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	} else if (json_count(silent)) { // what was not reached may have it
		error_set(error, STATUS_UNAVAILABLE, "it could not be searched everywhere, and nothing was found");
		error_hint(
			error,
			"without an internet connection, copy a .gguf file to this machine: exogpu model upload FILE");
		result = 1;
	} else {
		fprintf(stderr, "Nothing was found.\n");
	}
	table_finish(&table);
	for (const struct json *one = json_first(silent); one; one = json_next(one))
		command_print_text(stderr, "not reached: ", json_string(one, ""));
	return result;
}

static int run_search(const struct cli_arguments *arguments, struct error *error)
{
	int64_t id = 0;
	struct target target;
	struct client *client;
	struct json *answer = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (!result) {
		struct json *params = json_new_object();
		json_set_string(params, "text", arguments->operand);
		const struct client_call call = {.method = "model.search", .params = params};
		result = client_send(client, &call, &id, error) ? 1 : 0;
	}
	if (!result) {
		const struct client_wait wait = {.id = id, .timeout_ms = SEARCH_MS, .result = &answer};
		result = client_wait(client, &wait, error) ? 1 : 0;
	}
	if (answer && arguments->json)
		result = command_print_json(answer, error) ? 1 : 0;
	else if (answer)
		result = print_found(answer, error);
	client_close(&client);
	json_destroy(&answer);
	return result;
}

static const struct flag add_flags[] = {
	{"name", "NAME", "its name (default: from the source)", offsetof(struct cli_arguments, name)},
	{"token-file", "FILE", "an access token for the source, if it needs one",
	 offsetof(struct cli_arguments, token_file)},
	{"no-wait", NULL, "return at once; a download continues by itself", offsetof(struct cli_arguments, no_wait)},
	{0},
};

const struct cli_command model_add_command = {
	.name = "model add",
	.operand = "SOURCE",
	.summary = "add a model: a file, a directory, or one to download",
	.more = "SOURCE is a GGUF file of the server's machine, a directory there with config.json, *.safetensors and\n"
		"tokenizer.json (it is converted; docs/models.md says which), https://HOST/FILE.gguf,\n"
		"hf:OWNER/REPO/FILE.gguf, hf:OWNER/REPO (the file that fits best), or ollama:NAME:TAG.\n"
		"Of a repository that has only safetensors all files are fetched and converted on the server;\n"
		"hf:OWNER/REPO/model.safetensors asks for that. The disk must hold the model twice until it is done.\n"
		"Ctrl-C does not stop a download. Adding a failed download again continues it.\n",
	.flags = add_flags,
	.run = run_add,
};
const struct cli_command model_list_command = {
	.name = "model list",
	.summary = "list models, newest first",
	.run = run_list,
};
const struct cli_command model_remove_command = {
	.name = "model remove",
	.operand = "ID",
	.summary = "forget a model, by its id or name, and delete what was downloaded",
	.run = run_remove,
};
const struct cli_command model_search_command = {
	.name = "model search",
	.operand = "TEXT",
	.summary = "look for models on Hugging Face and in the Ollama library",
	.run = run_search,
};
