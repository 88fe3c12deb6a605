/* The CUDA driver library, found at run time, through our own declarations: no toolkit to build or to run.
 *
 * One table names every function; a required one that is missing is reported by name. The types are those of the driver
 * API's binary interface on 64-bit systems (docs.nvidia.com/cuda/cuda-driver-api). Thread: its owner's. */
#pragma once
#include "engine/device/info.h"

#include <stddef.h>
#include <stdint.h>

typedef int CUresult; // names as NVIDIA's documentation has them
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUuuid_st {
	uint8_t bytes[16];
} CUuuid;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_STUB_LIBRARY = 34,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
};

enum cuda_attribute { // CUdevice_attribute
	CUDA_MULTIPROCESSOR_COUNT = 16,
	CUDA_INTEGRATED = 18,
	CUDA_COMPUTE_MODE = 20, // 2: prohibited
	CUDA_PCI_BUS_ID = 33,
	CUDA_PCI_DEVICE_ID = 34,
	CUDA_PCI_DOMAIN_ID = 50,
	CUDA_CAPABILITY_MAJOR = 75,
	CUDA_CAPABILITY_MINOR = 76,
	CUDA_COOPERATIVE_LAUNCH = 95,
	CUDA_VIRTUAL_MEMORY = 102,
	CUDA_MEMORY_POOLS = 115,
	CUDA_GPUDIRECT_RDMA = 116,
};

enum { CUDA_JIT_ERROR_LOG = 5, CUDA_JIT_ERROR_LOG_BYTES = 6 }; // CUjit_option

//       symbol                          parameters
#define CUDA_REQUIRED(X) \
	X(cuInit, (unsigned flags)) \
	X(cuDriverGetVersion, (int *version)) \
	X(cuGetErrorName, (CUresult result, const char **text)) \
	X(cuGetErrorString, (CUresult result, const char **text)) \
	X(cuDeviceGetCount, (int *count)) \
	X(cuDeviceGet, (CUdevice * device, int ordinal)) \
	X(cuDeviceGetName, (char *name, int size, CUdevice device)) \
	X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device)) \
	X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device)) \
	X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
	X(cuCtxSetCurrent, (CUcontext context)) \
	X(cuCtxSynchronize, (void)) \
	X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes)) \
	X(cuMemFree_v2, (CUdeviceptr pointer)) \
	X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
	X(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
	X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) \
	X(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned count, int *options, void **values)) \
	X(cuModuleUnload, (CUmodule module)) \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) \
	X(cuLaunchKernel, \
	  (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
	   unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments, void **extra)) \
	X(cuEventCreate, (CUevent * event, unsigned flags)) \
	X(cuEventRecord, (CUevent event, CUstream stream)) \
	X(cuEventSynchronize, (CUevent event)) \
	X(cuEventElapsedTime, (float *ms, CUevent start, CUevent end)) \
	X(cuEventDestroy_v2, (CUevent event))

#define CUDA_OPTIONAL(X) \
	X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device)) /* of a MIG part, where there are such; CUDA 11.4 */ \
	X(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device))

struct cuda {
	void *library;
	int version; // of the driver's API: 13000 is 13.0
#define X(symbol, parameters) CUresult(*symbol) parameters;
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
#undef X
};

// Load the library and initialise it. *library (may be NULL) says what was found, also on failure.
// Errors: STATUS_UNAVAILABLE, with a hint where something can be done.
enum status cuda_create(struct cuda **out, struct library_info *library, struct error *error);
void cuda_destroy(struct cuda **cuda);
// Turn a failed call into a status: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY, out of memory".
enum status cuda_failed(const struct cuda *cuda, struct error *error, const char *call, CUresult result);

// The NVIDIA driver's version, from NVML, whose state goes to *library, else from /proc; "" if neither tells.
void cuda_driver_version(char *version, size_t size, struct library_info *library);
// Whether the machine shows an NVIDIA GPU at all, so that a missing library is worth a hint.
bool cuda_hardware_present(void);
