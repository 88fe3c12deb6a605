// See generator_lanes.h.
#include "engine/generation/generator_lanes.h"

enum {
	ROUNDS = 3,            // of a trial, and of the best before one
	SMOOTHED = 8,          // rounds over which a rate is
	ROUND_NS = 5000000,    // at least: shorter ones are taken together
	FIRST_NS = 1000000000, // first trials of candidates may take so long in all
	SHARE = 100,           // a hundredth of the time goes to repeated trials
};

// A candidate below this share of the best rate is not tried further. It is small, since another process may slow down
// a single round by half.
static const double hopeless = 0.4;

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t lanes_of(const struct lanes_choice *choice, uint32_t candidate)
{
	return least(1U << candidate, least(choice->most, choice->generating));
}

// The candidate that is all lanes, or one for each request.
static uint32_t last_of(const struct lanes_choice *choice)
{
	uint32_t last = 0;
	while (1U << last < least(choice->most, choice->generating))
		last++;
	return last;
}

static uint32_t row_of(uint32_t generating)
{
	return least(generating, LANES_REQUESTS) - 1;
}

static uint32_t octave_of(uint32_t generating)
{
	uint32_t octave = 0;
	while (generating >>= 1)
		octave++;
	return least(octave, LANES_OCTAVES - 1);
}

// The best candidate for the nearest number of requests for which one is known; all lanes if none is known.
static uint32_t best_of(const struct lanes_choice *choice)
{
	const uint32_t row = row_of(choice->generating), last = last_of(choice);
	for (uint32_t away = 0; away < LANES_REQUESTS; away++) {
		if (away <= row && choice->of[row - away].known)
			return least(choice->of[row - away].best, last);
		if (row + away < LANES_REQUESTS && choice->of[row + away].known)
			return least(choice->of[row + away].best, last);
	}
	return last;
}

// Change to another candidate. Steps in flight still belong to the one before it, and the lanes must fill first, so
// these rounds are not counted.
static void use(struct lanes_choice *choice, uint32_t candidate, uint32_t under_way)
{
	choice->candidate = candidate;
	choice->settling = under_way + lanes_of(choice, candidate) - 1;
	choice->steps = choice->tokens = 0;
	choice->began_ns = choice->last_ns;
}

void lanes_init(struct lanes_choice *choice, uint32_t most)
{
	*choice = (struct lanes_choice){.most = least(most, 1U << (LANES_CANDIDATES - 1))};
}

uint32_t lanes_now(struct lanes_choice *choice, uint32_t generating, uint32_t under_way)
{
	if (generating != choice->generating) {
		const bool went_on = generating && choice->generating;
		choice->generating = generating;
		choice->last_ns = went_on ? choice->last_ns : 0;
		choice->best = generating ? best_of(choice) : 0;
		if (generating)
			use(choice, choice->best, under_way);
	}
	return generating ? lanes_of(choice, choice->candidate) : choice->most;
}

// Whether a candidate other than the best is to be tried now, and which.
static bool is_due(const struct lanes_choice *choice, uint32_t *candidate)
{
	const uint32_t row = row_of(choice->generating), octave = octave_of(choice->generating),
		       count = last_of(choice) + 1;
	const int64_t tried_ns = choice->spent[octave].tried_ns;
	if (count < 2 || choice->of[row].rates[choice->best].rounds < ROUNDS)
		return false;
	*candidate = (choice->of[row].tried + 1) % count;
	if (*candidate == choice->best)
		*candidate = (*candidate + 1) % count;
	return (choice->of[row].rates[*candidate].rounds < ROUNDS && tried_ns < FIRST_NS) ||
	       tried_ns * SHARE <= choice->spent[octave].used_ns;
}

static void take_round(struct lanes_choice *choice, double tokens_per_s, uint32_t under_way)
{
	const uint32_t row = row_of(choice->generating), now = choice->candidate;
	struct lanes_rate *rates = choice->of[row].rates, *rate = &rates[now], *best = &rates[choice->best];
	uint32_t other;
	rate->rounds += rate->rounds < SMOOTHED;
	rate->tokens_per_s += (tokens_per_s - rate->tokens_per_s) / rate->rounds;
	if (now == choice->best) {
		if (!is_due(choice, &other))
			return;
		if (rates[other].rounds >= ROUNDS) // else a trial goes on that came to no end
			rates[other] = (struct lanes_rate){0};
		use(choice, other, under_way);
		return;
	}
	if (rate->rounds < ROUNDS && rate->tokens_per_s > best->tokens_per_s * hopeless)
		return;
	if (rate->tokens_per_s > best->tokens_per_s * LANES_MARGIN) {
		*best = (struct lanes_rate){0};
		choice->best = now;
	}
	rate->rounds = ROUNDS; // known, also if it was left
	choice->of[row].known = true;
	choice->of[row].best = choice->best;
	choice->of[row].tried = now;
	use(choice, choice->best, under_way);
}

void lanes_back(struct lanes_choice *choice, uint32_t tokens, uint32_t under_way, int64_t now_ns)
{
	if (!choice->generating || choice->most == 1 || !tokens)
		return;
	const uint32_t octave = octave_of(choice->generating);
	const int64_t since_ns = choice->last_ns ? now_ns - choice->last_ns : 0;
	choice->spent[octave].used_ns += since_ns;
	choice->spent[octave].tried_ns += choice->candidate != choice->best ? since_ns : 0;
	const bool first = !choice->last_ns;
	choice->last_ns = now_ns;
	if (choice->settling || first) {
		choice->settling -= choice->settling > 0;
		choice->steps = choice->tokens = 0;
		choice->began_ns = now_ns;
		return;
	}
	choice->steps++;
	choice->tokens += tokens;
	const int64_t round_ns = now_ns - choice->began_ns;
	if (choice->steps % lanes_of(choice, choice->candidate) || round_ns < ROUND_NS)
		return;
	const double tokens_per_s = (double)choice->tokens * 1e9 / (double)round_ns;
	choice->steps = choice->tokens = 0;
	choice->began_ns = now_ns;
	take_round(choice, tokens_per_s, under_way);
}
