/* See output.h. */
#include "server/convert/output.h"

#include "common/base/limits.h"
#include "common/text/size_text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { GGUF_VERSION = 3, TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_ARRAY = 9 };

static void put_number(struct buffer *out, uint64_t value, unsigned bytes)
{
	uint8_t little[8];
	for (unsigned i = 0; i < bytes; i++)
		little[i] = (uint8_t)(value >> (8 * i));
	buffer_append(out, little, bytes);
}

static void put_text(struct buffer *out, const char *text, size_t length)
{
	put_number(out, length, 8);
	buffer_append(out, text, length);
}

static void put_f32(struct buffer *out, double value)
{
	const float narrow = (float)value;
	uint32_t bits;
	memcpy(&bits, &narrow, sizeof bits);
	put_number(out, bits, 4);
}

// ---- metadata ----

void output_keys_init(struct output_keys *keys)
{
	buffer_init(&keys->bytes, LIMIT_MODEL_HEADER_BYTES);
	keys->count = 0;
}

void output_keys_finish(struct output_keys *keys)
{
	buffer_finish(&keys->bytes);
}

static struct buffer *begin_key(struct output_keys *keys, const char *key, uint32_t type)
{
	put_text(&keys->bytes, key, strlen(key));
	put_number(&keys->bytes, type, 4);
	keys->count++;
	return &keys->bytes;
}

void output_text(struct output_keys *keys, const char *key, const char *text, size_t length)
{
	put_text(begin_key(keys, key, TYPE_TEXT), text, length);
}

void output_word(struct output_keys *keys, const char *key, const char *word)
{
	output_text(keys, key, word, strlen(word));
}

void output_u32(struct output_keys *keys, const char *key, uint32_t value)
{
	put_number(begin_key(keys, key, TYPE_U32), value, 4);
}

void output_f32(struct output_keys *keys, const char *key, double value)
{
	put_f32(begin_key(keys, key, TYPE_F32), value);
}

void output_bool(struct output_keys *keys, const char *key, bool value)
{
	put_number(begin_key(keys, key, TYPE_BOOL), value, 1);
}

void output_array(struct output_keys *keys, const char *key, enum output_element element, uint64_t count)
{
	static const uint32_t numbers[] = {
		[OUTPUT_TEXTS] = TYPE_TEXT, [OUTPUT_F32S] = TYPE_F32, [OUTPUT_I32S] = TYPE_I32};
	struct buffer *out = begin_key(keys, key, TYPE_ARRAY);
	put_number(out, numbers[element], 4);
	put_number(out, count, 8);
}

void output_element_text(struct output_keys *keys, const char *text, size_t length)
{
	put_text(&keys->bytes, text, length);
}

void output_element_f32(struct output_keys *keys, double value)
{
	put_f32(&keys->bytes, value);
}

void output_element_i32(struct output_keys *keys, int32_t value)
{
	put_number(&keys->bytes, (uint32_t)value, 4);
}

// ---- the head of a file ----

void output_begin(struct buffer *out, const struct buffer *keys, uint64_t key_count, uint64_t tensor_count)
{
	buffer_append(out, "GGUF", 4);
	put_number(out, GGUF_VERSION, 4);
	put_number(out, tensor_count, 8);
	put_number(out, key_count, 8);
	buffer_append(out, keys->data, keys->length);
}

void output_tensor(struct buffer *out, const struct gguf_tensor *tensor, uint64_t offset)
{
	put_text(out, tensor->name, strlen(tensor->name));
	put_number(out, tensor->dimension_count, 4);
	for (unsigned d = 0; d < tensor->dimension_count; d++)
		put_number(out, tensor->size[d], 8);
	put_number(out, tensor->type, 4);
	put_number(out, offset, 8);
}

uint64_t output_aligned(uint64_t bytes, uint64_t alignment)
{
	return (bytes + alignment - 1) / alignment * alignment;
}

void output_fill(struct buffer *out, uint64_t alignment)
{
	static const uint8_t zeros[64];
	while (!out->failed && out->length % alignment) {
		const size_t missing = (size_t)(alignment - out->length % alignment);
		buffer_append(out, zeros, missing < sizeof zeros ? missing : sizeof zeros);
	}
}

// ---- the file ----

enum status output_make_room(int fd, uint64_t bytes, struct error *error)
{
	struct statvfs disk;
	const uint64_t reserve = LIMIT_FETCH_RESERVE_MIB * 1024ull * 1024;
	if (bytes / 1024 / 1024 / 1024 >= LIMIT_MODEL_FILE_GIB)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a model of more than %d GiB", LIMIT_MODEL_FILE_GIB);
	// A file system without blocks does not say.
	if (!fstatvfs(fd, &disk) && disk.f_blocks && (uint64_t)disk.f_bavail * disk.f_frsize < bytes + reserve) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "the disk has no room for the model's file: this takes %s",
			  SIZE_TEXT(bytes));
		error_hint(error, "the files stay until then; make room and add the model again");
		return STATUS_LIMIT_EXCEEDED;
	}
	// So that nothing else takes the room meanwhile, where the file system can.
	if (fallocate(fd, 0, 0, (off_t)bytes) && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		return error_errno(error, errno == ENOSPC ? STATUS_LIMIT_EXCEEDED : STATUS_UNAVAILABLE, errno,
				   "the model's file cannot be written");
	return ftruncate(fd, (off_t)bytes)
		       ? error_errno(error, STATUS_UNAVAILABLE, errno, "the model's file cannot be written")
		       : STATUS_OK;
}

enum status output_write(int fd, const uint8_t *bytes, size_t length, uint64_t at, struct error *error)
{
	while (length) {
		const ssize_t put = pwrite(fd, bytes, length, (off_t)at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return error_errno(error, errno == ENOSPC ? STATUS_LIMIT_EXCEEDED : STATUS_UNAVAILABLE, errno,
					   "the model's file cannot be written");
		bytes += put;
		length -= (size_t)put;
		at += (uint64_t)put;
	}
	return STATUS_OK;
}
