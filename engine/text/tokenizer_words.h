/* Pre-tokenizers: how byte-level BPE cuts text into words before it looks for tokens.
 *
 * The published ones are regular expressions; these are scanners that cut the same. They look forward only and pass
 * over a character a few times at most, whatever the text. Thread: any; pure functions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

// How words are cut.
enum word_kind {
	WORDS_GPT2,
	WORDS_SMOLLM,
	WORDS_LLAMA3,
	WORDS_QWEN2,
	WORDS_QWEN35,
	WORDS_TEKKEN,
	WORDS_O200K,
	WORDS_DEEPSEEK3
};

struct pre_tokenizer {
	const char *name; // tokenizer.ggml.pre
	enum word_kind kind;
	bool whole_words; // a word that is a token is that token, without merges
	bool composes;    // text is brought into NFC before
	bool begins;      // the token of the beginning is put first, if the file does not say
};
// NULL if the name is unknown.
const struct pre_tokenizer *pre_tokenizer_find(const char *name, size_t length);
const char *pre_tokenizer_names(void); // for a hint: "a, b, c"

// The length of the first word of well-formed UTF-8 that is not empty.
size_t word_length(enum word_kind kind, const char *text, size_t length);
