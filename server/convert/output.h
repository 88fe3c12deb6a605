/* Writing GGUF, version 3: metadata one key after the other, then the list of tensors, then their bytes, each aligned.
 * A buffer that fails stays failed, so that one check at the end is enough. Thread: any; what writes files waits for
 * the disk. */
#pragma once
#include "common/base/buffer.h"
#include "engine/model/gguf.h"

struct output_keys {
	struct buffer bytes; // as they stand in the file
	uint64_t count;
};
void output_keys_init(struct output_keys *keys);
void output_keys_finish(struct output_keys *keys);

void output_text(struct output_keys *keys, const char *key, const char *text, size_t length);
void output_word(struct output_keys *keys, const char *key, const char *word);
void output_u32(struct output_keys *keys, const char *key, uint32_t value);
void output_f32(struct output_keys *keys, const char *key, double value);
void output_bool(struct output_keys *keys, const char *key, bool value);
// The beginning of an array, whose elements follow by the functions below.
enum output_element { OUTPUT_TEXTS, OUTPUT_F32S, OUTPUT_I32S };
void output_array(struct output_keys *keys, const char *key, enum output_element element, uint64_t count);
void output_element_text(struct output_keys *keys, const char *text, size_t length);
void output_element_f32(struct output_keys *keys, double value);
void output_element_i32(struct output_keys *keys, int32_t value);

// The beginning of a file, a tensor of its list, and what fills it up to the first tensor's bytes.
void output_begin(struct buffer *out, const struct buffer *keys, uint64_t key_count, uint64_t tensor_count);
void output_tensor(struct buffer *out, const struct gguf_tensor *tensor, uint64_t offset);
void output_fill(struct buffer *out, uint64_t alignment);
uint64_t output_aligned(uint64_t bytes, uint64_t alignment);

// Give an empty file its length, if the disk has room. Errors: STATUS_LIMIT_EXCEEDED, STATUS_UNAVAILABLE.
enum status output_make_room(int fd, uint64_t bytes, struct error *error);
// Errors: STATUS_LIMIT_EXCEEDED (the disk is full), STATUS_UNAVAILABLE.
enum status output_write(int fd, const uint8_t *bytes, size_t length, uint64_t at, struct error *error);
