/* See private_file.h. */
#include "common/files/private_file.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The whole file gets its room at once: what a growing buffer leaves behind is not wiped.
static enum status check(int fd, const char *path, struct buffer *out, struct error *error)
{
	struct stat file;
	if (fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_uid != geteuid()) {
		error_set(error, STATUS_FORBIDDEN, "%.200s is not a plain file of this user's own", path);
		error_hint(error, "chown it to the user that exogpu runs as, or put it out of the way");
		return STATUS_FORBIDDEN;
	}
	if (file.st_mode & 077) {
		log_warning("files", "%s could be read by others (mode %04o); it is private again", path,
			    (unsigned)file.st_mode & 07777);
		if (fchmod(fd, 0600))
			return error_errno(error, STATUS_FORBIDDEN, errno, "others can read %.200s", path);
	}
	enum status status = buffer_reserve(out, (size_t)file.st_size);
	if (!status)
		status = buffer_append(out, "", 0); // its end, should nothing follow
	return status ? error_set(error, status, "%.200s is too long: %lld bytes", path, (long long)file.st_size)
		      : STATUS_OK;
}

static enum status read_all(int fd, const char *path, struct buffer *out, struct error *error)
{
	uint8_t piece[4096];
	for (;;) {
		ssize_t length = read(fd, piece, sizeof(piece));
		if (length < 0 && errno == EINTR)
			continue;
		if (length < 0)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be read", path);
		if (!length)
			return STATUS_OK;
		enum status status = buffer_append(out, piece, (size_t)length);
		explicit_bzero(piece, sizeof(piece));
		if (status)
			return error_set(error, status, "%.200s is too long: over %zu bytes", path, out->maximum);
	}
}

enum status private_file_read(const char *path, struct buffer *out, struct error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return STATUS_NOT_FOUND;
	if (fd < 0) {
		error_errno(error, STATUS_FORBIDDEN, errno, "%.200s cannot be opened", path);
		error_hint(error, "it must be a plain file that the user whom exogpu runs as may read");
		return STATUS_FORBIDDEN;
	}
	enum status status = check(fd, path, out, error);
	if (!status)
		status = read_all(fd, path, out, error);
	close(fd);
	return status;
}

static bool write_all(int fd, const char *bytes, size_t length)
{
	while (length) {
		ssize_t wrote = write(fd, bytes, length);
		if (wrote < 0 && errno != EINTR)
			return false;
		if (wrote > 0) {
			bytes += wrote;
			length -= (size_t)wrote;
		}
	}
	return true;
}

// The new name is on disk too.
static void sync_directory(const char *path)
{
	char directory[PATH_MAX];
	const char *slash = strrchr(path, '/');
	snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		log_warning("files", "cannot sync %s: %s", directory, strerror(errno));
	if (fd >= 0)
		close(fd);
}

enum status private_file_write(const struct private_file *file, struct error *error)
{
	char part[PATH_MAX];
	int length = snprintf(part, sizeof(part), "%s.part", file->path), number = 0;
	if (length < 0 || (size_t)length >= sizeof(part))
		return error_set(error, STATUS_INVALID_PARAMS, "the path %.200s is too long", file->path);
	unlink(part); // left by a process that was cut short
	int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || !write_all(fd, file->bytes, file->length) || (file->sync && fsync(fd)))
		number = errno;
	if (fd >= 0 && close(fd) && !number)
		number = errno;
	if (!number && rename(part, file->path))
		number = errno;
	if (number) {
		unlink(part);
		error_errno(error, STATUS_UNAVAILABLE, number, "%.200s cannot be written", file->path);
		error_hint(error, "check the permissions and the free space of the data directory");
		return STATUS_UNAVAILABLE;
	}
	if (file->sync)
		sync_directory(file->path);
	return STATUS_OK;
}
