/* See requirements.h. */
#include "engine/device/requirements.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *what, *minimum, *hint;
} requirements[REQUIREMENT_COUNT] = {
	// PTX 7.5, the least that the kernels are compiled to, came with CUDA 11.5.
	[REQUIRE_CUDA_DRIVER_API] = {"the CUDA driver", "11.5", "install an NVIDIA driver of version 495 or newer"},
	[REQUIRE_COMPUTE_CAPABILITY] = {"the GPU's compute capability", "8.0",
					"older NVIDIA GPUs are used through Vulkan: install the driver's Vulkan part"},
	// 1.1 has device UUIDs, subgroups and the *2 queries.
	[REQUIRE_VULKAN_LOADER] = {"the Vulkan loader", "1.1", "install a newer libvulkan1"},
	[REQUIRE_VULKAN_DEVICE_API] = {"the device's Vulkan version", "1.1", "install a newer driver for this GPU"},
	// The oldest branch that NVIDIA still kept for data centres when this was written.
	[REQUIRE_VULKAN_NVIDIA] = {"the NVIDIA driver", "470", "install an NVIDIA driver of version 470 or newer"},
	// The first with a Vulkan driver for the processor, so the first that can be tested without a GPU.
	[REQUIRE_VULKAN_MESA] = {"Mesa", "20.3", "install a newer mesa-vulkan-drivers"},
};

const char *requirement_minimum(enum requirement requirement)
{
	return requirements[requirement].minimum;
}

static const char *first_digit(const char *text)
{
	while (*text && !isdigit((unsigned char)*text))
		text++;
	return text;
}

int version_compare(const char *a, const char *b)
{
	a = first_digit(a);
	b = first_digit(b);
	while (isdigit((unsigned char)*a) || isdigit((unsigned char)*b)) {
		char *after_a, *after_b;
		unsigned long left = strtoul(a, &after_a, 10), right = strtoul(b, &after_b, 10); // no digits: 0
		if (left != right)
			return left < right ? -1 : 1;
		a = *after_a == '.' ? after_a + 1 : "";
		b = *after_b == '.' ? after_b + 1 : "";
	}
	return 0;
}

enum status requirement_check(enum requirement requirement, const char *version, struct error *error)
{
	if (!*first_digit(version) || version_compare(version, requirements[requirement].minimum) >= 0)
		return STATUS_OK;
	error_hint(error, "%s", requirements[requirement].hint);
	return error_set(error, STATUS_UNAVAILABLE, "%s is %s, at least %s is needed", requirements[requirement].what,
			 version, requirements[requirement].minimum);
}
