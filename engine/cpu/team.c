/* See team.h. `ticket` holds the number of the phase and the next free piece. A thread that takes a piece by exchanging
 * the ticket knows that the phase is not over, so what it read before belongs to this phase. */
#include "engine/cpu/team.h"

#include <sched.h>
#include <stdatomic.h>

enum { SPINS = 2000 }; // about 50 to 100 microseconds

struct team {
	_Atomic uint64_t ticket; // phase << 32 | next piece
	_Atomic uint32_t count;  // pieces of the phase
	_Atomic uint32_t done;
	void (*_Atomic piece)(void *context, uint64_t index);
	void *_Atomic piece_context;
	atomic_bool ended;
	void (*lead)(struct team *team, void *context);
	void *context;
};

static void wait_a_little(unsigned *spins)
{
	if (++*spins > SPINS) {
		sched_yield();
		return;
	}
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

// False if there is no piece left of the phase.
static bool take_piece(struct team *team)
{
	uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
	for (;;) {
		if ((uint32_t)ticket >= atomic_load_explicit(&team->count, memory_order_acquire))
			return false;
		void (*piece)(void *, uint64_t) = atomic_load_explicit(&team->piece, memory_order_relaxed);
		void *context = atomic_load_explicit(&team->piece_context, memory_order_relaxed);
		if (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket + 1, memory_order_acq_rel,
							   memory_order_acquire))
			continue;
		piece(context, (uint32_t)ticket);
		atomic_fetch_add_explicit(&team->done, 1, memory_order_release);
		return true;
	}
}

void team_run(struct team *team, void (*piece)(void *context, uint64_t index), void *context, uint32_t count)
{
	uint64_t phase = atomic_load_explicit(&team->ticket, memory_order_relaxed) >> 32;
	unsigned spins = 0;
	// No thread takes a piece before the ticket is new: all pieces of the old one are taken.
	atomic_store_explicit(&team->count, 0, memory_order_relaxed);
	atomic_store_explicit(&team->done, 0, memory_order_relaxed);
	atomic_store_explicit(&team->piece, piece, memory_order_relaxed);
	atomic_store_explicit(&team->piece_context, context, memory_order_relaxed);
	atomic_store_explicit(&team->ticket, (phase + 1) << 32, memory_order_release);
	atomic_store_explicit(&team->count, count, memory_order_release);
	while (take_piece(team))
		;
	while (atomic_load_explicit(&team->done, memory_order_acquire) != count)
		wait_a_little(&spins);
}

static void member(void *context, uint64_t index)
{
	struct team *team = context;
	unsigned spins = 0;
	if (!index) {
		team->lead(team, team->context);
		atomic_store_explicit(&team->ended, true, memory_order_release);
	}
	while (!atomic_load_explicit(&team->ended, memory_order_acquire))
		if (take_piece(team))
			spins = 0;
		else
			wait_a_little(&spins);
}

void team_lead(struct pool *pool, unsigned threads, void (*lead)(struct team *team, void *context), void *context)
{
	struct team team = {.lead = lead, .context = context};
	pool_run(pool, member, &team, threads);
}
