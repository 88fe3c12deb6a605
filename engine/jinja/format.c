/* Texts with places for values: Python's "%" and str.format, as far as templates go. See inside.h. */
#include "engine/jinja/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTH = 1000 };

struct place { // %-08.3f
	bool left, zero, plus, space;
	int width, precision; // -1: not said
	char kind;
};

static int read_count(struct run *run, struct text form, size_t *at)
{
	int count = 0;
	for (; *at < form.length && form.bytes[*at] >= '0' && form.bytes[*at] <= '9'; ++*at) {
		count = count * 10 + (form.bytes[*at] - '0');
		if (count > MOST_WIDTH)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "a width of more than %d", MOST_WIDTH);
	}
	return count;
}

static struct place read_place(struct run *run, struct text form, size_t *at)
{
	struct place place = {.precision = -1};
	for (; *at < form.length && strchr("-0+ #", form.bytes[*at]) && form.bytes[*at]; ++*at) {
		place.left |= form.bytes[*at] == '-';
		place.zero |= form.bytes[*at] == '0';
		place.plus |= form.bytes[*at] == '+';
		place.space |= form.bytes[*at] == ' ';
	}
	place.width = read_count(run, form, at);
	if (*at < form.length && form.bytes[*at] == '.') {
		++*at;
		place.precision = read_count(run, form, at);
	}
	if (*at >= form.length)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "incomplete format");
	place.kind = form.bytes[(*at)++];
	return place;
}

static void put_filled(struct builder *out, const struct place *place, struct text text)
{
	const int missing = place->width - (int)text_count(text);
	for (int i = 0; i < missing && !place->left; i++)
		builder_own(out, " ");
	builder_text(out, text);
	for (int i = 0; i < missing && place->left; i++)
		builder_own(out, " ");
}

static void put_number(struct run *run, struct builder *out, const struct place *place, struct value value)
{
	char digits[MOST_WIDTH + 400];
	double number;
	int64_t integer;
	if (!value_number(value, &number))
		work_fail(&run->work, STATUS_INVALID_PARAMS, "%%%c format: a number is required, not %s", place->kind,
			  value_name(value));
	const int precision = place->precision < 0 ? 6 : place->precision;
	const bool whole = strchr("diuxXo", place->kind);
	if (whole && !value_index(value, &integer)) {
		if (!(number > -9.2e18 && number < 9.2e18))
			work_fail(&run->work, STATUS_INVALID_PARAMS, "a number that is too large");
		integer = (int64_t)number;
	}
	const bool negative = whole ? integer < 0 : number < 0;
	const uint64_t size = whole ? (negative ? 0 - (uint64_t)integer : (uint64_t)integer) : 0;
	const double amount = negative ? -number : number;
	switch (place->kind) {
	case 'x':
		snprintf(digits, sizeof digits, "%" PRIx64, size);
		break;
	case 'X':
		snprintf(digits, sizeof digits, "%" PRIX64, size);
		break;
	case 'o':
		snprintf(digits, sizeof digits, "%" PRIo64, size);
		break;
	case 'f':
	case 'F':
		snprintf(digits, sizeof digits, "%.*f", precision, amount);
		break;
	case 'e':
		snprintf(digits, sizeof digits, "%.*e", precision, amount);
		break;
	case 'g':
		snprintf(digits, sizeof digits, "%.*g", precision, amount);
		break;
	default:
		snprintf(digits, sizeof digits, "%" PRIu64, size);
	}
	const char *const sign = negative ? "-" : place->plus ? "+" : place->space ? " " : "";
	const int zeros = place->zero && !place->left ? place->width - (int)strlen(sign) - (int)strlen(digits) : 0;
	struct builder number_text = {.work = &run->work};
	builder_own(&number_text, sign);
	for (int i = 0; i < zeros; i++)
		builder_own(&number_text, "0");
	builder_own(&number_text, digits);
	put_filled(out, place, builder_end(&number_text));
}

static void put_value(struct run *run, struct builder *out, const struct place *place, struct value value)
{
	struct builder shown = {.work = &run->work};
	if (strchr("diuxXofFeg", place->kind)) {
		put_number(run, out, place, value);
		return;
	}
	if (!strchr("sra", place->kind))
		work_fail(&run->work, STATUS_INVALID_PARAMS, "unsupported format character '%c'", place->kind);
	if (place->kind == 's')
		builder_text(&shown, value_show(run, value));
	else
		value_repr(run, &shown, value);
	struct text text = builder_end(&shown);
	if (place->precision >= 0)
		text = text_part(text, 0, text_place(text, (size_t)place->precision));
	put_filled(out, place, text);
}

struct value format_percent(struct run *run, struct text form, const struct value *values, size_t count)
{
	struct builder out = {.work = &run->work};
	size_t used = 0;
	for (size_t at = 0, from; at < form.length;) {
		for (from = at; at < form.length && form.bytes[at] != '%';)
			at++;
		builder_text(&out, text_part(form, from, at));
		if (at >= form.length)
			break;
		at++;
		if (at < form.length && form.bytes[at] == '%') {
			builder_text(&out, text_part(form, at, at + 1));
			at++;
			continue;
		}
		const struct place place = read_place(run, form, &at);
		if (used == count)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "not enough arguments for format string");
		put_value(run, &out, &place, values[used++]);
	}
	if (used < count && values[0].kind != VALUE_DICT)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "not all arguments converted during string formatting");
	return value_text(builder_end(&out));
}

// ---- {} ----

static struct value named_value(struct run *run, struct text name, const struct arguments *arguments)
{
	for (size_t i = 0; i < arguments->named_count; i++)
		if (text_equal(arguments->named[i].key.text, name))
			return arguments->named[i].value;
	work_fail(&run->work, STATUS_INVALID_PARAMS, "no value for '%.*s' in a format", (int)name.length, name.bytes);
}

static struct value place_value(struct run *run, struct text name, const struct arguments *arguments, size_t *next)
{
	size_t at = 0;
	const bool number = name.length && name.bytes[0] >= '0' && name.bytes[0] <= '9';
	if (name.length && !number)
		return named_value(run, name, arguments);
	if (number)
		at = (size_t)read_count(run, name, &(size_t){0});
	else
		at = (*next)++;
	if (at >= arguments->count)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "Replacement index %zu out of range", at);
	return arguments->values[at];
}

struct value format_braces(struct run *run, struct text form, const struct arguments *arguments)
{
	struct builder out = {.work = &run->work};
	size_t next = 0;
	for (size_t at = 0; at < form.length;) {
		const char one = form.bytes[at];
		const bool twice = at + 1 < form.length && form.bytes[at + 1] == one;
		if ((one != '{' && one != '}') || twice) {
			builder_text(&out, text_part(form, at, at + 1));
			at += twice && (one == '{' || one == '}') ? 2 : 1;
			continue;
		}
		const char *end = memchr(form.bytes + at, '}', form.length - at);
		if (one == '}' || !end)
			work_fail(&run->work, STATUS_INVALID_PARAMS, "a single '%c' in a format", one);
		struct text name = text_part(form, at + 1, (size_t)(end - form.bytes));
		struct text more = text_of("");
		const char *colon = name.length ? memchr(name.bytes, ':', name.length) : NULL;
		if (colon) {
			more = text_part(name, (size_t)(colon - name.bytes) + 1, name.length);
			name = text_part(name, 0, (size_t)(colon - name.bytes));
		}
		struct value value = place_value(run, name, arguments, &next);
		if (more.length) {
			size_t from = 0;
			const struct place place = read_place(run, more, &from);
			put_value(run, &out, &place, value);
		} else {
			builder_text(&out, value_show(run, value));
		}
		at = (size_t)(end - form.bytes) + 1;
	}
	return value_text(builder_end(&out));
}
