/* Announces a service on the local networks: DNS-SD over multicast DNS, on every
 * interface, IPv4 and IPv6. multicast.h has the sockets, dnssd.h the packets; this file
 * decides when to send. Announcements are hints and never trusted: whoever hears one still
 * requires a certificate. Without multicast the program runs on and says so once. Thread:
 * the loop's. */
#pragma once
#include "common/net/loop.h"
#include "common/net/mdns/dnssd.h"

struct net_announcer;

// Everything is copied. Errors: STATUS_INVALID_PARAMS (dnssd_check's), STATUS_OUT_OF_MEMORY.
enum status net_announcer_create(struct net_announcer **out, struct net_loop *loop, const struct dnssd_service *service,
				 struct error *error);
// Other texts, or another port, under the same names: told at once. Errors: STATUS_INVALID_PARAMS.
enum status net_announcer_update(struct net_announcer *announcer, const struct dnssd_service *service,
				 struct error *error);
// Says goodbye.
void net_announcer_destroy(struct net_announcer **announcer);
