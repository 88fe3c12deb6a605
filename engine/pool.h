/* Threads for work on the processor: a CPU device's, or the loading of a model. The work is cut into pieces, and each
 * free thread takes the next one.
 *
 * A piece is a few hundred KiB or a few hundred thousand operations: large enough that taking it from an atomic counter
 * costs nothing, small enough that unlike cores (and cores that others use, too) end at about the same time and that a
 * stop takes effect at once. The thread that asks for the work takes pieces like the others, so a pool of one thread
 * needs no threads, and several may ask side by side: each gets on with its own work, and helpers go where pieces are
 * left. Threads without work sleep.
 * Thread: any for pool_run and pool_stop; create and destroy by the owner, with nothing running. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

struct pool;

// On how many processors this thread may run, `most` at most.
unsigned pool_processors(unsigned most);

// A pool of at most `threads` threads, the caller's included; fewer if the system gives no more. Errors:
// STATUS_OUT_OF_MEMORY.
enum status pool_create(struct pool **out, unsigned threads, struct error *error);
void pool_destroy(struct pool **pool);

// Call piece(context, i) once for each i below `count`, in any order, and return when all are done. After a stop the
// pieces that are not begun are left out.
void pool_run(struct pool *pool, void (*piece)(void *context, uint64_t index), void *context, uint64_t count);
// Stop the pool for good, because the device is closed.
void pool_stop(struct pool *pool);
bool pool_stopped(const struct pool *pool);
