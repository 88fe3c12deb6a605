/* A packet of multicast DNS as it comes from the network, answered in both ways. What is answered must be a whole
 * packet that is no question. */
#include "common/net/mdns/dnssd.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static const struct dnssd_service service = {.type = "_exo-gpu._tcp",
						     .instance = "living room (1f2e3d4c)",
						     .host = "exogpu-1f2e3d4c",
						     .port = 52415,
						     .txt = {"txtvers=1", "role=server"}};
	static const struct dnssd_address addresses[] = {{.bytes = {192, 168, 1, 20}}, {.ipv6 = true, .bytes = {0xfd}}};
	for (int legacy = 0; legacy < 2; legacy++) {
		struct dnssd_packet packet;
		bool unicast;
		const struct dnssd_query query = {.bytes = bytes, .length = length, .legacy = legacy};
		dnssd_answer(&service, addresses, 2, &query, &packet, &unicast);
		if (packet.length > DNSSD_PACKET_BYTES ||
		    (packet.length && (packet.length < 12 || !(packet.bytes[2] & 0x80))))
			abort();
		if (legacy && packet.length && !unicast)
			abort();
	}
	return 0;
}
