// The norm of a whole row of `from`, which lies as one would think. With ADD, what half a layer gives, added to x, which
// is in places; else in place, of `to` itself: q or k of all heads.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 1) const uint ADD = 0;
FROM { float from[]; };
TO { float to[]; };
VECTORS { float vectors[]; };
PUSH { uint columns, groups, gain; float epsilon; } push;

shared float sums[256];

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, at = row * push.columns;
	float sum = 0;
	for (uint i = lane; i < push.columns; i += 256) {
		float x = ADD == 1 ? from[at + i] : to[at + i];
		sum += x * x;
	}
	sums[lane] = sum;
	for (uint half_of = 128; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			sums[lane] += sums[lane + half_of];
	}
	barrier();
	float by = inversesqrt(sums[0] / push.columns + push.epsilon);
	for (uint i = lane; i < push.columns; i += 256)
		if (ADD == 1)
			to[row * push.groups * 32 + place(i, push.groups)] += from[at + i] * by * vectors[push.gain + i];
		else
			to[at + i] *= by * vectors[push.gain + i];
}
