/* The inside of the CPU back end: types and functions that backend.c (devices), memory.c (buffers) and stream.c (work
 * and points) share.
 *
 * One lock guards the queues and points of all streams of a device: they change only a few times for each piece of
 * work, and all waiting threads use one condition variable. Buffers belong to the device's thread. */
#pragma once
#include "common/base/limits.h"
#include "engine/backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/level.h"
#include "engine/pool.h"

#include <pthread.h>

// The built-in kernels, which are the program's own: there is nothing to load.
struct backend_module {
	enum exogpu_format format;
};

struct backend_device {
	struct pool *pool;
	const struct cpu_level *level;
	uint64_t memory_bytes, stream_bytes;
	unsigned threads; // that may run at once
	struct backend_buffer *buffers;
	struct backend_module builtin;
	pthread_mutex_t lock;
	pthread_cond_t changed; // a point was reached, or a full queue has room
	// guarded by the lock:
	struct backend_stream *streams;
	uint64_t last_stream; // the newest number that was given out
	bool closing;
};

struct backend_buffer {
	struct backend_buffer *next, **link; // of device->buffers
	uint8_t *data;                       // (bytes)
	uint64_t bytes;
	bool resident; // all of it has been touched
	bool imported; // it is the caller's
};

enum status cpu_memory(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes, struct error *error);
enum status cpu_buffer_create(struct backend_device *device, struct backend_buffer **out,
			      const struct backend_buffer_params *params, struct error *error);
void cpu_buffer_destroy(struct backend_device *device, struct backend_buffer **buffer);
void *cpu_buffer_pointer(struct backend_buffer *buffer);

enum status cpu_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error);
// With pending work only if the device is closing: work that has not begun is dropped.
void cpu_stream_destroy(struct backend_device *device, struct backend_stream **stream);
enum status cpu_copy(struct backend_stream *stream, const struct backend_copy *copy, struct error *error);
enum status cpu_fill(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset, uint64_t bytes,
		     uint8_t value, struct error *error);
enum status cpu_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error);
enum status cpu_mark(struct backend_stream *stream, uint64_t *point, struct error *error);
enum status cpu_reached(struct backend_stream *stream, uint64_t *point, struct error *error);
enum status cpu_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error);
enum status cpu_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
		       struct error *error);
enum status cpu_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error);
