/* What hops.c and the ways that a hop can take (hops_ways.c) know of each other.
 *
 * A ring has two ends, and each end has a hop at most, which is replaced as a whole: a new one is made for each
 * hop.connect. A way carries what its end gives it (send), and hands over what comes (hop_message). It says when the
 * other end is there (hop_opened) and, once, when there is no way any more (hop_ended), and frees its hop after that.
 * Nothing is told of a hop that was closed here. A channel is a ring with one end, which has one hop and goes with it.
 * Thread: the loop's. */
#pragma once
#include "common/net/parts.h"
#include "common/net/stream.h"
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
	bool channel;           // one of them is
	int worker_fd;          // of a channel, until its worker is given it; else -1
	struct net_timer gone;  // of a channel that has lost its hop: it is freed outside of what told so
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
	void (*open)(struct hop *hop); // the outcome is told, perhaps at once: the hop may be gone then
	// Errors, and then nothing was sent: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
	enum status (*send)(struct hop *hop, const struct net_parts *message);
	size_t (*queued)(const struct hop *hop);     // of what was sent
	void (*pause)(struct hop *hop, bool paused); // what comes; not twice the same
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

// For the ways to call.
void hop_opened(struct hop *hop);
// A message for the worker at its end. It may break the hop: nothing of it may be touched afterwards but what the way
// still holds.
void hop_message(struct hop *hop, const struct net_parts *message);
// Of what was sent more than LIMIT_STREAM_FULL_BYTES wait: no more is read for it. Or none do now.
void hop_full(struct hop *hop, bool full);
// There is no way any more. The hop is the way's to free.
void hop_ended(struct hop *hop, enum status status, const char *why);
// The same of a hop whose way stands: it is closed.
void hop_break(struct hop *hop, enum status status, const char *why);
void hop_free(struct hop *hop);
