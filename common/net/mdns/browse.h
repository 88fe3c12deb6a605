/* Listens for services on the local networks: DNS-SD over multicast DNS, IPv4 and IPv6, on every
 * interface. multicast.h has the sockets, heard.h what was heard and what to ask; this file
 * decides when. It asks at once on each new interface, then after 1, 2, 4 ... 60 s, listing what
 * is known; and at most once a second for what is missing or about to expire. Only answers to the
 * group from port 5353 count, and a limited number each second. No router forwards them, so the
 * sender is on the same network (RFC 6762, 11). Nothing that is heard is proven. Thread: the
 * loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/mdns/heard.h"
#include "common/net/mdns/multicast.h"

struct net_browser;

// `changed` (may be NULL) is called a moment after the table has changed, several changes at once; it may destroy the
// browser. Errors: STATUS_OUT_OF_MEMORY; that multicast is not to be had is none, see net_browser_works.
enum status net_browser_create(struct net_browser **out, struct net_loop *loop, const char *type,
			       void (*changed)(void *arg), void *arg, struct error *error);
void net_browser_destroy(struct net_browser **browser);
// Valid until the loop turns.
const struct heard *net_browser_heard(const struct net_browser *browser);
// The name of an interface that something was heard on.
const char *net_browser_interface(const struct net_browser *browser, unsigned index);
// How many interfaces are listened to, and as net_multicast_works.
size_t net_browser_interfaces(const struct net_browser *browser);
bool net_browser_works(const struct net_browser *browser, char why[NET_MULTICAST_WHY_BYTES]);

// Where to reach a service, the likeliest first: addresses that it was heard from itself, IPv4 before IPv6, those of
// one link last, and with its name ("fe80::1%eth0"). Returns how many.
enum { NET_BROWSE_ADDRESS_BYTES = 64 };
size_t net_browser_addresses(const struct net_browser *browser, const struct heard_service *service,
			     char out[][NET_BROWSE_ADDRESS_BYTES], size_t room);

// All that is heard, what was heard first at the beginning; returns how many.
size_t net_browser_list(const struct net_browser *browser, const struct heard_service *out[LIMIT_HEARD]);
// Heard of schema/api.json, but for what became of it; and for its times unless `timed`.
struct json *net_browser_describe(const struct net_browser *browser, const struct heard_service *service, bool timed);
