// What the parts of a context that was shared out give together, for one head of one row. See stage_attention.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
FROM { float from[]; }; // (rows, heads, splits, padded + 2)
TO { float to[]; };
PUSH { uint heads, size, padded, splits, to_groups; } push;

void main()
{
	uint h = gl_WorkGroupID.x, row = gl_WorkGroupID.y, stride = push.padded + 2;
	uint at = (row * push.heads + h) * push.splits * stride;
	float largest = -1e30, weights = 0;
	for (uint s = 0; s < push.splits; s++)
		largest = max(largest, from[at + s * stride + push.padded]);
	for (uint s = 0; s < push.splits; s++)
		weights += exp(from[at + s * stride + push.padded] - largest) * from[at + s * stride + push.padded + 1];
	for (uint c = gl_LocalInvocationID.x; c < push.size; c += 64) {
		float sum = 0;
		for (uint s = 0; s < push.splits; s++)
			sum += exp(from[at + s * stride + push.padded] - largest) * from[at + s * stride + c];
		to[row * push.to_groups * 32 + place(h * push.size + c, push.to_groups)] = sum / weights;
	}
}
