/* What the scores of tokens say: which pieces merge first, or how likely a token is in Unigram. See vocabulary.h.
 */
#include "engine/text/vocabulary.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define KEY "tokenizer.ggml."
static const double unknown_penalty = 10; // of SentencePiece: an unknown character scores this below the worst token

struct scored {
	double score;
	uint32_t token;
};

static int by_score(const void *a, const void *b)
{
	const struct scored *first = a, *second = b;
	return first->score > second->score ? -1 : first->score < second->score;
}

enum status tokenizer_rank_pieces(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	struct scored *scored = malloc(tokenizer->count * sizeof *scored);
	if (!scored)
		return STATUS_OUT_OF_MEMORY;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < tokenizer->count && !status; i++) {
		scored[i].token = i;
		if (!gguf_array_number(gguf, KEY "scores", i, &scored[i].score) || isnan(scored[i].score))
			status = error_set(error, STATUS_INVALID_PARAMS, KEY "scores: that of token %u is not a number",
					   i);
	}
	if (!status) {
		qsort(scored, tokenizer->count, sizeof *scored, by_score);
		uint32_t rank = 0;
		for (uint32_t i = 0; i < tokenizer->count; i++) {
			if (i && scored[i].score < scored[i - 1].score)
				rank = i;
			tokenizer->tokens[scored[i].token].rank = rank;
		}
	}
	free(scored);
	for (unsigned i = 0; i < 256 && !status; i++)
		if (tokenizer->byte_tokens[i] == NO_TOKEN && tokenizer->unknown == NO_TOKEN)
			status = error_set(
				error, STATUS_INVALID_PARAMS,
				"the vocabulary has neither a token <0x%02X> nor one for what it does not know", i);
	return status;
}

enum status tokenizer_check_unknown(const struct tokenizer *tokenizer, struct error *error)
{
	if (tokenizer->unknown != NO_TOKEN)
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS,
			 "the vocabulary has no token for what it does not know (" KEY "unknown_token_id)");
}

static bool is_normal(const struct tokenizer *tokenizer, uint32_t token)
{
	return tokenizer->tokens[token].type == TOKEN_NORMAL && tokenizer->tokens[token].length;
}

enum status tokenizer_read_unigram(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
	double score, worst = FLT_MAX;
	enum status status = tokenizer_check_unknown(tokenizer, error);
	for (uint32_t i = 0; i < tokenizer->count && !status; i++) {
		if (!gguf_array_number(gguf, KEY "scores", i, &score) || !(fabs(score) <= FLT_MAX))
			return error_set(error, STATUS_INVALID_PARAMS, KEY "scores: that of token %u is not a number",
					 i);
		tokenizer->tokens[i].score = (float)score;
		if (is_normal(tokenizer, i))
			worst = fmin(worst, score);
	}
	tokenizer->unknown_score = worst - unknown_penalty;
	tokenizer->squeeze = true;
	gguf_get_bool(gguf, KEY "remove_extra_whitespaces", &tokenizer->squeeze);
	if (!status)
		status = tokenizer_sort(tokenizer, is_normal, &tokenizer->normal);
	return status ? status : charsmap_read(&tokenizer->charsmap, gguf, error);
}
