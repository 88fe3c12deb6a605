/* A user of its own for each worker, where the node is root.
 *
 * The number comes from the process's own, so that no two workers of a machine have the same: above 1879048192, which
 * systemd's list of numbers leaves unused; in a container that maps 65,536 users only, 61185 to 65519. Nobody owns a
 * file by such a number, no process has it but this, and so the kernel lets this one signal, trace and schedule nobody.
 * It keeps the groups by which the device nodes of GPUs are opened. What it holds open stays open.
 *
 * The first number of either kind, which no process's number leads to, is for workers that fill the cache of compiled
 * kernels: it owns that folder, which so has one owner whatever worker put a file there. */
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
		return EPERM; // it could not be given away, and nobody but its owner can write there
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
