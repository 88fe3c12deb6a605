// Declarations that the kernels share. The kernels are compiled to PTX by nvcc, or by clang without a toolkit: then
// there are no headers of CUDA, and what is used of them is declared here.
#pragma once
typedef unsigned long long u64;

#if defined(__clang__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
typedef unsigned uint4 __attribute__((ext_vector_type(4)));
typedef float float4 __attribute__((ext_vector_type(4)));
#define THREAD_X __nvvm_read_ptx_sreg_tid_x()
#define BLOCK_X __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_THREADS __nvvm_read_ptx_sreg_ntid_x()
#define BLOCKS __nvvm_read_ptx_sreg_nctaid_x()
#define FUSED(a, b, c) __builtin_fmaf(a, b, c)
#else
#define THREAD_X threadIdx.x
#define BLOCK_X blockIdx.x
#define BLOCK_THREADS blockDim.x
#define BLOCKS gridDim.x
#define FUSED(a, b, c) fmaf(a, b, c)
#endif

// Index and number of all threads of the launch; kernels step over their elements by THREADS.
#define THREAD ((u64)BLOCK_X * BLOCK_THREADS + THREAD_X)
#define THREADS ((u64)BLOCKS * BLOCK_THREADS)
