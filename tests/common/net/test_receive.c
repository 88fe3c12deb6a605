/* Frames of a WebSocket as they may come: whole, byte by byte, in fragments with control frames between; and wrong. */
#include "common/net/ws/receive.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 4096, LIMIT = 1 << 20 };

static char heard[LOG_BYTES]; // what was told, as text
static uint32_t sum;          // over the bytes of messages

static void note(const char *what, const uint8_t *bytes, size_t length)
{
	size_t used = strlen(heard);
	snprintf(heard + used, sizeof heard - used, "%s%zu:%.*s ", what, length, length < 16 ? (int)length : 0,
		 (const char *)bytes);
}

static void on_message(void *arg, const uint8_t *bytes, size_t length, bool binary)
{
	(void)arg;
	for (size_t i = 0; i < length; i++)
		sum = sum * 31 + bytes[i];
	note(binary ? "b" : "t", bytes, length);
}

static void on_control(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length)
{
	(void)arg;
	note(opcode == OPCODE_CLOSE ? "close" : opcode == OPCODE_PING ? "ping" : "pong", bytes, length);
}

static const struct net_receiver_events events = {.message = on_message, .control = on_control};

static void start(struct net_receiver *receiver)
{
	*receiver = (struct net_receiver){.events = &events, .limit = LIMIT};
	heard[0] = 0;
	sum = 0;
}

// A frame as a client sends it. Returns its length.
static size_t put_frame(uint8_t *to, uint8_t first, const uint8_t *payload, size_t length)
{
	static const uint8_t mask[4] = {0x5a, 0x00, 0xff, 0x13};
	size_t at = 0;
	to[at++] = first;
	to[at++] = (uint8_t)(0x80 | (length < 126 ? length : length < 65536 ? 126 : 127));
	for (int i = length < 126 ? 0 : length < 65536 ? 2 : 8; i > 0; i--)
		to[at++] = (uint8_t)((uint64_t)length >> 8 * (i - 1));
	memcpy(to + at, mask, sizeof mask);
	at += sizeof mask;
	for (size_t i = 0; i < length; i++)
		to[at++] = payload[i] ^ mask[i & 3];
	return at;
}

static size_t put_text(uint8_t *to, uint8_t first, const char *text)
{
	return put_frame(to, first, (const uint8_t *)text, strlen(text));
}

// The stream in pieces of `piece` bytes, through net_receiver_room where it offers some.
static int feed(struct net_receiver *receiver, const uint8_t *bytes, size_t length, size_t piece)
{
	int code = 0;
	uint8_t *copy = malloc(piece), *to;
	assert_non_null(copy);
	for (size_t at = 0; at < length && !code;) {
		size_t now = length - at < piece ? length - at : piece, room = net_receiver_room(receiver, &to);
		if (room) {
			now = now < room ? now : room;
			memcpy(to, bytes + at, now);
			net_receiver_filled(receiver, now);
		} else {
			memcpy(copy, bytes + at, now);
			code = net_receiver_take(receiver, copy, now, NULL);
		}
		at += now;
	}
	free(copy);
	return code;
}

static void frames_come_in_any_pieces(void **state)
{
	static uint8_t stream[4096];
	static const size_t pieces[] = {1, 2, 3, 5, 7, 13, 64, 4096};
	size_t length = 0;
	(void)state;
	length += put_text(stream + length, 0x81, "hello");
	length += put_text(stream + length, 0x82, "");
	length += put_text(stream + length, 0x01, "one ");
	length += put_text(stream + length, 0x89, "ping?");
	length += put_text(stream + length, 0x00, "two ");
	length += put_text(stream + length, 0x8a, "");
	length += put_text(stream + length, 0x80, "three");
	length += put_text(stream + length, 0x82, "again");
	length += put_text(stream + length, 0x88, "\x03\xe8");
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		struct net_receiver receiver;
		start(&receiver);
		assert_int_equal(feed(&receiver, stream, length, pieces[i]), 0);
		assert_string_equal(heard,
				    "t5:hello b0: ping5:ping? pong0: t13:one two three b5:again close2:\x03\xe8 ");
		net_receiver_finish(&receiver);
	}
}

static void large_ones_keep_every_byte(void **state)
{
	static const size_t lengths[] = {125, 126, 127, 65535, 65536, 65537, 300001, LIMIT};
	static const size_t pieces[] = {1000, 65536, 100003, 1 << 21};
	uint8_t *payload = malloc(LIMIT), *stream = malloc(LIMIT + 64);
	(void)state;
	for (size_t i = 0; i < LIMIT; i++)
		payload[i] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
		for (size_t j = 0; j < sizeof pieces / sizeof *pieces; j++) {
			struct net_receiver receiver;
			char expected[64];
			uint32_t wanted = 0;
			start(&receiver);
			size_t length = put_frame(stream, 0x82, payload, lengths[i]);
			length += put_text(stream + length, 0x81, "end");
			assert_int_equal(feed(&receiver, stream, length, pieces[j]), 0);
			snprintf(expected, sizeof expected, "b%zu: t3:end ", lengths[i]);
			assert_string_equal(heard, expected);
			for (size_t k = 0; k < lengths[i]; k++)
				wanted = wanted * 31 + payload[k];
			for (const char *c = "end"; *c; c++)
				wanted = wanted * 31 + (uint8_t)*c;
			assert_int_equal(sum, wanted);
			net_receiver_finish(&receiver);
		}
	free(payload);
	free(stream);
}

static void what_is_wrong_is_told(void **state)
{
	static const struct {
		uint8_t bytes[16];
		size_t length;
		int code;
	} cases[] = {
		{{0x81, 0x05}, 2, 1002},                                      // no mask
		{{0xc1, 0x80}, 2, 1002},                                      // an extension's bit
		{{0x83, 0x80, 0, 0, 0, 0}, 6, 1002},                          // no such kind
		{{0x8b, 0x80, 0, 0, 0, 0}, 6, 1002},                          // nor this
		{{0x80, 0x80, 0, 0, 0, 0}, 6, 1002},                          // more of nothing
		{{0x09, 0x80, 0, 0, 0, 0}, 6, 1002},                          // a ping in fragments
		{{0x89, 0xfe, 0, 126, 0, 0, 0, 0}, 8, 1002},                  // a ping that is too long
		{{0x01, 0x80, 0, 0, 0, 0, 0x81, 0x80, 0, 0, 0, 0}, 12, 1002}, // a message within another
		{{0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0, 0}, 14, 1009},
		{{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, 14, 1009},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (size_t piece = 1; piece < 16; piece += 14) {
			struct net_receiver receiver;
			start(&receiver);
			int code = feed(&receiver, cases[i].bytes, cases[i].length, piece);
			if (code != cases[i].code)
				fail_msg("case %zu: %d, not %d", i, code, cases[i].code);
			net_receiver_finish(&receiver);
		}
}

static void fragments_together_keep_to_the_limit(void **state)
{
	uint8_t *payload = calloc(1, LIMIT), *stream = malloc(2 * LIMIT);
	struct net_receiver receiver;
	(void)state;
	start(&receiver);
	size_t length = put_frame(stream, 0x02, payload, LIMIT - 10);
	assert_int_equal(feed(&receiver, stream, length, 65536), 0);
	length = put_frame(stream, 0x80, payload, 11);
	assert_int_equal(feed(&receiver, stream, length, 65536), 1009);
	assert_string_equal(heard, "");
	net_receiver_finish(&receiver);
	free(payload);
	free(stream);
}

// A server's: without masks, and one with a mask is refused.
static void what_a_server_sends(void **state)
{
	static const uint8_t good[] = {0x81, 2, 'h', 'i', 0x89, 1, 'p', 0x01, 1, 'a', 0x80, 126, 0, 2, 'b', 'c'};
	static const uint8_t masked[] = {0x81, 0x82, 0, 0, 0, 0, 'h', 'i'};
	struct net_receiver receiver;
	char wanted[sizeof heard];
	(void)state;
	uint8_t stream[64];
	size_t length = put_text(stream, 0x81, "hi");
	length += put_text(stream + length, 0x89, "p");
	length += put_text(stream + length, 0x81, "abc");
	start(&receiver);
	assert_int_equal(feed(&receiver, stream, length, 64), 0);
	memcpy(wanted, heard, sizeof wanted);
	net_receiver_finish(&receiver);
	for (size_t piece = 1; piece <= sizeof good; piece++) {
		start(&receiver);
		receiver.unmasked = true;
		assert_int_equal(feed(&receiver, good, sizeof good, piece), 0);
		assert_string_equal(heard, wanted);
		net_receiver_finish(&receiver);
	}
	start(&receiver);
	receiver.unmasked = true;
	assert_int_equal(feed(&receiver, masked, sizeof masked, 64), 1002);
	net_receiver_finish(&receiver);
}

static bool enough(void *arg)
{
	(void)arg;
	return true;
}

static void turns_end_with_a_frame(void **state)
{
	static const struct net_receiver_events turns = {
		.message = on_message, .control = on_control, .enough = enough};
	static const size_t ends[] = {11, 17, 23, 29, 41};
	uint8_t stream[64];
	struct net_receiver receiver;
	size_t length = put_text(stream, 0x81, "hello"), taken, at = 0;
	(void)state;
	length += put_text(stream + length, 0x89, "");
	length += put_text(stream + length, 0x01, "");
	length += put_text(stream + length, 0x80, "");
	length += put_text(stream + length, 0x82, "second");
	start(&receiver);
	receiver.events = &turns;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		assert_int_equal(net_receiver_take(&receiver, stream + at, length - at, &taken), 0);
		at += taken;
		assert_int_equal(at, ends[i]);
	}
	assert_int_equal(at, length);
	assert_string_equal(heard, "t5:hello ping0: t0: b6:second ");
	net_receiver_finish(&receiver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_come_in_any_pieces), cmocka_unit_test(large_ones_keep_every_byte),
		cmocka_unit_test(what_is_wrong_is_told),     cmocka_unit_test(fragments_together_keep_to_the_limit),
		cmocka_unit_test(what_a_server_sends),       cmocka_unit_test(turns_end_with_a_frame),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
