/* An open CUDA device, as the files of this folder share it.
 *
 *	loader.c     the driver's library, its errors        stream.c   streams and points
 *	enumerate.c  which GPUs there are                    kernels.c  the built-in kernels
 *	device.c     open, close, limits                     module.c   users' modules, launches
 *	memory.c     buffers, copies, fills, peers           ptx.c      reads a user's PTX
 *	stage*.c     inference (stage.h)
 *
 * Everything runs in the device's primary context, and in streams that do not wait for the default one. A process may
 * have several devices open in one thread: each call makes its own device's context the current one first (cuda_enter).
 * All of a process's addresses, pinned host memory included, are of one space, so a copy needs no kind.
 * Thread: see backend.h. */
#pragma once
#include "engine/backend.h"
#include "engine/cuda/loader.h"
#include "engine/cuda/ptx.h"

enum { CUDA_BLOCK = 256, CUDA_JIT_LOG_BYTES = 1024, CUDA_SHOWN_LOG_BYTES = 200 };

// The built-in kernels in their embedded files: those of enum builtin_kernel, and their parts.
enum cuda_kernel { CUDA_MATMUL_64 = BUILTIN_COUNT, CUDA_SUM_FINISH, CUDA_KERNEL_COUNT };
enum cuda_file { CUDA_FILE_VECTOR, CUDA_FILE_MATMUL, CUDA_FILE_VERIFY, CUDA_FILE_COUNT };

// How a copy to another device goes.
enum cuda_way {
	CUDA_WAY_UNKNOWN,
	CUDA_WAY_DIRECT, // over a peer link
	CUDA_WAY_DRIVER, // the driver stages it
	CUDA_WAY_STAGED, // neither worked: through pinned memory of ours
};

struct cuda_peer {
	uint64_t serial; // of the other device when this was found out
	enum cuda_way way;
};

struct backend_buffer {
	struct backend_buffer *next;
	CUdeviceptr pointer;
	void *host; // NULL for device memory
	uint64_t bytes;
	bool imported; // host memory that is the caller's
};

struct backend_stream {
	struct backend_stream *next;
	struct backend_device *device;
	CUstream stream;
	CUevent events[EXOGPU_POINTS]; // of point p at p % EXOGPU_POINTS; made when first needed
	uint64_t marked, reached;      // points
	CUdeviceptr partials;          // for sum_f32, made when first needed
};

struct backend_module {
	struct backend_module *next;
	enum exogpu_format format;
	CUmodule module; // of a user's
	struct ptx ptx;
	struct cuda_function *functions; // (ptx.count)
};

struct backend_device {
	struct cuda *cuda;
	CUdevice device;
	int ordinal;
	uint64_t serial; // another one for each open in this process
	CUcontext context;
	struct exogpu_device_limits limits;
	uint32_t units;
	int64_t timeout_ns;    // limit of each wait of a stage
	bool abandoned;        // it, or a stage, is closed while a kernel runs: nothing more is freed
	char *cache_directory; // NULL: compiled kernels are not kept
	bool cache_writable;
	char capability[8];             // 9.0
	int major, minor;               // 9, 0
	const struct cuda_image *image; // of the kernels that it runs; NULL if this binary has none for it
	CUmodule files[CUDA_FILE_COUNT];
	CUfunction kernels[CUDA_KERNEL_COUNT]; // loaded when first needed
	struct cuda_peer peers[INFO_DEVICES];  // by ordinal
	void *staging;                         // for CUDA_WAY_STAGED, made when first needed
	struct cuda_host_copy *copies;         // copies within host memory, in progress or done
	struct backend_buffer *buffers;
	struct backend_stream *streams;
	struct backend_module *modules;
};

// ---- enumerate.c ----

struct cuda_place {
	CUdevice device;
	int ordinal, count; // of the devices that this process sees
	struct device_info info;
};
int cuda_attribute(const struct cuda *cuda, CUdevice device, enum cuda_attribute which); // 0 if it is not known
// A required attribute: the first failed call is left in *failed.
int cuda_read(const struct cuda *cuda, CUdevice device, enum cuda_attribute which, CUresult *failed);
enum status cuda_enumerate(struct found *found, struct error *error);
void cuda_narrow(const char *hardware_key, const char *other);
// Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE (it is not supported, with the reason).
enum status cuda_find(const struct cuda *cuda, const char *hardware_key, struct cuda_place *place, struct error *error);

// ---- device.c ----

enum status cuda_open(struct backend_device **out, const struct backend_open *params, struct error *error);
void cuda_close(struct backend_device **device);
void cuda_describe(const struct backend_device *device, struct exogpu_device_limits *limits);
enum status cuda_memory(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes,
			struct error *error);
// Make its context the current one of this thread.
CUresult cuda_enter(const struct backend_device *device);
// STATUS_OK, or what cuda_failed makes of it.
enum status cuda_check(const struct backend_device *device, struct error *error, const char *call, CUresult result);

// ---- memory.c ----

enum status cuda_buffer_create(struct backend_device *device, struct backend_buffer **out,
			       const struct backend_buffer_params *params, struct error *error);
void cuda_buffer_destroy(struct backend_device *device, struct backend_buffer **buffer);
void *cuda_buffer_pointer(struct backend_buffer *buffer);
// Free the records of copies within host memory: those that are done or, if `every`, all, because none can finish any
// more.
void cuda_host_copies_free(struct backend_device *device, bool every);
enum status cuda_copy(struct backend_stream *stream, const struct backend_copy *copy, struct error *error);
enum status cuda_copy_peer(struct backend_stream *stream, struct backend_device *to_device,
			   const struct backend_copy *copy, bool *direct, struct error *error);
// Whether `device` reads and writes the memory of `to` directly; it is made so if it can be.
// Errors: the driver's, but none that it cannot be.
enum status cuda_peers_linked(struct backend_device *device, struct backend_device *to, bool *linked,
			      struct error *error);
enum status cuda_fill(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset, uint64_t bytes,
		      uint8_t value, struct error *error);

// ---- stream.c ----

enum status cuda_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error);
void cuda_stream_destroy(struct backend_device *device, struct backend_stream **stream);
enum status cuda_mark(struct backend_stream *stream, uint64_t *point, struct error *error);
enum status cuda_reached(struct backend_stream *stream, uint64_t *point, struct error *error);
enum status cuda_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error);
enum status cuda_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
			struct error *error);
enum status cuda_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error);

// ---- kernels.c ----

// Choose the image of kernels for this device. Errors: those of cuda_image_choose; device->image is NULL then.
enum status cuda_kernels_choose(struct backend_device *device, struct error *error);
// Check that kernels were built. A process that may write the cache also compiles PTX, so that other processes find the
// result. Errors: STATUS_UNAVAILABLE.
enum status cuda_kernels_prepare(struct backend_device *device, struct error *error);
// An embedded file of kernels, if *module is NULL: a cubin as it is, PTX as the cache has it or compiled.
enum status cuda_kernels_load(struct backend_device *device, const char *file_name, CUmodule *module,
			      struct error *error);
// A launch of a built-in kernel; loads it if it is the first.
enum status cuda_kernels_launch(struct backend_stream *stream, const struct backend_launch *launch,
				struct error *error);
// Compile PTX, which ends with a 0; *module stays as it is if that fails. log: what the compiler says, one line of
// text.
CUresult cuda_compile(const struct backend_device *device, CUmodule *module, const char *text,
		      char log[CUDA_SHOWN_LOG_BYTES]);
// The arguments of a launch: pointers to the values, each as large as the kernel's parameter.
struct cuda_arguments {
	uint64_t values[EXOGPU_KERNEL_ARGUMENTS];
	void *pointers[EXOGPU_KERNEL_ARGUMENTS];
};
void cuda_pack(struct cuda_arguments *arguments, const struct backend_launch *launch);

// ---- module.c ----

enum status cuda_module_load(struct backend_device *device, struct backend_module **out,
			     const struct backend_module_params *params, struct error *error);
void cuda_module_unload(struct backend_device *device, struct backend_module **module);
const struct exogpu_kernel *cuda_module_kernel(const struct backend_module *module, unsigned index);
enum status cuda_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error);
