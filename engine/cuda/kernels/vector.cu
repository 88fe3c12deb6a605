// fill_f32, saxpy_f32 and sum_f32 of engine/builtin.h. Buffers begin at multiples of 256 bytes, so all but the last
// elements are read and written four at a time.
#include "common.cuh"

enum { SUM_BLOCK = 256 }; // as engine/cuda/kernels.c launches it

extern "C" __global__ void fill_f32(float *dst, float value, u64 n)
{
	float4 four;
	four.x = four.y = four.z = four.w = value;
	for (u64 i = THREAD; i < n / 4; i += THREADS)
		((float4 *)dst)[i] = four;
	if (THREAD < n % 4)
		dst[n - 1 - THREAD] = value;
}

// y and x may be one buffer: each element is read before it is written, by the same thread.
extern "C" __global__ void saxpy_f32(float *y, const float *x, float a, u64 n)
{
	for (u64 i = THREAD; i < n / 4; i += THREADS) {
		float4 u = ((const float4 *)x)[i], v = ((const float4 *)y)[i];
		v.x = FUSED(a, u.x, v.x);
		v.y = FUSED(a, u.y, v.y);
		v.z = FUSED(a, u.z, v.z);
		v.w = FUSED(a, u.w, v.w);
		((float4 *)y)[i] = v;
	}
	if (THREAD < n % 4) {
		u64 i = n - 1 - THREAD;
		y[i] = FUSED(a, x[i], y[i]);
	}
}

// The block's values, added in pairs: always in the same order. The result is thread 0's.
static inline __device__ float sum_block(float value)
{
	__shared__ float values[SUM_BLOCK];
	values[THREAD_X] = value;
	for (unsigned half = SUM_BLOCK / 2; half; half /= 2) {
		__syncthreads();
		if (THREAD_X < half)
			values[THREAD_X] += values[THREAD_X + half];
	}
	return values[0];
}

// A sum in two steps: each block leaves a partial sum, then one block adds those. Which element goes where depends on n
// and on the number of blocks alone.
extern "C" __global__ void sum_partial(float *partials, const float *x, u64 n)
{
	float4 sum;
	sum.x = sum.y = sum.z = sum.w = 0;
#pragma unroll 4
	for (u64 i = THREAD; i < n / 4; i += THREADS) {
		float4 v = ((const float4 *)x)[i];
		sum.x += v.x;
		sum.y += v.y;
		sum.z += v.z;
		sum.w += v.w;
	}
	if (THREAD < n % 4)
		sum.x += x[n - 1 - THREAD];
	float total = sum_block((sum.x + sum.y) + (sum.z + sum.w));
	if (!THREAD_X)
		partials[BLOCK_X] = total;
}

extern "C" __global__ void sum_finish(float *out, const float *partials, unsigned count)
{
	float sum = 0;
	for (unsigned i = THREAD_X; i < count; i += SUM_BLOCK)
		sum += partials[i];
	sum = sum_block(sum);
	if (!THREAD_X)
		out[0] = sum;
}
