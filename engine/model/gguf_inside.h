/* A model file as its own files see it: gguf.c reads it and has its tensors, gguf_values.c what its keys say. Not for
 * others. */
#pragma once
#include "engine/model/gguf.h"

enum gguf_value_type {
	VALUE_U8,
	VALUE_I8,
	VALUE_U16,
	VALUE_I16,
	VALUE_U32,
	VALUE_I32,
	VALUE_F32,
	VALUE_BOOL,
	VALUE_TEXT,
	VALUE_ARRAY,
	VALUE_U64,
	VALUE_I64,
	VALUE_F64,
	VALUE_TYPES
};
extern const uint8_t gguf_value_bytes[VALUE_TYPES]; // 0: it says so itself

struct gguf_key {
	struct gguf_text name;
	uint32_t type;        // of the value, or of an array's elements
	bool array;           // then:
	uint64_t length;      // elements
	const uint8_t *value; // up to end
	const uint8_t *end;
};

struct gguf {
	const uint8_t *bytes;  // (length)
	size_t length, there;  // there: of them those that can be read
	void *mapping;         // (length), or NULL if the bytes are somebody else's
	struct gguf_key *keys; // (key_count), by name
	size_t key_count;
	struct gguf_tensor *tensors; // (tensor_count), in the file's order
	const struct gguf_tensor **by_name;
	size_t tensor_count;
};

// By the name, in the order of the table.
int gguf_compare_keys(const void *left, const void *right);

static inline uint64_t gguf_little_endian(const uint8_t *bytes, size_t count)
{
	uint64_t value = 0;
	for (size_t i = 0; i < count; i++)
		value |= (uint64_t)bytes[i] << (8 * i);
	return value;
}
