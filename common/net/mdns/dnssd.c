/* See dnssd.h. Names are built here, label by label, because an instance's name may contain any byte. */
#include "common/net/mdns/dnssd.h"

#include "common/net/mdns/packet.h"

#include <ldns/ldns.h>
#include <stdlib.h>
#include <string.h>

enum {
	HOST_TTL_S = 120,     // of what holds an address (RFC 6762, 10)
	SERVICE_TTL_S = 4500, // of the rest
	LEGACY_TTL_S = 10,    // for who does not hear when it changes
	CACHE_FLUSH = 0x8001, // class IN, and: forget what was known
	UNICAST_WANTED = 0x8000,
	QUESTIONS = 64, // looked at
	NAME_BYTES = 255,
};

static const char services_name[] = "_services._dns-sd._udp";

struct name {
	size_t length;
	uint8_t bytes[NAME_BYTES];
};

static void add_label(struct name *name, const char *label, size_t length)
{
	if (!length || length > DNSSD_LABEL_BYTES || name->length + 1 + length > NAME_BYTES - 1)
		return;
	name->bytes[name->length++] = (uint8_t)length;
	memcpy(name->bytes + name->length, label, length);
	name->length += length;
}

// label (may be NULL), then those of the dotted `rest` (may be NULL), then local.
static ldns_rdf *make_name(const char *label, const char *rest)
{
	struct name name = {0};
	if (label)
		add_label(&name, label, strlen(label));
	while (rest && *rest) {
		size_t length = strcspn(rest, ".");
		add_label(&name, rest, length);
		rest += length + (rest[length] == '.');
	}
	add_label(&name, "local", 5);
	name.bytes[name.length++] = 0;
	return ldns_rdf_new_frm_data(LDNS_RDF_TYPE_DNAME, name.length, name.bytes);
}

static ldns_rdf *instance_name(const struct dnssd_service *service)
{
	return make_name(service->instance, service->type);
}

struct record {
	ldns_rr_type type;
	ldns_rdf *owner; // taken
	bool unique;     // nobody else has one of this name and type
	uint32_t ttl_s;
};

struct reply {
	ldns_pkt *packet;
	bool legacy, goodbye;
};

static ldns_rr *begin_record(const struct reply *reply, const struct record *record)
{
	ldns_rr *rr = ldns_rr_new();
	if (!rr || !record->owner) {
		ldns_rr_free(rr);
		ldns_rdf_deep_free(record->owner);
		return NULL;
	}
	uint32_t ttl = reply->goodbye                                  ? 0
		       : reply->legacy && record->ttl_s > LEGACY_TTL_S ? (uint32_t)LEGACY_TTL_S
								       : record->ttl_s;
	ldns_rr_set_owner(rr, record->owner);
	ldns_rr_set_type(rr, record->type);
	ldns_rr_set_class(rr, record->unique && !reply->legacy ? (ldns_rr_class)CACHE_FLUSH : LDNS_RR_CLASS_IN);
	ldns_rr_set_ttl(rr, ttl);
	return rr;
}

static void push_rdf(ldns_rr *rr, ldns_rdf *rdf)
{
	if (rdf && !ldns_rr_push_rdf(rr, rdf))
		ldns_rdf_deep_free(rdf);
}

static void push_record(const struct reply *reply, ldns_pkt_section section, ldns_rr *rr)
{
	if (rr && !ldns_pkt_push_rr(reply->packet, section, rr))
		ldns_rr_free(rr);
}

static void add_pointer(const struct reply *reply, ldns_pkt_section section, const char *from, ldns_rdf *to)
{
	ldns_rr *rr = begin_record(reply,
				   &(struct record){LDNS_RR_TYPE_PTR, make_name(NULL, from), false, SERVICE_TTL_S});
	if (rr)
		push_rdf(rr, to);
	else
		ldns_rdf_deep_free(to);
	push_record(reply, section, rr);
}

static void add_service(const struct reply *reply, ldns_pkt_section section, const struct dnssd_service *service)
{
	ldns_rr *rr = begin_record(reply, &(struct record){LDNS_RR_TYPE_SRV, instance_name(service), true, HOST_TTL_S});
	if (!rr)
		return;
	push_rdf(rr, ldns_native2rdf_int16(LDNS_RDF_TYPE_INT16, 0)); // priority
	push_rdf(rr, ldns_native2rdf_int16(LDNS_RDF_TYPE_INT16, 0)); // weight
	push_rdf(rr, ldns_native2rdf_int16(LDNS_RDF_TYPE_INT16, service->port));
	push_rdf(rr, make_name(service->host, NULL));
	push_record(reply, section, rr);
}

static void add_text(const struct reply *reply, ldns_pkt_section section, const struct dnssd_service *service)
{
	uint8_t text[256];
	ldns_rr *rr = begin_record(reply,
				   &(struct record){LDNS_RR_TYPE_TXT, instance_name(service), true, SERVICE_TTL_S});
	for (const char *const *one = service->txt; rr && *one; one++) {
		size_t length = strlen(*one);
		text[0] = (uint8_t)length;
		memcpy(text + 1, *one, length);
		push_rdf(rr, ldns_rdf_new_frm_data(LDNS_RDF_TYPE_STR, 1 + length, text));
	}
	push_record(reply, section, rr);
}

struct places {
	const struct dnssd_address *addresses;
	size_t count;
};

static void add_addresses(const struct reply *reply, ldns_pkt_section section, const struct dnssd_service *service,
			  const struct places *places)
{
	for (size_t i = 0; i < places->count && i < DNSSD_ADDRESSES; i++) {
		const struct dnssd_address *one = &places->addresses[i];
		ldns_rr *rr = begin_record(reply, &(struct record){one->ipv6 ? LDNS_RR_TYPE_AAAA : LDNS_RR_TYPE_A,
								   make_name(service->host, NULL), true, HOST_TTL_S});
		if (rr)
			push_rdf(rr, ldns_rdf_new_frm_data(one->ipv6 ? LDNS_RDF_TYPE_AAAA : LDNS_RDF_TYPE_A,
							   one->ipv6 ? 16 : 4, one->bytes));
		push_record(reply, section, rr);
	}
}

static enum status print(const struct reply *reply, struct dnssd_packet *packet)
{
	uint8_t *bytes = NULL;
	size_t length = 0;
	ldns_status code = ldns_pkt2wire(&bytes, reply->packet, &length);
	packet->length = 0;
	if (code != LDNS_STATUS_OK || length > DNSSD_PACKET_BYTES) {
		free(bytes);
		return code == LDNS_STATUS_OK ? STATUS_LIMIT_EXCEEDED : STATUS_OUT_OF_MEMORY;
	}
	memcpy(packet->bytes, bytes, length);
	packet->length = length;
	free(bytes);
	return STATUS_OK;
}

static ldns_pkt *new_reply(uint16_t id)
{
	ldns_pkt *packet = ldns_pkt_new();
	if (!packet)
		return NULL;
	ldns_pkt_set_id(packet, id);
	ldns_pkt_set_qr(packet, true);
	ldns_pkt_set_aa(packet, true);
	return packet;
}

enum status dnssd_check(const struct dnssd_service *service, struct error *error)
{
	size_t bytes = 0, keys = 0;
	for (; keys <= DNSSD_TXT && service->txt[keys]; keys++) {
		size_t length = strlen(service->txt[keys]);
		bytes += 1 + length;
		if (length > 255 || bytes > DNSSD_TXT_BYTES)
			return error_set(error, STATUS_INVALID_PARAMS, "the announcement's texts are too long");
	}
	size_t instance = strlen(service->instance), host = strlen(service->host);
	if (keys > DNSSD_TXT || !instance || instance > DNSSD_LABEL_BYTES || !host || host > DNSSD_LABEL_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "a name of the announcement is too long");
	return STATUS_OK;
}

enum status dnssd_announce(const struct dnssd_service *service, const struct dnssd_address *addresses, size_t count,
			   bool goodbye, struct dnssd_packet *packet)
{
	const struct reply reply = {.packet = new_reply(0), .goodbye = goodbye};
	const struct places places = {addresses, count};
	if (!reply.packet)
		return STATUS_OUT_OF_MEMORY;
	add_pointer(&reply, LDNS_SECTION_ANSWER, service->type, instance_name(service));
	add_service(&reply, LDNS_SECTION_ANSWER, service);
	add_text(&reply, LDNS_SECTION_ANSWER, service);
	add_addresses(&reply, LDNS_SECTION_ANSWER, service, &places);
	enum status status = print(&reply, packet);
	ldns_pkt_free(reply.packet);
	return status;
}

enum asked { ASKED_SERVICES = 1, ASKED_TYPE = 2, ASKED_INSTANCE = 4, ASKED_HOST = 8 }; // bits

static bool same_name(const ldns_rdf *name, ldns_rdf *ours)
{
	bool same = ours && ldns_dname_compare(name, ours) == 0; // without regard to case
	ldns_rdf_deep_free(ours);
	return same;
}

static bool wants(const ldns_rr *question, ldns_rr_type type)
{
	return ldns_rr_get_type(question) == type || ldns_rr_get_type(question) == LDNS_RR_TYPE_ANY;
}

static unsigned asked_of(const struct dnssd_service *service, const ldns_rr *question)
{
	const ldns_rdf *name = ldns_rr_owner(question);
	unsigned class = (unsigned)ldns_rr_get_class(question) & ~(unsigned)UNICAST_WANTED;
	if (!name || ldns_rdf_get_type(name) != LDNS_RDF_TYPE_DNAME ||
	    (class != LDNS_RR_CLASS_IN && class != LDNS_RR_CLASS_ANY))
		return 0;
	if (wants(question, LDNS_RR_TYPE_PTR)) {
		if (same_name(name, make_name(NULL, service->type)))
			return ASKED_TYPE;
		if (same_name(name, make_name(NULL, services_name)))
			return ASKED_SERVICES;
	}
	if ((wants(question, LDNS_RR_TYPE_SRV) || wants(question, LDNS_RR_TYPE_TXT)) &&
	    same_name(name, instance_name(service)))
		return ASKED_INSTANCE;
	if ((wants(question, LDNS_RR_TYPE_A) || wants(question, LDNS_RR_TYPE_AAAA)) &&
	    same_name(name, make_name(service->host, NULL)))
		return ASKED_HOST;
	return 0;
}

// Whether the asker says that it knows our pointer already, and for a good while yet (RFC 6762, 7.1).
static bool is_known(const struct dnssd_service *service, const ldns_pkt *query)
{
	const ldns_rr_list *known = ldns_pkt_answer(query);
	for (size_t i = 0; known && i < ldns_rr_list_rr_count(known) && i < QUESTIONS; i++) {
		const ldns_rr *rr = ldns_rr_list_rr(known, i);
		const ldns_rdf *to = ldns_rr_rd_count(rr) ? ldns_rr_rdf(rr, 0) : NULL;
		if (ldns_rr_get_type(rr) == LDNS_RR_TYPE_PTR && ldns_rr_ttl(rr) >= SERVICE_TTL_S / 2 && to &&
		    ldns_rdf_get_type(to) == LDNS_RDF_TYPE_DNAME && same_name(to, instance_name(service)))
			return true;
	}
	return false;
}

static void fill_reply(const struct reply *reply, const struct dnssd_service *service, const struct places *places,
		       unsigned asked)
{
	ldns_pkt_section rest = LDNS_SECTION_ANSWER; // what was not asked for, but will be
	if (asked & ASKED_SERVICES)
		add_pointer(reply, LDNS_SECTION_ANSWER, services_name, make_name(NULL, service->type));
	if (asked & ASKED_TYPE)
		add_pointer(reply, LDNS_SECTION_ANSWER, service->type, instance_name(service));
	if (asked & ASKED_TYPE && !(asked & ASKED_INSTANCE))
		rest = LDNS_SECTION_ADDITIONAL;
	if (asked & (ASKED_TYPE | ASKED_INSTANCE)) {
		add_service(reply, rest, service);
		add_text(reply, rest, service);
	}
	if (asked & (ASKED_TYPE | ASKED_INSTANCE | ASKED_HOST))
		add_addresses(reply, asked & ASKED_HOST ? LDNS_SECTION_ANSWER : LDNS_SECTION_ADDITIONAL, service,
			      places);
}

void dnssd_answer(const struct dnssd_service *service, const struct dnssd_address *addresses, size_t count,
		  const struct dnssd_query *query, struct dnssd_packet *packet, bool *unicast)
{
	const struct places places = {addresses, count};
	struct reply reply = {.legacy = query->legacy};
	unsigned asked = 0;
	packet->length = 0;
	*unicast = query->legacy;
	ldns_pkt *asking = query->length > DNSSD_QUERY_BYTES ? NULL : mdns_packet_read(query->bytes, query->length);
	if (!asking)
		return;
	const ldns_rr_list *questions = ldns_pkt_question(asking);
	if (ldns_pkt_qr(asking) || ldns_pkt_get_opcode(asking) != LDNS_PACKET_QUERY)
		goto done;
	for (size_t i = 0; i < ldns_rr_list_rr_count(questions) && i < QUESTIONS; i++) {
		const ldns_rr *question = ldns_rr_list_rr(questions, i);
		unsigned one = asked_of(service, question);
		if (one && (unsigned)ldns_rr_get_class(question) & UNICAST_WANTED)
			*unicast = true;
		asked |= one;
	}
	if (asked & ASKED_TYPE && is_known(service, asking))
		asked &= ~(unsigned)ASKED_TYPE;
	reply.packet = asked ? new_reply(query->legacy ? ldns_pkt_id(asking) : 0) : NULL;
	if (!reply.packet)
		goto done;
	for (size_t i = 0; query->legacy && i < ldns_rr_list_rr_count(questions) && i < QUESTIONS; i++)
		push_record(&reply, LDNS_SECTION_QUESTION, ldns_rr_clone(ldns_rr_list_rr(questions, i)));
	fill_reply(&reply, service, &places, asked);
	print(&reply, packet);
done:
	ldns_pkt_free(reply.packet);
	ldns_pkt_free(asking);
}
