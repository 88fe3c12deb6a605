/* How models write tool calls and thoughts. One table for each; the entry is found by the text of a model's chat
 * template. The parser (parser.h) reads by these tables, and the mask of a forced call is made from them. Thread: any;
 * constants. */
#pragma once
#include "common/base/buffer.h"

enum {
	DIALOGUE_MARKS = 24,      // all texts that one call syntax and one thought syntax mark anything with
	DIALOGUE_NAME_BYTES = 64, // of a function
};

enum call_form {
	CALL_FORM_NONE,
	CALL_FORM_JSON,   // begin {"name": NAME, "arguments": {...}} end
	CALL_FORM_LIST,   // begin [{"name": NAME, "arguments": {...}}, ...], or begin NAME[ARGS]{...}
	CALL_FORM_NAMED,  // begin NAME after_name {...} end
	CALL_FORM_PAIRS,  // begin before_name NAME after_name, (key_begin KEY key_end VALUE value_end)..., end
	CALL_FORM_HEADER, // <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}
	CALL_FORM_CODE,   // begin NAME(KEY=VALUE, ...) end, as Python writes it
};

// Texts that a syntax does not have are NULL. `begin` to `end` is one call.
struct call_syntax {
	const char *name;
	enum call_form form;
	const char *knows[3];              // texts that a template of this syntax contains, all of them
	const char *section, *section_end; // around all calls of an answer
	const char *begin, *end;           // around each call
	const char *arguments;             // the member of a JSON call: "arguments" or "parameters"
	const char *before_name, *after_name;
	const char *key_begin, *key_end, *value_begin, *value_end; // around an argument's name, and its value
	const char *pairs_end;                                     // behind the last argument
	const char *between;                                       // as a model writes it between two calls
	bool bare; // a call may stand without `begin` where the answer begins
};

struct thought_syntax {
	const char *name;
	const char *begin, *end;
};

// NULL: none of the table fits.
const struct call_syntax *call_syntax_of_template(const char *text, size_t length);
const struct thought_syntax *thought_syntax_of_template(const char *text, size_t length);
// The entry of this name. NULL for NULL and for a name that is not in the table.
const struct call_syntax *call_syntax_named(const char *name);
const struct thought_syntax *thought_syntax_named(const char *name);
// The syntax for models whose template does not support tools.
const struct call_syntax *call_syntax_generic(void);

// The texts that mark calls and thoughts, which a vocabulary may have as control tokens. Either syntax may be NULL.
// Returns how many there are.
size_t dialogue_marks(const struct call_syntax *calls, const struct thought_syntax *thoughts,
		      const char *marks[DIALOGUE_MARKS]);

// A call of `name` as the model is taught to write it: what stands before its arguments, and behind them. Not of
// CALL_FORM_CODE, whose arguments are Python's: false.
bool call_syntax_write(const struct call_syntax *syntax, const char *name, struct buffer *before, struct buffer *after);

// How an argument is written in CALL_FORM_PAIRS: begin KEY middle VALUE end. No text value contains `stop`.
struct call_pairs {
	char begin[32], middle[32], end[32], stop[32];
};
// False: the syntax has none.
bool call_syntax_pairs(const struct call_syntax *syntax, struct call_pairs *out);
