/* Trees to text: see json_print in json.h. cJSON's own printer prints some integers with an exponent. */
#include "common/json/json_inside.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	if (value == floor(value) && fabs(value) <= JSON_EXACT_INTEGER)
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
	print_item(json_in(json), buffer);
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
	if (fabs((double)value) < JSON_EXACT_INTEGER)
		return print_integer(value, buffer);
	buffer_append_byte(buffer, '"');
	print_integer(value, buffer);
	return buffer_append_byte(buffer, '"');
}
