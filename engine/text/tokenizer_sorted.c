/* Tokens in the order of their bytes: sorting them, and finding the one that a text begins with. See
 * vocabulary.h. */
#include "engine/text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

static int compare_bytes(const uint8_t *a, size_t a_length, const uint8_t *b, size_t b_length)
{
	size_t shorter = a_length < b_length ? a_length : b_length;
	int order = shorter ? memcmp(a, b, shorter) : 0;
	return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int by_bytes(const void *a, const void *b, void *context)
{
	const struct tokenizer *tokenizer = context;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	int order = compare_bytes(token_text(tokenizer, first), tokenizer->tokens[first].length,
				  token_text(tokenizer, second), tokenizer->tokens[second].length);
	return order ? order : (first > second) - (first < second);
}

enum status tokenizer_sort(const struct tokenizer *tokenizer, bool (*belongs)(const struct tokenizer *, uint32_t),
			   struct sorted_tokens *out)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < tokenizer->count; i++)
		count += belongs(tokenizer, i);
	out->tokens = malloc((count + 1) * sizeof *out->tokens);
	if (!out->tokens)
		return STATUS_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < tokenizer->count; i++)
		if (belongs(tokenizer, i))
			out->tokens[out->count++] = i;
	qsort_r(out->tokens, count, sizeof *out->tokens, by_bytes, (void *)tokenizer);
	uint32_t at = 0;
	for (unsigned byte = 0; byte <= 256; byte++) {
		while (at < count && token_text(tokenizer, out->tokens[at])[0] < byte)
			at++;
		out->first[byte] = at;
	}
	return STATUS_OK;
}

void tokenizer_narrow(const struct tokenizer *tokenizer, const struct sorted_tokens *sorted, size_t depth, uint8_t byte,
		      uint32_t *low, uint32_t *high)
{
	uint32_t bounds[2];
	for (unsigned i = 0; i < 2; i++) {
		uint32_t from = i ? bounds[0] : *low, to = *high;
		while (from < to) {
			uint32_t middle = from + (to - from) / 2;
			if (token_text(tokenizer, sorted->tokens[middle])[depth] < byte + i)
				from = middle + 1;
			else
				to = middle;
		}
		bounds[i] = from;
	}
	*low = bounds[0];
	*high = bounds[1];
}

int32_t tokenizer_special(const struct tokenizer *tokenizer, const uint8_t *text, size_t length)
{
	const struct sorted_tokens *special = &tokenizer->special;
	uint32_t low = special->first[text[0]], high = special->first[text[0] + 1];
	int32_t found = NO_TOKEN;
	for (size_t depth = 1; low < high; depth++) {
		if (tokenizer->tokens[special->tokens[low]].length == depth) {
			found = (int32_t)special->tokens[low];
			while (low < high && tokenizer->tokens[special->tokens[low]].length == depth)
				low++; // others of the same text
		}
		if (depth == length)
			break;
		tokenizer_narrow(tokenizer, special, depth, text[depth], &low, &high);
	}
	return found;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t length)
{
	uint32_t low = 0, high = tokenizer->special.count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2, token = tokenizer->special.tokens[middle];
		int order = compare_bytes(token_text(tokenizer, token), tokenizer->tokens[token].length,
					  (const uint8_t *)text, length);
		if (!order)
			return (int32_t)token;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return length ? tokenizer_lookup(tokenizer, (const uint8_t *)text, length) : NO_TOKEN;
}
