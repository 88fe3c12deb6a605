// A head with a gated delta rule: a run's rows one after another. The state is a matrix (key_size, value_size): each
// invocation has columns of its own, and shares queries and keys with the others.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
FROM { float mixed[]; }; // (rows, channels): queries of all key heads, their keys, values of all heads
TO { float to[]; };      // (rows, heads * value_size), in places
ALSO { float gates[]; }; // (rows, heads * value_size)
VECTORS { float vectors[]; };
STEP { uint step_words[]; };
layout(std430, set = 1, binding = 0) readonly buffer Beta { float beta[]; };   // (rows, heads); grouped: 2 * heads
layout(std430, set = 1, binding = 1) readonly buffer Alpha { float alpha[]; }; // (rows, heads)
layout(std430, set = 2, binding = 0) buffer States { float states[]; };
PUSH {
	uint runs_at, heads, key_heads, key_size, value_size, channels;
	uint state_at, state_size; // of the heads' matrices in a slot, and of a slot, in floats
	uint decay, bias, gain;    // in `vectors`
	uint to_groups;
	float epsilon;
	uint grouped; // each key head's heads are neighbours, and beta and alpha one matrix
} push;

shared float query[512], key[512], result[512], sums[64];

float sum_of(uint lane, float part)
{
	barrier();
	sums[lane] = part;
	for (uint half_of = 32; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			sums[lane] += sums[lane + half_of];
	}
	barrier();
	return sums[0];
}

// The row's query and key, at a length of 1; the query shorter by the root of its size.
void load_keys(uint lane, uint row, uint head)
{
	uint key_head = push.grouped != 0 ? head / (push.heads / push.key_heads) : head % push.key_heads;
	uint at = row * push.channels + key_head * push.key_size, keys = push.key_heads * push.key_size;
	float q = 0, k = 0;
	for (uint i = lane; i < push.key_size; i += 64) {
		query[i] = mixed[at + i];
		key[i] = mixed[at + keys + i];
		q += query[i] * query[i];
		k += key[i] * key[i];
	}
	float by_q = inversesqrt(sum_of(lane, q) + 1e-6) * inversesqrt(float(push.key_size));
	float by_k = inversesqrt(sum_of(lane, k) + 1e-6);
	for (uint i = lane; i < push.key_size; i += 64) {
		query[i] *= by_q;
		key[i] *= by_k;
	}
	barrier();
}

void main()
{
	uint lane = gl_LocalInvocationID.x, head = gl_WorkGroupID.x, at = push.runs_at + gl_WorkGroupID.y * 4;
	uint row = step_words[at], end = row + step_words[at + 1], from = step_words[at + 2], slot = step_words[at + 3];
	uint matrix = push.state_at + head * push.key_size * push.value_size;
	uint state = (slot - 1) * push.state_size + matrix, before = (max(from, 1u) - 1) * push.state_size + matrix;
	if (from != slot)
		for (uint i = 0; i < push.key_size; i++)
			for (uint j = lane; j < push.value_size; j += 64)
				states[state + i * push.value_size + j] = from == 0 ? 0 : states[before + i * push.value_size + j];
	for (; row < end; row++) {
		uint scores = row * push.heads + head, wide = scores * push.value_size;
		uint each = push.heads / push.key_heads, pair = 2 * row * push.heads + head + head / each * each;
		float x = (push.grouped != 0 ? beta[pair + each] : alpha[scores]) + vectors[push.bias + head];
		float fades = exp(vectors[push.decay + head] * (x > 20 ? x : log(1 + exp(x))));
		float b = 1 / (1 + exp(-max(beta[push.grouped != 0 ? pair : scores], -80.0)));
		uint values = row * push.channels + 2 * push.key_heads * push.key_size + head * push.value_size;
		float squares = 0;
		load_keys(lane, row, head);
		for (uint j = lane; j < push.value_size; j += 64) {
			float known = 0, sum = 0;
			for (uint i = 0; i < push.key_size; i++)
				known += states[state + i * push.value_size + j] * key[i];
			float change = (mixed[values + j] - fades * known) * b;
			for (uint i = 0; i < push.key_size; i++) {
				float s = fades * states[state + i * push.value_size + j] + key[i] * change;
				states[state + i * push.value_size + j] = s;
				sum += s * query[i];
			}
			result[j] = sum;
			squares += sum * sum;
		}
		float by = inversesqrt(sum_of(lane, squares) / push.value_size + push.epsilon);
		for (uint j = lane; j < push.value_size; j += 64) {
			float z = gates[wide + j];
			to[row * push.to_groups * 32 + place(head * push.value_size + j, push.to_groups)] =
				result[j] * by * vectors[push.gain + j] * z / (1 + exp(-max(z, -80.0)));
		}
	}
}
