/* The tokenizer of a model's directory as keys of a model file: tokenizer.json (of the kind BPE, of bytes or of pieces
 * as SentencePiece has them), the special tokens of tokenizer_config.json, config.json and generation_config.json, and
 * the chat template.
 *
 * How text is cut into words is recognised by the expressions of tokenizer.json, not by names. Pieces get scores from
 * the order of their merges; one that no merge makes is marked as unused, so that nothing else makes it either. Pure
 * but for vocabulary_read, which waits for the disk. Thread: any. */
#pragma once
#include "common/json/json.h"
#include "server/convert/output.h"

struct vocabulary_files {
	const struct json *tokenizer;        // tokenizer.json
	const struct json *tokenizer_config; // NULL: there is none, and so on
	const struct json *generation_config;
	const struct json *config;
	const char *template; // chat_template.jinja (template_bytes)
	size_t template_bytes;
};

// Append the keys for a vocabulary of `count` tokens; what tokenizer.json does not name is padding. Errors:
// STATUS_UNAVAILABLE (a kind of tokenizer that is not converted, with what it has), STATUS_INVALID_PARAMS,
// STATUS_OUT_OF_MEMORY.
enum status vocabulary_convert(const struct vocabulary_files *files, uint32_t count, struct output_keys *keys,
			       struct error *error);
