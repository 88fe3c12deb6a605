// The operations that only layers of encoders have, by whole rows. END: x, in `places`, becomes the LayerNorm of x +
// bias, with a bias of its own. Else `to`, in `places`, becomes GELU of `from` + bias, with the error function
// (Hendrycks and Gimpel, arXiv 1606.08415).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 1) const uint END = 0;
FROM { float from[]; };
TO { float to[]; };
VECTORS { float vectors[]; };
PUSH { uint columns, groups, bias, gain, shift; float epsilon; } push;

const uint NONE = 0xffffffffu;
shared float sums[256];

float sum_of_group(float mine)
{
	uint lane = gl_LocalInvocationID.x;
	barrier();
	sums[lane] = mine;
	for (uint half_of = 128; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			sums[lane] += sums[lane + half_of];
	}
	barrier();
	return sums[0];
}

// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: to 1.5e-7.
float error_function(float x)
{
	float t = 1 / (1 + 0.3275911 * abs(x));
	float sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
	return sign(x) * (1 - sum * exp(-x * x));
}

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, at = row * push.groups * 32;
	if (END == 0) {
		for (uint i = lane; i < push.columns; i += 256) {
			float x = from[row * push.columns + i] + vectors[push.bias + i];
			to[at + place(i, push.groups)] = 0.5 * x * (1 + error_function(x * 0.70710678));
		}
		return;
	}
	float sum = 0, squares = 0;
	for (uint i = lane; i < push.columns; i += 256)
		sum += to[at + place(i, push.groups)] + (push.bias == NONE ? 0 : vectors[push.bias + i]);
	float mean = sum_of_group(sum) / push.columns;
	for (uint i = lane; i < push.columns; i += 256) {
		float x = to[at + place(i, push.groups)] + (push.bias == NONE ? 0 : vectors[push.bias + i]) - mean;
		squares += x * x;
	}
	float by = inversesqrt(sum_of_group(squares) / push.columns + push.epsilon);
	for (uint i = lane; i < push.columns; i += 256) {
		uint to_at = at + place(i, push.groups);
		float x = to[to_at] + (push.bias == NONE ? 0 : vectors[push.bias + i]) - mean;
		to[to_at] = x * by * vectors[push.gain + i] + vectors[push.shift + i];
	}
}
