/* The inside of libexogpu: what exogpu.c (devices), buffer.c (memory), stream.c (work and points), transfer.c (write
 * and read) and module.c (kernels) share. Users of the library include exogpu/exogpu.h only; tests come in here to open
 * a device over a back end of their own.
 *
 * How objects in use are kept alive: enqueued work sets the bit of its stream in each object that it uses (one bit a
 * stream, hence the bound on streams). Before an object is destroyed, the streams of its bits are settled: marked if
 * work was enqueued since the last mark, and waited for. Bits are never cleared, because settling a stream without
 * pending work costs nothing. A copy to another device runs in a stream of the source device: the two devices then list
 * each other as peers, and the target buffer has `peer_target` set. Thread: that of the device. */
#pragma once
#include "common/base/limits.h"
#include "engine/backend.h"
#include "engine/include/exogpu/exogpu.h"

// The ring of write and read, made when first needed. Its shape was measured on an H200 with calls of 4 KiB to 256 MiB:
// with 8 x 512 KiB they reach 14.4 GB/s where a memcpy does 17, with 4 x 256 KiB 11.4, with 4 x 1 MiB 13.4, and larger
// pieces make calls of a few MiB slower, since the first piece waits for no other.
enum { TRANSFER_PIECES = 8, TRANSFER_PIECE_BYTES = 512 * 1024 };

struct transfer {
	struct exogpu_stream *stream;
	struct exogpu_buffer *ring; // (TRANSFER_PIECES, TRANSFER_PIECE_BYTES)
};

struct exogpu_device {
	const struct backend *backend;
	struct backend_device *handle;
	struct exogpu_device_limits limits;
	uint64_t memory_limit_bytes; // 0: none
	struct exogpu_usage usage;
	struct exogpu_buffer *buffers;
	struct exogpu_module *modules;
	struct exogpu_stream *streams[LIMIT_STREAMS_OF_DEVICE];
	struct exogpu_device *peers[LIMIT_PEERS_OF_DEVICE]; // they have copied to this one, or it to them
	struct transfer transfer;
	int64_t settle_ns;               // how long destroying something waits for its work
	struct exogpu_stream *unsettled; // the last that could not be marked to be waited for
	bool lost;
};

struct exogpu_buffer {
	struct exogpu_device *device;
	struct exogpu_buffer *next, **link; // of device->buffers
	struct backend_buffer *handle;
	uint64_t bytes;
	uint64_t used_by; // bit i: by work of device->streams[i]
	enum exogpu_memory memory;
	bool peer_target; // a stream of a peer has copied to it
	bool own;         // the device's, not the user's: not in its usage
};

struct exogpu_stream {
	struct exogpu_device *device;
	struct backend_stream *handle;
	unsigned index;                 // in device->streams
	uint64_t marked, reached;       // the newest points, as far as known here
	uint64_t points[EXOGPU_POINTS]; // the last that were marked
	uint64_t mark_count;
	bool dirty;          // work came in since the last mark
	bool own;            // as of a buffer
	enum status dropped; // work may have been lost when an object that it used was destroyed: the next mark returns
			     // this
};

struct exogpu_module {
	struct exogpu_device *device;
	struct exogpu_module *next, **link; // of device->modules
	struct backend_module *handle;
	uint64_t used_by;
	enum exogpu_format format;
	struct exogpu_kernel builtin[BUILTIN_USERS]; // what exogpu_module_kernel tells of the built-in module
};

// exogpu_device_open over this back end, whichever params->backend names.
enum status device_open_over(struct exogpu_device **out, const struct backend *backend,
			     const struct exogpu_open *params, struct error *error);

// Errors: STATUS_INVALID_PARAMS (NULL), STATUS_DEVICE_LOST.
enum status device_usable(const struct exogpu_device *device, struct error *error);
// Handle the status of a back end's call: remember a lost device, and give an error without text a text.
enum status device_told(struct exogpu_device *device, enum status status, struct error *error);
// `what` was not reached in time, or asks too much: nothing may reach the driver any more.
void device_lose(struct exogpu_device *device, const char *what);

// Mark if anything is unmarked, and wait for the newest point. Errors: STATUS_TIMEOUT, STATUS_DEVICE_LOST, the back
// end's.
enum status stream_settle(struct exogpu_stream *stream, int64_t timeout_ns, struct error *error);
// Wait for all work of the streams in `used_by`; of peers, too, if `peers`. Errors: as stream_settle.
enum status device_wait(struct exogpu_device *device, uint64_t used_by, bool peers, int64_t timeout_ns,
			struct error *error);
// The same before an object is destroyed. Work that does not end in settle_ns, or cannot be waited for, loses the
// device.
void device_settle(struct exogpu_device *device, uint64_t used_by, bool peers);
// Note that `stream` has work that is not marked yet, and return the stream's bit for used_by.
uint64_t stream_use(struct exogpu_stream *stream);

enum status buffer_create_as(struct exogpu_device *device, struct exogpu_buffer **out,
			     const struct backend_buffer_params *params, bool own, struct error *error);
// STATUS_INVALID_PARAMS unless the buffer is one and [offset, offset + bytes) lies in it. `what` names the range.
enum status buffer_range(const struct exogpu_buffer *buffer, uint64_t offset, uint64_t bytes, const char *what,
			 struct error *error);
enum status stream_create_as(struct exogpu_device *device, struct exogpu_stream **out, bool own, struct error *error);
