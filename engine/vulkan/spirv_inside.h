/* A SPIR-V module that is being read, as its own files see it: spirv.c walks over its instructions, spirv_types.c knows
 * types and variables. Not for others. A position counts words from the beginning of the module. */
#pragma once
#include "common/base/bytes.h"
#include "engine/vulkan/spirv.h"

// SPIR-V's numbers: section 3 of its specification.
enum {
	MAGIC = 0x07230203,
	HEADER_WORDS = 5,
	DEPTH = 16, // of types in types

	OP_LINE = 8,
	OP_EXTENSION = 10,
	OP_EXT_INST_IMPORT = 11,
	OP_ENTRY_POINT = 15,
	OP_EXECUTION_MODE = 16,
	OP_CAPABILITY = 17,
	OP_TYPE_BOOL = 20,
	OP_TYPE_INT = 21,
	OP_TYPE_FLOAT = 22,
	OP_TYPE_VECTOR = 23,
	OP_TYPE_MATRIX = 24,
	OP_TYPE_ARRAY = 28,
	OP_TYPE_STRUCT = 30,
	OP_TYPE_POINTER = 32,
	OP_CONSTANT = 43,
	OP_CONSTANT_COMPOSITE = 44,
	OP_SPEC_CONSTANT = 50,
	OP_SPEC_CONSTANT_COMPOSITE = 51,
	OP_FUNCTION = 54,
	OP_FUNCTION_END = 56,
	OP_FUNCTION_CALL = 57,
	OP_VARIABLE = 59,
	OP_DECORATE = 71,
	OP_MEMBER_DECORATE = 72,
	OP_DECORATION_GROUP = 73,
	OP_NO_LINE = 317,
	OP_EXECUTION_MODE_ID = 331,

	DECORATION_BUFFER_BLOCK = 3,
	DECORATION_ARRAY_STRIDE = 6,
	DECORATION_BUILT_IN = 11,
	DECORATION_BINDING = 33,
	DECORATION_DESCRIPTOR_SET = 34,
	DECORATION_OFFSET = 35,

	CLASS_INPUT = 1,
	CLASS_UNIFORM = 2,
	CLASS_WORKGROUP = 4,
	CLASS_PRIVATE = 6,
	CLASS_PUSH_CONSTANT = 9,
	CLASS_STORAGE_BUFFER = 12,
	CLASS_PHYSICAL_STORAGE_BUFFER = 5349,

	MODEL_GL_COMPUTE = 5,
	MODE_LOCAL_SIZE = 17,
	BUILT_IN_WORKGROUP_SIZE = 25,
};

struct spirv_id {
	uint32_t at; // where it is defined; 0: nowhere that matters here
	uint32_t binding, array_stride;
	bool has_binding, has_set, buffer_block, built_in, workgroup_size;
};

struct spirv_reader {
	const uint8_t *bytes;
	uint32_t words;
	struct spirv_id *ids; // (bound)
	uint32_t bound;
	const struct spirv_limits *limits;
	struct spirv_module *module;
	struct error *error;
	uint32_t entries[EXOGPU_MODULE_KERNELS]; // ids of the kernels' functions
	uint32_t workgroup_size;                 // id of the constant that overrides their sizes; 0: none
	uint32_t push;                           // id of the block of push constants; 0: none
	uint64_t shared_bytes;
};

#define spirv_refuse(reader, ...) \
	error_set((reader)->error, STATUS_INVALID_PARAMS, "not SPIR-V that runs here: " __VA_ARGS__)

static inline uint32_t spirv_word(const struct spirv_reader *r, uint32_t at)
{
	return read_u32le(r->bytes + 4 * (size_t)at);
}

static inline uint32_t spirv_op(const struct spirv_reader *r, uint32_t at)
{
	return spirv_word(r, at) & 0xffff;
}

static inline uint32_t spirv_length(const struct spirv_reader *r, uint32_t at)
{
	return spirv_word(r, at) >> 16;
}

// The position where an id is defined as `op`; 0: it is not.
static inline uint32_t spirv_find(const struct spirv_reader *r, uint32_t id, uint32_t op)
{
	uint32_t at = id < r->bound ? r->ids[id].at : 0;
	return at && spirv_op(r, at) == op ? at : 0;
}

// spirv_types.c
// A constant's value as u32; false if it is none.
bool spirv_constant_value(const struct spirv_reader *r, uint32_t id, uint32_t *value);
// The scalars of a type, in order, as constants. Each adds at least one, so that their bound bounds the work.
enum status spirv_flatten(struct spirv_reader *r, uint32_t id, uint64_t offset, unsigned depth);
// Checks uses of ids that are defined before or after this point.
enum status spirv_take_use(struct spirv_reader *r, uint32_t at, uint32_t end, bool in_functions);
