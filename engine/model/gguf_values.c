/* The values of a model file's keys; see gguf.h. They were checked when the file was opened. */
#include "engine/model/gguf_inside.h"

#include <stdlib.h>
#include <string.h>

static const struct gguf_key *find_key(const struct gguf *gguf, const char *name, bool array)
{
	const struct gguf_key wanted = {.name = {name, strlen(name)}};
	const struct gguf_key *key = bsearch(&wanted, gguf->keys, gguf->key_count, sizeof(*gguf->keys),
					     gguf_compare_keys);
	return key && key->array == array ? key : NULL;
}

// False if it is no integer, or negative.
static bool count_of(uint32_t type, const uint8_t *value, uint64_t *out)
{
	if (type >= VALUE_TYPES || !gguf_value_bytes[type] || type == VALUE_F32 || type == VALUE_F64 ||
	    type == VALUE_BOOL)
		return false;
	uint64_t number = gguf_little_endian(value, gguf_value_bytes[type]);
	bool with_sign = type == VALUE_I8 || type == VALUE_I16 || type == VALUE_I32 || type == VALUE_I64;
	if (with_sign && number >> (8 * gguf_value_bytes[type] - 1))
		return false;
	*out = number;
	return true;
}

static bool number_of(uint32_t type, const uint8_t *value, double *out)
{
	uint64_t bits;
	if (count_of(type, value, &bits)) {
		*out = (double)bits;
		return true;
	}
	float single;
	switch (type) {
	case VALUE_I8:
		*out = (int8_t)value[0];
		return true;
	case VALUE_I16:
		*out = (int16_t)gguf_little_endian(value, 2);
		return true;
	case VALUE_I32:
		*out = (int32_t)gguf_little_endian(value, 4);
		return true;
	case VALUE_I64:
		*out = (double)(int64_t)gguf_little_endian(value, 8);
		return true;
	case VALUE_F32:
		memcpy(&single, value, sizeof(single));
		*out = (double)single;
		return true;
	case VALUE_F64:
		memcpy(out, value, sizeof(*out));
		return true;
	}
	return false;
}

bool gguf_get_count(const struct gguf *gguf, const char *name, uint64_t *out)
{
	const struct gguf_key *key = find_key(gguf, name, false);
	return key && count_of(key->type, key->value, out);
}

bool gguf_get_number(const struct gguf *gguf, const char *name, double *out)
{
	const struct gguf_key *key = find_key(gguf, name, false);
	return key && number_of(key->type, key->value, out);
}

bool gguf_get_bool(const struct gguf *gguf, const char *name, bool *out)
{
	const struct gguf_key *key = find_key(gguf, name, false);
	if (!key || key->type != VALUE_BOOL)
		return false;
	*out = *key->value;
	return true;
}

bool gguf_get_text(const struct gguf *gguf, const char *name, struct gguf_text *out)
{
	const struct gguf_key *key = find_key(gguf, name, false);
	if (!key || key->type != VALUE_TEXT)
		return false;
	*out = (struct gguf_text){(const char *)key->value + 8, gguf_little_endian(key->value, 8)};
	return true;
}

size_t gguf_key_count(const struct gguf *gguf)
{
	return gguf->key_count;
}

void gguf_key(const struct gguf *gguf, size_t index, struct gguf_text *name, struct gguf_text *whole)
{
	const struct gguf_key *key = &gguf->keys[index];
	const char *start = key->name.bytes - 8; // its length
	*name = key->name;
	*whole = (struct gguf_text){start, (uint64_t)((const char *)key->end - start)};
}

bool gguf_get_array(const struct gguf *gguf, const char *name, uint64_t *length)
{
	const struct gguf_key *key = find_key(gguf, name, true);
	if (!key)
		return false;
	*length = key->length;
	return true;
}

bool gguf_next_text(const struct gguf *gguf, const char *name, uint64_t *cursor, struct gguf_text *out)
{
	const struct gguf_key *key = find_key(gguf, name, true);
	if (!key || key->type != VALUE_TEXT || *cursor >= (uint64_t)(key->end - key->value))
		return false;
	const uint8_t *text = key->value + *cursor;
	*out = (struct gguf_text){(const char *)text + 8, gguf_little_endian(text, 8)};
	*cursor += 8 + out->length;
	return true;
}

bool gguf_array_number(const struct gguf *gguf, const char *name, uint64_t index, double *out)
{
	const struct gguf_key *key = find_key(gguf, name, true);
	if (!key || index >= key->length || !gguf_value_bytes[key->type])
		return false;
	return number_of(key->type, key->value + index * gguf_value_bytes[key->type], out);
}
