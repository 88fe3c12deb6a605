/* State that the tokenizer's files share: tokenizer.c and tokenizer_scores.c make it, tokenizer_encode.c (with
 * tokenizer_wordpiece.c and tokenizer_unigram.c) and tokenizer_decode.c use it.
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
	float score;             // of Unigram's tokens: the logarithm of how likely it is
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

// Tokens in the order of their bytes, so that those with a common beginning stand side by side.
struct sorted_tokens {
	uint32_t *tokens; // (count)
	uint32_t count;
	uint32_t first[257]; // the first token that begins with this byte or a higher one
};

// How SentencePiece rewrites text before it looks for tokens: a Darts-clone double array from UTF-8 keys to places in
// `texts`. See tokenizer_charsmap.c.
struct charsmap {
	uint32_t *units; // (unit_count); NULL: text stays as it is
	uint32_t unit_count, text_bytes;
	char *texts; // (text_bytes) each ends with a 0
};

struct tokenizer {
	bool pieces;                       // with scores, over text with spaces; else bytes and merges
	bool unigram;                      // pieces whose scores have the largest sum; else pieces that are merged
	bool wordpiece, lowercase;         // BERT's kind, none of the above; lowercase: letters become lower case
					   // without accents
	const struct pre_tokenizer *words; // of bytes and merges
	uint32_t count;
	struct token *tokens; // (count)
	uint8_t *bytes;       // of all tokens
	size_t longest;       // token, in bytes
	struct slots texts;   // of tokens of type TOKEN_NORMAL
	uint32_t merge_count;
	struct merge *merges;         // (merge_count), best first
	struct slots pairs;           // of merges
	struct sorted_tokens special; // tokens that text can name: control, user-defined, unknown
	struct sorted_tokens normal;  // of Unigram
	struct charsmap charsmap;     // of Unigram
	bool squeeze;                 // of Unigram: no two spaces in a row, and none at either end
	double unknown_score;         // of Unigram: of a character without a token
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
// Append the tokens of a text without special ones. Errors: those of token_list_add; Unigram's
// also STATUS_LIMIT_EXCEEDED where rewriting makes it too long, or where looking for long tokens takes too much work:
// then *laborious. `prefix`: a space is put before it.
enum status tokenizer_encode_wordpiece(const struct tokenizer *tokenizer, const char *text, size_t length,
				       struct token_list *out);
enum status tokenizer_encode_unigram(const struct tokenizer *tokenizer, const char *text, size_t length, bool prefix,
				     struct token_list *out, bool *laborious);

// Sort the tokens of which `belongs` is true. Errors: STATUS_OUT_OF_MEMORY.
enum status tokenizer_sort(const struct tokenizer *tokenizer, bool (*belongs)(const struct tokenizer *, uint32_t),
			   struct sorted_tokens *out);
// Of the sorted tokens *low up to *high, which have the same first `depth` bytes and more than these, keep those whose
// next byte is `byte`.
void tokenizer_narrow(const struct tokenizer *tokenizer, const struct sorted_tokens *sorted, size_t depth, uint8_t byte,
		      uint32_t *low, uint32_t *high);

// Read the scores, and make ranks of them for merging, or what Unigram needs. Errors: STATUS_INVALID_PARAMS (a score is
// no number, or what has no token would be lost; by name), STATUS_OUT_OF_MEMORY.
enum status tokenizer_rank_pieces(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error);
enum status tokenizer_read_unigram(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error);

// Errors: STATUS_INVALID_PARAMS.
enum status tokenizer_check_unknown(const struct tokenizer *tokenizer, struct error *error);

// Read tokenizer.ggml.precompiled_charsmap, if the file has it. Errors: STATUS_INVALID_PARAMS, STATUS_OUT_OF_MEMORY.
enum status charsmap_read(struct charsmap *out, const struct gguf *gguf, struct error *error);
void charsmap_finish(struct charsmap *map);
// What the text (length, not empty) begins with is to become: *replacement, which ends with a 0, and the bytes of the
// text that it stands for; 0 if the map has nothing for it.
size_t charsmap_find(const struct charsmap *map, const uint8_t *text, size_t length, const char **replacement);
// The index of the merge of two tokens; NO_TOKEN if they do not merge.
int32_t tokenizer_merge(const struct tokenizer *tokenizer, uint32_t left, uint32_t right);
// The longest special token (control, user-defined, unknown) at the beginning of the text, which is not empty; NO_TOKEN
// if there is none.
int32_t tokenizer_special(const struct tokenizer *tokenizer, const uint8_t *text, size_t length);
