/* See spirv.h. One pass over the instructions records where each id of types, constants,
 * variables and functions is defined and how it is decorated. Then variables are sorted
 * into buffers and constants, and kernels get their sizes. Some drivers assume that
 * functions end and that kernels are functions, so both are checked. A position counts
 * words from the beginning of the module. Depth of type chains and total size of arrays are
 * bounded. SPIR-V's numbers (section 3 of its specification) are in one enum and two
 * tables. */
#include "engine/vulkan/spirv.h"

#include "common/base/bytes.h"
#include "common/base/limits.h"

#include <stdlib.h>
#include <string.h>

enum {
	MAGIC = 0x07230203,
	HEADER_WORDS = 5,
	DEPTH = 16,      // of types in types
	TEXT_BYTES = 64, // of a name of an extension

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
	{62, SPIRV_SUBGROUP_VOTE},              // and what it can do
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

struct id {
	uint32_t at; // where it is defined; 0: nowhere that matters here
	uint32_t binding, array_stride;
	bool has_binding, has_set, buffer_block, built_in, workgroup_size;
};

struct reader {
	const uint8_t *bytes;
	uint32_t words;
	struct id *ids; // (bound)
	uint32_t bound;
	const struct spirv_limits *limits;
	struct spirv_module *module;
	struct error *error;
	uint32_t entries[EXOGPU_MODULE_KERNELS]; // ids of the kernels' functions
	uint32_t workgroup_size;                 // id of the constant that overrides their sizes; 0: none
	uint32_t push;                           // id of the block of push constants; 0: none
	uint64_t shared_bytes;
};

#define refuse(reader, ...) error_set((reader)->error, STATUS_INVALID_PARAMS, "not SPIR-V that runs here: " __VA_ARGS__)

static uint32_t word(const struct reader *r, uint32_t at)
{
	return read_u32le(r->bytes + 4 * (size_t)at);
}

static uint32_t op_of(const struct reader *r, uint32_t at)
{
	return word(r, at) & 0xffff;
}

static uint32_t length_of(const struct reader *r, uint32_t at)
{
	return word(r, at) >> 16;
}

// The position where an id is defined as `op`; 0: it is not.
static uint32_t find(const struct reader *r, uint32_t id, uint32_t op)
{
	uint32_t at = id < r->bound ? r->ids[id].at : 0;
	return at && op_of(r, at) == op ? at : 0;
}

// The text in words [at, end) into text[size]: printable, and not longer. False if it is none.
static bool read_text(const struct reader *r, uint32_t at, uint32_t end, char *text, size_t size)
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

static enum status take_capability(struct reader *r, uint32_t capability)
{
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
		if (capabilities[i].capability == capability) {
			if (!capabilities[i].needs || capabilities[i].needs & r->limits->features)
				return STATUS_OK;
			break;
		}
	return refuse(r, "this device was not opened with capability %u", capability);
}

static enum status take_extension(struct reader *r, uint32_t at, uint32_t end)
{
	char text[TEXT_BYTES];
	if (!read_text(r, at + 1, end, text, sizeof(text)))
		return refuse(r, "an extension without a name");
	for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++)
		if (!strcmp(text, extensions[i]))
			return STATUS_OK;
	return refuse(r, "extension %s", text);
}

static enum status take_import(struct reader *r, uint32_t at, uint32_t end)
{
	char text[TEXT_BYTES];
	if (end - at < 3 || !read_text(r, at + 2, end, text, sizeof(text)))
		return refuse(r, "instructions imported without a name");
	return strcmp(text, "GLSL.std.450") ? refuse(r, "instructions of %s", text) : STATUS_OK;
}

static enum status take_entry_point(struct reader *r, uint32_t at, uint32_t end)
{
	struct spirv_module *module = r->module;
	if (end - at < 4 || word(r, at + 1) != MODEL_GL_COMPUTE)
		return refuse(r, "an entry point that is no compute kernel");
	if (module->kernel_count == EXOGPU_MODULE_KERNELS)
		return refuse(r, "more than %d kernels", EXOGPU_MODULE_KERNELS);
	struct spirv_kernel *kernel = &module->kernels[module->kernel_count];
	if (!read_text(r, at + 3, end, kernel->name, sizeof(kernel->name)))
		return refuse(r, "a kernel's name is not 1 to %d printable characters", EXOGPU_KERNEL_NAME_BYTES - 1);
	for (unsigned i = 0; i < module->kernel_count; i++)
		if (!strcmp(module->kernels[i].name, kernel->name))
			return refuse(r, "two kernels %s", kernel->name);
	r->entries[module->kernel_count++] = word(r, at + 2);
	return STATUS_OK;
}

static enum status take_execution_mode(struct reader *r, uint32_t at, uint32_t end)
{
	if (end - at < 3)
		return refuse(r, "an execution mode is cut short");
	if (word(r, at + 2) != MODE_LOCAL_SIZE)
		return STATUS_OK;
	if (end - at != 6)
		return refuse(r, "a local size of %u words", end - at);
	for (unsigned i = 0; i < r->module->kernel_count; i++)
		if (r->entries[i] == word(r, at + 1))
			for (uint32_t j = 0; j < 3; j++)
				r->module->kernels[i].block[j] = word(r, at + 3 + j);
	return STATUS_OK;
}

static enum status take_decoration(struct reader *r, uint32_t at, uint32_t end)
{
	if (end - at < 3 || word(r, at + 1) >= r->bound)
		return refuse(r, "a decoration is cut short, or of no id");
	struct id *id = &r->ids[word(r, at + 1)];
	uint32_t value = end - at > 3 ? word(r, at + 3) : 0;
	switch (word(r, at + 2)) {
	case DECORATION_BUFFER_BLOCK:
		id->buffer_block = true;
		break;
	case DECORATION_ARRAY_STRIDE:
		id->array_stride = value;
		break;
	case DECORATION_BUILT_IN:
		id->built_in = true;
		if (value == BUILT_IN_WORKGROUP_SIZE)
			r->workgroup_size = word(r, at + 1);
		break;
	case DECORATION_BINDING:
		id->has_binding = true;
		id->binding = value;
		break;
	case DECORATION_DESCRIPTOR_SET:
		if (value)
			return refuse(r, "a binding in descriptor set %u; kernels have set 0 only", value);
		id->has_set = true;
		break;
	}
	return STATUS_OK;
}

static enum status define(struct reader *r, uint32_t at, uint32_t end, uint32_t id_word, uint32_t least_words)
{
	if (end - at < least_words)
		return refuse(r, "an instruction %u of %u words", op_of(r, at), end - at);
	uint32_t id = word(r, at + id_word);
	if (!id || id >= r->bound || r->ids[id].at)
		return refuse(r, "id %u is defined twice, or is none", id);
	r->ids[id].at = at;
	return STATUS_OK;
}

static enum status take(struct reader *r, uint32_t at, uint32_t end, bool in_functions)
{
	switch (op_of(r, at)) {
	case OP_CAPABILITY:
		return end - at == 2 ? take_capability(r, word(r, at + 1)) : refuse(r, "a capability is cut short");
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
		return refuse(r, "instruction %u is not taken", op_of(r, at));
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

static enum status walk(struct reader *r, enum status (*each)(struct reader *, uint32_t at, uint32_t end, bool))
{
	enum status status = STATUS_OK;
	bool in_functions = false, inside = false; // after the first function begins; between a beginning and an end
	for (uint32_t at = HEADER_WORDS; !status && at < r->words;) {
		uint32_t length = length_of(r, at);
		if (!length || length > r->words - at)
			return refuse(r, "instruction at word %u ends outside the module", at);
		const uint32_t op = op_of(r, at);
		if (!may_stand(op, in_functions, inside))
			return refuse(r, "instruction %u at word %u stands %s a function", op, at,
				      inside ? "inside" : "outside");
		inside = op == OP_FUNCTION || (inside && op != OP_FUNCTION_END);
		in_functions |= inside;
		status = each(r, at, at + length, in_functions);
		at += length;
	}
	return !status && inside ? refuse(r, "its last function does not end") : status;
}

// ---- types ----

// A constant's value as u32; false if it is none.
static bool constant_value(const struct reader *r, uint32_t id, uint32_t *value)
{
	uint32_t at = find(r, id, OP_CONSTANT);
	if (!at)
		at = find(r, id, OP_SPEC_CONSTANT);
	if (!at || length_of(r, at) != 4)
		return false;
	*value = word(r, at + 3);
	return true;
}

static uint64_t type_bytes(const struct reader *r, uint32_t id, unsigned depth);

static uint64_t struct_bytes(const struct reader *r, uint32_t at, unsigned depth)
{
	uint64_t bytes = 0;
	for (uint32_t i = 2; i < length_of(r, at); i++) {
		uint64_t member = type_bytes(r, word(r, at + i), depth + 1);
		if (!member || member > r->limits->shared_bytes - bytes)
			return 0;
		bytes += member;
	}
	return bytes;
}

// How many bytes a variable of this type takes, about; 0 if that cannot be told, or is more than shared memory. Each
// part takes at least one: so that is a bound on the parts that are looked at, too.
static uint64_t type_bytes(const struct reader *r, uint32_t id, unsigned depth)
{
	uint32_t at = id < r->bound ? r->ids[id].at : 0, count = 0;
	if (!at || depth == DEPTH)
		return 0;
	switch (op_of(r, at)) {
	case OP_TYPE_BOOL:
		return 4;
	case OP_TYPE_INT:
	case OP_TYPE_FLOAT:
		return word(r, at + 2) / 8;
	case OP_TYPE_POINTER:
		return 8;
	case OP_TYPE_STRUCT:
		return struct_bytes(r, at, depth);
	case OP_TYPE_VECTOR:
	case OP_TYPE_MATRIX:
		count = word(r, at + 3);
		break;
	case OP_TYPE_ARRAY:
		if (!constant_value(r, word(r, at + 3), &count))
			return 0;
		break;
	}
	uint64_t each = count ? type_bytes(r, word(r, at + 2), depth + 1) : 0;
	return each && count <= r->limits->shared_bytes / each ? each * count : 0;
}

// The offset of a member of the structure; UINT32_MAX if not given.
static uint32_t member_offset(const struct reader *r, uint32_t structure, uint32_t member)
{
	for (uint32_t at = HEADER_WORDS; at < r->words && op_of(r, at) != OP_FUNCTION; at += length_of(r, at))
		if (op_of(r, at) == OP_MEMBER_DECORATE && length_of(r, at) == 5 && word(r, at + 1) == structure &&
		    word(r, at + 2) == member && word(r, at + 3) == DECORATION_OFFSET)
			return word(r, at + 4);
	return UINT32_MAX;
}

static enum status add_constant(struct reader *r, uint64_t offset, uint32_t bytes)
{
	struct spirv_module *module = r->module;
	if (bytes != 4 && bytes != 8)
		return refuse(r, "a push constant of %u bits; 32 and 64 are taken", 8 * bytes);
	if (module->constant_count == EXOGPU_KERNEL_ARGUMENTS)
		return refuse(r, "more than %d push constants", EXOGPU_KERNEL_ARGUMENTS);
	if (offset % 4 || offset < module->push_bytes || offset + bytes > r->limits->push_bytes)
		return refuse(r, "a push constant at byte %llu; they follow each other, within %u bytes",
			      (unsigned long long)offset, r->limits->push_bytes);
	module->constants[module->constant_count++] = (struct spirv_constant){
		.kind = bytes == 4 ? EXOGPU_ARGUMENT_WORD : EXOGPU_ARGUMENT_DWORD, .offset = (uint32_t)offset};
	module->push_bytes = (uint32_t)offset + bytes;
	return STATUS_OK;
}

static enum status flatten(struct reader *r, uint32_t id, uint64_t offset, unsigned depth);

static enum status flatten_struct(struct reader *r, uint32_t id, uint32_t at, uint64_t offset, unsigned depth)
{
	enum status status = STATUS_OK;
	uint32_t members = length_of(r, at) - 2;
	if (!members || members > EXOGPU_KERNEL_ARGUMENTS)
		return refuse(r, "a structure of %u push constants", members);
	for (uint32_t i = 0; !status && i < members; i++) {
		uint32_t member = member_offset(r, id, i);
		if (member == UINT32_MAX)
			return refuse(r, "a push constant without an offset");
		status = flatten(r, word(r, at + 2 + i), offset + member, depth + 1);
	}
	return status;
}

// `count` of one type, each `stride` bytes behind the last.
static enum status flatten_run(struct reader *r, uint32_t id, uint64_t offset, uint32_t count, uint32_t stride,
			       unsigned depth)
{
	enum status status = STATUS_OK;
	if (!count || count > EXOGPU_KERNEL_ARGUMENTS || !stride)
		return refuse(r, "an array of %u push constants", count);
	for (uint32_t i = 0; !status && i < count; i++)
		status = flatten(r, id, offset + (uint64_t)i * stride, depth + 1);
	return status;
}

// The scalars of a type, in order, as constants. Each adds at least one, so that their bound bounds the work.
static enum status flatten(struct reader *r, uint32_t id, uint64_t offset, unsigned depth)
{
	uint32_t at = id < r->bound ? r->ids[id].at : 0, count = 0;
	if (!at || depth == DEPTH)
		return refuse(r, "a push constant of type %u", id);
	switch (op_of(r, at)) {
	case OP_TYPE_INT:
	case OP_TYPE_FLOAT:
		return add_constant(r, offset, word(r, at + 2) / 8);
	case OP_TYPE_POINTER:
		if (word(r, at + 2) == CLASS_PHYSICAL_STORAGE_BUFFER)
			return add_constant(r, offset, 8);
		break;
	case OP_TYPE_VECTOR:
		return flatten_run(r, word(r, at + 2), offset, word(r, at + 3),
				   (uint32_t)type_bytes(r, word(r, at + 2), depth), depth);
	case OP_TYPE_ARRAY:
		if (!constant_value(r, word(r, at + 3), &count))
			break;
		return flatten_run(r, word(r, at + 2), offset, count, r->ids[id].array_stride, depth);
	case OP_TYPE_STRUCT:
		return flatten_struct(r, id, at, offset, depth);
	}
	return refuse(r, "push constants are numbers, vectors, arrays, structures and addresses, not type %u", id);
}

// ---- variables ----

static enum status add_buffer(struct reader *r, uint32_t id, uint32_t type)
{
	struct spirv_module *module = r->module;
	const struct id *told = &r->ids[id];
	unsigned i = 0;
	if (!find(r, type, OP_TYPE_STRUCT))
		return refuse(r, "an array of buffers; each has its own binding here");
	if (!told->has_binding || !told->has_set || told->binding >= LIMIT_SPIRV_BINDINGS)
		return refuse(r, "a buffer without a binding below %d in set 0", LIMIT_SPIRV_BINDINGS);
	while (i < module->binding_count && module->bindings[i] < told->binding)
		i++;
	if (i < module->binding_count && module->bindings[i] == told->binding)
		return STATUS_OK; // two views of one buffer
	if (module->binding_count == EXOGPU_KERNEL_ARGUMENTS || module->binding_count == r->limits->buffers)
		return refuse(r, "more than %u buffers", module->binding_count);
	memmove(&module->bindings[i + 1], &module->bindings[i],
		(module->binding_count - i) * sizeof(module->bindings[0]));
	module->bindings[i] = told->binding;
	module->binding_count++;
	return STATUS_OK;
}

static enum status add_push(struct reader *r, uint32_t type)
{
	if (r->push && r->push != type)
		return refuse(r, "two blocks of push constants");
	if (!find(r, type, OP_TYPE_STRUCT))
		return refuse(r, "push constants that are no structure");
	r->push = type;
	return STATUS_OK;
}

// Checks uses of ids that are defined before or after this point.
static enum status take_use(struct reader *r, uint32_t at, uint32_t end, bool in_functions)
{
	if (op_of(r, at) == OP_FUNCTION_CALL && (end - at < 4 || !find(r, word(r, at + 3), OP_FUNCTION)))
		return refuse(r, "a call of what is no function");
	if (in_functions || op_of(r, at) != OP_VARIABLE)
		return STATUS_OK;
	uint32_t pointer = find(r, word(r, at + 1), OP_TYPE_POINTER), id = word(r, at + 2), class = word(r, at + 3);
	if (!pointer || word(r, pointer + 2) != class)
		return refuse(r, "variable %u has no type of its class", id);
	uint32_t type = word(r, pointer + 3);
	uint64_t bytes;
	switch (class) {
	case CLASS_STORAGE_BUFFER:
		return add_buffer(r, id, type);
	case CLASS_UNIFORM:
		if (type < r->bound && r->ids[type].buffer_block)
			return add_buffer(r, id, type);
		return refuse(r, "a uniform buffer; constants are push constants here, data storage buffers");
	case CLASS_PUSH_CONSTANT:
		return add_push(r, type);
	case CLASS_WORKGROUP:
		bytes = type_bytes(r, type, 0);
		if (!bytes || (r->shared_bytes += bytes) > r->limits->shared_bytes)
			return refuse(r, "more than %u bytes of shared memory", r->limits->shared_bytes);
		return STATUS_OK;
	case CLASS_INPUT:
		return r->ids[id].built_in ? STATUS_OK : refuse(r, "variable %u is an input of no kernel", id);
	case CLASS_PRIVATE:
		return STATUS_OK;
	}
	return refuse(r, "variable %u of class %u; kernels have buffers and push constants", id, class);
}

// ---- kernels ----

// A constant that is decorated as the size of a group holds for all kernels.
static enum status override_blocks(struct reader *r)
{
	if (!r->workgroup_size)
		return STATUS_OK;
	uint32_t at = find(r, r->workgroup_size, OP_CONSTANT_COMPOSITE), block[3];
	if (!at)
		at = find(r, r->workgroup_size, OP_SPEC_CONSTANT_COMPOSITE);
	if (!at || length_of(r, at) != 6)
		return refuse(r, "the size of a group is no constant");
	for (uint32_t i = 0; i < 3; i++)
		if (!constant_value(r, word(r, at + 3 + i), &block[i]))
			return refuse(r, "the size of a group is no constant");
	for (unsigned i = 0; i < r->module->kernel_count; i++)
		memcpy(r->module->kernels[i].block, block, sizeof(block));
	return STATUS_OK;
}

static enum status check_kernels(struct reader *r)
{
	enum status status = override_blocks(r);
	if (!status && !r->module->kernel_count)
		return refuse(r, "no kernel in it");
	for (unsigned i = 0; !status && i < r->module->kernel_count; i++) {
		const struct spirv_kernel *kernel = &r->module->kernels[i];
		uint64_t threads = 1;
		if (!find(r, r->entries[i], OP_FUNCTION))
			return refuse(r, "kernel %s is no function", kernel->name);
		for (int j = 0; j < 3 && threads; j++)
			threads = kernel->block[j] <= r->limits->block[j] ? threads * kernel->block[j] : 0;
		if (!threads || threads > r->limits->block_threads)
			status = refuse(r, "groups of %u x %u x %u; this device takes %u x %u x %u, together %u",
					kernel->block[0], kernel->block[1], kernel->block[2], r->limits->block[0],
					r->limits->block[1], r->limits->block[2], r->limits->block_threads);
	}
	if (!status && r->module->binding_count + r->module->constant_count > EXOGPU_KERNEL_ARGUMENTS)
		return refuse(r, "%u buffers and %u constants; %d together are taken", r->module->binding_count,
			      r->module->constant_count, EXOGPU_KERNEL_ARGUMENTS);
	return status;
}

static enum status check_header(struct reader *r, size_t length)
{
	if (length < 4 * HEADER_WORDS || length % 4 || length > LIMIT_MODULE_BYTES)
		return refuse(r, "%zu bytes are no module's length", length);
	r->words = (uint32_t)(length / 4);
	if (word(r, 0) == __builtin_bswap32(MAGIC))
		return refuse(r, "its bytes are in the other order; write it little-endian");
	if (word(r, 0) != MAGIC)
		return refuse(r, "it does not begin with 0x%08x but 0x%08x", MAGIC, word(r, 0));
	uint32_t version = word(r, 1);
	if (version < 0x00010000 || version > r->limits->version || version & 0xff)
		return refuse(r, "version %u.%u; this device takes 1.0 to %u.%u", version >> 16, version >> 8 & 0xff,
			      r->limits->version >> 16, r->limits->version >> 8 & 0xff);
	r->bound = word(r, 3);
	if (!r->bound || r->bound > LIMIT_SPIRV_IDS || word(r, 4))
		return refuse(r, "%u ids; at most %d", r->bound, LIMIT_SPIRV_IDS);
	return STATUS_OK;
}

enum status spirv_reflect(struct spirv_module *module, const uint8_t *bytes, size_t length,
			  const struct spirv_limits *limits, struct error *error)
{
	struct reader reader = {.bytes = bytes, .limits = limits, .module = module, .error = error};
	*module = (struct spirv_module){0};
	enum status status = check_header(&reader, length);
	if (status)
		return status;
	reader.ids = calloc(reader.bound, sizeof(*reader.ids));
	if (!reader.ids)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %u ids", reader.bound);
	status = walk(&reader, take);
	if (!status)
		status = walk(&reader, take_use);
	if (!status && reader.push)
		status = flatten(&reader, reader.push, 0, 0);
	if (!status)
		status = check_kernels(&reader);
	free(reader.ids);
	return status;
}
