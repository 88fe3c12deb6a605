/* The CPU back end: this machine's processor as one device.
 *
 * Its memory is the host's, so write, copy and read are memory copies; kernels (verify.c) run on all processors that
 * this process may use. A device owns the list of its buffers and unmaps what is left when it is closed.
 * Thread: see backend.h; a launch starts its own threads and joins them. */
#include "engine/backend.h"

#include "engine/cpu/kernels.h"
#include "engine/device/host.h"
#include "engine/device/identity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct old_buffer {
	struct old_buffer *next;
	void *data;
	uint64_t bytes;
};

struct old_device {
	struct old_buffer *buffers;
	struct host_cpu host;
};

static void add_formats(struct device_info *info)
{
	static const char *const always[] = {"f64", "f32", "i64", "i32", "i16", "i8"};
	for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		words_add(info->formats, sizeof(info->formats), always[i]);
	if (words_have(info->features, "f16c") || words_have(info->features, "neon_fp16"))
		words_add(info->formats, sizeof(info->formats), "f16");
	if (words_have(info->features, "avx512_bf16") || words_have(info->features, "amx_bf16") ||
	    words_have(info->features, "bf16"))
		words_add(info->formats, sizeof(info->formats), "bf16");
}

static enum status cpu_enumerate(struct found *found, struct error *error)
{
	struct device_info *info = found_add_device(found);
	if (!info)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "more than %d devices", INFO_DEVICES);
	struct host_cpu host;
	host_cpu_read(&host);
	info->backend = BACKEND_CPU;
	identity_cpu(info->hardware_key);
	text_copy(info->model, sizeof(info->model), host.model[0] ? host.model : "CPU");
	text_copy(info->name, sizeof(info->name), info->model);
	text_copy(info->vendor, sizeof(info->vendor), host.vendor[0] ? host.vendor : "unknown");
	text_copy(info->family, sizeof(info->family), host.family);
	info->kind = DEVICE_CPU;
	info->unified_memory = true;
	text_copy(info->memory_pool, sizeof(info->memory_pool), IDENTITY_HOST_POOL);
	info->memory_bytes = host.memory_bytes;
	info->memory_budget_bytes = host.available_bytes;
	info->compute_units = host.cores > 0 ? host.cores : host.threads;
	text_copy(info->features, sizeof(info->features), host.features);
	add_formats(info);
	info->support = SUPPORT_FULL;
	return STATUS_OK;
}

static void cpu_close(struct old_device **device);

static enum status cpu_open(struct old_device **out, const char *hardware_key, struct error *error)
{
	char key[INFO_KEY_BYTES];
	identity_cpu(key);
	if (strcmp(hardware_key, key))
		return error_set(error, STATUS_NOT_FOUND, "the CPU back end has no device %s", hardware_key);
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the device");
	host_cpu_read(&(*out)->host);
	return STATUS_OK;
}

static void cpu_buffer_destroy(struct old_device *device, struct old_buffer **buffer)
{
	if (!*buffer)
		return;
	for (struct old_buffer **link = &device->buffers; *link; link = &(*link)->next)
		if (*link == *buffer) {
			*link = (*buffer)->next;
			break;
		}
	munmap((*buffer)->data, (*buffer)->bytes);
	free(*buffer);
	*buffer = NULL;
}

static void cpu_close(struct old_device **device)
{
	if (!*device)
		return;
	while ((*device)->buffers) {
		struct old_buffer *buffer = (*device)->buffers;
		cpu_buffer_destroy(*device, &buffer);
	}
	free(*device);
	*device = NULL;
}

// A stream of four times the last-level cache; where that is unusually large or memory is short, less is read, and the
// figure is then that of the cache in part.
static void cpu_limits(const struct old_device *device, struct old_limits *limits)
{
	const uint64_t least = 256ull << 20, most = 1024ull << 20;
	uint64_t cache = device->host.last_level_bytes > 0 ? (uint64_t)device->host.last_level_bytes : 0;
	uint64_t available = device->host.available_bytes > 0 ? (uint64_t)device->host.available_bytes : 8 * least;
	uint64_t bytes = 4 * cache < least ? least : 4 * cache > most ? most : 4 * cache;
	*limits = (struct old_limits){.buffer_bytes = available,
				      .stream_bytes = bytes < available / 8 ? bytes : available / 8};
}

static enum status cpu_buffer_create(struct old_device *device, struct old_buffer **out, uint64_t bytes,
				     struct error *error)
{
	struct old_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	buffer->bytes = bytes;
	buffer->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer->data == MAP_FAILED) {
		int number = errno;
		free(buffer);
		return error_errno(error, STATUS_OUT_OF_MEMORY, number, "mapping %llu bytes",
				   (unsigned long long)bytes);
	}
	madvise(buffer->data, bytes, MADV_HUGEPAGE); // only faster; refused is as good
	buffer->next = device->buffers;
	device->buffers = buffer;
	*out = buffer;
	return STATUS_OK;
}

static enum status cpu_write(struct old_device *device, struct old_buffer *to, const void *from, uint64_t bytes,
			     struct error *error)
{
	(void)device, (void)error;
	memcpy(to->data, from, bytes);
	return STATUS_OK;
}

static enum status cpu_copy(struct old_device *device, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error)
{
	(void)device, (void)error;
	memcpy(to->data, from->data, bytes);
	return STATUS_OK;
}

static enum status cpu_read(struct old_device *device, void *to, struct old_buffer *from, uint64_t bytes,
			    struct error *error)
{
	(void)device, (void)error;
	memcpy(to, from->data, bytes);
	return STATUS_OK;
}

static enum status cpu_launch(struct old_device *device, const struct old_launch *launch, int64_t *device_ns,
			      struct error *error)
{
	struct cpu_launch run = {.kernel = launch->kernel,
				 .elements = launch->elements,
				 .repeat = launch->repeat,
				 .threads = device->host.usable_threads};
	for (int i = 0; i < OLD_LAUNCH_BUFFERS; i++)
		run.buffers[i] = launch->buffers[i] ? launch->buffers[i]->data : NULL;
	memcpy(run.constants, launch->constants, sizeof(run.constants));
	return cpu_launch_run(&run, device_ns, error);
}

const struct backend backend_cpu = {
	.kind = BACKEND_CPU,
	.enumerate = cpu_enumerate,
	.old_open = cpu_open,
	.old_close = cpu_close,
	.old_limits = cpu_limits,
	.old_buffer_create = cpu_buffer_create,
	.old_buffer_destroy = cpu_buffer_destroy,
	.old_write = cpu_write,
	.old_copy = cpu_copy,
	.old_read = cpu_read,
	.old_launch = cpu_launch,
};
