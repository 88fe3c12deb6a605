/* How many lanes serve best while requests generate: by measuring, as it depends on what the parts share. Parts of one
 * machine share its memory and processors: there two lanes of half the requests read all weights twice, and one lane
 * of all requests is faster. Machines of their own are all at work only with as many lanes as there are parts.
 *
 * Measured are tokens a second, of whole rounds in which nothing but generating went on and nobody came or left, by
 * how many generate and by how many lanes: 1, 2, 4 and so on, and all. Others than the best so far are tried for a few
 * rounds: each once, in the first second of trials, and then again in a hundredth of the time at most; one that is far
 * slower is left after a round. Another becomes the best when it is faster by LANES_MARGIN; what it has beaten counts
 * as untried, so that a moment's disturbance is put right. How many serve best is taken from the nearest number of
 * requests, until it is known. Thread: the generator's. */
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
// How many steps may be under way at once, when so many requests generate and nobody has a prompt; 0: there is
// something else to do, which gets all lanes. `under_way`: steps that are.
uint32_t lanes_now(struct lanes_choice *choice, uint32_t generating, uint32_t under_way);
// A step of so many tokens is back at `now_ns`, of a steady clock, and so many others are under way.
void lanes_back(struct lanes_choice *choice, uint32_t tokens, uint32_t under_way, int64_t now_ns);
