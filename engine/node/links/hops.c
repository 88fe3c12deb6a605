/* See hops.h. Order of reading: hops_connect, hop_opened, from_worker and hop_message, hop_ended.
 *
 * An out end is read while its hop is open and accepts data; otherwise the bytes wait in the socket, and then the
 * worker waits. An in end is never read (except that of a channel, to notice when it closes). The bytes that its worker
 * has not read yet stay in its stream whatever happens to the hop, so a worker always gets whole messages. */
#include "common/base/list.h"
#include "common/base/log.h"
#include "engine/node/links/hops_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	CONNECT_MS = 10000,
	CHANNEL_MESSAGE_BYTES = 256 * 1024 + 512, // of a copy: a piece and its head
};

static void let_go(struct hop_end *end, const char *why);

static const char *end_name(const struct hop_end *end)
{
	return end->sends ? "out" : "in";
}

// ---- who may pass ----

static void look_whether_to_read(struct hop_end *end)
{
	bool takes = end->sends ? !end->full : end->ring->channel;
	bool wanted = takes && end->hop && end->hop->open && !end->ring->all->fenced;
	if (!end->stream || wanted == end->reading)
		return;
	end->reading = wanted;
	if (wanted)
		net_stream_resume(end->stream);
	else
		net_stream_pause(end->stream);
}

void hops_fence(struct hops *hops, bool fenced)
{
	if (hops->fenced == fenced)
		return;
	hops->fenced = fenced;
	for (struct hops_ring *ring = hops->rings; ring; ring = ring->next)
		for (int i = 0; i < 2; i++) {
			if (ring->ends[i].stream)
				net_stream_hold(ring->ends[i].stream, fenced);
			look_whether_to_read(&ring->ends[i]);
		}
	for (struct hop *hop = hops->list; hop; hop = hop->next)
		if (hop->way->fence)
			hop->way->fence(hop, fenced);
}

// ---- messages ----

// Direct links note their own.
static void note_traffic(const struct hop *hop)
{
	if (hop->way == &hop_server_near || hop->way == &hop_server_far)
		links_hop_passed(hop->all->params.links);
}

static void from_worker(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			struct net_frame *body)
{
	struct hop_end *end = user;
	struct hop *hop = end->hop;
	(void)stream;
	// An end without a hop is not read; these bytes had been read before.
	if (!hop || !hop->open)
		return;
	if (!end->sends) {
		hop_break(hop, STATUS_INVALID_REQUEST, "the worker sends where it only takes");
		return;
	}
	if (end->ring->channel && head_bytes + (body ? net_frame_bytes(body) : 0) > CHANNEL_MESSAGE_BYTES) {
		hop_break(hop, STATUS_LIMIT_EXCEEDED, "a piece of a copy is too long");
		return;
	}
	const struct net_parts parts = {.head = head,
					.head_bytes = head_bytes,
					.body = body ? net_frame_data(body) : NULL,
					.body_bytes = body ? net_frame_bytes(body) : 0,
					.holder = body};
	note_traffic(hop);
	enum status status = hop->way->send(hop, &parts);
	if (hop != end->hop)
		return; // sending it has ended it
	if (status)
		hop_break(hop, status, "the other end does not read the worker's messages");
	else if (hop->way->queued(hop) > LIMIT_STREAM_FULL_BYTES)
		hop_full(hop, true);
}

void hop_full(struct hop *hop, bool full)
{
	if (!hop->end || !hop->end->sends)
		return;
	hop->end->full = full;
	look_whether_to_read(hop->end);
}

void hop_message(struct hop *hop, const struct net_parts *message)
{
	struct hop_end *end = hop->end;
	if (!end || !hop->open)
		return;
	note_traffic(hop);
	enum status status = end->sends ? STATUS_INVALID_REQUEST
					: net_stream_send(end->stream, message->head, message->head_bytes,
							  message->holder, message->body, message->body_bytes);
	if (status) {
		hop_break(hop, status,
			  end->sends ? "something came where nothing is taken"
				     : "the worker does not read its messages");
	} else if (!end->full && net_stream_queued(end->stream) > LIMIT_STREAM_FULL_BYTES) {
		end->full = true;
		hop->way->pause(hop, true);
	}
}

static void worker_drained(void *user, struct net_stream *stream)
{
	struct hop_end *end = user;
	(void)stream;
	if (!end->full)
		return;
	end->full = false;
	if (end->hop && end->hop->open)
		end->hop->way->pause(end->hop, false);
}

// Usually the worker has ended, which is reported elsewhere; the other end of the hop is notified in any case.
static void worker_closed(void *user, struct net_stream *stream, const char *why)
{
	struct hop_end *end = user;
	(void)stream, (void)why;
	end->stream = NULL; // it goes when this returns
	end->reading = false;
	let_go(end, "the worker has closed its end");
}

static const struct net_stream_handler worker_handler = {
	.message = from_worker, .drained = worker_drained, .closed = worker_closed};

// ---- the life of a hop ----

void hop_free(struct hop *hop)
{
	if (hop->gone)
		*hop->gone = true;
	LIST_REMOVE(hop, link);
	OPENSSL_cleanse(hop->key, sizeof(hop->key));
	free(hop);
}

// The worker's end of a channel goes to it, with the call that is answered when it has it.
static void hand_over(struct hop *hop)
{
	struct uplink_call *call = hop->call;
	struct hops_ring *ring = hop->end->ring;
	const struct hops_channel channel = {
		.worker_id = ring->worker_id, .channel = hop->hop_id, .sends = hop->end->sends, .fd = ring->worker_fd};
	hop->call = NULL;
	ring->worker_fd = -1;
	hop->all->params.hand_over(hop->all->params.arg, call, &channel);
}

void hop_opened(struct hop *hop)
{
	struct hop_end *end = hop->end;
	if (!end || hop->open)
		return;
	hop->open = true;
	net_timer_stop(hop->all->params.loop, &hop->deadline);
	if (end->sends)
		end->full = false; // that was the one before it
	else if (end->full)
		hop->way->pause(hop, true);
	look_whether_to_read(end);
	log_debug("node", "hop %s, %s of worker %s, is connected via %s", hop->hop_id, end_name(end),
		  end->ring->worker_id, hop->way->name);
	if (end->ring->channel)
		hand_over(hop);
	else
		uplink_answer(&hop->call, json_new_object(), NULL);
}

static void channel_gone(void *arg)
{
	struct hops_ring *ring = arg;
	hops_ring_destroy(&ring);
}

// Take it from its end. What it was waited for is answered.
static void detach(struct hop *hop, enum status status, const char *why)
{
	struct error error = {0};
	struct hop_end *end = hop->end;
	hop->end = NULL;
	end->hop = NULL;
	net_timer_stop(hop->all->params.loop, &hop->deadline);
	look_whether_to_read(end);
	if (end->ring->channel)
		net_timer_start(hop->all->params.loop, &end->ring->gone, 0, channel_gone, end->ring);
	if (!hop->call)
		return;
	error_set(&error, status, "hop %s, %s of worker %s: %s", hop->hop_id, end_name(end), end->ring->worker_id, why);
	uplink_answer(&hop->call, NULL, &error);
}

void hop_ended(struct hop *hop, enum status status, const char *why)
{
	struct hop_end *end = hop->end;
	if (!end)
		return;
	detach(hop, status, why);
	if (end->ring->channel)
		log_debug("node", "channel %s, %s of worker %s, has ended: %s", hop->hop_id, end_name(end),
			  end->ring->worker_id, why);
	if (end->ring->channel || !hop->open)
		return;
	log_warning("node", "hop %s, %s of worker %s, has ended: %s", hop->hop_id, end_name(end), end->ring->worker_id,
		    why);
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", end->ring->worker_id);
	json_set_string(params, "end", end_name(end));
	json_set_string(params, "hop_id", hop->hop_id);
	json_set_string(params, "message", why);
	hop->all->params.ended(hop->all->params.arg, params);
}

void hop_break(struct hop *hop, enum status status, const char *why)
{
	hop_ended(hop, status, why);
	hop->way->close(hop);
}

void hops_use_links(struct hops *hops, struct links *links)
{
	for (struct hop *hop = hops->list, *next; hop; hop = next) {
		next = hop->next;
		if (hop->way == &hop_link)
			hop_break(hop, STATUS_UNAVAILABLE, "this node has no direct links any more");
	}
	hops->params.links = links;
}

static void too_late(void *arg)
{
	hop_break(arg, STATUS_TIMEOUT, "the other end did not come within 10 s");
}

// End it without telling of it, but to who waits for it.
static void let_go(struct hop_end *end, const char *why)
{
	struct hop *hop = end->hop;
	if (!hop)
		return;
	detach(hop, STATUS_CONFLICT, why);
	hop->way->close(hop);
}

// ---- the server's call ----

static struct hop_end *find_end(struct hops *hops, const struct json *params)
{
	const char *worker_id = json_get_string(params, "worker_id", "");
	struct hops_ring *ring = hops->rings;
	while (ring && (ring->channel || strcmp(ring->worker_id, worker_id) != 0))
		ring = ring->next;
	return ring ? &ring->ends[!strcmp(json_get_string(params, "end", ""), "out")] : NULL;
}

static const struct hop_way *find_way(const struct hops *hops, const char *via)
{
	if (!strcmp(via, hop_local.name))
		return &hop_local;
	if (!strcmp(via, hop_link.name))
		return &hop_link;
	return hops->server.sun_path[0] ? &hop_server_near : &hop_server_far;
}

// Create a hop for this end. NULL, with the call answered, if that fails.
static struct hop *create_hop(struct hops *hops, struct uplink_call *call, struct hop_end *end)
{
	struct error error = {0};
	const struct json *params = call->params;
	const struct hop_way *way = find_way(hops, json_get_string(params, "via", ""));
	const char *peer_id = json_get_string(params, "peer_id", "");
	struct hop *hop = NULL;
	if (!end)
		error_set(&error, STATUS_NOT_FOUND, "this node has no worker of this id with a ring");
	else if (!end->stream)
		error_set(&error, STATUS_CONFLICT, "the worker has closed this end of its ring");
	else if (way == &hop_link && !peer_id[0])
		error_set(&error, STATUS_INVALID_PARAMS, "a hop via link names the node at the other end: peer_id");
	else if (way == &hop_link && !hops->params.links)
		error_set(&error, STATUS_UNAVAILABLE, "this node has no direct links");
	else if (!(hop = calloc(1, sizeof(*hop))))
		error_set(&error, STATUS_OUT_OF_MEMORY, "no memory for a hop");
	if (!hop) {
		uplink_answer(&call, NULL, &error);
		return NULL;
	}
	let_go(end, "it was replaced by another");
	*hop = (struct hop){.all = hops, .end = end, .way = way, .call = call};
	snprintf(hop->hop_id, sizeof(hop->hop_id), "%s", json_get_string(params, "hop_id", ""));
	snprintf(hop->key, sizeof(hop->key), "%s", json_get_string(params, "key", ""));
	snprintf(hop->peer_id, sizeof(hop->peer_id), "%s", peer_id);
	LIST_PUSH(&hops->list, hop, link);
	end->hop = hop;
	net_timer_start(hops->params.loop, &hop->deadline, CONNECT_MS, too_late, hop);
	return hop;
}

void hops_connect(struct hops *hops, struct uplink_call *call)
{
	struct hop *hop = create_hop(hops, call, find_end(hops, call->params));
	if (hop)
		hop->way->open(hop);
}

// ---- rings ----

static enum status create_end(struct hop_end *end, int *worker_fd, struct error *error)
{
	int sockets[2];
	const struct hops *hops = end->ring->all;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "a ring's sockets");
	enum status status = STATUS_OK;
	if (fcntl(sockets[0], F_SETFL, O_NONBLOCK) < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "a ring's sockets");
	if (!status)
		status = net_stream_create(&end->stream, hops->params.loop, sockets[0], &worker_handler, end, error);
	if (status) {
		close(sockets[0]);
		close(sockets[1]);
		return status;
	}
	net_stream_pause(end->stream);
	net_stream_hold(end->stream, hops->fenced);
	*worker_fd = sockets[1];
	return STATUS_OK;
}

// Without its ends' sockets.
static struct hops_ring *create_ring(struct hops *hops, const char *worker_id)
{
	struct hops_ring *ring = calloc(1, sizeof(*ring));
	if (!ring)
		return NULL;
	*ring = (struct hops_ring){.all = hops, .worker_fd = -1};
	ring->ends[0] = (struct hop_end){.ring = ring};
	ring->ends[1] = (struct hop_end){.ring = ring, .sends = true};
	snprintf(ring->worker_id, sizeof(ring->worker_id), "%s", worker_id);
	LIST_PUSH(&hops->rings, ring, link);
	return ring;
}

enum status hops_ring_create(struct hops_ring **out, struct hops *hops, const char *worker_id, int *in_fd, int *out_fd,
			     struct error *error)
{
	struct hops_ring *ring = create_ring(hops, worker_id);
	*out = NULL;
	*in_fd = *out_fd = -1;
	if (!ring)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a ring");
	enum status status = create_end(&ring->ends[0], in_fd, error);
	if (!status)
		status = create_end(&ring->ends[1], out_fd, error);
	if (status) {
		if (*in_fd >= 0)
			close(*in_fd);
		*in_fd = -1;
		hops_ring_destroy(&ring);
	}
	*out = ring;
	return status;
}

void hops_ring_destroy(struct hops_ring **pointer)
{
	struct hops_ring *ring = *pointer;
	if (!ring)
		return;
	*pointer = NULL;
	for (int i = 0; i < 2; i++) {
		let_go(&ring->ends[i], "the worker has ended");
		net_stream_destroy(&ring->ends[i].stream);
	}
	net_timer_stop(ring->all->params.loop, &ring->gone);
	if (ring->worker_fd >= 0)
		close(ring->worker_fd);
	LIST_REMOVE(ring, link);
	free(ring);
}

// ---- channels ----

void hops_connect_channel(struct hops *hops, struct uplink_call *call)
{
	struct error error = {0};
	const struct json *params = call->params;
	struct hops_ring *ring = create_ring(hops, json_get_string(params, "worker_id", ""));
	if (!ring) {
		error_set(&error, STATUS_OUT_OF_MEMORY, "no memory for a channel");
		uplink_answer(&call, NULL, &error);
		return;
	}
	struct hop_end *end = &ring->ends[!strcmp(json_get_string(params, "end", ""), "out")];
	ring->channel = true;
	if (create_end(end, &ring->worker_fd, &error)) {
		uplink_answer(&call, NULL, &error);
		hops_ring_destroy(&ring);
		return;
	}
	struct hop *hop = create_hop(hops, call, end);
	if (hop)
		hop->way->open(hop);
	else
		hops_ring_destroy(&ring);
}

void hops_drop_channels(struct hops *hops, const char *worker_id)
{
	for (struct hops_ring *ring = hops->rings; ring; ring = ring->next)
		for (int i = 0; i < 2 && ring->channel && !strcmp(ring->worker_id, worker_id); i++)
			let_go(&ring->ends[i], "the worker has ended");
}

enum status hops_create(struct hops **out, const struct hops_params *params, struct error *error)
{
	*out = NULL;
	if (params->stream_path && strlen(params->stream_path) > LIMIT_SOCKET_PATH_BYTES) {
		error_hint(error, "use a data directory with a shorter path");
		return error_set(error, STATUS_INVALID_PARAMS, "the path of the server's socket is over %d bytes",
				 LIMIT_SOCKET_PATH_BYTES);
	}
	struct hops *hops = calloc(1, sizeof(*hops));
	if (!hops)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the hops of model instances");
	*out = hops;
	hops->params = *params;
	hops->server.sun_family = AF_UNIX;
	if (params->stream_path)
		snprintf(hops->server.sun_path, sizeof(hops->server.sun_path), "%s", params->stream_path);
	buffer_init(&hops->message, LIMIT_WORKER_MESSAGE_BYTES);
	return STATUS_OK;
}

void hops_destroy(struct hops **pointer)
{
	struct hops *hops = *pointer;
	if (!hops)
		return;
	*pointer = NULL;
	for (struct hops_ring *ring = hops->rings, *next; ring; ring = next) {
		next = ring->next;
		if (ring->channel)
			hops_ring_destroy(&ring);
	}
	while (hops->list) // connections that were told to close, and have not yet
		hop_free(hops->list);
	buffer_finish(&hops->message);
	free(hops);
}
