/* Fuzz target: a hostile vocabulary, and hostile text.
 *
 * The first byte says which kind and which pre-tokenizer, the second what tokenize is asked for. Then come lines: the
 * tokens (a byte for the type, one for the score, the text) up to an empty line, merges up to another, and the text.
 * Instead of merges, Unigram has two bytes, the length of its table, and the table (precompiled_charsmap). What is
 * taken is compared with merging done the slow way: look at all neighbours, merge the best, begin again; and Unigram's
 * with the best sum over all ways to cut the text. No text becomes a control token unless it is asked for, and what
 * tokens give back is UTF-8. */
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"
#include "tests/tools/gguf_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS = 300, MERGES = 300, LINE_BYTES = 64, SLOW_BYTES = 256, TABLE_BYTES = 4096, UNIGRAM = 3 };

static void require(bool condition)
{
	if (!condition)
		abort();
}

struct input {
	const uint8_t *at, *end;
};

// The next line as text; false at an empty one, or the end.
static bool next_line(struct input *input, char line[LINE_BYTES])
{
	size_t length = 0;
	while (input->at < input->end && *input->at != '\n') {
		if (length + 1 < LINE_BYTES && *input->at)
			line[length++] = (char)*input->at;
		input->at++;
	}
	if (input->at < input->end)
		input->at++;
	line[length] = 0;
	return length;
}

static void put_table(struct gguf_writer *writer, struct input *input)
{
	static int32_t table[TABLE_BYTES];
	const size_t rest = (size_t)(input->end - input->at);
	size_t length = rest >= 2 ? (size_t)(input->at[0] | input->at[1] << 8) : 0;
	if (!length || length > TABLE_BYTES || length > rest - 2)
		return;
	for (size_t i = 0; i < length; i++)
		table[i] = input->at[2 + i];
	input->at += 2 + length;
	gguf_put_i32s(writer, "tokenizer.ggml.precompiled_charsmap", table, length);
}

static void put_vocabulary(struct gguf_writer *writer, struct input *input, unsigned kind)
{
	static char texts[TOKENS][LINE_BYTES], merges[MERGES][LINE_BYTES];
	const char *token_texts[TOKENS], *merge_texts[MERGES];
	int32_t types[TOKENS];
	float scores[TOKENS];
	size_t tokens = 0, merge_count = 0;
	for (char line[LINE_BYTES]; tokens < TOKENS && next_line(input, line); tokens++) {
		types[tokens] = line[0] >= '1' && line[0] <= '6' ? line[0] - '0' : 1;
		scores[tokens] = line[1];
		memcpy(texts[tokens], line[1] ? line + 2 : "", line[1] ? LINE_BYTES - 2 : 1);
		token_texts[tokens] = texts[tokens];
	}
	static const char *const models[] = {"gpt2", "llama", "bert", "t5"};
	const unsigned model = (kind >> 5 & 2) | (kind & 1); // bit 6: WordPiece or Unigram
	if (model == UNIGRAM)
		put_table(writer, input);
	while (model != UNIGRAM && merge_count < MERGES && next_line(input, merges[merge_count])) {
		merge_texts[merge_count] = merges[merge_count];
		merge_count++;
	}
	static const char *const pre[] = {"llama-bpe", "qwen2",  "smollm", "gpt-2",
					  "tekken",    "qwen35", "gpt-4o", "deepseek-v3"};
	gguf_put_text(writer, "tokenizer.ggml.model", models[model]);
	gguf_put_bool(writer, "tokenizer.ggml.remove_extra_whitespaces", kind & 4);
	gguf_put_bool(writer, "tokenizer.ggml.normalizer.lowercase", kind & 4);
	gguf_put_text(writer, "tokenizer.ggml.pre", pre[(kind >> 1 & 3) + (kind >> 3 & 4)]);
	gguf_put_texts(writer, "tokenizer.ggml.tokens", token_texts, tokens);
	gguf_put_i32s(writer, "tokenizer.ggml.token_type", types, tokens);
	gguf_put_f32s(writer, "tokenizer.ggml.scores", scores, tokens);
	gguf_put_texts(writer, "tokenizer.ggml.merges", merge_texts, merge_count);
	if (kind & 16)
		gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
	if (kind & 8)
		gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 1);
}

struct symbol {
	size_t start, length;
	int32_t token;
};

// What two neighbours merge to, and how good that is; NO_TOKEN if they do not.
static int32_t merged(const struct tokenizer *tokenizer, const uint8_t *text, const struct symbol *pair, uint32_t *rank)
{
	if (tokenizer->pieces) {
		int32_t token = tokenizer_lookup(tokenizer, text + pair[0].start, pair[0].length + pair[1].length);
		*rank = token == NO_TOKEN ? UINT32_MAX : tokenizer->tokens[token].rank;
		return token;
	}
	int32_t merge = pair[0].token < 0 || pair[1].token < 0
				? NO_TOKEN
				: tokenizer_merge(tokenizer, (uint32_t)pair[0].token, (uint32_t)pair[1].token);
	*rank = merge == NO_TOKEN ? UINT32_MAX : (uint32_t)merge;
	return merge == NO_TOKEN ? NO_TOKEN : (int32_t)tokenizer->merges[merge].result;
}

static size_t merge_slowly(const struct tokenizer *tokenizer, const uint8_t *text, size_t length,
			   struct symbol *symbols)
{
	size_t count = 0;
	for (size_t at = 0; at < length; count++) {
		size_t step = tokenizer->pieces ? utf8_begins(text + at, length - at) : 1;
		symbols[count] = (struct symbol){at, step, NO_TOKEN};
		symbols[count].token = tokenizer->pieces ? tokenizer_lookup(tokenizer, text + at, step)
							 : tokenizer->byte_tokens[text[at]];
		at += step;
	}
	for (;;) {
		size_t best = 0;
		uint32_t least = UINT32_MAX, rank;
		int32_t result = NO_TOKEN, token;
		for (size_t i = 0; i + 1 < count; i++)
			if ((token = merged(tokenizer, text, &symbols[i], &rank)) != NO_TOKEN && rank < least) {
				best = i;
				least = rank;
				result = token;
			}
		if (result == NO_TOKEN)
			return count;
		symbols[best].length += symbols[best + 1].length;
		symbols[best].token = result;
		memmove(&symbols[best + 1], &symbols[best + 2], (count - best - 2) * sizeof *symbols);
		count--;
	}
}

// Tokens of normal text, with those of bytes and unknowns between them left out of the comparison.
static void compare_slowly(const struct tokenizer *tokenizer, const uint8_t *text, size_t length,
			   const struct token_list *list)
{
	static struct symbol symbols[SLOW_BYTES];
	size_t next = 0;
	for (size_t at = 0, step; at < length; at += step) {
		step = tokenizer->pieces ? length
					 : word_length(tokenizer->words->kind, (const char *)text + at, length - at);
		require(step > 0 && step <= length - at && utf8_good((const char *)text + at, step) == step);
		size_t count = merge_slowly(tokenizer, text + at, step, symbols);
		int32_t whole = !tokenizer->pieces && tokenizer->words->whole_words
					? tokenizer_lookup(tokenizer, text + at, step)
					: NO_TOKEN;
		if (whole != NO_TOKEN) {
			symbols[0].token = whole;
			count = 1;
		}
		for (size_t i = 0; i < count; i++) {
			if (symbols[i].token == NO_TOKEN || tokenizer->tokens[symbols[i].token].type != TOKEN_NORMAL)
				continue;
			while (next < list->count && tokenizer->tokens[list->tokens[next]].type != TOKEN_NORMAL)
				next++;
			require(next < list->count && list->tokens[next++] == (uint32_t)symbols[i].token);
		}
	}
	while (next < list->count)
		require(tokenizer->tokens[list->tokens[next++]].type != TOKEN_NORMAL);
}

// The largest sum of scores of a way to cut the text, and that of the tokens found, are the same. Of texts that no
// table changes and that have no spaces. Nothing is said once an unknown character comes, as a run of them is one
// token.
static void compare_sums(const struct tokenizer *tokenizer, const uint8_t *text, size_t length,
			 const struct token_list *list)
{
	static double best[SLOW_BYTES + 1];
	double sum = 0;
	size_t next = 0;
	for (size_t end = 0; end <= length; end++) {
		best[end] = end ? -INFINITY : 0;
		for (size_t start = 0; start < end; start++) {
			const int32_t token = tokenizer_lookup(tokenizer, text + start, end - start);
			const bool character = utf8_begins(text + start, end - start) == end - start;
			const double score = token != NO_TOKEN ? (double)tokenizer->tokens[token].score
					     : character       ? tokenizer->unknown_score
							       : -INFINITY;
			best[end] = fmax(best[end], best[start] + score);
		}
	}
	for (size_t at = 0; at < length; next++) {
		require(next < list->count);
		const struct token *token = &tokenizer->tokens[list->tokens[next]];
		if (token->type != TOKEN_NORMAL)
			return;
		require(token->length <= length - at &&
			!memcmp(token_text(tokenizer, list->tokens[next]), text + at, token->length));
		sum += (double)token->score;
		at += token->length;
	}
	require(next == list->count && sum == best[length]);
}

static void decode(const struct tokenizer *tokenizer, const struct token_list *list)
{
	struct detokenizer detokenizer;
	struct buffer out;
	buffer_init(&out, SIZE_MAX / 2);
	detokenizer_init(&detokenizer, tokenizer);
	for (size_t i = 0; i < list->count; i++) {
		require(list->tokens[i] < tokenizer_vocabulary(tokenizer));
		require(detokenizer_add(&detokenizer, list->tokens[i], &out) == STATUS_OK);
		require(utf8_good(buffer_text(&out), out.length) == out.length);
	}
	require(detokenizer_end(&detokenizer, &out) == STATUS_OK);
	buffer_finish(&out);
}

static void encode(const struct tokenizer *tokenizer, const uint8_t *text, size_t length, unsigned asked)
{
	struct token_list list = {.limit = asked & 8 ? 16 : 0};
	struct error error = {0};
	struct tokenize_params params = {.text = (const char *)text,
					 .length = length,
					 .special = asked & 1,
					 .begin = asked & 2,
					 .continues = asked & 4};
	enum status status = tokenize(tokenizer, &params, &list, &error);
	bool good = utf8_good(params.text, length) == length;
	require(status == STATUS_OK || error.message[0]);
	require((status == STATUS_INVALID_PARAMS) == !good);
	if (!status) {
		decode(tokenizer, &list);
		for (size_t i = params.begin && tokenizer->add_begin; i < list.count && !params.special; i++)
			require(tokenizer->tokens[list.tokens[i]].type != TOKEN_CONTROL ||
				(int32_t)list.tokens[i] == tokenizer->unknown ||
				(params.begin && i + 1 == list.count && tokenizer->add_end));
		bool plain = !params.special && !params.begin && params.continues && !list.limit &&
			     (tokenizer->unknown == NO_TOKEN ||
			      tokenizer->tokens[tokenizer->unknown].type != TOKEN_NORMAL);
		const bool bare = !memchr(text, ' ', length) && !memmem(text, length, "\xE2\x96\x81", 3);
		if (plain && bare && tokenizer->unigram && !tokenizer->charsmap.units && length <= SLOW_BYTES)
			compare_sums(tokenizer, text, length, &list);
		plain = plain && !tokenizer->unigram && !tokenizer->wordpiece;
		bool same = !plain              ? false
			    : tokenizer->pieces ? !memmem(text, length, "\xE2\x96\x81", 3)
						: !tokenizer->words->composes;
		if (plain && same && length <= SLOW_BYTES)
			compare_slowly(tokenizer, text, length, &list);
	}
	token_list_finish(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf_writer writer;
	struct buffer file;
	struct gguf *gguf = NULL;
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	if (size < 2)
		return 0;
	struct input input = {data + 2, data + size};
	gguf_writer_init(&writer, 32);
	put_vocabulary(&writer, &input, data[0]);
	buffer_init(&file, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file);
	require(gguf_parse(&gguf, file.data, file.length, &error) == STATUS_OK);
	enum status status = tokenizer_create(&tokenizer, gguf, &error);
	gguf_destroy(&gguf);
	require(status ? !tokenizer && error.message[0] : tokenizer != NULL);
	if (tokenizer) {
		// In memory of exactly its length, so that reading past its end is seen.
		size_t length = (size_t)(input.end - input.at);
		uint8_t *text = malloc(length ? length : 1);
		require(text);
		if (length)
			memcpy(text, input.at, length);
		encode(tokenizer, text, length, data[1]);
		free(text);
	}
	tokenizer_destroy(&tokenizer);
	buffer_finish(&file);
	gguf_writer_finish(&writer);
	return 0;
}
