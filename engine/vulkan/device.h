/* An open Vulkan device: the types and functions that the files of this folder share.
 *
 *   backend.c  the slots                      memory.c   blocks of device memory, buffers in them (ranges.c)
 *   device.c   opening, closing, features     stream.c   queues, command buffers, points
 *   copy.c     copies and fills               builtin.c  the built-in kernels
 *   module.c   users' kernels (spirv.c)       cache.c    compiled kernels on disk
 *   stage.h    layers of models
 *
 * Needs Vulkan 1.1. Newer features are used if a device has them, each with a fallback (enum vulkan_without): timeline
 * semaphores (else fences), buffer device addresses (else descriptors), timestamps (else the host's clock). The device
 * owns every object that was created on it; closing destroys the remaining ones, in reverse. Thread: that of the
 * device. */
#pragma once
#include "common/base/limits.h"
#include "engine/backend.h"
#include "engine/vulkan/loader.h"
#include "engine/vulkan/ranges.h"
#include "engine/vulkan/spirv.h"

enum {
	VULKAN_QUEUES = 8,
	VULKAN_SLOTS = EXOGPU_POINTS, // submissions of a stream that may be in flight
	VULKAN_COMMANDS = 512,        // in one submission, then it goes without being asked for
	VULKAN_SETS = 16,             // descriptor sets in one submission, likewise
	VULKAN_GROUP = 256,           // invocations of a group of the built-in kernels
	VULKAN_PLACES = 3,            // buffers of a built-in shader
	VULKAN_WORDS = 8,             // constants of a built-in shader
};

// Features that are not used even if the device has them, so that tests can run each fallback on one device.
enum vulkan_without {
	WITHOUT_TIMELINE = 1 << 0,
	WITHOUT_ADDRESSES = 1 << 1,
	WITHOUT_TIMESTAMPS = 1 << 2,
	WITHOUT_SOFTWARE = 1 << 3, // a processor takes the ways of a GPU
};

// Bits of it, for devices that are opened from now on. Tests set it; it is 0.
extern unsigned vulkan_without;

// Built-in shaders: those of builtin.h, and those for copies and fills.
enum vulkan_shader {
	SHADER_COPY,
	SHADER_FILL,
	SHADER_SAXPY,
	SHADER_MATMUL,       // for GPUs: tiles of 128 x 128 in shared memory
	SHADER_MATMUL_SMALL, // 64 x 64, for matrices with too few large tiles
	SHADER_MATMUL_SOFTWARE,
	SHADER_SUM,
	SHADER_VERIFY,
	SHADER_STREAM_FILL,
	SHADER_STREAM_READ,
	SHADER_COUNT
};

// One vkAllocateMemory. A block with `only` holds one buffer; other blocks are shared.
struct vulkan_block {
	struct vulkan_block *next;
	VkDeviceMemory memory;
	uint32_t type;
	uint64_t bytes;
	bool only;
	bool imported;   // the caller's memory, of no heap
	uint8_t *mapped; // (bytes), once somebody needed it
	struct ranges ranges;
};

struct backend_buffer {
	struct backend_device *device;
	struct backend_buffer *next, **link; // of device->buffers
	enum exogpu_memory memory;
	uint64_t bytes;
	VkBuffer buffer;
	VkDeviceAddress address; // 0 without addresses
	struct vulkan_block *block;
	uint64_t offset, block_bytes; // of the block
	uint8_t *pointer;             // (bytes); NULL: device memory
};

struct vulkan_slot {
	VkCommandBuffer commands;
	VkFence fence;         // without timeline semaphores
	VkDescriptorPool sets; // made when first needed
	unsigned set_count;    // of it that are used
};

struct vulkan_wait {
	struct backend_stream *stream;
	uint64_t submission;
};

struct backend_stream {
	struct backend_device *device;
	struct backend_stream *next; // of device->streams; streams are kept, and used again, until the device closes
	bool open;
	VkQueue queue;
	VkCommandPool pool;
	VkSemaphore timeline; // its value is the number of the last submission that is done
	VkQueryPool timestamps;
	struct vulkan_slot slots[VULKAN_SLOTS]; // submission s uses slot s % VULKAN_SLOTS
	uint64_t submitted, completed;          // submissions

	struct vulkan_slot *slot;                          // that is being recorded; NULL: nothing is
	VkCommandBuffer commands;                          // of the slot
	unsigned command_count;                            // in it
	VkPipelineStageFlags stages;                       // of commands since the last barrier
	VkAccessFlags writes;                              // of them
	bool host_sees;                                    // memory that the host reads was written since the last mark
	enum status dropped;                               // why commands were lost; the next mark returns it
	struct vulkan_wait waits[LIMIT_STREAMS_OF_DEVICE]; // the next submission waits for these
	unsigned wait_count;

	uint64_t points, reached;                 // the newest made, and known to be reached
	uint64_t point_submission[EXOGPU_POINTS]; // of point p: [p % EXOGPU_POINTS], as in the query pool
	int64_t point_ns[EXOGPU_POINTS];          // of the host: elapsed without timestamps
	struct backend_buffer *scratch;           // of sum_f32
};

struct vulkan_kernel {
	struct exogpu_kernel told;
	VkPipeline pipeline;
};

struct backend_module {
	struct backend_device *device;
	struct backend_module *next, **link; // of device->modules
	enum exogpu_format format;
	struct spirv_module *spirv; // and below: of users' modules
	VkDescriptorSetLayout set_layout;
	VkPipelineLayout layout;
	struct vulkan_kernel *kernels; // (spirv->kernel_count)
};

struct vulkan_types {
	uint32_t index[VK_MAX_MEMORY_TYPES]; // the best first
	unsigned count;
};

struct backend_device {
	struct vulkan *vulkan;
	VkPhysicalDevice physical;
	VkPhysicalDeviceProperties properties;
	VkPhysicalDeviceMemoryProperties memory;
	struct vulkan_types types[EXOGPU_MEMORY_MAPPED + 1]; // by kind of memory
	uint32_t api;                                        // of it that is used: no newer than the instance's
	uint32_t queue_family, queue_count;
	uint32_t timestamp_bits;                     // 0: no timestamps
	uint64_t largest_allocation, largest_buffer; // as the driver says; largest_buffer is 0 where it does not
	bool software, timeline, addresses, budget, imports;
	bool gpu;   // use the code paths that suit a GPU: not for software devices, except in tests
	bool bound; // the built-in kernels take descriptors, not addresses: a processor is several times faster with
		    // them
	struct spirv_limits spirv;

	VkDevice device;
	struct vulkan_device_functions fn;
	VkQueue queues[VULKAN_QUEUES];
	unsigned streams_made;
	bool lost;

	struct vulkan_block *blocks;
	uint64_t heap_used[VK_MAX_MEMORY_HEAPS];
	uint32_t allocations; // vkAllocateMemory's that are not freed
	struct backend_buffer *buffers;
	struct backend_stream *streams;
	struct backend_module *modules;

	VkDescriptorSetLayout builtin_sets; // if bound
	VkPipelineLayout builtin_layout;
	VkPipeline pipelines[SHADER_COUNT];      // made when first needed
	struct backend_buffer *patterns;         // (256, 4): four bytes of each value, where fills find their edges
	struct stage_pipelines *stage_pipelines; // of its stages; NULL: there was none yet
	VkPipelineCache cache;
	char *cache_directory; // NULL: none
	char cache_name[32], cache_head[128];
	bool cache_writable;
	size_t cache_bytes; // that were read from it
};

// Like the slot `open`; `without`: bits of enum vulkan_without.
enum status vulkan_device_open(struct backend_device **out, const struct backend_open *params, unsigned without,
			       struct error *error);
void vulkan_device_close(struct backend_device **device);
void vulkan_device_describe(const struct backend_device *device, struct exogpu_device_limits *limits);
// Like vulkan_failed, and remembers a lost device.
enum status vulkan_device_failed(struct backend_device *device, struct error *error, const char *call, VkResult result);

// ---- memory.c ----

// Which types of memory serve which kind.
void vulkan_memory_sort(struct backend_device *device);
enum status vulkan_memory_told(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes,
			       struct error *error);
enum status vulkan_buffer_create(struct backend_device *device, struct backend_buffer **out,
				 const struct backend_buffer_params *params, struct error *error);
void vulkan_buffer_destroy(struct backend_device *device, struct backend_buffer **buffer);
void *vulkan_buffer_pointer(struct backend_buffer *buffer);
void vulkan_memory_finish(struct backend_device *device); // buffers and blocks

// ---- stream.c ----

enum status vulkan_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error);
void vulkan_stream_destroy(struct backend_device *device, struct backend_stream **stream);
enum status vulkan_mark(struct backend_stream *stream, uint64_t *point, struct error *error);
enum status vulkan_reached(struct backend_stream *stream, uint64_t *point, struct error *error);
enum status vulkan_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error);
enum status vulkan_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
			  struct error *error);
enum status vulkan_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns, struct error *error);
// Open a command buffer if none is (stream->commands), with everything before it behind a barrier for commands of
// `stages` (COMPUTE_SHADER, TRANSFER or both), which write `writes`. More commands that do not depend on each other may
// be recorded without asking again, a few at a time.
enum status vulkan_stream_begin(struct backend_stream *stream, VkPipelineStageFlags stages, struct error *error);
// A descriptor set of the submission that is being recorded; STATUS_OUT_OF_MEMORY.
enum status vulkan_stream_set(struct backend_stream *stream, VkDescriptorSetLayout layout, VkDescriptorSet *set,
			      struct error *error);
// Whether everything that was submitted is done; waits for up to timeout_ns.
bool vulkan_streams_idle(struct backend_device *device, int64_t timeout_ns);
void vulkan_streams_finish(struct backend_device *device);

// ---- copy.c ----

enum status vulkan_copy(struct backend_stream *stream, const struct backend_copy *copy, struct error *error);
enum status vulkan_fill(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset, uint64_t bytes,
			uint8_t value, struct error *error);

// ---- builtin.c ----

// One dispatch of a built-in shader. Places are buffers at byte offsets that are multiples of 4 (of 16 if the shader
// loads 16 bytes at once); NULL: a place that the shader does not use.
struct vulkan_dispatch {
	enum vulkan_shader shader;
	struct {
		struct backend_buffer *buffer;
		uint64_t offset, bytes;
		unsigned unit; // bytes of an element there
	} places[VULKAN_PLACES];
	uint32_t words[VULKAN_WORDS];
	uint32_t groups[3];
};
// After vulkan_stream_begin.
enum status vulkan_dispatch(struct backend_stream *stream, const struct vulkan_dispatch *dispatch, struct error *error);
// The most bytes that one place of a dispatch may have: a power of two.
uint64_t vulkan_span(const struct backend_device *device);
uint32_t vulkan_groups(const struct backend_device *device, uint64_t invocations);
enum status vulkan_launch_builtin(struct backend_stream *stream, const struct backend_launch *launch,
				  struct error *error);
// Make every pipeline that is built in, so that the cache has them.
enum status vulkan_builtin_prepare(struct backend_device *device, struct error *error);
void vulkan_builtin_finish(struct backend_device *device);

// ---- stage/stage_pipeline.c ----

void vulkan_stage_pipelines_finish(struct backend_device *device);

// ---- module.c ----

enum status vulkan_module_load(struct backend_device *device, struct backend_module **out,
			       const struct backend_module_params *params, struct error *error);
void vulkan_module_unload(struct backend_device *device, struct backend_module **module);
const struct exogpu_kernel *vulkan_module_kernel(const struct backend_module *module, unsigned index);
enum status vulkan_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error);

// ---- cache.c ----

enum status vulkan_cache_open(struct backend_device *device, const struct backend_open *params, struct error *error);
void vulkan_cache_close(struct backend_device *device); // writes it if it may and there is more than before
