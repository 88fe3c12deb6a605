/* Notices hardware and drivers that come and go, within 5 s.
 *
 * inotify on /dev, /dev/dri, /sys/class/drm and the Vulkan manifest folders says that something may have changed; a
 * look every 2 s finds what inotify cannot (sysfs, folders that appear later). Either way a fingerprint is taken: the
 * names of GPU device files, the DRM cards, the display devices on PCI, and the manifests with their times. Only when
 * that differs is `changed` called, so an idle node starts no workers. Thread: the loop's. Owns its inotify descriptor.
 */
#pragma once
#include "common/net/loop.h"

struct hotplug;

struct hotplug_params {
	struct net_loop *loop;
	const char *root; // "" for the real system; a test gives a folder with dev/ and sys/ in it. Copied.
	void (*changed)(void *arg);
	void *arg;
};

enum status hotplug_create(struct hotplug **out, const struct hotplug_params *params, struct error *error);
void hotplug_destroy(struct hotplug **hotplug);
// The fingerprint of the present state; for tests.
uint64_t hotplug_fingerprint(struct hotplug *hotplug);
