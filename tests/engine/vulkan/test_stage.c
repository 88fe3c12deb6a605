/* The suite of stages in each way that a device may be used, and Vulkan's validation silent in all of them: one device
 * here stands for those without timeline semaphores, timestamps or buffer addresses, and a processor for a GPU. */
#include "common/base/log.h"
#include "engine/vulkan/device.h"
#include "tests/engine/conformance/stage.h"

#include <string.h>

// Each way takes minutes where a processor runs the shaders. Without an argument a build goes one of them; all builds
// together go both.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { WAY = 1 };
#else
enum { WAY = 0 };
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

int main(int count, char **words)
{
	static const struct {
		unsigned without;
		const char *name;
	} ways[] = {
		{0, "with all that it has"},
		{WITHOUT_SOFTWARE | WITHOUT_TIMELINE | WITHOUT_TIMESTAMPS | WITHOUT_ADDRESSES,
		 "as a GPU with fences, the host's clock and descriptors"},
	};
	const bool all = count > 1 && !strcmp(words[1], "all");
	int failed = 0;
	log_listen(hear, NULL);
	for (size_t i = 0; !failed && i < sizeof(ways) / sizeof(*ways); i++) {
		if (!all && i != WAY)
			continue;
		printf("---- %s\n", ways[i].name);
		fflush(stdout);
		vulkan_without = ways[i].without;
		messages = 0;
		failed = stage_conformance_run("vulkan");
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
