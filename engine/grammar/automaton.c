/* See automaton.h. Expressions become nodes from the end to the beginning, because a node refers to the nodes after it.
 * A repeated expression of more than a few nodes becomes a rule of its own, so that its nodes exist once. */
#include "engine/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 8 }; // repeated expressions of at most so many nodes are copied in place

struct maker {
	struct builder *builder;
	struct node *nodes;
	uint32_t *rule_of; // (capacity): that a node is of
	size_t count, capacity;
	uint32_t *starts; // (start_count), of rules
	size_t start_count;
	uint32_t rule;
};

static uint32_t node(struct maker *maker, struct node one)
{
	struct builder *builder = maker->builder;
	if (builder->status)
		return NODE_AT_DEAD;
	if (maker->count == maker->capacity) {
		const size_t more = maker->capacity ? 2 * maker->capacity : 256;
		struct node *nodes = realloc(maker->nodes, more * sizeof(*nodes));
		maker->nodes = nodes ? nodes : maker->nodes;
		uint32_t *rules = realloc(maker->rule_of, more * sizeof(*rules));
		maker->rule_of = rules ? rules : maker->rule_of;
		if (!nodes || !rules) {
			builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
			return NODE_AT_DEAD;
		}
		maker->capacity = more;
	}
	if (maker->count >= GRAMMAR_NODES) {
		error_hint(builder->error, "use fewer repetitions, or remove optional parts");
		builder_fail(builder, STATUS_LIMIT_EXCEEDED, "the grammar is too large: at most %d steps",
			     GRAMMAR_NODES);
		return NODE_AT_DEAD;
	}
	maker->rule_of[maker->count] = maker->rule;
	maker->nodes[maker->count] = one;
	return (uint32_t)maker->count++;
}

static uint32_t byte(struct maker *maker, uint8_t low, uint8_t high, uint32_t next)
{
	return node(maker, (struct node){.kind = NODE_BYTE, .low = low, .high = high, .out = next});
}

static uint32_t split(struct maker *maker, uint32_t out, uint32_t other)
{
	if (out == NODE_AT_DEAD || out == other)
		return other;
	return node(maker, (struct node){.kind = NODE_SPLIT, .out = out, .other = other});
}

// ---- classes of characters ----

// Characters of one range as bytes, which are between two strings of bytes of one length. `tails`: nodes that take so
// many bytes of any kind that goes on with a character, then `next`.
static uint32_t between(struct maker *maker, const uint8_t *low, const uint8_t *high, unsigned length,
			const uint32_t *tails)
{
	static const uint8_t least[4] = {0x80, 0x80, 0x80, 0x80}, most[4] = {0xBF, 0xBF, 0xBF, 0xBF};
	if (!length)
		return tails[0];
	if (low[0] == high[0])
		return byte(maker, low[0], high[0], between(maker, low + 1, high + 1, length - 1, tails));
	uint32_t out = NODE_AT_DEAD;
	uint8_t first = low[0], last = high[0];
	if (memcmp(low + 1, least, length - 1) != 0) {
		out = byte(maker, first, first, between(maker, low + 1, most, length - 1, tails));
		first++;
	}
	if (memcmp(high + 1, most, length - 1) != 0) {
		out = split(maker, byte(maker, last, last, between(maker, least, high + 1, length - 1, tails)), out);
		last--;
	}
	if (first <= last)
		out = split(maker, byte(maker, first, last, tails[length - 1]), out);
	return out;
}

static unsigned encode(uint32_t character, uint8_t bytes[4])
{
	if (character < 0x80) {
		bytes[0] = (uint8_t)character;
		return 1;
	}
	if (character < 0x800) {
		bytes[0] = (uint8_t)(0xC0 | character >> 6);
		bytes[1] = (uint8_t)(0x80 | (character & 0x3F));
		return 2;
	}
	if (character < 0x10000) {
		bytes[0] = (uint8_t)(0xE0 | character >> 12);
		bytes[1] = (uint8_t)(0x80 | (character >> 6 & 0x3F));
		bytes[2] = (uint8_t)(0x80 | (character & 0x3F));
		return 3;
	}
	bytes[0] = (uint8_t)(0xF0 | character >> 18);
	bytes[1] = (uint8_t)(0x80 | (character >> 12 & 0x3F));
	bytes[2] = (uint8_t)(0x80 | (character >> 6 & 0x3F));
	bytes[3] = (uint8_t)(0x80 | (character & 0x3F));
	return 4;
}

static uint32_t class(struct maker *maker, const struct range *ranges, size_t count, uint32_t next)
{
	// Characters of as many bytes each; what lies between D800 and DFFF are none.
	static const struct range spans[] = {
		{1, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
	uint32_t out = NODE_AT_DEAD, tails[4] = {next, NODE_AT_DEAD, NODE_AT_DEAD, NODE_AT_DEAD};
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < sizeof(spans) / sizeof(spans[0]); j++) {
			const uint32_t low = ranges[i].low > spans[j].low ? ranges[i].low : spans[j].low;
			const uint32_t high = ranges[i].high < spans[j].high ? ranges[i].high : spans[j].high;
			uint8_t from[4], to[4];
			if (low > high)
				continue;
			const unsigned length = encode(low, from);
			encode(high, to);
			for (unsigned k = 1; k < length; k++)
				if (tails[k] == NODE_AT_DEAD)
					tails[k] = byte(maker, 0x80, 0xBF, tails[k - 1]);
			out = split(maker, between(maker, from, to, length, tails), out);
		}
	return out;
}

// ---- expressions ----

static uint32_t emit(struct maker *maker, uint32_t number, uint32_t next, unsigned depth);

static uint32_t call(struct maker *maker, uint32_t rule, uint32_t next)
{
	return node(maker, (struct node){.kind = NODE_CALL, .out = next, .other = rule}); // its start comes later
}

static bool is_small(const struct builder *builder, uint32_t number)
{
	const struct expression *one = &builder->expressions[number];
	if (one->kind == EXPRESSION_BYTES)
		return one->count <= SMALL;
	if (one->kind == EXPRESSION_CLASS)
		return one->count <= SMALL &&
		       (!one->count || builder->ranges.items[one->first + one->count - 1].high < 0x80);
	return one->kind == EXPRESSION_RULE;
}

static uint32_t repeat(struct maker *maker, struct expression one, uint32_t next, unsigned depth)
{
	struct builder *builder = maker->builder;
	const uint32_t more = one.most == EXPRESSION_ENDLESS ? 1 : one.most - one.least;
	uint32_t what = one.first, out = next;
	if (one.most != EXPRESSION_ENDLESS && one.most < one.least)
		return NODE_AT_DEAD;
	if (one.least + (uint64_t)more > 1 && !is_small(builder, what)) {
		const uint32_t rule = builder_rule(builder, "", 0);
		builder_define(builder, rule, what);
		what = expression_rule(builder, rule);
	}
	if (one.most == EXPRESSION_ENDLESS) {
		out = node(maker, (struct node){.kind = NODE_SPLIT, .other = next});
		const uint32_t body = emit(maker, what, out, depth + 1);
		if (!builder->status)
			maker->nodes[out].out = body;
	}
	for (uint32_t i = 0; one.most != EXPRESSION_ENDLESS && i < more && !builder->status; i++)
		out = split(maker, emit(maker, what, out, depth + 1), next);
	for (uint32_t i = 0; i < one.least && !builder->status; i++)
		out = emit(maker, what, out, depth + 1);
	return out;
}

// The node at which the expression begins, after which comes `next`.
static uint32_t emit(struct maker *maker, uint32_t number, uint32_t next, unsigned depth)
{
	struct builder *builder = maker->builder;
	const struct expression one = builder->expressions[number];
	uint32_t out = next;
	if (builder->status)
		return NODE_AT_DEAD;
	if (depth > 4 * EXPRESSION_NESTING) {
		builder_fail(builder, STATUS_LIMIT_EXCEEDED, "the grammar is nested too deeply");
		return NODE_AT_DEAD;
	}
	switch (one.kind) {
	case EXPRESSION_BYTES:
		for (uint32_t i = one.count; i; i--) {
			const uint8_t value = builder->bytes.data[one.first + i - 1];
			out = byte(maker, value, value, out);
		}
		break;
	case EXPRESSION_CLASS:
		out = one.count ? class(maker, &builder->ranges.items[one.first], one.count, next) : NODE_AT_DEAD;
		break;
	case EXPRESSION_SEQUENCE:
		for (uint32_t i = one.count; i; i--)
			out = emit(maker, builder->kids.items[one.first + i - 1], out, depth + 1);
		break;
	case EXPRESSION_CHOICE:
		out = NODE_AT_DEAD;
		for (uint32_t i = one.count; i; i--)
			out = split(maker, emit(maker, builder->kids.items[one.first + i - 1], next, depth + 1), out);
		break;
	case EXPRESSION_REPEAT:
		out = repeat(maker, one, next, depth);
		break;
	case EXPRESSION_RULE:
		out = call(maker, one.first, next);
		break;
	}
	return out;
}

// ---- what holds of nodes ----

// For each node, the nodes that refer to it.
struct references {
	uint32_t *first; // (count + 1)
	uint32_t *from;
};

static void references_finish(struct references *references)
{
	free(references->first);
	free(references->from);
}

static bool references_init(struct references *references, const struct maker *maker)
{
	const size_t count = maker->count;
	references->first = calloc(count + 2, sizeof(uint32_t));
	references->from = calloc(2 * count + 1, sizeof(uint32_t));
	if (!references->first || !references->from)
		return false;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 2; i < count; i++) {
			const struct node *one = &maker->nodes[i];
			const uint32_t to[2] = {one->out, one->other};
			for (int k = 0; k < (one->kind == NODE_BYTE ? 1 : 2); k++)
				if (!pass)
					references->first[to[k] + 1]++;
				else
					references->from[references->first[to[k]]++] = (uint32_t)i;
		}
		for (size_t i = 0; !pass && i < count; i++)
			references->first[i + 1] += references->first[i];
		if (pass)
			memmove(references->first + 1, references->first, count * sizeof(uint32_t));
	}
	references->first[0] = 0;
	return true;
}

// Which nodes reach the end of their rule; with `bytes` or without any. `holds` (count) is filled.
static bool reach_end(const struct maker *maker, const struct references *references, bool bytes, bool *holds)
{
	uint32_t *waiting = malloc((maker->count + 1) * sizeof(uint32_t));
	size_t count = 0;
	if (!waiting)
		return false;
	memset(holds, 0, maker->count * sizeof(bool));
	holds[NODE_AT_END] = true;
	waiting[count++] = NODE_AT_END;
	while (count) {
		const uint32_t at = waiting[--count];
		for (uint32_t i = references->first[at]; i < references->first[at + 1]; i++) {
			const uint32_t from = references->from[i];
			const struct node *one = &maker->nodes[from];
			const bool now = one->kind == NODE_CALL ? holds[one->out] && holds[one->other]
								: one->kind != NODE_BYTE || bytes;
			if (now && !holds[from]) {
				holds[from] = true;
				waiting[count++] = from;
			}
		}
	}
	free(waiting);
	return true;
}

// Whether a rule comes to itself before any byte, with something behind it: then it would go on for ever. Strongly
// connected components (Tarjan 1972), without recursion.
struct seeker {
	const struct maker *maker;
	const bool *empty;
	uint32_t *order, *low, *stack, *path;
	uint8_t *turn;
	bool *open;
	uint32_t next;
	size_t open_count, path_count;
};

static uint32_t neighbour(const struct seeker *seeker, uint32_t at, unsigned turn)
{
	const struct node *one = &seeker->maker->nodes[at];
	if (one->kind == NODE_SPLIT && turn < 2)
		return turn ? one->other : one->out;
	if (one->kind == NODE_CALL && turn == 0)
		return one->other;
	if (one->kind == NODE_CALL && turn == 1 && seeker->empty[one->other])
		return one->out;
	return UINT32_MAX;
}

static void seek(struct seeker *seeker, uint32_t root, uint32_t *component)
{
	seeker->path[seeker->path_count++] = root;
	while (seeker->path_count) {
		const uint32_t at = seeker->path[seeker->path_count - 1];
		if (!seeker->order[at]) {
			seeker->order[at] = seeker->low[at] = ++seeker->next;
			seeker->stack[seeker->open_count++] = at;
			seeker->open[at] = true;
		}
		const uint32_t to = neighbour(seeker, at, seeker->turn[at]);
		if (to != UINT32_MAX) {
			seeker->turn[at]++;
			if (!seeker->order[to])
				seeker->path[seeker->path_count++] = to;
			else if (seeker->open[to] && seeker->order[to] < seeker->low[at])
				seeker->low[at] = seeker->order[to];
			continue;
		}
		seeker->path_count--;
		if (seeker->path_count) {
			uint32_t *above = &seeker->low[seeker->path[seeker->path_count - 1]];
			*above = seeker->low[at] < *above ? seeker->low[at] : *above;
		}
		for (uint32_t one = UINT32_MAX; seeker->low[at] == seeker->order[at] && one != at;) {
			one = seeker->stack[--seeker->open_count];
			seeker->open[one] = false;
			component[one] = at;
		}
	}
}

static enum status check_loops(const struct maker *maker, const bool *empty)
{
	const size_t count = maker->count;
	struct builder *builder = maker->builder;
	struct seeker seeker = {.maker = maker,
				.empty = empty,
				.order = calloc(count, sizeof(uint32_t)),
				.low = calloc(count, sizeof(uint32_t)),
				.stack = calloc(count, sizeof(uint32_t)),
				.path = calloc(count + 1, sizeof(uint32_t)),
				.turn = calloc(count, 1),
				.open = calloc(count, sizeof(bool))};
	uint32_t *component = calloc(count, sizeof(uint32_t));
	const bool room = seeker.order && seeker.low && seeker.stack && seeker.path && seeker.turn && seeker.open &&
			  component;
	for (uint32_t i = 0; room && i < count; i++)
		if (!seeker.order[i])
			seek(&seeker, i, component);
	for (size_t i = 0; room && i < count && !builder->status; i++) {
		const struct node *one = &maker->nodes[i];
		if (one->kind == NODE_CALL && !one->last && component[i] == component[one->other]) {
			error_hint(builder->error, "put the recursion at the end of the rule: list ::= item list?");
			builder_fail(builder, STATUS_INVALID_PARAMS,
				     "the rule %.64s begins with itself, before anything else",
				     builder_name(builder, maker->rule_of[i]));
		}
	}
	free(seeker.order);
	free(seeker.low);
	free(seeker.stack);
	free(seeker.path);
	free(seeker.turn);
	free(seeker.open);
	free(component);
	return room ? builder->status : builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
}

// ---- the whole ----

static void make_nodes(struct maker *maker)
{
	struct builder *builder = maker->builder;
	node(maker, (struct node){.kind = NODE_END});
	node(maker, (struct node){.kind = NODE_DEAD});
	for (size_t i = 0; i < builder->rule_count && !builder->status; i++) { // some are added meanwhile
		uint32_t *starts = realloc(maker->starts, builder->rule_capacity * sizeof(*starts));
		if (!starts) {
			builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
			return;
		}
		maker->starts = starts;
		if (!builder->rules[i].defined) {
			builder_fail(builder, STATUS_INVALID_PARAMS, "there is no rule %.64s",
				     builder_name(builder, (uint32_t)i));
			return;
		}
		maker->rule = (uint32_t)i;
		maker->starts[maker->start_count++] = emit(maker, builder->rules[i].body, NODE_AT_END, 0);
	}
	for (size_t i = 0; i < maker->count && !builder->status; i++) {
		struct node *one = &maker->nodes[i];
		if (one->kind != NODE_CALL)
			continue;
		one->other = maker->starts[one->other];
		one->last = one->out == NODE_AT_END;
	}
}

static void find_classes(struct grammar *grammar)
{
	bool begins[257] = {true};
	unsigned count = 0;
	for (size_t i = 0; i < grammar->node_count; i++)
		if (grammar->nodes[i].kind == NODE_BYTE)
			begins[grammar->nodes[i].low] = begins[grammar->nodes[i].high + 1] = true;
	for (unsigned i = 0; i < 256; i++) {
		count += begins[i];
		grammar->class_of[i] = (uint8_t)(count - 1);
	}
	grammar->class_count = (uint16_t)count;
}

static enum status judge_nodes(struct maker *maker, uint32_t root)
{
	struct builder *builder = maker->builder;
	struct references references = {0};
	bool *holds = malloc(maker->count * sizeof(bool));
	const bool room = holds && references_init(&references, maker) && reach_end(maker, &references, false, holds);
	if (!room)
		builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
	if (!builder->status)
		check_loops(maker, holds);
	if (!builder->status && !reach_end(maker, &references, true, holds))
		builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
	for (size_t i = 0; !builder->status && i < maker->count; i++)
		maker->nodes[i].live = holds[i];
	if (!builder->status && !maker->nodes[maker->starts[root]].live)
		builder_fail(builder, STATUS_INVALID_PARAMS, "no text matches it: no answer could ever be complete");
	free(holds);
	references_finish(&references);
	return builder->status;
}

enum status automaton_create(struct grammar **out, struct builder *builder, uint32_t root)
{
	struct maker maker = {.builder = builder};
	*out = NULL;
	if (!builder->status)
		make_nodes(&maker);
	if (!builder->status)
		judge_nodes(&maker, root);
	struct grammar *grammar = builder->status ? NULL : calloc(1, sizeof(*grammar));
	if (!builder->status && !grammar)
		builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
	if (grammar) {
		grammar->nodes = maker.nodes;
		grammar->node_count = maker.count;
		grammar->start = maker.starts[root];
		find_classes(grammar);
		maker.nodes = NULL;
		*out = grammar;
	}
	free(maker.nodes);
	free(maker.rule_of);
	free(maker.starts);
	return builder->status;
}

void grammar_destroy(struct grammar **grammar)
{
	if (!*grammar)
		return;
	free((*grammar)->nodes);
	free(*grammar);
	*grammar = NULL;
}
