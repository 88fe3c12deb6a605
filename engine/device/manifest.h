/* The driver manifests that the Vulkan loader reads, and what is wrong with them. The
 * loader silently skips a driver that it cannot load, but a person needs to know. The
 * node also watches these folders, for drivers that are installed while it runs. Thread:
 * any. */
#pragma once
#include "engine/device/info.h"

enum { MANIFEST_PATHS = 16, MANIFEST_PATH_BYTES = 256 };

struct manifest_paths {
	char paths[MANIFEST_PATHS][MANIFEST_PATH_BYTES]; // folders, or files where files is set
	size_t count;
	bool files; // VK_DRIVER_FILES or VK_ICD_FILENAMES name them one by one
};

// The places where the loader looks: VK_DRIVER_FILES (VK_ICD_FILENAMES), else the XDG folders, /etc and /usr.
void manifest_find_paths(struct manifest_paths *paths);
// Add a `broken` library for each manifest whose driver cannot be loaded into this process.
void manifest_report(struct found *found);
