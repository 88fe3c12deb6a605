/* A vocabulary as a tree of bytes, in the order of a walk that looks at a node before what is below it.
 *
 * What lies under a node that does not fit is passed over by one jump. A token is plain if it is whole characters that
 * a JSON string takes without escapes: where a grammar takes any of these, and does not care which, the plain tokens
 * are allowed at once, and branches with nothing else are not walked. Nothing changes once it is made. */
#pragma once
#include "engine/grammar/grammar.h"

enum {
	VOCABULARY_NO_TOKEN = UINT32_MAX,
	PLAIN_MOST = 32, // characters of a plain token; one of more counts as not plain
	NOT_PLAIN = 255,
};

struct branch {
	uint32_t end;   // the first that does not lie below
	uint32_t token; // or VOCABULARY_NO_TOKEN
	uint16_t depth; // bytes until here, with its own
	uint8_t byte;
	uint8_t plain; // characters of the longest token here and below, if all are plain; else NOT_PLAIN
};

struct vocabulary {
	uint32_t count, words;   // tokens; (count + 31) / 32
	struct branch *branches; // (branch_count)
	uint32_t branch_count;
	uint32_t longest;    // token, in bytes
	uint32_t (*same)[2]; // (same_count): a token in the tree, and another of the same bytes
	uint32_t same_count;
	uint32_t *ends; // (end_count): tokens that end an answer
	uint32_t end_count;
	uint32_t *plain; // (PLAIN_MOST + 1, words): the plain tokens of at most so many characters
	// Of each token its bytes.
	uint32_t *offsets; // (count + 1)
	uint8_t *bytes;
	bool *is_end; // (count)
};
