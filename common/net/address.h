/* Addresses as limits count them: an IPv4 address, or the /64 prefix of an IPv6 address, because a provider gives each
 * customer a /64 or more. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct net_address {
	uint64_t bits;
	bool ipv6;
};

// From a numeric text. False: it is none (that of a Unix socket, for example); then *address is all zero.
bool net_address_read(struct net_address *address, const char *text);
// "192.0.2.7", "2001:db8:1:2::/64".
enum { NET_ADDRESS_TEXT_BYTES = 64 };
void net_address_print(const struct net_address *address, char text[NET_ADDRESS_TEXT_BYTES]);

static inline bool net_address_same(const struct net_address *one, const struct net_address *other)
{
	return one->bits == other->bits && one->ipv6 == other->ipv6;
}
