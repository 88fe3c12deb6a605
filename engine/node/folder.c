/* See folder.h. */
#include "engine/node/folder.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_LOOK_MS = 500 };

enum status folder_make(const char *path, struct error *error)
{
	char part[4096];
	for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", slash ? (int)(slash - path) : (int)sizeof(part) - 1, path);
		if (mkdir(part, 0700) && errno != EEXIST) {
			int number = errno;
			error_hint(error, "make its parent writable for this user, or give another --data");
			return error_errno(error, STATUS_UNAVAILABLE, number, "%.200s cannot be made", part);
		}
		if (!slash)
			return STATUS_OK;
	}
}

enum status folder_lock(const char *folder, const sigset_t *ends, int *lock, struct error *error)
{
	char path[4096 + 8];
	bool said = false;
	snprintf(path, sizeof(path), "%s/lock", folder);
	*lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*lock < 0) {
		error_hint(error, "make %.150s writable for this user, or give another --data", folder);
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s", path);
	}
	while (flock(*lock, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "locking %.200s", path);
		if (!said)
			log_info("node", "another node serves %s: waiting for it to end", folder);
		said = true;
		if (sigtimedwait(ends, NULL, &(struct timespec){.tv_nsec = LOCK_LOOK_MS * 1000000L}) > 0)
			return STATUS_CONFLICT;
	}
	return STATUS_OK;
}
