/* Fuzz target: the reflection of users' SPIR-V.
 *
 * The bytes are a module; what passes has kernels with sizes and arguments that a launch can take. */
#include "engine/vulkan/spirv.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct spirv_module module;
	static const struct spirv_limits limits = {.version = 0x00010600,
						   .features = UINT32_MAX,
						   .buffers = 16,
						   .push_bytes = 128,
						   .shared_bytes = 32768,
						   .block = {1024, 1024, 64},
						   .block_threads = 1024};
	struct error error = {0};
	if (spirv_reflect(&module, data, size, &limits, &error)) {
		require(error.message[0]);
		return 0;
	}
	require(module.kernel_count > 0 && module.kernel_count <= EXOGPU_MODULE_KERNELS);
	for (unsigned i = 0; i < module.kernel_count; i++) {
		const uint32_t *block = module.kernels[i].block;
		require(module.kernels[i].name[0] && strlen(module.kernels[i].name) < EXOGPU_KERNEL_NAME_BYTES);
		require(block[0] && block[1] && block[2] && (uint64_t)block[0] * block[1] * block[2] <= 1024);
	}
	require(module.binding_count + module.constant_count <= EXOGPU_KERNEL_ARGUMENTS);
	for (unsigned i = 1; i < module.binding_count; i++)
		require(module.bindings[i] > module.bindings[i - 1]);
	uint32_t end = 0;
	for (unsigned i = 0; i < module.constant_count; i++) {
		require(module.constants[i].offset >= end);
		end = module.constants[i].offset + (module.constants[i].kind == EXOGPU_ARGUMENT_DWORD ? 8 : 4);
	}
	require(end == module.push_bytes && end <= 128);
	return 0;
}
