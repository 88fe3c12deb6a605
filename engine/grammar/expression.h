/* Expressions, from which a grammar's automaton is made: what its parsers build. See grammar.h.
 *
 * An expression is a number. Memory that runs out and limits that are met are noted, once; the numbers that come back
 * then are good for going on with. Nothing here recurses. Thread: one. */
#pragma once
#include "common/base/buffer.h"
#include "engine/grammar/grammar.h"

enum { EXPRESSION_ENDLESS = UINT32_MAX, EXPRESSIONS_MOST = GRAMMAR_NODES, EXPRESSION_NESTING = 64 };

struct range {
	uint32_t low, high; // characters, both included
};

struct list {
	uint32_t *items; // (count)
	size_t count, capacity;
};

struct ranges {
	struct range *items; // (count)
	size_t count, capacity;
};

enum expression_kind {
	EXPRESSION_BYTES,    // first, count: of `bytes`
	EXPRESSION_CLASS,    // first, count: of `ranges`
	EXPRESSION_SEQUENCE, // first, count: of `kids`
	EXPRESSION_CHOICE,   // the same; without any, nothing fits
	EXPRESSION_REPEAT,   // first: what; least, most times
	EXPRESSION_RULE,     // first: of `rules`
};

struct expression {
	enum expression_kind kind;
	uint32_t first, count, least, most;
};

struct rule {
	uint32_t name, body; // in `bytes`, ended by a zero; an expression
	bool defined;
};

struct builder {
	struct expression *expressions;
	size_t expression_count, expression_capacity;
	struct rule *rules;
	size_t rule_count, rule_capacity;
	struct list kids;
	struct ranges ranges;
	struct buffer bytes;
	struct error *error;
	enum status status;             // the first that failed
	struct grammar_refusal refused; // if that was a keyword; else empty
};

void builder_init(struct builder *builder, struct error *error);
void builder_finish(struct builder *builder);
// Note what failed; returns `status`.
enum status builder_fail(struct builder *builder, enum status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void list_add(struct builder *builder, struct list *list, uint32_t item);
void list_finish(struct list *list);
void span_list_add(struct builder *builder, struct ranges *ranges, uint32_t low, uint32_t high);
// Sort the ranges, and merge those that touch or overlap; only characters that exist are kept, without U+0000.
void span_list_settle(struct ranges *ranges);
void span_list_invert(struct builder *builder, struct ranges *ranges); // they are settled before and afterwards
void span_list_finish(struct ranges *ranges);

uint32_t expression_bytes(struct builder *builder, const void *bytes, size_t length);
uint32_t expression_text(struct builder *builder, const char *text);
uint32_t expression_class(struct builder *builder, const struct ranges *ranges); // settled
uint32_t expression_span(struct builder *builder, uint32_t low, uint32_t high);  // one character of these
uint32_t expression_sequence(struct builder *builder, const struct list *kids);
uint32_t expression_choice(struct builder *builder, const struct list *kids);
uint32_t expression_pair(struct builder *builder, uint32_t first, uint32_t second); // one after the other
uint32_t expression_either(struct builder *builder, uint32_t first, uint32_t second);
uint32_t expression_repeat(struct builder *builder, uint32_t what, uint32_t least, uint32_t most);
uint32_t expression_rule(struct builder *builder, uint32_t rule);
uint32_t builder_rule(struct builder *builder, const char *name, size_t length); // yet to be defined
void builder_define(struct builder *builder, uint32_t rule, uint32_t body);
const char *builder_name(const struct builder *builder, uint32_t rule);

// One of these texts. Common beginnings are shared, so thousands of texts take few positions at once.
struct words {
	const char **items; // (count), sorted here
	size_t count;
};
uint32_t expression_words(struct builder *builder, struct words *words);
