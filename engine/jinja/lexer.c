/* A template's text as tokens. See inside.h.
 *
 * White space goes as Jinja has it with trim_blocks and lstrip_blocks: a line's end behind a block or a comment is left
 * out, and so is what stands before one in its line; "-" takes all white space on its side, "+" leaves it. */
#include "common/text/unicode.h"
#include "engine/jinja/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BRACKETS = 256 };

struct lexer {
	struct work *work;
	struct text text;
	size_t at;
	struct token *tokens;
	size_t count, capacity;
	bool line_begins; // the next character is at the beginning of a line
	char open[BRACKETS];
	unsigned depth;
};

static bool begins(const struct lexer *lexer, size_t at, const char *what)
{
	const size_t length = strlen(what);
	return lexer->text.length - at >= length && !memcmp(lexer->text.bytes + at, what, length);
}

static char byte(const struct lexer *lexer, size_t at)
{
	return at < lexer->text.length ? lexer->text.bytes[at] : 0;
}

static struct token *add(struct lexer *lexer, enum symbol symbol, struct text text)
{
	if (lexer->count == lexer->capacity) {
		const size_t capacity = lexer->capacity ? lexer->capacity * 2 : 256;
		struct token *tokens = work_take_list(lexer->work, capacity, sizeof *tokens);
		if (lexer->count)
			memcpy(tokens, lexer->tokens, lexer->count * sizeof *tokens);
		lexer->tokens = tokens;
		lexer->capacity = capacity;
	}
	struct token *token = &lexer->tokens[lexer->count++];
	*token = (struct token){.symbol = symbol, .line = lexer->work->line, .text = text};
	return token;
}

// Pass by what lies before the place, and count its lines.
static void pass(struct lexer *lexer, size_t to)
{
	for (; lexer->at < to; lexer->at++)
		lexer->work->line += lexer->text.bytes[lexer->at] == '\n';
}

static size_t behind_space(const struct lexer *lexer, size_t at)
{
	unsigned bytes;
	while (at < lexer->text.length && is_space(utf8_first(lexer->text.bytes + at, &bytes)))
		at += bytes;
	return at;
}

// Add the template's text up to a tag. `sign` is the sign in the tag; `strips`: lstrip_blocks applies to it.
static void add_data(struct lexer *lexer, size_t to, char sign, bool strips)
{
	struct text data = text_part(lexer->text, lexer->at, to);
	if (sign == '-') {
		data = text_trim(data, TRIM_RIGHT, NULL);
	} else if (sign != '+' && strips) {
		const char *line = data.length ? memrchr(data.bytes, '\n', data.length) : NULL;
		const size_t from = line ? (size_t)(line - data.bytes) + 1 : 0;
		if ((line || lexer->line_begins) &&
		    !text_trim(text_part(data, from, data.length), TRIM_LEFT, NULL).length)
			data = text_part(data, 0, from);
	}
	if (data.length)
		add(lexer, SYMBOL_DATA, data);
	pass(lexer, to);
}

// Continue after a tag's end, which begins at `at` (as "%}", after its sign), and skip the white space that it removes.
static void end_tag(struct lexer *lexer, size_t at, char sign, bool trims)
{
	size_t end = at + 2;
	if (sign == '-')
		end = behind_space(lexer, end);
	else if (sign != '+' && trims && byte(lexer, end) == '\n')
		end++;
	pass(lexer, end);
	lexer->line_begins = end && lexer->text.bytes[end - 1] == '\n';
}

static void read_comment(struct lexer *lexer, size_t at)
{
	size_t end = at;
	while (end < lexer->text.length && !begins(lexer, end, "#}"))
		end++;
	if (end >= lexer->text.length)
		work_fail(lexer->work, STATUS_INVALID_PARAMS, "a comment that does not end");
	const char sign = end > at ? lexer->text.bytes[end - 1] : 0;
	pass(lexer, end);
	end_tag(lexer, end, sign == '-' || sign == '+' ? sign : 0, true);
}

// Whether a tag of this one word ("raw", "endraw") stands at the place, and where it ends: at its "%}".
static bool is_tag(const struct lexer *lexer, size_t at, const char *word, size_t *end, char *sign)
{
	if (!begins(lexer, at, "{%"))
		return false;
	at += 2;
	at += byte(lexer, at) == '-' || byte(lexer, at) == '+';
	at = behind_space(lexer, at);
	if (!begins(lexer, at, word))
		return false;
	at = behind_space(lexer, at + strlen(word));
	*sign = byte(lexer, at);
	if (*sign == '-' || *sign == '+')
		at++;
	else
		*sign = 0;
	*end = at;
	return begins(lexer, at, "%}");
}

static char sign_of(const struct lexer *lexer, size_t at)
{
	const char sign = byte(lexer, at);
	return sign == '-' || sign == '+' ? sign : 0;
}

static void read_raw(struct lexer *lexer, size_t end, char sign)
{
	size_t at;
	end_tag(lexer, end, sign, false);
	for (at = lexer->at; at < lexer->text.length; at++)
		if (is_tag(lexer, at, "endraw", &end, &sign))
			break;
	if (at >= lexer->text.length)
		work_fail(lexer->work, STATUS_INVALID_PARAMS, "a raw block that does not end");
	add_data(lexer, at, sign_of(lexer, at + 2), true);
	end_tag(lexer, end, sign, true);
}

// ---- inside of tags ----

static uint32_t read_hex(struct lexer *lexer, size_t at, unsigned digits)
{
	uint32_t value = 0;
	for (unsigned i = 0; i < digits; i++) {
		const char digit = byte(lexer, at + i);
		const char *place = digit ? strchr("0123456789abcdefABCDEF", digit) : NULL;
		if (!place)
			work_fail(lexer->work, STATUS_INVALID_PARAMS, "an escape that is cut off");
		const uint32_t number = (uint32_t)(place - "0123456789abcdefABCDEF");
		value = value * 16 + (number > 15 ? number - 6 : number);
	}
	return value;
}

// Read an escape after its backslash; returns the position after it.
static size_t read_escape(struct lexer *lexer, struct builder *out, size_t at)
{
	static const char simple[] = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
	static const char sized[] = "x\2u\4U\10";
	const char escape = byte(lexer, at);
	for (const char *one = simple; *one; one += 2)
		if (*one == escape) {
			builder_bytes(out, one + 1, 1, ORIGIN_OWN);
			return at + 1;
		}
	for (const char *one = sized; *one; one += 2)
		if (*one == escape) {
			uint32_t character = read_hex(lexer, at + 1, (unsigned)one[1]);
			if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000))
				work_fail(lexer->work, STATUS_INVALID_PARAMS, "an escape of no character");
			builder_character(out, character, ORIGIN_OWN);
			return at + 1 + (size_t)one[1];
		}
	if (escape >= '0' && escape <= '7') {
		uint32_t character = 0;
		const size_t end = at + 3;
		for (; at < end && byte(lexer, at) >= '0' && byte(lexer, at) <= '7'; at++)
			character = character * 8 + (uint32_t)(byte(lexer, at) - '0');
		builder_character(out, character, ORIGIN_OWN);
		return at;
	}
	if (escape == '\n') // the text goes on in the next line
		return at + 1;
	builder_own(out, "\\");
	return at;
}

static void read_quoted(struct lexer *lexer)
{
	struct builder out = {.work = lexer->work};
	const char quote = lexer->text.bytes[lexer->at];
	size_t at = lexer->at + 1, from = at;
	while (at < lexer->text.length && lexer->text.bytes[at] != quote) {
		if (lexer->text.bytes[at] != '\\') {
			at++;
			continue;
		}
		builder_bytes(&out, lexer->text.bytes + from, at - from, ORIGIN_OWN);
		if (at + 1 >= lexer->text.length)
			break;
		from = at = read_escape(lexer, &out, at + 1);
	}
	if (at >= lexer->text.length)
		work_fail(lexer->work, STATUS_INVALID_PARAMS, "a text in quotes that does not end");
	builder_bytes(&out, lexer->text.bytes + from, at - from, ORIGIN_OWN);
	add(lexer, SYMBOL_TEXT, builder_end(&out));
	pass(lexer, at + 1);
}

static bool is_digit(char character)
{
	return character >= '0' && character <= '9';
}

static void read_number(struct lexer *lexer)
{
	char digits[64];
	size_t at = lexer->at, count = 0;
	bool real = false;
	int base = 10;
	if (byte(lexer, at) == '0' && byte(lexer, at + 1) && strchr("xXoObB", byte(lexer, at + 1))) {
		base = strchr("xX", byte(lexer, at + 1)) ? 16 : strchr("oO", byte(lexer, at + 1)) ? 8 : 2;
		at += 2;
	}
	for (; at < lexer->text.length && count + 1 < sizeof digits; at++) {
		const char one = lexer->text.bytes[at], next = byte(lexer, at + 1);
		const bool digit = is_digit(one) || (base == 16 && one && strchr("abcdefABCDEF", one));
		if (one == '_' && (is_digit(next) || base == 16))
			continue;
		const bool point = base == 10 && !real && one == '.' && is_digit(next);
		const bool exponent = base == 10 && (one == 'e' || one == 'E') &&
				      (is_digit(next) ||
				       ((next == '-' || next == '+') && is_digit(byte(lexer, at + 2))));
		if (!digit && !point && !exponent)
			break;
		real = real || point || exponent;
		digits[count++] = one;
		if (exponent)
			digits[count < sizeof digits - 1 ? count++ : count] = lexer->text.bytes[++at];
	}
	digits[count] = 0;
	struct token *token = add(lexer, real ? SYMBOL_FLOAT : SYMBOL_INTEGER, text_part(lexer->text, lexer->at, at));
	errno = 0;
	if (real)
		token->number = strtod(digits, NULL);
	else
		token->integer = strtoll(digits, NULL, base);
	if (!count || (errno && !real))
		work_fail(lexer->work, STATUS_INVALID_PARAMS, "a number that is too large");
	pass(lexer, at);
}

static bool is_word(char character)
{
	return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') || character == '_' ||
	       is_digit(character) || (uint8_t)character >= 0x80;
}

static void read_operator(struct lexer *lexer)
{
	static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
						"]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
	for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
		if (!begins(lexer, lexer->at, operators[i]))
			continue;
		const char one = operators[i][0];
		if (strchr("([{", one)) {
			if (lexer->depth == BRACKETS)
				work_fail(lexer->work, STATUS_LIMIT_EXCEEDED, "it is nested too deeply");
			lexer->open[lexer->depth++] = one == '(' ? ')' : one == '[' ? ']' : '}';
		} else if (strchr(")]}", one) && (!lexer->depth || lexer->open[--lexer->depth] != one)) {
			work_fail(lexer->work, STATUS_INVALID_PARAMS, "unexpected '%c'", one);
		}
		add(lexer, SYMBOL_OPERATOR, text_of(operators[i]));
		pass(lexer, lexer->at + strlen(operators[i]));
		return;
	}
	work_fail(lexer->work, STATUS_INVALID_PARAMS, "unexpected character '%.1s'", lexer->text.bytes + lexer->at);
}

// Up to the end of the tag.
static void read_tag(struct lexer *lexer, bool block)
{
	const char *const close = block ? "%}" : "}}";
	lexer->depth = 0;
	for (;;) {
		pass(lexer, behind_space(lexer, lexer->at));
		const size_t at = lexer->at;
		if (at >= lexer->text.length)
			work_fail(lexer->work, STATUS_INVALID_PARAMS, "a tag that does not end");
		const char one = lexer->text.bytes[at];
		const bool sign = (one == '-' || (one == '+' && block)) && begins(lexer, at + 1, close);
		if (!lexer->depth && (sign || begins(lexer, at, close))) {
			add(lexer, block ? SYMBOL_BLOCK_END : SYMBOL_OUTPUT_END, text_part(lexer->text, at, at));
			end_tag(lexer, at + sign, sign ? one : 0, block);
			return;
		}
		if (one == '\'' || one == '"') {
			read_quoted(lexer);
		} else if (is_digit(one)) {
			read_number(lexer);
		} else if (is_word(one)) {
			size_t end = at;
			while (is_word(byte(lexer, end)))
				end++;
			add(lexer, SYMBOL_NAME, text_part(lexer->text, at, end));
			pass(lexer, end);
		} else {
			read_operator(lexer);
		}
	}
}

// Ends of lines are "\n", and the last is left out.
static struct text take_lines(struct work *work, const char *text, size_t length)
{
	char *bytes = work_take(work, length + 1);
	size_t count = 0;
	for (size_t i = 0; i < length; i++) {
		bytes[count++] = text[i] == '\r' ? '\n' : text[i];
		i += text[i] == '\r' && i + 1 < length && text[i + 1] == '\n';
	}
	count -= count && bytes[count - 1] == '\n';
	bytes[count] = 0;
	return (struct text){.bytes = bytes, .length = (uint32_t)count};
}

struct token *lexer_read(struct work *work, const char *text, size_t length)
{
	struct lexer lexer = {.work = work, .text = take_lines(work, text, length), .line_begins = true};
	work->line = 1;
	while (lexer.at < lexer.text.length) {
		size_t tag = lexer.at, end;
		char raw;
		while (tag < lexer.text.length && !begins(&lexer, tag, "{{") && !begins(&lexer, tag, "{%") &&
		       !begins(&lexer, tag, "{#"))
			tag++;
		if (tag == lexer.text.length) {
			add_data(&lexer, tag, 0, false);
			break;
		}
		const char kind = lexer.text.bytes[tag + 1], sign = sign_of(&lexer, tag + 2);
		add_data(&lexer, tag, sign, kind != '{');
		if (kind == '%' && is_tag(&lexer, tag, "raw", &end, &raw)) {
			pass(&lexer, end);
			read_raw(&lexer, end, raw);
			continue;
		}
		pass(&lexer, tag + 2 + (sign != 0));
		if (kind == '#') {
			read_comment(&lexer, lexer.at);
			continue;
		}
		add(&lexer, kind == '%' ? SYMBOL_BLOCK : SYMBOL_OUTPUT, text_part(lexer.text, tag, tag));
		read_tag(&lexer, kind == '%');
	}
	add(&lexer, SYMBOL_END, text_of(""));
	return lexer.tokens;
}
