// Rows into places (INTO 1: activations from the host; 2: from `from`), or out of them.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 1) const uint INTO = 0;
FROM { float from[]; };
TO { float to[]; };
STEP { float step_floats[]; };
PUSH { uint columns, groups, from_at; } push;

void main()
{
	uint c = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
	uint plain = row * push.columns + c, placed = row * push.groups * 32 + place(c, push.groups);
	if (c >= push.columns)
		return;
	if (INTO == 2)
		to[placed] = from[plain];
	else if (INTO == 1)
		to[placed] = step_floats[push.from_at + plain];
	else
		to[plain] = from[placed];
}
