/* Text to trees: see json_parse in json.h. cJSON's own parser accepts texts that are not JSON, and has no limits. */
#include "common/base/limits.h"
#include "common/json/json_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t run_of_digits(const char *text, size_t length)
{
	size_t count = 0;
	while (count < length && text[count] >= '0' && text[count] <= '9')
		count++;
	return count;
}

// The length of the number at text as RFC 8259 has it, 0 if it is malformed.
static size_t number_length(const char *text, size_t length)
{
	size_t at = text[0] == '-';
	size_t digits = run_of_digits(text + at, length - at);
	if (!digits || (digits > 1 && text[at] == '0'))
		return 0;
	at += digits;
	if (at < length && text[at] == '.') {
		digits = run_of_digits(text + at + 1, length - at - 1);
		if (!digits)
			return 0;
		at += 1 + digits;
	}
	if (at < length && (text[at] == 'e' || text[at] == 'E')) {
		at++;
		at += at < length && (text[at] == '+' || text[at] == '-');
		digits = run_of_digits(text + at, length - at);
		at += digits;
		if (!digits)
			return 0;
	}
	return at;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

enum { PAIRWISE = 16 }; // up to here comparing each with each beats sorting

static enum status unique_names(const cJSON *object, struct error *error)
{
	enum status status = STATUS_OK;
	const cJSON **members = NULL;
	int count = cJSON_GetArraySize(object);
	if (count <= PAIRWISE) {
		for (const cJSON *a = object->child; a; a = a->next)
			for (const cJSON *b = a->next; b; b = b->next)
				if (!strcmp(a->string, b->string))
					return error_set(error, STATUS_PARSE_ERROR, "the key \"%.40s\" is repeated",
							 a->string);
		return STATUS_OK;
	}
	members = malloc((size_t)count * sizeof(*members));
	if (!members)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	int n = 0;
	for (const cJSON *a = object->child; a; a = a->next)
		members[n++] = a;
	qsort(members, (size_t)n, sizeof(*members), by_name);
	for (int i = 1; i < n && !status; i++)
		if (!strcmp(members[i - 1]->string, members[i]->string))
			status = error_set(error, STATUS_PARSE_ERROR, "the key \"%.40s\" is repeated",
					   members[i]->string);
	free(members);
	return status;
}

enum { NUMBER_BYTES = 64, EXACT_DIGITS = 15 }; // room for nearly all; how many of an integer a double holds for sure

struct reading {
	const char *text, *at, *end;
	int depth; // of objects and arrays around it; bounds the recursion
	struct error *error;
	bool *nul; // set by an escaped NUL, which then reads as U+FFFD; NULL: one is refused
};

static enum status refuse(const struct reading *in, const char *what, const char *at)
{
	return error_set(in->error, STATUS_PARSE_ERROR, "%s at offset %zu", what, (size_t)(at - in->text));
}

static enum status no_memory(const struct reading *in)
{
	return error_set(in->error, STATUS_OUT_OF_MEMORY, "out of memory");
}

static void skip_space(struct reading *in)
{
	while (in->at < in->end && (*in->at == ' ' || *in->at == '\n' || *in->at == '\r' || *in->at == '\t'))
		in->at++;
}

// Pass over a character, behind white space; false: another one is there.
static bool take(struct reading *in, char c)
{
	skip_space(in);
	if (in->at == in->end || *in->at != c)
		return false;
	in->at++;
	return true;
}

static bool four_digits(const char *text, const char *end, unsigned *code)
{
	*code = 0;
	for (int i = 0; i < 4; i++, text++) {
		if (text == end)
			return false;
		const char lower = (char)(*text | 32);
		if (*text >= '0' && *text <= '9')
			*code = *code * 16 + (unsigned)(*text - '0');
		else if (lower >= 'a' && lower <= 'f')
			*code = *code * 16 + (unsigned)(lower - 'a' + 10);
		else
			return false;
	}
	return true;
}

static char *put_utf8(char *to, unsigned code)
{
	const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3; // bytes behind the first
	static const unsigned char leads[] = {0, 0xC0, 0xE0, 0xF0};
	*to++ = (char)(leads[more] | code >> 6 * more);
	for (int i = more - 1; i >= 0; i--)
		*to++ = (char)(0x80 | (code >> 6 * i & 0x3F));
	return to;
}

// *at: behind \u; the code point of one escape, or of the two of a surrogate pair. False: it is none.
static bool read_code(const char **at, const char *end, unsigned *code)
{
	unsigned low;
	if (!four_digits(*at, end, code))
		return false;
	*at += 4;
	if ((*code & 0xF800) != 0xD800)
		return true;
	if ((*code & 0x400) || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' ||
	    !four_digits(*at + 2, end, &low) || (low & 0xFC00) != 0xDC00)
		return false;
	*at += 6;
	*code = 0x10000 + ((*code & 0x3FF) << 10) + (low & 0x3FF);
	return true;
}

static char *put_nul(const struct reading *in, char *to)
{
	enum { REPLACEMENT = 0xFFFD };
	*in->nul = true;
	return put_utf8(to, REPLACEMENT);
}

// Decodes the string between the quotes, from `at` to `end`, into `to`. The result is never longer than the input.
static enum status unescape(const struct reading *in, const char *at, const char *end, char *to)
{
	static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
	while (at < end) {
		const char *escape = at;
		if (*at != '\\') {
			*to++ = *at++;
			continue;
		}
		const char *letter = at[1] ? strchr(letters, at[1]) : NULL;
		unsigned code;
		at += 2; // the quote at the end is not behind a backslash, so there is something
		if (letter)
			*to++ = meant[letter - letters];
		else if (at[-1] != 'u' || !read_code(&at, end, &code))
			return refuse(in, "not an escape", escape);
		else if (code)
			to = put_utf8(to, code);
		else if (!in->nul)
			return refuse(in, "a NUL in a string", escape);
		else
			to = put_nul(in, to);
	}
	*to = 0;
	return STATUS_OK;
}

// *out: to be freed by cJSON_free. What is read must be UTF-8.
static enum status read_string(struct reading *in, char **out)
{
	const char *from = in->at + 1, *to = from;
	bool plain = true;
	for (; to < in->end && *to != '"'; to++) {
		if ((unsigned char)*to < ' ')
			return refuse(in, *to ? "a control character in a string" : "a NUL byte", to);
		if (*to != '\\')
			continue;
		plain = false;
		if (++to == in->end)
			break;
	}
	if (to >= in->end)
		return refuse(in, "a string without an end", in->at);
	const size_t length = (size_t)(to - from);
	in->at = to + 1;
	*out = cJSON_malloc(length + 1);
	if (!*out)
		return no_memory(in);
	if (!plain)
		return unescape(in, from, to, *out);
	memcpy(*out, from, length);
	(*out)[length] = 0;
	return STATUS_OK;
}

static enum status read_number(struct reading *in, cJSON *item)
{
	char room[NUMBER_BYTES];
	const char *text = in->at;
	const size_t length = number_length(text, (size_t)(in->end - text)), sign = *text == '-';
	double value = 0;
	if (!length)
		return refuse(in, "not a number", text);
	if (length - sign <= EXACT_DIGITS && run_of_digits(text + sign, length - sign) == length - sign) {
		for (size_t i = sign; i < length; i++)
			value = value * 10 + (text[i] - '0');
		value = sign ? -value : value;
	} else { // strtod wants an end
		char *copy = length < sizeof room ? room : malloc(length + 1);
		if (!copy)
			return no_memory(in);
		memcpy(copy, text, length);
		copy[length] = 0;
		value = strtod(copy, NULL);
		if (copy != room)
			free(copy);
	}
	if (!isfinite(value))
		return refuse(in, "a number out of range", text);
	in->at += length;
	item->type = cJSON_Number;
	cJSON_SetNumberHelper(item, value); // it keeps an int beside the double
	return STATUS_OK;
}

static enum status read_word(struct reading *in, cJSON *item, const char *word, int type)
{
	const size_t length = strlen(word);
	if ((size_t)(in->end - in->at) < length || memcmp(in->at, word, length) != 0)
		return refuse(in, "not JSON", in->at);
	in->at += length;
	item->type = type;
	item->valueint = type == cJSON_True;
	return STATUS_OK;
}

static enum status read_members(struct reading *in, cJSON *parent, char close);

// *out: what was begun, also on failure; NULL: nothing.
static enum status read_value(struct reading *in, cJSON **out)
{
	skip_space(in);
	cJSON *item = *out = cJSON_malloc(sizeof(*item));
	if (!item)
		return no_memory(in);
	*item = (cJSON){.type = cJSON_NULL};
	const char c = in->at < in->end ? *in->at : 0;
	switch (c) {
	case '{':
		item->type = cJSON_Object;
		return read_members(in, item, '}');
	case '[':
		item->type = cJSON_Array;
		return read_members(in, item, ']');
	case '"':
		item->type = cJSON_String;
		return read_string(in, &item->valuestring);
	case 't':
		return read_word(in, item, "true", cJSON_True);
	case 'f':
		return read_word(in, item, "false", cJSON_False);
	case 'n':
		return read_word(in, item, "null", cJSON_NULL);
	}
	return c == '-' || (c >= '0' && c <= '9') ? read_number(in, item) : refuse(in, "not JSON", in->at);
}

// Parses one member or item and appends it, even if it fails.
static enum status read_member(struct reading *in, cJSON *parent, cJSON **last)
{
	enum status status = STATUS_OK;
	char *name = NULL;
	cJSON *item = NULL;
	if (parent->type == cJSON_Object) {
		skip_space(in);
		status = in->at < in->end && *in->at == '"' ? read_string(in, &name) : refuse(in, "not JSON", in->at);
		if (!status && !take(in, ':'))
			status = refuse(in, "not JSON", in->at);
	}
	if (!status)
		status = read_value(in, &item);
	if (!item) {
		cJSON_free(name);
		return status;
	}
	item->string = name;
	item->prev = *last;
	*(*last ? &(*last)->next : &parent->child) = item;
	parent->child->prev = *last = item; // as cJSON has it: the first knows the last
	return status;
}

static enum status read_members(struct reading *in, cJSON *parent, char close)
{
	enum status status = STATUS_OK;
	cJSON *last = NULL;
	if (++in->depth > LIMIT_NESTING)
		return error_set(in->error, STATUS_PARSE_ERROR, "nested deeper than %d at offset %zu", LIMIT_NESTING,
				 (size_t)(in->at - in->text));
	in->at++;
	bool more = !take(in, close);
	while (more && !status) {
		status = read_member(in, parent, &last);
		if (!status && take(in, close))
			more = false;
		else if (!status && !take(in, ','))
			status = refuse(in, "not JSON", in->at);
	}
	in->depth--;
	return !status && close == '}' ? unique_names(parent, in->error) : status;
}

enum status json_parse(struct json **result, const char *text, size_t length, struct error *error)
{
	return json_parse_noting(result, &(struct json_text){.text = text, .length = length}, error);
}

enum status json_parse_noting(struct json **result, const struct json_text *given, struct error *error)
{
	const char *text = given->text;
	const size_t length = given->length;
	struct reading in = {.text = text, .at = text, .end = text + length, .error = error, .nul = given->nul};
	cJSON *item = NULL;
	*result = NULL;
	if (!json_utf8(text, length))
		return error_set(error, STATUS_PARSE_ERROR, "the text is not UTF-8");
	enum status status = read_value(&in, &item);
	skip_space(&in);
	if (!status && in.at < in.end)
		status = refuse(&in, "there is something after the value", in.at);
	if (status)
		cJSON_Delete(item);
	else
		*result = json_out(item);
	return status;
}
