/* Compiled kernels in files, between processes.
 *
 *	offset  0  "exogpu 1"  8 bytes
 *	        8  length      u64, little-endian, of the contents
 *	       16  SHA-256     of head and source, the length and the contents
 *	       48  contents
 *
 * A driver may only run a kernel that was compiled from this source, for this device and this driver. So the sum covers
 * the head (device and driver, as text) and the source, and a file with another sum is ignored. A file is replaced by a
 * rename, so a reader sees the old one or the new one. Processes that may write the directory are trusted. Thread:
 * any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache_file {
	const char *directory, *name, *head;
	const uint8_t *source; // (source_bytes)
	size_t source_bytes;
};

// The contents into *bytes, to be freed, and their length as the result; 0 and NULL if there are none that fit.
size_t cache_read(const struct cache_file *file, uint8_t **bytes);
// False if they could not be kept, with a line in the log.
bool cache_write(const struct cache_file *file, const uint8_t *bytes, size_t length);
