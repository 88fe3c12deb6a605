/* Packets of DNS-SD over multicast DNS (RFC 6762, 6763) for one service that this machine offers: announcements and
 * answers to queries. ldns encodes them. Packets from the network are bounded and may contain anything. Pure. Thread:
 * any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
	DNSSD_PACKET_BYTES = 1472, // sent at most: one frame of Ethernet
	DNSSD_QUERY_BYTES = 9000,  // read at most
	DNSSD_LABEL_BYTES = 63,
	DNSSD_TXT = 16,        // keys
	DNSSD_TXT_BYTES = 400, // of all together
	DNSSD_ADDRESSES = 16,
};

struct dnssd_service {
	const char *type;               // "_exo-gpu._tcp"
	const char *instance;           // what a person sees; UTF-8, 1 to 63 bytes
	const char *host;               // one label; .local is added
	const char *txt[DNSSD_TXT + 1]; // "key=value", each at most 255 bytes; ends with NULL
	uint16_t port;
};

// An address of the interface that the packet goes out by.
struct dnssd_address {
	bool ipv6;
	uint8_t bytes[16]; // the first 4 of IPv4
};

struct dnssd_packet {
	size_t length;
	uint8_t bytes[DNSSD_PACKET_BYTES];
};

// Errors: STATUS_INVALID_PARAMS (a name or text that is too long).
enum status dnssd_check(const struct dnssd_service *service, struct error *error);
// All records of the service, unasked. goodbye: with a time to live of 0: it goes.
enum status dnssd_announce(const struct dnssd_service *service, const struct dnssd_address *addresses, size_t count,
			   bool goodbye, struct dnssd_packet *packet);
// The answer to what came, if it asks for this service and does not know the answer already: length 0 otherwise.
// legacy: it did not come from port 5353, so the answer repeats id and question, and goes to the asker alone; *unicast:
// it asked for that itself.
struct dnssd_query {
	const uint8_t *bytes; // (length)
	size_t length;
	bool legacy;
};
void dnssd_answer(const struct dnssd_service *service, const struct dnssd_address *addresses, size_t count,
		  const struct dnssd_query *query, struct dnssd_packet *packet, bool *unicast);
