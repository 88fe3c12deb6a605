// KERNEL_STREAM_READ of engine/backend.h: every element in 16-byte loads. The sum decides whether one word is stored, so
// that no compiler can leave the loads out; it practically never is.
#version 450
layout(local_size_x = 256) in;
layout(std430, binding = 0) readonly buffer In { uvec4 data[]; } src;
layout(std430, binding = 1) writeonly buffer Out { uint data[]; } sink;
layout(push_constant) uniform Constants { uint elements, unused_0, unused_1, unused_2; } c;

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x, i = gl_GlobalInvocationID.x;
	uvec4 sum = uvec4(0);
	for (; i < c.elements; i += step)
		sum ^= src.data[i];
	if (sum.x == 0xa5a5a5a5u && sum.y == 0x5a5a5a5au && sum.z == 0x12345678u && sum.w == 0x87654321u)
		sink.data[0] = sum.x;
}
