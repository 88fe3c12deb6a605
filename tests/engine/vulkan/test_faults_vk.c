/* Each call of the driver that can fail, failing: of a session's life on a device, from opening to closing, the n-th
 * call is struck, for every n until none is (strike.h).
 *
 * What fails says so, with the call's name, or something else served and the results are right. What is not a loss
 * leaves a device that does all of it again; after a loss nothing but waiting and destroying reaches the driver. At
 * the end all that was made is destroyed, once, and the validation layer, where it is installed, is silent throughout.
 * One way with all that the device has, and one as a GPU without timeline semaphores, addresses and timestamps. */
#include "common/base/log.h"
#include "engine/inside.h"
#include "tests/engine/vulkan/here.h"
#include "tests/engine/vulkan/strike.h"

#include <dirent.h>
#include <unistd.h>

enum { BYTES = 70000, WILD_BYTES = 256 };

static const char *key;
static bool all;              // each call with each result, else with one of them
static bool validated = true; // by the validation layer
static char directory[] = "/tmp/exogpu-strike-XXXXXX";
static unsigned messages, swallowed;
static bool unchecked;
static const int64_t long_ns = 100ll * 1000 * 1000 * 1000;

static void hear(void *context, enum log_level level, const char *area, const char *text)
{
	(void)context;
	if (level > LOG_WARNING || strcmp(area, "vulkan") != 0)
		return;
	if (strstr(text, "nothing is validated"))
		unchecked = true;
	else if (!strstr(text, "is still computing"))
		messages++;
}

// All that one pass over the device makes.
struct pass {
	struct exogpu_module *builtin, *user;
	struct exogpu_stream *streams[2];
	struct exogpu_buffer *x, *y, *z, *wild, *host, *imported;
	uint8_t got_y[BYTES], got_z[BYTES], got_host[BYTES], got_imported[BYTES];
	uint32_t got_wild[WILD_BYTES / 4];
};

static float *data; // (BYTES / 4), small whole numbers
static _Alignas(EXOGPU_IMPORT_BYTES) uint8_t
	importable[(BYTES + EXOGPU_IMPORT_BYTES - 1) / EXOGPU_IMPORT_BYTES * EXOGPU_IMPORT_BYTES];
static uint8_t *spirv;
static size_t spirv_length;

static enum status make_all(struct exogpu_device *device, struct pass *pass, struct error *error)
{
	const struct {
		struct exogpu_buffer **buffer;
		uint64_t bytes;
		enum exogpu_memory memory;
	} buffers[] = {
		{&pass->x, BYTES, EXOGPU_MEMORY_DEVICE},  {&pass->y, BYTES, EXOGPU_MEMORY_DEVICE},
		{&pass->z, BYTES, EXOGPU_MEMORY_DEVICE},  {&pass->wild, WILD_BYTES, EXOGPU_MEMORY_DEVICE},
		{&pass->host, BYTES, EXOGPU_MEMORY_HOST},
	};
	enum status status = exogpu_module_load(device, &pass->builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
	for (int i = 0; !status && i < 2; i++)
		status = exogpu_stream_create(device, &pass->streams[i], error);
	for (size_t i = 0; !status && i < sizeof(buffers) / sizeof(buffers[0]); i++)
		status = exogpu_buffer_create(device, buffers[i].buffer, buffers[i].bytes, buffers[i].memory, error);
	if (!status && exogpu_device_limits(device)->capabilities & EXOGPU_CAN_IMPORT)
		status = exogpu_buffer_import(device, &pass->imported, importable, sizeof(importable), error);
	if (!status && spirv)
		status = exogpu_module_load(device, &pass->user, EXOGPU_FORMAT_SPIRV, spirv, spirv_length, error);
	return status;
}

static struct exogpu_argument of(struct exogpu_buffer *buffer)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffer};
}

// Launches of a user's kernel: one more than a submission has descriptor sets for; the first and the last two may fail.
static enum status launch_user(struct pass *pass, struct error *error)
{
	const struct exogpu_argument arguments[] = {of(pass->wild), {.kind = EXOGPU_ARGUMENT_U32, .u32 = 0}};
	const struct exogpu_launch launch = {
		.module = pass->user, .kernel = "main", .grid = {1, 1, 1}, .arguments = arguments, .argument_count = 2};
	long countdown = strikes.countdown;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && spirv && i <= VULKAN_SETS; i++) {
		if (i == 1) {
			countdown = strikes.countdown;
			strikes.countdown = -1;
		}
		if (i == VULKAN_SETS - 1)
			strikes.countdown = countdown;
		status = exogpu_launch(pass->streams[0], &launch, error);
	}
	return status;
}

static enum status launch_builtin(struct pass *pass, struct error *error)
{
	const struct exogpu_argument arguments[] = {of(pass->y),
						    of(pass->x),
						    {.kind = EXOGPU_ARGUMENT_F32, .f32 = 1},
						    {.kind = EXOGPU_ARGUMENT_U32, .u32 = BYTES / 4}};
	const struct exogpu_launch saxpy = {
		.module = pass->builtin, .kernel = "saxpy_f32", .arguments = arguments, .argument_count = 4};
	return exogpu_launch(pass->streams[0], &saxpy, error);
}

// As often as there are slots, so that the next submission begins with a used one; none of these is struck.
static enum status go_round(struct exogpu_stream *stream, struct error *error)
{
	long countdown = strikes.countdown;
	enum status status = STATUS_OK;
	uint64_t point;
	strikes.countdown = -1;
	for (int i = 0; !status && i < VULKAN_SLOTS; i++)
		status = exogpu_mark(stream, &point, error);
	strikes.countdown = countdown;
	return status;
}

static enum status run_all(struct exogpu_device *device, struct pass *pass, struct error *error)
{
	struct exogpu_stream *const *streams = pass->streams;
	struct exogpu_buffer *passing = NULL;
	uint64_t point = 0, after = 0;
	int64_t ns;
	enum status status = exogpu_write(pass->x, 0, data, BYTES, error);
	if (!status)
		status = exogpu_fill(streams[0], pass->y, 0, BYTES, 0, error);
	if (!status)
		status = launch_builtin(pass, error);
	if (!status)
		status = exogpu_fill(streams[0], pass->z, 0, BYTES, 1, error);
	if (!status)
		status = exogpu_buffer_create(device, &passing, 64, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_fill(streams[0], passing, 0, 64, 1, error);
	exogpu_buffer_destroy(&passing); // hands over what is enqueued
	if (!status)
		status = exogpu_fill(streams[0], pass->z, 3, BYTES - 4, 7, error);
	if (!status)
		status = launch_user(pass, error);
	if (!status)
		status = exogpu_mark(streams[0], &point, error);
	if (!status)
		status = exogpu_follow(streams[1], streams[0], point, error);
	if (!status)
		status = exogpu_copy(streams[1],
				     &(struct exogpu_copy){.to = pass->host, .from = pass->y, .bytes = BYTES}, error);
	if (!status && pass->imported)
		status = exogpu_copy(streams[1],
				     &(struct exogpu_copy){.to = pass->imported, .from = pass->y, .bytes = BYTES},
				     error);
	if (!status)
		status = exogpu_read(pass->got_y, pass->y, 0, BYTES, error);
	if (!status)
		status = exogpu_read(pass->got_z, pass->z, 0, BYTES, error);
	if (!status)
		status = exogpu_read(pass->got_host, pass->host, 0, BYTES, error);
	if (!status && pass->imported)
		status = exogpu_read(pass->got_imported, pass->imported, 0, BYTES, error);
	if (!status)
		status = exogpu_read(pass->got_wild, pass->wild, 0, WILD_BYTES, error);
	if (!status)
		status = go_round(streams[0], error);
	if (!status)
		status = launch_user(pass, error);
	if (!status)
		status = exogpu_mark(streams[0], &after, error);
	if (!status)
		status = exogpu_wait(streams[0], after, long_ns, error);
	if (!status)
		status = exogpu_elapsed(streams[0], after, after, &ns, error);
	if (!status) // left under way
		status = exogpu_fill(streams[1], pass->host, 0, BYTES, 0, error);
	return status;
}

static void right(const struct pass *pass)
{
	uint8_t z[BYTES];
	memset(z, 7, BYTES);
	z[0] = z[1] = z[2] = z[BYTES - 1] = 1;
	assert_memory_equal(pass->got_y, data, BYTES);
	assert_memory_equal(pass->got_host, data, BYTES);
	assert_memory_equal(pass->got_z, z, BYTES);
	if (pass->imported) {
		assert_memory_equal(pass->got_imported, data, BYTES);
		assert_memory_equal(importable, data, BYTES);
	}
	for (int i = 0; spirv && i < WILD_BYTES / 4; i++)
		assert_int_equal(pass->got_wild[i], 0xdeadbeef);
}

static void finish_all(struct pass *pass)
{
	exogpu_buffer_destroy(&pass->imported);
	memset(importable, 0, sizeof(importable));
	exogpu_buffer_destroy(&pass->host);
	exogpu_module_unload(&pass->user);
	exogpu_stream_destroy(&pass->streams[0]);
	exogpu_buffer_destroy(&pass->x);
	exogpu_buffer_destroy(&pass->y);
	exogpu_stream_destroy(&pass->streams[1]);
	exogpu_buffer_destroy(&pass->z);
	exogpu_buffer_destroy(&pass->wild);
	exogpu_module_unload(&pass->builtin);
}

static enum status pass_over(struct exogpu_device *device, struct error *error)
{
	struct pass *pass = calloc(1, sizeof(*pass));
	enum status status = make_all(device, pass, error);
	if (!status)
		status = run_all(device, pass, error);
	if (!status)
		right(pass);
	finish_all(pass);
	free(pass);
	return status;
}

// The status of a failed call; users' modules that the driver does not compile are the users' fault.
static bool fits(enum status status, const struct error *fault)
{
	bool memory = strikes.result == VK_ERROR_OUT_OF_HOST_MEMORY || strikes.result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
	bool compiling = !strcmp(strikes.struck, "vkCreateComputePipelines");
	if (strikes.result == VK_ERROR_DEVICE_LOST && status != STATUS_DEVICE_LOST)
		return false;
	if (memory && status != STATUS_OUT_OF_MEMORY)
		return false;
	if (strikes.result == VK_ERROR_UNKNOWN && status != STATUS_UNAVAILABLE &&
	    !(compiling && status == STATUS_INVALID_PARAMS))
		return false;
	return strstr(fault->message, strikes.struck) || (compiling && strstr(fault->message, "VK_ERROR_UNKNOWN")) ||
	       strstr(fault->message, "lost when") || strstr(fault->message, "lost earlier");
}

// What the device's books say is what was allocated.
static void accounted(const struct exogpu_device *device)
{
	uint64_t used = 0, allocated = 0;
	for (unsigned i = 0; i < VK_MAX_MEMORY_HEAPS; i++)
		used += device->handle->heap_used[i];
	for (size_t i = 0; i < sizeof(strikes.blocks) / sizeof(strikes.blocks[0]); i++)
		allocated += strikes.blocks[i].bytes;
	assert_int_equal(used, allocated);
	assert_int_equal(device->handle->allocations, strikes.live[LIVE_Memory]);
}

static void forget_pipelines(void)
{
	DIR *entries = opendir(directory);
	for (struct dirent *entry; entries && (entry = readdir(entries));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(entries), entry->d_name, 0);
	closedir(entries);
}

static void nothing_left(long place)
{
	static const char *const kinds[] = {
#define M(name) [LIVE_##name] = #name,
		STRIKE_MADE(M)
#undef M
			[LIVE_Pipeline] = "Pipeline",
		[LIVE_Memory] = "Memory", [LIVE_Device] = "Device"};
	for (int i = 0; i < LIVE_KINDS; i++)
		if (strikes.live[i])
			fail_msg("call %ld, %s: %ld of Vk%s left", place, strikes.struck, strikes.live[i], kinds[i]);
}

// A device's life in which call number `place` fails: with work on it, or none but what keeps the pipelines, anew, for
// the next. Returns whether there was one.
static bool one_life(long place, VkResult result, bool work)
{
	const struct exogpu_open open = {.backend = "vulkan",
					 .hardware_key = key,
					 .cache_directory = work ? NULL : directory,
					 .cache_writable = !work,
					 .debug = validated};
	struct exogpu_device *device = NULL;
	struct error fault = {0};
	struct exogpu_usage left;
	strike_begin(place, result);
	messages = 0;
	if (!work)
		forget_pipelines();
	enum status status = exogpu_device_open(&device, &open, &fault);
	if (!status && work)
		status = pass_over(device, &fault);
	if (!strikes.struck && status)
		fail_msg("call %ld: none failed, and yet: %s", place, fault.message);
	if (strikes.struck && status && !fits(status, &fault))
		fail_msg("call %ld, %s, fails with %s, and is told as %s: %s", place, strikes.struck,
			 vulkan_result_name(result), status_word(status), fault.message);
	swallowed += strikes.struck && !status;
	if (device && exogpu_device_lost(device) != strikes.lost)
		fail_msg("call %ld, %s: lost is %d", place, strikes.struck, exogpu_device_lost(device));
	if (device)
		accounted(device);
	if (device && strikes.struck && !strikes.lost && work) {
		struct error again = {0};
		if (pass_over(device, &again))
			fail_msg("call %ld, %s, failed, and then the device did not work: %s", place, strikes.struck,
				 again.message);
		accounted(device);
	}
	bool opened = device;
	exogpu_device_close(&device, &left);
	strike_end();
	if (opened)
		assert_int_equal(left.buffers + left.streams + left.modules, 0);
	nothing_left(place);
	if (strikes.wrong)
		fail_msg("call %ld, %s: an undefined handle went to %s", place, strikes.struck, strikes.wrong);
	if (strikes.after_loss)
		fail_msg("call %ld, %s, lost the device, and then came %s", place, strikes.struck, strikes.after_loss);
	if (messages)
		fail_msg("call %ld, %s: %u messages of the validation layer", place, strikes.struck, messages);
	return strikes.struck;
}

// Each `stride`-th call, in lives with work.
static void every_call(unsigned without, long stride)
{
	static const VkResult results[] = {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_OUT_OF_DEVICE_MEMORY,
					   VK_ERROR_DEVICE_LOST, VK_ERROR_UNKNOWN};
	vulkan_without = without;
	for (size_t i = 0; i < (all ? 4 : 1); i++) {
		long place = 0, kept = 0;
		swallowed = 0;
		while (one_life(place, results[(i + (size_t)place) % 4], true))
			place += stride;
		while (one_life(kept, results[(i + (size_t)kept) % 4], false))
			kept++;
		print_message("one of each %ld of %ld calls, and each of %ld, failed; after %u the results were right "
			      "all the same\n",
			      stride, place, kept, swallowed);
		assert_true(place > 80 && kept > 20); // NVIDIA's driver: 100 and 29
	}
	vulkan_without = 0;
}

static void as_it_is(void **state)
{
	(void)state;
	every_call(0, 1);
}

static void as_a_plain_gpu(void **state)
{
	(void)state;
	every_call(WITHOUT_SOFTWARE | WITHOUT_TIMELINE | WITHOUT_TIMESTAMPS | WITHOUT_ADDRESSES,
		   all || !validated ? 1 : 5);
}

// The plain build goes both ways, the second with each fifth call. The address sanitizer's goes the second with each
// call, without the validation layer, whose own memory would take most of the time. `all` goes both, with each call and
// result.
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(as_it_is), cmocka_unit_test(as_a_plain_gpu)};
	all = argc > 1 && !strcmp(argv[1], "all");
#ifdef __SANITIZE_ADDRESS__
	validated = all;
	if (!all)
		cmocka_set_test_filter("as_a_plain_gpu");
#endif
	key = here_key();
	if (!key[0])
		return 77;
	if (!mkdtemp(directory))
		return 1;
	data = malloc(BYTES);
	for (int i = 0; data && i < BYTES / 4; i++)
		data[i] = (float)(i % 10);
	spirv = here_module("wild", &spirv_length);
	log_listen(hear, NULL);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	log_listen(NULL, NULL);
	forget_pipelines();
	rmdir(directory);
	free(data);
	free(spirv);
	if (!failed && unchecked)
		printf("VK_LAYER_KHRONOS_validation is not installed: the calls were not checked\n");
	return failed;
}
