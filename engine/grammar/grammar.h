/* Constrains an answer to a grammar over bytes, and finds the tokens that may come next.
 *
 *     text (GBNF, JSON Schema, regular expression) -> expressions -> automaton of rules -> states, made on demand
 *
 * A grammar is compiled once and immutable. Its rules are automata over bytes that call each other, so characters of
 * several bytes, and tokens with half of a character, need no special case. A matcher is one answer's place in the
 * grammar: a set of positions, each with its stack of returns. Each set that occurs gets a number, and its transitions
 * are cached, so the matcher becomes a deterministic automaton for the texts that it has seen. The tokens that may come
 * next are found once for each state by a walk over the vocabulary, which is stored as a tree of bytes.
 *
 * The mask is exact: a token is allowed if and only if the answer with its bytes is the beginning of a text of the
 * grammar; a token that ends the answer is allowed if and only if the answer is such a text. The one exception: texts
 * nested deeper than GRAMMAR_DEPTH are not accepted. Everything is bounded by the numbers below; a grammar that exceeds
 * one fails with a hint. Thread: several threads may use a grammar and a vocabulary at once; a matcher belongs to one
 * at a time. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum grammar_kind {
	GRAMMAR_UNKNOWN,
	GRAMMAR_JSON,   // an object of JSON, with whatever is in it; takes no text
	GRAMMAR_SCHEMA, // a JSON Schema (2020-12, and the names of draft 7): schema.h says what of it
	GRAMMAR_GBNF,   // as llama.cpp writes them, from `root`
	GRAMMAR_REGEX,  // of ECMAScript, for the whole answer: regex.h says what of it
};

enum {
	GRAMMAR_TEXT_BYTES = 256 * 1024, // of a grammar
	GRAMMAR_NODES = 128 * 1024,      // of its automaton: what repeats a bounded number of times has as many
	GRAMMAR_DEPTH = 1024,            // of rules in each other, in an answer
	GRAMMAR_POSITIONS = 4096,        // at once: more is too ambiguous
	GRAMMAR_STATES = 32768, // that a matcher keeps; it forgets those it is not in when they are half used up
	GRAMMAR_WORK = 4 * 1024 * 1024, // steps that one token's mask may take, eight for each position: about 30 ms
};

// A keyword of a JSON Schema that cannot be kept, and where it stands: names and numbers of members, each behind a "/".
struct grammar_refusal {
	char keyword[65], path[192];
};

struct grammar;
// Errors: STATUS_INVALID_PARAMS (the fault and its place), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status grammar_create(struct grammar **out, enum grammar_kind kind, const char *text, size_t length,
			   struct error *error);
void grammar_destroy(struct grammar **grammar); // accepts NULL

// The bytes of a vocabulary's tokens.
struct vocabulary;
struct vocabulary_params {
	uint32_t count;
	// The bytes of a token; NULL, or none: it is never allowed but as one that ends the answer.
	const uint8_t *(*bytes)(const void *context, uint32_t token, size_t *length);
	bool (*ends)(const void *context, uint32_t token);
	const void *context;
};
// Copies. Errors: STATUS_OUT_OF_MEMORY.
enum status vocabulary_create(struct vocabulary **out, const struct vocabulary_params *params);
void vocabulary_destroy(struct vocabulary **vocabulary); // accepts NULL

struct matcher;
// Takes the grammar, also where it fails; the vocabulary is the caller's. `ends`: tokens that end an answer may.
// Errors: STATUS_OUT_OF_MEMORY.
enum status matcher_create(struct matcher **out, struct grammar **grammar, const struct vocabulary *vocabulary,
			   bool ends);
void matcher_destroy(struct matcher **matcher); // accepts NULL
void matcher_rewind(struct matcher *matcher);   // to where it began
// The tokens that may come next: bits, (count + 31) / 32 words, the lowest bit of a word first; valid until the next
// call. NULL: no token may come, or an error occurred; see matcher_error.
const uint32_t *matcher_allowed(struct matcher *matcher);
// Append a token, or bytes, to the answer. Errors: STATUS_INVALID_PARAMS (it is not allowed here), and those of
// matcher_error.
enum status matcher_take(struct matcher *matcher, uint32_t token);
enum status matcher_take_bytes(struct matcher *matcher, const void *bytes, size_t length);
// Whether it may go on with these bytes; it stays where it is.
bool matcher_fits(struct matcher *matcher, const void *bytes, size_t length);
bool matcher_complete(const struct matcher *matcher); // the answer may end here
bool matcher_finished(struct matcher *matcher);       // it may, and nothing else
const struct error *matcher_error(const struct matcher *matcher);
