/* See options.h. */
#include "engine/node/options.h"

#include "common/base/limits.h"
#include "common/base/paths.h"
#include "engine/backend.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static void print_help(void)
{
	printf("exogpu node: lend this machine's devices to a server\n"
	       "\n"
	       "  --join unix:PATH       the server's socket (default: the one in the data directory)\n"
	       "  --backends LIST        use only these: cuda, vulkan, cpu, separated by commas (default: all)\n"
	       "  --name NAME            what this node is called (default: the host's name)\n"
	       "  --data DIR             the data directory (default $EXOGPU_DATA, else $XDG_DATA_HOME/exogpu)\n"
	       "  --log-level LEVEL      error, warning, info (default) or debug\n"
	       "  --help                 this text\n"
	       "\n"
	       "The server starts the node of its own machine by itself. Joining a server on another machine (--join\n"
	       "HOST:PORT, --join auto, --ticket) is not there yet in this version.\n");
}

static enum status usage(struct error *error, const char *message)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s", message);
	error_hint(error, "exogpu node --help");
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

static enum status take(struct node_options *options, int option, const char **data, struct error *error)
{
	switch (option) {
	case 'j':
		return take_join(options, optarg, error);
	case 't':
		error_hint(error, "run exogpu serve on this machine: it starts the node by itself");
		return error_set(error, STATUS_INVALID_PARAMS, "joining by ticket is not there yet in this version");
	case 'b':
		return take_backends(options, optarg, error);
	case 'n':
		if (!*optarg || strlen(optarg) >= sizeof(options->name))
			return usage(error, "--name takes 1 to 64 bytes");
		text_copy(options->name, sizeof(options->name), optarg);
		return STATUS_OK;
	case 'd':
		*data = optarg;
		return STATUS_OK;
	case 'L':
		if (log_level_parse(optarg, &options->log_level))
			return usage(error, "--log-level takes error, warning, info or debug");
		return STATUS_OK;
	case 'h':
		options->help = true;
		print_help();
		return STATUS_OK;
	}
	return usage(error, "an option that is not known, or without its value");
}

enum status node_options_parse(struct node_options *options, int argc, char **argv, struct error *error)
{
	static const struct option known[] = {
		{"join", required_argument, NULL, 'j'},     {"ticket", required_argument, NULL, 't'},
		{"backends", required_argument, NULL, 'b'}, {"name", required_argument, NULL, 'n'},
		{"data", required_argument, NULL, 'd'},     {"log-level", required_argument, NULL, 'L'},
		{"help", no_argument, NULL, 'h'},           {0},
	};
	char data[4096];
	const char *flag = NULL;
	enum status status = STATUS_OK;
	int option;
	*options = (struct node_options){.log_level = LOG_INFO};
	for (int kind = 0; kind < BACKEND_COUNT; kind++)
		options->enabled[kind] = true;
	optind = 1;
	opterr = 0;
	while (!status && !options->help && (option = getopt_long(argc, argv, "", known, NULL)) != -1)
		status = take(options, option, &flag, error);
	if (!status && optind < argc && !options->help)
		status = usage(error, "node takes no arguments");
	if (status || options->help)
		return status;
	status = paths_data_directory(flag, data, sizeof(data), error);
	if (!status)
		status = paths_join(data, "node", options->data, sizeof(options->data), error);
	if (!status && !options->socket_path[0])
		status = paths_join(data, PATHS_SOCKET_NAME, options->socket_path, sizeof(options->socket_path), error);
	return status;
}
