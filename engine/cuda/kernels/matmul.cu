// matmul_f32 of engine/builtin.h: c (m, n) = a (m, k) . b (k, n), all row-major, in f32 with fused multiply-adds.
//
// A block of 256 threads computes a tile of TILE x TILE of c, DEPTH of k at a time. The next pieces of a and b are
// copied into shared memory (cp.async, two stages) while the current ones are multiplied. a's piece is turned on the way,
// so that a thread reads both pieces four values at a time: shared_a[k][row], shared_b[k][column].
//
//	a warp    TILE/2 rows x TILE/4 columns of the tile (8 warps: 2 x 4)
//	a thread  4 x 4 values, in TILE = 128 four such squares, TILE/4 rows and TILE/8 columns apart
//
// Edges: cp.async fills with zeros what is not there, and what is outside c is not stored. Tiles of 128 compute more a
// byte read; tiles of 64 are for matrices too small to give every multiprocessor a tile of 128.
#include "common.cuh"

enum { THREADS_OF_BLOCK = 256, DEPTH = 16, GROUP_ROWS = 8 };

struct shape {
	u64 m, n, k;
};

static inline __device__ unsigned shared_address(const void *pointer)
{
	unsigned address;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
	return address;
}

// 4 or 16 bytes, zeros if not `there`.
static inline __device__ void copy_4(unsigned to, const float *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

static inline __device__ void copy_16(unsigned to, const float *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
		     : "memory");
}

// TILE rows of a, DEPTH of k. Eight threads side by side read 32 bytes of a row, and a warp's stores meet no bank twice.
template <int TILE>
static inline __device__ void load_a(unsigned to, const float *a, const shape &s, u64 row0, u64 k0)
{
	unsigned lane = THREAD_X % 32, warp = THREAD_X / 32;
	unsigned row = warp / 2 * 4 + lane / 8, k = warp % 2 * 8 + lane % 8;
	const float *from = a + (row0 + row) * s.k + k0 + k;
	bool inside = k0 + k < s.k;
#pragma unroll
	for (int i = 0; i < TILE / 16; i++) {
		bool there = inside && row0 + row + 16 * i < s.m;
		copy_4(to + 4 * (k * (TILE + 4) + row + 16 * i), there ? from + 16 * i * s.k : a, there);
	}
}

// DEPTH rows of b, TILE columns. Rows that begin at multiples of 16 bytes are copied in such pieces.
template <int TILE>
static inline __device__ void load_b(unsigned to, const float *b, const shape &s, u64 column0, u64 k0)
{
	if (s.n % 4 == 0) {
#pragma unroll
		for (int i = 0; i < DEPTH * TILE / 4 / THREADS_OF_BLOCK; i++) {
			unsigned at = i * THREADS_OF_BLOCK + THREAD_X, k = at / (TILE / 4), column = at % (TILE / 4) * 4;
			bool there = k0 + k < s.k && column0 + column < s.n;
			copy_16(to + 4 * (k * TILE + column), there ? b + (k0 + k) * s.n + column0 + column : b, there);
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < DEPTH * TILE / THREADS_OF_BLOCK; i++) {
		unsigned at = i * THREADS_OF_BLOCK + THREAD_X, k = at / TILE, column = at % TILE;
		bool there = k0 + k < s.k && column0 + column < s.n;
		copy_4(to + 4 * (k * TILE + column), there ? b + (k0 + k) * s.n + column0 + column : b, there);
	}
}

// Blocks go down GROUP_ROWS tiles before they go right, so that those which run together share more of a and b.
static inline __device__ void place(u64 tiles_down, u64 tiles_right, u64 *down, u64 *right)
{
	u64 group = BLOCK_X / (GROUP_ROWS * tiles_right), within = BLOCK_X % (GROUP_ROWS * tiles_right);
	u64 rows = tiles_down - group * GROUP_ROWS;
	rows = rows < GROUP_ROWS ? rows : GROUP_ROWS;
	*down = group * GROUP_ROWS + within % rows;
	*right = within / rows;
}

template <int SQUARES>
static inline __device__ void store(float *c, const shape &s, u64 row, u64 column, const float (&sum)[4 * SQUARES])
{
	if (row >= s.m)
		return;
#pragma unroll
	for (int j = 0; j < SQUARES; j++) {
		u64 first = column + 16 * j;
		float *to = c + row * s.n + first;
		if (s.n % 4 == 0 && first < s.n) {
			float4 four;
			four.x = sum[4 * j];
			four.y = sum[4 * j + 1];
			four.z = sum[4 * j + 2];
			four.w = sum[4 * j + 3];
			*(float4 *)to = four;
			continue;
		}
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (first + i < s.n)
				to[i] = sum[4 * j + i];
	}
}

template <int TILE> static inline __device__ void matmul(float *c, const float *a, const float *b, const shape &s)
{
	enum { SQUARES = TILE / 64, SIDE = 4 * SQUARES };
	__shared__ __attribute__((aligned(16))) float shared_a[2][DEPTH][TILE + 4], shared_b[2][DEPTH][TILE];
	unsigned lane = THREAD_X % 32, warp = THREAD_X / 32;
	// Lanes that read the same values lie beside each other, which shared memory serves at once.
	unsigned row = warp / 4 * (TILE / 2) + lane / 2 % 8 * 4;
	unsigned column = warp % 4 * (TILE / 4) + (lane / 16 * 2 + lane % 2) * 4;
	u64 down, right;
	place((s.m + TILE - 1) / TILE, (s.n + TILE - 1) / TILE, &down, &right);
	float sum[SIDE][SIDE];
#pragma unroll
	for (int i = 0; i < SIDE; i++)
#pragma unroll
		for (int j = 0; j < SIDE; j++)
			sum[i][j] = 0;

	unsigned to_a = shared_address(shared_a), to_b = shared_address(shared_b), stage = 0;
	load_a<TILE>(to_a, a, s, down * TILE, 0);
	load_b<TILE>(to_b, b, s, right * TILE, 0);
	for (u64 k0 = 0; k0 < s.k; k0 += DEPTH, stage ^= 1) {
		asm volatile("cp.async.wait_all;" ::: "memory");
		__syncthreads(); // this stage is there, and nobody reads the other one any more
		if (k0 + DEPTH < s.k) {
			unsigned next = stage ^ 1;
			load_a<TILE>(to_a + next * sizeof(shared_a[0]), a, s, down * TILE, k0 + DEPTH);
			load_b<TILE>(to_b + next * sizeof(shared_b[0]), b, s, right * TILE, k0 + DEPTH);
		}
#pragma unroll
		for (int k = 0; k < DEPTH; k++) {
			float4 u[SQUARES], v[SQUARES];
#pragma unroll
			for (int i = 0; i < SQUARES; i++) {
				u[i] = *(const float4 *)&shared_a[stage][k][row + 32 * i];
				v[i] = *(const float4 *)&shared_b[stage][k][column + 16 * i];
			}
#pragma unroll
			for (int i = 0; i < SQUARES; i++) {
				const float rows[4] = {u[i].x, u[i].y, u[i].z, u[i].w};
#pragma unroll
				for (int j = 0; j < SIDE; j++) {
					float4 w = v[j / 4];
					float value = j % 4 == 0 ? w.x : j % 4 == 1 ? w.y : j % 4 == 2 ? w.z : w.w;
#pragma unroll
					for (int r = 0; r < 4; r++)
						sum[4 * i + r][j] = FUSED(rows[r], value, sum[4 * i + r][j]);
				}
			}
		}
	}
#pragma unroll
	for (int i = 0; i < SIDE; i++)
		store<SQUARES>(c, s, down * TILE + row + i / 4 * 32 + i % 4, right * TILE + column, sum[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 2)
matmul_128(float *c, const float *a, const float *b, u64 m, u64 n, u64 k)
{
	const shape s = {m, n, k};
	matmul<128>(c, a, b, s);
}

extern "C" __global__ void __launch_bounds__(THREADS_OF_BLOCK, 4)
matmul_64(float *c, const float *a, const float *b, u64 m, u64 n, u64 k)
{
	const shape s = {m, n, k};
	matmul<64>(c, a, b, s);
}
