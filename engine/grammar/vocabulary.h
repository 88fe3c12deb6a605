/* A vocabulary as a tree of bytes, in the order of a walk that visits a node before the nodes below it.
 *
 * If a node does not fit, one jump skips all nodes below it. A token is plain if it consists of whole characters that a
 * JSON string takes without escapes. Where a grammar accepts any of these characters and they lead to the same state,
 * all plain tokens are allowed at once, and branches with only plain tokens are not walked. Immutable once created. */
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
	// The bytes of each token.
	uint32_t *offsets; // (count + 1)
	uint8_t *bytes;
	bool *is_end; // (count)
};
