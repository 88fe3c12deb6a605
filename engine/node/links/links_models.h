/* Bytes of model files over direct links: asked of another node, and given to one.
 *
 * They pass on the same connection as hops, a little at a time (LIMIT_LINK_READ_BYTES), of which few are under way, so
 * that a hop's message waits for little; and none while any hop of this node has data under way, or while the node is
 * fenced. Who asks then, or where the link has much to send already, is refused at once, and has the server to ask.
 * What is true of the bytes is for the caller to check. Thread: the loop's. */
#pragma once
#include "engine/node/links/links.h"

// What another node asks for; answered once, at once or later, by link_request_answer.
struct link_request {
	struct link_request *next;
	struct links *links; // NULL: they are gone
	struct json *id;
	char peer_id[65], model_id[65];
	uint64_t offset;
	size_t bytes; // LIMIT_LINK_READ_BYTES at most
};
// With the bytes, or with an error if one is given. Frees it, and leaves NULL; the frame stays the caller's.
void link_request_answer(struct link_request **request, struct net_frame *bytes, const struct error *error);

struct link_read;
struct link_read_params {
	const char *peer_id, *model_id; // copied
	uint64_t offset;
	size_t bytes;
	// Called once, later, unless it is cancelled: the frame, of as many bytes as were asked for, is the callee's to
	// reference; NULL: an error. STATUS_NOT_FOUND: the other node does not have them. STATUS_UNAVAILABLE: the link
	// broke, or the other node has better to do. STATUS_TIMEOUT. STATUS_INVALID_REQUEST: it sent something else.
	void (*done)(void *context, struct net_frame *bytes, const struct error *error);
	void *context;
};
// Errors, and then `done` is not called: STATUS_NOT_FOUND (no link to that node is up), STATUS_UNAVAILABLE (hops have
// data under way), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status link_read_start(struct link_read **out, struct links *links, const struct link_read_params *params);
void link_read_cancel(struct link_read **read);          // accepts NULL, leaves NULL behind
bool links_up(struct links *links, const char *peer_id); // a direct link to this node is there now
