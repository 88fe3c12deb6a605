/* The lowest versions of drivers and loaders, in one table with reasons.
 * Versions are compared number by number; text before the first digit and
 * after the version ("Mesa 22.3.6 (LLVM 15.0.6)") is skipped. Thread:
 * any. */
#pragma once
#include "common/base/status.h"

enum requirement {
	REQUIRE_CUDA_DRIVER_API,    // cuDriverGetVersion as MAJOR.MINOR
	REQUIRE_COMPUTE_CAPABILITY, // what the kernels are compiled for
	REQUIRE_VULKAN_LOADER,
	REQUIRE_VULKAN_DEVICE_API,
	REQUIRE_VULKAN_NVIDIA,
	REQUIRE_VULKAN_MESA,
	REQUIREMENT_COUNT
};

const char *requirement_minimum(enum requirement requirement); // "1.1"
// STATUS_OK if `version` is at least the minimum or holds no number to compare.
// Errors: STATUS_UNAVAILABLE, saying which version is needed, with a hint.
enum status requirement_check(enum requirement requirement, const char *version, struct error *error);
// Negative, 0 or positive as a is less than, equal to or greater than b.
int version_compare(const char *a, const char *b);
