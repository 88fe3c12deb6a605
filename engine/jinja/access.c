/* Attributes, items and slices, as Python's with the rules of Jinja's sandbox. See inside.h. */
#include "engine/jinja/inside.h"

#include <string.h>

static struct value loop_attribute(struct run *run, struct loop *loop, struct text name)
{
	const struct {
		const char *name;
		size_t value;
	} counts[] = {
		{"index", loop->index + 1},
		{"index0", loop->index},
		{"revindex", loop->count - loop->index},
		{"revindex0", loop->count - loop->index - 1},
		{"length", loop->count},
		{"depth", loop->depth + 1},
		{"depth0", loop->depth},
	};
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		if (text_is(name, counts[i].name))
			return value_integer((int64_t)counts[i].value);
	if (text_is(name, "first"))
		return value_bool(!loop->index);
	if (text_is(name, "last"))
		return value_bool(loop->index + 1 == loop->count);
	if (text_is(name, "previtem") && loop->index)
		return loop->items[loop->index - 1];
	if (text_is(name, "nextitem") && loop->index + 1 < loop->count)
		return loop->items[loop->index + 1];
	(void)run;
	return value_undefined(name, VALUE_LOOP);
}

// Whether Python's method `name` would change a value in place. The sandbox forbids such methods, so they do not exist
// here.
static bool is_forbidden(struct value value, struct text name)
{
	static const char *const lists[] = {"append", "clear",  "pop",    "reverse", "insert",
					    "sort",   "extend", "remove", NULL};
	static const char *const dicts[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
	const char *const *names = value.kind == VALUE_LIST ? lists : value.kind == VALUE_DICT ? dicts : NULL;
	for (; names && *names; names++)
		if (text_is(name, *names))
			return true;
	return false;
}

static const struct builtin *method_of(struct value value, struct text name)
{
	const struct builtin *list = NULL;
	if (value.kind == VALUE_TEXT)
		list = jinja_text_methods;
	else if (value.kind == VALUE_LIST || value.kind == VALUE_TUPLE)
		list = jinja_list_methods;
	else if (value.kind == VALUE_DICT)
		list = jinja_dict_methods;
	else if (value.kind == VALUE_LOOP)
		list = jinja_loop_methods;
	else if (value.kind == VALUE_FUNCTION)
		list = text_is(text_of(value.function->builtin->name), "cycler object") ? jinja_cycler_methods : NULL;
	return list ? jinja_builtin(list, name) : NULL;
}

static bool find_method(struct run *run, struct value value, struct text name, struct value *out)
{
	const struct builtin *method = method_of(value, name);
	if (!method)
		return false;
	struct function *function = work_take(&run->work, sizeof *function);
	*function = (struct function){.builtin = method, .self = value};
	*out = (struct value){.kind = VALUE_FUNCTION, .function = function};
	return true;
}

struct value value_attribute(struct run *run, struct value value, struct text name)
{
	struct value method;
	const struct value *member = NULL;
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	if (is_forbidden(value, name))
		return value_undefined(name, value.kind);
	if (find_method(run, value, name, &method))
		return method;
	if (value.kind == VALUE_DICT || value.kind == VALUE_NAMESPACE)
		member = dict_text(run, value.dict, name);
	if (value.kind == VALUE_LOOP)
		return loop_attribute(run, value.loop, name);
	if (value.kind == VALUE_MACRO && text_is(name, "name"))
		return value_text(value.macro->name);
	return member ? *member : value_undefined(name, value.kind);
}

// A place in a list of so many; false: outside.
static bool place(int64_t index, size_t count, size_t *out)
{
	if (index < 0)
		index += (int64_t)count;
	*out = (size_t)index;
	return index >= 0 && (uint64_t)index < count;
}

struct value value_item(struct run *run, struct value value, struct value key)
{
	int64_t index;
	size_t at;
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	if (value.kind == VALUE_DICT) {
		const struct value *member = dict_get(run, value.dict, key);
		if (member)
			return *member;
	}
	const bool list = value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
	if (list && value_index(key, &index) && place(index, value.list->count, &at))
		return value.list->items[at];
	if (value.kind == VALUE_TEXT && value_index(key, &index) && place(index, value_length(run, value), &at)) {
		const size_t from = text_place(value.text, at);
		return value_text(text_part(value.text, from, from + text_step(value.text, from)));
	}
	if (key.kind != VALUE_TEXT)
		return value_undefined(value_show(run, key), value.kind);
	return value_attribute(run, value, key.text);
}

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
	return value < least ? least : value > most ? most : value;
}

// One bound of a slice of `count` items, by Python's rules.
static int64_t bound(struct run *run, struct value value, int64_t count, int64_t step, int64_t otherwise)
{
	if (value.kind == VALUE_NONE)
		return otherwise;
	const int64_t index = clamp(need_integer(run, value), -count - 1, count);
	return step > 0 ? clamp(index < 0 ? index + count : index, 0, count)
			: clamp(index < 0 ? index + count : index, -1, count - 1);
}

struct value value_slice(struct run *run, struct value value, const struct value bounds[3])
{
	const bool text = value.kind == VALUE_TEXT;
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	if (!text && value.kind != VALUE_LIST && value.kind != VALUE_TUPLE)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "'%s' object cannot be sliced", value_name(value));
	const int64_t count = (int64_t)value_length(run, value);
	const int64_t step = bounds[2].kind == VALUE_NONE ? 1
							  : clamp(need_integer(run, bounds[2]), -INT32_MAX, INT32_MAX);
	if (!step)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "slice step cannot be zero");
	const int64_t from = bound(run, bounds[0], count, step, step > 0 ? 0 : count - 1);
	const int64_t to = bound(run, bounds[1], count, step, step > 0 ? count : -1);
	if (text && step == 1) {
		const size_t begin = text_place(value.text, (size_t)from);
		const size_t end = to > from ? begin + text_place(text_part(value.text, begin, value.text.length),
								  (size_t)(to - from))
					     : begin;
		return value_text(text_part(value.text, begin, end));
	}
	struct value out = value_list(run, text ? VALUE_LIST : (enum value_kind)value.kind, 0);
	const struct list items = value_items(run, value);
	for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
		value_list_add(run, out.list, items.items[i]);
	if (!text)
		return out;
	struct builder joined = {.work = &run->work};
	for (size_t i = 0; i < out.list->count; i++)
		builder_text(&joined, out.list->items[i].text);
	return value_text(builder_end(&joined));
}

struct value value_path(struct run *run, struct value value, struct value path)
{
	if (path.kind != VALUE_TEXT)
		return value_item(run, value, path);
	for (struct text rest = path.text;;) {
		const size_t point = text_find(&run->work, rest, text_of("."), 0);
		const struct text part = point == SIZE_MAX ? rest : text_part(rest, 0, point);
		int64_t index = 0;
		bool digits = part.length && part.length < 10;
		for (size_t i = 0; i < part.length && digits; i++) {
			digits = part.bytes[i] >= '0' && part.bytes[i] <= '9';
			index = index * 10 + (part.bytes[i] - '0');
		}
		value = value_item(run, value, digits ? value_integer(index) : value_text(part));
		if (point == SIZE_MAX)
			return value;
		rest = text_part(rest, point + 1, rest.length);
	}
}
