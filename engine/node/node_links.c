/* A node's ways to other nodes: direct links, the hops over them, and what the parts of a model instance need. See
 * node.h. */
#include "common/base/log.h"
#include "engine/device/info.h"
#include "engine/node/node_inside.h"

#include <stdio.h>
#include <string.h>

void node_hold_hops(struct node *node)
{
	const bool held = node->fenced || node->cut_off;
	if (node->hops)
		hops_fence(node->hops, held);
	if (node->links)
		links_fence(node->links, held);
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

static void hop_ended_here(void *arg, struct json *params)
{
	struct node *node = arg;
	uplink_notify(node->uplink, "hop.ended", params);
}

static void hand_over_channel(void *arg, struct uplink_call *call, const struct hops_channel *channel)
{
	struct node *node = arg;
	tenants_channel(node->tenants, call, channel);
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

void node_create_links(struct node *node)
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

void node_set_reachable(void *arg, const char *address)
{
	struct node *node = arg;
	if (address ? node->links && !strcmp(address, node->reach) : !node->links)
		return;
	hops_use_links(node->hops, NULL);
	links_destroy(&node->links);
	text_copy(node->reach, sizeof(node->reach), address ? address : "");
	if (address)
		node_create_links(node);
	hops_use_links(node->hops, node->links);
	node_hold_hops(node);
	uplink_send_record(node->uplink);
}

enum status node_create_for_instances(struct node *node, const char *stream, struct error *error)
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
