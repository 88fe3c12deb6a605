/* The composition root of the server. Read it first: what the server is made of stands here in the order in which it is
 * made, and is taken down in the reverse.
 *
 *   options, data directory and its lock     who we are, and that nobody else is
 *   loop                                     one thread that everything but SQL and hashing happens on
 *   turn, secrets, standby                   with --cluster-key: of several servers this one waits here until it leads
 *   store                                    state.db and history.db, and the thread that writes them
 *   limits, audit                            what the operator allows; who did what
 *   contracts                                schema/api.json and schema/node.json, as they are compiled in
 *   tokens                                   who may do what
 *   conversations                            what people keep of the Playground, encrypted
 *   authority                                certificates: the cluster's own, and the operator's
 *   events, cluster                          the state, and the stream of its changes
 *   topology                                 the links between nodes
 *   tickets, joins                           nodes that ask to join
 *   discovery                                who is on the local networks; with --lan, that this is here
 *   watch                                    rules that raise alerts and clear them
 *   witnesses                                nodes that sign the audit log's heads
 *   traces                                   of requests, for a collector, if one is configured
 *   models                                   files of models, and where they come from
 *   tenants                                  what sessions own on devices, and the workers that hold it
 *   instances                                models that are loaded, and what is asked of them
 *   api, node links                          calls of clients; reports of nodes
 *   http                                     the port and the Unix socket; nothing comes in before this stands
 *   local node                               a child process that offers this machine's devices
 *
 * A stop (SIGINT, SIGTERM) closes every connection with 1001, answers what is asked of models with "the server
 * restarts", ends the node, and leaves the loop when all that is done or after 1.5 s; traces that wait are sent then,
 * for 1 s at most. What is loaded stays in state.db, for the next start. */
#include "server/app.h"

#include "common/base/clock.h"
#include "common/base/process.h"
#include "server/app_inside.h"
#include "server/conversations/conversations.h"
#include "server/data_directory.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STOP_LIMIT_MS = 1500, STOP_LOOK_MS = 10, STOP_FLUSH_MS = 1000 };

static void look_whether_stopped(void *arg)
{
	struct app *app = arg;
	struct api_stats stats;
	const int64_t now_ms = clock_steady_ms();
	api_read_stats(app->api, &stats);
	const bool over = app->node_ended && !stats.connections && !stats.under_way && !http_answering(app->http);
	if (!app->flush_by_ms && (over || now_ms >= app->stop_by_ms)) {
		app->flush_by_ms = now_ms + STOP_FLUSH_MS;
		traces_flush(app->traces);
	}
	if (app->flush_by_ms && (traces_flushed(app->traces) || now_ms >= app->flush_by_ms))
		net_loop_stop(app->loop);
	else
		net_timer_start(app->loop, &app->stop_timer, STOP_LOOK_MS, look_whether_stopped, app);
}

static void local_node_ended(void *context)
{
	((struct app *)context)->node_ended = true;
}

static void stop(struct app *app)
{
	if (app->stopping)
		return;
	app->stopping = true;
	log_info("server", "stopping");
	if (app->waiting) {
		net_loop_stop(app->loop);
		return;
	}
	supervisor_stopping(&app->supervisor);
	app->stop_by_ms = clock_steady_ms() + STOP_LIMIT_MS;
	api_shut_down(app->api);
	joins_shut_down(app->joins);
	instances_shut_down(app->instances);
	models_shut_down(app->models);
	node_links_shut_down(app->nodes);
	app->node_ended = !app->local_node;
	if (app->local_node)
		local_node_stop(app->local_node, local_node_ended, app);
	look_whether_stopped(app);
}

static void signalled(void *arg, int fd)
{
	struct signalfd_siginfo info;
	while (read(fd, &info, sizeof info) == sizeof info)
		stop(arg);
}

static const struct net_watch_events signal_events = {.readable = signalled};

// Signals come through the loop; every thread that starts after this has them blocked.
static enum status block_signals(struct app *app, struct error *error)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigaction(SIGPIPE, &ignore, NULL);
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "signalfd");
	return net_watch_create(&app->signals, app->loop, fd, &signal_events, app, error);
}

static enum status create(struct app *app, struct error *error)
{
	enum status status = data_directory_open(app->options.data, &app->lock, error);
	if (!status)
		status = net_loop_create(&app->loop, error);
	if (!status) {
		supervisor_init(&app->supervisor, app->loop);
		status = block_signals(app, error);
	}
	if (!status && app->options.cluster_key)
		status = app_take_turn(app, error);
	if (status || app->stopping)
		return status;
	if (!status)
		status = app_create_state(app, error);
	if (!status)
		status = app_create_cluster(app, error);
	if (!status)
		status = app_create_joins(app, error);
	if (!status)
		status = app_create_discovery(app, error);
	if (!status) {
		struct witnesses_params witnesses = {.loop = app->loop,
						     .store = app->store,
						     .audit = app->audit,
						     .cluster = app->cluster,
						     .alerts = app->alerts};
		status = witnesses_create(&app->witnesses, &witnesses);
	}
	if (!status) {
		const struct watch_params watch = {.loop = app->loop,
						   .store = app->store,
						   .audit = app->audit,
						   .alerts = app->alerts,
						   .cluster = app->cluster,
						   .topology = app->topology,
						   .instances = app->instances,
						   .tokens = app->tokens,
						   .authority = app->authority,
						   .turn = app->turn,
						   .directory = app->options.data,
						   .cluster_id = app->identity.cluster_id,
						   .cluster_name = app->identity.cluster_name};
		status = watch_create(&app->watch, &watch, error);
	}
	if (!status)
		status = app_create_doors(app, error);
	if (!status)
		log_lines_listen(app->log_lines, app->loop);
	if (!status && app->options.local_node) {
		struct local_node_params node = {.loop = app->loop,
						 .socket_path = app->socket_path,
						 .data = app->options.data,
						 .log_level = log_level_name(app->options.log_level)};
		status = local_node_create(&app->local_node, &node, error);
		if (!status)
			cluster_discover(app->cluster);
	}
	if (!status && app->turn)
		turn_set_address(app->turn, http_url(app->http));
	if (!status && app->options.announced)
		status = discovery_announce(app->discovery, http_port(app->http), error);
	return status;
}

static void destroy(struct app *app)
{
	log_lines_unlisten();
	local_node_destroy(&app->local_node);
	if (app->loop)
		net_loop_run_posts(app->loop);
	http_destroy(&app->http);
	traces_destroy(&app->traces);
	if (app->loop)
		net_close_all(app->loop, 1001);
	node_links_destroy(&app->nodes);
	witnesses_destroy(&app->witnesses);
	watch_destroy(&app->watch);
	alerts_destroy(&app->alerts);
	channels_destroy(&app->channels);
	discovery_destroy(&app->discovery);
	joins_destroy(&app->joins);
	tickets_destroy(&app->tickets);
	lends_destroy(&app->lends);
	api_destroy(&app->api);
	conversations_destroy(&app->conversations);
	if (app->cluster)
		cluster_ask_work(app->cluster, NULL, NULL);
	if (app->cluster)
		cluster_listen_readings(app->cluster, NULL, NULL);
	instances_destroy(&app->instances);
	usage_destroy(&app->usage);
	tenancy_destroy(&app->tenants);
	models_destroy(&app->models);
	catalog_destroy(&app->catalog);
	topology_destroy(&app->topology);
	cluster_destroy(&app->cluster);
	authority_destroy(&app->authority);
	net_tls_destroy(&app->tls);
	tokens_destroy(&app->tokens);
	if (app->audit)
		audit_write(app->audit,
			    &(struct audit_event){.action = "server.stop", .target = app->identity.cluster_id}, NULL,
			    NULL, NULL);
	audit_destroy(&app->audit);
	store_destroy(&app->store); // what waits is committed; outcomes that nobody is left to hear are dropped
	log_lines_destroy(&app->log_lines);
	events_destroy(&app->events);
	contract_destroy(&app->node_contract);
	contract_destroy(&app->api_contract);
	limits_destroy(&app->limits);
	turn_destroy(&app->turn); // another server leads from here on
	secrets_destroy(&app->secrets);
	standby_destroy(&app->standby);
	net_watch_destroy(&app->signals);
	supervisor_finish(&app->supervisor);
	net_loop_destroy(&app->loop);
	if (app->lock >= 0)
		close(app->lock);
	traces_settings_finish(&app->options.traces);
}

// A person at a terminal gets a link to log in that works once. No token is printed, and nothing secret to a log.
static void print_ready(const struct app *app)
{
	char url[API_LOGIN_URL_BYTES];
	if (http_ollama_port(app->http))
		printf(strchr(app->options.ollama_address, ':') ? "ollama: http://[%s]:%d\n" : "ollama: http://%s:%d\n",
		       app->options.ollama_address, http_ollama_port(app->http));
	printf("dashboard: %s\ntoken: %s\n", http_url(app->http), app->token_path);
	if (isatty(STDOUT_FILENO) && !api_login_url(app->api, url, NULL)) {
		printf("log in: %s\n  once, within 60 s; later: exogpu open\n", url);
		OPENSSL_cleanse(url, sizeof url);
	}
	fflush(stdout);
}

static int complain(const struct error *error, int exit_status)
{
	fprintf(stderr, "exogpu: %s\n", error->message[0] ? error->message : status_text(error->status));
	if (error->hint[0])
		fprintf(stderr, "  %s\n", error->hint);
	return exit_status;
}

int app_main(int argc, char **argv)
{
	struct app app = {.lock = -1, .started_ms = clock_wall_ms()};
	struct error error = {0};
	bool help;
	if (options_parse(&app.options, argc, argv, &help, &error))
		return complain(&error, 2);
	if (help) {
		options_print_help();
		return 0;
	}
	umask(077);
	if (process_keep_secrets(&error))
		return complain(&error, 1);
	log_set_level(app.options.log_level);
	snprintf(app.socket_path, sizeof app.socket_path, "%s/exogpu.sock", app.options.data);
	snprintf(app.token_path, sizeof app.token_path, "%s/admin.token", app.options.data);
	enum status status = create(&app, &error);
	if (!status && !app.stopping) {
		print_ready(&app);
		supervisor_ready(&app.supervisor);
		log_info("server", "exogpu %s serves %s from %s", EXOGPU_VERSION, http_url(app.http), app.options.data);
		// To be compared by whoever gets the authority's certificate over the network.
		log_info("server", "authority: %s", authority_fingerprint(app.authority));
		net_loop_run(app.loop);
	}
	destroy(&app);
	if (status) {
		error_set(&error, status, "%s", status_text(status));
		return complain(&error, 1);
	}
	return 0;
}
