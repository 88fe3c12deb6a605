/* See spirv.h. One pass over the instructions records where each id of types, constants, variables and functions is
 * defined and how it is decorated. Then variables are sorted into buffers and constants (spirv_types.c), and kernels
 * get their sizes. Some drivers assume that functions end and that kernels are functions, so both are checked. */
#include "common/base/limits.h"
#include "engine/vulkan/spirv_inside.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 64 }; // of a name of an extension

static const struct {
	uint32_t capability;
	uint32_t needs; // a bit of enum spirv_feature; 0: always there
} capabilities[] = {
	{0, 0},                                 // Matrix
	{1, 0},                                 // Shader
	{9, SPIRV_FLOAT16},                     // Float16
	{10, SPIRV_FLOAT64},                    // Float64
	{11, SPIRV_INT64},                      // Int64
	{22, SPIRV_INT16},                      // Int16
	{39, SPIRV_INT8},                       // Int8
	{61, SPIRV_SUBGROUP},                   // GroupNonUniform
	{62, SPIRV_SUBGROUP_VOTE},              // and its features
	{63, SPIRV_SUBGROUP_ARITHMETIC},        //
	{64, SPIRV_SUBGROUP_BALLOT},            //
	{65, SPIRV_SUBGROUP_SHUFFLE},           //
	{66, SPIRV_SUBGROUP_SHUFFLE_RELATIVE},  //
	{67, SPIRV_SUBGROUP_CLUSTERED},         //
	{68, SPIRV_SUBGROUP_QUAD},              //
	{4433, SPIRV_STORAGE16},                // StorageBuffer16BitAccess
	{4441, SPIRV_VARIABLE_POINTERS_BUFFER}, // VariablePointersStorageBuffer
	{4442, SPIRV_VARIABLE_POINTERS},        // VariablePointers
	{4448, SPIRV_STORAGE8},                 // StorageBuffer8BitAccess
	{5345, SPIRV_MEMORY_MODEL},             // VulkanMemoryModel
	{5346, SPIRV_MEMORY_MODEL_DEVICE},      // VulkanMemoryModelDeviceScope
	{5347, SPIRV_ADDRESSES},                // PhysicalStorageBufferAddresses
	{6016, SPIRV_DOT_PRODUCT},              // DotProductInputAll
	{6017, SPIRV_DOT_PRODUCT},              // DotProductInput4x8Bit
	{6018, SPIRV_DOT_PRODUCT},              // DotProductInput4x8BitPacked
	{6019, SPIRV_DOT_PRODUCT},              // DotProduct
};

// Part of Vulkan 1.1, or of what the capabilities above stand for.
static const char *const extensions[] = {
	"SPV_KHR_storage_buffer_storage_class",
	"SPV_KHR_variable_pointers",
	"SPV_KHR_16bit_storage",
	"SPV_KHR_8bit_storage",
	"SPV_KHR_vulkan_memory_model",
	"SPV_KHR_physical_storage_buffer",
	"SPV_EXT_physical_storage_buffer",
	"SPV_KHR_integer_dot_product",
};

// The text in words [at, end) into text[size]: printable, and not longer. False if it is none.
static bool read_text(const struct spirv_reader *r, uint32_t at, uint32_t end, char *text, size_t size)
{
	const char *from = (const char *)r->bytes + 4 * (size_t)at;
	size_t room = 4 * (size_t)(end - at), length = strnlen(from, room);
	if (length == room || length >= size || !length)
		return false;
	for (size_t i = 0; i < length; i++)
		if (from[i] < 0x21 || from[i] > 0x7e)
			return false;
	memcpy(text, from, length + 1);
	return true;
}

// ---- instructions, as they come ----

static enum status take_capability(struct spirv_reader *r, uint32_t capability)
{
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
		if (capabilities[i].capability == capability) {
			if (!capabilities[i].needs || capabilities[i].needs & r->limits->features)
				return STATUS_OK;
			break;
		}
	return spirv_refuse(r, "this device was not opened with capability %u", capability);
}

static enum status take_extension(struct spirv_reader *r, uint32_t at, uint32_t end)
{
	char text[TEXT_BYTES];
	if (!read_text(r, at + 1, end, text, sizeof(text)))
		return spirv_refuse(r, "an extension without a name");
	for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++)
		if (!strcmp(text, extensions[i]))
			return STATUS_OK;
	return spirv_refuse(r, "extension %s", text);
}

static enum status take_import(struct spirv_reader *r, uint32_t at, uint32_t end)
{
	char text[TEXT_BYTES];
	if (end - at < 3 || !read_text(r, at + 2, end, text, sizeof(text)))
		return spirv_refuse(r, "instructions imported without a name");
	return strcmp(text, "GLSL.std.450") ? spirv_refuse(r, "instructions of %s", text) : STATUS_OK;
}

static enum status take_entry_point(struct spirv_reader *r, uint32_t at, uint32_t end)
{
	struct spirv_module *module = r->module;
	if (end - at < 4 || spirv_word(r, at + 1) != MODEL_GL_COMPUTE)
		return spirv_refuse(r, "an entry point that is no compute kernel");
	if (module->kernel_count == EXOGPU_MODULE_KERNELS)
		return spirv_refuse(r, "more than %d kernels", EXOGPU_MODULE_KERNELS);
	struct spirv_kernel *kernel = &module->kernels[module->kernel_count];
	if (!read_text(r, at + 3, end, kernel->name, sizeof(kernel->name)))
		return spirv_refuse(r, "a kernel's name is not 1 to %d printable characters",
				    EXOGPU_KERNEL_NAME_BYTES - 1);
	for (unsigned i = 0; i < module->kernel_count; i++)
		if (!strcmp(module->kernels[i].name, kernel->name))
			return spirv_refuse(r, "two kernels %s", kernel->name);
	r->entries[module->kernel_count++] = spirv_word(r, at + 2);
	return STATUS_OK;
}

static enum status take_execution_mode(struct spirv_reader *r, uint32_t at, uint32_t end)
{
	if (end - at < 3)
		return spirv_refuse(r, "an execution mode is cut short");
	if (spirv_word(r, at + 2) != MODE_LOCAL_SIZE)
		return STATUS_OK;
	if (end - at != 6)
		return spirv_refuse(r, "a local size of %u words", end - at);
	for (unsigned i = 0; i < r->module->kernel_count; i++)
		if (r->entries[i] == spirv_word(r, at + 1))
			for (uint32_t j = 0; j < 3; j++)
				r->module->kernels[i].block[j] = spirv_word(r, at + 3 + j);
	return STATUS_OK;
}

static enum status take_decoration(struct spirv_reader *r, uint32_t at, uint32_t end)
{
	if (end - at < 3 || spirv_word(r, at + 1) >= r->bound)
		return spirv_refuse(r, "a decoration is cut short, or of no id");
	struct spirv_id *id = &r->ids[spirv_word(r, at + 1)];
	uint32_t value = end - at > 3 ? spirv_word(r, at + 3) : 0;
	switch (spirv_word(r, at + 2)) {
	case DECORATION_BUFFER_BLOCK:
		id->buffer_block = true;
		break;
	case DECORATION_ARRAY_STRIDE:
		id->array_stride = value;
		break;
	case DECORATION_BUILT_IN:
		id->built_in = true;
		if (value == BUILT_IN_WORKGROUP_SIZE)
			r->workgroup_size = spirv_word(r, at + 1);
		break;
	case DECORATION_BINDING:
		id->has_binding = true;
		id->binding = value;
		break;
	case DECORATION_DESCRIPTOR_SET:
		if (value)
			return spirv_refuse(r, "a binding in descriptor set %u; kernels have set 0 only", value);
		id->has_set = true;
		break;
	}
	return STATUS_OK;
}

static enum status define(struct spirv_reader *r, uint32_t at, uint32_t end, uint32_t id_word, uint32_t least_words)
{
	if (end - at < least_words)
		return spirv_refuse(r, "an instruction %u of %u words", spirv_op(r, at), end - at);
	uint32_t id = spirv_word(r, at + id_word);
	if (!id || id >= r->bound || r->ids[id].at)
		return spirv_refuse(r, "id %u is defined twice, or is none", id);
	r->ids[id].at = at;
	return STATUS_OK;
}

static enum status take(struct spirv_reader *r, uint32_t at, uint32_t end, bool in_functions)
{
	switch (spirv_op(r, at)) {
	case OP_CAPABILITY:
		return end - at == 2 ? take_capability(r, spirv_word(r, at + 1))
				     : spirv_refuse(r, "a capability is cut short");
	case OP_EXTENSION:
		return take_extension(r, at, end);
	case OP_EXT_INST_IMPORT:
		return take_import(r, at, end);
	case OP_ENTRY_POINT:
		return take_entry_point(r, at, end);
	case OP_EXECUTION_MODE:
		return take_execution_mode(r, at, end);
	case OP_EXECUTION_MODE_ID:
	case OP_DECORATION_GROUP:
		return spirv_refuse(r, "instruction %u is not taken", spirv_op(r, at));
	case OP_DECORATE:
		return take_decoration(r, at, end);
	case OP_TYPE_BOOL:
		return define(r, at, end, 1, 2);
	case OP_TYPE_FLOAT:
		return define(r, at, end, 1, 3);
	case OP_TYPE_STRUCT:
		return define(r, at, end, 1, 2);
	case OP_TYPE_INT:
	case OP_TYPE_VECTOR:
	case OP_TYPE_MATRIX:
	case OP_TYPE_ARRAY:
	case OP_TYPE_POINTER:
		return define(r, at, end, 1, 4);
	case OP_CONSTANT:
	case OP_SPEC_CONSTANT:
		return define(r, at, end, 2, 4);
	case OP_CONSTANT_COMPOSITE:
	case OP_SPEC_CONSTANT_COMPOSITE:
		return define(r, at, end, 2, 3);
	case OP_FUNCTION:
		return define(r, at, end, 2, 5);
	case OP_VARIABLE: // those of functions are their own affair
		return in_functions ? STATUS_OK : define(r, at, end, 2, 4);
	}
	return STATUS_OK;
}

// Behind the beginning of the first function all stands inside of one, but for where in a source it is.
static bool may_stand(uint32_t op, bool in_functions, bool inside)
{
	switch (op) {
	case OP_LINE:
	case OP_NO_LINE:
		return true;
	case OP_FUNCTION:
		return !inside;
	case OP_FUNCTION_END:
		return inside;
	}
	return inside || !in_functions;
}

static enum status walk(struct spirv_reader *r,
			enum status (*each)(struct spirv_reader *, uint32_t at, uint32_t end, bool))
{
	enum status status = STATUS_OK;
	bool in_functions = false, inside = false; // after the first function begins; between a beginning and an end
	for (uint32_t at = HEADER_WORDS; !status && at < r->words;) {
		uint32_t length = spirv_length(r, at);
		if (!length || length > r->words - at)
			return spirv_refuse(r, "instruction at word %u ends outside the module", at);
		const uint32_t op = spirv_op(r, at);
		if (!may_stand(op, in_functions, inside))
			return spirv_refuse(r, "instruction %u at word %u stands %s a function", op, at,
					    inside ? "inside" : "outside");
		inside = op == OP_FUNCTION || (inside && op != OP_FUNCTION_END);
		in_functions |= inside;
		status = each(r, at, at + length, in_functions);
		at += length;
	}
	return !status && inside ? spirv_refuse(r, "its last function does not end") : status;
}

// ---- kernels ----

// A constant that is decorated as the size of a group holds for all kernels.
static enum status override_blocks(struct spirv_reader *r)
{
	if (!r->workgroup_size)
		return STATUS_OK;
	uint32_t at = spirv_find(r, r->workgroup_size, OP_CONSTANT_COMPOSITE), block[3];
	if (!at)
		at = spirv_find(r, r->workgroup_size, OP_SPEC_CONSTANT_COMPOSITE);
	if (!at || spirv_length(r, at) != 6)
		return spirv_refuse(r, "the size of a group is no constant");
	for (uint32_t i = 0; i < 3; i++)
		if (!spirv_constant_value(r, spirv_word(r, at + 3 + i), &block[i]))
			return spirv_refuse(r, "the size of a group is no constant");
	for (unsigned i = 0; i < r->module->kernel_count; i++)
		memcpy(r->module->kernels[i].block, block, sizeof(block));
	return STATUS_OK;
}

static enum status check_kernels(struct spirv_reader *r)
{
	enum status status = override_blocks(r);
	if (!status && !r->module->kernel_count)
		return spirv_refuse(r, "no kernel in it");
	for (unsigned i = 0; !status && i < r->module->kernel_count; i++) {
		const struct spirv_kernel *kernel = &r->module->kernels[i];
		uint64_t threads = 1;
		if (!spirv_find(r, r->entries[i], OP_FUNCTION))
			return spirv_refuse(r, "kernel %s is no function", kernel->name);
		for (int j = 0; j < 3 && threads; j++)
			threads = kernel->block[j] <= r->limits->block[j] ? threads * kernel->block[j] : 0;
		if (!threads || threads > r->limits->block_threads)
			status = spirv_refuse(r, "groups of %u x %u x %u; this device takes %u x %u x %u, together %u",
					      kernel->block[0], kernel->block[1], kernel->block[2], r->limits->block[0],
					      r->limits->block[1], r->limits->block[2], r->limits->block_threads);
	}
	if (!status && r->module->binding_count + r->module->constant_count > EXOGPU_KERNEL_ARGUMENTS)
		return spirv_refuse(r, "%u buffers and %u constants; %d together are taken", r->module->binding_count,
				    r->module->constant_count, EXOGPU_KERNEL_ARGUMENTS);
	return status;
}

static enum status check_header(struct spirv_reader *r, size_t length)
{
	if (length < 4 * HEADER_WORDS || length % 4 || length > LIMIT_MODULE_BYTES)
		return spirv_refuse(r, "%zu bytes are no module's length", length);
	r->words = (uint32_t)(length / 4);
	if (spirv_word(r, 0) == __builtin_bswap32(MAGIC))
		return spirv_refuse(r, "its bytes are in the other order; write it little-endian");
	if (spirv_word(r, 0) != MAGIC)
		return spirv_refuse(r, "it does not begin with 0x%08x but 0x%08x", MAGIC, spirv_word(r, 0));
	uint32_t version = spirv_word(r, 1);
	if (version < 0x00010000 || version > r->limits->version || version & 0xff)
		return spirv_refuse(r, "version %u.%u; this device takes 1.0 to %u.%u", version >> 16,
				    version >> 8 & 0xff, r->limits->version >> 16, r->limits->version >> 8 & 0xff);
	r->bound = spirv_word(r, 3);
	if (!r->bound || r->bound > LIMIT_SPIRV_IDS || spirv_word(r, 4))
		return spirv_refuse(r, "%u ids; at most %d", r->bound, LIMIT_SPIRV_IDS);
	return STATUS_OK;
}

enum status spirv_reflect(struct spirv_module *module, const uint8_t *bytes, size_t length,
			  const struct spirv_limits *limits, struct error *error)
{
	struct spirv_reader reader = {.bytes = bytes, .limits = limits, .module = module, .error = error};
	*module = (struct spirv_module){0};
	enum status status = check_header(&reader, length);
	if (status)
		return status;
	reader.ids = calloc(reader.bound, sizeof(*reader.ids));
	if (!reader.ids)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %u ids", reader.bound);
	status = walk(&reader, take);
	if (!status)
		status = walk(&reader, spirv_take_use);
	if (!status && reader.push)
		status = spirv_flatten(&reader, reader.push, 0, 0);
	if (!status)
		status = check_kernels(&reader);
	free(reader.ids);
	return status;
}
