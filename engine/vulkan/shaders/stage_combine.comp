// Combines the results of the parts of a context, for one head of one row. See stage_attention.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
FROM { float from[]; }; // (rows, heads, splits, padded + 2), padded: of a value
TO { float to[]; };
ALSO { float q[]; }; // with gates
VECTORS { float vectors[]; };
// splits: 64 at most; sinks, apart: as stage_attention.comp
PUSH { uint heads, size, padded, splits, to_groups, query_rows, sinks, apart; } push;

// For each part: its largest score, and the sum of its weights relative to that score.
shared float largest[64], weights[64];

void main()
{
	uint lane = gl_LocalInvocationID.x, h = gl_WorkGroupID.x, row = gl_WorkGroupID.y, stride = push.padded + 2;
	uint at = (row * push.heads + h) * push.splits * stride;
	if (lane < push.splits) {
		largest[lane] = from[at + lane * stride + push.padded];
		weights[lane] = from[at + lane * stride + push.padded + 1];
	}
	barrier();
	float top = largest[0], all = 0;
	for (uint s = 1; s < push.splits; s++)
		top = max(top, largest[s]);
	if (push.sinks != NO_VECTOR) {
		top = max(top, vectors[push.sinks + h]);
		all = exp(vectors[push.sinks + h] - top);
	}
	for (uint s = 0; s < push.splits; s++)
		all += exp(largest[s] - top) * weights[s];
	for (uint c = lane; c < push.size; c += 64) {
		float sum = 0;
		for (uint s = 0; s < push.splits; s++)
			sum += exp(largest[s] - top) * from[at + s * stride + c];
		if (push.query_rows > push.size)
			sum /= 1 + exp(-max(q[(row * push.heads + h) * push.query_rows + push.size + c], -80.0));
		uint to_row = push.apart == 1 ? row * push.heads + h : row, first = push.apart == 1 ? 0 : h * push.size;
		to[to_row * push.to_groups * 32 + place(first + c, push.to_groups)] = sum / all;
	}
}
