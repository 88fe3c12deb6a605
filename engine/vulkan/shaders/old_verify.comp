// KERNEL_VERIFY of engine/backend.h: an integer hash and a fused multiply-add for each element.
#version 450
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer In { uint data[]; } src;
layout(std430, binding = 1) writeonly buffer Out { uint data[]; } dst;
layout(push_constant) uniform Constants { uint elements, seed, scale, bias; } c;

uint mix_bits(uint x, uint seed)
{
	x ^= seed;
	x = (x ^ (x >> 16)) * 0x9e3779b1u;
	x = (x ^ (x >> 15)) * 0xb5297a4du;
	return x ^ (x >> 16);
}

void main()
{
	uint i = gl_GlobalInvocationID.x;
	if (i >= c.elements)
		return;
	uint hash = mix_bits(src.data[i] + i, c.seed);
	float value = fma(float(hash >> 8) * (1.0 / 16777216.0), uintBitsToFloat(c.scale), uintBitsToFloat(c.bias));
	dst.data[i] = hash;
	dst.data[c.elements + i] = floatBitsToUint(value);
}
