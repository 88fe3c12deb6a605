// matmul_f32 of engine/builtin.h on a GPU. A group makes a tile of c of 16 PER times 16 PER elements; its 16 times 16
// invocations make PER times PER each, in registers. a and b come through shared memory, DEPTH of k at a time (a
// transposed, so that an invocation reads four rows at once), and the next DEPTH is on its way from memory meanwhile.
// The host may split k: then `more` says that c holds the sum so far.
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
layout(local_size_x = 256) in;
ARRAY(0, 4, float, c);
ARRAY(1, 4, float, a);
ARRAY(2, 4, float, b);
PUSH { SLOT(c); SLOT(a); SLOT(b); uint m, n, k, a_stride, b_stride, more; } push;

const uint TILE = 16 * PER, DEPTH = 16, FOURS = PER / 4;
shared vec4 a_tile[DEPTH][TILE / 4 + 1]; // [k][row / 4]; one more, so that columns of it lie in different banks
shared vec4 b_tile[DEPTH][TILE / 4];     // [k][column / 4]

float a_next[PER], b_next[PER];
vec4 sums[PER][FOURS]; // [row][column / 4]

void load(uint first_row, uint first_column, uint at)
{
	[[unroll]] for (uint i = 0; i < PER; i++) {
		uint element = gl_LocalInvocationID.x + 256 * i;
		uint row = first_row + element / DEPTH, column = at + element % DEPTH;
		a_next[i] = 0;
		if (row < push.m && column < push.k)
			a_next[i] = AT(a, row * push.a_stride + column);
		row = at + element / TILE;
		column = first_column + element % TILE;
		b_next[i] = 0;
		if (row < push.k && column < push.n)
			b_next[i] = AT(b, row * push.b_stride + column);
	}
}

void share()
{
	[[unroll]] for (uint i = 0; i < PER; i++) {
		uint element = gl_LocalInvocationID.x + 256 * i, row = element / DEPTH, column = element % TILE;
		a_tile[element % DEPTH][row / 4][row % 4] = a_next[i];
		b_tile[element / TILE][column / 4][column % 4] = b_next[i];
	}
}

void multiply(uint x, uint y)
{
	for (uint depth = 0; depth < DEPTH; depth++) {
		vec4 rows[FOURS], columns[FOURS];
		[[unroll]] for (uint i = 0; i < FOURS; i++) {
			rows[i] = a_tile[depth][y + 16 * i];
			columns[i] = b_tile[depth][x + 16 * i];
		}
		[[unroll]] for (uint i = 0; i < PER; i++)
			[[unroll]] for (uint j = 0; j < FOURS; j++)
				sums[i][j] += rows[i / 4][i % 4] * columns[j];
	}
}

void main()
{
	uint x = gl_LocalInvocationID.x % 16, y = gl_LocalInvocationID.x / 16;
	uint first_row = gl_WorkGroupID.y * TILE, first_column = gl_WorkGroupID.x * TILE;
	[[unroll]] for (uint i = 0; i < PER; i++)
		[[unroll]] for (uint j = 0; j < FOURS; j++)
			sums[i][j] = vec4(0);
	load(first_row, first_column, 0);
	for (uint at = 0; at < push.k; at += DEPTH) {
		share();
		barrier();
		if (at + DEPTH < push.k)
			load(first_row, first_column, at + DEPTH);
		multiply(x, y);
		barrier();
	}
	[[unroll]] for (uint i = 0; i < PER; i++)
		[[unroll]] for (uint j = 0; j < PER; j++) {
			uint row = first_row + (y + 16 * (i / 4)) * 4 + i % 4;
			uint column = first_column + (x + 16 * (j / 4)) * 4 + j % 4;
			if (row < push.m && column < push.n) {
				uint at = row * push.b_stride + column;
				AT(c, at) = sums[i][j / 4][j % 4] + (push.more != 0 ? AT(c, at) : 0.0);
			}
		}
}
