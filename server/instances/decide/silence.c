/* See silence.h. */
#include "server/instances/decide/silence.h"

#include "common/base/limits.h"

static bool only_fetch(const enum part_step *parts, unsigned count)
{
	bool fetch = false;
	for (unsigned i = 0; i < count; i++) {
		if (parts[i] != PART_FETCHING && parts[i] != PART_LOADED)
			return false;
		fetch |= parts[i] == PART_FETCHING;
	}
	return fetch;
}

int64_t silence_limit_ms(enum parts_step step, const enum part_step *parts, unsigned count)
{
	static const int64_t limits_ms[] = {[PARTS_LOADING] = LIMIT_LOAD_STALL_MS,
					    [PARTS_CONNECTING] = LIMIT_HOP_CONNECT_MS,
					    [PARTS_CHECKING] = LIMIT_CHECK_MS,
					    [PARTS_READY] = 0,
					    [PARTS_AWAY] = 0};
	return step == PARTS_LOADING && only_fetch(parts, count) ? LIMIT_FETCH_SILENCE_MS : limits_ms[step];
}

int64_t silence_adopt_limit_ms(int64_t requests_wait_ms, double load_ms)
{
	const int64_t half_ms = requests_wait_ms / 2, ms = half_ms > (int64_t)load_ms ? half_ms : (int64_t)load_ms;
	return ms < SILENCE_ADOPT_MS ? SILENCE_ADOPT_MS : ms > LIMIT_CHECK_MS ? LIMIT_CHECK_MS : ms;
}

struct silence silence_blame(const struct silence_seen *seen)
{
	struct silence out = {.what = "loading"};
	if (seen->step == PARTS_CONNECTING)
		return (struct silence){seen->unconnected, "its connection to the next part was not ready in time"};
	if (seen->step == PARTS_CHECKING)
		return (struct silence){seen->count - 1, "the reference token did not come back"};
	while (out.part + 1 < seen->count && seen->parts[out.part] == PART_LOADED)
		out.part++;
	if (seen->adopting)
		out.what = "adopting it";
	else if (seen->parts[out.part] == PART_FETCHING)
		out.what = "fetching";
	return out;
}

bool silence_keeps(struct silence_passing *seen, uint64_t come, uint64_t gone, int64_t now_ms)
{
	if (come <= gone || gone != seen->gone)
		seen->since_ms = now_ms;
	seen->gone = gone;
	return now_ms - seen->since_ms >= SILENCE_PASS_MS;
}

int64_t silence_doubt_ms(bool have_worked, bool connecting, unsigned count, bool worker_ended)
{
	if (count < 2 || worker_ended)
		return 0;
	return have_worked ? SILENCE_END_MS : connecting ? SILENCE_FIRST_END_MS : 0;
}
