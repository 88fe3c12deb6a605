/* Modules and launches of users' kernels.
 *
 * A user's module is PTX. Its declarations of kernels are parsed (ptx.h), then the driver compiles it; the errors of
 * both go to the user. Binaries (cubin, fatbin) are refused, because their contents cannot be checked. */
#include "engine/cuda/device.h"

#include <stdlib.h>
#include <string.h>

struct cuda_function {
	CUfunction function;
	uint32_t most_threads; // of a block, as its registers and shared memory allow
};

// Copied, since the driver wants a 0 at the end.
static enum status compile(struct backend_device *device, struct backend_module *module,
			   const struct backend_module_params *params, struct error *error)
{
	char log[CUDA_SHOWN_LOG_BYTES], *text = malloc(params->length + 1);
	if (!text)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a module of %zu bytes", params->length);
	memcpy(text, params->bytes, params->length);
	text[params->length] = 0;
	CUresult result = cuda_compile(device, &module->module, text, log);
	free(text);
	if (!result)
		return STATUS_OK;
	if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
		error_hint(error, "write an older .version, or install a newer NVIDIA driver on the node");
	if (result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_INVALID_IMAGE ||
	    result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
	    result == CUDA_ERROR_NOT_FOUND)
		return error_set(error, STATUS_INVALID_PARAMS, "the driver's compiler rejects this PTX: %s",
				 log[0] ? log : "it does not say why");
	return cuda_failed(device->cuda, error, "cuModuleLoadDataEx", result);
}

static enum status find_functions(struct backend_device *device, struct backend_module *module, struct error *error)
{
	struct cuda *cuda = device->cuda;
	module->functions = calloc(module->ptx.count, sizeof(*module->functions));
	if (!module->functions)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %u kernels", module->ptx.count);
	for (unsigned i = 0; i < module->ptx.count; i++) {
		struct cuda_function *function = &module->functions[i];
		int most = 0;
		CUresult result = cuda->cuModuleGetFunction(&function->function, module->module,
							    module->ptx.kernels[i].name);
		if (result == CUDA_ERROR_NOT_FOUND)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "this PTX declares kernel %s but does not define it",
					 module->ptx.kernels[i].name);
		if (!result)
			result = cuda->cuFuncGetAttribute(&most, CUDA_FUNCTION_MAX_THREADS_PER_BLOCK,
							  function->function);
		if (result)
			return cuda_failed(cuda, error, "cuModuleGetFunction", result);
		function->most_threads = (uint32_t)most;
	}
	return STATUS_OK;
}

static enum status load(struct backend_device *device, struct backend_module *module,
			const struct backend_module_params *params, struct error *error)
{
	enum status status = cuda_check(device, error, "cuCtxSetCurrent", cuda_enter(device));
	if (status)
		return status;
	if (params->format == EXOGPU_FORMAT_BUILTIN)
		return cuda_kernels_prepare(device, error);
	if (params->format != EXOGPU_FORMAT_PTX)
		return error_set(error, STATUS_UNAVAILABLE, "CUDA takes modules in PTX");
	status = ptx_init(&module->ptx, params->bytes, params->length, error);
	if (!status)
		status = compile(device, module, params, error);
	if (!status)
		status = find_functions(device, module, error);
	return status;
}

enum status cuda_module_load(struct backend_device *device, struct backend_module **out,
			     const struct backend_module_params *params, struct error *error)
{
	struct backend_module *module = calloc(1, sizeof(*module));
	*out = NULL;
	if (!module)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a module");
	module->format = params->format;
	module->next = device->modules;
	device->modules = module;
	enum status status = load(device, module, params, error);
	if (status)
		cuda_module_unload(device, &module);
	*out = module;
	return status;
}

void cuda_module_unload(struct backend_device *device, struct backend_module **out)
{
	struct backend_module *module = *out;
	if (!module)
		return;
	for (struct backend_module **link = &device->modules; *link; link = &(*link)->next)
		if (*link == module) {
			*link = module->next;
			break;
		}
	if (module->module && !device->abandoned) {
		cuda_enter(device);
		device->cuda->cuModuleUnload(module->module);
	}
	free(module->functions);
	ptx_finish(&module->ptx);
	free(module);
	*out = NULL;
}

const struct exogpu_kernel *cuda_module_kernel(const struct backend_module *module, unsigned index)
{
	return index < module->ptx.count ? &module->ptx.kernels[index] : NULL;
}

enum status cuda_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error)
{
	struct backend_device *device = stream->device;
	struct cuda_arguments arguments;
	CUresult result = cuda_enter(device);
	if (result)
		return cuda_failed(device->cuda, error, "cuCtxSetCurrent", result);
	if (launch->module->format == EXOGPU_FORMAT_BUILTIN)
		return cuda_kernels_launch(stream, launch, error);
	const struct cuda_function *function = &launch->module->functions[launch->kernel];
	const uint32_t *grid = launch->grid, *block = launch->block;
	const char *name = launch->module->ptx.kernels[launch->kernel].name;
	uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
	if (threads > function->most_threads)
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "kernel %s runs with at most %u threads a block, because of the resources that a "
				 "thread uses; %llu were requested",
				 name, function->most_threads, (unsigned long long)threads);
	cuda_pack(&arguments, launch);
	result = device->cuda->cuLaunchKernel(function->function, grid[0], grid[1], grid[2], block[0], block[1],
					      block[2], 0, stream->stream, arguments.pointers, NULL);
	return cuda_check(device, error, "cuLaunchKernel", result);
}
