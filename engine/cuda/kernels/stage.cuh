// Declarations that the kernels of a stage share: fragments of weights from tiles, products, copies, and replacements
// for CUDA's headers.
#pragma once
#include "common.cuh"
#include "stage_params.h"

#if defined(__clang__)
#define BLOCK_Y __nvvm_read_ptx_sreg_ctaid_y()
#define BLOCK_Z __nvvm_read_ptx_sreg_ctaid_z()
#define BLOCKS_Y __nvvm_read_ptx_sreg_nctaid_y()
#define BLOCKS_Z __nvvm_read_ptx_sreg_nctaid_z()
typedef unsigned uint2 __attribute__((ext_vector_type(2)));
typedef float float2 __attribute__((ext_vector_type(2)));
#define CONSTANT
#else
#define BLOCK_Y blockIdx.y
#define BLOCK_Z blockIdx.z
#define BLOCKS_Y gridDim.y
#define BLOCKS_Z gridDim.z
#define CONSTANT __grid_constant__
#endif
// Always inlined: a function that is not inlined keeps its arguments and sums in memory.
#define INLINE_METHOD inline __device__ __attribute__((always_inline))
#define INLINE static INLINE_METHOD

extern __shared__ __attribute__((aligned(128))) unsigned char shared[];

// ---- the order of kernels ----

// The next kernel of the stream may begin with what does not depend on this one; and wait for the kernels before.
// Without Hopper's launches one begins when the other has ended.
INLINE void let_next_begin()
{
#if defined(HOPPER)
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}
INLINE void wait_for_previous()
{
#if defined(HOPPER)
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void warp_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
// A barrier of a block, and products of fragments, take whole warps; clang does not bring those together again whose
// lanes have left a loop at different times.
INLINE void block_barrier()
{
	warp_barrier();
	__syncthreads();
}
INLINE void barrier(unsigned which, unsigned threads)
{
	warp_barrier();
	asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}

// ---- copies to shared memory ----

INLINE unsigned shared_place(const void *pointer)
{
	unsigned place;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(place) : "l"(pointer));
	return place;
}
INLINE void copy_16(unsigned to, const void *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros unless `there`.
INLINE void copy_16_if(unsigned to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
		     : "memory");
}
INLINE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> INLINE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// ---- numbers ----

INLINE unsigned pack_f16(float low, float high)
{
	unsigned out;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
	return out;
}
INLINE unsigned pack_bf16(float low, float high)
{
	unsigned out;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
	return out;
}
INLINE float low_bf16(unsigned two) { return __builtin_bit_cast(float, two << 16); }
INLINE float high_bf16(unsigned two) { return __builtin_bit_cast(float, two & 0xffff0000u); }
INLINE float low_f16(unsigned two)
{
	float out;
	asm("{ .reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(out) : "r"(two));
	return out;
}
INLINE float high_f16(unsigned two)
{
	float out;
	asm("{ .reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(out) : "r"(two));
	return out;
}
INLINE unsigned sub_f16(unsigned a, unsigned b)
{
	unsigned out;
	asm("sub.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
	return out;
}
INLINE unsigned fused_f16(unsigned a, unsigned b, unsigned c)
{
	unsigned out;
	asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
	return out;
}
INLINE unsigned bytes_of(unsigned a, unsigned b, unsigned which)
{
	unsigned out;
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(which));
	return out;
}
INLINE float exp2_of(float x)
{
	float out;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
	return out;
}
INLINE float exp_of(float x) { return exp2_of(x * 1.4426950408889634f); }
INLINE float root_of(float x)
{
	float out;
	asm("sqrt.rn.f32 %0, %1;" : "=f"(out) : "f"(x));
	return out;
}
INLINE float quotient(float a, float b)
{
	float out;
	asm("div.rn.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
	return out;
}
INLINE float inverse_of(float x) // to 1 of the last bit
{
	float out;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
	return out;
}
INLINE float larger(float a, float b)
{
	float out;
	asm("max.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(b));
	return out;
}
INLINE float silu(float x) { return quotient(x, 1 + exp_of(-x)); }
INLINE float sigmoid(float x) { return quotient(1, 1 + exp_of(-x)); }
static constexpr float SIGMOIDS_LEAST = 6.1e-5f; // their sum that weights are divided by: all may underflow
// With tanh; x / 2 (1 + tanh(u)) is x / (1 + e^(-2 u)).
INLINE float gelu(float x) { return quotient(x, 1 + exp_of(-1.5957691216f * x * (1 + 0.044715f * x * x))); }
enum { KIND_SILU, KIND_GELU, KIND_NONE, KIND_CLAMPED }; // as enum model_gate
// The gate of the feed-forward network, times `up`. NaN stays NaN.
INLINE float gated(float gate, float up, unsigned kind)
{
	if (kind == KIND_GELU)
		return gelu(gate) * up;
	if (kind != KIND_CLAMPED)
		return silu(gate) * up;
	float clamped = gate > 7 ? 7 : gate, other = up > 7 ? 7 : up < -7 ? -7 : up;
	return quotient(clamped, 1 + exp_of(-1.702f * clamped)) * (other + 1);
}
// cap * tanh(x / cap), without divisions that branch, because it is in unrolled loops.
INLINE float capped(float x, float cap)
{
	return cap - 2 * cap * inverse_of(exp_of(x * (2 * inverse_of(cap))) + 1);
}
INLINE float absolute(float x) { return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0x7fffffffu); }
INLINE float from_lane(float value, unsigned lane_xor)
{
	unsigned out;
	asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;"
		     : "=r"(out)
		     : "r"(__builtin_bit_cast(unsigned, value)), "r"(lane_xor));
	return __builtin_bit_cast(float, out);
}
INLINE float warp_sum(float value)
{
	for (unsigned half = 16; half; half /= 2)
		value += from_lane(value, half);
	return value;
}
INLINE float warp_most(float value)
{
	for (unsigned half = 16; half; half /= 2)
		value = larger(value, from_lane(value, half));
	return value;
}
// A power of two that brings `most` into [2^9, 2^10): f16 then has its 11 bits for all that is not below 2^-24 of it.
INLINE float scale_for(float most)
{
	unsigned exponent = __builtin_bit_cast(unsigned, most) >> 23;
	if (exponent < 32 || exponent > 250) // zero, close to it, infinite or NaN
		return 1;
	return __builtin_bit_cast(float, (254u + 9 - exponent) << 23);
}

// Read by others on the device before: past the first-level cache.
INLINE float4 load_fresh(const float *from)
{
	float4 out;
	asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
		     : "l"(from));
	return out;
}
INLINE float load_fresh_1(const float *from)
{
	float out;
	asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(out) : "l"(from));
	return out;
}

INLINE unsigned load_fresh_word(const unsigned *from)
{
	unsigned out;
	asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(out) : "l"(from));
	return out;
}

// ---- activations as integers ----

INLINE unsigned from_lane_bits(unsigned value, unsigned lane_xor)
{
	return __builtin_bit_cast(unsigned, from_lane(__builtin_bit_cast(float, value), lane_xor));
}
// Four columns of a row as integers of 16 bits: the two words of bytes that this lane is to store, and where.
struct rounded_four {
	unsigned upper, lower, place;
	float scale; // of the block of 32
	int total;   // of its integers
};

// N times four columns, k and each 128 further on; eight neighbouring lanes have a block. For all lanes of a warp.
template <int N> INLINE void round_fours(rounded_four (&out)[N], const float4 (&v)[N], unsigned k)
{
	float most[N];
	unsigned q[N][4];
#pragma unroll
	for (int i = 0; i < N; i++)
		most[i] = larger(larger(absolute(v[i].x), absolute(v[i].y)),
				 larger(absolute(v[i].z), absolute(v[i].w)));
#pragma unroll
	for (unsigned half = 1; half < 8; half *= 2)
#pragma unroll
		for (int i = 0; i < N; i++)
			most[i] = larger(most[i], from_lane(most[i], half));
#pragma unroll
	for (int i = 0; i < N; i++) {
		float inverse = most[i] > 1e-30f ? 32512 * inverse_of(most[i]) : 0; // smaller values become zero
		out[i].scale = most[i] > 1e-30f ? most[i] * (1 / 32512.0f) : 0;
		// Added to 3 * 2^22, an integer is in the lowest bits. With 128 more, the upper byte is right; the
		// lower one is 128 too large, which is its highest bit.
		const float shift = 12582912.0f + 128;
		q[i][0] = __builtin_bit_cast(unsigned, FUSED(v[i].x, inverse, shift));
		q[i][1] = __builtin_bit_cast(unsigned, FUSED(v[i].y, inverse, shift));
		q[i][2] = __builtin_bit_cast(unsigned, FUSED(v[i].z, inverse, shift));
		q[i][3] = __builtin_bit_cast(unsigned, FUSED(v[i].w, inverse, shift));
		out[i].total = (int)((q[i][0] + q[i][1]) + (q[i][2] + q[i][3]) - 4 * 0x4b400080u);
		unsigned one = bytes_of(q[i][0], q[i][1], 0x5410), two = bytes_of(q[i][2], q[i][3], 0x5410);
		out[i].upper = bytes_of(one, two, 0x7531);
		out[i].lower = bytes_of(one, two, 0x6420) ^ 0x80808080u;
	}
#pragma unroll
	for (unsigned half = 1; half < 8; half *= 2)
#pragma unroll
		for (int i = 0; i < N; i++)
			out[i].total += (int)from_lane_bits((unsigned)out[i].total, half);
	// A lane's word is columns 2 j, 8 + 2 j, 2 j + 1, 9 + 2 j: of two lanes.
	unsigned second = k / 8 % 2, which = second ? 0x3726 : 0x5140, j = k % 8 / 2 + second;
#pragma unroll
	for (int i = 0; i < N; i++) {
		out[i].upper = bytes_of(out[i].upper, from_lane_bits(out[i].upper, 2), which);
		out[i].lower = bytes_of(out[i].lower, from_lane_bits(out[i].lower, 2), which);
		out[i].place = (k + i * 128) / 32 * 32 + j * 8 + k % 32 / 16 * 4;
	}
}

// The place of column k in a row of halves, in bytes: the four columns of a lane are next to each other.
INLINE unsigned column_place(unsigned k)
{
	return k / 16 * 32 + k % 8 / 2 * 8 + k % 16 / 8 * 4 + k % 2 * 2;
}

// ---- keys and values ----

// The place of k (`which` 0) or v (1) of a row's position.
INLINE unsigned short *page_row(const attention_params &p, unsigned row, unsigned position, unsigned which, unsigned head)
{
	u64 page = p.pages[p.tables[row] + position / STAGE_KV_PAGE];
	return p.kv + (((page * 2 + which) * p.kv_heads + head) * STAGE_KV_PAGE + position % STAGE_KV_PAGE) * p.head_padded;
}

// What a value of a head is multiplied by: the sigmoid of its gate, or 1.
INLINE float gate_at(const attention_params &p, unsigned row, unsigned head, unsigned at)
{
	if (p.q_rows == p.head_size)
		return 1;
	return sigmoid(load_fresh_1(p.qkv + (u64)row * p.qkv_stride + head * p.q_rows + p.head_size + at));
}

// ---- fragments ----

struct fragment { // operand A of a step: pairs 0 to 3
	unsigned pair[4];
};
INLINE void multiply_f16(float (&sum)[4], const fragment &a, unsigned b0, unsigned b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
	    "{%0, %1, %2, %3};"
	    : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
	    : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b0), "r"(b1));
}
INLINE void multiply_bf16(float (&sum)[4], const fragment &a, unsigned b0, unsigned b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
	    "{%0, %1, %2, %3};"
	    : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
	    : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b0), "r"(b1));
}

// Small integers are exact in f16, and made without converting: 0x6400 | n is 1024 + n.
enum : unsigned {
	F16_1024 = 0x64006400u,
	F16_SIXTEENTH = 0x2c002c00u, // 1 / 16
};

// Two words of a step: four bytes of row g, four of row g + 8.
INLINE fragment fragment_of_bytes(unsigned upper, unsigned lower)
{
	const unsigned offset = 0x64806480u; // 1152
	upper ^= 0x80808080u;
	lower ^= 0x80808080u;
	fragment a;
	a.pair[0] = sub_f16(bytes_of(upper, F16_1024, 0x5250), offset);
	a.pair[1] = sub_f16(bytes_of(lower, F16_1024, 0x5250), offset);
	a.pair[2] = sub_f16(bytes_of(upper, F16_1024, 0x5351), offset);
	a.pair[3] = sub_f16(bytes_of(lower, F16_1024, 0x5351), offset);
	return a;
}

// (a & MASK) | b in one instruction: where b is a constant, too, the compiler makes two of it.
template <unsigned MASK> INLINE unsigned masked_or(unsigned a, unsigned b)
{
	unsigned out;
	asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "n"(MASK), "r"(b));
	return out;
}

// Fragments of nibbles. Of each pair: F16_1024 with the upper bits at their place, from bit 4 in pairs 0 and 2 and from bit
// 8 in pairs 1 and 3. OFFSET is subtracted from each number.
template <int OFFSET>
INLINE fragment fragment_of_nibbles(unsigned word, const unsigned (&high)[4])
{
	const unsigned one = F16_1024 + OFFSET * 0x00010001u; // 1024 + OFFSET
	// -(64 + OFFSET): 64 to 127 have steps of 1 / 16 in f16
	const unsigned other = 0xd400d400u + OFFSET * 0x00100010u;
	unsigned upper = word >> 8;
	fragment a;
	a.pair[0] = sub_f16(masked_or<0x000f000fu>(word, high[0]), one);
	a.pair[1] = fused_f16(masked_or<0x00f000f0u>(word, high[1]), F16_SIXTEENTH, other);
	a.pair[2] = sub_f16(masked_or<0x000f000fu>(upper, high[2]), one);
	a.pair[3] = fused_f16(masked_or<0x00f000f0u>(upper, high[3]), F16_SIXTEENTH, other);
	return a;
}

// A step of e2m1 numbers: their three lower bits go to the lowest of f16's exponent and the highest of its fraction, the
// fourth is the sign. So each is 2^-14 times its value, exactly, which e8m0_fragment makes up for.
INLINE fragment fragment_of_e2m1(unsigned word)
{
	fragment a;
	a.pair[0] = (word << 9 & 0x0e000e00u) | (word << 12 & 0x80008000u);
	a.pair[1] = (word << 5 & 0x0e000e00u) | (word << 8 & 0x80008000u);
	a.pair[2] = (word << 1 & 0x0e000e00u) | (word << 4 & 0x80008000u);
	a.pair[3] = (word >> 3 & 0x0e000e00u) | (word & 0x80008000u);
	return a;
}
// 2^14 times the scale of a block of MXFP4; infinite from 2^114 on.
INLINE float e8m0_fragment(unsigned e)
{
	return __builtin_bit_cast(float, (e < 241 ? e + 14 : 255) << 23);
}

// Four matrices of 8 by 8 halves, as operand B has them: one row of 16 bytes from each lane.
INLINE uint4 load_matrices(unsigned from)
{
	uint4 out;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
		     : "r"(from)
		     : "memory");
	return out;
}

// Like load_matrices, transposed: rows are positions, as in operand B.
INLINE uint4 load_turned(unsigned from)
{
	uint4 out;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
		     : "r"(from)
		     : "memory");
	return out;
}

INLINE void clear(float (&sum)[4]) { sum[0] = sum[1] = sum[2] = sum[3] = 0; }
INLINE void add_scaled(float (&sum)[4], const float (&part)[4], float upper, float lower)
{
	sum[0] = FUSED(part[0], upper, sum[0]);
	sum[1] = FUSED(part[1], upper, sum[1]);
	sum[2] = FUSED(part[2], lower, sum[2]);
	sum[3] = FUSED(part[3], lower, sum[3]);
}

INLINE uint4 load_run(const unsigned char *tile, unsigned offset, unsigned lane)
{
	return *(const uint4 *)(tile + offset + lane * TILE_LANE_BYTES);
}
INLINE unsigned word_of(const uint4 &four, unsigned i)
{
	return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// The scale (low 6 bits of the result) and the min (from bit 8) of a group, out of a head of the K formats.
INLINE unsigned head_scales(const uint4 &head, unsigned group)
{
	unsigned shift = group % 4 * 8;
	unsigned a = head.y >> shift & 255, b = head.z >> shift & 255, c = head.w >> shift & 255;
	if (group < 4)
		return (a & 63) | (b & 63) << 8;
	return (c & 15) | a >> 6 << 4 | ((c >> 4) | b >> 6 << 4) << 8;
}

INLINE unsigned shifted(unsigned word, int right) { return right >= 0 ? word >> right : word << -right; }

// The two steps of a block of 32 columns, as fragments, and what their sums are multiplied by.
struct block_of_weights {
	fragment step[2];
	float upper[2], lower[2]; // scales of rows g and g + 8: of the block, or of each step
	float upper_min, lower_min;
};

template <int FORMAT>
INLINE void load_block(block_of_weights *out, const unsigned char *tile, unsigned block, unsigned lane)
{
	if (FORMAT == TILE_F16 || FORMAT == TILE_BF16) {
#pragma unroll
		for (unsigned i = 0; i < 2; i++) {
			uint4 run = load_run(tile, i * TILE_RUN_BYTES, lane);
			out->step[i] = {{run.x, run.y, run.z, run.w}};
		}
	} else if (FORMAT == TILE_Q8_0) {
		uint4 run = load_run(tile, block * TILE_RUN_BYTES, lane);
		uint2 scales = *(const uint2 *)(tile + 1024 + lane / 4 * 8);
		out->step[0] = fragment_of_bytes(run.x, run.y);
		out->step[1] = fragment_of_bytes(run.z, run.w);
		out->upper[0] = block ? high_f16(scales.x) : low_f16(scales.x);
		out->lower[0] = block ? high_f16(scales.y) : low_f16(scales.y);
	} else if (FORMAT == TILE_Q4_0) {
		uint2 run = *(const uint2 *)(tile + block / 2 * TILE_RUN_BYTES + lane * TILE_LANE_BYTES + block % 2 * 8);
		const unsigned char *scales = tile + 1024 + lane / 4 * 16 + block * 2;
		const unsigned none[4] = {F16_1024, F16_1024, F16_1024, F16_1024};
		out->step[0] = fragment_of_nibbles<8>(run.x, none);
		out->step[1] = fragment_of_nibbles<8>(run.y, none);
		out->upper[0] = low_f16(*(const unsigned short *)scales);
		out->lower[0] = low_f16(*(const unsigned short *)(scales + 8));
	} else if (FORMAT == TILE_MXFP4) {
		uint2 run = *(const uint2 *)(tile + block / 2 * TILE_RUN_BYTES + lane * TILE_LANE_BYTES + block % 2 * 8);
		const unsigned char *exponents = tile + 1024 + lane / 4 * 8 + block;
		out->step[0] = fragment_of_e2m1(run.x);
		out->step[1] = fragment_of_e2m1(run.y);
		out->upper[0] = e8m0_fragment(exponents[0]);
		out->lower[0] = e8m0_fragment(exponents[4]);
	} else if (FORMAT == TILE_Q4_K || FORMAT == TILE_Q5_K) {
		const unsigned char *heads = tile + 2048 + (FORMAT == TILE_Q5_K ? 512 : 0);
		uint2 run = *(const uint2 *)(tile + block / 2 * TILE_RUN_BYTES + lane * TILE_LANE_BYTES + block % 2 * 8);
		uint4 above = *(const uint4 *)(heads + lane / 4 * 16);
		uint4 below = *(const uint4 *)(heads + (lane / 4 + 8) * 16);
		unsigned high = 0;
		if (FORMAT == TILE_Q5_K) {
			high = *(const unsigned *)(tile + 2048 + lane * TILE_LANE_BYTES + block / 2 * 4);
			high = block % 2 ? high >> 4 : high;
		}
#pragma unroll
		for (int i = 0; i < 2; i++) {
			unsigned bits[4] = {F16_1024, F16_1024, F16_1024, F16_1024};
#pragma unroll
			for (int pair = 0; FORMAT == TILE_Q5_K && pair < 4; pair++)
				bits[pair] = pair % 2 ? masked_or<0x01000100u>(shifted(high, pair / 2 * 8 + i * 2 + 1 - 8), F16_1024)
						      : masked_or<0x00100010u>(shifted(high, pair / 2 * 8 + i * 2 - 4), F16_1024);
			out->step[i] = fragment_of_nibbles<0>(i ? run.y : run.x, bits);
		}
		unsigned scales = head_scales(above, block), others = head_scales(below, block);
		out->upper[0] = low_f16(above.x) * (float)(scales & 63);
		out->lower[0] = low_f16(below.x) * (float)(others & 63);
		out->upper_min = -high_f16(above.x) * (float)(scales >> 8);
		out->lower_min = -high_f16(below.x) * (float)(others >> 8);
	} else if (FORMAT == TILE_Q6_K) {
		uint2 run = *(const uint2 *)(tile + block / 2 * TILE_RUN_BYTES + lane * TILE_LANE_BYTES + block % 2 * 8);
		unsigned high = *(const unsigned *)(tile + 2048 + block / 4 * TILE_RUN_BYTES + lane * TILE_LANE_BYTES +
						    block % 4 * 4);
		const unsigned char *scales = tile + 3072 + lane / 4 * 16 + block * 2, *ds = tile + 3328 + lane / 4 * 2;
		unsigned above = *(const unsigned short *)scales, below = *(const unsigned short *)(scales + 128);
		float upper_d = low_f16(*(const unsigned short *)ds), lower_d = low_f16(*(const unsigned short *)(ds + 16));
#pragma unroll
		for (int i = 0; i < 2; i++) {
			unsigned bits[4];
#pragma unroll
			for (int pair = 0; pair < 4; pair++)
				bits[pair] = pair % 2 ? masked_or<0x03000300u>(shifted(high, pair / 2 * 8 + i * 4 + 2 - 8), F16_1024)
						      : masked_or<0x00300030u>(shifted(high, pair / 2 * 8 + i * 4 - 4), F16_1024);
			out->step[i] = fragment_of_nibbles<32>(i ? run.y : run.x, bits);
			out->upper[i] = upper_d * (float)(signed char)(above >> i * 8);
			out->lower[i] = lower_d * (float)(signed char)(below >> i * 8);
		}
	}
}

// An f32 is the sum of three bf16, exactly.
INLINE void load_wide(fragment (&out)[3], const unsigned char *tile, unsigned step, unsigned lane)
{
	uint4 run[2] = {load_run(tile, step * 2 * TILE_RUN_BYTES, lane), load_run(tile, (step * 2 + 1) * TILE_RUN_BYTES, lane)};
#pragma unroll
	for (unsigned pair = 0; pair < 4; pair++) {
		float x = __builtin_bit_cast(float, word_of(run[pair / 2], pair % 2 * 2));
		float y = __builtin_bit_cast(float, word_of(run[pair / 2], pair % 2 * 2 + 1));
#pragma unroll
		for (int i = 0; i < 3; i++) {
			out[i].pair[pair] = pack_bf16(x, y);
			x -= low_bf16(out[i].pair[pair]);
			y -= high_bf16(out[i].pair[pair]);
		}
	}
}

// Multiply a block of 32 columns of 16 rows by NT times 8 rows of activations, and add. `b` has those:
// b.get(plane, step, nt); plane 0 is f16, planes 1 and 2 are bf16. Mins are multiplied by sums of activations, which a
// product with ones makes: the same activations, rounded the same way.
template <int FORMAT, int NT, class B>
INLINE void multiply_block(float (&sum)[NT][4], const unsigned char *tile, unsigned block, unsigned lane, const B &b)
{
	const fragment ones = {{0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u}};
	if (FORMAT == TILE_F32) {
#pragma unroll
		for (unsigned step = 0; step < 2; step++) {
			fragment wide[3];
			load_wide(wide, tile, step, lane);
#pragma unroll
			for (int nt = 0; nt < NT; nt++)
#pragma unroll
				for (int plane = 2; plane; plane--) {
					uint2 v = b.get(plane, step, nt);
#pragma unroll
					for (int i = 2; i >= 0; i--)
						multiply_bf16(sum[nt], wide[i], v.x, v.y);
				}
		}
		return;
	}
	block_of_weights w;
	load_block<FORMAT>(&w, tile, block, lane);
#pragma unroll
	for (int nt = 0; nt < NT; nt++) {
		float part[4], total[4];
		clear(part);
#pragma unroll
		for (unsigned step = 0; step < 2; step++) {
			if (FORMAT == TILE_BF16) {
#pragma unroll
				for (int plane = 1; plane < 3; plane++) {
					uint2 v = b.get(plane, step, nt);
					multiply_bf16(sum[nt], w.step[step], v.x, v.y);
				}
				continue;
			}
			uint2 v = b.get(0, step, nt);
			if (FORMAT == TILE_F16) {
				multiply_f16(sum[nt], w.step[step], v.x, v.y);
				continue;
			}
			multiply_f16(part, w.step[step], v.x, v.y);
			if (FORMAT == TILE_Q6_K) {
				add_scaled(sum[nt], part, w.upper[step], w.lower[step]);
				clear(part);
			}
			if (FORMAT == TILE_Q4_K || FORMAT == TILE_Q5_K) {
				if (!step)
					clear(total);
				multiply_f16(total, ones, v.x, v.y);
			}
		}
		if (FORMAT == TILE_Q8_0 || FORMAT == TILE_Q4_0 || FORMAT == TILE_MXFP4 || FORMAT == TILE_Q4_K ||
		    FORMAT == TILE_Q5_K)
			add_scaled(sum[nt], part, w.upper[0], w.lower[0]);
		if (FORMAT == TILE_Q4_K || FORMAT == TILE_Q5_K)
			add_scaled(sum[nt], total, w.upper_min, w.lower_min);
	}
}
