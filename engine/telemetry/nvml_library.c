/* Loading NVML: see nvml_library.h. The library is one for the process, so its state here is static, behind a lock. */
#include "engine/telemetry/nvml_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

static const char library_name[] = "libnvidia-ml.so.1";

enum needed { OPTIONAL, REQUIRED };

static const struct symbol {
	enum needed needed;
	size_t offset; // of its pointer in struct nvml_calls
	const char *names[2];
} symbols[] = {
#define X(needed, name, arguments, symbol, older) {needed, offsetof(struct nvml_calls, name), {symbol, older}},
	NVML_CALLS(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;            // guarded by lock, as are the next two; stays open once it is
static struct nvml_calls loaded; // only written before the first success is given out
static int users;

// The pointer of one call; false if it is required and not there.
static bool find(const struct symbol *symbol, struct error *error)
{
	void *address = dlsym(library, symbol->names[0]);
	if (!address && symbol->names[1])
		address = dlsym(library, symbol->names[1]);
	memcpy((char *)&loaded + symbol->offset, &address, sizeof address);
	if (address || symbol->needed == OPTIONAL)
		return true;
	error_set(error, STATUS_UNAVAILABLE, "%s has no %s", library_name, symbol->names[0]);
	error_hint(error, "update the NVIDIA driver");
	return false;
}

static enum status load(struct error *error)
{
	if (library)
		return STATUS_OK;
	library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *reason = dlerror();
		error_set(error, STATUS_UNAVAILABLE, "NVML cannot be loaded: %s", reason ? reason : library_name);
		error_hint(error, "install the NVIDIA driver's libraries; until then its GPUs have no readings");
		return STATUS_UNAVAILABLE;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		if (find(&symbols[i], error))
			continue;
		dlclose(library);
		library = NULL;
		return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

enum status nvml_library_acquire(const struct nvml_calls **calls, struct error *error)
{
	pthread_mutex_lock(&lock);
	enum status status = load(error);
	if (status == STATUS_OK && users == 0) {
		int code = loaded.init();
		if (code != NVML_SUCCESS) {
			status = error_set(error, STATUS_UNAVAILABLE, "NVML does not start: code %d", code);
			error_hint(error,
				   "see that nvidia-smi runs; after a driver update the machine may need a restart");
		}
	}
	if (status == STATUS_OK) {
		users++;
		*calls = &loaded;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

void nvml_library_release(void)
{
	pthread_mutex_lock(&lock);
	if (users > 0 && --users == 0)
		loaded.shutdown();
	pthread_mutex_unlock(&lock);
}
