/* Parses the declarations of a SPIR-V module: its kernels, the buffers and constants that they take, and the features
 * that it requires. A pure function over hostile bytes: only the length is trusted. An accepted module has well-formed
 * instructions, one kind of resource (storage buffers of set 0, each alone at its binding), one block of push constants
 * with 4- and 8-byte scalars, and requires only what the device was opened with. It is not a full validator: errors
 * that it does not find reach the driver's compiler, in the session's own worker. All kernels of a module take the same
 * arguments: every declared buffer in rising order of binding, then the push constants' scalars in order. Thread: any;
 * plain data. */
#pragma once
#include "common/base/status.h"
#include "engine/include/exogpu/types.h"

// Parts of SPIR-V that a device may take or not.
enum spirv_feature {
	SPIRV_INT8 = 1 << 0,
	SPIRV_INT16 = 1 << 1,
	SPIRV_INT64 = 1 << 2,
	SPIRV_FLOAT16 = 1 << 3,
	SPIRV_FLOAT64 = 1 << 4,
	SPIRV_STORAGE8 = 1 << 5,  // 8-bit values in storage buffers
	SPIRV_STORAGE16 = 1 << 6, // 16-bit values in storage buffers
	SPIRV_ADDRESSES = 1 << 7, // pointers into buffers
	SPIRV_VARIABLE_POINTERS_BUFFER = 1 << 8,
	SPIRV_VARIABLE_POINTERS = 1 << 9,
	SPIRV_SUBGROUP = 1 << 10, // and below: what subgroups can do
	SPIRV_SUBGROUP_VOTE = 1 << 11,
	SPIRV_SUBGROUP_ARITHMETIC = 1 << 12,
	SPIRV_SUBGROUP_BALLOT = 1 << 13,
	SPIRV_SUBGROUP_SHUFFLE = 1 << 14,
	SPIRV_SUBGROUP_SHUFFLE_RELATIVE = 1 << 15,
	SPIRV_SUBGROUP_CLUSTERED = 1 << 16,
	SPIRV_SUBGROUP_QUAD = 1 << 17,
	SPIRV_MEMORY_MODEL = 1 << 18,
	SPIRV_MEMORY_MODEL_DEVICE = 1 << 19,
	SPIRV_DOT_PRODUCT = 1 << 20,
};

struct spirv_limits {
	uint32_t version;  // the newest, as in the module: 0x00010300 is 1.3
	uint32_t features; // bits of enum spirv_feature
	uint32_t buffers, push_bytes, shared_bytes, block[3], block_threads;
};

struct spirv_kernel {
	char name[EXOGPU_KERNEL_NAME_BYTES];
	uint32_t block[3];
};

struct spirv_constant {
	enum exogpu_argument_kind kind; // WORD or DWORD
	uint32_t offset;                // in the push constants
};

struct spirv_module {
	struct spirv_kernel kernels[EXOGPU_MODULE_KERNELS];
	unsigned kernel_count;
	uint32_t bindings[EXOGPU_KERNEL_ARGUMENTS]; // (binding_count), rising
	unsigned binding_count;
	struct spirv_constant constants[EXOGPU_KERNEL_ARGUMENTS]; // (constant_count), rising
	unsigned constant_count;
	uint32_t push_bytes; // of the whole block, a multiple of 4
};

// Errors: STATUS_INVALID_PARAMS (not such a module, and why), STATUS_OUT_OF_MEMORY.
enum status spirv_reflect(struct spirv_module *module, const uint8_t *bytes, size_t length,
			  const struct spirv_limits *limits, struct error *error);
