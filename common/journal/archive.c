/* See archive.h: writing, and the names of archives. Reading is in archive_read.c. */
#include "common/journal/archive.h"

#include "common/journal/archive_form.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = sizeof(((struct archive_name *)0)->path) };

struct archive_writer {
	char directory[4096], path[PATH_BYTES]; // path: of the unfinished file
	FILE *file;
	EVP_MD_CTX *sum;
	uint64_t first, count;
	bool ready; // archive_writer_prepare has succeeded
};

static enum status fail(const struct archive_writer *writer, int number, struct error *error)
{
	error_errno(error, STATUS_UNAVAILABLE, number, "cannot write the archive %s", writer->path);
	error_hint(error, "free some space, or look at the disk; the entries stay in the database until then");
	return STATUS_UNAVAILABLE;
}

static enum status put(struct archive_writer *writer, const void *bytes, size_t length, struct error *error)
{
	if (EVP_DigestUpdate(writer->sum, bytes, length) != 1)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the archive's sum");
	return fwrite(bytes, 1, length, writer->file) == length ? STATUS_OK : fail(writer, errno, error);
}

static enum status print_head(const struct archive_writer_params *params, struct buffer *head)
{
	const struct journal_segment *segment = params->segment;
	const char *certificate = segment->certificate ? segment->certificate : "";
	char key[NOTE_KEY_TEXT_BYTES];
	note_key_print(&segment->key, key);
	archive_append_u64(head, segment->number);
	archive_append_u64(head, segment->first);
	buffer_append_u32le(head, (uint32_t)strlen(key));
	buffer_append_text(head, key);
	buffer_append_u32le(head, (uint32_t)strlen(certificate));
	buffer_append_text(head, certificate);
	return buffer_append(head, params->before->peaks,
			     tree_peaks(params->before->size) * sizeof(params->before->peaks[0]));
}

static enum status write_head(struct archive_writer *writer, const struct archive_writer_params *params,
			      struct error *error)
{
	struct buffer head, begin;
	buffer_init(&head, ARCHIVE_HEAD_BYTES);
	buffer_init(&begin, ARCHIVE_BEGIN_BYTES);
	enum status status = print_head(params, &head);
	buffer_append_text(&begin, ARCHIVE_MAGIC);
	buffer_append_u32le(&begin, ARCHIVE_VERSION);
	if (!status)
		status = buffer_append_u32le(&begin, (uint32_t)head.length);
	if (status)
		error_set(error, status, "the archive's head does not fit");
	if (!status)
		status = put(writer, begin.data, begin.length, error);
	if (!status)
		status = put(writer, head.data, head.length, error);
	buffer_finish(&head);
	buffer_finish(&begin);
	return status;
}

enum status archive_writer_create(struct archive_writer **out, const struct archive_writer_params *params,
				  struct error *error)
{
	enum status status = STATUS_OK;
	struct archive_writer *writer = calloc(1, sizeof(*writer));
	if (!writer || !(writer->sum = EVP_MD_CTX_new()) || EVP_DigestInit_ex(writer->sum, EVP_sha256(), NULL) != 1) {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an archive");
		goto out;
	}
	writer->first = params->segment->first;
	int length = snprintf(writer->directory, sizeof(writer->directory), "%s", params->directory);
	if (params->before->size != writer->first || length < 0 || (size_t)length >= sizeof(writer->directory)) {
		status = error_set(error, STATUS_INVALID_PARAMS, "no archive can begin there");
		goto out;
	}
	snprintf(writer->path, sizeof(writer->path), "%s/unfinished-%" PRIu64, writer->directory, writer->first);
	int file = open(writer->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	writer->file = file < 0 ? NULL : fdopen(file, "w");
	if (!writer->file) {
		status = fail(writer, errno, error);
		if (file >= 0)
			close(file);
		goto out;
	}
	status = write_head(writer, params, error);
out:
	if (status)
		archive_writer_destroy(&writer);
	*out = writer;
	return status;
}

void archive_writer_destroy(struct archive_writer **writer)
{
	if (!*writer)
		return;
	if ((*writer)->file)
		fclose((*writer)->file);
	if ((*writer)->path[0])
		unlink((*writer)->path);
	EVP_MD_CTX_free((*writer)->sum);
	free(*writer);
	*writer = NULL;
}

static enum status write_record(struct archive_writer *writer, enum archive_record kind, const void *bytes,
				size_t length, struct error *error)
{
	const uint8_t begin[ARCHIVE_RECORD_BYTES] = {(uint8_t)kind, (uint8_t)length, (uint8_t)(length >> 8),
						     (uint8_t)(length >> 16), (uint8_t)(length >> 24)};
	if (!length || length > archive_largest(kind))
		return error_set(error, STATUS_INVALID_PARAMS, "a record of %zu bytes has no place in an archive",
				 length);
	enum status status = put(writer, begin, sizeof(begin), error);
	return status ? status : put(writer, bytes, length, error);
}

enum status archive_write_entry(struct archive_writer *writer, const uint8_t *bytes, size_t length, struct error *error)
{
	writer->count++;
	return write_record(writer, ARCHIVE_ENTRY, bytes, length, error);
}

enum status archive_write_leaf(struct archive_writer *writer, const struct tree_hash *leaf, struct error *error)
{
	writer->count++;
	return write_record(writer, ARCHIVE_LEAF, leaf->bytes, TREE_HASH_BYTES, error);
}

enum status archive_write_checkpoint(struct archive_writer *writer, const char *note, struct error *error)
{
	return write_record(writer, ARCHIVE_CHECKPOINT, note, strlen(note), error);
}

// All that was written is there, as it was written, and is a log in itself.
static enum status read_back(const struct archive_writer *writer, struct error *error)
{
	struct journal_verifier *verifier = NULL;
	enum status status = journal_verifier_create(&verifier, NULL, NULL);
	if (status)
		return error_set(error, status, "no memory to read an archive back");
	journal_verify_part(verifier);
	journal_expect_bare(verifier);
	status = archive_verify(writer->path, verifier, NULL, NULL, error);
	const struct journal_report *report = journal_verify_end(verifier);
	if (!status && (report->verdict || report->entries != writer->count))
		status = error_set(error, STATUS_UNAVAILABLE, "the archive that was just written does not verify: %s",
				   report->finding_count ? report->findings[0].text : "entries are missing");
	journal_verifier_destroy(&verifier);
	return status;
}

static enum status write_sum(struct archive_writer *writer, struct error *error)
{
	uint8_t sum[EVP_MAX_MD_SIZE];
	if (EVP_DigestFinal_ex(writer->sum, sum, NULL) != 1)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the archive's sum");
	if (fwrite(sum, 1, TREE_HASH_BYTES, writer->file) != TREE_HASH_BYTES || fflush(writer->file) ||
	    fsync(fileno(writer->file)))
		return fail(writer, errno, error);
	FILE *file = writer->file;
	writer->file = NULL;
	return fclose(file) ? fail(writer, errno, error) : STATUS_OK;
}

static enum status name_it(struct archive_writer *writer, const char *path, struct error *error)
{
	if (rename(writer->path, path))
		return fail(writer, errno, error);
	writer->path[0] = 0;
	int directory = open(writer->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	enum status status = directory < 0 || fsync(directory) ? fail(writer, errno, error) : STATUS_OK;
	if (directory >= 0)
		close(directory);
	return status;
}

enum status archive_writer_prepare(struct archive_writer *writer, struct error *error)
{
	if (!writer->count)
		return error_set(error, STATUS_INVALID_PARAMS, "a segment without entries has no archive");
	enum status status = write_sum(writer, error);
	if (!status)
		status = read_back(writer, error);
	writer->ready = !status;
	return status;
}

enum status archive_writer_finish(struct archive_writer **writer, char *path, size_t size, struct error *error)
{
	struct archive_writer *self = *writer;
	char name[PATH_BYTES];
	enum status status = self->ready ? STATUS_OK : archive_writer_prepare(self, error);
	if (!status) {
		snprintf(name, sizeof(name), "%s/" ARCHIVE_NAME, self->directory, self->first,
			 self->first + self->count - 1);
		status = name_it(self, name, error);
	}
	if (!status && path && (size_t)snprintf(path, size, "%s", name) >= size)
		status = error_set(error, STATUS_INVALID_PARAMS, "the archive's name is too long");
	archive_writer_destroy(writer);
	return status;
}

// Names.

// Only the canonical spelling of these numbers is accepted.
static bool parse_name(const char *name, uint64_t *first, uint64_t *last)
{
	char again[96];
	if (sscanf(name, "audit-%" SCNu64 "-%" SCNu64, first, last) != 2 || *first > *last || *last > INT64_MAX)
		return false;
	snprintf(again, sizeof(again), ARCHIVE_NAME, *first, *last);
	return !strcmp(name, again);
}

static int compare_names(const void *a, const void *b)
{
	const struct archive_name *one = a, *other = b;
	if (one->first != other->first)
		return one->first < other->first ? -1 : 1;
	return one->last < other->last ? -1 : one->last > other->last;
}

static enum status add_name(struct archive_name **names, size_t count, const struct archive_name *name)
{
	if (!(count & (count - 1))) { // a power of two, or none: it is full
		struct archive_name *more = realloc(*names, (count ? count * 2 : 1) * sizeof(**names));
		if (!more)
			return STATUS_OUT_OF_MEMORY;
		*names = more;
	}
	(*names)[count] = *name;
	return STATUS_OK;
}

enum status archive_list(const char *directory, struct archive_name **names, size_t *count, struct error *error)
{
	enum status status = STATUS_OK;
	struct archive_name name;
	const struct dirent *file;
	*names = NULL;
	*count = 0;
	DIR *files = opendir(directory);
	if (!files)
		return error_errno(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, errno,
				   "cannot read the archives in %s", directory);
	while (!status && (file = readdir(files))) {
		if (!parse_name(file->d_name, &name.first, &name.last))
			continue;
		int length = snprintf(name.path, sizeof(name.path), "%s/%s", directory, file->d_name);
		if (length < 0 || (size_t)length >= sizeof(name.path))
			status = error_set(error, STATUS_UNAVAILABLE, "%s is too long a name", directory);
		else if (*count == JOURNAL_SEGMENTS)
			status = error_set(error, STATUS_LIMIT_EXCEEDED, "more than %d archives in %s",
					   JOURNAL_SEGMENTS, directory);
		else if ((status = add_name(names, *count, &name)))
			error_set(error, status, "no memory for the names of archives");
		else
			++*count;
	}
	closedir(files);
	if (*count)
		qsort(*names, *count, sizeof(**names), compare_names);
	if (status) {
		free(*names);
		*names = NULL;
		*count = 0;
	}
	return status;
}
