/* See address.h. */
#include "common/net/address.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX_BYTES = 8, IPV4_BYTES = 4 };

bool net_address_read(struct net_address *address, const char *text)
{
	uint8_t bytes[16];
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	size_t length = IPV4_BYTES, at = 0;
	*address = (struct net_address){0};
	if (inet_pton(AF_INET, text, bytes) != 1) {
		char bare[INET6_ADDRSTRLEN];
		snprintf(bare, sizeof bare, "%.*s", (int)strcspn(text, "%"), text); // without its interface
		if (inet_pton(AF_INET6, bare, bytes) != 1)
			return false;
		if (!memcmp(bytes, mapped, sizeof mapped)) { // an IPv4 address on a socket for both
			at = sizeof mapped;
		} else {
			address->ipv6 = true;
			length = PREFIX_BYTES;
		}
	}
	for (size_t i = 0; i < length; i++)
		address->bits = address->bits << 8 | bytes[at + i];
	return true;
}

void net_address_print(const struct net_address *address, char text[NET_ADDRESS_TEXT_BYTES])
{
	uint8_t bytes[16] = {0};
	char printed[INET6_ADDRSTRLEN];
	size_t length = address->ipv6 ? PREFIX_BYTES : IPV4_BYTES;
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(address->bits >> 8 * (length - 1 - i));
	if (!inet_ntop(address->ipv6 ? AF_INET6 : AF_INET, bytes, printed, sizeof printed))
		printed[0] = 0;
	snprintf(text, NET_ADDRESS_TEXT_BYTES, address->ipv6 ? "%s/64" : "%s", printed);
}
