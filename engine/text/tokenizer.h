/* Text to tokens and back, as the model file says.
 *
 * Four kinds: SentencePiece's BPE, which merges pieces by their scores ("llama"); SentencePiece's Unigram, which takes
 * the pieces with the largest sum of scores ("t5"); byte-level BPE with merges ("gpt2"), whose text is first cut up by
 * one of the known pre-tokenizers (llama-bpe, qwen2 and the names that mean the same); and WordPiece ("bert"). In
 * pieces of SentencePiece spaces are U+2581. Any other kind is refused by name. For every text the ids are those of
 * the published tokenizers. Thread: any; immutable once created. */
#pragma once
#include "common/base/buffer.h"
#include "engine/model/gguf.h"

struct tokenizer;

// Copies all that it needs from `gguf`. Errors: STATUS_UNAVAILABLE (an unsupported kind or pre-tokenizer),
// STATUS_INVALID_PARAMS (lists that do not fit each other, ids out of range, merges of unknown pieces; by name).
enum status tokenizer_create(struct tokenizer **out, const struct gguf *gguf, struct error *error);
void tokenizer_destroy(struct tokenizer **tokenizer);
// Whether a draft model's file has the model's tokens, special ones too; unused tokens at the end of either count for
// nothing. Errors: STATUS_INVALID_PARAMS, with the first difference.
enum status tokenizers_same(const struct gguf *model, const struct gguf *draft, struct error *error);
uint32_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

enum { NO_TOKEN = -1 };
int32_t tokenizer_begin(const struct tokenizer *tokenizer); // first token of a text; NO_TOKEN if there is none
// Whether generation ends with this token: end of text, end of turn and similar ones.
bool tokenizer_ends(const struct tokenizer *tokenizer, uint32_t token);
// The id of the token with exactly this text, special ones included; NO_TOKEN if there is none.
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t length);

struct token_list {
	uint32_t *tokens; // (count), owned
	size_t count, capacity;
	size_t limit; // more is STATUS_LIMIT_EXCEEDED; 0: none
};
void token_list_finish(struct token_list *list);
enum status token_list_add(struct token_list *list, uint32_t token);

struct tokenize_params {
	const char *text; // (length), UTF-8
	size_t length;
	bool special; // text such as <|eot_id|> becomes that token; else it is ordinary text
	bool begin;   // put the token of the beginning first, and the end's last, if the file asks for them
	// The text goes on from another: SentencePiece's space is not put before it.
	bool continues;
};
// Append the tokens of a text. Takes time n log n for n bytes; any text of 16 MiB takes seconds. Errors:
// STATUS_INVALID_PARAMS (not UTF-8, with the place), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status tokenize(const struct tokenizer *tokenizer, const struct tokenize_params *params, struct token_list *out,
		     struct error *error);

// Append a query and a document for a reranker: [begin] query [end] [separator] document [end]; the file says which of
// the special tokens there are. Errors: those of tokenize.
enum status tokenize_pair(const struct tokenizer *tokenizer, const char *query, const char *document,
			  struct token_list *out, struct error *error);

// Append a text with a gap: [begin] mark `before` mark `after` mark; the model goes on with what fills the gap
// (fill-in-the-middle). The marks are those that the vocabulary has of the known ones; marks inside the texts are
// ordinary text. Errors: STATUS_INVALID_PARAMS (the vocabulary has no marks), those of tokenize.
enum status tokenize_fill(const struct tokenizer *tokenizer, const char *before, const char *after,
			  struct token_list *out, struct error *error);

// Tokens to text, while they are generated. The text that is returned never ends inside a UTF-8 sequence: an incomplete
// sequence waits for the next token, and bytes that cannot be UTF-8 become U+FFFD.
struct detokenizer {
	const struct tokenizer *tokenizer;
	uint8_t pending[4];
	unsigned pending_bytes;
	bool begun;   // a SentencePiece text's first space has been left out
	bool special; // control tokens are shown as their text; otherwise they are nothing
};
void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer);
// Append to `out`. Errors: STATUS_OUT_OF_MEMORY and the limit of `out`.
enum status detokenizer_add(struct detokenizer *detokenizer, uint32_t token, struct buffer *out);
enum status detokenizer_end(struct detokenizer *detokenizer, struct buffer *out); // the bytes that were waiting
// The bytes that a token adds to a text which has begun; NULL, or none, if it is not shown. Good as long as the
// tokenizer.
const uint8_t *tokenizer_shown(const struct tokenizer *tokenizer, uint32_t token, size_t *length);
// The bytes of a token, also if they are not whole UTF-8 (for log-probabilities).
enum status token_bytes(const struct tokenizer *tokenizer, uint32_t token, struct buffer *out);
