/* The receiving side of a WebSocket: the first byte says in what pieces the rest comes, and every frame is enough for a
 * turn. What is heard does not depend on that: the same bytes in one piece and one turn must tell the same. */
#include "common/net/ws/receive.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 16384 };

struct heard {
	uint64_t hash;
	unsigned count;
};

static void add(struct heard *heard, unsigned kind, const uint8_t *bytes, size_t length)
{
	if (length > LIMIT)
		abort();
	heard->count++;
	heard->hash = heard->hash * 1099511628211u + kind + 16 * length;
	for (size_t i = 0; i < length; i++)
		heard->hash = heard->hash * 1099511628211u + bytes[i];
}

static void on_message(void *arg, const uint8_t *bytes, size_t length, bool binary)
{
	add(arg, binary, bytes, length);
}

static void on_control(void *arg, enum net_opcode opcode, const uint8_t *bytes, size_t length)
{
	if (length > RECEIVE_CONTROL_BYTES)
		abort();
	add(arg, opcode, bytes, length);
}

static bool enough(void *arg)
{
	(void)arg;
	return true;
}

static struct heard hear(const uint8_t *bytes, size_t length, size_t piece, int *code)
{
	static const struct net_receiver_events turns = {
		.message = on_message, .control = on_control, .enough = enough};
	static const struct net_receiver_events once = {.message = on_message, .control = on_control};
	const struct net_receiver_events *events = piece < length ? &turns : &once;
	struct heard heard = {0};
	struct net_receiver receiver = {.events = events, .arg = &heard, .limit = LIMIT};
	uint8_t *copy = malloc(piece), *to;
	*code = 0;
	for (size_t at = 0; copy && at < length && !*code;) {
		size_t now = length - at < piece ? length - at : piece, room = net_receiver_room(&receiver, &to);
		if (room) {
			now = now < room ? now : room;
			memcpy(to, bytes + at, now);
			net_receiver_filled(&receiver, now);
		} else {
			size_t all = now;
			memcpy(copy, bytes + at, all);
			*code = net_receiver_take(&receiver, copy, all, &now);
			if (!now || (now < all && !*code && events == &once))
				abort();
		}
		at += now;
	}
	free(copy);
	net_receiver_finish(&receiver);
	return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int code, whole_code;
	if (size < 2)
		return 0;
	struct heard pieces = hear(data + 1, size - 1, 1 + data[0], &code);
	struct heard whole = hear(data + 1, size - 1, size, &whole_code);
	if (code != whole_code || pieces.count != whole.count || pieces.hash != whole.hash)
		abort();
	return 0;
}
