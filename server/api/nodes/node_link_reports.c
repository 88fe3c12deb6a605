/* Reports of a registered node that are handed on as they come, and its bursts, by which it measures its way here. */
#include "common/base/clock.h"
#include "server/api/nodes/node_link_inside.h"
#include "server/cluster/log_lines.h"

#include <string.h>

enum { BURST_QUEUE_BYTES = 4 * 1024 * 1024 }; // with so much waiting for a node it gets no bursts

// Answers for itself: with a body, if one is asked for.
enum status node_link_burst(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	const int64_t burst = json_get_integer(message->params, "burst", 0), now_ns = clock_steady_ns();
	const size_t bytes = (size_t)json_get_integer(message->params, "back_bytes", 0);
	if (burst != link->burst || !json_get_integer(message->params, "piece", 0)) {
		link->burst = burst;
		link->burst_ns = now_ns;
	}
	if (!message->id || !link->conn) // there is nobody to answer
		return STATUS_PENDING;
	if (net_conn_queued_bytes(link->conn) > BURST_QUEUE_BYTES)
		return error_set(error, STATUS_UNAVAILABLE, "too much already waits for this node");
	struct net_frame *body = bytes ? net_frame_alloc(bytes) : NULL;
	if (bytes && !body)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (body)
		memset(net_frame_data(body), 0, bytes); // TLS makes noise of it
	struct json *result = json_new_object();
	json_set_integer(result, "ns", now_ns - link->burst_ns);
	const struct rpc_body sent = {.bytes = body ? net_frame_data(body) : NULL, .length = bytes, .holder = body};
	enum status status = rpc_answer_body(&link->rpc, message->method, message->id, result, &sent);
	net_frame_unref(&body);
	return status ? error_set(error, status, "the answer could not be sent") : STATUS_PENDING;
}

// Lines over the node's share are counted there; nothing more is said of them.
enum status node_link_log(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	struct json *node = cluster_describe_node(link->all->params.cluster, link->node_id);
	const enum status status = log_lines_add_node(link->all->params.log_lines, link->node_id,
						      json_get_string(node, "name", ""), message->params);
	json_destroy(&node);
	return status == STATUS_INVALID_PARAMS ? error_set(error, status, "at is no time") : STATUS_OK;
}

enum status node_link_links(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	struct json *own = link->tab ? node_tab_links(link, message->params) : NULL;
	(void)error;
	topology_report(link->all->params.topology, link->node_id, own ? own : message->params);
	json_destroy(&own);
	return STATUS_OK;
}

enum status node_link_fetching(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	(void)error;
	instances_fetching(link->all->params.instances, link->node_id, message->params);
	return STATUS_OK;
}

enum status node_link_hop_ended(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	(void)error;
	instances_hop_ended(link->all->params.instances, link->node_id, message->params);
	return STATUS_OK;
}

enum status node_link_tenant_ended(void *arg, const struct message *message, struct error *error)
{
	struct node_link *link = arg;
	(void)error;
	tenancy_worker_ended(link->all->params.tenants, link->node_id,
			     json_get_string(message->params, "worker_id", ""),
			     json_get_string(message->params, "message", ""));
	return STATUS_OK;
}
