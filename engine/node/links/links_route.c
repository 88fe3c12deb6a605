/* See links_route.h. Linux says what an interface is in /sys/class/net/NAME: a link into the device's driver, `type`
 * (ARPHRD_*), folders that only some kinds have. What is under devices/virtual has no hardware of its own. */
#include "engine/node/links/links_route.h"

#include "engine/device/host.h"
#include "engine/device/info.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, TYPE_LOOPBACK = 772, TYPE_PPP = 512, TYPE_INFINIBAND = 32, MBIT = 1000 * 1000 };

static bool same_address(const struct sockaddr *address, const char *text)
{
	char own[INET6_ADDRSTRLEN] = "";
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	if (!address)
		return false;
	if (address->sa_family == AF_INET) {
		memcpy(&v4, address, sizeof v4);
		inet_ntop(AF_INET, &v4.sin_addr, own, sizeof own);
	} else if (address->sa_family == AF_INET6) {
		memcpy(&v6, address, sizeof v6);
		inet_ntop(AF_INET6, &v6.sin6_addr, own, sizeof own);
	}
	return own[0] && !strcmp(own, text);
}

static void find_interface(const char *address, char out[LINK_INTERFACE_BYTES])
{
	struct ifaddrs *list = NULL;
	if (getifaddrs(&list))
		return;
	for (const struct ifaddrs *item = list; item && !out[0]; item = item->ifa_next)
		if (same_address(item->ifa_addr, address))
			text_copy(out, LINK_INTERFACE_BYTES, item->ifa_name);
	freeifaddrs(list);
	// Every address of 127.0.0.0/8 is the loopback's, though only one is listed.
	if (!out[0] && !strncmp(address, "127.", 4))
		text_copy(out, LINK_INTERFACE_BYTES, "lo");
}

struct place {
	const char *root, *interface;
};

static bool has(const struct place *place, const char *what)
{
	char path[PATH_BYTES];
	snprintf(path, sizeof path, "%s/sys/class/net/%s/%s", place->root, place->interface, what);
	return !access(path, F_OK);
}

static long number(const struct place *place, const char *what)
{
	char path[PATH_BYTES], text[64];
	snprintf(path, sizeof path, "%s/sys/class/net/%s/%s", place->root, place->interface, what);
	return host_read_file(path, text, sizeof text) ? strtol(text, NULL, 10) : -1;
}

// The target of a symbolic link, or "".
static void target(const struct place *place, const char *what, char out[PATH_BYTES])
{
	char path[PATH_BYTES];
	snprintf(path, sizeof path, "%s/sys/class/net/%s%s", place->root, place->interface, what);
	ssize_t length = readlink(path, out, PATH_BYTES - 1);
	out[length > 0 ? length : 0] = 0;
}

// Whether the driver gives the device this kind: "wlan", "wwan", "bridge".
static bool is_kind(const struct place *place, const char *kind)
{
	char path[PATH_BYTES], text[1024], line[64];
	snprintf(path, sizeof path, "%s/sys/class/net/%s/uevent", place->root, place->interface);
	if (!host_read_file(path, text, sizeof text))
		return false;
	snprintf(line, sizeof line, "DEVTYPE=%s", kind);
	const char *at = strstr(text, line);
	return at && (at[strlen(line)] == '\n' || !at[strlen(line)]);
}

static const char *class_of(const struct place *place)
{
	char driver[PATH_BYTES], device[PATH_BYTES];
	const long type = number(place, "type");
	target(place, "/device/driver", driver);
	target(place, "", device);
	if (type == TYPE_LOOPBACK)
		return "loopback";
	if (type == TYPE_INFINIBAND || has(place, "device/infiniband"))
		return "rdma";
	if (has(place, "wireless") || has(place, "phy80211") || is_kind(place, "wlan"))
		return "wifi";
	if (strstr(driver, "thunderbolt"))
		return "thunderbolt";
	if (type == TYPE_PPP || is_kind(place, "wwan") || !strncmp(place->interface, "wwan", 4))
		return "cellular";
	if (strstr(device, "/virtual/"))
		return "virtual";
	return type < 0 ? "unknown" : "ethernet";
}

void link_route_read(struct link_route *route, const char *local_address, const char *root)
{
	*route = (struct link_route){.class = "unknown", .bits_per_s = -1};
	find_interface(local_address, route->interface);
	if (!route->interface[0])
		return;
	const struct place place = {root, route->interface};
	route->class = class_of(&place);
	long speed = number(&place, "speed"); // -1 if there is none, or if it is unknown
	if (speed > 0)
		route->bits_per_s = (double)speed * MBIT;
}
