/* See archive_index.h. */
#include "common/journal/archive_index.h"

#include "common/journal/archive_form.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW_BYTES = 65536, PATH_BYTES = 4300, LOOK_EVERY = 4096, CHECKPOINTS_MOST = 16 };

struct archive_index {
	int file;
	struct stat stat;
	uint64_t first, end;
	uint64_t known;   // entries from `first` on whose records were found
	uint64_t leaves;  // of them, those that are kept by their hashes alone
	uint64_t size;    // of the file, without the sum at its end
	uint64_t *blocks; // (count) where the first record of each block stands; then where the last record ends
	size_t count, room;
	uint8_t window[WINDOW_BYTES]; // what was read last
	uint64_t window_at;
	size_t window_length;
	uint8_t *bytes; // (room_bytes): the block that was read last
	size_t room_bytes;
};

static void path_of(char path[PATH_BYTES], const char *directory, uint64_t first, uint64_t end)
{
	snprintf(path, PATH_BYTES, "%.4160s/" ARCHIVE_NAME, directory, first, end - 1);
}

static enum status read_at(const struct archive_index *index, uint64_t at, void *bytes, size_t length,
			   struct error *error)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = pread(index->file, (uint8_t *)bytes + done, length - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return error_errno(error, STATUS_UNAVAILABLE, got ? errno : EIO, "cannot read an archive");
		done += (size_t)got;
	}
	return STATUS_OK;
}

// `length` bytes at `at`, which is inside of the file, through the window.
static enum status look_at(struct archive_index *index, uint64_t at, uint8_t *bytes, size_t length, struct error *error)
{
	if (at < index->window_at || at + length > index->window_at + index->window_length) {
		size_t wanted = index->size - at < WINDOW_BYTES ? (size_t)(index->size - at) : WINDOW_BYTES;
		index->window_length = 0;
		enum status status = read_at(index, at, index->window, wanted, error);
		if (status)
			return status;
		index->window_at = at;
		index->window_length = wanted;
	}
	memcpy(bytes, index->window + (at - index->window_at), length);
	return STATUS_OK;
}

static bool add_block(struct archive_index *index, uint64_t at)
{
	if (index->count == index->room) {
		const size_t room = index->room ? index->room * 2 : 64;
		uint64_t *more = realloc(index->blocks, room * sizeof *more);
		if (!more)
			return false;
		index->blocks = more;
		index->room = room;
	}
	index->blocks[index->count++] = at;
	return true;
}

// The kind and the length of a record. False: of no known ones.
static bool read_form(const uint8_t *bytes, enum archive_record *kind, size_t *length)
{
	const uint64_t told = archive_read(bytes + 1, 4);
	*kind = bytes[0] <= ARCHIVE_CHECKPOINT ? (enum archive_record)bytes[0] : ARCHIVE_UNKNOWN;
	*length = (size_t)told;
	return told && told <= archive_largest(*kind) && (*kind != ARCHIVE_LEAF || told == TREE_HASH_BYTES);
}

// The position of the first record. 0: this is not an archive of these entries.
static enum status find_records(struct archive_index *index, uint64_t *at, struct error *error)
{
	uint8_t begin[ARCHIVE_BEGIN_BYTES + 16];
	*at = 0;
	if (index->size < sizeof begin)
		return STATUS_OK;
	enum status status = look_at(index, 0, begin, sizeof begin, error);
	const uint64_t length = archive_read(begin + 12, 4);
	if (!status && !memcmp(begin, ARCHIVE_MAGIC, 8) && archive_read(begin + 8, 4) == ARCHIVE_VERSION &&
	    length >= 16 && length <= ARCHIVE_HEAD_BYTES && length <= index->size - ARCHIVE_BEGIN_BYTES &&
	    archive_read(begin + ARCHIVE_BEGIN_BYTES + 8, 8) == index->first)
		*at = ARCHIVE_BEGIN_BYTES + length;
	return status;
}

// Every record's head, until the file ends or is no archive's any more. A writer of ours puts one checkpoint into an
// archive; of a file that has many, which would keep this thread for as long as it is large, the rest is not read.
static enum status look_through(struct archive_index *index, const atomic_bool *stop, struct error *error)
{
	uint8_t head[ARCHIVE_RECORD_BYTES];
	enum archive_record kind;
	size_t length;
	uint64_t at, records = 0, checkpoints = 0;
	enum status status = find_records(index, &at, error);
	while (!status && at && index->size - at >= sizeof head && index->known < index->end - index->first) {
		status = look_at(index, at, head, sizeof head, error);
		if (status || !read_form(head, &kind, &length) || length > index->size - at - sizeof head)
			break;
		const uint64_t seq = index->first + index->known;
		if (kind == ARCHIVE_CHECKPOINT) {
			if (++checkpoints > CHECKPOINTS_MOST)
				break;
		} else {
			if ((!index->known || seq % ARCHIVE_BLOCK == 0) && !add_block(index, at))
				status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read an archive");
			index->known++;
			index->leaves += kind == ARCHIVE_LEAF;
		}
		at += sizeof head + length;
		if (stop && ++records % LOOK_EVERY == 0 && atomic_load(stop))
			status = error_set(error, STATUS_UNAVAILABLE, "the server stops");
	}
	if (!status && index->known && !add_block(index, at))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read an archive");
	return status;
}

static enum status open_file(struct archive_index *index, const char *directory, struct error *error)
{
	char path[PATH_BYTES];
	path_of(path, directory, index->first, index->end);
	index->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // not to hang where it is a pipe
	if (index->file < 0)
		return error_errno(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, errno,
				   "cannot open %.300s", path);
	if (fstat(index->file, &index->stat) || !S_ISREG(index->stat.st_mode))
		return error_set(error, STATUS_UNAVAILABLE, "%.300s is not a file", path);
	index->size = (uint64_t)index->stat.st_size;
	index->size -= index->size < TREE_HASH_BYTES ? index->size : TREE_HASH_BYTES;
	return STATUS_OK;
}

enum status archive_index_create(struct archive_index **out, const char *directory, uint64_t first, uint64_t end,
				 const atomic_bool *stop, struct error *error)
{
	struct archive_index *index = calloc(1, sizeof *index);
	*out = index;
	if (!index)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read an archive");
	index->file = -1;
	index->first = first;
	index->end = end > first ? end : first + 1;
	enum status status = open_file(index, directory, error);
	if (!status)
		status = look_through(index, stop, error);
	if (status)
		archive_index_destroy(out);
	return status;
}

void archive_index_destroy(struct archive_index **index)
{
	if (!*index)
		return;
	if ((*index)->file >= 0)
		close((*index)->file);
	free((*index)->blocks);
	free((*index)->bytes);
	free(*index);
	*index = NULL;
}

bool archive_index_fits(const struct archive_index *index, const char *directory, uint64_t first, uint64_t end)
{
	char path[PATH_BYTES];
	struct stat now;
	if (!index || index->first != first || index->end != end)
		return false;
	path_of(path, directory, first, end);
	return !stat(path, &now) && now.st_dev == index->stat.st_dev && now.st_ino == index->stat.st_ino &&
	       now.st_size == index->stat.st_size && now.st_mtim.tv_sec == index->stat.st_mtim.tv_sec &&
	       now.st_mtim.tv_nsec == index->stat.st_mtim.tv_nsec;
}

uint64_t archive_index_leaves(const struct archive_index *index)
{
	return index->leaves;
}

static bool make_room(struct archive_index *index, size_t wanted)
{
	if (wanted <= index->room_bytes)
		return true;
	free(index->bytes);
	index->bytes = malloc(wanted);
	index->room_bytes = index->bytes ? wanted : 0;
	return index->bytes;
}

enum status archive_index_read(struct archive_index *index, uint64_t place, struct archive_part parts[ARCHIVE_BLOCK],
			       uint64_t *from, size_t *count, struct error *error)
{
	const uint64_t before = index->first / ARCHIVE_BLOCK, begin = place * ARCHIVE_BLOCK;
	*count = 0;
	*from = begin < index->first ? index->first : begin;
	if (place < before || place - before + 1 >= index->count)
		return STATUS_OK;
	const uint64_t at = index->blocks[place - before], end = index->blocks[place - before + 1];
	if (end <= at || end - at > ARCHIVE_BLOCK_BYTES) // heads and no entries, so many that nobody writes them
		return STATUS_OK;
	if (!make_room(index, (size_t)(end - at)))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read an archive");
	enum status status = read_at(index, at, index->bytes, (size_t)(end - at), error);
	const uint8_t *next = index->bytes, *stop = index->bytes + (end - at);
	while (!status && stop - next >= ARCHIVE_RECORD_BYTES && *count < ARCHIVE_BLOCK &&
	       *from + *count < index->first + index->known) {
		enum archive_record kind;
		size_t length;
		if (!read_form(next, &kind, &length) || length > (size_t)(stop - next) - ARCHIVE_RECORD_BYTES)
			break;
		if (kind != ARCHIVE_CHECKPOINT)
			parts[(*count)++] = (struct archive_part){
				.kind = kind, .bytes = next + ARCHIVE_RECORD_BYTES, .length = length};
		next += ARCHIVE_RECORD_BYTES + length;
	}
	return status;
}
