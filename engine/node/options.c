/* See options.h. */
#include "engine/node/options.h"

#include "common/base/flags.h"
#include "common/base/limits.h"
#include "common/base/paths.h"
#include "engine/backend.h"

#include <stdio.h>
#include <string.h>

// As they are on the command line.
struct words {
	const char *join, *ticket, *backends, *name, *data, *log_level;
	bool help;
};

static const struct flag flags[] = {
	{"join", "unix:PATH", "the server's socket (default: DIR/" PATHS_SOCKET_NAME ", that of the data directory)",
	 offsetof(struct words, join)},
	{"ticket", "TICKET", NULL, offsetof(struct words, ticket)},
	{"backends", "LIST", "use only these: cuda, vulkan, cpu, separated by commas (default: all)",
	 offsetof(struct words, backends)},
	{"name", "NAME", "what this node is called (default: the host's name)", offsetof(struct words, name)},
	{"data", "DIR",
	 "the data directory; the node keeps its own in DIR/node\n"
	 "(default $EXOGPU_DATA, $XDG_DATA_HOME/exogpu, ~/.local/share/exogpu)",
	 offsetof(struct words, data)},
	{"log-level", "LEVEL", "error, warning, info (default) or debug", offsetof(struct words, log_level)},
	{"help", NULL, "this text", offsetof(struct words, help)},
	{0},
};

static void print_help(void)
{
	printf("exogpu node: lend this machine's devices to a server\n\n"
	       "Usage: exogpu node [OPTION...]\n\n");
	flags_print(flags, stdout);
	printf("\n"
	       "The server starts the node of its own machine by itself. Joining a server on another machine (--join\n"
	       "HOST:PORT, --join auto, --ticket) is not there yet in this version.\n");
}

static enum status usage(struct error *error, const char *message)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s", message);
	error_hint(error, "see: exogpu node --help");
	return STATUS_INVALID_PARAMS;
}

static enum status take_join(struct node_options *options, const char *join, struct error *error)
{
	static const char scheme[] = "unix:";
	if (strncmp(join, scheme, sizeof(scheme) - 1)) {
		error_hint(error, "run exogpu serve on this machine: it starts the node by itself");
		return error_set(error, STATUS_INVALID_PARAMS,
				 "joining a server on another machine (--join %.60s) is not there yet in this version",
				 join);
	}
	const char *path = join + sizeof(scheme) - 1;
	if (!path[0] || strlen(path) > LIMIT_SOCKET_PATH_BYTES)
		return usage(error, "--join takes unix:PATH, the path of 1 to 107 bytes");
	text_copy(options->socket_path, sizeof(options->socket_path), path);
	return STATUS_OK;
}

static enum status take_backends(struct node_options *options, const char *list, struct error *error)
{
	memset(options->enabled, 0, sizeof(options->enabled));
	while (*list) {
		char name[32];
		size_t length = strcspn(list, ",");
		snprintf(name, sizeof(name), "%.*s", (int)length, list);
		enum backend_kind kind = backend_kind_parse(name);
		if (!backend_find(kind)) {
			error_hint(error, "choose from cuda, vulkan and cpu");
			return error_set(error, STATUS_INVALID_PARAMS, "--backends: this build has no back end \"%s\"",
					 name);
		}
		options->enabled[kind] = true;
		list += length + (list[length] == ',');
	}
	return STATUS_OK;
}

static enum status take(struct node_options *options, const struct words *words, struct error *error)
{
	enum status status = STATUS_OK;
	if (words->ticket) {
		error_hint(error, "run exogpu serve on this machine: it starts the node by itself");
		return error_set(error, STATUS_INVALID_PARAMS, "joining by ticket is not there yet in this version");
	}
	if (words->join)
		status = take_join(options, words->join, error);
	if (!status && words->backends)
		status = take_backends(options, words->backends, error);
	if (status)
		return status;
	if (words->name && strlen(words->name) >= sizeof(options->name))
		return usage(error, "--name takes 1 to 64 bytes");
	if (words->name)
		text_copy(options->name, sizeof(options->name), words->name);
	if (words->log_level && log_level_parse(words->log_level, &options->log_level))
		return usage(error, "--log-level takes error, warning, info or debug");
	return STATUS_OK;
}

enum status node_options_parse(struct node_options *options, int argc, char **argv, struct error *error)
{
	char data[4096];
	struct words words = {0};
	*options = (struct node_options){.log_level = LOG_INFO};
	for (int kind = 0; kind < BACKEND_COUNT; kind++)
		options->enabled[kind] = true;
	enum status status = flags_read(&(struct flags){.own = flags}, &words, argc - 1, argv + 1, error);
	if (status)
		error_hint(error, "see: exogpu node --help");
	options->help = !status && words.help;
	if (options->help)
		print_help();
	if (status || options->help)
		return status;
	status = take(options, &words, error);
	if (!status)
		status = paths_data_directory(words.data, data, sizeof(data), error);
	if (!status)
		status = paths_join(data, "node", options->data, sizeof(options->data), error);
	if (!status && !options->socket_path[0])
		status = paths_join(data, PATHS_SOCKET_NAME, options->socket_path, sizeof(options->socket_path), error);
	return status;
}
