/* The sockets of multicast DNS: port 5353, IPv4 and IPv6, on every interface that
 * supports multicast, including new ones (noticed within 5 s). The port is shared with
 * other programs, such as the system's own responder. With each packet the kernel says on
 * which interface it came or must leave (PKTINFO). Loopback is left out. A socket that
 * could not be opened is tried again with each check of the interfaces. Thread: the
 * loop's. */
#pragma once
#include "common/net/loop.h"
#include "common/net/mdns/dnssd.h"

#include <sys/socket.h>

struct net_multicast;

enum { NET_MULTICAST_PORT = 5353, NET_MULTICAST_NAME_BYTES = 16, NET_MULTICAST_WHY_BYTES = 256 };

struct net_interface {
	unsigned index;
	char name[NET_MULTICAST_NAME_BYTES];
	bool ipv4, ipv6;
	int faults[2]; // errno of the last packet to all, by IPv4 and by IPv6; 0: it was sent, or there was none
	struct dnssd_address addresses[DNSSD_ADDRESSES];
	size_t count;
};

struct net_multicast_packet {
	const uint8_t *bytes; // (length)
	size_t length;
	const struct net_interface *interface; // where it came in
	const struct sockaddr_storage *from;
	int from_port;
	bool ipv6;
	bool to_group; // false: it was sent to this machine alone
};

// These callbacks must not destroy anything.
struct net_multicast_events {
	void (*came)(void *arg, const struct net_multicast_packet *packet);
	void (*appeared)(void *arg, const struct net_interface *one); // or its addresses changed
	void (*gone)(void *arg, unsigned index);                      // may be NULL
};

// Missing multicast is not an error; net_multicast_works reports it. Errors: STATUS_OUT_OF_MEMORY.
enum status net_multicast_create(struct net_multicast **out, struct net_loop *loop,
				 const struct net_multicast_events *events, void *arg, struct error *error);
void net_multicast_destroy(struct net_multicast **multicast);
// Tell `appeared` of all that are there, and look again from now on. Once, when its owner can hear it.
void net_multicast_start(struct net_multicast *multicast);

const struct net_interface *net_multicast_at(const struct net_multicast *multicast, size_t i); // NULL past the last
// To all on this interface, by both families.
void net_multicast_send(struct net_multicast *multicast, const struct net_interface *to, const uint8_t *bytes,
			size_t length);
// To the sender of a packet alone.
void net_multicast_reply(struct net_multicast *multicast, const struct net_multicast_packet *packet,
			 const uint8_t *bytes, size_t length);
// Whether multicast is to be had here at all. If not, why not, as a sentence; if so, on which interface nothing can be
// sent, and why, or "".
bool net_multicast_works(const struct net_multicast *multicast, char why[NET_MULTICAST_WHY_BYTES]);
