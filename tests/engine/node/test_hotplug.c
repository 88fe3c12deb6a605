/* Which changes count as changed hardware or drivers, and which do not. */
#include "engine/node/hotplug.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static char root[64], manifests[96];
static struct net_loop *loop;
static int changes;

static void make(const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	if (!text) {
		assert_int_equal(mkdir(path, 0700), 0);
		return;
	}
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void take_away(const char *name)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(remove(path), 0);
}

static int make_root(void **state)
{
	static const char *const folders[] = {"dev",           "dev/dri",     "sys",         "sys/class",
					      "sys/class/drm", "sys/bus",     "sys/bus/pci", "sys/bus/pci/devices",
					      "vulkan",        "vulkan/icd.d"};
	(void)state;
	snprintf(root, sizeof(root), "/tmp/exogpu-hotplug-XXXXXX");
	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		make(folders[i], NULL);
	snprintf(manifests, sizeof(manifests), "%s", root);
	setenv("XDG_DATA_HOME", manifests, 1);
	return (int)net_loop_create(&loop, NULL);
}

static int remove_root(void **state)
{
	char command[128];
	(void)state;
	net_loop_destroy(&loop);
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static void changed(void *arg)
{
	changes++;
	net_loop_stop(arg);
}

static struct hotplug *create(void)
{
	struct hotplug *hotplug;
	struct error error = {0};
	struct hotplug_params params = {.loop = loop, .root = root, .changed = changed, .arg = loop};
	assert_int_equal(hotplug_create(&hotplug, &params, &error), STATUS_OK);
	return hotplug;
}

static void devices_and_drivers_count(void **state)
{
	static const char *const names[] = {
		"dev/nvidia0",         "dev/nvidiactl",        "dev/kfd", "dev/mali0", "dev/dri/renderD128",
		"sys/class/drm/card0", "vulkan/icd.d/lvp.json"};
	(void)state;
	struct hotplug *hotplug = create();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		uint64_t before = hotplug_fingerprint(hotplug);
		make(names[i], "x");
		uint64_t with = hotplug_fingerprint(hotplug);
		assert_true(with != before);
		assert_true(hotplug_fingerprint(hotplug) == with);
		take_away(names[i]);
		assert_true(hotplug_fingerprint(hotplug) == before);
	}
	hotplug_destroy(&hotplug);
}

static void other_files_do_not_count(void **state)
{
	static const char *const names[] = {"dev/ttyS0", "dev/nvidia-modeset", "sys/class/drm/card0-HDMI-A-1"};
	(void)state;
	struct hotplug *hotplug = create();
	uint64_t before = hotplug_fingerprint(hotplug);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		make(names[i], "x");
		assert_true(hotplug_fingerprint(hotplug) == before);
		take_away(names[i]);
	}
	hotplug_destroy(&hotplug);
}

static void pci_displays_count_and_other_cards_do_not(void **state)
{
	(void)state;
	struct hotplug *hotplug = create();
	uint64_t before = hotplug_fingerprint(hotplug);
	make("sys/bus/pci/devices/0000:00:05.0", NULL);
	make("sys/bus/pci/devices/0000:00:05.0/class", "0x020000\n");
	assert_true(hotplug_fingerprint(hotplug) == before);
	make("sys/bus/pci/devices/0000:00:06.0", NULL);
	make("sys/bus/pci/devices/0000:00:06.0/class", "0x030200\n");
	// The class file came after its folder was seen: look again as if the folder had just appeared.
	make("sys/bus/pci/devices/0000:00:07.0", NULL);
	assert_true(hotplug_fingerprint(hotplug) != before);
	hotplug_destroy(&hotplug);
}

static void changed_manifest_counts(void **state)
{
	(void)state;
	make("vulkan/icd.d/lvp.json", "x");
	struct hotplug *hotplug = create();
	uint64_t before = hotplug_fingerprint(hotplug);
	make("vulkan/icd.d/lvp.json", "longer");
	assert_true(hotplug_fingerprint(hotplug) != before);
	take_away("vulkan/icd.d/lvp.json");
	hotplug_destroy(&hotplug);
}

static void late(void *arg)
{
	net_loop_stop(arg);
}

// The loop runs until `changed` stops it, 5 s at most.
static void change_is_told_within_five_seconds(void **state)
{
	struct net_timer timer = {0};
	(void)state;
	struct hotplug *hotplug = create();
	changes = 0;
	make("dev/nvidia0", "x");
	net_timer_start(loop, &timer, 5000, late, loop);
	net_loop_run(loop);
	assert_int_equal(changes, 1);
	net_timer_stop(loop, &timer);
	take_away("dev/nvidia0");
	hotplug_destroy(&hotplug);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_and_drivers_count),
		cmocka_unit_test(other_files_do_not_count),
		cmocka_unit_test(pci_displays_count_and_other_cards_do_not),
		cmocka_unit_test(changed_manifest_counts),
		cmocka_unit_test(change_is_told_within_five_seconds),
	};
	return cmocka_run_group_tests_name("node/hotplug", tests, make_root, remove_root);
}
