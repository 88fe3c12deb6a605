// sum_f32 of engine/builtin.h. A group adds up every gl_NumWorkGroups-th run of 256 times 4 elements, first each
// invocation its own elements, then all as a tree, and writes the sum to out[group], or adds it there if `more`. The
// host runs it over all elements with a fixed number of groups, then over their sums with one: the order never changes.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 4, float, result);
ARRAY(1, 16, vec4, x);
PUSH { SLOT(result); SLOT(x); uvec2 none; uint count, more; } push;

shared float sums[256];

void main()
{
	uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x, whole = push.count / 4, i = gl_GlobalInvocationID.x;
	vec4 four = vec4(0);
	if (i < push.count % 4)
		four.x = AT(x, whole)[i];
	for (; i < whole; i += step)
		four += AT(x, i);
	uint me = gl_LocalInvocationID.x;
	sums[me] = (four.x + four.y) + (four.z + four.w);
	for (uint half_of = 128; half_of > 0; half_of /= 2) {
		barrier();
		if (me < half_of)
			sums[me] += sums[me + half_of];
	}
	if (me == 0)
		AT(result, gl_WorkGroupID.x) = sums[0] + (push.more != 0 ? AT(result, gl_WorkGroupID.x) : 0.0);
}
