/* See cli.h. */
#include "server/cli/cli.h"

#include "common/base/limits.h"
#include "common/base/process.h"
#include "common/files/kernels_built.h"
#include "common/text/nearest.h"
#include "server/cli/commands/commands.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// The list that the overall help prints, in its order. Without `run`: help and version, which are done here, and the
// processes of their own, which main.c knows.
static const struct cli_command serve_command = {.name = "serve",
						 .summary = "run the server, its dashboard and this machine's node"};
static const struct cli_command node_command = {.name = "node", .summary = "lend this machine's devices to a server"};
static const struct cli_command help_command = {
	.name = "help", .operand = "[COMMAND]", .summary = "what a command does, with its options"};
static const struct cli_command version_command = {.name = "version",
						   .summary = "the version of this binary, and its CUDA kernels"};
static const struct cli_command *const commands[] = {
	&serve_command,
	&node_command,
	&open_command,
	&devices_drain_command,
	&devices_return_command,
	&devices_command,
	&nodes_approve_command,
	&nodes_refuse_command,
	&nodes_remove_command,
	&nodes_command,
	&topology_command,
	&discover_command,
	&ticket_create_command,
	&ticket_list_command,
	&ticket_revoke_command,
	&token_create_command,
	&token_list_command,
	&token_revoke_command,
	&alloc_list_command,
	&alloc_free_command,
	&alloc_command,
	&model_add_command,
	&model_upload_command,
	&model_list_command,
	&model_remove_command,
	&model_search_command,
	&model_catalog_command,
	&model_browse_command,
	&place_command,
	&instances_command,
	&move_command,
	&stop_command,
	&run_model_command,
	&bench_device_command,
	&audit_list_command,
	&audit_verify_command,
	&audit_export_command,
	&alerts_ack_command,
	&alerts_rules_command,
	&alerts_rule_command,
	&alerts_channels_add_command,
	&alerts_channels_test_command,
	&alerts_channels_remove_command,
	&alerts_channels_command,
	&alerts_command,
	&history_command,
	&health_command,
	&log_command,
	&help_command,
	&version_command,
	&state_settle_command,
	&forecast_policy_command,
	&store_copy_command,
	&forecast_command,
	&usage_command,
	&conversations_list_command,
	&conversations_export_command,
	&conversations_delete_command,
	&mcp_command,
	&lend_list_command,
	&lend_revoke_command,
	&lend_policy_command,
	&lend_command,
};
// First words of those that have several.
static const char *const groups[] = {"token", "ticket", "lend",  "devices", "nodes",         "alloc",    "model",
				     "bench", "audit",  "state", "alerts",  "conversations", "forecast", "store"};
enum { COMMANDS = sizeof commands / sizeof *commands };
enum { NAME_COLUMNS = 28 }; // of a command with its operands, in the list of them

void cli_print_help(FILE *out)
{
	fprintf(out, "exogpu: every GPU that you own, as one machine\n\n"
		     "Usage: exogpu COMMAND [OPTION...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++) {
		const char *operand = commands[i]->operand ? commands[i]->operand : "";
		fprintf(out, "  %s %-*s%s\n", commands[i]->name, (int)(NAME_COLUMNS - strlen(commands[i]->name)),
			operand, commands[i]->summary);
	}
	fprintf(out, "\nexogpu help COMMAND shows the options of each. All but serve and node ask the server that runs "
		     "on the data\n"
		     "directory (--data DIR, else $EXOGPU_DATA, else $XDG_DATA_HOME/exogpu, else "
		     "~/.local/share/exogpu), or the\n"
		     "one at --url or $EXOGPU_URL with the token in $EXOGPU_TOKEN; --ca says whom they trust for "
		     "https://. With\n"
		     "--json they print the answer, or the error, as JSON.\n");
}

static bool is_process(const struct cli_command *command)
{
	return command == &serve_command || command == &node_command;
}

static void print_command_help(const struct cli_command *command)
{
	printf("exogpu %s: %s\n\nUsage: exogpu %s%s%s%s\n", command->name, command->summary, command->name,
	       command->operand ? " " : "", command->operand ? command->operand : "",
	       command->run ? " [OPTION...]\n" : "");
	if (!command->run)
		return;
	flags_print(command->flags, stdout);
	flags_print(arguments_common, stdout);
	if (command->more)
		printf("\n%s", command->more);
}

static int complain(const struct error *error, int exit_status)
{
	// It may be the server's word.
	command_say(stderr, "exogpu: %s", error->message[0] ? error->message : status_text(error->status));
	if (error->hint[0])
		command_say(stderr, "  %s", error->hint);
	return exit_status;
}

// As complain, for programs: one line, an object.
static int complain_json(const struct error *error, int exit_status)
{
	struct buffer text;
	struct json *object = json_new_object();
	json_set_string(object, "error", status_word(error->status));
	json_set_string(object, "message", error->message[0] ? error->message : status_text(error->status));
	json_set_string(object, "hint", error->hint[0] ? error->hint : NULL);
	buffer_init(&text, LIMIT_HEAD_BYTES);
	if (json_print(object, &text))
		complain(error, exit_status);
	else
		command_put_json(stderr, buffer_text(&text));
	buffer_finish(&text);
	json_destroy(&object);
	return exit_status;
}

static int too_many(const char *word)
{
	struct error error = {0};
	error_set(&error, STATUS_INVALID_PARAMS,
		  word[0] == '-' ? "there is no option %.60s" : "\"%.60s\" is one argument too many", word);
	error_hint(&error, "see: exogpu --help");
	return complain(&error, 2);
}

// How many words a command's name has, if argv begins with them; else 0.
static int words_of(const char *name, int argc, char **argv)
{
	for (int words = 0; words < argc;) {
		const size_t length = strcspn(name, " ");
		if (strlen(argv[words]) != length || memcmp(argv[words], name, length) != 0)
			return 0;
		words++;
		if (!name[length])
			return words;
		name += length + 1;
	}
	return 0;
}

// The command that the words begin with, and how many words it has. Of those that share words the longest is listed
// first.
static const struct cli_command *find_command(int argc, char **argv, int *words)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if ((*words = words_of(commands[i]->name, argc, argv)))
			return commands[i];
	return NULL;
}

// "token", without one of its second words.
static bool is_group(const char *word)
{
	size_t length = strlen(word);
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strncmp(commands[i]->name, word, length) && commands[i]->name[length] == ' ')
			return true;
	return false;
}

static void print_group_help(const char *word, FILE *out)
{
	size_t length = strlen(word);
	fprintf(out, "Usage: exogpu %s COMMAND [OPTION...]\n\n", word);
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strncmp(commands[i]->name, word, length) && commands[i]->name[length] == ' ')
			fprintf(out, "  exogpu %s %-*s%s\n", commands[i]->name,
				(int)(NAME_COLUMNS - strlen(commands[i]->name)),
				commands[i]->operand ? commands[i]->operand : "", commands[i]->summary);
	fprintf(out, "\nexogpu help %s COMMAND shows the options of each.\n", word);
}

static int unknown_command(int argc, char **argv)
{
	struct error error = {0};
	struct nearest nearest;
	bool group = is_group(argv[0]);
	const char *word = group && argc > 1 ? argv[1] : argv[0];
	size_t skip = group ? strlen(argv[0]) + 1 : 0;
	nearest_start(&nearest, word, strlen(word));
	for (size_t i = 0; i < COMMANDS; i++) {
		const char *name = commands[i]->name;
		if (!group && !strchr(name, ' '))
			nearest_offer(&nearest, name);
		else if (group && strlen(name) > skip && !memcmp(name, argv[0], skip - 1) && name[skip - 1] == ' ')
			nearest_offer(&nearest, name + skip);
	}
	for (size_t i = 0; !group && i < sizeof groups / sizeof *groups; i++)
		nearest_offer(&nearest, groups[i]);
	if (group && word[0] == '-')
		error_set(&error, STATUS_INVALID_PARAMS, "a command is missing between %s and %.60s", argv[0], word);
	else
		error_set(&error, STATUS_INVALID_PARAMS, "there is no command \"%s%s%.60s\"", group ? argv[0] : "",
			  group ? " " : "", word);
	if (nearest.best)
		error_hint(&error, "did you mean exogpu %s%s%s?", group ? argv[0] : "", group ? " " : "", nearest.best);
	else if (group)
		error_hint(&error, "see: exogpu help %s", argv[0]);
	else
		error_hint(&error, "see: exogpu --help");
	return complain(&error, 2);
}

// A command with a process of its own explains itself.
static int ask_process(const struct cli_command *command)
{
	char binary[4096];
	struct error error = {0};
	if (process_binary(binary, sizeof binary, &error))
		return complain(&error, 1);
	fflush(stdout);
	execl(binary, "exogpu", command->name, "--help", (char *)NULL);
	error_errno(&error, STATUS_UNAVAILABLE, errno, "%s cannot be started", binary);
	return complain(&error, 1);
}

static int help(int argc, char **argv)
{
	int words = 1;
	const struct cli_command *command = find_command(argc, argv, &words);
	if (argc && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")))
		command = &help_command;
	if (command && argc > words)
		return too_many(argv[words]);
	if (!argc)
		cli_print_help(stdout);
	else if (command && is_process(command))
		return ask_process(command);
	else if (command)
		print_command_help(command);
	else if (argc == 1 && is_group(argv[0]))
		print_group_help(argv[0], stdout);
	else
		return unknown_command(argc, argv);
	return 0;
}

static void print_version(void)
{
	struct kernels_built built;
	struct buffer text;
	buffer_init(&text, sizeof(built));
	kernels_built_read(&built);
	kernels_built_print(&built, &text);
	printf("exogpu %s\nCUDA kernels: %s\n", EXOGPU_VERSION, buffer_text(&text));
	buffer_finish(&text);
}

static int version(int argc, char **argv)
{
	if (argc == 1 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")))
		print_command_help(&version_command);
	else if (argc)
		return too_many(argv[0]);
	else
		print_version();
	return 0;
}

// Looked for before the arguments are read, since a mistake in them is told in the same way.
static bool wants_json(int argc, char **argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
	struct cli_arguments arguments;
	struct error error = {0};
	int result = arguments_parse(&arguments, command->flags, command->operand, argc, argv, &error) ? 2 : 0;
	if (!result && arguments.help) {
		print_command_help(command);
		return 0;
	}
	if (!result)
		result = command->run(&arguments, &error);
	if (result == 2)
		error_hint(&error, "see: exogpu help %s", command->name);
	if (!result)
		return 0;
	return wants_json(argc, argv) ? complain_json(&error, result) : complain(&error, result);
}

static int run_group(int argc, char **argv)
{
	const char *second = argc > 1 ? argv[1] : "";
	if (argc == 1) {
		print_group_help(argv[0], stderr);
		return 2;
	}
	if (!strcmp(second, "--help") || !strcmp(second, "-h") || !strcmp(second, "help")) {
		print_group_help(argv[0], stdout);
		return 0;
	}
	return unknown_command(argc, argv);
}

static int dispatch(int argc, char **argv)
{
	int words;
	const char *first = argc ? argv[0] : "";
	const struct cli_command *command = find_command(argc, argv, &words);
	if (!argc) {
		cli_print_help(stderr);
		return 2;
	}
	if (command && command->run)
		return run_command(command, argc - words, argv + words);
	if (command == &help_command || !strcmp(first, "--help") || !strcmp(first, "-h"))
		return help(argc - 1, argv + 1);
	if (command == &version_command || !strcmp(first, "--version"))
		return version(argc - 1, argv + 1);
	if (is_group(first))
		return run_group(argc, argv);
	if (first[0] == '-') {
		struct error error = {0};
		error_set(&error, STATUS_INVALID_PARAMS, "the command comes first, before %.60s", first);
		error_hint(&error, "see: exogpu --help");
		return complain(&error, 2);
	}
	return unknown_command(argc, argv);
}

int cli_main(int argc, char **argv)
{
	int result = dispatch(argc - 1, argv + 1);
	if (fflush(stdout) && !result) {
		struct error error = {0};
		error_errno(&error, STATUS_UNAVAILABLE, errno, "standard output could not be written");
		return complain(&error, 1);
	}
	return result;
}
