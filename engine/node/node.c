/* See node.h. Order of reading: node_main, create, the callbacks above them.
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
#include "common/net/supervisor.h"
#include "engine/device/peers.h"
#include "engine/device/registry.h"
#include "engine/node/cache.h"
#include "engine/node/folder.h"
#include "engine/node/home.h"
#include "engine/node/hotplug.h"
#include "engine/node/links/links_models.h"
#include "engine/node/options.h"
#include "engine/node/readings.h"
#include "engine/node/record.h"
#include "engine/node/saver.h"
#include "engine/node/uplink/addresses.h"
#include "engine/node/uplink/announce.h"
#include "engine/node/uplink/uplink.h"
#include "engine/node/warnings.h"
#include "engine/node/witness.h"
#include "engine/node/workers/probe.h"
#include "engine/node/workers/tenants.h"
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

struct node {
	struct node_options options;
	int64_t started_ms;
	int lock; // descriptor; -1
	struct contract *contract;
	struct device_table *table;
	struct net_loop *loop;
	struct net_watch *signals;
	struct supervisor supervisor;
	struct prober *prober;
	struct hotplug *hotplug;
	struct readings *readings;
	struct node_announcer *announcer; // NULL: the server is on this machine, or nothing is to be said
	struct uplink *uplink;
	struct relays *relays; // NULL: the server is on this machine
	struct links *links;   // NULL: none, as where a server on this machine serves nobody else
	struct hops *hops;
	struct node_models *models;
	struct tenants *tenants;
	struct witness *witness;
	struct saver *saver;
	struct warnings *warnings;
	char cache[4096];
	struct addresses addresses;
	struct net_timer save, goodbye;
	struct home home;
	char reach[NET_ADDRESS_BYTES]; // that links listen at; "": all
	bool stopping, usable_said;
	bool failed;          // the server does not take this node
	bool fenced, cut_off; // see hold_hops
};

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

static struct json *build_record(void *arg)
{
	struct node *node = arg;
	return record_build(&(struct record_params){.node_id = node->table->node_id,
						    .name = node->options.name,
						    .link_port = node->links ? links_port(node->links) : 0,
						    .backends = prober_backends(node->prober),
						    .libraries = prober_libraries(node->prober)});
}

static struct json *build_devices(void *arg)
{
	struct node *node = arg;
	return device_table_report(node->table);
}

static bool devices_complete(void *arg)
{
	const struct node *node = arg;
	return node->usable_said;
}

static struct json *build_peer_speeds(void *arg)
{
	struct node *node = arg;
	return device_peers_report(node->table);
}

static void set_watched(void *arg, bool watched)
{
	struct node *node = arg;
	if (node->readings)
		readings_set_watched(node->readings, watched);
}

static void verify_device(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	struct error error = {0};
	const char *device_id = json_get_string(call->params, "device_id", "");
	enum status status = prober_verify(node->prober, device_id, &error);
	uplink_answer(&call, status ? NULL : json_new_object(), status ? &error : NULL);
}

static void open_tenant(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	tenants_open(node->tenants, call);
}

static void open_device(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	tenants_device(node->tenants, call);
}

static void close_tenant(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	tenants_close(node->tenants, call);
}

static void connect_hop(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	hops_connect(node->hops, call);
}

static void connect_copy(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	hops_connect_channel(node->hops, call);
}

static void set_peers(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	if (node->links)
		links_set_peers(node->links, call->params);
	uplink_answer(&call, json_new_object(), NULL);
}

static void fetch_model(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	node_models_fetch(node->models, call);
}

static void forget_model(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	node_models_forget(node->models, call);
}

static void head_signed(void *arg, struct json *result, const struct error *error)
{
	struct uplink_call *call = arg;
	uplink_answer(&call, result, error);
}

static void sign_head(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	witness_sign(node->witness, call->params, head_signed, call);
}

static void tell_held(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	struct error error = {0};
	struct json *result = NULL;
	enum status status = witness_held(node->witness, &result, &error);
	uplink_answer(&call, result, status ? &error : NULL);
}

static const struct uplink_method served[] = {
	{"device.verify", verify_device}, {"tenant.open", open_tenant},   {"tenant.device", open_device},
	{"tenant.close", close_tenant},   {"audit.witness", sign_head},   {"hop.connect", connect_hop},
	{"model.fetch", fetch_model},     {"model.forget", forget_model}, {"node.peers", set_peers},
	{"copy.connect", connect_copy},   {"audit.held", tell_held},
};

// What workers of model instances say to each other is held while the server is not heard, and while it is cut off.
static void hold_hops(struct node *node)
{
	const bool held = node->fenced || node->cut_off;
	if (node->hops)
		hops_fence(node->hops, held);
	if (node->links)
		links_fence(node->links, held);
}

static void server_lost(void *arg)
{
	struct node *node = arg;
	node->cut_off = true;
	hold_hops(node);
	if (node->tenants)
		tenants_lost(node->tenants);
	if (node->models)
		node_models_lost(node->models);
}

static struct json *kept_workers(void *arg)
{
	struct node *node = arg;
	return node->tenants ? tenants_kept(node->tenants) : NULL;
}

static void server_back(void *arg)
{
	struct node *node = arg;
	node->cut_off = false;
	hold_hops(node);
	if (node->tenants)
		tenants_back(node->tenants);
	warnings_flush(node->warnings);
}

static void fence(void *arg, bool fenced)
{
	struct node *node = arg;
	node->fenced = fenced;
	if (node->relays)
		relays_fence(node->relays, fenced);
	hold_hops(node);
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

static void send_links(void *arg, struct json *params)
{
	struct node *node = arg;
	uplink_notify(node->uplink, "node.links", params);
}

static bool measure_server(void *arg, double *rtt_ms, struct net_peer_path *path)
{
	struct node *node = arg;
	return uplink_measure(node->uplink, rtt_ms, path);
}

static bool burst_server(void *arg, bool back, int64_t burst, size_t piece, size_t bytes)
{
	struct node *node = arg;
	return uplink_burst(node->uplink, back, burst, piece, bytes);
}

static void burst_answered(void *arg, bool back, int64_t burst, int64_t ns)
{
	struct node *node = arg;
	if (node->links)
		links_server_piece(node->links, back, burst, ns);
}

static void hop_ended_here(void *arg, struct json *params)
{
	struct node *node = arg;
	uplink_notify(node->uplink, "hop.ended", params);
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

static void server_gone(void *arg, enum status status, const char *why)
{
	struct node *node = arg;
	const bool remote = node->home.host[0];
	if (status && remote)
		log_error("node",
			  "ending: %s; to come back it must join again: exogpu node --join HOST:PORT --ticket TICKET",
			  why);
	else
		log_info("node", "ending: %s", why);
	if (status == STATUS_FORBIDDEN && remote)
		credentials_drop(&node->home.credentials);
	node->failed = status && remote;
	net_loop_stop(node->loop);
}

static void signalled(void *arg, int fd)
{
	struct node *node = arg;
	struct signalfd_siginfo signal;
	while (read(fd, &signal, sizeof(signal)) == (ssize_t)sizeof(signal))
		if (!node->stopping) {
			node->stopping = true;
			supervisor_stopping(&node->supervisor);
			if (!node->uplink) { // it has not joined yet
				stop_now(node);
				continue;
			}
			net_timer_start(node->loop, &node->goodbye, GOODBYE_MS, stop_now, node);
			uplink_close(node->uplink);
		}
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
	save(node); // its id, which the server is told, must outlive it
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

static void hand_over_channel(void *arg, struct uplink_call *call, const struct hops_channel *channel)
{
	struct node *node = arg;
	tenants_channel(node->tenants, call, channel);
}

// What the parts of a model instance need: their way to each other, and their model.
static enum status create_for_instances(struct node *node, const char *stream, struct error *error)
{
	char folder[sizeof(node->options.data) + 8];
	const struct hops_params hops = {.loop = node->loop,
					 .links = node->links,
					 .uplink = node->uplink,
					 .stream_path = uplink_remote(node->uplink) ? NULL : stream,
					 .ended = hop_ended_here,
					 .hand_over = hand_over_channel,
					 .arg = node};
	const struct node_models_params models = {.loop = node->loop,
						  .contract = node->contract,
						  .uplink = node->uplink,
						  .links = node->links,
						  .folder = folder};
	snprintf(folder, sizeof(folder), "%s/models", node->options.data);
	enum status status = hops_create(&node->hops, &hops, error);
	return status ? status : node_models_create(&node->models, &models, error);
}

static void give_model(void *arg, struct link_request *request)
{
	struct error error = {0};
	struct node *node = arg;
	if (node->models) {
		node_models_give(node->models, request);
		return;
	}
	error_set(&error, STATUS_NOT_FOUND, "this node has no models yet");
	link_request_answer(&request, NULL, &error);
}

// A node goes on without them: what is sent to other nodes then goes by way of the server.
static void create_links(struct node *node)
{
	struct error error = {0};
	const struct links_params params = {.loop = node->loop,
					    .contract = node->contract,
					    .credentials = &node->home.credentials,
					    .node_id = node->table->node_id,
					    .address = node->reach[0] ? node->reach : NULL,
					    .tell = send_links,
					    .measure_server = uplink_remote(node->uplink) ? measure_server : NULL,
					    .burst_server = uplink_remote(node->uplink) ? burst_server : NULL,
					    .read_model = give_model,
					    .arg = node};
	if (links_create(&node->links, &params, &error))
		log_warning("node", "no direct links to other nodes: %s", error.message);
	else
		log_info("node", "other nodes reach this one at port %d", links_port(node->links));
}

// Of a node of the server's machine.
static void set_reachable(void *arg, const char *address)
{
	struct node *node = arg;
	if (address ? node->links && !strcmp(address, node->reach) : !node->links)
		return;
	hops_use_links(node->hops, NULL);
	links_destroy(&node->links);
	text_copy(node->reach, sizeof(node->reach), address ? address : "");
	if (address)
		create_links(node);
	hops_use_links(node->hops, node->links);
	hold_hops(node);
	uplink_send_record(node->uplink);
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
		status = create_for_instances(node, stream, error);
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
	struct uplink_params uplink = {.loop = node->loop,
				       .contract = node->contract,
				       .socket_path = node->home.host[0] ? NULL : node->options.socket_path,
				       .parent = node->options.parent,
				       .host = node->home.host,
				       .port = node->home.port,
				       .credentials = &node->home.credentials,
				       .node_id = node->table->node_id,
				       .record = build_record,
				       .devices = build_devices,
				       .complete = devices_complete,
				       .peer_speeds = build_peer_speeds,
				       .watched = set_watched,
				       .methods = served,
				       .method_count = sizeof served / sizeof *served,
				       .lost = server_lost,
				       .workers = kept_workers,
				       .registered = server_back,
				       .fenced = fence,
				       .reachable = set_reachable,
				       .burst_answered = burst_answered,
				       .gone = server_gone,
				       .arg = node};
	memcpy(prober.enabled, node->options.enabled, sizeof(prober.enabled));
	enum status status = prober_create(&node->prober, &prober, error);
	if (!status) {
		prober_scan(node->prober); // before all else: drivers take their time
		status = uplink_create(&node->uplink, &uplink, error);
	}
	if (!status && uplink_remote(node->uplink))
		status = relays_create(&node->relays,
				       &(struct relays_params){.loop = node->loop, .dial = dial_server, .arg = node},
				       error);
	if (!status && uplink_remote(node->uplink))
		create_links(node);
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

// In reverse. The connection is told first, so that nothing calls into what is already gone.
static void finish(struct node *node)
{
	if (node->loop) {
		addresses_finish(&node->addresses);
		net_close_all(node->loop, 1001);
		net_timer_stop(node->loop, &node->goodbye);
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

// A program that opens a file as descriptor 0, 1 or 2 prints into it sooner or later. 3 to 7 are where workers get
// their sockets, a model and a ring: what is handed over must not lie there already.
static void fill_standard_files(void)
{
	int fd;
	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= WORKER_RING_OUT);
	if (fd > WORKER_RING_OUT)
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
