/* Filters of lists and dicts. See inside.h. What Jinja makes as it goes, such as map and select, is here made at once,
 * and read once: it has no length, and is true also if there is nothing in it. */
#include "engine/jinja/inside.h"
#include "engine/jinja/letters.h"

#include <string.h>

static bool flag(struct run *run, const struct value *value)
{
	return value && value_true(run, *value);
}

static struct list items_of(struct run *run, const struct call *call)
{
	return value_items(run, call->self);
}

// The items of a list. A false value has no items, even if it is not a list.
static struct list each_of(struct run *run, const struct call *call)
{
	return value_true(run, call->self) ? items_of(run, call) : (struct list){0};
}

static const struct value *named(const struct call *call, const char *name)
{
	for (size_t i = 0; i < call->arguments->named_count; i++)
		if (text_is(call->arguments->named[i].key.text, name))
			return &call->arguments->named[i].value;
	return NULL;
}

// ---- first, last, and all together ----

static struct value first(struct run *run, const struct call *call)
{
	if (call->self.kind == VALUE_GENERATOR && call->self.list->read < call->self.list->count)
		return call->self.list->items[call->self.list->read++];
	const struct list items = items_of(run, call);
	return items.count ? items.items[0] : value_undefined(text_of("first"), VALUE_LIST);
}

static struct value last(struct run *run, const struct call *call)
{
	if (call->self.kind == VALUE_GENERATOR)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "'generator' object is not reversible");
	const struct list items = items_of(run, call);
	return items.count ? items.items[items.count - 1] : value_undefined(text_of("last"), VALUE_LIST);
}

static struct value join(struct run *run, const struct call *call)
{
	const struct list items = items_of(run, call);
	const struct text between = call->at[0] ? value_show(run, *call->at[0]) : text_of("");
	struct builder out = {.work = &run->work};
	for (size_t i = 0; i < items.count; i++) {
		struct value one = call->at[1] ? value_path(run, items.items[i], *call->at[1]) : items.items[i];
		if (i)
			builder_text(&out, between);
		builder_text(&out, value_show(run, one));
	}
	return value_text(builder_end(&out));
}

static struct value sum(struct run *run, const struct call *call)
{
	const struct list items = items_of(run, call);
	struct value total = call->at[1] ? *call->at[1] : value_integer(0);
	const bool attribute = call->at[0] && call->at[0]->kind != VALUE_NONE;
	for (size_t i = 0; i < items.count; i++)
		total = binary(run, "+", total,
			       attribute ? value_path(run, items.items[i], *call->at[0]) : items.items[i]);
	return total;
}

// ---- lists of them ----

static struct value list_of(struct run *run, struct list items, enum value_kind kind)
{
	struct value list = value_list(run, kind, items.count);
	for (size_t i = 0; i < items.count; i++)
		value_list_add(run, list.list, items.items[i]);
	return list;
}

static struct value list(struct run *run, const struct call *call)
{
	return list_of(run, items_of(run, call), VALUE_LIST);
}

static struct value reverse(struct run *run, const struct call *call)
{
	const struct list items = items_of(run, call);
	struct value out = value_list(run, VALUE_GENERATOR, items.count);
	struct builder text = {.work = &run->work};
	for (size_t i = items.count; i-- > 0;)
		value_list_add(run, out.list, items.items[i]);
	if (call->self.kind != VALUE_TEXT)
		return out;
	for (size_t i = 0; i < out.list->count; i++)
		builder_text(&text, out.list->items[i].text);
	return value_text(builder_end(&text));
}

static struct value items(struct run *run, const struct call *call)
{
	const struct arguments none = {0};
	if (call->self.kind == VALUE_UNDEFINED)
		return value_list(run, VALUE_GENERATOR, 0);
	if (call->self.kind != VALUE_DICT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "Can only get item pairs from a mapping.");
	struct value pairs = call_builtin(run, jinja_builtin(jinja_dict_methods, text_of("items")), call->self, &none);
	pairs.kind = VALUE_GENERATOR;
	return pairs;
}

static struct value batch(struct run *run, const struct call *call)
{
	const struct list all = items_of(run, call);
	const int64_t size = need_integer(run, call->at[0] ? *call->at[0] : value_none());
	struct value out = value_list(run, VALUE_GENERATOR, 0), row = value_none();
	if (size < 1)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "a batch of %lld", (long long)size);
	for (size_t i = 0; i < all.count; i++) {
		if (i % (uint64_t)size == 0) {
			row = value_list(run, VALUE_LIST, 0);
			value_list_add(run, out.list, row);
		}
		value_list_add(run, row.list, all.items[i]);
	}
	while (call->at[1] && row.kind == VALUE_LIST && row.list->count < (uint64_t)size)
		value_list_add(run, row.list, *call->at[1]);
	return out;
}

// ---- order ----

// The key by which a value is sorted: its attribute, and texts in lower case unless the sort is case-sensitive.
static struct value sort_key(struct run *run, struct value value, const struct value *attribute, bool sensitive)
{
	if (attribute && attribute->kind != VALUE_NONE)
		value = value_path(run, value, *attribute);
	return value.kind == VALUE_TEXT && !sensitive ? value_text(text_case(run, value.text, LETTERS_LOWER)) : value;
}

struct sorted {
	struct value key, value;
};

// Merged from halves, so that equal ones keep their order.
static void sort(struct run *run, struct sorted *list, struct sorted *space, size_t count, bool turned)
{
	if (count < 2)
		return;
	const size_t half = count / 2;
	sort(run, list, space, half, turned);
	sort(run, list + half, space, count - half, turned);
	memcpy(space, list, count * sizeof *list);
	for (size_t at = 0, a = 0, b = half; at < count; at++) {
		const bool second = a == half ||
				    (b < count && (turned ? value_compare(run, space[b].key, space[a].key) > 0
							  : value_compare(run, space[b].key, space[a].key) < 0));
		list[at] = second ? space[b++] : space[a++];
	}
}

static struct value sorted_by(struct run *run, const struct sorted *given, size_t count, bool turned)
{
	struct sorted *all = work_take_list(&run->work, count + 1, sizeof *all),
		      *space = work_take_list(&run->work, count + 1, sizeof *space);
	struct value out = value_list(run, VALUE_LIST, count);
	if (count)
		memcpy(all, given, count * sizeof *all);
	sort(run, all, space, count, turned);
	for (size_t i = 0; i < count; i++)
		value_list_add(run, out.list, all[i].value);
	return out;
}

static struct value sort_filter(struct run *run, const struct call *call)
{
	const struct list all = items_of(run, call);
	struct sorted *keyed = work_take_list(&run->work, all.count + 1, sizeof *keyed);
	for (size_t i = 0; i < all.count; i++)
		keyed[i] = (struct sorted){sort_key(run, all.items[i], call->at[2], flag(run, call->at[1])),
					   all.items[i]};
	return sorted_by(run, keyed, all.count, flag(run, call->at[0]));
}

static struct value dictsort(struct run *run, const struct call *call)
{
	const struct arguments none = {0};
	const bool by_value = call->at[1] && text_is(need_text(run, *call->at[1]), "value");
	if (call->self.kind != VALUE_DICT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "dictsort needs a mapping");
	const struct list all =
		*call_builtin(run, jinja_builtin(jinja_dict_methods, text_of("items")), call->self, &none).list;
	struct sorted *keyed = work_take_list(&run->work, all.count + 1, sizeof *keyed);
	for (size_t i = 0; i < all.count; i++)
		keyed[i] = (struct sorted){
			sort_key(run, all.items[i].list->items[by_value], NULL, flag(run, call->at[0])), all.items[i]};
	return sorted_by(run, keyed, all.count, flag(run, call->at[2]));
}

static struct value extreme(struct run *run, const struct call *call, bool most)
{
	const struct list all = items_of(run, call);
	struct value best = value_undefined(text_of("item"), VALUE_LIST), best_key = best;
	for (size_t i = 0; i < all.count; i++) {
		struct value key = sort_key(run, all.items[i], call->at[1], flag(run, call->at[0]));
		const int order = i ? value_compare(run, key, best_key) : 0;
		if (!i || (most ? order > 0 : order < 0)) {
			best = all.items[i];
			best_key = key;
		}
	}
	return best;
}

static struct value least(struct run *run, const struct call *call)
{
	return extreme(run, call, false);
}

static struct value most(struct run *run, const struct call *call)
{
	return extreme(run, call, true);
}

static struct value unique(struct run *run, const struct call *call)
{
	const struct list all = items_of(run, call);
	struct value out = value_list(run, VALUE_GENERATOR, 0), seen = value_dict(run, VALUE_DICT);
	for (size_t i = 0; i < all.count; i++) {
		struct value key = sort_key(run, all.items[i], call->at[1], flag(run, call->at[0]));
		if (dict_get(run, seen.dict, key))
			continue;
		dict_set(run, seen.dict, key, value_none());
		value_list_add(run, out.list, all.items[i]);
	}
	return out;
}

static struct value groupby(struct run *run, const struct call *call)
{
	const struct list all = items_of(run, call);
	struct sorted *keyed = work_take_list(&run->work, all.count + 1, sizeof *keyed);
	struct value out = value_list(run, VALUE_LIST, 0), group = value_none(), key = value_none();
	if (!call->at[0])
		work_fail(&run->work, STATUS_INVALID_PARAMS, "groupby needs an attribute");
	for (size_t i = 0; i < all.count; i++)
		keyed[i] = (struct sorted){sort_key(run, all.items[i], call->at[0], flag(run, call->at[2])),
					   all.items[i]};
	const struct list order = *sorted_by(run, keyed, all.count, false).list;
	for (size_t i = 0; i < order.count; i++) {
		struct value next = sort_key(run, order.items[i], call->at[0], flag(run, call->at[2]));
		if (!i || !value_equal(run, key, next)) {
			struct value pair = value_list(run, VALUE_TUPLE, 2);
			group = value_list(run, VALUE_LIST, 0);
			value_list_add(run, pair.list, value_path(run, order.items[i], *call->at[0]));
			value_list_add(run, pair.list, group);
			value_list_add(run, out.list, pair);
		}
		key = next;
		value_list_add(run, group.list, order.items[i]);
	}
	return out;
}

// ---- filters and tests of each ----

// The arguments after the first `skipped`.
static struct arguments behind(const struct call *call, size_t skipped)
{
	struct arguments rest = *call->arguments;
	rest.values = rest.values && rest.count > skipped ? rest.values + skipped : NULL;
	rest.count = rest.count > skipped ? rest.count - skipped : 0;
	return rest;
}

static struct value map(struct run *run, const struct call *call)
{
	const struct list all = each_of(run, call);
	const struct value *attribute = named(call, "attribute"), *without = named(call, "default");
	const struct arguments rest = behind(call, 1);
	struct value out = value_list(run, VALUE_GENERATOR, all.count);
	if (!call->arguments->count && !attribute)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "map requires a filter argument");
	for (size_t i = 0; i < all.count; i++) {
		struct value one = all.items[i];
		if (call->arguments->count)
			one = call_filter(run, need_text(run, call->arguments->values[0]), one, &rest);
		else
			one = value_path(run, one, *attribute);
		if (one.kind == VALUE_UNDEFINED && without && !call->arguments->count)
			one = *without;
		value_list_add(run, out.list, one);
	}
	return out;
}

// The items for which the test gives `wanted`; with `attributes` the test is applied to an attribute of each.
static struct value choose(struct run *run, const struct call *call, bool wanted, bool attributes)
{
	const struct list all = each_of(run, call);
	const size_t skipped = attributes ? 1 : 0;
	const struct arguments rest = behind(call, skipped + 1);
	struct value out = value_list(run, VALUE_GENERATOR, 0);
	if (attributes && !call->arguments->count)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "Missing parameter for attribute name");
	for (size_t i = 0; i < all.count; i++) {
		struct value one = all.items[i];
		if (attributes)
			one = value_path(run, one, call->arguments->values[0]);
		const bool holds = call->arguments->count > skipped
					   ? call_test(run, need_text(run, call->arguments->values[skipped]), one,
						       &rest)
					   : value_true(run, one);
		if (holds == wanted)
			value_list_add(run, out.list, all.items[i]);
	}
	return out;
}

static struct value select_those(struct run *run, const struct call *call)
{
	return choose(run, call, true, false);
}

static struct value reject(struct run *run, const struct call *call)
{
	return choose(run, call, false, false);
}

static struct value selectattr(struct run *run, const struct call *call)
{
	return choose(run, call, true, true);
}

static struct value rejectattr(struct run *run, const struct call *call)
{
	return choose(run, call, false, true);
}

const struct builtin jinja_list_filters[] = {
	{"first", "", first},
	{"last", "", last},
	{"join", "d attribute", join},
	{"sum", "attribute start", sum},
	{"list", "", list},
	{"reverse", "", reverse},
	{"items", "", items},
	{"batch", "linecount fill_with", batch},
	{"sort", "reverse case_sensitive attribute", sort_filter},
	{"dictsort", "case_sensitive by reverse", dictsort},
	{"min", "case_sensitive attribute", least},
	{"max", "case_sensitive attribute", most},
	{"unique", "case_sensitive attribute", unique},
	{"groupby", "attribute default case_sensitive", groupby},
	{"map", "*", map},
	{"select", "*", select_those},
	{"reject", "*", reject},
	{"selectattr", "*", selectattr},
	{"rejectattr", "*", rejectattr},
	{0},
};
