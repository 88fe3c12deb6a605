/* Memory of a Vulkan device: a few large blocks of each memory type, with buffers inside them. A
 * driver allows few allocations and is slow at each (about 20 ms/GiB on an H200). So a block has 64
 * MiB, and each further one of its type twice the last size, up to 256 MiB; a request of more than
 * half a block gets its own allocation. An empty block is freed, except one of each type. When a heap
 * is full, empty blocks are freed and smaller ones tried, down to the request's size. We bound each
 * heap by its size and, with VK_EXT_memory_budget, by the driver's remaining budget, because llvmpipe
 * would hand out more than there is. A single allocation above maxMemoryAllocationSize is left to the
 * driver: NVIDIA's says 4 GiB and gives 64. Imported memory is a block of its own and belongs to no
 * heap. */
#include "common/base/list.h"
#include "engine/vulkan/device.h"

#include <stdlib.h>

#define MIB (1024ull * 1024)

#define IMPORTED VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT

enum { BUFFER_ALIGNMENT = 256 }; // enough for anything that a shader loads at once, and for any offset of a descriptor
static const uint64_t block_first_bytes = 64 * MIB, block_most_bytes = 256 * MIB;

// ---- types of memory ----

static const struct {
	VkMemoryPropertyFlags needs, likes, dislikes;
} wanted[] = {
	[EXOGPU_MEMORY_DEVICE] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT},
	[EXOGPU_MEMORY_HOST] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
				VK_MEMORY_PROPERTY_HOST_CACHED_BIT, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT},
	[EXOGPU_MEMORY_MAPPED] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					  VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
				  VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 0},
};

// Known properties; a memory type with any other property (protected, lazily allocated) is not used for buffers.
static const VkMemoryPropertyFlags known = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
					   VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;

static int score(enum exogpu_memory memory, VkMemoryPropertyFlags flags)
{
	return (flags & wanted[memory].likes ? 2 : 0) - (flags & wanted[memory].dislikes ? 1 : 0);
}

void vulkan_memory_sort(struct backend_device *device)
{
	for (int kind = EXOGPU_MEMORY_DEVICE; kind <= EXOGPU_MEMORY_MAPPED; kind++) {
		struct vulkan_types *types = &device->types[kind];
		for (int worth = 2; worth >= -1; worth--)
			for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++) {
				VkMemoryPropertyFlags flags = device->memory.memoryTypes[i].propertyFlags;
				if ((flags & wanted[kind].needs) == wanted[kind].needs && !(flags & ~known) &&
				    score((enum exogpu_memory)kind, flags) == worth)
					types->index[types->count++] = i;
			}
	}
}

// The remaining budget of a heap, if the driver reports it.
static uint64_t heap_left(const struct backend_device *device, uint32_t heap)
{
	uint64_t size = device->memory.memoryHeaps[heap].size, used = device->heap_used[heap];
	uint64_t left = used < size ? size - used : 0;
	if (!device->budget)
		return left;
	VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
		.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
	VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
						    .pNext = &budget};
	device->vulkan->vkGetPhysicalDeviceMemoryProperties2(device->physical, &memory);
	uint64_t told = budget.heapBudget[heap] > budget.heapUsage[heap]
				? budget.heapBudget[heap] - budget.heapUsage[heap]
				: 0;
	return told < left ? told : left;
}

enum status vulkan_memory_told(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes,
			       struct error *error)
{
	(void)error;
	*total_bytes = *free_bytes = 0;
	for (uint32_t i = 0; i < device->memory.memoryHeapCount; i++) {
		if (!(device->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT))
			continue;
		*total_bytes += device->memory.memoryHeaps[i].size;
		*free_bytes += heap_left(device, i);
	}
	for (const struct vulkan_block *block = device->blocks; block; block = block->next) {
		uint32_t heap = device->memory.memoryTypes[block->type].heapIndex;
		if (!block->only && device->memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
			*free_bytes += block->ranges.free_bytes;
	}
	return STATUS_OK;
}

// ---- blocks ----

static void block_destroy(struct backend_device *device, struct vulkan_block *block)
{
	for (struct vulkan_block **link = &device->blocks; *link; link = &(*link)->next)
		if (*link == block) {
			*link = block->next;
			break;
		}
	if (block->memory) {
		device->fn.vkFreeMemory(device->device, block->memory, NULL);
		if (!block->imported)
			device->heap_used[device->memory.memoryTypes[block->type].heapIndex] -= block->bytes;
		device->allocations--;
	}
	ranges_finish(&block->ranges);
	free(block);
}

// Give back the shared blocks of this heap that hold nothing.
static void trim(struct backend_device *device, uint32_t heap)
{
	struct vulkan_block *next;
	for (struct vulkan_block *block = device->blocks; block; block = next) {
		next = block->next;
		if (!block->ranges.taken && device->memory.memoryTypes[block->type].heapIndex == heap)
			block_destroy(device, block);
	}
}

static enum status out_of_memory(struct backend_device *device, uint32_t type, uint64_t bytes, struct error *error)
{
	uint32_t heap = device->memory.memoryTypes[type].heapIndex;
	if (bytes > device->largest_allocation && heap_left(device, heap) >= bytes) {
		error_hint(error, "make several buffers instead of one");
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the driver refuses %llu bytes in one piece (it promises %llu)",
				 (unsigned long long)bytes, (unsigned long long)device->largest_allocation);
	}
	return error_set(error, STATUS_OUT_OF_MEMORY, "no %llu bytes are left in heap %u of the device (%llu of %llu)",
			 (unsigned long long)bytes, heap, (unsigned long long)heap_left(device, heap),
			 (unsigned long long)device->memory.memoryHeaps[heap].size);
}

// `imported`: the memory of the block, which is for its buffer alone; NULL: it is allocated.
static enum status block_create(struct backend_device *device, struct vulkan_block **out, uint32_t type, uint64_t bytes,
				bool only, void *imported, struct error *error)
{
	uint32_t heap = device->memory.memoryTypes[type].heapIndex;
	*out = NULL;
	if (!imported && bytes > heap_left(device, heap))
		return out_of_memory(device, type, bytes, error);
	if (device->allocations >= device->properties.limits.maxMemoryAllocationCount)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the device allows %u allocations, and all are taken",
				 device->properties.limits.maxMemoryAllocationCount);
	struct vulkan_block *block = calloc(1, sizeof(*block));
	if (!block || ranges_init(&block->ranges, bytes)) {
		free(block);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a block's record");
	}
	VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
					   .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
	VkImportMemoryHostPointerInfoEXT import = {.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
						   .pNext = device->addresses ? &flags : NULL,
						   .handleType = IMPORTED,
						   .pHostPointer = imported};
	VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
				     .pNext = imported ? &import : import.pNext,
				     .allocationSize = bytes,
				     .memoryTypeIndex = type};
	block->type = type;
	block->bytes = bytes;
	block->only = only;
	block->imported = imported;
	block->mapped = imported;
	VkResult result = VULKAN_MADE(block->memory,
				      device->fn.vkAllocateMemory(device->device, &info, NULL, &block->memory));
	if (result) {
		block_destroy(device, block);
		if (!imported && (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY))
			return out_of_memory(device, type, bytes, error);
		return vulkan_device_failed(device, error, "vkAllocateMemory", result);
	}
	device->heap_used[heap] += imported ? 0 : bytes;
	device->allocations++;
	block->next = device->blocks;
	device->blocks = block;
	*out = block;
	return STATUS_OK;
}

// How large the next shared block of this type should be: as large as all of them, within bounds.
static uint64_t next_block_bytes(const struct backend_device *device, uint32_t type)
{
	uint64_t bytes = 0;
	for (const struct vulkan_block *block = device->blocks; block; block = block->next)
		bytes += block->type == type && !block->only ? block->bytes : 0;
	if (bytes < block_first_bytes)
		bytes = block_first_bytes;
	if (bytes > block_most_bytes)
		bytes = block_most_bytes;
	uint64_t share = device->memory.memoryHeaps[device->memory.memoryTypes[type].heapIndex].size / 8;
	while (bytes > share && bytes > MIB)
		bytes /= 2;
	return bytes;
}

static uint64_t aligned(uint64_t bytes, uint64_t alignment)
{
	return (bytes + alignment - 1) & ~(alignment - 1);
}

// A new block for a request: of the preferred size, else the smallest possible. Only the last failure is reported.
static enum status grow(struct backend_device *device, struct vulkan_block **out, uint32_t type, uint64_t bytes,
			struct error *error)
{
	uint64_t block_bytes = next_block_bytes(device, type);
	bool only = bytes > block_bytes / 2;
	enum status status = STATUS_OUT_OF_MEMORY;
	for (; !only && status == STATUS_OUT_OF_MEMORY && block_bytes >= 2 * bytes; block_bytes /= 2)
		status = block_create(device, out, type, block_bytes, false, NULL, NULL);
	if (status == STATUS_OUT_OF_MEMORY) {
		status = block_create(device, out, type, bytes, true, NULL, NULL);
		if (status == STATUS_OUT_OF_MEMORY)
			trim(device, device->memory.memoryTypes[type].heapIndex);
	}
	if (device->lost)
		return vulkan_failed(error, "vkAllocateMemory", VK_ERROR_DEVICE_LOST);
	return status ? block_create(device, out, type, bytes, true, NULL, error) : STATUS_OK;
}

static enum status place(struct backend_device *device, struct backend_buffer *buffer, uint32_t type,
			 const VkMemoryRequirements *needs, struct error *error)
{
	uint64_t alignment = needs->alignment > BUFFER_ALIGNMENT ? needs->alignment : BUFFER_ALIGNMENT;
	buffer->block_bytes = aligned(needs->size, alignment);
	for (struct vulkan_block *block = device->blocks; block; block = block->next)
		if (block->type == type && !block->only &&
		    ranges_take(&block->ranges, buffer->block_bytes, alignment, &buffer->offset) == STATUS_OK) {
			buffer->block = block;
			return STATUS_OK;
		}
	struct vulkan_block *block;
	enum status status = grow(device, &block, type, buffer->block_bytes, error);
	if (!status && ranges_take(&block->ranges, buffer->block_bytes, alignment, &buffer->offset))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a block's record");
	if (!status)
		buffer->block = block;
	return status;
}

static void give_back(struct backend_device *device, struct backend_buffer *buffer)
{
	struct vulkan_block *block = buffer->block;
	if (!block)
		return;
	ranges_give(&block->ranges, buffer->offset, buffer->block_bytes);
	if (block->ranges.taken)
		return;
	bool keep = !block->only;
	for (const struct vulkan_block *other = device->blocks; other; other = other->next)
		if (other != block && other->type == block->type && !other->only && !other->ranges.taken)
			keep = false;
	if (!keep)
		block_destroy(device, block);
}

// ---- buffers ----

static enum status map(struct backend_device *device, struct backend_buffer *buffer, struct error *error)
{
	struct vulkan_block *block = buffer->block;
	if (!block->mapped) {
		void *mapped;
		VkResult result = device->fn.vkMapMemory(device->device, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
		if (result)
			return vulkan_device_failed(device, error, "vkMapMemory", result);
		block->mapped = mapped;
	}
	buffer->pointer = block->mapped + buffer->offset;
	return STATUS_OK;
}

// The best memory type for importing this memory, among those that the buffer may use.
static enum status import(struct backend_device *device, struct backend_buffer *buffer, void *memory,
			  const VkMemoryRequirements *needs, struct error *error)
{
	VkMemoryHostPointerPropertiesEXT host = {.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
	VkResult result = device->fn.vkGetMemoryHostPointerPropertiesEXT(device->device, IMPORTED, memory, &host);
	if (result)
		return vulkan_device_failed(device, error, "vkGetMemoryHostPointerPropertiesEXT", result);
	const struct vulkan_types *types = &device->types[EXOGPU_MEMORY_HOST];
	unsigned best = 0;
	while (best < types->count && !(host.memoryTypeBits & needs->memoryTypeBits & 1u << types->index[best]))
		best++;
	if (best == types->count || needs->size > buffer->bytes)
		return error_set(error, STATUS_UNAVAILABLE, "the driver has no use for memory that is imported");
	buffer->block_bytes = buffer->bytes;
	enum status status = block_create(device, &buffer->block, types->index[best], buffer->bytes, true, memory,
					  error);
	if (!status && ranges_take(&buffer->block->ranges, buffer->bytes, 1, &buffer->offset))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a block's record");
	return status;
}

static enum status make(struct backend_device *device, struct backend_buffer *buffer, void *imported,
			struct error *error)
{
	VkExternalMemoryBufferCreateInfo external = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
						     .handleTypes = IMPORTED};
	VkBufferCreateInfo info = {
		.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
		.pNext = imported ? &external : NULL,
		.size = buffer->bytes,
		.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
			 VK_BUFFER_USAGE_TRANSFER_DST_BIT |
			 (device->addresses ? VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT : 0u),
		.sharingMode = VK_SHARING_MODE_EXCLUSIVE,
	};
	VkResult result = VULKAN_MADE(buffer->buffer,
				      device->fn.vkCreateBuffer(device->device, &info, NULL, &buffer->buffer));
	if (result)
		return vulkan_device_failed(device, error, "vkCreateBuffer", result);
	VkMemoryRequirements needs;
	device->fn.vkGetBufferMemoryRequirements(device->device, buffer->buffer, &needs);
	const struct vulkan_types *types = &device->types[buffer->memory];
	enum status status = imported ? import(device, buffer, imported, &needs, error) : STATUS_UNAVAILABLE;
	if (imported && status)
		return status;
	for (unsigned i = 0, tried = 0; status && !device->lost && i < types->count; i++) {
		if (!(needs.memoryTypeBits & (1u << types->index[i])))
			continue;
		struct error fault = {0};
		status = place(device, buffer, types->index[i], &needs, &fault);
		if (status && !tried++) { // if no type has room, the error of the best type is reported
			error_hint(error, "%s", fault.hint);
			error_set(error, status, "%s", fault.message);
		}
	}
	if (status && device->lost)
		return vulkan_failed(error, "vkAllocateMemory", VK_ERROR_DEVICE_LOST);
	if (status)
		return error ? error_set(error, status, "no memory of this kind takes a buffer") : status;
	result = device->fn.vkBindBufferMemory(device->device, buffer->buffer, buffer->block->memory, buffer->offset);
	if (result)
		return vulkan_device_failed(device, error, "vkBindBufferMemory", result);
	if (device->addresses) {
		VkBufferDeviceAddressInfo address = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
						     .buffer = buffer->buffer};
		buffer->address = device->fn.vkGetBufferDeviceAddress(device->device, &address);
	}
	return buffer->memory == EXOGPU_MEMORY_DEVICE ? STATUS_OK : map(device, buffer, error);
}

enum status vulkan_buffer_create(struct backend_device *device, struct backend_buffer **out,
				 const struct backend_buffer_params *params, struct error *error)
{
	*out = NULL;
	if (device->largest_buffer && params->bytes > device->largest_buffer)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a buffer of %llu bytes; this device makes at most %llu",
				 (unsigned long long)params->bytes, (unsigned long long)device->largest_buffer);
	struct backend_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	buffer->device = device;
	buffer->memory = params->memory;
	buffer->bytes = params->bytes;
	LIST_PUSH(&device->buffers, buffer, link);
	enum status status = make(device, buffer, params->imported, error);
	if (status)
		vulkan_buffer_destroy(device, &buffer);
	*out = buffer;
	return status;
}

void vulkan_buffer_destroy(struct backend_device *device, struct backend_buffer **buffer_pointer)
{
	struct backend_buffer *buffer = *buffer_pointer;
	if (!buffer)
		return;
	device->fn.vkDestroyBuffer(device->device, buffer->buffer, NULL);
	give_back(device, buffer);
	LIST_REMOVE(buffer, link);
	free(buffer);
	*buffer_pointer = NULL;
}

void *vulkan_buffer_pointer(struct backend_buffer *buffer)
{
	return buffer->pointer;
}

void vulkan_memory_finish(struct backend_device *device)
{
	while (device->buffers) {
		struct backend_buffer *buffer = device->buffers;
		vulkan_buffer_destroy(device, &buffer);
	}
	while (device->blocks)
		block_destroy(device, device->blocks);
}
