/* See hotplug.h. The fingerprint is a sum over names, so the order in which a folder lists them does not matter. */
#include "engine/node/hotplug.h"

#include "common/base/log.h"
#include "engine/device/host.h"
#include "engine/device/manifest.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_MS = 2000, SETTLE_MS = 300, ROOT_BYTES = 256 };

struct hotplug {
	struct hotplug_params params;
	char root[ROOT_BYTES];
	struct net_watch *inotify;
	int inotify_fd; // owned by the watch; -1 without
	struct net_timer look;
	uint64_t fingerprint;
	uint64_t pci_names, pci_displays; // the last look at PCI: names of all devices, and of the displays among them
	bool pci_known;
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull; // FNV-1a
	return (hash ^ 255) * 0x100000001b3ull;
}

// The sum of `entry` over the names in a folder; entry returns 0 for one that does not count.
static uint64_t sum_folder(struct hotplug *hotplug, const char *folder,
			   uint64_t (*entry)(struct hotplug *hotplug, const char *folder, const char *name))
{
	uint64_t sum = 0;
	DIR *entries = opendir(folder);
	struct dirent *item;
	while (entries && (item = readdir(entries)))
		if (item->d_name[0] != '.')
			sum += entry(hotplug, folder, item->d_name);
	if (entries)
		closedir(entries);
	return sum;
}

static uint64_t entry_any(struct hotplug *hotplug, const char *folder, const char *name)
{
	(void)hotplug;
	return hash_text(hash_text(1, folder), name);
}

// Device files of GPU drivers: nvidia0, nvidiactl, kfd (AMD), dxg (WSL), mali0, kgsl-3d0 (Adreno). nvidia-uvm
// may come only when a worker first opens the driver: one more look then, and no harm.
static uint64_t entry_device(struct hotplug *hotplug, const char *folder, const char *name)
{
	static const char *const exact[] = {"nvidiactl", "nvidia-uvm", "kfd", "dxg", "kgsl-3d0"};
	bool counts = (!strncmp(name, "nvidia", 6) && name[6] >= '0' && name[6] <= '9') || !strncmp(name, "mali", 4);
	for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++)
		counts |= !strcmp(name, exact[i]);
	return counts ? entry_any(hotplug, folder, name) : 0;
}

// Cards, not their connectors (card0-HDMI-A-1).
static uint64_t entry_card(struct hotplug *hotplug, const char *folder, const char *name)
{
	return strchr(name, '-') ? 0 : entry_any(hotplug, folder, name);
}

static uint64_t entry_display(struct hotplug *hotplug, const char *folder, const char *name)
{
	char path[ROOT_BYTES + 320], class[16];
	snprintf(path, sizeof(path), "%s/%s/class", folder, name);
	if (!host_read_file(path, class, sizeof(class)) || strncmp(class, "0x03", 4))
		return 0;
	return entry_any(hotplug, folder, name);
}

static uint64_t hash_file(const char *path)
{
	struct stat state;
	char text[64];
	if (stat(path, &state))
		return 0;
	snprintf(text, sizeof(text), "%lld.%09ld %lld", (long long)state.st_mtim.tv_sec, state.st_mtim.tv_nsec,
		 (long long)state.st_size);
	return hash_text(hash_text(2, path), text);
}

static uint64_t entry_manifest(struct hotplug *hotplug, const char *folder, const char *name)
{
	char path[MANIFEST_PATH_BYTES + 260];
	(void)hotplug;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return hash_file(path);
}

static uint64_t fingerprint_manifests(struct hotplug *hotplug)
{
	struct manifest_paths paths;
	uint64_t sum = 0;
	manifest_find_paths(&paths);
	for (size_t i = 0; i < paths.count; i++)
		sum += paths.files ? hash_file(paths.paths[i]) : sum_folder(hotplug, paths.paths[i], entry_manifest);
	return sum;
}

// Reading the class of each PCI device is dear; their names tell whether it has to be done again.
static uint64_t fingerprint_pci(struct hotplug *hotplug)
{
	char folder[ROOT_BYTES + 32];
	snprintf(folder, sizeof(folder), "%s/sys/bus/pci/devices", hotplug->root);
	uint64_t names = sum_folder(hotplug, folder, entry_any);
	if (!hotplug->pci_known || names != hotplug->pci_names)
		hotplug->pci_displays = sum_folder(hotplug, folder, entry_display);
	hotplug->pci_names = names;
	hotplug->pci_known = true;
	return hotplug->pci_displays;
}

uint64_t hotplug_fingerprint(struct hotplug *hotplug)
{
	char folder[ROOT_BYTES + 32];
	uint64_t sum = fingerprint_pci(hotplug) + fingerprint_manifests(hotplug);
	snprintf(folder, sizeof(folder), "%s/dev", hotplug->root);
	sum += sum_folder(hotplug, folder, entry_device);
	snprintf(folder, sizeof(folder), "%s/dev/dri", hotplug->root);
	sum += sum_folder(hotplug, folder, entry_any);
	snprintf(folder, sizeof(folder), "%s/sys/class/drm", hotplug->root);
	return sum + sum_folder(hotplug, folder, entry_card);
}

// Folders that are not there yet are not watched; the look every 2 s finds them. Adding one twice is no harm.
static void add_watches(struct hotplug *hotplug)
{
	static const char *const folders[] = {"dev", "dev/dri", "sys/class/drm"};
	const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_CLOSE_WRITE | IN_ONLYDIR;
	struct manifest_paths paths;
	manifest_find_paths(&paths);
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		char folder[ROOT_BYTES + 32];
		snprintf(folder, sizeof(folder), "%s/%s", hotplug->root, folders[i]);
		// Writes to device files are none of our business, and there are many.
		inotify_add_watch(hotplug->inotify_fd, folder, mask & ~(uint32_t)IN_CLOSE_WRITE);
	}
	for (size_t i = 0; i < paths.count && !paths.files; i++)
		inotify_add_watch(hotplug->inotify_fd, paths.paths[i], mask);
}

static void look(void *arg)
{
	struct hotplug *hotplug = arg;
	net_timer_start(hotplug->params.loop, &hotplug->look, LOOK_MS, look, hotplug);
	uint64_t fingerprint = hotplug_fingerprint(hotplug);
	if (fingerprint == hotplug->fingerprint)
		return;
	hotplug->fingerprint = fingerprint;
	if (hotplug->inotify_fd >= 0)
		add_watches(hotplug);
	hotplug->params.changed(hotplug->params.arg);
}

// Drivers make several files at once: look when it is quiet for a moment, at the latest when the timer is due anyway.
static void inotify_readable(void *arg, int fd)
{
	struct hotplug *hotplug = arg;
	char events[4096];
	bool any = false;
	while (read(fd, events, sizeof(events)) > 0)
		any = true;
	if (any && hotplug->look.due_ms > 0)
		net_timer_start(hotplug->params.loop, &hotplug->look, SETTLE_MS, look, hotplug);
}

static const struct net_watch_events inotify_events = {.readable = inotify_readable};

enum status hotplug_create(struct hotplug **out, const struct hotplug_params *params, struct error *error)
{
	struct hotplug *hotplug = calloc(1, sizeof(*hotplug));
	*out = hotplug;
	if (!hotplug)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to watch for devices");
	hotplug->params = *params;
	snprintf(hotplug->root, sizeof(hotplug->root), "%s", params->root ? params->root : "");
	struct error fault = {0};
	hotplug->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (hotplug->inotify_fd >= 0 &&
	    net_watch_create(&hotplug->inotify, params->loop, hotplug->inotify_fd, &inotify_events, hotplug, &fault)) {
		close(hotplug->inotify_fd);
		hotplug->inotify_fd = -1;
	}
	if (hotplug->inotify_fd >= 0)
		add_watches(hotplug);
	else
		log_info("node", "inotify is not available: devices that come and go are looked for every %d s",
			 LOOK_MS / 1000);
	hotplug->fingerprint = hotplug_fingerprint(hotplug);
	net_timer_start(params->loop, &hotplug->look, LOOK_MS, look, hotplug);
	return STATUS_OK;
}

void hotplug_destroy(struct hotplug **hotplug)
{
	if (!*hotplug)
		return;
	net_timer_stop((*hotplug)->params.loop, &(*hotplug)->look);
	net_watch_destroy(&(*hotplug)->inotify);
	free(*hotplug);
	*hotplug = NULL;
}
