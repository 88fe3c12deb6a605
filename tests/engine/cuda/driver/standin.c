/* A CUDA driver for machines without one: two devices whose memory is the processor's.
 *
 * What it does: memory of exact size, streams, events, copies, fills, host functions, captures and graphs, modules
 * whose kernels are those of the PTX text. Work is done late: a stream that is asked says once that it is not ready,
 * and then does all that it was asked for, in order; a stream that waits for another's event has that one do its work
 * first. Copies take the time that strike.h says, everything else takes none. What it does not do: launches check what
 * they are given and compute nothing, so no result of a kernel is there, but for the one that verifies a device where a
 * program has loaded this; no PTX is compiled, and faults in it are not found; work of a stream runs in the thread that
 * asks for it.
 *
 * What it holds against its caller (strike_wrong), beside what the books of struck.c do: ranges that are not of one
 * piece of memory; memory, modules and graphs that go, or are copied beside the streams, while pending work uses them;
 * streams that go with work pending; work on memory that is gone; asynchronous copies to memory of the host that is not
 * pinned; calls that a capture does not allow; launches that a GPU refuses. Which memory a kernel uses is found by its
 * parameters: every value of 8 bytes there that is an address counts.
 *
 * Addresses of device memory are those of the host with one bit more, so that nobody can read there, and with a number
 * in twelve others, so that memory that is gone is not taken for what came to its place. */
#include "tests/engine/cuda/driver/standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE_BIT ((uint64_t)1 << DEVICE_SHIFT)
#define DEVICE_MEMORY ((size_t)4 << 30)
enum { DEVICES = 2, UNITS = 16, GONE = 256, SMALL = 4 << 10, LARGE = 256 << 10, PAGE = 4096, ALIGNMENT = 256 };
enum { NUMBERS = 1 << 12, NUMBER_SHIFT = 48, DEVICE_SHIFT = 60 };

// ---- memory ----

struct block {
	struct block *next;
	uint64_t address, bytes;
	uint8_t *memory;
	int device;
	bool registered; // it is the caller's
};

struct CUctx_st {
	int device;
	long retained;
	bool reaches[DEVICES];
};

static struct CUctx_st contexts[DEVICES];
static _Thread_local CUcontext current;
static struct block *blocks; // of devices and of the host
static size_t used[DEVICES];
static uint64_t allocations;
static struct {
	uint64_t address, bytes;
} gone[GONE]; // device memory that was freed of late
static size_t gone_count;

static struct block *block_at(uint64_t address)
{
	for (struct block *block = blocks; block; block = block->next)
		if (address >= block->address && address < block->address + block->bytes)
			return block;
	return NULL;
}

// NULL, and noted, if it is not of one piece. Memory of the host that is not pinned is not looked at.
uint8_t *standin_place(uint64_t address, uint64_t bytes, const char *call)
{
	const struct block *block = block_at(address);
	if (!block && !(address & DEVICE_BIT))
		return (uint8_t *)(uintptr_t)address;
	if (!block || bytes > block->address + block->bytes - address) {
		strike_wrong("%s: %llu bytes at 0x%llx are not of one piece of memory", call, (unsigned long long)bytes,
			     (unsigned long long)address);
		return NULL;
	}
	return block->memory + (address - block->address);
}

// ---- streams ----

struct CUevent_st {
	struct CUevent_st *next;
	CUstream stream;
	uint64_t place;
	double ns;
	bool recorded;
};
static CUstream streams;
static CUevent events;

static void op_free(struct op *op)
{
	free(op->kept);
	free(op);
}

void standin_ops_free(struct op *op)
{
	while (op) {
		struct op *next = op->next;
		op_free(op);
		op = next;
	}
}

static void do_op(const struct op *op);

static void work_until(CUstream stream, uint64_t up_to)
{
	while (stream->done < up_to) {
		struct op *op = stream->first;
		if (op->kind == WAIT && op->other)
			work_until(op->other, op->other_place);
		do_op(op);
		stream->first = op->next;
		if (!stream->first)
			stream->last = &stream->first;
		stream->done++;
		op_free(op);
	}
}

// Millions of bytes, in which no race is looked for.
__attribute__((no_sanitize("thread"))) static void note_copied(int device, const uint8_t *bytes, uint64_t count)
{
	strikes.copied_bytes[device] += count;
	for (uint64_t i = 0; i < count; i++)
		strikes.copied_sum[device] += bytes[i];
}

static void do_op(const struct op *op)
{
	uint8_t *to;
	const uint8_t *from;
	switch (op->kind) {
	case COPY:
		to = standin_place(op->to, op->bytes, "a copy");
		from = op->kept ? op->kept : standin_place(op->from, op->bytes, "a copy");
		if (to && from && (uintptr_t)to - (uintptr_t)from >= op->bytes &&
		    (uintptr_t)from - (uintptr_t)to >= op->bytes)
			memcpy(to, from, op->bytes); // a sanitizer's memmove goes byte by byte
		else if (to && from)
			memmove(to, from, op->bytes);
		if (to && (op->to & DEVICE_BIT) && !(op->from & DEVICE_BIT))
			note_copied(block_at(op->to)->device, to, op->bytes);
		break;
	case FILL:
		to = standin_place(op->to, op->count * op->width, "a fill");
		for (uint64_t i = 0; to && op->width == 4 && i < op->count; i++)
			memcpy(to + 4 * i, &op->value, 4);
		if (to && op->width == 1)
			memset(to, (int)op->value, op->count);
		break;
	case CALL:
		op->function(op->context);
		break;
	case KERNEL:
	case WAIT:
		break;
	}
}

bool standin_capture_allows(const char *call)
{
	for (CUstream stream = streams; stream; stream = stream->next)
		if (stream->capturing) {
			strike_wrong("%s during a capture", call);
			return false;
		}
	return true;
}

// What a copy takes: other work takes no time.
static double duration_ns(const struct op *op)
{
	const struct block *from = op->kind == COPY && !op->kept ? block_at(op->from) : NULL,
			   *to = op->kind == COPY ? block_at(op->to) : NULL;
	if (op->kind != COPY)
		return 0;
	if (!from || !to || !(op->from & op->to & DEVICE_BIT))
		return (double)op->bytes / STANDIN_HOST_BYTES_PER_NS;
	if (from->device != to->device)
		return (double)op->bytes / (contexts[from->device].reaches[to->device] ? STANDIN_PEER_BYTES_PER_NS
										       : STANDIN_STAGED_BYTES_PER_NS);
	return (double)op->bytes / STANDIN_MEMORY_BYTES_PER_NS;
}

struct op *standin_enqueue(CUstream stream, const struct op *work)
{
	struct op *op = malloc(sizeof(*op));
	if (!op)
		abort();
	*op = *work;
	op->next = NULL;
	struct op ***last = stream->capturing ? &stream->captured_last : &stream->last;
	**last = op;
	*last = &op->next;
	if (!stream->capturing) {
		stream->ns += duration_ns(op);
		stream->enqueued++;
		stream->asked = false;
	}
	return op;
}

static bool in_range(uint64_t address, uint64_t first, uint64_t bytes)
{
	return address >= first && address < first + bytes;
}

static bool op_uses(const struct op *op, uint64_t first, uint64_t bytes)
{
	bool uses = (op->kind == COPY || op->kind == FILL) && op->to < first + bytes &&
		    first < op->to + (op->kind == COPY ? op->bytes : op->count * op->width);
	uses = uses || (op->kind == COPY && !op->kept && op->from < first + bytes && first < op->from + op->bytes);
	for (uint32_t i = 0; !uses && i < op->use_count; i++)
		uses = in_range(op->uses[i], first, bytes);
	return uses;
}

static void check_unused(uint64_t first, uint64_t bytes, const char *call)
{
	for (CUstream stream = streams; stream; stream = stream->next)
		for (const struct op *op = stream->first; op; op = op->next) {
			if (op_uses(op, first, bytes))
				strike_wrong("%s of memory that pending work uses", call);
		}
}

bool standin_in_use(const void *what)
{
	for (CUstream stream = streams; stream; stream = stream->next)
		for (const struct op *op = stream->first; op; op = op->next)
			if (op->module == what || op->graph == what)
				return true;
	return false;
}

void standin_note_use(struct op *op, uint64_t address, const char *kernel)
{
	bool device = address >> DEVICE_SHIFT == 1;
	const struct block *block = device || !(address >> NUMBER_SHIFT) ? block_at(address) : NULL;
	for (size_t i = 0; device && !block && i < GONE; i++)
		if (in_range(address, gone[i].address, gone[i].bytes))
			strike_wrong("%s is given memory that is gone: 0x%llx", kernel, (unsigned long long)address);
	if (!block)
		return;
	if ((address & DEVICE_BIT) && block->device != current->device && !current->reaches[block->device])
		strike_wrong("%s of device %d is given memory of device %d, which it does not reach", kernel,
			     current->device, block->device);
	if (op->use_count == STANDIN_USES)
		strike_wrong("%s is given more addresses than can be noted", kernel);
	else
		op->uses[op->use_count++] = address;
}

static CUresult ask(CUstream stream, uint64_t up_to)
{
	if (stream->capturing) {
		strike_wrong("a stream is asked during its capture");
		return INVALID_VALUE;
	}
	static CUstream before;
	strikes.asked++;
	strikes.turns += stream != before;
	before = stream;
	if (stream->done >= up_to)
		return CUDA_SUCCESS;
	if (strikes.hangs)
		return CUDA_ERROR_NOT_READY;
	stream->asked = !stream->asked;
	if (stream->asked)
		return CUDA_ERROR_NOT_READY;
	work_until(stream, up_to);
	return CUDA_SUCCESS;
}

void standin_drop(void)
{
	for (CUstream stream = streams; stream; stream = stream->next) {
		standin_ops_free(stream->first);
		standin_ops_free(stream->captured);
		stream->first = stream->captured = NULL;
		stream->last = &stream->first;
		stream->captured_last = &stream->captured;
		stream->done = stream->enqueued;
	}
}

// ---- the driver and its devices ----

static CUresult init(unsigned flags)
{
	return flags ? INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult driver_version(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

static CUresult error_text(CUresult result, const char **text)
{
	(void)result;
	*text = "an error that a test injects";
	return CUDA_SUCCESS;
}

static CUresult device_count(int *count)
{
	*count = DEVICES;
	return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal < DEVICES ? CUDA_SUCCESS : INVALID_VALUE;
}

static CUresult device_name(char *name, int size, CUdevice device)
{
	snprintf(name, (size_t)size, "a stand-in (%d)", device);
	return CUDA_SUCCESS;
}

int standin_most_shared(void)
{
	return strikes.capability >= 90 ? 227 << 10 : 163 << 10;
}

static CUresult device_attribute(int *value, int attribute, CUdevice device)
{
	const struct {
		int attribute, value;
	} all[] = {
		{CUDA_MAX_THREADS_PER_BLOCK, 1024},
		{CUDA_MAX_BLOCK_X, 1024},
		{CUDA_MAX_BLOCK_X + 1, 1024},
		{CUDA_MAX_BLOCK_X + 2, 64},
		{CUDA_MAX_GRID_X, 0x7fffffff},
		{CUDA_MAX_GRID_X + 1, 65535},
		{CUDA_MAX_GRID_X + 2, 65535},
		{CUDA_MULTIPROCESSOR_COUNT, UNITS},
		{CUDA_CONCURRENT_KERNELS, 1},
		{CUDA_PCI_BUS_ID, 0x40 + device},
		{CUDA_CAPABILITY_MAJOR, strikes.capability / 10},
		{CUDA_CAPABILITY_MINOR, strikes.capability % 10},
		{CUDA_REGISTERED_POINTER, 1},
		{CUDA_COOPERATIVE_LAUNCH, 1},
		{CUDA_MAX_SHARED_BYTES, standin_most_shared()},
	};
	*value = 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].attribute == attribute)
			*value = all[i].value;
	return CUDA_SUCCESS;
}

static CUresult total_memory(size_t *bytes, CUdevice device)
{
	(void)device;
	*bytes = DEVICE_MEMORY;
	return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
	*uuid = (CUuuid){.bytes = {0x57, 0xa9, 0xd1, 0x9, [15] = (uint8_t)(device + 1)}};
	return CUDA_SUCCESS;
}

static CUresult context_retain(CUcontext *context, CUdevice device)
{
	*context = &contexts[device];
	contexts[device].device = device;
	contexts[device].retained++;
	return CUDA_SUCCESS;
}

static CUresult context_release(CUdevice device)
{
	if (!--contexts[device].retained)
		for (int i = 0; i < DEVICES; i++)
			contexts[device].reaches[i] = contexts[i].reaches[device] = false;
	return CUDA_SUCCESS;
}

static CUresult context_set(CUcontext context)
{
	current = context;
	return CUDA_SUCCESS;
}

static CUresult can_access(int *can, CUdevice device, CUdevice peer)
{
	*can = device != peer;
	return CUDA_SUCCESS;
}

static CUresult enable_access(CUcontext peer, unsigned flags)
{
	(void)flags;
	if (current->reaches[peer->device])
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	current->reaches[peer->device] = true;
	return CUDA_SUCCESS;
}

// ---- memory's calls ----

// Of pages of its own, the last of which nobody may touch: an address sanitizer's book on it would cost more than all
// the rest.
static uint8_t *map_large(size_t bytes)
{
	size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
	uint8_t *pages = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED || mprotect(pages + whole, PAGE, PROT_NONE))
		return NULL;
	return pages + (whole - bytes) / ALIGNMENT * ALIGNMENT;
}

static void unmap_large(uint8_t *memory, size_t bytes)
{
	size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
	munmap(memory - (whole - bytes) / ALIGNMENT * ALIGNMENT, whole + PAGE);
}

static CUresult allocate(uint64_t bytes, uint64_t bit, const char *call, uint64_t *out)
{
	standin_capture_allows(call);
	if (!bytes || bytes > DEVICE_MEMORY - used[current->device])
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : INVALID_VALUE;
	struct block *block = malloc(sizeof(*block));
	uint8_t *memory = bytes < LARGE ? malloc(bytes) : map_large(bytes);
	if (!block || !memory)
		abort();
	memset(memory, 0xa5, bytes < SMALL ? bytes : SMALL);
	uint64_t address = (uint64_t)(uintptr_t)memory | bit;
	if (bit)
		address |= allocations++ % NUMBERS << NUMBER_SHIFT;
	*block = (struct block){blocks, address, bytes, memory, current->device, false};
	used[block->device] += bit ? bytes : 0;
	blocks = block;
	*out = block->address;
	return CUDA_SUCCESS;
}

static CUresult release(uint64_t address, const char *call)
{
	struct block **link = &blocks;
	while (*link && (*link)->address != address)
		link = &(*link)->next;
	struct block *block = *link;
	standin_capture_allows(call);
	check_unused(block->address, block->bytes, call);
	if (address & DEVICE_BIT) {
		gone[gone_count % GONE].address = address;
		gone[gone_count++ % GONE].bytes = block->bytes;
		used[block->device] -= block->bytes;
	}
	*link = block->next;
	if (!block->registered && block->bytes < LARGE)
		free(block->memory);
	else if (!block->registered)
		unmap_large(block->memory, block->bytes);
	free(block);
	return CUDA_SUCCESS;
}

static CUresult memory_allocate(CUdeviceptr *pointer, size_t bytes)
{
	return allocate(bytes, DEVICE_BIT, "cuMemAlloc", pointer);
}

static CUresult memory_free(CUdeviceptr pointer)
{
	return release(pointer, "cuMemFree");
}

static CUresult memory_info(size_t *unused, size_t *total)
{
	*total = DEVICE_MEMORY;
	*unused = DEVICE_MEMORY - used[current->device];
	return CUDA_SUCCESS;
}

static CUresult host_allocate(void **pointer, size_t bytes, unsigned flags)
{
	uint64_t address = 0;
	CUresult result = allocate(bytes, 0, "cuMemHostAlloc", &address);
	if (!(flags & CUDA_HOST_PORTABLE))
		strike_wrong("host memory that other devices do not see");
	*pointer = (void *)(uintptr_t)address;
	return result;
}

static CUresult host_free(void *pointer)
{
	return release((uint64_t)(uintptr_t)pointer, "cuMemFreeHost");
}

static CUresult host_register(void *memory, size_t bytes, unsigned flags)
{
	const uint64_t address = (uint64_t)(uintptr_t)memory;
	standin_capture_allows("cuMemHostRegister");
	if (!bytes)
		return INVALID_VALUE;
	if (!(flags & CUDA_HOST_PORTABLE))
		strike_wrong("host memory that other devices do not see");
	if (address % PAGE || bytes % PAGE)
		strike_wrong("memory is registered that is not whole pages");
	for (const struct block *block = blocks; block; block = block->next)
		if (address < block->address + block->bytes && block->address < address + bytes)
			return INVALID_VALUE; // it is registered already
	struct block *block = malloc(sizeof(*block));
	if (!block)
		abort();
	*block = (struct block){blocks, address, bytes, memory, current->device, true};
	blocks = block;
	return CUDA_SUCCESS;
}

static CUresult host_unregister(void *pointer)
{
	return release((uint64_t)(uintptr_t)pointer, "cuMemHostUnregister");
}

static CUresult enqueue_copy(CUstream stream, uint64_t to, uint64_t from, uint64_t bytes, const char *call)
{
	struct op op = {.kind = COPY, .to = to, .from = from, .bytes = bytes};
	const uint8_t *bytes_from = standin_place(from, bytes, call);
	if (!standin_place(to, bytes, call) || !bytes_from)
		return INVALID_VALUE;
	if (!block_at(to))
		strike_wrong("%s to memory that is not pinned", call);
	if (!block_at(from)) { // the driver has a copy of it when the call returns
		op.kept = malloc(bytes);
		if (!op.kept)
			abort();
		memcpy(op.kept, bytes_from, bytes);
	}
	standin_enqueue(stream, &op);
	return CUDA_SUCCESS;
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return enqueue_copy(stream, to, from, bytes, "cuMemcpyAsync");
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
			  CUstream stream)
{
	const struct block *one = block_at(from), *other = block_at(to);
	if (!one || !other || one->device != from_context->device || other->device != to_context->device)
		strike_wrong("cuMemcpyPeerAsync: memory that is not of its device");
	return enqueue_copy(stream, to, from, bytes, "cuMemcpyPeerAsync");
}

static CUresult copy_now(CUdeviceptr to, uint64_t from, uint64_t bytes, const char *call)
{
	uint8_t *target = standin_place(to, bytes, call);
	const uint8_t *source = standin_place(from, bytes, call);
	standin_capture_allows(call);
	check_unused(to, bytes, call); // other streams do not wait for it, nor it for them
	check_unused(from, bytes, call);
	if (!target || !source)
		return INVALID_VALUE;
	memcpy(target, source, bytes);
	return CUDA_SUCCESS;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy_now(to, (uint64_t)(uintptr_t)from, bytes, "cuMemcpyHtoD");
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t bytes)
{
	return copy_now((uint64_t)(uintptr_t)to, from, bytes, "cuMemcpyDtoH");
}

static CUresult fill(CUstream stream, uint64_t to, uint32_t value, uint64_t count, uint32_t width)
{
	if (!standin_place(to, count * width, "a fill"))
		return INVALID_VALUE;
	standin_enqueue(stream, &(struct op){.kind = FILL, .to = to, .value = value, .count = count, .width = width});
	return CUDA_SUCCESS;
}

static CUresult fill_bytes(CUdeviceptr to, uint8_t value, size_t count, CUstream stream)
{
	return fill(stream, to, value, count, 1);
}

static CUresult fill_words(CUdeviceptr to, uint32_t value, size_t count, CUstream stream)
{
	return fill(stream, to, value, count, 4);
}

// ---- streams' and events' calls ----

static CUresult stream_create(CUstream *out, unsigned flags)
{
	CUstream stream = calloc(1, sizeof(*stream));
	if (!stream)
		abort();
	if (flags != CUDA_STREAM_NON_BLOCKING)
		strike_wrong("a stream that waits for the default one");
	stream->last = &stream->first;
	stream->device = current->device;
	stream->next = streams;
	streams = *out = stream;
	return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
	if (stream->done < stream->enqueued)
		strike_wrong("a stream is destroyed with %llu pieces of work pending",
			     (unsigned long long)(stream->enqueued - stream->done));
	if (stream->capturing)
		strike_wrong("a stream is destroyed in its capture");
	work_until(stream, stream->enqueued);
	for (CUevent event = events; event; event = event->next)
		if (event->stream == stream)
			event->stream = NULL;
	for (CUstream other = streams; other; other = other->next)
		for (struct op *op = other->first; op; op = op->next)
			if (op->other == stream)
				op->other = NULL;
	for (CUstream *link = &streams; *link; link = &(*link)->next)
		if (*link == stream) {
			*link = stream->next;
			break;
		}
	standin_ops_free(stream->captured);
	free(stream);
	return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream)
{
	return ask(stream, stream->enqueued);
}

static CUresult stream_synchronize(CUstream stream)
{
	if (standin_capture_allows("cuStreamSynchronize"))
		work_until(stream, stream->enqueued);
	return CUDA_SUCCESS;
}

static CUresult stream_wait(CUstream stream, CUevent event, unsigned flags)
{
	(void)flags;
	if (!event->recorded)
		strike_wrong("a stream waits for an event that was never recorded");
	standin_enqueue(stream, &(struct op){.kind = WAIT, .other = event->stream, .other_place = event->place});
	return CUDA_SUCCESS;
}

static CUresult host_function(CUstream stream, void (*function)(void *context), void *context)
{
	standin_enqueue(stream, &(struct op){.kind = CALL, .function = function, .context = context});
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *out, unsigned flags)
{
	(void)flags;
	CUevent event = calloc(1, sizeof(*event));
	if (!event)
		abort();
	event->next = events;
	events = *out = event;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	for (CUevent *link = &events; *link; link = &(*link)->next)
		if (*link == event) {
			*link = event->next;
			break;
		}
	free(event);
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
	if (stream->capturing)
		strike_wrong("an event is recorded in a capture");
	event->stream = stream;
	event->place = stream->enqueued;
	event->ns = stream->ns;
	event->recorded = true;
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
	return event->stream ? ask(event->stream, event->place) : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent start, CUevent end)
{
	*ms = (float)((end->ns - start->ns) * 1e-6);
	if (!start->recorded || !end->recorded)
		strike_wrong("the time of an event that was never recorded");
	return CUDA_SUCCESS;
}

void standin_fill(struct cuda *driver)
{
	*driver = (struct cuda){
		.cuInit = init,
		.cuDriverGetVersion = driver_version,
		.cuGetErrorName = error_text,
		.cuGetErrorString = error_text,
		.cuDeviceGetCount = device_count,
		.cuDeviceGet = device_get,
		.cuDeviceGetName = device_name,
		.cuDeviceGetAttribute = device_attribute,
		.cuDeviceTotalMem_v2 = total_memory,
		.cuDevicePrimaryCtxRetain = context_retain,
		.cuDevicePrimaryCtxRelease_v2 = context_release,
		.cuCtxSetCurrent = context_set,
		.cuMemAlloc_v2 = memory_allocate,
		.cuMemFree_v2 = memory_free,
		.cuMemGetInfo_v2 = memory_info,
		.cuMemHostAlloc = host_allocate,
		.cuMemFreeHost = host_free,
		.cuMemHostRegister_v2 = host_register,
		.cuMemHostUnregister = host_unregister,
		.cuMemcpyAsync = copy_async,
		.cuMemcpyHtoD_v2 = copy_in,
		.cuMemcpyDtoH_v2 = copy_out,
		.cuMemsetD8Async = fill_bytes,
		.cuMemsetD32Async = fill_words,
		.cuStreamCreate = stream_create,
		.cuStreamDestroy_v2 = stream_destroy,
		.cuStreamQuery = stream_query,
		.cuStreamSynchronize = stream_synchronize,
		.cuStreamWaitEvent = stream_wait,
		.cuLaunchHostFunc = host_function,
		.cuEventCreate = event_create,
		.cuEventRecord = event_record,
		.cuEventQuery = event_query,
		.cuEventElapsedTime = event_elapsed,
		.cuEventDestroy_v2 = event_destroy,
		.cuDeviceGetUuid_v2 = device_uuid,
		.cuDeviceGetUuid = device_uuid,
		.cuDeviceCanAccessPeer = can_access,
		.cuCtxEnablePeerAccess = enable_access,
		.cuMemcpyPeerAsync = copy_peer,
	};
	standin_fill_launches(driver);
}
