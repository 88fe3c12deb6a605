/* Expressions. See inside.h. */
#include "engine/jinja/inside.h"

#include <math.h>
#include <string.h>

// ---- names ----

static struct value look_up(struct run *run, const struct name *name)
{
	for (const struct scope *scope = run->scope; scope; scope = scope->parent)
		for (const struct variable *one = scope->variables; one; one = one->next) {
			work_spend(&run->work, 1);
			if (one->name == name)
				return one->value;
		}
	const struct value *given = dict_text(run, run->own.dict, name->text);
	if (!given)
		given = dict_text(run, run->values.dict, name->text);
	if (given)
		return *given;
	const struct builtin *builtin = jinja_builtin(jinja_functions, name->text);
	if (!builtin)
		return value_undefined(name->text, VALUE_UNDEFINED);
	struct function *function = work_take(&run->work, sizeof *function);
	*function = (struct function){.builtin = builtin};
	return (struct value){.kind = VALUE_FUNCTION, .function = function};
}

// ---- arithmetic ----

static _Noreturn void cannot(struct run *run, const char *operator, struct value a, struct value b)
{
	if (a.kind == VALUE_UNDEFINED)
		undefined_fail(run, a);
	if (b.kind == VALUE_UNDEFINED)
		undefined_fail(run, b);
	work_fail(&run->work, STATUS_INVALID_PARAMS, "unsupported operand type(s) for %s: '%s' and '%s'", operator,
		  value_name(a), value_name(b));
}

static _Noreturn void too_large(struct run *run)
{
	work_fail(&run->work, STATUS_INVALID_PARAMS, "a number that is too large");
}

static struct value concatenate(struct run *run, struct text a, struct text b)
{
	struct builder out = {.work = &run->work};
	if (!a.length || !b.length)
		return value_text(a.length ? a : b);
	builder_text(&out, a);
	builder_text(&out, b);
	return value_text(builder_end(&out));
}

static struct value join_lists(struct run *run, struct value a, struct value b)
{
	struct value out = value_list(run, (enum value_kind)a.kind, a.list->count + b.list->count);
	for (size_t i = 0; i < a.list->count; i++)
		value_list_add(run, out.list, a.list->items[i]);
	for (size_t i = 0; i < b.list->count; i++)
		value_list_add(run, out.list, b.list->items[i]);
	return out;
}

// A text or a list, so many times.
static struct value repeat(struct run *run, struct value what, int64_t times)
{
	if (what.kind == VALUE_TEXT) {
		struct builder out = {.work = &run->work};
		for (int64_t i = 0; i < times && what.text.length; i++) {
			work_spend(&run->work, 1);
			builder_text(&out, what.text);
		}
		return value_text(builder_end(&out));
	}
	struct value out = value_list(run, (enum value_kind)what.kind, 0);
	for (int64_t i = 0; i < times && what.list->count; i++)
		for (size_t k = 0; k < what.list->count; k++)
			value_list_add(run, out.list, what.list->items[k]);
	return out;
}

static bool is_repeatable(struct value value)
{
	return value.kind == VALUE_TEXT || value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

static int64_t floor_divide(struct run *run, int64_t a, int64_t b)
{
	if (!b)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "division by zero");
	if (b == -1 && a == INT64_MIN)
		too_large(run);
	return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

static int64_t power(struct run *run, int64_t base, int64_t exponent)
{
	int64_t result = 1;
	if (base == 0 || base == 1 || base == -1)
		return exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
	for (; exponent > 0; exponent--)
		if (__builtin_mul_overflow(result, base, &result))
			too_large(run);
	return result;
}

static struct value integers(struct run *run, const char *operator, int64_t a, int64_t b)
{
	int64_t result = 0;
	bool over = false;
	if (!strcmp(operator, "+"))
		over = __builtin_add_overflow(a, b, &result);
	else if (!strcmp(operator, "-"))
		over = __builtin_sub_overflow(a, b, &result);
	else if (!strcmp(operator, "*"))
		over = __builtin_mul_overflow(a, b, &result);
	else if (!strcmp(operator, "//"))
		result = floor_divide(run, a, b);
	else if (!strcmp(operator, "%"))
		result = b == -1 ? 0 : a - floor_divide(run, a, b) * b;
	else
		result = power(run, a, b);
	if (over)
		too_large(run);
	return value_integer(result);
}

static struct value numbers(struct run *run, const char *operator, double a, double b)
{
	const bool divides = strchr("/%", operator[0]);
	if (divides && b == 0)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "division by zero");
	if (!strcmp(operator, "+"))
		return value_float(a + b);
	if (!strcmp(operator, "-"))
		return value_float(a - b);
	if (!strcmp(operator, "*"))
		return value_float(a * b);
	if (!strcmp(operator, "/"))
		return value_float(a / b);
	if (!strcmp(operator, "//"))
		return value_float(floor(a / b));
	if (!strcmp(operator, "%")) {
		const double rest = fmod(a, b);
		return value_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
	}
	return value_float(pow(a, b));
}

struct value binary(struct run *run, const char *operator, struct value a, struct value b)
{
	int64_t i, k;
	double x, y;
	if (!strcmp(operator, "~"))
		return concatenate(run, value_show(run, a), value_show(run, b));
	const bool whole = value_index(a, &i) & value_index(b, &k);
	if (whole && strcmp(operator, "/") != 0 && !(operator[1] == '*' && k<0))
		return integers(run, operator, i, k);
	if (value_number(a, &x) && value_number(b, &y))
		return numbers(run, operator, x, y);
	if (!strcmp(operator, "+") && a.kind == b.kind) {
		if (a.kind == VALUE_TEXT)
			return concatenate(run, a.text, b.text);
		if (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE)
			return join_lists(run, a, b);
	}
	if (!strcmp(operator, "*") && is_repeatable(a) && value_index(b, &k))
		return repeat(run, a, k);
	if (!strcmp(operator, "*") && is_repeatable(b) && value_index(a, &i))
		return repeat(run, b, i);
	if (!strcmp(operator, "%") && a.kind == VALUE_TEXT) {
		const bool tuple = b.kind == VALUE_TUPLE;
		return format_percent(run, a.text, tuple ? b.list->items : &b, tuple ? b.list->count : 1);
	}
	cannot(run, operator, a, b);
}

// A chain of + or ~ leans to the left: its texts are put together once.
static struct value evaluate_sum(struct run *run, const struct node *node)
{
	enum { MOST = 64 };
	const struct node *parts[MOST];
	size_t count = 0;
	const struct node *at = node;
	const char *const operator= node->text.bytes;
	for (; at->kind == NODE_BINARY && text_equal(at->text, node->text) && count < MOST - 1; at = at->first)
		parts[count++] = at->second;
	struct value sum = evaluate(run, at);
	struct builder out = {.work = &run->work};
	bool building = false;
	while (count) {
		struct value next = evaluate(run, parts[--count]);
		if (operator[0] == '~' ||(sum.kind == VALUE_TEXT && next.kind == VALUE_TEXT)) {
			if (!building)
				builder_text(&out, value_show(run, sum));
			building = true;
			sum = value_own("");
			builder_text(&out, value_show(run, next));
			continue;
		}
		if (building)
			sum = value_text(builder_end(&out));
		building = false;
		out = (struct builder){.work = &run->work};
		sum = binary(run, operator, sum, next);
	}
	return building ? value_text(builder_end(&out)) : sum;
}

static struct value negate(struct run *run, struct value value)
{
	double number;
	int64_t integer;
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	if (value_index(value, &integer))
		return integers(run, "-", 0, integer);
	if (!value_number(value, &number))
		work_fail(&run->work, STATUS_INVALID_PARAMS, "bad operand type for unary -: '%s'", value_name(value));
	return value_float(-number);
}

static bool compare(struct run *run, const char *operator, struct value a, struct value b)
{
	if (!strcmp(operator, "in"))
		return value_contains(run, b, a);
	if (!strcmp(operator, "not in"))
		return !value_contains(run, b, a);
	if (!strcmp(operator, "=="))
		return value_equal(run, a, b);
	if (!strcmp(operator, "!="))
		return !value_equal(run, a, b);
	const int order = value_compare(run, a, b);
	const bool same = operator[1] == '=' && !order;
	return same || (operator[0] == '<' ? order < 0 : order> 0);
}

static struct value evaluate_compare(struct run *run, const struct node *node)
{
	struct value left = evaluate(run, node->first);
	for (const struct node *one = node->children; one; one = one->next) {
		struct value right = evaluate(run, one->first);
		if (!compare(run, one->text.bytes, left, right))
			return value_bool(false);
		left = right;
	}
	return value_bool(true);
}

// ---- calls ----

static void spread(struct run *run, struct list *list, struct value value)
{
	const struct list items = value_items(run, value);
	for (size_t i = 0; i < items.count; i++)
		value_list_add(run, list, items.items[i]);
}

static void spread_named(struct run *run, struct dict *dict, struct value value)
{
	if (value.kind != VALUE_DICT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "the value after ** is not a mapping");
	for (size_t i = 0; i < value.dict->count; i++) {
		need_text(run, value.dict->members[i].key);
		dict_set(run, dict, value.dict->members[i].key, value.dict->members[i].value);
	}
}

struct arguments evaluate_arguments(struct run *run, const struct node *list, const struct member *more)
{
	struct list *values = value_list(run, VALUE_LIST, 0).list;
	struct dict *named = value_dict(run, VALUE_DICT).dict;
	for (; list; list = list->next) {
		if (list->kind == NODE_SPREAD)
			spread(run, values, evaluate(run, list->first));
		else if (list->kind == NODE_SPREAD_NAMED)
			spread_named(run, named, evaluate(run, list->first));
		else if (list->kind == NODE_KEYWORD)
			dict_set(run, named, value_text(list->text), evaluate(run, list->first));
		else
			value_list_add(run, values, evaluate(run, list));
	}
	if (more)
		dict_set(run, named, more->key, more->value);
	return (struct arguments){values->items, values->count, named->members, named->count};
}

static struct value evaluate_call(struct run *run, const struct node *node)
{
	struct value callee = evaluate(run, node->first);
	const struct arguments arguments = evaluate_arguments(run, node->children, NULL);
	run->work.line = node->line;
	return call_value(run, callee, &arguments);
}

// Apply the filters of a block to its text, or the one filter that a node stands for.
struct value evaluate_filters(struct run *run, const struct node *node, struct value value)
{
	if (!node)
		return value;
	if (node->kind != NODE_FILTER)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "a block may have filters only");
	work_enter(&run->work);
	value = evaluate_filters(run, node->first, value);
	work_leave(&run->work);
	const struct arguments arguments = evaluate_arguments(run, node->children, NULL);
	run->work.line = node->line;
	return call_filter(run, node->text, value, &arguments);
}

static struct value evaluate_filter(struct run *run, const struct node *node)
{
	struct value value = evaluate(run, node->first);
	const struct arguments arguments = evaluate_arguments(run, node->children, NULL);
	run->work.line = node->line;
	return call_filter(run, node->text, value, &arguments);
}

static struct value evaluate_test(struct run *run, const struct node *node)
{
	struct value value = evaluate(run, node->first);
	if (!node->children && text_is(node->text, "defined"))
		return value_bool(value.kind != VALUE_UNDEFINED);
	const struct arguments arguments = evaluate_arguments(run, node->children, NULL);
	run->work.line = node->line;
	return value_bool(call_test(run, node->text, value, &arguments));
}

// ---- the rest ----

static struct value evaluate_list(struct run *run, const struct node *node)
{
	struct value list = value_list(run, node->kind == NODE_LIST ? VALUE_LIST : VALUE_TUPLE, 0);
	for (const struct node *one = node->children; one; one = one->next)
		value_list_add(run, list.list, evaluate(run, one));
	return list;
}

static struct value evaluate_dict(struct run *run, const struct node *node)
{
	struct value dict = value_dict(run, VALUE_DICT);
	for (const struct node *one = node->children; one; one = one->next->next) {
		struct value key = evaluate(run, one);
		dict_set(run, dict.dict, key, evaluate(run, one->next));
	}
	return dict;
}

static struct value evaluate_slice(struct run *run, const struct node *node)
{
	struct value of = evaluate(run, node->first), bounds[3];
	unsigned count = 0;
	for (const struct node *one = node->children; one; one = one->next)
		bounds[count++] = one->kind == NODE_ABSENT ? value_none() : evaluate(run, one);
	return value_slice(run, of, bounds);
}

static struct value evaluate_condition(struct run *run, const struct node *node)
{
	if (value_true(run, evaluate(run, node->second)))
		return evaluate(run, node->first);
	return node->third ? evaluate(run, node->third) : value_undefined(text_of("the inline if"), VALUE_UNDEFINED);
}

static struct value evaluate_logic(struct run *run, const struct node *node)
{
	struct value left = evaluate(run, node->first);
	return value_true(run, left) == (node->kind == NODE_OR) ? left : evaluate(run, node->second);
}

static struct value evaluate_plus(struct run *run, const struct node *node)
{
	struct value value = evaluate(run, node->first);
	double number;
	if (!value_number(value, &number))
		cannot(run, "+", value, value);
	return value;
}

static struct value evaluate_node(struct run *run, const struct node *node)
{
	switch (node->kind) {
	case NODE_TEXT:
		return value_text(node->text);
	case NODE_INTEGER:
		return value_integer(node->integer);
	case NODE_FLOAT:
		return value_float(node->number);
	case NODE_TRUE:
		return value_bool(true);
	case NODE_FALSE:
		return value_bool(false);
	case NODE_NONE:
		return value_none();
	case NODE_NAME:
		return look_up(run, node->name);
	case NODE_LIST:
	case NODE_TUPLE:
		return evaluate_list(run, node);
	case NODE_DICT:
		return evaluate_dict(run, node);
	case NODE_ATTRIBUTE:
		return value_attribute(run, evaluate(run, node->first), node->text);
	case NODE_ITEM: {
		struct value of = evaluate(run, node->first);
		return value_item(run, of, evaluate(run, node->second));
	}
	case NODE_SLICE:
		return evaluate_slice(run, node);
	case NODE_CALL:
		return evaluate_call(run, node);
	case NODE_FILTER:
		return evaluate_filter(run, node);
	case NODE_TEST:
		return evaluate_test(run, node);
	case NODE_NOT:
		return value_bool(!value_true(run, evaluate(run, node->first)));
	case NODE_NEGATE:
		return negate(run, evaluate(run, node->first));
	case NODE_PLUS:
		return evaluate_plus(run, node);
	case NODE_AND:
	case NODE_OR:
		return evaluate_logic(run, node);
	case NODE_CONDITION:
		return evaluate_condition(run, node);
	case NODE_COMPARE:
		return evaluate_compare(run, node);
	case NODE_BINARY: {
		if (text_is(node->text, "+") || text_is(node->text, "~"))
			return evaluate_sum(run, node);
		struct value left = evaluate(run, node->first);
		return binary(run, node->text.bytes, left, evaluate(run, node->second));
	}
	case NODE_ABSENT:
	case NODE_KEYWORD:
	case NODE_SPREAD:
	case NODE_SPREAD_NAMED:
	case NODE_OPERAND:
	case NODE_DATA:
	case NODE_OUTPUT:
	case NODE_IF:
	case NODE_BRANCH:
	case NODE_FOR:
	case NODE_SET:
	case NODE_SET_BLOCK:
	case NODE_MACRO:
	case NODE_PARAMETER:
	case NODE_CALL_BLOCK:
	case NODE_FILTER_BLOCK:
	case NODE_WITH:
	case NODE_SCOPE:
	case NODE_DO:
	case NODE_BREAK:
	case NODE_CONTINUE:
		break;
	}
	work_fail(&run->work, STATUS_INTERNAL, "a statement where a value is needed");
}

struct value evaluate(struct run *run, const struct node *node)
{
	work_spend(&run->work, 1);
	work_enter(&run->work);
	run->work.line = node->line;
	struct value value = evaluate_node(run, node);
	work_leave(&run->work);
	return value;
}
