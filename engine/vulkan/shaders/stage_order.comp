// Sorts slots by expert into the lists that stage_route.comp describes. One group of invocations, each with some of the
// experts.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 256) in;
TO { uint lists[]; };
PUSH { uint experts, slots; } push;

void main()
{
	uint lane = gl_LocalInvocationID.x, starts = 3 * push.slots;
	for (uint e = lane; e < push.experts; e += 256) {
		uint count = 0;
		for (uint i = 0; i < push.slots; i++)
			count += lists[i] == e ? 1 : 0;
		lists[starts + 1 + e] = count;
	}
	memoryBarrierBuffer();
	barrier();
	if (lane == 0) {
		lists[starts] = 0;
		for (uint e = 0; e < push.experts; e++)
			lists[starts + 1 + e] += lists[starts + e];
	}
	memoryBarrierBuffer();
	barrier();
	for (uint e = lane; e < push.experts; e += 256) {
		uint at = 2 * push.slots + lists[starts + e];
		for (uint i = 0; i < push.slots; i++)
			if (lists[i] == e)
				lists[at++] = i;
	}
}
