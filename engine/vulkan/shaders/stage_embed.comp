// to[row] = the embedding of the row's token, in places. The table may lie in several buffers: this dispatch has tokens
// [first, first + count).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
#include "stage_decode.glsl"
layout(local_size_x = 64) in;
TO { vec4 to[]; };
STEP { uint step_words[]; };
PUSH { matrix m; uint tokens, first, count; float by; } push; // by: the scale of embeddings

void main()
{
	uint row = gl_WorkGroupID.y, item = gl_GlobalInvocationID.x, group = item / 4, part = item % 4;
	uint token = step_words[push.tokens + row] - push.first;
	if (token >= push.count || group >= push.m.groups)
		return;
	vec4 first, second;
	numbers(0, push.m, token, group, part, first, second);
	vec2 by = scale(0, push.m, token, group, part / 2);
	uint at = (row * 8 + 2 * part) * push.m.groups + group;
	to[at] = (by.x * first + by.y) * push.by;
	to[at + push.m.groups] = (by.x * second + by.y) * push.by;
}
