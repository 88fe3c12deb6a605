// Chooses the experts of a row and their weights: those with the largest scores, the lowest number of equals first. A
// group of invocations for each row. With `choice` scores are sigmoids; the vector is added to them where experts are
// chosen, and is no part of the weights. With groups, experts of all but the best groups are left out.
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
// share: weights are parts of the softmax of all scores, or sigmoids as they are; choice: a place in VECTORS, or NO_VECTOR; scale: of weights
PUSH { uint experts, used, slots, share, choice; float scale; uint groups, groups_used; } push;

float score_of(uint row, uint expert)
{
	float score = scores[row * push.experts + expert];
	return push.choice == NO_VECTOR ? score : 1 / (1 + exp(-score));
}

// What an expert is chosen by.
float choice_of(uint row, uint expert)
{
	return score_of(row, expert) + (push.choice == NO_VECTOR ? 0 : vectors[push.choice + expert]);
}

shared float values[64];
shared uint places[64], left_out[64]; // left_out: of each group

// A group is as good as its best expert or, with sigmoids, as the sum of its best two.
void leave_out(uint lane, uint row)
{
	uint size = push.experts / push.groups, better = 0;
	float best = -1e30, second = -1e30;
	for (uint e = lane * size; lane < push.groups && e < (lane + 1) * size; e++) {
		float score = choice_of(row, e);
		second = score > best ? best : max(score, second);
		best = max(score, best);
	}
	values[lane] = push.choice != NO_VECTOR && size > 1 ? best + second : best;
	barrier();
	for (uint other = 0; other < push.groups; other++)
		better += values[other] > values[lane] || (values[other] == values[lane] && other < lane) ? 1 : 0;
	left_out[lane] = better < push.groups_used ? 0 : 1;
	barrier();
}

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, taken = 0; // taken: of the scores of this invocation
	float largest = 0, total = 0, weights[64];
	if (push.groups > 0)
		leave_out(lane, row);
	for (uint k = 0; k < push.used; k++) {
		float best = 0;
		uint place = 0xffffffffu;
		for (uint i = 0; i * 64 + lane < push.experts; i++) {
			uint expert = i * 64 + lane;
			float score = choice_of(row, expert);
			if (push.groups > 0 && left_out[expert / (push.experts / push.groups)] == 1)
				continue;
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
	if (push.share == 1 && push.choice == NO_VECTOR) {
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
		total = push.share == 1 ? 1 : max(total, 6.1e-5); // all sigmoids may underflow
	for (uint k = lane; k < push.used; k += 64)
		lists[push.slots + row * push.used + k] = floatBitsToUint(weights[k] / total * push.scale);
}
