// KERNEL_STREAM_FILL of engine/backend.h: bytes that memory compression cannot shrink.
#version 450
layout(local_size_x = 256) in;
layout(std430, binding = 0) writeonly buffer Out { uvec4 data[]; } dst;
layout(push_constant) uniform Constants { uint elements, seed, unused_1, unused_2; } c;

uvec4 mix_bits(uvec4 x, uint seed)
{
	x ^= seed;
	x = (x ^ (x >> 16)) * 0x9e3779b1u;
	x = (x ^ (x >> 15)) * 0xb5297a4du;
	return x ^ (x >> 16);
}

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
	for (uint i = gl_GlobalInvocationID.x; i < c.elements; i += step)
		dst.data[i] = mix_bits(uvec4(0, 1, 2, 3) + 4 * i, c.seed);
}
