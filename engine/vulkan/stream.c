/* Streams of a Vulkan device: queues, a ring of command buffers, points.
 *
 * Commands are recorded until a point is marked, the stream follows another one, or a bound is reached; then they are
 * submitted. Submissions of a stream are numbered, and the stream's timeline semaphore counts those that are done; a
 * point is the number of a submission and a timestamp at its end. Without timeline semaphores each slot of the ring has
 * a fence, and following another stream is a wait of the host before the next submission. Streams share the queues of
 * one family: stream i submits to queue i modulo their number. A stream only waits for work that was submitted before,
 * so streams that share a queue cannot deadlock.
 *
 * Order within a stream: a barrier before every command, for the stages and writes since the last barrier only, because
 * each bit costs time (2.2 us instead of 4.9 on an H200). The first barrier of a submission covers all writes, so that
 * it also makes work of other queues and of earlier submissions visible. Memory of the host is made available to the
 * host, for reading and overwriting, when a point is marked.
 *
 * A destroyed stream is kept for the next one that is created: another stream may still wait on its semaphore, and
 * command buffers are expensive to create. */
#include "common/base/clock.h"
#include "engine/vulkan/device.h"

#include <stdlib.h>
#include <string.h>

enum { WAIT_BUSY_NS = 50 * 1000 };

static const VkPipelineStageFlags all_stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
static const VkAccessFlags all_writes = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;

static VkAccessFlags writes_of(VkPipelineStageFlags stages)
{
	return (stages & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT ? VK_ACCESS_SHADER_WRITE_BIT : 0u) |
	       (stages & VK_PIPELINE_STAGE_TRANSFER_BIT ? VK_ACCESS_TRANSFER_WRITE_BIT : 0u);
}

static VkAccessFlags reads_of(VkPipelineStageFlags stages)
{
	return (stages & VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT ? VK_ACCESS_SHADER_READ_BIT : 0u) |
	       (stages & VK_PIPELINE_STAGE_TRANSFER_BIT ? VK_ACCESS_TRANSFER_READ_BIT : 0u);
}

// ---- completion ----

static struct vulkan_slot *slot_of(struct backend_stream *stream, uint64_t submission)
{
	return &stream->slots[submission % VULKAN_SLOTS];
}

// Bring stream->completed up to date.
static enum status update(struct backend_stream *stream, struct error *error)
{
	struct backend_device *device = stream->device;
	if (stream->completed == stream->submitted)
		return STATUS_OK;
	if (device->timeline) {
		uint64_t value;
		VkResult result = device->fn.vkGetSemaphoreCounterValue(device->device, stream->timeline, &value);
		if (!result && value > stream->submitted) // what a lost device's semaphore may say
			result = VK_ERROR_DEVICE_LOST;
		if (result)
			return vulkan_device_failed(device, error, "vkGetSemaphoreCounterValue", result);
		stream->completed = value;
		return STATUS_OK;
	}
	for (; stream->completed < stream->submitted; stream->completed++) {
		VkFence fence = slot_of(stream, stream->completed + 1)->fence;
		VkResult result = device->fn.vkWaitForFences(device->device, 1, &fence, VK_TRUE, 0);
		if (result == VK_TIMEOUT)
			return STATUS_OK;
		if (result)
			return vulkan_device_failed(device, error, "vkWaitForFences", result);
	}
	return STATUS_OK;
}

// Poll a GPU that is nearly done, because being woken takes longer. Polls at least once, and no longer than the caller
// waits; *timeout_ns becomes the time that is left.
static enum status ask_a_while(struct backend_stream *stream, uint64_t submission, uint64_t *timeout_ns,
			       struct error *error)
{
	const int64_t began_ns = clock_steady_ns(),
		      until_ns = began_ns + (*timeout_ns < WAIT_BUSY_NS ? (int64_t)*timeout_ns : WAIT_BUSY_NS);
	enum status status = update(stream, error);
	while (!status && stream->completed < submission && clock_steady_ns() < until_ns)
		status = update(stream, error);
	const uint64_t passed_ns = (uint64_t)(clock_steady_ns() - began_ns);
	if (*timeout_ns != UINT64_MAX)
		*timeout_ns -= passed_ns < *timeout_ns ? passed_ns : *timeout_ns;
	return status;
}

// Wait until this submission is done; timeout_ns < 0: as long as it takes.
static enum status wait_submission(struct backend_stream *stream, uint64_t submission, int64_t timeout_ns,
				   struct error *error)
{
	struct backend_device *device = stream->device;
	uint64_t timeout = timeout_ns < 0 ? UINT64_MAX : (uint64_t)timeout_ns;
	const char *call = device->timeline ? "vkWaitSemaphores" : "vkWaitForFences";
	VkResult result;
	if (device->timeline && !device->software && submission > stream->completed) {
		enum status status = ask_a_while(stream, submission, &timeout, error);
		if (status)
			return status;
	}
	if (submission <= stream->completed)
		return STATUS_OK;
	if (device->timeline) {
		VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
					    .semaphoreCount = 1,
					    .pSemaphores = &stream->timeline,
					    .pValues = &submission};
		result = device->fn.vkWaitSemaphores(device->device, &info, timeout);
	} else {
		result = device->fn.vkWaitForFences(device->device, 1, &slot_of(stream, submission)->fence, VK_TRUE,
						    timeout);
	}
	if (result == VK_TIMEOUT)
		return error_set(error, STATUS_TIMEOUT, "not done in %lld ms", (long long)(timeout_ns / 1000000));
	if (result)
		return vulkan_device_failed(device, error, call, result);
	return update(stream, error);
}

// Update the reached points from the completed work. Without timestamps the newest point counts as reached now. Earlier
// points that were not observed count as reached when they were marked, or when a later point was observed, whichever
// is later.
static void advance(struct backend_stream *stream)
{
	uint64_t before = stream->reached;
	while (stream->reached < stream->points &&
	       stream->point_submission[(stream->reached + 1) % EXOGPU_POINTS] <= stream->completed)
		stream->reached++;
	if (stream->device->timestamp_bits || stream->reached == before)
		return;
	for (uint64_t point = before + 1; point < stream->reached; point++) {
		int64_t last_ns = stream->point_ns[(point - 1) % EXOGPU_POINTS];
		if (stream->point_ns[point % EXOGPU_POINTS] < last_ns)
			stream->point_ns[point % EXOGPU_POINTS] = last_ns;
	}
	stream->point_ns[stream->reached % EXOGPU_POINTS] = clock_steady_ns();
}

// ---- recording ----

static enum status slot_make(struct backend_stream *stream, struct vulkan_slot *slot, struct error *error)
{
	struct backend_device *device = stream->device;
	VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
					    .commandPool = stream->pool,
					    .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
					    .commandBufferCount = 1};
	VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
	VkResult result = VK_SUCCESS;
	if (!slot->commands)
		result = device->fn.vkAllocateCommandBuffers(device->device, &info, &slot->commands);
	if (result)
		return vulkan_device_failed(device, error, "vkAllocateCommandBuffers", result);
	if (!device->timeline && !slot->fence)
		result = VULKAN_MADE(slot->fence, device->fn.vkCreateFence(device->device, &fence, NULL, &slot->fence));
	return result ? vulkan_device_failed(device, error, "vkCreateFence", result) : STATUS_OK;
}

// Open the next slot's command buffer, unless one is open.
static enum status slot_open(struct backend_stream *stream, struct error *error)
{
	struct backend_device *device = stream->device;
	uint64_t submission = stream->submitted + 1;
	struct vulkan_slot *slot = slot_of(stream, submission);
	if (stream->slot)
		return STATUS_OK;
	enum status status = STATUS_OK;
	if (submission > VULKAN_SLOTS)
		status = wait_submission(stream, submission - VULKAN_SLOTS, -1, error);
	if (!status)
		status = slot_make(stream, slot, error);
	if (status)
		return status;
	VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
					  .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
	if (slot->set_count) {
		VkResult result = device->fn.vkResetDescriptorPool(device->device, slot->sets, 0);
		if (result)
			return vulkan_device_failed(device, error, "vkResetDescriptorPool", result);
	}
	slot->set_count = 0;
	VkResult result = device->fn.vkBeginCommandBuffer(slot->commands, &begin);
	if (result)
		return vulkan_device_failed(device, error, "vkBeginCommandBuffer", result);
	stream->slot = slot;
	stream->commands = slot->commands;
	stream->command_count = 0;
	stream->stages = all_stages;
	stream->writes = all_writes;
	return STATUS_OK;
}

static void barrier(struct backend_stream *stream, VkPipelineStageFlags stages, VkAccessFlags access)
{
	VkMemoryBarrier memory = {
		.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = stream->writes, .dstAccessMask = access};
	stream->device->fn.vkCmdPipelineBarrier(stream->commands, stream->stages, stages, 0, 1, &memory, 0, NULL, 0,
						NULL);
}

// ---- submitting ----

// Without timeline semaphores the host waits for the other streams.
static enum status wait_on_host(struct backend_stream *stream, struct error *error)
{
	enum status status = STATUS_OK;
	while (!status && stream->wait_count) {
		const struct vulkan_wait *wait = &stream->waits[stream->wait_count - 1];
		status = wait_submission(wait->stream, wait->submission, -1, error);
		stream->wait_count -= !status;
	}
	return status;
}

static VkResult submit_timeline(struct backend_stream *stream, uint64_t submission)
{
	VkSemaphore semaphores[LIMIT_STREAMS_OF_DEVICE];
	uint64_t values[LIMIT_STREAMS_OF_DEVICE];
	VkPipelineStageFlags stages[LIMIT_STREAMS_OF_DEVICE];
	for (unsigned i = 0; i < stream->wait_count; i++) {
		semaphores[i] = stream->waits[i].stream->timeline;
		values[i] = stream->waits[i].submission;
		stages[i] = all_stages;
	}
	VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
						  .waitSemaphoreValueCount = stream->wait_count,
						  .pWaitSemaphoreValues = values,
						  .signalSemaphoreValueCount = 1,
						  .pSignalSemaphoreValues = &submission};
	VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
			     .pNext = &timeline,
			     .waitSemaphoreCount = stream->wait_count,
			     .pWaitSemaphores = semaphores,
			     .pWaitDstStageMask = stages,
			     .commandBufferCount = 1,
			     .pCommandBuffers = &stream->commands,
			     .signalSemaphoreCount = 1,
			     .pSignalSemaphores = &stream->timeline};
	return stream->device->fn.vkQueueSubmit(stream->queue, 1, &info, VK_NULL_HANDLE);
}

static VkResult submit_fence(struct backend_stream *stream, const char **call)
{
	const struct vulkan_device_functions *fn = &stream->device->fn;
	VkSubmitInfo info = {
		.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &stream->commands};
	VkResult result = fn->vkResetFences(stream->device->device, 1, &stream->slot->fence);
	if (result)
		*call = "vkResetFences";
	return result ? result : fn->vkQueueSubmit(stream->queue, 1, &info, stream->slot->fence);
}

// Submit the recorded commands. Commands that could not be submitted are lost, and the next mark returns the error; the
// stream continues after them.
static enum status submit(struct backend_stream *stream, struct error *error)
{
	struct backend_device *device = stream->device;
	const char *call = "vkEndCommandBuffer";
	enum status status = device->timeline ? STATUS_OK : wait_on_host(stream, error);
	if (status) // it stays recorded
		return status;
	VkResult result = device->fn.vkEndCommandBuffer(stream->commands);
	if (!result) {
		call = "vkQueueSubmit";
		result = device->timeline ? submit_timeline(stream, stream->submitted + 1)
					  : submit_fence(stream, &call);
	}
	stream->slot = NULL;
	stream->commands = VK_NULL_HANDLE;
	if (result) {
		stream->dropped = vulkan_device_failed(device, error, call, result);
		return stream->dropped;
	}
	stream->submitted++;
	stream->wait_count = 0;
	return STATUS_OK;
}

enum status vulkan_stream_begin(struct backend_stream *stream, VkPipelineStageFlags stages, struct error *error)
{
	enum status status = STATUS_OK;
	if (stream->slot && stream->command_count >= VULKAN_COMMANDS)
		status = submit(stream, error);
	if (!status)
		status = slot_open(stream, error);
	if (status)
		return status;
	barrier(stream, stages, reads_of(stages) | writes_of(stages));
	stream->stages = stages;
	stream->writes = writes_of(stages);
	stream->command_count++;
	return STATUS_OK;
}

// ---- descriptor sets ----

static enum status make_sets(struct backend_device *device, struct vulkan_slot *slot, struct error *error)
{
	VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, VULKAN_SETS * EXOGPU_KERNEL_ARGUMENTS};
	VkDescriptorPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
					   .maxSets = VULKAN_SETS,
					   .poolSizeCount = 1,
					   .pPoolSizes = &size};
	VkResult result = VULKAN_MADE(slot->sets,
				      device->fn.vkCreateDescriptorPool(device->device, &info, NULL, &slot->sets));
	return result ? vulkan_device_failed(device, error, "vkCreateDescriptorPool", result) : STATUS_OK;
}

enum status vulkan_stream_set(struct backend_stream *stream, VkDescriptorSetLayout layout, VkDescriptorSet *set,
			      struct error *error)
{
	struct backend_device *device = stream->device;
	enum status status = STATUS_OK;
	if (stream->slot->set_count == VULKAN_SETS) { // the next submission has more, behind a barrier of its own
		VkPipelineStageFlags stages = stream->stages;
		status = submit(stream, error);
		if (!status)
			status = vulkan_stream_begin(stream, stages, error);
	}
	if (!status && !stream->slot->sets)
		status = make_sets(device, stream->slot, error);
	if (status)
		return status;
	VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
					    .descriptorPool = stream->slot->sets,
					    .descriptorSetCount = 1,
					    .pSetLayouts = &layout};
	VkResult result = device->fn.vkAllocateDescriptorSets(device->device, &info, set);
	if (result)
		return vulkan_device_failed(device, error, "vkAllocateDescriptorSets", result);
	stream->slot->set_count++;
	return STATUS_OK;
}

// ---- points ----

enum status vulkan_mark(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	struct backend_device *device = stream->device;
	uint64_t next = stream->points + 1;
	enum status status = stream->dropped;
	stream->dropped = STATUS_OK;
	if (status)
		return error_set(error, status, "commands of this stream were lost when they were handed over");
	status = slot_open(stream, error);
	if (status)
		return status;
	if (stream->host_sees) {
		stream->stages = all_stages;
		stream->writes = all_writes;
		barrier(stream, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
	}
	if (device->timestamp_bits) {
		uint32_t query = (uint32_t)(next % EXOGPU_POINTS);
		device->fn.vkCmdResetQueryPool(stream->commands, stream->timestamps, query, 1);
		device->fn.vkCmdWriteTimestamp(stream->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
					       stream->timestamps, query);
	}
	status = submit(stream, error);
	stream->dropped = STATUS_OK; // said herewith
	if (status)
		return status;
	stream->host_sees = false;
	stream->points = next;
	stream->point_submission[next % EXOGPU_POINTS] = stream->submitted;
	stream->point_ns[next % EXOGPU_POINTS] = clock_steady_ns();
	*point = next;
	return STATUS_OK;
}

enum status vulkan_reached(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	enum status status = update(stream, error);
	if (status)
		return status;
	advance(stream);
	*point = stream->reached;
	return STATUS_OK;
}

enum status vulkan_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error)
{
	if (point <= stream->reached)
		return STATUS_OK;
	enum status status = wait_submission(stream, stream->point_submission[point % EXOGPU_POINTS],
					     timeout_ns > 0 ? timeout_ns : 0, error);
	if (!status)
		advance(stream);
	return status;
}

enum status vulkan_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
			  struct error *error)
{
	enum status status = update(other, error);
	if (status)
		return status;
	advance(other);
	if (stream == other || point <= other->reached)
		return STATUS_OK;
	if (stream->slot)
		status = submit(stream, error);
	if (status)
		return status;
	uint64_t submission = other->point_submission[point % EXOGPU_POINTS];
	for (unsigned i = 0; i < stream->wait_count; i++)
		if (stream->waits[i].stream == other) {
			if (stream->waits[i].submission < submission)
				stream->waits[i].submission = submission;
			return STATUS_OK;
		}
	stream->waits[stream->wait_count++] = (struct vulkan_wait){other, submission};
	return STATUS_OK;
}

enum status vulkan_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error)
{
	struct backend_device *device = stream->device;
	if (!device->timestamp_bits) {
		*ns = stream->point_ns[to % EXOGPU_POINTS] - stream->point_ns[from % EXOGPU_POINTS];
		return STATUS_OK;
	}
	const uint64_t points[2] = {from, to};
	uint64_t ticks[2] = {0, 0};
	for (int i = 0; i < 2; i++) {
		VkResult result = device->fn.vkGetQueryPoolResults(
			device->device, stream->timestamps, (uint32_t)(points[i] % EXOGPU_POINTS), 1, sizeof(ticks[i]),
			&ticks[i], sizeof(ticks[i]), VK_QUERY_RESULT_64_BIT);
		if (result)
			return vulkan_device_failed(device, error, "vkGetQueryPoolResults", result);
	}
	uint64_t mask = device->timestamp_bits >= 64 ? UINT64_MAX : (1ull << device->timestamp_bits) - 1;
	uint64_t passed = (ticks[1] - ticks[0]) & mask; // also right where the counter wrapped
	*ns = (int64_t)((double)passed * (double)device->properties.limits.timestampPeriod);
	return STATUS_OK;
}

// ---- life ----

static enum status make(struct backend_stream *stream, struct error *error)
{
	struct backend_device *device = stream->device;
	VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
					.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
					.queueFamilyIndex = device->queue_family};
	VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
					  .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
	VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
	VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
					 .queryType = VK_QUERY_TYPE_TIMESTAMP,
					 .queryCount = EXOGPU_POINTS};
	VkResult result = VULKAN_MADE(stream->pool,
				      device->fn.vkCreateCommandPool(device->device, &pool, NULL, &stream->pool));
	if (result)
		return vulkan_device_failed(device, error, "vkCreateCommandPool", result);
	if (device->timeline)
		result = VULKAN_MADE(stream->timeline,
				     device->fn.vkCreateSemaphore(device->device, &semaphore, NULL, &stream->timeline));
	if (result)
		return vulkan_device_failed(device, error, "vkCreateSemaphore", result);
	if (device->timestamp_bits)
		result = VULKAN_MADE(stream->timestamps,
				     device->fn.vkCreateQueryPool(device->device, &queries, NULL, &stream->timestamps));
	return result ? vulkan_device_failed(device, error, "vkCreateQueryPool", result) : STATUS_OK;
}

static void stream_finish(struct backend_stream *stream)
{
	struct backend_device *device = stream->device;
	for (unsigned i = 0; i < VULKAN_SLOTS; i++) {
		device->fn.vkDestroyFence(device->device, stream->slots[i].fence, NULL);
		device->fn.vkDestroyDescriptorPool(device->device, stream->slots[i].sets, NULL);
	}
	device->fn.vkDestroyQueryPool(device->device, stream->timestamps, NULL);
	device->fn.vkDestroySemaphore(device->device, stream->timeline, NULL);
	device->fn.vkDestroyCommandPool(device->device, stream->pool, NULL);
	free(stream);
}

enum status vulkan_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error)
{
	*out = NULL;
	for (struct backend_stream *stream = device->streams; stream; stream = stream->next)
		if (!stream->open) {
			stream->open = true;
			*out = stream;
			return STATUS_OK;
		}
	if (device->streams_made == LIMIT_STREAMS_OF_DEVICE)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a device has at most %d streams",
				 LIMIT_STREAMS_OF_DEVICE);
	struct backend_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stream's record");
	stream->device = device;
	stream->open = true;
	stream->queue = device->queues[device->streams_made % device->queue_count];
	enum status status = make(stream, error);
	if (status) {
		stream_finish(stream);
		return status;
	}
	stream->next = device->streams;
	device->streams = stream;
	device->streams_made++;
	*out = stream;
	return STATUS_OK;
}

void vulkan_stream_destroy(struct backend_device *device, struct backend_stream **stream_pointer)
{
	struct backend_stream *stream = *stream_pointer;
	if (!stream)
		return;
	stream->open = false;
	if (stream->slot) // recorded but never marked commands are dropped; objects that they use may be gone already
		device->fn.vkResetCommandBuffer(stream->commands, 0);
	stream->slot = NULL;
	stream->commands = VK_NULL_HANDLE;
	stream->dropped = STATUS_OK;
	stream->host_sees = false;
	stream->wait_count = 0;
	stream->points = stream->reached = 0;
	stream->point_ns[0] = 0;
	*stream_pointer = NULL;
}

// A failed wait says nothing about the work, so there is a second one. The work of a lost device is over.
bool vulkan_streams_idle(struct backend_device *device, int64_t timeout_ns)
{
	int64_t until_ns = clock_steady_ns() + timeout_ns;
	for (struct backend_stream *stream = device->streams; stream; stream = stream->next) {
		enum status status = STATUS_PENDING;
		for (int i = 0; i < 2 && status && status != STATUS_TIMEOUT && status != STATUS_DEVICE_LOST; i++) {
			int64_t left_ns = until_ns - clock_steady_ns();
			status = wait_submission(stream, stream->submitted, left_ns > 0 ? left_ns : 0, NULL);
		}
		if (status && status != STATUS_DEVICE_LOST)
			return false;
	}
	return true;
}

void vulkan_streams_finish(struct backend_device *device)
{
	while (device->streams) {
		struct backend_stream *stream = device->streams;
		device->streams = stream->next;
		stream_finish(stream);
	}
}
