/* libexogpu: write and read: bytes of the caller's into a buffer and out of it, done when the call returns.
 *
 * What the host sees is copied in place, once the work that uses it is done; so is all memory of a device that is this
 * machine's processor, where its back end tells the place. For other device memory the bytes go through a ring of
 * pieces of host memory in a stream of the device's own, so that the host's copy of one piece runs beside the device's
 * copy of the one before; other streams go on meanwhile. Mapped memory is written in place and read through the ring:
 * over a bus, reading it word by word is slow. */
#include "engine/inside.h"

#include <string.h>

static const int64_t no_limit_ns = INT64_MAX;

static uint64_t piece_of(uint64_t left)
{
	return left < TRANSFER_PIECE_BYTES ? left : TRANSFER_PIECE_BYTES;
}

// Make the stream and the ring unless they are there, and let the stream begin behind the work that uses the buffer.
static enum status begin(struct exogpu_device *device, const struct exogpu_buffer *buffer, struct error *error)
{
	struct transfer *transfer = &device->transfer;
	struct backend_buffer_params ring = {.bytes = TRANSFER_PIECES * TRANSFER_PIECE_BYTES,
					     .memory = EXOGPU_MEMORY_HOST};
	enum status status = STATUS_OK;
	if (!transfer->stream)
		status = stream_create_as(device, &transfer->stream, true, error);
	if (!status && !transfer->ring)
		status = buffer_create_as(device, &transfer->ring, &ring, true, error);
	for (unsigned i = 0; !status && i < LIMIT_STREAMS_OF_DEVICE; i++) {
		struct exogpu_stream *other = device->streams[i];
		uint64_t point = other ? other->marked : 0;
		if (!other || other == transfer->stream || !(buffer->used_by & UINT64_C(1) << i))
			continue;
		if (other->dirty)
			status = exogpu_mark(other, &point, error);
		if (!status)
			status = exogpu_follow(transfer->stream, other, point, error);
	}
	return status ? status : device_wait(device, 0, buffer->peer_target, no_limit_ns, error);
}

// A failed piece leaves other pieces in flight: the ring must not be used again before they are done.
static enum status end(struct exogpu_device *device, enum status status)
{
	if (status)
		device_settle(device, UINT64_C(1) << device->transfer.stream->index, false);
	return status;
}

static enum status write_pieces(struct exogpu_buffer *to, uint64_t offset, const uint8_t *from, uint64_t bytes,
				struct error *error)
{
	struct transfer *transfer = &to->device->transfer;
	uint8_t *ring = exogpu_buffer_pointer(transfer->ring);
	uint64_t points[TRANSFER_PIECES] = {0};
	enum status status = STATUS_OK;
	uint64_t done = 0;
	for (unsigned slot = 0; !status && done < bytes; slot = (slot + 1) % TRANSFER_PIECES) {
		struct exogpu_copy copy = {.to = to,
					   .from = transfer->ring,
					   .to_offset = offset + done,
					   .from_offset = (uint64_t)slot * TRANSFER_PIECE_BYTES,
					   .bytes = piece_of(bytes - done)};
		status = exogpu_wait(transfer->stream, points[slot], no_limit_ns, error);
		if (status)
			break;
		memcpy(ring + copy.from_offset, from + done, copy.bytes);
		status = exogpu_copy(transfer->stream, &copy, error);
		if (!status)
			status = exogpu_mark(transfer->stream, &points[slot], error);
		done += copy.bytes;
	}
	return status ? status : stream_settle(transfer->stream, no_limit_ns, error);
}

static enum status read_pieces(uint8_t *to, struct exogpu_buffer *from, uint64_t offset, uint64_t bytes,
			       struct error *error)
{
	struct transfer *transfer = &from->device->transfer;
	const uint8_t *ring = exogpu_buffer_pointer(transfer->ring);
	uint64_t points[TRANSFER_PIECES] = {0};
	enum status status = STATUS_OK;
	uint64_t asked = 0, done = 0; // a piece lies in the slot that its place in the range says
	while (!status && done < bytes) {
		while (!status && asked < bytes && asked - done < TRANSFER_PIECES * (uint64_t)TRANSFER_PIECE_BYTES) {
			unsigned slot = asked / TRANSFER_PIECE_BYTES % TRANSFER_PIECES;
			struct exogpu_copy copy = {.to = transfer->ring,
						   .from = from,
						   .to_offset = (uint64_t)slot * TRANSFER_PIECE_BYTES,
						   .from_offset = offset + asked,
						   .bytes = piece_of(bytes - asked)};
			status = exogpu_copy(transfer->stream, &copy, error);
			if (!status)
				status = exogpu_mark(transfer->stream, &points[slot], error);
			asked += copy.bytes;
		}
		unsigned slot = done / TRANSFER_PIECE_BYTES % TRANSFER_PIECES;
		if (!status)
			status = exogpu_wait(transfer->stream, points[slot], no_limit_ns, error);
		if (status)
			break;
		memcpy(to + done, ring + (uint64_t)slot * TRANSFER_PIECE_BYTES, piece_of(bytes - done));
		done += piece_of(bytes - done);
	}
	return status;
}

static enum status check(const struct exogpu_buffer *buffer, uint64_t offset, const void *host, uint64_t bytes,
			 struct error *error)
{
	enum status status = buffer ? device_usable(buffer->device, error) : STATUS_OK;
	if (!status)
		status = buffer_range(buffer, offset, bytes, "range", error);
	if (!status && bytes && !host)
		status = error_set(error, STATUS_INVALID_PARAMS, "no memory of the caller's");
	return status;
}

// The address at which the host can copy the bytes itself at full speed; NULL: there is none.
static uint8_t *in_place(struct exogpu_buffer *buffer, bool reading)
{
	const struct exogpu_device *device = buffer->device;
	bool software = device->limits.capabilities & EXOGPU_CAN_SOFTWARE;
	if (software || buffer->memory == EXOGPU_MEMORY_HOST || (buffer->memory == EXOGPU_MEMORY_MAPPED && !reading))
		return device->backend->buffer_pointer(buffer->handle);
	return NULL;
}

enum status exogpu_write(struct exogpu_buffer *to, uint64_t offset, const void *from, uint64_t bytes,
			 struct error *error)
{
	enum status status = check(to, offset, from, bytes, error);
	if (status || !bytes)
		return status;
	uint8_t *place = in_place(to, false);
	if (place) {
		status = device_wait(to->device, to->used_by, to->peer_target, no_limit_ns, error);
		if (!status)
			memcpy(place + offset, from, bytes);
		return status;
	}
	status = begin(to->device, to, error);
	return status ? status : end(to->device, write_pieces(to, offset, from, bytes, error));
}

enum status exogpu_read(void *to, struct exogpu_buffer *from, uint64_t offset, uint64_t bytes, struct error *error)
{
	enum status status = check(from, offset, to, bytes, error);
	if (status || !bytes)
		return status;
	const uint8_t *place = in_place(from, true);
	if (place) {
		status = device_wait(from->device, from->used_by, from->peer_target, no_limit_ns, error);
		if (!status)
			memcpy(to, place + offset, bytes);
		return status;
	}
	status = begin(from->device, from, error);
	return status ? status : end(from->device, read_pieces(to, from, offset, bytes, error));
}
