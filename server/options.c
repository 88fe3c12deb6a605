/* See options.h. */
#include "server/options.h"

#include "common/base/paths.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 52415 };

void options_print_help(void)
{
	printf("exogpu serve: run the server and this machine's node\n"
	       "\n"
	       "  --listen ADDRESS:PORT  where to listen (default 127.0.0.1:%d; port 0: any free one)\n"
	       "  --data DIR             the data directory (default $EXOGPU_DATA, $XDG_DATA_HOME/exogpu, "
	       "~/.local/share/exogpu)\n"
	       "  --name NAME            what this cluster is called (default: the host's name; kept)\n"
	       "  --no-local-node        do not offer this machine's devices\n"
	       "  --log-level LEVEL      error, warning, info (default) or debug\n"
	       "  --help                 this text\n"
	       "\n"
	       "Listens on loopback only in this version: --lan, --tls-cert and --tls-key come with TLS.\n"
	       "The first admin token is in DIR/admin.token.\n",
	       DEFAULT_PORT);
}

static enum status usage(struct error *error, const char *message)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s", message);
	error_hint(error, "exogpu serve --help");
	return STATUS_INVALID_PARAMS;
}

// Loopback, or the answer why not.
static enum status check_loopback(const struct options *options, struct error *error)
{
	if (!strncmp(options->address, "127.", 4) || !strcmp(options->address, "::1"))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  "%s is not a loopback address, and off loopback exogpu speaks TLS only, which is "
		  "not there yet",
		  options->address);
	error_hint(error, "listen on 127.0.0.1 and reach it through an SSH tunnel: ssh -L 52415:127.0.0.1:52415 HOST");
	return STATUS_INVALID_PARAMS;
}

// ADDRESS:PORT, [ADDRESS]:PORT, ADDRESS or :PORT.
static enum status parse_listen(struct options *options, const char *text, struct error *error)
{
	const char *colon = strrchr(text, ':'), *bracket = strchr(text, ']');
	size_t length = strlen(text);
	if (bracket)
		colon = bracket[1] == ':' ? bracket + 1 : NULL;
	if (colon) {
		char *end;
		long port = strtol(colon + 1, &end, 10);
		if (!colon[1] || *end || port < 0 || port > 65535)
			return usage(error, "--listen takes ADDRESS:PORT, the port from 0 to 65535");
		options->port = (int)port;
		length = (size_t)(colon - text);
	}
	if (length && *text == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (length >= sizeof options->address)
		return usage(error, "--listen takes a numeric address");
	if (length)
		snprintf(options->address, sizeof options->address, "%.*s", (int)length, text);
	if (!strcmp(options->address, "localhost"))
		snprintf(options->address, sizeof options->address, "127.0.0.1");
	return check_loopback(options, error);
}

static enum status take(struct options *options, int option, const char **data, bool *help, struct error *error)
{
	switch (option) {
	case 'l':
		return parse_listen(options, optarg, error);
	case 'd':
		*data = optarg;
		return STATUS_OK;
	case 'n':
		if (!*optarg || strlen(optarg) > 64)
			return usage(error, "--name takes 1 to 64 bytes");
		options->name = optarg;
		return STATUS_OK;
	case 'L':
		options->local_node = false;
		return STATUS_OK;
	case 'v':
		return log_level_parse(optarg, &options->log_level)
			       ? usage(error, "--log-level takes error, warning, info or debug")
			       : STATUS_OK;
	case 't':
		error_set(error, STATUS_INVALID_PARAMS, "TLS, and with it --lan, is not there yet");
		error_hint(error,
			   "serve on loopback and reach it through an SSH tunnel: ssh -L 52415:127.0.0.1:52415 HOST");
		return STATUS_INVALID_PARAMS;
	case 'h':
		*help = true;
		return STATUS_OK;
	}
	return usage(error, "an option is unknown or lacks its value");
}

enum status options_parse(struct options *options, int argc, char **argv, bool *help, struct error *error)
{
	static const struct option known[] = {{"listen", required_argument, NULL, 'l'},
					      {"data", required_argument, NULL, 'd'},
					      {"name", required_argument, NULL, 'n'},
					      {"no-local-node", no_argument, NULL, 'L'},
					      {"log-level", required_argument, NULL, 'v'},
					      {"lan", no_argument, NULL, 't'},
					      {"tls-cert", required_argument, NULL, 't'},
					      {"tls-key", required_argument, NULL, 't'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	const char *data = NULL;
	int option;
	*help = false;
	*options = (struct options){.port = DEFAULT_PORT, .local_node = true, .log_level = LOG_INFO};
	snprintf(options->address, sizeof options->address, "127.0.0.1");
	opterr = 0;
	optind = 1;
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		enum status status = take(options, option, &data, help, error);
		if (status || *help)
			return status;
	}
	if (optind < argc) {
		error_set(error, STATUS_INVALID_PARAMS, "serve takes no argument \"%.60s\"", argv[optind]);
		error_hint(error, "exogpu serve --help");
		return STATUS_INVALID_PARAMS;
	}
	return paths_data_directory(data, options->data, sizeof options->data, error);
}
