/* When to read a device again (T1): temperature and power every 0.5 s while it works; everything every 1 s while it
 * works or somebody watches, every 5 s when idle and unwatched; the first time at once, the second after 1 s, so that
 * rates are there soon.
 *
 * Pure: time is given, so a test needs no clock. What falls due within 50 ms is taken in the same round, which keeps
 * the devices of a machine in step and their readings in one message. Thread: its owner's. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum pace_round {
	PACE_NOTHING,
	PACE_FAST, // temperature and power
	PACE_FULL  // everything
};

struct pace {       // all zero at first
	int rounds; // full ones taken, counted to 2
	bool working;
	int64_t full_ms, fast_ms; // when the last were due, steady clock
};

// What is due at `now_ms`; it counts as taken.
enum pace_round pace_take(struct pace *pace, bool watched, int64_t now_ms);
// When something falls due next; 0 before the first round.
int64_t pace_next(const struct pace *pace, bool watched);
