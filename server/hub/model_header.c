/* See model_header.h. A file is read, never mapped: if it becomes shorter meanwhile or the disk fails, read() returns
 * an error and no signal ends the server. Only the header is in memory, at the beginning of a reserved range as long as
 * the file, so that every offset is inside the range. */
#include "server/hub/model_header.h"

#include "common/base/limits.h"
#include "engine/model/model.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST_HEADER_BYTES = 16 * 1024 * 1024 };

enum status model_file_error(const char *path, ssize_t length, struct error *error)
{
	if (length < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", path);
	return error_set(error, STATUS_UNAVAILABLE, "%s has become shorter while it was read", path);
}

// The first `length` bytes, to the beginning of `range`.
static enum status fill(const struct model_header *file, uint8_t *range, size_t from, size_t length,
			struct error *error)
{
	while (from < length) {
		ssize_t got = pread(file->fd, range + from, length - from, (off_t)from);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return model_file_error(file->path, got, error);
		from += (size_t)got;
	}
	return STATUS_OK;
}

// With more of the file in memory if less was not enough: how long a header is stands nowhere.
enum status model_header_read(const struct model_header *header, struct error *error)
{
	enum status status = STATUS_PENDING;
	struct error fault = {0};
	const size_t bytes = (size_t)header->bytes,
		     most = header->there < LIMIT_MODEL_HEADER_BYTES ? (size_t)header->there : LIMIT_MODEL_HEADER_BYTES;
	size_t filled = 0;
	uint8_t *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return error_errno(error, STATUS_OUT_OF_MEMORY, errno, "no room to look into %s", header->path);
	while (status == STATUS_PENDING && filled < most) {
		struct gguf *gguf = NULL;
		const size_t wanted = !filled && most > FIRST_HEADER_BYTES ? FIRST_HEADER_BYTES : most;
		fault = (struct error){0};
		status = fill(header, range, filled, wanted, &fault);
		filled = wanted;
		if (!status)
			status = gguf_parse_beginning(&gguf, range, filled, bytes, &fault);
		if (!status)
			status = header->look(header->context, range, gguf, &fault);
		gguf_destroy(&gguf);
	}
	munmap(range, bytes);
	if (status == STATUS_PENDING && filled == LIMIT_MODEL_HEADER_BYTES)
		status = error_set(&fault, STATUS_LIMIT_EXCEEDED, "the header of the model file has more than %d bytes",
				   LIMIT_MODEL_HEADER_BYTES);
	if (status && error)
		*error = fault;
	return status;
}

static enum status judge(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct model *model = NULL;
	enum status status = model_open(&model, gguf, error);
	(void)context, (void)bytes;
	model_destroy(&model);
	return status;
}

enum status model_header_judge(const char *path, int fd, uint64_t bytes, uint64_t there, struct error *error)
{
	const struct model_header header = {.path = path, .fd = fd, .bytes = bytes, .there = there, .look = judge};
	return model_header_read(&header, error);
}
