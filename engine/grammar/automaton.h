/* The automaton of a grammar: nodes, each of which goes on to one or two others. See grammar.h.
 *
 *     byte     a byte of [low, high], then `out`
 *     split    `out` or `other`
 *     call     the rule that begins at `other`, then `out`; `last`: what comes after it is the end of this rule
 *     end      of a rule: back to where it was called
 *     dead     nothing fits
 *
 * Nodes from which no text can be finished are marked, so that nobody goes there. Bytes that no node tells apart are of
 * one class. Nothing changes once it is made. */
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

// From what was built; `root` is the rule that an answer is. Errors: of grammar_create.
enum status automaton_create(struct grammar **out, struct builder *builder, uint32_t root);

// The rule that an answer in a grammar is, from the grammar's text; what is wrong is noted in the builder.
uint32_t grammar_read(struct builder *builder, enum grammar_kind kind, const char *text, size_t length);
