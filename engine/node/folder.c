/* See folder.h. */
#include "engine/node/folder.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
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

static bool is_orphan(const struct folder_lock_params *params)
{
	return params->parent && getppid() != params->parent;
}

// Until the lock is free. STATUS_CONFLICT: it is not to be waited for any more; STATUS_UNAVAILABLE with errno.
static enum status wait_for(int lock, const struct folder_lock_params *params)
{
	const struct timespec look = {.tv_nsec = LOCK_LOOK_MS * 1000000L};
	bool said = false;
	while (flock(lock, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return STATUS_UNAVAILABLE;
		if (!said)
			log_info("node", "another node serves %s: waiting for it to end", params->folder);
		said = true;
		if (is_orphan(params) || sigtimedwait(params->ends, NULL, &look) > 0)
			return STATUS_CONFLICT;
	}
	return STATUS_OK;
}

enum status folder_lock(const struct folder_lock_params *params, int *lock, struct error *error)
{
	char path[4096 + 8];
	enum status status = STATUS_OK;
	snprintf(path, sizeof(path), "%s/lock", params->folder);
	*lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*lock < 0) {
		error_hint(error, "make %.150s writable for this user, or give another --data", params->folder);
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s", path);
	}
	if (params->parent)
		prctl(PR_SET_PDEATHSIG, SIGTERM); // which then ends the wait at once, and not at the next look
	status = wait_for(*lock, params);
	const int fault = errno;
	prctl(PR_SET_PDEATHSIG, 0); // who has the lock outlives its server
	return status == STATUS_UNAVAILABLE ? error_errno(error, status, fault, "locking %.200s", path) : status;
}
