// Pages of one layer set to zero.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x = 256) in;
STEP { uint step_words[]; };
layout(std430, set = 2, binding = 0) writeonly buffer Keys { uvec4 keys[]; };
layout(std430, set = 2, binding = 1) writeonly buffer Values { uvec4 values[]; };
PUSH { uint pages_at, page_fours; } push; // 16 bytes of a page

void main()
{
	uint page = step_words[push.pages_at + gl_WorkGroupID.y] * push.page_fours, i = gl_GlobalInvocationID.x;
	if (i >= push.page_fours)
		return;
	keys[page + i] = uvec4(0);
	values[page + i] = uvec4(0);
}
