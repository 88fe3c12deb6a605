/* Statements: scopes, loops and macros; and a rendering as a whole. See inside.h.
 *
 * A scope is made for the body of each iteration, macro and block that has one; `if` has none. */
#include "engine/jinja/inside.h"

#include <stdlib.h>
#include <string.h>

// ---- variables ----

void scope_set(struct run *run, const struct name *name, struct value value)
{
	struct variable *one = run->scope->variables;
	while (one && one->name != name) {
		work_spend(&run->work, 1);
		one = one->next;
	}
	if (!one) {
		one = work_take(&run->work, sizeof *one);
		*one = (struct variable){.next = run->scope->variables, .name = name};
		run->scope->variables = one;
	}
	one->value = value;
}

struct scope *scope_enter(struct run *run, struct scope *parent)
{
	struct scope *scope = work_take(&run->work, sizeof *scope), *around = run->scope;
	*scope = (struct scope){.parent = parent};
	run->scope = scope;
	return around;
}

static void assign(struct run *run, const struct node *target, struct value value)
{
	if (target->kind == NODE_NAME) {
		scope_set(run, target->name, value);
		return;
	}
	if (target->kind == NODE_ATTRIBUTE) {
		struct value space = evaluate(run, target->first);
		if (space.kind != VALUE_NAMESPACE)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "cannot assign attribute on non-namespace object");
		dict_set(run, space.dict, value_text(target->text), value);
		return;
	}
	size_t count = 0, at = 0;
	for (const struct node *one = target->children; one; one = one->next)
		count++;
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	const struct list items = value_items(run, value);
	if (items.count != count)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "%zu values for %zu names", items.count, count);
	for (const struct node *one = target->children; one; one = one->next)
		assign(run, one, items.items[at++]);
}

// ---- texts of bodies ----

struct text execute_to_text(struct run *run, const struct node *list)
{
	struct builder out = {.work = &run->work}, *const around = run->out;
	run->out = &out;
	execute(run, list);
	run->out = around;
	return builder_end(&out);
}

static struct text scoped_text(struct run *run, const struct node *list)
{
	struct scope *const around = scope_enter(run, run->scope);
	struct text text = execute_to_text(run, list);
	run->scope = around;
	return text;
}

// ---- loops ----

static const struct name *loop_name(struct run *run)
{
	return name_find(run->template->names, text_of("loop"));
}

static struct value loop_value(struct loop *loop)
{
	return (struct value){.kind = VALUE_LOOP, .loop = loop};
}

// The items for which the loop's condition holds.
static struct list filter_items(struct run *run, const struct node *node, struct list items)
{
	struct list *kept = value_list(run, VALUE_LIST, 0).list;
	struct scope *const around = run->scope;
	for (size_t i = 0; i < items.count; i++) {
		scope_enter(run, around);
		assign(run, node->first, items.items[i]);
		if (value_true(run, evaluate(run, node->third)))
			value_list_add(run, kept, items.items[i]);
	}
	run->scope = around;
	return *kept;
}

static void execute_loop(struct run *run, const struct node *node, struct value over, size_t depth)
{
	struct list items = value_items(run, over);
	struct scope *const around = run->scope;
	const struct name *const name = loop_name(run);
	if (node->third)
		items = filter_items(run, node, items);
	struct loop *loop = work_take(&run->work, sizeof *loop);
	*loop = (struct loop){
		.node = node, .scope = around, .items = items.items, .count = items.count, .depth = depth};
	for (; loop->index < loop->count && run->leaving != LEAVING_LOOP; loop->index++) {
		scope_enter(run, around);
		if (name)
			scope_set(run, name, loop_value(loop));
		assign(run, node->first, items.items[loop->index]);
		execute(run, node->children);
		if (run->leaving == LEAVING_ITERATION)
			run->leaving = LEAVING_NOT;
	}
	run->leaving = LEAVING_NOT;
	run->scope = around;
	if (!items.count && node->otherwise) {
		scope_enter(run, around);
		execute(run, node->otherwise);
		run->scope = around;
	}
}

// loop(items) in a loop that is recursive.
struct text execute_loop_again(struct run *run, const struct loop *loop, struct value items)
{
	struct builder out = {.work = &run->work}, *const around = run->out;
	struct scope *const scope = run->scope;
	if (!loop->node->recursive)
		work_fail(&run->work, STATUS_INVALID_PARAMS,
			  "The loop must have the 'recursive' marker to be called recursively.");
	work_enter(&run->work);
	run->out = &out;
	run->scope = loop->scope;
	execute_loop(run, loop->node, items, loop->depth + 1);
	run->scope = scope;
	run->out = around;
	work_leave(&run->work);
	return builder_end(&out);
}

// ---- macros ----

static const struct value *named_argument(const struct arguments *arguments, struct text name)
{
	for (size_t i = 0; i < arguments->named_count; i++)
		if (text_equal(arguments->named[i].key.text, name))
			return &arguments->named[i].value;
	return NULL;
}

static bool is_parameter(const struct macro *macro, struct text name)
{
	for (const struct node *one = macro->parameters; one; one = one->next)
		if (text_equal(one->text, name))
			return true;
	return false;
}

static void set_by_name(struct run *run, const char *text, struct value value)
{
	const struct name *name = name_find(run->template->names, text_of(text));
	if (name)
		scope_set(run, name, value);
}

// Arguments that no parameter takes: as varargs, kwargs and caller, where the macro names these.
static void take_more(struct run *run, const struct macro *macro, const struct arguments *arguments, size_t taken)
{
	const int length = (int)macro->name.length;
	if (arguments->count > taken && !macro->node->more)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "macro '%.*s' takes not more than %zu argument(s)", length,
			  macro->name.bytes, taken);
	if (macro->node->more) {
		struct value list = value_list(run, VALUE_TUPLE, 0);
		for (size_t i = taken; i < arguments->count; i++)
			value_list_add(run, list.list, arguments->values[i]);
		set_by_name(run, "varargs", list);
	}
	struct value dict = value_dict(run, VALUE_DICT);
	for (size_t i = 0; i < arguments->named_count; i++) {
		const struct member *one = &arguments->named[i];
		if (is_parameter(macro, one->key.text))
			continue;
		if (macro->node->calls && text_is(one->key.text, "caller"))
			set_by_name(run, "caller", one->value);
		else if (macro->node->more_named)
			dict_set(run, dict.dict, one->key, one->value);
		else
			work_fail(&run->work, STATUS_INVALID_PARAMS, "macro '%.*s' has no keyword argument '%.*s'",
				  length, macro->name.bytes, (int)one->key.text.length, one->key.text.bytes);
	}
	if (macro->node->more_named)
		set_by_name(run, "kwargs", dict);
}

struct text execute_macro(struct run *run, const struct macro *macro, const struct arguments *arguments)
{
	struct scope *const around = scope_enter(run, macro->scope);
	size_t at = 0;
	work_enter(&run->work);
	for (const struct node *one = macro->parameters; one; one = one->next, at++) {
		const struct value *named = named_argument(arguments, one->text);
		struct value value = value_undefined(one->text, VALUE_UNDEFINED);
		if (at < arguments->count && named)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "macro '%.*s' got '%.*s' twice",
				  (int)macro->name.length, macro->name.bytes, (int)one->text.length, one->text.bytes);
		if (at < arguments->count)
			value = arguments->values[at];
		else if (named)
			value = *named;
		else if (one->first)
			value = evaluate(run, one->first);
		scope_set(run, one->name, value);
	}
	take_more(run, macro, arguments, at);
	struct text text = execute_to_text(run, macro->body);
	run->scope = around;
	work_leave(&run->work);
	return text;
}

static struct value macro_value(struct run *run, const struct node *node)
{
	struct macro *macro = work_take(&run->work, sizeof *macro);
	*macro = (struct macro){.node = node,
				.name = node->text,
				.parameters = node->first,
				.body = node->children,
				.scope = run->scope};
	return (struct value){.kind = VALUE_MACRO, .macro = macro};
}

// {% call %}: the block is passed as `caller` to the macro that is called.
static void execute_call_block(struct run *run, const struct node *node)
{
	const struct member caller = {value_own("caller"), macro_value(run, node)};
	struct value callee = evaluate(run, node->second->first);
	const struct arguments arguments = evaluate_arguments(run, node->second->children, &caller);
	builder_text(run->out, value_show(run, call_value(run, callee, &arguments)));
}

// ---- statements ----

static void execute_if(struct run *run, const struct node *node)
{
	for (const struct node *branch = node->children; branch; branch = branch->next)
		if (!branch->first || value_true(run, evaluate(run, branch->first))) {
			execute(run, branch->children);
			return;
		}
}

static void execute_with(struct run *run, const struct node *node)
{
	struct scope *const around = run->scope;
	struct scope *inner = work_take(&run->work, sizeof *inner);
	*inner = (struct scope){.parent = around};
	for (const struct node *one = node->first; one; one = one->next) {
		struct value value = evaluate(run, one->second);
		run->scope = inner;
		assign(run, one->first, value);
		run->scope = around;
	}
	run->scope = inner;
	execute(run, node->children);
	run->scope = around;
}

static void execute_block(struct run *run, const struct node *node)
{
	struct value value = value_text(scoped_text(run, node->children));
	if (node->kind != NODE_SCOPE)
		value = evaluate_filters(run, node->second, value);
	if (node->kind == NODE_SET_BLOCK)
		assign(run, node->first, value);
	else
		builder_text(run->out, value_show(run, value));
}

static void execute_node(struct run *run, const struct node *node)
{
	switch (node->kind) {
	case NODE_DATA:
		builder_text(run->out, node->text);
		break;
	case NODE_OUTPUT:
		builder_text(run->out, value_show(run, evaluate(run, node->second)));
		break;
	case NODE_IF:
		execute_if(run, node);
		break;
	case NODE_FOR:
		execute_loop(run, node, evaluate(run, node->second), 0);
		break;
	case NODE_SET:
		assign(run, node->first, evaluate(run, node->second));
		break;
	case NODE_MACRO:
		scope_set(run, node->name, macro_value(run, node));
		break;
	case NODE_CALL_BLOCK:
		execute_call_block(run, node);
		break;
	case NODE_SET_BLOCK:
	case NODE_FILTER_BLOCK:
	case NODE_SCOPE:
		execute_block(run, node);
		break;
	case NODE_WITH:
		execute_with(run, node);
		break;
	case NODE_DO:
		evaluate(run, node->second);
		break;
	case NODE_BREAK:
		run->leaving = LEAVING_LOOP;
		break;
	case NODE_CONTINUE:
		run->leaving = LEAVING_ITERATION;
		break;
	case NODE_TEXT:
	case NODE_INTEGER:
	case NODE_FLOAT:
	case NODE_TRUE:
	case NODE_FALSE:
	case NODE_NONE:
	case NODE_NAME:
	case NODE_LIST:
	case NODE_TUPLE:
	case NODE_DICT:
	case NODE_ATTRIBUTE:
	case NODE_ITEM:
	case NODE_SLICE:
	case NODE_ABSENT:
	case NODE_CALL:
	case NODE_FILTER:
	case NODE_TEST:
	case NODE_KEYWORD:
	case NODE_SPREAD:
	case NODE_SPREAD_NAMED:
	case NODE_NOT:
	case NODE_NEGATE:
	case NODE_PLUS:
	case NODE_AND:
	case NODE_OR:
	case NODE_CONDITION:
	case NODE_COMPARE:
	case NODE_OPERAND:
	case NODE_BINARY:
	case NODE_BRANCH:
	case NODE_PARAMETER:
		work_fail(&run->work, STATUS_INTERNAL, "a value where a statement is needed");
	}
}

void execute(struct run *run, const struct node *list)
{
	work_enter(&run->work);
	for (; list && run->leaving == LEAVING_NOT; list = list->next) {
		work_spend(&run->work, 1);
		run->work.line = list->line;
		execute_node(run, list);
	}
	work_leave(&run->work);
}

// ---- a rendering ----

// Keep it beyond the arena.
static enum status hand_out(struct jinja_rendering *out, struct text text, struct error *error)
{
	out->text = malloc(text.length + 1u);
	out->foreign = malloc(text.length + 1u);
	if (!out->text || !out->foreign) {
		jinja_rendering_finish(out);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a conversation");
	}
	out->length = text.length;
	for (size_t i = 0; i < text.length; i++) {
		out->text[i] = text.bytes[i];
		out->foreign[i] = text_origin(text, i) != ORIGIN_OWN;
	}
	out->text[text.length] = 0;
	return STATUS_OK;
}

enum status jinja_render(const struct jinja_template *template, const struct jinja_params *params,
			 struct jinja_rendering *out, struct error *error)
{
	*out = (struct jinja_rendering){0};
	struct run *const run = calloc(1, sizeof *run);
	if (!run)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a chat template");
	*run = (struct run){.template = template, .own_texts = params->own_texts, .now_ms = params->now_ms};
	run->work.error = error;
	run->work.bytes_most = LIMIT_JINJA_MEMORY;
	run->work.steps_most = params->steps ? params->steps : LIMIT_JINJA_STEPS;
	if (!setjmp(run->work.failed)) {
		struct builder *text = work_take(&run->work, sizeof *text);
		*text = (struct builder){.work = &run->work};
		run->out = text;
		run->own = value_dict(run, VALUE_DICT);
		run->values = value_dict(run, VALUE_DICT);
		if (json_type(params->own) == JSON_OBJECT)
			run->own = value_from_json(run, params->own, ORIGIN_OWN);
		if (json_type(params->values) == JSON_OBJECT)
			run->values = value_from_json(run, params->values, ORIGIN_FOREIGN);
		scope_enter(run, NULL);
		execute(run, template->body);
		run->work.status = hand_out(out, builder_end(run->out), error);
	}
	const enum status status = run->work.status;
	work_free(&run->work);
	free(run);
	return status;
}

void jinja_rendering_finish(struct jinja_rendering *rendering)
{
	free(rendering->text);
	free(rendering->foreign);
	*rendering = (struct jinja_rendering){0};
}
