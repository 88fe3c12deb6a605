/* libexogpu: modules and launches.
 *
 * A launch first finds its kernel and signature. Then each argument is checked against the signature and converted to
 * the back end's form. Last come the checks of one kind of kernel: grid and block of a user's kernel, counts of a
 * built-in one. The built-in kernels that verify and measure devices are launched by name, too, but are not listed. */
#include "common/base/list.h"
#include "engine/inside.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)BUILTIN_ARGUMENTS <= (int)EXOGPU_KERNEL_ARGUMENTS,
	       "a built-in kernel may have the arguments of any kernel");

static enum status format_check(const struct exogpu_device *device, enum exogpu_format format, const void *bytes,
				size_t length, struct error *error)
{
	uint32_t capabilities = device->limits.capabilities;
	const char *unable = NULL;
	switch (format) {
	case EXOGPU_FORMAT_BUILTIN:
		return STATUS_OK;
	case EXOGPU_FORMAT_PTX:
		unable = capabilities & EXOGPU_CAN_PTX ? NULL : "this device does not run PTX";
		break;
	case EXOGPU_FORMAT_SPIRV:
		unable = capabilities & EXOGPU_CAN_SPIRV ? NULL : "this device does not run SPIR-V";
		break;
	case EXOGPU_FORMAT_UNKNOWN:
	case EXOGPU_FORMAT_WGSL:
	case EXOGPU_FORMAT_CUDA:
		break;
	}
	if (format != EXOGPU_FORMAT_PTX && format != EXOGPU_FORMAT_SPIRV)
		return error_set(error, STATUS_INVALID_PARAMS, "%d is not a module format", (int)format);
	if (unable) {
		error_set(error, STATUS_UNAVAILABLE, "%s", unable);
		error_hint(error, "PTX is for CUDA, SPIR-V for Vulkan; the built-in kernels work everywhere");
		return STATUS_UNAVAILABLE;
	}
	if (!bytes || !length)
		return error_set(error, STATUS_INVALID_PARAMS, "an empty module");
	if (length > LIMIT_MODULE_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a module of %zu bytes; at most %d", length,
				 LIMIT_MODULE_BYTES);
	return STATUS_OK;
}

static void list_builtin(struct exogpu_module *module)
{
	for (int i = 0; i < BUILTIN_USERS; i++) {
		const struct builtin_signature *signature = &builtin_signatures[i + 1];
		struct exogpu_kernel *kernel = &module->builtin[i];
		text_copy(kernel->name, sizeof(kernel->name), signature->name);
		kernel->argument_count = signature->argument_count;
		memcpy(kernel->arguments, signature->kinds, sizeof(signature->kinds));
	}
}

enum status exogpu_module_load(struct exogpu_device *device, struct exogpu_module **out, enum exogpu_format format,
			       const void *bytes, size_t length, struct error *error)
{
	enum status status = device_usable(device, error);
	if (!status && !out)
		status = error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the module");
	if (status)
		return status;
	*out = NULL;
	status = format_check(device, format, bytes, length, error);
	if (status)
		return status;
	struct exogpu_module *module = calloc(1, sizeof(*module));
	if (!module)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a module's record");
	struct backend_module_params params = {.format = format};
	if (format != EXOGPU_FORMAT_BUILTIN) {
		params.bytes = bytes;
		params.length = length;
	}
	module->device = device;
	module->format = format;
	list_builtin(module);
	status = device_told(device, device->backend->module_load(device->handle, &module->handle, &params, error),
			     error);
	if (status) {
		free(module);
		return status;
	}
	LIST_PUSH(&device->modules, module, link);
	device->usage.modules++;
	*out = module;
	return STATUS_OK;
}

void exogpu_module_unload(struct exogpu_module **module_pointer)
{
	if (!module_pointer || !*module_pointer)
		return;
	struct exogpu_module *module = *module_pointer;
	struct exogpu_device *device = module->device;
	device_settle(device, module->used_by, false);
	if (!device->lost)
		device->backend->module_unload(device->handle, &module->handle);
	LIST_REMOVE(module, link);
	device->usage.modules--;
	free(module);
	*module_pointer = NULL;
}

const struct exogpu_kernel *exogpu_module_kernel(const struct exogpu_module *module, unsigned index)
{
	if (!module)
		return NULL;
	if (module->format == EXOGPU_FORMAT_BUILTIN)
		return index < BUILTIN_USERS ? &module->builtin[index] : NULL;
	return module->device->lost ? NULL : module->device->backend->module_kernel(module->handle, index);
}

// ---- launches ----

struct resolved {
	unsigned index; // of the back end
	unsigned argument_count;
	const enum exogpu_argument_kind *kinds;
	const struct exogpu_kernel *user;        // NULL for a built-in one
	const struct builtin_signature *builtin; // NULL for a user's
};

static enum status resolve(const struct exogpu_launch *launch, struct resolved *resolved, struct error *error)
{
	const struct exogpu_kernel *kernel;
	if (launch->module->format == EXOGPU_FORMAT_BUILTIN) {
		for (unsigned i = 1; i < BUILTIN_COUNT; i++) {
			const struct builtin_signature *signature = &builtin_signatures[i];
			if (strcmp(signature->name, launch->kernel))
				continue;
			*resolved = (struct resolved){.index = i - 1,
						      .argument_count = signature->argument_count,
						      .kinds = signature->kinds,
						      .builtin = signature};
			return STATUS_OK;
		}
	}
	for (unsigned i = 0; (kernel = exogpu_module_kernel(launch->module, i)); i++) {
		if (strcmp(kernel->name, launch->kernel))
			continue;
		*resolved = (struct resolved){.index = i,
					      .argument_count = kernel->argument_count,
					      .kinds = kernel->arguments,
					      .user = kernel};
		return STATUS_OK;
	}
	return error_set(error, STATUS_NOT_FOUND, "the module has no kernel %.128s", launch->kernel);
}

static const char *kind_name(enum exogpu_argument_kind kind)
{
	switch (kind) {
	case EXOGPU_ARGUMENT_BUFFER:
		return "a buffer";
	case EXOGPU_ARGUMENT_F32:
		return "an f32";
	case EXOGPU_ARGUMENT_I32:
		return "an i32";
	case EXOGPU_ARGUMENT_U32:
		return "a u32";
	case EXOGPU_ARGUMENT_U64:
		return "a u64";
	case EXOGPU_ARGUMENT_WORD:
		return "a value of 4 bytes";
	case EXOGPU_ARGUMENT_DWORD:
		return "a value of 8 bytes or a buffer";
	case EXOGPU_ARGUMENT_UNKNOWN:
		break;
	}
	return "something else";
}

// Whether an argument of the kind `given` fits a parameter of the kind `wanted`. A count of a built-in kernel may also
// be a u32.
static bool kind_fits(enum exogpu_argument_kind wanted, enum exogpu_argument_kind given, bool builtin)
{
	switch (given) {
	case EXOGPU_ARGUMENT_BUFFER:
		return wanted == EXOGPU_ARGUMENT_BUFFER || wanted == EXOGPU_ARGUMENT_DWORD;
	case EXOGPU_ARGUMENT_F32:
	case EXOGPU_ARGUMENT_I32:
		return wanted == given || wanted == EXOGPU_ARGUMENT_WORD;
	case EXOGPU_ARGUMENT_U32:
		return wanted == given || wanted == EXOGPU_ARGUMENT_WORD || (builtin && wanted == EXOGPU_ARGUMENT_U64);
	case EXOGPU_ARGUMENT_U64:
		return wanted == given || wanted == EXOGPU_ARGUMENT_DWORD;
	case EXOGPU_ARGUMENT_UNKNOWN: // and WORD and DWORD: of signatures only
	case EXOGPU_ARGUMENT_WORD:
	case EXOGPU_ARGUMENT_DWORD:
		break;
	}
	return false;
}

static enum status take_argument(const struct exogpu_launch *launch, const struct resolved *resolved, unsigned i,
				 struct backend_argument *out, struct error *error)
{
	const struct exogpu_argument *given = &launch->arguments[i];
	enum exogpu_argument_kind wanted = resolved->kinds[i];
	const char *name = resolved->builtin ? resolved->builtin->names[i] : "argument";
	if (!kind_fits(wanted, given->kind, resolved->builtin))
		return error_set(error, STATUS_INVALID_PARAMS, "%s: %s (number %u) takes %s, not %s", launch->kernel,
				 name, i, kind_name(wanted), kind_name(given->kind));
	*out = (struct backend_argument){.kind = wanted};
	if (given->kind == EXOGPU_ARGUMENT_BUFFER) {
		if (!given->buffer || given->buffer->device != launch->module->device)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "%s: %s (number %u) is not a buffer of this device", launch->kernel, name, i);
		out->kind = EXOGPU_ARGUMENT_BUFFER;
		out->buffer = given->buffer->handle;
	} else if (given->kind == EXOGPU_ARGUMENT_U64) {
		out->bits = given->u64;
	} else {
		uint32_t word; // of an f32, i32 or u32, which lie at one place
		memcpy(&word, &given->u32, sizeof(word));
		out->bits = word;
	}
	return STATUS_OK;
}

static enum status shape_check(const struct exogpu_launch *launch, const struct resolved *resolved,
			       struct backend_launch *work, struct error *error)
{
	const struct exogpu_device_limits *limits = &launch->module->device->limits;
	uint64_t threads = 1;
	for (int i = 0; i < 3; i++) {
		uint32_t fixed = resolved->user->block[i];
		work->grid[i] = launch->grid[i] ? launch->grid[i] : 1;
		work->block[i] = launch->block[i] ? launch->block[i] : fixed ? fixed : 1;
		if (fixed && work->block[i] != fixed)
			return error_set(error, STATUS_INVALID_PARAMS, "%s: the module fixes block[%d] at %u, not %u",
					 launch->kernel, i, fixed, work->block[i]);
		if (work->grid[i] > limits->max_grid[i] || work->block[i] > limits->max_block[i])
			return error_set(error, STATUS_LIMIT_EXCEEDED,
					 "%s: grid[%d] %u and block[%d] %u; the device takes %u and %u", launch->kernel,
					 i, work->grid[i], i, work->block[i], limits->max_grid[i],
					 limits->max_block[i]);
		threads *= work->block[i];
		if (threads > limits->max_block_threads)
			return error_set(error, STATUS_LIMIT_EXCEEDED, "%s: over the device's %u threads a block",
					 launch->kernel, limits->max_block_threads);
	}
	// Software drivers count groups in 32 bits: of a larger count they would run only the remainder.
	const uint64_t plane = (uint64_t)work->grid[0] * work->grid[1];
	if (limits->capabilities & EXOGPU_CAN_SOFTWARE && plane > UINT32_MAX / work->grid[2])
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "%s: a grid of %u x %u x %u; this device takes %u groups in all", launch->kernel,
				 work->grid[0], work->grid[1], work->grid[2], UINT32_MAX);
	return STATUS_OK;
}

static enum status counts_check(const struct exogpu_launch *launch, enum builtin_kernel kernel,
				const struct backend_argument *arguments, struct error *error)
{
	uint64_t values[BUILTIN_ARGUMENTS] = {0}, bytes[BUILTIN_ARGUMENTS] = {0};
	unsigned same[BUILTIN_ARGUMENTS] = {0};
	for (unsigned i = 0; i < launch->argument_count; i++) {
		values[i] = arguments[i].bits;
		bytes[i] = arguments[i].buffer ? launch->arguments[i].buffer->bytes : 0;
		for (same[i] = 0; arguments[same[i]].buffer != arguments[i].buffer;)
			same[i]++;
	}
	return builtin_check(kernel, values, bytes, same, error);
}

static enum status launch_check(struct exogpu_stream *stream, const struct exogpu_launch *launch,
				struct resolved *resolved, struct error *error)
{
	if (!stream)
		return error_set(error, STATUS_INVALID_PARAMS, "no stream");
	enum status status = device_usable(stream->device, error);
	if (status)
		return status;
	if (!launch || !launch->module || !launch->kernel)
		return error_set(error, STATUS_INVALID_PARAMS, "a launch names a module and a kernel of it");
	if (launch->module->device != stream->device)
		return error_set(error, STATUS_INVALID_PARAMS, "the module is not of the stream's device");
	status = resolve(launch, resolved, error);
	if (status)
		return status;
	if (launch->argument_count != resolved->argument_count || (launch->argument_count && !launch->arguments))
		return error_set(error, STATUS_INVALID_PARAMS, "%s takes %u arguments, not %u", launch->kernel,
				 resolved->argument_count, launch->arguments ? launch->argument_count : 0);
	return STATUS_OK;
}

// A launch with nothing to compute does not reach the kernel: a sum over nothing is 0, and so is a product with k = 0.
static bool nothing_to_do(struct exogpu_stream *stream, const struct backend_launch *work, enum status *status,
			  struct error *error)
{
	const struct backend *backend = stream->device->backend;
	const struct backend_argument *arguments = work->arguments;
	enum builtin_kernel kernel = (enum builtin_kernel)(work->kernel + 1);
	const struct builtin_signature *signature = &builtin_signatures[kernel];
	uint64_t zero_bytes = 0;
	bool empty = false;
	for (unsigned i = 0; i < signature->argument_count; i++)
		empty |= signature->kinds[i] == EXOGPU_ARGUMENT_U64 && !arguments[i].bits;
	if (!empty)
		return false;
	if (kernel == BUILTIN_SUM_F32)
		zero_bytes = sizeof(float);
	if (kernel == BUILTIN_MATMUL_F32)
		zero_bytes = sizeof(float) * arguments[3].bits * arguments[4].bits;
	if (zero_bytes)
		*status = device_told(stream->device,
				      backend->fill(stream->handle, arguments[0].buffer, 0, zero_bytes, 0, error),
				      error);
	return true;
}

enum status exogpu_launch(struct exogpu_stream *stream, const struct exogpu_launch *launch, struct error *error)
{
	struct resolved resolved = {0};
	struct backend_argument arguments[EXOGPU_KERNEL_ARGUMENTS] = {{0}};
	enum status status = launch_check(stream, launch, &resolved, error);
	for (unsigned i = 0; !status && i < launch->argument_count; i++)
		status = take_argument(launch, &resolved, i, &arguments[i], error);
	if (status)
		return status;
	struct backend_launch work = {.module = launch->module->handle,
				      .kernel = resolved.index,
				      .grid = {1, 1, 1},
				      .block = {1, 1, 1},
				      .arguments = arguments,
				      .argument_count = launch->argument_count};
	if (resolved.user)
		status = shape_check(launch, &resolved, &work, error);
	else
		status = counts_check(launch, (enum builtin_kernel)(resolved.index + 1), arguments, error);
	if (status)
		return status;
	uint64_t use = stream_use(stream);
	launch->module->used_by |= use;
	for (unsigned i = 0; i < launch->argument_count; i++)
		if (arguments[i].buffer)
			launch->arguments[i].buffer->used_by |= use;
	if (!resolved.user && nothing_to_do(stream, &work, &status, error))
		return status;
	return device_told(stream->device, stream->device->backend->launch(stream->handle, &work, error), error);
}
