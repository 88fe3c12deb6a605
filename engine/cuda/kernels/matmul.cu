// matmul_f32 of engine/builtin.h: c (m, n) = a (m, k) . b (k, n), all row-major, in f32 with fused multiply-adds.
//
// A block of 256 threads computes a tile of TILE x TILE of c, DEPTH of k at a time. The next pieces of a and b are
// copied into shared memory (cp.async, two stages) while the current ones are multiplied. a's piece is transposed on
// the way, so that a thread reads both pieces four values at a time: shared_a[k][row], shared_b[k][column].
//
//	a warp    TILE/2 rows x TILE/4 columns of the tile (8 warps: 2 x 4)
//	a thread  4 x 4 values, in TILE = 128 four such squares, TILE/4 rows and TILE/8 columns apart
//
// Edges: cp.async fills with zeros beyond the matrix, and results outside c are not stored. Tiles of 128 compute more
// for each byte read; tiles of 64 are for matrices too small to give every multiprocessor a tile of 128.
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

// The copies of a thread for a piece: COPIES times BYTES (4 or 16), `stride` floats apart in the source and TO_STEP
// bytes apart in shared memory.
template <int COPIES, int BYTES, int TO_STEP>
static inline __device__ void copy_whole(unsigned to, const float *from, u64 stride)
{
#pragma unroll
	for (int i = 0; i < COPIES; i++, from += stride)
		if (BYTES == 16)
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * TO_STEP), "l"(from)
				     : "memory");
		else
			asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + i * TO_STEP), "l"(from)
				     : "memory");
}

// The same at an edge: only the first `inside` are there, the others become zeros.
template <int COPIES, int BYTES, int TO_STEP>
static inline __device__ void copy_edge(unsigned to, const float *from, u64 stride, const float *valid, u64 inside)
{
#pragma unroll 1
	for (int i = 0; i < COPIES; i++, from += stride) {
		const float *at = i < inside ? from : valid;
		int bytes = i < inside ? BYTES : 0;
		if (BYTES == 16)
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + i * TO_STEP), "l"(at),
				     "r"(bytes)
				     : "memory");
		else
			asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + i * TO_STEP), "l"(at),
				     "r"(bytes)
				     : "memory");
	}
}

// How many of the places `first`, first + step, ... lie below `limit`.
static inline __device__ u64 count_below(u64 first, u64 step, u64 limit)
{
	return first < limit ? (limit - first + step - 1) / step : 0;
}

// TILE rows of a, DEPTH of k. Eight threads side by side read 32 bytes of a row, and a warp's stores meet no bank twice.
template <int TILE>
static inline __device__ void load_a(unsigned to, const float *a, const shape &s, u64 row0, u64 k0)
{
	const int copies = TILE / 16, to_step = 4 * 16;
	unsigned lane = THREAD_X % 32, warp = THREAD_X / 32;
	unsigned row = warp / 2 * 4 + lane / 8, k = warp % 2 * 8 + lane % 8;
	const float *from = a + (row0 + row) * s.k + k0 + k;
	to += 4 * (k * (TILE + 4) + row);
	if (row0 + TILE <= s.m && k0 + DEPTH <= s.k)
		copy_whole<copies, 4, to_step>(to, from, 16 * s.k);
	else
		copy_edge<copies, 4, to_step>(to, from, 16 * s.k, a,
					      k0 + k < s.k ? count_below(row0 + row, 16, s.m) : 0);
}

// DEPTH rows of b, TILE columns: BYTES at a time.
template <int TILE, int BYTES>
static inline __device__ void load_b(unsigned to, const float *b, const shape &s, u64 column0, u64 k0)
{
	const int across = 4 * TILE / BYTES, down = THREADS_OF_BLOCK / across; // threads
	const int copies = DEPTH / down, to_step = 4 * TILE * down;
	unsigned k = THREAD_X / across, column = THREAD_X % across * (BYTES / 4);
	const float *from = b + (k0 + k) * s.n + column0 + column;
	to += 4 * (k * TILE + column);
	if (column0 + TILE <= s.n && k0 + DEPTH <= s.k)
		copy_whole<copies, BYTES, to_step>(to, from, down * s.n);
	else
		copy_edge<copies, BYTES, to_step>(to, from, down * s.n, b,
						  column0 + column < s.n ? count_below(k0 + k, down, s.k) : 0);
}

// Rows that begin at multiples of 16 bytes are copied in such pieces.
template <int TILE>
static inline __device__ void load(unsigned to_a, unsigned to_b, const float *a, const float *b, const shape &s,
				   u64 row0, u64 column0, u64 k0)
{
	load_a<TILE>(to_a, a, s, row0, k0);
	if (s.n % 4 == 0)
		load_b<TILE, 16>(to_b, b, s, column0, k0);
	else
		load_b<TILE, 4>(to_b, b, s, column0, k0);
}

// Blocks go down GROUP_ROWS tiles before they go right, so that blocks that run together share more of a and b.
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
	load<TILE>(to_a, to_b, a, b, s, down * TILE, right * TILE, 0);
	for (u64 k0 = 0; k0 < s.k; k0 += DEPTH, stage ^= 1) {
		asm volatile("cp.async.wait_all;" ::: "memory");
		__syncthreads(); // this stage is there, and no thread reads the other one any more
		if (k0 + DEPTH < s.k) {
			unsigned next = stage ^ 1;
			load<TILE>(to_a + next * sizeof(shared_a[0]), to_b + next * sizeof(shared_b[0]), a, b, s,
				   down * TILE, right * TILE, k0 + DEPTH);
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
					for (int step = 0; step < 4; step++) { // back and forth: last read, next read
						const int r = j % 2 ? 3 - step : step;
						sum[4 * i + r][j] = FUSED(rows[r], value, sum[4 * i + r][j]);
					}
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
