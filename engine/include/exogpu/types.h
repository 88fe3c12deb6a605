/* Types that the library's users and the back ends share: kinds of memory and of arguments, and what a device can do.
 *
 * Names contain the units. Thread: any; plain data. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXOGPU_PUBLIC __attribute__((visibility("default")))

enum exogpu_memory {
	EXOGPU_MEMORY_UNKNOWN,
	EXOGPU_MEMORY_DEVICE, // the device's own; only the device reaches it
	EXOGPU_MEMORY_HOST,   // the host's, made so that the device copies from and to it at full speed
	EXOGPU_MEMORY_MAPPED, // the device's own, and the host sees it; with EXOGPU_CAN_MAP
};

enum exogpu_format {
	EXOGPU_FORMAT_UNKNOWN,
	EXOGPU_FORMAT_BUILTIN, // fill_f32, saxpy_f32, matmul_f32, sum_f32: on every device
	EXOGPU_FORMAT_PTX,     // text, for CUDA
	EXOGPU_FORMAT_SPIRV,   // compute shaders, for Vulkan
	EXOGPU_FORMAT_WGSL,    // text, for GPUs of browsers: of the wire alone
	EXOGPU_FORMAT_CUDA,    // CUDA C, which the device's node compiles: of the wire alone
};

enum exogpu_argument_kind {
	EXOGPU_ARGUMENT_UNKNOWN,
	EXOGPU_ARGUMENT_BUFFER,
	EXOGPU_ARGUMENT_F32,
	EXOGPU_ARGUMENT_I32,
	EXOGPU_ARGUMENT_U32,
	EXOGPU_ARGUMENT_U64,
	EXOGPU_ARGUMENT_WORD,  // of a user's kernel: any 4-byte value
	EXOGPU_ARGUMENT_DWORD, // of a user's kernel: any 8-byte value, or the address of a buffer
};

enum {
	EXOGPU_KERNEL_NAME_BYTES = 129,
	EXOGPU_KERNEL_ARGUMENTS = 32,
	EXOGPU_MODULE_KERNELS = 256, // of one module
	EXOGPU_POINTS = 64,          // of one stream, that are outstanding or may be asked for their time
	EXOGPU_IMPORT_BYTES = 4096,  // an imported address and size are multiples of this
};

// Features that not every device has; the optional calls depend on these bits.
enum exogpu_capability {
	EXOGPU_CAN_ZEROED = 1 << 0,   // new device memory is zero already
	EXOGPU_CAN_MAP = 1 << 1,      // EXOGPU_MEMORY_MAPPED
	EXOGPU_CAN_PEER = 1 << 2,     // copies between two devices of this back end
	EXOGPU_CAN_PTX = 1 << 3,      // modules of this format
	EXOGPU_CAN_SPIRV = 1 << 4,    // modules of this format
	EXOGPU_CAN_TIME = 1 << 5,     // the device has a clock; without it times are the host's
	EXOGPU_CAN_SOFTWARE = 1 << 6, // the device is this machine's processor: its kernels have the rights of this
				      // process
	EXOGPU_CAN_IMPORT = 1 << 7,   // exogpu_buffer_import
};

struct exogpu_device_limits {
	uint32_t capabilities; // bits of enum exogpu_capability
	uint64_t memory_bytes; // of all of the device
	uint64_t buffer_bytes; // the largest that one buffer may be
	uint64_t stream_bytes; // how much a bandwidth test should read so that no cache answers
	uint32_t max_grid[3], max_block[3], max_block_threads; // of user's kernels; 0 where there are none
	uint32_t streams;                                      // how many run side by side; more may be made
};

// A kernel of a user's module, as its file describes it.
struct exogpu_kernel {
	char name[EXOGPU_KERNEL_NAME_BYTES];
	unsigned argument_count;
	enum exogpu_argument_kind arguments[EXOGPU_KERNEL_ARGUMENTS];
	uint32_t block[3]; // fixed by the module (SPIR-V); 0, 0, 0 if the launch chooses
};
