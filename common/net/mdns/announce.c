/* See announce.h. A multicast answer goes out at most once a second on an interface: everybody there hears it. */
#include "common/net/mdns/announce.h"

#include "common/base/clock.h"
#include "common/net/mdns/multicast.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	INTERFACES = 64,
	AGAIN_MS = 1000, // the second announcement after the first
	MULTICAST_GAP_MS = 1000,
};

struct net_announcer {
	struct net_loop *loop;
	struct net_multicast *multicast;
	struct dnssd_service service;
	char instance[DNSSD_LABEL_BYTES + 1], host[DNSSD_LABEL_BYTES + 1], type[DNSSD_LABEL_BYTES + 1];
	char texts[DNSSD_TXT_BYTES + DNSSD_TXT + 1];
	struct {
		unsigned index; // of an interface
		int64_t ms;     // the last multicast answer there; steady
	} told[INTERFACES];
	struct net_timer again;
};

// When the last answer went out on an interface. Where there are more than INTERFACES they share.
static int64_t *told_on(struct net_announcer *announcer, unsigned index)
{
	size_t at = 0;
	for (; at < INTERFACES - 1 && announcer->told[at].index; at++)
		if (announcer->told[at].index == index)
			break;
	announcer->told[at].index = index;
	return &announcer->told[at].ms;
}

static void tell(struct net_announcer *announcer, const struct net_interface *one, bool goodbye)
{
	struct dnssd_packet packet;
	if (dnssd_announce(&announcer->service, one->addresses, one->count, goodbye, &packet))
		return;
	net_multicast_send(announcer->multicast, one, packet.bytes, packet.length);
	*told_on(announcer, one->index) = clock_steady_ms();
}

static void tell_all(struct net_announcer *announcer, bool goodbye)
{
	const struct net_interface *one;
	for (size_t i = 0; (one = net_multicast_at(announcer->multicast, i)); i++)
		tell(announcer, one, goodbye);
}

static void tell_again(void *arg)
{
	tell_all(arg, false);
}

static void appeared(void *arg, const struct net_interface *one)
{
	struct net_announcer *announcer = arg;
	tell(announcer, one, false);
	net_timer_start(announcer->loop, &announcer->again, AGAIN_MS, tell_again, announcer);
}

// Only who is on the same network is answered alone: no answer goes to somebody far away (RFC 6762, 11).
static bool is_near(const struct net_interface *interface, const struct sockaddr_storage *from)
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

static void came(void *arg, const struct net_multicast_packet *came)
{
	struct net_announcer *announcer = arg;
	const struct net_interface *interface = came->interface;
	struct dnssd_packet packet;
	bool unicast;
	const struct dnssd_query query = {
		.bytes = came->bytes, .length = came->length, .legacy = came->from_port != NET_MULTICAST_PORT};
	dnssd_answer(&announcer->service, interface->addresses, interface->count, &query, &packet, &unicast);
	int64_t now_ms = clock_steady_ms(), *told_ms = told_on(announcer, interface->index);
	if (!packet.length || (unicast && !is_near(interface, came->from)))
		return;
	if (unicast) {
		net_multicast_reply(announcer->multicast, came, packet.bytes, packet.length);
	} else if (!*told_ms || now_ms - *told_ms >= MULTICAST_GAP_MS) {
		*told_ms = now_ms;
		net_multicast_send(announcer->multicast, interface, packet.bytes, packet.length);
	}
}

static const struct net_multicast_events events = {.came = came, .appeared = appeared};

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
	status = net_multicast_create(&announcer->multicast, loop, &events, announcer, error);
	if (status) {
		free(announcer);
		return status;
	}
	net_multicast_start(announcer->multicast);
	*out = announcer;
	return STATUS_OK;
}

enum status net_announcer_update(struct net_announcer *announcer, const struct dnssd_service *service,
				 struct error *error)
{
	enum status status = dnssd_check(service, error);
	if (status)
		return status;
	copy_service(announcer, service);
	tell_all(announcer, false);
	return STATUS_OK;
}

void net_announcer_destroy(struct net_announcer **pointer)
{
	struct net_announcer *announcer = *pointer;
	if (!announcer)
		return;
	*pointer = NULL;
	tell_all(announcer, true);
	net_timer_stop(announcer->loop, &announcer->again);
	net_multicast_destroy(&announcer->multicast);
	free(announcer);
}
