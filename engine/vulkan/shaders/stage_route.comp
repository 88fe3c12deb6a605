// Chooses the experts of a row and their weights: those with the largest scores, the lowest number of equals first. A
// group of invocations for each row. With `choice` scores are sigmoids; the vector is added to them where experts are
// chosen, and is no part of the weights.
//
// Lists of a part, whose slots are pairs of a row and one of its experts: experts (slots) | weights (slots) | slots
// sorted by expert (slots) | where each expert's slots begin in that list (experts + 1). stage_order.comp writes the
// last two.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
FROM { float scores[]; }; // (rows, experts)
TO { uint lists[]; };
VECTORS { float vectors[]; };
// share: weights are parts of the softmax of all scores; choice: a place in VECTORS, or NO_VECTOR; scale: of weights
PUSH { uint experts, used, slots, share, choice; float scale; } push;

float score_of(uint row, uint expert)
{
	float score = scores[row * push.experts + expert];
	return push.choice == NO_VECTOR ? score : 1 / (1 + exp(-score));
}

shared float values[64];
shared uint places[64];

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, taken = 0; // taken: of the scores of this invocation
	float largest = 0, total = 0, weights[64];
	for (uint k = 0; k < push.used; k++) {
		float best = 0;
		uint place = 0xffffffffu;
		for (uint i = 0; i * 64 + lane < push.experts; i++) {
			uint expert = i * 64 + lane;
			float score = score_of(row, expert);
			if (push.choice != NO_VECTOR)
				score += vectors[push.choice + expert];
			if ((taken >> i & 1) == 0 && (place == 0xffffffffu || score > best)) {
				best = score;
				place = expert;
			}
		}
		values[lane] = best;
		places[lane] = place;
		for (uint half_of = 32; half_of > 0; half_of /= 2) {
			barrier();
			uint other = lane + half_of;
			if (lane < half_of && places[other] != 0xffffffffu &&
			    (places[lane] == 0xffffffffu || values[other] > values[lane] ||
			     (values[other] == values[lane] && places[other] < places[lane]))) {
				values[lane] = values[other];
				places[lane] = places[other];
			}
		}
		barrier();
		best = values[0];
		place = places[0];
		barrier();
		if (place % 64 == lane)
			taken |= 1u << place / 64;
		if (k == 0)
			largest = best;
		weights[k] = push.choice == NO_VECTOR ? exp(best - largest) : score_of(row, place);
		total += weights[k];
		if (lane == 0)
			lists[row * push.used + k] = place;
	}
	if (push.share == 1) {
		float sum = 0;
		for (uint e = lane; e < push.experts; e += 64)
			sum += exp(scores[row * push.experts + e] - largest);
		values[lane] = sum;
		for (uint half_of = 32; half_of > 0; half_of /= 2) {
			barrier();
			if (lane < half_of)
				values[lane] += values[lane + half_of];
		}
		barrier();
		total = values[0];
	}
	if (push.choice != NO_VECTOR)
		total = max(total, 6.1e-5); // all sigmoids may underflow
	for (uint k = lane; k < push.used; k += 64)
		lists[push.slots + row * push.used + k] = floatBitsToUint(weights[k] / total * push.scale);
}
