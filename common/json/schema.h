/* Checks a value against the subset of JSON Schema that the contract uses. Known keywords:
 * type (one or a list), properties, required, additionalProperties, items, enum, const,
 * minimum, maximum, minLength, maxLength (in code points), minItems, maxItems, anyOf, $ref.
 * Others are annotations; the lint refuses other constraints. Thread: any; a linked schema is
 * only read. */
#pragma once
#include "common/json/json.h"

// Give each $ref in `document` what it names, once, before anything is checked: "#/…" lies in the document itself,
// "api.json#/…" in `other`, which has been linked itself and outlives it (NULL: there is none).
void schema_link(struct json *document, const struct json *other);

// Check `value` against `schema`. The error names the place, as $.params.bytes, and what is wrong there.
// Errors: STATUS_INVALID_PARAMS; STATUS_INTERNAL for a $ref that leads nowhere.
enum status schema_check(const struct json *schema, const struct json *value, const char *place, struct error *error);

// Whether its `type`, or an `enum` without one, says that it is a string.
bool schema_is_text(const struct json *schema);

// A schema of an integer or of a string with no more than a least and a most: what schema_check would look up in it
// anew each time.
struct schema_scalar {
	enum json_type type; // JSON_NUMBER: an integer; JSON_STRING; JSON_ABSENT: the schema is another one
	double least, most;  // of the number, or of its code points
};
struct schema_scalar schema_read_scalar(const struct json *schema);
// True: schema_check would take the value. False: it would not, or the schema is another one.
bool schema_fits_scalar(const struct schema_scalar *scalar, const struct json *value);
