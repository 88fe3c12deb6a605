/* See models_index.h. */
#include "engine/node/models/models_index.h"

#include "common/base/buffer.h"
#include "common/base/bytes.h"
#include "common/base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 24, RECORD_BYTES = 48 };

static const char magic[8] = {'X', 'G', 'M', 'O', 'D', 'E', 'L', '1'};
static const size_t most_bytes = HEADER_BYTES + (size_t)LIMIT_MODEL_PIECES * RECORD_BYTES + MODEL_SHA256_BYTES;

static enum status append_u64le(struct buffer *out, uint64_t value)
{
	uint8_t bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	return buffer_append(out, bytes, sizeof(bytes));
}

void model_index_finish(struct model_index *index)
{
	free(index->pieces);
	*index = (struct model_index){0};
}

// ---- spans ----

static int by_offset(const void *a, const void *b)
{
	const struct model_span *one = a, *other = b;
	return one->offset < other->offset ? -1 : one->offset > other->offset;
}

size_t model_spans_join(struct model_span *spans, size_t count)
{
	size_t kept = 0;
	if (count)
		qsort(spans, count, sizeof(*spans), by_offset);
	for (size_t i = 0; i < count; i++) {
		struct model_span *last = kept ? &spans[kept - 1] : NULL;
		uint64_t end = spans[i].offset + spans[i].bytes;
		if (last && spans[i].offset <= last->offset + last->bytes) {
			if (end > last->offset + last->bytes)
				last->bytes = end - last->offset;
		} else if (spans[i].bytes) {
			spans[kept++] = spans[i];
		}
	}
	return kept;
}

size_t model_index_after(const struct model_index *index, uint64_t offset)
{
	size_t low = 0, high = index->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct model_span *at = &index->pieces[middle].at;
		if (at->offset + at->bytes > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct model_span model_index_gap(const struct model_index *index, const struct model_span *span)
{
	uint64_t begin = span->offset, end = span->offset + span->bytes;
	size_t next = model_index_after(index, begin);
	while (next < index->count && index->pieces[next].at.offset <= begin) {
		begin = index->pieces[next].at.offset + index->pieces[next].at.bytes;
		next++;
	}
	if (next < index->count && index->pieces[next].at.offset < end)
		end = index->pieces[next].at.offset;
	if (begin >= end)
		return (struct model_span){.offset = end};
	uint64_t bytes = end - begin;
	return (struct model_span){begin, bytes < LIMIT_MODEL_PIECE_BYTES ? bytes : LIMIT_MODEL_PIECE_BYTES};
}

// ---- pieces ----

enum status model_index_add(struct model_index *index, const struct model_piece *piece, struct error *error)
{
	if (index->count >= LIMIT_MODEL_PIECES)
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the cache has %zu pieces of the model, which is the limit", index->count);
	if (index->count == index->capacity) {
		size_t capacity = index->capacity ? 2 * index->capacity : 256;
		struct model_piece *larger = realloc(index->pieces, capacity * sizeof(*larger));
		if (!larger)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the list of downloaded ranges");
		index->pieces = larger;
		index->capacity = capacity;
	}
	size_t at = model_index_after(index, piece->at.offset);
	memmove(index->pieces + at + 1, index->pieces + at, (index->count - at) * sizeof(*index->pieces));
	index->pieces[at] = *piece;
	index->count++;
	return STATUS_OK;
}

void model_index_remove(struct model_index *index, size_t at)
{
	index->count--;
	memmove(index->pieces + at, index->pieces + at + 1, (index->count - at) * sizeof(*index->pieces));
}

// ---- the file ----

static enum status parse(struct model_index *index, const struct buffer *text, struct error *error)
{
	uint8_t sha256[MODEL_SHA256_BYTES];
	enum status status = STATUS_OK;
	if (text->length < HEADER_BYTES + MODEL_SHA256_BYTES || memcmp(text->data, magic, sizeof(magic)) != 0)
		return STATUS_NOT_FOUND;
	size_t body = text->length - MODEL_SHA256_BYTES;
	uint64_t count = read_u64le(text->data + 16), end = 0;
	if (count > LIMIT_MODEL_PIECES || body != HEADER_BYTES + count * RECORD_BYTES ||
	    !EVP_Digest(text->data, body, sha256, NULL, EVP_sha256(), NULL) ||
	    memcmp(sha256, text->data + body, sizeof(sha256)) != 0)
		return STATUS_NOT_FOUND;
	index->file_bytes = read_u64le(text->data + 8);
	for (size_t i = 0; i < count && !status; i++) {
		const uint8_t *record = text->data + HEADER_BYTES + i * RECORD_BYTES;
		struct model_piece piece = {.at = {read_u64le(record), read_u64le(record + 8)}};
		memcpy(piece.sha256, record + 16, sizeof(piece.sha256));
		if (piece.at.offset < end || !piece.at.bytes || piece.at.bytes > LIMIT_MODEL_PIECE_BYTES ||
		    piece.at.offset > index->file_bytes || piece.at.bytes > index->file_bytes - piece.at.offset)
			return STATUS_NOT_FOUND;
		end = piece.at.offset + piece.at.bytes;
		status = model_index_add(index, &piece, error);
	}
	return status;
}

enum status model_index_read(struct model_index *index, const char *path, struct error *error)
{
	struct buffer text;
	struct stat info;
	ssize_t got = 0;
	*index = (struct model_index){0};
	buffer_init(&text, most_bytes);
	enum status status = STATUS_OK;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) || !S_ISREG(info.st_mode) || (uint64_t)info.st_size > most_bytes)
		status = STATUS_NOT_FOUND;
	if (!status)
		status = buffer_reserve(&text, (size_t)info.st_size + 1);
	while (!status && text.length < (size_t)info.st_size &&
	       ((got = read(fd, text.data + text.length, (size_t)info.st_size - text.length)) > 0 || errno == EINTR))
		text.length += got > 0 ? (size_t)got : 0;
	if (!status)
		status = parse(index, &text, error);
	if (status) {
		model_index_finish(index);
		error_set(error, status, "the cache has no index of it");
	}
	if (fd >= 0)
		close(fd);
	buffer_finish(&text);
	return status;
}

static enum status print(const struct model_index *index, struct buffer *out)
{
	uint8_t sha256[MODEL_SHA256_BYTES];
	enum status status = buffer_append(out, magic, sizeof(magic));
	if (!status)
		status = append_u64le(out, index->file_bytes);
	if (!status)
		status = append_u64le(out, index->count);
	for (size_t i = 0; i < index->count && !status; i++) {
		status = append_u64le(out, index->pieces[i].at.offset);
		if (!status)
			status = append_u64le(out, index->pieces[i].at.bytes);
		if (!status)
			status = buffer_append(out, index->pieces[i].sha256, sizeof(sha256));
	}
	if (!status && !EVP_Digest(out->data, out->length, sha256, NULL, EVP_sha256(), NULL))
		status = STATUS_OUT_OF_MEMORY;
	return status ? status : buffer_append(out, sha256, sizeof(sha256));
}

enum status model_index_write(const struct model_index *index, const char *path, struct error *error)
{
	char beside[4200];
	struct buffer text;
	size_t written = 0;
	ssize_t now = 0;
	buffer_init(&text, most_bytes);
	snprintf(beside, sizeof(beside), "%s.new", path);
	if (print(index, &text)) {
		buffer_finish(&text);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the list of downloaded ranges");
	}
	int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	while (fd >= 0 && written < text.length &&
	       ((now = write(fd, text.data + written, text.length - written)) > 0 || errno == EINTR))
		written += now > 0 ? (size_t)now : 0;
	enum status status = STATUS_OK;
	if (fd < 0 || written < text.length || rename(beside, path))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "writing the list of downloaded ranges");
	if (fd >= 0)
		close(fd);
	if (status)
		unlink(beside);
	buffer_finish(&text);
	return status;
}
