/* Unigram, as SentencePiece has it (Kudo, arXiv 1804.10959): text is rewritten by the file's table, spaces are
 * squeezed, and of all ways to cut it into tokens the one is taken whose scores have the largest sum. A character that
 * is no token may stand for itself at a score below all others: it becomes its bytes, if these have tokens, or the
 * unknown token, once for a run of them.
 *
 * A way to each place of the text is found from left to right: the best that ends there (Viterbi). Where the vocabulary
 * allows it, text is cut before spaces, which changes nothing but keeps what is remembered small. Takes time linear in
 * the text, times the longest token. Thread: any; what is needed is made for each call. */
#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The best way to a place: its last token, and where that begins.
struct step {
	double sum;     // of the scores on the way, in double so that the order of adding them does not matter
	uint32_t start; // where its last token begins; once the way is turned round: where the next one ends
	int32_t token;  // NO_TOKEN: a character that is none
};

struct unigram {
	const struct tokenizer *tokenizer;
	struct token_list *out;
	struct step *steps; // (capacity + 1)
	size_t capacity;
	bool unknown;             // the last token was the unknown one
	uint64_t work, most_work; // bytes of tokens that were compared, and how many may be
};

// ---- rewriting ----

// Spaces that follow one are left out part by part, as SentencePiece does it: U+2581 of the text is a space only
// afterwards.
static enum status normalize(const struct tokenizer *tokenizer, const char *text, size_t length, bool prefix,
			     struct buffer *out)
{
	bool spaced = tokenizer->squeeze; // no space may follow
	enum status status = prefix ? buffer_append_byte(out, ' ') : STATUS_OK;
	unsigned step;
	for (size_t at = 0; at < length && !status; at += step) {
		const char *part = text + at;
		const size_t found = charsmap_find(&tokenizer->charsmap, (const uint8_t *)part, length - at, &part);
		utf8_first(text + at, &step);
		size_t bytes = found ? strlen(part) : step;
		step = found ? (unsigned)found : step;
		for (; spaced && bytes && *part == ' '; bytes--)
			part++;
		if (!bytes)
			continue;
		spaced = tokenizer->squeeze && part[bytes - 1] == ' ';
		status = buffer_append(out, part, bytes);
	}
	return status;
}

// U+2581 becomes a space, and spaces at the end go.
static void finish_spaces(const struct tokenizer *tokenizer, struct buffer *text)
{
	size_t written = 0;
	for (size_t i = 0; i < text->length; i++) {
		const bool space = text->length - i >= 3 && !memcmp(text->data + i, "\xE2\x96\x81", 3);
		text->data[written++] = space ? ' ' : text->data[i];
		i += space ? 2 : 0;
	}
	while (tokenizer->squeeze && written && text->data[written - 1] == ' ')
		written--;
	text->length = written;
}

// ---- the best way ----

static void offer(struct step *step, double sum, uint32_t start, int32_t token)
{
	if (sum > step->sum)
		*step = (struct step){sum, start, token};
}

// SentencePiece makes tokens of at most 16 characters, of at most 64 bytes, unless it is told otherwise. So no more
// bytes are compared at a place. Only a vocabulary with tokens of a kilobyte that begin alike, which was made to be
// slow, needs more for a whole text.
enum { WORK_OF_BYTE = 64, WORK_FREE = 1 << 16 };

// All tokens that begin at a place, and its character.
static void step_from(struct unigram *unigram, const uint8_t *word, uint32_t length, uint32_t at)
{
	const struct tokenizer *tokenizer = unigram->tokenizer;
	const struct sorted_tokens *sorted = &tokenizer->normal;
	const unsigned character = utf8_begins(word + at, length - at);
	const double sum = unigram->steps[at].sum;
	uint32_t low = sorted->first[word[at]], high = sorted->first[word[at] + 1];
	bool known = false; // the character is a token
	for (uint32_t depth = 1; low < high; depth++, unigram->work++) {
		const struct token *token = &tokenizer->tokens[sorted->tokens[low]];
		if (token->length == depth) {
			offer(&unigram->steps[at + depth], sum + (double)token->score, at,
			      (int32_t)sorted->tokens[low]);
			known = known || depth == character;
			while (low < high && tokenizer->tokens[sorted->tokens[low]].length == depth)
				low++; // others of the same text
		}
		if (at + depth == length)
			break;
		tokenizer_narrow(tokenizer, sorted, depth, word[at + depth], &low, &high);
	}
	if (!known)
		offer(&unigram->steps[at + character], sum + tokenizer->unknown_score, at, NO_TOKEN);
}

static enum status add_unknown(struct unigram *unigram, const uint8_t *bytes, uint32_t length)
{
	const int32_t *byte_tokens = unigram->tokenizer->byte_tokens;
	enum status status = STATUS_OK;
	bool all = true;
	for (uint32_t i = 0; i < length; i++)
		all = all && byte_tokens[bytes[i]] != NO_TOKEN;
	for (uint32_t i = 0; i < length && all && !status; i++)
		status = token_list_add(unigram->out, (uint32_t)byte_tokens[bytes[i]]);
	if (!all && !unigram->unknown)
		status = token_list_add(unigram->out, (uint32_t)unigram->tokenizer->unknown);
	unigram->unknown = !all;
	return status;
}

// The best way is known from its end: it is turned round, and its tokens are handed out.
static enum status walk(struct unigram *unigram, const uint8_t *word, uint32_t length)
{
	struct step *steps = unigram->steps;
	enum status status = STATUS_OK;
	for (uint32_t at = steps[length].start, next = length, before; next > 0; next = at, at = before) {
		before = steps[at].start;
		steps[at].start = next;
	}
	for (uint32_t at = 0, next; at < length && !status; at = next) {
		next = steps[at].start;
		if (steps[next].token == NO_TOKEN) {
			status = add_unknown(unigram, word + at, next - at);
		} else {
			status = token_list_add(unigram->out, (uint32_t)steps[next].token);
			unigram->unknown = false;
		}
	}
	return status;
}

static enum status encode_word(struct unigram *unigram, const uint8_t *word, uint32_t length)
{
	if (length > unigram->capacity) {
		const size_t capacity = length < 1024 ? 1024 : length;
		free(unigram->steps);
		unigram->steps = malloc((capacity + 1) * sizeof *unigram->steps);
		unigram->capacity = unigram->steps ? capacity : 0;
		if (!unigram->steps)
			return STATUS_OUT_OF_MEMORY;
	}
	unigram->steps[0] = (struct step){.token = NO_TOKEN};
	for (uint32_t at = 1; at <= length; at++)
		unigram->steps[at] = (struct step){.sum = -INFINITY};
	for (uint32_t at = 0; at < length && unigram->work <= unigram->most_work;
	     at += utf8_begins(word + at, length - at))
		step_from(unigram, word, length, at);
	return unigram->work <= unigram->most_work ? walk(unigram, word, length) : STATUS_LIMIT_EXCEEDED;
}

enum status tokenizer_encode_unigram(const struct tokenizer *tokenizer, const char *text, size_t length, bool prefix,
				     struct token_list *out, bool *laborious)
{
	struct unigram unigram = {.tokenizer = tokenizer, .out = out};
	struct buffer normal;
	buffer_init(&normal, LIMIT_NORMALIZED_BYTES);
	enum status status = normalize(tokenizer, text, length, prefix, &normal);
	if (!status)
		finish_spaces(tokenizer, &normal);
	const uint8_t *bytes = normal.data;
	const uint32_t written = (uint32_t)normal.length;
	unigram.most_work = WORK_FREE + (uint64_t)WORK_OF_BYTE * written;
	for (uint32_t at = 0, end; at < written && !status; at = end) {
		for (end = at + 1; end < written; end++)
			if (bytes[end] == ' ' && bytes[end - 1] != ' ' && tokenizer->cut_at_spaces)
				break;
		status = encode_word(&unigram, bytes + at, end - at);
	}
	*laborious = unigram.work > unigram.most_work;
	free(unigram.steps);
	buffer_finish(&normal);
	return status;
}
