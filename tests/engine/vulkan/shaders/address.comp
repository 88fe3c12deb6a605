// A user's kernel that takes a buffer by its address, so of any size: to[i] = i + base, from the far end backwards.
#version 450
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 32, local_size_y = 2) in;
layout(std430, buffer_reference, buffer_reference_align = 4) writeonly buffer To { uint to[]; };
layout(push_constant) uniform Push { To there; uint count, base; } push;

void main()
{
	uint i = gl_WorkGroupID.x * 64 + gl_LocalInvocationIndex;
	if (i < push.count)
		push.there.to[push.count - 1 - i] = push.count - 1 - i + push.base;
}
