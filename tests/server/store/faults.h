/* A disk that fails: every system call that changes a file goes through here, SQLite's and the program's alike, since
 * this program's own symbols come first. The n-th one from faults_arm on fails, or is the process's last, or both (it
 * fails, and a few after it comes the last), or from it on nothing can be written; until faults_disarm. Include it in
 * one file of a test program. Calls on descriptors that are no files, and on standard error, are left alone. Thread:
 * any. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum faults_kind { FAULTS_NONE, FAULTS_COUNT, FAULTS_ERROR, FAULTS_FULL, FAULTS_KILL, FAULTS_ERROR_KILL };

static _Atomic int faults_kind;
static _Atomic unsigned faults_left, faults_seen, faults_after;
enum { FAULTS_AFTER = 4 }; // calls from the failure to the kill

static void faults_arm(enum faults_kind kind, unsigned n)
{
	atomic_store(&faults_seen, 0);
	atomic_store(&faults_after, 0);
	atomic_store(&faults_left, n);
	atomic_store(&faults_kind, (int)kind);
}

static void faults_disarm(void)
{
	atomic_store(&faults_kind, FAULTS_NONE);
}

// Whether the call fails; errno says how. `grows`: it needs room on the disk.
static bool faults_strike(int fd, bool grows)
{
	struct stat file;
	int kind = atomic_load(&faults_kind);
	if (kind == FAULTS_NONE || (fd >= 0 && fd <= 2))
		return false;
	if (fd >= 0 && (fstat(fd, &file) || (!S_ISREG(file.st_mode) && !S_ISDIR(file.st_mode))))
		return false;
	atomic_fetch_add(&faults_seen, 1);
	if (kind == FAULTS_COUNT)
		return false;
	unsigned left = atomic_load(&faults_left);
	while (left && !atomic_compare_exchange_weak(&faults_left, &left, left - 1))
		;
	if (left > 1)
		return false;
	if ((kind == FAULTS_KILL && left == 1) ||
	    (kind == FAULTS_ERROR_KILL && left == 0 && atomic_fetch_add(&faults_after, 1) + 1 == FAULTS_AFTER))
		kill(getpid(), SIGKILL);
	if (kind == FAULTS_FULL && grows) {
		errno = ENOSPC;
		return true;
	}
	if ((kind == FAULTS_ERROR || kind == FAULTS_ERROR_KILL) && left == 1) {
		errno = EIO;
		return true;
	}
	return false;
}

#define FAULTS_PUBLIC __attribute__((visibility("default")))

FAULTS_PUBLIC ssize_t write(int fd, const void *bytes, size_t length);
FAULTS_PUBLIC ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at);
FAULTS_PUBLIC ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at);
FAULTS_PUBLIC int fsync(int fd);
FAULTS_PUBLIC int fdatasync(int fd);
FAULTS_PUBLIC int ftruncate64(int fd, off64_t length);
FAULTS_PUBLIC int ftruncate(int fd, off_t length);
FAULTS_PUBLIC int rename(const char *from, const char *to);
FAULTS_PUBLIC int unlink(const char *path);

ssize_t write(int fd, const void *bytes, size_t length)
{
	return faults_strike(fd, true) ? -1 : (ssize_t)syscall(SYS_write, fd, bytes, length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
	return faults_strike(fd, true) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, bytes, length, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
	return pwrite64(fd, bytes, length, at);
}

int fsync(int fd)
{
	return faults_strike(fd, false) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return faults_strike(fd, false) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int ftruncate64(int fd, off64_t length)
{
	return faults_strike(fd, false) ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate(int fd, off_t length)
{
	return ftruncate64(fd, length);
}

int rename(const char *from, const char *to)
{
	return faults_strike(-1, false) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path)
{
	return faults_strike(-1, false) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
