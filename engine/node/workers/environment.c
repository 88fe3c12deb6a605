/* See environment.h. */
#include "engine/node/workers/environment.h"

#include <stdlib.h>
#include <string.h>

// The C library and the loader; folders in which drivers look for their settings; what a Vulkan driver is chosen by.
static const char *const names[] = {
	"HOME",
	"LANG",
	"LANGUAGE",
	"LD_LIBRARY_PATH",
	"LD_PRELOAD",
	"PATH",
	"TMPDIR",
	"TZ",
	"XDG_CONFIG_DIRS",
	"XDG_CONFIG_HOME",
	"XDG_DATA_DIRS",
	"XDG_DATA_HOME",
	"AMD_DEBUG",
	"AMD_VULKAN_ICD",
	"DISABLE_LAYER_AMD_SWITCHABLE_GRAPHICS_1",
	"DRI_PRIME",
	"EXOGPU_CPU_LEVEL",
	"INTEL_DEBUG",
#ifndef NDEBUG // of tests
	"EXOGPU_ESCAPE",
	"EXOGPU_FAULT",
	"EXOGPU_TEST_PACE",
	"EXOGPU_TEST_PREFIX_ALONE",
	"EXOGPU_TEST_SAYS",
	"EXOGPU_TEST_STREAM_BYTES",
#endif
};
// Settings of drivers, of the C library's allocator and of sanitizers.
static const char *const beginnings[] = {
	"LC_",   "VK_",   "MESA_",   "LP_",   "GALLIUM_", "LIBGL_",       "NIR_",  "ACO_",
	"RADV_", "ANV_",  "NVK_",    "CUDA_", "__GL_",    "__NV_",        "__VK_", "HSA_",
	"ASAN_", "LSAN_", "MALLOC_", "TSAN",  "UBSAN",    "LLVM_PROFILE", "GCOV_", "GLIBC_TUNABLES",
};
static const char *const secrets[] = {"KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL"};

static bool is_named(const char *variable, size_t length)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == length && !strncmp(variable, names[i], length))
			return true;
	for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
		if (!strncmp(variable, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

bool environment_passes(const char *name)
{
	const size_t length = strcspn(name, "=");
	if (!is_named(name, length))
		return false;
	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
		const char *at = strstr(name, secrets[i]);
		if (at && at < name + length)
			return false;
	}
	return true;
}

char **environment_make(char *const *from)
{
	size_t count = 0, taken = 0;
	while (from[count])
		count++;
	char **list = calloc(count + 1, sizeof(*list));
	for (size_t i = 0; list && i < count; i++)
		if (environment_passes(from[i]))
			list[taken++] = from[i];
	return list;
}
