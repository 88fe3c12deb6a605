/* The way of a hop by a direct link to another node. See hops_inside.h. */
#include "common/base/bytes.h"
#include "common/wire/message.h"
#include "engine/node/links/hops_inside.h"

#include <stdint.h>

static void link_opened(void *user, struct link_hop *carried)
{
	(void)carried;
	hop_opened(user);
}

static void link_message(void *user, struct link_hop *carried, const uint8_t *bytes, size_t length,
			 struct net_frame *holder)
{
	struct hop *hop = user;
	(void)carried;
	size_t head = length < 4 ? SIZE_MAX : read_u32le(bytes);
	if (head > LIMIT_HEAD_BYTES || head > length - 4 || length - 4 - head > LIMIT_BODY_BYTES) {
		hop_break(hop, STATUS_PARSE_ERROR, "the peer sent a malformed message");
		return;
	}
	hop_message(hop, &(struct net_parts){.head = bytes + 4,
					     .head_bytes = head,
					     .body = bytes + 4 + head,
					     .body_bytes = length - 4 - head,
					     .holder = holder});
}

static void link_drained(void *user, struct link_hop *carried)
{
	(void)carried;
	hop_full(user, false);
}

static void link_closed(void *user, const char *why)
{
	struct hop *hop = user;
	hop->carried = NULL;
	hop_ended(hop, STATUS_UNAVAILABLE, why);
	hop_free(hop);
}

static const struct link_hop_handler link_handler = {
	.opened = link_opened, .message = link_message, .drained = link_drained, .closed = link_closed};

static void link_open(struct hop *hop)
{
	struct error error = {0};
	const struct link_hop_params params = {.peer_id = hop->peer_id,
					       .hop_id = hop->hop_id,
					       .key = hop->key,
					       .sends = hop->end->sends,
					       .bulk = hop->end->ring->channel,
					       .handler = &link_handler,
					       .user = hop};
	enum status status = link_hop_open(&hop->carried, hop->all->params.links, &params, &error);
	if (status)
		hop_break(hop, status, error.message);
}

// A link takes a message in one piece. The head goes before the body where that lies, if there is room.
static enum status link_send(struct hop *hop, const struct net_parts *message)
{
	struct buffer *whole = &hop->all->message;
	const uint8_t prefix[4] = {(uint8_t)message->head_bytes, (uint8_t)(message->head_bytes >> 8),
				   (uint8_t)(message->head_bytes >> 16), 0};
	struct net_frame *holder = message->holder;
	if (holder && message->head_bytes + sizeof(prefix) < NET_FRAME_ROOM / 2 &&
	    !net_frame_prepend(holder, message->head, message->head_bytes) &&
	    !net_frame_prepend(holder, prefix, sizeof(prefix)))
		return link_hop_send(hop->carried, net_frame_data(holder), net_frame_bytes(holder));
	buffer_clear(whole);
	enum status status = message_encode(whole, (const char *)message->head, message->head_bytes, message->body,
					    message->body_bytes);
	return status ? status : link_hop_send(hop->carried, whole->data, whole->length);
}

static size_t link_queued(const struct hop *hop)
{
	return link_hop_queued(hop->carried);
}

static void link_pause(struct hop *hop, bool paused)
{
	link_hop_pause(hop->carried, paused);
}

static void link_close(struct hop *hop)
{
	link_hop_destroy(&hop->carried);
	hop_free(hop);
}

// links_fence stops the messages.
const struct hop_way hop_link = {.name = "link",
				 .open = link_open,
				 .send = link_send,
				 .queued = link_queued,
				 .pause = link_pause,
				 .close = link_close};
