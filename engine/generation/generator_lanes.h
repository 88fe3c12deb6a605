/* How many lanes are fastest while requests generate. This is measured, because it depends on what the parts share:
 * parts on one machine share its memory and processors, so two lanes with half of the requests each read all weights
 * twice, and one lane with all requests is faster. Parts on machines of their own are all busy only with as many lanes
 * as there are parts.
 *
 * The measure is tokens a second, over whole rounds in which all requests only generated and none came or left. It is
 * kept for each number of requests and each candidate: 1, 2, 4 ... lanes, and all lanes. Candidates other than the best
 * so far are tried for a few rounds: each once, within the first second of trials, and then again for a hundredth of
 * the time at most; one that is far slower is left after one round. Another candidate becomes the best when it is
 * faster by LANES_MARGIN; the candidate that it replaces counts as untried, so that a short disturbance is corrected.
 * Until a number of requests was measured, the result for the nearest number is used. Thread: the generator's. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { LANES_CANDIDATES = 7, LANES_REQUESTS = 64, LANES_OCTAVES = 7 };

struct lanes_rate {
	double tokens_per_s; // smoothed
	uint32_t rounds;     // 0: not known
};

struct lanes_choice {
	uint32_t most;            // lanes
	uint32_t generating;      // requests, as long as their number stays; 0: nothing is measured
	uint32_t best, candidate; // candidates: the fastest so far; in use, another while it is tried
	uint32_t settling;        // steps that come back before they count
	uint32_t steps, tokens;
	int64_t last_ns, began_ns; // when the last step came back, 0: it does not count; and when the round began
	struct {
		bool known;           // something was tried
		uint32_t best, tried; // candidates: the fastest; the one that was tried last
		struct lanes_rate rates[LANES_CANDIDATES];
	} of[LANES_REQUESTS]; // by how many generate, from 1 on, the last for more
	struct {
		int64_t used_ns, tried_ns;
	} spent[LANES_OCTAVES]; // by the logarithm of how many generate
};

#define LANES_MARGIN 1.05

// `most`: lanes, 1 to 64. All else of `choice` is zero.
void lanes_init(struct lanes_choice *choice, uint32_t most);
// How many steps may be in flight at once while so many requests generate and none has a prompt left; `generating` is 0
// if there is other work, which gets all lanes. `under_way`: steps in flight now.
uint32_t lanes_now(struct lanes_choice *choice, uint32_t generating, uint32_t under_way);
// A step with so many tokens is back at `now_ns` of a steady clock; `under_way` other steps are in flight.
void lanes_back(struct lanes_choice *choice, uint32_t tokens, uint32_t under_way, int64_t now_ns);
