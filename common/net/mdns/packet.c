/* See packet.h. */
#include "common/net/mdns/packet.h"

static bool is_about_the_packet(const ldns_rr *rr)
{
	return ldns_rr_get_type(rr) == LDNS_RR_TYPE_OPT || ldns_rr_get_type(rr) == LDNS_RR_TYPE_TSIG;
}

// So many records of a section, from `at` on. False: one of them is none, or there is no memory.
static bool read_section(ldns_pkt *packet, ldns_pkt_section section, unsigned count, const uint8_t *bytes,
			 size_t length, size_t *at)
{
	for (unsigned i = 0; i < count; i++) {
		ldns_rr *rr = NULL;
		if (ldns_wire2rr(&rr, bytes, length, at, section) != LDNS_STATUS_OK)
			return false;
		const bool kept = section == LDNS_SECTION_QUESTION || !is_about_the_packet(rr);
		const bool good = !kept || ldns_pkt_push_rr(packet, section, rr);
		if (!kept || !good)
			ldns_rr_free(rr);
		if (!good)
			return false;
	}
	return true;
}

ldns_pkt *mdns_packet_read(const uint8_t *bytes, size_t length)
{
	size_t at = LDNS_HEADER_SIZE;
	ldns_pkt *packet = length < LDNS_HEADER_SIZE ? NULL : ldns_pkt_new();
	if (!packet)
		return NULL;
	ldns_pkt_set_id(packet, LDNS_ID_WIRE(bytes));
	ldns_pkt_set_qr(packet, LDNS_QR_WIRE(bytes) != 0);
	ldns_pkt_set_opcode(packet, (ldns_pkt_opcode)LDNS_OPCODE_WIRE(bytes));
	ldns_pkt_set_rcode(packet, (uint8_t)LDNS_RCODE_WIRE(bytes));
	if (!read_section(packet, LDNS_SECTION_QUESTION, LDNS_QDCOUNT(bytes), bytes, length, &at) ||
	    !read_section(packet, LDNS_SECTION_ANSWER, LDNS_ANCOUNT(bytes), bytes, length, &at) ||
	    !read_section(packet, LDNS_SECTION_AUTHORITY, LDNS_NSCOUNT(bytes), bytes, length, &at) ||
	    !read_section(packet, LDNS_SECTION_ADDITIONAL, LDNS_ARCOUNT(bytes), bytes, length, &at)) {
		ldns_pkt_free(packet);
		return NULL;
	}
	return packet;
}
