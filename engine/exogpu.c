/* libexogpu: devices. See exogpu.h for users, inside.h for how the files of the library share it.
 *
 * Order of reading: exogpu_find_devices, slots_check (what a back end must have for what it says it can do), the
 * opening and closing of a device, and its loss. A device owns every object that was created on it and is not yet
 * destroyed; closing the back end's device frees the back end's objects. After the loss of a device only close reaches
 * the back end. */
#include "common/base/log.h"
#include "engine/inside.h"

#include <stdlib.h>
#include <string.h>

// A device as it is told, and what struct exogpu_found_device has no field for: programs rely on its size.
struct told {
	struct exogpu_found_device device; // first
	int64_t compute_units;
};

int64_t exogpu_found_compute_units(const struct exogpu_found_device *device)
{
	return device ? ((const struct told *)device)->compute_units : -1;
}

static void tell(const struct device_info *info, void (*each)(void *, const struct exogpu_found_device *),
		 void *context)
{
	struct told told = {.compute_units = info->compute_units};
	told.device = (struct exogpu_found_device){
		.backend = backend_kind_name(info->backend),
		.hardware_key = info->hardware_key,
		.name = info->name,
		.driver_version = info->driver_version,
		.memory_bytes = info->memory_bytes > 0 ? (uint64_t)info->memory_bytes : 0,
		.software = info->kind == DEVICE_CPU && info->backend != BACKEND_CPU,
		.reason = info->support == SUPPORT_UNSUPPORTED ? info->support_reason : NULL,
	};
	each(context, &told.device);
}

enum status exogpu_find_devices(void (*each)(void *context, const struct exogpu_found_device *device), void *context,
				struct error *error)
{
	size_t count;
	const struct backend *const *backends = backend_list(&count);
	if (!each)
		return error_set(error, STATUS_INVALID_PARAMS, "nothing to call for each device");
	for (size_t i = 0; i < count; i++) {
		struct error fault = {0};
		struct found *found = found_create();
		if (!found)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the list of devices");
		// A driver that fails does not hide the devices of the other drivers.
		if (backends[i]->enumerate(found, &fault))
			log_warning("engine", "listing the devices of %s failed: %s",
				    backend_kind_title(backends[i]->kind), fault.message);
		else
			for (size_t j = 0; j < found->device_count; j++)
				tell(&found->devices[j], each, context);
		found_destroy(&found);
	}
	return STATUS_OK;
}

static bool required_slots(const struct backend *b)
{
	return b->close && b->describe && b->memory && b->buffer_create && b->buffer_destroy && b->buffer_pointer &&
	       b->stream_create && b->stream_destroy && b->copy && b->fill && b->launch && b->mark && b->reached &&
	       b->wait && b->follow && b->elapsed && b->module_load && b->module_unload;
}

// From the capability bits follow the optional slots: once, so that no later call has to ask.
static enum status slots_check(const struct backend *backend, const struct exogpu_device_limits *limits,
			       struct error *error)
{
	const char *name = backend_kind_name(backend->kind);
	if ((limits->capabilities & EXOGPU_CAN_PEER) && !backend->copy_peer)
		return error_set(error, STATUS_INTERNAL, "back end %s says it copies between devices and cannot", name);
	if ((limits->capabilities & (EXOGPU_CAN_PTX | EXOGPU_CAN_SPIRV)) && !backend->module_kernel)
		return error_set(error, STATUS_INTERNAL, "back end %s takes modules and cannot list their kernels",
				 name);
	if (!limits->memory_bytes || !limits->buffer_bytes)
		return error_set(error, STATUS_INTERNAL, "back end %s tells no size of memory", name);
	return STATUS_OK;
}

enum status device_open_over(struct exogpu_device **out, const struct backend *backend,
			     const struct exogpu_open *params, struct error *error)
{
	const char *name = backend_kind_name(backend->kind);
	if (!backend->open)
		return error_set(error, STATUS_UNAVAILABLE, "back end %s lists devices and cannot compute yet", name);
	if (!required_slots(backend))
		return error_set(error, STATUS_INTERNAL, "back end %s lacks calls that every one has", name);
	struct exogpu_device *device = calloc(1, sizeof(*device));
	if (!device)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a device");
	device->backend = backend;
	device->memory_limit_bytes = params->memory_limit_bytes;
	device->settle_ns = LIMIT_SETTLE_MS * 1000000ll;
	struct backend_open open = {.hardware_key = params->hardware_key,
				    .cache_directory = params->cache_directory,
				    .cache_writable = params->cache_writable,
				    .debug = params->debug};
	enum status status = device_told(device, backend->open(&device->handle, &open, error), error);
	if (!status) {
		backend->describe(device->handle, &device->limits);
		status = slots_check(backend, &device->limits, error);
	}
	if (status)
		exogpu_device_close(&device, NULL);
	*out = device;
	return status;
}

enum status exogpu_device_open(struct exogpu_device **out, const struct exogpu_open *params, struct error *error)
{
	if (!out)
		return error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the device");
	*out = NULL;
	if (!params || !params->backend || !params->hardware_key)
		return error_set(error, STATUS_INVALID_PARAMS, "a device is opened by back end and hardware key");
	const struct backend *backend = backend_find(backend_kind_parse(params->backend));
	if (!backend)
		return error_set(error, STATUS_NOT_FOUND, "this build has no back end %s", params->backend);
	return device_open_over(out, backend, params, error);
}

static void free_records(struct exogpu_device *device)
{
	while (device->buffers) {
		struct exogpu_buffer *buffer = device->buffers;
		device->buffers = buffer->next;
		free(buffer);
	}
	while (device->modules) {
		struct exogpu_module *module = device->modules;
		device->modules = module->next;
		free(module);
	}
	for (unsigned i = 0; i < LIMIT_STREAMS_OF_DEVICE; i++)
		free(device->streams[i]);
}

void exogpu_device_close(struct exogpu_device **device_pointer, struct exogpu_usage *left)
{
	if (left)
		*left = (struct exogpu_usage){0};
	if (!device_pointer || !*device_pointer)
		return;
	struct exogpu_device *device = *device_pointer;
	const struct exogpu_usage *usage = &device->usage;
	// Work of its streams, and of peers' streams on its memory: after this nothing uses what close frees.
	device_settle(device, UINT64_MAX, true);
	if (left)
		*left = *usage;
	if (usage->buffers || usage->streams || usage->modules)
		log_warning("engine", "device closed with %u buffers (%llu bytes), %u streams and %u modules left",
			    usage->buffers, (unsigned long long)(usage->device_bytes + usage->host_bytes),
			    usage->streams, usage->modules);
	for (unsigned i = 0; i < LIMIT_PEERS_OF_DEVICE; i++)
		for (unsigned j = 0; device->peers[i] && j < LIMIT_PEERS_OF_DEVICE; j++)
			if (device->peers[i]->peers[j] == device)
				device->peers[i]->peers[j] = NULL;
	if (device->handle)
		device->backend->close(&device->handle);
	free_records(device);
	free(device);
	*device_pointer = NULL;
}

const struct exogpu_device_limits *exogpu_device_limits(const struct exogpu_device *device)
{
	return device ? &device->limits : NULL;
}

void exogpu_device_usage(const struct exogpu_device *device, struct exogpu_usage *usage)
{
	if (usage)
		*usage = device ? device->usage : (struct exogpu_usage){0};
}

enum status exogpu_device_memory(struct exogpu_device *device, uint64_t *total_bytes, uint64_t *free_bytes,
				 struct error *error)
{
	enum status status = device_usable(device, error);
	if (!status && (!total_bytes || !free_bytes))
		status = error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the figures");
	if (status)
		return status;
	return device_told(device, device->backend->memory(device->handle, total_bytes, free_bytes, error), error);
}

bool exogpu_device_lost(const struct exogpu_device *device)
{
	return device && device->lost;
}

enum status device_usable(const struct exogpu_device *device, struct error *error)
{
	if (!device)
		return error_set(error, STATUS_INVALID_PARAMS, "no device");
	if (device->lost) {
		error_set(error, STATUS_DEVICE_LOST, "the device was lost earlier, with everything on it");
		error_hint(error, "close it and open it again");
		return STATUS_DEVICE_LOST;
	}
	return STATUS_OK;
}

enum status device_told(struct exogpu_device *device, enum status status, struct error *error)
{
	if (status)
		error_set(error, status, "%s: %s", backend_kind_title(device->backend->kind), status_text(status));
	if (status == STATUS_DEVICE_LOST)
		device->lost = true;
	return status;
}

void device_lose(struct exogpu_device *device, const char *what)
{
	log_warning("engine", "%s device is treated as lost: %s", backend_kind_title(device->backend->kind), what);
	device->lost = true;
}
