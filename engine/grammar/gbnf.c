/* See gbnf.h. By recursive descent, EXPRESSION_NESTING deep. */
#include "engine/grammar/gbnf.h"

#include "common/text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { NAMES = 1 << 16, RULES_MOST = NAMES / 4, REPEAT_MOST = 100000 };

struct reader {
	struct builder *builder;
	const char *text; // (length)
	size_t length, at;
	unsigned depth;
	uint32_t *names; // (NAMES): rules + 1, by their names
};

static bool failed(const struct reader *reader)
{
	return reader->builder->status;
}

static uint32_t refuse(struct reader *reader, const char *what)
{
	size_t line = 1;
	for (size_t i = 0; i < reader->at && i < reader->length; i++)
		line += reader->text[i] == '\n';
	builder_fail(reader->builder, STATUS_INVALID_PARAMS, "line %zu of the grammar has %s", line, what);
	return 0;
}

static int peek(const struct reader *reader, size_t ahead)
{
	return reader->at + ahead < reader->length ? (unsigned char)reader->text[reader->at + ahead] : -1;
}

static bool skip(struct reader *reader, const char *text)
{
	const size_t length = strlen(text);
	if (reader->length - reader->at < length || memcmp(reader->text + reader->at, text, length) != 0)
		return false;
	reader->at += length;
	return true;
}

static void skip_blanks(struct reader *reader, bool lines)
{
	for (int next; (next = peek(reader, 0)) >= 0;) {
		if (next == '#')
			while (peek(reader, 0) >= 0 && peek(reader, 0) != '\n')
				reader->at++;
		else if (next == ' ' || next == '\t' || next == '\r' || (next == '\n' && lines))
			reader->at++;
		else
			break;
	}
}

static bool is_name(int byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
	       byte == '-' || byte == '_';
}

// The rule whose name stands here, which is passed.
static uint32_t take_name(struct reader *reader)
{
	const char *name = reader->text + reader->at;
	size_t length = 0;
	uint32_t hash = 2166136261u, number;
	for (; is_name(peek(reader, 0)); reader->at++, length++)
		hash = (hash ^ (uint8_t)name[length]) * 16777619u;
	for (; (number = reader->names[hash % NAMES]); hash++) {
		const char *known = builder_name(reader->builder, number - 1);
		if (strlen(known) == length && !memcmp(known, name, length))
			return number - 1;
	}
	if (reader->builder->rule_count >= RULES_MOST)
		return refuse(reader, "too many rules");
	const uint32_t rule = builder_rule(reader->builder, name, length);
	reader->names[hash % NAMES] = rule + 1;
	return rule;
}

// ---- characters ----

static uint32_t take_hex(struct reader *reader, unsigned digits)
{
	uint32_t value = 0;
	for (unsigned i = 0; i < digits; i++) {
		const int one = peek(reader, i);
		const int digit = one >= '0' && one <= '9'                 ? one - '0'
				  : (one | 32) >= 'a' && (one | 32) <= 'f' ? (one | 32) - 'a' + 10
									   : -1;
		if (digit < 0)
			return refuse(reader, "an escape with too few digits");
		value = value << 4 | (uint32_t)digit;
	}
	reader->at += digits;
	if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
		return refuse(reader, "an escape that is not a character");
	return value;
}

static uint32_t take_character(struct reader *reader)
{
	unsigned bytes = 1;
	if (skip(reader, "\\")) {
		const int next = peek(reader, 0);
		reader->at += next >= 0;
		switch (next) {
		case 'n':
			return '\n';
		case 'r':
			return '\r';
		case 't':
			return '\t';
		case 'x':
			return take_hex(reader, 2);
		case 'u':
			return take_hex(reader, 4);
		case 'U':
			return take_hex(reader, 8);
		case '"':
		case '\\':
		case '[':
		case ']':
		case '-':
		case '^':
			return (uint32_t)next;
		default:
			return refuse(reader, "an unknown escape");
		}
	}
	const uint32_t character = utf8_first(reader->text + reader->at, &bytes);
	reader->at += bytes;
	return character;
}

static uint32_t read_text(struct reader *reader)
{
	struct list kids = {0};
	while (!failed(reader) && !skip(reader, "\"")) {
		uint8_t bytes[4];
		if (peek(reader, 0) < 0 || peek(reader, 0) == '\n') {
			refuse(reader, "a text without an end");
			break;
		}
		const uint32_t character = take_character(reader);
		const unsigned count = utf8_write(character, bytes);
		if (!character)
			refuse(reader, "U+0000, which no answer may contain");
		if (!failed(reader))
			list_add(reader->builder, &kids, expression_bytes(reader->builder, bytes, count));
	}
	const uint32_t out = expression_sequence(reader->builder, &kids);
	list_finish(&kids);
	return out;
}

static uint32_t read_class(struct reader *reader)
{
	struct ranges ranges = {0};
	const bool inverted = skip(reader, "^");
	while (!failed(reader) && !skip(reader, "]")) {
		if (peek(reader, 0) < 0) {
			refuse(reader, "a [ without an end");
			break;
		}
		const uint32_t low = take_character(reader);
		uint32_t high = low;
		if (peek(reader, 0) == '-' && peek(reader, 1) != ']' && peek(reader, 1) >= 0) {
			reader->at++;
			high = take_character(reader);
		}
		if (high < low)
			refuse(reader, "a range whose end is before its start");
		span_list_add(reader->builder, &ranges, low, high);
	}
	span_list_settle(&ranges);
	if (inverted)
		span_list_invert(reader->builder, &ranges);
	const uint32_t out = expression_class(reader->builder, &ranges);
	span_list_finish(&ranges);
	return out;
}

// ---- rules ----

static uint32_t read_choice(struct reader *reader);

static uint32_t read_atom(struct reader *reader)
{
	if (skip(reader, "\""))
		return read_text(reader);
	if (skip(reader, "["))
		return read_class(reader);
	if (skip(reader, "."))
		return expression_span(reader->builder, 1, 0x10FFFF);
	if (skip(reader, "(")) {
		if (++reader->depth > EXPRESSION_NESTING)
			return refuse(reader, "groups that are nested too deeply");
		const uint32_t out = read_choice(reader);
		reader->depth--;
		skip_blanks(reader, true);
		return failed(reader) || skip(reader, ")") ? out : refuse(reader, "a ( without an end");
	}
	if (is_name(peek(reader, 0)))
		return expression_rule(reader->builder, take_name(reader));
	return refuse(reader, "an unknown symbol");
}

static bool take_number(struct reader *reader, uint32_t *out)
{
	const size_t first = reader->at;
	for (*out = 0; peek(reader, 0) >= '0' && peek(reader, 0) <= '9'; reader->at++)
		*out = *out > REPEAT_MOST ? *out : *out * 10 + (uint32_t)(peek(reader, 0) - '0');
	return reader->at > first;
}

static uint32_t read_counts(struct reader *reader, uint32_t what)
{
	uint32_t least = 0, most;
	skip_blanks(reader, false);
	const bool some = take_number(reader, &least);
	skip_blanks(reader, false);
	most = least;
	const bool comma = skip(reader, ",");
	skip_blanks(reader, false);
	if (comma && !take_number(reader, &most))
		most = EXPRESSION_ENDLESS;
	skip_blanks(reader, false);
	if ((!some && !comma) || !skip(reader, "}"))
		return refuse(reader, "unreadable counts in braces");
	if (most < least || least > REPEAT_MOST || (most > REPEAT_MOST && most != EXPRESSION_ENDLESS))
		return refuse(reader, "impossible counts in braces");
	return expression_repeat(reader->builder, what, least, most);
}

static uint32_t read_repeated(struct reader *reader)
{
	const uint32_t what = read_atom(reader);
	skip_blanks(reader, reader->depth > 0);
	if (skip(reader, "*"))
		return expression_repeat(reader->builder, what, 0, EXPRESSION_ENDLESS);
	if (skip(reader, "+"))
		return expression_repeat(reader->builder, what, 1, EXPRESSION_ENDLESS);
	if (skip(reader, "?"))
		return expression_repeat(reader->builder, what, 0, 1);
	return skip(reader, "{") ? read_counts(reader, what) : what;
}

static uint32_t read_choice(struct reader *reader)
{
	struct list choices = {0}, kids = {0};
	bool more = true;
	skip_blanks(reader, true);
	while (more && !failed(reader)) {
		const int next = peek(reader, 0);
		more = next >= 0 && next != '\n' && next != ')';
		if (more && next != '|') {
			list_add(reader->builder, &kids, read_repeated(reader));
			skip_blanks(reader, reader->depth > 0);
			continue;
		}
		list_add(reader->builder, &choices, expression_sequence(reader->builder, &kids));
		kids.count = 0;
		if (skip(reader, "|"))
			skip_blanks(reader, true);
	}
	const uint32_t out = expression_choice(reader->builder, &choices);
	list_finish(&choices);
	list_finish(&kids);
	return out;
}

static void read_rule(struct reader *reader)
{
	if (!is_name(peek(reader, 0))) {
		refuse(reader, "no rule name where one is expected");
		return;
	}
	const uint32_t rule = take_name(reader);
	skip_blanks(reader, false);
	if (!failed(reader) && reader->builder->rules[rule].defined)
		refuse(reader, "a rule that is already defined");
	if (!failed(reader) && !skip(reader, "::="))
		refuse(reader, "no ::= after the name of a rule");
	if (failed(reader))
		return;
	builder_define(reader->builder, rule, read_choice(reader));
	if (!failed(reader) && peek(reader, 0) >= 0 && !skip(reader, "\n"))
		refuse(reader, "a ) without a (");
}

uint32_t gbnf_read(struct builder *builder, const char *text, size_t length)
{
	struct reader reader = {.builder = builder, .text = text, .length = length};
	reader.names = calloc(NAMES, sizeof(uint32_t));
	if (!reader.names) {
		builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
		return 0;
	}
	skip_blanks(&reader, true);
	while (!failed(&reader) && reader.at < length) {
		read_rule(&reader);
		skip_blanks(&reader, true);
	}
	struct reader root = {.builder = builder, .text = "root", .length = 4, .names = reader.names};
	const uint32_t out = take_name(&root);
	free(reader.names);
	if (!builder->status && !builder->rules[out].defined)
		builder_fail(builder, STATUS_INVALID_PARAMS, "the grammar has no rule root");
	return out;
}
