/* An SQLite VFS of the tests, between SQLite and the one that it has for this system: every call on a file of a
 * database goes through shim_hook, which may let it pass (SQLITE_OK) or give the error that it ends with. shim_install
 * makes it the default, for connections opened from then on. Include it in one file of a test program. Thread: any; the
 * hook is called on the thread that does the work. */
#pragma once
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum shim_op {
	SHIM_OPEN,
	SHIM_CLOSE,
	SHIM_READ,
	SHIM_WRITE,
	SHIM_TRUNCATE,
	SHIM_SYNC,
	SHIM_SIZE,
	SHIM_LOCK,
	SHIM_MAP,      // of the -shm file
	SHIM_SHM_LOCK, // first, count and flags are said
	SHIM_DELETE,
	SHIM_ACCESS,
	SHIM_OPS,
};

struct shim_file {
	sqlite3_file base;
	const char *path;       // NULL: a temporary file
	int flags;              // SQLITE_OPEN_*
	struct shim_file *main; // the database that a -wal or -journal file belongs to; itself
	sqlite3_file *below;    // behind this struct
};

struct shim_call {
	enum shim_op op;
	const struct shim_file *file; // NULL: SHIM_DELETE, SHIM_ACCESS
	const char *path;
	int first, count, flags; // SHIM_SHM_LOCK
};

enum { SHIM_DATABASES = 64 };

static int (*shim_hook)(const struct shim_call *call);
static sqlite3_vfs *shim_below;
static struct {
	pthread_mutex_t lock;
	struct shim_file *open[SHIM_DATABASES];
} shim_databases = {.lock = PTHREAD_MUTEX_INITIALIZER};

// The databases that are open: `old` becomes `file` in their list. The one whose name is `path`, the same bytes in
// memory.
static struct shim_file *shim_database(const char *path, struct shim_file *old, struct shim_file *file)
{
	struct shim_file *found = NULL;
	pthread_mutex_lock(&shim_databases.lock);
	for (size_t i = 0; i < SHIM_DATABASES && !found; i++) {
		struct shim_file **place = &shim_databases.open[i];
		if (path ? *place && (*place)->path == path : *place == old) {
			found = path ? *place : file ? file : old;
			*place = path ? *place : file;
		}
	}
	pthread_mutex_unlock(&shim_databases.lock);
	return found;
}

static int shim_ask(enum shim_op op, sqlite3_file *file)
{
	struct shim_file *shim = (struct shim_file *)file;
	return shim_hook ? shim_hook(&(struct shim_call){.op = op, .file = shim, .path = shim->path}) : SQLITE_OK;
}

#define SHIM_BELOW(file) (((struct shim_file *)(file))->below)
// A call that the hook may refuse, else the same of the file below.
#define SHIM_PASS(op, file, call, ...) \
	do { \
		int refused = shim_ask(op, file); \
		return refused ? refused : SHIM_BELOW(file)->pMethods->call(SHIM_BELOW(file), ##__VA_ARGS__); \
	} while (0)

static int shim_close(sqlite3_file *file)
{
	shim_ask(SHIM_CLOSE, file); // what a close says nobody can act upon
	if (((struct shim_file *)file)->flags & SQLITE_OPEN_MAIN_DB)
		shim_database(NULL, (struct shim_file *)file, NULL);
	return SHIM_BELOW(file)->pMethods->xClose(SHIM_BELOW(file));
}

static int shim_read(sqlite3_file *file, void *bytes, int length, sqlite3_int64 at)
{
	SHIM_PASS(SHIM_READ, file, xRead, bytes, length, at);
}

static int shim_write(sqlite3_file *file, const void *bytes, int length, sqlite3_int64 at)
{
	SHIM_PASS(SHIM_WRITE, file, xWrite, bytes, length, at);
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	SHIM_PASS(SHIM_TRUNCATE, file, xTruncate, size);
}

static int shim_sync(sqlite3_file *file, int flags)
{
	SHIM_PASS(SHIM_SYNC, file, xSync, flags);
}

static int shim_size(sqlite3_file *file, sqlite3_int64 *size)
{
	SHIM_PASS(SHIM_SIZE, file, xFileSize, size);
}

static int shim_lock(sqlite3_file *file, int level)
{
	SHIM_PASS(SHIM_LOCK, file, xLock, level);
}

static int shim_unlock(sqlite3_file *file, int level)
{
	return SHIM_BELOW(file)->pMethods->xUnlock(SHIM_BELOW(file), level);
}

static int shim_reserved(sqlite3_file *file, int *out)
{
	return SHIM_BELOW(file)->pMethods->xCheckReservedLock(SHIM_BELOW(file), out);
}

static int shim_control(sqlite3_file *file, int op, void *argument)
{
	return SHIM_BELOW(file)->pMethods->xFileControl(SHIM_BELOW(file), op, argument);
}

static int shim_sector(sqlite3_file *file)
{
	return SHIM_BELOW(file)->pMethods->xSectorSize(SHIM_BELOW(file));
}

static int shim_device(sqlite3_file *file)
{
	return SHIM_BELOW(file)->pMethods->xDeviceCharacteristics(SHIM_BELOW(file));
}

static int shim_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
	SHIM_PASS(SHIM_MAP, file, xShmMap, page, size, extend, out);
}

static int shim_shm_lock(sqlite3_file *file, int first, int count, int flags)
{
	struct shim_file *shim = (struct shim_file *)file;
	const struct shim_call call = {
		.op = SHIM_SHM_LOCK, .file = shim, .path = shim->path, .first = first, .count = count, .flags = flags};
	int refused = shim_hook && !(flags & SQLITE_SHM_UNLOCK) ? shim_hook(&call) : SQLITE_OK;
	return refused ? refused : shim->below->pMethods->xShmLock(shim->below, first, count, flags);
}

static void shim_barrier(sqlite3_file *file)
{
	SHIM_BELOW(file)->pMethods->xShmBarrier(SHIM_BELOW(file));
}

static int shim_unmap(sqlite3_file *file, int remove)
{
	return SHIM_BELOW(file)->pMethods->xShmUnmap(SHIM_BELOW(file), remove);
}

static const sqlite3_io_methods shim_methods = {
	.iVersion = 2, // without memory-mapped reading
	.xClose = shim_close,
	.xRead = shim_read,
	.xWrite = shim_write,
	.xTruncate = shim_truncate,
	.xSync = shim_sync,
	.xFileSize = shim_size,
	.xLock = shim_lock,
	.xUnlock = shim_unlock,
	.xCheckReservedLock = shim_reserved,
	.xFileControl = shim_control,
	.xSectorSize = shim_sector,
	.xDeviceCharacteristics = shim_device,
	.xShmMap = shim_map,
	.xShmLock = shim_shm_lock,
	.xShmBarrier = shim_barrier,
	.xShmUnmap = shim_unmap,
};

static int shim_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *out)
{
	(void)vfs;
	struct shim_file *shim = (struct shim_file *)file;
	*shim = (struct shim_file){.path = path, .flags = flags, .main = shim, .below = (sqlite3_file *)(shim + 1)};
	if (path && flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL))
		shim->main = shim_database(sqlite3_filename_database(path), NULL, NULL);
	int code = shim_ask(SHIM_OPEN, file);
	if (code == SQLITE_OK)
		code = shim_below->xOpen(shim_below, path, shim->below, flags, out);
	if (code == SQLITE_OK)
		shim->base.pMethods = &shim_methods;
	if (code == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB && !shim_database(NULL, NULL, shim))
		abort();
	return code;
}

static int shim_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
	(void)vfs;
	int refused = shim_hook ? shim_hook(&(struct shim_call){.op = SHIM_DELETE, .path = path}) : SQLITE_OK;
	return refused ? refused : shim_below->xDelete(shim_below, path, sync);
}

static int shim_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
	(void)vfs;
	int refused = shim_hook ? shim_hook(&(struct shim_call){.op = SHIM_ACCESS, .path = path}) : SQLITE_OK;
	return refused ? refused : shim_below->xAccess(shim_below, path, flags, out);
}

static void shim_install(void)
{
	static sqlite3_vfs shim; // the rest is the system's own
	shim_below = sqlite3_vfs_find(NULL);
	shim = *shim_below;
	shim.zName = "shim";
	shim.szOsFile = (int)sizeof(struct shim_file) + shim_below->szOsFile;
	shim.xOpen = shim_open;
	shim.xDelete = shim_delete;
	shim.xAccess = shim_access;
	sqlite3_vfs_register(&shim, 1);
}
