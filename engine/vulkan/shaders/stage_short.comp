// A short convolution (model.h): of each channel, c times the sum of the last rows of b * x, each by a weight of the
// channel's own. An invocation takes a channel of a run, row after row; earlier rows are in the run's state.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 64) in;
layout(constant_id = 1) const uint KERNEL = 3; // rows, the row's own included: 16 at most
FROM { float x[]; };   // (rows, channels), as are b and c
TO { float to[]; };    // (rows, channels), in places
ALSO { float c[]; };
VECTORS { float vectors[]; };
STEP { uint step_words[]; };
layout(std430, set = 1, binding = 0) readonly buffer B { float b[]; };
layout(std430, set = 2, binding = 0) buffer States { float states[]; };
PUSH { uint runs_at, channel_count, weights, state_size, to_groups; } push; // state_size: floats of a slot

void main()
{
	uint channel = gl_GlobalInvocationID.x, at = push.runs_at + gl_WorkGroupID.y * 4;
	if (channel >= push.channel_count)
		return;
	uint row = step_words[at], end = row + step_words[at + 1], from = step_words[at + 2], slot = step_words[at + 3];
	float last[KERNEL], weights[KERNEL];
	[[unroll]] for (uint i = 0; i < KERNEL; i++) {
		weights[i] = vectors[push.weights + channel * KERNEL + i];
		last[i] = i == 0 || from == 0
				  ? 0
				  : states[(from - 1) * push.state_size + (i - 1) * push.channel_count + channel];
	}
	for (; row < end; row++) {
		uint own = row * push.channel_count + channel;
		float sum = 0;
		[[unroll]] for (uint i = 0; i + 1 < KERNEL; i++)
			last[i] = last[i + 1];
		last[KERNEL - 1] = b[own] * x[own];
		[[unroll]] for (uint i = 0; i < KERNEL; i++)
			sum += weights[i] * last[i];
		to[row * push.to_groups * 32 + place(channel, push.to_groups)] = c[own] * sum;
	}
	[[unroll]] for (uint i = 0; i + 1 < KERNEL; i++)
		states[(slot - 1) * push.state_size + i * push.channel_count + channel] = last[i + 1];
}
