/* See vocabulary.h. */
#include "common/base/limits.h"
#include "server/convert/vocabulary_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Numbers as in model files.
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };
enum { PAIR_BYTES = 2 * LIMIT_TOKEN_BYTES + 2 };

// ---- tokens ----

static enum status put_entry(struct vocabulary *vocabulary, const char *text, double id, uint8_t type)
{
	if (!text || !(id >= 0) || id >= vocabulary->count || id != floor(id))
		return error_set(vocabulary->error, STATUS_INVALID_PARAMS,
				 "tokenizer.json: the token %.40s has an id that the embedding has no row for (%.0f of "
				 "%u)",
				 text ? text : "", id, vocabulary->count);
	struct entry *entry = &vocabulary->entries[(uint32_t)id];
	if (entry->text && strcmp(entry->text, text) != 0)
		return error_set(vocabulary->error, STATUS_INVALID_PARAMS,
				 "tokenizer.json: two tokens have the id %.0f: %.40s and %.40s", id, entry->text, text);
	entry->text = text;
	entry->type = type;
	return STATUS_OK;
}

// <0x0A>
static bool is_byte(const char *text)
{
	return strlen(text) == 6 && !strncmp(text, "<0x", 3) && strspn(text + 3, "0123456789ABCDEF") == 2 &&
	       text[5] == '>';
}

// Some that structure a conversation are not marked as special.
static bool looks_special(const char *text)
{
	const size_t length = strlen(text);
	return length > 4 && !strncmp(text, "<|", 2) && !strcmp(text + length - 2, "|>");
}

static enum status read_tokens(struct vocabulary *vocabulary)
{
	const struct json *tokenizer = vocabulary->files->tokenizer, *model = json_get(tokenizer, "model");
	// Of bytes the unknown token is one with a meaning, such as that of the end.
	const char *unknown = vocabulary->kind.pieces ? vocabulary_unknown(vocabulary->files) : NULL;
	enum status status = STATUS_OK;
	for (const struct json *one = json_first(json_get(model, "vocab")); one && !status; one = json_next(one)) {
		const char *text = json_name(one);
		const bool byte = vocabulary->kind.pieces && is_byte(text);
		status = put_entry(vocabulary, text, json_number(one, -1),
				   byte                                ? TYPE_BYTE
				   : unknown && !strcmp(text, unknown) ? TYPE_UNKNOWN
								       : TYPE_NORMAL);
	}
	for (const struct json *one = json_first(json_get(tokenizer, "added_tokens")); one && !status;
	     one = json_next(one)) {
		const char *text = json_get_string(one, "content", NULL);
		if (json_get_number(one, "id", -1) >= vocabulary->count)
			continue; // of images, say: the model cannot take it, nor say it
		const bool special = json_get_bool(one, "special", false) || (text && looks_special(text));
		const bool is_unknown = text && unknown && !strcmp(text, unknown);
		status = put_entry(vocabulary, text, json_get_number(one, "id", -1),
				   is_unknown ? TYPE_UNKNOWN
				   : special  ? TYPE_CONTROL
					      : TYPE_USER_DEFINED);
	}
	return status;
}

// ---- by text ----

static int by_text(const void *left, const void *right, void *context)
{
	const struct entry *entries = context;
	return strcmp(entries[*(const uint32_t *)left].text, entries[*(const uint32_t *)right].text);
}

static void sort(struct vocabulary *vocabulary)
{
	for (uint32_t i = 0; i < vocabulary->count; i++)
		if (vocabulary->entries[i].text)
			vocabulary->by_text[vocabulary->named++] = i;
	qsort_r(vocabulary->by_text, vocabulary->named, sizeof *vocabulary->by_text, by_text, vocabulary->entries);
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text)
{
	uint32_t low = 0, high = vocabulary->named;
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2, id = vocabulary->by_text[middle];
		const int order = strcmp(text, vocabulary->entries[id].text);
		if (!order)
			return (int32_t)id;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NO_ID;
}

// ---- merges ----

// The two pieces of a merge: "left right", or a list of both. False: it is none.
static bool read_merge(const struct json *merge, char left[PAIR_BYTES], const char **right)
{
	if (json_type(merge) == JSON_ARRAY) {
		const struct json *first = json_first(merge), *second = json_next(first);
		const int length = json_count(merge) == 2 ? snprintf(left, PAIR_BYTES, "%s", json_string(first, ""))
							  : -1;
		*right = json_string(second, "");
		return length > 0 && length <= LIMIT_TOKEN_BYTES && **right;
	}
	const char *text = json_string(merge, ""), *space = *text ? strchr(text + 1, ' ') : NULL;
	if (!space || space - text > LIMIT_TOKEN_BYTES || !space[1])
		return false;
	memcpy(left, text, (size_t)(space - text));
	left[space - text] = 0;
	*right = space + 1;
	return true;
}

// What a merge at place `index` makes has the score of that place.
static enum status score(struct vocabulary *vocabulary, const char *text, uint32_t index, int32_t *last)
{
	const int32_t id = vocabulary_find(vocabulary, text);
	if (id == NO_ID)
		return error_set(vocabulary->error, STATUS_INVALID_PARAMS,
				 "tokenizer.json: merge %u makes %.40s, which is no token", index, text);
	struct entry *entry = &vocabulary->entries[id];
	if (entry->score < 0 && id != *last) {
		error_set(vocabulary->error, STATUS_UNAVAILABLE,
			  "tokenizer.json: the merges that make %.40s are not in SentencePiece's order", text);
		error_hint(vocabulary->error, "add a GGUF file of this model");
		return STATUS_UNAVAILABLE;
	}
	if (entry->score >= 0)
		entry->score = -(float)(index + 1);
	*last = id;
	return STATUS_OK;
}

static enum status put_merges(struct vocabulary *vocabulary)
{
	static const char key[] = "tokenizer.ggml.merges";
	const struct json *merges = json_get(json_get(vocabulary->files->tokenizer, "model"), "merges");
	const size_t count = json_count(merges);
	char pair[PAIR_BYTES];
	int32_t last = NO_ID;
	uint32_t index = 0;
	enum status status = STATUS_OK;
	if (json_type(merges) != JSON_ARRAY || count > LIMIT_MERGES)
		return error_set(vocabulary->error, STATUS_INVALID_PARAMS,
				 "tokenizer.json: merges is not a list of at most %d", LIMIT_MERGES);
	if (!vocabulary->kind.pieces)
		output_array(vocabulary->keys, key, OUTPUT_TEXTS, count);
	for (const struct json *one = json_first(merges); one && !status; one = json_next(one), index++) {
		const char *right;
		if (!read_merge(one, pair, &right) || strlen(right) > LIMIT_TOKEN_BYTES)
			return error_set(vocabulary->error, STATUS_INVALID_PARAMS,
					 "tokenizer.json: merge %u is not two pieces", index);
		const size_t length = strlen(pair);
		const bool words = !vocabulary->kind.pieces;
		pair[length] = words ? ' ' : 0;
		memcpy(pair + length + words, right, strlen(right) + 1);
		if (words)
			output_element_text(vocabulary->keys, pair, strlen(pair));
		else
			status = score(vocabulary, pair, index, &last);
	}
	return status;
}

static bool is_one_character(const char *text)
{
	for (text++; ((unsigned char)*text & 0xC0) == 0x80;)
		text++;
	return !*text;
}

// ---- the whole ----

static void put_tokens(struct vocabulary *vocabulary)
{
	struct output_keys *keys = vocabulary->keys;
	const bool pieces = vocabulary->kind.pieces;
	output_array(keys, "tokenizer.ggml.tokens", OUTPUT_TEXTS, vocabulary->count);
	for (uint32_t i = 0; i < vocabulary->count; i++) {
		char padding[32];
		const char *text = vocabulary->entries[i].text;
		snprintf(padding, sizeof padding, "[PAD%u]", i);
		text = text ? text : padding;
		output_element_text(keys, text, strlen(text));
	}
	output_array(keys, "tokenizer.ggml.token_type", OUTPUT_I32S, vocabulary->count);
	for (uint32_t i = 0; i < vocabulary->count; i++) {
		const struct entry *entry = &vocabulary->entries[i];
		const bool never = pieces && entry->type == TYPE_NORMAL && entry->score >= 0 && *entry->text &&
				   !is_one_character(entry->text);
		output_element_i32(keys, never ? TYPE_UNUSED : entry->type);
	}
	if (!pieces)
		return;
	output_array(keys, "tokenizer.ggml.scores", OUTPUT_F32S, vocabulary->count);
	for (uint32_t i = 0; i < vocabulary->count; i++)
		output_element_f32(keys, vocabulary->entries[i].score);
}

enum status vocabulary_convert(const struct vocabulary_files *files, uint32_t count, struct output_keys *keys,
			       struct error *error)
{
	struct vocabulary vocabulary = {.files = files,
					.entries = calloc(count, sizeof *vocabulary.entries),
					.by_text = calloc(count, sizeof *vocabulary.by_text),
					.count = count,
					.keys = keys,
					.error = error};
	enum status status = vocabulary.entries && vocabulary.by_text
				     ? vocabulary_find_kind(files->tokenizer, &vocabulary.kind, error)
				     : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %u tokens", count);
	if (!status) {
		for (uint32_t i = 0; i < count; i++)
			vocabulary.entries[i].type = TYPE_UNUSED;
		output_word(keys, "tokenizer.ggml.model", vocabulary.kind.pieces ? "llama" : "gpt2");
		if (vocabulary.kind.pre)
			output_word(keys, "tokenizer.ggml.pre", vocabulary.kind.pre);
		else
			output_bool(keys, "tokenizer.ggml.add_space_prefix", vocabulary.kind.space_prefix);
		status = read_tokens(&vocabulary);
	}
	if (!status) {
		sort(&vocabulary);
		status = put_merges(&vocabulary);
	}
	if (!status) {
		put_tokens(&vocabulary);
		status = vocabulary_put_ids(&vocabulary);
	}
	free(vocabulary.entries);
	free(vocabulary.by_text);
	return status;
}
