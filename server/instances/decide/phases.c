/* See phases.h. */
#include "server/instances/decide/phases.h"

#include <stdio.h>

static double left_of(uint64_t tokens, uint64_t cached)
{
	return cached < tokens ? (double)(tokens - cached) : 0;
}

// Requests share a device by steps: with n others a prompt takes up to n + 1 times as long.
static double compute_s(const struct phases_side *side, double tokens)
{
	return tokens * side->token_s * (1 + side->busy);
}

// The pages of one piece travel while the next one is computed: so what takes longer counts, and the last piece's way.
static double elsewhere_s(const struct phases_seen *seen, const struct phases_side *other)
{
	const uint64_t whole = (seen->prompt_tokens - 1) / seen->page_tokens * seen->page_tokens;
	const double moves = left_of(whole, seen->home.cached_tokens);
	const double piece = moves < PHASES_PIECE_TOKENS ? moves : PHASES_PIECE_TOKENS;
	const double computing_s = compute_s(other, left_of(whole, other->cached_tokens)),
		     way_s = moves * seen->token_bytes / other->bytes_per_s,
		     last_way_s = piece * seen->token_bytes / other->bytes_per_s,
		     rest_s = compute_s(&seen->home, (double)(seen->prompt_tokens - whole));
	const double overlapped_s = computing_s + last_way_s > way_s ? computing_s + last_way_s : way_s;
	return overlapped_s + rest_s + (2 * other->rtt_ms + PHASES_FIXED_MS) / 1000;
}

static bool is_known(const struct phases_side *other)
{
	return other->token_s > 0 && other->bytes_per_s > 0 && other->rtt_ms >= 0;
}

void phases_decide(struct phases_decision *out, const struct phases_seen *seen)
{
	*out = (struct phases_decision){.other = -1, .home_s = -1, .other_s = -1};
	if (seen->prompt_tokens < PHASES_TOKENS_LEAST || !(seen->home.token_s > 0)) {
		snprintf(out->reason, sizeof out->reason, "prompt and answer on %.100s: %s", seen->home.name,
			 seen->home.token_s > 0 ? "the prompt is short" : "its speed is not measured yet");
		return;
	}
	double best_s = -1;
	int best = -1;
	out->home_s = compute_s(&seen->home, left_of(seen->prompt_tokens, seen->home.cached_tokens));
	for (unsigned i = 0; i < seen->count; i++) {
		const double there_s = is_known(&seen->others[i]) ? elsewhere_s(seen, &seen->others[i]) : -1;
		if (there_s > 0 && (best < 0 || there_s < best_s)) {
			best = (int)i;
			best_s = there_s;
		}
	}
	const double gain_s = out->home_s - best_s;
	out->other_s = best < 0 ? out->home_s : best_s;
	if (best < 0)
		snprintf(out->reason, sizeof out->reason, "prompt and answer on %.100s: no other way is measured",
			 seen->home.name);
	else if (gain_s * 100 < out->home_s * PHASES_GAIN_PERCENT || gain_s * 1000 < PHASES_GAIN_MS)
		snprintf(out->reason, sizeof out->reason,
			 "prompt and answer on %.100s, %.2f s; with the prompt on %.100s %.2f s", seen->home.name,
			 out->home_s, seen->others[best].name, best_s);
	else {
		out->other = best;
		snprintf(out->reason, sizeof out->reason, "prompt on %.100s, %.2f s instead of %.2f; answer on %.100s",
			 seen->others[best].name, best_s, out->home_s, seen->home.name);
	}
}
