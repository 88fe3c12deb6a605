/* A packet of DNS, decoded by ldns record by record. ldns_wire2pkt loses memory where a packet has several signatures
 * (TSIG, up to ldns 1.8.3): anybody on the network could use up a server's. Thread: any. */
#pragma once
#include <ldns/ldns.h>
#include <stdint.h>

// The packet without its signatures and options (TSIG, EDNS), for which multicast DNS has no use. The caller frees it
// by ldns_pkt_free. NULL: the bytes are no packet, or there is no memory.
ldns_pkt *mdns_packet_read(const uint8_t *bytes, size_t length);
