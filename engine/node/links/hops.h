/* Hops: they connect each part of a model instance to the next one in the ring, and carry a copy from one worker of a
 * session to another.
 *
 *     worker, fd 7 -> net_stream | hop | other end of the same node            -> net_stream -> fd 6, worker
 *                                      | direct link (links.h)   -> hop there
 *                                      | stream to the server, which passes it on (hop.hello)
 *
 * The node forwards every message unchanged and does not parse it. Back-pressure: while LIMIT_STREAM_FULL_BYTES wait
 * for a receiver, its sender is not read. A broken hop does not affect its worker: the server is notified (hop.ended)
 * and connects it again, or ends the worker. A fence (lease.h) stops all hops at once, and loses nothing.
 *
 * A copy's hop (a channel) is connected once, and its worker gets its end when the other end is there. If the hop or a
 * worker ends, everything of the channel ends, without a message to the server: both workers see their sockets close.
 * Thread: the loop's. */
#pragma once
#include "engine/node/links/links.h"
#include "engine/node/uplink/uplink.h"

struct hops;
// The two ends of one worker's ring.
struct hops_ring;

// A worker's end of a channel.
struct hops_channel {
	const char *worker_id, *channel;
	bool sends;
	int fd;
};

struct hops_params {
	struct net_loop *loop;
	struct links *links; // NULL: there are none
	// A stream to the server for a hop, hop.hello not yet said: to workers.sock on its own machine, else by TLS.
	struct uplink *uplink;
	const char *stream_path;                       // workers.sock, or NULL; copied
	void (*ended)(void *arg, struct json *params); // hop.ended; taken
	// Give the worker that copy.connect named its end, in a later turn than that. Takes the call, whose params are
	// gone by now, and answers it; takes the descriptor.
	void (*hand_over)(void *arg, struct uplink_call *call, const struct hops_channel *channel);
	void *arg;
};
enum status hops_create(struct hops **out, const struct hops_params *params, struct error *error);
void hops_destroy(struct hops **hops); // after all rings
void hops_fence(struct hops *hops, bool fenced);
// There are direct links now, or (NULL) none any more: hops that went by them break.
void hops_use_links(struct hops *hops, struct links *links);

// Two socket pairs for a worker that is about to start: *in_fd is its descriptor 6, *out_fd its 7, the caller's to
// close. Errors: STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status hops_ring_create(struct hops_ring **out, struct hops *hops, const char *worker_id, int *in_fd, int *out_fd,
			     struct error *error);
void hops_ring_destroy(struct hops_ring **ring);
// hop.connect: takes the call and answers it.
void hops_connect(struct hops *hops, struct uplink_call *call);
// copy.connect: the same.
void hops_connect_channel(struct hops *hops, struct uplink_call *call);
void hops_drop_channels(struct hops *hops, const char *worker_id); // the worker has ended
