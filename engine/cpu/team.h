/* The threads of one step of a model: a few hundred phases, each cut into pieces, a few microseconds apart.
 *
 * To wake sleeping threads for each would take longer than the work. So the device's pool is asked once a step; of the
 * threads that come the first leads and the others, between phases, watch for the next one: they spin, and after a
 * while give way to others each time they look. A thread that comes late, or never, is not waited for: whoever is there
 * takes pieces. When the leader is done, all go back to sleep. Thread: team_run is the leader's. */
#pragma once
#include "engine/pool.h"

struct team;

// Call lead(team, context) on one thread of the pool, with up to `threads` at hand, and return when it has returned.
void team_lead(struct pool *pool, unsigned threads, void (*lead)(struct team *team, void *context), void *context);
// A phase: call piece(context, i) once for each i below count, in any order, and return when all are done.
void team_run(struct team *team, void (*piece)(void *context, uint64_t index), void *context, uint32_t count);
