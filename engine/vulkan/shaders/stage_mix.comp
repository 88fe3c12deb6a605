// x += what a row's experts give, each times its weight; or, of the part that all rows go through and that has a score of
// its own, x += sigmoid(score) * that. x is in places.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 1) const uint SHARED = 0;
FROM { float from[]; }; // (slots, columns); shared: (rows, columns)
TO { float to[]; };
ALSO { uint also[]; }; // the lists of stage_route.comp; shared: scores (rows)
PUSH { uint columns, groups, used, slots; } push;

void main()
{
	uint c = gl_WorkGroupID.x * 64 + gl_LocalInvocationID.x, row = gl_WorkGroupID.y;
	if (c >= push.columns)
		return;
	float sum = 0;
	if (SHARED == 1)
		sum = from[row * push.columns + c] / (1 + exp(-max(uintBitsToFloat(also[row]), -80.0)));
	else
		for (uint k = 0; k < push.used; k++) {
			uint slot = row * push.used + k;
			sum += uintBitsToFloat(also[push.slots + slot]) * from[slot * push.columns + c];
		}
	to[row * push.groups * 32 + place(c, push.groups)] += sum;
}
