/* The automaton of a grammar: nodes, each of which leads to one or two others. See grammar.h.
 *
 *     byte     a byte of [low, high], then `out`
 *     split    `out` or `other`
 *     call     the rule that begins at `other`, then `out`; `last`: the calling rule ends after it
 *     end      the end of a rule: returns to its call
 *     dead     no byte is possible
 *
 * Nodes from which no text can be completed are marked, so that the matcher never enters them. Bytes that no node
 * distinguishes are in one class. Immutable once created. */
#pragma once
#include "engine/grammar/expression.h"

enum node_kind { NODE_END, NODE_DEAD, NODE_BYTE, NODE_SPLIT, NODE_CALL };

struct node {
	uint8_t kind; // enum node_kind
	uint8_t low, high;
	bool live; // a text can be finished from here
	bool last;
	uint32_t out, other;
};

enum { NODE_AT_END = 0, NODE_AT_DEAD = 1 }; // the numbers of these two

struct grammar {
	struct node *nodes; // (node_count)
	size_t node_count;
	uint32_t start;
	uint16_t class_count;
	uint8_t class_of[256];
};

// From the builder's expressions; `root` is the rule of a whole answer. Errors: those of grammar_create.
enum status automaton_create(struct grammar **out, struct builder *builder, uint32_t root);

// Read the text of a grammar; returns the number of the rule of a whole answer. Errors are noted in the builder.
uint32_t grammar_read(struct builder *builder, enum grammar_kind kind, const char *text, size_t length);
