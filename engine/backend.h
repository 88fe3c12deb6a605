/* The interface that every back end fills, and the list of them.
 *
 * A back end is one folder (cpu, cuda, vulkan) with one `const struct backend` at the end of its backend.c. Callers
 * reach a device only through these slots; which back ends exist, and in which order they are preferred, stands in
 * one array in backends.c. Enumerating opens no device and computes nothing. An open device owns its buffers; closing
 * it frees what is left. Every slot is filled: a back end that cannot do a thing fails with the reason.
 *
 * What is here is what verification and measuring need: whole operations that return when they are done. Streams,
 * events, modules and mapped memory come as further slots beside these.
 *
 * Thread: an open device belongs to one thread at a time. Only worker processes open devices: a driver that crashes
 * or hangs takes a worker with it and nothing else. */
#pragma once
#include "common/base/status.h"
#include "engine/device/info.h"

#include <stddef.h>
#include <stdint.h>

struct backend_device; // each back end's own, and so are its buffers
struct backend_buffer;

// The kernels that are built in. Each is one dispatch over `elements`; buffers and constants by position.
enum backend_kernel {
	KERNEL_UNKNOWN,
	// 0: u32 in[elements], 1: u32 out[2 * elements]; constants: seed, scale (f32 bits), bias (f32 bits).
	// out[i] = mix(in[i] + i, seed); out[elements + i] = bits of fma(out[i] >> 8 as f32 * 2^-24, scale, bias).
	KERNEL_VERIFY,
	// 0: u32 data[4 * elements]; constants: seed. data[i] = mix(i, seed): nothing that memory could compress.
	KERNEL_STREAM_FILL,
	// 0: u32 data[4 * elements], 1: u32 sink[1]; reads every element in 16-byte loads and keeps nothing.
	KERNEL_STREAM_READ,
	KERNEL_COUNT
};

enum { BACKEND_LAUNCH_BUFFERS = 2, BACKEND_LAUNCH_CONSTANTS = 3 };

struct backend_launch {
	enum backend_kernel kernel;
	struct backend_buffer *buffers[BACKEND_LAUNCH_BUFFERS];
	uint32_t constants[BACKEND_LAUNCH_CONSTANTS];
	uint32_t elements;
	unsigned repeat; // times, one after another in one submission; at least 1
};

struct backend_limits {
	uint64_t buffer_bytes; // the largest that one buffer may be, as the API says
	uint64_t stream_bytes; // how much memory a bandwidth test should read so that no cache answers
};

struct backend {
	enum backend_kind kind;

	// Devices and libraries as they are now. No device is not an error: it says so in the libraries.
	// Errors: STATUS_UNAVAILABLE (the driver failed, with its words), STATUS_OUT_OF_MEMORY.
	enum status (*enumerate)(struct found *found, struct error *error);

	// Optional. Before the first open of a process that wants only this device: the driver then starts it alone,
	// which on a machine of many takes a fraction of the time.
	void (*narrow)(const char *hardware_key);

	// Errors: STATUS_NOT_FOUND (no device of this key now), STATUS_UNAVAILABLE (the driver refused; kernels not
	// built).
	enum status (*open)(struct backend_device **out, const char *hardware_key, struct error *error);
	void (*close)(struct backend_device **device);
	void (*limits)(const struct backend_device *device, struct backend_limits *limits);

	// Memory of the device. Contents are undefined until written. `bytes` > 0, a multiple of 16.
	// Errors: STATUS_OUT_OF_MEMORY, STATUS_LIMIT_EXCEEDED.
	enum status (*buffer_create)(struct backend_device *device, struct backend_buffer **out, uint64_t bytes,
				     struct error *error);
	void (*buffer_destroy)(struct backend_device *device, struct backend_buffer **buffer);

	// Host to device, device to device (two buffers of one device), device to host; whole words of 4 bytes from the
	// beginning of a buffer. Return when the data is there. Errors: STATUS_DEVICE_LOST, STATUS_UNAVAILABLE.
	enum status (*write)(struct backend_device *device, struct backend_buffer *to, const void *from, uint64_t bytes,
			     struct error *error);
	enum status (*copy)(struct backend_device *device, struct backend_buffer *to, struct backend_buffer *from,
			    uint64_t bytes, struct error *error);
	enum status (*read)(struct backend_device *device, void *to, struct backend_buffer *from, uint64_t bytes,
			    struct error *error);

	// Run and wait. *device_ns (may be NULL): how long the device took for all repeats, by its own clock if it has
	// one. Errors: STATUS_DEVICE_LOST, STATUS_TIMEOUT, STATUS_UNAVAILABLE.
	enum status (*launch)(struct backend_device *device, const struct backend_launch *launch, int64_t *device_ns,
			      struct error *error);
};

extern const struct backend backend_cpu, backend_cuda, backend_vulkan;

// The back ends that are compiled in, in the order in which they are preferred; *count is their number.
const struct backend *const *backend_list(size_t *count);
// NULL if it is not compiled in.
const struct backend *backend_find(enum backend_kind kind);
