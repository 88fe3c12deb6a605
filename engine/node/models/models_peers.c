/* See models_peers.h. */
#include "engine/node/models/models_peers.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source {
	char node_id[65];
	struct model_span *ranges; // (count), sorted, joined
	size_t count;
	bool left_out, wrong;
};

struct model_peers {
	struct links *links;
	char model_id[65];
	struct source sources[LIMIT_MODEL_PEERS]; // (count)
	size_t count;
};

static bool read_source(struct source *source, const struct json *peer)
{
	const struct json *ranges = json_get(peer, "ranges");
	snprintf(source->node_id, sizeof(source->node_id), "%s", json_get_string(peer, "node_id", ""));
	source->ranges = calloc(json_count(ranges) + 1, sizeof(*source->ranges));
	if (!source->ranges)
		return false;
	for (const struct json *range = json_first(ranges); range; range = json_next(range)) {
		int64_t offset = 0, bytes = 0; // below 2^53, both
		json_integer(json_first(range), &offset);
		json_integer(json_next(json_first(range)), &bytes);
		source->ranges[source->count++] = (struct model_span){(uint64_t)offset, (uint64_t)bytes};
	}
	source->count = model_spans_join(source->ranges, source->count);
	return true;
}

struct model_peers *model_peers_create(struct links *links, const char *model_id, const struct json *list)
{
	struct model_peers *peers = links && json_count(list) ? calloc(1, sizeof(*peers)) : NULL;
	if (!peers)
		return NULL;
	peers->links = links;
	snprintf(peers->model_id, sizeof(peers->model_id), "%s", model_id);
	for (const struct json *peer = json_first(list); peer && peers->count < LIMIT_MODEL_PEERS;
	     peer = json_next(peer))
		peers->count += read_source(&peers->sources[peers->count], peer);
	return peers;
}

void model_peers_destroy(struct model_peers **pointer)
{
	struct model_peers *peers = *pointer;
	*pointer = NULL;
	if (!peers)
		return;
	for (size_t i = 0; i < peers->count; i++)
		free(peers->sources[i].ranges);
	free(peers);
}

// ---- whom to ask ----

static bool has(const struct source *source, const struct model_span *at)
{
	for (size_t i = 0; i < source->count && !source->left_out; i++) {
		const struct model_span *range = &source->ranges[i];
		if (at->offset >= range->offset && at->offset + at->bytes <= range->offset + range->bytes)
			return true;
	}
	return false;
}

bool model_peers_have(const struct model_peers *peers, const struct model_span *at)
{
	for (size_t i = 0; peers && i < peers->count; i++)
		if (has(&peers->sources[i], at))
			return true;
	return false;
}

static void leave_out(struct source *source, const char *model_id, const char *why)
{
	if (!source->left_out)
		log_info("node", "node %s is not asked for model %s any more: %s", source->node_id, model_id, why);
	source->left_out = true;
}

// ---- a piece ----

static void part_came(void *context, struct net_frame *bytes, const struct error *error);

static enum status ask_part(struct model_peer_piece *piece)
{
	const struct model_peers *peers = piece->peers;
	const uint64_t left = piece->at.bytes - piece->got;
	const struct link_read_params params = {.peer_id = peers->sources[piece->source].node_id,
						.model_id = peers->model_id,
						.offset = piece->at.offset + piece->got,
						.bytes = left < LIMIT_LINK_READ_BYTES ? (size_t)left
										      : LIMIT_LINK_READ_BYTES,
						.done = part_came,
						.context = piece};
	return link_read_start(&piece->read, peers->links, &params);
}

// The first from piece->source on that can be asked.
static bool ask_next(struct model_peer_piece *piece)
{
	struct model_peers *peers = piece->peers;
	for (; piece->source < peers->count; piece->source++) {
		struct source *source = &peers->sources[piece->source];
		if (!has(source, &piece->at))
			continue;
		piece->got = 0;
		enum status status = ask_part(piece);
		if (!status)
			return true;
		if (status == STATUS_NOT_FOUND)
			leave_out(source, peers->model_id, "there is no direct link to it");
	}
	return false;
}

static void finish(struct model_peer_piece *piece, bool whole)
{
	struct net_frame *bytes = piece->bytes;
	const struct model_peer_piece was = *piece;
	piece->bytes = NULL; // the callee may ask again
	was.done(was.context, whole ? bytes : NULL);
	net_frame_unref(&bytes);
}

static void part_came(void *context, struct net_frame *bytes, const struct error *error)
{
	struct model_peer_piece *piece = context;
	struct source *source = &piece->peers->sources[piece->source];
	enum status status = error ? error->status : STATUS_OK;
	const int64_t took_ms = clock_steady_ms() - piece->began_ms;
	piece->read = NULL;
	if (!status) {
		memcpy(net_frame_data(piece->bytes) + piece->got, net_frame_data(bytes), net_frame_bytes(bytes));
		piece->got += net_frame_bytes(bytes);
		if (piece->got == piece->at.bytes) {
			finish(piece, true);
			return;
		}
		status = took_ms < LIMIT_MODEL_PEER_MS ? ask_part(piece) : STATUS_TIMEOUT;
		if (!status)
			return;
		if (status == STATUS_TIMEOUT)
			leave_out(source, piece->peers->model_id, "it is too slow");
	} else if (status != STATUS_UNAVAILABLE || !links_up(piece->peers->links, source->node_id)) {
		leave_out(source, piece->peers->model_id, error->message);
	}
	piece->source++;
	if (took_ms >= LIMIT_LINK_READ_MS || !ask_next(piece)) // long enough: the server has it
		finish(piece, false);
}

bool model_peers_ask(struct model_peers *peers, struct model_peer_piece *piece)
{
	if (!model_peers_have(peers, &piece->at))
		return false;
	piece->peers = peers;
	piece->source = 0;
	piece->began_ms = clock_steady_ms();
	piece->bytes = net_frame_alloc((size_t)piece->at.bytes);
	if (piece->bytes && ask_next(piece))
		return true;
	net_frame_unref(&piece->bytes);
	return false;
}

void model_peers_cancel(struct model_peer_piece *piece)
{
	link_read_cancel(&piece->read);
	net_frame_unref(&piece->bytes);
}

void model_peers_wrong(struct model_peers *peers, size_t source, const struct model_span *at)
{
	log_warning("node", "node %s gave wrong bytes of model %s: %llu at %llu differ from the server's",
		    peers->sources[source].node_id, peers->model_id, (unsigned long long)at->bytes,
		    (unsigned long long)at->offset);
	peers->sources[source].left_out = peers->sources[source].wrong = true;
}

struct json *model_peers_wrong_json(const struct model_peers *peers)
{
	struct json *list = NULL;
	for (size_t i = 0; peers && i < peers->count; i++) {
		if (!peers->sources[i].wrong)
			continue;
		if (!list)
			list = json_new_array();
		json_push(list, json_new_string(peers->sources[i].node_id));
	}
	return list;
}
