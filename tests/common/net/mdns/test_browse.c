/* Browsing the local networks: good and malformed packets, their times to live, the queries, the bounds; and an
 * announcer and a browser that find each other on a real interface. */
#include "common/base/clock.h"
#include "common/net/mdns/announce.h"
#include "common/net/mdns/browse.h"

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
#include <malloc.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ETH = 2, WLAN = 3, NOW = 1000000, SECOND = 1000, WAIT_MS = 60000 };

static const struct dnssd_address from4 = {.bytes = {192, 168, 1, 20}};
static const struct dnssd_address addresses[] = {{.bytes = {192, 168, 1, 20}},
						 {.ipv6 = true, .bytes = {0xfe, 0x80, [15] = 0x20}}};

static struct net_presence_service make(const char *id, const char *name, int port)
{
	struct net_presence presence = {
		.role = "server", .version = "0.1.0", .gpus = 2, .fingerprint = "0011223344556677"};
	struct net_presence_service service;
	snprintf(presence.id, sizeof presence.id, "%s", id);
	snprintf(presence.cluster_id, sizeof presence.cluster_id, "%s", id);
	net_presence_print(&presence, name, port, &service);
	for (size_t i = 0; service.service.txt[i]; i++) // it was returned by value: point into what is returned
		service.service.txt[i] = NULL;
	return service;
}

// The texts and names of a service that was copied.
static struct dnssd_service service_of(const struct net_presence_service *made)
{
	struct dnssd_service service = {
		.type = NET_PRESENCE_TYPE, .instance = made->instance, .host = made->host, .port = made->service.port};
	for (size_t i = 0; i < PRESENCE_TEXTS && made->texts[i][0]; i++)
		service.txt[i] = made->texts[i];
	return service;
}

static struct dnssd_packet announced(const struct net_presence_service *made, bool goodbye)
{
	struct dnssd_packet packet;
	const struct dnssd_service service = service_of(made);
	assert_int_equal(dnssd_announce(&service, addresses, 2, goodbye, &packet), STATUS_OK);
	return packet;
}

static bool give(struct heard *heard, const struct dnssd_packet *packet, unsigned interface, int64_t now_ms)
{
	return heard_take(heard, &(struct heard_packet){.bytes = packet->bytes,
							.length = packet->length,
							.interface = interface,
							.from = from4,
							.now_ms = now_ms});
}

static struct heard *new_heard(void)
{
	struct heard *heard = calloc(1, sizeof(*heard));
	assert_non_null(heard);
	heard_init(heard, NET_PRESENCE_TYPE);
	return heard;
}

static const struct heard_service *only(const struct heard *heard)
{
	assert_int_equal(heard->count, 1);
	return &heard->services[0];
}

static void test_announcement(void **state)
{
	struct heard *heard = new_heard();
	const struct net_presence_service made = make("clu_1f2e3d4c5b6a7988", "living room", 52415);
	const struct dnssd_packet hello = announced(&made, false), goodbye = announced(&made, true);
	(void)state;
	assert_true(give(heard, &hello, ETH, NOW));
	const struct heard_service *one = only(heard);
	assert_string_equal(one->name, "living room (1f2e3d4c)");
	assert_string_equal(one->host, "exogpu-1f2e3d4c.local");
	assert_int_equal(one->port, 52415);
	assert_string_equal(one->presence.role, "server");
	assert_string_equal(one->presence.id, "clu_1f2e3d4c5b6a7988");
	assert_string_equal(one->presence.cluster_id, "clu_1f2e3d4c5b6a7988");
	assert_string_equal(one->presence.version, "0.1.0");
	assert_string_equal(one->presence.fingerprint, "0011223344556677");
	assert_int_equal(one->presence.gpus, 2);
	assert_null(net_presence_fault(&one->presence));
	assert_int_equal(one->address_count, 2);
	assert_int_equal(one->place_count, 1);
	assert_int_equal(one->places[0].interface, ETH);
	assert_memory_equal(one->places[0].from.bytes, from4.bytes, 4);
	// Again: nothing new. On another interface: a new place, and its addresses there.
	assert_false(give(heard, &hello, ETH, NOW + SECOND));
	assert_true(give(heard, &hello, WLAN, NOW + SECOND));
	assert_int_equal(only(heard)->place_count, 2);
	assert_int_equal(only(heard)->address_count, 4);
	// The interface goes, then the service says goodbye: a second later it is gone.
	assert_true(heard_leave(heard, WLAN, NOW + 2 * SECOND));
	assert_int_equal(only(heard)->place_count, 1);
	assert_int_equal(only(heard)->address_count, 2);
	give(heard, &goodbye, ETH, NOW + 3 * SECOND);
	assert_false(heard_sweep(heard, NOW + 3 * SECOND + 900));
	assert_true(heard_sweep(heard, NOW + 4 * SECOND));
	assert_int_equal(heard->count, 0);
	// A goodbye of what was not known is nothing.
	assert_false(give(heard, &goodbye, ETH, NOW));
	assert_int_equal(heard->count, 0);
	free(heard);
}

static void test_time_to_live(void **state)
{
	struct heard *heard = new_heard();
	const struct net_presence_service made = make("clu_1f2e3d4c5b6a7988", "living room", 52415);
	const struct dnssd_packet hello = announced(&made, false);
	struct dnssd_packet question;
	(void)state;
	give(heard, &hello, ETH, NOW);
	// What is fresh is not asked for; at four fifths of its life it is, on the interface where it was heard.
	heard_ask(heard, ETH, false, NOW + 90 * SECOND, &question);
	assert_int_equal(question.length, 0);
	heard_ask(heard, WLAN, false, NOW + 97 * SECOND, &question);
	assert_int_equal(question.length, 0);
	heard_ask(heard, ETH, false, NOW + 97 * SECOND, &question);
	assert_true(question.length > 0);
	assert_int_equal(question.bytes[5], 4); // PTR, SRV, A, AAAA; the texts live longer
	assert_int_equal(question.bytes[7], 1); // and the pointer is known
	// Once asked, not again at once.
	heard_asked(heard, NOW + 97 * SECOND);
	heard_ask(heard, ETH, false, NOW + 97 * SECOND + 500, &question);
	assert_int_equal(question.length, 0);
	heard_ask(heard, ETH, false, NOW + 98 * SECOND, &question);
	assert_true(question.length > 0);
	assert_false(heard_sweep(heard, NOW + 119 * SECOND));
	assert_true(heard_sweep(heard, NOW + 120 * SECOND));
	assert_int_equal(heard->count, 0);
	free(heard);
}

// What the browser asks is what the announcer answers; what it knows is not told again.
static void test_question_and_answer(void **state)
{
	struct heard *heard = new_heard();
	const struct net_presence_service made = make("clu_1f2e3d4c5b6a7988", "living room", 52415);
	const struct dnssd_service service = service_of(&made);
	struct dnssd_packet question, answer;
	bool unicast = true;
	(void)state;
	for (int round = 0; round < 2; round++) {
		heard_ask(heard, ETH, true, NOW, &question);
		assert_true(question.length > 0);
		const struct dnssd_query query = {.bytes = question.bytes, .length = question.length};
		dnssd_answer(&service, addresses, 2, &query, &answer, &unicast);
		assert_false(unicast);
		assert_int_equal(answer.length > 0, round == 0);
		if (answer.length)
			assert_true(give(heard, &answer, ETH, NOW));
	}
	heard_ask(heard, ETH, false, NOW + 97 * SECOND, &question);
	const struct dnssd_query query = {.bytes = question.bytes, .length = question.length};
	dnssd_answer(&service, addresses, 2, &query, &answer, &unicast);
	assert_true(answer.length > 0);
	give(heard, &answer, ETH, NOW + 97 * SECOND);
	assert_false(heard_sweep(heard, NOW + 200 * SECOND));
	assert_int_equal(heard->count, 1);
	free(heard);
}

// Addresses that a newer announcement on the same interface does not name any more end a second later.
static void test_address_that_changes(void **state)
{
	static const struct dnssd_address other = {.bytes = {10, 9, 8, 7}};
	struct heard *heard = new_heard();
	const struct net_presence_service made = make("clu_1f2e3d4c5b6a7988", "living room", 52415);
	const struct dnssd_service service = service_of(&made);
	struct dnssd_packet hello = announced(&made, false);
	(void)state;
	give(heard, &hello, ETH, NOW);
	assert_int_equal(dnssd_announce(&service, &other, 1, false, &hello), STATUS_OK);
	assert_true(give(heard, &hello, ETH, NOW + 10 * SECOND));
	assert_int_equal(only(heard)->address_count, 3);
	assert_true(heard_sweep(heard, NOW + 11 * SECOND));
	assert_int_equal(only(heard)->address_count, 2); // the new one, and that of IPv6, of which nothing was said
	bool found = false;
	for (size_t i = 0; i < only(heard)->address_count; i++)
		found |= !memcmp(only(heard)->addresses[i].address.bytes, other.bytes, 4);
	assert_true(found);
	free(heard);
}

static void test_bounds(void **state)
{
	struct heard *heard = new_heard();
	char id[32];
	(void)state;
	for (unsigned i = 0; i < 4 * LIMIT_HEARD; i++) { // 32 from each of so many addresses
		snprintf(id, sizeof id, "clu_%08x", i);
		const struct net_presence_service made = make(id, "x", 1);
		const struct dnssd_packet hello = announced(&made, false);
		const struct heard_packet packet = {.bytes = hello.bytes,
						    .length = hello.length,
						    .interface = ETH,
						    .from = {.bytes = {10, 0, 0, (uint8_t)(i / 32)}},
						    .now_ms = NOW};
		heard_take(heard, &packet);
		if (i == 31)
			assert_int_equal(heard->count, LIMIT_HEARD_OF_SOURCE);
	}
	assert_int_equal(heard->count, LIMIT_HEARD);
	assert_int_equal(heard->left_out, 3 * LIMIT_HEARD);
	// What was heard first stays, and a question fits into a packet however many there are.
	assert_string_equal(heard->services[0].presence.id, "clu_00000000");
	struct dnssd_packet question;
	heard_ask(heard, ETH, true, NOW + 100 * SECOND, &question);
	assert_in_range(question.length, 12, DNSSD_PACKET_BYTES);
	free(heard);
}

// Every beginning of an announcement, and every byte of it changed: never a fault, and whatever is kept is bounded.
static void test_damaged(void **state)
{
	const struct net_presence_service made = make("clu_1f2e3d4c5b6a7988", "living room", 52415);
	const struct dnssd_packet hello = announced(&made, false);
	struct heard *heard = new_heard();
	size_t kept = 0;
	(void)state;
	for (size_t length = 0; length < hello.length; length++) {
		struct dnssd_packet cut = hello;
		cut.length = length;
		assert_false(give(heard, &cut, ETH, NOW));
	}
	for (size_t i = 0; i < hello.length; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			struct dnssd_packet packet = hello;
			packet.bytes[i] ^= (uint8_t)(1u << bit);
			heard_init(heard, NET_PRESENCE_TYPE);
			give(heard, &packet, ETH, NOW);
			assert_true(heard->count <= 1);
			kept += heard->count;
		}
	assert_in_range(kept, 1, 8 * hello.length);
	// A question, another opcode, an error, and another class are nothing.
	static const struct {
		size_t at;
		uint8_t value;
	} wrong[] = {{2, 0x04}, {2, 0xac}, {3, 0x03}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct dnssd_packet packet = hello;
		packet.bytes[wrong[i].at] = wrong[i].value;
		heard_init(heard, NET_PRESENCE_TYPE);
		assert_false(give(heard, &packet, ETH, NOW));
		assert_int_equal(heard->count, 0);
	}
	free(heard);
}

// Bytes that are allocated, as the system's allocator counts them; a sanitizer's counts nothing, and finds what is
// lost.
static size_t allocated(void)
{
	return mallinfo2().uordblks;
}

// Signatures are nothing to us, and of several no memory is lost (ldns_wire2pkt keeps only the last).
static void test_signatures(void **state)
{
	enum { SIGNATURES = 64, TIMES = 200 };
	static const uint8_t signature[] = {0, 0, 0xfa, 0, 0xff, 0, 0, 0, 0, 0, 0}; // of the root, without data
	const struct net_presence_service made = make("clu_1f2e3d4c5b6a7988", "living room", 52415);
	const struct dnssd_service service = service_of(&made);
	struct dnssd_packet hello = announced(&made, false), answer;
	struct heard *heard = new_heard();
	uint8_t question[12 + SIGNATURES * sizeof signature] = {[11] = SIGNATURES};
	bool unicast;
	(void)state;
	for (size_t i = 0; i < SIGNATURES; i++) {
		memcpy(question + 12 + i * sizeof signature, signature, sizeof signature);
		memcpy(hello.bytes + hello.length, signature, sizeof signature);
		hello.length += sizeof signature;
	}
	hello.bytes[11] = (uint8_t)(hello.bytes[11] + SIGNATURES);
	const struct dnssd_query query = {.bytes = question, .length = sizeof question};
	size_t before = 0;
	for (int i = 0; i < 2 * TIMES; i++) {
		give(heard, &hello, ETH, NOW);
		dnssd_answer(&service, addresses, 2, &query, &answer, &unicast);
		assert_int_equal(answer.length, 0);
		before = i == TIMES ? allocated() : before;
	}
	assert_int_equal(heard->count, 1);
	assert_in_range(allocated(), 0, before + TIMES * SIGNATURES);
	free(heard);
}

struct packet {
	size_t length;
	uint8_t bytes[DNSSD_QUERY_BYTES];
};

static void put(struct packet *packet, const void *bytes, size_t length)
{
	assert_true(packet->length + length <= sizeof packet->bytes);
	memcpy(packet->bytes + packet->length, bytes, length);
	packet->length += length;
}

// An answer with so many records.
static void begin(struct packet *packet, unsigned records)
{
	const uint8_t head[12] = {0, 0, 0x84, 0, 0, 0, (uint8_t)(records >> 8), (uint8_t)records};
	packet->length = 0;
	put(packet, head, sizeof head);
}

static bool give_bytes(struct heard *heard, const struct packet *packet)
{
	return heard_take(heard, &(struct heard_packet){.bytes = packet->bytes,
							.length = packet->length,
							.interface = ETH,
							.from = from4,
							.now_ms = NOW});
}

static void test_hostile(void **state)
{
	static const char type[] = "\x08_exo-gpu\x04_tcp\x05local", pointer[] = "\x00\x0c\x00\x01\x00\x00\x11\x94";
	struct heard *heard = new_heard();
	struct packet *packet = calloc(1, sizeof(*packet));
	(void)state;
	assert_non_null(packet);
	// A name that points to itself, two that point to each other, one that points past the end.
	static const char *const loops[] = {"\xc0\x0c", "\xc0\x0e\xc0\x0c", "\xc1\xff"};
	for (size_t i = 0; i < 3; i++) {
		begin(packet, 1);
		put(packet, loops[i], strlen(loops[i]));
		put(packet, pointer, 8);
		put(packet, "\x00\x02\xc0\x0c", 4);
		assert_false(give_bytes(heard, packet));
	}
	// As long a chain of pointers as fits, for each of as many records as fit.
	begin(packet, 600);
	for (unsigned i = 0; i < 600 && packet->length + 16 < sizeof packet->bytes; i++) {
		const unsigned to = i ? (unsigned)packet->length - 14 : 12;
		const uint8_t name[2] = {(uint8_t)(0xc0 | to >> 8), (uint8_t)to};
		put(packet, name, i ? 2 : 0);
		put(packet, "", i ? 0 : 1);
		put(packet, pointer, 8);
		put(packet, "\x00\x02\xc0\x0c", 4);
	}
	assert_false(give_bytes(heard, packet));
	assert_int_equal(heard->count, 0);
	// A pointer to the type itself, one with a name that holds a zero, one to somebody else's service.
	static const char zero[] = "\x03"
				   "a\0b\xc0\x0c";
	begin(packet, 3);
	put(packet, type, sizeof type);
	put(packet, pointer, 8);
	put(packet, "\x00\x02\xc0\x0c", 4);
	put(packet, "\xc0\x0c", 2);
	put(packet, pointer, 8);
	put(packet, "\x00\x06", 2);
	put(packet, zero, 6);
	put(packet, "\xc0\x0c", 2);
	put(packet, pointer, 8);
	put(packet, "\x00\x08\x01x\x04_udp", 9);
	put(packet, "", 1);
	assert_false(give_bytes(heard, packet));
	assert_int_equal(heard->count, 0);
	// More records than are looked at: of them so many are, and of one source so many kept.
	begin(packet, 400);
	put(packet, type, sizeof type);
	put(packet, pointer, 8);
	put(packet, "\x00\x02\xc0\x0c", 4);
	for (unsigned i = 1; i < 400; i++) {
		char label[8];
		snprintf(label, sizeof label, "\x04%04x", i);
		put(packet, "\xc0\x0c", 2);
		put(packet, pointer, 8);
		put(packet, "\x00\x07", 2);
		put(packet, label, 5);
		put(packet, "\xc0\x0c", 2);
	}
	assert_true(give_bytes(heard, packet));
	assert_int_equal(heard->count, LIMIT_HEARD_OF_SOURCE);
	assert_int_equal(heard->left_out, LIMIT_HEARD_RECORDS - 1 - LIMIT_HEARD_OF_SOURCE);
	assert_string_equal(net_presence_fault(&heard->services[0].presence), "it has not described itself yet");
	free(packet);
	free(heard);
}

static void test_texts(void **state)
{
	static const struct {
		const char *texts[9];
		const char *fault; // what it begins with; NULL: none
	} cases[] = {
		{{"txtvers=1", "id=node_1", "ver=0.1.0", "role=node"}, NULL},
		{{"TXTVERS=1", "ID=node_1", "Ver=0.1.0", "role=node", "gpus=3", "more=1", "flag", "="}, NULL},
		{{"txtvers=1", "id=node_1", "id=node_2", "ver=1", "role=node"}, NULL}, // the first counts
		{{"id=node_1", "ver=0.1.0", "role=node"}, "its announcement is damaged"},
		{{"txtvers=2", "id=node_1", "ver=0.1.0", "role=node"}, "its announcement has another version"},
		{{"txtvers=1", "id=node_1", "ver=0.1.0", "role=king"}, "it is neither a server nor a node"},
		{{"txtvers=1", "ver=0.1.0", "role=node"}, "it does not send its identity"},
		{{"txtvers=1", "id=clu_1", "ver=0.1.0", "role=server"}, "it does not say of which cluster"},
		{{"txtvers=1", "id=node_1", "ver=1", "role=node", "cluster=clu_1"}, "it does not say of which cluster"},
		{{"txtvers=1", "id=\x1b[2J", "ver=0.1.0", "role=node"}, "its announcement is damaged"},
		{{"txtvers=1", "id=a b", "ver=0.1.0", "role=node"}, "its announcement is damaged"},
		{{"txtvers=1", "id=node_1", "ver=1", "role=node", "gpus=-1"}, "its announcement is damaged"},
		{{"txtvers=1", "id=node_1", "ver=1", "role=node", "gpus=99999999999"}, "its announcement is"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct net_presence presence;
		net_presence_begin(&presence);
		for (size_t k = 0; cases[i].texts[k]; k++)
			net_presence_read(&presence, (const uint8_t *)cases[i].texts[k], strlen(cases[i].texts[k]));
		const char *fault = net_presence_fault(&presence);
		if (!fault != !cases[i].fault || (fault && strncmp(fault, cases[i].fault, strlen(cases[i].fault)) != 0))
			fail_msg("case %zu: %s, not %s", i, fault ? fault : "no fault",
				 cases[i].fault ? cases[i].fault : "none");
		if (!fault)
			assert_string_equal(presence.id, "node_1");
	}
	// What is announced is under 400 bytes however long the ids are, and reads back.
	struct net_presence longest = {.gpus = 100000};
	memset(longest.id, 'x', sizeof longest.id - 1);
	memset(longest.cluster_id, 'y', sizeof longest.cluster_id - 1);
	memset(longest.version, '9', sizeof longest.version - 1);
	memset(longest.fingerprint, 'f', sizeof longest.fingerprint - 1);
	snprintf(longest.role, sizeof longest.role, "server");
	struct net_presence_service printed;
	net_presence_print(&longest, "a name that is far too long for one label, \xc3\xa9 and all that follows it", 1,
			   &printed);
	struct error error = {0};
	assert_int_equal(dnssd_check(&printed.service, &error), STATUS_OK);
	struct net_presence back;
	net_presence_begin(&back);
	for (size_t i = 0; printed.service.txt[i]; i++)
		net_presence_read(&back, (const uint8_t *)printed.service.txt[i], strlen(printed.service.txt[i]));
	assert_null(net_presence_fault(&back));
	assert_string_equal(back.cluster_id, longest.cluster_id);
	assert_int_equal(back.gpus, 100000);
}

// ---- on the network ----

struct stage {
	struct net_loop *loop;
	struct net_browser *browser;
	struct net_announcer *announcer;
	struct net_timer late;
	struct dnssd_service service;
	int gpus; // that are waited for; -1: that it is gone
	bool done;
};

static const struct heard_service *find(const struct stage *stage)
{
	const struct heard *heard = net_browser_heard(stage->browser);
	for (size_t i = 0; i < heard->count; i++)
		if (!strcmp(heard->services[i].name, stage->service.instance))
			return &heard->services[i];
	return NULL;
}

static void changed(void *arg)
{
	struct stage *stage = arg;
	const struct heard_service *one = find(stage);
	stage->done = stage->gpus < 0 ? !one : one && one->address_count && one->presence.gpus == stage->gpus;
	if (stage->done)
		net_loop_stop(stage->loop);
}

static void too_late(void *arg)
{
	net_loop_stop(((struct stage *)arg)->loop);
}

static void wait_for(struct stage *stage, int gpus)
{
	stage->gpus = gpus;
	stage->done = false;
	net_timer_start(stage->loop, &stage->late, WAIT_MS, too_late, stage);
	net_loop_run(stage->loop);
	net_timer_stop(stage->loop, &stage->late);
	if (!stage->done)
		fail_msg("%d was not seen in %d ms", gpus, WAIT_MS);
}

// A browser that is there before the announcer, and one that comes after it; a change, and a goodbye.
static void test_real(void **state)
{
	struct stage stage = {0};
	struct error error = {0};
	char why[NET_MULTICAST_WHY_BYTES], id[32], text[NET_BROWSE_ADDRESS_BYTES * 4];
	snprintf(id, sizeof id, "clu_%08x", (unsigned)getpid());
	struct net_presence_service made = make(id, "test", 52415);
	stage.service = service_of(&made);
	(void)state;
	assert_int_equal(net_loop_create(&stage.loop, &error), STATUS_OK);
	for (int first = 0; first < 2; first++) {
		const int gpus = 2;
		if (first == 0)
			assert_int_equal(net_announcer_create(&stage.announcer, stage.loop, &stage.service, &error), 0);
		assert_int_equal(
			net_browser_create(&stage.browser, stage.loop, NET_PRESENCE_TYPE, changed, &stage, &error),
			STATUS_OK);
		if (!net_browser_works(stage.browser, why)) {
			print_message("no multicast here: %s\n", why);
			net_announcer_destroy(&stage.announcer);
			net_browser_destroy(&stage.browser);
			net_loop_destroy(&stage.loop);
			skip();
		}
		if (first == 1)
			assert_int_equal(net_announcer_create(&stage.announcer, stage.loop, &stage.service, &error), 0);
		wait_for(&stage, gpus);
		const struct heard_service *one = find(&stage);
		char list[4][NET_BROWSE_ADDRESS_BYTES];
		size_t count = net_browser_addresses(stage.browser, one, list, 4);
		assert_true(count >= 1);
		snprintf(text, sizeof text, "%s on %s", list[0],
			 net_browser_interface(stage.browser, one->places[0].interface));
		print_message("heard at %s\n", text);
		snprintf(made.texts[5], sizeof made.texts[5], "gpus=7");
		assert_int_equal(net_announcer_update(stage.announcer, &stage.service, &error), STATUS_OK);
		wait_for(&stage, 7);
		net_announcer_destroy(&stage.announcer);
		wait_for(&stage, -1);
		net_browser_destroy(&stage.browser);
		snprintf(made.texts[5], sizeof made.texts[5], "gpus=2");
	}
	net_loop_destroy(&stage.loop);
}

// An address of IPv4 of an interface that can do multicast.
static bool find_own(struct in_addr *address)
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

static void send_from(const struct in_addr *own, int from_port, const struct in_addr *to, const char *id)
{
	const int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons((uint16_t)from_port)},
				 there = {.sin_family = AF_INET, .sin_port = htons(5353), .sin_addr = *to};
	const struct net_presence_service made = make(id, "test", 1);
	const struct dnssd_packet packet = announced(&made, false);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, own, sizeof *own);
	assert_int_equal(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
	assert_int_equal(sendto(fd, packet.bytes, packet.length, 0, (const struct sockaddr *)&there, sizeof there),
			 packet.length);
	close(fd);
}

// What does not come from the port, or was sent to this machine alone, may come from anywhere: it is not believed.
static void test_only_neighbours(void **state)
{
	struct stage stage = {.service = {.instance = "test (0000cccc)"}};
	struct error error = {0};
	struct in_addr own, group;
	(void)state;
	if (!find_own(&own)) {
		print_message("no interface with multicast\n");
		skip();
	}
	inet_pton(AF_INET, "224.0.0.251", &group);
	assert_int_equal(net_loop_create(&stage.loop, &error), STATUS_OK);
	assert_int_equal(net_browser_create(&stage.browser, stage.loop, NET_PRESENCE_TYPE, changed, &stage, &error),
			 STATUS_OK);
	send_from(&own, 0, &group, "clu_0000aaaa");
	send_from(&own, 5353, &own, "clu_0000bbbb");
	send_from(&own, 5353, &group, "clu_0000cccc");
	wait_for(&stage, 2);
	const struct heard *heard = net_browser_heard(stage.browser);
	for (size_t i = 0; i < heard->count; i++) {
		assert_string_not_equal(heard->services[i].name, "test (0000aaaa)");
		assert_string_not_equal(heard->services[i].name, "test (0000bbbb)");
	}
	net_browser_destroy(&stage.browser);
	net_loop_destroy(&stage.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_announcement),
		cmocka_unit_test(test_time_to_live),
		cmocka_unit_test(test_question_and_answer),
		cmocka_unit_test(test_address_that_changes),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_signatures),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_real),
		cmocka_unit_test(test_only_neighbours),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
