/* See addresses.h. The addresses are read every few seconds, which takes a few system calls: a change is not urgent,
 * and unlike a socket that notifies of changes nothing can be missed. */
#include "engine/node/uplink/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

enum { LOOK_MS = 3000, ADDRESSES_MOST = 64 };

struct json *addresses_list(void)
{
	struct json *addresses = json_new_array();
	struct ifaddrs *list = NULL;
	size_t count = 0;
	if (getifaddrs(&list))
		return addresses;
	for (struct ifaddrs *item = list; item && count < ADDRESSES_MOST; item = item->ifa_next) {
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

const char *addresses_unknown(const char *host)
{
	const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	const int fault = getaddrinfo(host, NULL, &wanted, &found);
	if (fault)
		return gai_strerror(fault);
	freeaddrinfo(found);
	return NULL;
}

static bool has(const struct json *list, const char *text)
{
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), text))
			return true;
	return false;
}

// In any order.
static bool same(const struct json *a, const struct json *b)
{
	const struct json *one = json_count(a) == json_count(b) ? json_first(a) : NULL;
	if (!one)
		return json_count(a) == json_count(b);
	while (one && has(b, json_string(one, "")))
		one = json_next(one);
	return !one;
}

static void look(void *arg)
{
	struct addresses *addresses = arg;
	struct json *now = addresses_list();
	const bool changed = addresses->last && !same(addresses->last, now);
	json_destroy(&addresses->last);
	addresses->last = now;
	net_timer_start(addresses->loop, &addresses->look, LOOK_MS, look, addresses);
	if (changed)
		addresses->changed(addresses->arg);
}

void addresses_watch(struct addresses *addresses)
{
	look(addresses);
}

void addresses_finish(struct addresses *addresses)
{
	if (addresses->last)
		net_timer_stop(addresses->loop, &addresses->look);
	json_destroy(&addresses->last);
}
