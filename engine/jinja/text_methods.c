/* Methods of texts, as Python's str has them. See inside.h. Upper and lower case are known of ASCII, Latin, Greek and
 * Cyrillic; of other letters they change nothing. */
#include "common/text/unicode.h"
#include "engine/jinja/inside.h"
#include "engine/jinja/letters.h"

#include <string.h>

static struct value given(const struct call *call, unsigned at)
{
	return call->at[at] ? *call->at[at] : value_none();
}

static int64_t integer_or(struct run *run, const struct call *call, unsigned at, int64_t otherwise)
{
	return call->at[at] && call->at[at]->kind != VALUE_NONE ? need_integer(run, *call->at[at]) : otherwise;
}

// ---- upper and lower case ----

// Latin Extended-A: a letter in upper case, then the same in lower case; in some ranges the former are odd.
static bool is_pair(uint32_t one)
{
	return one >= 0x100 && one <= 0x17E && one != 0x130 && one != 0x131 && one != 0x138 && one != 0x149 &&
	       one != 0x178;
}

static bool in_odd_pair(uint32_t one)
{
	return (one >= 0x139 && one <= 0x148) || one >= 0x179;
}

uint32_t letter_upper(uint32_t one)
{
	if ((one >= 'a' && one <= 'z') || (one >= 0xE0 && one <= 0xFE && one != 0xF7) || (one >= 0x3B1 && one <= 0x3C9))
		return one == 0x3C2 ? 0x3A3 : one - 32;
	if (one >= 0x430 && one <= 0x44F)
		return one - 32;
	if (one >= 0x450 && one <= 0x45F)
		return one - 80;
	if (is_pair(one))
		return in_odd_pair(one) ? one - !(one & 1) : one & ~1u;
	return one == 0xFF ? 0x178 : one;
}

uint32_t letter_lower(uint32_t one)
{
	if ((one >= 'A' && one <= 'Z') || (one >= 0xC0 && one <= 0xDE && one != 0xD7) ||
	    (one >= 0x391 && one <= 0x3A9 && one != 0x3A2) || (one >= 0x410 && one <= 0x42F))
		return one + 32;
	if (one >= 0x400 && one <= 0x40F)
		return one + 80;
	if (is_pair(one))
		return in_odd_pair(one) ? one + (one & 1) : one | 1;
	return one == 0x178 ? 0xFF : one;
}

bool is_letter(uint32_t character)
{
	const enum character class = unicode_class(character);
	return class == CHARACTER_UPPER || class == CHARACTER_LOWER || class == CHARACTER_LETTER;
}

static void put_letter(struct builder *out, uint32_t letter, bool upper, uint8_t origin)
{
	if (upper && letter == 0xDF)
		builder_bytes(out, "SS", 2, origin);
	else
		builder_character(out, upper ? letter_upper(letter) : letter_lower(letter), origin);
}

struct text text_case(struct run *run, struct text text, enum letters letters)
{
	struct builder out = {.work = &run->work};
	bool begins = true;
	for (size_t at = 0; at < text.length;) {
		unsigned bytes;
		const uint32_t one = utf8_first(text.bytes + at, &bytes);
		const bool upper = letters == LETTERS_UPPER || (letters != LETTERS_LOWER && begins);
		put_letter(&out, one, upper, text_origin(text, at));
		at += bytes;
		if (letters == LETTERS_TITLE)
			begins = !is_letter(one);
		else if (letters == LETTERS_WORDS)
			begins = is_space(one) || (one < 0x80 && strchr("-({[<", (int)one));
		else
			begins = false;
	}
	return builder_end(&out);
}

static struct value upper(struct run *run, const struct call *call)
{
	return value_text(text_case(run, call->self.text, LETTERS_UPPER));
}

static struct value lower(struct run *run, const struct call *call)
{
	return value_text(text_case(run, call->self.text, LETTERS_LOWER));
}

static struct value title(struct run *run, const struct call *call)
{
	return value_text(text_case(run, call->self.text, LETTERS_TITLE));
}

static struct value capitalize(struct run *run, const struct call *call)
{
	return value_text(text_case(run, call->self.text, LETTERS_FIRST));
}

// ---- cutting ----

static struct value strip_side(struct run *run, const struct call *call, enum trim side)
{
	const bool all = given(call, 0).kind == VALUE_NONE;
	const struct text characters = all ? text_of("") : need_text(run, given(call, 0));
	work_spend(&run->work, call->self.text.length / 8 * (1 + (uint64_t)characters.length));
	return value_text(text_trim(call->self.text, side, all ? NULL : &characters));
}

static struct value strip(struct run *run, const struct call *call)
{
	return strip_side(run, call, TRIM_BOTH);
}

static struct value lstrip(struct run *run, const struct call *call)
{
	return strip_side(run, call, TRIM_LEFT);
}

static struct value rstrip(struct run *run, const struct call *call)
{
	return strip_side(run, call, TRIM_RIGHT);
}

static void add_part(struct run *run, struct value list, struct text text, size_t from, size_t to)
{
	value_list_add(run, list.list, value_text(text_part(text, from, to)));
}

static size_t next_space(struct text text, size_t at, bool space)
{
	unsigned bytes;
	while (at < text.length && is_space(utf8_first(text.bytes + at, &bytes)) != space)
		at += text_step(text, at);
	return at;
}

// Words with white space around them.
static struct value split_words(struct run *run, struct text text, int64_t most)
{
	struct value list = value_list(run, VALUE_LIST, 0);
	work_spend(&run->work, text.length / 4);
	for (size_t at = next_space(text, 0, false); at < text.length;) {
		if (!most--) {
			const struct text rest = text_trim(text_part(text, at, text.length), TRIM_RIGHT, NULL);
			value_list_add(run, list.list, value_text(rest));
			break;
		}
		const size_t end = next_space(text, at, true);
		add_part(run, list, text, at, end);
		at = next_space(text, end, false);
	}
	return list;
}

static struct text need_separator(struct run *run, const struct call *call)
{
	const struct text separator = need_text(run, given(call, 0));
	if (!separator.length)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "empty separator");
	return separator;
}

static struct value split(struct run *run, const struct call *call)
{
	const struct text text = call->self.text;
	int64_t most = integer_or(run, call, 1, -1);
	if (given(call, 0).kind == VALUE_NONE)
		return split_words(run, text, most);
	const struct text separator = need_separator(run, call);
	struct value list = value_list(run, VALUE_LIST, 0);
	size_t at = 0, found;
	while (most-- && (found = text_find(&run->work, text, separator, at)) != SIZE_MAX) {
		add_part(run, list, text, at, found);
		at = found + separator.length;
	}
	add_part(run, list, text, at, text.length);
	return list;
}

static size_t find_last(struct run *run, struct text text, struct text what)
{
	work_spend(&run->work, 1 + text.length / 4);
	for (size_t at = text.length + 1; at-- > 0;)
		if (text.length - at >= what.length && !memcmp(text.bytes + at, what.bytes, what.length))
			return at;
	return SIZE_MAX;
}

static void turn(struct list *list)
{
	for (size_t i = 0; i < list->count / 2; i++) {
		struct value one = list->items[i];
		list->items[i] = list->items[list->count - 1 - i];
		list->items[list->count - 1 - i] = one;
	}
}

static struct value rsplit(struct run *run, const struct call *call)
{
	struct text text = call->self.text;
	int64_t most = integer_or(run, call, 1, -1);
	struct value list = value_list(run, VALUE_LIST, 0);
	size_t found;
	if (given(call, 0).kind == VALUE_NONE) {
		if (most < 0)
			return split_words(run, text, -1);
		for (text = text_trim(text, TRIM_RIGHT, NULL); text.length; text = text_trim(text, TRIM_RIGHT, NULL)) {
			size_t from = text.length;
			unsigned bytes;
			if (!most--) {
				value_list_add(run, list.list, value_text(text));
				break;
			}
			for (size_t at = 0; at < text.length; at += text_step(text, at)) {
				work_spend(&run->work, 1);
				from = is_space(utf8_first(text.bytes + at, &bytes)) ? text.length
				       : from == text.length                         ? at
										     : from;
			}
			add_part(run, list, text, from, text.length);
			text = text_part(text, 0, from);
		}
		turn(list.list);
		return list;
	}
	const struct text separator = need_separator(run, call);
	while (most-- && (found = find_last(run, text, separator)) != SIZE_MAX) {
		add_part(run, list, text, found + separator.length, text.length);
		text = text_part(text, 0, found);
	}
	add_part(run, list, text, 0, text.length);
	turn(list.list);
	return list;
}

static struct value splitlines(struct run *run, const struct call *call)
{
	const bool keep = value_true(run, given(call, 0));
	const struct text text = call->self.text;
	struct value list = value_list(run, VALUE_LIST, 0);
	work_spend(&run->work, text.length / 4);
	for (size_t from = 0, at = 0; at < text.length; from = at) {
		const size_t end = line_end(text, from);
		at = end + line_break(text, end);
		add_part(run, list, text, from, keep ? at : end);
	}
	return list;
}

// The position at which the text of the line ends.
size_t line_end(struct text text, size_t at)
{
	while (at < text.length && !line_break(text, at))
		at += text_step(text, at);
	return at;
}

// How many bytes the end of a line has that stands here; 0: none does.
size_t line_break(struct text text, size_t at)
{
	unsigned bytes;
	if (at >= text.length)
		return 0;
	const uint32_t one = utf8_first(text.bytes + at, &bytes);
	if (one == '\r')
		return 1u + (at + 1 < text.length && text.bytes[at + 1] == '\n');
	const bool ends = (one >= '\n' && one <= '\f') || (one >= 0x1C && one <= 0x1E) || one == 0x85 ||
			  one == 0x2028 || one == 0x2029;
	return ends ? bytes : 0;
}

static struct value partition_at(struct run *run, const struct call *call, size_t found, bool last)
{
	const struct text text = call->self.text, separator = call->at[0]->text;
	struct value tuple = value_list(run, VALUE_TUPLE, 3);
	if (found == SIZE_MAX) {
		value_list_add(run, tuple.list, last ? value_own("") : call->self);
		value_list_add(run, tuple.list, value_own(""));
		value_list_add(run, tuple.list, last ? call->self : value_own(""));
		return tuple;
	}
	add_part(run, tuple, text, 0, found);
	add_part(run, tuple, text, found, found + separator.length);
	add_part(run, tuple, text, found + separator.length, text.length);
	return tuple;
}

static struct value partition(struct run *run, const struct call *call)
{
	const struct text separator = need_separator(run, call);
	return partition_at(run, call, text_find(&run->work, call->self.text, separator, 0), false);
}

static struct value rpartition(struct run *run, const struct call *call)
{
	const struct text separator = need_separator(run, call);
	return partition_at(run, call, find_last(run, call->self.text, separator), true);
}

// ---- finding ----

static bool is_at(struct text text, struct text what, bool end)
{
	return text.length >= what.length &&
	       !memcmp(text.bytes + (end ? text.length - what.length : 0), what.bytes, what.length);
}

static struct value is_around(struct run *run, const struct call *call, bool end)
{
	struct text text = call->self.text;
	struct value what = given(call, 0);
	if (call->at[1]) {
		const struct value bounds[3] = {*call->at[1], given(call, 2), value_none()};
		text = value_slice(run, call->self, bounds).text;
	}
	if (what.kind != VALUE_TUPLE)
		return value_bool(is_at(text, need_text(run, what), end));
	for (size_t i = 0; i < what.list->count; i++)
		if (is_at(text, need_text(run, what.list->items[i]), end))
			return value_bool(true);
	return value_bool(false);
}

static struct value startswith(struct run *run, const struct call *call)
{
	return is_around(run, call, false);
}

static struct value endswith(struct run *run, const struct call *call)
{
	return is_around(run, call, true);
}

// The index in characters; -1: not found.
static int64_t find_place(struct run *run, const struct call *call, bool last)
{
	const struct text text = call->self.text, what = need_text(run, given(call, 0));
	const int64_t first = integer_or(run, call, 1, 0);
	const int64_t count = (int64_t)value_length(run, call->self);
	const int64_t from = first < 0 ? (first + count > 0 ? first + count : 0) : first;
	if (from > count)
		return -1;
	const size_t skipped = text_place(text, (size_t)from);
	const struct text rest = text_part(text, skipped, text.length);
	const size_t found = last ? find_last(run, rest, what) : text_find(&run->work, rest, what, 0);
	return found == SIZE_MAX ? -1 : from + (int64_t)text_count(text_part(rest, 0, found));
}

static struct value find(struct run *run, const struct call *call)
{
	return value_integer(find_place(run, call, false));
}

static struct value rfind(struct run *run, const struct call *call)
{
	return value_integer(find_place(run, call, true));
}

static struct value find_index(struct run *run, const struct call *call)
{
	const int64_t found = find_place(run, call, false);
	if (found < 0)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "substring not found");
	return value_integer(found);
}

static struct value count(struct run *run, const struct call *call)
{
	const struct text text = call->self.text, what = need_text(run, given(call, 0));
	int64_t found = 0;
	if (!what.length)
		return value_integer((int64_t)value_length(run, call->self) + 1);
	for (size_t at = 0; (at = text_find(&run->work, text, what, at)) != SIZE_MAX; at += what.length)
		found++;
	return value_integer(found);
}

// ---- making others ----

struct text text_replace(struct run *run, struct text text, struct text old, struct text new, int64_t most)
{
	struct builder out = {.work = &run->work};
	size_t at = 0, found;
	if (!old.length) { // around every character
		for (; at < text.length && most; at += text_step(text, at), most--) {
			builder_text(&out, new);
			builder_text(&out, text_part(text, at, at + text_step(text, at)));
		}
		builder_text(&out, text_part(text, at, text.length));
		if (most && at == text.length)
			builder_text(&out, new);
		return builder_end(&out);
	}
	if (!most || text_find(&run->work, text, old, 0) == SIZE_MAX)
		return text;
	while (most-- && (found = text_find(&run->work, text, old, at)) != SIZE_MAX) {
		work_spend(&run->work, 1);
		builder_text(&out, text_part(text, at, found));
		builder_text(&out, new);
		at = found + old.length;
	}
	builder_text(&out, text_part(text, at, text.length));
	return builder_end(&out);
}

static struct value replace(struct run *run, const struct call *call)
{
	const struct text old = need_text(run, given(call, 0)), new = need_text(run, given(call, 1));
	return value_text(text_replace(run, call->self.text, old, new, integer_or(run, call, 2, -1)));
}

static struct value join(struct run *run, const struct call *call)
{
	struct builder out = {.work = &run->work};
	if (given(call, 0).kind == VALUE_NONE)
		work_fail(&run->work, STATUS_INVALID_PARAMS, "can only join an iterable");
	const struct list items = value_items(run, given(call, 0));
	for (size_t i = 0; i < items.count; i++) {
		if (i)
			builder_text(&out, call->self.text);
		builder_text(&out, need_text(run, items.items[i]));
	}
	return value_text(builder_end(&out));
}

static struct value format(struct run *run, const struct call *call)
{
	return value_text(format_braces(run, call->self.text, call->arguments).text);
}

static struct value removeprefix(struct run *run, const struct call *call)
{
	const struct text text = call->self.text, what = need_text(run, given(call, 0));
	return value_text(is_at(text, what, false) ? text_part(text, what.length, text.length) : text);
}

static struct value removesuffix(struct run *run, const struct call *call)
{
	const struct text text = call->self.text, what = need_text(run, given(call, 0));
	return value_text(is_at(text, what, true) ? text_part(text, 0, text.length - what.length) : text);
}

// Pad to a width; `before` halves of the padding come before the text.
static struct value fill(struct run *run, const struct call *call, unsigned before)
{
	struct builder out = {.work = &run->work};
	const int64_t missing = need_integer(run, given(call, 0)) - (int64_t)value_length(run, call->self);
	const struct text with = call->at[1] ? need_text(run, *call->at[1]) : text_of(" ");
	const int64_t front = missing > 0 ? missing * before / 2 : 0;
	for (int64_t i = 0; i < front; i++)
		builder_text(&out, with);
	builder_text(&out, call->self.text);
	for (int64_t i = front; i < missing; i++)
		builder_text(&out, with);
	return value_text(builder_end(&out));
}

static struct value ljust(struct run *run, const struct call *call)
{
	return fill(run, call, 0);
}

static struct value rjust(struct run *run, const struct call *call)
{
	return fill(run, call, 2);
}

// ---- tests of all characters ----

static bool all_are(struct text text, bool letters, bool digits)
{
	for (size_t at = 0; at < text.length; at += text_step(text, at)) {
		unsigned bytes;
		const uint32_t one = utf8_first(text.bytes + at, &bytes);
		const bool digit = unicode_class(one) == CHARACTER_NUMBER;
		if (!(letters && is_letter(one)) && !(digits && digit))
			return false;
	}
	return text.length > 0;
}

static struct value has_digits(struct run *run, const struct call *call)
{
	(void)run;
	return value_bool(all_are(call->self.text, false, true));
}

static struct value has_letters(struct run *run, const struct call *call)
{
	(void)run;
	return value_bool(all_are(call->self.text, true, false));
}

static struct value has_either(struct run *run, const struct call *call)
{
	(void)run;
	return value_bool(all_are(call->self.text, true, true));
}

static struct value has_spaces(struct run *run, const struct call *call)
{
	(void)run;
	return value_bool(call->self.text.length && !text_trim(call->self.text, TRIM_LEFT, NULL).length);
}

static struct value is_case(struct run *run, const struct call *call, enum letters letters)
{
	const struct text text = call->self.text;
	const enum letters other = letters == LETTERS_UPPER ? LETTERS_LOWER : LETTERS_UPPER;
	return value_bool(text_equal(text_case(run, text, letters), text) &&
			  !text_equal(text_case(run, text, other), text));
}

static struct value has_upper(struct run *run, const struct call *call)
{
	return is_case(run, call, LETTERS_UPPER);
}

static struct value has_lower(struct run *run, const struct call *call)
{
	return is_case(run, call, LETTERS_LOWER);
}

const struct builtin jinja_text_methods[] = {
	{"strip", "chars", strip},
	{"lstrip", "chars", lstrip},
	{"rstrip", "chars", rstrip},
	{"split", "sep maxsplit", split},
	{"rsplit", "sep maxsplit", rsplit},
	{"splitlines", "keepends", splitlines},
	{"partition", "sep", partition},
	{"rpartition", "sep", rpartition},
	{"startswith", "prefix start end", startswith},
	{"endswith", "suffix start end", endswith},
	{"replace", "old new count", replace},
	{"upper", "", upper},
	{"lower", "", lower},
	{"casefold", "", lower},
	{"title", "", title},
	{"capitalize", "", capitalize},
	{"find", "sub start", find},
	{"rfind", "sub start", rfind},
	{"index", "sub start", find_index},
	{"count", "sub", count},
	{"join", "iterable", join},
	{"format", "*", format},
	{"removeprefix", "prefix", removeprefix},
	{"removesuffix", "suffix", removesuffix},
	{"ljust", "width fillchar", ljust},
	{"rjust", "width fillchar", rjust},
	{"isdigit", "", has_digits},
	{"isnumeric", "", has_digits},
	{"isdecimal", "", has_digits},
	{"isalpha", "", has_letters},
	{"isalnum", "", has_either},
	{"isspace", "", has_spaces},
	{"isupper", "", has_upper},
	{"islower", "", has_lower},
	{0},
};
