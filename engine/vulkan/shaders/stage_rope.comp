// A head of q, k or v of one row, as it comes from its matrix: bias, norm and turn it as the model wants, then put q
// back, and k and v into their page as f16 (stage/stage.h draws a page).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
TO { float q[]; };
FROM { float k[]; };
ALSO { float v[]; };
VECTORS { float vectors[]; };
STEP { uint step_words[]; };
layout(std430, set = 2, binding = 0) buffer Keys { uint keys[]; };
layout(std430, set = 2, binding = 1) buffer Values { uint values[]; };
const uint NONE = 0xffffffffu;
PUSH {
	uint heads, kv_heads, size, padded; // of a head; a multiple of 8
	uint rope_size, halves, rope_at, slots_at;
	uint bias[3]; // of q, k, v: where in `vectors`, or NONE
	uint norm[2]; // of q and k
	float epsilon;
	uint query_rows; // of a head in q: its size, or twice that, with a gate behind the query
} push;

shared float head[512], sums[64];

void normalise(uint lane, uint gain)
{
	float sum = 0;
	for (uint i = lane; i < push.size; i += 64)
		sum += head[i] * head[i];
	sums[lane] = sum;
	for (uint half_of = 32; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			sums[lane] += sums[lane + half_of];
	}
	barrier();
	float by = inversesqrt(sums[0] / push.size + push.epsilon);
	for (uint i = lane; i < push.size; i += 64)
		head[i] *= by * vectors[gain + i];
	barrier();
}

void turn(uint lane, uint row)
{
	for (uint i = lane; i < push.rope_size / 2; i += 64) {
		uint at = push.rope_at + row * push.rope_size + 2 * i;
		float c = uintBitsToFloat(step_words[at]), s = uintBitsToFloat(step_words[at + 1]);
		uint first = push.halves != 0 ? i : 2 * i, second = push.halves != 0 ? i + push.rope_size / 2 : 2 * i + 1;
		float x = head[first], y = head[second];
		head[first] = x * c - y * s;
		head[second] = x * s + y * c;
	}
	barrier();
}

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.y, index = gl_WorkGroupID.x;
	uint kind = index < push.heads ? 0 : index < push.heads + push.kv_heads ? 1 : 2;
	uint h = index - (kind == 0 ? 0 : push.heads + (kind - 1) * push.kv_heads);
	uint at = kind == 0 ? (row * push.heads + h) * push.query_rows : (row * push.kv_heads + h) * push.size;
	for (uint i = lane; i < push.padded; i += 64) {
		float x = 0;
		if (i < push.size) {
			x = kind == 0 ? q[at + i] : kind == 1 ? k[at + i] : v[at + i];
			if (push.bias[kind] != NONE)
				x += vectors[push.bias[kind] + h * push.size + i];
		}
		head[i] = x;
	}
	barrier();
	if (kind < 2) {
		if (push.norm[kind] != NONE)
			normalise(lane, push.norm[kind]);
		turn(lane, row);
	}
	if (kind == 0) {
		for (uint i = lane; i < push.size; i += 64)
			q[at + i] = head[i];
		return;
	}
	uint slot = step_words[push.slots_at + row], page = slot / PAGE * push.kv_heads + h, token = slot % PAGE;
	for (uint i = lane; i < push.padded / 2; i += 64) {
		uint two = packHalf2x16(vec2(head[2 * i], head[2 * i + 1]));
		if (kind == 1)
			keys[((page * (push.padded / 8) + i / 4) * PAGE + token) * 4 + i % 4] = two;
		else
			values[(page * PAGE + token) * (push.padded / 2) + i] = two;
	}
}
