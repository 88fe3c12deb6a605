// to[row] = RMS norm of from[rows[row]], in places. Without a list (rows_at = 0) row by row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 256) in;
FROM { vec4 from[]; };
TO { vec4 to[]; };
VECTORS { vec4 vectors[]; };
STEP { uint step_words[]; };
PUSH { uint groups, rows_at, gain; float width, epsilon; } push;

shared float sums[256];

void main()
{
	uint lane = gl_LocalInvocationID.x, row = gl_WorkGroupID.x, fours = push.groups * 8;
	uint at = (push.rows_at == 0 ? row : step_words[push.rows_at + row]) * fours;
	float sum = 0;
	for (uint i = lane; i < fours; i += 256)
		sum += dot(from[at + i], from[at + i]);
	sums[lane] = sum;
	for (uint half_of = 128; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			sums[lane] += sums[lane + half_of];
	}
	barrier();
	float by = inversesqrt(sums[0] / push.width + push.epsilon);
	for (uint i = lane; i < fours; i += 256)
		to[row * fours + i] = from[at + i] * by * vectors[push.gain + i];
}
