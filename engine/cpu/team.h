/* The threads of one step of a model: a few hundred phases, each cut into pieces, a few microseconds apart.
 *
 * Waking sleeping threads for each phase would take longer than the work. So the device's pool is called once a step.
 * The first of its threads leads; the others spin between phases, and after a while yield the processor each time they
 * look. The team waits for no thread that comes late: those that are there take the pieces. When the leader is done,
 * all threads go back to sleep. Thread: team_run is the leader's. */
#pragma once
#include "engine/pool.h"

struct team;

// Call lead(team, context) on one thread of the pool, with up to `threads` at hand, and return when it has returned.
void team_lead(struct pool *pool, unsigned threads, void (*lead)(struct team *team, void *context), void *context);
// A phase: call piece(context, i) once for each i below count, in any order, and return when all are done.
void team_run(struct team *team, void (*piece)(void *context, uint64_t index), void *context, uint32_t count);
