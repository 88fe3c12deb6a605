/* Values as text: as Python's str() and repr() have them, and as JSON. See inside.h. */
#include "common/text/unicode.h"
#include "engine/jinja/inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The shortest digits that mean the same number, laid out as Python does.
void show_float(struct builder *out, double number)
{
	char digits[40], text[64];
	if (isnan(number) || isinf(number)) {
		builder_own(out, isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
		return;
	}
	int precision = 0;
	do
		snprintf(digits, sizeof digits, "%.*e", precision, number);
	while (strtod(digits, NULL) != number && precision++ < 17);
	char *e = strchr(digits, 'e');
	const int exponent = (int)strtol(e + 1, NULL, 10);
	if (exponent >= -4 && exponent < 16) {
		const int decimals = precision - exponent > 1 ? precision - exponent : 1;
		snprintf(text, sizeof text, "%.*f", decimals, number);
	} else {
		*e = 0;
		snprintf(text, sizeof text, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
	}
	builder_own(out, text);
}

static void show_integer(struct builder *out, int64_t integer)
{
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)integer);
	builder_own(out, text);
}

// Whether Python's repr() writes the character without an escape, as far as our table of characters tells.
static bool is_printable(uint32_t character)
{
	static const uint32_t hidden[][2] = {{0, 0x1F},          {0x7F, 0xA0},     {0xAD, 0xAD},     {0x600, 0x605},
					     {0x61C, 0x61C},     {0x6DD, 0x6DD},   {0x70F, 0x70F},   {0x180E, 0x180E},
					     {0x200B, 0x200F},   {0x2028, 0x202E}, {0x2060, 0x206F}, {0xD800, 0xF8FF},
					     {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}, {0xE0000, 0xE0FFF},
					     {0xF0000, 0x10FFFF}};
	for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
		if (character >= hidden[i][0] && character <= hidden[i][1])
			return false;
	return character == ' ' || unicode_class(character) != CHARACTER_SPACE;
}

static void repr_text(struct builder *out, struct text text)
{
	const bool single = text.length && memchr(text.bytes, '\'', text.length);
	const char quote = single && !memchr(text.bytes, '"', text.length) ? '"' : '\'';
	static const char escapes[] = "\nn\rr\tt\\\\";
	char shown[16];
	builder_bytes(out, &quote, 1, ORIGIN_OWN);
	for (size_t at = 0, step; at < text.length; at += step) {
		unsigned bytes;
		const uint32_t character = utf8_first(text.bytes + at, &bytes);
		const char *escape = escapes;
		step = bytes;
		while (*escape && (uint32_t)*escape != character)
			escape += 2;
		if (*escape || character == (uint32_t)quote) {
			snprintf(shown, sizeof shown, "\\%c", *escape ? escape[1] : quote);
			builder_bytes(out, shown, 2, text_origin(text, at));
		} else if (is_printable(character)) {
			builder_text(out, text_part(text, at, at + step));
		} else {
			snprintf(shown, sizeof shown,
				 character < 0x100     ? "\\x%02x"
				 : character < 0x10000 ? "\\u%04x"
						       : "\\U%08x",
				 (unsigned)character);
			builder_bytes(out, shown, strlen(shown), text_origin(text, at));
		}
	}
	builder_bytes(out, &quote, 1, ORIGIN_OWN);
}

static void repr_list(struct run *run, struct builder *out, struct value value)
{
	const bool list = value.kind == VALUE_LIST;
	builder_own(out, list ? "[" : "(");
	for (size_t i = 0; i < value.list->count; i++) {
		builder_own(out, i ? ", " : "");
		value_repr(run, out, value.list->items[i]);
	}
	builder_own(out, list ? "]" : value.list->count == 1 ? ",)" : ")");
}

static void repr_dict(struct run *run, struct builder *out, const struct dict *dict)
{
	builder_own(out, "{");
	for (size_t i = 0; i < dict->count; i++) {
		builder_own(out, i ? ", " : "");
		value_repr(run, out, dict->members[i].key);
		builder_own(out, ": ");
		value_repr(run, out, dict->members[i].value);
	}
	builder_own(out, "}");
}

void value_repr(struct run *run, struct builder *out, struct value value)
{
	work_enter(&run->work);
	switch ((enum value_kind)value.kind) {
	case VALUE_UNDEFINED:
		builder_own(out, "Undefined");
		break;
	case VALUE_NONE:
		builder_own(out, "None");
		break;
	case VALUE_BOOL:
		builder_own(out, value.boolean ? "True" : "False");
		break;
	case VALUE_INTEGER:
		show_integer(out, value.integer);
		break;
	case VALUE_FLOAT:
		show_float(out, value.number);
		break;
	case VALUE_TEXT:
		repr_text(out, value.text);
		break;
	case VALUE_LIST:
	case VALUE_TUPLE:
		repr_list(run, out, value);
		break;
	case VALUE_DICT:
		repr_dict(run, out, value.dict);
		break;
	case VALUE_NAMESPACE:
		builder_own(out, "<Namespace ");
		repr_dict(run, out, value.dict);
		builder_own(out, ">");
		break;
	case VALUE_GENERATOR:
	case VALUE_MACRO:
	case VALUE_FUNCTION:
	case VALUE_LOOP: // in Python with an address
		builder_own(out, "<");
		builder_own(out, value_name(value));
		builder_own(out, ">");
		break;
	}
	work_leave(&run->work);
}

struct text value_show(struct run *run, struct value value)
{
	struct builder out = {.work = &run->work};
	if (value.kind == VALUE_TEXT)
		return value.text;
	if (value.kind != VALUE_UNDEFINED)
		value_repr(run, &out, value);
	return builder_end(&out);
}

// ---- JSON ----

struct printer {
	struct run *run;
	struct builder out;
	const struct json_form *form;
	unsigned depth;
};

static void json_escape(struct builder *out, uint32_t character, uint8_t origin)
{
	char text[16];
	if (character >= 0x10000)
		snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((unsigned)(character - 0x10000) >> 10),
			 0xDC00 + ((unsigned)(character - 0x10000) & 0x3FF));
	else
		snprintf(text, sizeof text, "\\u%04x", (unsigned)character);
	builder_bytes(out, text, strlen(text), origin);
}

static void json_text(struct printer *printer, struct text text)
{
	static const char escapes[] = "\"\"\\\\\nn\rr\tt\bb\ff";
	struct builder *out = &printer->out;
	size_t from = 0;
	builder_own(out, "\"");
	for (size_t at = 0, step; at < text.length; at += step) {
		unsigned bytes;
		const uint32_t character = utf8_first(text.bytes + at, &bytes);
		const char *escape = escapes;
		step = bytes;
		while (*escape && (uint32_t)*escape != character)
			escape += 2;
		if (!*escape && character >= 0x20 && (!printer->form->ascii || character < 0x80))
			continue;
		builder_text(out, text_part(text, from, at));
		if (*escape) {
			const char shown[2] = {'\\', escape[1]};
			builder_bytes(out, shown, 2, text_origin(text, at));
		} else {
			json_escape(out, character, text_origin(text, at));
		}
		from = at + step;
	}
	builder_text(out, text_part(text, from, text.length));
	builder_own(out, "\"");
}

static void json_line(struct printer *printer)
{
	if (printer->form->indent < 0)
		return;
	builder_own(&printer->out, "\n");
	for (unsigned i = 0; i < printer->depth * (unsigned)printer->form->indent; i++)
		builder_own(&printer->out, " ");
}

static void json_value(struct printer *printer, struct value value);

static void json_list(struct printer *printer, const struct list *list)
{
	builder_own(&printer->out, "[");
	printer->depth++;
	for (size_t i = 0; i < list->count; i++) {
		if (i)
			builder_text(&printer->out, printer->form->between);
		json_line(printer);
		json_value(printer, list->items[i]);
	}
	printer->depth--;
	if (list->count)
		json_line(printer);
	builder_own(&printer->out, "]");
}

// A key is a text, or what JSON writes of a number, a truth or nothing.
static void json_key(struct printer *printer, struct value key)
{
	if (key.kind == VALUE_TEXT) {
		json_text(printer, key.text);
		return;
	}
	if (key.kind > VALUE_TEXT || key.kind == VALUE_UNDEFINED)
		work_fail(&printer->run->work, STATUS_INVALID_PARAMS, "a key of JSON is no '%s'", value_name(key));
	builder_own(&printer->out, "\"");
	json_value(printer, key);
	builder_own(&printer->out, "\"");
}

static void sort_members(struct run *run, struct member *members, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		struct member one = members[i];
		size_t at = i;
		for (; at && value_compare(run, one.key, members[at - 1].key) < 0; at--)
			members[at] = members[at - 1];
		members[at] = one;
	}
}

static void json_dict(struct printer *printer, const struct dict *dict)
{
	struct member *members = dict->members;
	if (printer->form->sorted && dict->count) {
		members = work_take_list(&printer->run->work, dict->count, sizeof *members);
		memcpy(members, dict->members, dict->count * sizeof *members);
		sort_members(printer->run, members, dict->count);
	}
	builder_own(&printer->out, "{");
	printer->depth++;
	for (size_t i = 0; i < dict->count; i++) {
		if (i)
			builder_text(&printer->out, printer->form->between);
		json_line(printer);
		json_key(printer, members[i].key);
		builder_text(&printer->out, printer->form->colon);
		json_value(printer, members[i].value);
	}
	printer->depth--;
	if (dict->count)
		json_line(printer);
	builder_own(&printer->out, "}");
}

static void json_value(struct printer *printer, struct value value)
{
	struct work *work = &printer->run->work;
	work_spend(work, 1);
	work_enter(work);
	switch ((enum value_kind)value.kind) {
	case VALUE_NONE:
		builder_own(&printer->out, "null");
		break;
	case VALUE_BOOL:
		builder_own(&printer->out, value.boolean ? "true" : "false");
		break;
	case VALUE_INTEGER:
		show_integer(&printer->out, value.integer);
		break;
	case VALUE_FLOAT:
		if (isfinite(value.number))
			show_float(&printer->out, value.number);
		else
			builder_own(&printer->out, isnan(value.number) ? "NaN"
						   : value.number < 0  ? "-Infinity"
								       : "Infinity");
		break;
	case VALUE_TEXT:
		json_text(printer, value.text);
		break;
	case VALUE_LIST:
	case VALUE_TUPLE:
		json_list(printer, value.list);
		break;
	case VALUE_DICT:
		json_dict(printer, value.dict);
		break;
	case VALUE_UNDEFINED:
	case VALUE_GENERATOR:
	case VALUE_NAMESPACE:
	case VALUE_MACRO:
	case VALUE_FUNCTION:
	case VALUE_LOOP:
		work_fail(work, STATUS_INVALID_PARAMS, "Object of type %s is not JSON serializable", value_name(value));
	}
	work_leave(work);
}

struct text value_to_json(struct run *run, struct value value, const struct json_form *form)
{
	struct printer printer = {.run = run, .out = {.work = &run->work}, .form = form};
	json_value(&printer, value);
	return builder_end(&printer.out);
}
