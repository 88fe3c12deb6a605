/* Files are opened and looked into here; see reading.h. A file is read, never mapped: if it becomes shorter meanwhile
 * or the disk fails, read() returns an error and no signal ends the server. Only the header is in memory, at the
 * beginning of a reserved range as long as the file, so that every offset is inside the range. */
#include "common/base/limits.h"
#include "engine/text/chat.h"
#include "server/library/reading_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_HEADER_BYTES = 16 * 1024 * 1024 };

enum status reading_error(const char *path, ssize_t length, struct error *error)
{
	if (length < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", path);
	return error_set(error, STATUS_UNAVAILABLE, "%s has become shorter while it was read", path);
}

// The first `length` bytes, to the beginning of `range`.
static enum status fill(const struct reading_file *file, uint8_t *range, size_t from, size_t length,
			struct error *error)
{
	while (from < length) {
		ssize_t got = pread(file->fd, range + from, length - from, (off_t)from);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return reading_error(file->path, got, error);
		from += (size_t)got;
	}
	return STATUS_OK;
}

// A file's own name for what most of it is in: Q4_1, though that is held as F16.
static void name_format(const struct gguf *gguf, char *out, size_t size)
{
	uint64_t formats[FORMAT_COUNT] = {0}, packings[PACKING_COUNT] = {0}, most = 0;
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor(gguf, i);
		uint64_t *bytes = tensor->packing ? &packings[tensor->packing] : &formats[tensor->format];
		*bytes += tensor->bytes;
		if (*bytes > most) {
			most = *bytes;
			snprintf(out, size, "%s",
				 tensor->packing ? packing_info(tensor->packing)->name
						 : format_info(tensor->format)->name);
		}
	}
}

enum status reading_describe(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct reading_result *result = context;
	struct model *model = NULL;
	(void)bytes;
	enum status status = model_open(&model, gguf, error);
	if (status)
		return status;
	result->shape = *model_shape(model);
	model_sizes(model, &result->sizes);
	model_destroy(&model);
	name_format(gguf, result->file_format, sizeof result->file_format);
	struct chat_template template;
	if (!chat_template_of_file(gguf, &template, &(struct error){0}) && template.name)
		snprintf(result->chat_template, sizeof result->chat_template, "%s", template.name);
	chat_template_finish(&template);
	sampling_of_file(gguf, &result->sampling);
	return STATUS_OK;
}

// With more of the file in memory if less was not enough: how long a header is stands nowhere.
enum status reading_look_into(const struct reading_look *look, struct error *error)
{
	enum status status = STATUS_PENDING;
	struct error fault = {0};
	const struct reading_file file = {.path = look->path, .fd = look->fd, .bytes = look->bytes};
	const size_t bytes = (size_t)look->bytes,
		     most = look->there < LIMIT_MODEL_HEADER_BYTES ? (size_t)look->there : LIMIT_MODEL_HEADER_BYTES;
	size_t filled = 0;
	uint8_t *range = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED)
		return error_errno(error, STATUS_OUT_OF_MEMORY, errno, "no room to look into %s", look->path);
	while (status == STATUS_PENDING && filled < most) {
		struct gguf *gguf = NULL;
		const size_t wanted = !filled && most > FIRST_HEADER_BYTES ? FIRST_HEADER_BYTES : most;
		fault = (struct error){0};
		status = fill(&file, range, filled, wanted, &fault);
		filled = wanted;
		if (!status)
			status = gguf_parse_beginning(&gguf, range, filled, bytes, &fault);
		if (!status)
			status = look->look(look->context, range, gguf, &fault);
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

enum status reading_judge(const char *path, int fd, uint64_t bytes, uint64_t there, struct error *error)
{
	const struct reading_look look = {.path = path, .fd = fd, .bytes = bytes, .there = there, .look = judge};
	return reading_look_into(&look, error);
}

// Folders that systemd units with ProtectHome cannot see, whatever their permissions.
static bool is_home(const char *path)
{
	return !strncmp(path, "/home/", 6) || !strncmp(path, "/run/user/", 10);
}

static enum status cannot_open(const char *path, int number, struct error *error)
{
	error_errno(error, number == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, number, "%s cannot be opened",
		    path);
	if (number != EACCES && number != ENOENT)
		return error->status;
	if (is_home(path))
		error_hint(error,
			   "the path is on the server's machine; as a service it cannot see /home and "
			   "/run/user (ProtectHome in exogpu.service): put the file elsewhere, in /srv say, or let "
			   "`systemctl edit exogpu` set ProtectHome=read-only");
	else
		error_hint(error, "the path is one of the server's machine, and the server's user must be able to "
				  "read it");
	return error->status;
}

enum status reading_open(const char *path, struct reading_file *file, struct error *error)
{
	struct stat found;
	*file = (struct reading_file){.path = path};
	// Without waiting: it may be a pipe.
	file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (file->fd < 0)
		return cannot_open(path, errno, error);
	if (fstat(file->fd, &found))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", path);
	if (!S_ISREG(found.st_mode))
		return error_set(error, STATUS_INVALID_PARAMS, "%s is not a file", path);
	if (!found.st_size)
		return error_set(error, STATUS_INVALID_PARAMS, "%s is empty", path);
	file->bytes = (uint64_t)found.st_size;
	file->modified_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
	return STATUS_OK;
}

bool reading_look(const char *path, uint64_t *bytes, int64_t *modified_ns)
{
	struct stat found;
	if (stat(path, &found) || !S_ISREG(found.st_mode))
		return false;
	*bytes = (uint64_t)found.st_size;
	*modified_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
	return true;
}
