/* See data_directory.h. The lock goes with the process, however it ends; the file stays and names the last holder. */
#include "server/data_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// mkdir -p, the last part with mode 0700.
static enum status make(const char *path, struct error *error)
{
	char part[4096];
	for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof part, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
		if (mkdir(part, slash ? 0755 : 0700) < 0 && errno != EEXIST) {
			int number = errno;
			error_errno(error, STATUS_FORBIDDEN, number, "the data directory %s cannot be made", path);
			error_hint(error, "choose another with --data DIR");
			return STATUS_FORBIDDEN;
		}
		if (!slash)
			return STATUS_OK;
	}
}

static enum status check(const char *path, struct error *error)
{
	struct stat status;
	if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)) {
		error_set(error, STATUS_FORBIDDEN, "%s is not a directory", path);
		error_hint(error, "choose another with --data DIR");
		return STATUS_FORBIDDEN;
	}
	if (status.st_uid != geteuid() && geteuid() != 0) {
		error_set(error, STATUS_FORBIDDEN, "the data directory %s belongs to another user", path);
		error_hint(error, "run exogpu as that user, or choose another with --data DIR");
		return STATUS_FORBIDDEN;
	}
	if (access(path, W_OK | X_OK) < 0) {
		error_set(error, STATUS_FORBIDDEN, "the data directory %s is not writable", path);
		error_hint(error, "chmod u+rwx it, or choose another with --data DIR");
		return STATUS_FORBIDDEN;
	}
	if (status.st_mode & 077 && chmod(path, 0700) < 0)
		return error_errno(error, STATUS_FORBIDDEN, errno, "others can read %s", path);
	return STATUS_OK;
}

static enum status lock_held(int fd, const char *path, struct error *error)
{
	char holder[24] = "";
	ssize_t length = pread(fd, holder, sizeof holder - 1, 0);
	long pid = length > 0 ? strtol(holder, NULL, 10) : 0;
	if (pid)
		error_set(error, STATUS_CONFLICT, "another server runs on %s (process %ld)", path, pid);
	else
		error_set(error, STATUS_CONFLICT, "another server runs on %s", path);
	error_hint(error, "stop that one, or choose another data directory with --data DIR");
	return STATUS_CONFLICT;
}

enum status data_directory_open(const char *path, int *lock, struct error *error)
{
	char file[4112];
	*lock = -1;
	enum status status = make(path, error);
	if (!status)
		status = check(path, error);
	if (status)
		return status;
	snprintf(file, sizeof file, "%s/lock", path);
	// Not through a link: who could write here before us must not have us overwrite what they cannot.
	struct stat held;
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd >= 0 && (fstat(fd, &held) < 0 || !S_ISREG(held.st_mode) || held.st_nlink != 1)) {
		close(fd);
		error_set(error, STATUS_FORBIDDEN, "%s is not a regular file", file);
		error_hint(error, "remove it, or choose another data directory with --data DIR");
		return STATUS_FORBIDDEN;
	}
	if (fd < 0) {
		int number = errno;
		error_errno(error, STATUS_FORBIDDEN, number, "%s cannot be opened", file);
		error_hint(error, "choose another data directory with --data DIR");
		return STATUS_FORBIDDEN;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		status = errno == EWOULDBLOCK
				 ? lock_held(fd, path, error)
				 : error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be locked", file);
		close(fd);
		return status;
	}
	char text[24];
	int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)length, 0) < 0) {
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be written", file);
		error_hint(error, "is the disk full?");
		close(fd);
		return status;
	}
	*lock = fd;
	return STATUS_OK;
}
