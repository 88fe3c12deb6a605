// A user's kernel that writes where it may not: robust access keeps it inside its buffer.
#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer To { uint to[]; };
layout(push_constant) uniform Push { uint first; } push;

void main()
{
	to[push.first + gl_GlobalInvocationID.x] = 0xdeadbeefu;
}
