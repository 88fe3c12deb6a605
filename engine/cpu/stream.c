/* The CPU back end: streams. See device.h for the lock that guards them.
 *
 * Each stream has a thread that takes work from a bounded queue, in order, and does it with the device's pool. Marking
 * a point puts a mark into the queue; when its turn comes, all before it is done, and the time is noted. To follow
 * another stream is to wait in the queue for a point of it: that one was marked before, so its turn comes, and no two
 * streams can wait for each other. Streams are named by number there: one that is gone had nothing pending. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/list.h"
#include "engine/cpu/device.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum work_kind { WORK_UNKNOWN, WORK_COPY, WORK_FILL, WORK_KERNEL, WORK_MARK, WORK_FOLLOW };

struct work {
	enum work_kind kind;
	union {
		struct {
			uint8_t *to;
			const uint8_t *from; // NULL for a fill
			uint64_t bytes;
			uint8_t value;
		} move;
		struct kernel_work kernel;
		uint64_t point;
		struct {
			uint64_t stream, point;
		} follow;
	};
};

struct backend_stream {
	struct backend_device *device;
	struct kernel_scratch scratch; // the stream's thread uses it; created by the caller
	pthread_t thread;
	bool running; // the thread was started
	// guarded by device->lock:
	uint64_t number;
	struct backend_stream *next, **link; // of device->streams
	pthread_cond_t work;                 // work came, or the end
	bool ending;
	struct work queue[LIMIT_CPU_QUEUE];
	unsigned first, count;
	uint64_t marked, reached;
	int64_t times_ns[EXOGPU_POINTS]; // when point p was reached: [p % EXOGPU_POINTS]
};

static bool is_reached(const struct backend_device *device, uint64_t number, uint64_t point)
{
	for (const struct backend_stream *stream = device->streams; stream; stream = stream->next)
		if (stream->number == number)
			return point <= stream->reached;
	return true;
}

// Begins and ends with the lock held, and is without it while there is something to compute.
static void perform(struct backend_stream *stream, struct work *work)
{
	struct backend_device *device = stream->device;
	struct kernel_place place = {device->pool, device->level, &stream->scratch};
	switch (work->kind) {
	case WORK_MARK:
		stream->times_ns[work->point % EXOGPU_POINTS] = clock_steady_ns();
		stream->reached = work->point;
		pthread_cond_broadcast(&device->changed);
		return;
	case WORK_FOLLOW:
		while (!device->closing && !is_reached(device, work->follow.stream, work->follow.point))
			pthread_cond_wait(&device->changed, &device->lock);
		return;
	case WORK_UNKNOWN:
	case WORK_COPY:
	case WORK_FILL:
	case WORK_KERNEL:
		break;
	}
	pthread_mutex_unlock(&device->lock);
	if (work->kind == WORK_COPY)
		kernel_copy(&place, work->move.to, work->move.from, work->move.bytes);
	else if (work->kind == WORK_FILL)
		kernel_fill(&place, work->move.to, work->move.value, work->move.bytes);
	else
		kernel_run(&place, &work->kernel);
	pthread_mutex_lock(&device->lock);
}

static void *stream_thread(void *arg)
{
	struct backend_stream *stream = arg;
	struct backend_device *device = stream->device;
	pthread_mutex_lock(&device->lock);
	while (!device->closing) {
		if (!stream->count) {
			if (stream->ending)
				break;
			pthread_cond_wait(&stream->work, &device->lock);
			continue;
		}
		struct work work = stream->queue[stream->first];
		if (stream->count == LIMIT_CPU_QUEUE)
			pthread_cond_broadcast(&device->changed);
		stream->first = (stream->first + 1) % LIMIT_CPU_QUEUE;
		stream->count--;
		perform(stream, &work);
	}
	pthread_mutex_unlock(&device->lock);
	return NULL;
}

enum status cpu_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error)
{
	struct backend_stream *stream = calloc(1, sizeof(*stream));
	sigset_t all, before;
	if (!stream)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a stream");
	stream->device = device;
	pthread_cond_init(&stream->work, NULL);
	pthread_mutex_lock(&device->lock);
	stream->number = ++device->last_stream;
	LIST_PUSH(&device->streams, stream, link);
	pthread_mutex_unlock(&device->lock);
	sigfillset(&all); // signals are the program's
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int fault = pthread_create(&stream->thread, NULL, stream_thread, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	stream->running = !fault;
	if (fault) {
		error_errno(error, STATUS_LIMIT_EXCEEDED, fault, "starting the thread of a stream");
		cpu_stream_destroy(device, &stream);
		return STATUS_LIMIT_EXCEEDED;
	}
	*out = stream;
	return STATUS_OK;
}

void cpu_stream_destroy(struct backend_device *device, struct backend_stream **stream_pointer)
{
	struct backend_stream *stream = *stream_pointer;
	if (!stream)
		return;
	pthread_mutex_lock(&device->lock);
	stream->ending = true;
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&device->lock);
	if (stream->running)
		pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&device->lock);
	LIST_REMOVE(stream, link);
	pthread_cond_broadcast(&device->changed); // for who follows it
	pthread_mutex_unlock(&device->lock);
	kernel_scratch_finish(&stream->scratch);
	pthread_cond_destroy(&stream->work);
	free(stream);
	*stream_pointer = NULL;
}

// ---- enqueue ----

// Add work to the queue. The lock is held; waits while the queue is full.
static void put(struct backend_stream *stream, const struct work *work)
{
	while (stream->count == LIMIT_CPU_QUEUE)
		pthread_cond_wait(&stream->device->changed, &stream->device->lock);
	stream->queue[(stream->first + stream->count++) % LIMIT_CPU_QUEUE] = *work;
	pthread_cond_signal(&stream->work);
}

static void enqueue(struct backend_stream *stream, const struct work *work)
{
	pthread_mutex_lock(&stream->device->lock);
	put(stream, work);
	pthread_mutex_unlock(&stream->device->lock);
}

enum status cpu_copy(struct backend_stream *stream, const struct backend_copy *copy, struct error *error)
{
	(void)error;
	enqueue(stream, &(struct work){.kind = WORK_COPY,
				       .move = {.to = copy->to->data + copy->to_offset,
						.from = copy->from->data + copy->from_offset,
						.bytes = copy->bytes}});
	return STATUS_OK;
}

enum status cpu_fill(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset, uint64_t bytes,
		     uint8_t value, struct error *error)
{
	(void)error;
	enqueue(stream, &(struct work){.kind = WORK_FILL,
				       .move = {.to = buffer->data + offset, .bytes = bytes, .value = value}});
	return STATUS_OK;
}

enum status cpu_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error)
{
	struct work work = {.kind = WORK_KERNEL, .kernel = {.kernel = (enum builtin_kernel)(launch->kernel + 1)}};
	if (launch->kernel + 1 >= BUILTIN_COUNT || launch->argument_count > BUILTIN_ARGUMENTS)
		return error_set(error, STATUS_INTERNAL, "no built-in kernel %u of %u arguments", launch->kernel,
				 launch->argument_count);
	for (unsigned i = 0; i < launch->argument_count; i++) {
		if (launch->arguments[i].kind == EXOGPU_ARGUMENT_BUFFER)
			work.kernel.buffers[i] = launch->arguments[i].buffer->data;
		else
			work.kernel.values[i] = launch->arguments[i].bits;
	}
	enum status status = kernel_scratch_need(&stream->scratch, work.kernel.kernel, error);
	if (!status)
		enqueue(stream, &work);
	return status;
}

// ---- points ----

enum status cpu_mark(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	struct backend_device *device = stream->device;
	(void)error;
	pthread_mutex_lock(&device->lock);
	while (stream->marked - stream->reached >= EXOGPU_POINTS)
		pthread_cond_wait(&device->changed, &device->lock);
	*point = ++stream->marked;
	put(stream, &(struct work){.kind = WORK_MARK, .point = *point});
	pthread_mutex_unlock(&device->lock);
	return STATUS_OK;
}

enum status cpu_reached(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	(void)error;
	pthread_mutex_lock(&stream->device->lock);
	*point = stream->reached;
	pthread_mutex_unlock(&stream->device->lock);
	return STATUS_OK;
}

enum status cpu_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error)
{
	const int64_t second_ns = 1000000000;
	struct backend_device *device = stream->device;
	int64_t end_ns = clock_steady_ns() + timeout_ns;
	struct timespec end = {.tv_sec = (time_t)(end_ns / second_ns), .tv_nsec = (long)(end_ns % second_ns)};
	int late = 0;
	pthread_mutex_lock(&device->lock);
	while (stream->reached < point && !late)
		late = pthread_cond_timedwait(&device->changed, &device->lock, &end);
	bool done = stream->reached >= point;
	pthread_mutex_unlock(&device->lock);
	return done ? STATUS_OK
		    : error_set(error, STATUS_TIMEOUT, "point %llu is not reached after %.3f s",
				(unsigned long long)point, (double)timeout_ns * 1e-9);
}

enum status cpu_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point, struct error *error)
{
	(void)error;
	pthread_mutex_lock(&stream->device->lock);
	if (point > other->reached)
		put(stream, &(struct work){.kind = WORK_FOLLOW, .follow = {other->number, point}});
	pthread_mutex_unlock(&stream->device->lock);
	return STATUS_OK;
}

enum status cpu_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error)
{
	(void)error;
	pthread_mutex_lock(&stream->device->lock);
	*ns = stream->times_ns[to % EXOGPU_POINTS] - stream->times_ns[from % EXOGPU_POINTS];
	pthread_mutex_unlock(&stream->device->lock);
	return STATUS_OK;
}
