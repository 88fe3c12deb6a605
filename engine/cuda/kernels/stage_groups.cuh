// What the two kernels share that choose experts (stage_experts.cu, stage_mixture.cu): which groups of experts a row
// takes some from (engine/model/model.h, expert_groups), and what weights are divided by. By one warp.
#pragma once
#include "stage.cuh"

enum { NO_PLACE = 0x7fffffff };

INLINE unsigned warp_most_word(unsigned word)
{
	unsigned out;
	asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(out) : "r"(word));
	return out;
}
INLINE unsigned warp_least_word(unsigned word)
{
	unsigned out;
	asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(out) : "r"(word));
	return out;
}
// Integers in the order of the floats; 0 for NaN.
INLINE unsigned word_in_order(float value)
{
	unsigned bits = __builtin_bit_cast(unsigned, value + 0.0f); // one zero
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return 0;
	return bits >> 31 ? ~bits : bits | 0x80000000u;
}
INLINE float number_of_word(unsigned word)
{
	return __builtin_bit_cast(float, word >> 31 ? word & 0x7fffffffu : ~word);
}

static constexpr float NO_SCORE = -1e30f; // whatever the scores are, a sum of two is a number

// How good a group is whose best two experts have these scores.
INLINE unsigned group_word(float best, float second, bool both) { return word_in_order(both ? best + second : best); }

// The best `used` groups, as bits: the lowest number of equals first. words: of groups lane and lane + 32; 0: there is
// none.
INLINE u64 best_groups(unsigned (&words)[2], unsigned used)
{
	unsigned lane = THREAD_X % 32;
	u64 out = 0;
	for (unsigned k = 0; k < used; k++) {
		unsigned most = warp_most_word(words[0] > words[1] ? words[0] : words[1]);
		unsigned place = warp_least_word(words[0] == most ? lane : words[1] == most ? lane + 32 : (unsigned)NO_PLACE);
		out |= (u64)1 << place;
		words[0] = place == lane ? 0 : words[0];
		words[1] = place == lane + 32 ? 0 : words[1];
	}
	return out;
}

// What the weights of the chosen experts, which add up to `chosen`, are divided by. all: the sum of all weights.
INLINE float total_of(bool share, bool sigmoids, float all, float chosen)
{
	if (share)
		return sigmoids ? 1 : all;
	return sigmoids ? larger(chosen, SIGMOIDS_LEAST) : chosen;
}
