/* See fetch_part.h. A journal:
 *
 *     exogpu part 1
 *     bytes 1234 | sha256 0123... | etag "..."     each on a line of its own; the last two may be missing
 *     0 1048576                                    what is there: first and end, a line each
 */
#include "server/hub/fetch_part.h"

#include "common/base/buffer.h"
#include "common/base/clock.h"
#include "common/text/size_text.h"
#include "server/hub/model_header.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SAVE_MS = 2000, LOOK_MS = 1000, JOURNAL_BYTES = 16384 };
static const int64_t mebibyte = 1024 * 1024;

static enum status disk_error(int number, const char *path, struct error *error)
{
	const bool full = number == ENOSPC || number == EDQUOT;
	error_errno(error, full ? STATUS_LIMIT_EXCEEDED : STATUS_UNAVAILABLE, number, "%s cannot be written", path);
	if (full)
		error_hint(error, "free space on the disk and add the model again: what has come stays");
	return error->status;
}

// ---- ranges ----

static void count_done(struct fetch_part *part)
{
	part->done_bytes = 0;
	for (size_t i = 0; i < part->count; i++)
		part->done_bytes += part->spans[i].end - part->spans[i].first;
}

// False: there are too many gaps; the range is not noted, and will be fetched again.
static bool note(struct fetch_part *part, int64_t first, int64_t end)
{
	size_t at = 0, until;
	while (at < part->count && part->spans[at].end < first)
		at++;
	for (until = at; until < part->count && part->spans[until].first <= end; until++) {
		first = part->spans[until].first < first ? part->spans[until].first : first;
		end = part->spans[until].end > end ? part->spans[until].end : end;
	}
	if (at == until && part->count == LIMIT_FETCH_SPANS)
		return false;
	memmove(&part->spans[at + 1], &part->spans[until], (part->count - until) * sizeof *part->spans);
	part->count = part->count + 1 - (until - at);
	part->spans[at] = (struct fetch_span){.first = first, .end = end};
	count_done(part);
	return true;
}

// The end of the span that contains `at`, of either list; `at` if there is none.
static int64_t covered_until(const struct fetch_span *spans, size_t count, int64_t at)
{
	for (size_t i = 0; i < count; i++)
		if (spans[i].first <= at && at < spans[i].end)
			return spans[i].end;
	return at;
}

bool fetch_part_next(const struct fetch_part *part, const struct fetch_span *taken, size_t count, int64_t most,
		     struct fetch_span *out)
{
	int64_t at = 0, before = -1;
	while (at != before) {
		before = at;
		at = covered_until(part->spans, part->count, at);
		at = covered_until(taken, count, at);
	}
	const int64_t bytes = part->identity.bytes;
	if (bytes >= 0 && at >= bytes)
		return false;
	int64_t end = bytes >= 0 && bytes - at < most ? bytes : at + most;
	for (size_t i = 0; i < part->count; i++)
		if (part->spans[i].first > at && part->spans[i].first < end)
			end = part->spans[i].first;
	for (size_t i = 0; i < count; i++)
		if (taken[i].first > at && taken[i].first < end)
			end = taken[i].first;
	*out = (struct fetch_span){.first = at, .end = end};
	return true;
}

bool fetch_part_complete(const struct fetch_part *part)
{
	return part->identity.bytes > 0 && part->done_bytes == part->identity.bytes;
}

// ---- the journal ----

// A line of it. False: it is not one.
static bool read_line(struct fetch_part *part, char *line)
{
	char *end, *after;
	struct fetch_identity *identity = &part->identity;
	if (!strncmp(line, "bytes ", 6)) {
		identity->bytes = strtoll(line + 6, &end, 10);
		return !*end && identity->bytes > 0 && !part->count; // ranges are of this length, and come after it
	}
	if (!strncmp(line, "sha256 ", 7)) {
		snprintf(identity->sha256, sizeof identity->sha256, "%.64s", line + 7);
		return strlen(line + 7) == 64;
	}
	if (!strncmp(line, "etag ", 5)) {
		snprintf(identity->etag, sizeof identity->etag, "%.256s", line + 5);
		return strlen(line + 5) < sizeof identity->etag;
	}
	int64_t first = strtoll(line, &end, 10);
	int64_t last = *end == ' ' ? strtoll(end + 1, &after, 10) : -1;
	return first >= 0 && first < last && last <= identity->bytes && !*after && note(part, first, last);
}

static bool read_journal(struct fetch_part *part, char *text)
{
	static const char title[] = "exogpu part 1\n";
	if (strncmp(text, title, sizeof title - 1) != 0)
		return false;
	for (char *line = text + sizeof title - 1, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (!*next)
			return false;
		*next++ = 0;
		if (!read_line(part, line))
			return false;
	}
	return true;
}

void fetch_part_reset(struct fetch_part *part)
{
	part->count = 0;
	part->done_bytes = 0;
	part->identity = (struct fetch_identity){.bytes = -1};
	part->reserved = part->judged = false;
	part->judge_at = 0;
	unlink(part->journal);
}

void fetch_part_init(struct fetch_part *part, const char *file)
{
	char text[JOURNAL_BYTES];
	struct stat found;
	*part = (struct fetch_part){.fd = -1, .identity.bytes = -1};
	snprintf(part->path, sizeof part->path, "%s.part", file);
	snprintf(part->journal, sizeof part->journal, "%s.journal", file);
	int fd = open(part->journal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	text[length > 0 ? length : 0] = 0;
	if (length <= 0)
		return;
	if (!read_journal(part, text) || stat(part->path, &found) || found.st_size != part->identity.bytes)
		fetch_part_reset(part);
}

static bool print_journal(const struct fetch_part *part, struct buffer *text)
{
	const struct fetch_identity *identity = &part->identity;
	buffer_printf(text, "exogpu part 1\nbytes %" PRId64 "\n", identity->bytes);
	if (identity->sha256[0])
		buffer_printf(text, "sha256 %s\n", identity->sha256);
	if (identity->etag[0])
		buffer_printf(text, "etag %s\n", identity->etag);
	for (size_t i = 0; i < part->count; i++)
		buffer_printf(text, "%" PRId64 " %" PRId64 "\n", part->spans[i].first, part->spans[i].end);
	return !text->failed;
}

static enum status write_journal(const struct fetch_part *part, struct error *error)
{
	char beside[FETCH_PATH_BYTES + 8];
	struct buffer text;
	buffer_init(&text, JOURNAL_BYTES - 1);
	bool good = print_journal(part, &text);
	snprintf(beside, sizeof beside, "%s.new", part->journal);
	int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	good = good && fd >= 0 && write(fd, text.data, text.length) == (ssize_t)text.length && !fdatasync(fd);
	int number = errno;
	if (fd >= 0)
		close(fd);
	if (good && rename(beside, part->journal)) {
		number = errno;
		good = false;
	}
	buffer_finish(&text);
	return good ? STATUS_OK : disk_error(number, part->journal, error);
}

// ---- the file ----

enum status fetch_part_check_room(const char *path, int64_t wanted, struct error *error)
{
	struct statvfs disk;
	char directory[FETCH_PATH_BYTES];
	snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
	if (statvfs(directory, &disk))
		return disk_error(errno, directory, error);
	const double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize;
	if (free_bytes >= (double)wanted + (double)(LIMIT_FETCH_RESERVE_MIB * mebibyte))
		return STATUS_OK;
	error_set(error, STATUS_LIMIT_EXCEEDED, "the disk has no room: %s are free, %s are needed",
		  SIZE_TEXT((uint64_t)free_bytes), SIZE_TEXT((uint64_t)wanted));
	error_hint(error, "free space on the disk and add the model again: what has come stays");
	return STATUS_LIMIT_EXCEEDED;
}

// A file is identified by its SHA-256 if known, whatever a cache calls it; otherwise by its ETag.
static bool same_file(const struct fetch_identity *a, const struct fetch_identity *b)
{
	if (a->bytes < 0 || a->bytes != b->bytes)
		return false;
	if (a->sha256[0] && b->sha256[0])
		return !strcmp(a->sha256, b->sha256);
	return a->etag[0] && !strcmp(a->etag, b->etag);
}

static enum status make_room(struct fetch_part *part, struct error *error)
{
	struct stat found;
	if (part->identity.bytes < 0)
		return STATUS_OK;
	if (fstat(part->fd, &found))
		return disk_error(errno, part->path, error);
	const int64_t there = (int64_t)found.st_blocks * 512;
	enum status status = fetch_part_check_room(
		part->path, there < part->identity.bytes ? part->identity.bytes - there : 0, error);
	if (status)
		return status;
	part->reserved = !fallocate(part->fd, 0, 0, part->identity.bytes);
	if (!part->reserved && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		return disk_error(errno, part->path, error);
	return ftruncate(part->fd, part->identity.bytes) ? disk_error(errno, part->path, error) : STATUS_OK;
}

enum status fetch_part_open(struct fetch_part *part, const struct fetch_identity *identity, bool *anew,
			    struct error *error)
{
	*anew = !same_file(&part->identity, identity);
	// What did not change is not written again: the time of the journal is that of the last bytes.
	part->dirty |= *anew || strcmp(part->identity.sha256, identity->sha256) != 0 ||
		       strcmp(part->identity.etag, identity->etag) != 0;
	if (identity->bytes / (1024 * mebibyte) >= LIMIT_MODEL_FILE_GIB)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the file is larger than %d GiB", LIMIT_MODEL_FILE_GIB);
	if (*anew)
		fetch_part_reset(part);
	part->identity = *identity;
	if (part->fd < 0)
		part->fd = open(part->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (part->fd < 0)
		return disk_error(errno, part->path, error);
	if (*anew && ftruncate(part->fd, 0))
		return disk_error(errno, part->path, error);
	enum status status = make_room(part, error);
	return status ? status : fetch_part_save(part, true, error);
}

enum status fetch_part_write(struct fetch_part *part, int64_t offset, const uint8_t *bytes, size_t length,
			     struct error *error)
{
	const int64_t first = offset;
	while (length) {
		ssize_t written = pwrite(part->fd, bytes, length, (off_t)offset);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return disk_error(written ? errno : ENOSPC, part->path, error);
		bytes += written;
		offset += written;
		length -= (size_t)written;
	}
	note(part, first, offset);
	part->dirty = true;
	return STATUS_OK;
}

enum status fetch_part_save(struct fetch_part *part, bool now, struct error *error)
{
	const int64_t now_ms = clock_steady_ms();
	enum status status = STATUS_OK;
	if (part->fd < 0)
		return STATUS_OK;
	if (!part->reserved && now_ms - part->looked_ms >= LOOK_MS) {
		part->looked_ms = now_ms;
		status = fetch_part_check_room(part->path, 0, error);
	}
	if (status || !part->dirty || part->identity.bytes < 0) // of unknown length: it begins anew if it breaks off
		return status;
	if (!now && now_ms - part->saved_ms < SAVE_MS) {
		sync_file_range(part->fd, 0, 0, SYNC_FILE_RANGE_WRITE); // so that little is left to wait for
		return STATUS_OK;
	}
	if (fdatasync(part->fd))
		return disk_error(errno, part->path, error);
	status = write_journal(part, error);
	part->saved_ms = clock_steady_ms();
	part->dirty = status != STATUS_OK;
	return status;
}

// ---- whether it is a model ----

enum status fetch_part_begins(int64_t offset, const uint8_t *bytes, size_t length, struct error *error)
{
	static const char magic[] = "GGUF";
	const size_t known = length < 4 ? length : 4;
	if (offset || !memcmp(bytes, magic, known))
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "this is not a model file: it does not begin with GGUF");
}

// Once a MiB of the file is there, and again whenever that has doubled: how long a header is stands nowhere.
enum status fetch_part_judge(struct fetch_part *part, struct error *error)
{
	const int64_t there = part->count && !part->spans[0].first ? part->spans[0].end : 0;
	if (part->judged || there < mebibyte || there < part->judge_at || part->identity.bytes <= there)
		return STATUS_OK;
	enum status status = model_header_judge(part->path, part->fd, (uint64_t)part->identity.bytes, (uint64_t)there,
						error);
	part->judge_at = 2 * there;
	part->judged = !status;
	if (status != STATUS_PENDING)
		return status;
	*error = (struct error){0};
	return STATUS_OK;
}

void fetch_part_finish(struct fetch_part *part)
{
	struct error ignored = {0};
	if (part->fd < 0)
		return;
	fetch_part_save(part, true, &ignored);
	close(part->fd);
	part->fd = -1;
}
