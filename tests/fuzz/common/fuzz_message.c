/* Fuzz target: the message codec.
 *
 * The first byte says how the rest arrives: as a text frame, as a binary frame, or as a stream that is cut into
 * pieces of a size that the second byte gives. What decodes is encoded again and must decode to the same. */
#include "common/base/limits.h"
#include "common/wire/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void round_trip(const struct message *message)
{
	struct buffer head, frame;
	buffer_init(&head, LIMIT_HEAD_BYTES * 8);
	buffer_init(&frame, LIMIT_WORKER_MESSAGE_BYTES * 8);
	require(json_print(message->head, &head) == STATUS_OK);
	if (head.length <= LIMIT_HEAD_BYTES) {
		require(message_encode(&frame, buffer_text(&head), head.length, message->body, message->body_bytes) ==
			STATUS_OK);
		struct message again;
		require(message_decode(&again, frame.data, frame.length, NULL) == STATUS_OK);
		require(again.kind == message->kind && json_equal(again.head, message->head));
		require(again.body_bytes == message->body_bytes);
		require(!again.body_bytes || !memcmp(again.body, message->body, again.body_bytes));
		message_finish(&again);
	}
	buffer_finish(&head);
	buffer_finish(&frame);
}

static void decode(const uint8_t *bytes, size_t length, bool text)
{
	struct message message;
	struct error error = {0};
	enum status status = text ? message_decode_text(&message, (const char *)bytes, length, &error)
				  : message_decode(&message, bytes, length, &error);
	if (!status) {
		round_trip(&message);
	} else {
		require(error.status == status && error.message[0]);
	}
	message_finish(&message);
}

static void decode_stream(const uint8_t *bytes, size_t length, size_t piece)
{
	struct buffer in;
	buffer_init(&in, LIMIT_WORKER_MESSAGE_BYTES);
	for (size_t at = 0; at < length; at += piece) {
		size_t more = length - at < piece ? length - at : piece;
		if (buffer_append(&in, bytes + at, more))
			break;
		const uint8_t *frame;
		size_t frame_bytes, used;
		enum status status;
		while (!(status = message_next(&in, &frame, &frame_bytes, &used)) && used) {
			decode(frame, frame_bytes, false);
			buffer_consume(&in, used);
		}
		if (status)
			break;
	}
	buffer_finish(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	switch (data[0] % 3) {
	case 0:
		decode(data + 2, size - 2, true);
		break;
	case 1:
		decode(data + 2, size - 2, false);
		break;
	case 2:
		decode_stream(data + 2, size - 2, (size_t)data[1] + 1);
		break;
	}
	return 0;
}
