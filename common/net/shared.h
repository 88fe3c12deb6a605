/* Memory that a worker shares with the server, so that bulk does not go through a socket between them: the server says
 * in a call where the bytes lie. What is read the worker puts there, and the server sends it to the client from there;
 * what is written the server puts there, and the worker takes it.
 *
 *     0           BLOCK        2 * BLOCK                    BLOCKS * BLOCK
 *     +-----------+------------+------------+---------------+
 *     | block 0   | block 1    | block 2    | ...           |
 *     +-----------+------------+------------+---------------+
 *
 * The worker makes it, all of its pages at once, since who touches a page that the system then fails to find is ended.
 * The server seals it, so that neither its size can change nor a page be taken out of it, nor anybody but these two
 * write there, and then asks the system whether it is whole (net_shared_open): it believes the worker nothing. It never
 * reads what it has written there, and what a worker writes there at the wrong time spoils its own session's bytes.
 * Which blocks are in use is written nowhere but at the server.
 *
 * Behind the blocks is a lane for each direction, by which the ends pass notes without a system call and without text:
 * a read that is asked for, and that it is done.
 *
 *     0           4           64                                     64 + 64 * 40
 *     +-----------+-----------+--------------------------------------+
 *     | count u32 | waits u32 | note 0, note 1, ...                  |     the n-th ever lies at n % 64
 *     +-----------+-----------+--------------------------------------+
 *
 * `count` are in it so far; who takes them out counts for himself. `waits`: he is about to sleep, and wants to be woken
 * by other ways when there is one (net_shared_wait). Each note that the worker is asked by has a block of its own until
 * it is answered, so no more than 64 are ever under way, and none is written over before it was read. A note is
 * copied once and then judged like a message.
 * Thread: one at each end; of the worker's end also one that only puts. Frames keep the server's end until the last of
 * them is let go. */
#pragma once
#include "common/base/limits.h"
#include "common/net/ws/ws.h"

// Smaller transfers do not use shared memory.
#define NET_SHARED_LEAST_BYTES (32 * 1024)
#define NET_SHARED_NOTES 64 // under way at once, each way
// The whole size: the blocks, and a page for each lane.
#define NET_SHARED_ALL_BYTES (LIMIT_SHARED_BYTES + 2 * 4096)

struct net_shared;

// The worker's end. *fd: to be passed on and closed. Errors: STATUS_UNAVAILABLE (this system has no such memory, or
// none now).
enum status net_shared_create(struct net_shared **out, int *fd, struct error *error);
struct net_shared *net_shared_ref(struct net_shared *shared); // net_shared_destroy lets it go
// The address of these bytes; NULL: outside this memory.
uint8_t *net_shared_at(struct net_shared *shared, uint64_t at, size_t bytes);

// The server's end; the descriptor is taken. Errors: STATUS_INVALID_PARAMS (it is no such memory), STATUS_UNAVAILABLE.
enum status net_shared_open(struct net_shared **out, int fd, struct error *error);
// Room for so many bytes, as a frame that gives it back at its end, and where it is; NULL: there is none now.
struct net_frame *net_shared_take(struct net_shared *shared, size_t bytes, uint64_t *at);
bool net_shared_in_use(const struct net_shared *shared); // by frames

// A read: of which call, what and where to. Of its answer `call` alone counts.
struct net_shared_note {
	uint64_t call, handle, offset, bytes, at;
};
// Put one for the other end. True: it sleeps, and is to be woken.
bool net_shared_put(struct net_shared *shared, const struct net_shared_note *note);
// Take the next from the other end, and want no waking for now. False: there is none.
bool net_shared_get(struct net_shared *shared, struct net_shared_note *note);
bool net_shared_noted(const struct net_shared *shared); // whether one is there
// Want to be woken by the next one. False: it is there already.
bool net_shared_wait(struct net_shared *shared);

void net_shared_destroy(struct net_shared **shared);
