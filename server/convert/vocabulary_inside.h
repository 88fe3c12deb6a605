/* What the files vocabulary*.c share: vocabulary.c has the tokens and merges, vocabulary_kind.c says which kind of
 * tokenizer it is, vocabulary_ids.c which tokens have a meaning. Not for others. */
#pragma once
#include "server/convert/vocabulary.h"

enum { NO_ID = -1 };

struct vocabulary_kind {
	bool pieces;       // as SentencePiece has them; else bytes
	bool space_prefix; // of pieces: a space is put before text
	const char *pre;   // of bytes: tokenizer.ggml.pre
};
// Errors: STATUS_UNAVAILABLE, with what the tokenizer has and what is needed.
enum status vocabulary_find_kind(const struct json *tokenizer, struct vocabulary_kind *out, struct error *error);

struct entry {
	const char *text; // of the JSON; NULL: none yet
	uint8_t type;     // tokenizer.ggml.token_type
	float score;
};

struct vocabulary {
	const struct vocabulary_files *files;
	struct vocabulary_kind kind;
	struct entry *entries; // (count)
	uint32_t *by_text;     // (named) ids in the order of their texts
	uint32_t count, named;
	struct output_keys *keys;
	struct error *error;
};
// The id of the token with this text; NO_ID if there is none.
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text);
// The text of the token for what has none; NULL: there is none.
const char *vocabulary_unknown(const struct vocabulary_files *files);
// Keys of special tokens and of the chat template. Errors: STATUS_INVALID_PARAMS.
enum status vocabulary_put_ids(struct vocabulary *vocabulary);
