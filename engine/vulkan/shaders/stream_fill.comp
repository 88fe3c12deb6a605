// stream_fill of engine/builtin.h: bytes that memory compression cannot shrink. `first` is the number of the first
// element of 16 bytes of this dispatch.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 16, uvec4, data);
PUSH { SLOT(data); uvec2 none_1, none_2; uint count, first, seed; } push;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
	for (uint i = gl_GlobalInvocationID.x; i < push.count; i += step)
		AT(data, i) = mix_bits(uvec4(0, 1, 2, 3) + 4 * (push.first + i), push.seed);
}
