/* Streams and their points.
 *
 * A point is an event with a time, in a ring of EXOGPU_POINTS: the event of point p serves p + EXOGPU_POINTS when p is
 * reached. Events of a stream are reached in order.
 *
 * Waiting asks the driver over and over, since its own waits know no limit of time: without a pause for the first
 * 50 us, which is what a small launch or copy takes, and then with pauses of a sixteenth of the time waited so far,
 * between 20 us and 1 ms. So a processor is kept busy for short waits only, and a long one ends at most 6 % late. */
#include "common/base/clock.h"
#include "engine/cuda/device.h"

#include <stdlib.h>
#include <time.h>

enum { WAIT_BUSY_NS = 50 * 1000, WAIT_PAUSE_LEAST_NS = 20 * 1000, WAIT_PAUSE_MOST_NS = 1000 * 1000, WAIT_PART = 16 };

enum status cuda_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error)
{
	struct backend_stream *stream = calloc(1, sizeof(*stream));
	*out = NULL;
	if (!stream)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stream");
	CUresult result = cuda_enter(device);
	if (!result)
		result = device->cuda->cuStreamCreate(&stream->stream, CUDA_STREAM_NON_BLOCKING);
	if (result) {
		free(stream);
		return cuda_failed(device->cuda, error, "cuStreamCreate", result);
	}
	stream->device = device;
	stream->next = device->streams;
	device->streams = stream;
	*out = stream;
	return STATUS_OK;
}

void cuda_stream_destroy(struct backend_device *device, struct backend_stream **out)
{
	struct backend_stream *stream = *out;
	if (!stream)
		return;
	for (struct backend_stream **link = &device->streams; *link; link = &(*link)->next)
		if (*link == stream) {
			*link = stream->next;
			break;
		}
	if (!device->abandoned) {
		cuda_enter(device);
		for (unsigned i = 0; i < EXOGPU_POINTS; i++)
			if (stream->events[i])
				device->cuda->cuEventDestroy_v2(stream->events[i]);
		if (stream->partials)
			device->cuda->cuMemFree_v2(stream->partials);
		device->cuda->cuStreamDestroy_v2(stream->stream);
	}
	free(stream);
	*out = NULL;
}

// CUDA_SUCCESS if it is reached, CUDA_ERROR_NOT_READY if it is not.
static CUresult ask(struct backend_stream *stream, uint64_t point)
{
	if (point <= stream->reached)
		return CUDA_SUCCESS;
	CUresult result = stream->device->cuda->cuEventQuery(stream->events[point % EXOGPU_POINTS]);
	if (!result)
		stream->reached = point;
	return result;
}

static void pause_after(int64_t waited_ns, int64_t left_ns)
{
	int64_t ns = waited_ns / WAIT_PART;
	ns = ns < WAIT_PAUSE_LEAST_NS ? WAIT_PAUSE_LEAST_NS : ns > WAIT_PAUSE_MOST_NS ? WAIT_PAUSE_MOST_NS : ns;
	ns = ns < left_ns ? ns : left_ns;
	nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

enum status cuda_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error)
{
	struct backend_device *device = stream->device;
	int64_t began_ns = clock_steady_ns();
	CUresult result = cuda_enter(device);
	if (result)
		return cuda_failed(device->cuda, error, "cuCtxSetCurrent", result);
	while ((result = ask(stream, point)) == CUDA_ERROR_NOT_READY) {
		int64_t waited_ns = clock_steady_ns() - began_ns;
		if (waited_ns >= timeout_ns)
			return error_set(error, STATUS_TIMEOUT, "not done within %lld ms",
					 (long long)(timeout_ns / 1000000));
		if (waited_ns > WAIT_BUSY_NS)
			pause_after(waited_ns, timeout_ns - waited_ns);
	}
	return cuda_check(device, error, "waiting for a GPU", result);
}

enum status cuda_mark(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	struct backend_device *device = stream->device;
	uint64_t next = stream->marked + 1;
	CUevent *event = &stream->events[next % EXOGPU_POINTS];
	enum status status = STATUS_OK;
	if (next > EXOGPU_POINTS)
		status = cuda_wait(stream, next - EXOGPU_POINTS, INT64_MAX, error);
	if (status)
		return status;
	CUevent made = NULL; // what a call that fails leaves is nothing to keep
	CUresult result = cuda_enter(device);
	if (!result && !*event)
		result = device->cuda->cuEventCreate(&made, 0);
	if (!result && made)
		*event = made;
	if (!result)
		result = device->cuda->cuEventRecord(*event, stream->stream);
	if (result)
		return cuda_failed(device->cuda, error, "cuEventRecord", result);
	*point = stream->marked = next;
	return STATUS_OK;
}

enum status cuda_reached(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	CUresult result = cuda_enter(stream->device);
	while (!result && stream->reached < stream->marked)
		result = ask(stream, stream->reached + 1);
	*point = stream->reached;
	return result == CUDA_ERROR_NOT_READY ? STATUS_OK : cuda_check(stream->device, error, "asking a GPU", result);
}

enum status cuda_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
			struct error *error)
{
	if (point <= other->reached)
		return STATUS_OK;
	CUresult result = cuda_enter(stream->device);
	if (!result)
		result = stream->device->cuda->cuStreamWaitEvent(stream->stream, other->events[point % EXOGPU_POINTS],
								 0);
	return cuda_check(stream->device, error, "cuStreamWaitEvent", result);
}

enum status cuda_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error)
{
	float ms = 0;
	CUresult result = cuda_enter(stream->device);
	if (!result)
		result = stream->device->cuda->cuEventElapsedTime(&ms, stream->events[from % EXOGPU_POINTS],
								  stream->events[to % EXOGPU_POINTS]);
	*ns = (int64_t)((double)ms * 1e6);
	return cuda_check(stream->device, error, "cuEventElapsedTime", result);
}
