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

enum status process_keep_secrets(struct error *error)
{
	const struct rlimit none = {0, 0};
	bool kept = !setrlimit(RLIMIT_CORE, &none);
#ifdef NDEBUG
	kept = kept && !prctl(PR_SET_DUMPABLE, 0);
#endif
	return kept ? STATUS_OK : error_errno(error, STATUS_UNAVAILABLE, errno, "core files cannot be switched off");
}
