// The built-in kernels of engine/backend.h on CUDA. Compiled to PTX by nvcc, or by clang without a toolkit: then none of
// CUDA's headers is there, and what is used of them is declared here.
#if defined(__clang__)
#define __global__ __attribute__((global))
typedef unsigned uint4 __attribute__((ext_vector_type(4)));
#define THREAD (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x())
#define THREADS (__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x())
#define FUSED(a, b, c) __builtin_fmaf(a, b, c)
#else
#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS (gridDim.x * blockDim.x)
#define FUSED(a, b, c) fmaf(a, b, c)
#endif

static inline __attribute__((device)) unsigned mix_bits(unsigned x, unsigned seed)
{
	x ^= seed;
	x = (x ^ (x >> 16)) * 0x9e3779b1u;
	x = (x ^ (x >> 15)) * 0xb5297a4du;
	return x ^ (x >> 16);
}

extern "C" __global__ void verify(const unsigned *in, unsigned *out, unsigned elements, unsigned seed, float scale,
				  float bias)
{
	unsigned i = THREAD;
	if (i >= elements)
		return;
	unsigned hash = mix_bits(in[i] + i, seed);
	float value = FUSED((float)(hash >> 8) * (1.0f / 16777216.0f), scale, bias);
	out[i] = hash;
	((float *)out)[elements + i] = value;
}

// Bytes that memory compression cannot shrink.
extern "C" __global__ void stream_fill(uint4 *data, unsigned *unused, unsigned elements, unsigned seed, unsigned unused_1,
				       unsigned unused_2)
{
	for (unsigned i = THREAD; i < elements; i += THREADS) {
		uint4 value;
		value.x = mix_bits(4 * i, seed);
		value.y = mix_bits(4 * i + 1, seed);
		value.z = mix_bits(4 * i + 2, seed);
		value.w = mix_bits(4 * i + 3, seed);
		data[i] = value;
	}
}

// The sum decides whether one word is stored, so that no compiler can leave the loads out; it practically never is.
extern "C" __global__ void stream_read(const uint4 *data, unsigned *sink, unsigned elements, unsigned unused_0,
				       unsigned unused_1, unsigned unused_2)
{
	unsigned x = 0, y = 0, z = 0, w = 0;
#pragma unroll 4
	for (unsigned i = THREAD; i < elements; i += THREADS) {
		uint4 value = data[i];
		x ^= value.x;
		y ^= value.y;
		z ^= value.z;
		w ^= value.w;
	}
	if (x == 0xa5a5a5a5u && y == 0x5a5a5a5au && z == 0x12345678u && w == 0x87654321u)
		sink[0] = x;
}
