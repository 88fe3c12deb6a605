/* State and functions that the schema reader's files share. See schema.h. */
#pragma once
#include "common/json/json.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

enum { SCHEMA_NESTING = 48, SCHEMA_MERGES = 2048, SCHEMA_PATH_BYTES = 192, SCHEMA_REFERENCES = 4096 };
enum {
	SCHEMA_MERGED_BYTES = 4 * 1024 * 1024, // of schemas that are put together, about: as many as fit, and a few
	SCHEMA_MERGES_LEAST = 16,
	SCHEMA_OPTIONS = 64,       // of oneOf: each is compared with each
	SCHEMA_MEMBERS = 800,      // of an object: optional ones are all looked for at once
	SCHEMA_COMPARED = 1000000, // pairs of values of two lists
};

// Rules that many schemas have: made when they are first asked for.
enum common_rule {
	COMMON_SPACE,
	COMMON_CHARACTER,
	COMMON_STRING,
	COMMON_NUMBER,
	COMMON_INTEGER,
	COMMON_VALUE,
	COMMON_OBJECT,
	COMMON_ARRAY,
	COMMON_RULES
};

enum value_type {
	TYPE_NULL = 1,
	TYPE_BOOLEAN = 2,
	TYPE_INTEGER = 4,
	TYPE_NUMBER = 8, // integers are numbers, too
	TYPE_STRING = 16,
	TYPE_ARRAY = 32,
	TYPE_OBJECT = 64,
	TYPE_ANY = 127 - 4,
};

struct reference {
	const struct json *at; // in the root
	uint32_t rule;
	char path[SCHEMA_PATH_BYTES];
};

struct schema {
	struct builder *builder;
	const struct json *root;
	uint32_t common[COMMON_RULES]; // + 1; 0: not made yet
	struct reference *references;  // (reference_count)
	size_t reference_count, reference_capacity;
	struct json **merged; // (merged_count), owned; merged_most at most
	size_t merged_count, merged_most;
	char path[SCHEMA_PATH_BYTES]; // of where the reader is, for who wrote it
	unsigned depth;
};

// ---- schema.c ----

uint32_t schema_common(struct schema *schema, enum common_rule which); // an expression
uint32_t schema_value(struct schema *schema, const struct json *json); // an expression
// Which keyword it was that failed, where the reader is.
void schema_note_refused(struct schema *schema, const char *keyword);
// Note that a keyword cannot be kept, where the reader is. Returns 0.
uint32_t schema_refuse(struct schema *schema, const char *keyword, const char *why);
// Go to a member of where the reader is, and come back: `before` is what schema_enter returned.
size_t schema_enter(struct schema *schema, const char *name);
void schema_leave(struct schema *schema, size_t before);
// The schema at a $ref within the root. NULL, with a fault noted, if it does not lead to one.
const struct json *schema_resolve(struct schema *schema, const char *reference);
unsigned schema_types(struct schema *schema, const struct json *json); // enum value_type, of `type` or its keywords
unsigned schema_type_of(const struct json *value);
// Whether a keyword constrains instances, apart from those in `except`, which ends with NULL.
bool schema_constrains(const struct json *json, const char *const *except);

// ---- schema_object.c, schema_text.c, schema_number.c ----

uint32_t schema_object(struct schema *schema, const struct json *json);
uint32_t schema_array(struct schema *schema, const struct json *json);
uint32_t schema_text(struct schema *schema, const struct json *json);
uint32_t schema_number(struct schema *schema, const struct json *json, bool whole);
// The count that a keyword gives, or `fallback` without the keyword. A value that is not a count is refused.
uint32_t schema_count(struct schema *schema, const struct json *json, const char *keyword, uint32_t fallback);

// ---- schema_merge.c ----

// A schema whose instances are valid for both; owned by `schema`. NULL, with a fault noted, if it cannot be expressed.
const struct json *schema_merge(struct schema *schema, const struct json *a, const struct json *b);
// A copy without some members, ended by NULL; owned by `schema`.
const struct json *schema_without(struct schema *schema, const struct json *json, const char *const *names);
// Whether nothing can be an instance of both, as far as can be seen.
bool schema_disjoint(struct schema *schema, const struct json *a, const struct json *b);
