/* Gives each worker a user id of its own, if the node is root.
 *
 * The user id follows from the process id, so that no two workers of a machine have the same: it lies above 1879048192,
 * which systemd's list of ids leaves unused; in a container that maps only 65,536 users, it is 61185 to 65519. No file
 * and no other process has such an id, so the kernel lets this process signal, trace and schedule no other. It keeps
 * the groups that may open the device nodes of GPUs. Open descriptors stay open.
 *
 * The first id of either range does not follow from any process id: it is for workers that fill the cache of compiled
 * kernels. It owns that folder, so the folder has one owner for the files of all these workers. */
#include "engine/worker/confine/reach.h"
#include "engine/worker/confine/sandbox.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST = 0x70000000, FEW_FIRST = 61184, FEW = 4336 };

static const uid_t fillers[] = {FIRST, FEW_FIRST};

pid_t user_outer_pid(void)
{
	char text[32];
	const ssize_t length = readlink("/proc/self", text, sizeof(text) - 1);
	text[length > 0 ? length : 0] = 0;
	const long number = strtol(text, NULL, 10);
	return number > 0 ? (pid_t)number : getpid();
}

static bool is_filler(uid_t user)
{
	return user == fillers[0] || user == fillers[1];
}

int worker_give_cache(int file)
{
	gid_t groups[REACH_GROUPS];
	struct stat info;
	if (fstat(file, &info))
		return errno;
	if (info.st_uid != geteuid() && !is_filler(info.st_uid))
		return EPERM;
	if (reach_groups(groups) < 0) // workers stay root
		return fchown(file, geteuid(), getegid()) ? errno : 0;
	for (size_t i = 0; i < sizeof(fillers) / sizeof(fillers[0]); i++)
		if (!fchown(file, fillers[i], fillers[i]))
			return 0;
		else if (errno != EINVAL) // not a number of this container's
			return errno;
	return EINVAL;
}

int user_become(pid_t outer_pid, const char *cache)
{
	gid_t groups[REACH_GROUPS];
	struct stat info;
	uid_t wanted[] = {FIRST + (uid_t)outer_pid, FEW_FIRST + 1 + (uid_t)outer_pid % (FEW - 1)};
	const int count = reach_groups(groups);
	if (count < 0)
		return EACCES; // the driver comes first
	if (cache && stat(cache, &info))
		return errno;
	if (cache && !is_filler(info.st_uid))
		return EPERM; // chown failed, and only the owner can write there
	if (cache)
		wanted[0] = wanted[1] = info.st_uid;
	if (setgroups((size_t)count, groups))
		return errno;
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		if (setresgid(wanted[i], wanted[i], wanted[i]) && errno == EINVAL)
			continue; // not a number of this container's
		return setresuid(wanted[i], wanted[i], wanted[i]) ? errno : 0;
	}
	return EINVAL;
}
