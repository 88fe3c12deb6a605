// A user's kernel: to[i] = from[i] * factor + add[i % 4], and what a reflection has to find: bindings that are not in
// order and not one after another, vectors, an array and a 64-bit number among the constants.
#version 450
#extension GL_ARB_gpu_shader_int64 : require
layout(local_size_x = 64) in;
layout(std430, binding = 5) readonly buffer From { float from[]; };
layout(std430, binding = 2) writeonly buffer To { float to[]; };
layout(push_constant) uniform Push { vec4 add; uint64_t count; float factor; int steps[2]; } push;

shared float turn[64];

void main()
{
	uint64_t i = uint64_t(gl_GlobalInvocationID.x);
	turn[gl_LocalInvocationID.x] = push.add[gl_LocalInvocationID.x % 4];
	barrier();
	if (i < push.count)
		to[uint(i)] = from[uint(i)] * push.factor + turn[gl_LocalInvocationID.x] +
			      float(push.steps[0] - push.steps[1]);
}
