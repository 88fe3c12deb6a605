/* The CPU back end: buffers. All memory is host memory, mapped for each buffer: it is zero and visible to the host,
 * whatever kind was asked for.
 *
 * Linux grants memory that it does not have, and ends a process when the memory is touched. So a buffer is refused
 * unless all of it fits: into the memory that is available now, less the granted memory of this device that is still
 * untouched (Linux still counts it as available), less a reserve for the rest of the machine. */
#include "common/base/list.h"
#include "common/base/reserve.h"
#include "engine/cpu/device.h"
#include "engine/device/host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum status cpu_memory(struct backend_device *device, uint64_t *total_bytes, uint64_t *free_bytes, struct error *error)
{
	int64_t total, available;
	(void)device;
	host_memory_read(&total, &available);
	if (total < 0 || available < 0)
		return error_set(error, STATUS_UNAVAILABLE, "/proc/meminfo lacks MemTotal and MemAvailable");
	*total_bytes = (uint64_t)total;
	*free_bytes = (uint64_t)available;
	return STATUS_OK;
}

// How much of the buffer has no memory behind it yet. What has been touched once stays.
static uint64_t untouched_bytes(struct backend_buffer *buffer)
{
	enum { PAGES = 16384 };
	unsigned char resident[PAGES];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = 0;
	for (uint64_t at = 0; !buffer->resident && at < buffer->bytes; at += PAGES * page) {
		uint64_t length = buffer->bytes - at < PAGES * page ? buffer->bytes - at : PAGES * page;
		uint64_t pages = (length + page - 1) / page;
		if (mincore(buffer->data + at, length, resident))
			return buffer->bytes; // cannot be told: as if none were
		for (uint64_t i = 0; i < pages; i++)
			bytes += resident[i] & 1 ? 0 : page;
	}
	buffer->resident = !bytes;
	return bytes;
}

static enum status room_check(struct backend_device *device, uint64_t bytes, struct error *error)
{
	uint64_t total = 0, available = 0, promised = 0, reserve;
	enum status status = cpu_memory(device, &total, &available, error);
	if (status)
		return status;
	reserve = reserve_bytes(total);
	for (struct backend_buffer *buffer = device->buffers; buffer; buffer = buffer->next)
		promised += untouched_bytes(buffer);
	if (promised + reserve <= available && bytes <= available - promised - reserve)
		return STATUS_OK;
	error_set(error, STATUS_OUT_OF_MEMORY,
		  "%llu bytes; of this machine's memory %llu are available, of which %llu are promised to other "
		  "buffers and %llu kept free",
		  (unsigned long long)bytes, (unsigned long long)available, (unsigned long long)promised,
		  (unsigned long long)reserve);
	error_hint(error, "free other memory, or ask for less");
	return STATUS_OUT_OF_MEMORY;
}

enum status cpu_buffer_create(struct backend_device *device, struct backend_buffer **out,
			      const struct backend_buffer_params *params, struct error *error)
{
	enum status status = params->imported ? STATUS_OK : room_check(device, params->bytes, error);
	if (status)
		return status;
	struct backend_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a buffer's record");
	void *data = params->imported
			     ? params->imported
			     : mmap(NULL, params->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED) {
		int number = errno;
		free(buffer);
		return error_errno(error, STATUS_OUT_OF_MEMORY, number, "mapping %llu bytes",
				   (unsigned long long)params->bytes);
	}
	if (!params->imported)
		madvise(data, params->bytes, MADV_HUGEPAGE); // only faster; refused is as good
	*buffer = (struct backend_buffer){
		.data = data, .bytes = params->bytes, .resident = params->imported, .imported = params->imported};
	LIST_PUSH(&device->buffers, buffer, link);
	*out = buffer;
	return STATUS_OK;
}

void cpu_buffer_destroy(struct backend_device *device, struct backend_buffer **buffer_pointer)
{
	struct backend_buffer *buffer = *buffer_pointer;
	(void)device;
	if (!buffer)
		return;
	LIST_REMOVE(buffer, link);
	if (!buffer->imported)
		munmap(buffer->data, buffer->bytes);
	free(buffer);
	*buffer_pointer = NULL;
}

void *cpu_buffer_pointer(struct backend_buffer *buffer)
{
	return buffer->data;
}
