/* The interface between hops.c and the ways that a hop can take (hops_ways.c).
 *
 * A ring has two ends, and each end has at most one hop, which is replaced as a whole: each hop.connect creates a new
 * one. A way sends the messages of its end (send), and delivers those that arrive (hop_message). It calls hop_opened
 * when the other end is there and, once, hop_ended when the connection is over, and then frees its hop. A hop that was
 * closed by hops.c makes no calls. A channel is a ring with one end, whose one hop ends with it. Thread: the loop's. */
#pragma once
#include "common/net/stream.h"
#include "common/net/ws/parts.h"
#include "engine/node/links/hops.h"

#include <sys/socket.h>
#include <sys/un.h>

struct hop_end {
	struct hops_ring *ring;
	bool sends;                // the out end, of descriptor 7; else the in end, of 6
	struct net_stream *stream; // the node's end of the worker's socket; NULL: the worker has closed it
	struct hop *hop;           // NULL: it is not connected, nor being so
	bool reading;              // the stream is
	bool full;                 // where its messages go to there is more than LIMIT_STREAM_FULL_BYTES
};

struct hops_ring {
	struct hops_ring *next, **link;
	struct hops *all;
	char worker_id[65];
	struct hop_end ends[2]; // in, out
	bool channel;           // at least one of the two is a channel
	int worker_fd;          // of a channel, until its worker is given it; else -1
	struct net_timer gone;  // of a channel that has lost its hop: it is freed outside of the callback
};

struct hop {
	struct hop *next, **link;
	struct hops *all;
	struct hop_end *end; // NULL: it was closed here, or has ended
	const struct hop_way *way;
	char hop_id[65], key[65], peer_id[65];
	bool open;
	struct uplink_call *call;  // hop.connect, until it is answered
	struct net_timer deadline; // of that
	// The ways' own.
	struct hop *other;         // of this node; NULL: not there yet
	struct net_stream *stream; // to a server on this machine
	struct net_conn *conn;     // to one on another; NULL before it is open
	bool paused;               // its reading
	struct net_timer dialling; // until it is
	bool dialled;
	bool *gone;               // set when this is freed, while uplink_dial is on the stack
	struct link_hop *carried; // by a direct link
};

struct hop_way {
	const char *name;              // hop.connect's via
	void (*open)(struct hop *hop); // the result is reported, perhaps at once: the hop may be gone then
	// Errors, and then nothing was sent: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
	enum status (*send)(struct hop *hop, const struct net_parts *message);
	size_t (*queued)(const struct hop *hop);     // bytes that were sent and are still queued
	void (*pause)(struct hop *hop, bool paused); // incoming messages; never called twice with the same value
	void (*fence)(struct hop *hop, bool fenced); // as it goes both ways; NULL: others do
	void (*close)(struct hop *hop);              // it is not told anything any more, and freed now or later
};
extern const struct hop_way hop_local, hop_link, hop_server_near, hop_server_far;

struct hops {
	struct hops_params params;
	struct sockaddr_un server; // its socket for workers, if it is on this machine
	struct hops_ring *rings;
	struct hop *list;      // all hops, closing ones too
	struct buffer message; // one that is put together for a link
	bool fenced;
};

// Calls for the ways:
void hop_opened(struct hop *hop);
// A message for the worker at the hop's end. It may break the hop: afterwards only the way's own references are valid.
void hop_message(struct hop *hop, const struct net_parts *message);
// The send queue is longer than LIMIT_STREAM_FULL_BYTES, so its sender is not read; or (false) it is empty.
void hop_full(struct hop *hop, bool full);
// There is no way any more. The hop is the way's to free.
void hop_ended(struct hop *hop, enum status status, const char *why);
// The same of a hop whose way stands: it is closed.
void hop_break(struct hop *hop, enum status status, const char *why);
void hop_free(struct hop *hop);
