/* See multicast.h. */
#include "common/net/mdns/multicast.h"

#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERFACES = 64, LOOK_MS = 5000, PACKETS_A_TURN = 32 };

static const char group4[] = "224.0.0.251", group6[] = "ff02::fb";

struct family {
	struct net_multicast *multicast;
	struct net_watch *watch; // NULL: no socket
	int fd;                  // the watch's
	bool ipv6;
	int fault, said; // errno: why there is no socket; and which was logged
};

struct net_multicast {
	struct net_loop *loop;
	const struct net_multicast_events *events;
	void *arg;
	struct family families[2];
	struct net_interface interfaces[INTERFACES];
	size_t count;
	int join_fault; // errno of the last group that could not be joined
	bool joined;    // any group, on any interface
	struct net_timer look;
};

// ---- interfaces ----

static struct net_interface *interface_of(struct net_interface *all, size_t *count, unsigned index, const char *name)
{
	for (size_t i = 0; i < *count; i++)
		if (all[i].index == index)
			return &all[i];
	if (!index || *count == INTERFACES)
		return NULL;
	all[*count] = (struct net_interface){.index = index};
	snprintf(all[*count].name, sizeof all[*count].name, "%s", name);
	return &all[(*count)++];
}

static void add_address(struct net_interface *one, const struct sockaddr *address)
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

static size_t list_interfaces(struct net_interface *all)
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
		struct net_interface *interface = interface_of(all, &count, if_nametoindex(one->ifa_name),
							       one->ifa_name);
		if (interface)
			add_address(interface, one->ifa_addr);
	}
	freeifaddrs(list);
	return count;
}

static struct net_interface *find_interface(struct net_interface *all, size_t count, unsigned index)
{
	for (size_t i = 0; i < count; i++)
		if (all[i].index == index)
			return &all[i];
	return NULL;
}

const struct net_interface *net_multicast_at(const struct net_multicast *multicast, size_t i)
{
	return i < multicast->count ? &multicast->interfaces[i] : NULL;
}

// ---- sockets ----

static bool reaches(const struct family *family, const struct net_interface *interface)
{
	return family->watch && (family->ipv6 ? interface->ipv6 : interface->ipv4);
}

static int change_membership(const struct family *family, unsigned index, bool add)
{
	if (family->ipv6) {
		struct ipv6_mreq group = {.ipv6mr_interface = index};
		inet_pton(AF_INET6, group6, &group.ipv6mr_multiaddr);
		return setsockopt(family->fd, IPPROTO_IPV6, add ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &group,
				  sizeof group);
	}
	struct ip_mreqn group = {.imr_ifindex = (int)index};
	inet_pton(AF_INET, group4, &group.imr_multiaddr);
	return setsockopt(family->fd, IPPROTO_IP, add ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &group, sizeof group);
}

static void join(const struct family *family, const struct net_interface *interface)
{
	struct net_multicast *multicast = family->multicast;
	if (!change_membership(family, interface->index, true) || errno == EADDRINUSE) { // a member already
		multicast->joined = true;
		return;
	}
	multicast->join_fault = errno;
	log_warning("multicast", "%s cannot be listened to by IPv%d: %s", interface->name, family->ipv6 ? 6 : 4,
		    strerror(errno));
}

static int open_socket(bool ipv6)
{
	const int one = 1, hops = 255;
	struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(NET_MULTICAST_PORT)};
	struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(NET_MULTICAST_PORT)};
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
		int number = errno;
		close(fd);
		errno = number;
		return -1;
	}
	return fd;
}

// errno; 0: it was sent. to: NULL to all.
static int send_packet(const struct family *family, unsigned index, const struct iovec *bytes,
		       const struct sockaddr_storage *to)
{
	struct sockaddr_in address4 = {.sin_family = AF_INET, .sin_port = htons(NET_MULTICAST_PORT)};
	struct sockaddr_in6 address6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(NET_MULTICAST_PORT), .sin6_scope_id = index};
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(struct in_pktinfo))];
	} control = {0};
	struct iovec part = *bytes;
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
	const int fault = sendmsg(family->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
	if (fault)
		log_debug("multicast", "a packet was not sent by IPv%d: %s", family->ipv6 ? 6 : 4, strerror(fault));
	return fault;
}

void net_multicast_send(struct net_multicast *multicast, const struct net_interface *to, const uint8_t *bytes,
			size_t length)
{
	const struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct net_interface *interface = find_interface(multicast->interfaces, multicast->count, to->index);
	for (size_t i = 0; interface && i < 2; i++) {
		if (!reaches(&multicast->families[i], interface))
			continue;
		const int fault = send_packet(&multicast->families[i], interface->index, &part, NULL);
		// An address that is there and not yet to be used, as one of IPv6 in its first seconds, is no fault.
		if (fault != EADDRNOTAVAIL)
			interface->faults[i] = fault;
	}
}

void net_multicast_reply(struct net_multicast *multicast, const struct net_multicast_packet *packet,
			 const uint8_t *bytes, size_t length)
{
	const struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	send_packet(&multicast->families[packet->ipv6], packet->interface->index, &part, packet->from);
}

// ---- what comes ----

struct came {
	struct sockaddr_storage from;
	unsigned index;
	bool to_group;
	size_t length;
	uint8_t bytes[DNSSD_QUERY_BYTES];
};

static void read_info(struct came *came, struct msghdr *message)
{
	struct in6_addr all6;
	struct in_addr all4;
	inet_pton(AF_INET6, group6, &all6);
	inet_pton(AF_INET, group4, &all4);
	for (struct cmsghdr *info = CMSG_FIRSTHDR(message); info; info = CMSG_NXTHDR(message, info))
		if (info->cmsg_level == IPPROTO_IPV6 && info->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo told;
			memcpy(&told, CMSG_DATA(info), sizeof told);
			came->index = told.ipi6_ifindex;
			came->to_group = IN6_ARE_ADDR_EQUAL(&told.ipi6_addr, &all6);
		} else if (info->cmsg_level == IPPROTO_IP && info->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo told;
			memcpy(&told, CMSG_DATA(info), sizeof told);
			came->index = (unsigned)told.ipi_ifindex;
			came->to_group = told.ipi_addr.s_addr == all4.s_addr;
		}
}

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
	came->to_group = false;
	ssize_t got = recvmsg(family->fd, &message, MSG_DONTWAIT);
	if (got < 0)
		return false;
	came->length = message.msg_flags & MSG_TRUNC ? 0 : (size_t)got;
	read_info(came, &message);
	return true;
}

static int port_of(const struct sockaddr_storage *from)
{
	return ntohs(from->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)from)->sin6_port
						 : ((const struct sockaddr_in *)from)->sin_port);
}

static void readable(void *arg, int fd)
{
	static struct came came; // the loop's thread alone reads
	struct family *family = arg;
	struct net_multicast *multicast = family->multicast;
	(void)fd;
	for (int i = 0; i < PACKETS_A_TURN && receive(family, &came); i++) {
		const struct net_multicast_packet packet = {
			.bytes = came.bytes,
			.length = came.length,
			.interface = find_interface(multicast->interfaces, multicast->count, came.index),
			.from = &came.from,
			.from_port = port_of(&came.from),
			.ipv6 = family->ipv6,
			.to_group = came.to_group,
		};
		if (packet.interface && packet.length)
			multicast->events->came(multicast->arg, &packet);
	}
}

static const struct net_watch_events watch_events = {.readable = readable};

// ---- as a whole ----

static void try_socket(struct family *family)
{
	struct net_multicast *multicast = family->multicast;
	if (family->watch)
		return;
	family->fd = open_socket(family->ipv6);
	family->fault = family->fd < 0 ? errno : 0;
	if (family->fd < 0 && family->fault != family->said && family->fault != EAFNOSUPPORT)
		log_warning("multicast", "no multicast DNS by IPv%d here: %s", family->ipv6 ? 6 : 4,
			    strerror(family->fault));
	family->said = family->fault;
	if (family->fd < 0)
		return;
	if (net_watch_create(&family->watch, multicast->loop, family->fd, &watch_events, family, NULL)) {
		close(family->fd);
		family->fault = ENOMEM;
		return;
	}
	for (size_t i = 0; i < multicast->count; i++)
		if (reaches(family, &multicast->interfaces[i]))
			join(family, &multicast->interfaces[i]);
}

// Its membership would count against the few that the system allows.
static void leave(struct net_multicast *multicast, const struct net_interface *old)
{
	for (size_t i = 0; i < 2; i++)
		if (multicast->families[i].watch)
			change_membership(&multicast->families[i], old->index, false);
}

static void look(void *arg)
{
	struct net_multicast *multicast = arg;
	struct net_interface *found = calloc(INTERFACES, sizeof(*found)), *old = calloc(INTERFACES, sizeof(*old));
	net_timer_start(multicast->loop, &multicast->look, LOOK_MS, look, multicast);
	if (!found || !old)
		goto done;
	const size_t count = list_interfaces(found), old_count = multicast->count;
	memcpy(old, multicast->interfaces, sizeof multicast->interfaces);
	for (size_t i = 0; i < old_count; i++)
		if (!find_interface(found, count, old[i].index)) {
			leave(multicast, &old[i]);
			if (multicast->events->gone)
				multicast->events->gone(multicast->arg, old[i].index);
		}
	for (size_t i = 0; i < count; i++) {
		const struct net_interface *before = find_interface(old, old_count, found[i].index);
		if (before)
			memcpy(found[i].faults, before->faults, sizeof before->faults);
	}
	memcpy(multicast->interfaces, found, sizeof multicast->interfaces);
	multicast->count = count;
	for (size_t i = 0; i < 2; i++)
		try_socket(&multicast->families[i]);
	for (size_t i = 0; i < count; i++) {
		const struct net_interface *before = find_interface(old, old_count, found[i].index);
		if (before && before->count == found[i].count &&
		    !memcmp(before->addresses, found[i].addresses, sizeof found[i].addresses))
			continue;
		for (size_t k = 0; k < 2; k++)
			if (reaches(&multicast->families[k], &found[i]))
				join(&multicast->families[k], &found[i]);
		multicast->events->appeared(multicast->arg, &multicast->interfaces[i]);
	}
done:
	free(found);
	free(old);
}

enum status net_multicast_create(struct net_multicast **out, struct net_loop *loop,
				 const struct net_multicast_events *events, void *arg, struct error *error)
{
	struct net_multicast *multicast = calloc(1, sizeof(*multicast));
	*out = multicast;
	if (!multicast)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*multicast = (struct net_multicast){.loop = loop, .events = events, .arg = arg};
	for (size_t i = 0; i < 2; i++)
		multicast->families[i] = (struct family){.multicast = multicast, .ipv6 = i == 1, .fd = -1};
	return STATUS_OK;
}

void net_multicast_start(struct net_multicast *multicast)
{
	look(multicast);
}

void net_multicast_destroy(struct net_multicast **pointer)
{
	struct net_multicast *multicast = *pointer;
	if (!multicast)
		return;
	*pointer = NULL;
	net_timer_stop(multicast->loop, &multicast->look);
	for (size_t i = 0; i < 2; i++)
		net_watch_destroy(&multicast->families[i].watch);
	free(multicast);
}

// errno; 0: by a family that is in use packets can be sent on it, or that is not known yet.
static int send_fault(const struct net_multicast *multicast, const struct net_interface *interface)
{
	int fault = 0;
	for (size_t i = 0; i < 2; i++) {
		if (!reaches(&multicast->families[i], interface))
			continue;
		if (!interface->faults[i])
			return 0;
		fault = fault ? fault : interface->faults[i];
	}
	return fault;
}

static void say_send_fault(char why[NET_MULTICAST_WHY_BYTES], const struct net_interface *interface, int fault)
{
	snprintf(why, NET_MULTICAST_WHY_BYTES, "packets to port 5353/udp cannot be sent on %s: %s%s", interface->name,
		 strerror(fault), fault == EPERM ? "; a firewall of this machine forbids it" : "");
}

// The worst that is known, from what must be there first.
bool net_multicast_works(const struct net_multicast *multicast, char why[NET_MULTICAST_WHY_BYTES])
{
	const struct family *families = multicast->families;
	size_t mute = 0;
	why[0] = 0;
	for (size_t i = 0; i < multicast->count; i++) {
		const int fault = send_fault(multicast, &multicast->interfaces[i]);
		if (fault && !mute++)
			say_send_fault(why, &multicast->interfaces[i], fault);
	}
	if (!families[0].watch && !families[1].watch) {
		int number = families[0].fault;
		snprintf(why, NET_MULTICAST_WHY_BYTES, "port 5353/udp cannot be used: %s%s", strerror(number),
			 number == EADDRINUSE ? "; another program has it and does not share it" : "");
	} else if (!multicast->count) {
		snprintf(why, NET_MULTICAST_WHY_BYTES,
			 "no network interface is up that can do multicast (loopback does not count)");
	} else if (!multicast->joined) {
		snprintf(why, NET_MULTICAST_WHY_BYTES, "no interface lets this program listen to multicast: %s",
			 strerror(multicast->join_fault));
	} else {
		return mute < multicast->count;
	}
	return false;
}
