// to = from · matrixᵀ for many rows. A group makes a tile of 64 rows of the batch by 64 of the matrix, its 16 times 16
// invocations 4 by 4 each, in registers; both come through shared memory, a group of 32 columns at a time. For a PAIR,
// the tile has 32 rows of each matrix. With EXPERTS the matrix has the rows of all experts, one expert after another,
// and a tile has slots of one of them.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
#include "stage_decode.glsl"
#include "stage_epilogue.glsl"
layout(local_size_x = 256) in;
layout(constant_id = 6) const uint EXPERTS = 0;
FROM { vec4 from[]; };
STEP { uint lists[]; }; // of stage_route.comp
PUSH { // as in stage_product.comp
	matrix m;
	uint rows, batch_rows, first, columns, to_groups, gain;
	float width, epsilon;
	uint used, by_slot, first_expert, experts, slots;
	uint bias, second_bias;
} push;

const uint TILE = 64, PER = 4, WIDE = EPILOGUE == PAIR ? TILE / 2 : TILE;
shared vec4 left[TILE][9], right[TILE][9]; // [row][column / 4]; one more, so that rows lie in different banks

void main()
{
	uint lane = gl_LocalInvocationID.x, x = lane % 16, y = lane / 16, groups = push.m.groups;
	uint first_left = gl_WorkGroupID.y * TILE, first_right = gl_WorkGroupID.x * WIDE;
	uint row = lane / 4, part = lane % 4, count = push.batch_rows, order = 0;
	if (EXPERTS == 1) {
		uint start = 3 * push.slots + push.first_expert + gl_WorkGroupID.z;
		order = 2 * push.slots + lists[start];
		count = lists[start + 1] - lists[start];
	}
	if (first_left >= count)
		return;
	uint from_row = min(first_left + row, count - 1);
	if (EXPERTS == 1)
		from_row = push.by_slot == 1 ? lists[order + from_row] : lists[order + from_row] / push.used;
	from_row *= 8 * groups;
	uint which = EPILOGUE == PAIR ? row / WIDE : 0;
	uint matrix_row = (EXPERTS == 1 ? gl_WorkGroupID.z * push.rows : 0) + min(first_right + row % WIDE, push.rows - 1);
	float sums[PER][PER];
	[[unroll]] for (uint i = 0; i < PER; i++)
		[[unroll]] for (uint j = 0; j < PER; j++)
			sums[i][j] = 0;

	for (uint group = 0; group < groups; group++) {
		vec4 first, second;
		numbers(which, push.m, matrix_row, group, part, first, second);
		vec2 by = scale(which, push.m, matrix_row, group, part / 2);
		uint at = from_row + 2 * part * groups + group;
		vec4 third = from[at], fourth = from[at + groups];
		barrier();
		right[row][2 * part] = by.x * first + by.y;
		right[row][2 * part + 1] = by.x * second + by.y;
		left[row][2 * part] = third;
		left[row][2 * part + 1] = fourth;
		barrier();
		[[unroll]] for (uint k = 0; k < 8; k++) {
			vec4 a[PER], b[PER];
			[[unroll]] for (uint i = 0; i < PER; i++) {
				a[i] = left[y + 16 * i][k];
				b[i] = right[x + 16 * i][k];
			}
			[[unroll]] for (uint i = 0; i < PER; i++)
				[[unroll]] for (uint j = 0; j < PER; j++)
					sums[i][j] += dot(a[i], b[j]);
		}
	}
	[[unroll]] for (uint i = 0; i < PER; i++)
		[[unroll]] for (uint j = 0; j < WIDE / 16; j++) {
			uint b = first_left + y + 16 * i, n = first_right + x + 16 * j;
			if (b >= count || n >= push.rows)
				continue;
			uint of_bias = push.first + n + (EXPERTS == 1 ? (push.first_expert + gl_WorkGroupID.z) * push.rows : 0);
			float value = biased(push.bias, of_bias, sums[i][j]);
			if (EPILOGUE == PAIR)
				value = gated(value, biased(push.second_bias, of_bias, sums[i][j + PER / 2]));
			finish(EXPERTS == 1 ? lists[order + b] : b, push.first + n, value, push.columns, push.to_groups);
		}
}
