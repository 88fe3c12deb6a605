/* Text to tokens. See tokenizer.h and vocabulary.h.
 *
 * Text is cut at special tokens (where they are asked for), then into words, within which neighbours are merged, the
 * best pair first and the leftmost of equal ones, until no pair merges: by score for pieces, by rank for bytes. Symbols
 * are a linked list over positions in the word; a heap holds (rank << 32 | position) of every pair that merges. An
 * entry is stale if the pair that is now at its position has another rank: it is dropped when it is taken from the
 * heap. So a word of n bytes takes n log n. Vocabularies of pieces have no words; if the vocabulary allows it, text is
 * cut before spaces, which keeps the heap small and does not change the result. Thread: any; each call has its own
 * memory. */
#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

enum { UNMERGED = -1, GONE = -2 }; // instead of a token: none of its own; part of the symbol before
enum { LEAST_WORD = 256 };         // bytes of a word that there is room for at first

struct encoder {
	const struct tokenizer *tokenizer;
	struct token_list *out;
	// The word that is being merged, and for each of its bytes that begins a symbol: the next one's, the one
	// before, and its token.
	const uint8_t *word;
	uint32_t length;
	uint32_t capacity;
	uint32_t *next, *previous; // (capacity + 1)
	int32_t *tokens;           // (capacity + 1)
	uint64_t *heap;            // (heap_capacity)
	size_t heap_count, heap_capacity;
	bool unknown;   // the last token was the unknown one: consecutive unknown characters are one token
	bool laborious; // tokenizer_encode_unigram's
};

void token_list_finish(struct token_list *list)
{
	free(list->tokens);
	*list = (struct token_list){.limit = list->limit};
}

enum status token_list_add(struct token_list *list, uint32_t token)
{
	if (list->limit && list->count >= list->limit)
		return STATUS_LIMIT_EXCEEDED;
	if (list->count == list->capacity) {
		size_t capacity = list->capacity ? list->capacity * 2 : 64;
		uint32_t *tokens = realloc(list->tokens, capacity * sizeof *tokens);
		if (!tokens)
			return STATUS_OUT_OF_MEMORY;
		list->tokens = tokens;
		list->capacity = capacity;
	}
	list->tokens[list->count++] = token;
	return STATUS_OK;
}

// ---- the heap, least first ----

static void sift_down(struct encoder *encoder, size_t at)
{
	uint64_t *heap = encoder->heap, moving = heap[at];
	size_t count = encoder->heap_count;
	for (size_t child; (child = 2 * at + 1) < count; at = child) {
		if (child + 1 < count && heap[child + 1] < heap[child])
			child++;
		if (moving <= heap[child])
			break;
		heap[at] = heap[child];
	}
	heap[at] = moving;
}

static enum status heap_append(struct encoder *encoder, uint64_t entry)
{
	if (encoder->heap_count == encoder->heap_capacity) {
		size_t capacity = encoder->heap_capacity ? encoder->heap_capacity * 2 : 256;
		uint64_t *heap = realloc(encoder->heap, capacity * sizeof *heap);
		if (!heap)
			return STATUS_OUT_OF_MEMORY;
		encoder->heap = heap;
		encoder->heap_capacity = capacity;
	}
	encoder->heap[encoder->heap_count++] = entry;
	return STATUS_OK;
}

static enum status heap_push(struct encoder *encoder, uint64_t entry)
{
	enum status status = heap_append(encoder, entry);
	if (status)
		return status;
	uint64_t *heap = encoder->heap;
	size_t at = encoder->heap_count - 1;
	for (; at && heap[(at - 1) / 2] > entry; at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = entry;
	return STATUS_OK;
}

static uint64_t heap_pop(struct encoder *encoder)
{
	uint64_t least = encoder->heap[0];
	encoder->heap[0] = encoder->heap[--encoder->heap_count];
	if (encoder->heap_count)
		sift_down(encoder, 0);
	return least;
}

// ---- merging a word ----

struct candidate {
	uint32_t rank, result;
};

// The token that the symbol at `left` and the next one merge to.
static bool find_candidate(const struct encoder *encoder, uint32_t left, struct candidate *out)
{
	const struct tokenizer *tokenizer = encoder->tokenizer;
	uint32_t right = encoder->next[left];
	if (right >= encoder->length)
		return false;
	if (tokenizer->pieces) {
		int32_t token = tokenizer_lookup(tokenizer, encoder->word + left, encoder->next[right] - left);
		if (token == NO_TOKEN)
			return false;
		*out = (struct candidate){tokenizer->tokens[token].rank, (uint32_t)token};
		return true;
	}
	if (encoder->tokens[left] < 0 || encoder->tokens[right] < 0)
		return false;
	int32_t merge = tokenizer_merge(tokenizer, (uint32_t)encoder->tokens[left], (uint32_t)encoder->tokens[right]);
	if (merge == NO_TOKEN)
		return false;
	*out = (struct candidate){(uint32_t)merge, tokenizer->merges[merge].result};
	return true;
}

static enum status push_pair(struct encoder *encoder, uint32_t left)
{
	struct candidate candidate;
	if (!find_candidate(encoder, left, &candidate))
		return STATUS_OK;
	return heap_push(encoder, (uint64_t)candidate.rank << 32 | left);
}

static enum status make_room(struct encoder *encoder, uint32_t length)
{
	if (length <= encoder->capacity)
		return STATUS_OK;
	uint32_t capacity = 2 * encoder->capacity < LEAST_WORD ? LEAST_WORD : 2 * encoder->capacity;
	capacity = capacity < length ? length : capacity;
	void **arrays[] = {(void **)&encoder->next, (void **)&encoder->previous, (void **)&encoder->tokens};
	for (unsigned i = 0; i < 3; i++) {
		free(*arrays[i]);
		*arrays[i] = malloc(((size_t)capacity + 1) * sizeof(uint32_t));
	}
	bool made = encoder->next && encoder->previous && encoder->tokens;
	encoder->capacity = made ? capacity : 0;
	return made ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

// Symbols of one byte, or one character, each; and the pairs of them that merge.
static enum status begin_word(struct encoder *encoder, const uint8_t *word, uint32_t length)
{
	const struct tokenizer *tokenizer = encoder->tokenizer;
	enum status status = make_room(encoder, length);
	if (status)
		return status;
	encoder->word = word;
	encoder->length = length;
	encoder->heap_count = 0;
	encoder->next[length] = length;
	for (uint32_t at = 0, step, before = 0; at < length; before = at, at += step) {
		step = tokenizer->pieces ? utf8_begins(word + at, length - at) : 1;
		encoder->next[at] = at + step;
		encoder->previous[at] = before;
		encoder->tokens[at] = tokenizer->pieces ? tokenizer_lookup(tokenizer, word + at, step)
							: tokenizer->byte_tokens[word[at]];
	}
	for (uint32_t at = 0; at < length && !status; at = encoder->next[at]) {
		struct candidate candidate;
		if (find_candidate(encoder, at, &candidate))
			status = heap_append(encoder, (uint64_t)candidate.rank << 32 | at);
	}
	for (size_t i = encoder->heap_count / 2; i > 0; i--)
		sift_down(encoder, i - 1);
	return status;
}

static enum status merge_symbols(struct encoder *encoder)
{
	enum status status = STATUS_OK;
	while (encoder->heap_count && !status) {
		uint64_t entry = heap_pop(encoder);
		uint32_t left = (uint32_t)entry;
		struct candidate candidate;
		if (encoder->tokens[left] == GONE || !find_candidate(encoder, left, &candidate) ||
		    candidate.rank != entry >> 32)
			continue;
		uint32_t right = encoder->next[left], after = encoder->next[right];
		encoder->tokens[left] = (int32_t)candidate.result;
		encoder->tokens[right] = GONE;
		encoder->next[left] = after;
		if (after < encoder->length)
			encoder->previous[after] = left;
		status = push_pair(encoder, left);
		if (!status && left)
			status = push_pair(encoder, encoder->previous[left]);
	}
	return status;
}

static enum status add_token(struct encoder *encoder, int32_t token)
{
	bool repeated = token == encoder->tokenizer->unknown && encoder->unknown;
	encoder->unknown = token == encoder->tokenizer->unknown;
	return token == NO_TOKEN || repeated ? STATUS_OK : token_list_add(encoder->out, (uint32_t)token);
}

// A symbol without a token becomes the tokens of its bytes if these exist, else the unknown token if that exists.
static enum status add_bytes(struct encoder *encoder, const uint8_t *bytes, uint32_t length)
{
	const int32_t *byte_tokens = encoder->tokenizer->byte_tokens;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < length; i++)
		if (byte_tokens[bytes[i]] == NO_TOKEN)
			return add_token(encoder, encoder->tokenizer->unknown);
	for (uint32_t i = 0; i < length && !status; i++)
		status = add_token(encoder, byte_tokens[bytes[i]]);
	return status;
}

static enum status encode_word(struct encoder *encoder, const uint8_t *word, uint32_t length)
{
	enum status status = begin_word(encoder, word, length);
	if (!status)
		status = merge_symbols(encoder);
	for (uint32_t at = 0, next; at < length && !status; at = next) {
		next = encoder->next[at];
		status = encoder->tokens[at] == UNMERGED ? add_bytes(encoder, word + at, next - at)
							 : add_token(encoder, encoder->tokens[at]);
	}
	return status;
}

// ---- text between special tokens ----

static enum status encode_pieces(struct encoder *encoder, const char *text, size_t length, bool prefix)
{
	enum status status = STATUS_OK;
	uint8_t *copy = malloc(length + 2);
	if (!copy)
		return STATUS_OUT_OF_MEMORY;
	uint32_t written = 0;
	if (prefix)
		copy[written++] = ' ';
	for (size_t i = 0; i < length; i++) {
		bool space = length - i >= 3 && !memcmp(text + i, "\xE2\x96\x81", 3);
		copy[written++] = space ? ' ' : (uint8_t)text[i];
		i += space ? 2 : 0;
	}
	for (uint32_t at = 0, end; at < written && !status; at = end) {
		for (end = at + 1; end < written; end++)
			if (copy[end] == ' ' && copy[end - 1] != ' ' && encoder->tokenizer->cut_at_spaces)
				break;
		status = encode_word(encoder, copy + at, end - at);
	}
	free(copy);
	return status;
}

static enum status encode_words(struct encoder *encoder, const char *text, size_t length)
{
	const struct pre_tokenizer *words = encoder->tokenizer->words;
	enum status status = STATUS_OK;
	for (size_t at = 0, step; at < length && !status; at += step) {
		step = word_length(words->kind, text + at, length - at);
		const uint8_t *word = (const uint8_t *)text + at;
		int32_t whole = words->whole_words ? tokenizer_lookup(encoder->tokenizer, word, step) : NO_TOKEN;
		status = whole == NO_TOKEN ? encode_word(encoder, word, (uint32_t)step) : add_token(encoder, whole);
	}
	return status;
}

static enum status encode_text(struct encoder *encoder, const char *text, size_t length, bool prefix)
{
	const struct tokenizer *tokenizer = encoder->tokenizer;
	if (!length)
		return STATUS_OK;
	encoder->unknown = false;
	if (tokenizer->wordpiece)
		return tokenizer_encode_wordpiece(tokenizer, text, length, encoder->out);
	if (tokenizer->unigram)
		return tokenizer_encode_unigram(tokenizer, text, length, prefix && tokenizer->space_prefix,
						encoder->out, &encoder->laborious);
	if (tokenizer->pieces)
		return encode_pieces(encoder, text, length, prefix && tokenizer->space_prefix);
	if (!tokenizer->words->composes)
		return encode_words(encoder, text, length);
	struct buffer composed;
	buffer_init(&composed, 3 * (size_t)LIMIT_TOKENIZE_BYTES + 16); // a character grows to three times its bytes
	enum status status = unicode_compose(text, length, &composed);
	if (!status)
		status = encode_words(encoder, buffer_text(&composed), composed.length);
	buffer_finish(&composed);
	return status;
}

// ---- special tokens ----

static enum status encode_all(struct encoder *encoder, const struct tokenize_params *params)
{
	const struct tokenizer *tokenizer = encoder->tokenizer;
	enum status status = STATUS_OK;
	if (params->begin && tokenizer->add_begin && tokenizer->begin != NO_TOKEN)
		status = add_token(encoder, tokenizer->begin);
	bool prefix = !params->continues;
	size_t from = 0;
	for (size_t at = 0; params->special && at < params->length && !status;) {
		int32_t token = tokenizer_special(tokenizer, (const uint8_t *)params->text + at, params->length - at);
		if (token == NO_TOKEN) {
			at++;
			continue;
		}
		status = encode_text(encoder, params->text + from, at - from, prefix);
		encoder->unknown = false;
		if (!status)
			status = add_token(encoder, token);
		at += tokenizer->tokens[token].length;
		from = at;
		prefix = true;
	}
	if (!status)
		status = encode_text(encoder, params->text + from, params->length - from, prefix);
	encoder->unknown = false;
	if (!status && params->begin && tokenizer->add_end && tokenizer->end != NO_TOKEN)
		status = add_token(encoder, tokenizer->end);
	return status;
}

enum status tokenize(const struct tokenizer *tokenizer, const struct tokenize_params *params, struct token_list *out,
		     struct error *error)
{
	struct encoder encoder = {.tokenizer = tokenizer, .out = out};
	if (params->length > LIMIT_TOKENIZE_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a text of %zu bytes; the most is %d", params->length,
				 LIMIT_TOKENIZE_BYTES);
	size_t good = utf8_good(params->text, params->length);
	if (good < params->length)
		return error_set(error, STATUS_INVALID_PARAMS, "the text is not UTF-8 at byte %zu", good);
	enum status status = STATUS_OK;
	// Not worth the work: no token has more bytes than the longest (of four times as many, before composition).
	// Of words any length may be one token, and of what Unigram does not know.
	if (out->limit && !tokenizer->wordpiece && !tokenizer->unigram &&
	    params->length / tokenizer->longest / 4 > out->limit)
		status = STATUS_LIMIT_EXCEEDED;
	if (!status)
		status = encode_all(&encoder, params);
	if (status == STATUS_LIMIT_EXCEEDED && encoder.laborious)
		error_set(error, status,
			  "the vocabulary has such long tokens that looking for them in this text takes too long");
	else if (status == STATUS_LIMIT_EXCEEDED && out->count != out->limit && tokenizer->unigram)
		error_set(error, status, "rewritten as the vocabulary demands, the text has more than %d bytes",
			  LIMIT_NORMALIZED_BYTES);
	else if (status == STATUS_LIMIT_EXCEEDED)
		error_set(error, status, "the text has more than %zu tokens", out->limit);
	else if (status)
		error_set(error, status, "no memory for the tokens of a text of %zu bytes", params->length);
	free(encoder.next);
	free(encoder.previous);
	free(encoder.tokens);
	free(encoder.heap);
	return status;
}

enum status tokenize_pair(const struct tokenizer *tokenizer, const char *query, const char *document,
			  struct token_list *out, struct error *error)
{
	const struct {
		int32_t token; // NO_TOKEN: the text
		const char *text;
	} parts[] = {
		{tokenizer->add_begin ? tokenizer->begin : NO_TOKEN, NULL},
		{NO_TOKEN, query},
		{tokenizer->add_end ? tokenizer->end : NO_TOKEN, NULL},
		{tokenizer->add_separator ? tokenizer->separator : NO_TOKEN, NULL},
		{NO_TOKEN, document},
		{tokenizer->add_end ? tokenizer->end : NO_TOKEN, NULL},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !status; i++) {
		if (parts[i].text)
			status = tokenize(
				tokenizer,
				&(struct tokenize_params){.text = parts[i].text, .length = strlen(parts[i].text)}, out,
				error);
		else if (parts[i].token != NO_TOKEN && token_list_add(out, (uint32_t)parts[i].token))
			status = error_set(error, STATUS_LIMIT_EXCEEDED, "the pair has more than %zu tokens",
					   out->limit);
	}
	return status;
}
