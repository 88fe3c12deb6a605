/* Fuzz target: what is read from a user's PTX. A module that is accepted must describe itself within its bounds. */
#include "engine/cuda/ptx.h"

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
	struct ptx ptx;
	struct error error = {0};
	enum status status = ptx_init(&ptx, data, size, &error);
	require(!status == !error.message[0]);
	require(status ? !ptx.kernels : ptx.count > 0 && ptx.count <= EXOGPU_MODULE_KERNELS);
	for (unsigned i = 0; i < ptx.count; i++) {
		const struct exogpu_kernel *kernel = &ptx.kernels[i];
		size_t length = strnlen(kernel->name, sizeof(kernel->name));
		require(length > 0 && length < sizeof(kernel->name));
		require(kernel->argument_count <= EXOGPU_KERNEL_ARGUMENTS);
		for (unsigned j = 0; j < kernel->argument_count; j++)
			require(kernel->arguments[j] == EXOGPU_ARGUMENT_WORD ||
				kernel->arguments[j] == EXOGPU_ARGUMENT_DWORD);
		for (int j = 0; j < 3; j++)
			require(kernel->block[j] <= 1024 && !kernel->block[j] == !kernel->block[0]);
	}
	ptx_finish(&ptx);
	return 0;
}
