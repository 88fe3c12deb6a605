/* When to read a device again: temperature and power every 0.5 s while it works; everything
 * every 1 s while it works or somebody watches, and every 5 s when it is idle and unwatched.
 * The first reading is at once and the second after 1 s, so that rates are soon available.
 * Pure: the caller gives the time, so tests need no clock. Readings that are due within 50 ms
 * share a round, which keeps the devices of a machine in step and in one message. Thread: its
 * owner's. */
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

// The readings due at `now_ms`; they count as taken.
enum pace_round pace_take(struct pace *pace, bool watched, int64_t now_ms);
// The time of the next reading; 0 before the first round.
int64_t pace_next(const struct pace *pace, bool watched);
