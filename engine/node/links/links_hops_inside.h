/* A hop over a direct link, as its own files see it: links_hops.c sends and receives, links_hops_open.c opens and
 * closes. Not for others. Thread: the loop's. */
#pragma once
#include "engine/node/links/links_inside.h"

enum hop_state {
	HOP_WAITS,  // in: to be asked
	HOP_ASKED,  // out: for the answer
	HOP_ANSWER, // in: asked; the answer is the next turn's
	HOP_OPEN,
	HOP_ENDED, // `closed` is the next turn's
};

struct hop_piece {
	struct hop_piece *next;
	struct net_frame *frame;
};

struct link_hop {
	struct link_hop *next;
	struct links *links;
	struct link *link; // NULL: it is down, and the hop has ended
	const struct link_hop_handler *handler;
	void *user;
	char hop_id[LINK_ID_BYTES], key[LINK_ID_BYTES];
	bool sends, bulk, destroyed, paused, was_full;
	bool due; // this turn has not looked at it yet
	enum hop_state state;
	uint32_t channel;
	struct json *ask_id;             // HOP_ANSWER: the call to answer
	struct hop_piece *first, **last; // out: not sent; in: not passed on
	size_t queued, pieces;
	// Bytes since it was opened. passed: sent, or passed on to the handler. taken: of these, what the in end has
	// said to be passed on.
	uint64_t passed, taken;
	char why[LINK_REASON_BYTES];
};

// links_hops.c
struct link_hop *link_hop_find(struct link *link, uint32_t channel, bool sends); // one that is asked for, or open
void link_hop_end(struct link_hop *hop, const char *why); // `closed` follows in a turn of its own
void link_hop_unlink(struct link_hop *hop);               // its memory stays until the outermost callback returns
void links_hops_turn_soon(struct links *links);           // make the pending callbacks, outside of the caller's call
void links_hops_feed(struct links *links, const struct link *link); // the connection takes more; NULL: all of them
// Around a callback: a hop that is destroyed in it is freed when the outermost one returns.
void links_hops_enter(struct links *links);
void links_hops_leave(struct links *links);
static inline uint32_t link_hop_channel_of(const struct message *message)
{
	return (uint32_t)json_get_integer(message->params, "channel", 0);
}

// links_hops_open.c
void link_hops_drop_asks(struct link *link);
