/* See heard.h. Packets are decoded by ldns. Names are compared as they are on the wire, in small letters. */
#include "common/net/mdns/heard.h"

#include "common/json/json.h"
#include "common/net/mdns/packet.h"

#include <ctype.h>
#include <ldns/ldns.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TTL_MOST_S = 4500,       // whatever a record says
	LAST_WORD_MS = 1000,     // after a goodbye, or where a newer record takes the place (RFC 6762, 10)
	NOTHING_MORE_MS = 60000, // a pointer to a service that never says what it is
	PAUSE_FIRST_MS = 1000,   // between questions for the same thing
	PAUSE_LAST_MS = 60000,
	NAME_BYTES = 255,
	ASK_BYTES = 1200, // of questions and known answers
	HEADER_BYTES = 12,
	TYPE_A = 1,
	TYPE_PTR = 12,
	TYPE_TXT = 16,
	TYPE_AAAA = 28,
	TYPE_SRV = 33,
	CLASS_IN = 1,
	CACHE_FLUSH = 0x8000,
};

void heard_init(struct heard *heard, const char *type)
{
	memset(heard, 0, sizeof *heard);
	snprintf(heard->type, sizeof heard->type, "%s", type);
}

// ---- names ----

struct name {
	size_t length;
	uint8_t bytes[NAME_BYTES + 1];
};

static bool name_of(const ldns_rdf *rdf, struct name *name)
{
	if (!rdf || ldns_rdf_get_type(rdf) != LDNS_RDF_TYPE_DNAME || ldns_rdf_size(rdf) > NAME_BYTES)
		return false;
	name->length = ldns_rdf_size(rdf);
	for (size_t i = 0; i < name->length; i++)
		name->bytes[i] = (uint8_t)tolower(ldns_rdf_data(rdf)[i]); // lengths are below 64, which is no letter
	return name->length > 0;
}

// The type and .local, as a name on the wire.
static void name_of_type(const struct heard *heard, struct name *name)
{
	char text[DNSSD_LABEL_BYTES + 8];
	name->length = 0;
	snprintf(text, sizeof text, "%s.local", heard->type);
	for (const char *from = text; *from;) {
		size_t length = strcspn(from, ".");
		name->bytes[name->length++] = (uint8_t)length;
		for (size_t i = 0; i < length; i++)
			name->bytes[name->length++] = (uint8_t)tolower((unsigned char)from[i]);
		from += length + (from[length] == '.');
	}
	name->bytes[name->length++] = 0;
}

static bool same_name(const struct name *a, const uint8_t *bytes, size_t length)
{
	return a->length == length && !memcmp(a->bytes, bytes, length);
}

// Whether rdf is "LABEL.TYPE.local"; then its label, as it was written.
static bool instance_of(const struct heard *heard, const ldns_rdf *rdf, char label[DNSSD_LABEL_BYTES + 1])
{
	struct name name, type;
	name_of_type(heard, &type);
	if (!name_of(rdf, &name))
		return false;
	const size_t length = name.bytes[0];
	if (!length || length > DNSSD_LABEL_BYTES || name.length != 1 + length + type.length ||
	    memcmp(name.bytes + 1 + length, type.bytes, type.length) != 0 || memchr(name.bytes + 1, 0, length))
		return false;
	memcpy(label, ldns_rdf_data(rdf) + 1, length);
	label[length] = 0;
	return true;
}

static void print_host(const struct name *name, char text[256])
{
	size_t used = 0;
	for (size_t at = 0; name->bytes[at] && used < 254; at += 1u + name->bytes[at]) {
		if (used)
			text[used++] = '.';
		for (size_t i = 1; i <= name->bytes[at] && used < 254; i++) {
			uint8_t byte = name->bytes[at + i];
			text[used++] = byte > ' ' && byte < 0x7f ? (char)byte : '?';
		}
	}
	text[used] = 0;
}

// ---- services ----

static bool same_address(const struct dnssd_address *a, const struct dnssd_address *b)
{
	return a->ipv6 == b->ipv6 && !memcmp(a->bytes, b->bytes, a->ipv6 ? 16 : 4);
}

// The case of letters does not count (RFC 6762, 16), of those of ASCII.
static bool same_label(const char *a, const char *b)
{
	while (*a && tolower((unsigned char)*a) == tolower((unsigned char)*b))
		a++, b++;
	return !*a && !*b;
}

static struct heard_service *find(struct heard *heard, const char *label)
{
	for (size_t i = 0; i < heard->count; i++)
		if (same_label(heard->services[i].name, label))
			return &heard->services[i];
	return NULL;
}

static struct heard_service *add(struct heard *heard, const char *label, const struct heard_packet *packet)
{
	size_t of_source = 0;
	for (size_t i = 0; i < heard->count; i++)
		of_source += same_address(&heard->services[i].first_from, &packet->from);
	if (heard->count == LIMIT_HEARD || of_source >= LIMIT_HEARD_OF_SOURCE) {
		heard->left_out++;
		return NULL;
	}
	struct heard_service *service = &heard->services[heard->count++];
	memset(service, 0, sizeof *service);
	snprintf(service->name, sizeof service->name, "%s", label);
	net_presence_begin(&service->presence);
	service->first_ms = packet->now_ms;
	service->first_from = packet->from;
	service->pause_ms = PAUSE_FIRST_MS;
	service->ask_ms = packet->now_ms + PAUSE_FIRST_MS; // the rest mostly comes with it, or right after
	return service;
}

static void remove_at(struct heard *heard, size_t i)
{
	heard->services[i] = heard->services[--heard->count];
}

// It was heard, by this packet. Returns whether that is a new place.
static bool touch(struct heard_service *service, const struct heard_packet *packet)
{
	struct heard_place *place = NULL;
	service->last_ms = packet->now_ms;
	for (size_t i = 0; i < service->place_count; i++)
		if (service->places[i].interface == packet->interface &&
		    service->places[i].from.ipv6 == packet->from.ipv6)
			place = &service->places[i];
	const bool known = place && same_address(&place->from, &packet->from);
	if (!place && service->place_count < LIMIT_HEARD_PLACES)
		place = &service->places[service->place_count++];
	if (place)
		*place = (struct heard_place){packet->interface, packet->from, packet->now_ms};
	return place && !known;
}

char *heard_print_name(const struct heard_service *service, char text[HEARD_NAME_BYTES])
{
	const bool readable = json_utf8(service->name, strlen(service->name));
	snprintf(text, HEARD_NAME_BYTES, "%s", service->name);
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f || (!readable && (unsigned char)*at > 0x7f))
			*at = '?';
	return text;
}

// ---- records ----

struct record {
	const ldns_rr *rr;
	unsigned type;
	bool flush;
	int64_t ttl_ms;
};

struct records {
	struct record all[LIMIT_HEARD_RECORDS];
	size_t count;
};

static void collect(struct records *records, const ldns_rr_list *list)
{
	for (size_t i = 0; list && i < ldns_rr_list_rr_count(list) && records->count < LIMIT_HEARD_RECORDS; i++) {
		const ldns_rr *rr = ldns_rr_list_rr(list, i);
		const unsigned class = (unsigned)ldns_rr_get_class(rr);
		const uint32_t ttl_s = ldns_rr_ttl(rr) < TTL_MOST_S ? ldns_rr_ttl(rr) : TTL_MOST_S;
		if ((class & ~(unsigned)CACHE_FLUSH) != CLASS_IN)
			continue;
		records->all[records->count++] = (struct record){.rr = rr,
								 .type = (unsigned)ldns_rr_get_type(rr),
								 .flush = class & CACHE_FLUSH,
								 .ttl_ms = 1000 * (int64_t)ttl_s};
	}
}

// A goodbye, or life for as long as the record says. Returns whether it has just come.
static bool live(struct heard_life *life, const struct record *record, int64_t now_ms)
{
	const bool before = life->until_ms > now_ms;
	if (!record->ttl_ms && !before)
		return false;
	life->told_ms = now_ms;
	life->until_ms = now_ms + (record->ttl_ms ? record->ttl_ms : (int64_t)LAST_WORD_MS);
	return !before;
}

static bool take_pointer(struct heard *heard, const struct record *record, const struct heard_packet *packet)
{
	struct name owner, type;
	char label[DNSSD_LABEL_BYTES + 1];
	name_of_type(heard, &type);
	if (!name_of(ldns_rr_owner(record->rr), &owner) || !same_name(&owner, type.bytes, type.length) ||
	    !ldns_rr_rd_count(record->rr) || !instance_of(heard, ldns_rr_rdf(record->rr, 0), label))
		return false;
	struct heard_service *service = find(heard, label);
	const bool fresh = !service && record->ttl_ms;
	if (fresh)
		service = add(heard, label, packet);
	if (!service)
		return false;
	live(&service->pointer, record, packet->now_ms);
	return (record->ttl_ms && touch(service, packet)) || fresh;
}

static bool take_service(struct heard *heard, const struct record *record, const struct heard_packet *packet)
{
	char label[DNSSD_LABEL_BYTES + 1];
	struct name host;
	struct heard_service *service = NULL;
	if (instance_of(heard, ldns_rr_owner(record->rr), label))
		service = find(heard, label);
	const ldns_rdf *port = ldns_rr_rd_count(record->rr) == 4 ? ldns_rr_rdf(record->rr, 2) : NULL;
	if (!service || !port || ldns_rdf_get_type(port) != LDNS_RDF_TYPE_INT16 ||
	    !name_of(ldns_rr_rdf(record->rr, 3), &host))
		return false;
	bool changed = live(&service->service, record, packet->now_ms);
	if (!record->ttl_ms)
		return changed;
	changed |= touch(service, packet);
	if (service->port != ldns_rdf2native_int16(port) ||
	    !same_name(&host, service->host_name, service->host_bytes)) {
		if (!same_name(&host, service->host_name, service->host_bytes))
			service->address_count = 0; // another host's
		memcpy(service->host_name, host.bytes, host.length);
		service->host_bytes = host.length;
		service->port = ldns_rdf2native_int16(port);
		print_host(&host, service->host);
		changed = true;
	}
	return changed;
}

static bool take_texts(struct heard *heard, const struct record *record, const struct heard_packet *packet)
{
	char label[DNSSD_LABEL_BYTES + 1];
	struct heard_service *service = NULL;
	struct net_presence presence;
	size_t bytes = 0;
	if (instance_of(heard, ldns_rr_owner(record->rr), label))
		service = find(heard, label);
	if (!service)
		return false;
	bool changed = live(&service->texts, record, packet->now_ms);
	if (!record->ttl_ms)
		return changed;
	net_presence_begin(&presence);
	for (size_t i = 0; i < ldns_rr_rd_count(record->rr); i++) {
		const ldns_rdf *text = ldns_rr_rdf(record->rr, i);
		const size_t size = ldns_rdf_size(text);
		bytes += size;
		if (ldns_rdf_get_type(text) == LDNS_RDF_TYPE_STR && size > 1 && bytes <= DNSSD_TXT_BYTES)
			net_presence_read(&presence, ldns_rdf_data(text) + 1, size - 1);
	}
	presence.damaged |= bytes > DNSSD_TXT_BYTES;
	changed |= touch(service, packet) || memcmp(&presence, &service->presence, sizeof presence) != 0;
	service->presence = presence;
	return changed;
}

static bool add_address(struct heard_service *service, const struct heard_address *address)
{
	for (size_t i = 0; i < service->address_count; i++) {
		struct heard_address *old = &service->addresses[i];
		if (old->interface == address->interface && same_address(&old->address, &address->address)) {
			*old = *address;
			return false;
		}
	}
	if (service->address_count == LIMIT_HEARD_ADDRESSES || address->until_ms <= address->told_ms + LAST_WORD_MS)
		return false; // a goodbye of what was not known, too
	service->addresses[service->address_count++] = *address;
	return true;
}

// The addresses of a family that an older packet told on this interface: this one has all that hold (RFC 6762, 10.2).
static void flush_addresses(struct heard_service *service, bool ipv6, const struct heard_packet *packet)
{
	const int64_t last_ms = packet->now_ms + LAST_WORD_MS;
	for (size_t i = 0; i < service->address_count; i++) {
		struct heard_address *old = &service->addresses[i];
		if (old->address.ipv6 == ipv6 && old->interface == packet->interface &&
		    old->told_ms < packet->now_ms - LAST_WORD_MS && old->until_ms > last_ms)
			old->until_ms = last_ms;
	}
}

static bool take_address(struct heard *heard, const struct record *record, const struct heard_packet *packet)
{
	const ldns_rdf *rdf = ldns_rr_rd_count(record->rr) == 1 ? ldns_rr_rdf(record->rr, 0) : NULL;
	const bool ipv6 = record->type == TYPE_AAAA;
	struct name host;
	bool changed = false;
	if (!rdf || ldns_rdf_size(rdf) != (ipv6 ? 16 : 4) || !name_of(ldns_rr_owner(record->rr), &host))
		return false;
	struct heard_address address = {
		.address = {.ipv6 = ipv6},
		.interface = packet->interface,
		.told_ms = packet->now_ms,
		.until_ms = packet->now_ms + (record->ttl_ms ? record->ttl_ms : (int64_t)LAST_WORD_MS),
	};
	memcpy(address.address.bytes, ldns_rdf_data(rdf), ipv6 ? 16 : 4);
	for (size_t i = 0; i < heard->count; i++) {
		struct heard_service *service = &heard->services[i];
		if (!same_name(&host, service->host_name, service->host_bytes))
			continue;
		changed |= add_address(service, &address);
		if (record->flush && record->ttl_ms)
			flush_addresses(service, ipv6, packet);
	}
	return changed;
}

bool heard_take(struct heard *heard, const struct heard_packet *packet)
{
	static const unsigned order[] = {TYPE_PTR, TYPE_SRV, TYPE_TXT, TYPE_A, TYPE_AAAA};
	struct records records = {0};
	bool changed = false;
	if (packet->length < HEADER_BYTES || packet->length > DNSSD_QUERY_BYTES || !(packet->bytes[2] & 0x80))
		return false; // a question: most of what comes
	ldns_pkt *parsed = mdns_packet_read(packet->bytes, packet->length);
	if (!parsed)
		return false;
	if (ldns_pkt_get_opcode(parsed) == LDNS_PACKET_QUERY && ldns_pkt_get_rcode(parsed) == LDNS_RCODE_NOERROR) {
		collect(&records, ldns_pkt_answer(parsed));
		collect(&records, ldns_pkt_additional(parsed));
	}
	for (size_t k = 0; k < sizeof order / sizeof *order; k++)
		for (size_t i = 0; i < records.count; i++) {
			const struct record *record = &records.all[i];
			if (record->type != order[k])
				continue;
			changed |= record->type == TYPE_PTR   ? take_pointer(heard, record, packet)
				   : record->type == TYPE_SRV ? take_service(heard, record, packet)
				   : record->type == TYPE_TXT ? take_texts(heard, record, packet)
							      : take_address(heard, record, packet);
		}
	ldns_pkt_free(parsed);
	return changed;
}

// ---- time ----

static bool is_over(const struct heard_service *service, int64_t now_ms)
{
	if (service->pointer.until_ms <= now_ms || !service->place_count)
		return true;
	if (!service->service.until_ms)
		return now_ms - service->first_ms >= NOTHING_MORE_MS;
	return service->service.until_ms <= now_ms;
}

bool heard_sweep(struct heard *heard, int64_t now_ms)
{
	bool changed = false;
	for (size_t i = heard->count; i-- > 0;) {
		struct heard_service *service = &heard->services[i];
		for (size_t k = service->address_count; k-- > 0;)
			if (service->addresses[k].until_ms <= now_ms) {
				service->addresses[k] = service->addresses[--service->address_count];
				changed = true;
			}
		if (is_over(service, now_ms)) {
			remove_at(heard, i);
			changed = true;
		}
	}
	return changed;
}

bool heard_leave(struct heard *heard, unsigned interface, int64_t now_ms)
{
	bool changed = false;
	for (size_t i = 0; i < heard->count; i++) {
		struct heard_service *service = &heard->services[i];
		for (size_t k = service->address_count; k-- > 0;)
			if (service->addresses[k].interface == interface) {
				service->addresses[k] = service->addresses[--service->address_count];
				changed = true;
			}
		for (size_t k = service->place_count; k-- > 0;)
			if (service->places[k].interface == interface) {
				service->places[k] = service->places[--service->place_count];
				changed = true;
			}
	}
	return heard_sweep(heard, now_ms) || changed;
}

// ---- questions ----

enum due { DUE_SERVICE = 1, DUE_TEXTS = 2, DUE_ADDRESSES = 4 }; // bits

// Missing, or past four fifths of its life (RFC 6762, 5.2).
static bool wants(const struct heard_life *life, int64_t now_ms)
{
	return now_ms >= life->told_ms + (life->until_ms - life->told_ms) / 5 * 4;
}

static unsigned due_of(const struct heard_service *service, int64_t now_ms)
{
	unsigned due = 0;
	bool addressed = false;
	if (wants(&service->service, now_ms))
		due |= DUE_SERVICE;
	if (wants(&service->texts, now_ms))
		due |= DUE_TEXTS;
	for (size_t i = 0; i < service->address_count; i++) {
		const struct heard_address *one = &service->addresses[i];
		addressed |= !wants(&(struct heard_life){one->told_ms, one->until_ms}, now_ms);
	}
	if (!addressed && service->host_bytes)
		due |= DUE_ADDRESSES;
	return due;
}

static void add_u16(struct dnssd_packet *packet, unsigned value)
{
	packet->bytes[packet->length++] = (uint8_t)(value >> 8);
	packet->bytes[packet->length++] = (uint8_t)value;
}

// The type's name stands first in the packet; what ends in it points there.
static void add_instance(struct dnssd_packet *packet, const char *label)
{
	const size_t length = strlen(label);
	packet->bytes[packet->length++] = (uint8_t)length;
	memcpy(packet->bytes + packet->length, label, length);
	packet->length += length;
	add_u16(packet, 0xc000 | HEADER_BYTES);
}

static void count_up(struct dnssd_packet *packet, size_t at)
{
	packet->bytes[at + 1]++; // of at most 255: there is not room for more
	packet->bytes[at] = (uint8_t)(packet->bytes[at] + !packet->bytes[at + 1]);
}

static void add_questions(struct dnssd_packet *packet, const struct heard_service *service, unsigned due)
{
	static const struct {
		unsigned due, type;
	} all[] = {{DUE_SERVICE, TYPE_SRV}, {DUE_TEXTS, TYPE_TXT}, {DUE_ADDRESSES, TYPE_A}, {DUE_ADDRESSES, TYPE_AAAA}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (!(due & all[i].due) || packet->length + NAME_BYTES + 4 > ASK_BYTES)
			continue;
		if (all[i].due == DUE_ADDRESSES) {
			memcpy(packet->bytes + packet->length, service->host_name, service->host_bytes);
			packet->length += service->host_bytes;
		} else {
			add_instance(packet, service->name);
		}
		add_u16(packet, all[i].type);
		add_u16(packet, CLASS_IN);
		count_up(packet, 4);
	}
}

// A pointer that is known for a good while yet, so that it is not told again (RFC 6762, 7.1).
static void add_known(struct dnssd_packet *packet, const struct heard_service *service, int64_t now_ms)
{
	const int64_t left_ms = service->pointer.until_ms - now_ms,
		      life_ms = service->pointer.until_ms - service->pointer.told_ms;
	if (left_ms <= life_ms / 2 || packet->length + DNSSD_LABEL_BYTES + 16 > ASK_BYTES)
		return;
	add_u16(packet, 0xc000 | HEADER_BYTES);
	add_u16(packet, TYPE_PTR);
	add_u16(packet, CLASS_IN);
	add_u16(packet, (unsigned)(left_ms / 1000) >> 16);
	add_u16(packet, (unsigned)(left_ms / 1000) & 0xffff);
	add_u16(packet, (unsigned)strlen(service->name) + 3);
	add_instance(packet, service->name);
	count_up(packet, 6);
}

static bool was_heard_on(const struct heard_service *service, unsigned interface)
{
	for (size_t i = 0; i < service->place_count; i++)
		if (service->places[i].interface == interface)
			return true;
	return false;
}

void heard_ask(const struct heard *heard, unsigned interface, bool all, int64_t now_ms, struct dnssd_packet *packet)
{
	struct name type;
	memset(packet, 0, sizeof *packet);
	name_of_type(heard, &type);
	packet->length = HEADER_BYTES;
	memcpy(packet->bytes + packet->length, type.bytes, type.length);
	packet->length += type.length;
	add_u16(packet, TYPE_PTR);
	add_u16(packet, CLASS_IN);
	count_up(packet, 4);
	for (size_t i = 0; i < heard->count; i++) {
		const struct heard_service *service = &heard->services[i];
		if (service->ask_ms <= now_ms && was_heard_on(service, interface))
			add_questions(packet, service, due_of(service, now_ms));
	}
	if (!all && packet->bytes[4] == 0 && packet->bytes[5] == 1)
		packet->length = 0;
	for (size_t i = 0; packet->length && i < heard->count; i++)
		if (was_heard_on(&heard->services[i], interface))
			add_known(packet, &heard->services[i], now_ms);
}

void heard_asked(struct heard *heard, int64_t now_ms)
{
	for (size_t i = 0; i < heard->count; i++) {
		struct heard_service *service = &heard->services[i];
		if (!due_of(service, now_ms)) {
			service->pause_ms = PAUSE_FIRST_MS;
		} else if (service->ask_ms <= now_ms) {
			service->ask_ms = now_ms + service->pause_ms;
			service->pause_ms = 2 * service->pause_ms < PAUSE_LAST_MS ? 2 * service->pause_ms
										  : PAUSE_LAST_MS;
		}
	}
}
