/* Filters of single values and texts. See inside.h; filters of lists are in list_filters.c. */
#include "engine/jinja/inside.h"
#include "engine/jinja/letters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct text shown(struct run *run, const struct call *call)
{
	return value_show(run, call->self);
}

static bool flag(struct run *run, const struct value *value, bool otherwise)
{
	return value ? value_true(run, *value) : otherwise;
}

// ---- texts ----

static struct value trim(struct run *run, const struct call *call)
{
	const bool all = !call->at[0] || call->at[0]->kind == VALUE_NONE;
	const struct text text = shown(run, call), characters = all ? text_of("") : need_text(run, *call->at[0]);
	work_spend(&run->work, text.length / 8 * (1 + (uint64_t)characters.length));
	return value_text(text_trim(text, TRIM_BOTH, all ? NULL : &characters));
}

static struct value upper(struct run *run, const struct call *call)
{
	return value_text(text_case(run, shown(run, call), LETTERS_UPPER));
}

static struct value lower(struct run *run, const struct call *call)
{
	return value_text(text_case(run, shown(run, call), LETTERS_LOWER));
}

static struct value title(struct run *run, const struct call *call)
{
	return value_text(text_case(run, shown(run, call), LETTERS_WORDS));
}

static struct value capitalize(struct run *run, const struct call *call)
{
	return value_text(text_case(run, shown(run, call), LETTERS_FIRST));
}

static struct value replace(struct run *run, const struct call *call)
{
	if (!call->at[0] || !call->at[1])
		work_fail(&run->work, STATUS_INVALID_PARAMS, "replace needs two texts");
	const int64_t most = call->at[2] && call->at[2]->kind != VALUE_NONE ? need_integer(run, *call->at[2]) : -1;
	return value_text(text_replace(run, shown(run, call), value_show(run, *call->at[0]),
				       value_show(run, *call->at[1]), most));
}

static struct value string(struct run *run, const struct call *call)
{
	return value_text(shown(run, call));
}

static struct value escape(struct run *run, const struct call *call)
{
	static const struct {
		char character;
		const char *name;
	} entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
	const struct text text = shown(run, call);
	struct builder out = {.work = &run->work};
	for (size_t at = 0; at < text.length; at++) {
		const char *name = NULL;
		for (size_t i = 0; i < sizeof entities / sizeof *entities && !name; i++)
			name = entities[i].character == text.bytes[at] ? entities[i].name : NULL;
		if (name)
			builder_bytes(&out, name, strlen(name), text_origin(text, at));
		else
			builder_text(&out, text_part(text, at, at + 1));
	}
	return value_text(builder_end(&out));
}

static struct value indent(struct run *run, const struct call *call)
{
	const struct text text = shown(run, call);
	struct text by = text_of("    ");
	const bool first = flag(run, call->at[1], false), blank = flag(run, call->at[2], false);
	struct builder out = {.work = &run->work}, spaces = {.work = &run->work};
	if (call->at[0] && call->at[0]->kind == VALUE_TEXT) {
		by = call->at[0]->text;
	} else if (call->at[0]) {
		for (int64_t width = need_integer(run, *call->at[0]); width > 0; width--)
			builder_own(&spaces, " ");
		by = builder_end(&spaces);
	}
	for (size_t from = 0, lines = 0;; lines++) {
		const size_t end = line_end(text, from), ending = line_break(text, end);
		if (lines ? blank || end > from : first)
			builder_text(&out, by);
		builder_text(&out, text_part(text, from, end));
		from = end + ending;
		if (!ending)
			break;
		builder_own(&out, "\n");
	}
	return value_text(builder_end(&out));
}

static struct value format(struct run *run, const struct call *call)
{
	return format_percent(run, shown(run, call), call->arguments->values, call->arguments->count);
}

static struct value wordcount(struct run *run, const struct call *call)
{
	const struct builtin *split = jinja_builtin(jinja_text_methods, text_of("split"));
	const struct arguments none = {0};
	return value_integer((int64_t)call_builtin(run, split, value_text(shown(run, call)), &none).list->count);
}

const struct builtin jinja_text_filters[] = {
	{"trim", "chars", trim}, {"upper", "", upper},           {"lower", "", lower},
	{"title", "", title},    {"capitalize", "", capitalize}, {"replace", "old new count", replace},
	{"string", "", string},  {"safe", "", string},           {"e", "", escape},
	{"escape", "", escape},  {"forceescape", "", escape},    {"indent", "width first blank", indent},
	{"format", "*", format}, {"wordcount", "", wordcount},   {0},
};

// ---- numbers ----

static bool read_integer(struct text text, int base, int64_t *out)
{
	char digits[72], *end;
	size_t count = 0;
	text = text_trim(text, TRIM_BOTH, NULL);
	if (!text.length || text.length >= sizeof digits)
		return false;
	for (size_t i = 0; i < text.length; i++)
		if (text.bytes[i] != '_' || !i)
			digits[count++] = text.bytes[i];
	digits[count] = 0;
	errno = 0;
	*out = strtoll(digits, &end, base);
	return end == digits + count && !errno;
}

static bool read_float(struct text text, double *out)
{
	char digits[512], *end;
	text = text_trim(text, TRIM_BOTH, NULL);
	if (!text.length || text.length >= sizeof digits || memchr(text.bytes, 'x', text.length) ||
	    memchr(text.bytes, 'X', text.length) || memchr(text.bytes, '(', text.length))
		return false;
	memcpy(digits, text.bytes, text.length);
	digits[text.length] = 0;
	*out = strtod(digits, &end);
	return end == digits + text.length;
}

static struct value to_integer(struct run *run, const struct call *call)
{
	int64_t integer;
	double number;
	const struct value otherwise = call->at[0] ? *call->at[0] : value_integer(0);
	const int64_t base = call->at[1] ? need_integer(run, *call->at[1]) : 10;
	if (call->self.kind == VALUE_UNDEFINED)
		undefined_fail(run, call->self);
	if (base < 0 || base == 1 || base > 36)
		return otherwise;
	if (value_index(call->self, &integer))
		return value_integer(integer);
	if (call->self.kind == VALUE_TEXT) {
		if (read_integer(call->self.text, (int)base, &integer))
			return value_integer(integer);
		if (!read_float(call->self.text, &number))
			return otherwise;
	} else if (!value_number(call->self, &number)) {
		return otherwise;
	}
	return number > -9.2e18 && number < 9.2e18 ? value_integer((int64_t)number) : otherwise;
}

static struct value to_float(struct run *run, const struct call *call)
{
	double number;
	if (call->self.kind == VALUE_UNDEFINED)
		undefined_fail(run, call->self);
	if (value_number(call->self, &number) ||
	    (call->self.kind == VALUE_TEXT && read_float(call->self.text, &number)))
		return value_float(number);
	return call->at[0] ? *call->at[0] : value_float(0);
}

static struct value absolute(struct run *run, const struct call *call)
{
	int64_t integer;
	double number;
	if (value_index(call->self, &integer) && integer != INT64_MIN)
		return value_integer(integer < 0 ? -integer : integer);
	if (!value_number(call->self, &number))
		need_integer(run, call->self);
	return value_float(fabs(number));
}

static struct value round_off(struct run *run, const struct call *call)
{
	const int64_t precision = call->at[0] ? need_integer(run, *call->at[0]) : 0;
	const struct text method = call->at[1] ? need_text(run, *call->at[1]) : text_of("common");
	double number;
	if (!value_number(call->self, &number))
		need_integer(run, call->self);
	if (precision < -300 || precision > 300)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "a precision of more than 300");
	const double scale = pow(10, (double)precision);
	if (text_is(method, "ceil"))
		return value_float(ceil(number * scale) / scale);
	if (text_is(method, "floor"))
		return value_float(floor(number * scale) / scale);
	if (!text_is(method, "common"))
		work_fail(&run->work, STATUS_INVALID_PARAMS, "method must be common, ceil or floor");
	if (call->self.kind != VALUE_FLOAT && precision >= 0)
		return call->self;
	char digits[700];
	if (precision < 0)
		return value_float(nearbyint(number * scale) / scale);
	snprintf(digits, sizeof digits, "%.*f", (int)precision, number);
	return value_float(strtod(digits, NULL));
}

// ---- others ----

static struct value otherwise(struct run *run, const struct call *call)
{
	const bool wanting = flag(run, call->at[1], false) && !value_true(run, call->self);
	if (call->self.kind != VALUE_UNDEFINED && !wanting)
		return call->self;
	return call->at[0] ? *call->at[0] : value_own("");
}

static struct value length(struct run *run, const struct call *call)
{
	return value_integer((int64_t)value_length(run, call->self));
}

static struct value tojson(struct run *run, const struct call *call)
{
	const struct value *indented = call->at[1], *separators = call->at[2];
	struct json_form form = {.between = text_of(", "), .colon = text_of(": "), .indent = -1};
	form.ascii = flag(run, call->at[0], false);
	form.sorted = flag(run, call->at[3], false);
	if (indented && indented->kind != VALUE_NONE) {
		const int64_t width = need_integer(run, *indented);
		if (width > 64)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "an indent of more than 64");
		form.indent = width < 0 ? 0 : (int)width;
		form.between = text_of(",");
	}
	if (separators && separators->kind != VALUE_NONE) {
		const struct list pair = value_items(run, *separators);
		if (pair.count != 2)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "separators are two texts");
		form.between = need_text(run, pair.items[0]);
		form.colon = need_text(run, pair.items[1]);
	}
	return value_text(value_to_json(run, call->self, &form));
}

static struct value attribute(struct run *run, const struct call *call)
{
	return value_attribute(run, call->self, need_text(run, call->at[0] ? *call->at[0] : value_none()));
}

const struct builtin jinja_value_filters[] = {
	{"int", "default base", to_integer},
	{"float", "default", to_float},
	{"abs", "", absolute},
	{"round", "precision method", round_off},
	{"default", "default_value boolean", otherwise},
	{"d", "default_value boolean", otherwise},
	{"length", "", length},
	{"count", "", length},
	{"tojson", "ensure_ascii indent separators sort_keys", tojson},
	{"attr", "name", attribute},
	{0},
};
