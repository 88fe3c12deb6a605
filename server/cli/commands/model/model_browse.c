/* `exogpu model browse`: what lies in the folders of the server's machine that `exogpu serve --model-dir` allows. */
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "PATH", .narrowest = 24},
	{.title = "SIZE", .right = true},
	{.title = "FILES", .right = true, .leave_out = 1},
	{.title = "MODEL"},
};

static void add_folder(struct table *table, const struct json *folder)
{
	const char *path = json_get_string(folder, "path", "");
	const size_t length = strlen(path);
	table_add(table, TONE_PLAIN, "%s%s", path, length && path[length - 1] == '/' ? "" : "/");
	table_add(table, TONE_FAINT, "folder");
	table_add(table, TONE_PLAIN, "%s", "");
	table_add(table, TONE_PLAIN, "%s", "");
}

static void add_file(struct table *table, const struct json *file)
{
	char size[FORMAT_BYTES];
	const char *model_id = json_get_string(file, "model_id", "");
	table_add(table, TONE_PLAIN, "%s", json_get_string(file, "path", ""));
	table_add(table, TONE_PLAIN, "%s", format_memory(json_get_integer(file, "bytes", -1), size));
	table_add(table, TONE_PLAIN, "%lld", (long long)json_get_integer(file, "parts", 1));
	table_add(table, *model_id ? TONE_GOOD : TONE_FAINT, "%s", *model_id ? model_id : "not added");
}

static int print(const struct json *answer, struct error *error)
{
	int result = 0;
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *dirs = json_get(answer, "dirs"), *files = json_get(answer, "files");
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *one = json_first(dirs); one; one = json_next(one))
		add_folder(&table, one);
	for (const struct json *one = json_first(files); one; one = json_next(one))
		add_file(&table, one);
	if (json_count(dirs) || json_count(files))
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	else if (json_get_string(answer, "dir", NULL))
		fprintf(stderr, "There are neither folders nor .gguf files here.\n");
	else
		fprintf(stderr, "No folder may be browsed. exogpu serve --model-dir DIR allows one.\n");
	table_finish(&table);
	if (json_get_bool(answer, "more", false))
		fprintf(stderr, "The folder has more than is listed here. Add a file by its path.\n");
	return result;
}

// The folder as the server writes paths. One that is not absolute is this machine's, where the server runs on it.
static enum status set_folder(struct json *params, const char *folder, const struct target *target, struct error *error)
{
	char *path = NULL;
	if (*folder == '/') {
		path = strdup(folder);
	} else if (target->socket_path[0]) {
		path = realpath(folder, NULL);
	} else {
		error_set(error, STATUS_INVALID_PARAMS, "%.200s is not a path on another machine: it is not absolute",
			  folder);
		error_hint(error, "exogpu model browse, without a folder, shows those that may be browsed");
		return STATUS_INVALID_PARAMS;
	}
	if (!path)
		return error_errno(error, STATUS_NOT_FOUND, errno, "%.200s cannot be read", folder);
	for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';)
		path[--length] = 0;
	json_set_string(params, "dir", path);
	free(path);
	return STATUS_OK;
}

static int run_browse(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *answer = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (!result) {
		struct json *params = json_new_object();
		const struct client_call call = {.method = "model.browse", .params = params};
		if (arguments->operand && set_folder(params, arguments->operand, &target, error)) {
			json_destroy(&params);
			result = 1;
		} else {
			result = client_ask(client, &call, &answer, error) ? 1 : 0;
		}
	}
	if (answer && arguments->json)
		result = command_print_json(answer, error) ? 1 : 0;
	else if (answer)
		result = print(answer, error);
	client_close(&client);
	json_destroy(&answer);
	return result;
}

const struct cli_command model_browse_command = {
	.name = "model browse",
	.operand = "[FOLDER]",
	.summary = "list the folders and model files of the server's machine that may be seen",
	.more = "Only folders that exogpu serve --model-dir DIR names, and those below them. Without FOLDER, these "
		"themselves.\n"
		"Add a file with: exogpu model add PATH\n",
	.run = run_browse,
};
