/* Stands between the CUDA back end and the driver, lets the n-th of its calls fail, and keeps the books.
 *
 * Built as a library that bears the driver's name (strike.h); behind it is the stand-in (standin.c), or NVIDIA's own
 * library. Every function of engine/cuda/loader.h but the two that give texts counts as a call. A call that is struck
 * does not reach the driver: it returns the chosen result and leaves in its outputs what a driver may, which is
 * anything. What destroys does so all the same and then says that something failed, since what such calls tell of is
 * mostly earlier work, and nobody could try again; the same goes for the end of a capture. Of a sticky result every
 * later call tells that needs a context, and work that comes then is noted.
 *
 * The books: each handle is known, is used in its own context, and is destroyed once; when the primary context goes
 * nothing is left in it. Thread: one that makes calls. */
#include "tests/engine/cuda/driver/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(symbol, parameters) STRIKE_EXPORT CUresult symbol parameters;
CUDA_REQUIRED(X)
CUDA_OPTIONAL(X)
#undef X

enum { INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

struct strikes strikes;
static struct cuda driver;
static bool told; // of the loss

// ---- the books ----

enum kind { MEMORY, HOST, REGISTERED, STREAM, EVENT, MODULE, FUNCTION, LINK, GRAPH, EXEC };
static const char *const kinds[] = {
	"device memory", "host memory", "registered memory", "stream", "event",
	"module",        "function",    "linking",           "graph",  "executable graph",
};
enum { ENTRIES = 2048, DEVICES = 16 };

static struct entry {
	enum kind kind;
	uint64_t handle;
	uint64_t of; // the module, of a function
	int device;
} entries[ENTRIES];
static size_t entry_count;

static struct {
	CUcontext context;
	long retained;
	bool kept;           // NVIDIA's takes long to make one
} contexts[DEVICES];         // by device
static _Thread_local int at; // the device whose context is current, + 1

void strike_wrong(const char *text, ...)
{
	va_list values;
	if (strikes.wrong[0])
		return;
	va_start(values, text);
	vsnprintf(strikes.wrong, sizeof(strikes.wrong), text, values);
	va_end(values);
}

static struct entry *find(enum kind kind, uint64_t handle)
{
	for (size_t i = entry_count; i-- > 0;)
		if (entries[i].kind == kind && entries[i].handle == handle)
			return &entries[i];
	return NULL;
}

static void note(enum kind kind, uint64_t handle, uint64_t of)
{
	if (entry_count == ENTRIES)
		strike_wrong("the books are full");
	else
		entries[entry_count++] = (struct entry){kind, handle, of, at - 1};
}

static struct entry *known(enum kind kind, uint64_t handle, const char *call)
{
	struct entry *entry = find(kind, handle);
	if (!entry)
		strike_wrong("%s is given %s 0x%llx, which is not there", call, kinds[kind],
			     (unsigned long long)handle);
	return entry;
}

// What is asked for in another context the driver refuses.
static bool own(enum kind kind, uint64_t handle, const char *call)
{
	const struct entry *entry = known(kind, handle, call);
	if (entry && entry->device != at - 1)
		strike_wrong("%s is given %s of device %d in the context of device %d", call, kinds[kind],
			     entry->device, at - 1);
	return entry && entry->device == at - 1;
}

static bool cross_out(enum kind kind, uint64_t handle, const char *call)
{
	struct entry *entry = known(kind, handle, call);
	if (!entry)
		return false;
	*entry = entries[--entry_count];
	for (size_t i = entry_count; kind == MODULE && i-- > 0;)
		if (entries[i].kind == FUNCTION && entries[i].of == handle)
			entries[i] = entries[--entry_count];
	return true;
}

static bool in_context(const char *call)
{
	if (!at)
		strike_wrong("%s without a context", call);
	return at;
}

static void destroy(const struct entry *entry)
{
	void *handle = (void *)(uintptr_t)entry->handle;
	switch (entry->kind) {
	case MEMORY:
		driver.cuMemFree_v2(entry->handle);
		break;
	case HOST:
		driver.cuMemFreeHost(handle);
		break;
	case REGISTERED:
		driver.cuMemHostUnregister(handle);
		break;
	case STREAM:
		driver.cuStreamDestroy_v2(handle);
		break;
	case EVENT:
		driver.cuEventDestroy_v2(handle);
		break;
	case MODULE:
		driver.cuModuleUnload(handle);
		break;
	case FUNCTION:
		break;
	case LINK:
		driver.cuLinkDestroy(handle);
		break;
	case GRAPH:
		driver.cuGraphDestroy(handle);
		break;
	case EXEC:
		driver.cuGraphExecDestroy(handle);
		break;
	}
}

// What is left of a device, or (< 0) of all; of one that is lost that is nobody's fault.
static void sweep(int device)
{
	driver.cuCtxSetCurrent(contexts[device < 0 ? 0 : device].context);
	for (size_t i = entry_count; i-- > 0;) {
		struct entry entry = entries[i];
		if (device >= 0 && entry.device != device)
			continue;
		if (!strikes.lost && entry.kind != FUNCTION)
			strike_wrong("%s 0x%llx is left", kinds[entry.kind], (unsigned long long)entry.handle);
		destroy(&entry);
		entries[i] = entries[--entry_count];
	}
}

// ---- strikes ----

// Whether the call fails. A device can be lost once there is a context.
static bool strike(const char *name)
{
	if (strikes.lost)
		return true;
	if (strikes.name && !strcmp(name, strikes.name)) {
		strikes.named++;
		return true;
	}
	if (strikes.countdown < 0 || strikes.countdown-- > 0)
		return false;
	strikes.struck = name;
	for (int i = 0; i < DEVICES; i++)
		strikes.lost = strikes.lost || (strikes.sticky && contexts[i].retained);
	if (strikes.lost && strikes.real) // nothing really happened: its work ends before anything is freed
		for (size_t i = 0; i < entry_count; i++)
			if (entries[i].kind == STREAM)
				driver.cuStreamSynchronize((CUstream)(uintptr_t)entries[i].handle);
	if (strikes.lost && !strikes.real)
		standin_drop();
	return true;
}

// One whose result the caller heeds, as nobody does when something is destroyed, or is good to know and no more.
static bool strike_asking(const char *name)
{
	bool fails = strike(name);
	told = told || strikes.lost;
	return fails;
}

static bool strike_work(const char *name)
{
	if (told)
		strikes.after_loss = name;
	return strike_asking(name);
}

static void undefined(void *out, size_t bytes)
{
	memset(out, 0xa5, bytes);
}
#define ANYTHING(out) undefined(out, sizeof(*(out)))

struct strikes *strike_open(const char *path)
{
	strikes.real = path;
	if (!path) {
		standin_fill(&driver);
		return &strikes;
	}
	driver.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!driver.library)
		return NULL;
#define X(symbol, parameters) \
	*(void **)&driver.symbol = dlsym(driver.library, #symbol); \
	if (!driver.symbol) \
		return NULL;
	CUDA_REQUIRED(X)
	CUDA_OPTIONAL(X)
#undef X
	return &strikes;
}

__attribute__((constructor)) static void stand_alone(void)
{
	const char *capability = getenv(STANDIN_ALONE);
	if (!capability)
		return;
	strike_open(NULL);
	strikes.capability = (int)strtol(capability, NULL, 10);
	strikes.countdown = -1;
	strikes.computes = true;
}

void strike_begin(long countdown, CUresult result, bool sticky)
{
	strikes.countdown = countdown;
	strikes.result = result;
	strikes.sticky = sticky;
	strikes.struck = strikes.after_loss = NULL;
	strikes.lost = told = false;
	strikes.wrong[0] = 0;
	strikes.named = strikes.asked = strikes.turns = 0;
	memset(strikes.copied_bytes, 0, sizeof(strikes.copied_bytes));
	memset(strikes.copied_sum, 0, sizeof(strikes.copied_sum));
}

void strike_end(void)
{
	strikes.countdown = -1;
	strikes.name = NULL;
	if (strikes.hangs)
		standin_drop();
	strikes.hangs = false;
	sweep(-1);
	for (int i = 0; i < DEVICES; i++)
		if (contexts[i].retained)
			strike_wrong("the context of device %d is retained %ld times", i, contexts[i].retained);
	for (int i = 0; i < DEVICES; i++)
		for (; contexts[i].retained; contexts[i].retained--)
			driver.cuDevicePrimaryCtxRelease_v2(i);
	strikes.lost = told = false;
}

// ---- the functions ----

CUresult cuGetErrorName(CUresult result, const char **text)
{
	return driver.cuGetErrorName(result, text);
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
	return driver.cuGetErrorString(result, text);
}

// name, parameters, arguments, whether the caller may, what a failure leaves in the outputs
#define QUESTIONS(F) \
	F(cuInit, (unsigned flags), (flags), true, ) \
	F(cuDriverGetVersion, (int *version), (version), true, ANYTHING(version)) \
	F(cuDeviceGetCount, (int *count), (count), true, ANYTHING(count)) \
	F(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal), true, ANYTHING(device)) \
	F(cuDeviceGetName, (char *name, int size, CUdevice device), (name, size, device), true, \
	  undefined(name, (size_t)size)) \
	F(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device), (value, attribute, device), true, \
	  ANYTHING(value)) \
	F(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device), (bytes, device), true, ANYTHING(bytes)) \
	F(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device), (uuid, device), true, ANYTHING(uuid)) \
	F(cuDeviceGetUuid, (CUuuid * uuid, CUdevice device), (uuid, device), true, ANYTHING(uuid)) \
	F(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer), true, ANYTHING(can))

#define ASKING(F) \
	F(cuStreamQuery, (CUstream stream), (stream), known(STREAM, (uint64_t)stream, __func__), ) \
	F(cuStreamSynchronize, (CUstream stream), (stream), known(STREAM, (uint64_t)stream, __func__), ) \
	F(cuEventQuery, (CUevent event), (event), known(EVENT, (uint64_t)event, __func__), )

#define WORK(F) \
	F(cuMemGetInfo_v2, (size_t * unused, size_t * total), (unused, total), in_context(__func__), \
	  (ANYTHING(unused), ANYTHING(total))) \
	F(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream), \
	  own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes), \
	  in_context(__func__), ) \
	F(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes), in_context(__func__), \
	  undefined(to, bytes)) \
	F(cuMemsetD8Async, (CUdeviceptr to, uint8_t value, size_t count, CUstream stream), (to, value, count, stream), \
	  own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuMemsetD32Async, (CUdeviceptr to, uint32_t value, size_t count, CUstream stream), \
	  (to, value, count, stream), own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags), \
	  own(STREAM, (uint64_t)stream, __func__) && own(EVENT, (uint64_t)event, __func__), ) \
	F(cuFuncGetAttribute, (int *value, int attribute, CUfunction function), (value, attribute, function), \
	  own(FUNCTION, (uint64_t)function, __func__), ANYTHING(value)) \
	F(cuFuncSetAttribute, (CUfunction function, int attribute, int value), (function, attribute, value), \
	  own(FUNCTION, (uint64_t)function, __func__), ) \
	F(cuLaunchKernel, \
	  (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
	   unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments, void **extra), \
	  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, arguments, extra), \
	  own(FUNCTION, (uint64_t)function, __func__) && own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra), \
	  (config, function, arguments, extra), \
	  own(FUNCTION, (uint64_t)function, __func__) && own(STREAM, (uint64_t)config->stream, __func__), ) \
	F(cuLaunchHostFunc, (CUstream stream, void (*function)(void *context), void *context), \
	  (stream, function, context), own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuEventRecord, (CUevent event, CUstream stream), (event, stream), \
	  own(EVENT, (uint64_t)event, __func__) && own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), (ms, start, end), \
	  own(EVENT, (uint64_t)start, __func__) && own(EVENT, (uint64_t)end, __func__), ANYTHING(ms)) \
	F(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode), \
	  own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuGraphLaunch, (CUgraphExec graph, CUstream stream), (graph, stream), \
	  own(EXEC, (uint64_t)graph, __func__) && own(STREAM, (uint64_t)stream, __func__), ) \
	F(cuLinkAddData_v2, \
	  (CUlinkState state, int type, void *data, size_t bytes, const char *name, unsigned count, int *options, \
	   void **values), \
	  (state, type, data, bytes, name, count, options, values), own(LINK, (uint64_t)state, __func__), ) \
	F(cuLinkComplete, (CUlinkState state, void **image, size_t *bytes), (state, image, bytes), \
	  own(LINK, (uint64_t)state, __func__), (ANYTHING(image), ANYTHING(bytes))) \
	F(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags), in_context(__func__), ) \
	F(cuMemcpyPeerAsync, \
	  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, \
	   CUstream stream), \
	  (to, to_context, from, from_context, bytes, stream), own(STREAM, (uint64_t)stream, __func__), )

#define REPLACED(ask, name, parameters, arguments, allowed, failed) \
	CUresult name parameters \
	{ \
		if (ask(#name)) { \
			failed; \
			return strikes.result; \
		} \
		return (allowed) ? driver.name arguments : INVALID_HANDLE; \
	}
#define F(name, parameters, arguments, allowed, failed) REPLACED(strike, name, parameters, arguments, allowed, failed)
QUESTIONS(F)
#undef F
// How often the caller asks NVIDIA's driver depends on its time: only the answer counts.
#define F(name, parameters, arguments, allowed, failed) \
	CUresult name parameters \
	{ \
		if (strikes.real && !strikes.lost && (allowed)) { \
			CUresult result = driver.name arguments; \
			return result == CUDA_ERROR_NOT_READY || !strike_asking(#name) ? result : strikes.result; \
		} \
		if (strike_asking(#name)) \
			return strikes.result; \
		return (allowed) ? driver.name arguments : INVALID_HANDLE; \
	}
ASKING(F)
#undef F
#define F(name, parameters, arguments, allowed, failed) \
	REPLACED(strike_work, name, parameters, arguments, allowed, failed)
WORK(F)
#undef F

// name, kind, parameters, arguments, whether the caller may, of which other
#define MADE(F) \
	F(cuMemAlloc_v2, MEMORY, (CUdeviceptr * out, size_t bytes), (out, bytes), in_context(__func__), 0) \
	F(cuMemHostAlloc, HOST, (void **out, size_t bytes, unsigned flags), (out, bytes, flags), in_context(__func__), \
	  0) \
	F(cuStreamCreate, STREAM, (CUstream * out, unsigned flags), (out, flags), in_context(__func__), 0) \
	F(cuEventCreate, EVENT, (CUevent * out, unsigned flags), (out, flags), in_context(__func__), 0) \
	F(cuModuleLoadDataEx, MODULE, \
	  (CUmodule * out, const void *image, unsigned count, int *options, void **values), \
	  (out, image, count, options, values), in_context(__func__), 0) \
	F(cuModuleGetFunction, FUNCTION, (CUfunction * out, CUmodule module, const char *name), (out, module, name), \
	  own(MODULE, (uint64_t)module, __func__), (uint64_t)module) \
	F(cuLinkCreate_v2, LINK, (unsigned count, int *options, void **values, CUlinkState *out), \
	  (count, options, values, out), in_context(__func__), 0) \
	F(cuGraphInstantiateWithFlags, EXEC, (CUgraphExec * out, CUgraph graph, unsigned long long flags), \
	  (out, graph, flags), own(GRAPH, (uint64_t)graph, __func__), 0)

#define F(name, kind, parameters, arguments, allowed, of) \
	CUresult name parameters \
	{ \
		if (strike_work(#name)) { \
			ANYTHING(out); \
			return strikes.result; \
		} \
		CUresult result = (allowed) ? driver.name arguments : INVALID_HANDLE; \
		if (result) \
			ANYTHING(out); \
		else if (kind != FUNCTION || !find(kind, (uint64_t)*out)) \
			note(kind, (uint64_t)*out, of); \
		return result; \
	}
MADE(F)
#undef F

#define DESTROYED(F) \
	F(cuMemFree_v2, MEMORY, CUdeviceptr) \
	F(cuMemFreeHost, HOST, void *) \
	F(cuMemHostUnregister, REGISTERED, void *) \
	F(cuStreamDestroy_v2, STREAM, CUstream) \
	F(cuEventDestroy_v2, EVENT, CUevent) \
	F(cuModuleUnload, MODULE, CUmodule) \
	F(cuLinkDestroy, LINK, CUlinkState) \
	F(cuGraphDestroy, GRAPH, CUgraph) \
	F(cuGraphExecDestroy, EXEC, CUgraphExec)

#define F(name, kind, type) \
	CUresult name(type handle) \
	{ \
		bool struck = strike(#name); \
		CUresult result = cross_out(kind, (uint64_t)handle, #name) ? driver.name(handle) : INVALID_HANDLE; \
		return struck ? strikes.result : result; \
	}
DESTROYED(F)
#undef F

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
	if (strike_work("cuMemHostRegister"))
		return strikes.result;
	CUresult result = in_context(__func__) ? driver.cuMemHostRegister_v2(memory, bytes, flags) : INVALID_HANDLE;
	if (!result)
		note(REGISTERED, (uint64_t)memory, 0);
	return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	bool struck = strike("cuStreamEndCapture");
	CUresult result = own(STREAM, (uint64_t)stream, __func__) ? driver.cuStreamEndCapture(stream, out)
								  : INVALID_HANDLE;
	if (struck && !result && *out)
		driver.cuGraphDestroy(*out);
	result = struck ? strikes.result : result;
	if (result)
		ANYTHING(out);
	else
		note(GRAPH, (uint64_t)*out, 0);
	return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
	if (strike_asking("cuDevicePrimaryCtxRetain")) {
		ANYTHING(out);
		return strikes.result;
	}
	if (device < 0 || device >= DEVICES)
		return INVALID_HANDLE;
	CUresult result = driver.cuDevicePrimaryCtxRetain(out, device);
	if (!result && strikes.real && !contexts[device].kept)
		contexts[device].kept = !driver.cuDevicePrimaryCtxRetain(out, device);
	if (result)
		return result;
	contexts[device].context = *out;
	contexts[device].retained++;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	bool struck = strike(__func__);
	if (device < 0 || device >= DEVICES || !contexts[device].retained) {
		strike_wrong("the context of device %d is released, and nobody has it", device);
		return INVALID_HANDLE;
	}
	if (!--contexts[device].retained)
		sweep(device);
	if (at == device + 1 && !contexts[device].retained)
		at = 0;
	CUresult result = driver.cuDevicePrimaryCtxRelease_v2(device);
	return struck ? strikes.result : result;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	if (strike_asking(__func__))
		return strikes.result;
	for (int i = 0; i < DEVICES; i++)
		if (contexts[i].retained && contexts[i].context == context) {
			at = i + 1;
			return driver.cuCtxSetCurrent(context);
		}
	strike_wrong("a context that is not there becomes the current one");
	return INVALID_CONTEXT;
}
