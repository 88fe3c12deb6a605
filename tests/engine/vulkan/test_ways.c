/* The conformance suite in each way that a device may be used, and Vulkan's validation silent in all of them.
 *
 * One device here stands for those without timeline semaphores, timestamps or buffer addresses, and a processor for a
 * GPU. Synchronisation is validated, too. */
#include "common/base/log.h"
#include "engine/vulkan/device.h"
#include "tests/engine/conformance/conformance.h"

// With the address sanitizer only the last way: between the first two only kernels differ, which it does not see, and
// engine/conformance/vulkan goes the first.
#if defined(__SANITIZE_ADDRESS__)
enum { FIRST_WAY = 2 };
#else
enum { FIRST_WAY = 0 };
#endif

static unsigned messages;
static bool unchecked;

static void hear(void *context, enum log_level level, const char *area, const char *text)
{
	(void)context;
	if (level > LOG_WARNING || strcmp(area, "vulkan") != 0)
		return;
	if (strstr(text, "nothing is validated"))
		unchecked = true;
	else
		messages++;
}

int main(void)
{
	static const struct {
		unsigned without;
		const char *name;
	} ways[] = {
		{0, "with all that it has"},
		{WITHOUT_SOFTWARE, "as a GPU"},
		{WITHOUT_SOFTWARE | WITHOUT_TIMELINE | WITHOUT_TIMESTAMPS | WITHOUT_ADDRESSES,
		 "as a GPU with fences, the host's clock and descriptors"},
	};
	int failed = 0;
	log_listen(hear, NULL);
	for (size_t i = FIRST_WAY; !failed && i < sizeof(ways) / sizeof(ways[0]); i++) {
		printf("---- %s\n", ways[i].name);
		fflush(stdout);
		vulkan_without = ways[i].without;
		messages = 0;
		failed = conformance_run("vulkan");
		if (messages)
			printf("%u messages of the validation layer, 0 expected\n", messages);
		failed = messages ? 1 : failed;
	}
	log_listen(NULL, NULL);
	if (!failed && unchecked) {
		printf("skipped: VK_LAYER_KHRONOS_validation is not installed, the calls were not checked\n");
		return 77;
	}
	return failed;
}
