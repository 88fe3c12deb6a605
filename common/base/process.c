/* See process.h. */
#include "common/base/process.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

size_t process_resident_pages(void)
{
	unsigned long total, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	if (!file)
		return 0;
	if (fscanf(file, "%lu %lu", &total, &resident) != 2)
		resident = 0;
	fclose(file);
	return resident;
}

enum status process_binary(char *path, size_t size, struct error *error)
{
	ssize_t length = readlink("/proc/self/exe", path, size - 1);
	if (length < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "/proc/self/exe cannot be read");
	path[length] = 0;
	return STATUS_OK;
}

// One byte: too little for a file, and the value by which Linux tells that it is not to be piped to a program either,
// where /proc/sys/kernel/core_pattern names one. With 0 it would be.
enum status process_leave_no_core(struct error *error)
{
	struct rlimit limit;
	bool set = !getrlimit(RLIMIT_CORE, &limit);
	limit.rlim_max = limit.rlim_max < 1 ? limit.rlim_max : 1;
	limit.rlim_cur = limit.rlim_max;
	set = set && !setrlimit(RLIMIT_CORE, &limit);
	return set ? STATUS_OK : error_errno(error, STATUS_UNAVAILABLE, errno, "core files cannot be switched off");
}

enum status process_keep_secrets(struct error *error)
{
#ifdef NDEBUG
	if (prctl(PR_SET_DUMPABLE, 0))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "this process can be looked into");
#endif
	return process_leave_no_core(error);
}
