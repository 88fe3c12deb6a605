/* See record.h. */
#include "engine/node/record.h"

#include "engine/device/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum { RECORD_ADDRESSES = 64 };

// PRETTY_NAME of /etc/os-release, without its quotes: "Debian GNU/Linux 12 (bookworm)".
static bool read_os(char *name, size_t size)
{
	static const char *const files[] = {"/etc/os-release", "/usr/lib/os-release"};
	static const char key[] = "PRETTY_NAME=";
	char text[4096];
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!host_read_file(files[i], text, sizeof(text)))
			continue;
		for (char *line = text; line; line = strchr(line, '\n')) {
			line += *line == '\n';
			if (strncmp(line, key, sizeof(key) - 1))
				continue;
			line += sizeof(key) - 1;
			line += *line == '"' || *line == '\'';
			line[strcspn(line, "\"'\n")] = 0;
			text_copy(name, size, line);
			return name[0] != 0;
		}
	}
	return false;
}

// Addresses of interfaces that are up; not loopback, not link-local (they mean nothing to another machine).
static struct json *list_addresses(void)
{
	struct json *addresses = json_new_array();
	struct ifaddrs *list = NULL;
	size_t count = 0;
	if (getifaddrs(&list))
		return addresses;
	for (struct ifaddrs *item = list; item && count < RECORD_ADDRESSES; item = item->ifa_next) {
		char text[INET6_ADDRSTRLEN] = "";
		if (!item->ifa_addr || !(item->ifa_flags & IFF_UP) || (item->ifa_flags & IFF_LOOPBACK))
			continue;
		if (item->ifa_addr->sa_family == AF_INET) {
			struct sockaddr_in address;
			memcpy(&address, item->ifa_addr, sizeof(address));
			inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
		} else if (item->ifa_addr->sa_family == AF_INET6) {
			struct sockaddr_in6 address;
			memcpy(&address, item->ifa_addr, sizeof(address));
			if (!IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr))
				inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
		}
		if (text[0]) {
			json_push(addresses, json_new_string(text));
			count++;
		}
	}
	freeifaddrs(list);
	return addresses;
}

struct json *record_build(const struct record_params *params)
{
	struct host_cpu host;
	struct utsname system = {0};
	char os[256] = "";
	uname(&system);
	host_cpu_read(&host);
	read_os(os, sizeof(os));
	const char *host_name = system.nodename[0] ? system.nodename : "unnamed";
	struct json *json = json_new_object();
	json_set_string(json, "node_id", params->node_id);
	json_set_string(json, "name", params->name && params->name[0] ? params->name : host_name);
	json_set_string(json, "host_name", host_name);
	json_set_maybe_text(json, "os", os);
	json_set_maybe_text(json, "kernel", system.release);
	json_set_maybe_text(json, "arch", system.machine);
	json_set_maybe_text(json, "cpu_model", host.model);
	json_set_maybe_count(json, "cpu_cores", host.cores);
	json_set_maybe_count(json, "cpu_threads", host.threads);
	json_set_maybe_count(json, "memory_bytes", host.memory_bytes);
	json_set_string(json, "version", EXOGPU_VERSION);
	json_set_integer(json, "link_port", params->link_port);
	json_set(json, "addresses", list_addresses());
	json_set(json, "backends", params->backends);
	json_set(json, "libraries", params->libraries);
	json_set(json, "capabilities", words_to_json(host.features));
	return json;
}
