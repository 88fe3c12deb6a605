/* What the files of common/json share: a struct json is a cJSON. json.c builds and reads trees, json_parse.c and
 * json_print.c turn them from and into text. Not for others. */
#pragma once
#include "common/json/json.h"

#include <cjson/cJSON.h>

// 2^53: up to here a double holds every integer.
#define JSON_EXACT_INTEGER 9007199254740992.0

static inline const cJSON *json_in(const struct json *json)
{
	return (const cJSON *)json;
}

static inline struct json *json_out(cJSON *item)
{
	return (struct json *)item;
}

// The length of the UTF-8 sequence at text, 0 if it is malformed (RFC 3629, table 3-7 of Unicode).
size_t json_utf8_sequence(const unsigned char *text, size_t length);
