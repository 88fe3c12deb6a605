/* See sums.h. */
#include "server/store/sqlite/sums.h"

#include <pthread.h>
#include <string.h>

enum { HEADER_BYTES = 100, PAGE_SIZE_AT = 16, RESERVED_AT = 20, REPORT_CONTROL = 0x65786f67, DAMAGED_CONTROL };

struct sums_file {
	sqlite3_file base;
	struct sums_report report;
	uint8_t page[SUMS_PAGE]; // what is written, with its sum
	sqlite3_file *below;     // behind this struct
};

static struct {
	pthread_once_t once;
	sqlite3_vfs vfs, *below;
} sums = {.once = PTHREAD_ONCE_INIT};

static sqlite3_file *below(sqlite3_file *file)
{
	return ((struct sums_file *)file)->below;
}

// Each step is one to one in `sum` and in `word`, so a change within one word of eight bytes always changes the sum;
// any other goes unnoticed once in 2^64. Never 0, which means that there is none.
static uint64_t add(uint64_t sum, uint64_t word)
{
	sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
	return sum << 29 | sum >> 35;
}

static uint64_t sum_of(const uint8_t *page, uint64_t number)
{
	static const struct {
		uint8_t from, to;
	} open[] = {{18, 20}, {24, 28}, {40, 44}, {92, 100}}; // of page 1: a copy's are other ones
	uint64_t sum = add(0x6578676f67707573u, number), word;
	uint8_t header[HEADER_BYTES + 4];
	memcpy(header, page, sizeof header);
	for (size_t i = 0; number == 1 && i < sizeof open / sizeof *open; i++)
		memset(header + open[i].from, 0, open[i].to - open[i].from);
	for (size_t at = 0; at < SUMS_PAGE - SUMS_BYTES; at += sizeof word) {
		memcpy(&word, at < sizeof header ? header + at : page + at, sizeof word);
		sum = add(sum, word);
	}
	sum ^= sum >> 32;
	return sum ? sum : 1;
}

// Page 1 says whether the file keeps room for sums.
static void look_at_header(struct sums_file *file, const uint8_t *header)
{
	const int size = header[PAGE_SIZE_AT] << 8 | header[PAGE_SIZE_AT + 1];
	file->report.kept = !memcmp(header, "SQLite format 3", 16) && size == SUMS_PAGE &&
			    header[RESERVED_AT] == SUMS_BYTES;
}

static bool is_page(int length, sqlite3_int64 at)
{
	return length == SUMS_PAGE && at % SUMS_PAGE == 0;
}

static int read_page(sqlite3_file *base, void *bytes, int length, sqlite3_int64 at)
{
	struct sums_file *file = (struct sums_file *)base;
	uint64_t kept;
	int code = file->below->pMethods->xRead(file->below, bytes, length, at);
	if (code != SQLITE_OK)
		return code;
	if (at == 0 && length >= HEADER_BYTES)
		look_at_header(file, bytes);
	if (!file->report.kept || !is_page(length, at))
		return code;
	const uint64_t number = (uint64_t)at / SUMS_PAGE + 1;
	uint8_t *end = (uint8_t *)bytes + SUMS_PAGE - SUMS_BYTES;
	memcpy(&kept, end, sizeof kept);
	file->report.pages += kept != 0;
	if (kept && kept != sum_of(bytes, number)) {
		if (!file->report.wrong)
			file->report.first = (uint32_t)number;
		file->report.wrong++;
	}
	memset(end, 0, SUMS_BYTES);
	return code;
}

static int write_page(sqlite3_file *base, const void *bytes, int length, sqlite3_int64 at)
{
	struct sums_file *file = (struct sums_file *)base;
	if (at == 0 && length >= HEADER_BYTES)
		look_at_header(file, bytes);
	if (!file->report.kept || !is_page(length, at))
		return file->below->pMethods->xWrite(file->below, bytes, length, at);
	const uint64_t sum = sum_of(bytes, (uint64_t)at / SUMS_PAGE + 1);
	memcpy(file->page, bytes, SUMS_PAGE - SUMS_BYTES);
	memcpy(file->page + SUMS_PAGE - SUMS_BYTES, &sum, sizeof sum);
	return file->below->pMethods->xWrite(file->below, file->page, length, at);
}

static int control(sqlite3_file *file, int op, void *argument)
{
	if (op == REPORT_CONTROL) {
		memcpy(argument, &((struct sums_file *)file)->report, sizeof(struct sums_report));
		return SQLITE_OK;
	}
	if (op == DAMAGED_CONTROL) {
		((struct sums_file *)file)->report.damaged = true;
		return SQLITE_OK;
	}
	return below(file)->pMethods->xFileControl(below(file), op, argument);
}

// ---- what passes through ----

static int close_file(sqlite3_file *file)
{
	return below(file)->pMethods->xClose(below(file));
}

static int truncate_file(sqlite3_file *file, sqlite3_int64 size)
{
	return below(file)->pMethods->xTruncate(below(file), size);
}

static int sync_file(sqlite3_file *file, int flags)
{
	return below(file)->pMethods->xSync(below(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
	return below(file)->pMethods->xFileSize(below(file), size);
}

static int lock_file(sqlite3_file *file, int level)
{
	return below(file)->pMethods->xLock(below(file), level);
}

static int unlock_file(sqlite3_file *file, int level)
{
	return below(file)->pMethods->xUnlock(below(file), level);
}

static int check_reserved_lock(sqlite3_file *file, int *reserved)
{
	return below(file)->pMethods->xCheckReservedLock(below(file), reserved);
}

static int sector_size(sqlite3_file *file)
{
	return below(file)->pMethods->xSectorSize(below(file));
}

static int device_characteristics(sqlite3_file *file)
{
	return below(file)->pMethods->xDeviceCharacteristics(below(file));
}

static int shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **out)
{
	return below(file)->pMethods->xShmMap(below(file), region, size, extend, out);
}

static int shm_lock(sqlite3_file *file, int first, int count, int flags)
{
	return below(file)->pMethods->xShmLock(below(file), first, count, flags);
}

static void shm_barrier(sqlite3_file *file)
{
	below(file)->pMethods->xShmBarrier(below(file));
}

static int shm_unmap(sqlite3_file *file, int remove)
{
	return below(file)->pMethods->xShmUnmap(below(file), remove);
}

static const sqlite3_io_methods methods = {
	.iVersion = 2, // without memory-mapped reading, which would pass the sums by
	.xClose = close_file,
	.xRead = read_page,
	.xWrite = write_page,
	.xTruncate = truncate_file,
	.xSync = sync_file,
	.xFileSize = file_size,
	.xLock = lock_file,
	.xUnlock = unlock_file,
	.xCheckReservedLock = check_reserved_lock,
	.xFileControl = control,
	.xSectorSize = sector_size,
	.xDeviceCharacteristics = device_characteristics,
	.xShmMap = shm_map,
	.xShmLock = shm_lock,
	.xShmBarrier = shm_barrier,
	.xShmUnmap = shm_unmap,
};

// Other files than databases have no pages: they are the system's own, in the same place.
static int open_file(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags, int *out)
{
	(void)vfs;
	struct sums_file *file = (struct sums_file *)base;
	if (!(flags & SQLITE_OPEN_MAIN_DB))
		return sums.below->xOpen(sums.below, path, base, flags, out);
	memset(file, 0, sizeof *file);
	file->below = (sqlite3_file *)(file + 1);
	int code = sums.below->xOpen(sums.below, path, file->below, flags, out);
	if (code == SQLITE_OK)
		file->base.pMethods = &methods;
	return code;
}

static void register_vfs(void)
{
	if (sqlite3_initialize() != SQLITE_OK)
		return;
	sums.below = sqlite3_vfs_find(NULL);
	sums.vfs = *sums.below;
	sums.vfs.zName = "exogpu-sums";
	sums.vfs.szOsFile = (int)sizeof(struct sums_file) + sums.below->szOsFile;
	sums.vfs.xOpen = open_file;
	if (sqlite3_vfs_register(&sums.vfs, 0) != SQLITE_OK)
		sums.below = NULL;
}

const char *sums_vfs(void)
{
	pthread_once(&sums.once, register_vfs);
	return sums.below ? sums.vfs.zName : NULL;
}

void sums_reserve(sqlite3 *db)
{
	int bytes = SUMS_BYTES;
	sqlite3_file_control(db, "main", SQLITE_FCNTL_RESERVE_BYTES, &bytes);
}

static bool is_ours(sqlite3 *db)
{
	sqlite3_vfs *vfs = NULL;
	return db && sqlite3_file_control(db, "main", SQLITE_FCNTL_VFS_POINTER, &vfs) == SQLITE_OK && vfs == &sums.vfs;
}

void sums_read(sqlite3 *db, struct sums_report *report)
{
	*report = (struct sums_report){.kept = false};
	if (is_ours(db))
		sqlite3_file_control(db, "main", REPORT_CONTROL, report);
}

void sums_mark_damaged(sqlite3 *db)
{
	if (is_ours(db))
		sqlite3_file_control(db, "main", DAMAGED_CONTROL, NULL);
}
