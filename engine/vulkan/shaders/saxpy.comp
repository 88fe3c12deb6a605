// saxpy_f32 of engine/builtin.h, four elements at a time; y and x may be one buffer.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 16, vec4, y);
ARRAY(1, 16, vec4, x);
PUSH { SLOT(y); SLOT(x); uvec2 none; uint count; float a; } push;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x, whole = push.count / 4, i = gl_GlobalInvocationID.x;
	if (i < push.count % 4)
		AT(y, whole)[i] = push.a * AT(x, whole)[i] + AT(y, whole)[i];
	for (; i < whole; i += step)
		AT(y, i) = push.a * AT(x, i) + AT(y, i);
}
