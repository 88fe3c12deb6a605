/* See node.h. Order of reading: node_main, create, the callbacks above them; then node_server.c and node_links.c.
 *
 * Parts, in the order in which they are made: which server it belongs to (home), the folder's lock, the registry
 * (table), the loop, the announcer, with which a server may have to be found and joined first, the prober (workers that
 * verify), the connection to the server, the workers of sessions, the witness, hot-plug, telemetry, the addresses. Each
 * change of the table is sent and saved a moment later, several at once. Everything runs on the loop's thread, but for
 * the sampler's callback and the registry's writer. */
#include "engine/node/node.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/process.h"
#include "common/files/kernels_built.h"
#include "common/files/paths.h"
#include "common/net/stream.h"
#include "engine/node/cache.h"
#include "engine/node/folder.h"
#include "engine/node/hotplug.h"
#include "engine/node/node_inside.h"
#include "engine/node/readings.h"
#include "engine/node/saver.h"
#include "engine/node/uplink/announce.h"
#include "engine/node/warnings.h"
#include "engine/node/witness.h"
#include "engine/node/workers/probe.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { SAVE_DELAY_MS = 200, GOODBYE_MS = 300 };

// ---- what the parts ask for ----

static void save(void *arg)
{
	struct node *node = arg;
	struct buffer text;
	buffer_init(&text, LIMIT_REGISTRY_BYTES);
	if (registry_print(node->table, &text))
		log_error("node", "the registry is too large to be saved");
	else
		saver_put(node->saver, &text);
	buffer_finish(&text);
}

static void say_usable(struct node *node)
{
	size_t present = 0, usable = 0;
	for (size_t i = 0; i < node->table->count; i++) {
		const struct device_record *record = node->table->records[i];
		if (!device_record_present(record))
			continue;
		const struct device_api *api = &record->apis[device_record_backend(record)];
		if (api->verification.state == VERIFICATION_PENDING)
			return;
		present++;
		usable += api->verification.state == VERIFICATION_PASSED;
	}
	for (int kind = 0; kind < BACKEND_COUNT; kind++)
		if (!node->table->answered[kind] && kind != BACKEND_UNKNOWN)
			return;
	node->usable_said = true;
	log_info("node", "%zu of %zu devices usable %lld ms after the start", usable, present,
		 (long long)(clock_steady_ms() - node->started_ms));
}

static struct node_announce describe(const struct node *node)
{
	return (struct node_announce){.node_id = node->table->node_id,
				      .name = node->options.name,
				      .credentials = &node->home.credentials,
				      .devices = node->usable_said ? node->table : NULL,
				      .port = node->links ? links_port(node->links) : 0};
}

static void announce(struct node *node)
{
	const struct node_announce now = describe(node);
	if (node->announcer)
		node_announcer_update(node->announcer, &now);
}

static void devices_changed(void *arg)
{
	struct node *node = arg;
	if (node->readings)
		readings_set_devices(node->readings, node->table);
	if (node->uplink)
		uplink_send_devices(node->uplink);
	if (!node->usable_said)
		say_usable(node);
	announce(node);
	if (!node->save.running)
		net_timer_start(node->loop, &node->save, SAVE_DELAY_MS, save, node);
}

static void device_verified(void *arg, const struct device_record *record, enum backend_kind kind, double took_ms)
{
	struct node *node = arg;
	if (node->tenants)
		tenants_verified(node->tenants, record, kind, took_ms);
}

static bool in_use(void *arg, enum backend_kind kind)
{
	const struct node *node = arg;
	return node->tenants && tenants_use(node->tenants, kind);
}

static void record_changed(void *arg)
{
	struct node *node = arg;
	if (node->uplink)
		uplink_send_record(node->uplink);
}

static void addresses_changed(void *arg)
{
	log_info("node", "this machine has other addresses than before: the server is told");
	record_changed(arg);
}

static void hardware_changed(void *arg)
{
	struct node *node = arg;
	log_info("node", "devices or drivers changed: looking again");
	prober_scan(node->prober);
}

static enum status dial_server(void *arg, struct net_dial_params *params, struct error *error)
{
	struct node *node = arg;
	return uplink_dial(node->uplink, params, error);
}

static void tenant_ended(void *arg, const char *worker_id, const char *message)
{
	struct node *node = arg;
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", worker_id);
	json_set_string(params, "message", message);
	uplink_notify(node->uplink, "tenant.ended", params);
}

static bool heard(void *arg)
{
	const struct node *node = arg;
	return node->uplink && uplink_registered(node->uplink);
}

static bool send_warning(void *arg, struct json *params)
{
	struct node *node = arg;
	return uplink_tell(node->uplink, "node.log", params);
}

static void send_readings(void *arg, struct json *telemetry)
{
	struct node *node = arg;
	if (node->uplink)
		uplink_send_telemetry(node->uplink, telemetry);
	else
		json_destroy(&telemetry);
}

// ---- the end ----

static void stop_now(void *arg)
{
	struct node *node = arg;
	net_loop_stop(node->loop);
}

static void stop(void *arg)
{
	struct node *node = arg;
	if (node->stopping)
		return;
	node->stopping = true;
	supervisor_stopping(&node->supervisor);
	if (!node->uplink) { // it has not joined yet
		stop_now(node);
		return;
	}
	net_timer_start(node->loop, &node->goodbye, GOODBYE_MS, stop_now, node);
	uplink_close(node->uplink);
}

static bool end_told(void *arg)
{
	const struct node *node = arg;
	return !node->uplink || !uplink_registered(node->uplink) || uplink_record_taken(node->uplink);
}

static bool has_tenants(void *arg)
{
	const struct node *node = arg;
	return node->tenants && tenants_any(node->tenants);
}

static void signalled(void *arg, int fd)
{
	struct node *node = arg;
	struct signalfd_siginfo signal;
	while (read(fd, &signal, sizeof(signal)) == (ssize_t)sizeof(signal))
		if (signal.ssi_signo == SIGUSR1)
			ending_drain(&node->ending);
		else if (node->options.drain_ms && !node->ending.drains)
			ending_drain(&node->ending);
		else
			stop(node);
}

static const struct net_watch_events signal_events = {.readable = signalled};

// ---- the beginning ----

// The server of another machine.
static enum status meet(struct node *node, struct error *error)
{
	enum status status = STATUS_OK;
	const struct node_announce now = describe(node);
	const struct home_meeting meeting = {.loop = node->loop,
					     .contract = node->contract,
					     .node_id = node->table->node_id,
					     .stopping = &node->stopping};
	save(node); // the id must be on disk before the server learns it
	if (!node->options.silent)
		status = node_announcer_create(&node->announcer, node->loop, &now, error);
	return status ? status : home_meet(&node->home, &meeting, error);
}

static enum status watch_signals(struct node *node, const sigset_t *ends, struct error *error)
{
	int fd = signalfd(-1, ends, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "signalfd");
	enum status status = net_watch_create(&node->signals, node->loop, fd, &signal_events, node, error);
	if (status)
		close(fd);
	return status;
}

// Where the server takes the streams of workers: beside its own socket.
static enum status find_stream_socket(const struct node *node, char *path, size_t size, struct error *error)
{
	char folder[sizeof(node->options.socket_path)];
	const char *slash = strrchr(node->options.socket_path, '/');
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - node->options.socket_path) : 1,
		 slash ? node->options.socket_path : ".");
	return paths_join(folder, NET_STREAM_SOCKET, path, size, error);
}

static enum status create_tenants(struct node *node, struct error *error)
{
	char stream[sizeof(node->options.socket_path) + sizeof(NET_STREAM_SOCKET)];
	struct tenants_params params = {.loop = node->loop,
					.contract = node->contract,
					.table = node->table,
					.stream_path = stream,
					.relays = node->relays,
					.cache = node->cache,
					.spares = node->options.spares,
					.ended = tenant_ended,
					.arg = node};
	enum status status = find_stream_socket(node, stream, sizeof(stream), error);
	if (!status)
		status = node_create_for_instances(node, stream, error);
	params.hops = node->hops;
	params.models = node->models;
	return status ? status : tenants_create(&node->tenants, &params, error);
}

static enum status create_parts(struct node *node, struct error *error)
{
	struct prober_params prober = {.loop = node->loop,
				       .contract = node->contract,
				       .table = node->table,
				       .cache = node->cache,
				       .devices_changed = devices_changed,
				       .record_changed = record_changed,
				       .verified = device_verified,
				       .in_use = in_use,
				       .arg = node};
	struct hotplug_params hotplug = {.loop = node->loop, .root = "", .changed = hardware_changed, .arg = node};
	struct witness_params witness = {.loop = node->loop,
					 .directory = node->options.data,
					 .node_id = node->table->node_id,
					 .server = node->home.host[0] ? node->home.credentials.server_uri : ""};
	struct readings_params readings = {
		.loop = node->loop, .node_id = node->table->node_id, .report = send_readings, .arg = node};
	memcpy(prober.enabled, node->options.enabled, sizeof(prober.enabled));
	enum status status = prober_create(&node->prober, &prober, error);
	if (!status)
		status = sources_create(&node->sources, node->loop, node->contract, node->table);
	if (!status) {
		prober_scan(node->prober); // before all else: drivers take their time
		status = node_create_uplink(node, error);
	}
	if (!status && uplink_remote(node->uplink))
		status = relays_create(&node->relays,
				       &(struct relays_params){.loop = node->loop, .dial = dial_server, .arg = node},
				       error);
	if (!status && uplink_remote(node->uplink))
		node_create_links(node);
	if (!status)
		status = create_tenants(node, error);
	if (!status)
		status = witness_create(&node->witness, &witness);
	if (!status)
		status = hotplug_create(&node->hotplug, &hotplug, error);
	if (!status)
		status = readings_create(&node->readings, &readings, error);
	if (!status)
		readings_set_devices(node->readings, node->table);
	return status;
}

static void log_kernels(void)
{
	struct kernels_built built;
	struct buffer text;
	buffer_init(&text, sizeof(built));
	kernels_built_read(&built);
	kernels_built_print(&built, &text);
	log_info("node", "CUDA kernels: %s", buffer_text(&text));
	buffer_finish(&text);
}

static enum status create(struct node *node, const sigset_t *ends, struct error *error)
{
	char path[sizeof(node->options.data) + 16];
	snprintf(path, sizeof(path), "%s/registry.json", node->options.data);
	log_info("node", "its data is in %s", node->options.data);
	log_kernels();
	enum status status = folder_make(node->options.data, error);
	if (!status)
		status = home_choose(&node->home, error);
	if (!status)
		status = folder_lock(&(struct folder_lock_params){.folder = node->options.data,
								  .ends = ends,
								  .parent = node->options.parent},
				     &node->lock, error);
	if (!status && !node->home.find && !node->home.host[0])
		home_load_own(&node->home);
	if (!status)
		status = cache_prepare(node->options.data, node->cache, sizeof(node->cache), error);
	if (!status)
		status = registry_load(&node->table, path, error);
	if (!status)
		status = contract_create(&node->contract, CONTRACT_NODE, error);
	if (!status)
		status = net_loop_create(&node->loop, error);
	if (!status)
		status = warnings_create(&node->warnings, &(struct warnings_params){.loop = node->loop,
										    .ready = heard,
										    .tell = send_warning,
										    .arg = node});
	if (!status) {
		supervisor_init(&node->supervisor, node->loop);
		const int64_t drain_ms = node->options.drain_ms;
		node->ending = (struct ending){.loop = node->loop,
					       .drain_ms = drain_ms ? drain_ms : NODE_DRAIN_MS,
					       .told = end_told,
					       .in_use = has_tenants,
					       .changed = record_changed,
					       .done = stop,
					       .arg = node};
		ending_begin(&node->ending, node->options.for_ms);
		status = watch_signals(node, ends, error);
	}
	if (!status)
		status = saver_create(&node->saver, path, error);
	if (!status)
		supervisor_ready(
			&node->supervisor); // from here on the loop turns; to be let in may take a person's time
	if (!status && (node->home.find || node->home.host[0]))
		status = meet(node, error);
	if (!status)
		status = create_parts(node, error);
	if (!status) {
		node->addresses = (struct addresses){.loop = node->loop, .changed = addresses_changed, .arg = node};
		addresses_watch(&node->addresses);
		announce(node);
	}
	return status;
}

// In reverse order. The connection is closed first, so that nothing calls into freed parts.
static void finish(struct node *node)
{
	if (node->loop) {
		addresses_finish(&node->addresses);
		net_close_all(node->loop, 1001);
		net_timer_stop(node->loop, &node->goodbye);
		ending_finish(&node->ending);
		if (node->save.running) {
			net_timer_stop(node->loop, &node->save);
			save(node);
		}
	}
	tenants_destroy(&node->tenants); // their memory is the devices'; and their calls the connection's
	hops_destroy(&node->hops);
	links_destroy(&node->links);
	node_models_destroy(&node->models);
	relays_destroy(&node->relays);
	witness_destroy(&node->witness); // its call, too
	readings_destroy(&node->readings);
	hotplug_destroy(&node->hotplug);
	prober_destroy(&node->prober);
	sources_destroy(&node->sources);
	uplink_destroy(&node->uplink);
	node_announcer_destroy(&node->announcer);
	saver_destroy(&node->saver);
	net_watch_destroy(&node->signals);
	supervisor_finish(&node->supervisor);
	warnings_destroy(&node->warnings);
	net_loop_destroy(&node->loop);
	contract_destroy(&node->contract);
	device_table_destroy(&node->table);
	credentials_finish(&node->home.credentials);
	if (node->lock >= 0)
		close(node->lock);
}

// A program that opens a file as descriptor 0, 1 or 2 may print into it by accident. Workers get their sockets, models
// and ring as 3 to 8, so no passed descriptor may have one of these numbers.
static void fill_standard_files(void)
{
	int fd;
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= WORKER_DRAFT);
	if (fd > WORKER_DRAFT)
		close(fd);
}

int node_main(int argc, char **argv)
{
	struct error error = {0};
	sigset_t ends;
	struct node *node = calloc(1, sizeof(*node));
	if (!node)
		return 1;
	node->started_ms = clock_steady_ms();
	node->lock = -1;
	node->home.options = &node->options;
	if (node_options_parse(&node->options, argc, argv, &error)) {
		fprintf(stderr, "exogpu: %s\n", error.message);
		if (error.hint[0])
			fprintf(stderr, "  %s\n", error.hint);
		free(node);
		return 2;
	}
	if (node->options.help) {
		free(node);
		return 0;
	}
	log_set_level(node->options.log_level);
	fill_standard_files();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error like others
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGUSR1);
	sigprocmask(SIG_BLOCK, &ends, NULL); // before any thread is made: they all leave these to the loop
	enum status status = process_keep_secrets(&error);
	if (!status)
		status = create(node, &ends, &error);
	if (!status)
		net_loop_run(node->loop);
	else if (status != STATUS_CONFLICT || error.message[0])
		log_error("node", "%s%s%s", error.message[0] ? error.message : status_text(status),
			  error.hint[0] ? "; " : "", error.hint);
	bool failed = node->failed || (status && !(status == STATUS_CONFLICT && !error.message[0]));
	finish(node);
	free(node);
	return failed ? 1 : 0;
}
