/* The names of this machine: its host name, also with .local for multicast DNS, the addresses of its interfaces, and
 * those that the operator adds. Link-local IPv6 addresses are left out: they need an interface's name, which a
 * certificate cannot hold. Thread: the loop's. */
#include "server/security/certificates/authority_inside.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool names_hold(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (!strcasecmp(names->list[i], name))
			return true;
	return false;
}

// Texts of one address may differ; its own is the one that inet_ntop writes.
static bool normalise_address(const char *text, char out[256])
{
	unsigned char bytes[16];
	for (int i = 0; i < 2; i++) {
		int family = i ? AF_INET6 : AF_INET;
		if (inet_pton(family, text, bytes) == 1)
			return inet_ntop(family, bytes, out, 256) != NULL;
	}
	return false;
}

static bool is_dns_name(const char *text)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	size_t length = strlen(text);
	return length && length < 254 && strspn(text, letters) == length && text[0] != '.' && text[0] != '-';
}

bool names_add(struct names *names, const char *name)
{
	char text[256] = "";
	if (!normalise_address(name, text)) {
		if (!is_dns_name(name))
			return false;
		for (size_t i = 0; name[i]; i++) {
			text[i] = (char)tolower((unsigned char)name[i]);
			text[i + 1] = 0;
		}
	}
	if (names->count < LIMIT_CERTIFICATE_NAMES && !names_hold(names, text))
		snprintf(names->list[names->count++], sizeof(names->list[0]), "%s", text);
	return true;
}

// False if one of the list is no name.
static bool add_given(struct names *names, const char *list)
{
	bool good = true;
	while (*list) {
		char name[256];
		size_t length = strcspn(list, ",");
		snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : 0), list);
		good = names_add(names, name) && good;
		list += length + (list[length] == ',');
	}
	return good;
}

static void add_host(struct names *names)
{
	char host[254] = "", local[254 + sizeof(".local")];
	if (gethostname(host, sizeof(host) - 1))
		return;
	names_add(names, host);
	snprintf(local, sizeof(local), "%.*s.local", (int)strcspn(host, "."), host);
	names_add(names, local);
}

static void add_interfaces(struct names *names)
{
	struct ifaddrs *list = NULL;
	if (getifaddrs(&list))
		return;
	for (struct ifaddrs *item = list; item; item = item->ifa_next) {
		char text[INET6_ADDRSTRLEN] = "";
		if (!item->ifa_addr || !(item->ifa_flags & IFF_UP))
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
		if (text[0])
			names_add(names, text);
	}
	freeifaddrs(list);
}

bool authority_collect_names(const struct authority *authority, struct names *names)
{
	names->count = 0;
	bool good = !authority->params.names || add_given(names, authority->params.names);
	add_host(names);
	names_add(names, "localhost");
	names_add(names, "127.0.0.1");
	names_add(names, "::1");
	add_interfaces(names);
	return good;
}

// The address that packets to the rest of the world carry. Connecting a datagram socket only asks the routing table.
static bool find_route(char text[256])
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, from;
	socklen_t length = sizeof(from);
	inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)) &&
		     !getsockname(fd, (struct sockaddr *)&from, &length) && from.sin_addr.s_addr != htonl(INADDR_ANY) &&
		     inet_ntop(AF_INET, &from.sin_addr, text, 256);
	if (fd >= 0)
		close(fd);
	return found;
}

static bool is_address(const char *name)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool is_loopback(const char *name)
{
	return !strcmp(name, "localhost") || !strncmp(name, "127.", 4) || !strcmp(name, "::1");
}

static void take_first(void *context, const char *name)
{
	char *first = context;
	if (!first[0] && name[0] != '*' && !is_loopback(name))
		snprintf(first, 256, "%s", name);
}

void authority_find_reachable(struct authority *authority)
{
	char *name = authority->reachable;
	name[0] = 0;
	if (authority->params.names && authority->names.count)
		take_first(name, authority->names.list[0]);
	if (!name[0] && authority->own.certificate)
		certificate_each_name(authority->own.certificate, take_first, name);
	if (name[0] || find_route(name))
		return;
	// In a network that leads nowhere else it is an interface's address: not every machine finds names with .local.
	for (size_t i = 0; i < authority->names.count; i++)
		if (is_address(authority->names.list[i]))
			take_first(name, authority->names.list[i]);
	for (size_t i = 0; i < authority->names.count; i++)
		if (strchr(authority->names.list[i], '.'))
			take_first(name, authority->names.list[i]);
}
