// The kernels of engine/builtin.h that devices are verified and measured with.
#include "common.cuh"

static inline __device__ unsigned mix_bits(unsigned x, unsigned seed)
{
	x ^= seed;
	x = (x ^ (x >> 16)) * 0x9e3779b1u;
	x = (x ^ (x >> 15)) * 0xb5297a4du;
	return x ^ (x >> 16);
}

extern "C" __global__ void verify(const unsigned *in, unsigned *out, u64 n, unsigned seed, float scale, float bias)
{
	for (u64 i = THREAD; i < n; i += THREADS) {
		unsigned hash = mix_bits(in[i] + (unsigned)i, seed);
		out[i] = hash;
		((float *)out)[n + i] = FUSED((float)(hash >> 8) * (1.0f / 16777216.0f), scale, bias);
	}
}

extern "C" __global__ void stream_fill(uint4 *data, u64 n, unsigned seed)
{
	for (u64 i = THREAD; i < n; i += THREADS) {
		unsigned first = 4 * (unsigned)i;
		uint4 value;
		value.x = mix_bits(first, seed);
		value.y = mix_bits(first + 1, seed);
		value.z = mix_bits(first + 2, seed);
		value.w = mix_bits(first + 3, seed);
		data[i] = value;
	}
}

// The sum decides whether one word is stored, so that no compiler can leave the loads out; it practically never is.
extern "C" __global__ void stream_read(const uint4 *data, unsigned *sink, u64 n)
{
	unsigned x = 0, y = 0, z = 0, w = 0;
#pragma unroll 4
	for (u64 i = THREAD; i < n; i += THREADS) {
		uint4 value = data[i];
		x ^= value.x;
		y ^= value.y;
		z ^= value.z;
		w ^= value.w;
	}
	if (x == 0xa5a5a5a5u && y == 0x5a5a5a5au && z == 0x12345678u && w == 0x87654321u)
		sink[0] = x;
}
