/* Types and variables of a SPIR-V module: their sizes, the buffers, and the members of the block of push constants.
 * Depth of type chains and total size of arrays are bounded. See spirv.h. */
#include "common/base/limits.h"
#include "engine/vulkan/spirv_inside.h"

#include <string.h>

// ---- types ----

bool spirv_constant_value(const struct spirv_reader *r, uint32_t id, uint32_t *value)
{
	uint32_t at = spirv_find(r, id, OP_CONSTANT);
	if (!at)
		at = spirv_find(r, id, OP_SPEC_CONSTANT);
	if (!at || spirv_length(r, at) != 4)
		return false;
	*value = spirv_word(r, at + 3);
	return true;
}

static uint64_t type_bytes(const struct spirv_reader *r, uint32_t id, unsigned depth);

static uint64_t struct_bytes(const struct spirv_reader *r, uint32_t at, unsigned depth)
{
	uint64_t bytes = 0;
	for (uint32_t i = 2; i < spirv_length(r, at); i++) {
		uint64_t member = type_bytes(r, spirv_word(r, at + i), depth + 1);
		if (!member || member > r->limits->shared_bytes - bytes)
			return 0;
		bytes += member;
	}
	return bytes;
}

// How many bytes a variable of this type takes, about; 0 if that cannot be told, or is more than shared memory. Each
// part takes at least one: so that is a bound on the parts that are looked at, too.
static uint64_t type_bytes(const struct spirv_reader *r, uint32_t id, unsigned depth)
{
	uint32_t at = id < r->bound ? r->ids[id].at : 0, count = 0;
	if (!at || depth == DEPTH)
		return 0;
	switch (spirv_op(r, at)) {
	case OP_TYPE_BOOL:
		return 4;
	case OP_TYPE_INT:
	case OP_TYPE_FLOAT:
		return spirv_word(r, at + 2) / 8;
	case OP_TYPE_POINTER:
		return 8;
	case OP_TYPE_STRUCT:
		return struct_bytes(r, at, depth);
	case OP_TYPE_VECTOR:
	case OP_TYPE_MATRIX:
		count = spirv_word(r, at + 3);
		break;
	case OP_TYPE_ARRAY:
		if (!spirv_constant_value(r, spirv_word(r, at + 3), &count))
			return 0;
		break;
	}
	uint64_t each = count ? type_bytes(r, spirv_word(r, at + 2), depth + 1) : 0;
	return each && count <= r->limits->shared_bytes / each ? each * count : 0;
}

// The offset of a member of the structure; UINT32_MAX if not given.
static uint32_t member_offset(const struct spirv_reader *r, uint32_t structure, uint32_t member)
{
	for (uint32_t at = HEADER_WORDS; at < r->words && spirv_op(r, at) != OP_FUNCTION; at += spirv_length(r, at))
		if (spirv_op(r, at) == OP_MEMBER_DECORATE && spirv_length(r, at) == 5 &&
		    spirv_word(r, at + 1) == structure && spirv_word(r, at + 2) == member &&
		    spirv_word(r, at + 3) == DECORATION_OFFSET)
			return spirv_word(r, at + 4);
	return UINT32_MAX;
}

static enum status add_constant(struct spirv_reader *r, uint64_t offset, uint32_t bytes)
{
	struct spirv_module *module = r->module;
	if (bytes != 4 && bytes != 8)
		return spirv_refuse(r, "a push constant of %u bits; 32 and 64 are taken", 8 * bytes);
	if (module->constant_count == EXOGPU_KERNEL_ARGUMENTS)
		return spirv_refuse(r, "more than %d push constants", EXOGPU_KERNEL_ARGUMENTS);
	if (offset % 4 || offset < module->push_bytes || offset + bytes > r->limits->push_bytes)
		return spirv_refuse(r, "a push constant at byte %llu; they follow each other, within %u bytes",
				    (unsigned long long)offset, r->limits->push_bytes);
	module->constants[module->constant_count++] = (struct spirv_constant){
		.kind = bytes == 4 ? EXOGPU_ARGUMENT_WORD : EXOGPU_ARGUMENT_DWORD, .offset = (uint32_t)offset};
	module->push_bytes = (uint32_t)offset + bytes;
	return STATUS_OK;
}

static enum status flatten_struct(struct spirv_reader *r, uint32_t id, uint32_t at, uint64_t offset, unsigned depth)
{
	enum status status = STATUS_OK;
	uint32_t members = spirv_length(r, at) - 2;
	if (!members || members > EXOGPU_KERNEL_ARGUMENTS)
		return spirv_refuse(r, "a structure of %u push constants", members);
	for (uint32_t i = 0; !status && i < members; i++) {
		uint32_t member = member_offset(r, id, i);
		if (member == UINT32_MAX)
			return spirv_refuse(r, "a push constant without an offset");
		status = spirv_flatten(r, spirv_word(r, at + 2 + i), offset + member, depth + 1);
	}
	return status;
}

// `count` of one type, each `stride` bytes behind the last.
static enum status flatten_run(struct spirv_reader *r, uint32_t id, uint64_t offset, uint32_t count, uint32_t stride,
			       unsigned depth)
{
	enum status status = STATUS_OK;
	if (!count || count > EXOGPU_KERNEL_ARGUMENTS || !stride)
		return spirv_refuse(r, "an array of %u push constants", count);
	for (uint32_t i = 0; !status && i < count; i++)
		status = spirv_flatten(r, id, offset + (uint64_t)i * stride, depth + 1);
	return status;
}

enum status spirv_flatten(struct spirv_reader *r, uint32_t id, uint64_t offset, unsigned depth)
{
	uint32_t at = id < r->bound ? r->ids[id].at : 0, count = 0;
	if (!at || depth == DEPTH)
		return spirv_refuse(r, "a push constant of type %u", id);
	switch (spirv_op(r, at)) {
	case OP_TYPE_INT:
	case OP_TYPE_FLOAT:
		return add_constant(r, offset, spirv_word(r, at + 2) / 8);
	case OP_TYPE_POINTER:
		if (spirv_word(r, at + 2) == CLASS_PHYSICAL_STORAGE_BUFFER)
			return add_constant(r, offset, 8);
		break;
	case OP_TYPE_VECTOR:
		return flatten_run(r, spirv_word(r, at + 2), offset, spirv_word(r, at + 3),
				   (uint32_t)type_bytes(r, spirv_word(r, at + 2), depth), depth);
	case OP_TYPE_ARRAY:
		if (!spirv_constant_value(r, spirv_word(r, at + 3), &count))
			break;
		return flatten_run(r, spirv_word(r, at + 2), offset, count, r->ids[id].array_stride, depth);
	case OP_TYPE_STRUCT:
		return flatten_struct(r, id, at, offset, depth);
	}
	return spirv_refuse(r, "push constants are numbers, vectors, arrays, structures and addresses, not type %u",
			    id);
}

// ---- variables ----

static enum status add_buffer(struct spirv_reader *r, uint32_t id, uint32_t type)
{
	struct spirv_module *module = r->module;
	const struct spirv_id *told = &r->ids[id];
	unsigned i = 0;
	if (!spirv_find(r, type, OP_TYPE_STRUCT))
		return spirv_refuse(r, "an array of buffers; each has its own binding here");
	if (!told->has_binding || !told->has_set || told->binding >= LIMIT_SPIRV_BINDINGS)
		return spirv_refuse(r, "a buffer without a binding below %d in set 0", LIMIT_SPIRV_BINDINGS);
	while (i < module->binding_count && module->bindings[i] < told->binding)
		i++;
	if (i < module->binding_count && module->bindings[i] == told->binding)
		return STATUS_OK; // two views of one buffer
	if (module->binding_count == EXOGPU_KERNEL_ARGUMENTS || module->binding_count == r->limits->buffers)
		return spirv_refuse(r, "more than %u buffers", module->binding_count);
	memmove(&module->bindings[i + 1], &module->bindings[i],
		(module->binding_count - i) * sizeof(module->bindings[0]));
	module->bindings[i] = told->binding;
	module->binding_count++;
	return STATUS_OK;
}

static enum status add_push(struct spirv_reader *r, uint32_t type)
{
	if (r->push && r->push != type)
		return spirv_refuse(r, "two blocks of push constants");
	if (!spirv_find(r, type, OP_TYPE_STRUCT))
		return spirv_refuse(r, "push constants that are no structure");
	r->push = type;
	return STATUS_OK;
}

enum status spirv_take_use(struct spirv_reader *r, uint32_t at, uint32_t end, bool in_functions)
{
	if (spirv_op(r, at) == OP_FUNCTION_CALL && (end - at < 4 || !spirv_find(r, spirv_word(r, at + 3), OP_FUNCTION)))
		return spirv_refuse(r, "a call of a value that is not a function");
	if (in_functions || spirv_op(r, at) != OP_VARIABLE)
		return STATUS_OK;
	uint32_t pointer = spirv_find(r, spirv_word(r, at + 1), OP_TYPE_POINTER), id = spirv_word(r, at + 2),
		 class = spirv_word(r, at + 3);
	if (!pointer || spirv_word(r, pointer + 2) != class)
		return spirv_refuse(r, "variable %u has no type of its class", id);
	uint32_t type = spirv_word(r, pointer + 3);
	uint64_t bytes;
	switch (class) {
	case CLASS_STORAGE_BUFFER:
		return add_buffer(r, id, type);
	case CLASS_UNIFORM:
		if (type < r->bound && r->ids[type].buffer_block)
			return add_buffer(r, id, type);
		return spirv_refuse(r, "a uniform buffer; constants are push constants here, data storage buffers");
	case CLASS_PUSH_CONSTANT:
		return add_push(r, type);
	case CLASS_WORKGROUP:
		bytes = type_bytes(r, type, 0);
		if (!bytes || (r->shared_bytes += bytes) > r->limits->shared_bytes)
			return spirv_refuse(r, "more than %u bytes of shared memory", r->limits->shared_bytes);
		return STATUS_OK;
	case CLASS_INPUT:
		return r->ids[id].built_in ? STATUS_OK : spirv_refuse(r, "variable %u is an input of no kernel", id);
	case CLASS_PRIVATE:
		return STATUS_OK;
	}
	return spirv_refuse(r, "variable %u of class %u; kernels have buffers and push constants", id, class);
}
