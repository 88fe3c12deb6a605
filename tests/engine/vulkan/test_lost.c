/* A driver that says that its device is lost, wherever it may say so, and one whose work never ends: each is told, and
 * closing comes back. The driver's calls are replaced, one at a time. */
#include "tests/engine/vulkan/here.h"

static const char *key;

static VkResult VKAPI_PTR lost_submit(VkQueue queue, uint32_t count, const VkSubmitInfo *infos, VkFence fence)
{
	(void)queue, (void)count, (void)infos, (void)fence;
	return VK_ERROR_DEVICE_LOST;
}

static VkResult VKAPI_PTR lost_wait(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
	(void)device, (void)info, (void)timeout;
	return VK_ERROR_DEVICE_LOST;
}

static VkResult VKAPI_PTR lost_value(VkDevice device, VkSemaphore semaphore, uint64_t *value)
{
	(void)device, (void)semaphore;
	*value = UINT64_MAX; // what some drivers say instead of an error
	return VK_SUCCESS;
}

static VkResult VKAPI_PTR no_end(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
	(void)device, (void)info, (void)timeout;
	return VK_TIMEOUT;
}

struct here {
	struct backend_device *device;
	struct backend_stream *stream;
	struct backend_buffer *buffer;
	uint64_t point;
};

static void begin(struct here *here)
{
	struct backend_open open = {.hardware_key = key};
	struct backend_buffer_params params = {.bytes = 4096, .memory = EXOGPU_MEMORY_DEVICE};
	HERE_OK(vulkan_device_open(&here->device, &open, 0, &error));
	HERE_OK(vulkan_stream_create(here->device, &here->stream, &error));
	HERE_OK(vulkan_buffer_create(here->device, &here->buffer, &params, &error));
	HERE_OK(vulkan_fill(here->stream, here->buffer, 0, 4096, 1, &error));
}

static void ends_lost(struct here *here, enum status status)
{
	assert_int_equal(status, STATUS_DEVICE_LOST);
	assert_true(here->device->lost);
	vulkan_device_close(&here->device);
	assert_null(here->device);
}

static void submitting(void **state)
{
	struct here here = {0};
	struct error fault = {0};
	(void)state;
	begin(&here);
	here.device->fn.vkQueueSubmit = lost_submit;
	enum status status = vulkan_mark(here.stream, &here.point, &fault);
	print_message("%s\n", fault.message);
	ends_lost(&here, status);
}

static void waiting(void **state)
{
	struct here here = {0};
	struct error fault = {0};
	(void)state;
	begin(&here);
	if (!here.device->timeline) {
		vulkan_device_close(&here.device);
		skip();
	}
	HERE_OK(vulkan_mark(here.stream, &here.point, &error));
	here.device->fn.vkDeviceWaitIdle(here.device->device); // so that it may be closed all the same
	here.device->fn.vkWaitSemaphores = lost_wait;
	enum status status = vulkan_wait(here.stream, here.point, 1000000000, &fault);
	ends_lost(&here, status);
}

static void asking(void **state)
{
	struct here here = {0};
	struct error fault = {0};
	uint64_t reached;
	(void)state;
	begin(&here);
	if (!here.device->timeline) {
		vulkan_device_close(&here.device);
		skip();
	}
	HERE_OK(vulkan_mark(here.stream, &here.point, &error));
	here.device->fn.vkDeviceWaitIdle(here.device->device);
	here.device->fn.vkGetSemaphoreCounterValue = lost_value;
	enum status status = vulkan_reached(here.stream, &reached, &fault);
	ends_lost(&here, status);
}

// The device's memory is not freed under a kernel that runs: it stays, and closing does not wait.
static void never_ending(void **state)
{
	static struct backend_device *kept; // for leak checkers: this is on purpose
	struct here here = {0};
	(void)state;
	begin(&here);
	kept = here.device;
	if (!here.device->timeline) {
		vulkan_device_close(&here.device);
		skip();
	}
	HERE_OK(vulkan_mark(here.stream, &here.point, &error));
	here.device->fn.vkWaitSemaphores = no_end;
	struct error fault = {0};
	assert_int_equal(vulkan_wait(here.stream, here.point, 1000000, &fault), STATUS_TIMEOUT);
	vulkan_device_close(&here.device);
	assert_null(here.device);
	assert_non_null(kept->device);
	assert_non_null(kept->buffers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(submitting),
		cmocka_unit_test(waiting),
		cmocka_unit_test(asking),
		cmocka_unit_test(never_ending),
	};
	key = here_key();
	return key[0] ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
