/* The table of answers heard about one kind of service on the local networks. Each packet is put into it; it leads from
 * pointer (PTR) to service (SRV) to texts (TXT) to addresses (A, AAAA), and says which questions
 * follow from it. It respects times to live and goodbyes, and stores the interface and address on
 * which each service was heard. Everything is bounded: services (LIMIT_HEARD, and
 * LIMIT_HEARD_OF_SOURCE first heard from one address), addresses and interfaces of each, records of a
 * packet. What does not fit is dropped. Pure: no socket, and the caller gives the steady time.
 * Thread: its owner's. */
#pragma once
#include "common/base/limits.h"
#include "common/net/mdns/presence.h"

struct heard_address {
	struct dnssd_address address;
	unsigned interface; // that it was told on
	int64_t until_ms, told_ms;
};

// The interface and address where a service was heard.
struct heard_place {
	unsigned interface;
	struct dnssd_address from; // the sender of the packet
	int64_t heard_ms;          // last
};

// The lifetime of one record.
struct heard_life {
	int64_t told_ms, until_ms; // until_ms 0: it has not come
};

struct heard_service {
	char name[DNSSD_LABEL_BYTES + 1]; // what stands before the type; any bytes but 0
	char host[256];                   // "" before it is known; as a text, without a dot at its end
	int port;
	struct net_presence presence;
	struct heard_address addresses[LIMIT_HEARD_ADDRESSES];
	struct heard_place places[LIMIT_HEARD_PLACES];
	size_t address_count, place_count;
	int64_t first_ms, last_ms;
	struct heard_life pointer, service, texts;
	int64_t ask_ms, pause_ms; // when to ask for what is missing or about to end, and again after how long
	uint8_t host_name[256];   // as on the wire, in small letters (host_bytes)
	size_t host_bytes;
	struct dnssd_address first_from; // whom it counts for
};

struct heard {
	char type[DNSSD_LABEL_BYTES + 1];
	struct heard_service services[LIMIT_HEARD];
	size_t count;
	uint64_t left_out; // services that there was no room for
};

// Its name for people: UTF-8, without what steers a terminal. Returns `text`.
enum { HEARD_NAME_BYTES = DNSSD_LABEL_BYTES + 1 };
char *heard_print_name(const struct heard_service *service, char text[HEARD_NAME_BYTES]);

void heard_init(struct heard *heard, const char *type);

struct heard_packet {
	const uint8_t *bytes; // (length)
	size_t length;
	unsigned interface;
	struct dnssd_address from;
	int64_t now_ms;
};
// Returns whether the table has changed, but for times.
bool heard_take(struct heard *heard, const struct heard_packet *packet);
// Forget what has come to its end. Returns whether something has.
bool heard_sweep(struct heard *heard, int64_t now_ms);
// Forgets everything heard on an interface that is gone.
bool heard_leave(struct heard *heard, unsigned interface, int64_t now_ms);

// The question to send on an interface: who is there, but for those that are known there, and what of those is missing
// or comes to its end. Without `all` only if something of the second kind is due. Length 0: nothing to ask.
void heard_ask(const struct heard *heard, unsigned interface, bool all, int64_t now_ms, struct dnssd_packet *packet);
// A question has gone out on all interfaces: what was due is not asked again at once.
void heard_asked(struct heard *heard, int64_t now_ms);
