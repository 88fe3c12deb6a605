// `count` words of 4 bytes, 16 bytes at a time: fill_f32 of engine/builtin.h, and fills with a byte.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 16, uvec4, to);
PUSH { SLOT(to); uvec2 none_1, none_2; uint count, word; } push;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x, whole = push.count / 4, i = gl_GlobalInvocationID.x;
	if (i < push.count % 4)
		AT(to, whole)[i] = push.word;
	for (; i < whole; i += step)
		AT(to, i) = uvec4(push.word);
}
