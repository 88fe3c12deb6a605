/* See reading_inside.h: a folder of safetensors that was fetched. Files with tensors are NAME.part there, and the
 * journal beside each says which SHA-256 the hub promised (server/hub/fetch_weights.c). All are hashed; then the folder
 * gets another name, which says that this was done, and the files get theirs. So a stop at any moment loses nothing:
 * what was compared is not fetched, and not even hashed again. Thread: the one of the jobs. */
#include "server/hub/fetch.h"
#include "server/hub/fetch_part.h"
#include "server/library/reading_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum status for_file(struct reading_job *job, const char *file, struct error *error);

static bool ends_with(const char *text, const char *end)
{
	const size_t length = strlen(text), tail = strlen(end);
	return length > tail && !strcmp(text + length - tail, end);
}

// Call `work` with the path of each file whose name ends so, without that end, until there is an error.
static enum status each(struct reading_job *job, const char *folder, const char *end, for_file *work,
			struct error *error)
{
	DIR *directory = opendir(folder);
	enum status status = STATUS_OK;
	if (!directory)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be read", folder);
	for (struct dirent *entry; !status && (entry = readdir(directory));) {
		char file[FETCH_PATH_BYTES];
		const int length = snprintf(file, sizeof file, "%s/%s", folder, entry->d_name);
		if (length < 0 || (size_t)length >= sizeof file || !ends_with(file, end))
			continue;
		file[(size_t)length - strlen(end)] = 0;
		status = work(job, file, error);
	}
	closedir(directory);
	return status;
}

static enum status count_bytes(struct reading_job *job, const char *file, struct error *error)
{
	struct stat found;
	char path[FETCH_PATH_BYTES + 8];
	(void)error;
	snprintf(path, sizeof path, "%s.part", file);
	job->all_bytes += stat(path, &found) ? 0 : (uint64_t)found.st_size;
	return STATUS_OK;
}

static enum status say(const char *file, struct error *error)
{
	const struct error why = *error;
	*error = (struct error){0};
	error_set(error, why.status, "%.100s: %s", strrchr(file, '/') + 1, why.message);
	if (why.hint[0])
		error_hint(error, "%s", why.hint);
	return why.status;
}

// One that is wrong is deleted, and alone fetched when the model is added again.
static enum status check(struct reading_job *job, const char *file, struct error *error)
{
	char sha256[65];
	struct fetch_part part;
	struct reading_file read = {.fd = -1};
	fetch_part_init(&part, file);
	enum status status = fetch_part_complete(&part) ? reading_open(part.path, &read, error)
							: error_set(error, STATUS_UNAVAILABLE,
								    "not all of it is there; add the model again");
	if (!status)
		status = reading_hash(job, &read, sha256, error);
	if (!status && (status = reading_compare(part.identity.sha256, sha256, error))) {
		unlink(part.path);
		unlink(part.journal);
	}
	if (read.fd >= 0)
		close(read.fd);
	job->before_bytes += read.bytes;
	return status ? say(file, error) : STATUS_OK;
}

static enum status give_name(struct reading_job *job, const char *file, struct error *error)
{
	char path[FETCH_PATH_BYTES + 8];
	(void)job;
	snprintf(path, sizeof path, "%s.part", file);
	return rename(path, file) ? error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be renamed", path)
				  : STATUS_OK;
}

static enum status rename_folder(const struct reading_job *job, const char *from, const char *to, struct error *error)
{
	char around[READING_PATH_BYTES];
	snprintf(around, sizeof around, "%.*s", (int)(strrchr(job->place, '/') - job->place), job->place);
	const int fd = open(around, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const bool done = fd >= 0 && !rename(from, to) && !fsync(fd);
	const int number = errno;
	if (fd >= 0)
		close(fd);
	return done ? STATUS_OK : error_errno(error, STATUS_UNAVAILABLE, number, "%s cannot be renamed", from);
}

enum status reading_settle_folder(struct reading_job *job, struct error *error)
{
	char files[FETCH_PATH_BYTES], whole[FETCH_PATH_BYTES];
	enum status status = STATUS_OK;
	if (!fetch_folder_path(job->place, false, files, sizeof files) ||
	    !fetch_folder_path(job->place, true, whole, sizeof whole))
		return error_set(error, STATUS_INVALID_PARAMS, "the path of the folder is too long");
	if (!reading_is_folder(whole)) {
		job->before_bytes = job->all_bytes = 0;
		status = each(job, files, ".part", count_bytes, error);
		if (!status)
			status = each(job, files, ".part", check, error);
		if (!status)
			status = rename_folder(job, files, whole, error);
	}
	if (!status)
		status = each(job, whole, ".part", give_name, error);
	char *path = status ? NULL : strdup(whole);
	if (!status && !path)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read a model's file");
	if (path) {
		free(job->path);
		job->path = path;
	}
	return status;
}
