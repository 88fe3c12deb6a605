/* Calls of functions as a grammar: each is a text, an instance of a JSON Schema, and another text. See grammar.h. */
#pragma once
#include "common/json/json.h"
#include "engine/grammar/grammar.h"

struct grammar_call {
	const char *before, *after; // any bytes
	const struct json *schema;  // NULL: any object of JSON
};

struct grammar_calls {
	const struct grammar_call *calls; // (count): one of these
	size_t count;
	const char *begin, *between, *end; // around all of them
	uint32_t most;                     // so many of them, one after the other; at least one
	bool blanks;                       // up to two line ends may stand before all
};

// Errors: of grammar_create.
enum status grammar_create_calls(struct grammar **out, const struct grammar_calls *calls, struct error *error);
