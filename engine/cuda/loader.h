/* The CUDA driver library, loaded at run time, with our own declarations: neither building nor running needs the
 * toolkit.
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
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuuid_st {
	uint8_t bytes[16];
} CUuuid;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_STUB_LIBRARY = 34,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
	CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
};

// Faults after which nothing works in this process any more, by the driver's documentation of CUresult: the context, or
// the process's hold on the device, is lost. Others of the seven hundreds (704 peer access already enabled, 701 too
// many resources for a launch) leave everything as it was.
#define CUDA_LOST(X) \
	X(214) /* ECC error that could not be corrected */ \
	X(220) /* the same, of NVLink */ \
	X(226) /* contained by the GPU: a bad access of a peer's memory, mostly */ \
	X(700) /* illegal address */ \
	X(702) /* the launch took too long, where a display has the GPU */ \
	X(709) /* the context is destroyed */ \
	X(710) /* assert */ \
	X(714) /* hardware stack error */ \
	X(715) /* illegal instruction */ \
	X(716) /* misaligned address */ \
	X(717) /* address of the wrong space */ \
	X(718) /* invalid program counter */ \
	X(719) /* the launch failed otherwise */ \
	X(721) /* tensor memory leaked */ \
	X(810) /* ended by MPS */ \
	X(911) /* another device that took part failed */ \
	X(999) /* unknown */

enum cuda_attribute { // CUdevice_attribute
	CUDA_MAX_THREADS_PER_BLOCK = 1,
	CUDA_MAX_BLOCK_X = 2, // and Y, Z behind it
	CUDA_MAX_GRID_X = 5,  // and Y, Z behind it
	CUDA_MULTIPROCESSOR_COUNT = 16,
	CUDA_INTEGRATED = 18,
	CUDA_COMPUTE_MODE = 20, // 2: prohibited
	CUDA_CONCURRENT_KERNELS = 31,
	CUDA_PCI_BUS_ID = 33,
	CUDA_PCI_DEVICE_ID = 34,
	CUDA_PCI_DOMAIN_ID = 50,
	CUDA_CAPABILITY_MAJOR = 75,
	CUDA_CAPABILITY_MINOR = 76,
	CUDA_REGISTERED_POINTER = 91, // a kernel finds registered memory where the host does
	CUDA_COOPERATIVE_LAUNCH = 95,
	CUDA_MAX_SHARED_BYTES = 97, // of a block that asks for more than 48 KiB
	CUDA_VIRTUAL_MEMORY = 102,
	CUDA_MEMORY_POOLS = 115,
	CUDA_GPUDIRECT_RDMA = 116,
};

enum { CUDA_JIT_ERROR_LOG = 5, CUDA_JIT_ERROR_LOG_BYTES = 6 }; // CUjit_option
enum { CUDA_JIT_INPUT_PTX = 1 };                               // CUjitInputType
// CUfunction_attribute
enum {
	CUDA_FUNCTION_MAX_THREADS_PER_BLOCK = 0,
	CUDA_FUNCTION_SHARED_BYTES = 8,
	CUDA_FUNCTION_SHARED_PERCENT = 9, // percentage of a multiprocessor's memory that may be shared memory
};
enum { CUDA_CAPTURE_THREAD = 1 };                                          // CUstreamCaptureMode
enum { CUDA_LAUNCH_COOPERATIVE = 2, CUDA_LAUNCH_PROGRAMMATIC_SERIAL = 6 }; // CUlaunchAttributeID
enum { CUDA_EVENT_NO_TIMING = 2 };                                         // CUevent_flags

typedef struct CUlaunchAttribute_st {
	int id;
	char pad[4];
	union {
		char bytes[64];
		int cooperative;  // all of its blocks run at the same time
		int programmatic; // the next kernel may begin before this one's end
	} value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
	unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
	CUstream stream;
	CUlaunchAttribute *attributes;
	unsigned attribute_count;
} CUlaunchConfig;
enum { CUDA_STREAM_NON_BLOCKING = 1, CUDA_HOST_PORTABLE = 1 }; // flags of cuStreamCreate; of cuMemHost*

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
	X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes)) \
	X(cuMemFree_v2, (CUdeviceptr pointer)) \
	X(cuMemGetInfo_v2, (size_t * free, size_t * total)) \
	X(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags)) \
	X(cuMemFreeHost, (void *pointer)) \
	X(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes)) \
	X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes)) \
	X(cuMemsetD8Async, (CUdeviceptr to, uint8_t value, size_t count, CUstream stream)) \
	X(cuMemsetD32Async, (CUdeviceptr to, uint32_t value, size_t count, CUstream stream)) \
	X(cuStreamCreate, (CUstream * stream, unsigned flags)) \
	X(cuStreamDestroy_v2, (CUstream stream)) \
	X(cuStreamQuery, (CUstream stream)) \
	X(cuStreamSynchronize, (CUstream stream)) \
	X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
	X(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned count, int *options, void **values)) \
	X(cuModuleUnload, (CUmodule module)) \
	X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name)) \
	X(cuFuncGetAttribute, (int *value, int attribute, CUfunction function)) \
	X(cuLaunchKernel, \
	  (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
	   unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments, void **extra)) \
	X(cuLaunchHostFunc, (CUstream stream, void (*function)(void *context), void *context)) \
	X(cuEventCreate, (CUevent * event, unsigned flags)) \
	X(cuEventRecord, (CUevent event, CUstream stream)) \
	X(cuEventQuery, (CUevent event)) \
	X(cuEventElapsedTime, (float *ms, CUevent start, CUevent end)) \
	X(cuEventDestroy_v2, (CUevent event))

#define CUDA_OPTIONAL(X) \
	X(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device)) /* of a MIG part, where there are such; CUDA 11.4 */ \
	X(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device)) \
	X(cuLinkCreate_v2, (unsigned count, int *options, void **values, CUlinkState *state)) \
	X(cuLinkAddData_v2, (CUlinkState state, int type, void *data, size_t bytes, const char *name, unsigned count, \
			     int *options, void **values)) \
	X(cuLinkComplete, (CUlinkState state, void **image, size_t *bytes)) \
	X(cuLinkDestroy, (CUlinkState state)) \
	/* inference */ \
	X(cuFuncSetAttribute, (CUfunction function, int attribute, int value)) \
	X(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra)) \
	X(cuStreamBeginCapture_v2, (CUstream stream, int mode)) \
	X(cuStreamEndCapture, (CUstream stream, CUgraph * graph)) \
	X(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags)) \
	X(cuGraphLaunch, (CUgraphExec graph, CUstream stream)) \
	X(cuGraphDestroy, (CUgraph graph)) \
	X(cuGraphExecDestroy, (CUgraphExec graph)) \
	/* memory that is imported */ \
	X(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags)) \
	X(cuMemHostUnregister, (void *memory)) \
	/* several devices */ \
	X(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer)) \
	X(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags)) \
	X(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, \
			      size_t bytes, CUstream stream))

struct cuda {
	void *library;
	int version; // of the driver's API: 13000 is 13.0
#define X(symbol, parameters) CUresult(*symbol) parameters;
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
#undef X
};

// Load the library and initialise it. *library (may be NULL) describes it, also after a failure. Errors:
// STATUS_UNAVAILABLE, with a hint if there is a remedy.
enum status cuda_create(struct cuda **out, struct library_info *library, struct error *error);
void cuda_destroy(struct cuda **cuda);
// Turn a failed call into a status: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY, out of memory". STATUS_DEVICE_LOST for the
// faults of CUDA_LOST.
enum status cuda_failed(const struct cuda *cuda, struct error *error, const char *call, CUresult result);
bool cuda_lost(CUresult result);

// The NVIDIA driver's version, from NVML, whose state goes to *library, else from /proc; "" if neither tells.
void cuda_driver_version(char *version, size_t size, struct library_info *library);
// Whether the machine shows an NVIDIA GPU at all, so that a missing library is worth a hint.
bool cuda_hardware_present(void);
