/* The interface that every back end fills, and the list of them.
 *
 * A back end is one folder (cpu, cuda, vulkan) with one `const struct backend` at the end of its backend.c. Which back
 * ends exist, and in which order they are preferred, stands in one array in backends.c. Only engine/exogpu.c (the
 * public wrapper, engine/include/exogpu/exogpu.h) calls the slots of an open device. It checks every argument once, so
 * here ranges are right, buffers and streams are of this device, memory kinds fit, and nothing is called on a device
 * that is lost. A back end checks only what the driver alone knows.
 *
 *   device    an open device; owns everything below; closing it frees what is left
 *   buffer    a run of memory: of the device, of the host (the device can copy from and to it), or both at once
 *   stream    a queue of work, done in order; different streams of a device run side by side where it can
 *   point     a place in a stream: `mark` returns its number, which only grows; it is reached when all work enqueued
 *             before it is done. Points are the events and fences of this interface: wait for one, ask whether it is
 *             reached, let another stream wait for it, or ask for the device's time between two
 *   module    kernels: those built in, or a user's own in a format that the device takes
 *
 * copy, fill and launch enqueue work and return. They report an error themselves, or reached and wait report it later.
 * After STATUS_DEVICE_LOST only close works on the device. The wrapper keeps memory that enqueued work uses valid until
 * a point behind that work is reached.
 *
 * Thread: an open device and everything that it owns belong to one thread at a time. Only worker processes (and
 * programs that link libexogpu) open devices: a driver that crashes or hangs takes a worker with it and nothing
 * else. */
#pragma once
#include "common/base/status.h"
#include "engine/builtin.h"
#include "engine/device/info.h"
#include "engine/include/exogpu/types.h"

#include <stddef.h>
#include <stdint.h>

struct backend_device; // each back end's own, and so are these
struct backend_buffer;
struct backend_stream;
struct backend_module;

struct backend_open {
	const char *hardware_key;
	// The folder that keeps compiled kernels between processes (NULL: none), and whether it may be written. A
	// kernel that one tenant's process wrote there would be run by another tenant.
	const char *cache_directory;
	bool cache_writable;
	bool debug; // the API's own checks (Vulkan's validation layers), where they are installed
};

struct backend_buffer_params {
	uint64_t bytes; // > 0
	enum exogpu_memory memory;
	// Existing memory, which stays the caller's (EXOGPU_MEMORY_HOST). NULL: new memory is made. Address and size
	// are multiples of EXOGPU_IMPORT_BYTES, and the device has EXOGPU_CAN_IMPORT.
	void *imported;
};

struct backend_copy {
	struct backend_buffer *to, *from;       // may be one buffer; the ranges do not overlap
	uint64_t to_offset, from_offset, bytes; // bytes > 0; any alignment
};

struct backend_module_params {
	enum exogpu_format format;
	const uint8_t *bytes; // (length); NULL for EXOGPU_FORMAT_BUILTIN
	size_t length;
};

// An argument of a launch, of the kind that the kernel's signature says. A DWORD that is the address of a buffer has
// the kind EXOGPU_ARGUMENT_BUFFER.
struct backend_argument {
	enum exogpu_argument_kind kind;
	struct backend_buffer *buffer; // EXOGPU_ARGUMENT_BUFFER
	uint64_t bits;                 // the value's bits, zero-extended: of an f32, those of the float
};

struct backend_launch {
	struct backend_module *module;
	unsigned kernel;            // index in the module; of the built-in module, an enum builtin_kernel - 1
	uint32_t grid[3], block[3]; // each > 0, within the device's limits; built-in kernels choose their own
	const struct backend_argument *arguments; // (argument_count)
	unsigned argument_count;
};

struct backend {
	enum backend_kind kind;

	// List the devices and libraries that are there now. Opens no device and computes nothing. Having no device is
	// not an error; the libraries say why there is none. Errors: STATUS_UNAVAILABLE (the driver failed, with its
	// words), STATUS_OUT_OF_MEMORY.
	enum status (*enumerate)(struct found *found, struct error *error);

	// Optional. Before the first open of a process that wants only this device, or these two (other: NULL, or the
	// second): the driver then starts no others, which on a machine of many takes a fraction of the time.
	void (*narrow)(const char *hardware_key, const char *other);

	// Errors: STATUS_NOT_FOUND (no device of this key now), STATUS_UNAVAILABLE (the driver refused; kernels not
	// built), STATUS_OUT_OF_MEMORY.
	enum status (*open)(struct backend_device **out, const struct backend_open *params, struct error *error);
	// Frees whatever is left of it, also of a lost device. Does not wait for a kernel that never ends.
	void (*close)(struct backend_device **device);
	// The limits and capabilities of the device. They do not change while it is open.
	void (*describe)(const struct backend_device *device, struct exogpu_device_limits *limits);
	// How much memory there is and how much of it is free now, as the driver says.
	enum status (*memory)(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes,
			      struct error *error);

	// Contents are undefined, unless EXOGPU_CAN_ZEROED says that they are zero.
	// Errors: STATUS_OUT_OF_MEMORY, STATUS_LIMIT_EXCEEDED, STATUS_UNAVAILABLE (the driver does not import this).
	enum status (*buffer_create)(struct backend_device *device, struct backend_buffer **out,
				     const struct backend_buffer_params *params, struct error *error);
	void (*buffer_destroy)(struct backend_device *device, struct backend_buffer **buffer); // no work uses it
	// The address at which the host sees a buffer of host or mapped memory, valid as long as the buffer. NULL for
	// device memory, except on devices with EXOGPU_CAN_SOFTWARE: their memory is the host's, so its address may be
	// returned, and the wrapper does not hand it out.
	void *(*buffer_pointer)(struct backend_buffer *buffer);

	// Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
	enum status (*stream_create)(struct backend_device *device, struct backend_stream **out, struct error *error);
	void (*stream_destroy)(struct backend_device *device, struct backend_stream **stream); // nothing pending in it

	// Enqueue. Errors of all three: STATUS_DEVICE_LOST, STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE.
	enum status (*copy)(struct backend_stream *stream, const struct backend_copy *copy, struct error *error);
	enum status (*fill)(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset,
			    uint64_t bytes, uint8_t value, struct error *error);
	enum status (*launch)(struct backend_stream *stream, const struct backend_launch *launch, struct error *error);

	// Optional, with EXOGPU_CAN_PEER: copy between two open devices of this back end; `stream` is of the device
	// that `copy->from` is on. *direct: whether it went over a peer link (else the driver staged it).
	enum status (*copy_peer)(struct backend_stream *stream, struct backend_device *to_device,
				 const struct backend_copy *copy, bool *direct, struct error *error);

	// Hand everything enqueued so far to the device and name the place. At most EXOGPU_POINTS of a stream are
	// outstanding: one more first waits for the oldest.
	enum status (*mark)(struct backend_stream *stream, uint64_t *point, struct error *error);
	// The newest point that is reached; 0 before the first. Does not wait.
	enum status (*reached)(struct backend_stream *stream, uint64_t *point, struct error *error);
	// Errors: STATUS_TIMEOUT (not reached within timeout_ns; it may be waited for again), STATUS_DEVICE_LOST.
	enum status (*wait)(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error);
	// Work that is enqueued in `stream` from now on begins after `point` of `other` is reached.
	enum status (*follow)(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
			      struct error *error);
	// Device time between two points, both reached and among the last EXOGPU_POINTS of the stream; by the device's
	// clock where it has one, else by the host's.
	enum status (*elapsed)(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns,
			       struct error *error);

	// Errors: STATUS_INVALID_PARAMS (not a module of this format, with the compiler's words), STATUS_UNAVAILABLE
	// (a format that this device does not take; kernels not built), STATUS_OUT_OF_MEMORY.
	enum status (*module_load)(struct backend_device *device, struct backend_module **out,
				   const struct backend_module_params *params, struct error *error);
	void (*module_unload)(struct backend_device *device, struct backend_module **module); // no work uses it
	// The kernels of a user's module; NULL past the last. (Those built in: engine/builtin.h.)
	const struct exogpu_kernel *(*module_kernel)(const struct backend_module *module, unsigned index);

	// Inference: layers of models on an open device (engine/stage.h). NULL: it computes none.
	const struct stage_slots *stage;
	bool compiles; // what its stages need takes long to compile, and is worth doing ahead
};

extern const struct backend backend_cpu, backend_cuda, backend_vulkan;

// The back ends that are compiled in, in the order in which they are preferred; *count is their number.
const struct backend *const *backend_list(size_t *count);
// NULL if it is not compiled in.
const struct backend *backend_find(enum backend_kind kind);
