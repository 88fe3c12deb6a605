/* Which NVIDIA GPUs there are and what each is, and how one is found by its key. Cards before compute capability 8.0
 * are listed as unsupported here; Vulkan drives them. Opens nothing. Thread: any. */
#include "common/base/log.h"
#include "engine/cuda/device.h"
#include "engine/cuda/images.h"
#include "engine/device/family.h"
#include "engine/device/host.h"
#include "engine/device/identity.h"
#include "engine/device/requirements.h"
#include "engine/nvrtc/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuda_attribute(const struct cuda *cuda, CUdevice device, enum cuda_attribute which)
{
	int value = 0;
	return cuda->cuDeviceGetAttribute(&value, (int)which, device) ? 0 : value;
}

int cuda_read(const struct cuda *cuda, CUdevice device, enum cuda_attribute which, CUresult *failed)
{
	int value = 0;
	CUresult result = cuda->cuDeviceGetAttribute(&value, (int)which, device);
	*failed = *failed ? *failed : result;
	return result ? 0 : value;
}

// Whether this node compiles CUDA C for the driver that it has.
static bool has_nvrtc(const struct cuda *cuda)
{
	struct nvrtc *nvrtc = NULL;
	const bool has = !nvrtc_load(&nvrtc, cuda->version, NULL);
	nvrtc_unload(&nvrtc);
	return has;
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
		{"cooperative_launch", cuda_attribute(cuda, device, CUDA_COOPERATIVE_LAUNCH)},
		{"virtual_memory", cuda_attribute(cuda, device, CUDA_VIRTUAL_MEMORY)},
		{"memory_pools", cuda_attribute(cuda, device, CUDA_MEMORY_POOLS)},
		{"gpudirect_rdma", cuda_attribute(cuda, device, CUDA_GPUDIRECT_RDMA)},
	};
	char word[32];
	if (has_nvrtc(cuda))
		words_add(info->features, sizeof(info->features), NVRTC_FEATURE);
	snprintf(word, sizeof(word), "compute_%d.%d", major, minor);
	words_add(info->features, sizeof(info->features), word);
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		if (features[i].has)
			words_add(info->features, sizeof(info->features), features[i].word);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].has)
			words_add(info->formats, sizeof(info->formats), formats[i].word);
}

static void describe_identity(const struct cuda *cuda, CUdevice device, struct device_info *info, CUresult *failed)
{
	CUuuid uuid = {{0}};
	char path[96], text[32];
	CUresult result = cuda->cuDeviceGetUuid_v2 ? cuda->cuDeviceGetUuid_v2(&uuid, device) : CUDA_ERROR_NOT_FOUND;
	if (result && cuda->cuDeviceGetUuid)
		result = cuda->cuDeviceGetUuid(&uuid, device);
	if (!result)
		identity_uuid_text(info->uuid, uuid.bytes);
	snprintf(info->pci_address, sizeof(info->pci_address), "%04x:%02x:%02x.0",
		 (unsigned)cuda_read(cuda, device, CUDA_PCI_DOMAIN_ID, failed) & 0xffff,
		 (unsigned)cuda_read(cuda, device, CUDA_PCI_BUS_ID, failed) & 0xff,
		 (unsigned)cuda_read(cuda, device, CUDA_PCI_DEVICE_ID, failed) & 0x1f);
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
	} else if (cuda_attribute(cuda, device, CUDA_COMPUTE_MODE) == 2) {
		info->support = SUPPORT_UNSUPPORTED;
		text_copy(info->support_reason, sizeof(info->support_reason),
			  "its compute mode is prohibited; allow it: nvidia-smi -c DEFAULT");
	}
}

// Log a GPU for which this binary has no kernels, or has only PTX; nothing if it has machine code.
static void tell_image(const struct cuda *cuda, int capability, const struct device_info *info)
{
	struct kernels_built built;
	const struct cuda_image *image;
	struct error error = {0};
	char text[256];
	kernels_built_read(&built);
	if (info->support == SUPPORT_UNSUPPORTED)
		return;
	if (cuda_image_choose(&image, &built, capability, cuda->version, &error))
		log_warning("cuda", "%s: %s; %s", info->model, error.message, error.hint);
	else if (cuda_image_slower(image, &built, capability, text, sizeof(text)))
		log_info("cuda", "%s: %s", info->model, text);
}

// Describe a device. Returns the result of the first failed call among those that are required. *capability: 90 for
// 9.0.
static CUresult describe(const struct cuda *cuda, CUdevice device, int index, const char *driver_version,
			 struct device_info *info, int *capability)
{
	size_t bytes = 0;
	CUresult failed = CUDA_SUCCESS;
	int major = cuda_read(cuda, device, CUDA_CAPABILITY_MAJOR, &failed),
	    minor = cuda_read(cuda, device, CUDA_CAPABILITY_MINOR, &failed);
	*capability = 10 * major + minor;
	info->backend = BACKEND_CUDA;
	info->index = index;
	if (cuda->cuDeviceGetName(info->model, (int)sizeof(info->model), device))
		text_copy(info->model, sizeof(info->model), "NVIDIA GPU");
	text_copy(info->name, sizeof(info->name), info->model);
	text_copy(info->vendor, sizeof(info->vendor), "NVIDIA");
	text_copy(info->family, sizeof(info->family), family_by_capability(major, minor));
	info->kind = cuda_read(cuda, device, CUDA_INTEGRATED, &failed) ? DEVICE_INTEGRATED : DEVICE_DISCRETE;
	info->unified_memory = info->low_power = info->kind == DEVICE_INTEGRATED;
	describe_identity(cuda, device, info, &failed);
	text_copy(info->memory_pool, sizeof(info->memory_pool),
		  info->unified_memory ? IDENTITY_HOST_POOL : info->hardware_key);
	CUresult result = cuda->cuDeviceTotalMem_v2(&bytes, device);
	if (!result)
		info->memory_bytes = (int64_t)bytes;
	failed = failed ? failed : result;
	int units = cuda_attribute(cuda, device, CUDA_MULTIPROCESSOR_COUNT);
	info->compute_units = units > 0 ? units : -1;
	snprintf(info->api_version, sizeof(info->api_version), "%d.%d", cuda->version / 1000,
		 cuda->version % 1000 / 10);
	text_copy(info->driver_version, sizeof(info->driver_version), driver_version);
	describe_formats(cuda, device, major, minor, info);
	classify(cuda, device, major, minor, info);
	return failed;
}

// Which of the devices found here copy to each other directly. What has no key that is one word is left out.
static void describe_peers(const struct cuda *cuda, struct found *found)
{
	CUdevice from, to;
	if (!cuda->cuDeviceCanAccessPeer || !cuda->cuCtxEnablePeerAccess || !cuda->cuMemcpyPeerAsync)
		return;
	for (size_t i = 0; i < found->device_count; i++)
		for (size_t j = 0; j < found->device_count; j++) {
			struct device_info *one = &found->devices[i];
			const struct device_info *other = &found->devices[j];
			int can = 0;
			if (i == j || strchr(other->hardware_key, ' ') || cuda->cuDeviceGet(&from, one->index) ||
			    cuda->cuDeviceGet(&to, other->index))
				continue;
			if (!cuda->cuDeviceCanAccessPeer(&can, from, to) && can)
				words_add(one->peers, sizeof(one->peers), other->hardware_key);
		}
}

// A device that cannot be described does not hide the others.
static void leave_out(const struct cuda *cuda, struct found *found, int index, CUresult result, struct error *fault)
{
	const struct device_info *info = &found->devices[--found->device_count];
	*fault = (struct error){0};
	cuda_failed(cuda, fault, "describing a device", result);
	log_warning("cuda", "GPU %d (%s%s%s) is left out, since the driver does not describe it: %s", index,
		    info->model[0] ? info->model : "of no name", info->pci_address[0] ? " at " : "", info->pci_address,
		    fault->message);
}

enum status cuda_enumerate(struct found *found, struct error *error)
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
	const size_t before = found->device_count;
	for (int i = 0; !status && i < count; i++) {
		CUdevice device;
		int capability;
		struct device_info *info = found_add_device(found);
		if (!info)
			break;
		result = cuda->cuDeviceGet(&device, i);
		if (!result)
			result = describe(cuda, device, i, driver_version, info, &capability);
		if (result)
			leave_out(cuda, found, i, result, &fault);
		else
			tell_image(cuda, capability, info);
	}
	if (!status && fault.status && found->device_count == before)
		status = error_set(error, fault.status, "%s", fault.message);
	if (!status)
		describe_peers(cuda, found);
	cuda_destroy(&cuda);
	return status;
}

enum status cuda_find(const struct cuda *cuda, const char *hardware_key, struct cuda_place *place, struct error *error)
{
	int capability;
	CUresult failed = CUDA_SUCCESS, result = cuda->cuDeviceGetCount(&place->count);
	if (result)
		return cuda_failed(cuda, error, "cuDeviceGetCount", result);
	for (int i = 0; i < place->count; i++) {
		place->info = (struct device_info){.memory_bytes = -1};
		place->ordinal = i;
		result = cuda->cuDeviceGet(&place->device, i);
		if (!result)
			result = describe(cuda, place->device, i, "", &place->info, &capability);
		failed = result ? result : failed;
		if (result || strcmp(place->info.hardware_key, hardware_key))
			continue;
		if (place->info.support == SUPPORT_UNSUPPORTED)
			return error_set(error, STATUS_UNAVAILABLE, "%s", place->info.support_reason);
		return STATUS_OK;
	}
	if (failed) // that may have been the one
		return cuda_failed(cuda, error, "describing a device", failed);
	return error_set(error, STATUS_NOT_FOUND, "CUDA has no device %.200s now", hardware_key);
}

// cuInit starts every GPU that the process may see, one after the other under the driver's lock.
void cuda_narrow(const char *hardware_key, const char *other)
{
	char names[2 * (INFO_KEY_BYTES + 8)];
	if (strncmp(hardware_key, "uuid:", 5) != 0 || (other && strncmp(other, "uuid:", 5) != 0))
		return;
	snprintf(names, sizeof(names), "GPU-%.256s%s%.256s", hardware_key + 5, other ? ",GPU-" : "",
		 other ? other + 5 : "");
	setenv("CUDA_VISIBLE_DEVICES", names, 1);
}
