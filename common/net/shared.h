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
 * Thread: one at each end. Frames keep the server's end until the last of them is let go. */
#pragma once
#include "common/net/ws.h"

// Of less than this it is not worth while.
#define NET_SHARED_LEAST_BYTES (32 * 1024)

struct net_shared;

// The worker's end. *fd: to be passed on and closed. Errors: STATUS_UNAVAILABLE (this system has no such memory, or
// none now).
enum status net_shared_create(struct net_shared **out, int *fd, struct error *error);
struct net_shared *net_shared_ref(struct net_shared *shared); // net_shared_destroy lets it go
// Where these bytes lie; NULL: not within this memory.
uint8_t *net_shared_at(struct net_shared *shared, uint64_t at, size_t bytes);

// The server's end; the descriptor is taken. Errors: STATUS_INVALID_PARAMS (it is no such memory), STATUS_UNAVAILABLE.
enum status net_shared_open(struct net_shared **out, int fd, struct error *error);
// Room for so many bytes, as a frame that gives it back at its end, and where it is; NULL: there is none now.
struct net_frame *net_shared_take(struct net_shared *shared, size_t bytes, uint64_t *at);
bool net_shared_in_use(const struct net_shared *shared); // by frames

void net_shared_destroy(struct net_shared **shared);
