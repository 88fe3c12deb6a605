/* See models_disk.h. */
#include "engine/node/models/models_disk.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/text/size_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SAVE_EVERY_MS = 2000 };

static const double gib = 1024.0 * 1024 * 1024;
static const char part_end[] = ".part", index_end[] = ".index";

static enum status disk_error(int number, const struct model_disk *disk, struct error *error)
{
	if (number != ENOSPC && number != EDQUOT && number != EFBIG)
		return error_errno(error, STATUS_UNAVAILABLE, number, "%.200s", disk->part);
	error_set(error, STATUS_LIMIT_EXCEEDED, "the model does not fit on the node's disk, at %.200s: %s",
		  disk->folder, strerror(number));
	error_hint(error, "free space on that disk: the downloaded ranges are kept");
	return STATUS_LIMIT_EXCEEDED;
}

void model_disk_init(struct model_disk *disk, const char *folder, const char *model_id)
{
	*disk = (struct model_disk){.fd = -1};
	snprintf(disk->folder, sizeof(disk->folder), "%s", folder);
	snprintf(disk->part, sizeof(disk->part), "%s/%.64s%s", disk->folder, model_id, part_end);
	snprintf(disk->index_path, sizeof(disk->index_path), "%s/%.64s%s", disk->folder, model_id, index_end);
}

void model_disk_finish(struct model_disk *disk)
{
	struct error error = {0};
	if (disk->fd >= 0 && model_disk_close(disk, &error))
		log_warning("node", "%s", error.message);
	model_index_finish(&disk->index);
}

// ---- room ----

// The least recently used model without a worker.
struct unused {
	char oldest[256]; // "" if there is none
	struct timespec at;
	double bytes; // of all
};

static bool is_older(const struct timespec *one, const struct timespec *other)
{
	return one->tv_sec < other->tv_sec || (one->tv_sec == other->tv_sec && one->tv_nsec < other->tv_nsec);
}

static void look_at_unused(const struct model_disk *disk, struct unused *unused)
{
	char path[4400];
	struct dirent *entry;
	struct stat info;
	DIR *folder = opendir(disk->folder);
	*unused = (struct unused){0};
	while (folder && (entry = readdir(folder))) {
		const char *end = strrchr(entry->d_name, '.');
		snprintf(path, sizeof(path), "%s/%s", disk->folder, entry->d_name);
		if (!end || strcmp(end, part_end) != 0 || lstat(path, &info) || !S_ISREG(info.st_mode))
			continue;
		int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB)) {
			unused->bytes += (double)info.st_blocks * 512;
			if (!unused->oldest[0] || is_older(&info.st_atim, &unused->at)) {
				unused->at = info.st_atim;
				snprintf(unused->oldest, sizeof(unused->oldest), "%.*s", (int)(end - entry->d_name),
					 entry->d_name);
			}
		}
		if (fd >= 0)
			close(fd);
	}
	if (folder)
		closedir(folder);
}

static bool delete_model(const struct model_disk *disk, const char *model_id)
{
	char path[4400];
	log_info("node", "model %s is deleted from the cache, to make room for another", model_id);
	snprintf(path, sizeof(path), "%s/%s%s", disk->folder, model_id, index_end);
	unlink(path);
	snprintf(path, sizeof(path), "%s/%s%s", disk->folder, model_id, part_end);
	return !unlink(path);
}

// Make room for `lacking` bytes plus a reserve of a twentieth of the disk or 2 GiB. Deletes nothing if that would not
// be enough.
static enum status make_room(const struct model_disk *disk, uint64_t lacking, struct error *error)
{
	struct statvfs space;
	struct unused unused;
	for (;;) {
		if (statvfs(disk->folder, &space))
			return disk_error(errno, disk, error);
		double whole = (double)space.f_blocks * (double)space.f_frsize,
		       free_bytes = (double)space.f_bavail * (double)space.f_frsize, spare = whole / 20;
		spare = spare < 2 * gib ? spare : 2 * gib;
		const double short_of = (double)lacking + spare - free_bytes;
		if (!lacking || short_of <= 0)
			return STATUS_OK;
		look_at_unused(disk, &unused);
		if (unused.bytes >= short_of && unused.oldest[0] && delete_model(disk, unused.oldest))
			continue;
		error_set(error, STATUS_LIMIT_EXCEEDED,
			  "the model does not fit on the node's disk, at %.100s: %s are needed, %s must stay free, and "
			  "%s are free",
			  disk->folder, SIZE_TEXT(lacking), SIZE_TEXT((uint64_t)spare),
			  SIZE_TEXT((uint64_t)free_bytes));
		error_hint(error, "free %s on that disk",
			   SIZE_TEXT((uint64_t)(short_of + short_of / 16))); // rounded up
		return STATUS_LIMIT_EXCEEDED;
	}
}

// ---- opening ----

static enum status open_part(struct model_disk *disk, int flags, struct stat *info, struct error *error)
{
	disk->fd = open(disk->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0600);
	if (disk->fd < 0 || flock(disk->fd, LOCK_SH) || fstat(disk->fd, info))
		return disk_error(errno, disk, error);
	if (!S_ISREG(info->st_mode))
		return error_set(error, STATUS_UNAVAILABLE, "%.200s is not a regular file", disk->part);
	return STATUS_OK;
}

// A new file, also where a worker still uses the old one.
static enum status begin_anew(struct model_disk *disk, uint64_t file_bytes, struct stat *info, struct error *error)
{
	close(disk->fd);
	unlink(disk->index_path);
	unlink(disk->part);
	model_index_finish(&disk->index);
	disk->index.file_bytes = file_bytes;
	enum status status = open_part(disk, O_EXCL, info, error);
	if (!status && ftruncate(disk->fd, (off_t)file_bytes))
		status = disk_error(errno, disk, error);
	return status;
}

// Whether the file is the one that was closed last, and nobody has written to it since.
static bool is_ours(const struct model_disk *disk, const struct stat *info)
{
	return info->st_dev == disk->device && info->st_ino == disk->number &&
	       info->st_mtim.tv_sec == disk->written.tv_sec && info->st_mtim.tv_nsec == disk->written.tv_nsec;
}

static enum status load(struct model_disk *disk, uint64_t file_bytes, struct error *error)
{
	struct stat info;
	if (mkdir(disk->folder, 0700) && errno != EEXIST)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "making %.200s", disk->folder);
	enum status status = open_part(disk, 0, &info, error);
	if (status)
		return status;
	if (!disk->loaded || !is_ours(disk, &info)) {
		model_index_finish(&disk->index);
		status = model_index_read(&disk->index, disk->index_path, NULL);
		if (status == STATUS_OUT_OF_MEMORY)
			return error_set(error, status, "no memory for the list of downloaded ranges");
		status = STATUS_OK;
	}
	if ((uint64_t)info.st_size != file_bytes || disk->index.file_bytes != file_bytes) {
		if (disk->index.count)
			log_warning("node", "%s has changed: the model is downloaded again", disk->part);
		status = begin_anew(disk, file_bytes, &info, error);
	}
	disk->loaded = !status;
	disk->device = info.st_dev;
	disk->number = info.st_ino;
	return status;
}

static bool hashes_to(const uint8_t *bytes, size_t length, const uint8_t *sha256)
{
	uint8_t found[MODEL_SHA256_BYTES];
	return EVP_Digest(bytes, length, found, NULL, EVP_sha256(), NULL) && !memcmp(found, sha256, sizeof(found));
}

// Whether the file has a piece still. `room` takes LIMIT_MODEL_PIECE_BYTES.
static bool holds(const struct model_disk *disk, const struct model_piece *piece, uint8_t *room)
{
	size_t done = 0;
	while (done < piece->at.bytes) {
		ssize_t got = pread(disk->fd, room + done, piece->at.bytes - done, (off_t)(piece->at.offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return hashes_to(room, done, piece->sha256);
}

// Check one span: remove wrong pieces from the index, and count the bytes that are there.
static enum status check_span(struct model_disk *disk, const struct model_wanted *wanted, const struct model_span *span,
			      uint8_t *room, struct error *error)
{
	struct model_index *index = &disk->index;
	const uint64_t end = span->offset + span->bytes;
	size_t at = model_index_after(index, span->offset);
	while (at < index->count && index->pieces[at].at.offset < end) {
		struct model_piece *piece = &index->pieces[at];
		const uint64_t first = piece->at.offset > span->offset ? piece->at.offset : span->offset,
			       last = piece->at.offset + piece->at.bytes;
		if (atomic_load(wanted->given_up))
			return error_set(error, STATUS_UNAVAILABLE, "the download was cancelled");
		if (!piece->checked && !holds(disk, piece, room)) {
			log_warning("node", "%s: %llu bytes at %llu are damaged, and are downloaded again", disk->part,
				    (unsigned long long)piece->at.bytes, (unsigned long long)piece->at.offset);
			model_index_remove(index, at);
			continue;
		}
		piece->checked = true;
		atomic_fetch_add(wanted->here, (last < end ? last : end) - first);
		at++;
	}
	return STATUS_OK;
}

static enum status find_gaps(const struct model_disk *disk, struct model_wanted *wanted, struct error *error)
{
	size_t capacity = 0;
	for (size_t i = 0; i < wanted->count; i++) {
		struct model_span left = wanted->spans[i];
		const uint64_t end = left.offset + left.bytes;
		for (;;) {
			const struct model_span gap = model_index_gap(&disk->index, &left);
			if (!gap.bytes)
				break;
			if (wanted->gap_count == capacity) {
				capacity = capacity ? 2 * capacity : 64;
				struct model_span *larger = realloc(wanted->gaps, capacity * sizeof(*larger));
				if (!larger)
					return error_set(error, STATUS_OUT_OF_MEMORY,
							 "no memory for the list of missing ranges");
				wanted->gaps = larger;
			}
			wanted->gaps[wanted->gap_count++] = gap;
			wanted->lacking += gap.bytes;
			left.offset = gap.offset + gap.bytes;
			left.bytes = end - left.offset;
		}
	}
	return STATUS_OK;
}

enum status model_disk_open(struct model_disk *disk, struct model_wanted *wanted, struct error *error)
{
	enum status status = load(disk, wanted->file_bytes, error);
	uint8_t *room = status ? NULL : malloc(LIMIT_MODEL_PIECE_BYTES);
	if (!status && !room)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to check the model");
	for (size_t i = 0; i < wanted->count && !status; i++)
		status = check_span(disk, wanted, &wanted->spans[i], room, error);
	if (!status)
		status = find_gaps(disk, wanted, error);
	if (!status)
		status = make_room(disk, wanted->lacking, error);
	free(room);
	return status;
}

// ---- pieces ----

enum status model_disk_put(struct model_disk *disk, const struct model_piece *piece, const uint8_t *bytes,
			   struct error *error)
{
	size_t done = 0;
	if (!hashes_to(bytes, piece->at.bytes, piece->sha256))
		return error_set(error, STATUS_INVALID_REQUEST,
				 "the bytes of the model do not have the SHA-256 that came with them");
	while (done < piece->at.bytes) {
		ssize_t now = pwrite(disk->fd, bytes + done, piece->at.bytes - done, (off_t)(piece->at.offset + done));
		if (now < 0 && errno == EINTR)
			continue;
		if (now <= 0)
			return disk_error(now ? errno : ENOSPC, disk, error);
		done += (size_t)now;
	}
	enum status status = model_index_add(&disk->index, piece, error);
	if (!status && clock_steady_ms() - disk->saved_ms >= SAVE_EVERY_MS) {
		disk->saved_ms = clock_steady_ms();
		status = model_index_write(&disk->index, disk->index_path, error);
	}
	return status;
}

// Every byte of the span lies in a piece that was checked.
static bool is_checked(const struct model_index *index, const struct model_span *span)
{
	uint64_t at = span->offset;
	for (size_t i = model_index_after(index, at); at < span->offset + span->bytes; i++) {
		if (i == index->count || !index->pieces[i].checked || index->pieces[i].at.offset > at)
			return false;
		at = index->pieces[i].at.offset + index->pieces[i].at.bytes;
	}
	return true;
}

enum status model_disk_get(const struct model_disk *disk, const struct model_span *at, uint8_t *bytes,
			   struct error *error)
{
	struct stat info;
	uint64_t done = 0;
	int fd = disk->loaded && is_checked(&disk->index, at)
			 ? open(disk->part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
			 : -1;
	// The file may have been deleted, and the name may be another file's by now.
	const bool same = fd >= 0 && !fstat(fd, &info) && info.st_dev == disk->device && info.st_ino == disk->number;
	while (same && done < at->bytes) {
		ssize_t got = pread(fd, bytes + done, at->bytes - done, (off_t)(at->offset + done));
		if (got <= 0 && !(got < 0 && errno == EINTR))
			break;
		done += got > 0 ? (uint64_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	return same && done == at->bytes ? STATUS_OK
					 : error_set(error, STATUS_NOT_FOUND, "this node does not have all of it");
}

enum status model_disk_close(struct model_disk *disk, struct error *error)
{
	if (disk->fd < 0)
		return STATUS_OK;
	const struct timespec used[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	futimens(disk->fd, used); // who goes first when the disk is full
	enum status status = disk->loaded ? model_index_write(&disk->index, disk->index_path, error) : STATUS_OK;
	struct stat info;
	if (!fstat(disk->fd, &info))
		disk->written = info.st_mtim;
	close(disk->fd);
	disk->fd = -1;
	return status;
}

uint64_t model_disk_forget(struct model_disk *disk)
{
	struct stat info;
	uint64_t bytes = lstat(disk->part, &info) ? 0 : (uint64_t)info.st_blocks * 512;
	unlink(disk->index_path);
	unlink(disk->part);
	model_index_finish(&disk->index);
	disk->loaded = false;
	return bytes;
}
