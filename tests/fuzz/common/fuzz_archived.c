/* Fuzz target: entries of an archive that somebody may have written, read one block at a time, as audit.list reads them
 * (common/journal/archive_index.h).
 *
 * The first byte says which entries the archive's name tells, the second how many of the log's come before; the rest
 * is the file, with a sum behind it that is not looked at. Where the first byte is odd, the rest is records behind a
 * head that is well formed. What a block gives is what a reader finds that goes through the whole file, record by
 * record; a file that is cut under its reader's hands gives less, and no error that is not the disk's. */
#include "common/journal/archive_form.h"
#include "common/journal/archive_index.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_INPUT = 65536, MOST_RECORDS = MOST_INPUT / 5 };

struct record {
	size_t at, length;
	uint8_t kind;
};

static char folder[] = "/dev/shm/exogpu-fuzz-XXXXXX", path[128];
static int file = -1;
static uint64_t named_first = UINT64_MAX, named_end;
static struct record records[MOST_RECORDS];

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void remove_folder(void)
{
	unlink(path);
	rmdir(folder);
}

// The file has the name of these entries.
static void name_file(uint64_t first, uint64_t end)
{
	char next[sizeof path];
	if (file < 0) {
		require(mkdtemp(folder) && !atexit(remove_folder));
		snprintf(path, sizeof path, "%s/new", folder);
		require((file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) >= 0);
	}
	if (named_first == first && named_end == end)
		return;
	snprintf(next, sizeof next, "%s/" ARCHIVE_NAME, folder, first, end - 1);
	require(!rename(path, next));
	memcpy(path, next, sizeof path);
	named_first = first;
	named_end = end;
}

// All entries in their order, as the form says them (archive.h), from the bytes alone. Returns how many.
static size_t read_all(const uint8_t *bytes, size_t size, uint64_t first, uint64_t end)
{
	size_t count = 0, checkpoints = 0;
	if (size < 32 || memcmp(bytes, "EXOAUDIT\1\0\0\0", 12) != 0)
		return 0;
	const uint64_t head = archive_read(bytes + 12, 4);
	if (head < 16 || head > ARCHIVE_HEAD_BYTES || head > size - 16 || archive_read(bytes + 24, 8) != first)
		return 0;
	for (size_t at = 16 + (size_t)head; size - at >= 5 && count < end - first;) {
		const uint64_t length = archive_read(bytes + at + 1, 4);
		const enum archive_record kind = bytes[at] > 3 ? ARCHIVE_UNKNOWN : (enum archive_record)bytes[at];
		if (!length || length > archive_largest(kind) || length > size - at - 5 ||
		    (kind == ARCHIVE_LEAF && length != 32))
			break;
		if (kind == ARCHIVE_CHECKPOINT && ++checkpoints > 16)
			break;
		if (kind != ARCHIVE_CHECKPOINT)
			records[count++] = (struct record){.at = at + 5, .length = (size_t)length, .kind = bytes[at]};
		at += 5 + (size_t)length;
	}
	return count;
}

static void check_block(struct archive_index *index, const uint8_t *bytes, uint64_t place, uint64_t first, size_t count)
{
	struct archive_part parts[ARCHIVE_BLOCK];
	uint64_t from = 0;
	size_t found = 0;
	require(!archive_index_read(index, place, parts, &from, &found, NULL));
	require(found <= ARCHIVE_BLOCK && (!found || from / ARCHIVE_BLOCK == place));
	require(!found || (from >= first && from - first + found <= count));
	for (size_t i = 0; i < found; i++) {
		const struct record *record = &records[from - first + i];
		require((uint8_t)parts[i].kind == record->kind && parts[i].length == record->length);
		require(!memcmp(parts[i].bytes, bytes + record->at, record->length));
	}
	// All of the block's entries, unless it is larger than any that is written.
	const uint64_t begin = place * ARCHIVE_BLOCK > first ? place * ARCHIVE_BLOCK : first;
	const uint64_t stop = (place + 1) * ARCHIVE_BLOCK < first + count ? (place + 1) * ARCHIVE_BLOCK : first + count;
	require(found == (begin < stop ? stop - begin : 0));
}

static void check(const uint8_t *bytes, size_t size, uint64_t first, uint64_t end, bool cut)
{
	static const uint8_t sum[TREE_HASH_BYTES];
	struct archive_index *index = NULL;
	struct error error = {0};
	const size_t count = read_all(bytes, size, first, end);
	name_file(first, end);
	require(!ftruncate(file, 0) && pwrite(file, bytes, size, 0) == (ssize_t)size);
	require(pwrite(file, sum, sizeof sum, (off_t)size) == (ssize_t)sizeof sum);
	require(!archive_index_create(&index, folder, first, end, NULL, &error));
	require(archive_index_fits(index, folder, first, end) && !archive_index_fits(index, folder, first + 1, end));
	size_t leaves = 0;
	for (size_t i = 0; i < count; i++)
		leaves += records[i].kind == ARCHIVE_LEAF;
	require(archive_index_leaves(index) == leaves);
	for (uint64_t place = first / ARCHIVE_BLOCK ? first / ARCHIVE_BLOCK - 1 : 0;
	     place <= (first + count) / ARCHIVE_BLOCK + 1; place++)
		check_block(index, bytes, place, first, count);
	if (cut && count) {
		struct archive_part parts[ARCHIVE_BLOCK];
		uint64_t from;
		size_t found;
		require(!ftruncate(file, (off_t)(records[count - 1].at + records[count - 1].length - 1)));
		require(!archive_index_fits(index, folder, first, end));
		require(archive_index_read(index, (first + count - 1) / ARCHIVE_BLOCK, parts, &from, &found, &error) ==
			STATUS_UNAVAILABLE);
	}
	archive_index_destroy(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t firsts[] = {0, 1, 200, 255, 256, 257, 70000, UINT64_C(1) << 40};
	static const uint64_t counts[] = {1, 2, 40, 255, 256, 257, 600, UINT64_C(1) << 30};
	static uint8_t whole[MOST_INPUT + 64];
	if (size < 2 || size > MOST_INPUT)
		return 0;
	const uint64_t first = firsts[data[0] >> 1 & 7], end = first + counts[data[0] >> 4 & 7];
	size_t at = 0;
	if (data[0] & 1) { // "EXOAUDIT", version 1, a head of 16 bytes: number 0 and the first entry
		memcpy(whole, "EXOAUDIT\1\0\0\0\20\0\0\0\0\0\0\0\0\0\0\0", 24);
		for (unsigned i = 0; i < 8; i++)
			whole[24 + i] = (uint8_t)(first >> 8 * i);
		at = 32;
	}
	memcpy(whole + at, data + 2, size - 2);
	uint8_t *bytes = malloc(at + size - 2 + 1);
	require(bytes != NULL);
	memcpy(bytes, whole, at + size - 2);
	check(bytes, at + size - 2, first, end, data[1] & 1);
	free(bytes);
	return 0;
}
