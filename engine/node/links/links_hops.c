/* Hops over direct links; see links.h.
 *
 * Each hop is a channel of its link (links_hops_open.c). At most LIMIT_HOP_AHEAD_BYTES may be sent that the in end has
 * not confirmed as delivered (hop.taken). So a paused or fenced in end stores at most that much, and the link is still
 * read. The out end gives the connection at most LIMIT_STREAM_FULL_BYTES at a time, and the rest waits with the hop, so
 * that hops take turns and pings are not late. A bulk hop gives it BULK_BYTES and one message and, while other hops
 * were active a moment ago, sends only when nothing else waits: so a step of a model waits for one of its messages at
 * most. Callbacks that must not come within the caller's call (opened at the in end, closed, waiting messages) come in
 * a turn of their own (turn). A hop that is destroyed in a callback is freed when the outermost one returns. */
#include "common/base/clock.h"
#include "engine/device/info.h"
#include "engine/node/links/links_hops_inside.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BULK_BYTES = 256 * 1024 };

static const char data_begins[] = "{\"jsonrpc\":\"2.0\",\"method\":\"hop.data\",\"params\":{\"channel\":";
static const char data_ends[] = "}}";

static void turn(void *arg);

void links_hops_turn_soon(struct links *links)
{
	if (!links->turn.running)
		net_timer_start(links->params.loop, &links->turn, 0, turn, links);
}

// ---- what waits ----

static enum status push(struct link_hop *hop, struct net_frame *frame)
{
	struct hop_piece *piece = malloc(sizeof(*piece));
	if (!piece)
		return STATUS_OUT_OF_MEMORY;
	*piece = (struct hop_piece){.frame = net_frame_ref(frame)};
	*hop->last = piece;
	hop->last = &piece->next;
	hop->queued += net_frame_bytes(frame);
	hop->pieces++;
	return STATUS_OK;
}

// The first of the queue, the caller's to unref.
static struct net_frame *pop(struct link_hop *hop)
{
	struct hop_piece *piece = hop->first;
	struct net_frame *frame = piece->frame;
	hop->first = piece->next;
	if (!hop->first)
		hop->last = &hop->first;
	hop->queued -= net_frame_bytes(frame);
	hop->pieces--;
	free(piece);
	return frame;
}

static void hop_free(struct link_hop *hop)
{
	while (hop->first) {
		struct net_frame *frame = pop(hop);
		net_frame_unref(&frame);
	}
	json_destroy(&hop->ask_id);
	OPENSSL_cleanse(hop->key, sizeof hop->key);
	free(hop);
}

void links_hops_enter(struct links *links)
{
	links->in_callback++;
}

void links_hops_leave(struct links *links)
{
	if (--links->in_callback)
		return;
	while (links->gone) {
		struct link_hop *hop = links->gone;
		links->gone = hop->next;
		hop_free(hop);
	}
}

void link_hop_unlink(struct link_hop *hop)
{
	struct links *links = hop->links;
	struct link_hop **at = &links->hops;
	while (*at != hop)
		at = &(*at)->next;
	*at = hop->next;
	hop->destroyed = true;
	hop->next = links->gone;
	links->gone = hop;
	links_hops_enter(links);
	links_hops_leave(links);
}

void link_hop_end(struct link_hop *hop, const char *why)
{
	if (hop->state == HOP_ENDED)
		return;
	hop->state = HOP_ENDED;
	text_copy(hop->why, sizeof hop->why, why);
	links_hops_turn_soon(hop->links);
}

struct link_hop *link_hop_find(struct link *link, uint32_t channel, bool sends)
{
	struct link_hop *hop = link->links->hops;
	while (hop && (hop->link != link || hop->channel != channel || hop->sends != sends || hop->state < HOP_ASKED ||
		       hop->state == HOP_ENDED))
		hop = hop->next;
	return hop;
}

// ---- sending ----

static void note_passed(const struct link_hop *hop)
{
	if (hop->bulk)
		hop->links->bulk_ms = clock_steady_ms();
	else
		links_hop_passed(hop->links);
}

static enum status send_data(struct link_hop *hop, struct net_frame *holder, const uint8_t *bytes, size_t length)
{
	char head[sizeof data_begins + 16];
	struct link *link = hop->link;
	int head_bytes = snprintf(head, sizeof head, "%s%u%s", data_begins, (unsigned)hop->channel, data_ends);
	enum status status = net_peer_send(link->conn->peer, head, (size_t)head_bytes, holder, bytes, length);
	if (status)
		return status;
	hop->passed += length;
	link->measures.sent_bytes += length;
	note_passed(hop);
	return STATUS_OK;
}

static bool may_send(const struct link_hop *hop)
{
	if (hop->state != HOP_OPEN || hop->links->fenced || !hop->link->conn ||
	    hop->passed - hop->taken >= LIMIT_HOP_AHEAD_BYTES)
		return false;
	struct net_peer *peer = hop->link->conn->peer;
	size_t most = !hop->bulk ? LIMIT_STREAM_FULL_BYTES : links_hops_quiet(hop->links) ? BULK_BYTES : 0;
	if (net_peer_queued(peer) <= most)
		return true;
	net_peer_tell_drained(peer); // it may be far from full
	return false;
}

enum status link_hop_send(struct link_hop *hop, const uint8_t *bytes, size_t length)
{
	if (hop->state == HOP_ENDED || hop->destroyed)
		return STATUS_OK; // no callee is left; `closed` follows
	if (!hop->first && may_send(hop))
		return send_data(hop, NULL, bytes, length);
	if (hop->first && hop->queued + length > LIMIT_STREAM_QUEUE_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	if (length > LIMIT_HEAD_BYTES / 2 + LIMIT_BODY_BYTES || hop->pieces >= LIMIT_STREAM_QUEUE_PIECES)
		return STATUS_LIMIT_EXCEEDED;
	struct net_frame *frame = net_frame_create(bytes, length, false);
	enum status status = frame ? push(hop, frame) : STATUS_OUT_OF_MEMORY;
	net_frame_unref(&frame);
	if (hop->queued > LIMIT_STREAM_FULL_BYTES)
		hop->was_full = true;
	return status;
}

size_t link_hop_queued(const struct link_hop *hop)
{
	return hop->queued;
}

// Send one waiting message. False: nothing waits, or it may not be sent now.
static bool send_waiting(struct link_hop *hop)
{
	if (!hop->sends || !hop->first || !may_send(hop))
		return false;
	struct net_frame *frame = pop(hop);
	if (send_data(hop, frame, net_frame_data(frame), net_frame_bytes(frame)))
		link_hop_end(hop, "out of memory for a message");
	net_frame_unref(&frame);
	return true;
}

static struct link_hop *next_due(struct links *links, const struct link *link)
{
	struct link_hop *hop = links->hops;
	while (hop && (!hop->due || (link && hop->link != link)))
		hop = hop->next;
	if (hop)
		hop->due = false;
	return hop;
}

static void all_due(struct links *links)
{
	for (struct link_hop *hop = links->hops; hop; hop = hop->next)
		hop->due = true;
}

// The connection takes more: each hop in turn sends a message.
void links_hops_feed(struct links *links, const struct link *link)
{
	for (bool any = true; any;) {
		any = false;
		for (struct link_hop *hop = links->hops; hop; hop = hop->next)
			if (!link || hop->link == link)
				any |= send_waiting(hop);
	}
	links_hops_enter(links);
	all_due(links);
	for (struct link_hop *hop; (hop = next_due(links, link));) {
		if (!hop->sends || !hop->was_full || hop->first || hop->state != HOP_OPEN)
			continue;
		hop->was_full = false;
		if (hop->handler->drained)
			hop->handler->drained(hop->user, hop);
	}
	links_hops_leave(links);
}

void link_hops_drained(struct link *link)
{
	links_hops_feed(link->links, link);
}

// ---- receiving ----

// Pass one message on. The hop may be destroyed by it.
static void pass_on(struct link_hop *hop, struct net_frame *frame)
{
	struct links *links = hop->links;
	size_t length = net_frame_bytes(frame);
	links_hops_enter(links);
	hop->handler->message(hop->user, hop, net_frame_data(frame), length, frame);
	hop->passed += length;
	if (!hop->destroyed && hop->state == HOP_OPEN && hop->passed - hop->taken >= LIMIT_HOP_AHEAD_BYTES / 8) {
		struct json *params = json_new_object();
		json_set_integer(params, "channel", hop->channel);
		json_set_integer(params, "bytes", (int64_t)hop->passed);
		hop->taken = hop->passed;
		link_notify(hop->link, "hop.taken", params);
	}
	links_hops_leave(links);
}

// Reads the channel of a head in the very form that send_data prints.
static bool read_channel(const uint8_t *head, size_t head_bytes, uint32_t *channel)
{
	const size_t begins = sizeof data_begins - 1, ends = sizeof data_ends - 1;
	if (head_bytes <= begins + ends || head_bytes > begins + ends + 10 || memcmp(head, data_begins, begins) != 0 ||
	    memcmp(head + head_bytes - ends, data_ends, ends) != 0)
		return false;
	uint64_t value = 0;
	for (size_t i = begins; i < head_bytes - ends; i++) {
		if (head[i] < '0' || head[i] > '9')
			return false;
		value = 10 * value + (uint64_t)(head[i] - '0');
	}
	*channel = (uint32_t)value;
	return value <= UINT32_MAX;
}

static void take_data(struct link *link, uint32_t channel, struct net_frame *body)
{
	struct link_hop *hop = link_hop_find(link, channel, false);
	if (!hop || !body) // the rest of one that was destroyed
		return;
	note_passed(hop);
	if (hop->state == HOP_OPEN && !hop->first && !hop->paused && !link->links->fenced) {
		pass_on(hop, body);
		return;
	}
	if (hop->queued > LIMIT_HOP_AHEAD_BYTES || hop->pieces >= LIMIT_STREAM_QUEUE_PIECES)
		link_conn_end(link->conn, "it sends more than it may");
	else if (push(hop, body))
		link_hop_end(hop, "out of memory for a message");
}

bool link_hops_data(struct link *link, const uint8_t *head, size_t head_bytes, struct net_frame *body)
{
	uint32_t channel;
	if (!read_channel(head, head_bytes, &channel))
		return false;
	take_data(link, channel, body);
	return true;
}

void link_hop_pause(struct link_hop *hop, bool paused)
{
	hop->paused = paused;
	if (!paused && hop->first)
		links_hops_turn_soon(hop->links);
}

static void pass_on_waiting(struct link_hop *hop)
{
	while (!hop->destroyed && hop->state == HOP_OPEN && hop->first && !hop->paused && !hop->links->fenced) {
		struct net_frame *frame = pop(hop);
		pass_on(hop, frame);
		net_frame_unref(&frame);
	}
}

// Not in the form that this program sends it in.
enum status link_serve_hop_data(void *arg, const struct message *message, struct error *error)
{
	const struct link_conn *conn = arg;
	(void)error;
	take_data(conn->link, link_hop_channel_of(message), conn->body);
	return STATUS_OK;
}

enum status link_serve_hop_taken(void *arg, const struct message *message, struct error *error)
{
	struct link *link = ((struct link_conn *)arg)->link;
	const int64_t bytes = json_get_integer(message->params, "bytes", 0);
	struct link_hop *hop = link_hop_find(link, link_hop_channel_of(message), true);
	(void)error;
	if (!hop || (uint64_t)bytes > hop->passed || (uint64_t)bytes < hop->taken)
		return STATUS_OK;
	hop->taken = (uint64_t)bytes;
	links_hops_feed(link->links, link);
	return STATUS_OK;
}

// ---- turns, and the end ----

static void look_at(struct link_hop *hop)
{
	struct json *id = hop->ask_id;
	if (hop->state == HOP_ANSWER) {
		hop->state = HOP_OPEN;
		hop->ask_id = NULL;
		link_answer(hop->link, "hop.open", id, json_new_object(), NULL);
		json_destroy(&id);
		if (hop->handler->opened)
			hop->handler->opened(hop->user, hop);
	}
	if (!hop->destroyed && !hop->sends)
		pass_on_waiting(hop);
	if (hop->destroyed || hop->state != HOP_ENDED)
		return;
	hop->handler->closed(hop->user, hop->why);
	if (!hop->destroyed)
		link_hop_unlink(hop);
}

static void turn(void *arg)
{
	struct links *links = arg;
	links_hops_enter(links);
	all_due(links);
	for (struct link_hop *hop; (hop = next_due(links, NULL));)
		look_at(hop);
	links_hops_leave(links);
	links_hops_feed(links, NULL);
}

void links_fence(struct links *links, bool fenced)
{
	links->fenced = fenced;
	if (!fenced)
		links_hops_turn_soon(links);
}

void link_hops_down(struct link *link, const char *why)
{
	link_hops_drop_asks(link);
	for (struct link_hop *hop = link->links->hops; hop; hop = hop->next)
		if (hop->link == link) {
			link_hop_end(hop, why);
			hop->link = NULL;
		}
}

void links_hops_finish(struct links *links)
{
	while (links->hops)
		link_hop_unlink(links->hops);
}
