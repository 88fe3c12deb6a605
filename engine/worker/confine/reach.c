/* See reach.h. */
#include "engine/worker/confine/reach.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *const readable[] = {
	"/usr",
	"/lib",
	"/lib32",
	"/lib64",
	"/opt",
	"/proc",
	"/sys",
	"/nix/store",
	"/run/opengl-driver",
	"/etc/alternatives", // links alone; Debian's packages of NVIDIA's driver go by them
	"/etc/ld.so.cache",
	"/etc/ld.so.conf",
	"/etc/ld.so.conf.d",
	"/etc/vulkan",
	"/etc/glvnd",
	"/etc/drirc",
	"/etc/nvidia",
	"/etc/OpenCL",
	"/etc/localtime",
};
// Device nodes of /dev that no GPU has.
static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"};
// Variables with paths of drivers and libraries that a person has set, separated by colons.
static const char *const variables[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES",
					"LD_LIBRARY_PATH"};

// The names that GPU drivers open in /dev: the beginning of the name, and whether it is the whole name. NVIDIA's names
// on servers were observed. The others follow the makers' documents, and have not been run (docs/security.md).
static const struct maker {
	const char *beginning;
	bool whole;
	enum reach_driver driver;
} makers[] = {
	// The kernel's Direct Rendering Manager (Documentation/gpu/drm-uapi.rst): a folder of cards and renderD nodes.
	{"dri", true, REACH_OTHER},
	// AMD's compute driver (the kernel's drivers/gpu/drm/amd/amdkfd/kfd_chardev.c).
	{"kfd", true, REACH_OTHER},
	// NVIDIA's driver (its README, "Device nodes"): nvidiactl, nvidia0 and up, nvidia-uvm, nvidia-modeset,
	// nvidia-caps.
	{"nvidia", false, REACH_NVIDIA},
	// NVIDIA's Jetson, as its container runtime hands them on (devices.csv and l4t.csv of nvidia-l4t-init).
	{"nvmap", true, REACH_TEGRA},
	{"nvhost-", false, REACH_TEGRA},
	{"nvgpu", true, REACH_TEGRA},
	// GPUs of Windows in WSL2 (drivers/hv/dxgkrnl of Microsoft's kernel). Its libraries are in /usr/lib/wsl.
	{"dxg", true, REACH_WINDOWS},
};

static int visit_listed(const struct reach_visitor *visitor, const char *list)
{
	char path[4096];
	int result = 0;
	while (list && *list && !result) {
		size_t length = strcspn(list, ":");
		if (length && length < sizeof(path)) {
			memcpy(path, list, length);
			path[length] = 0;
			result = visitor->take(visitor->arg, path, REACH_READ);
		}
		list += length + (list[length] == ':');
	}
	return result;
}

static const struct maker *maker_of(const char *name)
{
	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
		if (makers[i].whole ? !strcmp(name, makers[i].beginning)
				    : !strncmp(name, makers[i].beginning, strlen(makers[i].beginning)))
			return &makers[i];
	return NULL;
}

// Visit the entries of /dev that GPU drivers open.
static int visit_gpus(int (*take)(void *arg, const char *path, const struct maker *maker), void *arg)
{
	char path[8 + sizeof(((struct dirent *)0)->d_name)];
	struct dirent *entry;
	int result = 0;
	DIR *folder = opendir("/dev");
	while (folder && !result && (entry = readdir(folder))) {
		const struct maker *maker = maker_of(entry->d_name);
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		if (maker)
			result = take(arg, path, maker);
	}
	if (folder)
		closedir(folder);
	return result;
}

static int take_use(void *arg, const char *path, const struct maker *maker)
{
	const struct reach_visitor *visitor = arg;
	(void)maker;
	return visitor->take(visitor->arg, path, REACH_DEVICE);
}

int reach_each(const struct reach_visitor *visitor)
{
	int result = 0;
	if (visitor->narrow)
		return visitor->only ? visitor->take(visitor->arg, visitor->only, REACH_READ) : 0;
	if (visitor->cache_directory)
		result = visitor->take(visitor->arg, visitor->cache_directory,
				       visitor->fills_cache ? REACH_FILL : REACH_READ);
	for (size_t i = 0; !result && i < sizeof(readable) / sizeof(readable[0]); i++)
		result = visitor->take(visitor->arg, readable[i], REACH_READ);
	for (size_t i = 0; !result && i < sizeof(variables) / sizeof(variables[0]); i++)
		result = visit_listed(visitor, getenv(variables[i]));
	for (size_t i = 0; !result && i < sizeof(devices) / sizeof(devices[0]); i++)
		result = visitor->take(visitor->arg, devices[i], REACH_DEVICE);
	return result ? result : visit_gpus(take_use, (void *)visitor);
}

// ---- groups, and whose nodes there are ----

enum { DEPTH = 3 }; // of folders of nodes: /dev/nvgpu/igpu0

struct walk {
	int (*take)(struct walk *walk, const char *path, const struct stat *info, const struct maker *maker);
	gid_t *groups;
	int count;
	unsigned drivers, depth;
};

static int walk_node(void *arg, const char *path, const struct maker *maker)
{
	struct walk *walk = arg;
	struct stat info;
	char inner[4096];
	int result = 0;
	if (stat(path, &info))
		return 0;
	if (S_ISCHR(info.st_mode))
		return walk->take(walk, path, &info, maker);
	DIR *folder = S_ISDIR(info.st_mode) && walk->depth < DEPTH ? opendir(path) : NULL;
	walk->depth++;
	for (struct dirent *one; folder && !result && (one = readdir(folder));)
		if (one->d_name[0] != '.' && strlen(path) + strlen(one->d_name) + 2 < sizeof(inner)) {
			snprintf(inner, sizeof(inner), "%s/%s", path, one->d_name);
			result = walk_node(walk, inner, maker);
		}
	walk->depth--;
	if (folder)
		closedir(folder);
	return result;
}

// A node that a driver cannot do without: not those for managing, tracing and debugging a GPU, which are root's for a
// reason.
static bool is_needed(const char *path, const struct maker *maker)
{
	const char *name = strrchr(path, '/') + 1;
	if (!strcmp(maker->beginning, "dri"))
		return !strncmp(name, "renderD", 7);
	if (maker->driver == REACH_NVIDIA)
		return !strcmp(name, "nvidiactl") || !strcmp(name, "nvidia-uvm") ||
		       (!strncmp(name, "nvidia", 6) && isdigit((unsigned char)name[6]));
	if (maker->driver == REACH_TEGRA)
		return !strcmp(name, "nvmap") || !strcmp(name, "nvhost-gpu") || !strcmp(name, "nvhost-as-gpu") ||
		       !strcmp(name, "nvhost-ctrl-gpu");
	return true;
}

// Whether a path that a person has named exists and is not readable for all users.
static int take_named(void *arg, const char *path, enum reach_use use)
{
	struct stat info;
	(void)arg, (void)use;
	return !stat(path, &info) && !(info.st_mode & 04);
}

static int take_group(struct walk *walk, const char *path, const struct stat *info, const struct maker *maker)
{
	if ((info->st_mode & 06) == 06)
		return 0;
	if ((info->st_mode & 060) != 060 || !info->st_gid)
		return is_needed(path, maker);
	for (int i = 0; i < walk->count; i++)
		if (walk->groups[i] == info->st_gid)
			return 0;
	if (walk->count < REACH_GROUPS)
		walk->groups[walk->count++] = info->st_gid;
	return 0;
}

int reach_groups(gid_t groups[REACH_GROUPS])
{
	struct walk walk = {.take = take_group, .groups = groups};
	const struct reach_visitor named = {.take = take_named};
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (visit_listed(&named, getenv(variables[i])))
			return -1;
	return visit_gpus(walk_node, &walk) ? -1 : walk.count;
}

// The kernel's driver of a node below /dev/dri.
static bool is_nvidias(const struct stat *info)
{
	char path[96], driver[256] = "";
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/device/driver", major(info->st_rdev), minor(info->st_rdev));
	const char *slash = readlink(path, driver, sizeof(driver) - 1) > 0 ? strrchr(driver, '/') : NULL;
	return slash && !strcmp(slash + 1, "nvidia");
}

static int take_driver(struct walk *walk, const char *path, const struct stat *info, const struct maker *maker)
{
	if (is_needed(path, maker))
		walk->drivers |= !strcmp(maker->beginning, "dri") && is_nvidias(info) ? REACH_NVIDIA : maker->driver;
	return 0;
}

unsigned reach_drivers(void)
{
	struct walk walk = {.take = take_driver};
	visit_gpus(walk_node, &walk);
	return walk.drivers;
}
