/* The slots of the CPU back end that verification and measuring still use; they go once those stand on the new ones.
 * Thread: see backend.h; a launch starts its own threads and joins them. */
#include "engine/cpu/old.h"

#include "engine/cpu/old_kernels.h"
#include "engine/device/host.h"
#include "engine/device/identity.h"

#include <errno.h>
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

enum status old_cpu_open(struct old_device **out, const char *hardware_key, struct error *error)
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

void old_cpu_buffer_destroy(struct old_device *device, struct old_buffer **buffer)
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

void old_cpu_close(struct old_device **device)
{
	if (!*device)
		return;
	while ((*device)->buffers) {
		struct old_buffer *buffer = (*device)->buffers;
		old_cpu_buffer_destroy(*device, &buffer);
	}
	free(*device);
	*device = NULL;
}

// A stream of four times the last-level cache; where that is unusually large or memory is short, less is read, and the
// figure is then that of the cache in part.
void old_cpu_limits(const struct old_device *device, struct old_limits *limits)
{
	const uint64_t least = 256ull << 20, most = 1024ull << 20;
	uint64_t cache = device->host.last_level_bytes > 0 ? (uint64_t)device->host.last_level_bytes : 0;
	uint64_t available = device->host.available_bytes > 0 ? (uint64_t)device->host.available_bytes : 8 * least;
	uint64_t bytes = 4 * cache < least ? least : 4 * cache > most ? most : 4 * cache;
	*limits = (struct old_limits){.buffer_bytes = available,
				      .stream_bytes = bytes < available / 8 ? bytes : available / 8};
}

enum status old_cpu_buffer_create(struct old_device *device, struct old_buffer **out, uint64_t bytes,
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

enum status old_cpu_write(struct old_device *device, struct old_buffer *to, const void *from, uint64_t bytes,
			  struct error *error)
{
	(void)device, (void)error;
	memcpy(to->data, from, bytes);
	return STATUS_OK;
}

enum status old_cpu_copy(struct old_device *device, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			 struct error *error)
{
	(void)device, (void)error;
	memcpy(to->data, from->data, bytes);
	return STATUS_OK;
}

enum status old_cpu_read(struct old_device *device, void *to, struct old_buffer *from, uint64_t bytes,
			 struct error *error)
{
	(void)device, (void)error;
	memcpy(to, from->data, bytes);
	return STATUS_OK;
}

enum status old_cpu_launch(struct old_device *device, const struct old_launch *launch, int64_t *device_ns,
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
