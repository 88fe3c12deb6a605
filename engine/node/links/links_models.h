/* Bytes of model files over direct links: requested from another node, and sent to one.
 *
 * They use the same connection as hops, in small parts (LIMIT_LINK_READ_BYTES) of which few are in flight, so that a
 * hop's message waits only briefly. None is sent while any hop of this node has data in flight, or while the node is
 * fenced; a request then, or to a link with a long queue, is refused at once, and the server is asked instead. The
 * caller checks the bytes. Thread: the loop's. */
#pragma once
#include "engine/node/links/links.h"

// A request of another node; link_request_answer answers it once, at once or later.
struct link_request {
	struct link_request *next;
	struct links *links; // NULL: they are gone
	struct json *id;
	char peer_id[65], model_id[65];
	uint64_t offset;
	size_t bytes; // LIMIT_LINK_READ_BYTES at most
};
// Answer with the bytes, or with an error if there is one. Frees the request, and leaves NULL; the frame stays the
// caller's.
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
// Errors, after which `done` is not called: STATUS_NOT_FOUND (no link to that node is up), STATUS_UNAVAILABLE (hops
// have data in flight), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status link_read_start(struct link_read **out, struct links *links, const struct link_read_params *params);
void link_read_cancel(struct link_read **read);          // accepts NULL, leaves NULL behind
bool links_up(struct links *links, const char *peer_id); // a direct link to this node is there now
