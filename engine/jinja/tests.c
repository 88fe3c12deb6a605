/* Tests: the names after "is". See inside.h. */
#include "engine/jinja/inside.h"

#include <math.h>
#include <string.h>

static bool is_lower(struct text text, bool upper)
{
	bool any = false;
	for (size_t i = 0; i < text.length; i++) {
		const char one = text.bytes[i];
		const bool small = one >= 'a' && one <= 'z', large = one >= 'A' && one <= 'Z';
		if (upper ? small : large)
			return false;
		any = any || small || large;
	}
	return any;
}

static bool is_iterable(struct value value)
{
	return value.kind == VALUE_UNDEFINED || value.kind == VALUE_TEXT || value.kind == VALUE_LIST ||
	       value.kind == VALUE_TUPLE || value.kind == VALUE_GENERATOR || value.kind == VALUE_DICT ||
	       value.kind == VALUE_LOOP;
}

static bool is_true(struct value value, bool which)
{
	return value.kind == VALUE_BOOL && value.boolean == which;
}

static bool is_same(struct run *run, struct value a, struct value b)
{
	return a.kind == b.kind && value_equal(run, a, b);
}

static bool find_name(const char *const names[], struct text name)
{
	for (; *names; names++)
		if (text_is(name, *names))
			return true;
	return false;
}

static int kind_of_test(struct text name, const char *const *const tests[], int count)
{
	for (int i = 0; i < count; i++)
		if (find_name(tests[i], name))
			return i;
	return -1;
}

static bool about_kind(struct run *run, struct text name, struct value value, bool *known)
{
	const enum value_kind kind = value.kind;
	const struct {
		const char *name;
		bool holds;
	} tests[] = {
		{"defined", kind != VALUE_UNDEFINED},
		{"undefined", kind == VALUE_UNDEFINED},
		{"none", kind == VALUE_NONE},
		{"string", kind == VALUE_TEXT},
		{"mapping", kind == VALUE_DICT},
		{"iterable", is_iterable(value)},
		{"sequence", is_iterable(value) && kind != VALUE_GENERATOR && kind != VALUE_LOOP},
		{"number", kind == VALUE_BOOL || kind == VALUE_INTEGER || kind == VALUE_FLOAT},
		{"integer", kind == VALUE_INTEGER},
		{"float", kind == VALUE_FLOAT},
		{"boolean", kind == VALUE_BOOL},
		{"true", is_true(value, true)},
		{"false", is_true(value, false)},
		{"callable",
		 kind == VALUE_UNDEFINED || kind == VALUE_FUNCTION || kind == VALUE_MACRO || kind == VALUE_LOOP},
		{"escaped", false},
	};
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
		if (text_is(name, tests[i].name)) {
			*known = true;
			return tests[i].holds;
		}
	*known = text_is(name, "lower") || text_is(name, "upper");
	return *known && is_lower(value_show(run, value), text_is(name, "upper"));
}

static int64_t remainder_of(struct run *run, struct value value, int64_t by)
{
	const int64_t number = need_integer(run, value);
	if (!by)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "integer modulo by zero");
	return by == -1 ? 0 : number % by;
}

bool call_test(struct run *run, struct text name, struct value value, const struct arguments *arguments)
{
	static const char *const equal[] = {"eq", "equalto", "==", NULL}, *const unequal[] = {"ne", "!=", NULL},
				 *const less[] = {"lt", "lessthan", "<", NULL}, *const most[] = {"le", "<=", NULL},
				 *const more[] = {"gt", "greaterthan", ">", NULL}, *const least[] = {"ge", ">=", NULL},
				 *const in[] = {"in", NULL}, *const same[] = {"sameas", NULL},
				 *const divisible[] = {"divisibleby", NULL};
	static const char *const *const tests[] = {equal, unequal, less, most, more, least, in, same, divisible};
	bool known;
	const bool holds = about_kind(run, name, value, &known);
	if (known)
		return holds;
	if (text_is(name, "odd") || text_is(name, "even"))
		return (remainder_of(run, value, 2) != 0) == text_is(name, "odd");
	if (text_is(name, "filter"))
		return jinja_builtin(jinja_text_filters, value_show(run, value)) ||
		       jinja_builtin(jinja_list_filters, value_show(run, value)) ||
		       jinja_builtin(jinja_value_filters, value_show(run, value));
	const int kind = kind_of_test(name, tests, sizeof tests / sizeof *tests);
	if (kind < 0)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "No test named '%.*s'.", (int)name.length, name.bytes);
	if (arguments->count != 1)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "the test '%.*s' needs one argument", (int)name.length,
			  name.bytes);
	const struct value other = arguments->values[0];
	switch (kind) {
	case 0:
		return value_equal(run, value, other);
	case 1:
		return !value_equal(run, value, other);
	case 2:
		return value_compare(run, value, other) < 0;
	case 3:
		return value_compare(run, value, other) <= 0;
	case 4:
		return value_compare(run, value, other) > 0;
	case 5:
		return value_compare(run, value, other) >= 0;
	case 6:
		return value_contains(run, other, value);
	case 7:
		return is_same(run, value, other);
	}
	return remainder_of(run, value, need_integer(run, other)) == 0;
}
