// stream_read of engine/builtin.h: every element in 16-byte loads. The sum decides whether one word is stored, so that
// no compiler can leave the loads out; it practically never is.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 16, uvec4, data);
ARRAY(1, 4, uint, sink);
PUSH { SLOT(data); SLOT(sink); uvec2 none; uint count; } push;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
	uvec4 sum = uvec4(0);
	for (uint i = gl_GlobalInvocationID.x; i < push.count; i += step)
		sum ^= AT(data, i);
	if (sum.x == 0xa5a5a5a5u && sum.y == 0x5a5a5a5au && sum.z == 0x12345678u && sum.w == 0x87654321u)
		AT(sink, 0) = sum.x;
}
