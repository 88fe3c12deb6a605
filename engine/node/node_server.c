/* Between a node and its server: the methods that the node serves, and what the connection asks for and tells. See
 * node.h. */
#include "common/base/log.h"
#include "engine/device/peers.h"
#include "engine/node/node_inside.h"
#include "engine/node/readings.h"
#include "engine/node/record.h"
#include "engine/node/warnings.h"
#include "engine/node/witness.h"
#include "engine/node/workers/probe.h"

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

static void source_compiled(void *context, struct json *result, const struct error *error)
{
	struct uplink_call *call = context;
	uplink_answer(&call, result, error);
}

static void compile_source(void *arg, struct uplink_call *call)
{
	struct node *node = arg;
	sources_compile(node->sources, call->params, source_compiled, call);
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
	{"copy.connect", connect_copy},   {"audit.held", tell_held},      {"module.compile", compile_source},
};

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

static struct json *build_end(void *arg)
{
	struct node *node = arg;
	return ending_json(&node->ending);
}

static void set_watched(void *arg, bool watched)
{
	struct node *node = arg;
	if (node->readings)
		readings_set_watched(node->readings, watched);
}

static void server_lost(void *arg)
{
	struct node *node = arg;
	node->cut_off = true;
	node_hold_hops(node);
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
	node_hold_hops(node);
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
	node_hold_hops(node);
}

static void burst_answered(void *arg, bool back, int64_t burst, int64_t ns)
{
	struct node *node = arg;
	if (node->links)
		links_server_piece(node->links, back, burst, ns);
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

enum status node_create_uplink(struct node *node, struct error *error)
{
	const struct uplink_params uplink = {.loop = node->loop,
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
					     .end = build_end,
					     .watched = set_watched,
					     .methods = served,
					     .method_count = sizeof served / sizeof *served,
					     .lost = server_lost,
					     .workers = kept_workers,
					     .registered = server_back,
					     .fenced = fence,
					     .reachable = node_set_reachable,
					     .burst_answered = burst_answered,
					     .gone = server_gone,
					     .arg = node};
	return uplink_create(&node->uplink, &uplink, error);
}
