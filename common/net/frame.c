/* Messages to send, shared by reference; see ws.h and frame.h. A large frame
 * is expensive for the system: fresh memory is mapped page by page at its
 * first use and unmapped at its end, which costs more than copying its
 * content. So a few large frames are kept after use, KEEP_BYTES in all, and
 * used again. Small ones come from malloc. Thread: the loop's, of which a
 * process has one. */
#include "common/net/frame.h"

#include <stdlib.h>
#include <string.h>

enum {
	LARGE_BYTES = 32 * 1024,       // from here on frames are kept
	STEP_BYTES = 64 * 1024,        // large capacities are multiples of this, so that they fit again
	KEEP_BYTES = 32 * 1024 * 1024, // at most, in all
};

static struct net_frame *kept; // the latest first: its bytes may be in the cache still
static size_t kept_bytes;

// Finds a kept frame that fits and is not so large that a small message would block the room of a large one.
static struct net_frame *take_kept(size_t capacity)
{
	for (struct net_frame **at = &kept; *at; at = &(*at)->next_kept) {
		struct net_frame *frame = *at;
		if (frame->capacity < capacity || frame->capacity / 2 > capacity)
			continue;
		*at = frame->next_kept;
		kept_bytes -= frame->capacity;
		return frame;
	}
	return NULL;
}

static struct net_frame *frame_make(size_t room, size_t length, bool text)
{
	size_t capacity = FRAME_HEADER_BYTES + room + length;
	struct net_frame *frame = NULL;
	if (capacity >= LARGE_BYTES) {
		capacity = (capacity + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
		frame = take_kept(capacity);
	}
	if (frame)
		capacity = frame->capacity;
	else
		frame = malloc(sizeof(*frame) + capacity);
	if (frame)
		*frame = (struct net_frame){.references = 1,
					    .text = text,
					    .start = FRAME_HEADER_BYTES + room,
					    .length = length,
					    .capacity = capacity};
	return frame;
}

struct net_frame *net_frame_create(const void *bytes, size_t length, bool text)
{
	struct net_frame *frame = frame_make(0, length, text);
	if (frame && length)
		memcpy(net_frame_data(frame), bytes, length);
	return frame;
}

struct net_frame *net_frame_alloc(size_t length)
{
	return frame_make(NET_FRAME_ROOM, length, false);
}

struct net_frame *net_frame_create_outside(const struct net_frame_outside *outside)
{
	struct net_frame *frame = frame_make(0, 0, false);
	if (!frame)
		return NULL;
	frame->length = outside->length;
	frame->outside = outside->bytes;
	frame->release = outside->release;
	frame->owner = outside->owner;
	return frame;
}

struct net_frame *net_frame_chain(const void *bytes, size_t length, struct net_frame *rest)
{
	struct net_frame *frame = rest->rest ? NULL : net_frame_create(bytes, length, false);
	if (!frame)
		return NULL;
	frame->rest = net_frame_ref(rest);
	frame->length += rest->length;
	return frame;
}

struct net_frame *net_frame_ref(struct net_frame *frame)
{
	frame->references++;
	return frame;
}

void net_frame_unref(struct net_frame **pointer)
{
	struct net_frame *frame = *pointer;
	*pointer = NULL;
	if (!frame || --frame->references)
		return;
	if (frame->outside)
		frame->release(frame->owner, frame->outside, frame->length);
	if (frame->rest)
		net_frame_unref(&frame->rest);
	if (frame->capacity < LARGE_BYTES || kept_bytes + frame->capacity > KEEP_BYTES) {
		free(frame);
		return;
	}
	frame->next_kept = kept;
	kept = frame;
	kept_bytes += frame->capacity;
}

void net_frame_forget(void)
{
	while (kept) {
		struct net_frame *frame = kept;
		kept = frame->next_kept;
		free(frame);
	}
	kept_bytes = 0;
}

size_t net_frame_bytes(const struct net_frame *frame)
{
	return frame->length;
}

uint8_t *net_frame_data(struct net_frame *frame)
{
	return frame->outside ? (uint8_t *)(uintptr_t)frame->outside : frame->bytes + frame->start;
}

enum status net_frame_prepend(struct net_frame *frame, const void *bytes, size_t length)
{
	if (frame->outside || length > frame->start - FRAME_HEADER_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	frame->start -= length;
	frame->length += length;
	memcpy(net_frame_data(frame), bytes, length);
	return STATUS_OK;
}
