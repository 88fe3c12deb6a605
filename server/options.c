/* See options.h. */
#include "server/options.h"

#include "common/files/paths.h"
#include "common/text/flags.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEFAULT_PORT = 52415, OLLAMA_PORT = 11434, ALERT_HOSTS = 16, PLACE_BYTES = sizeof((struct options){0}.address) };

// As they are on the command line.
struct words {
	const char *listen, *data, *store, *name, *log_level, *tls_cert, *tls_key, *tls_names, *limits, *hub_url,
		*ollama_url, *catalog;
	const char *ollama, *ollama_listen, *otlp, *cluster_key;
	const char *tokens_per_minute, *placement_timeout, *headroom, *give_way_after, *accept_unsigned, *speculate;
	const char *cors_origins[FLAGS_MANY], *alert_hosts[FLAGS_MANY], *model_dirs[FLAGS_MANY];
	bool no_local_node, lan, take_better, load_on_demand, help;
};

static const struct flag flags[] = {
	{"listen", "ADDRESS:PORT",
	 "where to listen, [ADDRESS]:PORT with IPv6: plain HTTP on loopback, TLS anywhere else\n"
	 "(default 127.0.0.1:52415; port 0: any free one)",
	 offsetof(struct words, listen)},
	{"lan", NULL,
	 "listen for the whole network: port 52415 of every address, by TLS, and say so on it, for nodes to find",
	 offsetof(struct words, lan)},
	{"data", "DIR",
	 "the data directory\n"
	 "(default $EXOGPU_DATA, $XDG_DATA_HOME/exogpu, ~/.local/share/exogpu)",
	 offsetof(struct words, data)},
	{"store", "URL",
	 "keep the tables in this PostgreSQL (15 or newer), as in postgres://exogpu@db.lan/exogpu, and remember that; "
	 "the password comes from a file: see docs/deployment.md (default: in the data directory)",
	 offsetof(struct words, store)},
	{"cluster-key", "FILE",
	 "several servers share the PostgreSQL of --store: one leads, the others wait and one takes over. FILE has the "
	 "key\n"
	 "that all of them are given, 64 hexadecimal digits: see docs/deployment.md",
	 offsetof(struct words, cluster_key)},
	{"name", "NAME", "the cluster's name (default: the host's name; kept)", offsetof(struct words, name)},
	{"no-local-node", NULL, "do not lend this machine's devices", offsetof(struct words, no_local_node)},
	{"log-level", "LEVEL", "error, warning, info (default) or debug", offsetof(struct words, log_level)},
	{"tls-cert", "FILE",
	 "show browsers this certificate (PEM, followed by intermediate certificates) "
	 "instead of the cluster's own; read again when it changes",
	 offsetof(struct words, tls_cert)},
	{"tls-key", "FILE", "its key (PEM, without a password)", offsetof(struct words, tls_key)},
	{"tls-name", "NAME,...",
	 "further names and addresses of this server, besides the machine's own: "
	 "for its certificate and the Host header",
	 offsetof(struct words, tls_names)},
	{"cors-origin", "URL...",
	 "let pages of this origin, as in https://chat.example.com, use /v1 with a token; "
	 "may be repeated",
	 offsetof(struct words, cors_origins)},
	{"alert-host", "HOST...",
	 "let alerts be sent to this host although its address is private or it has no TLS, as in ntfy.home.lan; "
	 "may be repeated",
	 offsetof(struct words, alert_hosts)},
	{"otlp", "URL",
	 "send traces of requests to this collector of OpenTelemetry, as in http://127.0.0.1:4318: see docs/traces.md\n"
	 "(default $OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, $OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere)",
	 offsetof(struct words, otlp)},
	{"ollama", "TOKEN",
	 "let Ollama's clients in, which send no token: whatever comes to 127.0.0.1:11434 acts as the token of this id "
	 "or "
	 "name, for /api and /v1 alone",
	 offsetof(struct words, ollama)},
	{"ollama-listen", "ADDRESS:PORT", "where: a loopback address (default 127.0.0.1:11434)",
	 offsetof(struct words, ollama_listen)},
	{"hub-url", "URL",
	 "where hf: models come from: a mirror of Hugging Face, which may be a private address "
	 "and plain HTTP (default https://huggingface.co)",
	 offsetof(struct words, hub_url)},
	{"ollama-url", "URL",
	 "where ollama: models come from: also a mirror (default https://registry.ollama.ai, "
	 "searches https://ollama.com)",
	 offsetof(struct words, ollama_url)},
	{"catalog", "FILE",
	 "offer the models of this file for download, instead of the built-in catalogue: see docs/models.md",
	 offsetof(struct words, catalog)},
	{"model-dir", "DIR...",
	 "let admins look for model files in this folder and below it, on the page Models; may be repeated",
	 offsetof(struct words, model_dirs)},
	{"placement-timeout", "SECONDS", "how long to search for a better placement of a model, 0.05 to 60 (default 5)",
	 offsetof(struct words, placement_timeout)},
	{"headroom", "PERCENT",
	 "how much of each device's memory models leave free, 0 to 90\n"
	 "(default 3 of a GPU's and 6 of the host's, 64 MiB to 1 GiB)",
	 offsetof(struct words, headroom)},
	{"give-way-after", "SECONDS",
	 "after how long without a request a model may be evicted for another that needs its memory: "
	 "0 to 86400, or never (default 60)",
	 offsetof(struct words, give_way_after)},
	{"take-better", NULL, "move running models automatically when a new device makes them faster",
	 offsetof(struct words, take_better)},
	{"speculate", "ON_OR_OFF",
	 "whether steps on processors also compute tokens that a request's own text foresees: several tokens\n"
	 "for one step where a text repeats itself; on or off (default)",
	 offsetof(struct words, speculate)},
	{"load-on-demand", NULL,
	 "let any token of the scope infer load a model by asking it at /v1 "
	 "(without this option: only tokens of the scope admin)",
	 offsetof(struct words, load_on_demand)},
	{"tokens-per-minute", "N",
	 "how many tokens of models each token of the scope infer may have computed in a minute, 1 to 1000000000\n"
	 "(default: no limit; none for tokens of the scope admin)",
	 offsetof(struct words, tokens_per_minute)},
	{"limit", "NAME=N,...", "change limits, which are listed below", offsetof(struct words, limits)},
	{"accept-unsigned", "FIRST-LAST",
	 "sign these entries of the audit log, which a start has refused because no signed head covers them; "
	 "an entry tells it",
	 offsetof(struct words, accept_unsigned)},
	{"help", NULL, "this text", offsetof(struct words, help)},
	{0},
};

void options_print_help(void)
{
	printf("exogpu serve: run the server, its dashboard and this machine's node\n\n"
	       "Usage: exogpu serve [OPTION...]\n\n");
	flags_print(flags, stdout);
	printf("\nLimits and their defaults:\n");
	limit_values_print(stdout);
	printf("\n"
	       "The first admin token is in DIR/admin.token, the certificate of the cluster's authority in\n"
	       "DIR/tls/authority.pem: give it to browsers and client commands elsewhere.\n");
}

static enum status usage(struct error *error, const char *message)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s", message);
	error_hint(error, "see: exogpu serve --help");
	return STATUS_INVALID_PARAMS;
}

static bool is_numeric(const char *address)
{
	uint8_t bytes[16];
	return inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, address, bytes) == 1;
}

static bool is_loopback(const char *address)
{
	uint8_t bytes[16];
	if (inet_pton(AF_INET, address, bytes) == 1)
		return bytes[0] == 127;
	return inet_pton(AF_INET6, address, bytes) == 1 && !memcmp(bytes, &in6addr_loopback, sizeof bytes);
}

// ADDRESS:PORT, [ADDRESS]:PORT, ADDRESS or :PORT.
struct listen_words {
	const char *form; // what to say of one that cannot be read
	char *address;    // (PLACE_BYTES)
	int *port;
};

static enum status parse_listen(const struct listen_words *place, const char *text, struct error *error)
{
	const char *form = place->form;
	const char *bracket = strchr(text, ']'), *colon = bracket ? bracket + 1 : strrchr(text, ':');
	size_t length = strlen(text);
	if (colon && *colon && !is_numeric(text)) { // not an IPv6 address without brackets
		char *end;
		long port = strtol(colon + 1, &end, 10);
		if (*colon != ':' || colon[1] < '0' || colon[1] > '9' || *end || port < 0 || port > 65535) {
			error_hint(error, "see: exogpu serve --help");
			return error_set(error, STATUS_INVALID_PARAMS, "%s; the port is a number from 0 to 65535",
					 form);
		}
		*place->port = (int)port;
		length = (size_t)(colon - text);
	}
	if (length && *text == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (length >= PLACE_BYTES)
		return usage(error, form);
	if (length)
		snprintf(place->address, PLACE_BYTES, "%.*s", (int)length, text);
	if (!strcmp(place->address, "localhost"))
		snprintf(place->address, PLACE_BYTES, "127.0.0.1");
	if (!is_numeric(place->address)) {
		error_hint(error, "see: exogpu serve --help");
		return error_set(error, STATUS_INVALID_PARAMS, "%s; \"%s\" is not a numeric address", form,
				 place->address);
	}
	return STATUS_OK;
}

static enum status check_tls(const struct options *options, struct error *error)
{
	if (!options->tls_cert != !options->tls_key)
		return usage(error, "--tls-cert and --tls-key go together");
	if (options->tls || (!options->tls_cert && !options->tls_names))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  "%s is a loopback address, where plain HTTP is spoken and no certificate "
		  "shown",
		  options->address);
	error_hint(error, "listen for the network with --lan, or with --listen on an address that is not loopback's");
	return STATUS_INVALID_PARAMS;
}

// That of IPv6 stands for those of IPv4 too, where the system has it.
static const char *every_address(void)
{
	const struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	int none = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool both = fd >= 0 && !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none) &&
		    !bind(fd, (const struct sockaddr *)&any, sizeof any);
	if (fd >= 0)
		close(fd);
	return both ? "::" : "0.0.0.0";
}

// As browsers send it: scheme and host, and nothing behind it.
static enum status check_origin(const char *origin, struct error *error)
{
	const char *host = !strncmp(origin, "https://", 8)  ? origin + 8
			   : !strncmp(origin, "http://", 7) ? origin + 7
							    : "";
	if (host[0] && strlen(origin) < 256 && !strpbrk(host, "/?#@ "))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  "--cors-origin takes an origin, as in https://chat.example.com; \"%.100s\" is not an origin", origin);
	error_hint(error, "scheme, host and port alone, without a path");
	return STATUS_INVALID_PARAMS;
}

static enum status take_alert_hosts(struct options *options, const struct words *words, struct error *error)
{
	for (int i = 0; i < FLAGS_MANY && words->alert_hosts[i]; i++) {
		const char *host = words->alert_hosts[i];
		options->alert_hosts[i] = host;
		if (host[0] && strlen(host) < 256 && !strpbrk(host, "/?#@ ") && i < ALERT_HOSTS)
			continue;
		error_set(error, STATUS_INVALID_PARAMS,
			  "--alert-host takes the name or the address of a host, at most %d times; not \"%.100s\"",
			  ALERT_HOSTS, host);
		error_hint(error, "without a scheme, a port or a path; IPv6 addresses in brackets");
		return STATUS_INVALID_PARAMS;
	}
	return STATUS_OK;
}

static enum status take_model_dirs(struct options *options, const struct words *words, struct error *error)
{
	for (int i = 0; i < FLAGS_MANY && words->model_dirs[i]; i++) {
		options->model_dirs[i] = words->model_dirs[i];
		if (words->model_dirs[i][0] == '/' && strlen(words->model_dirs[i]) < 1024)
			continue;
		error_set(error, STATUS_INVALID_PARAMS,
			  "--model-dir takes an absolute path, as in /srv/models; not \"%.100s\"",
			  words->model_dirs[i]);
		error_hint(error, "see: exogpu serve --help");
		return STATUS_INVALID_PARAMS;
	}
	return STATUS_OK;
}

static enum status take_url(const char **out, const char *name, const char *url, struct error *error)
{
	*out = url;
	if (!url)
		return STATUS_OK;
	const size_t scheme = !strncmp(url, "https://", 8) ? 8 : !strncmp(url, "http://", 7) ? 7 : 0;
	const size_t length = strlen(url);
	if (scheme && length > scheme && length < 1024 && url[length - 1] != '/' && !strpbrk(url, " ?#@"))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  "--%s takes http:// or https://, a host and perhaps a path, without a "
		  "slash at its end",
		  name);
	error_hint(error, "see: exogpu serve --help");
	return STATUS_INVALID_PARAMS;
}

// Whoever can send to that address acts as the token, so it is one that only this machine can send to.
static enum status take_ollama(struct options *options, const struct words *words, struct error *error)
{
	const struct listen_words listen = {.form = "--ollama-listen takes ADDRESS:PORT, as in 127.0.0.1:11434",
					    .address = options->ollama_address,
					    .port = &options->ollama_port};
	options->ollama_token = words->ollama;
	if (words->ollama_listen && !words->ollama)
		return usage(error,
			     "--ollama-listen says where; --ollama TOKEN is missing, as which clients act there");
	const enum status status = words->ollama_listen ? parse_listen(&listen, words->ollama_listen, error)
							: STATUS_OK;
	if (status || is_loopback(options->ollama_address))
		return status;
	error_hint(error, "clients on other machines use https://HOST:52415 and send a token: see docs/clients.md");
	return error_set(error, STATUS_INVALID_PARAMS,
			 "--ollama-listen takes a loopback address: no token is asked for there, and %s can be reached "
			 "from other machines",
			 options->ollama_address);
}

static enum status take(struct options *options, const struct words *words, struct error *error)
{
	const struct listen_words listen = {.form = "--listen takes ADDRESS:PORT, as in 127.0.0.1:52415",
					    .address = options->address,
					    .port = &options->port};
	if (words->lan && words->listen)
		return usage(error, "--lan says where to listen, and so does --listen: give one of them");
	if (words->name && strlen(words->name) > 64)
		return usage(error, "--name takes 1 to 64 bytes");
	if (words->log_level && log_level_parse(words->log_level, &options->log_level))
		return usage(error, "--log-level takes error, warning, info or debug");
	if (words->placement_timeout) {
		char *end;
		options->placement_timeout_s = strtod(words->placement_timeout, &end);
		if (*end || !(options->placement_timeout_s >= 0.05 && options->placement_timeout_s <= 60))
			return usage(error, "--placement-timeout takes 0.05 to 60 seconds");
	}
	if (words->headroom) {
		char *end;
		options->headroom = strtod(words->headroom, &end) / 100;
		if (end == words->headroom || *end || !(options->headroom >= 0 && options->headroom <= 0.9))
			return usage(error, "--headroom takes 0 to 90 per cent");
	}
	if (words->give_way_after && !strcmp(words->give_way_after, "never")) {
		options->give_way_s = -1;
	} else if (words->give_way_after) {
		char *end;
		options->give_way_s = strtod(words->give_way_after, &end);
		if (end == words->give_way_after || *end || !(options->give_way_s >= 0 && options->give_way_s <= 86400))
			return usage(error, "--give-way-after takes 0 to 86400 seconds, or never");
	}
	if (words->tokens_per_minute) {
		char *end;
		options->tokens_per_minute = strtoll(words->tokens_per_minute, &end, 10);
		if (*end || options->tokens_per_minute < 1 || options->tokens_per_minute > 1000000000)
			return usage(error, "--tokens-per-minute takes 1 to 1000000000");
	}
	options->name = words->name;
	options->store = words->store;
	options->cluster_key = words->cluster_key;
	options->take_better = words->take_better;
	options->speculate = words->speculate && !strcmp(words->speculate, "on");
	if (words->speculate && !options->speculate && strcmp(words->speculate, "off") != 0)
		return usage(error, "--speculate takes on or off");
	options->load_on_demand = words->load_on_demand;
	options->local_node = !words->no_local_node;
	options->tls_cert = words->tls_cert;
	options->tls_key = words->tls_key;
	options->tls_names = words->tls_names;
	if (words->lan)
		snprintf(options->address, sizeof options->address, "%s", every_address());
	enum status status = words->listen ? parse_listen(&listen, words->listen, error) : STATUS_OK;
	options->announced = words->lan;
	options->tls = !is_loopback(options->address);
	if (!status)
		status = check_tls(options, error);
	if (!status)
		status = take_ollama(options, words, error);
	for (int i = 0; !status && i < FLAGS_MANY && words->cors_origins[i]; i++) {
		options->cors_origins[i] = words->cors_origins[i];
		status = check_origin(words->cors_origins[i], error);
	}
	if (!status)
		status = take_alert_hosts(options, words, error);
	if (!status)
		status = take_model_dirs(options, words, error);
	options->catalog = words->catalog;
	options->limit_settings = words->limits;
	options->accept_unsigned = words->accept_unsigned;
	if (!status)
		status = take_url(&options->hub_url, "hub-url", words->hub_url, error);
	if (!status)
		status = take_url(&options->ollama_url, "ollama-url", words->ollama_url, error);
	if (!status && words->limits)
		status = limit_values_set(&options->limits, words->limits, error);
	if (!status)
		status = paths_data_directory(words->data, options->data, sizeof options->data, error);
	return status ? status : traces_settings_read(&options->traces, words->otlp, error);
}

enum status options_parse(struct options *options, int argc, char **argv, bool *help, struct error *error)
{
	struct words words = {0};
	*options = (struct options){.port = DEFAULT_PORT,
				    .ollama_port = OLLAMA_PORT,
				    .local_node = true,
				    .log_level = LOG_INFO,
				    .placement_timeout_s = 5,
				    .headroom = -1,
				    .give_way_s = 60};
	snprintf(options->address, sizeof options->address, "127.0.0.1");
	snprintf(options->ollama_address, sizeof options->ollama_address, "127.0.0.1");
	limit_values_init(&options->limits);
	enum status status = flags_read(&(struct flags){.own = flags}, &words, argc - 1, argv + 1, error);
	*help = !status && words.help;
	if (status)
		error_hint(error, "see: exogpu serve --help");
	return status || *help ? status : take(options, &words, error);
}
