/* The composition root of the server. Read it first: what the server is made of stands here in the order in which it is
 * made, and is taken down in the reverse.
 *
 *   options, data directory and its lock     who we are, and that nobody else is
 *   loop                                     one thread that everything but SQL and hashing happens on
 *   store                                    state.db and history.db, and the thread that writes them
 *   limits, audit                            what the operator allows; who did what
 *   contracts                                schema/api.json and schema/node.json, as they are compiled in
 *   tokens                                   who may do what
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
#include "common/net/supervisor.h"
#include "server/alerts/watch.h"
#include "server/api/api.h"
#include "server/api/nodes/node_link.h"
#include "server/api/nodes/witnesses.h"
#include "server/cluster/discovery.h"
#include "server/cluster/log_lines.h"
#include "server/data_directory.h"
#include "server/http/http.h"
#include "server/identity.h"
#include "server/instances/instances.h"
#include "server/library/catalog.h"
#include "server/library/models.h"
#include "server/local_node.h"
#include "server/options.h"
#include "server/tenants/tenants.h"
#include "server/traces/traces.h"

#include <errno.h>
#include <math.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STOP_LIMIT_MS = 1500, STOP_LOOK_MS = 10, STOP_FLUSH_MS = 1000 };

struct app {
	struct options options;
	int lock;
	struct net_loop *loop;
	struct net_watch *signals;
	struct supervisor supervisor;
	struct store *store;
	struct limits *limits;
	struct audit *audit;
	struct contract *api_contract, *node_contract;
	struct tokens *tokens;
	struct authority *authority;
	struct tickets *tickets;
	struct lends *lends;
	struct joins *joins;
	struct discovery *discovery;
	struct witnesses *witnesses;
	struct net_tls *tls; // NULL: on loopback plain HTTP is spoken
	struct events *events;
	struct alerts *alerts;
	struct usage *usage;
	bool watched, hurries; // nodes read their devices every second at least: somebody watches; usage wants it
	struct watch *watch;
	struct channels *channels;
	struct traces *traces; // NULL: no collector is configured
	struct log_lines *log_lines;
	struct cluster *cluster;
	struct topology *topology;
	struct models *models;
	struct catalog *catalog;
	struct instances *instances;
	struct tenancy *tenants;
	struct api *api;
	struct node_links *nodes;
	struct http *http;
	struct local_node *local_node;
	struct net_timer stop_timer;
	bool stopping, node_ended;
	int64_t started_ms, stop_by_ms;
	int64_t flush_by_ms; // once all else is over; 0: it is not
	struct identity identity;
	char socket_path[4112], token_path[4112];
};

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

// The loop tells nodes when somebody begins to watch, and when the last one leaves.
static void watched_changed(void *context, bool watched)
{
	struct app *app = context;
	app->watched = watched;
	if (app->nodes)
		node_links_watch(app->nodes, app->watched || app->hurries);
}

// The same while a request waits for the joules that it used.
static void hurry(void *context, bool wanted)
{
	struct app *app = context;
	app->hurries = wanted;
	if (app->nodes)
		node_links_watch(app->nodes, app->watched || app->hurries);
}

static enum status create_authority(struct app *app, struct error *error)
{
	struct authority_params params = {.loop = app->loop,
					  .store = app->store,
					  .audit = app->audit,
					  .directory = app->options.data,
					  .cluster_id = app->identity.cluster_id,
					  .cluster_name = app->identity.cluster_name,
					  .cert_file = app->options.tls_cert,
					  .key_file = app->options.tls_key,
					  .names = app->options.tls_names};
	enum status status = authority_create(&app->authority, &params, error);
	if (!status && app->options.tls)
		status = net_tls_create(&app->tls, app->loop, authority_pem(app->authority), error);
	if (!status && app->tls)
		status = authority_show(app->authority, app->tls, error);
	return status;
}

static void publish_entry(void *context, struct json *entry)
{
	struct app *app = context;
	if (app->events)
		events_publish(app->events, TOPIC_AUDIT, 0, entry);
	else
		json_destroy(&entry);
}

// What the operator started: where it listens, under which name, with which limits of their own.
static void print_start(const struct app *app, struct buffer *detail)
{
	struct json *json = json_new_object();
	json_set_string(json, "version", EXOGPU_VERSION);
	json_set_string(json, "name", app->identity.cluster_name);
	json_set_string(json, "address", app->options.address);
	json_set_bool(json, "tls", app->options.tls);
	if (app->options.limit_settings)
		json_set_string(json, "limits", app->options.limit_settings);
	json_print(json, detail);
	json_destroy(&json);
}

// The first entry waits for the disk: a server that cannot write its log does not start.
static enum status create_audit(struct app *app, struct error *error)
{
	struct store_batch *batch = NULL;
	const struct audit_params params = {
		.loop = app->loop, .store = app->store, .publish = publish_entry, .context = app};
	struct buffer detail;
	buffer_init(&detail, ENTRY_TEXT_BYTES);
	print_start(app, &detail);
	const struct audit_event event = {
		.action = "server.start", .target = app->identity.cluster_id, .detail = buffer_text(&detail)};
	enum status status = limits_create(&app->limits, &app->options.limits, error);
	if (!status)
		status = audit_create(&app->audit, &params, error);
	if (!status && (store_batch_create(&batch) || audit_put(app->audit, batch, &event))) {
		store_batch_destroy(&batch);
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an entry of the audit log");
	}
	if (!status)
		status = store_commit_wait(app->store, &batch, error);
	buffer_finish(&detail);
	return status;
}

static enum status create_alerts(struct app *app, struct error *error)
{
	const struct channels_params channels = {.loop = app->loop,
						 .store = app->store,
						 .audit = app->audit,
						 .hosts = app->options.alert_hosts,
						 .cluster_id = app->identity.cluster_id,
						 .cluster_name = app->identity.cluster_name};
	enum status status = channels_create(&app->channels, &channels, error);
	const struct alerts_params alerts = {app->store, app->events, app->audit, app->channels};
	return status ? status : alerts_create(&app->alerts, &alerts, error);
}

static enum status create_traces(struct app *app, struct error *error)
{
	const struct traces_params params = {
		.loop = app->loop, .settings = &app->options.traces, .instance_id = app->identity.cluster_id};
	const enum status status = traces_create(&app->traces, &params, error);
	if (!status && app->traces)
		log_info("traces", "traces of requests are sent to %s", app->options.traces.origin);
	return status;
}

static enum status create_state(struct app *app, struct error *error)
{
	char token[TOKEN_TEXT_BYTES];
	const int64_t *limits = app->options.limits.values;
	struct store_params store = {.loop = app->loop,
				     .directory = app->options.data,
				     .accept_unsigned = app->options.accept_unsigned,
				     .audit_segment_entries = limits[LIMIT_AUDIT_SEGMENT_ENTRIES_ID],
				     .audit_segment_bytes = limits[LIMIT_AUDIT_SEGMENT_BYTES_ID],
				     .audit_segment_days = limits[LIMIT_AUDIT_SEGMENT_DAYS_ID],
				     .audit_keep_days = limits[LIMIT_AUDIT_KEEP_DAYS_ID]};
	enum status status = store_create(&app->store, &store, error);
	if (!status)
		status = identity_load(&app->identity, app->store, app->options.name, error);
	if (!status)
		status = create_audit(app, error);
	if (!status)
		status = contract_create(&app->api_contract, CONTRACT_API, error);
	if (!status)
		status = contract_create(&app->node_contract, CONTRACT_NODE, error);
	if (!status)
		status = tokens_create(&app->tokens, app->store, app->audit, error);
	if (!status)
		status = tokens_ensure_admin_file(app->tokens, app->token_path, token, error);
	OPENSSL_cleanse(token, sizeof token);
	if (!status)
		status = create_authority(app, error);
	if (!status)
		status = events_create(&app->events, app->api_contract, watched_changed, app);
	if (!status)
		status = create_alerts(app, error);
	if (!status)
		status = create_traces(app, error);
	if (!status)
		status = usage_create(&app->usage, &(struct usage_params){app->loop, app->store}, error);
	if (!status)
		status = log_lines_create(&app->log_lines, app->events);
	return status;
}

static bool works(void *context, const struct cluster_device *device)
{
	const struct app *app = context;
	return tenancy_works_on(app->tenants, device) || instances_work_on(app->instances, device);
}

enum { IN_USE_PERCENT = 5 };

static void device_read(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	const struct app *app = context;
	const char *source = json_get_string(telemetry, "energy_source", "");
	usage_read(app->usage,
		   &(struct energy_reading){.device_id = cluster_device_id(device),
					    .device_name = cluster_device_name(device),
					    .now_ms = clock_steady_ms(),
					    .joules = json_get_number(telemetry, "energy_joules", NAN),
					    .source = !strcmp(source, "counter")      ? STORE_ENERGY_COUNTER
						      : !strcmp(source, "integrated") ? STORE_ENERGY_INTEGRATED
										      : STORE_ENERGY_NONE,
					    .computes = instances_compute_on(app->instances, device),
					    .in_use = json_get_number(telemetry, "utilization_percent", 0) >=
						      IN_USE_PERCENT});
}

// What there is, and what runs on it.
static enum status create_cluster(struct app *app, struct error *error)
{
	const struct cluster_params cluster = {
		.loop = app->loop, .store = app->store, .audit = app->audit, .events = app->events};
	enum status status = cluster_create(&app->cluster, &cluster, error);
	if (!status) {
		struct topology_params params = {.loop = app->loop,
						 .store = app->store,
						 .events = app->events,
						 .cluster = app->cluster,
						 .address = app->options.tls ? app->options.address : NULL};
		status = topology_create(&app->topology, &params, error);
	}
	if (!status) {
		struct models_params params = {.loop = app->loop,
					       .store = app->store,
					       .audit = app->audit,
					       .events = app->events,
					       .directory = app->options.data,
					       .directories = app->options.model_dirs,
					       .hub_url = app->options.hub_url,
					       .ollama_url = app->options.ollama_url};
		status = models_create(&app->models, &params, error);
	}
	if (!status)
		status = catalog_create(&app->catalog, app->options.catalog, error);
	if (!status) {
		struct tenancy_params params = {.loop = app->loop,
						.contract = app->node_contract,
						.cluster = app->cluster,
						.topology = app->topology,
						.events = app->events,
						.audit = app->audit,
						.limits = app->limits,
						.directory = app->options.data};
		status = tenancy_create(&app->tenants, &params, error);
	}
	if (!status) {
		struct instances_params params = {.loop = app->loop,
						  .contract = app->node_contract,
						  .api_contract = app->api_contract,
						  .topology = app->topology,
						  .cluster = app->cluster,
						  .tenants = app->tenants,
						  .models = app->models,
						  .store = app->store,
						  .events = app->events,
						  .audit = app->audit,
						  .usage = app->usage,
						  .placement_timeout_s = app->options.placement_timeout_s,
						  .headroom = app->options.headroom,
						  .give_way_ms = (int64_t)(app->options.give_way_s * 1000),
						  .pause_ms = app->options.limits.values[LIMIT_PAUSE_MS_ID],
						  .line_tokens = app->options.limits.values[LIMIT_LINE_TOKENS_ID],
						  .take_better = app->options.take_better,
						  .speculate = app->options.speculate};
		status = instances_create(&app->instances, &params, error);
		models_watch_room(app->models, instances_look_room, app->instances);
		cluster_ask_work(app->cluster, works, app);
		cluster_listen_readings(app->cluster, device_read, app);
		usage_listen(app->usage, hurry, app);
	}
	return status;
}

static enum status create_joins(struct app *app, struct error *error)
{
	struct joins_params params = {.loop = app->loop,
				      .store = app->store,
				      .contract = app->node_contract,
				      .cluster = app->cluster,
				      .authority = app->authority,
				      .audit = app->audit,
				      .limits = app->limits};
	enum status status = tickets_create(&app->tickets, app->store, app->audit, authority_sha256(app->authority),
					    error);
	if (!status)
		status = lends_create(&app->lends, app->store, app->audit, error);
	params.tickets = app->tickets;
	params.lends = app->lends;
	return status ? status : joins_create(&app->joins, &params, error);
}

static bool waits(void *context, const char *node_id)
{
	return joins_waits(context, node_id);
}

static enum status create_discovery(struct app *app, struct error *error)
{
	const struct discovery_params params = {.loop = app->loop,
						.events = app->events,
						.cluster = app->cluster,
						.cluster_id = app->identity.cluster_id,
						.cluster_name = app->identity.cluster_name,
						.authority_sha256 = authority_sha256(app->authority),
						.listening = app->options.tls,
						.waits = waits,
						.context = app->joins};
	return discovery_create(&app->discovery, &params, error);
}

static enum status create_doors(struct app *app, struct error *error)
{
	struct api_params api = {.loop = app->loop,
				 .contract = app->api_contract,
				 .load_on_demand = app->options.load_on_demand,
				 .store = app->store,
				 .tokens = app->tokens,
				 .audit = app->audit,
				 .limits = app->limits,
				 .events = app->events,
				 .log_lines = app->log_lines,
				 .cluster = app->cluster,
				 .topology = app->topology,
				 .models = app->models,
				 .catalog = app->catalog,
				 .instances = app->instances,
				 .tenants = app->tenants,
				 .joins = app->joins,
				 .tickets = app->tickets,
				 .lends = app->lends,
				 .discovery = app->discovery,
				 .witnesses = app->witnesses,
				 .alerts = app->alerts,
				 .watch = app->watch,
				 .usage = app->usage,
				 .channels = app->channels,
				 .authority = app->authority,
				 .tls = app->options.tls,
				 .name = app->identity.cluster_name,
				 .cluster_id = app->identity.cluster_id,
				 .schema_sha256 = app->identity.schema_sha256,
				 .started_ms = app->started_ms};
	struct node_links_params nodes = {.loop = app->loop,
					  .contract = app->node_contract,
					  .cluster = app->cluster,
					  .audit = app->audit,
					  .events = app->events,
					  .log_lines = app->log_lines,
					  .topology = app->topology,
					  .tenants = app->tenants,
					  .instances = app->instances,
					  .joins = app->joins,
					  .witnesses = app->witnesses,
					  .address = app->options.tls ? app->options.address : NULL};
	enum status status = api_create(&app->api, &api, error);
	if (!status)
		status = node_links_create(&app->nodes, &nodes);
	struct http_params http = {.loop = app->loop,
				   .api = app->api,
				   .nodes = app->nodes,
				   .joins = app->joins,
				   .lends = app->lends,
				   .contract = app->node_contract,
				   .tokens = app->tokens,
				   .events = app->events,
				   .cluster = app->cluster,
				   .topology = app->topology,
				   .alerts = app->alerts,
				   .usage = app->usage,
				   .channels = app->channels,
				   .tenants = app->tenants,
				   .models = app->models,
				   .instances = app->instances,
				   .audit = app->audit,
				   .traces = app->traces,
				   .store = app->store,
				   .limits = app->limits,
				   .authority = app->authority,
				   .tls = app->tls,
				   .cors_origins = app->options.cors_origins,
				   .load_on_demand = app->options.load_on_demand,
				   .address = app->options.address,
				   .port = app->options.port,
				   .socket_path = app->socket_path,
				   .ollama_token = app->options.ollama_token,
				   .ollama_address = app->options.ollama_address,
				   .ollama_port = app->options.ollama_port,
				   .started_ms = app->started_ms};
	if (!status)
		status = http_create(&app->http, &http, error);
	if (!status)
		api_set_url(app->api, http_url(app->http));
	return status;
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
	if (!status)
		status = create_state(app, error);
	if (!status)
		status = create_cluster(app, error);
	if (!status)
		status = create_joins(app, error);
	if (!status)
		status = create_discovery(app, error);
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
						   .tokens = app->tokens,
						   .authority = app->authority,
						   .directory = app->options.data,
						   .cluster_id = app->identity.cluster_id,
						   .cluster_name = app->identity.cluster_name};
		status = watch_create(&app->watch, &watch, error);
	}
	if (!status)
		status = create_doors(app, error);
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
	net_watch_destroy(&app->signals);
	supervisor_finish(&app->supervisor);
	net_loop_destroy(&app->loop);
	if (app->lock >= 0)
		close(app->lock);
	traces_settings_finish(&app->options.traces);
}

static void print_ready(const struct app *app)
{
	char token[TOKEN_TEXT_BYTES] = "";
	FILE *file = isatty(STDOUT_FILENO) ? fopen(app->token_path, "re") : NULL;
	if (file && fgets(token, sizeof token, file))
		token[strcspn(token, "\n")] = 0;
	if (file)
		fclose(file);
	if (http_ollama_port(app->http))
		printf(strchr(app->options.ollama_address, ':') ? "ollama: http://[%s]:%d\n" : "ollama: http://%s:%d\n",
		       app->options.ollama_address, http_ollama_port(app->http));
	if (token[0])
		printf("dashboard: %s#token=%s\n", http_url(app->http), token);
	else
		printf("dashboard: %s\ntoken: %s\n", http_url(app->http), app->token_path);
	fflush(stdout);
	OPENSSL_cleanse(token, sizeof token);
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
	if (!status) {
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
