/* The files that a confined worker reaches: one list, which Landlock (landlock.c) and the mount namespace (files.c)
 * both go by. Libraries, drivers and their settings to read; device nodes to read and write; the cache of compiled
 * kernels to read, and by a worker that fills it to write; nothing else. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

enum reach_use {
	REACH_READ,
	REACH_DEVICE, // to read and write
	REACH_FILL,   // to read, write, make and remove files and folders in it
};

struct reach_visitor {
	int (*take)(void *arg, const char *path, enum reach_use use); // 0, or an errno value, which ends the visit
	void *arg;
	const char *cache_directory; // may be NULL
	bool fills_cache;
	bool narrow; // nothing but `only` (may be NULL), to read
	const char *only;
};

// Each path of the list, there or not, that directory first. 0, or what `take` returned.
int reach_each(const struct reach_visitor *visitor);

enum { REACH_GROUPS = 16 };
// Groups by which device nodes of GPUs can be opened, root's left out. Negative: a node, or what the environment names
// on the list, can be opened by root alone.
int reach_groups(gid_t groups[REACH_GROUPS]);

// The makers whose device nodes this machine has, as bits.
enum reach_driver {
	REACH_NVIDIA = 1, // NVIDIA's of servers and desktops; also its nodes below /dev/dri
	REACH_TEGRA = 2,  // NVIDIA's of Jetson
	REACH_WINDOWS = 4,
	REACH_OTHER = 8, // Mesa's and AMD's
};
unsigned reach_drivers(void);
