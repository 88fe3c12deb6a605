/* Values: how they are built and compared. See inside.h. As in Python, but integers have 64 bits. */
#include "engine/jinja/inside.h"

#include <math.h>
#include <string.h>

// ---- making ----

struct value value_none(void)
{
	return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool value)
{
	return (struct value){.kind = VALUE_BOOL, .boolean = value};
}

struct value value_integer(int64_t value)
{
	return (struct value){.kind = VALUE_INTEGER, .integer = value};
}

struct value value_float(double value)
{
	return (struct value){.kind = VALUE_FLOAT, .number = value};
}

struct value value_text(struct text text)
{
	return (struct value){.kind = VALUE_TEXT, .text = text};
}

struct value value_own(const char *text)
{
	return value_text(text_of(text));
}

struct value value_undefined(struct text name, enum value_kind owner)
{
	return (struct value){.kind = VALUE_UNDEFINED, .owner = (uint8_t)owner, .text = name};
}

struct value value_list(struct run *run, enum value_kind kind, size_t capacity)
{
	struct list *list = work_take(&run->work, sizeof *list);
	*list = (struct list){.capacity = capacity};
	if (capacity)
		list->items = work_take_list(&run->work, capacity, sizeof *list->items);
	return (struct value){.kind = (uint8_t)kind, .list = list};
}

struct value value_dict(struct run *run, enum value_kind kind)
{
	struct dict *dict = work_take(&run->work, sizeof *dict);
	*dict = (struct dict){0};
	return (struct value){.kind = (uint8_t)kind, .dict = dict};
}

void value_list_add(struct run *run, struct list *list, struct value value)
{
	work_spend(&run->work, 1);
	if (list->count == list->capacity) {
		const size_t capacity = list->capacity ? list->capacity * 2 : 8;
		struct value *items = work_take_list(&run->work, capacity, sizeof *items);
		if (list->count)
			memcpy(items, list->items, list->count * sizeof *items);
		list->items = items;
		list->capacity = capacity;
	}
	list->items[list->count++] = value;
}

static void dict_add(struct run *run, struct dict *dict, struct member member)
{
	work_spend(&run->work, 1);
	if (dict->count == dict->capacity) {
		const size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
		struct member *members = work_take_list(&run->work, capacity, sizeof *members);
		if (dict->count)
			memcpy(members, dict->members, dict->count * sizeof *members);
		dict->members = members;
		dict->capacity = capacity;
	}
	dict->members[dict->count++] = member;
}

static struct member *find(struct run *run, const struct dict *dict, struct value key)
{
	if (key.kind == VALUE_LIST || key.kind == VALUE_DICT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "unhashable type: '%s'", value_name(key));
	work_spend(&run->work, dict->count / 8);
	for (size_t i = 0; i < dict->count; i++) {
		const struct value *one = &dict->members[i].key;
		const bool same = one->kind == VALUE_TEXT && key.kind == VALUE_TEXT ? text_equal(one->text, key.text)
										    : value_equal(run, *one, key);
		if (same)
			return &dict->members[i];
	}
	return NULL;
}

void dict_set(struct run *run, struct dict *dict, struct value key, struct value value)
{
	struct member *member = find(run, dict, key);
	if (member)
		member->value = value;
	else
		dict_add(run, dict, (struct member){key, value});
}

const struct value *dict_get(struct run *run, const struct dict *dict, struct value key)
{
	const struct member *member = find(run, dict, key);
	return member ? &member->value : NULL;
}

const struct value *dict_text(struct run *run, const struct dict *dict, struct text key)
{
	return dict_get(run, dict, value_text(key));
}

static struct value number_from_json(double number)
{
	if (number == floor(number) && fabs(number) < 9.2e18)
		return value_integer((int64_t)number);
	return value_float(number);
}

static struct value text_from_json(struct run *run, const char *bytes, enum origin origin)
{
	const size_t length = strlen(bytes);
	if (length > LIMIT_JINJA_TEXT_BYTES)
		work_fail(&run->work, STATUS_LIMIT_EXCEEDED, "a text of %zu bytes", length);
	for (const char *const *own = run->own_texts; own && *own && origin != ORIGIN_OWN; own++)
		origin = !strcmp(*own, bytes) ? ORIGIN_OWN : origin;
	return value_text((struct text){.bytes = bytes, .length = (uint32_t)length, .origin = (uint8_t)origin});
}

// The texts stay where they are.
struct value value_from_json(struct run *run, const struct json *json, enum origin origin)
{
	const enum json_type type = json_type(json);
	struct value value = value_none();
	switch (type) {
	case JSON_ABSENT:
	case JSON_NULL:
		break;
	case JSON_BOOL:
		return value_bool(json_bool(json, false));
	case JSON_NUMBER:
		return number_from_json(json_number(json, 0));
	case JSON_STRING:
		return text_from_json(run, json_string(json, ""), origin);
	case JSON_ARRAY:
		work_enter(&run->work);
		value = value_list(run, VALUE_LIST, 0);
		for (const struct json *one = json_first(json); one; one = json_next(one))
			value_list_add(run, value.list, value_from_json(run, one, origin));
		work_leave(&run->work);
		break;
	case JSON_OBJECT:
		work_enter(&run->work);
		value = value_dict(run, VALUE_DICT);
		for (const struct json *one = json_first(json); one; one = json_next(one))
			dict_add(run, value.dict,
				 (struct member){text_from_json(run, json_name(one), origin),
						 value_from_json(run, one, origin)});
		work_leave(&run->work);
		break;
	}
	return value;
}

// ---- asking ----

const char *value_name(struct value value)
{
	static const char *const names[] = {
		[VALUE_UNDEFINED] = "Undefined", [VALUE_NONE] = "None",           [VALUE_BOOL] = "bool",
		[VALUE_INTEGER] = "int",         [VALUE_FLOAT] = "float",         [VALUE_TEXT] = "str",
		[VALUE_LIST] = "list",           [VALUE_TUPLE] = "tuple",         [VALUE_GENERATOR] = "generator",
		[VALUE_DICT] = "dict",           [VALUE_NAMESPACE] = "Namespace", [VALUE_MACRO] = "Macro",
		[VALUE_FUNCTION] = "function",   [VALUE_LOOP] = "LoopContext",
	};
	return names[value.kind];
}

_Noreturn void undefined_fail(struct run *run, struct value value)
{
	const int length = value.text.length > 100 ? 100 : (int)value.text.length;
	if (value.owner == VALUE_UNDEFINED)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "'%.*s' is undefined", length, value.text.bytes);
	work_fail(&run->work, STATUS_INVALID_PARAMS, "'%s object' has no attribute '%.*s'",
		  value_name((struct value){.kind = value.owner}), length, value.text.bytes);
}

bool value_true(struct run *run, struct value value)
{
	(void)run;
	switch ((enum value_kind)value.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return false;
	case VALUE_BOOL:
		return value.boolean;
	case VALUE_INTEGER:
		return value.integer != 0;
	case VALUE_FLOAT:
		return value.number != 0;
	case VALUE_TEXT:
		return value.text.length > 0;
	case VALUE_LIST:
	case VALUE_TUPLE:
		return value.list->count > 0;
	case VALUE_DICT:
		return value.dict->count > 0;
	case VALUE_GENERATOR:
	case VALUE_NAMESPACE:
	case VALUE_MACRO:
	case VALUE_FUNCTION:
	case VALUE_LOOP:
		break;
	}
	return true;
}

bool value_index(struct value value, int64_t *out)
{
	if (value.kind == VALUE_BOOL)
		*out = value.boolean;
	else
		*out = value.kind == VALUE_INTEGER ? value.integer : 0;
	return value.kind == VALUE_BOOL || value.kind == VALUE_INTEGER;
}

bool value_number(struct value value, double *out)
{
	int64_t integer;
	const bool whole = value_index(value, &integer);
	*out = whole ? (double)integer : value.kind == VALUE_FLOAT ? value.number : 0;
	return whole || value.kind == VALUE_FLOAT;
}

int64_t need_integer(struct run *run, struct value value)
{
	int64_t integer;
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	if (!value_index(value, &integer))
		work_fail(&run->work, STATUS_INVALID_PARAMS, "a number is needed, not '%s'", value_name(value));
	return integer;
}

struct text need_text(struct run *run, struct value value)
{
	if (value.kind == VALUE_UNDEFINED)
		undefined_fail(run, value);
	if (value.kind != VALUE_TEXT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "a text is needed, not '%s'", value_name(value));
	return value.text;
}

// ---- comparing ----

static bool is_sequence(struct value value)
{
	return value.kind == VALUE_LIST || value.kind == VALUE_TUPLE;
}

static bool lists_equal(struct run *run, const struct list *a, const struct list *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (!value_equal(run, a->items[i], b->items[i]))
			return false;
	return true;
}

static bool dicts_equal(struct run *run, const struct dict *a, const struct dict *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct value *other = dict_get(run, b, a->members[i].key);
		if (!other || !value_equal(run, a->members[i].value, *other))
			return false;
	}
	return true;
}

static bool things_equal(struct run *run, struct value a, struct value b)
{
	switch ((enum value_kind)a.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		return true;
	case VALUE_BOOL:
	case VALUE_INTEGER:
	case VALUE_FLOAT:
		break; // as numbers
	case VALUE_TEXT:
		work_spend(&run->work, a.text.length / 64);
		return text_equal(a.text, b.text);
	case VALUE_LIST:
	case VALUE_TUPLE:
		return lists_equal(run, a.list, b.list);
	case VALUE_DICT:
		return dicts_equal(run, a.dict, b.dict);
	case VALUE_GENERATOR:
		return a.list == b.list;
	case VALUE_NAMESPACE:
		return a.dict == b.dict;
	case VALUE_MACRO:
		return a.macro == b.macro;
	case VALUE_FUNCTION:
		return a.function->builtin == b.function->builtin;
	case VALUE_LOOP:
		return a.loop == b.loop;
	}
	return false;
}

bool value_equal(struct run *run, struct value a, struct value b)
{
	double x, y;
	int64_t i, k;
	work_spend(&run->work, 1);
	if (value_index(a, &i) && value_index(b, &k))
		return i == k;
	if (value_number(a, &x))
		return value_number(b, &y) && x == y;
	if (a.kind != b.kind)
		return false;
	work_enter(&run->work);
	const bool equal = things_equal(run, a, b);
	work_leave(&run->work);
	return equal;
}

static _Noreturn void cannot_compare(struct run *run, struct value a, struct value b)
{
	if (a.kind == VALUE_UNDEFINED)
		undefined_fail(run, a);
	if (b.kind == VALUE_UNDEFINED)
		undefined_fail(run, b);
	work_fail(&run->work, STATUS_INVALID_PARAMS, "'%s' and '%s' have no order", value_name(a), value_name(b));
}

int value_compare(struct run *run, struct value a, struct value b)
{
	double x, y;
	int64_t i, k;
	work_spend(&run->work, 1);
	if (value_index(a, &i) && value_index(b, &k))
		return (i > k) - (i < k);
	if (value_number(a, &x) && value_number(b, &y))
		return (x > y) - (x < y);
	if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
		return text_compare(a.text, b.text);
	if (a.kind != b.kind || !is_sequence(a))
		cannot_compare(run, a, b);
	work_enter(&run->work);
	int order = (a.list->count > b.list->count) - (a.list->count < b.list->count);
	for (size_t n = 0; n < a.list->count && n < b.list->count; n++)
		if (!value_equal(run, a.list->items[n], b.list->items[n])) {
			order = value_compare(run, a.list->items[n], b.list->items[n]);
			break;
		}
	work_leave(&run->work);
	return order;
}

bool value_contains(struct run *run, struct value inside, struct value what)
{
	if (inside.kind == VALUE_TEXT) {
		if (what.kind != VALUE_TEXT)
			work_fail(&run->work, STATUS_INVALID_PARAMS,
				  "'in <string>' requires string as left operand, not %s", value_name(what));
		return text_find(&run->work, inside.text, what.text, 0) != SIZE_MAX;
	}
	if (inside.kind == VALUE_DICT)
		return dict_get(run, inside.dict, what);
	const struct list items = value_items(run, inside);
	for (size_t i = 0; i < items.count; i++)
		if (value_equal(run, items.items[i], what))
			return true;
	return false;
}

// ---- iterating ----

static struct list characters_of(struct run *run, struct text text)
{
	struct list *list = value_list(run, VALUE_LIST, text_count(text)).list;
	for (size_t at = 0, step; at < text.length; at += step) {
		step = text_step(text, at);
		value_list_add(run, list, value_text(text_part(text, at, at + step)));
	}
	return *list;
}

struct list value_items(struct run *run, struct value value)
{
	if (value.kind == VALUE_UNDEFINED)
		return (struct list){0};
	if (is_sequence(value))
		return *value.list;
	if (value.kind == VALUE_GENERATOR) {
		struct list rest = *value.list;
		rest.items = rest.items ? rest.items + rest.read : NULL;
		rest.count -= rest.read;
		value.list->read = value.list->count;
		return rest;
	}
	if (value.kind == VALUE_TEXT)
		return characters_of(run, value.text);
	if (value.kind != VALUE_DICT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "'%s' object is not iterable", value_name(value));
	struct list *list = value_list(run, VALUE_LIST, value.dict->count).list;
	for (size_t i = 0; i < value.dict->count; i++)
		value_list_add(run, list, value.dict->members[i].key);
	return *list;
}

size_t value_length(struct run *run, struct value value)
{
	if (value.kind == VALUE_UNDEFINED)
		return 0;
	if (is_sequence(value))
		return value.list->count;
	if (value.kind == VALUE_DICT)
		return value.dict->count;
	if (value.kind == VALUE_LOOP)
		return value.loop->count;
	if (value.kind != VALUE_TEXT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "object of type '%s' has no len()", value_name(value));
	work_spend(&run->work, value.text.length / 16);
	return text_count(value.text);
}
