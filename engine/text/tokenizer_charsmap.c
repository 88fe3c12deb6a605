/* SentencePiece's table of how text is rewritten before tokens are looked for (NFKC, and what else its trainer was
 * told), as files have it in tokenizer.ggml.precompiled_charsmap:
 *
 *     u32 bytes of the array | the array: units of u32 | texts, each of which ends with a 0          little-endian
 *
 * The array is a trie of UTF-8 keys in the form of Darts-clone (github.com/s-yata/darts-clone): a unit has bits 0 to 7
 * a label, bit 8 whether a key ends here, bits 10 to 30 an offset (times 256 with bit 9); a child is at the place of
 * its parent xor the parent's offset xor its label. The value of a key that ends here is the unit at the child 0: a
 * place in the texts.
 *
 * The file is not trusted: units beyond the array, places that no text begins at and keys that end inside a character
 * are not found, and a key has a maximum length, as an array may lead in circles. Thread: any; nothing changes once it
 * is read. */
#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml.precompiled_charsmap"
enum { HEAD_BYTES = 4, UNIT_BYTES = 4 };

static uint32_t read_u32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static enum status read_parts(struct charsmap *out, const uint8_t *bytes, size_t length, struct error *error)
{
	const uint32_t array = length >= HEAD_BYTES ? read_u32(bytes) : 0;
	if (!array || array % UNIT_BYTES || array > length - HEAD_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, KEY " does not begin with the length of its array");
	const uint8_t *texts = bytes + HEAD_BYTES + array;
	out->text_bytes = (uint32_t)(length - HEAD_BYTES - array);
	if (!out->text_bytes || texts[out->text_bytes - 1] ||
	    utf8_good((const char *)texts, out->text_bytes) < out->text_bytes)
		return error_set(error, STATUS_INVALID_PARAMS, KEY " does not end with texts in UTF-8");
	for (size_t at = 0, text = 0; at < out->text_bytes; at += text + 1) {
		text = strlen((const char *)texts + at);
		if (text > LIMIT_CHARSMAP_TEXT_BYTES)
			return error_set(error, STATUS_INVALID_PARAMS, KEY " has a text of %zu bytes; the most is %d",
					 text, LIMIT_CHARSMAP_TEXT_BYTES);
	}
	out->unit_count = array / UNIT_BYTES;
	out->units = malloc(array);
	out->texts = malloc(out->text_bytes);
	if (!out->units || !out->texts)
		return STATUS_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < out->unit_count; i++)
		out->units[i] = read_u32(bytes + HEAD_BYTES + (size_t)i * UNIT_BYTES);
	memcpy(out->texts, texts, out->text_bytes);
	return STATUS_OK;
}

enum status charsmap_read(struct charsmap *out, const struct gguf *gguf, struct error *error)
{
	uint64_t length = 0;
	if (!gguf_get_array(gguf, KEY, &length) || !length)
		return STATUS_OK;
	if (length > LIMIT_CHARSMAP_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, KEY " has %llu bytes; the most is %d",
				 (unsigned long long)length, LIMIT_CHARSMAP_BYTES);
	uint8_t *bytes = malloc(length);
	if (!bytes)
		return STATUS_OUT_OF_MEMORY;
	enum status status = STATUS_OK;
	for (uint64_t i = 0; i < length && !status; i++) {
		double byte;
		if (!gguf_array_number(gguf, KEY, i, &byte) || !(byte >= INT8_MIN && byte <= UINT8_MAX))
			status = error_set(error, STATUS_INVALID_PARAMS, KEY " is not a list of bytes");
		else
			bytes[i] = (uint8_t)(int)byte; // older converters write them with a sign
	}
	if (!status)
		status = read_parts(out, bytes, length, error);
	free(bytes);
	return status;
}

void charsmap_finish(struct charsmap *map)
{
	free(map->units);
	free(map->texts);
	*map = (struct charsmap){0};
}

static bool ends_inside_character(const uint8_t *text, size_t length, size_t at)
{
	return at < length && (text[at] & 0xC0) == 0x80;
}

size_t charsmap_find(const struct charsmap *map, const uint8_t *text, size_t length, const char **replacement)
{
	size_t found = 0;
	uint32_t place = 0;
	const size_t most = length < LIMIT_CHARSMAP_KEY_BYTES ? length : LIMIT_CHARSMAP_KEY_BYTES;
	for (size_t at = 0; map->units && at < most; at++) {
		const uint32_t parent = map->units[place];
		place ^= parent >> 10 << ((parent & 1u << 9) >> 6) ^ text[at];
		if (place >= map->unit_count)
			break;
		const uint32_t unit = map->units[place];
		if ((unit & (1u << 31 | 0xFF)) != text[at])
			break;
		const uint32_t leaf = place ^ unit >> 10 << ((unit & 1u << 9) >> 6);
		if (!(unit >> 8 & 1) || leaf >= map->unit_count || ends_inside_character(text, length, at + 1))
			continue;
		const uint32_t value = map->units[leaf] & ~(1u << 31);
		if (value >= map->text_bytes || ((uint8_t)map->texts[value] & 0xC0) == 0x80)
			continue;
		*replacement = map->texts + value;
		found = at + 1;
	}
	return found;
}
