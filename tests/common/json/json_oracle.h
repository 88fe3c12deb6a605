/* The reference for json.c: the text is scanned for forms that cJSON accepts and JSON does not have, parsed by cJSON,
 * and the tree is checked for duplicate keys and numbers out of range. The verdict must be the same, and the tree. */
#pragma once
#include "common/base/limits.h"
#include "common/json/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t oracle_digits(const char *text, size_t length)
{
	size_t count = 0;
	while (count < length && text[count] >= '0' && text[count] <= '9')
		count++;
	return count;
}

// The length of the number at text as RFC 8259 has it, 0 if it is malformed: cJSON takes 01, 1. and -.5 too.
static size_t number_length(const char *text, size_t length)
{
	size_t at = text[0] == '-';
	size_t digits = oracle_digits(text + at, length - at);
	if (!digits || (digits > 1 && text[at] == '0'))
		return 0;
	at += digits;
	if (at < length && text[at] == '.') {
		digits = oracle_digits(text + at + 1, length - at - 1);
		if (!digits)
			return 0;
		at += 1 + digits;
	}
	if (at < length && (text[at] == 'e' || text[at] == 'E')) {
		at++;
		at += at < length && (text[at] == '+' || text[at] == '-');
		digits = oracle_digits(text + at, length - at);
		at += digits;
		if (!digits)
			return 0;
	}
	return at;
}

static bool hex_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// One character inside a string; *step is how many bytes it takes.
static enum status scan_string(const char *text, size_t left, size_t offset, size_t *step, struct error *error)
{
	if ((unsigned char)*text < 32)
		return error_set(error, STATUS_PARSE_ERROR, "a control character in a string at offset %zu", offset);
	if (*text == '\\' && left > 1 && text[1] == 'u') { // cJSON reads an escape without four digits as a NUL
		size_t digits = 0;
		while (digits < 4 && digits + 2 < left && hex_digit(text[2 + digits]))
			digits++;
		if (digits < 4)
			return error_set(error, STATUS_PARSE_ERROR, "not an escape at offset %zu", offset);
		if (!memcmp(text + 2, "0000", 4))
			return error_set(error, STATUS_PARSE_ERROR, "a NUL in a string at offset %zu", offset);
	}
	*step = *text == '\\' ? 2 : 1;
	return STATUS_OK;
}

// One token's first character, or white space, between strings.
static enum status scan_token(const char *text, size_t left, size_t offset, size_t *step, struct error *error)
{
	unsigned char c = (unsigned char)*text;
	*step = 1;
	if (c == '-' || (c >= '0' && c <= '9')) {
		*step = number_length(text, left);
		if (!*step)
			return error_set(error, STATUS_PARSE_ERROR, "not a number at offset %zu", offset);
	} else if ((c < 32 && c != '\t' && c != '\n' && c != '\r') || c > 126) { // cJSON takes these for white space
		return error_set(error, STATUS_PARSE_ERROR, "not JSON near offset %zu", offset);
	}
	return STATUS_OK;
}

// What cJSON would let pass is refused before it sees the text: nesting (it recurses), NUL and \u0000 (its strings end
// there), control characters and a byte order mark as white space, numbers that JSON has not.
static enum status scan(const char *text, size_t length, struct error *error)
{
	int depth = 0;
	bool in_string = false;
	if (!json_utf8(text, length))
		return error_set(error, STATUS_PARSE_ERROR, "the text is not UTF-8");
	for (size_t i = 0, step = 1; i < length; i += step) {
		char c = text[i];
		step = 1;
		if (in_string && (c >= ' ' || c < 0) && c != '"' && c != '\\')
			continue; // most of it
		if (!c)
			return error_set(error, STATUS_PARSE_ERROR, "a NUL byte at offset %zu", i);
		if ((c == '{' || c == '[') && !in_string && ++depth > LIMIT_NESTING)
			return error_set(error, STATUS_PARSE_ERROR, "nested deeper than %d at offset %zu",
					 LIMIT_NESTING, i);
		if ((c == '}' || c == ']') && !in_string)
			depth--;
		enum status status = in_string ? scan_string(text + i, length - i, i, &step, error)
					       : scan_token(text + i, length - i, i, &step, error);
		if (status)
			return status;
		if (c == '"')
			in_string = !in_string;
	}
	return STATUS_OK;
}

static enum status unique_names(const cJSON *object, struct error *error)
{
	for (const cJSON *a = object->child; a; a = a->next)
		for (const cJSON *b = a->next; b; b = b->next)
			if (!strcmp(a->string, b->string))
				return error_set(error, STATUS_PARSE_ERROR, "the key \"%.40s\" is repeated", a->string);
	return STATUS_OK;
}

// Depth is bounded by scan(), so the recursion is too.
static enum status check_tree(const cJSON *item, struct error *error)
{
	enum status status = STATUS_OK;
	if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
		return error_set(error, STATUS_PARSE_ERROR, "a number out of range");
	if (cJSON_IsObject(item))
		status = unique_names(item, error);
	for (const cJSON *child = item->child; child && !status; child = child->next)
		status = check_tree(child, error);
	return status;
}

static enum status oracle_parse(cJSON **result, const char *text, size_t length)
{
	struct error ignored = {0}, *error = &ignored;
	*result = NULL;
	cJSON *item = NULL;
	enum status status = scan(text, length, error);
	if (status)
		goto done;
	const char *end = NULL;
	item = cJSON_ParseWithLengthOpts(text, length, &end, false);
	if (!item) {
		status = error_set(error, STATUS_PARSE_ERROR, "not JSON near offset %zu",
				   end >= text && end <= text + length ? (size_t)(end - text) : (size_t)0);
		goto done;
	}
	while (end < text + length && strchr(" \t\r\n", *end))
		end++;
	if (end != text + length) {
		status = error_set(error, STATUS_PARSE_ERROR, "there is something after the value at offset %zu",
				   (size_t)(end - text));
		goto done;
	}
	status = check_tree(item, error);
done:
	if (status)
		cJSON_Delete(item);
	else
		*result = item;
	return status;
}

// Every node, as cJSON made it and as json.c did, of which the former is `a`.
static bool oracle_same(const cJSON *a, const cJSON *b)
{
	if (!a || !b)
		return !a && !b;
	if (a->type != b->type || a->valueint != b->valueint ||
	    memcmp(&a->valuedouble, &b->valuedouble, sizeof a->valuedouble) != 0 || !a->string != !b->string ||
	    !a->valuestring != !b->valuestring || (a->string && strcmp(a->string, b->string) != 0) ||
	    (a->valuestring && strcmp(a->valuestring, b->valuestring) != 0))
		return false;
	const cJSON *one = a->child, *other = b->child, *last = NULL;
	for (; one && other; one = one->next, other = other->next) {
		if (!oracle_same(one, other) || (last && other->prev != last))
			return false;
		last = other;
	}
	return !one && !other && (!b->child || b->child->prev == last);
}

// Whether json_parse said and made the same of the text.
static bool oracle_agrees(const char *text, size_t length, enum status status, const struct json *json)
{
	cJSON *wanted = NULL;
	bool agrees = oracle_parse(&wanted, text, length) == status && oracle_same(wanted, (const cJSON *)json);
	cJSON_Delete(wanted);
	return agrees;
}
