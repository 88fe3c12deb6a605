/* Files are opened, and their model is described; see reading.h. */
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "server/library/reading_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

bool reading_is_folder(const char *path)
{
	struct stat found;
	return !stat(path, &found) && S_ISDIR(found.st_mode);
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

static struct gguf *open_gguf(const char *path)
{
	struct reading_file file;
	struct error fault = {0};
	struct gguf *gguf = NULL;
	if (!reading_open(path, &file, &fault) && gguf_open(&gguf, file.fd, &fault))
		gguf = NULL;
	if (file.fd >= 0)
		close(file.fd);
	return gguf;
}

enum status reading_same_tokens(const char *model_path, const char *draft_path, struct error *error)
{
	struct error fault = {0};
	struct gguf *model = open_gguf(model_path), *draft = open_gguf(draft_path);
	enum status status = model && draft ? tokenizers_same(model, draft, &fault) : STATUS_OK;
	if (status && !gguf_cut(model) && !gguf_cut(draft)) {
		error_set(error, status, "it cannot be this model's draft: %s", fault.message);
		error_hint(error, "a draft has the same tokens; smaller models of one family often do");
	} else {
		status = STATUS_OK;
	}
	gguf_destroy(&model);
	gguf_destroy(&draft);
	return status;
}
