// Multi-head latent attention, between the products of a row and those of its heads. KEEP 0, a group for each head: the
// part of its query that does not turn goes into places, for the product with the head's matrix, the rest is turned and
// put behind that product's result. KEEP 1: the row's latent is normed, its key turned, and both go into their page as
// f16 (stage/stage.h draws it).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 1) const uint KEEP = 0;
FROM { float from[]; }; // (rows, heads, plain + turned), or (rows, rank + turned)
TO { float to[]; };     // (rows * heads, plain), in places
layout(std430, set = 0, binding = 2) buffer Also { float q[]; }; // (rows * heads, rank + turned)
VECTORS { float vectors[]; };
STEP { uint step_words[]; };
layout(std430, set = 2, binding = 0) buffer Keys { uint keys[]; };
PUSH {
	uint heads, plain, rank, turned;
	uint padded; // rank + turned, a multiple of 8
	uint to_groups, rope_at, slots_at, gain;
	float epsilon;
} push;

shared float kept[640], sums[64];

// Pair i of the values that turn, which begin at `at`.
vec2 pair_of(uint row, uint at, uint i)
{
	uint table = push.rope_at + row * push.turned + 2 * i;
	float c = uintBitsToFloat(step_words[table]), s = uintBitsToFloat(step_words[table + 1]);
	float x = from[at + 2 * i], y = from[at + 2 * i + 1];
	return vec2(x * c - y * s, x * s + y * c);
}

void keep(uint lane, uint row)
{
	uint at = row * (push.rank + push.turned);
	float sum = 0;
	for (uint i = lane; i < push.rank; i += 64)
		sum += from[at + i] * from[at + i];
	sums[lane] = sum;
	for (uint half_of = 32; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			sums[lane] += sums[lane + half_of];
	}
	barrier();
	float by = inversesqrt(sums[0] / push.rank + push.epsilon);
	for (uint i = lane; i < push.padded; i += 64)
		kept[i] = i < push.rank ? from[at + i] * by * vectors[push.gain + i] : 0;
	barrier();
	for (uint i = lane; i < push.turned / 2; i += 64) {
		vec2 pair = pair_of(row, at + push.rank, i);
		kept[push.rank + 2 * i] = pair.x;
		kept[push.rank + 2 * i + 1] = pair.y;
	}
	barrier();
	uint slot = step_words[push.slots_at + row], page = slot / PAGE, token = slot % PAGE;
	for (uint i = lane; i < push.padded / 2; i += 64)
		keys[((page * (push.padded / 8) + i / 4) * PAGE + token) * 4 + i % 4] =
			packHalf2x16(vec2(kept[2 * i], kept[2 * i + 1]));
}

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y, slot = row * push.heads + gl_WorkGroupID.x;
	uint at = slot * (push.plain + push.turned), q_at = slot * (push.rank + push.turned) + push.rank;
	if (KEEP == 1) {
		keep(lane, row);
		return;
	}
	for (uint i = lane; i < push.plain; i += 64)
		to[slot * push.to_groups * 32 + place(i, push.to_groups)] = from[at + i];
	for (uint i = lane; i < push.turned / 2; i += 64) {
		vec2 pair = pair_of(row, at + push.plain, i);
		q[q_at + 2 * i] = pair.x;
		q[q_at + 2 * i + 1] = pair.y;
	}
}
