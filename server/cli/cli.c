/* See cli.h. */
#include "server/cli/cli.h"

#include "common/base/process.h"
#include "server/cli/commands.h"
#include "server/cli/format.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// The list that the overall help prints, in its order. A NULL `run` is a process of its own, which main.c knows.
static const struct cli_command serve_command = {.name = "serve",
						 .summary = "run the server, its dashboard and this machine's node"};
static const struct cli_command node_command = {.name = "node", .summary = "offer this machine's devices to a server"};
static const struct cli_command *const commands[] = {
	&serve_command,        &node_command,       &devices_command,      &nodes_command,
	&token_create_command, &token_list_command, &token_revoke_command,
};
enum { COMMANDS = sizeof commands / sizeof *commands };

void cli_print_help(FILE *out)
{
	fprintf(out, "exogpu: every GPU that you own, as one machine\n\n"
		     "Usage: exogpu COMMAND [OPTION...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++) {
		const char *operand = commands[i]->operand ? commands[i]->operand : "";
		fprintf(out, "  %s %-*s%s\n", commands[i]->name, (int)(16 - strlen(commands[i]->name)), operand,
			commands[i]->summary);
	}
	fprintf(out, "  %-17s%s\n  %-17s%s\n\n", "help COMMAND", "what a command does, with its options", "version",
		"the version of this binary");
	fprintf(out,
		"devices, nodes and token ask the server that runs on the data directory (--data DIR, else "
		"EXOGPU_DATA,\n"
		"else $XDG_DATA_HOME/exogpu, else ~/.local/share/exogpu), or the one at --url or EXOGPU_URL with the\n"
		"token in EXOGPU_TOKEN. With --json they print the answer as JSON.\n");
}

static void print_flags(const struct cli_flag *flags)
{
	for (; flags && flags->name; flags++) {
		char left[40];
		snprintf(left, sizeof left, "--%s%s%s", flags->name, flags->value ? " " : "",
			 flags->value ? flags->value : "");
		if (flags->help)
			printf("  %-20s  %s\n", left, flags->help);
	}
}

static void print_command_help(const struct cli_command *command)
{
	printf("exogpu %s: %s\n\nUsage: exogpu %s%s%s [OPTION...]\n\n", command->name, command->summary, command->name,
	       command->operand ? " " : "", command->operand ? command->operand : "");
	print_flags(command->flags);
	print_flags(arguments_common);
	if (command->more)
		printf("\n%s", command->more);
}

static int complain(const struct error *error, int exit_status)
{
	fprintf(stderr, "exogpu: %s\n", error->message[0] ? error->message : status_text(error->status));
	if (error->hint[0])
		fprintf(stderr, "  %s\n", error->hint);
	return exit_status;
}

// The command that the words begin with, and how many words it has. A command has one word or two.
static const struct cli_command *find_command(int argc, char **argv, int *words)
{
	for (size_t i = 0; i < COMMANDS; i++) {
		const char *name = commands[i]->name;
		size_t first = strcspn(name, " ");
		if (argc < 1 || strlen(argv[0]) != first || memcmp(argv[0], name, first) != 0)
			continue;
		*words = name[first] ? 2 : 1;
		if (!name[first] || (argc > 1 && !strcmp(argv[1], name + first + 1)))
			return commands[i];
	}
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

static void print_group_help(const char *word)
{
	size_t length = strlen(word);
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strncmp(commands[i]->name, word, length) && commands[i]->name[length] == ' ')
			printf("  exogpu %s %-*s%s\n", commands[i]->name, (int)(16 - strlen(commands[i]->name)),
			       commands[i]->operand ? commands[i]->operand : "", commands[i]->summary);
	printf("\nexogpu help %s COMMAND says more.\n", word);
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
		if (!group)
			nearest_offer(&nearest, strchr(name, ' ') ? "token" : name);
		else if (strlen(name) > skip && !memcmp(name, argv[0], skip - 1) && name[skip - 1] == ' ')
			nearest_offer(&nearest, name + skip);
	}
	if (!group) {
		nearest_offer(&nearest, "help");
		nearest_offer(&nearest, "version");
	}
	if (group && argc < 2)
		error_set(&error, STATUS_INVALID_PARAMS, "%s needs to be told what to do", argv[0]);
	else
		error_set(&error, STATUS_INVALID_PARAMS, "there is no command \"%s%s%.60s\"", group ? argv[0] : "",
			  group ? " " : "", word);
	if (nearest.best && !(group && argc < 2))
		error_hint(&error, "did you mean exogpu %s%s%s?", group ? argv[0] : "", group ? " " : "", nearest.best);
	else if (group)
		error_hint(&error, "exogpu help %s lists what it can do", argv[0]);
	else
		error_hint(&error, "exogpu --help lists the commands");
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
	int words;
	const struct cli_command *command = find_command(argc, argv, &words);
	if (!argc)
		cli_print_help(stdout);
	else if (command && !command->run)
		return ask_process(command);
	else if (command)
		print_command_help(command);
	else if (argc == 1 && is_group(argv[0]))
		print_group_help(argv[0]);
	else
		return unknown_command(argc, argv);
	return 0;
}

static int run_command(const struct cli_command *command, int argc, char **argv)
{
	struct cli_arguments arguments;
	struct error error = {0};
	if (arguments_parse(&arguments, command->flags, command->operand, argc, argv, &error)) {
		error_hint(&error, "exogpu help %s", command->name);
		return complain(&error, 2);
	}
	if (arguments.help) {
		print_command_help(command);
		return 0;
	}
	int result = command->run(&arguments, &error);
	if (result == 2)
		error_hint(&error, "exogpu help %s", command->name);
	return result ? complain(&error, result) : 0;
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
	if (!strcmp(first, "help") || !strcmp(first, "--help") || !strcmp(first, "-h"))
		return help(argc - 1, argv + 1);
	if (!strcmp(first, "version") || !strcmp(first, "--version")) {
		printf("exogpu %s\n", EXOGPU_VERSION);
		return 0;
	}
	if (is_group(first) && argc > 1 &&
	    (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")))
		return help(1, argv);
	if (first[0] == '-') {
		struct error error = {0};
		error_set(&error, STATUS_INVALID_PARAMS, "the command comes first, before %.60s", first);
		error_hint(&error, "exogpu --help lists the commands");
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
