// verify of engine/builtin.h: an integer hash and a fused multiply-add for each element. `first` is the number of the
// first element of this dispatch.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 4, uint, source);
ARRAY(1, 4, uint, hashes);
ARRAY(2, 4, uint, floats);
PUSH { SLOT(source); SLOT(hashes); SLOT(floats); uint count, first, seed; float scale, bias; } push;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
	for (uint i = gl_GlobalInvocationID.x; i < push.count; i += step) {
		uint hash = mix_bits(uvec4(AT(source, i) + push.first + i), push.seed).x;
		AT(hashes, i) = hash;
		AT(floats, i) = floatBitsToUint(fma(float(hash >> 8) * (1.0 / 16777216.0), push.scale, push.bias));
	}
}
