/* Memory that a worker shares with the server, so that what it reads for a client is copied once on the way and not
 * twice: the worker puts it into blocks, says where it lies, and the server sends it to the client from there.
 *
 *     0        8             PAGE                                    PAGE + BLOCKS * BLOCK
 *     +--------+-------------+-----------+-----------+---------------+
 *     | busy   | unused      | block 0   | block 1   | ...           |
 *     +--------+-------------+-----------+-----------+---------------+
 *
 * `busy` has a bit for each block: the worker sets those that it fills, the server clears those that are sent. Without
 * room the worker sends bytes through the socket, as it does where the two are not of one machine. The worker makes the
 * memory, of a size that cannot change (sealed), and passes its descriptor with the first message that speaks of it.
 * It is not trusted: it may write there at any time, and spoils its own session's bytes only; the server reads only
 * through the ranges that it checks, and believes nothing that is written there.
 * Thread: one at each end. Frames keep the memory until the last of them is sent. */
#pragma once
#include "common/net/ws.h"

// Of less than this it is not worth while.
#define NET_SHARED_LEAST_BYTES (32 * 1024)

struct net_shared;

// The worker's end. *fd: to be passed on and closed. Errors: STATUS_UNAVAILABLE (this system has no such memory).
enum status net_shared_create(struct net_shared **out, int *fd, struct error *error);
// Room for so many bytes, and where it is; NULL: there is none now.
uint8_t *net_shared_take(struct net_shared *shared, size_t bytes, uint64_t *at);

// The server's end; the descriptor is taken. Errors: STATUS_INVALID_PARAMS (it is no such memory), STATUS_UNAVAILABLE.
enum status net_shared_open(struct net_shared **out, int fd, struct error *error);
// What lies there, as a frame that gives its blocks back at its end; NULL: no range of this memory, or out of memory.
struct net_frame *net_shared_frame(struct net_shared *shared, uint64_t at, size_t bytes);

void net_shared_destroy(struct net_shared **shared);
