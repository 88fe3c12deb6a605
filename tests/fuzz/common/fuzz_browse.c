/* Packets from the network while the node browses for services: packets, one after the other, on two interfaces, with
 * time between them.
 *
 *   u8 seconds | u8 interface (low bit), sender | u16 little-endian length | the packet
 *
 * Whatever was in them: the table keeps within its bounds, its texts are plain, what is asked fits a packet and is a
 * question, and after a day everything is forgotten. */
#include "common/json/json.h"
#include "common/net/mdns/heard.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { DAY_MS = 86400000 };

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void require_plain(const char *text, size_t most)
{
	const size_t length = strlen(text);
	require(length <= most);
	for (size_t i = 0; i < length; i++)
		require(text[i] > ' ' && text[i] < 0x7f);
}

static void check(const struct heard *heard)
{
	require(heard->count <= LIMIT_HEARD);
	for (size_t i = 0; i < heard->count; i++) {
		char name[HEARD_NAME_BYTES];
		const struct heard_service *one = &heard->services[i];
		require(one->address_count <= LIMIT_HEARD_ADDRESSES && one->place_count <= LIMIT_HEARD_PLACES);
		require(one->name[0] && one->port >= 0 && one->port <= 65535);
		require(json_utf8(heard_print_name(one, name), strlen(name)));
		require_plain(one->host, 254);
		require_plain(one->presence.role, 16);
		require_plain(one->presence.id, 64);
		require_plain(one->presence.cluster_id, 64);
		require_plain(one->presence.version, 64);
		require_plain(one->presence.fingerprint, 16);
		const char *fault = net_presence_fault(&one->presence);
		require(fault || (one->presence.id[0] && one->presence.role[0]));
	}
}

static void check_question(const struct heard *heard, unsigned interface, int64_t now_ms)
{
	struct dnssd_packet question;
	for (int all = 0; all < 2; all++) {
		heard_ask(heard, interface, all, now_ms, &question);
		require(question.length <= DNSSD_PACKET_BYTES && (!all || question.length > 12));
		require(!question.length || !(question.bytes[2] & 0x80));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static struct heard heard;
	int64_t now_ms = 1000000;
	heard_init(&heard, NET_PRESENCE_TYPE);
	while (length >= 4) {
		size_t size = bytes[2] | (size_t)bytes[3] << 8;
		struct heard_packet packet = {.interface = 1u + (bytes[1] & 1)};
		packet.from = (struct dnssd_address){.ipv6 = bytes[1] & 2, .bytes = {10, [3] = bytes[1] >> 2}};
		now_ms += 1000 * (int64_t)bytes[0];
		packet.now_ms = now_ms;
		packet.bytes = bytes + 4;
		packet.length = size < length - 4 ? size : length - 4;
		heard_take(&heard, &packet);
		check(&heard);
		check_question(&heard, packet.interface, now_ms);
		heard_asked(&heard, now_ms);
		heard_sweep(&heard, now_ms);
		check(&heard);
		bytes += 4 + packet.length;
		length -= 4 + packet.length;
	}
	heard_leave(&heard, 1, now_ms);
	check(&heard);
	heard_sweep(&heard, now_ms + DAY_MS);
	require(!heard.count);
	return 0;
}
