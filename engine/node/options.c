/* See options.h. */
#include "engine/node/options.h"

#include "common/base/limits.h"
#include "common/files/paths.h"
#include "common/text/duration.h"
#include "common/text/flags.h"
#include "common/text/ticket_text.h"
#include "engine/backend.h"
#include "engine/node/workers/spares.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MS_PER_S = 1000, QUARTER = 4 };

// The texts of the command line.
struct words {
	const char *join, *ticket, *backends, *name, *data, *spares, *lasts, *drain, *log_level, *parent;
	bool accept_code, no_announce, help;
};

static const struct flag flags[] = {
	{"join", "HOST:PORT",
	 "the server: its address or URL; of one on this machine unix:PATH; or auto: one that announces itself "
	 "on the local networks. Needed once at most: a node that has joined knows its server\n"
	 "(default: that one; else, where DIR is a server's, DIR/" PATHS_SOCKET_NAME "; else auto)",
	 offsetof(struct words, join)},
	{"ticket", "TICKET", "join with this ticket (on the server: exogpu ticket create; default $EXOGPU_TICKET)",
	 offsetof(struct words, ticket)},
	{"accept-code", NULL,
	 "join without a ticket where there is no terminal: nobody is asked here whether the six digits "
	 "are those of the dashboard. Then whoever answers at HOST:PORT may take this node for a cluster of "
	 "its own; compare the digits in this log before you let the node in",
	 offsetof(struct words, accept_code)},
	{"no-announce", NULL, "say nothing of this node on the local networks", offsetof(struct words, no_announce)},
	{"backends", "LIST", "use only these: cuda, vulkan, cpu, separated by commas (default: all)",
	 offsetof(struct words, backends)},
	{"name", "NAME", "the name of this node (default: the host's name)", offsetof(struct words, name)},
	{"data", "DIR",
	 "the data directory; the node keeps its own in DIR/node\n"
	 "(default $EXOGPU_DATA, $XDG_DATA_HOME/exogpu, ~/.local/share/exogpu)",
	 offsetof(struct words, data)},
	{"spares", "MS",
	 "keep a started worker for each device whose sessions waited longer than this for a worker: 1 to "
	 "60000 ms; off: none\n"
	 "(default $EXOGPU_SPARES, else 60 for GPUs and none for processors)",
	 offsetof(struct words, spares)},
	{"for", "SPAN",
	 "this machine is lent for so long: 90m, 2h, 7d. The server knows the end, and gives this node a model\n"
	 "within the last 10 minutes only if no other device holds it. Then the node drains (--drain), and ends "
	 "with status 0",
	 offsetof(struct words, lasts)},
	{"drain", "SPAN",
	 "before its end, and at SIGTERM or SIGINT, the node drains: its models move to other nodes, with what "
	 "they answer, and it ends as soon as no model and no session is left on it, at the latest after SPAN. A "
	 "second signal ends it at once. SIGUSR1 drains in any case\n"
	 "(default: 1m with --for, a quarter of a shorter one; without --for SIGTERM ends it at once)",
	 offsetof(struct words, drain)},
	{"parent", "PID",
	 "set by the server that starts this node: the node ends when that process is gone before it was ever "
	 "connected",
	 offsetof(struct words, parent)},
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
	       "The server starts the node of its own machine by itself. On another machine:\n"
	       "  exogpu node                    find a server that was started with --lan, and ask to join: a person\n"
	       "                                 compares six digits here with those on the dashboard, and confirms "
	       "there\n"
	       "  exogpu node --ticket TICKET    join at once; the ticket names the cluster\n"
	       "  exogpu node --join HOST:PORT   join the server at this address, if announcements do not reach this "
	       "machine;\n"
	       "                                 with or without a ticket. exogpu discover lists the servers that it "
	       "finds\n"
	       "The node keeps its certificate in DIR/node/tls and renews it by itself. It waits for a server that is "
	       "away,\n"
	       "and also tries other addresses that the server announces.\n");
}

static enum status usage(struct error *error, const char *message)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s", message);
	error_hint(error, "see: exogpu node --help");
	return STATUS_INVALID_PARAMS;
}

static enum status wrong_address(struct error *error, const char *text)
{
	error_set(error, STATUS_INVALID_PARAMS, "\"%.100s\" is no address of a server", text);
	error_hint(error, "--join takes HOST:PORT, [ADDRESS]:PORT, https://HOST:PORT/ or unix:PATH");
	return STATUS_INVALID_PARAMS;
}

enum status node_address_parse(const char *text, char host[256], int *port, struct error *error)
{
	static const char *const schemes[] = {"https://", "wss://"};
	const char *from = text;
	if (!strncasecmp(text, "http://", 7) || !strncasecmp(text, "ws://", 5)) {
		error_set(error, STATUS_INVALID_PARAMS, "nodes join by TLS, which http:// is without");
		error_hint(error, "start the server with --lan, and join https://HOST:PORT/");
		return STATUS_INVALID_PARAMS;
	}
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (!strncasecmp(text, schemes[i], strlen(schemes[i])))
			from = text + strlen(schemes[i]);
	const bool url = from != text, brackets = from[0] == '[';
	from += brackets;
	size_t length = strcspn(from, brackets ? "]/?# " : ":/?# ");
	const char *rest = from + length;
	if (!length || length >= 256 || (brackets && *rest++ != ']'))
		return wrong_address(error, text);
	snprintf(host, 256, "%.*s", (int)length, from);
	*port = url ? 443 : NODE_DEFAULT_PORT;
	if (*rest == ':') {
		char *end;
		long number = rest[1] >= '0' && rest[1] <= '9' ? strtol(rest + 1, &end, 10) : 0;
		if (number < 1 || number > 65535)
			return wrong_address(error, text);
		*port = (int)number;
		rest = end;
	}
	if (!*rest || (url && (!strcmp(rest, "/") || !strcmp(rest, "/node"))))
		return STATUS_OK;
	return wrong_address(error, text);
}

static enum status take_join(struct node_options *options, const char *join, struct error *error)
{
	static const char scheme[] = "unix:";
	options->find = !strcmp(join, "auto");
	if (options->find)
		return STATUS_OK;
	if (strncmp(join, scheme, sizeof(scheme) - 1))
		return node_address_parse(join, options->host, &options->port, error);
	const char *path = join + sizeof(scheme) - 1;
	if (!path[0] || strlen(path) > LIMIT_SOCKET_PATH_BYTES)
		return usage(error, "--join takes unix:PATH, the path of 1 to 107 bytes");
	text_copy(options->socket_path, sizeof(options->socket_path), path);
	options->local = true;
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

static enum status take_span(const char *flag, const char *text, int64_t *ms, struct error *error)
{
	struct error why = {0};
	int64_t seconds = 0;
	const enum status status = text ? parse_duration(text, &seconds, &why) : STATUS_OK;
	if (status)
		error_set(error, status, "%s: %s", flag, why.message);
	if (why.hint[0])
		error_hint(error, "%s", why.hint);
	*ms = seconds * MS_PER_S;
	return status;
}

static enum status take_end(struct node_options *options, const struct words *words, struct error *error)
{
	enum status status = take_span("--for", words->lasts, &options->for_ms, error);
	if (!status)
		status = take_span("--drain", words->drain, &options->drain_ms, error);
	if (!status && options->for_ms && options->drain_ms >= options->for_ms)
		return usage(error, "--drain must be shorter than --for");
	const int64_t quarter_ms = options->for_ms / QUARTER;
	if (!status && options->for_ms && !words->drain)
		options->drain_ms = quarter_ms < NODE_DRAIN_MS ? quarter_ms : NODE_DRAIN_MS;
	return status;
}

static enum status take(struct node_options *options, const struct words *words, struct error *error)
{
	enum status status = STATUS_OK;
	const char *ticket = getenv("EXOGPU_TICKET"); // of a process, others see the command line and not this
	if (words->join)
		status = take_join(options, words->join, error);
	options->ticket = words->ticket ? words->ticket : ticket && ticket[0] && !options->local ? ticket : NULL;
	options->accept_code = words->accept_code;
	options->silent = words->no_announce;
	unsetenv("EXOGPU_TICKET"); // the text stays; but workers get the environment, and they run a tenant's code
	unsetenv("EXOGPU_TOKEN");
	if (!status && (words->ticket || words->accept_code) && options->local)
		return usage(error, "a node of the server's own machine needs no --ticket");
	if (!status && words->ticket && words->accept_code)
		return usage(error, "with --ticket there is no code to accept");
	struct ticket_parts parts;
	if (!status && options->ticket)
		status = ticket_text_parse(options->ticket, &parts, error);
	if (!status && words->backends)
		status = take_backends(options, words->backends, error);
	const char *spares = words->spares ? words->spares : getenv("EXOGPU_SPARES");
	if (!status && spares && spares[0])
		status = spares_parse(spares, &options->spares, error);
	if (!status)
		status = take_end(options, words, error);
	if (status)
		return status;
	if (words->name && strlen(words->name) >= sizeof(options->name))
		return usage(error, "--name takes 1 to 64 bytes");
	if (words->name)
		text_copy(options->name, sizeof(options->name), words->name);
	char *end = NULL;
	long parent = words->parent ? strtol(words->parent, &end, 10) : 0;
	if (words->parent && (parent < 1 || parent > INT_MAX || *end))
		return usage(error, "--parent takes the number of a process");
	options->parent = (int)parent;
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
	text_copy(options->directory, sizeof(options->directory), status ? "" : data);
	if (!status && !options->socket_path[0])
		status = paths_join(data, PATHS_SOCKET_NAME, options->socket_path, sizeof(options->socket_path), error);
	return status;
}
