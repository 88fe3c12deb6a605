/* See scan.h. */
#include "engine/dialogue/scan.h"

#include <string.h>

enum {
	BEGIN,      // the object itself
	KEY_OR_END, // behind {
	KEY,        // behind , in an object
	COLON,
	VALUE,
	VALUE_OR_END, // behind [
	AFTER,        // behind a value
	STRING,
	ESCAPE,
	HEX,
	WORD,
	MINUS, // inside a number; named by its last character
	ZERO,
	DIGITS,
	POINT,
	FRACTION,
	EXPONENT,
	SIGN,
	POWER,
	OVER,
};

void scan_init(struct scan *scan)
{
	*scan = (struct scan){.state = BEGIN};
}

static bool is_space(uint8_t byte)
{
	return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static bool is_digit(uint8_t byte)
{
	return byte >= '0' && byte <= '9';
}

static bool is_hex(uint8_t byte)
{
	return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

static void tell(struct scan *scan, enum scan_event event)
{
	scan->event = event;
	scan->at = scan->depth;
}

static enum scan_verdict go(struct scan *scan, uint8_t state)
{
	scan->state = state;
	return SCAN_MORE;
}

static enum scan_verdict open(struct scan *scan, bool object)
{
	if (scan->depth == SCAN_DEPTH)
		return SCAN_BAD;
	scan->objects = (scan->objects & ~(1ull << scan->depth)) | ((uint64_t)object << scan->depth);
	scan->depth++;
	return go(scan, object ? KEY_OR_END : VALUE_OR_END);
}

static enum scan_verdict close(struct scan *scan, bool object)
{
	const bool is_object = scan->objects >> (scan->depth - 1) & 1;
	if (object != is_object)
		return SCAN_BAD;
	scan->depth--;
	tell(scan, SCAN_VALUE_END);
	scan->state = scan->depth ? AFTER : OVER;
	return scan->depth ? SCAN_MORE : SCAN_DONE;
}

static enum scan_verdict begin_text(struct scan *scan, bool key)
{
	scan->key = key;
	tell(scan, key ? SCAN_KEY_BEGIN : SCAN_VALUE_BEGIN);
	return go(scan, STRING);
}

static enum scan_verdict begin_value(struct scan *scan, uint8_t byte)
{
	static const char *const words[] = {"true", "false", "null"};
	if (byte == '"')
		return begin_text(scan, false);
	tell(scan, SCAN_VALUE_BEGIN);
	if (byte == '{' || byte == '[')
		return open(scan, byte == '{');
	if (byte == '-' || is_digit(byte))
		return go(scan, byte == '-' ? MINUS : byte == '0' ? ZERO : DIGITS);
	for (unsigned i = 0; i < 3; i++)
		if (byte == (uint8_t)words[i][0]) {
			scan->word = words[i] + 1;
			return go(scan, WORD);
		}
	return SCAN_BAD;
}

static enum scan_verdict after_value(struct scan *scan, uint8_t byte)
{
	const bool object = scan->objects >> (scan->depth - 1) & 1;
	if (is_space(byte))
		return go(scan, AFTER);
	if (byte == ',')
		return go(scan, object ? KEY : VALUE);
	return byte == '}' || byte == ']' ? close(scan, byte == '}') : SCAN_BAD;
}

static enum scan_verdict in_text(struct scan *scan, uint8_t byte)
{
	if (byte < 0x20)
		return SCAN_BAD;
	if (byte == '\\')
		return go(scan, ESCAPE);
	if (byte != '"')
		return SCAN_MORE;
	tell(scan, scan->key ? SCAN_KEY_END : SCAN_VALUE_END);
	return go(scan, scan->key ? COLON : AFTER);
}

static enum scan_verdict in_escape(struct scan *scan, uint8_t byte)
{
	if (scan->state == HEX)
		return !is_hex(byte) ? SCAN_BAD : go(scan, --scan->hex ? HEX : STRING);
	scan->hex = 4;
	if (byte == 'u')
		return go(scan, HEX);
	return byte && strchr("\"\\/bfnrt", byte) ? go(scan, STRING) : SCAN_BAD;
}

static enum scan_verdict in_number(struct scan *scan, uint8_t byte)
{
	const uint8_t state = scan->state;
	if (is_digit(byte)) {
		if (state == MINUS)
			return go(scan, byte == '0' ? ZERO : DIGITS);
		if (state == ZERO)
			return SCAN_BAD;
		if (state == POINT)
			return go(scan, FRACTION);
		return go(scan, state == EXPONENT || state == SIGN ? POWER : state);
	}
	if (byte == '.' && (state == ZERO || state == DIGITS))
		return go(scan, POINT);
	if ((byte == 'e' || byte == 'E') && (state == ZERO || state == DIGITS || state == FRACTION))
		return go(scan, EXPONENT);
	if ((byte == '+' || byte == '-') && state == EXPONENT)
		return go(scan, SIGN);
	const bool whole = state == ZERO || state == DIGITS || state == FRACTION || state == POWER;
	return whole ? after_value(scan, byte) : SCAN_BAD;
}

static enum scan_verdict in_word(struct scan *scan, uint8_t byte)
{
	if (byte != (uint8_t)*scan->word)
		return SCAN_BAD;
	return go(scan, *++scan->word ? WORD : AFTER);
}

enum scan_verdict scan_byte(struct scan *scan, uint8_t byte)
{
	scan->event = SCAN_NOTHING;
	switch (scan->state) {
	case BEGIN:
		tell(scan, SCAN_VALUE_BEGIN);
		return byte == '{' ? open(scan, true) : is_space(byte) ? SCAN_MORE : SCAN_BAD;
	case KEY_OR_END:
	case KEY:
		if (byte == '"')
			return begin_text(scan, true);
		if (byte == '}' && scan->state == KEY_OR_END)
			return close(scan, true);
		return is_space(byte) ? SCAN_MORE : SCAN_BAD;
	case COLON:
		return byte == ':' ? go(scan, VALUE) : is_space(byte) ? SCAN_MORE : SCAN_BAD;
	case VALUE_OR_END:
		if (byte == ']')
			return close(scan, false);
		return is_space(byte) ? SCAN_MORE : begin_value(scan, byte);
	case VALUE:
		return is_space(byte) ? SCAN_MORE : begin_value(scan, byte);
	case AFTER:
		return after_value(scan, byte);
	case STRING:
		return in_text(scan, byte);
	case ESCAPE:
	case HEX:
		return in_escape(scan, byte);
	case WORD:
		return in_word(scan, byte);
	case OVER:
		return SCAN_BAD;
	default: // numbers
		return in_number(scan, byte);
	}
}
