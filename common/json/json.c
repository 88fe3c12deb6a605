/* See json.h. cJSON holds the tree, but this file parses and prints: cJSON's parser accepts texts that are not JSON,
 * has no limits, and prints some integers with an exponent. */
#include "common/json/json.h"

#include "common/base/limits.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double exact_integer = 9007199254740992.0; // 2^53

static const cJSON *in(const struct json *json)
{
	return (const cJSON *)json;
}

static struct json *out(cJSON *item)
{
	return (struct json *)item;
}

// The length of the UTF-8 sequence at text, 0 if it is malformed (RFC 3629, table 3-7 of Unicode).
static size_t utf8_sequence(const unsigned char *text, size_t length)
{
	unsigned char lead = text[0];
	if (lead < 0x80)
		return 1;
	size_t need = lead >= 0xC2 && lead <= 0xDF   ? 2
		      : lead >= 0xE0 && lead <= 0xEF ? 3
		      : lead >= 0xF0 && lead <= 0xF4 ? 4
						     : 0;
	if (!need || length < need)
		return 0;
	unsigned char low = 0x80, high = 0xBF;
	if (lead == 0xE0)
		low = 0xA0; // overlong
	if (lead == 0xED)
		high = 0x9F; // surrogate
	if (lead == 0xF0)
		low = 0x90;
	if (lead == 0xF4)
		high = 0x8F; // beyond U+10FFFF
	if (text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < need; i++)
		if ((text[i] & 0xC0) != 0x80)
			return 0;
	return need;
}

bool json_utf8(const char *text, size_t length)
{
	const unsigned char *at = (const unsigned char *)text;
	for (uint64_t eight; length >= sizeof eight;
	     at += sizeof eight, length -= sizeof eight) { // nearly always ASCII
		memcpy(&eight, at, sizeof eight);
		if (eight & 0x8080808080808080u)
			break;
	}
	while (length) {
		size_t step = *at < 0x80 ? 1 : utf8_sequence(at, length);
		if (!step)
			return false;
		at += step;
		length -= step;
	}
	return true;
}

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

// ---- parsing ----

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
		*result = out(item);
	return status;
}

void json_destroy(struct json **json)
{
	cJSON_Delete((cJSON *)*json);
	*json = NULL;
}

struct json *json_copy(const struct json *json)
{
	return out(cJSON_Duplicate(in(json), true));
}

bool json_equal(const struct json *a, const struct json *b)
{
	return cJSON_Compare(in(a), in(b), true);
}

static enum status print_string(const char *text, struct buffer *buffer)
{
	buffer_append_byte(buffer, '"');
	const unsigned char *at = (const unsigned char *)text, *plain = at;
	for (;; at++) {
		if (*at >= 32 && *at != '"' && *at != '\\')
			continue;
		buffer_append(buffer, plain, (size_t)(at - plain));
		if (!*at)
			break;
		switch (*at) {
		case '"':
		case '\\':
			buffer_append_byte(buffer, '\\');
			buffer_append_byte(buffer, *at);
			break;
		case '\n':
			buffer_append(buffer, "\\n", 2);
			break;
		case '\t':
			buffer_append(buffer, "\\t", 2);
			break;
		default:
			buffer_printf(buffer, "\\u%04x", *at);
		}
		plain = at + 1;
	}
	return buffer_append_byte(buffer, '"');
}

// printf takes several times as long, and every message has some.
static enum status print_integer(long long value, struct buffer *buffer)
{
	char text[24], *at = text + sizeof text;
	unsigned long long left = value < 0 ? -(unsigned long long)value : (unsigned long long)value;
	do
		*--at = (char)('0' + left % 10);
	while (left /= 10);
	if (value < 0)
		*--at = '-';
	return buffer_append(buffer, at, (size_t)(text + sizeof text - at));
}

static enum status print_number(double value, struct buffer *buffer)
{
	if (!isfinite(value))
		return buffer_append_text(buffer, "null");
	if (value == floor(value) && fabs(value) <= exact_integer)
		return print_integer((long long)value, buffer);
	char text[32];
	for (int precision = 6; precision <= 17; precision += precision == 6 ? 9 : 2) { // the shortest that reads back
		snprintf(text, sizeof text, "%.*g", precision, value);
		if (strtod(text, NULL) == value)
			break;
	}
	return buffer_append_text(buffer, text);
}

static enum status print_item(const cJSON *item, struct buffer *buffer)
{
	if (cJSON_IsNull(item))
		return buffer_append_text(buffer, "null");
	if (cJSON_IsBool(item))
		return buffer_append_text(buffer, cJSON_IsTrue(item) ? "true" : "false");
	if (cJSON_IsNumber(item))
		return print_number(item->valuedouble, buffer);
	if (cJSON_IsString(item))
		return print_string(item->valuestring, buffer);
	bool object = cJSON_IsObject(item);
	buffer_append_byte(buffer, object ? '{' : '[');
	for (const cJSON *child = item->child; child; child = child->next) {
		if (object) {
			print_string(child->string, buffer);
			buffer_append_byte(buffer, ':');
		}
		print_item(child, buffer);
		if (child->next)
			buffer_append_byte(buffer, ',');
	}
	return buffer_append_byte(buffer, object ? '}' : ']');
}

enum status json_print(const struct json *json, struct buffer *buffer)
{
	if (!json)
		return STATUS_OUT_OF_MEMORY; // what was to be built was not
	print_item(in(json), buffer);
	return buffer->failed ? STATUS_LIMIT_EXCEEDED : STATUS_OK;
}

enum status json_print_string(const char *text, struct buffer *buffer)
{
	if (json_utf8(text, strlen(text)))
		return print_string(text, buffer);
	struct json *clean = json_new_string(text);
	enum status status = json_print(clean, buffer);
	json_destroy(&clean);
	return status;
}

enum status json_print_integer(int64_t value, struct buffer *buffer)
{
	if (fabs((double)value) < exact_integer)
		return print_integer(value, buffer);
	buffer_append_byte(buffer, '"');
	print_integer(value, buffer);
	return buffer_append_byte(buffer, '"');
}

enum json_type json_type(const struct json *json)
{
	switch (json ? in(json)->type & 0xFF : cJSON_Invalid) {
	case cJSON_NULL:
		return JSON_NULL;
	case cJSON_False:
	case cJSON_True:
		return JSON_BOOL;
	case cJSON_Number:
		return JSON_NUMBER;
	case cJSON_String:
		return JSON_STRING;
	case cJSON_Array:
		return JSON_ARRAY;
	case cJSON_Object:
		return JSON_OBJECT;
	}
	return JSON_ABSENT;
}

const struct json *json_get(const struct json *object, const char *name)
{
	return out(cJSON_IsObject(in(object)) ? cJSON_GetObjectItemCaseSensitive(in(object), name) : NULL);
}

size_t json_count(const struct json *json)
{
	return json ? (size_t)cJSON_GetArraySize(in(json)) : 0;
}

const struct json *json_first(const struct json *json)
{
	return json ? (const struct json *)in(json)->child : NULL;
}

const struct json *json_next(const struct json *member)
{
	return member ? (const struct json *)in(member)->next : NULL;
}

const char *json_name(const struct json *member)
{
	return member && in(member)->string ? in(member)->string : "";
}

const char *json_string(const struct json *json, const char *fallback)
{
	return cJSON_IsString(in(json)) ? in(json)->valuestring : fallback;
}

double json_number(const struct json *json, double fallback)
{
	return cJSON_IsNumber(in(json)) ? in(json)->valuedouble : fallback;
}

bool json_bool(const struct json *json, bool fallback)
{
	return cJSON_IsBool(in(json)) ? cJSON_IsTrue(in(json)) : fallback;
}

static enum status integer_from_text(const char *text, int64_t *value)
{
	bool negative = *text == '-';
	const char *digit = text + negative;
	uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX, sum = 0;
	if (!*digit)
		return STATUS_INVALID_PARAMS;
	for (; *digit; digit++) {
		if (*digit < '0' || *digit > '9')
			return STATUS_INVALID_PARAMS;
		uint64_t next = (uint64_t)(*digit - '0');
		if (sum > (limit - next) / 10)
			return STATUS_INVALID_PARAMS;
		sum = sum * 10 + next;
	}
	*value = negative ? (int64_t)(~sum + 1) : (int64_t)sum;
	return STATUS_OK;
}

enum status json_integer(const struct json *json, int64_t *value)
{
	if (cJSON_IsString(in(json)))
		return integer_from_text(in(json)->valuestring, value);
	double number = json_number(json, 0.5);
	if (number != floor(number) || fabs(number) >= exact_integer) // 2^53 itself may have been 2^53 + 1
		return STATUS_INVALID_PARAMS;
	*value = (int64_t)number;
	return STATUS_OK;
}

const char *json_get_string(const struct json *object, const char *name, const char *fallback)
{
	return json_string(json_get(object, name), fallback);
}

double json_get_number(const struct json *object, const char *name, double fallback)
{
	return json_number(json_get(object, name), fallback);
}

int64_t json_get_integer(const struct json *object, const char *name, int64_t fallback)
{
	int64_t value;
	return json_integer(json_get(object, name), &value) ? fallback : value;
}

bool json_get_bool(const struct json *object, const char *name, bool fallback)
{
	return json_bool(json_get(object, name), fallback);
}

struct json *json_new_object(void)
{
	return out(cJSON_CreateObject());
}

struct json *json_new_array(void)
{
	return out(cJSON_CreateArray());
}

struct json *json_new_string(const char *text)
{
	if (!text)
		return out(cJSON_CreateNull());
	size_t length = strlen(text);
	if (json_utf8(text, length))
		return out(cJSON_CreateString(text));
	struct buffer clean; // a driver's or the kernel's bytes: keep what is text
	buffer_init(&clean, length * 3);
	for (size_t i = 0; i < length;) {
		size_t step = utf8_sequence((const unsigned char *)text + i, length - i);
		if (step)
			buffer_append(&clean, text + i, step);
		else
			buffer_append_text(&clean, "\xEF\xBF\xBD");
		i += step ? step : 1;
	}
	cJSON *item = cJSON_CreateString(buffer_text(&clean));
	buffer_finish(&clean);
	return out(item);
}

struct json *json_new_number(double value)
{
	return out(isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

struct json *json_new_integer(int64_t value)
{
	if (fabs((double)value) < exact_integer)
		return out(cJSON_CreateNumber((double)value));
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)value);
	return out(cJSON_CreateString(text));
}

struct json *json_new_bool(bool value)
{
	return out(cJSON_CreateBool(value));
}

struct json *json_new_null(void)
{
	return out(cJSON_CreateNull());
}

void json_set(struct json *object, const char *name, struct json *value)
{
	if (object && value) {
		cJSON_DeleteItemFromObjectCaseSensitive((cJSON *)object, name);
		if (cJSON_AddItemToObject((cJSON *)object, name, (cJSON *)value))
			return;
	}
	cJSON_Delete((cJSON *)value);
}

void json_set_reference(struct json *object, const char *name, const struct json *to)
{
	cJSON_AddItemReferenceToObject((cJSON *)object, name, (cJSON *)(uintptr_t)to);
}

void json_push(struct json *array, struct json *value)
{
	if (!array || !value || !cJSON_AddItemToArray((cJSON *)array, (cJSON *)value))
		cJSON_Delete((cJSON *)value);
}

void json_remove(struct json *object, const char *name)
{
	if (object)
		cJSON_DeleteItemFromObjectCaseSensitive((cJSON *)object, name);
}

void json_set_string(struct json *object, const char *name, const char *text)
{
	json_set(object, name, json_new_string(text));
}

void json_set_number(struct json *object, const char *name, double value)
{
	json_set(object, name, json_new_number(value));
}

void json_set_integer(struct json *object, const char *name, int64_t value)
{
	json_set(object, name, json_new_integer(value));
}

void json_set_bool(struct json *object, const char *name, bool value)
{
	json_set(object, name, json_new_bool(value));
}

void json_set_null(struct json *object, const char *name)
{
	json_set(object, name, json_new_null());
}
