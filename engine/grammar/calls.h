/* Calls of functions as a grammar: each is a text, an instance of a JSON Schema, and another text. See grammar.h. */
#pragma once
#include "common/json/json.h"
#include "engine/grammar/grammar.h"

// Arguments that are no JSON object but one after the other: begin NAME middle VALUE end. A value that is a text stands
// as it is; others are JSON. `stop` is what no such text contains; its first byte comes in it once.
struct grammar_pairs {
	const char *begin, *middle, *end, *stop;
};

struct grammar_call {
	const char *before, *after;        // any bytes
	const struct json *schema;         // NULL: any object
	const struct grammar_pairs *pairs; // NULL: the arguments are JSON
};

struct grammar_calls {
	const struct grammar_call *calls; // (count): one of these
	size_t count;
	const char *begin, *between, *end; // around all of them
	const char *gap, *open; // behind `begin`: a text that may stand there, and one that does; may be NULL
	uint32_t most;          // so many of them, one after the other; at least one
	bool blanks;            // up to two line ends may stand before all
	// Instead of any call the answer may be a text of this grammar. GRAMMAR_UNKNOWN: it may not.
	enum grammar_kind other;
	const char *other_text;
	struct grammar_refusal *refused; // receives the keyword of a schema that was refused, if one was; may be NULL
};

// Errors: of grammar_create.
enum status grammar_create_calls(struct grammar **out, const struct grammar_calls *calls, struct error *error);
