// The largest logit of each row, the first one of equals; NONE if one of them is NaN or infinite. That is tested by
// bits, because a driver need not compute with such numbers; it then counts as larger than all. First each group of
// invocations finds the largest of a run of logits and writes it with its number; then (LAST) one group for each row
// does the same with these, and writes only the number.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 1) const uint LAST = 0;
FROM { uint from[]; };
TO { uint to[]; };
PUSH { uint count, run; } push; // of a row; of a group

const uint NONE = 0xffffffffu, EXPONENT = 0x7f800000u, LARGEST = 0x7f7fffffu;

shared float bests[256];
shared uint numbers[256];

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y, begin = gl_WorkGroupID.x * push.run;
	float best = uintBitsToFloat(0xff800000u);
	uint number = begin;
	for (uint i = begin + lane; i < min(begin + push.run, push.count); i += 256) {
		uint at = row * push.count + i;
		uint bits = LAST == 1 ? from[2 * at] : from[at];
		bool bad = (bits & EXPONENT) == EXPONENT;
		float x = uintBitsToFloat(bad ? LARGEST : bits);
		if (bad || x > best) {
			best = x;
			number = bad ? NONE : LAST == 1 ? from[2 * at + 1] : i;
		}
	}
	bests[lane] = best;
	numbers[lane] = number;
	for (uint half_of = 128; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of) {
			uint other = lane + half_of;
			if (bests[other] > bests[lane] || bests[other] == bests[lane] && numbers[other] < numbers[lane]) {
				bests[lane] = bests[other];
				numbers[lane] = numbers[other];
			}
		}
	}
	if (lane > 0)
		return;
	if (LAST == 1) {
		to[row] = numbers[0];
	} else {
		uint at = row * gl_NumWorkGroups.x + gl_WorkGroupID.x;
		to[2 * at] = floatBitsToUint(bests[0]);
		to[2 * at + 1] = numbers[0];
	}
}
