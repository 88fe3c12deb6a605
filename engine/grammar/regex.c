/* See regex.h. By recursive descent, EXPRESSION_NESTING deep. */
#include "engine/grammar/regex.h"

#include "common/text/unicode.h"

#include <stdio.h>
#include <string.h>

enum { REPEAT_MOST = 100000, LAST_CHARACTER = 0x10FFFF };

struct reader {
	struct builder *builder;
	const struct regex *regex;
	size_t at;
	unsigned depth;
	uint32_t anything; // any characters; 0: not made yet
};

static bool failed(const struct reader *reader)
{
	return reader->builder->status;
}

static uint32_t refuse(struct reader *reader, const char *what)
{
	builder_fail(reader->builder, STATUS_INVALID_PARAMS, "the regular expression has %s at byte %zu", what,
		     reader->at);
	return 0;
}

static int peek(const struct reader *reader, size_t ahead)
{
	const size_t at = reader->at + ahead;
	return at < reader->regex->length ? (unsigned char)reader->regex->text[at] : -1;
}

static bool skip(struct reader *reader, const char *text)
{
	const size_t length = strlen(text);
	if (reader->regex->length - reader->at < length || memcmp(reader->regex->text + reader->at, text, length) != 0)
		return false;
	reader->at += length;
	return true;
}

static uint32_t take_character(struct reader *reader)
{
	unsigned bytes = 1;
	const uint32_t character = utf8_first(reader->regex->text + reader->at, &bytes);
	reader->at += bytes;
	return character;
}

// ---- escapes and classes ----

static bool hex(struct reader *reader, unsigned digits, uint32_t *out)
{
	uint32_t value = 0;
	for (unsigned i = 0; i < digits; i++) {
		const int one = peek(reader, i);
		const int digit = one >= '0' && one <= '9'                 ? one - '0'
				  : (one | 32) >= 'a' && (one | 32) <= 'f' ? (one | 32) - 'a' + 10
									   : -1;
		if (digit < 0)
			return false;
		value = value << 4 | (uint32_t)digit;
	}
	reader->at += digits;
	*out = value;
	return true;
}

static void add_spaces(struct builder *builder, struct ranges *out)
{
	static const struct range spaces[] = {{9, 13},          {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
					      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
					      {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
		span_list_add(builder, out, spaces[i].low, spaces[i].high);
}

// Add a class such as \d; false if `name` is not one of them.
static bool add_named(struct builder *builder, int name, struct ranges *out)
{
	struct ranges named = {0};
	switch (name | 32) {
	case 'd':
		span_list_add(builder, &named, '0', '9');
		break;
	case 'w':
		span_list_add(builder, &named, '0', '9');
		span_list_add(builder, &named, 'A', 'Z');
		span_list_add(builder, &named, 'a', 'z');
		span_list_add(builder, &named, '_', '_');
		break;
	case 's':
		add_spaces(builder, &named);
		break;
	default:
		return false;
	}
	span_list_settle(&named);
	if (!(name & 32))
		span_list_invert(builder, &named);
	for (size_t i = 0; i < named.count; i++)
		span_list_add(builder, out, named.items[i].low, named.items[i].high);
	span_list_finish(&named);
	return true;
}

// The character after \u: four digits, two surrogates of four digits each, or any number of digits in braces.
static uint32_t take_unicode(struct reader *reader)
{
	uint32_t value = 0, low;
	if (skip(reader, "{")) {
		for (unsigned i = 0; i < 6 && peek(reader, 0) != '}'; i++) {
			if (!hex(reader, 1, &low))
				return refuse(reader, "no number in \\u{}");
			value = value << 4 | low;
		}
		if (!skip(reader, "}"))
			return refuse(reader, "no end of \\u{");
	} else if (!hex(reader, 4, &value)) {
		return refuse(reader, "no four digits after \\u");
	}
	const size_t after = reader->at;
	if (value >= 0xD800 && value < 0xDC00 && skip(reader, "\\u") && hex(reader, 4, &low) && low >= 0xDC00 &&
	    low < 0xE000)
		return 0x10000 + ((value - 0xD800) << 10 | (low - 0xDC00));
	reader->at = after;
	if (value > LAST_CHARACTER || (value >= 0xD800 && value < 0xE000))
		return refuse(reader, "a number after \\u that is not a character");
	return value;
}

// A character after a backslash, which is passed.
static uint32_t take_escape(struct reader *reader)
{
	static const char names[] = "tnvfr", values[] = "\t\n\v\f\r";
	const int next = peek(reader, 0);
	const char *at = next > 0 ? strchr(names, next) : NULL;
	uint32_t value = 0;
	if (at) {
		reader->at++;
		return (uint32_t)values[at - names];
	}
	if (skip(reader, "u"))
		return take_unicode(reader);
	if (skip(reader, "x"))
		return hex(reader, 2, &value) ? value : refuse(reader, "no two digits after \\x");
	if (next < 0)
		return refuse(reader, "nothing after \\");
	if (next >= '1' && next <= '9')
		return refuse(reader, "a back reference, which is not supported,");
	if (next == 'k')
		return refuse(reader, "a back reference, which is not supported,");
	if (next == 'b' || next == 'B')
		return refuse(reader, "\\b, which is not supported,");
	if (next == 'p' || next == 'P')
		return refuse(reader, "\\p, which is not supported,");
	if ((next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z') || next == '0')
		return refuse(reader, "an unknown escape");
	return take_character(reader);
}

static uint32_t characters(struct reader *reader, const struct ranges *ranges)
{
	return reader->regex->json ? expression_json_class(reader->builder, ranges)
				   : expression_class(reader->builder, ranges);
}

static uint32_t read_class(struct reader *reader)
{
	struct ranges ranges = {0};
	struct builder *builder = reader->builder;
	const bool inverted = skip(reader, "^");
	while (!failed(reader) && !skip(reader, "]")) {
		if (peek(reader, 0) < 0) {
			refuse(reader, "no end of [");
		} else if (peek(reader, 0) == '\\' && peek(reader, 1) > 0 &&
			   add_named(builder, peek(reader, 1), &ranges)) {
			reader->at += 2;
		} else if (peek(reader, 0) == '\\' && peek(reader, 1) == 'b') {
			reader->at += 2;
			span_list_add(builder, &ranges, 8, 8);
		} else {
			const uint32_t low = skip(reader, "\\") ? take_escape(reader) : take_character(reader);
			uint32_t high = low;
			const bool named = peek(reader, 1) == '\\' && peek(reader, 2) > 0 &&
					   strchr("dwsDWS", peek(reader, 2));
			if (peek(reader, 0) == '-' && peek(reader, 1) != ']' && peek(reader, 1) >= 0 && !named) {
				reader->at++;
				high = skip(reader, "\\") ? take_escape(reader) : take_character(reader);
			}
			if (high < low)
				refuse(reader, "a range whose end is before its start");
			span_list_add(builder, &ranges, low, high);
		}
	}
	span_list_settle(&ranges);
	if (inverted)
		span_list_invert(builder, &ranges);
	const uint32_t out = characters(reader, &ranges);
	span_list_finish(&ranges);
	return out;
}

static uint32_t one_character(struct reader *reader, uint32_t character)
{
	struct range range = {character, character};
	return characters(reader, &(struct ranges){.items = &range, .count = 1});
}

// ---- the rest ----

static uint32_t read_choice(struct reader *reader, bool whole);

static uint32_t read_group(struct reader *reader)
{
	if (peek(reader, 0) == '?') {
		const int kind = peek(reader, 1), after = peek(reader, 2);
		if (kind == '=' || kind == '!' || (kind == '<' && (after == '=' || after == '!')))
			return refuse(reader, "a lookaround, which is not supported,");
		if (kind == '<' || (kind == 'P' && after == '<')) {
			while (peek(reader, 0) >= 0 && peek(reader, 0) != '>')
				reader->at++;
			reader->at += peek(reader, 0) == '>';
		} else if (!skip(reader, "?:")) {
			return refuse(reader, "an unknown kind of group");
		}
	}
	if (++reader->depth > EXPRESSION_NESTING)
		return refuse(reader, "groups that are nested too deeply");
	const uint32_t out = read_choice(reader, false);
	reader->depth--;
	return failed(reader) || skip(reader, ")") ? out : refuse(reader, "no end of (");
}

static uint32_t read_dot(struct reader *reader)
{
	struct ranges ranges = {0};
	span_list_add(reader->builder, &ranges, '\n', '\n');
	span_list_add(reader->builder, &ranges, '\r', '\r');
	span_list_add(reader->builder, &ranges, 0x2028, 0x2029);
	span_list_settle(&ranges);
	span_list_invert(reader->builder, &ranges);
	const uint32_t out = characters(reader, &ranges);
	span_list_finish(&ranges);
	return out;
}

static uint32_t read_backslash(struct reader *reader)
{
	struct ranges ranges = {0};
	if (peek(reader, 0) > 0 && add_named(reader->builder, peek(reader, 0), &ranges)) {
		reader->at++;
		span_list_settle(&ranges);
		const uint32_t out = characters(reader, &ranges);
		span_list_finish(&ranges);
		return out;
	}
	return one_character(reader, take_escape(reader));
}

static uint32_t read_atom(struct reader *reader)
{
	const int next = peek(reader, 0);
	if (next == '*' || next == '+' || next == '?')
		return refuse(reader, "nothing to repeat");
	if (next == '^' || next == '$')
		return refuse(reader, "^ or $ other than at the beginning and the end, which is not supported,");
	if (skip(reader, "("))
		return read_group(reader);
	if (skip(reader, "["))
		return read_class(reader);
	if (skip(reader, "."))
		return read_dot(reader);
	if (skip(reader, "\\"))
		return read_backslash(reader);
	return one_character(reader, take_character(reader));
}

static bool take_number(struct reader *reader, uint32_t *out)
{
	uint64_t value = 0;
	const size_t first = reader->at;
	for (; peek(reader, 0) >= '0' && peek(reader, 0) <= '9'; reader->at++)
		value = value > REPEAT_MOST ? value : value * 10 + (uint64_t)(peek(reader, 0) - '0');
	*out = value > REPEAT_MOST ? REPEAT_MOST + 1 : (uint32_t)value;
	return reader->at > first;
}

// Read {n}, {n,} or {n,m}. False, with nothing consumed, for anything else: then the brace is a character.
static bool take_counts(struct reader *reader, uint32_t *least, uint32_t *most)
{
	const size_t first = reader->at;
	bool good = skip(reader, "{") && take_number(reader, least);
	*most = *least;
	if (good && skip(reader, ",") && !take_number(reader, most))
		*most = EXPRESSION_ENDLESS;
	if (good && skip(reader, "}"))
		return true;
	reader->at = first;
	return false;
}

static uint32_t read_repeated(struct reader *reader)
{
	uint32_t least = 0, most = EXPRESSION_ENDLESS;
	const uint32_t what = read_atom(reader);
	if (skip(reader, "+"))
		least = 1;
	else if (skip(reader, "?"))
		most = 1;
	else if (!skip(reader, "*") && !(peek(reader, 0) == '{' && take_counts(reader, &least, &most)))
		return what;
	skip(reader, "?"); // lazy
	if (least > REPEAT_MOST || (most > REPEAT_MOST && most != EXPRESSION_ENDLESS))
		return refuse(reader, "something repeated too often");
	if (most < least)
		return refuse(reader, "counts in the wrong order");
	return expression_repeat(reader->builder, what, least, most);
}

static uint32_t anything(struct reader *reader)
{
	struct range all = {1, LAST_CHARACTER};
	if (!reader->anything)
		reader->anything = expression_repeat(reader->builder,
						     characters(reader, &(struct ranges){.items = &all, .count = 1}), 0,
						     EXPRESSION_ENDLESS);
	return reader->anything;
}

static uint32_t read_sequence(struct reader *reader, bool whole)
{
	struct list kids = {0};
	struct builder *builder = reader->builder;
	const bool open = whole && reader->regex->search;
	bool ended = false;
	if (!(whole && skip(reader, "^")) && open)
		list_add(builder, &kids, anything(reader));
	while (!failed(reader) && peek(reader, 0) >= 0 && peek(reader, 0) != '|' && peek(reader, 0) != ')' && !ended) {
		ended = whole && peek(reader, 0) == '$' && (peek(reader, 1) < 0 || peek(reader, 1) == '|');
		if (ended)
			reader->at++;
		else
			list_add(builder, &kids, read_repeated(reader));
	}
	if (open && !ended)
		list_add(builder, &kids, anything(reader));
	const uint32_t out = expression_sequence(builder, &kids);
	list_finish(&kids);
	return out;
}

static uint32_t read_choice(struct reader *reader, bool whole)
{
	struct list kids = {0};
	do
		list_add(reader->builder, &kids, read_sequence(reader, whole));
	while (!failed(reader) && skip(reader, "|"));
	const uint32_t out = expression_choice(reader->builder, &kids);
	list_finish(&kids);
	return out;
}

uint32_t regex_read(struct builder *builder, const struct regex *regex)
{
	struct reader reader = {.builder = builder, .regex = regex};
	const uint32_t out = read_choice(&reader, true);
	if (!failed(&reader) && reader.at < regex->length)
		refuse(&reader, "a ) without a (");
	return out;
}

// ---- characters in JSON strings ----

uint32_t expression_json_class(struct builder *builder, const struct ranges *ranges)
{
	static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
	struct ranges plain = {0};
	struct list choices = {0};
	char text[8];
	for (size_t i = 0; i < ranges->count; i++) {
		const struct range range = ranges->items[i];
		uint32_t low = range.low;
		for (uint32_t at = range.low; at <= range.high && at <= '\\'; at++) {
			if (at >= 0x20 && at != '"' && at != '\\')
				continue;
			const char *name = strchr(names, (int)at);
			if (at > low && low >= 0x20)
				span_list_add(builder, &plain, low, at - 1);
			low = at + 1;
			if (name && at)
				snprintf(text, sizeof(text), "\\%c", letters[name - names]);
			else
				snprintf(text, sizeof(text), "\\u%04x", (unsigned)at);
			list_add(builder, &choices, expression_text(builder, text));
		}
		if (low <= range.high)
			span_list_add(builder, &plain, low, range.high);
	}
	span_list_settle(&plain);
	list_add(builder, &choices, expression_class(builder, &plain));
	const uint32_t out = expression_choice(builder, &choices);
	span_list_finish(&plain);
	list_finish(&choices);
	return out;
}
