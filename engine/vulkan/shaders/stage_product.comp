// to = from · matrixᵀ for few rows: each weight is read once, which is the bound.
//
// A group of invocations computes ROWS elements of each of BATCH rows, so each value of `from` is used ROWS times. For
// a PAIR, half of them are the gate's and half the other's. The invocations share the columns, a group of 32 at a time,
// and add their sums at the end. With NORM, the input is the RMS norm of `from`: the products are of x and gain, and
// the root of the mean square, which needs the whole row, divides their sum. With EXPERTS the matrix has the rows of
// all experts, one expert after another, and each group computes elements of one slot.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
#include "stage_decode.glsl"
#include "stage_epilogue.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LANES = 64;
layout(constant_id = 3) const uint BATCH = 1;
layout(constant_id = 4) const uint NORM = 0;
layout(constant_id = 5) const uint ROWS = 2;
layout(constant_id = 6) const uint EXPERTS = 0;
FROM { vec4 from[]; };
VECTORS { vec4 vectors[]; };
STEP { uint lists[]; }; // of stage_route.comp
PUSH {
	matrix m;
	uint rows, batch_rows, first, columns, to_groups; // rows of the matrix here; the first one's number; columns of `to`
	uint gain;                                        // in vec4
	float width, epsilon;                             // columns that the mean square is of
	uint used, by_slot, first_expert, experts, slots; // by_slot: `from` has a row for each slot; experts: in the matrix
	uint bias, second_bias;                           // of the output, in floats, or NO_VECTOR; of a PAIR's other matrix
} push;

const uint SUMS = (ROWS + NORM) * BATCH, MATRICES = EPILOGUE == PAIR ? 2 : 1;
shared float sums[SUMS * LANES];

void main()
{
	uint lane = gl_LocalInvocationID.x, groups = push.m.groups;
	uint row = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * (ROWS / MATRICES);
	if (row >= push.rows)
		return;
	uint slot = gl_WorkGroupID.z, expert = EXPERTS == 1 ? lists[slot] - push.first_expert : 0;
	if (EXPERTS == 1 && expert >= push.experts)
		return;
	float dots[ROWS][BATCH], squares[BATCH];
	uint rows[ROWS], batch[BATCH];
	[[unroll]] for (uint b = 0; b < BATCH; b++) {
		squares[b] = 0;
		batch[b] = (EXPERTS == 0 ? min(b, push.batch_rows - 1) : push.by_slot == 1 ? slot : slot / push.used) * groups * 8;
		[[unroll]] for (uint r = 0; r < ROWS; r++)
			dots[r][b] = 0;
	}
	[[unroll]] for (uint r = 0; r < ROWS; r++)
		rows[r] = expert * push.rows + min(row + r / MATRICES, push.rows - 1);

	for (uint group = lane; group < groups; group += LANES)
		[[unroll]] for (uint side = 0; side < 2; side++) {
			float part_dots[ROWS][BATCH], part_sums[BATCH];
			[[unroll]] for (uint b = 0; b < BATCH; b++) {
				part_sums[b] = 0;
				[[unroll]] for (uint r = 0; r < ROWS; r++)
					part_dots[r][b] = 0;
			}
			[[unroll]] for (uint part = 2 * side; part < 2 * side + 2; part++) {
				vec4 first[ROWS], second[ROWS];
				uint at = 2 * part * groups + group;
				[[unroll]] for (uint r = 0; r < ROWS; r++)
					numbers(r % MATRICES, push.m, rows[r], group, part, first[r], second[r]);
				[[unroll]] for (uint b = 0; b < BATCH; b++) {
					vec4 x = from[batch[b] + at], y = from[batch[b] + at + groups];
					if (NORM == 1) {
						squares[b] += dot(x, x) + dot(y, y);
						x *= vectors[push.gain + at];
						y *= vectors[push.gain + at + groups];
					}
					part_sums[b] += dot(x + y, vec4(1));
					[[unroll]] for (uint r = 0; r < ROWS; r++)
						part_dots[r][b] += dot(first[r], x) + dot(second[r], y);
				}
			}
			[[unroll]] for (uint r = 0; r < ROWS; r++) {
				vec2 by = scale(r % MATRICES, push.m, rows[r], group, side);
				[[unroll]] for (uint b = 0; b < BATCH; b++)
					dots[r][b] += by.x * part_dots[r][b] + by.y * part_sums[b];
			}
		}

	[[unroll]] for (uint b = 0; b < BATCH; b++) {
		[[unroll]] for (uint r = 0; r < ROWS; r++)
			sums[(b * ROWS + r) * LANES + lane] = dots[r][b];
		if (NORM == 1)
			sums[(BATCH * ROWS + b) * LANES + lane] = squares[b];
	}
	for (uint half_of = LANES / 2; half_of > 0; half_of /= 2) {
		barrier();
		if (lane < half_of)
			[[unroll]] for (uint i = 0; i < SUMS; i++)
				sums[i * LANES + lane] += sums[i * LANES + lane + half_of];
	}
	barrier();
	uint b = lane / ROWS, n = row + lane % ROWS / MATRICES;
	if (b >= push.batch_rows || b >= BATCH || n >= push.rows || lane % MATRICES > 0)
		return;
	float value = sums[lane * LANES], by = 1;
	if (NORM == 1)
		by = inversesqrt(sums[(BATCH * ROWS + b) * LANES] / push.width + push.epsilon);
	value *= by;
	uint of_bias = push.first + n + (EXPERTS == 1 ? lists[slot] * push.rows : 0);
	value = biased(push.bias, of_bias, value);
	if (EPILOGUE == PAIR)
		value = gated(value, biased(push.second_bias, of_bias, sums[(lane + 1) * LANES] * by));
	finish(EXPERTS == 1 ? slot : b, push.first + n, value, push.columns, push.to_groups);
}
