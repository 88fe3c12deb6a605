/* See cache.h. */
#include "engine/node/cache.h"

#include "common/files/paths.h"
#include "engine/worker/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 8 }; // of folders that drivers make there

// Give an open folder, which is closed, and everything below it to the user of workers that fill it. Those workers can
// read but not change files that could not be given away. No link is followed, and a file with a second name, which may
// be anywhere, is left alone.
static void give(int folder, unsigned depth)
{
	struct stat info;
	DIR *list = fdopendir(folder);
	for (struct dirent *one; list && (one = readdir(list));) {
		const bool dots = !strcmp(one->d_name, ".") || !strcmp(one->d_name, "..");
		int fd = dots ? -1
			      : openat(folder, one->d_name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &info)) {
			if (fd >= 0)
				close(fd);
		} else if (S_ISDIR(info.st_mode) && depth) {
			give(fd, depth - 1);
		} else {
			if (S_ISREG(info.st_mode) && info.st_nlink == 1)
				worker_give_cache(fd);
			close(fd);
		}
	}
	worker_give_cache(folder);
	if (list)
		closedir(list);
	else
		close(folder);
}

// `variable` may be NULL: no driver looks there.
static enum status make(const char *parent, const char *name, const char *variable, struct error *error)
{
	char path[4096];
	enum status status = paths_join(parent, name, path, sizeof(path), error);
	if (status)
		return status;
	// Below the data directory no other user has access: open it for workers, which have users of their own. If
	// something other than a folder is in its place, a worker has created it.
	struct stat info;
	if (variable && !lstat(path, &info) && !S_ISDIR(info.st_mode))
		unlink(path);
	mkdir(path, 0755); // or it is there
	// The outermost may be a link of the operator's: no worker writes where that lies.
	const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (variable ? O_NOFOLLOW : 0));
	// Without a right to, the mode of another's folder stays.
	const bool done = folder >= 0 && (!fchmod(folder, 0755) || errno == EPERM) &&
			  (!variable || !setenv(variable, path, 1));
	if (!done)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be made", path);
	if (folder >= 0)
		close(folder);
	return status;
}

enum status cache_prepare(const char *data, char *path, size_t size, struct error *error)
{
	enum status status = paths_join(data, "cache", path, size, error);
	if (!status)
		status = make(data, "cache", NULL, error);
	if (!status)
		status = make(path, "cuda", "CUDA_CACHE_PATH", error);
	if (!status)
		status = make(path, "mesa", "MESA_SHADER_CACHE_DIR", error);
	unsetenv("MESA_SHADER_CACHE_DISABLE");
	const int folder = status || geteuid() ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder >= 0)
		give(folder, DEPTH);
	return status;
}
