/* Expressions as a tree. See inside.h. The order in which operators bind is Jinja's: filters and tests before
 * arithmetic, "~" between the products and the sums. */
#include "engine/jinja/inside.h"

#include <string.h>

// ---- tokens ----

_Noreturn void parse_fail(struct parser *parser, const char *wanted)
{
	const struct token *token = parser->at;
	static const char *const ends[] = {[SYMBOL_END] = "the end of the template",
					   [SYMBOL_OUTPUT_END] = "}}",
					   [SYMBOL_BLOCK_END] = "%}",
					   [SYMBOL_DATA] = "text",
					   [SYMBOL_BLOCK] = "{%",
					   [SYMBOL_OUTPUT] = "{{"};
	parser->work->line = token->line;
	if (token->symbol < SYMBOL_NAME)
		work_fail(parser->work, STATUS_INVALID_PARAMS, "expected %s instead of %s", wanted,
			  ends[token->symbol]);
	work_fail(parser->work, STATUS_INVALID_PARAMS, "expected %s instead of '%.*s'", wanted,
		  token->text.length > 60 ? 60 : (int)token->text.length, token->text.bytes);
}

bool at_operator(const struct parser *parser, const char *what)
{
	return parser->at->symbol == SYMBOL_OPERATOR && text_is(parser->at->text, what);
}

bool at_name(const struct parser *parser, const char *what)
{
	return parser->at->symbol == SYMBOL_NAME && text_is(parser->at->text, what);
}

bool take_operator(struct parser *parser, const char *what)
{
	const bool there = at_operator(parser, what);
	parser->at += there;
	return there;
}

bool take_name(struct parser *parser, const char *what)
{
	const bool there = at_name(parser, what);
	parser->at += there;
	return there;
}

void expect_operator(struct parser *parser, const char *what)
{
	if (!take_operator(parser, what))
		parse_fail(parser, what);
}

// ---- nodes ----

struct node *node_make(struct parser *parser, enum node_kind kind)
{
	struct node *node = work_take(parser->work, sizeof *node);
	*node = (struct node){.kind = kind, .line = parser->at->line};
	return node;
}

void node_hold(struct parser *parser, struct node *node, const struct node *below)
{
	if (below && below->depth >= node->depth)
		node->depth = below->depth + 1;
	if (node->depth > LIMIT_JINJA_DEPTH)
		work_fail(parser->work, STATUS_LIMIT_EXCEEDED, "it is nested too deeply");
}

static struct node *make_over(struct parser *parser, enum node_kind kind, struct node *first, struct node *second)
{
	struct node *node = node_make(parser, kind);
	node->line = first->line;
	node->first = first;
	node->second = second;
	node_hold(parser, node, first);
	node_hold(parser, node, second);
	return node;
}

static struct node **append(struct parser *parser, struct node *owner, struct node **end, struct node *child)
{
	node_hold(parser, owner, child);
	*end = child;
	return &child->next;
}

static unsigned slot_of(struct text text)
{
	unsigned hash = 5381;
	for (size_t i = 0; i < text.length; i++)
		hash = hash * 33 + (uint8_t)text.bytes[i];
	return hash % NAME_SLOTS;
}

const struct name *name_find(struct name *const names[NAME_SLOTS], struct text text)
{
	const struct name *name = names[slot_of(text)];
	while (name && !text_equal(name->text, text))
		name = name->next;
	return name;
}

const struct name *parse_intern(struct parser *parser, struct text text)
{
	const struct name *known = name_find(parser->names, text);
	if (known)
		return known;
	struct name *name = work_take(parser->work, sizeof *name), **slot = &parser->names[slot_of(text)];
	*name = (struct name){.next = *slot, .text = text};
	*slot = name;
	return name;
}

// ---- primary expressions ----

static struct node *parse_name(struct parser *parser)
{
	static const struct {
		const char *name;
		enum node_kind kind;
	} constants[] = {{"true", NODE_TRUE},   {"True", NODE_TRUE}, {"false", NODE_FALSE},
			 {"False", NODE_FALSE}, {"none", NODE_NONE}, {"None", NODE_NONE}};
	struct node *node = node_make(parser, NODE_NAME);
	node->text = parser->at->text;
	for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
		if (text_is(node->text, constants[i].name))
			node->kind = constants[i].kind;
	parser->at++;
	if (node->kind != NODE_NAME)
		return node;
	node->name = parse_intern(parser, node->text);
	if (parser->macro) {
		parser->macro->more |= text_is(node->text, "varargs");
		parser->macro->more_named |= text_is(node->text, "kwargs");
		parser->macro->calls |= text_is(node->text, "caller");
	}
	return node;
}

// Texts that follow each other are one.
static struct node *parse_text(struct parser *parser)
{
	struct node *node = node_make(parser, NODE_TEXT);
	node->text = parser->at++->text;
	if (parser->at->symbol != SYMBOL_TEXT)
		return node;
	struct builder out = {.work = parser->work};
	builder_text(&out, node->text);
	while (parser->at->symbol == SYMBOL_TEXT)
		builder_text(&out, parser->at++->text);
	node->text = builder_end(&out);
	return node;
}

static struct node *parse_number(struct parser *parser)
{
	const bool real = parser->at->symbol == SYMBOL_FLOAT;
	struct node *node = node_make(parser, real ? NODE_FLOAT : NODE_INTEGER);
	if (real)
		node->number = parser->at->number;
	else
		node->integer = parser->at->integer;
	parser->at++;
	return node;
}

static struct node *parse_list(struct parser *parser)
{
	struct node *list = node_make(parser, NODE_LIST), **end = &list->children;
	expect_operator(parser, "[");
	while (!take_operator(parser, "]")) {
		end = append(parser, list, end, parse_expression(parser));
		if (!at_operator(parser, "]"))
			expect_operator(parser, ",");
	}
	return list;
}

static struct node *parse_dict(struct parser *parser)
{
	struct node *dict = node_make(parser, NODE_DICT), **end = &dict->children;
	expect_operator(parser, "{");
	while (!take_operator(parser, "}")) {
		end = append(parser, dict, end, parse_expression(parser));
		expect_operator(parser, ":");
		end = append(parser, dict, end, parse_expression(parser));
		if (!at_operator(parser, "}"))
			expect_operator(parser, ",");
	}
	return dict;
}

static struct node *parse_group(struct parser *parser)
{
	expect_operator(parser, "(");
	if (take_operator(parser, ")"))
		return node_make(parser, NODE_TUPLE);
	struct node *node = parse_tuple(parser, true);
	expect_operator(parser, ")");
	return node;
}

static struct node *parse_primary(struct parser *parser)
{
	const enum symbol symbol = parser->at->symbol;
	if (symbol == SYMBOL_NAME)
		return parse_name(parser);
	if (symbol == SYMBOL_TEXT)
		return parse_text(parser);
	if (symbol == SYMBOL_INTEGER || symbol == SYMBOL_FLOAT)
		return parse_number(parser);
	if (at_operator(parser, "["))
		return parse_list(parser);
	if (at_operator(parser, "{"))
		return parse_dict(parser);
	if (at_operator(parser, "("))
		return parse_group(parser);
	parse_fail(parser, "an expression");
}

// ---- suffixes: members, calls, filters, tests ----

struct node *parse_arguments(struct parser *parser)
{
	struct node *first = NULL, **end = &first;
	while (!take_operator(parser, ")")) {
		struct node *argument = NULL;
		enum node_kind kind = at_operator(parser, "**")  ? NODE_SPREAD_NAMED
				      : at_operator(parser, "*") ? NODE_SPREAD
								 : NODE_KEYWORD;
		const bool keyword = parser->at->symbol == SYMBOL_NAME && parser->at[1].symbol == SYMBOL_OPERATOR &&
				     text_is(parser->at[1].text, "=");
		if (kind != NODE_KEYWORD || keyword) {
			struct node *node = node_make(parser, kind);
			node->text = parser->at->text;
			parser->at += keyword ? 2 : 1;
			argument = parse_expression(parser);
			node->first = argument;
			node_hold(parser, node, argument);
			argument = node;
		} else {
			argument = parse_expression(parser);
		}
		*end = argument;
		end = &argument->next;
		if (!at_operator(parser, ")"))
			expect_operator(parser, ",");
	}
	return first;
}

static void hold_all(struct parser *parser, struct node *node)
{
	for (const struct node *one = node->children; one; one = one->next)
		node_hold(parser, node, one);
}

static struct node *parse_subscript(struct parser *parser, struct node *of)
{
	struct node *slice = make_over(parser, NODE_SLICE, of, NULL), **end = &slice->children, *first = NULL;
	unsigned colons = 0, parts = 0;
	if (!at_operator(parser, ":")) {
		first = parse_tuple(parser, true);
		if (take_operator(parser, "]")) {
			slice->kind = NODE_ITEM;
			slice->second = first;
			node_hold(parser, slice, first);
			return slice;
		}
	}
	end = append(parser, slice, end, first ? first : node_make(parser, NODE_ABSENT));
	parts++;
	while (colons < 2 && take_operator(parser, ":")) {
		const bool absent = at_operator(parser, ":") || at_operator(parser, "]");
		end = append(parser, slice, end, absent ? node_make(parser, NODE_ABSENT) : parse_expression(parser));
		colons++;
		parts++;
	}
	for (; parts < 3; parts++)
		end = append(parser, slice, end, node_make(parser, NODE_ABSENT));
	expect_operator(parser, "]");
	return slice;
}

static struct node *parse_attribute(struct parser *parser, struct node *of)
{
	struct node *node = make_over(parser, NODE_ATTRIBUTE, of, NULL);
	if (parser->at->symbol == SYMBOL_INTEGER) { // a.0
		node->kind = NODE_ITEM;
		node->second = parse_number(parser);
		node_hold(parser, node, node->second);
		return node;
	}
	if (parser->at->symbol != SYMBOL_NAME)
		parse_fail(parser, "a name");
	node->text = parser->at++->text;
	return node;
}

static struct node *parse_call(struct parser *parser, struct node *of)
{
	struct node *node = make_over(parser, NODE_CALL, of, NULL);
	node->children = parse_arguments(parser);
	hold_all(parser, node);
	return node;
}

static struct node *parse_postfix(struct parser *parser, struct node *node)
{
	for (;;) {
		if (take_operator(parser, "."))
			node = parse_attribute(parser, node);
		else if (take_operator(parser, "["))
			node = parse_subscript(parser, node);
		else if (take_operator(parser, "("))
			node = parse_call(parser, node);
		else
			return node;
	}
}

static struct text parse_dotted(struct parser *parser)
{
	if (parser->at->symbol != SYMBOL_NAME)
		parse_fail(parser, "a name");
	return parser->at++->text;
}

static struct node *parse_filter(struct parser *parser, struct node *of)
{
	struct node *node = node_make(parser, NODE_FILTER);
	node->first = of;
	node_hold(parser, node, of);
	node->text = parse_dotted(parser);
	if (take_operator(parser, "("))
		node->children = parse_arguments(parser);
	hold_all(parser, node);
	return node;
}

static bool begins_argument(const struct parser *parser)
{
	static const char *const others[] = {"else", "or", "and", "is", "if", "in", "not"};
	const enum symbol symbol = parser->at->symbol;
	if (symbol == SYMBOL_NAME)
		for (size_t i = 0; i < sizeof others / sizeof *others; i++)
			if (at_name(parser, others[i]))
				return false;
	return symbol == SYMBOL_NAME || symbol == SYMBOL_TEXT || symbol == SYMBOL_INTEGER || symbol == SYMBOL_FLOAT ||
	       at_operator(parser, "[") || at_operator(parser, "{");
}

static struct node *parse_test(struct parser *parser, struct node *of)
{
	const bool negated = take_name(parser, "not");
	struct node *node = make_over(parser, NODE_TEST, of, NULL);
	node->text = parse_dotted(parser);
	if (take_operator(parser, "(")) {
		node->children = parse_arguments(parser);
	} else if (begins_argument(parser)) {
		node->children = parse_postfix(parser, parse_primary(parser));
	}
	hold_all(parser, node);
	return negated ? make_over(parser, NODE_NOT, node, NULL) : node;
}

struct node *parse_postfix_filters(struct parser *parser, struct node *node)
{
	for (;;) {
		if (take_operator(parser, "|"))
			node = parse_filter(parser, node);
		else if (take_name(parser, "is"))
			node = parse_test(parser, node);
		else if (node && take_operator(parser, "("))
			node = parse_call(parser, node);
		else
			return node;
	}
}

// ---- operators ----

static struct node *parse_unary(struct parser *parser, bool filters)
{
	struct node *node = NULL;
	work_enter(parser->work);
	if (at_operator(parser, "-") || at_operator(parser, "+")) {
		const enum node_kind kind = at_operator(parser, "-") ? NODE_NEGATE : NODE_PLUS;
		parser->at++;
		node = make_over(parser, kind, parse_unary(parser, false), NULL);
	} else {
		node = parse_primary(parser);
	}
	node = parse_postfix(parser, node);
	if (filters)
		node = parse_postfix_filters(parser, node);
	work_leave(parser->work);
	return node;
}

static struct node *parse_binary(struct parser *parser, unsigned level)
{
	static const char *const operators[][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
	if (level == sizeof operators / sizeof *operators)
		return parse_unary(parser, true);
	struct node *node = parse_binary(parser, level + 1);
	for (;;) {
		const char *found = NULL;
		for (unsigned i = 0; i < 5 && operators[level][i] && !found; i++)
			found = take_operator(parser, operators[level][i]) ? operators[level][i] : NULL;
		if (!found)
			return node;
		node = make_over(parser, NODE_BINARY, node, parse_binary(parser, level + 1));
		node->text = text_of(found);
	}
}

static const char *take_comparison(struct parser *parser)
{
	static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">"};
	for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
		if (take_operator(parser, operators[i]))
			return operators[i];
	if (take_name(parser, "in"))
		return "in";
	if (at_name(parser, "not") && parser->at[1].symbol == SYMBOL_NAME && text_is(parser->at[1].text, "in")) {
		parser->at += 2;
		return "not in";
	}
	return NULL;
}

static struct node *parse_compare(struct parser *parser)
{
	struct node *node = parse_binary(parser, 0), *compare = NULL, **end = NULL;
	for (const char *operator; (operator= take_comparison(parser));) {
		if (!compare) {
			compare = make_over(parser, NODE_COMPARE, node, NULL);
			end = &compare->children;
		}
		struct node *operand = make_over(parser, NODE_OPERAND, parse_binary(parser, 0), NULL);
		operand->text = text_of(operator);
		end = append(parser, compare, end, operand);
	}
	return compare ? compare : node;
}

static struct node *parse_not(struct parser *parser)
{
	if (!at_name(parser, "not"))
		return parse_compare(parser);
	work_enter(parser->work);
	parser->at++;
	struct node *node = make_over(parser, NODE_NOT, parse_not(parser), NULL);
	work_leave(parser->work);
	return node;
}

static struct node *parse_and(struct parser *parser)
{
	struct node *node = parse_not(parser);
	while (take_name(parser, "and"))
		node = make_over(parser, NODE_AND, node, parse_not(parser));
	return node;
}

static struct node *parse_or(struct parser *parser)
{
	struct node *node = parse_and(parser);
	while (take_name(parser, "or"))
		node = make_over(parser, NODE_OR, node, parse_and(parser));
	return node;
}

struct node *parse_expression(struct parser *parser)
{
	struct node *node = parse_or(parser);
	while (take_name(parser, "if")) {
		struct node *condition = make_over(parser, NODE_CONDITION, node, parse_or(parser));
		if (take_name(parser, "else")) {
			work_enter(parser->work);
			condition->third = parse_expression(parser);
			work_leave(parser->work);
			node_hold(parser, condition, condition->third);
		}
		node = condition;
	}
	return node;
}

static bool ends_tuple(const struct parser *parser)
{
	return parser->at->symbol < SYMBOL_NAME || at_operator(parser, ")") || at_operator(parser, "]") ||
	       at_operator(parser, "=");
}

// One expression, or a tuple of several expressions separated by ",".
struct node *parse_tuple(struct parser *parser, bool conditions)
{
	struct node *first = conditions ? parse_expression(parser) : parse_or(parser);
	if (!at_operator(parser, ","))
		return first;
	struct node *tuple = node_make(parser, NODE_TUPLE), **end = append(parser, tuple, &tuple->children, first);
	while (take_operator(parser, ",") && !ends_tuple(parser))
		end = append(parser, tuple, end, conditions ? parse_expression(parser) : parse_or(parser));
	return tuple;
}
