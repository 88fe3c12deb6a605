/* Shared by the Vulkan tests: the devices of this machine, and modules like a user's. */
#pragma once
#include "engine/vulkan/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs some of those above it.
#include <cmocka.h>

#define HERE_OK(call) \
	do { \
		struct error error = {0}; \
		enum status got_ = (call); \
		if (got_) \
			fail_msg("%s: %s: %s", #call, status_word(got_), error.message); \
	} while (0)

// A module that the build made of tests/engine/vulkan/shaders; NULL where there is no compiler for it.
static inline uint8_t *here_module(const char *name, size_t *length)
{
	char path[512];
	uint8_t *bytes = malloc(1 << 20);
	snprintf(path, sizeof(path), "%s/%s.spv", TEST_KERNELS, name);
	FILE *file = fopen(path, "rb");
	*length = file ? fread(bytes, 1, 1 << 20, file) : 0;
	if (file)
		fclose(file);
	if (!*length) {
		free(bytes);
		return NULL;
	}
	return bytes;
}

// The key of the first device that can be used. "" and a line where there is none.
static inline const char *here_key(void)
{
	static char key[INFO_KEY_BYTES];
	struct error error = {0};
	struct found *found = found_create();
	if (backend_vulkan.enumerate(found, &error))
		printf("listing devices failed: %s\n", error.message);
	for (size_t i = found->device_count; i-- > 0;)
		if (found->devices[i].support != SUPPORT_UNSUPPORTED)
			text_copy(key, sizeof(key), found->devices[i].hardware_key);
	if (!key[0])
		printf("skipped: no Vulkan device here: %s\n", found->libraries[0].reason);
	found_destroy(&found);
	return key;
}
