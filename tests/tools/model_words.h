/* Small vocabularies of the shapes that real model files have, for tests and benchmarks. The pieces are made up, from
 * letters in their order of frequency in English; everything about them works: bytes, merges, scores, special tokens.
 */
#pragma once
#include "tests/tools/gguf_writer.h"

enum model_words {
	WORDS_NONE,
	WORDS_PIECES,    // SentencePiece with byte tokens and scores, as Llama 2 has them: at least 400 tokens
	WORDS_BPE_LLAMA, // byte-level BPE, pre-tokenizer llama-bpe, special tokens as Llama 3's: at least 300
	WORDS_BPE_QWEN,  // byte-level BPE, pre-tokenizer qwen2, special tokens as Qwen's: at least 300
};

// All keys of the tokenizer, and a chat template of the kind's usual family unless `chat_template` is another ("":
// none).
void model_words_put(struct gguf_writer *writer, enum model_words words, uint32_t vocabulary,
		     const char *chat_template);
