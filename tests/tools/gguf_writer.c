/* See gguf_writer.h; the layout is drawn in engine/model/gguf.c. */
#include "tests/tools/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES_MOST = 256 << 20 };
enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_ARRAY = 9 };

static void must(enum status status)
{
	if (status)
		abort();
}

static void put_u64(struct buffer *out, uint64_t value)
{
	must(buffer_append_u32le(out, (uint32_t)value));
	must(buffer_append_u32le(out, (uint32_t)(value >> 32)));
}

static void put_text(struct buffer *out, const char *text)
{
	put_u64(out, strlen(text));
	must(buffer_append(out, text, strlen(text)));
}

static void put_key(struct gguf_writer *writer, const char *key, uint32_t type)
{
	put_text(&writer->keys, key);
	must(buffer_append_u32le(&writer->keys, type));
	writer->key_count++;
}

static void put_array(struct gguf_writer *writer, const char *key, uint32_t type, uint64_t count)
{
	put_key(writer, key, TYPE_ARRAY);
	must(buffer_append_u32le(&writer->keys, type));
	put_u64(&writer->keys, count);
}

void gguf_writer_init(struct gguf_writer *writer, uint32_t alignment)
{
	*writer = (struct gguf_writer){.alignment = alignment};
	buffer_init(&writer->keys, HEAD_BYTES_MOST);
	buffer_init(&writer->tensors, HEAD_BYTES_MOST);
	if (alignment != 32)
		gguf_put_u32(writer, "general.alignment", alignment);
}

void gguf_writer_finish(struct gguf_writer *writer)
{
	buffer_finish(&writer->keys);
	buffer_finish(&writer->tensors);
}

void gguf_put_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
	put_key(writer, key, TYPE_U32);
	must(buffer_append_u32le(&writer->keys, value));
}

void gguf_put_f32(struct gguf_writer *writer, const char *key, float value)
{
	put_key(writer, key, TYPE_F32);
	must(buffer_append(&writer->keys, &value, sizeof(value)));
}

void gguf_put_bool(struct gguf_writer *writer, const char *key, bool value)
{
	put_key(writer, key, TYPE_BOOL);
	must(buffer_append_byte(&writer->keys, value));
}

void gguf_put_text(struct gguf_writer *writer, const char *key, const char *text)
{
	put_key(writer, key, TYPE_TEXT);
	put_text(&writer->keys, text);
}

void gguf_put_texts(struct gguf_writer *writer, const char *key, const char *const *texts, size_t count)
{
	put_array(writer, key, TYPE_TEXT, count);
	for (size_t i = 0; i < count; i++)
		put_text(&writer->keys, texts[i]);
}

void gguf_put_i32s(struct gguf_writer *writer, const char *key, const int32_t *values, size_t count)
{
	put_array(writer, key, TYPE_I32, count);
	must(buffer_append(&writer->keys, values, count * sizeof(*values)));
}

void gguf_put_f32s(struct gguf_writer *writer, const char *key, const float *values, size_t count)
{
	put_array(writer, key, TYPE_F32, count);
	must(buffer_append(&writer->keys, values, count * sizeof(*values)));
}

static uint32_t type_of(enum tensor_format format)
{
	static const uint32_t types[FORMAT_COUNT] = {
		[FORMAT_UNKNOWN] = 23, // IQ4_XS, which we do not read
		[FORMAT_F32] = 0,      [FORMAT_F16] = 1,   [FORMAT_BF16] = 30, [FORMAT_Q8_0] = 8,   [FORMAT_Q4_0] = 2,
		[FORMAT_Q4_K] = 12,    [FORMAT_Q5_K] = 13, [FORMAT_Q6_K] = 14, [FORMAT_MXFP4] = 39,
	};
	return types[format];
}

uint64_t gguf_put_tensor(struct gguf_writer *writer, const char *name, enum tensor_format format, uint64_t columns,
			 uint64_t rows)
{
	return gguf_put_experts(writer, name, format, columns, rows, 0);
}

uint64_t gguf_put_experts(struct gguf_writer *writer, const char *name, enum tensor_format format, uint64_t columns,
			  uint64_t rows, uint64_t experts)
{
	uint64_t place = writer->data_bytes, bytes = format_row_bytes(format, columns) * (rows ? rows : 1);
	bytes *= experts ? experts : 1;
	put_text(&writer->tensors, name);
	must(buffer_append_u32le(&writer->tensors, experts ? 3 : rows ? 2 : 1));
	put_u64(&writer->tensors, columns);
	if (rows)
		put_u64(&writer->tensors, rows);
	if (experts)
		put_u64(&writer->tensors, experts);
	must(buffer_append_u32le(&writer->tensors, type_of(format)));
	put_u64(&writer->tensors, place);
	writer->tensor_count++;
	writer->data_bytes += (bytes + writer->alignment - 1) / writer->alignment * writer->alignment;
	return place;
}

void gguf_writer_head(const struct gguf_writer *writer, struct buffer *out)
{
	must(buffer_append(out, "GGUF", 4));
	must(buffer_append_u32le(out, 3));
	put_u64(out, writer->tensor_count);
	put_u64(out, writer->key_count);
	must(buffer_append(out, writer->keys.data, writer->keys.length));
	must(buffer_append(out, writer->tensors.data, writer->tensors.length));
	while (out->length % writer->alignment)
		must(buffer_append_byte(out, 0));
}
