/* libexogpu: streams: work in order, points between pieces of work, and waiting for work in flight. */
#include "common/base/clock.h"
#include "engine/inside.h"

#include <stdlib.h>

// A time limit that can be added to any clock.
static const int64_t longest_ns = (int64_t)1 << 60;

static enum status stream_usable(const struct exogpu_stream *stream, struct error *error)
{
	if (!stream)
		return error_set(error, STATUS_INVALID_PARAMS, "no stream");
	return device_usable(stream->device, error);
}

enum status stream_create_as(struct exogpu_device *device, struct exogpu_stream **out, bool own, struct error *error)
{
	unsigned index = 0;
	enum status status = device_usable(device, error);
	if (status)
		return status;
	while (index < LIMIT_STREAMS_OF_DEVICE && device->streams[index])
		index++;
	if (index == LIMIT_STREAMS_OF_DEVICE)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a device has at most %d streams",
				 LIMIT_STREAMS_OF_DEVICE);
	struct exogpu_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stream's record");
	*stream = (struct exogpu_stream){.device = device, .index = index, .own = own};
	status = device_told(device, device->backend->stream_create(device->handle, &stream->handle, error), error);
	if (status) {
		free(stream);
		return status;
	}
	device->streams[index] = stream;
	device->usage.streams += !own;
	*out = stream;
	return STATUS_OK;
}

enum status exogpu_stream_create(struct exogpu_device *device, struct exogpu_stream **out, struct error *error)
{
	if (!out)
		return error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the stream");
	*out = NULL;
	return stream_create_as(device, out, false, error);
}

void exogpu_stream_destroy(struct exogpu_stream **stream_pointer)
{
	if (!stream_pointer || !*stream_pointer)
		return;
	struct exogpu_stream *stream = *stream_pointer;
	struct exogpu_device *device = stream->device;
	device_settle(device, UINT64_C(1) << stream->index, false);
	if (!device->lost)
		device->backend->stream_destroy(device->handle, &stream->handle);
	device->usage.streams -= !stream->own;
	device->streams[stream->index] = NULL;
	free(stream);
	*stream_pointer = NULL;
}

uint64_t stream_use(struct exogpu_stream *stream)
{
	stream->dirty = true;
	return UINT64_C(1) << stream->index;
}

// ---- work ----

static bool overlap(const struct exogpu_copy *copy)
{
	return copy->to == copy->from && copy->bytes && copy->to_offset < copy->from_offset + copy->bytes &&
	       copy->from_offset < copy->to_offset + copy->bytes;
}

static bool peer_add(struct exogpu_device *device, struct exogpu_device *peer)
{
	struct exogpu_device **room = NULL;
	for (unsigned i = 0; i < LIMIT_PEERS_OF_DEVICE; i++) {
		if (device->peers[i] == peer)
			return true;
		if (!device->peers[i] && !room)
			room = &device->peers[i];
	}
	if (room)
		*room = peer;
	return room;
}

static enum status copy_to_peer(struct exogpu_stream *stream, const struct exogpu_copy *copy,
				const struct backend_copy *work, struct error *error)
{
	struct exogpu_device *from = stream->device, *to = copy->to->device;
	bool direct = false;
	enum status status = device_usable(to, error);
	if (status)
		return status;
	if (from->backend != to->backend || !(from->limits.capabilities & to->limits.capabilities & EXOGPU_CAN_PEER)) {
		error_set(error, STATUS_UNAVAILABLE, "these two devices do not copy to each other");
		error_hint(error, "read from one and write to the other");
		return STATUS_UNAVAILABLE;
	}
	if (!peer_add(from, to) || !peer_add(to, from))
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a device copies to and from at most %d others",
				 LIMIT_PEERS_OF_DEVICE);
	copy->from->used_by |= stream_use(stream);
	copy->to->peer_target = true;
	status = device_told(from, from->backend->copy_peer(stream->handle, to->handle, work, &direct, error), error);
	if (!status && copy->direct)
		*copy->direct = direct;
	return status;
}

enum status exogpu_copy(struct exogpu_stream *stream, const struct exogpu_copy *copy, struct error *error)
{
	enum status status = stream_usable(stream, error);
	if (!status && !copy)
		status = error_set(error, STATUS_INVALID_PARAMS, "nothing to copy");
	if (!status)
		status = buffer_range(copy->to, copy->to_offset, copy->bytes, "to", error);
	if (!status)
		status = buffer_range(copy->from, copy->from_offset, copy->bytes, "from", error);
	if (!status && copy->from->device != stream->device)
		status = error_set(error, STATUS_INVALID_PARAMS, "from: not of the stream's device");
	if (!status && overlap(copy))
		status = error_set(error, STATUS_INVALID_PARAMS, "%llu bytes from %llu to %llu overlap",
				   (unsigned long long)copy->bytes, (unsigned long long)copy->from_offset,
				   (unsigned long long)copy->to_offset);
	if (status || !copy->bytes)
		return status;
	struct exogpu_device *device = stream->device;
	struct backend_copy work = {.to = copy->to->handle,
				    .from = copy->from->handle,
				    .to_offset = copy->to_offset,
				    .from_offset = copy->from_offset,
				    .bytes = copy->bytes};
	if (copy->to->device != device)
		return copy_to_peer(stream, copy, &work, error);
	uint64_t use = stream_use(stream);
	copy->to->used_by |= use;
	copy->from->used_by |= use;
	return device_told(device, device->backend->copy(stream->handle, &work, error), error);
}

enum status exogpu_fill(struct exogpu_stream *stream, struct exogpu_buffer *buffer, uint64_t offset, uint64_t bytes,
			uint8_t value, struct error *error)
{
	enum status status = stream_usable(stream, error);
	if (!status)
		status = buffer_range(buffer, offset, bytes, "fill", error);
	if (!status && buffer->device != stream->device)
		status = error_set(error, STATUS_INVALID_PARAMS, "fill: not of the stream's device");
	if (status || !bytes)
		return status;
	struct exogpu_device *device = stream->device;
	buffer->used_by |= stream_use(stream);
	return device_told(device, device->backend->fill(stream->handle, buffer->handle, offset, bytes, value, error),
			   error);
}

// ---- points ----

static enum status point_check(const struct exogpu_stream *stream, uint64_t point, struct error *error)
{
	if (point <= stream->marked)
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "point %llu is not marked; the newest is %llu",
			 (unsigned long long)point, (unsigned long long)stream->marked);
}

enum status exogpu_mark(struct exogpu_stream *stream, uint64_t *point, struct error *error)
{
	uint64_t marked = 0;
	enum status status = stream_usable(stream, error);
	if (!status && !point)
		status = error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the point");
	if (status)
		return status;
	status = stream->dropped;
	stream->dropped = STATUS_OK;
	if (status)
		return error_set(error, status, "work of this stream may have been lost when the driver failed");
	struct exogpu_device *device = stream->device;
	status = device_told(device, device->backend->mark(stream->handle, &marked, error), error);
	if (status)
		return status;
	if (marked <= stream->marked)
		return error_set(error, STATUS_INTERNAL, "point %llu after %llu", (unsigned long long)marked,
				 (unsigned long long)stream->marked);
	stream->points[stream->mark_count++ % EXOGPU_POINTS] = marked;
	stream->marked = *point = marked;
	stream->dirty = false;
	return STATUS_OK;
}

enum status exogpu_reached(struct exogpu_stream *stream, uint64_t *point, struct error *error)
{
	enum status status = stream_usable(stream, error);
	if (!status && !point)
		status = error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the point");
	if (status)
		return status;
	struct exogpu_device *device = stream->device;
	status = device_told(device, device->backend->reached(stream->handle, point, error), error);
	if (!status && *point > stream->reached)
		stream->reached = *point;
	return status;
}

enum status exogpu_wait(struct exogpu_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error)
{
	enum status status = stream_usable(stream, error);
	if (!status)
		status = point_check(stream, point, error);
	if (!status && timeout_ns < 0)
		status = error_set(error, STATUS_INVALID_PARAMS, "a negative time limit");
	if (status || point <= stream->reached)
		return status;
	struct exogpu_device *device = stream->device;
	int64_t limit_ns = timeout_ns < longest_ns ? timeout_ns : longest_ns;
	status = device_told(device, device->backend->wait(stream->handle, point, limit_ns, error), error);
	if (!status)
		stream->reached = point;
	return status;
}

enum status exogpu_follow(struct exogpu_stream *stream, struct exogpu_stream *other, uint64_t point,
			  struct error *error)
{
	enum status status = stream_usable(stream, error);
	if (!status)
		status = stream_usable(other, error);
	if (!status && stream->device != other->device)
		status = error_set(error, STATUS_INVALID_PARAMS, "the streams are of two devices");
	if (!status)
		status = point_check(other, point, error);
	if (status || stream == other || point <= other->reached)
		return status;
	struct exogpu_device *device = stream->device;
	return device_told(device, device->backend->follow(stream->handle, other->handle, point, error), error);
}

static bool remembered(const struct exogpu_stream *stream, uint64_t point)
{
	for (unsigned i = 0; i < EXOGPU_POINTS; i++)
		if (point && stream->points[i] == point)
			return true;
	return false;
}

enum status exogpu_elapsed(struct exogpu_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error)
{
	uint64_t reached = 0;
	enum status status = exogpu_reached(stream, &reached, error);
	if (!status && !ns)
		status = error_set(error, STATUS_INVALID_PARAMS, "nowhere to put the time");
	if (!status && (from > to || !remembered(stream, from) || !remembered(stream, to)))
		status = error_set(error, STATUS_INVALID_PARAMS,
				   "from %llu to %llu: not two of the last %d points, in order",
				   (unsigned long long)from, (unsigned long long)to, EXOGPU_POINTS);
	if (!status && to > stream->reached)
		status = error_set(error, STATUS_CONFLICT, "point %llu is not reached yet", (unsigned long long)to);
	if (status)
		return status;
	struct exogpu_device *device = stream->device;
	return device_told(device, device->backend->elapsed(stream->handle, from, to, ns, error), error);
}

// ---- settling ----

enum status stream_settle(struct exogpu_stream *stream, int64_t timeout_ns, struct error *error)
{
	uint64_t point = stream->marked;
	enum status status = stream->dirty ? exogpu_mark(stream, &point, error) : STATUS_OK;
	return status ? status : exogpu_wait(stream, point, timeout_ns, error);
}

static enum status settle_streams(struct exogpu_device *device, uint64_t used_by, int64_t timeout_ns,
				  struct error *error)
{
	int64_t now_ns = clock_steady_ns(), end_ns = now_ns + (timeout_ns < longest_ns ? timeout_ns : longest_ns);
	enum status status = STATUS_OK;
	device->unsettled = NULL;
	for (unsigned i = 0; !status && i < LIMIT_STREAMS_OF_DEVICE; i++) {
		if (!device->streams[i] || !(used_by & UINT64_C(1) << i))
			continue;
		now_ns = clock_steady_ns();
		status = stream_settle(device->streams[i], now_ns < end_ns ? end_ns - now_ns : 0, error);
		if (status && device->streams[i]->dirty) // the marked work is not lost: it is waited for again
			device->unsettled = device->streams[i];
	}
	return status;
}

enum status device_wait(struct exogpu_device *device, uint64_t used_by, bool peers, int64_t timeout_ns,
			struct error *error)
{
	enum status status = settle_streams(device, used_by, timeout_ns, error);
	for (unsigned i = 0; !status && peers && i < LIMIT_PEERS_OF_DEVICE; i++)
		if (device->peers[i] && !device->peers[i]->lost) {
			status = settle_streams(device->peers[i], UINT64_MAX, timeout_ns, error);
			device->unsettled = device->peers[i]->unsettled;
		}
	return status;
}

void device_settle(struct exogpu_device *device, uint64_t used_by, bool peers)
{
	struct error error = {0};
	if (device->lost || !device_wait(device, used_by, peers, device->settle_ns, &error))
		return;
	struct exogpu_stream *failed = device->unsettled;
	// A driver that was short of something may have told of earlier work: it gets a second chance, no third.
	if (error.status == STATUS_TIMEOUT || device->lost ||
	    device_wait(device, used_by, peers, device->settle_ns, NULL)) {
		device_lose(device, error.message);
		return;
	}
	if (failed) { // its work may be lost, and no call has returned that yet: the next mark does
		failed->dropped = error.status;
		failed->dirty = true;
	}
}
