/* Calls of built-in functions and of macros; finding filters, tests and functions by name. See inside.h. */
#include "engine/jinja/inside.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

const struct builtin *jinja_builtin(const struct builtin *list, struct text name)
{
	for (; list->name; list++)
		if (text_is(name, list->name))
			return list;
	return NULL;
}

// The index of a parameter among the names; MOST_PARAMETERS: there is none.
static size_t find_parameter(const char *names, struct text name)
{
	for (size_t at = 0; *names; at++) {
		const size_t length = strcspn(names, " ");
		if (length == name.length && !memcmp(names, name.bytes, length))
			return at;
		names += length + (names[length] == ' ');
	}
	return MOST_PARAMETERS;
}

static size_t count_parameters(const char *names)
{
	size_t count = *names != 0;
	for (; *names; names++)
		count += *names == ' ';
	return count;
}

struct value call_builtin(struct run *run, const struct builtin *builtin, struct value self,
			  const struct arguments *arguments)
{
	struct call call = {.self = self, .arguments = arguments};
	const bool reads = builtin->parameters[0] == '*';
	work_spend(&run->work, 1);
	if (!reads && arguments->count > count_parameters(builtin->parameters))
		work_fail(&run->work, STATUS_INVALID_PARAMS, "%s() takes %zu argument(s), not %zu", builtin->name,
			  count_parameters(builtin->parameters), arguments->count);
	for (size_t i = 0; i < arguments->count && i < MOST_PARAMETERS; i++)
		call.at[i] = &arguments->values[i];
	for (size_t i = 0; i < arguments->named_count && !reads; i++) {
		const struct text name = arguments->named[i].key.text;
		const size_t at = find_parameter(builtin->parameters, name);
		if (at == MOST_PARAMETERS || call.at[at])
			work_fail(&run->work, STATUS_INVALID_PARAMS, "%s() got an unexpected argument '%.*s'",
				  builtin->name, (int)name.length, name.bytes);
		call.at[at] = &arguments->named[i].value;
	}
	return builtin->call(run, &call);
}

struct value call_value(struct run *run, struct value callee, const struct arguments *arguments)
{
	work_enter(&run->work);
	struct value result = value_none();
	if (callee.kind == VALUE_UNDEFINED)
		undefined_fail(run, callee);
	else if (callee.kind == VALUE_MACRO)
		result = value_text(execute_macro(run, callee.macro, arguments));
	else if (callee.kind == VALUE_FUNCTION)
		result = call_builtin(run, callee.function->builtin, callee.function->self, arguments);
	else if (callee.kind == VALUE_LOOP && arguments->count == 1)
		result = value_text(execute_loop_again(run, callee.loop, arguments->values[0]));
	else
		work_fail(&run->work, STATUS_INVALID_PARAMS, "'%s' object is not callable", value_name(callee));
	work_leave(&run->work);
	return result;
}

struct value call_filter(struct run *run, struct text name, struct value value, const struct arguments *arguments)
{
	const struct builtin *const lists[] = {jinja_text_filters, jinja_list_filters, jinja_value_filters};
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		const struct builtin *filter = jinja_builtin(lists[i], name);
		if (!filter)
			continue;
		work_enter(&run->work);
		struct value result = call_builtin(run, filter, value, arguments);
		work_leave(&run->work);
		return result;
	}
	work_fail(&run->work, STATUS_INVALID_PARAMS, "No filter named '%.*s'.", (int)name.length, name.bytes);
}

// ---- functions ----

static struct value raise_exception(struct run *run, const struct call *call)
{
	const struct text text = call->at[0] ? value_show(run, *call->at[0])
					     : text_of("the chat template refuses this");
	run->work.line = 0; // its own words
	work_fail(&run->work, STATUS_INVALID_PARAMS, "%.*s", (int)text.length, text.bytes);
}

static struct value strftime_now(struct run *run, const struct call *call)
{
	char format[256], out[1024];
	const time_t now = (time_t)(run->now_ms / 1000);
	struct tm day = {0};
	const struct text text = need_text(run, call->at[0] ? *call->at[0] : value_none());
	if (text.length >= sizeof format)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "a form of a date of %u bytes", text.length);
	memcpy(format, text.bytes, text.length);
	format[text.length] = 0;
	gmtime_r(&now, &day);
	struct builder shown = {.work = &run->work};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	const size_t length = strftime(out, sizeof out, format, &day);
#pragma GCC diagnostic pop
	builder_bytes(&shown, out, length, text.origin == ORIGIN_OWN ? ORIGIN_OWN : ORIGIN_FOREIGN);
	return value_text(builder_end(&shown));
}

static struct value range(struct run *run, const struct call *call)
{
	const int64_t first = need_integer(run, call->at[0] ? *call->at[0] : value_none());
	const int64_t from = call->at[1] ? first : 0, to = call->at[1] ? need_integer(run, *call->at[1]) : first;
	const int64_t step = call->at[2] ? need_integer(run, *call->at[2]) : 1;
	struct value list = value_list(run, VALUE_LIST, 0);
	if (!step)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "range() arg 3 must not be zero");
	for (int64_t i = from; step > 0 ? i < to : i > to;) {
		if (list.list->count == LIMIT_JINJA_RANGE)
			work_fail(&run->work, STATUS_INVALID_PARAMS,
				  "Range too big. The sandbox blocks ranges larger than %d.", LIMIT_JINJA_RANGE);
		value_list_add(run, list.list, value_integer(i));
		if (__builtin_add_overflow(i, step, &i))
			break;
	}
	return list;
}

static struct value make_dict(struct run *run, const struct call *call, enum value_kind kind)
{
	struct value dict = value_dict(run, kind);
	const struct arguments *arguments = call->arguments;
	if (arguments->count > 1)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "%s() takes one argument", value_name(dict));
	if (arguments->count && arguments->values[0].kind == VALUE_DICT) {
		for (size_t i = 0; i < arguments->values[0].dict->count; i++)
			dict_set(run, dict.dict, arguments->values[0].dict->members[i].key,
				 arguments->values[0].dict->members[i].value);
	} else if (arguments->count) {
		const struct list pairs = value_items(run, arguments->values[0]);
		for (size_t i = 0; i < pairs.count; i++) {
			const struct list pair = value_items(run, pairs.items[i]);
			if (pair.count != 2)
				work_fail(&run->work, STATUS_INVALID_PARAMS, "a member of a dict is a pair");
			dict_set(run, dict.dict, pair.items[0], pair.items[1]);
		}
	}
	for (size_t i = 0; i < arguments->named_count; i++)
		dict_set(run, dict.dict, arguments->named[i].key, arguments->named[i].value);
	return dict;
}

static struct value make_namespace(struct run *run, const struct call *call)
{
	return make_dict(run, call, VALUE_NAMESPACE);
}

static struct value make_plain_dict(struct run *run, const struct call *call)
{
	return make_dict(run, call, VALUE_DICT);
}

// The state of a cycler is its list: the items and the current index.
static struct value cycler_next(struct run *run, const struct call *call)
{
	struct list *list = call->self.function->self.list;
	(void)run;
	struct value value = list->items[list->read];
	list->read = (list->read + 1) % list->count;
	return value;
}

static struct value cycler_reset(struct run *run, const struct call *call)
{
	(void)run;
	call->self.function->self.list->read = 0;
	return value_none();
}

const struct builtin jinja_cycler_methods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}, {0}};

static struct value cycler_called(struct run *run, const struct call *call)
{
	(void)call;
	work_fail(&run->work, STATUS_INVALID_PARAMS, "a cycler is not callable: it has next()");
}

static struct value make_cycler(struct run *run, const struct call *call)
{
	static const struct builtin cycler = {"cycler object", "*", cycler_called};
	struct function *function = work_take(&run->work, sizeof *function);
	if (!call->arguments->count)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "at least one item has to be provided");
	*function = (struct function){.builtin = &cycler, .self = value_list(run, VALUE_LIST, call->arguments->count)};
	for (size_t i = 0; i < call->arguments->count; i++)
		value_list_add(run, function->self.list, call->arguments->values[i]);
	return (struct value){.kind = VALUE_FUNCTION, .function = function};
}

// Empty text on the first call, then the separator.
static struct value joiner_called(struct run *run, const struct call *call)
{
	(void)run;
	struct list *list = call->self.list;
	return list->read++ ? list->items[0] : value_own("");
}

static struct value make_joiner(struct run *run, const struct call *call)
{
	static const struct builtin joiner = {"joiner object", "", joiner_called};
	struct function *function = work_take(&run->work, sizeof *function);
	*function = (struct function){.builtin = &joiner, .self = value_list(run, VALUE_LIST, 1)};
	value_list_add(run, function->self.list, call->at[0] ? *call->at[0] : value_own(", "));
	return (struct value){.kind = VALUE_FUNCTION, .function = function};
}

const struct builtin jinja_functions[] = {
	{"raise_exception", "message", raise_exception},
	{"strftime_now", "format", strftime_now},
	{"range", "start stop step", range},
	{"namespace", "*", make_namespace},
	{"dict", "*", make_plain_dict},
	{"cycler", "*", make_cycler},
	{"joiner", "sep", make_joiner},
	{0},
};

// ---- methods of loops, lists and dicts ----

static struct value loop_cycle(struct run *run, const struct call *call)
{
	const struct arguments *arguments = call->arguments;
	if (!arguments->count)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "no items for cycling given");
	return arguments->values[call->self.loop->index % arguments->count];
}

static struct value loop_changed(struct run *run, const struct call *call)
{
	struct loop *loop = call->self.loop;
	struct value list = value_list(run, VALUE_LIST, 0);
	for (size_t i = 0; i < call->arguments->count; i++)
		value_list_add(run, list.list, call->arguments->values[i]);
	const bool changed = !loop->changed || !value_equal(run, *loop->changed, list);
	struct value *kept = work_take(&run->work, sizeof *kept);
	*kept = list;
	loop->changed = kept;
	return value_bool(changed);
}

const struct builtin jinja_loop_methods[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}, {0}};

static struct value list_index(struct run *run, const struct call *call)
{
	const struct list *list = call->self.list;
	for (size_t i = 0; call->at[0] && i < list->count; i++)
		if (value_equal(run, list->items[i], *call->at[0]))
			return value_integer((int64_t)i);
	work_fail(&run->work, STATUS_INVALID_PARAMS, "the value is not in the list");
}

static struct value list_count(struct run *run, const struct call *call)
{
	const struct list *list = call->self.list;
	int64_t count = 0;
	for (size_t i = 0; call->at[0] && i < list->count; i++)
		count += value_equal(run, list->items[i], *call->at[0]);
	return value_integer(count);
}

static struct value copy(struct run *run, const struct call *call)
{
	(void)run;
	return call->self; // nothing changes it
}

const struct builtin jinja_list_methods[] = {
	{"index", "value", list_index}, {"count", "value", list_count}, {"copy", "", copy}, {0}};

static struct value dict_method_get(struct run *run, const struct call *call)
{
	if (!call->at[0])
		work_fail(&run->work, STATUS_INVALID_PARAMS, "get expected at least 1 argument, got 0");
	const struct value *found = dict_get(run, call->self.dict, *call->at[0]);
	return found ? *found : call->at[1] ? *call->at[1] : value_none();
}

static struct value dict_method_items(struct run *run, const struct call *call)
{
	const struct dict *dict = call->self.dict;
	struct value list = value_list(run, VALUE_LIST, dict->count);
	for (size_t i = 0; i < dict->count; i++) {
		struct value pair = value_list(run, VALUE_TUPLE, 2);
		value_list_add(run, pair.list, dict->members[i].key);
		value_list_add(run, pair.list, dict->members[i].value);
		value_list_add(run, list.list, pair);
	}
	return list;
}

static struct value dict_method_keys(struct run *run, const struct call *call)
{
	struct value list = value_list(run, VALUE_LIST, 0);
	*list.list = value_items(run, call->self);
	return list;
}

static struct value dict_method_values(struct run *run, const struct call *call)
{
	struct value list = value_list(run, VALUE_LIST, call->self.dict->count);
	for (size_t i = 0; i < call->self.dict->count; i++)
		value_list_add(run, list.list, call->self.dict->members[i].value);
	return list;
}

const struct builtin jinja_dict_methods[] = {
	{"get", "key default", dict_method_get},
	{"items", "", dict_method_items},
	{"keys", "", dict_method_keys},
	{"values", "", dict_method_values},
	{"copy", "", copy},
	{0},
};
