/* Decides where the prompt of a request is computed: by the instance that answers, or by another one of its model,
 * which then gives its keys and values away. A pure function of rates, links and what is cached; requests/prefill.c
 * gathers the facts and carries out the decision. Nothing here reads a clock or allocates. Thread: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
	PHASES_TOKENS_LEAST = 128, // of a prompt that is worth a question; fewer are computed at once
	PHASES_PIECE_TOKENS = 512, // that one step computes while the pages of the one before travel
	PHASES_GAIN_PERCENT = 20,  // that it must be sooner,
	PHASES_GAIN_MS = 50,       // and by so much
	PHASES_FIXED_MS = 10,      // to connect and to begin
	PHASES_REASON_BYTES = 320,
};

struct phases_side {
	const char *name;           // of the device, for the reason
	double token_s;             // to compute one token of a prompt; < 0: not known
	uint64_t cached_tokens;     // of this prompt, that it has
	unsigned busy;              // requests that it has already
	double bytes_per_s, rtt_ms; // of the way to the one that answers; < 0: not known. Of that one itself: unused
};

struct phases_seen {
	uint64_t prompt_tokens, page_tokens; // page_tokens: only whole pages move
	double token_bytes;                  // keys and values of one token
	struct phases_side home;             // that answers
	const struct phases_side *others;    // (count)
	unsigned count;
};

struct phases_decision {
	int other;              // of `others`; -1: at home
	double home_s, other_s; // until the prompt is there: at home; as decided
	char reason[PHASES_REASON_BYTES];
};

void phases_decide(struct phases_decision *out, const struct phases_seen *seen);
