/* See archive.h: reading, in one pass. The checksum grows while records go to the verifier, and is compared at the
 * end. */
#include "common/base/buffer.h"
#include "common/journal/archive_form.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct archive_reader {
	const char *path;
	FILE *file;
	EVP_MD_CTX *sum;
	uint64_t left; // bytes before the sum
	struct journal_verifier *verifier;
	void (*entry)(void *context, const struct journal_entry *entry);
	void *context;
	uint64_t next;       // the next entry's seq
	bool ends_with_head; // the last record is one
	enum status status;  // of the disk
	struct error *error;
	uint8_t record[ARCHIVE_LARGEST_RECORD + 1]; // a text in it ends with 0
};

enum { SMALLEST = ARCHIVE_BEGIN_BYTES + TREE_HASH_BYTES };

static void report(struct archive_reader *reader, enum journal_verdict verdict, const char *what)
{
	const char *slash = strrchr(reader->path, '/');
	journal_report_finding(reader->verifier, verdict, reader->next, "%.120s: %s", slash ? slash + 1 : reader->path,
			       what);
}

// False, with a finding or the disk's error, if they are not there.
static bool take(struct archive_reader *reader, void *bytes, size_t length)
{
	if (length > reader->left) {
		report(reader, JOURNAL_TRUNCATED, "it ends in the middle of a record");
		return false;
	}
	if (fread(bytes, 1, length, reader->file) != length) {
		reader->status = error_errno(reader->error, STATUS_UNAVAILABLE, ferror(reader->file) ? errno : EIO,
					     "cannot read %s", reader->path);
		return false;
	}
	if (EVP_DigestUpdate(reader->sum, bytes, length) != 1) {
		reader->status = error_set(reader->error, STATUS_OUT_OF_MEMORY, "no memory for the archive's sum");
		return false;
	}
	reader->left -= length;
	return true;
}

// A part of the head that is a text with its length before it. NULL: it is not.
static const char *cut_text(const uint8_t **at, const uint8_t *end, size_t maximum)
{
	if (end - *at < 4)
		return NULL;
	uint64_t length = archive_read(*at, 4);
	const uint8_t *begin = *at + 4;
	if (length > maximum || length > (uint64_t)(end - begin) || (length && memchr(begin, 0, length)))
		return NULL;
	*at = begin + length;
	return buffer_copy_text(begin, length);
}

static bool parse_head(struct archive_reader *reader, const uint8_t *head, size_t length)
{
	const uint8_t *at = head + 16, *end = head + length;
	struct tree before = {0};
	struct journal_segment segment = {.before = &before};
	const char *key = NULL, *certificate = NULL;
	bool good = length >= 16;
	if (good) {
		segment.number = archive_read(head, 8);
		segment.first = before.size = reader->next = archive_read(head + 8, 8);
		size_t peaks = tree_peaks(before.size) * sizeof(before.peaks[0]);
		good = segment.number <= INT64_MAX && before.size <= INT64_MAX &&
		       (key = cut_text(&at, end, NOTE_KEY_TEXT_BYTES)) &&
		       (certificate = cut_text(&at, end, NOTE_BYTES)) && (size_t)(end - at) == peaks &&
		       !note_key_parse(&segment.key, key);
		if (good)
			memcpy(before.peaks, at, peaks);
	}
	if (good) {
		segment.certificate = certificate;
		journal_verify_segment(reader->verifier, &segment);
	} else {
		report(reader, JOURNAL_MODIFIED, "its head is not that of an archive");
	}
	free((char *)key);
	free((char *)certificate);
	return good;
}

static bool read_head(struct archive_reader *reader)
{
	uint8_t begin[ARCHIVE_BEGIN_BYTES];
	if (!take(reader, begin, sizeof(begin)))
		return false;
	uint64_t length = archive_read(begin + 12, 4);
	if (memcmp(begin, ARCHIVE_MAGIC, 8) != 0 || archive_read(begin + 8, 4) != ARCHIVE_VERSION ||
	    length > ARCHIVE_HEAD_BYTES) {
		report(reader, JOURNAL_MODIFIED, "it is not an archive of an audit log, or one of a newer program");
		return false;
	}
	uint8_t *head = malloc(length + 1);
	if (!head) {
		reader->status = error_set(reader->error, STATUS_OUT_OF_MEMORY, "no memory for an archive's head");
		return false;
	}
	bool good = take(reader, head, length) && parse_head(reader, head, length);
	free(head);
	return good;
}

static void tell_entry(const struct archive_reader *reader, size_t length)
{
	char texts[ENTRY_BYTES];
	struct journal_entry entry;
	if (reader->entry && !entry_decode(&entry, reader->record, length, texts) && entry.seq == reader->next)
		reader->entry(reader->context, &entry);
}

static void feed_checkpoint(struct archive_reader *reader, size_t length)
{
	const char *note = (const char *)reader->record;
	reader->record[length] = 0;
	if (strlen(note) == length)
		journal_verify_checkpoint(reader->verifier, note);
	else
		report(reader, JOURNAL_BAD_SIGNATURE, "a head has a byte that no text has");
}

static bool read_record(struct archive_reader *reader)
{
	uint8_t begin[ARCHIVE_RECORD_BYTES];
	struct tree_hash leaf;
	if (!take(reader, begin, sizeof(begin)))
		return false;
	uint64_t length = archive_read(begin + 1, 4);
	enum archive_record kind = begin[0] <= ARCHIVE_CHECKPOINT ? (enum archive_record)begin[0] : ARCHIVE_UNKNOWN;
	if (!length || length > archive_largest(kind) || (kind == ARCHIVE_LEAF && length != TREE_HASH_BYTES)) {
		report(reader, JOURNAL_MODIFIED, "a record is of no known kind and length");
		return false;
	}
	if (!take(reader, reader->record, length))
		return false;
	reader->ends_with_head = kind == ARCHIVE_CHECKPOINT;
	switch (kind) {
	case ARCHIVE_ENTRY:
		journal_verify_entry(reader->verifier, reader->next, reader->record, length, NULL);
		tell_entry(reader, length);
		reader->next++;
		break;
	case ARCHIVE_LEAF:
		memcpy(leaf.bytes, reader->record, sizeof(leaf.bytes));
		journal_verify_entry(reader->verifier, reader->next++, NULL, 0, &leaf);
		break;
	case ARCHIVE_CHECKPOINT:
		feed_checkpoint(reader, length);
		break;
	case ARCHIVE_UNKNOWN:
		break;
	}
	return true;
}

static void check_end(struct archive_reader *reader)
{
	uint8_t sum[EVP_MAX_MD_SIZE], kept[TREE_HASH_BYTES];
	if (!reader->ends_with_head)
		report(reader, JOURNAL_TRUNCATED, "it does not end with a signed head");
	if (fread(kept, 1, sizeof(kept), reader->file) != sizeof(kept))
		reader->status = error_errno(reader->error, STATUS_UNAVAILABLE, ferror(reader->file) ? errno : EIO,
					     "cannot read %s", reader->path);
	else if (EVP_DigestFinal_ex(reader->sum, sum, NULL) != 1)
		reader->status = error_set(reader->error, STATUS_OUT_OF_MEMORY, "no memory for the archive's sum");
	else if (memcmp(sum, kept, sizeof(kept)) != 0)
		report(reader, JOURNAL_MODIFIED, "its sum is not that of its bytes");
}

static enum status open_file(struct archive_reader *reader)
{
	struct stat stat;
	int file = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // not to hang where it is a pipe
	if (file < 0)
		return error_errno(reader->error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE, errno,
				   "cannot open %s", reader->path);
	reader->file = fdopen(file, "r");
	if (!reader->file) {
		close(file);
		return error_set(reader->error, STATUS_OUT_OF_MEMORY, "no memory to read %s", reader->path);
	}
	if (fstat(file, &stat) || !S_ISREG(stat.st_mode))
		return error_set(reader->error, STATUS_UNAVAILABLE, "%s is not a file", reader->path);
	reader->left = (uint64_t)stat.st_size;
	return STATUS_OK;
}

enum status archive_verify(const char *path, struct journal_verifier *verifier,
			   void (*entry)(void *context, const struct journal_entry *entry), void *context,
			   struct error *error)
{
	struct archive_reader *reader = calloc(1, sizeof(*reader));
	if (!reader)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read %s", path);
	reader->path = path;
	reader->verifier = verifier;
	reader->entry = entry;
	reader->context = context;
	reader->error = error;
	reader->sum = EVP_MD_CTX_new();
	enum status status = open_file(reader);
	if (!status && (!reader->sum || EVP_DigestInit_ex(reader->sum, EVP_sha256(), NULL) != 1))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read %s", path);
	if (status)
		goto out;
	if (reader->left < SMALLEST) {
		report(reader, JOURNAL_TRUNCATED, "it is shorter than any archive");
		goto out;
	}
	reader->left -= TREE_HASH_BYTES;
	bool good = read_head(reader);
	while (good && reader->left)
		good = read_record(reader);
	if (good)
		check_end(reader);
	status = reader->status;
out:
	if (reader->file)
		fclose(reader->file);
	EVP_MD_CTX_free(reader->sum);
	free(reader);
	return status;
}
