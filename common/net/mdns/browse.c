/* See browse.h. */
#include "common/net/mdns/browse.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIRST_MS = 20, // several programs of one machine do not ask in one moment
	SPREAD_MS = 100,
	PAUSE_FIRST_MS = 1000,
	PAUSE_LAST_MS = 60000,
	TICK_MS = 1000,
	CHANGED_MS = 50,
};

struct net_browser {
	struct net_loop *loop;
	struct net_multicast *multicast;
	struct heard heard;
	void (*changed)(void *arg);
	void *arg;
	struct net_timer ask, tick, tell;
	int64_t pause_ms;
	int64_t second_ms; // steady: the second that packets are counted in
	unsigned packets;  // read in it
	bool flooded;      // and some were not; said once
};

static void tell(void *arg)
{
	struct net_browser *browser = arg;
	browser->changed(browser->arg);
}

static void change(struct net_browser *browser)
{
	if (browser->changed && !browser->tell.running)
		net_timer_start(browser->loop, &browser->tell, CHANGED_MS, tell, browser);
}

// ---- asking ----

static void send_questions(struct net_browser *browser, bool all)
{
	const int64_t now_ms = clock_steady_ms();
	const struct net_interface *one;
	struct dnssd_packet packet;
	for (size_t i = 0; (one = net_multicast_at(browser->multicast, i)); i++) {
		heard_ask(&browser->heard, one->index, all, now_ms, &packet);
		if (packet.length)
			net_multicast_send(browser->multicast, one, packet.bytes, packet.length);
	}
	heard_asked(&browser->heard, now_ms);
}

static void ask(void *arg)
{
	struct net_browser *browser = arg;
	send_questions(browser, true);
	net_timer_start(browser->loop, &browser->ask, browser->pause_ms, ask, browser);
	browser->pause_ms = 2 * browser->pause_ms < PAUSE_LAST_MS ? 2 * browser->pause_ms : PAUSE_LAST_MS;
}

static void tick(void *arg)
{
	struct net_browser *browser = arg;
	net_timer_start(browser->loop, &browser->tick, TICK_MS, tick, browser);
	if (heard_sweep(&browser->heard, clock_steady_ms()))
		change(browser);
	send_questions(browser, false);
}

// ---- hearing ----

static bool is_too_much(struct net_browser *browser, int64_t now_ms)
{
	if (now_ms - browser->second_ms >= 1000) {
		browser->second_ms = now_ms;
		browser->packets = 0;
	}
	if (browser->packets++ < LIMIT_HEARD_PACKETS_PER_S)
		return false;
	if (!browser->flooded)
		log_warning("browse", "more than %d multicast DNS answers in a second: the rest of it is not read",
			    LIMIT_HEARD_PACKETS_PER_S);
	browser->flooded = true;
	return true;
}

static void came(void *arg, const struct net_multicast_packet *came)
{
	struct net_browser *browser = arg;
	const bool answer = came->length > 2 && came->bytes[2] & 0x80;
	struct heard_packet packet = {.bytes = came->bytes,
				      .length = came->length,
				      .interface = came->interface->index,
				      .from = {.ipv6 = came->ipv6},
				      .now_ms = clock_steady_ms()};
	if (!answer || !came->to_group || came->from_port != NET_MULTICAST_PORT || is_too_much(browser, packet.now_ms))
		return;
	if (came->ipv6)
		memcpy(packet.from.bytes, &((const struct sockaddr_in6 *)came->from)->sin6_addr, 16);
	else
		memcpy(packet.from.bytes, &((const struct sockaddr_in *)came->from)->sin_addr, 4);
	const uint64_t left_out = browser->heard.left_out;
	if (heard_take(&browser->heard, &packet))
		change(browser);
	if (browser->heard.left_out && !left_out)
		log_warning("browse", "more services are announced than can be kept (%d, %d from one address)",
			    LIMIT_HEARD, LIMIT_HEARD_OF_SOURCE);
}

static void appeared(void *arg, const struct net_interface *one)
{
	struct net_browser *browser = arg;
	(void)one;
	browser->pause_ms = PAUSE_FIRST_MS;
	net_timer_start(browser->loop, &browser->ask, FIRST_MS + clock_steady_ns() / 1000 % SPREAD_MS, ask, browser);
}

static void gone(void *arg, unsigned index)
{
	struct net_browser *browser = arg;
	if (heard_leave(&browser->heard, index, clock_steady_ms()))
		change(browser);
}

static const struct net_multicast_events events = {.came = came, .appeared = appeared, .gone = gone};

// ---- as a whole ----

enum status net_browser_create(struct net_browser **out, struct net_loop *loop, const char *type,
			       void (*changed)(void *arg), void *arg, struct error *error)
{
	struct net_browser *browser = calloc(1, sizeof(*browser));
	*out = NULL;
	if (!browser)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	browser->loop = loop;
	browser->changed = changed;
	browser->arg = arg;
	browser->pause_ms = PAUSE_FIRST_MS;
	heard_init(&browser->heard, type);
	enum status status = net_multicast_create(&browser->multicast, loop, &events, browser, error);
	if (status) {
		free(browser);
		return status;
	}
	net_multicast_start(browser->multicast);
	net_timer_start(loop, &browser->tick, TICK_MS, tick, browser);
	*out = browser;
	return STATUS_OK;
}

void net_browser_destroy(struct net_browser **pointer)
{
	struct net_browser *browser = *pointer;
	if (!browser)
		return;
	*pointer = NULL;
	net_timer_stop(browser->loop, &browser->ask);
	net_timer_stop(browser->loop, &browser->tick);
	net_timer_stop(browser->loop, &browser->tell);
	net_multicast_destroy(&browser->multicast);
	free(browser);
}

const struct heard *net_browser_heard(const struct net_browser *browser)
{
	return &browser->heard;
}

const char *net_browser_interface(const struct net_browser *browser, unsigned index)
{
	const struct net_interface *one;
	for (size_t i = 0; (one = net_multicast_at(browser->multicast, i)); i++)
		if (one->index == index)
			return one->name;
	return "";
}

size_t net_browser_interfaces(const struct net_browser *browser)
{
	size_t count = 0;
	while (net_multicast_at(browser->multicast, count))
		count++;
	return count;
}

bool net_browser_works(const struct net_browser *browser, char why[NET_MULTICAST_WHY_BYTES])
{
	return net_multicast_works(browser->multicast, why);
}

// ---- addresses ----

static bool is_of_link(const struct dnssd_address *address)
{
	return address->ipv6 && address->bytes[0] == 0xfe && (address->bytes[1] & 0xc0) == 0x80;
}

static void print_address(const struct dnssd_address *address, const char *interface,
			  char out[NET_BROWSE_ADDRESS_BYTES])
{
	char text[INET6_ADDRSTRLEN] = "";
	inet_ntop(address->ipv6 ? AF_INET6 : AF_INET, address->bytes, text, sizeof text);
	const bool scoped = is_of_link(address) && interface[0];
	snprintf(out, NET_BROWSE_ADDRESS_BYTES, "%s%s%s", text, scoped ? "%" : "", scoped ? interface : "");
}

// Less is better.
static unsigned rank(const struct heard_service *service, const struct heard_address *one)
{
	bool spoke = false;
	for (size_t i = 0; i < service->place_count; i++) {
		const struct dnssd_address *from = &service->places[i].from;
		spoke |= from->ipv6 == one->address.ipv6 &&
			 !memcmp(from->bytes, one->address.bytes, from->ipv6 ? 16 : 4);
	}
	return (is_of_link(&one->address) ? 4u : 0) | (spoke ? 0 : 2u) | (one->address.ipv6 ? 1u : 0);
}

size_t net_browser_addresses(const struct net_browser *browser, const struct heard_service *service,
			     char out[][NET_BROWSE_ADDRESS_BYTES], size_t room)
{
	size_t count = 0;
	for (unsigned wanted = 0; wanted < 8; wanted++)
		for (size_t i = 0; i < service->address_count && count < room; i++) {
			const struct heard_address *one = &service->addresses[i];
			if (rank(service, one) != wanted)
				continue;
			print_address(&one->address, net_browser_interface(browser, one->interface), out[count]);
			bool twice = false;
			for (size_t k = 0; k < count; k++)
				twice |= !strcmp(out[k], out[count]);
			count += !twice;
		}
	return count;
}

// ---- for people and programs ----

static int compare(const void *left, const void *right)
{
	const struct heard_service *a = *(const struct heard_service *const *)left,
				   *b = *(const struct heard_service *const *)right;
	return a->first_ms != b->first_ms ? (a->first_ms < b->first_ms ? -1 : 1) : strcmp(a->name, b->name);
}

size_t net_browser_list(const struct net_browser *browser, const struct heard_service *out[LIMIT_HEARD])
{
	for (size_t i = 0; i < browser->heard.count; i++)
		out[i] = &browser->heard.services[i];
	qsort(out, browser->heard.count, sizeof(*out), compare);
	return browser->heard.count;
}

static struct json *list_addresses(const struct net_browser *browser, const struct heard_service *service)
{
	char addresses[LIMIT_HEARD_ADDRESSES][NET_BROWSE_ADDRESS_BYTES];
	struct json *list = json_new_array();
	const size_t count = net_browser_addresses(browser, service, addresses, LIMIT_HEARD_ADDRESSES);
	for (size_t i = 0; i < count; i++)
		json_push(list, json_new_string(addresses[i]));
	return list;
}

static struct json *list_interfaces(const struct net_browser *browser, const struct heard_service *service)
{
	struct json *list = json_new_array();
	for (size_t i = 0; i < service->place_count; i++) {
		bool twice = false;
		for (size_t k = 0; k < i; k++)
			twice |= service->places[k].interface == service->places[i].interface;
		if (!twice)
			json_push(list, json_new_string(net_browser_interface(browser, service->places[i].interface)));
	}
	return list;
}

static void set_time(struct json *json, const char *name, int64_t steady_ms)
{
	char text[CLOCK_TEXT_BYTES];
	json_set_string(json, name, clock_format(clock_wall_ms() - (clock_steady_ms() - steady_ms), text));
}

struct json *net_browser_describe(const struct net_browser *browser, const struct heard_service *service, bool timed)
{
	const struct net_presence *presence = &service->presence;
	char name[HEARD_NAME_BYTES];
	struct json *json = json_new_object();
	json_set_string(json, "name", heard_print_name(service, name));
	json_set_string(json, "host", service->host);
	json_set_integer(json, "port", service->port);
	json_set(json, "addresses", list_addresses(browser, service));
	json_set(json, "interfaces", list_interfaces(browser, service));
	json_set_string(json, "role", presence->role);
	json_set_string(json, "id", presence->id);
	json_set_string(json, "cluster_id", presence->cluster_id);
	json_set_string(json, "version", presence->version);
	json_set_string(json, "fingerprint", presence->fingerprint);
	json_set(json, "gpus", presence->gpus < 0 ? json_new_null() : json_new_integer(presence->gpus));
	if (timed) {
		set_time(json, "first_heard_at", service->first_ms);
		set_time(json, "last_heard_at", service->last_ms);
	}
	return json;
}
