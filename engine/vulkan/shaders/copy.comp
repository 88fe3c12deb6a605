// to[i] = from[i], 16 bytes at a time.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 16, uvec4, to);
ARRAY(1, 16, uvec4, from);
PUSH { SLOT(to); SLOT(from); uvec2 none; uint count; } push;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
	for (uint i = gl_GlobalInvocationID.x; i < push.count; i += step)
		AT(to, i) = AT(from, i);
}
