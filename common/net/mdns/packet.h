/* A packet of DNS, decoded by ldns record by record. ldns_wire2pkt loses memory where a packet has several signatures
 * (TSIG, up to ldns 1.8.3): anybody on the network could use up a server's. Thread: any. */
#pragma once
#include <ldns/ldns.h>
#include <stdint.h>

// What a packet says but for signatures and options (TSIG, EDNS), which multicast DNS has no use for. Freed by
// ldns_pkt_free. NULL: it is no packet, or there is no memory.
ldns_pkt *mdns_packet_read(const uint8_t *bytes, size_t length);
