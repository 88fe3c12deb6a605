/* Chat templates. A model file has its template as a Jinja program, which engine/jinja runs: chat_render.c gives it the
 * conversation and tokenizes the text that it writes. For a file without a template one can be named instead: the named
 * templates are written by hand in chat.c. chat_read.c has their names, and finds the named template that a file's
 * template resembles, which is shown to people. Thread: any; a template is immutable. */
#pragma once
#include "engine/dialogue/syntax.h"
#include "engine/jinja/jinja.h"
#include "engine/text/tokenizer.h"

enum {
	CHAT_SYSTEM_BYTES = 16384,
	CHAT_TEXT_BYTES = 65536, // longest template that is compared with the named ones
	CHAT_NAMES_BYTES = 256,
	CHAT_DATE = 1, // the byte of `system` where the day is written
};

enum chat_family {
	CHAT_UNKNOWN,
	CHAT_LLAMA3,
	CHAT_ML,
	CHAT_LLAMA2,
	CHAT_MISTRAL,
	CHAT_DEEPSEEK,
	CHAT_ZEPHYR,
	CHAT_JINJA,
};

// The differences between the templates of one family.
enum chat_rule {
	// ChatML
	CHAT_TOOLS = 1 << 0,    // answers of tools are part of the user's turn
	CHAT_LATEST = 1 << 1,   // thoughts are kept behind the last question, and left out before
	CHAT_SWITCHES = 1 << 2, // thinking can be turned off
	// ChatML, DeepSeek
	CHAT_OPENS = 1 << 3,   // the answer begins with the thoughts' beginning
	CHAT_FORGETS = 1 << 4, // thoughts of answers are left out: ChatML, but of a last message; DeepSeek, of all
	// Mistral
	CHAT_VOCABULARY = 1 << 5,    // the others of these are as is usual for the vocabulary
	CHAT_SPACE_IN = 1 << 6,      // behind [INST]
	CHAT_SPACE_OUT = 1 << 7,     // before [/INST]
	CHAT_SPACE_ANSWER = 1 << 8,  // before an answer
	CHAT_SPACE_AFTER = 1 << 9,   // behind its end
	CHAT_TRIMS = 1 << 10,        // answers; Llama 3: all messages
	CHAT_SYSTEM_LAST = 1 << 11,  // the system message is in front of the last question, not of the first
	CHAT_SYSTEM_TURNS = 1 << 12, // it has a turn of its own
	CHAT_ALTERNATES = 1 << 13,   // user and assistant must take turns
	// DeepSeek
	CHAT_JOINS = 1 << 14, // several system messages are all written; otherwise the last
	CHAT_BEGUN = 1 << 15, // a question's turn ends with the beginning of the answer
};

struct chat_template {
	enum chat_family family;        // CHAT_UNKNOWN: none; of a file's own that is like none: CHAT_JINJA
	struct jinja_template *program; // the file's own; NULL: one that is named. Owned
	const char *name; // static: "llama3", "chatml", …; for a file's own template the one it resembles, or "jinja";
			  // NULL: none
	unsigned rules; // enum chat_rule
	// The system message of a conversation without one; for Llama 3, text that comes before every system message.
	// "": none.
	char system[CHAT_SYSTEM_BYTES];
	// How the model calls tools, if the template takes them, and how it thinks; NULL: not at all, or not known.
	const struct call_syntax *calls;
	const struct thought_syntax *thoughts;
};

// The file's own template. If the file has none, `out` is empty (CHAT_UNKNOWN): then the model only completes text, and
// a chat is refused with a hint. Errors: those of jinja_template_create; `out` is empty then, too.
enum status chat_template_of_file(const struct gguf *gguf, struct chat_template *out, struct error *error);
void chat_template_finish(struct chat_template *template);
// The named template that a file's template resembles: family, rules and name. False: none.
bool chat_template_recognise(const struct gguf *gguf, struct chat_template *out);
// The named template with its usual rules, whatever the file has. False: the name is unknown.
bool chat_template_named(const char *name, struct chat_template *out);
// All names, with ", " between them; returns `text`.
const char *chat_template_names(char text[CHAT_NAMES_BYTES]);

struct chat_message {
	const char *role; // "system", "user", "assistant", "tool"; others are refused
	const char *text; // (length), UTF-8
	size_t length;
	bool silent;              // there is no text, as where an answer is calls of tools only
	const char *thoughts;     // of an answer; NULL: none
	const struct json *calls; // of an answer: [{id, name, arguments (text)}]; NULL: none
	const char *call_id;      // of a tool's answer; NULL: not said
};
enum chat_thinking { THINKING_UNSAID, THINKING_ON, THINKING_OFF };
struct conversation {
	const struct chat_message *messages; // (count)
	size_t count;
	enum chat_thinking thinking; // refused if said where the template has no such switch
	const char *effort;          // of thinking: "low", "medium", ...; NULL: unsaid; no template refuses it
	const struct json *tools;    // as OpenAI has them; NULL: none. Only of a template with `calls`
	int64_t now_ms;              // wall clock: the day, in UTC, of templates that tell it
	bool *opened;                // receives whether the answer begins inside a thought; may be NULL
};
// The whole conversation and the beginning of the assistant's answer, as tokens. Text of messages never becomes special
// tokens. Errors: STATUS_INVALID_PARAMS (an unknown role, or the template's own refusal, in its words), those of
// jinja_render and of tokenize.
enum status chat_template_apply(const struct chat_template *template, const struct tokenizer *tokenizer,
				const struct conversation *conversation, struct token_list *out, struct error *error);
// Whether the template is varied by this variable.
bool chat_template_takes(const struct chat_template *template, const char *variable);
// The same for a file's own template; messages have been looked at.
enum status chat_render(const struct chat_template *template, const struct tokenizer *tokenizer,
			const struct conversation *conversation, struct token_list *out, struct error *error);

// The text that a language model is asked with about a query and a document (a reranker): `template` with both in the
// places of {query} and {document}. Special tokens are looked for in the template only. Errors: those of tokenize.
enum status chat_pair(const char *template, const struct tokenizer *tokenizer, const char *query, const char *document,
		      struct token_list *out, struct error *error);
