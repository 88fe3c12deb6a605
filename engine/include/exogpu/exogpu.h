/* libexogpu: memory and compute of a device, with the same calls for a CPU, a Vulkan GPU and an NVIDIA GPU.
 *
 * Open a device, make buffers and streams, enqueue copies, fills and kernels, mark a point behind them, wait for it.
 * Every argument is checked here, once, and then handed to the back end: a wrong one gives an error with a message and,
 * where there is something to do about it, a hint, and changes nothing. What is open is accounted for: a device that is
 *closed with something left frees it and says how much it was.
 *
 *	struct exogpu_device *device;
 *	struct exogpu_buffer *buffer;
 *	exogpu_device_open(&device, &(struct exogpu_open){.backend = "cuda", .hardware_key = key}, &error);
 *	exogpu_buffer_create(device, &buffer, bytes, EXOGPU_MEMORY_DEVICE, &error);
 *	exogpu_write(buffer, 0, data, bytes, &error);
 *
 * Errors that every call may return beside its own: STATUS_INVALID_PARAMS (a NULL, a range outside a buffer, things of
 * two devices), STATUS_DEVICE_LOST (now or earlier: close the device and open it again, in a new process if the driver
 * asks for that), STATUS_OUT_OF_MEMORY. Sizes and offsets are bytes, times nanoseconds.
 * Destroying something waits for the work that may use it; work that is not done within 10 s counts as a lost device.
 * Thread: a device and all that is its own belong to one thread at a time; so do devices that copy to each other. */
#pragma once
#include "common/base/status.h"

#include <exogpu/types.h>

struct exogpu_device;
struct exogpu_buffer;
struct exogpu_stream;
struct exogpu_module;

// ---- devices ----

struct exogpu_found_device {
	const char *backend, *hardware_key; // what exogpu_device_open takes
	const char *name, *driver_version;
	uint64_t memory_bytes;
	bool software;      // it is this machine's processor behind a graphics API
	const char *reason; // why it cannot be used; NULL if it can
};
// Call `each` for every device of every back end that is compiled in, the preferred API of a device first; pointers are
// valid during the call. A GPU that two APIs see is reported twice, with the same hardware_key.
EXOGPU_PUBLIC enum status exogpu_find_devices(void (*each)(void *context, const struct exogpu_found_device *device),
					      void *context, struct error *error);
// Processors of a GPU or cores of a CPU, as its driver counts them; -1: it does not tell. Only for the pointer that
// `each` is called with, and during that call.
EXOGPU_PUBLIC int64_t exogpu_found_compute_units(const struct exogpu_found_device *device);

struct exogpu_open {
	const char *backend; // "cuda", "vulkan", "cpu"
	const char *hardware_key;
	uint64_t memory_limit_bytes; // of device and mapped memory together; 0: as much as the device has
	const char *cache_directory; // where compiled kernels are kept; NULL: nowhere
	bool cache_writable;
	bool debug; // the API's own checks, where they are installed
};
// Errors: STATUS_NOT_FOUND (no such back end or device), STATUS_UNAVAILABLE (the driver refused).
EXOGPU_PUBLIC enum status exogpu_device_open(struct exogpu_device **out, const struct exogpu_open *params,
					     struct error *error);

struct exogpu_usage {
	uint64_t device_bytes, host_bytes; // of buffers that are open; device_bytes counts mapped memory, too
	unsigned buffers, streams, modules;
};
// *left (may be NULL): the objects that had not been destroyed. Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_device_close(struct exogpu_device **device, struct exogpu_usage *left);
EXOGPU_PUBLIC const struct exogpu_device_limits *exogpu_device_limits(const struct exogpu_device *device);
EXOGPU_PUBLIC void exogpu_device_usage(const struct exogpu_device *device, struct exogpu_usage *usage);
// Memory of the whole device, as its driver reports it now.
EXOGPU_PUBLIC enum status exogpu_device_memory(struct exogpu_device *device, uint64_t *total_bytes,
					       uint64_t *free_bytes, struct error *error);
// Whether a call has said STATUS_DEVICE_LOST.
EXOGPU_PUBLIC bool exogpu_device_lost(const struct exogpu_device *device);

// ---- memory ----

// bytes > 0. Contents are undefined unless EXOGPU_CAN_ZEROED. Errors: STATUS_OUT_OF_MEMORY (the device has no more),
// STATUS_LIMIT_EXCEEDED (the device's largest buffer, or memory_limit_bytes), with the figures.
EXOGPU_PUBLIC enum status exogpu_buffer_create(struct exogpu_device *device, struct exogpu_buffer **out, uint64_t bytes,
					       enum exogpu_memory memory, struct error *error);
// Memory of this process that is there already, as host memory: the device copies from it and to it where it is, at
// full speed. The caller keeps it, mapped and whole, until the buffer is destroyed or, once the device is lost, until
// that is closed. Address and bytes are multiples of EXOGPU_IMPORT_BYTES. Errors: STATUS_UNAVAILABLE (no
// EXOGPU_CAN_IMPORT; the driver does not take this memory, or has it already).
EXOGPU_PUBLIC enum status exogpu_buffer_import(struct exogpu_device *device, struct exogpu_buffer **out, void *memory,
					       uint64_t bytes, struct error *error);
// Waits for the work that may use it. Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_buffer_destroy(struct exogpu_buffer **buffer);
EXOGPU_PUBLIC uint64_t exogpu_buffer_bytes(const struct exogpu_buffer *buffer);
// Host and mapped memory; NULL for device memory.
EXOGPU_PUBLIC void *exogpu_buffer_pointer(struct exogpu_buffer *buffer);

// Write to and read from a buffer of any memory, behind all work that was enqueued before and uses it, in any stream,
// and return when it is done: in place where the host sees the memory, else in pieces through a ring of host memory
// that the device keeps for it, in a stream of the device's own. Other work goes on meanwhile.
EXOGPU_PUBLIC enum status exogpu_write(struct exogpu_buffer *to, uint64_t offset, const void *from, uint64_t bytes,
				       struct error *error);
EXOGPU_PUBLIC enum status exogpu_read(void *to, struct exogpu_buffer *from, uint64_t offset, uint64_t bytes,
				      struct error *error);

// ---- streams: work, in order ----

// Errors: STATUS_LIMIT_EXCEEDED: a device has at most 64 streams, and one of them is reserved for the library.
EXOGPU_PUBLIC enum status exogpu_stream_create(struct exogpu_device *device, struct exogpu_stream **out,
					       struct error *error);
// Waits for the work in the stream. Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_stream_destroy(struct exogpu_stream **stream);

struct exogpu_copy {
	struct exogpu_buffer *to, *from; // of any memory; of two devices of one back end with EXOGPU_CAN_PEER
	uint64_t to_offset, from_offset, bytes;
	bool *direct; // may be NULL; between devices: whether it goes over a peer link
};
// Enqueue. The stream is of the device that `from` is on. bytes = 0 does nothing. Errors: STATUS_INVALID_PARAMS (the
// ranges overlap in one buffer), STATUS_UNAVAILABLE (two devices without EXOGPU_CAN_PEER).
EXOGPU_PUBLIC enum status exogpu_copy(struct exogpu_stream *stream, const struct exogpu_copy *copy,
				      struct error *error);
EXOGPU_PUBLIC enum status exogpu_fill(struct exogpu_stream *stream, struct exogpu_buffer *buffer, uint64_t offset,
				      uint64_t bytes, uint8_t value, struct error *error);

// Hand the enqueued work to the device, and give the place after it a number; the numbers of a stream only grow, from
// 1. At most EXOGPU_POINTS are outstanding: one more first waits for the oldest. Work that the driver did not accept is
// lost: the call that met the error returns it, and so does the next mark, once, unless it was that call.
EXOGPU_PUBLIC enum status exogpu_mark(struct exogpu_stream *stream, uint64_t *point, struct error *error);
// The newest point that is reached, 0 before the first; does not wait.
EXOGPU_PUBLIC enum status exogpu_reached(struct exogpu_stream *stream, uint64_t *point, struct error *error);
// Errors: STATUS_TIMEOUT: not reached in time; it may be waited for again.
EXOGPU_PUBLIC enum status exogpu_wait(struct exogpu_stream *stream, uint64_t point, int64_t timeout_ns,
				      struct error *error);
// Work that is enqueued in `stream` from now on begins after `point` of `other` (of the same device) is reached.
EXOGPU_PUBLIC enum status exogpu_follow(struct exogpu_stream *stream, struct exogpu_stream *other, uint64_t point,
					struct error *error);
// Time that the device spent between two points that are reached and among the last EXOGPU_POINTS of the stream.
// Errors: STATUS_CONFLICT: `to` is not reached yet.
EXOGPU_PUBLIC enum status exogpu_elapsed(struct exogpu_stream *stream, uint64_t from, uint64_t to, int64_t *ns,
					 struct error *error);

// ---- kernels ----

// `bytes` (length) is not needed after the call; NULL, 0 for EXOGPU_FORMAT_BUILTIN. Errors: STATUS_INVALID_PARAMS (not
// a module, with the compiler's words), STATUS_UNAVAILABLE (a format that this device does not take).
EXOGPU_PUBLIC enum status exogpu_module_load(struct exogpu_device *device, struct exogpu_module **out,
					     enum exogpu_format format, const void *bytes, size_t length,
					     struct error *error);
// Waits for the work that may use it. Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_module_unload(struct exogpu_module **module);
// The kernels of a module, those built in included; NULL past the last. Valid as long as the module.
EXOGPU_PUBLIC const struct exogpu_kernel *exogpu_module_kernel(const struct exogpu_module *module, unsigned index);

struct exogpu_argument {
	enum exogpu_argument_kind kind; // BUFFER, F32, I32, U32 or U64
	union {
		struct exogpu_buffer *buffer;
		float f32;
		int32_t i32;
		uint32_t u32;
		uint64_t u64;
	};
};
struct exogpu_launch {
	struct exogpu_module *module;
	const char *kernel;
	uint32_t grid[3], block[3]; // blocks, and threads of a block; 0 counts as 1. Built-in kernels choose their own
	const struct exogpu_argument *arguments; // (argument_count)
	unsigned argument_count;
};
// Enqueue. Arguments must fit the kernel's signature; a count (u32 or u64) of a built-in kernel must fit its buffers. A
// user's kernel may name a buffer (BUFFER) where it takes an address. Errors: STATUS_NOT_FOUND (no such kernel),
// STATUS_INVALID_PARAMS (naming the argument), STATUS_LIMIT_EXCEEDED (grid or block).
EXOGPU_PUBLIC enum status exogpu_launch(struct exogpu_stream *stream, const struct exogpu_launch *launch,
					struct error *error);
