/* The pace of sampling: see pace.h. */
#include "engine/telemetry/pace.h"

enum { FAST_MS = 500, BUSY_MS = 1000, IDLE_MS = 5000, TOGETHER_MS = 50 };

static int64_t full_interval(const struct pace *pace, bool watched)
{
	return pace->working || watched || pace->rounds < 2 ? BUSY_MS : IDLE_MS;
}

// Steps of the interval, so that a late round does not shift those after it; a round that was missed is not made up.
static int64_t advance(int64_t due_ms, int64_t now_ms)
{
	return now_ms - due_ms < FAST_MS && now_ms >= due_ms - TOGETHER_MS ? due_ms : now_ms;
}

enum pace_round pace_take(struct pace *pace, bool watched, int64_t now_ms)
{
	if (pace->rounds == 0) {
		pace->full_ms = pace->fast_ms = now_ms;
		pace->rounds = 1;
		return PACE_FULL;
	}
	int64_t full_due = pace->full_ms + full_interval(pace, watched);
	if (now_ms >= full_due - TOGETHER_MS) {
		pace->full_ms = pace->fast_ms = advance(full_due, now_ms);
		pace->rounds = 2;
		return PACE_FULL;
	}
	int64_t fast_due = pace->fast_ms + FAST_MS;
	if (pace->working && now_ms >= fast_due - TOGETHER_MS) {
		pace->fast_ms = advance(fast_due, now_ms);
		return PACE_FAST;
	}
	return PACE_NOTHING;
}

int64_t pace_next(const struct pace *pace, bool watched)
{
	if (pace->rounds == 0)
		return 0;
	int64_t full_due = pace->full_ms + full_interval(pace, watched), fast_due = pace->fast_ms + FAST_MS;
	return pace->working && fast_due < full_due ? fast_due : full_due;
}
