/* See cache.h. */
#include "engine/node/cache.h"

#include "common/base/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

// `variable` may be NULL: no driver looks there.
static enum status make(const char *parent, const char *name, const char *variable, struct error *error)
{
	char path[4096];
	enum status status = paths_join(parent, name, path, sizeof(path), error);
	if (status)
		return status;
	if ((mkdir(path, 0700) && errno != EEXIST) || (variable && setenv(variable, path, 1)))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be made", path);
	return STATUS_OK;
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
	return status;
}
