/* See announce.h. One socket for each family, bound to port 5353 beside whoever else is (a system's own responder);
 * where a packet came in and has to go out is told by the kernel with each (PKTINFO). A multicast answer goes out at
 * most once a second on an interface: everybody there hears it. */
#include "common/net/announce.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	PORT = 5353,
	INTERFACES = 64,
	LOOK_MS = 5000,
	AGAIN_MS = 1000, // the second announcement after the first
	PACKETS_A_TURN = 32,
	MULTICAST_GAP_MS = 1000,
};

static const char group4[] = "224.0.0.251", group6[] = "ff02::fb";

struct interface {
	unsigned index;
	bool ipv4, ipv6;
	struct dnssd_address addresses[DNSSD_ADDRESSES];
	size_t count;
	int64_t told_ms; // the last multicast answer; steady
};

struct family {
	struct net_announcer *announcer;
	struct net_watch *watch; // NULL: no socket
	int fd;                  // the watch's
	bool ipv6;
};

struct net_announcer {
	struct net_loop *loop;
	struct dnssd_service service;
	char instance[DNSSD_LABEL_BYTES + 1], host[DNSSD_LABEL_BYTES + 1], type[DNSSD_LABEL_BYTES + 1];
	char texts[DNSSD_TXT_BYTES + DNSSD_TXT + 1];
	struct family families[2];
	struct interface interfaces[INTERFACES];
	size_t count;
	struct net_timer look, again;
};

// ---- interfaces ----

static struct interface *interface_of(struct interface *all, size_t *count, unsigned index)
{
	for (size_t i = 0; i < *count; i++)
		if (all[i].index == index)
			return &all[i];
	if (!index || *count == INTERFACES)
		return NULL;
	all[*count] = (struct interface){.index = index};
	return &all[(*count)++];
}

static void add_address(struct interface *one, const struct sockaddr *address)
{
	struct dnssd_address *to = &one->addresses[one->count];
	if (one->count == DNSSD_ADDRESSES)
		return;
	if (address->sa_family == AF_INET) {
		*to = (struct dnssd_address){.ipv6 = false};
		memcpy(to->bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
		one->ipv4 = true;
	} else {
		*to = (struct dnssd_address){.ipv6 = true};
		memcpy(to->bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
		one->ipv6 = true;
	}
	one->count++;
}

static size_t list_interfaces(struct interface *all)
{
	size_t count = 0;
	struct ifaddrs *list = NULL;
	if (getifaddrs(&list))
		return 0;
	for (const struct ifaddrs *one = list; one; one = one->ifa_next) {
		const unsigned needed = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
		bool known = one->ifa_addr &&
			     (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6);
		if (!known || (one->ifa_flags & needed) != needed || one->ifa_flags & IFF_LOOPBACK)
			continue;
		struct interface *interface = interface_of(all, &count, if_nametoindex(one->ifa_name));
		if (interface)
			add_address(interface, one->ifa_addr);
	}
	freeifaddrs(list);
	return count;
}

// ---- sockets ----

static bool join(const struct family *family, unsigned index)
{
	int done;
	if (family->ipv6) {
		struct ipv6_mreq group = {.ipv6mr_interface = index};
		inet_pton(AF_INET6, group6, &group.ipv6mr_multiaddr);
		done = setsockopt(family->fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &group, sizeof group);
	} else {
		struct ip_mreqn group = {.imr_ifindex = (int)index};
		inet_pton(AF_INET, group4, &group.imr_multiaddr);
		done = setsockopt(family->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
	}
	return !done || errno == EADDRINUSE; // a member already
}

static int open_socket(bool ipv6)
{
	const int one = 1, hops = 255;
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	if (ipv6) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
		setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one);
		setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops);
	} else {
		setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
		setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops);
	}
	if (bind(fd, ipv6 ? (struct sockaddr *)&any6 : (struct sockaddr *)&any4, ipv6 ? sizeof any6 : sizeof any4)) {
		close(fd);
		return -1;
	}
	return fd;
}

// To `to`, or, if it is NULL, to the group; out by the interface.
static void send_packet(const struct family *family, unsigned index, const struct dnssd_packet *packet,
			const struct sockaddr_storage *to)
{
	struct sockaddr_in address4 = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct sockaddr_in6 address6 = {.sin6_family = AF_INET6, .sin6_port = htons(PORT), .sin6_scope_id = index};
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(struct in_pktinfo))];
	} control = {0};
	struct iovec part = {.iov_base = (void *)(uintptr_t)packet->bytes, .iov_len = packet->length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
	message.msg_namelen = family->ipv6 ? sizeof address6 : sizeof address4;
	message.msg_name = to ? (void *)(uintptr_t)to : family->ipv6 ? (void *)&address6 : (void *)&address4;
	message.msg_controllen = family->ipv6 ? CMSG_SPACE(sizeof(struct in6_pktinfo))
					      : CMSG_SPACE(sizeof(struct in_pktinfo));
	struct cmsghdr *info = CMSG_FIRSTHDR(&message);
	if (family->ipv6) {
		inet_pton(AF_INET6, group6, &address6.sin6_addr);
		info->cmsg_level = IPPROTO_IPV6;
		info->cmsg_type = IPV6_PKTINFO;
		info->cmsg_len = CMSG_LEN(sizeof(struct in6_pktinfo));
		memcpy(CMSG_DATA(info), &(struct in6_pktinfo){.ipi6_ifindex = index}, sizeof(struct in6_pktinfo));
	} else {
		inet_pton(AF_INET, group4, &address4.sin_addr);
		info->cmsg_level = IPPROTO_IP;
		info->cmsg_type = IP_PKTINFO;
		info->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
		memcpy(CMSG_DATA(info), &(struct in_pktinfo){.ipi_ifindex = (int)index}, sizeof(struct in_pktinfo));
	}
	if (sendmsg(family->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_debug("announce", "a packet was not sent: %s", strerror(errno));
}

static bool reaches(const struct family *family, const struct interface *interface)
{
	return family->watch && (family->ipv6 ? interface->ipv6 : interface->ipv4);
}

static void tell(struct net_announcer *announcer, struct interface *interface, bool goodbye)
{
	struct dnssd_packet packet;
	if (dnssd_announce(&announcer->service, interface->addresses, interface->count, goodbye, &packet))
		return;
	for (size_t i = 0; i < 2; i++)
		if (reaches(&announcer->families[i], interface))
			send_packet(&announcer->families[i], interface->index, &packet, NULL);
	interface->told_ms = clock_steady_ms();
}

static void tell_all(struct net_announcer *announcer, bool goodbye)
{
	for (size_t i = 0; i < announcer->count; i++)
		tell(announcer, &announcer->interfaces[i], goodbye);
}

static void tell_again(void *arg)
{
	tell_all(arg, false);
}

// ---- queries ----

struct came {
	struct sockaddr_storage from;
	unsigned index;
	size_t length;
	uint8_t bytes[DNSSD_QUERY_BYTES];
};

static bool receive(const struct family *family, struct came *came)
{
	union {
		struct cmsghdr header;
		uint8_t bytes[256];
	} control;
	struct iovec part = {.iov_base = came->bytes, .iov_len = sizeof came->bytes};
	struct msghdr message = {.msg_name = &came->from,
				 .msg_namelen = sizeof came->from,
				 .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	came->index = 0;
	ssize_t got = recvmsg(family->fd, &message, MSG_DONTWAIT);
	if (got < 0)
		return false;
	came->length = message.msg_flags & MSG_TRUNC ? 0 : (size_t)got;
	for (struct cmsghdr *info = CMSG_FIRSTHDR(&message); info; info = CMSG_NXTHDR(&message, info))
		if (info->cmsg_level == IPPROTO_IPV6 && info->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo told;
			memcpy(&told, CMSG_DATA(info), sizeof told);
			came->index = told.ipi6_ifindex;
		} else if (info->cmsg_level == IPPROTO_IP && info->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo told;
			memcpy(&told, CMSG_DATA(info), sizeof told);
			came->index = (unsigned)told.ipi_ifindex;
		}
	return true;
}

static uint16_t port_of(const struct sockaddr_storage *from)
{
	return ntohs(from->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)from)->sin6_port
						 : ((const struct sockaddr_in *)from)->sin_port);
}

// Only who is on the same network is answered alone: no answer goes to somebody far away (RFC 6762, 11).
static bool is_near(const struct interface *interface, const struct sockaddr_storage *from)
{
	if (from->ss_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)from)->sin6_addr);
	uint32_t address = ntohl(((const struct sockaddr_in *)from)->sin_addr.s_addr);
	bool private_net = address >> 24 == 10 || address >> 20 == 0xac1 || address >> 16 == 0xc0a8 ||
			   address >> 16 == 0xa9fe || address >> 22 == 0x191;
	if (private_net)
		return true;
	for (size_t i = 0; i < interface->count; i++) { // the same /24 as ours, where addresses are public
		const uint8_t *own = interface->addresses[i].bytes;
		uint32_t ours = (uint32_t)own[0] << 24 | (uint32_t)own[1] << 16 | (uint32_t)own[2] << 8;
		if (!interface->addresses[i].ipv6 && (address & 0xffffff00u) == ours)
			return true;
	}
	return false;
}

static void serve(struct net_announcer *announcer, const struct family *family, const struct came *came)
{
	struct dnssd_packet packet;
	struct interface *interface = NULL;
	bool unicast;
	for (size_t i = 0; i < announcer->count; i++)
		if (announcer->interfaces[i].index == came->index)
			interface = &announcer->interfaces[i];
	if (!interface || !came->length)
		return;
	const struct dnssd_query query = {
		.bytes = came->bytes, .length = came->length, .legacy = port_of(&came->from) != PORT};
	dnssd_answer(&announcer->service, interface->addresses, interface->count, &query, &packet, &unicast);
	int64_t now_ms = clock_steady_ms();
	if (!packet.length || (unicast && !is_near(interface, &came->from)))
		return;
	if (!unicast && now_ms - interface->told_ms < MULTICAST_GAP_MS)
		return;
	if (!unicast)
		interface->told_ms = now_ms;
	send_packet(family, came->index, &packet, unicast ? &came->from : NULL);
}

static void readable(void *arg, int fd)
{
	static struct came came; // the loop's thread alone reads
	struct family *family = arg;
	(void)fd;
	for (int i = 0; i < PACKETS_A_TURN && receive(family, &came); i++)
		serve(family->announcer, family, &came);
}

static const struct net_watch_events events = {.readable = readable};

// ---- as a whole ----

static void look(void *arg)
{
	struct net_announcer *announcer = arg;
	struct interface *found = calloc(INTERFACES, sizeof(*found));
	size_t count = found ? list_interfaces(found) : 0;
	for (size_t i = 0; i < count; i++) {
		struct interface *old = NULL;
		for (size_t k = 0; k < announcer->count; k++)
			if (announcer->interfaces[k].index == found[i].index)
				old = &announcer->interfaces[k];
		bool same = old && old->count == found[i].count &&
			    !memcmp(old->addresses, found[i].addresses, sizeof found[i].addresses);
		found[i].told_ms = old ? old->told_ms : 0;
		for (size_t k = 0; k < 2 && !same; k++)
			if (reaches(&announcer->families[k], &found[i]))
				join(&announcer->families[k], found[i].index);
		if (!same) {
			tell(announcer, &found[i], false);
			net_timer_start(announcer->loop, &announcer->again, AGAIN_MS, tell_again, announcer);
		}
	}
	if (found) {
		memcpy(announcer->interfaces, found, sizeof announcer->interfaces);
		announcer->count = count;
	}
	free(found);
	net_timer_start(announcer->loop, &announcer->look, LOOK_MS, look, announcer);
}

static void copy_service(struct net_announcer *announcer, const struct dnssd_service *service)
{
	char *at = announcer->texts;
	snprintf(announcer->type, sizeof announcer->type, "%s", service->type);
	snprintf(announcer->instance, sizeof announcer->instance, "%s", service->instance);
	snprintf(announcer->host, sizeof announcer->host, "%s", service->host);
	announcer->service = (struct dnssd_service){.type = announcer->type,
						    .instance = announcer->instance,
						    .host = announcer->host,
						    .port = service->port};
	for (size_t i = 0; service->txt[i]; i++) {
		size_t length = strlen(service->txt[i]) + 1;
		memcpy(at, service->txt[i], length);
		announcer->service.txt[i] = at;
		at += length;
	}
}

enum status net_announcer_create(struct net_announcer **out, struct net_loop *loop, const struct dnssd_service *service,
				 struct error *error)
{
	*out = NULL;
	enum status status = dnssd_check(service, error);
	if (status)
		return status;
	struct net_announcer *announcer = calloc(1, sizeof(*announcer));
	if (!announcer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	announcer->loop = loop;
	copy_service(announcer, service);
	for (size_t i = 0; i < 2; i++) {
		struct family *family = &announcer->families[i];
		*family = (struct family){.announcer = announcer, .ipv6 = i == 1, .fd = open_socket(i == 1)};
		if (family->fd < 0)
			log_warning("announce", "this server is not announced by IPv%d: %s", i == 1 ? 6 : 4,
				    strerror(errno));
		else if (net_watch_create(&family->watch, loop, family->fd, &events, family, error))
			close(family->fd);
	}
	look(announcer);
	*out = announcer;
	return STATUS_OK;
}

void net_announcer_destroy(struct net_announcer **pointer)
{
	struct net_announcer *announcer = *pointer;
	if (!announcer)
		return;
	*pointer = NULL;
	tell_all(announcer, true);
	net_timer_stop(announcer->loop, &announcer->look);
	net_timer_stop(announcer->loop, &announcer->again);
	for (size_t i = 0; i < 2; i++)
		net_watch_destroy(&announcer->families[i].watch);
	free(announcer);
}
