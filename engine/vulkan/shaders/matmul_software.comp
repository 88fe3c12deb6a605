// matmul_f32 of engine/builtin.h on a device that is a processor: shared memory and barriers only cost there. An
// invocation makes ROWS times COLUMNS elements of c, its columns as far apart as there are invocations in a group, so
// that those side by side reach memory side by side.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
layout(local_size_x = 8) in;
ARRAY(0, 4, float, c);
ARRAY(1, 4, float, a);
ARRAY(2, 4, float, b);
PUSH { SLOT(c); SLOT(a); SLOT(b); uint m, n, k, a_stride, b_stride, more; } push;

const uint ROWS = 16, COLUMNS = 8;

void main()
{
	uint first_row = gl_WorkGroupID.y * ROWS, first_column = gl_WorkGroupID.x * 8 * COLUMNS + gl_LocalInvocationID.x;
	uint rows[ROWS], columns[COLUMNS];
	float sums[ROWS][COLUMNS];
	[[unroll]] for (uint i = 0; i < ROWS; i++)
		rows[i] = min(first_row + i, push.m - 1) * push.a_stride;
	[[unroll]] for (uint j = 0; j < COLUMNS; j++)
		columns[j] = min(first_column + 8 * j, push.n - 1);
	[[unroll]] for (uint i = 0; i < ROWS; i++)
		[[unroll]] for (uint j = 0; j < COLUMNS; j++)
			sums[i][j] = 0;
	for (uint at = 0; at < push.k; at++) {
		float right[COLUMNS];
		[[unroll]] for (uint j = 0; j < COLUMNS; j++)
			right[j] = AT(b, at * push.b_stride + columns[j]);
		[[unroll]] for (uint i = 0; i < ROWS; i++) {
			float left = AT(a, rows[i] + at);
			[[unroll]] for (uint j = 0; j < COLUMNS; j++)
				sums[i][j] += left * right[j];
		}
	}
	[[unroll]] for (uint i = 0; i < ROWS; i++)
		[[unroll]] for (uint j = 0; j < COLUMNS; j++)
			if (first_row + i < push.m && first_column + 8 * j < push.n) {
				uint at = (first_row + i) * push.b_stride + first_column + 8 * j;
				AT(c, at) = sums[i][j] + (push.more != 0 ? AT(c, at) : 0.0);
			}
}
