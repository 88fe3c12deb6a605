/* See loader.h. */
#include "engine/cuda/loader.h"

#include "engine/device/host.h"
#include "engine/device/requirements.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char library_file[] = "libcuda.so.1", nvml_file[] = "libnvidia-ml.so.1";
static const char driver_hint[] = "install the NVIDIA driver; in a container, start it with the GPUs passed in";

bool cuda_hardware_present(void)
{
	static const char root[] = "/sys/bus/pci/devices";
	bool present = !access("/proc/driver/nvidia", F_OK) || !access("/dev/nvidiactl", F_OK);
	DIR *devices = opendir(root);
	struct dirent *entry;
	while (!present && devices && (entry = readdir(devices))) {
		char path[320], vendor[16], class[16];
		snprintf(path, sizeof(path), "%s/%s/vendor", root, entry->d_name);
		if (!host_read_file(path, vendor, sizeof(vendor)) || strcmp(vendor, "0x10de"))
			continue;
		snprintf(path, sizeof(path), "%s/%s/class", root, entry->d_name);
		present = host_read_file(path, class, sizeof(class)) && !strncmp(class, "0x03", 4);
	}
	if (devices)
		closedir(devices);
	return present;
}

bool cuda_lost(CUresult result)
{
	static const CUresult lost[] = {
#define X(number) number,
		CUDA_LOST(X)
#undef X
	};
	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
		if (result == lost[i])
			return true;
	return false;
}

enum status cuda_failed(const struct cuda *cuda, struct error *error, const char *call, CUresult result)
{
	const char *name = NULL, *text = NULL;
	enum status status = STATUS_UNAVAILABLE;
	cuda->cuGetErrorName(result, &name);
	cuda->cuGetErrorString(result, &text);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		status = STATUS_OUT_OF_MEMORY;
	else if (result == CUDA_ERROR_NO_DEVICE)
		status = STATUS_NOT_FOUND;
	else if (cuda_lost(result))
		status = STATUS_DEVICE_LOST;
	return error_set(error, status, "%s: %s (%d), %s", call, name ? name : "an unknown error", result,
			 text ? text : "without a text");
}

static enum status load_symbols(struct cuda *cuda, struct error *error)
{
#define REQUIRED(symbol, parameters) \
	*(void **)&cuda->symbol = dlsym(cuda->library, #symbol); \
	if (!cuda->symbol) { \
		error_hint(error, "install a newer NVIDIA driver"); \
		return error_set(error, STATUS_UNAVAILABLE, "%s has no " #symbol, library_file); \
	}
#define OPTIONAL(symbol, parameters) *(void **)&cuda->symbol = dlsym(cuda->library, #symbol);
	CUDA_REQUIRED(REQUIRED)
	CUDA_OPTIONAL(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
	return STATUS_OK;
}

// The remedy for a failed cuInit; "" if there is none (the library on a machine without a GPU).
static const char *initialise_hint(CUresult result)
{
	if (result == CUDA_ERROR_SYSTEM_NOT_READY)
		return "start the fabric manager: systemctl start nvidia-fabricmanager";
	if (result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
		return "restart the machine: the driver's library and its kernel module are of two versions";
	if (result == CUDA_ERROR_STUB_LIBRARY || result == CUDA_ERROR_NO_DEVICE)
		return result == CUDA_ERROR_STUB_LIBRARY || cuda_hardware_present() ? driver_hint : "";
	// The driver makes this file with a program that needs root, which a worker may not become.
	if (access("/dev/nvidia-uvm", F_OK))
		return "make the driver's device files, as root: nvidia-modprobe -u -c 0";
	return "see whether nvidia-smi works; if not, restart the machine or install the driver again";
}

static enum status initialise(struct cuda *cuda, struct error *error)
{
	CUresult result = cuda->cuInit(0);
	if (!result)
		return STATUS_OK;
	error_hint(error, "%s", initialise_hint(result));
	return cuda_failed(cuda, error, "cuInit", result);
}

static enum status load(struct cuda *cuda, struct library_info *library, enum library_state *state, struct error *error)
{
	*state = LIBRARY_MISSING;
	cuda->library = dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
	if (!cuda->library) {
		const char *reason = dlerror(); // no news where there is no card that it could drive
		if (!cuda_hardware_present())
			return error_set(error, STATUS_UNAVAILABLE, "this machine has no NVIDIA GPU that needs it");
		error_hint(error, "%s", driver_hint);
		return error_set(error, STATUS_UNAVAILABLE, "%s", reason ? reason : library_file);
	}
	*state = LIBRARY_TOO_OLD;
	enum status status = load_symbols(cuda, error);
	if (status)
		return status;
	*state = LIBRARY_BROKEN;
	char version[32];
	CUresult result = cuda->cuDriverGetVersion(&cuda->version);
	if (result)
		return cuda_failed(cuda, error, "cuDriverGetVersion", result);
	snprintf(version, sizeof(version), "%d.%d", cuda->version / 1000, cuda->version % 1000 / 10);
	if (library)
		text_copy(library->version, sizeof(library->version), version);
	*state = LIBRARY_TOO_OLD;
	status = requirement_check(REQUIRE_CUDA_DRIVER_API, version, error);
	if (status)
		return status;
	*state = LIBRARY_BROKEN;
	status = initialise(cuda, error);
	if (!status || error->status == STATUS_NOT_FOUND)
		*state = LIBRARY_FOUND;
	return status;
}

#ifndef NDEBUG
static CUresult refuse_peer(CUcontext peer, unsigned flags)
{
	(void)peer, (void)flags;
	return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
#endif

// A fault that tests inject (engine/worker/fault.h): a driver that says that two GPUs reach each other, and refuses it.
static void inject_faults(struct cuda *cuda)
{
#ifdef NDEBUG
	(void)cuda;
#else
	const char *faults = getenv("EXOGPU_FAULT");
	if (faults && strstr(faults, "peer-refused:cuda"))
		cuda->cuCtxEnablePeerAccess = refuse_peer;
#endif
}

enum status cuda_create(struct cuda **out, struct library_info *library, struct error *error)
{
	struct error fault = {0};
	enum library_state state;
	struct cuda *cuda = calloc(1, sizeof(*cuda));
	*out = NULL;
	if (!cuda)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the CUDA library");
	enum status status = load(cuda, library, &state, &fault);
	inject_faults(cuda);
	if (library) {
		text_copy(library->name, sizeof(library->name), "CUDA driver");
		text_copy(library->file, sizeof(library->file), library_file);
		text_copy(library->minimum_version, sizeof(library->minimum_version),
			  requirement_minimum(REQUIRE_CUDA_DRIVER_API));
		library->state = state;
		text_copy(library->reason, sizeof(library->reason), fault.message);
		text_copy(library->hint, sizeof(library->hint), fault.hint);
	}
	if (status) {
		cuda_destroy(&cuda);
		error_set(error, status, "%s", fault.message);
		if (fault.hint[0])
			error_hint(error, "%s", fault.hint);
	}
	*out = cuda;
	return status;
}

// The library stays loaded: unloading it while its own threads end is not something that it is tested for.
void cuda_destroy(struct cuda **cuda)
{
	free(*cuda);
	*cuda = NULL;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  …": the first word that is a number with a dot.
static void version_from_proc(char *version, size_t size)
{
	char text[1024], *rest = text;
	if (!host_read_file("/proc/driver/nvidia/version", text, sizeof(text)))
		return;
	while (*rest) {
		size_t length = strcspn(rest, " \t\n");
		if (isdigit((unsigned char)*rest) && memchr(rest, '.', length)) {
			snprintf(version, size, "%.*s", (int)length, rest);
			return;
		}
		rest += length;
		rest += strspn(rest, " \t\n");
	}
}

static void version_from_nvml(void *handle, char *version, size_t size, struct library_info *library)
{
	int (*initialise_nvml)(void), (*shutdown)(void);
	int (*driver_version)(char *, unsigned), (*nvml_version)(char *, unsigned);
	char text[96] = "";
	*(void **)&initialise_nvml = dlsym(handle, "nvmlInit_v2");
	*(void **)&shutdown = dlsym(handle, "nvmlShutdown");
	*(void **)&driver_version = dlsym(handle, "nvmlSystemGetDriverVersion");
	*(void **)&nvml_version = dlsym(handle, "nvmlSystemGetNVMLVersion");
	if (!initialise_nvml || !shutdown || !driver_version || !nvml_version) {
		library->state = LIBRARY_TOO_OLD;
		text_copy(library->reason, sizeof(library->reason), "it lacks nvmlInit_v2 or the version queries");
		text_copy(library->hint, sizeof(library->hint), driver_hint);
		return;
	}
	int result = initialise_nvml();
	if (result) {
		library->state = LIBRARY_BROKEN;
		snprintf(library->reason, sizeof(library->reason), "nvmlInit_v2: error %d", result);
		text_copy(library->hint, sizeof(library->hint), driver_hint);
		return;
	}
	library->state = LIBRARY_FOUND;
	if (!nvml_version(text, sizeof(text)))
		text_copy(library->version, sizeof(library->version), text);
	if (!driver_version(text, sizeof(text)))
		text_copy(version, size, text);
	shutdown();
}

void cuda_driver_version(char *version, size_t size, struct library_info *library)
{
	struct library_info unused = {0};
	library = library ? library : &unused;
	version[0] = 0;
	text_copy(library->name, sizeof(library->name), "NVML");
	text_copy(library->file, sizeof(library->file), nvml_file);
	void *handle = dlopen(nvml_file, RTLD_NOW | RTLD_LOCAL);
	if (handle) {
		version_from_nvml(handle, version, size, library);
		dlclose(handle);
	} else {
		library->state = LIBRARY_MISSING;
		const char *reason = dlerror();
		bool needed = cuda_hardware_present();
		text_copy(library->reason, sizeof(library->reason),
			  !needed  ? "this machine has no NVIDIA GPU that needs it"
			  : reason ? reason
				   : nvml_file);
		if (needed)
			text_copy(library->hint, sizeof(library->hint), driver_hint);
	}
	if (!version[0])
		version_from_proc(version, size);
}
