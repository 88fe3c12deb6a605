/* Chat templates. A model file has its template as a Jinja program; we run no programs of files. The families that are
 * known are recognised by what is particular in the text, and written here by hand; any other is said to be unknown.
 * Thread: any; nothing is kept. */
#pragma once
#include "engine/model/tokenizer.h"

struct chat_template; // static; one for each family

// By the file's tokenizer.chat_template; NULL if it has none or it is unknown (then the model completes, and a chat is
// refused with a hint).
const struct chat_template *chat_template_recognise(const struct gguf *gguf);
const char *chat_template_name(const struct chat_template *template); // "llama3", "chatml", …

struct chat_message {
	const char *role; // "system", "user", "assistant", "tool"; others are refused
	const char *text; // (length), UTF-8
	size_t length;
};
// The whole conversation and the beginning of the assistant's answer, as tokens. Text of messages never becomes special
// tokens, whatever it looks like. Errors: STATUS_INVALID_PARAMS (a role, or an order of roles, that the family does not
// know), and tokenize's.
enum status chat_template_apply(const struct chat_template *template, const struct tokenizer *tokenizer,
				const struct chat_message *messages, size_t count, struct token_list *out,
				struct error *error);
