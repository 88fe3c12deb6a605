/* See engine/include/exogpu/exogpu_client.h: which devices there are. */
#include "bindings/c/inside.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
	const char *word;
	enum exogpu_format format;
} formats[] = {{"builtin", EXOGPU_FORMAT_BUILTIN},
	       {"ptx", EXOGPU_FORMAT_PTX},
	       {"spirv", EXOGPU_FORMAT_SPIRV},
	       {"wgsl", EXOGPU_FORMAT_WGSL},
	       {"cuda", EXOGPU_FORMAT_CUDA}};

const char *inside_format_word(enum exogpu_format format)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (formats[i].format == format)
			return formats[i].word;
	return NULL;
}

// By the API that it runs by, as the server decides (server/tenants/compute.c).
static uint32_t find_formats(const char *backend, const struct json *features)
{
	uint32_t bits = 1u << EXOGPU_FORMAT_BUILTIN; // works everywhere
	if (!strcmp(backend, "cuda"))
		bits |= 1u << EXOGPU_FORMAT_PTX;
	else if (!strcmp(backend, "vulkan"))
		bits |= 1u << EXOGPU_FORMAT_SPIRV;
	else if (!strcmp(backend, "webgpu"))
		bits |= 1u << EXOGPU_FORMAT_WGSL;
	for (const struct json *one = json_first(features); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), "nvrtc"))
			bits |= 1u << EXOGPU_FORMAT_CUDA;
	return bits;
}

static void read_device(const struct json *from, struct exogpu_client_found_device *device)
{
	const char *state = json_get_string(from, "state", "");
	int64_t bytes = json_get_integer(from, "memory_bytes", 0);
	*device = (struct exogpu_client_found_device){
		.device_id = json_get_string(from, "device_id", ""),
		.node_id = json_get_string(from, "node_id", ""),
		.name = json_get_string(from, "name", ""),
		.backend = json_get_string(from, "backend", ""),
		.kind = json_get_string(from, "kind", ""),
		.memory_bytes = bytes > 0 ? (uint64_t)bytes : 0,
		.formats = find_formats(json_get_string(from, "backend", ""), json_get(from, "features")),
		.usable = (!strcmp(state, "idle") || !strcmp(state, "computing") || !strcmp(state, "throttled")) &&
			  !strcmp(json_get_string(json_get(from, "verification"), "state", ""), "passed")};
}

static enum status snapshot(struct exogpu_client *client, struct json **out, struct error *error)
{
	struct quiet quiet;
	inside_begin(client, &quiet);
	enum status status = inside_ask(client, &(struct inside_call){.method = "cluster.snapshot"}, out, error);
	inside_end(client, &quiet);
	return status;
}

enum status exogpu_client_find_devices(struct exogpu_client *client,
				       void (*each)(void *context, const struct exogpu_client_found_device *device),
				       void *context, struct error *error)
{
	struct json *found = NULL;
	if (!client || !each)
		return error_set(error, STATUS_INVALID_PARAMS, "client and each must not be NULL");
	enum status status = snapshot(client, &found, error);
	for (const struct json *one = json_first(json_get(found, "devices")); one; one = json_next(one)) {
		struct exogpu_client_found_device device;
		read_device(one, &device);
		each(context, &device);
	}
	json_destroy(&found);
	return status;
}

// Greater is better; 0: not at all. Without a name GPUs come before processors, and before processors that stand for
// one.
static int rank(const struct exogpu_client_found_device *device, const char *name)
{
	if (!name)
		return !device->usable                    ? 0
		       : !strcmp(device->kind, "cpu")     ? 1
		       : !strcmp(device->kind, "virtual") ? 2
							  : 3;
	int fits = !strcmp(device->device_id, name) || !strcmp(device->name, name) ? 2
		   : !strncmp(device->device_id, name, strlen(name)) || !strncasecmp(device->name, name, strlen(name))
			   ? 1
			   : 0;
	return fits ? 2 * fits + device->usable : 0;
}

enum status exogpu_client_choose_device(struct exogpu_client *client, const char *name,
					char device_id[EXOGPU_CLIENT_ID_BYTES], struct error *error)
{
	struct json *found = NULL;
	int best = 0;
	uint64_t best_bytes = 0;
	if (!client || !device_id || (name && !name[0]))
		return error_set(error, STATUS_INVALID_PARAMS, "client and device_id must not be NULL, nor name empty");
	enum status status = snapshot(client, &found, error);
	for (const struct json *one = json_first(json_get(found, "devices")); one; one = json_next(one)) {
		struct exogpu_client_found_device device;
		read_device(one, &device);
		int worth = rank(&device, name);
		if (worth > best || (worth && worth == best && device.memory_bytes > best_bytes)) {
			best = worth;
			best_bytes = device.memory_bytes;
			snprintf(device_id, EXOGPU_CLIENT_ID_BYTES, "%s", device.device_id);
		}
	}
	json_destroy(&found);
	if (status || best)
		return status;
	error_hint(error, "exogpu devices lists those that there are, and why one cannot be used");
	return name ? error_set(error, STATUS_NOT_FOUND, "there is no device %.80s", name)
		    : error_set(error, STATUS_NOT_FOUND, "there is no device that can compute");
}
