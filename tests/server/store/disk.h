/* A disk whose power is cut: what a program does to the files below a directory is recorded, by the system calls that
 * it makes, SQLite's and ours alike; then the disk as it may be found after a cut at any of these steps is made again,
 * as often as wanted.
 *
 * What was synced is there. Of what was not each write is there, or forgotten, or torn: some of its sectors of 512
 * bytes are there; so later writes may be there without earlier ones. The same holds for names: a file that was made,
 * renamed or removed is so for certain once its directory was synced, and before that may be found either way, in any
 * order. A file that was made and not synced may be empty, or a part. -shm files hold anything: they are for one start
 * only.
 *
 * It stands before the C library's functions, so include it in one file of a test program. Writes by stdio are seen
 * when the file is synced, which is before any of ours counts as written. Thread: any while recording. */
#pragma once
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DISK_SECTOR = 512, DISK_FILES = 256, DISK_NAMES = 256 };

enum disk_kind {
	DISK_WRITE,
	DISK_TRUNCATE,
	DISK_SYNC,
	DISK_LINK,
	DISK_UNLINK,
	DISK_RENAME,
	DISK_SYNC_FOLDER,
	DISK_SAID
};

struct disk_step {
	enum disk_kind kind;
	int file; // DISK_WRITE … DISK_LINK
	off_t at; // DISK_WRITE; DISK_TRUNCATE: the new size; DISK_SAID: what the caller wants to remember
	size_t length;
	uint8_t *bytes;  // DISK_WRITE
	char *path, *to; // of names: below the root
};

static struct {
	pthread_mutex_t lock;
	char root[PATH_MAX];
	bool recording;
	struct disk_step *steps;
	size_t count, capacity;
	struct {
		ino_t inode;
		bool gone; // its inode's number may be another file's by now
		uint8_t *bytes;
		size_t length; // as recorded so far
	} files[DISK_FILES];
	int file_count;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *disk_must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static struct disk_step *disk_add(enum disk_kind kind)
{
	if (disk.count == disk.capacity) {
		disk.capacity = disk.capacity ? disk.capacity * 2 : 1024;
		disk.steps = disk_must(realloc(disk.steps, disk.capacity * sizeof *disk.steps));
	}
	disk.steps[disk.count] = (struct disk_step){.kind = kind};
	return &disk.steps[disk.count++];
}

// The part below the root; NULL: not ours. The root itself is "".
static const char *disk_below(const char *path)
{
	size_t length = strlen(disk.root);
	if (!disk.recording || strncmp(path, disk.root, length) != 0 || (path[length] && path[length] != '/'))
		return NULL;
	const char *below = path + length + (path[length] == '/');
	return strstr(below, "-shm") ? NULL : below;
}

static char *disk_name(const char *below) // without a last slash
{
	char *name = disk_must(strdup(below));
	for (size_t length = strlen(name); length && name[length - 1] == '/'; length--)
		name[length - 1] = 0;
	return name;
}

static const char *disk_path_of(int fd, char path[PATH_MAX])
{
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, path, PATH_MAX - 1);
	path[length > 0 ? length : 0] = 0;
	return disk_below(path);
}

static int disk_file_of(int fd)
{
	struct stat status;
	if (!disk.recording || fstat(fd, &status) || !S_ISREG(status.st_mode))
		return -1;
	for (int i = disk.file_count - 1; i >= 0; i--)
		if (disk.files[i].inode == status.st_ino && !disk.files[i].gone)
			return i;
	return -1;
}

// What is recorded of a file follows what was written to it, so that writes that went by another way are noticed.
static void disk_note_write(int file, const void *bytes, size_t length, off_t at)
{
	struct disk_step *step = disk_add(DISK_WRITE);
	step->file = file;
	step->at = at;
	step->length = length;
	step->bytes = disk_must(malloc(length + 1));
	memcpy(step->bytes, bytes, length);
	const size_t end = (size_t)at + length;
	if (end > disk.files[file].length) {
		disk.files[file].bytes = disk_must(realloc(disk.files[file].bytes, end));
		memset(disk.files[file].bytes + disk.files[file].length, 0, end - disk.files[file].length);
		disk.files[file].length = end;
	}
	memcpy(disk.files[file].bytes + at, bytes, length);
}

static void disk_note_truncate(int file, off_t size)
{
	struct disk_step *step = disk_add(DISK_TRUNCATE);
	step->file = file;
	step->at = size;
	if ((size_t)size > disk.files[file].length) {
		disk.files[file].bytes = disk_must(realloc(disk.files[file].bytes, (size_t)size));
		memset(disk.files[file].bytes + disk.files[file].length, 0, (size_t)size - disk.files[file].length);
	}
	disk.files[file].length = (size_t)size;
}

static void disk_note_other_writes(int file, int fd)
{
	struct stat status;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int copy = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (copy < 0 || fstat(copy, &status))
		abort();
	uint8_t *bytes = disk_must(malloc((size_t)status.st_size + 1));
	const ssize_t length = pread(copy, bytes, (size_t)status.st_size, 0);
	syscall(SYS_close, copy);
	if (length != status.st_size)
		abort();
	if ((size_t)length < disk.files[file].length)
		disk_note_truncate(file, length);
	if ((size_t)length != disk.files[file].length || memcmp(bytes, disk.files[file].bytes, (size_t)length) != 0)
		disk_note_write(file, bytes, (size_t)length, 0);
	free(bytes);
}

static void disk_note_open(int fd, const char *path, bool made, bool emptied)
{
	struct stat status;
	const char *below = disk_below(path);
	if (!below || fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode))
		return;
	if (made) {
		if (disk.file_count == DISK_FILES)
			abort();
		for (int i = 0; i < disk.file_count; i++)
			disk.files[i].gone = disk.files[i].gone || disk.files[i].inode == status.st_ino;
		disk.files[disk.file_count].inode = status.st_ino;
		struct disk_step *step = disk_add(DISK_LINK);
		step->file = disk.file_count++;
		step->path = disk_name(below);
	} else if (emptied && disk_file_of(fd) >= 0) {
		disk_note_truncate(disk_file_of(fd), 0);
	}
}

static void disk_note_names(enum disk_kind kind, const char *path, const char *to)
{
	const char *below = disk_below(path), *other = to ? disk_below(to) : NULL;
	if (!below || (to && !other))
		return;
	struct disk_step *step = disk_add(kind);
	step->path = disk_name(below);
	step->to = to ? disk_name(other) : NULL;
}

// What the caller said happened by now; it comes with the steps.
static void disk_say(int64_t what)
{
	pthread_mutex_lock(&disk.lock);
	if (disk.recording)
		disk_add(DISK_SAID)->at = what;
	pthread_mutex_unlock(&disk.lock);
}

static void disk_record(const char *root)
{
	pthread_mutex_lock(&disk.lock);
	snprintf(disk.root, sizeof disk.root, "%s", root);
	disk.recording = true;
	pthread_mutex_unlock(&disk.lock);
}

static void disk_stop(void)
{
	pthread_mutex_lock(&disk.lock);
	disk.recording = false;
	pthread_mutex_unlock(&disk.lock);
}

static void disk_forget(void)
{
	for (size_t i = 0; i < disk.count; i++) {
		free(disk.steps[i].bytes);
		free(disk.steps[i].path);
		free(disk.steps[i].to);
	}
	for (int i = 0; i < disk.file_count; i++)
		free(disk.files[i].bytes);
	free(disk.steps);
	memset(disk.files, 0, sizeof disk.files);
	disk.steps = NULL;
	disk.count = disk.capacity = 0;
	disk.file_count = 0;
}

// ---- before the C library ----

#define DISK_PUBLIC __attribute__((visibility("default")))
#define DISK_CALL(result, note) \
	pthread_mutex_lock(&disk.lock); \
	const __typeof__(result) done = (result); \
	const int number = errno; \
	if (done >= 0 && disk.recording) { \
		note; \
	} \
	pthread_mutex_unlock(&disk.lock); \
	errno = number; \
	return done

DISK_PUBLIC int open(const char *path, int flags, ...);
DISK_PUBLIC int open64(const char *path, int flags, ...);
DISK_PUBLIC ssize_t write(int fd, const void *bytes, size_t length);
DISK_PUBLIC ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at);
DISK_PUBLIC ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at);
DISK_PUBLIC int fsync(int fd);
DISK_PUBLIC int fdatasync(int fd);
DISK_PUBLIC int ftruncate(int fd, off_t length);
DISK_PUBLIC int ftruncate64(int fd, off64_t length);
DISK_PUBLIC int rename(const char *from, const char *to);
DISK_PUBLIC int unlink(const char *path);

static int disk_open(const char *path, int flags, mode_t mode)
{
	struct stat before;
	pthread_mutex_lock(&disk.lock);
	const bool there = !stat(path, &before);
	const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), number = errno;
	if (disk.recording)
		disk_note_open(fd, path, !there, flags & O_TRUNC);
	pthread_mutex_unlock(&disk.lock);
	errno = number;
	return fd;
}

static mode_t disk_mode(int flags, va_list rest)
{
	return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(rest, int) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	const mode_t mode = disk_mode(flags, rest);
	va_end(rest);
	return disk_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	const mode_t mode = disk_mode(flags, rest);
	va_end(rest);
	return disk_open(path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
	const int file = disk_file_of(fd);
	if (file < 0)
		return syscall(SYS_write, fd, bytes, length);
	const off_t at = lseek(fd, 0, SEEK_CUR);
	DISK_CALL(syscall(SYS_write, fd, bytes, length), disk_note_write(file, bytes, (size_t)done, at));
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
	const int file = disk_file_of(fd);
	DISK_CALL(syscall(SYS_pwrite64, fd, bytes, length, at),
		  if (file >= 0) disk_note_write(file, bytes, (size_t)done, at));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
	return pwrite64(fd, bytes, length, at);
}

static int disk_sync(int fd, long call)
{
	char path[PATH_MAX];
	struct stat status;
	DISK_CALL(
		(int)syscall(call, fd), const int file = disk_file_of(fd); const char *below = disk_path_of(fd, path);
		if (file >= 0) {
			disk_note_other_writes(file, fd);
			disk_add(DISK_SYNC)->file = file;
		} else if (below && !fstat(fd, &status) && S_ISDIR(status.st_mode)) {
			disk_add(DISK_SYNC_FOLDER)->path = disk_name(below);
		});
}

int fsync(int fd)
{
	return disk_sync(fd, SYS_fsync);
}

int fdatasync(int fd)
{
	return disk_sync(fd, SYS_fdatasync);
}

int ftruncate64(int fd, off64_t length)
{
	const int file = disk_file_of(fd);
	DISK_CALL((int)syscall(SYS_ftruncate, fd, length), if (file >= 0) disk_note_truncate(file, length));
}

int ftruncate(int fd, off_t length)
{
	return ftruncate64(fd, length);
}

int rename(const char *from, const char *to)
{
	DISK_CALL((int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), disk_note_names(DISK_RENAME, from, to));
}

int unlink(const char *path)
{
	DISK_CALL((int)syscall(SYS_unlinkat, AT_FDCWD, path, 0), disk_note_names(DISK_UNLINK, path, NULL));
}

// ---- after the cut ----

struct disk_name {
	char *path;
	int file;
};

// A state of the disk: contents of files, and names. What is below is certain; pending steps may or may not have come.
struct disk_state {
	struct {
		uint8_t *bytes;
		size_t length;
	} files[DISK_FILES];
	struct disk_name names[DISK_NAMES];
	int name_count;
	size_t *pending; // numbers of steps, in their order
	size_t pending_count;
};

static void disk_apply_write(struct disk_state *state, int file, const uint8_t *bytes, size_t length, off_t at)
{
	const size_t end = (size_t)at + length;
	if (end > state->files[file].length) {
		state->files[file].bytes = disk_must(realloc(state->files[file].bytes, end));
		memset(state->files[file].bytes + state->files[file].length, 0, end - state->files[file].length);
		state->files[file].length = end;
	}
	memcpy(state->files[file].bytes + at, bytes, length);
}

static void disk_apply_truncate(struct disk_state *state, int file, size_t size)
{
	if (size > state->files[file].length) {
		state->files[file].bytes = disk_must(realloc(state->files[file].bytes, size));
		memset(state->files[file].bytes + state->files[file].length, 0, size - state->files[file].length);
	}
	state->files[file].length = size;
}

static int disk_find_name(const struct disk_state *state, const char *path)
{
	for (int i = 0; i < state->name_count; i++)
		if (!strcmp(state->names[i].path, path))
			return i;
	return -1;
}

static void disk_remove_name(struct disk_state *state, const char *path)
{
	const int place = disk_find_name(state, path);
	if (place >= 0) {
		free(state->names[place].path);
		state->names[place] = state->names[--state->name_count];
	}
}

static void disk_add_name(struct disk_state *state, const char *path, int file)
{
	disk_remove_name(state, path);
	if (state->name_count == DISK_NAMES)
		abort();
	state->names[state->name_count++] = (struct disk_name){disk_must(strdup(path)), file};
}

static void disk_apply(struct disk_state *state, const struct disk_step *step)
{
	int place;
	if (step->kind == DISK_WRITE)
		disk_apply_write(state, step->file, step->bytes, step->length, step->at);
	else if (step->kind == DISK_TRUNCATE)
		disk_apply_truncate(state, step->file, (size_t)step->at);
	else if (step->kind == DISK_LINK)
		disk_add_name(state, step->path, step->file);
	else if (step->kind == DISK_UNLINK)
		disk_remove_name(state, step->path);
	else if (step->kind == DISK_RENAME && (place = disk_find_name(state, step->path)) >= 0) {
		const int file = state->names[place].file;
		disk_remove_name(state, step->path);
		disk_add_name(state, step->to, file);
	}
}

static bool disk_in_folder(const char *path, const char *folder)
{
	const char *slash = strrchr(path, '/');
	const size_t length = slash ? (size_t)(slash - path) : 0;
	return strlen(folder) == length && !strncmp(path, folder, length);
}

// Whether step `sync` makes `step` certain.
static bool disk_settles(const struct disk_step *sync, const struct disk_step *step)
{
	const bool data = step->kind == DISK_WRITE || step->kind == DISK_TRUNCATE;
	if (sync->kind == DISK_SYNC)
		return data && step->file == sync->file;
	return sync->kind == DISK_SYNC_FOLDER && !data && disk_in_folder(step->path, sync->path);
}

// Go on by one step.
static void disk_advance(struct disk_state *state, size_t number)
{
	const struct disk_step *now = &disk.steps[number];
	if (now->kind == DISK_SYNC || now->kind == DISK_SYNC_FOLDER) {
		size_t kept = 0;
		for (size_t i = 0; i < state->pending_count; i++)
			if (disk_settles(now, &disk.steps[state->pending[i]]))
				disk_apply(state, &disk.steps[state->pending[i]]);
			else
				state->pending[kept++] = state->pending[i];
		state->pending_count = kept;
	} else if (now->kind != DISK_SAID) {
		state->pending = disk_must(
			realloc(state->pending, (state->pending_count + 1) * sizeof *state->pending));
		state->pending[state->pending_count++] = number;
	}
}

static void disk_copy(struct disk_state *to, const struct disk_state *from)
{
	*to = (struct disk_state){.name_count = from->name_count};
	for (int i = 0; i < disk.file_count; i++) {
		to->files[i].length = from->files[i].length;
		to->files[i].bytes = disk_must(malloc(from->files[i].length + 1));
		if (from->files[i].length)
			memcpy(to->files[i].bytes, from->files[i].bytes, from->files[i].length);
	}
	for (int i = 0; i < from->name_count; i++)
		to->names[i] = (struct disk_name){disk_must(strdup(from->names[i].path)), from->names[i].file};
}

static void disk_drop(struct disk_state *state)
{
	for (int i = 0; i < DISK_FILES; i++)
		free(state->files[i].bytes);
	for (int i = 0; i < state->name_count; i++)
		free(state->names[i].path);
	free(state->pending);
}

// Of 16 kinds of luck: how many of 16 writes reach the disk; 0 none, 16 all.
static void disk_cut(struct disk_state *found, const struct disk_state *certain, unsigned luck)
{
	disk_copy(found, certain);
	for (size_t i = 0; i < certain->pending_count; i++) {
		const struct disk_step *step = &disk.steps[certain->pending[i]];
		if ((unsigned)random() % 16 >= luck)
			continue;
		if (step->kind != DISK_WRITE || luck == 16 || random() % 2) {
			disk_apply(found, step);
			continue;
		}
		for (size_t from = 0; from < step->length;) { // torn: to the end of a sector, or of what was written
			const size_t sector = DISK_SECTOR - ((size_t)step->at + from) % DISK_SECTOR;
			const size_t length = step->length - from < sector ? step->length - from : sector;
			if (random() % 2)
				disk_apply_write(found, step->file, step->bytes + from, length, step->at + (off_t)from);
			from += length;
		}
	}
}

// Write a state into an empty directory.
static void disk_make(const struct disk_state *state, const char *directory)
{
	char path[PATH_MAX];
	for (int i = 0; i < state->name_count; i++) {
		const int file = state->names[i].file;
		snprintf(path, sizeof path, "%s/%s", directory, state->names[i].path);
		char *slash = strrchr(path, '/');
		*slash = 0;
		if (mkdir(path, 0700) && errno != EEXIST)
			abort();
		*slash = '/';
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		const ssize_t wrote = fd < 0 ? -1 : write(fd, state->files[file].bytes, state->files[file].length);
		if (wrote != (ssize_t)state->files[file].length)
			abort();
		close(fd);
	}
}
