/* See json.h. cJSON holds the tree; json_parse.c and json_print.c are ours. */
#include "common/json/json_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t json_utf8_sequence(const unsigned char *text, size_t length)
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
		size_t step = *at < 0x80 ? 1 : json_utf8_sequence(at, length);
		if (!step)
			return false;
		at += step;
		length -= step;
	}
	return true;
}

void json_destroy(struct json **json)
{
	cJSON_Delete((cJSON *)*json);
	*json = NULL;
}

struct json *json_copy(const struct json *json)
{
	return json_out(cJSON_Duplicate(json_in(json), true));
}

bool json_equal(const struct json *a, const struct json *b)
{
	return cJSON_Compare(json_in(a), json_in(b), true);
}

enum json_type json_type(const struct json *json)
{
	switch (json ? json_in(json)->type & 0xFF : cJSON_Invalid) {
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
	return json_out(cJSON_IsObject(json_in(object)) ? cJSON_GetObjectItemCaseSensitive(json_in(object), name)
							: NULL);
}

size_t json_count(const struct json *json)
{
	return json ? (size_t)cJSON_GetArraySize(json_in(json)) : 0;
}

const struct json *json_first(const struct json *json)
{
	return json ? (const struct json *)json_in(json)->child : NULL;
}

const struct json *json_next(const struct json *member)
{
	return member ? (const struct json *)json_in(member)->next : NULL;
}

const char *json_name(const struct json *member)
{
	return member && json_in(member)->string ? json_in(member)->string : "";
}

const char *json_string(const struct json *json, const char *fallback)
{
	return cJSON_IsString(json_in(json)) ? json_in(json)->valuestring : fallback;
}

double json_number(const struct json *json, double fallback)
{
	return cJSON_IsNumber(json_in(json)) ? json_in(json)->valuedouble : fallback;
}

bool json_bool(const struct json *json, bool fallback)
{
	return cJSON_IsBool(json_in(json)) ? cJSON_IsTrue(json_in(json)) : fallback;
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
	if (cJSON_IsString(json_in(json)))
		return integer_from_text(json_in(json)->valuestring, value);
	double number = json_number(json, 0.5);
	if (number != floor(number) || fabs(number) >= JSON_EXACT_INTEGER) // 2^53 itself may have been 2^53 + 1
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
	return json_out(cJSON_CreateObject());
}

struct json *json_new_array(void)
{
	return json_out(cJSON_CreateArray());
}

struct json *json_new_string(const char *text)
{
	if (!text)
		return json_out(cJSON_CreateNull());
	size_t length = strlen(text);
	if (json_utf8(text, length))
		return json_out(cJSON_CreateString(text));
	struct buffer clean; // a driver's or the kernel's bytes: keep what is text
	buffer_init(&clean, length * 3);
	for (size_t i = 0; i < length;) {
		size_t step = json_utf8_sequence((const unsigned char *)text + i, length - i);
		if (step)
			buffer_append(&clean, text + i, step);
		else
			buffer_append_text(&clean, "\xEF\xBF\xBD");
		i += step ? step : 1;
	}
	cJSON *item = cJSON_CreateString(buffer_text(&clean));
	buffer_finish(&clean);
	return json_out(item);
}

struct json *json_new_number(double value)
{
	return json_out(isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

struct json *json_new_integer(int64_t value)
{
	if (fabs((double)value) < JSON_EXACT_INTEGER)
		return json_out(cJSON_CreateNumber((double)value));
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)value);
	return json_out(cJSON_CreateString(text));
}

struct json *json_new_bool(bool value)
{
	return json_out(cJSON_CreateBool(value));
}

struct json *json_new_null(void)
{
	return json_out(cJSON_CreateNull());
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
