/* See paths.h. A relative path is made absolute, because child processes may run in another directory. */
#include "common/files/paths.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRY_BYTES = 4096 }; // of the user database; a longer entry counts as none

static const char *variable(const char *name)
{
	const char *value = getenv(name);
	return value && value[0] ? value : NULL;
}

static enum status too_long(enum status status, struct error *error)
{
	error_set(error, status, "the path of the data directory is too long");
	error_hint(error, "name a shorter one with --data DIR");
	return status;
}

enum status paths_join(const char *directory, const char *name, char *path, size_t size, struct error *error)
{
	size_t length = strlen(directory);
	const char *slash = length && directory[length - 1] == '/' ? "" : "/";
	int written = snprintf(path, size, "%s%s%s", directory, slash, name);
	if (written < 0 || (size_t)written >= size)
		return too_long(STATUS_INVALID_PARAMS, error);
	return STATUS_OK;
}

// Without HOME, as in some services, the user database has the home directory.
static enum status home_directory(char *home, size_t size, struct error *error)
{
	char entry[ENTRY_BYTES];
	struct passwd user, *found = NULL;
	const char *directory = variable("HOME");
	if (!directory && !getpwuid_r(getuid(), &user, entry, sizeof entry, &found) && found)
		directory = user.pw_dir;
	if (!directory || directory[0] != '/') {
		error_set(error, STATUS_UNAVAILABLE, "there is no home directory to keep data in");
		error_hint(error, "name a directory with --data DIR or EXOGPU_DATA");
		return STATUS_UNAVAILABLE;
	}
	int written = snprintf(home, size, "%s", directory);
	return written < 0 || (size_t)written >= size ? too_long(STATUS_INVALID_PARAMS, error) : STATUS_OK;
}

static enum status make_absolute(const char *given, char *path, size_t size, struct error *error)
{
	if (given[0] == '/')
		return paths_join(given, "", path, size, error);
	if (!getcwd(path, size)) {
		enum status status = error_errno(error, STATUS_UNAVAILABLE, errno,
						 "the current directory is not known");
		error_hint(error, "name the data directory by its absolute path");
		return status;
	}
	size_t used = strlen(path);
	int written = snprintf(path + used, size - used, "%s%s", used == 1 ? "" : "/", given);
	return written < 0 || (size_t)written >= size - used ? too_long(STATUS_INVALID_PARAMS, error) : STATUS_OK;
}

enum status paths_data_directory(const char *flag, char *path, size_t size, struct error *error)
{
	enum status status;
	const char *named = flag && flag[0] ? flag : variable("EXOGPU_DATA"), *shared = variable("XDG_DATA_HOME");
	if (named) {
		status = make_absolute(named, path, size, error);
	} else if (shared && shared[0] == '/') {
		status = paths_join(shared, "exogpu", path, size, error);
	} else {
		char home[ENTRY_BYTES];
		status = home_directory(home, sizeof home, error);
		if (!status)
			status = paths_join(home, ".local/share/exogpu", path, size, error);
	}
	if (status)
		return status;
	for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
		path[length - 1] = 0;
	return STATUS_OK;
}
