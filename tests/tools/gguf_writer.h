/* Writes GGUF files (version 3), for tests and benchmarks: keys, then tensors, then whatever the caller puts where the
 * tensors' data belong. It writes what it is told, good or not. Memory that runs out ends the program. */
#pragma once
#include "common/base/buffer.h"
#include "engine/model/format.h"

#include <stdbool.h>

struct gguf_writer {
	struct buffer keys, tensors;
	uint64_t key_count, tensor_count;
	uint32_t alignment;  // told in the file if it is not 32
	uint64_t data_bytes; // of all tensors so far, with what is between them
};

void gguf_writer_init(struct gguf_writer *writer, uint32_t alignment);
void gguf_writer_finish(struct gguf_writer *writer);

void gguf_put_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_writer *writer, const char *key, float value);
void gguf_put_bool(struct gguf_writer *writer, const char *key, bool value);
void gguf_put_text(struct gguf_writer *writer, const char *key, const char *text);
void gguf_put_texts(struct gguf_writer *writer, const char *key, const char *const *texts, size_t count);
void gguf_put_i32s(struct gguf_writer *writer, const char *key, const int32_t *values, size_t count);
void gguf_put_f32s(struct gguf_writer *writer, const char *key, const float *values, size_t count);

// rows of columns; 0 rows: a vector. Returns its place within the data.
uint64_t gguf_put_experts(struct gguf_writer *writer, const char *name, enum tensor_format format, uint64_t columns,
			  uint64_t rows, uint64_t experts);
uint64_t gguf_put_tensor(struct gguf_writer *writer, const char *name, enum tensor_format format, uint64_t columns,
			 uint64_t rows);

// Everything before the data, which come next.
void gguf_writer_head(const struct gguf_writer *writer, struct buffer *out);
