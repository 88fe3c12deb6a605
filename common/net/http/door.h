/* Who may stay at the door: the policy for connections that a listener has accepted, without their sockets.
 *
 * A guest is a connection from its first moment to its last. It is a *stranger* until it has shown a token, a
 * certificate of the cluster, or that it is the machine's owner; strangers share a number of places by address
 * (places.h). Whoever is where the door waits for it, in one of the stages below, has until its time is over:
 *
 *   stage        begins                             time
 *   HANDSHAKE    when it comes, by TLS              5 s
 *   HEAD         when it comes; after HANDSHAKE     5 s, until the head of a request is whole
 *   BODY         behind the head                    5 s, and each KiB gives it 1 s more, up to 15 s ahead
 *   TAKING       with an answer that does not fit   the same for strangers; others 60 s since they last took any of it
 *   IDLE         after the answer                   15 s, until the next head is whole
 *   LEAVING      it was refused                     1 s, so that the answer arrives
 *   SERVED       it waits for us, or is a WebSocket none
 *
 * A known connection counts by its holder, a token for example. When all places are taken and strangers hold fewer
 * than they may, a newcomer gets the place of a connection that keeps the server waiting: the oldest one of the holder
 * that has the most of them, connections without a request first. So a holder who is slow on purpose keeps out neither
 * newcomers nor other holders. A request that waits for the server, and a WebSocket, keep their places.
 *
 * Time in which the loop itself stood still is nobody's fault and does not count (door_now). Pure: the caller says what
 * time it is. Thread: the loop's. */
#pragma once
#include "common/net/http/places.h"

#include <stddef.h>

enum door_stage {
	DOOR_UNKNOWN,
	DOOR_HANDSHAKE,
	DOOR_HEAD,
	DOOR_BODY,
	DOOR_TAKING,
	DOOR_IDLE,
	DOOR_LEAVING,
	DOOR_SERVED,
	DOOR_STAGES
};

struct door;

// Embedded in the connection; zero before first use.
struct guest {
	struct net_address address;
	bool counted; // it has an address by which it is counted: else it is no stranger
	bool known;
	uint64_t holder; // of one that is known and has an address
	enum door_stage stage;
	int64_t due_ms;             // when its time in this stage is over
	struct guest *next, **link; // of its stage, in the order of beginning
	struct place stranger;
	struct place waited; // among those that are known and keep us waiting, by their holder
};

struct door_params {
	unsigned strangers, connections; // places of strangers; of all
	int64_t stall_ms;                // of TAKING, for who is known
};
enum status door_create(struct door **out, const struct door_params *params, struct error *error);
void door_destroy(struct door **door);

// What time it is for guests: `steady_ms`, less the time in which nobody asked for longer than DOOR_BREAK_MS.
enum { DOOR_BREAK_MS = 1000 };
int64_t door_now(struct door *door, int64_t steady_ms);

// One comes, from this address (numeric; "" where none is counted). Whoever has to go for it is returned, out of its
// places already, to be ended by the caller; NULL: nobody.
struct guest *door_arrive(struct door *door, struct guest *guest, const char *peer, enum door_stage stage,
			  int64_t now_ms);
void door_leave(struct door *door, struct guest *guest); // may never have come
void door_stage(struct door *door, struct guest *guest, enum door_stage stage, int64_t now_ms);
// It waits for us; and whose turn it is of those who do, an address with few before one with many. NULL: no stranger's.
void door_wait(struct guest *guest, bool waits);
struct guest *door_next(struct door *door);
// Counts bytes of a body that arrived, or of an answer that was sent.
void door_progress(struct door *door, struct guest *guest, size_t bytes, int64_t now_ms);
// It has shown who it is, by a number, or asks on without doing so: 0. Returns as door_arrive does.
struct guest *door_know(struct door *door, struct guest *guest, uint64_t holder);
// The connection that would make room for a newcomer, of all or of one address: a stranger's, or a known one that keeps
// the server waiting. Of an address it is one of the kind that it has more of. It keeps its places. NULL: none.
struct guest *door_slowest(struct door *door);
struct guest *door_slowest_of(struct door *door, const struct net_address *address);
// A guest whose deadline has passed; NULL: none.
struct guest *door_late(struct door *door, int64_t now_ms);
struct guest *door_any(struct door *door); // for the end: whoever is still there; NULL: nobody
unsigned door_strangers(const struct door *door);
