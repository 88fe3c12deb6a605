/* Statements as a tree. See inside.h. A template is a list of nodes that are linked by `next`. */
#include "common/text/unicode.h"
#include "engine/jinja/inside.h"

#include <stdlib.h>
#include <string.h>

static struct node *parse_body(struct parser *parser, const char *const ends[]);

static void expect_block_end(struct parser *parser)
{
	if (parser->at->symbol != SYMBOL_BLOCK_END)
		parse_fail(parser, "%}");
	parser->at++;
}

static void expect_name(struct parser *parser, const char *name)
{
	if (!take_name(parser, name))
		parse_fail(parser, name);
}

static void hold_list(struct parser *parser, struct node *node, const struct node *list)
{
	for (; list; list = list->next)
		node_hold(parser, node, list);
}

static void hold_parts(struct parser *parser, struct node *node)
{
	node_hold(parser, node, node->second);
	node_hold(parser, node, node->third);
	hold_list(parser, node, node->first);
	hold_list(parser, node, node->children);
	hold_list(parser, node, node->otherwise);
}

// ---- targets of set and for ----

static struct node *parse_target_name(struct parser *parser, bool attributes)
{
	if (parser->at->symbol != SYMBOL_NAME)
		parse_fail(parser, "a name");
	struct node *name = node_make(parser, NODE_NAME);
	name->text = parser->at++->text;
	name->name = parse_intern(parser, name->text);
	if (!attributes || !take_operator(parser, "."))
		return name;
	if (parser->at->symbol != SYMBOL_NAME)
		parse_fail(parser, "a name");
	struct node *attribute = node_make(parser, NODE_ATTRIBUTE);
	attribute->first = name;
	attribute->text = parser->at++->text;
	node_hold(parser, attribute, name);
	return attribute;
}

struct node *parse_target(struct parser *parser, bool attributes)
{
	const bool brackets = take_operator(parser, "(");
	work_enter(parser->work);
	struct node *first = at_operator(parser, "(") ? parse_target(parser, attributes)
						      : parse_target_name(parser, attributes);
	if (at_operator(parser, ",")) {
		struct node *tuple = node_make(parser, NODE_TUPLE), **end = &first->next;
		tuple->children = first;
		while (take_operator(parser, ",") && (parser->at->symbol == SYMBOL_NAME || at_operator(parser, "(")) &&
		       !at_name(parser, "in")) {
			*end = at_operator(parser, "(") ? parse_target(parser, attributes)
							: parse_target_name(parser, attributes);
			end = &(*end)->next;
		}
		hold_list(parser, tuple, first);
		first = tuple;
	}
	if (brackets)
		expect_operator(parser, ")");
	work_leave(parser->work);
	return first;
}

// ---- statements ----

static struct node *parse_if(struct parser *parser)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct node *node = node_make(parser, NODE_IF), **end = &node->children;
	for (bool last = false;;) {
		struct node *branch = node_make(parser, NODE_BRANCH);
		if (!last)
			branch->first = parse_tuple(parser, false);
		expect_block_end(parser);
		branch->children = parse_body(parser, ends);
		hold_parts(parser, branch);
		node_hold(parser, node, branch);
		*end = branch;
		end = &branch->next;
		if (take_name(parser, "endif"))
			break;
		if (last)
			parse_fail(parser, "endif");
		last = take_name(parser, "else");
		if (!last)
			expect_name(parser, "elif");
	}
	return node;
}

static struct node *parse_for(struct parser *parser)
{
	static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
	struct node *node = node_make(parser, NODE_FOR);
	node->first = parse_target(parser, false);
	expect_name(parser, "in");
	node->second = parse_tuple(parser, false);
	if (take_name(parser, "if"))
		node->third = parse_expression(parser);
	node->recursive = take_name(parser, "recursive");
	expect_block_end(parser);
	parser->loops++;
	node->children = parse_body(parser, ends);
	parser->loops--;
	if (take_name(parser, "else")) {
		expect_block_end(parser);
		node->otherwise = parse_body(parser, end);
	}
	expect_name(parser, "endfor");
	hold_parts(parser, node);
	return node;
}

static struct node *parse_set(struct parser *parser)
{
	static const char *const ends[] = {"endset", NULL};
	struct node *node = node_make(parser, NODE_SET);
	node->first = parse_target(parser, true);
	if (take_operator(parser, "=")) {
		node->second = parse_tuple(parser, true);
		hold_parts(parser, node);
		return node;
	}
	node->kind = NODE_SET_BLOCK;
	if (at_operator(parser, "|"))
		node->second = parse_postfix_filters(parser, NULL);
	expect_block_end(parser);
	node->children = parse_body(parser, ends);
	expect_name(parser, "endset");
	hold_parts(parser, node);
	return node;
}

// Behind "(".
static struct node *parse_parameters(struct parser *parser)
{
	struct node *first = NULL, **end = &first;
	while (!take_operator(parser, ")")) {
		struct node *parameter = node_make(parser, NODE_PARAMETER);
		if (parser->at->symbol != SYMBOL_NAME)
			parse_fail(parser, "a name");
		parameter->text = parser->at->text;
		parameter->name = parse_intern(parser, parser->at++->text);
		if (take_operator(parser, "="))
			parameter->first = parse_expression(parser);
		node_hold(parser, parameter, parameter->first);
		*end = parameter;
		end = &parameter->next;
		if (!at_operator(parser, ")"))
			expect_operator(parser, ",");
	}
	return first;
}

static struct node *parse_callee_body(struct parser *parser, struct node *node, const char *end)
{
	const char *const ends[] = {end, NULL};
	struct node *const around = parser->macro;
	const unsigned loops = parser->loops;
	expect_block_end(parser);
	parser->macro = node;
	parser->loops = 0;
	node->children = parse_body(parser, ends);
	parser->macro = around;
	parser->loops = loops;
	expect_name(parser, end);
	hold_parts(parser, node);
	return node;
}

static struct node *parse_macro(struct parser *parser)
{
	struct node *node = node_make(parser, NODE_MACRO);
	if (parser->at->symbol != SYMBOL_NAME)
		parse_fail(parser, "a name");
	node->text = parser->at->text;
	node->name = parse_intern(parser, parser->at++->text);
	expect_operator(parser, "(");
	node->first = parse_parameters(parser);
	return parse_callee_body(parser, node, "endmacro");
}

static struct node *parse_call_block(struct parser *parser)
{
	struct node *node = node_make(parser, NODE_CALL_BLOCK);
	node->first = take_operator(parser, "(") ? parse_parameters(parser) : NULL;
	node->second = parse_expression(parser);
	if (node->second->kind != NODE_CALL)
		parse_fail(parser, "a call");
	node->text = text_of("caller");
	node->name = parse_intern(parser, node->text);
	return parse_callee_body(parser, node, "endcall");
}

static struct node *parse_filter_block(struct parser *parser)
{
	static const char *const ends[] = {"endfilter", NULL};
	struct node *node = node_make(parser, NODE_FILTER_BLOCK);
	struct node *filter = node_make(parser, NODE_FILTER);
	if (parser->at->symbol != SYMBOL_NAME)
		parse_fail(parser, "a filter");
	filter->text = parser->at++->text;
	if (take_operator(parser, "("))
		filter->children = parse_arguments(parser);
	hold_parts(parser, filter);
	node->second = parse_postfix_filters(parser, filter);
	expect_block_end(parser);
	node->children = parse_body(parser, ends);
	expect_name(parser, "endfilter");
	hold_parts(parser, node);
	return node;
}

static struct node *parse_with(struct parser *parser)
{
	static const char *const ends[] = {"endwith", NULL};
	struct node *node = node_make(parser, NODE_WITH), **end = &node->first;
	while (parser->at->symbol != SYMBOL_BLOCK_END) {
		struct node *set = node_make(parser, NODE_SET);
		set->first = parse_target_name(parser, false);
		expect_operator(parser, "=");
		set->second = parse_expression(parser);
		hold_parts(parser, set);
		*end = set;
		end = &set->next;
		if (parser->at->symbol != SYMBOL_BLOCK_END)
			expect_operator(parser, ",");
	}
	expect_block_end(parser);
	node->children = parse_body(parser, ends);
	expect_name(parser, "endwith");
	hold_parts(parser, node);
	return node;
}

static struct node *parse_generation(struct parser *parser)
{
	static const char *const ends[] = {"endgeneration", NULL};
	struct node *node = node_make(parser, NODE_SCOPE);
	expect_block_end(parser);
	node->children = parse_body(parser, ends);
	expect_name(parser, "endgeneration");
	hold_parts(parser, node);
	return node;
}

static struct node *parse_do(struct parser *parser)
{
	struct node *node = node_make(parser, NODE_DO);
	node->second = parse_tuple(parser, true);
	hold_parts(parser, node);
	return node;
}

static struct node *parse_leave(struct parser *parser, enum node_kind kind)
{
	if (!parser->loops)
		work_fail(parser->work, STATUS_INVALID_PARAMS, "a loop is left, and there is none around");
	return node_make(parser, kind);
}

static struct node *parse_break(struct parser *parser)
{
	return parse_leave(parser, NODE_BREAK);
}

static struct node *parse_continue(struct parser *parser)
{
	return parse_leave(parser, NODE_CONTINUE);
}

static struct node *parse_statement(struct parser *parser)
{
	static const struct {
		const char *name;
		struct node *(*parse)(struct parser *parser);
	} statements[] = {
		{"if", parse_if},
		{"for", parse_for},
		{"set", parse_set},
		{"macro", parse_macro},
		{"call", parse_call_block},
		{"filter", parse_filter_block},
		{"with", parse_with},
		{"break", parse_break},
		{"continue", parse_continue},
		{"generation", parse_generation},
		{"do", parse_do},
	};
	parser->work->line = parser->at->line;
	for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
		if (!take_name(parser, statements[i].name))
			continue;
		struct node *node = statements[i].parse(parser);
		expect_block_end(parser);
		return node;
	}
	parse_fail(parser, "a statement that chat templates have");
}

static struct node *parse_output(struct parser *parser)
{
	struct node *node = node_make(parser, NODE_OUTPUT);
	node->second = parse_tuple(parser, true);
	if (parser->at->symbol != SYMBOL_OUTPUT_END)
		parse_fail(parser, "}}");
	parser->at++;
	hold_parts(parser, node);
	return node;
}

static bool at_any(const struct parser *parser, const char *const names[])
{
	for (; names && *names; names++)
		if (at_name(parser, *names))
			return true;
	return false;
}

// Up to a block that begins with one of these names, which is where the place is then; NULL: up to the end.
static struct node *parse_body(struct parser *parser, const char *const ends[])
{
	struct node *first = NULL, **end = &first;
	work_enter(parser->work);
	for (;;) {
		const enum symbol symbol = parser->at->symbol;
		struct node *node = NULL;
		if (symbol == SYMBOL_END) {
			if (ends)
				parse_fail(parser, ends[0]);
			break;
		}
		if (symbol == SYMBOL_DATA) {
			node = node_make(parser, NODE_DATA);
			node->text = parser->at->text;
		}
		parser->at++;
		if (symbol == SYMBOL_BLOCK && at_any(parser, ends))
			break;
		if (symbol == SYMBOL_BLOCK)
			node = parse_statement(parser);
		else if (symbol == SYMBOL_OUTPUT)
			node = parse_output(parser);
		*end = node;
		end = &node->next;
	}
	work_leave(parser->work);
	return first;
}

enum status jinja_template_create(struct jinja_template **out, const char *text, size_t length, struct error *error)
{
	*out = NULL;
	if (length > LIMIT_JINJA_TEMPLATE_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a chat template of %zu bytes; the most is %d", length,
				 LIMIT_JINJA_TEMPLATE_BYTES);
	const size_t good = utf8_good(text, length);
	if (good < length)
		return error_set(error, STATUS_INVALID_PARAMS, "the chat template is not UTF-8 at byte %zu", good);
	struct jinja_template *template = calloc(1, sizeof *template);
	if (!template)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a chat template");
	struct work *work = &template->work;
	work->error = error;
	work->bytes_most = LIMIT_JINJA_MEMORY;
	work->steps_most = UINT64_MAX;
	if (setjmp(work->failed)) {
		const enum status status = work->status;
		jinja_template_destroy(&template);
		return status;
	}
	struct parser *parser = work_take(work, sizeof *parser);
	*parser = (struct parser){.work = work, .at = lexer_read(work, text, length)};
	template->body = parse_body(parser, NULL);
	memcpy(template->names, parser->names, sizeof template->names);
	work->error = NULL;
	*out = template;
	return STATUS_OK;
}

void jinja_template_destroy(struct jinja_template **template)
{
	if (!*template)
		return;
	work_free(&(*template)->work);
	free(*template);
	*template = NULL;
}

bool jinja_template_names(const struct jinja_template *template, const char *name)
{
	return name_find(template->names, text_of(name));
}
