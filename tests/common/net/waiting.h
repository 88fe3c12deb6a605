/* Runs a loop until something holds. Thread: the loop's. */
#pragma once
#include "common/net/loop.h"

struct waiting {
	struct net_loop *loop;
	bool (*enough)(void);
	bool met;
	struct net_timer look, patience;
};

static inline void waiting_look(void *arg)
{
	struct waiting *waiting = arg;
	waiting->met = waiting->enough();
	if (waiting->met)
		net_loop_stop(waiting->loop);
	else
		net_timer_start(waiting->loop, &waiting->look, 1, waiting_look, waiting);
}

static inline void waiting_ends(void *arg)
{
	net_loop_stop(((struct waiting *)arg)->loop);
}

// Whether it came to hold in time. `enough` is asked each ms, on the loop; something else may stop the loop first.
static inline bool wait_until(struct net_loop *loop, bool (*enough)(void), int64_t patience_ms)
{
	struct waiting waiting = {.loop = loop, .enough = enough};
	net_timer_start(loop, &waiting.look, 0, waiting_look, &waiting);
	net_timer_start(loop, &waiting.patience, patience_ms, waiting_ends, &waiting);
	net_loop_run(loop);
	net_timer_stop(loop, &waiting.look);
	net_timer_stop(loop, &waiting.patience);
	return waiting.met;
}
