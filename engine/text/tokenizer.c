/* Creates a tokenizer from a model file, and looks up tokens and merges. See tokenizer.h and vocabulary.h.
 *
 * The file is not trusted: every id is checked, tokens have a maximum length, and a file whose texts collide in the
 * hash table is refused, because lookups would be slow. */
#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#define KEY "tokenizer.ggml."
enum { SHOWN_BYTES = 80 };

// A word of the file, fit to be shown.
static const char *shown(const struct gguf_text *text, char out[SHOWN_BYTES])
{
	size_t length = text->length < SHOWN_BYTES - 1 ? text->length : SHOWN_BYTES - 1;
	for (size_t i = 0; i < length; i++)
		out[i] = (char)(text->bytes[i] >= ' ' && text->bytes[i] <= '~' ? text->bytes[i] : '?');
	out[length] = 0;
	return out;
}

// ---- the hash tables ----

static uint32_t hash_bytes(const uint8_t *bytes, size_t length)
{
	uint64_t hash = length * 0x9E3779B97F4A7C15u;
	while (length) {
		uint64_t word = 0;
		size_t step = length < sizeof word ? length : sizeof word;
		memcpy(&word, bytes, step);
		hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
		hash ^= hash >> 32;
		bytes += step;
		length -= step;
	}
	return (uint32_t)(hash ^ hash >> 29);
}

static uint32_t hash_pair(uint32_t left, uint32_t right)
{
	uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
	return (uint32_t)(hash >> 32 ^ hash);
}

static enum status slots_create(struct slots *slots, size_t entries)
{
	size_t size = 16;
	while (size < entries * 2)
		size *= 2;
	slots->mask = (uint32_t)(size - 1);
	slots->slots = calloc(size, sizeof *slots->slots);
	return slots->slots ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

int32_t tokenizer_lookup(const struct tokenizer *tokenizer, const uint8_t *bytes, size_t length)
{
	if (length > tokenizer->longest)
		return NO_TOKEN;
	uint32_t mask = tokenizer->texts.mask;
	for (uint32_t i = hash_bytes(bytes, length) & mask; tokenizer->texts.slots[i]; i = (i + 1) & mask) {
		uint32_t token = tokenizer->texts.slots[i] - 1;
		if (tokenizer->tokens[token].length == length && !memcmp(token_text(tokenizer, token), bytes, length))
			return (int32_t)token;
	}
	return NO_TOKEN;
}

int32_t tokenizer_merge(const struct tokenizer *tokenizer, uint32_t left, uint32_t right)
{
	uint32_t mask = tokenizer->pairs.mask;
	for (uint32_t i = hash_pair(left, right) & mask; tokenizer->pairs.slots[i]; i = (i + 1) & mask) {
		const struct merge *merge = &tokenizer->merges[tokenizer->pairs.slots[i] - 1];
		if (merge->left == left && merge->right == right)
			return (int32_t)(merge - tokenizer->merges);
	}
	return NO_TOKEN;
}

// Put `index` into the first free slot from `hash` on.
static enum status slots_add(struct slots *slots, uint32_t hash, uint32_t index, struct error *error)
{
	uint32_t i = hash & slots->mask;
	for (unsigned tries = 0; slots->slots[i]; tries++) {
		if (tries == LIMIT_TOKEN_COLLISIONS)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "the vocabulary's texts are made to collide, at entry %u", index);
		i = (i + 1) & slots->mask;
	}
	slots->slots[i] = index + 1;
	return STATUS_OK;
}

// ---- the texts of tokens ----

// The byte that a character of byte-level BPE represents; -1 if it is not in the alphabet. Bytes that are visible in
// Latin-1 represent themselves; the others are the characters from U+0100 on, in order.
static int byte_of_character(uint32_t character)
{
	if ((character >= '!' && character <= '~') || (character >= 0xA1 && character <= 0xFF && character != 0xAD))
		return (int)character;
	if (character < 0x100 || character > 0x143)
		return -1;
	unsigned index = character - 0x100; // of 33 low ones, 34 from DEL to U+00A0, and the soft hyphen
	return (int)(index <= 0x20 ? index : index <= 0x42 ? index + 0x7F - 0x21 : 0xAD);
}

// Write the bytes that the text of a token represents, which are never longer; returns their length.
static uint32_t write_bytes(const struct tokenizer *tokenizer, const struct gguf_text *text, uint8_t *out)
{
	uint32_t length = (uint32_t)text->length, written = 0;
	if (tokenizer->wordpiece) {
		if (length)
			memcpy(out, text->bytes, length);
		return length;
	}
	if (tokenizer->pieces) {
		for (uint32_t i = 0; i < length; i++) {
			bool space = length - i >= 3 && !memcmp(text->bytes + i, "\xE2\x96\x81", 3);
			out[written++] = space ? ' ' : (uint8_t)text->bytes[i];
			i += space ? 2 : 0;
		}
		return written;
	}
	for (uint32_t at = 0; at < length;) {
		unsigned step;
		int byte = byte_of_character(utf8_first(text->bytes + at, &step));
		if (byte < 0) { // not of the alphabet: the text is meant as it is
			memcpy(out, text->bytes, length);
			return length;
		}
		out[written++] = (uint8_t)byte;
		at += step;
	}
	return written;
}

// <0xXX>; -1 if it is not.
static int byte_of_name(const uint8_t *text, size_t length)
{
	unsigned value = 0;
	if (length != 6 || memcmp(text, "<0x", 3) || text[5] != '>')
		return -1;
	for (unsigned i = 3; i < 5; i++) {
		static const char digits[] = "0123456789ABCDEF";
		const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
		if (!digit)
			return -1;
		value = value * 16 + (unsigned)(digit - digits);
	}
	return (int)value;
}

// How many tokens there are, and room for their bytes.
static enum status measure_tokens(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	uint64_t count = 0, cursor = 0, bytes = 0, length;
	struct gguf_text text;
	if (!gguf_get_array(gguf, KEY "tokens", &count) || !count)
		return error_set(error, STATUS_INVALID_PARAMS, "the file has no list " KEY "tokens");
	if (count > LIMIT_VOCABULARY)
		return error_set(error, STATUS_INVALID_PARAMS, "a vocabulary of %llu tokens; the most is %d",
				 (unsigned long long)count, LIMIT_VOCABULARY);
	for (uint64_t i = 0; i < count; i++) {
		if (!gguf_next_text(gguf, KEY "tokens", &cursor, &text))
			return error_set(error, STATUS_INVALID_PARAMS, KEY "tokens is not a list of texts");
		if (text.length > LIMIT_TOKEN_BYTES)
			return error_set(error, STATUS_INVALID_PARAMS, "token %llu has %llu bytes; the most is %d",
					 (unsigned long long)i, (unsigned long long)text.length, LIMIT_TOKEN_BYTES);
		bytes += text.length;
	}
	static const char *const sides[] = {KEY "scores", KEY "token_type"};
	for (unsigned i = 0; i < 2; i++)
		if (gguf_get_array(gguf, sides[i], &length) && length != count)
			return error_set(error, STATUS_INVALID_PARAMS, "%s has %llu entries for %llu tokens", sides[i],
					 (unsigned long long)length, (unsigned long long)count);
	tokenizer->count = (uint32_t)count;
	tokenizer->tokens = calloc(count, sizeof *tokenizer->tokens);
	tokenizer->bytes = malloc(bytes + 1);
	return tokenizer->tokens && tokenizer->bytes ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static enum status read_token(struct tokenizer *tokenizer, uint32_t index, double type, const struct gguf_text *text,
			      struct error *error)
{
	struct token *token = &tokenizer->tokens[index];
	if (utf8_good(text->bytes, text->length) < text->length)
		return error_set(error, STATUS_INVALID_PARAMS, "token %u is not UTF-8", index);
	if (!(type >= 0 && type <= TOKEN_BYTE))
		return error_set(error, STATUS_INVALID_PARAMS, KEY "token_type: that of token %u is not known", index);
	token->type = type < TOKEN_NORMAL ? TOKEN_UNUSED : (uint8_t)type;
	// Text with meaning is kept as it stands.
	if (token->type == TOKEN_NORMAL || (tokenizer->pieces && token->type == TOKEN_USER_DEFINED)) {
		token->length = write_bytes(tokenizer, text, tokenizer->bytes + token->offset);
	} else {
		token->length = (uint32_t)text->length;
		if (token->length)
			memcpy(tokenizer->bytes + token->offset, text->bytes, text->length);
	}
	if (token->type == TOKEN_BYTE) {
		int byte = byte_of_name(token_text(tokenizer, index), token->length);
		if (byte < 0)
			return error_set(error, STATUS_INVALID_PARAMS, "token %u is not the byte that it is said to be",
					 index);
		tokenizer->bytes[token->offset] = (uint8_t)byte;
		token->length = 1;
		if (tokenizer->byte_tokens[byte] == NO_TOKEN)
			tokenizer->byte_tokens[byte] = (int32_t)index;
	}
	return STATUS_OK;
}

static enum status read_tokens(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	enum status status = measure_tokens(tokenizer, gguf, error);
	uint64_t cursor = 0, types;
	uint32_t offset = 0;
	struct gguf_text text;
	bool typed = gguf_get_array(gguf, KEY "token_type", &types);
	for (unsigned i = 0; i < 256; i++)
		tokenizer->byte_tokens[i] = NO_TOKEN;
	for (uint32_t i = 0; i < tokenizer->count && !status; i++) {
		double type = typed ? -1 : TOKEN_NORMAL; // NaN becomes -1, too
		gguf_next_text(gguf, KEY "tokens", &cursor, &text);
		if (typed)
			gguf_array_number(gguf, KEY "token_type", i, &type);
		tokenizer->tokens[i].offset = offset;
		status = read_token(tokenizer, i, type, &text, error);
		offset += tokenizer->tokens[i].length;
	}
	return status;
}

// ---- special tokens ----

// The token that a key names; NO_TOKEN if the key is not there.
static enum status read_id(const struct tokenizer *tokenizer, const struct gguf *gguf, const char *key, int32_t *out,
			   struct error *error)
{
	uint64_t id;
	*out = NO_TOKEN;
	if (!gguf_get_count(gguf, key, &id) || id == UINT32_MAX)
		return STATUS_OK;
	if (id >= tokenizer->count)
		return error_set(error, STATUS_INVALID_PARAMS, "%s is %llu, but there are %u tokens", key,
				 (unsigned long long)id, tokenizer->count);
	*out = (int32_t)id;
	return STATUS_OK;
}

// Whether answers end with control tokens of this name. False: there are none.
static bool set_ends(struct tokenizer *tokenizer, const char *name, bool ends)
{
	bool found = false;
	for (uint32_t i = 0; i < tokenizer->count; i++) {
		struct token *token = &tokenizer->tokens[i];
		if (token->type != TOKEN_CONTROL || token->length != strlen(name) ||
		    memcmp(token_text(tokenizer, i), name, token->length) != 0)
			continue;
		token->ends = ends;
		found = true;
	}
	return found;
}

static enum status read_ids(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	static const char *const names[] = {"<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>",
					    "<|eom_id|>", "</s>",
					    // What fills a gap ends where the next file or repository would begin.
					    "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"};
	enum status status = read_id(tokenizer, gguf, KEY "bos_token_id", &tokenizer->begin, error);
	if (!status)
		status = read_id(tokenizer, gguf, KEY "eos_token_id", &tokenizer->end, error);
	if (!status)
		status = read_id(tokenizer, gguf, KEY "unknown_token_id", &tokenizer->unknown, error);
	if (!status) // as the converters spell it
		status = read_id(tokenizer, gguf, KEY "seperator_token_id", &tokenizer->separator, error);
	int32_t turn = NO_TOKEN, message = NO_TOKEN;
	if (!status)
		status = read_id(tokenizer, gguf, KEY "eot_token_id", &turn, error);
	if (!status)
		status = read_id(tokenizer, gguf, KEY "eom_token_id", &message, error);
	if (status)
		return status;
	int32_t special[] = {tokenizer->begin, tokenizer->end, turn, message};
	for (unsigned i = 0; i < 4; i++) {
		struct token *token = special[i] == NO_TOKEN ? NULL : &tokenizer->tokens[special[i]];
		if (!token)
			continue;
		if (token->type == TOKEN_NORMAL) // files without types
			token->type = TOKEN_CONTROL;
		token->ends = token->ends || i > 0;
	}
	for (size_t k = 0; k < sizeof names / sizeof *names; k++)
		set_ends(tokenizer, names[k], true);
	// gpt-oss ends an answer with one of these, and each message of it with <|end|>.
	if (set_ends(tokenizer, "<|return|>", true) && set_ends(tokenizer, "<|call|>", true))
		set_ends(tokenizer, "<|end|>", false);
	tokenizer->add_begin = tokenizer->pieces || tokenizer->wordpiece || tokenizer->words->begins;
	tokenizer->add_end = tokenizer->wordpiece || tokenizer->unigram;
	tokenizer->add_separator = tokenizer->unigram; // as XLM-RoBERTa has it; older files do not say so
	tokenizer->space_prefix = tokenizer->pieces;
	gguf_get_bool(gguf, KEY "add_bos_token", &tokenizer->add_begin);
	gguf_get_bool(gguf, KEY "add_eos_token", &tokenizer->add_end);
	gguf_get_bool(gguf, KEY "add_sep_token", &tokenizer->add_separator);
	if (tokenizer->pieces)
		gguf_get_bool(gguf, KEY "add_space_prefix", &tokenizer->space_prefix);
	return STATUS_OK;
}

// A special token must consist of whole characters: it is searched for in well-formed text, and the text on both sides
// of it must stay well-formed.
static bool is_special(const struct tokenizer *tokenizer, uint32_t index)
{
	const struct token *token = &tokenizer->tokens[index];
	return token->length &&
	       (token->type == TOKEN_CONTROL || token->type == TOKEN_USER_DEFINED || token->type == TOKEN_UNKNOWN) &&
	       utf8_good((const char *)token_text(tokenizer, index), token->length) == token->length;
}

// ---- texts and merges ----

static enum status index_texts(struct tokenizer *tokenizer, struct error *error)
{
	enum status status = slots_create(&tokenizer->texts, tokenizer->count);
	tokenizer->longest = LIMIT_TOKEN_BYTES; // until it is known
	tokenizer->cut_at_spaces = true;
	size_t longest = 1;
	for (uint32_t i = 0; i < tokenizer->count && !status; i++) {
		const struct token *token = &tokenizer->tokens[i];
		const uint8_t *text = token_text(tokenizer, i);
		if (token->length > longest)
			longest = token->length;
		if (token->type != TOKEN_NORMAL || !token->length ||
		    tokenizer_lookup(tokenizer, text, token->length) != NO_TOKEN) // the first of the same text counts
			continue;
		for (uint32_t k = 1; k < token->length; k++)
			if (text[k] == ' ' && text[k - 1] != ' ')
				tokenizer->cut_at_spaces = false;
		status = slots_add(&tokenizer->texts, hash_bytes(text, token->length), i, error);
		if (!status && !tokenizer->pieces && token->length == 1)
			tokenizer->byte_tokens[text[0]] = (int32_t)i;
	}
	tokenizer->longest = longest;
	return status;
}

// The tokens that a merge names; NO_TOKEN in any of them that cannot come about by merging.
static enum status find_merge(const struct tokenizer *tokenizer, const struct gguf_text *text, uint32_t index,
			      int32_t found[3], struct error *error)
{
	uint8_t bytes[3][2 * LIMIT_TOKEN_BYTES];
	char word[SHOWN_BYTES];
	const char *space = text->length > 1 ? memchr(text->bytes + 1, ' ', text->length - 1) : NULL;
	size_t left = space ? (size_t)(space - text->bytes) : 0, right = space ? text->length - left - 1 : 0;
	if (!left || !right || left > LIMIT_TOKEN_BYTES || right > LIMIT_TOKEN_BYTES ||
	    utf8_good(text->bytes, text->length) < text->length)
		return error_set(error, STATUS_INVALID_PARAMS, KEY "merges: entry %u is not two pieces", index);
	struct gguf_text pieces[2] = {{text->bytes, left}, {space + 1, right}};
	uint32_t first = write_bytes(tokenizer, &pieces[0], bytes[0]);
	uint32_t second = write_bytes(tokenizer, &pieces[1], bytes[1]);
	memcpy(bytes[2], bytes[0], first);
	memcpy(bytes[2] + first, bytes[1], second);
	const uint32_t lengths[3] = {first, second, first + second};
	for (unsigned i = 0; i < 3; i++) {
		found[i] = tokenizer_lookup(tokenizer, bytes[i], lengths[i]);
		if (found[i] == NO_TOKEN && tokenizer_find(tokenizer, (const char *)bytes[i], lengths[i]) == NO_TOKEN)
			return error_set(error, STATUS_INVALID_PARAMS,
					 KEY "merges: entry %u, \"%s\", needs a token that there is not", index,
					 shown(text, word));
	}
	return STATUS_OK;
}

static enum status read_merges(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	uint64_t count, cursor = 0;
	struct gguf_text text;
	if (!gguf_get_array(gguf, KEY "merges", &count))
		return error_set(error, STATUS_INVALID_PARAMS, "the file has no list " KEY "merges");
	if (count > LIMIT_MERGES)
		return error_set(error, STATUS_INVALID_PARAMS, "%llu merges; the most is %d", (unsigned long long)count,
				 LIMIT_MERGES);
	enum status status = slots_create(&tokenizer->pairs, count);
	tokenizer->merges = malloc((count + 1) * sizeof *tokenizer->merges);
	if (!tokenizer->merges)
		status = STATUS_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count && !status; i++) {
		int32_t found[3] = {NO_TOKEN, NO_TOKEN, NO_TOKEN};
		if (!gguf_next_text(gguf, KEY "merges", &cursor, &text))
			return error_set(error, STATUS_INVALID_PARAMS, KEY "merges is not a list of texts");
		status = find_merge(tokenizer, &text, i, found, error);
		if (status || found[0] == NO_TOKEN || found[1] == NO_TOKEN || found[2] == NO_TOKEN)
			continue;
		struct merge merge = {(uint32_t)found[0], (uint32_t)found[1], (uint32_t)found[2]};
		if (tokenizer_merge(tokenizer, merge.left, merge.right) != NO_TOKEN)
			continue;
		uint32_t index = tokenizer->merge_count++;
		tokenizer->merges[index] = merge;
		status = slots_add(&tokenizer->pairs, hash_pair(merge.left, merge.right), index, error);
	}
	return status;
}

// ---- the whole ----

static enum status read_kind(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	struct gguf_text model, pre;
	char word[SHOWN_BYTES];
	if (!gguf_get_text(gguf, KEY "model", &model))
		return error_set(error, STATUS_INVALID_PARAMS, "the file has no tokenizer (" KEY "model)");
	tokenizer->unigram = model.length == 2 && !memcmp(model.bytes, "t5", 2);
	tokenizer->pieces = tokenizer->unigram || (model.length == 5 && !memcmp(model.bytes, "llama", 5));
	tokenizer->wordpiece = model.length == 4 && !memcmp(model.bytes, "bert", 4);
	tokenizer->lowercase = true;
	gguf_get_bool(gguf, KEY "normalizer.lowercase", &tokenizer->lowercase);
	if (tokenizer->pieces || tokenizer->wordpiece)
		return STATUS_OK;
	enum status status = STATUS_OK;
	if (model.length != 4 || memcmp(model.bytes, "gpt2", 4)) {
		status = error_set(error, STATUS_UNAVAILABLE, "the tokenizer \"%s\" is not supported",
				   shown(&model, word));
		error_hint(error, "llama, gpt2, bert and t5 are supported");
	} else if (!gguf_get_text(gguf, KEY "pre", &pre)) {
		status = error_set(error, STATUS_UNAVAILABLE,
				   "the file does not say how text is cut into words (" KEY "pre)");
		error_hint(error, "convert the model again with a newer converter, or get a newer file");
	} else {
		tokenizer->words = pre_tokenizer_find(pre.bytes, pre.length);
		if (!tokenizer->words) {
			status = error_set(error, STATUS_UNAVAILABLE, "the pre-tokenizer \"%s\" is not supported",
					   shown(&pre, word));
			error_hint(error, "known are %s", pre_tokenizer_names());
		}
	}
	return status;
}

enum status tokenizer_create(struct tokenizer **out, const struct gguf *gguf, struct error *error)
{
	struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
	if (!tokenizer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a tokenizer");
	enum status status = read_kind(tokenizer, gguf, error);
	if (!status)
		status = read_tokens(tokenizer, gguf, error);
	if (!status)
		status = read_ids(tokenizer, gguf, error);
	if (!status)
		status = tokenizer_sort(tokenizer, is_special, &tokenizer->special);
	if (!status)
		status = index_texts(tokenizer, error);
	if (!status)
		status = tokenizer->unigram     ? tokenizer_read_unigram(tokenizer, gguf, error)
			 : tokenizer->pieces    ? tokenizer_rank_pieces(tokenizer, gguf, error)
			 : tokenizer->wordpiece ? tokenizer_check_unknown(tokenizer, error)
						: read_merges(tokenizer, gguf, error);
	if (status) {
		error_set(error, status, "no memory for a vocabulary of %u tokens", tokenizer->count);
		tokenizer_destroy(&tokenizer);
	}
	*out = tokenizer;
	return status;
}

void tokenizer_destroy(struct tokenizer **tokenizer)
{
	struct tokenizer *old = *tokenizer;
	*tokenizer = NULL;
	if (!old)
		return;
	free(old->tokens);
	free(old->bytes);
	free(old->texts.slots);
	free(old->merges);
	free(old->pairs.slots);
	free(old->special.tokens);
	free(old->normal.tokens);
	charsmap_finish(&old->charsmap);
	free(old);
}

uint32_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
	return tokenizer->count;
}

int32_t tokenizer_begin(const struct tokenizer *tokenizer)
{
	return tokenizer->begin;
}

bool tokenizer_ends(const struct tokenizer *tokenizer, uint32_t token)
{
	return token < tokenizer->count && tokenizer->tokens[token].ends;
}
