/* State that the tokenizer's files share: tokenizer.c makes it, tokenizer_encode.c and tokenizer_decode.c use it.
 *
 * Tokens are kept as the bytes that they stand for: U+2581 of SentencePiece as a space, the alphabet of byte-level BPE
 * as bytes. Lookups find only tokens of the type TOKEN_NORMAL, so merging can never make another kind of token.
 * Immutable once created. */
#pragma once
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_words.h"

// Numbers as in the file.
enum token_type {
	TOKEN_NORMAL = 1,
	TOKEN_UNKNOWN,
	TOKEN_CONTROL,
	TOKEN_USER_DEFINED,
	TOKEN_UNUSED,
	TOKEN_BYTE,
};

struct token {
	uint32_t offset, length; // of its bytes
	uint32_t rank;           // of pieces: 0 for the best score; the same for the same score
	uint8_t type;            // enum token_type
	bool ends;               // generation
};

struct merge {
	uint32_t left, right, result;
};

// Open addressing; a slot holds an index + 1, or 0. At most half full.
struct slots {
	uint32_t *slots; // (mask + 1)
	uint32_t mask;
};

struct tokenizer {
	bool pieces;                       // with scores, over text with spaces; else bytes and merges
	bool wordpiece, lowercase;         // BERT's kind, neither of the above; lowercase: letters become lower case
					   // without accents
	const struct pre_tokenizer *words; // of bytes and merges
	uint32_t count;
	struct token *tokens; // (count)
	uint8_t *bytes;       // of all tokens
	size_t longest;       // token, in bytes
	struct slots texts;   // of tokens of type TOKEN_NORMAL
	uint32_t merge_count;
	struct merge *merges; // (merge_count), best first
	struct slots pairs;   // of merges
	uint32_t *special; // (special_count) tokens that text can name: control, user-defined, unknown; sorted by bytes
	uint32_t special_count;
	uint32_t special_first[257]; // where those begin that begin with a byte
	int32_t byte_tokens[256];
	int32_t begin, end, unknown, separator;
	bool add_begin, add_end, add_separator; // the last between the two texts of a pair, behind the end's
	bool space_prefix;                      // a space is put before text
	bool cut_at_spaces;                     // no token goes on with a space behind something else
};

static inline const uint8_t *token_text(const struct tokenizer *tokenizer, uint32_t token)
{
	return tokenizer->bytes + tokenizer->tokens[token].offset;
}

// The token of type TOKEN_NORMAL with these bytes; NO_TOKEN if there is none.
int32_t tokenizer_lookup(const struct tokenizer *tokenizer, const uint8_t *bytes, size_t length);
// Append the tokens of a text without special ones. Errors: those of token_list_add.
enum status tokenizer_encode_wordpiece(const struct tokenizer *tokenizer, const char *text, size_t length,
				       struct token_list *out);
// The index of the merge of two tokens; NO_TOKEN if they do not merge.
int32_t tokenizer_merge(const struct tokenizer *tokenizer, uint32_t left, uint32_t right);
// The longest special token (control, user-defined, unknown) at the beginning of the text, which is not empty; NO_TOKEN
// if there is none.
int32_t tokenizer_special(const struct tokenizer *tokenizer, const uint8_t *text, size_t length);
