/* The interface of a route, from Linux's files about it: made up here for the loopback interface, which every machine
 * has, and which is then taken for something else. */
#include "engine/node/links/links_route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka.h needs four of these above it.
#include <cmocka.h>

struct made {
	const char *type, *speed, *uevent, *driver, *device, *folder; // NULL: it has none
	const char *class;
	double bits_per_s;
};

static const struct made kinds[] = {
	{.type = "772", .device = "../../devices/virtual/net/lo", .class = "loopback", .bits_per_s = -1},
	{.type = "1",
	 .speed = "10000",
	 .device = "../../devices/pci0000:00/net/lo",
	 .class = "ethernet",
	 .bits_per_s = 10e9},
	{.type = "1",
	 .speed = "-1",
	 .device = "../../devices/pci0000:00/net/lo",
	 .class = "ethernet",
	 .bits_per_s = -1},
	{.type = "1", .folder = "wireless", .class = "wifi", .bits_per_s = -1},
	{.type = "1", .uevent = "DEVTYPE=wlan\nINTERFACE=lo\n", .class = "wifi", .bits_per_s = -1},
	{.type = "32", .speed = "200000", .class = "rdma", .bits_per_s = 200e9},
	{.type = "1",
	 .driver = "../../../bus/thunderbolt/drivers/thunderbolt-net",
	 .class = "thunderbolt",
	 .bits_per_s = -1},
	{.type = "512", .device = "../../devices/virtual/net/lo", .class = "cellular", .bits_per_s = -1},
	{.type = "1", .uevent = "INTERFACE=lo\nDEVTYPE=wwan\n", .class = "cellular", .bits_per_s = -1},
	{.type = "1",
	 .speed = "10000",
	 .device = "../../devices/virtual/net/lo",
	 .class = "virtual",
	 .bits_per_s = 10e9},
	{.type = "65534", .device = "../../devices/virtual/net/lo", .class = "virtual", .bits_per_s = -1},
	{.class = "unknown", .bits_per_s = -1},
};

static void put(const char *root, const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, "%s/sys/class/net/lo/%s", root, name);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	fclose(file);
}

// A folder, or where a link leads.
static void put_folder(const char *root, const char *name, const char *target)
{
	char path[256];
	snprintf(path, sizeof path, "%s%s", root, name);
	assert_int_equal(target ? symlink(target, path) : mkdir(path, 0700), 0);
}

static void make(const char *root, const struct made *made)
{
	put_folder(root, "/sys", NULL);
	put_folder(root, "/sys/class", NULL);
	put_folder(root, "/sys/class/net", NULL);
	if (made->device) { // as Linux has it: the interface is a link to its device
		put_folder(root, "/sys/devices", NULL);
		put_folder(root, "/sys/devices/virtual", NULL);
		put_folder(root, "/sys/devices/virtual/net", NULL);
		put_folder(root, "/sys/devices/virtual/net/lo", NULL);
		put_folder(root, "/sys/devices/pci0000:00", NULL);
		put_folder(root, "/sys/devices/pci0000:00/net", NULL);
		put_folder(root, "/sys/devices/pci0000:00/net/lo", NULL);
	}
	put_folder(root, "/sys/class/net/lo", made->device);
	if (made->driver) {
		put_folder(root, "/sys/class/net/lo/device", NULL);
		put_folder(root, "/sys/class/net/lo/device/driver", made->driver);
	}
	if (made->folder) {
		char name[64];
		snprintf(name, sizeof name, "/sys/class/net/lo/%s", made->folder);
		put_folder(root, name, NULL);
	}
	if (made->type)
		put(root, "type", made->type);
	if (made->speed)
		put(root, "speed", made->speed);
	if (made->uevent)
		put(root, "uevent", made->uevent);
}

static void remove_all(const char *root)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", root);
	assert_int_equal(system(command), 0);
}

static void what_linux_says(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		char root[] = "/tmp/exogpu-route-XXXXXX";
		struct link_route route;
		assert_non_null(mkdtemp(root));
		make(root, &kinds[i]);
		link_route_read(&route, "127.0.0.1", root);
		assert_string_equal(route.interface, "lo");
		assert_string_equal(route.class, kinds[i].class);
		assert_true(route.bits_per_s == kinds[i].bits_per_s);
		remove_all(root);
	}
}

static void this_machine(void **state)
{
	struct link_route route;
	(void)state;
	link_route_read(&route, "127.0.0.2", "");
	assert_string_equal(route.interface, "lo");
	link_route_read(&route, "192.0.2.77", ""); // nobody's
	assert_string_equal(route.interface, "");
	assert_string_equal(route.class, "unknown");
	assert_true(route.bits_per_s < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(what_linux_says), cmocka_unit_test(this_machine)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
