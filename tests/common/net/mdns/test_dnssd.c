/* The answers to a query for the service, byte by byte where it matters; and the announcer on the real interfaces. */
#include "common/base/limits.h"
#include "common/net/mdns/announce.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TYPE_A = 1, TYPE_PTR = 12, TYPE_TXT = 16, TYPE_AAAA = 28, TYPE_SRV = 33, TYPE_ANY = 255, WAIT_MS = 30000 };

static const struct dnssd_service service = {.type = "_exo-gpu._tcp",
					     .instance = "living room (1f2e3d4c)",
					     .host = "exogpu-1f2e3d4c",
					     .port = 52415,
					     .txt = {"txtvers=1", "id=clu_1f2e3d4c5b6a7988", "role=server"}};
static const struct dnssd_address addresses[] = {{.bytes = {192, 168, 1, 20}},
						 {.ipv6 = true, .bytes = {0xfd, 0, [15] = 0x20}}};

struct query {
	size_t length;
	uint8_t bytes[512];
};

static void add_u16(struct query *query, unsigned value)
{
	query->bytes[query->length++] = (uint8_t)(value >> 8);
	query->bytes[query->length++] = (uint8_t)value;
}

static void add_name(struct query *query, const char *const *labels)
{
	for (; *labels; labels++) {
		size_t length = strlen(*labels);
		query->bytes[query->length++] = (uint8_t)length;
		memcpy(query->bytes + query->length, *labels, length);
		query->length += length;
	}
	query->bytes[query->length++] = 0;
}

static const char *const type_name[] = {"_exo-gpu", "_tcp", "local", NULL};
static const char *const shouted[] = {"_EXO-GPU", "_Tcp", "LOCAL", NULL};
static const char *const instance_name[] = {"living room (1f2e3d4c)", "_exo-gpu", "_tcp", "local", NULL};
static const char *const host_name[] = {"exogpu-1f2e3d4c", "local", NULL};
static const char *const services_name[] = {"_services", "_dns-sd", "_udp", "local", NULL};
static const char *const other_name[] = {"_http", "_tcp", "local", NULL};

static struct query ask(const char *const *name, unsigned type, unsigned class)
{
	struct query query = {0};
	add_u16(&query, 0x1234);
	add_u16(&query, 0); // flags
	add_u16(&query, 1); // questions
	for (int i = 0; i < 3; i++)
		add_u16(&query, 0);
	add_name(&query, name);
	add_u16(&query, type);
	add_u16(&query, class);
	return query;
}

static unsigned u16(const struct dnssd_packet *packet, size_t at)
{
	assert_true(at + 2 <= packet->length);
	return (unsigned)packet->bytes[at] << 8 | packet->bytes[at + 1];
}

static bool holds(const struct dnssd_packet *packet, const void *bytes, size_t length)
{
	for (size_t i = 0; i + length <= packet->length; i++)
		if (!memcmp(packet->bytes + i, bytes, length))
			return true;
	return false;
}

static struct dnssd_packet answer(const struct query *query, bool legacy, bool *unicast)
{
	struct dnssd_packet packet;
	bool alone;
	const struct dnssd_query came = {.bytes = query->bytes, .length = query->length, .legacy = legacy};
	dnssd_answer(&service, addresses, 2, &came, &packet, unicast ? unicast : &alone);
	return packet;
}

static void test_browse(void **state)
{
	static const uint8_t ipv4[] = {192, 168, 1, 20};
	bool unicast = true;
	struct query query = ask(type_name, TYPE_PTR, 1);
	(void)state;
	struct dnssd_packet packet = answer(&query, false, &unicast);
	assert_false(unicast);
	assert_int_equal(u16(&packet, 0), 0);      // id
	assert_int_equal(u16(&packet, 2), 0x8400); // an answer, by who should know
	assert_int_equal(u16(&packet, 4), 0);
	assert_int_equal(u16(&packet, 6), 1);  // PTR
	assert_int_equal(u16(&packet, 10), 4); // SRV, TXT, A, AAAA
	assert_true(holds(&packet, "living room (1f2e3d4c)", 22));
	assert_true(holds(&packet, "\x09txtvers=1", 10));
	assert_true(holds(&packet, "\x0brole=server", 12));
	assert_true(holds(&packet, ipv4, 4));
	assert_true(holds(&packet, addresses[1].bytes, 16));
	assert_true(holds(&packet, "\xcc\xbf", 2)); // port 52415
	query = ask(shouted, TYPE_ANY, 1);
	assert_true(answer(&query, false, NULL).length > 0);
}

static void test_others(void **state)
{
	(void)state;
	struct query query = ask(instance_name, TYPE_SRV, 1);
	struct dnssd_packet packet = answer(&query, false, NULL);
	assert_int_equal(u16(&packet, 6), 2);
	query = ask(host_name, TYPE_AAAA, 1);
	packet = answer(&query, false, NULL);
	assert_int_equal(u16(&packet, 6), 2);
	query = ask(services_name, TYPE_PTR, 1);
	packet = answer(&query, false, NULL);
	assert_int_equal(u16(&packet, 6), 1);
	assert_true(holds(&packet, "_exo-gpu", 8));
	query = ask(other_name, TYPE_PTR, 1);
	assert_int_equal(answer(&query, false, NULL).length, 0);
	query = ask(type_name, TYPE_TXT, 1);
	assert_int_equal(answer(&query, false, NULL).length, 0);
	query = ask(type_name, TYPE_PTR, 3); // class CHAOS
	assert_int_equal(answer(&query, false, NULL).length, 0);
	query = ask(type_name, TYPE_PTR, 1);
	query.bytes[2] = 0x84; // it is an answer itself
	assert_int_equal(answer(&query, false, NULL).length, 0);
}

// Who asks for it alone gets it alone; who does not speak multicast DNS gets its id and its question back.
static void test_alone(void **state)
{
	bool unicast = false;
	(void)state;
	struct query query = ask(type_name, TYPE_PTR, 0x8001);
	struct dnssd_packet packet = answer(&query, false, &unicast);
	assert_true(unicast);
	assert_int_equal(u16(&packet, 0), 0);
	query = ask(type_name, TYPE_PTR, 1);
	packet = answer(&query, true, &unicast);
	assert_true(unicast);
	assert_int_equal(u16(&packet, 0), 0x1234);
	assert_int_equal(u16(&packet, 4), 1);
}

// What the asker knows already, for longer than half of its life, is not told again.
static void test_known(void **state)
{
	static const uint8_t ttl[] = {0, 0, 0x11, 0x94}, short_ttl[] = {0, 0, 0, 100};
	(void)state;
	for (int fresh = 0; fresh < 2; fresh++) {
		struct query query = ask(type_name, TYPE_PTR, 1);
		query.bytes[7] = 1; // an answer that is known
		add_name(&query, type_name);
		add_u16(&query, TYPE_PTR);
		add_u16(&query, 1);
		memcpy(query.bytes + query.length, fresh ? ttl : short_ttl, 4);
		query.length += 4;
		size_t at = query.length;
		add_u16(&query, 0);
		add_name(&query, instance_name);
		query.bytes[at + 1] = (uint8_t)(query.length - at - 2);
		assert_int_equal(answer(&query, false, NULL).length > 0, !fresh);
	}
}

static void test_goodbye(void **state)
{
	struct dnssd_packet hello, goodbye;
	(void)state;
	assert_int_equal(dnssd_announce(&service, addresses, 2, false, &hello), STATUS_OK);
	assert_int_equal(dnssd_announce(&service, addresses, 2, true, &goodbye), STATUS_OK);
	assert_int_equal(u16(&hello, 6), 5);
	assert_int_equal(hello.length, goodbye.length);
	assert_true(holds(&hello, "\x00\x00\x11\x94", 4));
	assert_false(holds(&goodbye, "\x00\x00\x11\x94", 4));
}

// Every beginning of a query, and every byte of it changed: never a fault, and what is answered is a whole packet.
static void test_damaged(void **state)
{
	const struct query whole = ask(instance_name, TYPE_ANY, 1);
	(void)state;
	for (size_t length = 0; length < whole.length; length++) {
		struct query query = whole;
		query.length = length;
		assert_int_equal(answer(&query, length % 2, NULL).length, 0);
	}
	for (size_t i = 0; i < whole.length; i++)
		for (unsigned value = 0; value < 256; value++) {
			struct query query = whole;
			query.bytes[i] = (uint8_t)value;
			struct dnssd_packet packet = answer(&query, value % 2, NULL);
			assert_true(!packet.length || packet.length > 12);
		}
}

static void test_too_long(void **state)
{
	struct dnssd_service wrong = service;
	struct error error = {0};
	char text[300];
	(void)state;
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = 0;
	assert_int_equal(dnssd_check(&service, &error), STATUS_OK);
	wrong.instance = text;
	assert_int_equal(dnssd_check(&wrong, &error), STATUS_INVALID_PARAMS);
	wrong = service;
	wrong.txt[0] = text;
	assert_int_equal(dnssd_check(&wrong, &error), STATUS_INVALID_PARAMS);
	wrong = service;
	text[200] = 0;
	wrong.txt[0] = wrong.txt[1] = wrong.txt[2] = text;
	assert_int_equal(dnssd_check(&wrong, &error), STATUS_INVALID_PARAMS);
}

// ---- on the network ----

struct stage {
	struct net_loop *loop;
	struct net_watch *watch;
	struct net_timer late;
	int fd;
	bool heard;
};

static void heard(void *arg, int fd)
{
	struct stage *stage = arg;
	struct dnssd_packet packet;
	ssize_t got = recv(fd, packet.bytes, sizeof packet.bytes, MSG_DONTWAIT);
	packet.length = got > 0 ? (size_t)got : 0;
	if (packet.length < 12 || u16(&packet, 0) != 0x1234 || !holds(&packet, "living room (1f2e3d4c)", 22))
		return;
	stage->heard = true;
	net_loop_stop(stage->loop);
}

static void too_late(void *arg)
{
	net_loop_stop(((struct stage *)arg)->loop);
}

// An interface that can do multicast, with an address of IPv4 of a private network.
static bool find_interface(struct in_addr *address)
{
	struct ifaddrs *list = NULL;
	bool found = false;
	if (getifaddrs(&list))
		return false;
	for (const struct ifaddrs *one = list; one && !found; one = one->ifa_next)
		if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && one->ifa_flags & IFF_MULTICAST &&
		    one->ifa_flags & IFF_RUNNING && !(one->ifa_flags & IFF_LOOPBACK)) {
			*address = ((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr;
			found = true;
		}
	freeifaddrs(list);
	return found;
}

static void test_asked_by_multicast(void **state)
{
	static const struct net_watch_events events = {.readable = heard};
	struct stage stage = {.fd = -1};
	struct net_announcer *announcer = NULL;
	struct error error = {0};
	struct in_addr own;
	const struct query query = ask(type_name, TYPE_PTR, 1);
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_port = htons(5353)};
	(void)state;
	if (!find_interface(&own)) {
		print_message("no interface with multicast\n");
		skip();
	}
	inet_pton(AF_INET, "224.0.0.251", &group.sin_addr);
	assert_int_equal(net_loop_create(&stage.loop, &error), STATUS_OK);
	assert_int_equal(net_announcer_create(&announcer, stage.loop, &service, &error), STATUS_OK);
	stage.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(stage.fd >= 0);
	setsockopt(stage.fd, IPPROTO_IP, IP_MULTICAST_IF, &own, sizeof own);
	assert_int_equal(net_watch_create(&stage.watch, stage.loop, stage.fd, &events, &stage, &error), STATUS_OK);
	bool sent = sendto(stage.fd, query.bytes, query.length, 0, (struct sockaddr *)&group, sizeof group) >= 0;
	if (sent) {
		net_timer_start(stage.loop, &stage.late, WAIT_MS, too_late, &stage);
		net_loop_run(stage.loop);
		net_timer_stop(stage.loop, &stage.late);
	}
	net_announcer_destroy(&announcer);
	assert_null(announcer);
	net_watch_destroy(&stage.watch);
	net_loop_destroy(&stage.loop);
	if (!sent) {
		print_message("no way for multicast\n");
		skip();
	}
	assert_true(stage.heard);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_browse),   cmocka_unit_test(test_others),
		cmocka_unit_test(test_alone),    cmocka_unit_test(test_known),
		cmocka_unit_test(test_goodbye),  cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_too_long), cmocka_unit_test(test_asked_by_multicast),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
