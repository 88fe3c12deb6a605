/* See holders.h. The byte ranges are those of SQLite's file format: in WAL mode a connection keeps a shared lock on
 * SHARED_FIRST of the database, and one on the last lock byte of the -shm file. */
#include "server/store/sqlite/holders.h"

#include "common/base/log.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

enum { PENDING_BYTE = 0x40000000, LOCKED_BYTES = 512, SHM_HELD_BYTE = 128 };

bool holders_matter(int version)
{
	const int minor = version / 1000;
	const bool mended = version >= 3051003 || (minor == 3050 && version >= 3050007) ||
			    (minor == 3044 && version >= 3044006);
	return version >= 3007000 && !mended;
}

static int holder_of(const char *path, off_t at, off_t length)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = length};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return 0;
	bool held = !fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK;
	close(fd);
	return !held ? 0 : lock.l_pid > 0 ? lock.l_pid : -1;
}

int holders_find(const char *path)
{
	char shm[4200];
	int length = snprintf(shm, sizeof shm, "%s-shm", path);
	int holder = holder_of(path, PENDING_BYTE, LOCKED_BYTES);
	if (!holder && length > 0 && (size_t)length < sizeof shm)
		holder = holder_of(shm, SHM_HELD_BYTE, 1);
	return holder;
}

void holders_warn(const char *path)
{
	const int holder = holders_matter(sqlite3_libversion_number()) ? holders_find(path) : 0;
	char who[48] = "another program";
	if (holder > 0)
		snprintf(who, sizeof who, "another program (process %d)", holder);
	if (holder)
		log_warning("store",
			    "%s has %s open. Close it: SQLite %s, which is installed here, can damage a database that "
			    "two programs write at the same moment; 3.51.3, 3.50.7 and 3.44.6 cannot",
			    who, path, sqlite3_libversion());
}
