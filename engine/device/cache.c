/* See cache.h. */
#include "engine/device/cache.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/files/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_BYTES = 8, LENGTH_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + LENGTH_BYTES + SHA256_BYTES };
static const char magic[] = "exogpu 1";

static void head_fill(const struct cache_file *file, uint8_t head[HEAD_BYTES], const uint8_t *bytes, size_t length)
{
	uint8_t *number = head + MAGIC_BYTES;
	memcpy(head, magic, MAGIC_BYTES);
	for (int i = 0; i < LENGTH_BYTES; i++)
		number[i] = (uint8_t)((uint64_t)length >> (8 * i));
	struct sha256 sha;
	sha256_begin(&sha);
	sha256_add(&sha, file->head, strlen(file->head) + 1);
	sha256_add(&sha, file->source, file->source_bytes);
	sha256_add(&sha, number, LENGTH_BYTES);
	sha256_add(&sha, bytes, length);
	sha256_end(&sha, number + LENGTH_BYTES);
}

static bool read_all(int file, uint8_t *to, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = read(file, to + done, length - done);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

static bool write_all(int file, const uint8_t *from, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t put = write(file, from + done, length - done);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		done += (size_t)put;
	}
	return true;
}

size_t cache_read(const struct cache_file *file, uint8_t **bytes)
{
	char path[4096];
	uint8_t there[HEAD_BYTES], fit[HEAD_BYTES];
	struct stat info;
	size_t length = 0;
	*bytes = NULL;
	if (paths_join(file->directory, file->name, path, sizeof(path), NULL))
		return 0;
	int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (descriptor < 0)
		return 0;
	if (!fstat(descriptor, &info) && S_ISREG(info.st_mode) && info.st_size > HEAD_BYTES &&
	    info.st_size <= LIMIT_CACHE_FILE_BYTES)
		length = (size_t)info.st_size - HEAD_BYTES;
	if (length)
		*bytes = malloc(length);
	bool whole = *bytes && read_all(descriptor, there, HEAD_BYTES) && read_all(descriptor, *bytes, length);
	close(descriptor);
	if (whole) {
		head_fill(file, fit, *bytes, length);
		if (!memcmp(there, fit, HEAD_BYTES))
			return length;
	}
	free(*bytes);
	*bytes = NULL;
	return 0;
}

bool cache_write(const struct cache_file *file, const uint8_t *bytes, size_t length)
{
	char path[4096], temporary[sizeof(path) + 32];
	uint64_t mark = 0;
	uint8_t head[HEAD_BYTES];
	if (!length || length > LIMIT_CACHE_FILE_BYTES - HEAD_BYTES ||
	    paths_join(file->directory, file->name, path, sizeof(path), NULL))
		return false;
	head_fill(file, head, bytes, length);
	// Each worker may be process 1 of a namespace: its number is no mark.
	if (getrandom(&mark, sizeof(mark), 0) != (ssize_t)sizeof(mark))
		return false;
	snprintf(temporary, sizeof(temporary), "%s.%016llx", path, (unsigned long long)mark);
	int descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	bool done = descriptor >= 0 && write_all(descriptor, head, HEAD_BYTES) && write_all(descriptor, bytes, length);
	int number = errno;
	if (descriptor >= 0 && close(descriptor))
		done = false;
	if (done && !rename(temporary, path))
		return true;
	log_warning("device", "compiled kernels are not cached in %s: %s", path, strerror(done ? errno : number));
	if (descriptor >= 0)
		unlink(temporary);
	return false;
}
