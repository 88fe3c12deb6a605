/* The CUDA back end: NVIDIA GPUs of compute capability 8.0 and later, through the driver API.
 *
 * Layout of the folder: loader.c the library, this file devices, memory, copies and kernels, kernels/verify.cu the
 * kernels, which are embedded as PTX and compiled by the driver. Older cards are listed as unsupported here; Vulkan
 * drives them. Everything runs on the default stream of the primary context and is waited for. */
#include "engine/backend.h"

#include "common/base/embedded.h"
#include "engine/cuda/loader.h"
#include "engine/device/family.h"
#include "engine/device/host.h"
#include "engine/device/identity.h"
#include "engine/device/requirements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_BLOCK = 256, CUDA_STREAM_BLOCKS_PER_UNIT = 64, CUDA_JIT_LOG_BYTES = 1024 };

static const char kernel_file[] = "kernels/cuda/verify.ptx";
static const char *const kernel_names[KERNEL_COUNT] = {
	[KERNEL_VERIFY] = "verify",
	[KERNEL_STREAM_FILL] = "stream_fill",
	[KERNEL_STREAM_READ] = "stream_read",
};

struct old_buffer {
	struct old_buffer *next;
	CUdeviceptr pointer;
	uint64_t bytes;
};

struct old_device {
	struct cuda *cuda;
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction functions[KERNEL_COUNT];
	CUevent start, end;
	uint32_t units;
	uint64_t memory_bytes;
	struct old_buffer *buffers;
};

static int attribute(const struct cuda *cuda, CUdevice device, enum cuda_attribute which)
{
	int value = 0;
	return cuda->cuDeviceGetAttribute(&value, (int)which, device) ? 0 : value;
}

static void describe_formats(const struct cuda *cuda, CUdevice device, int major, int minor, struct device_info *info)
{
	int capability = 10 * major + minor;
	const struct {
		const char *word;
		bool has;
	} formats[] = {
		{"f64", true},
		{"f32", true},
		{"tf32", capability >= 80},
		{"f16", capability >= 53},
		{"bf16", capability >= 80},
		{"fp8", capability >= 89},
		{"fp4", capability >= 100},
		{"i64", true},
		{"i32", true},
		{"i16", true},
		{"i8", true},
	};
	const struct {
		const char *word;
		bool has;
	} features[] = {
		{"tensor_cores", capability >= 70},
		{"cooperative_launch", attribute(cuda, device, CUDA_COOPERATIVE_LAUNCH)},
		{"virtual_memory", attribute(cuda, device, CUDA_VIRTUAL_MEMORY)},
		{"memory_pools", attribute(cuda, device, CUDA_MEMORY_POOLS)},
		{"gpudirect_rdma", attribute(cuda, device, CUDA_GPUDIRECT_RDMA)},
	};
	char word[32];
	snprintf(word, sizeof(word), "compute_%d.%d", major, minor);
	words_add(info->features, sizeof(info->features), word);
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (features[i].has)
			words_add(info->features, sizeof(info->features), features[i].word);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].has)
			words_add(info->formats, sizeof(info->formats), formats[i].word);
}

static void describe_identity(const struct cuda *cuda, CUdevice device, struct device_info *info)
{
	CUuuid uuid = {{0}};
	char path[96], text[32];
	bool told = cuda->cuDeviceGetUuid_v2 && !cuda->cuDeviceGetUuid_v2(&uuid, device);
	if (!told && cuda->cuDeviceGetUuid)
		cuda->cuDeviceGetUuid(&uuid, device);
	identity_uuid_text(info->uuid, uuid.bytes);
	snprintf(info->pci_address, sizeof(info->pci_address), "%04x:%02x:%02x.0",
		 (unsigned)attribute(cuda, device, CUDA_PCI_DOMAIN_ID) & 0xffff,
		 (unsigned)attribute(cuda, device, CUDA_PCI_BUS_ID) & 0xff,
		 (unsigned)attribute(cuda, device, CUDA_PCI_DEVICE_ID) & 0x1f);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/removable", info->pci_address);
	info->removable = host_read_file(path, text, sizeof(text)) && !strcmp(text, "removable");
	identity_gpu(info, false, "cuda");
}

static void classify(const struct cuda *cuda, CUdevice device, int major, int minor, struct device_info *info)
{
	struct error error = {0};
	char capability[32];
	snprintf(capability, sizeof(capability), "%d.%d", major, minor);
	info->support = SUPPORT_FULL;
	if (requirement_check(REQUIRE_COMPUTE_CAPABILITY, capability, &error)) {
		info->support = SUPPORT_UNSUPPORTED;
		snprintf(info->support_reason, sizeof(info->support_reason), "%.200s; %.150s", error.message,
			 error.hint);
	} else if (attribute(cuda, device, CUDA_COMPUTE_MODE) == 2) {
		info->support = SUPPORT_UNSUPPORTED;
		text_copy(info->support_reason, sizeof(info->support_reason),
			  "its compute mode is prohibited; allow it: nvidia-smi -c DEFAULT");
	}
}

static void describe(const struct cuda *cuda, CUdevice device, int index, const char *driver_version,
		     struct device_info *info)
{
	size_t bytes = 0;
	int major = attribute(cuda, device, CUDA_CAPABILITY_MAJOR),
	    minor = attribute(cuda, device, CUDA_CAPABILITY_MINOR);
	info->backend = BACKEND_CUDA;
	info->index = index;
	if (cuda->cuDeviceGetName(info->model, (int)sizeof(info->model), device))
		text_copy(info->model, sizeof(info->model), "NVIDIA GPU");
	text_copy(info->name, sizeof(info->name), info->model);
	text_copy(info->vendor, sizeof(info->vendor), "NVIDIA");
	text_copy(info->family, sizeof(info->family), family_by_capability(major, minor));
	info->kind = attribute(cuda, device, CUDA_INTEGRATED) ? DEVICE_INTEGRATED : DEVICE_DISCRETE;
	info->unified_memory = info->low_power = info->kind == DEVICE_INTEGRATED;
	describe_identity(cuda, device, info);
	text_copy(info->memory_pool, sizeof(info->memory_pool),
		  info->unified_memory ? IDENTITY_HOST_POOL : info->hardware_key);
	if (!cuda->cuDeviceTotalMem_v2(&bytes, device))
		info->memory_bytes = (int64_t)bytes;
	int units = attribute(cuda, device, CUDA_MULTIPROCESSOR_COUNT);
	info->compute_units = units > 0 ? units : -1;
	snprintf(info->api_version, sizeof(info->api_version), "%d.%d", cuda->version / 1000,
		 cuda->version % 1000 / 10);
	text_copy(info->driver_version, sizeof(info->driver_version), driver_version);
	describe_formats(cuda, device, major, minor, info);
	classify(cuda, device, major, minor, info);
}

static enum status cuda_enumerate(struct found *found, struct error *error)
{
	struct cuda *cuda;
	char driver_version[INFO_VERSION_BYTES];
	struct error fault = {0};
	int count = 0;
	struct library_info *driver = found_add_library(found), *nvml = found_add_library(found);
	enum status status = cuda_create(&cuda, driver, &fault);
	cuda_driver_version(driver_version, sizeof(driver_version), nvml);
	if (status)
		return status == STATUS_OUT_OF_MEMORY ? error_set(error, status, "%s", fault.message) : STATUS_OK;
	CUresult result = cuda->cuDeviceGetCount(&count);
	if (result)
		status = cuda_failed(cuda, error, "cuDeviceGetCount", result);
	for (int i = 0; !status && i < count; i++) {
		CUdevice device;
		struct device_info *info = found_add_device(found);
		if (!info)
			break;
		result = cuda->cuDeviceGet(&device, i);
		if (result)
			status = cuda_failed(cuda, error, "cuDeviceGet", result);
		else
			describe(cuda, device, i, driver_version, info);
	}
	cuda_destroy(&cuda);
	return status;
}

static void cuda_buffer_destroy(struct old_device *device, struct old_buffer **buffer)
{
	if (!*buffer)
		return;
	for (struct old_buffer **link = &device->buffers; *link; link = &(*link)->next)
		if (*link == *buffer) {
			*link = (*buffer)->next;
			break;
		}
	if ((*buffer)->pointer)
		device->cuda->cuMemFree_v2((*buffer)->pointer);
	free(*buffer);
	*buffer = NULL;
}

static void cuda_close(struct old_device **out)
{
	struct old_device *device = *out;
	if (!device)
		return;
	while (device->buffers) {
		struct old_buffer *buffer = device->buffers;
		cuda_buffer_destroy(device, &buffer);
	}
	if (device->start)
		device->cuda->cuEventDestroy_v2(device->start);
	if (device->end)
		device->cuda->cuEventDestroy_v2(device->end);
	if (device->module)
		device->cuda->cuModuleUnload(device->module);
	if (device->context)
		device->cuda->cuDevicePrimaryCtxRelease_v2(device->device);
	cuda_destroy(&device->cuda);
	free(device);
	*out = NULL;
}

static enum status find_device(struct old_device *device, const char *hardware_key, struct error *error)
{
	int count = 0;
	CUresult result = device->cuda->cuDeviceGetCount(&count);
	if (result)
		return cuda_failed(device->cuda, error, "cuDeviceGetCount", result);
	for (int i = 0; i < count; i++) {
		struct device_info info = {0};
		if (device->cuda->cuDeviceGet(&device->device, i))
			continue;
		describe(device->cuda, device->device, i, "", &info);
		if (strcmp(info.hardware_key, hardware_key))
			continue;
		if (info.support == SUPPORT_UNSUPPORTED)
			return error_set(error, STATUS_UNAVAILABLE, "%s", info.support_reason);
		device->units = info.compute_units > 0 ? (uint32_t)info.compute_units : 1;
		device->memory_bytes = info.memory_bytes > 0 ? (uint64_t)info.memory_bytes : 0;
		return STATUS_OK;
	}
	return error_set(error, STATUS_NOT_FOUND, "CUDA has no device %.200s now", hardware_key);
}

static enum status load_kernels(struct old_device *device, struct error *error)
{
	struct cuda *cuda = device->cuda;
	const struct embedded_file *file = embedded_find(kernel_file);
	if (!file) {
		error_hint(error, "install clang (or nvcc) and build again");
		return error_set(error, STATUS_UNAVAILABLE, "the CUDA kernels were not built: this binary has no %s",
				 kernel_file);
	}
	char log[CUDA_JIT_LOG_BYTES] = "";
	int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
	// The PTX is text and ends with the 0 that every embedded file has behind it.
	CUresult result = cuda->cuModuleLoadDataEx(&device->module, file->data, 2, options, values);
	if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
		error_hint(error, "install a newer NVIDIA driver, or build with clang, whose PTX older drivers read");
	else if (result && log[0])
		error_hint(error, "the driver's compiler says: %.200s", log);
	if (result)
		return cuda_failed(cuda, error, "cuModuleLoadDataEx", result);
	for (int i = KERNEL_UNKNOWN + 1; i < KERNEL_COUNT; i++) {
		result = cuda->cuModuleGetFunction(&device->functions[i], device->module, kernel_names[i]);
		if (result)
			return cuda_failed(cuda, error, "cuModuleGetFunction", result);
	}
	return STATUS_OK;
}

static enum status create_context(struct old_device *device, struct error *error)
{
	struct cuda *cuda = device->cuda;
	CUresult result = cuda->cuDevicePrimaryCtxRetain(&device->context, device->device);
	if (result) {
		device->context = NULL;
		return cuda_failed(cuda, error, "cuDevicePrimaryCtxRetain", result);
	}
	result = cuda->cuCtxSetCurrent(device->context);
	if (result)
		return cuda_failed(cuda, error, "cuCtxSetCurrent", result);
	result = cuda->cuEventCreate(&device->start, 0);
	if (!result)
		result = cuda->cuEventCreate(&device->end, 0);
	return result ? cuda_failed(cuda, error, "cuEventCreate", result) : STATUS_OK;
}

// cuInit starts every GPU that the process may see, one after the other under the driver's lock.
static void cuda_narrow(const char *hardware_key)
{
	char name[INFO_KEY_BYTES + 8];
	if (strncmp(hardware_key, "uuid:", 5) != 0)
		return;
	snprintf(name, sizeof(name), "GPU-%s", hardware_key + 5);
	setenv("CUDA_VISIBLE_DEVICES", name, 1);
}

static enum status cuda_open(struct old_device **out, const char *hardware_key, struct error *error)
{
	struct old_device *device = calloc(1, sizeof(*device));
	enum status status = device ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	if (!status)
		status = cuda_create(&device->cuda, NULL, error);
	if (!status)
		status = find_device(device, hardware_key, error);
	if (!status)
		status = create_context(device, error);
	if (!status)
		status = load_kernels(device, error);
	if (status)
		cuda_close(&device);
	*out = device;
	return status;
}

// A gigabyte is many times the largest second-level cache.
static void cuda_limits(const struct old_device *device, struct old_limits *limits)
{
	uint64_t stream = 1024ull << 20;
	limits->buffer_bytes = device->memory_bytes;
	limits->stream_bytes = stream < device->memory_bytes / 8 ? stream : device->memory_bytes / 8;
}

static enum status cuda_buffer_create(struct old_device *device, struct old_buffer **out, uint64_t bytes,
				      struct error *error)
{
	struct old_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	CUresult result = device->cuda->cuMemAlloc_v2(&buffer->pointer, bytes);
	if (result) {
		free(buffer);
		return cuda_failed(device->cuda, error, "cuMemAlloc", result);
	}
	buffer->bytes = bytes;
	buffer->next = device->buffers;
	device->buffers = buffer;
	*out = buffer;
	return STATUS_OK;
}

// Copies between device buffers and from pageable memory may return early; what went wrong shows when we wait.
static enum status finish(struct old_device *device, const char *call, CUresult result, struct error *error)
{
	if (!result)
		result = device->cuda->cuCtxSynchronize();
	return result ? cuda_failed(device->cuda, error, call, result) : STATUS_OK;
}

static enum status cuda_write(struct old_device *device, struct old_buffer *to, const void *from, uint64_t bytes,
			      struct error *error)
{
	return finish(device, "cuMemcpyHtoD", device->cuda->cuMemcpyHtoD_v2(to->pointer, from, bytes), error);
}

static enum status cuda_copy(struct old_device *device, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			     struct error *error)
{
	return finish(device, "cuMemcpyDtoD", device->cuda->cuMemcpyDtoD_v2(to->pointer, from->pointer, bytes), error);
}

static enum status cuda_read(struct old_device *device, void *to, struct old_buffer *from, uint64_t bytes,
			     struct error *error)
{
	return finish(device, "cuMemcpyDtoH", device->cuda->cuMemcpyDtoH_v2(to, from->pointer, bytes), error);
}

static enum status cuda_launch(struct old_device *device, const struct old_launch *launch, int64_t *device_ns,
			       struct error *error)
{
	struct cuda *cuda = device->cuda;
	CUdeviceptr pointers[OLD_LAUNCH_BUFFERS] = {0};
	uint32_t elements = launch->elements, constants[OLD_LAUNCH_CONSTANTS];
	for (int i = 0; i < OLD_LAUNCH_BUFFERS; i++)
		pointers[i] = launch->buffers[i] ? launch->buffers[i]->pointer : 0;
	memcpy(constants, launch->constants, sizeof(constants)); // of the f32 kernels' arguments the bits are passed
	void *arguments[] = {&pointers[0], &pointers[1], &elements, &constants[0], &constants[1], &constants[2]};
	uint32_t blocks = elements / CUDA_BLOCK + (elements % CUDA_BLOCK > 0);
	uint32_t most = device->units * CUDA_STREAM_BLOCKS_PER_UNIT;
	if (launch->kernel != KERNEL_VERIFY && blocks > most) // these step over the rest
		blocks = most;
	float ms = 0;
	CUresult result = cuda->cuEventRecord(device->start, NULL);
	for (unsigned i = 0; !result && i < launch->repeat; i++)
		result = cuda->cuLaunchKernel(device->functions[launch->kernel], blocks, 1, 1, CUDA_BLOCK, 1, 1, 0,
					      NULL, arguments, NULL);
	if (result)
		return cuda_failed(cuda, error, "cuLaunchKernel", result);
	result = cuda->cuEventRecord(device->end, NULL);
	enum status status = finish(device, kernel_names[launch->kernel], result, error);
	if (status || !device_ns)
		return status;
	result = cuda->cuEventElapsedTime(&ms, device->start, device->end);
	if (result)
		return cuda_failed(cuda, error, "cuEventElapsedTime", result);
	*device_ns = (int64_t)((double)ms * 1e6);
	return STATUS_OK;
}

const struct backend backend_cuda = {
	.kind = BACKEND_CUDA,
	.enumerate = cuda_enumerate,
	.narrow = cuda_narrow,
	.old_open = cuda_open,
	.old_close = cuda_close,
	.old_limits = cuda_limits,
	.old_buffer_create = cuda_buffer_create,
	.old_buffer_destroy = cuda_buffer_destroy,
	.old_write = cuda_write,
	.old_copy = cuda_copy,
	.old_read = cuda_read,
	.old_launch = cuda_launch,
};
