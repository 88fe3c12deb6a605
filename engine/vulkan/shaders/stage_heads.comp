// The lists of stage_route.comp for products of heads, in which every row takes all heads, in order. Slot i is a row
// together with head i % heads.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
TO { uint lists[]; };
PUSH { uint heads, rows; } push;

void main()
{
	uint i = gl_GlobalInvocationID.x, slots = push.heads * push.rows;
	if (i < slots) {
		lists[i] = i % push.heads;
		lists[2 * slots + i % push.heads * push.rows + i / push.heads] = i;
	}
	if (i <= push.heads)
		lists[3 * slots + i] = i * push.rows;
}
