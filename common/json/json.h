/* JSON for the rest of the program; only json.c includes cJSON. Parsing is strict: UTF-8, one
 * value and nothing after it, no duplicate keys, no NUL in strings, nesting at most
 * LIMIT_NESTING. Numbers are doubles. Integers are exact to 2^53; larger ones travel as decimal
 * strings, and json_integer reads both. Printing writes integers without exponent or fraction.
 * Ownership: a parsed or built tree belongs to the caller, who frees it with json_destroy;
 * json_set and json_push take their value. Building never fails half way: if memory is short, the
 * result is NULL or lacks a member, and json_print of NULL is an error. Thread: one at a time for
 * each tree. */
#pragma once
#include "common/base/buffer.h"

struct json; // an object, array, string, number, true/false or null

enum json_type { JSON_ABSENT, JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

// Errors: STATUS_PARSE_ERROR with what and where, STATUS_OUT_OF_MEMORY.
enum status json_parse(struct json **out, const char *text, size_t length, struct error *error);
// An escaped NUL (\u0000) is JSON, but in no string here. With `nul` it reads as U+FFFD and sets that, for who must
// answer a text of which the rest is good; without, it is a STATUS_PARSE_ERROR as everything that is not JSON.
struct json_text {
	const char *text; // (length)
	size_t length;
	bool *nul;
};
enum status json_parse_noting(struct json **out, const struct json_text *given, struct error *error);
void json_destroy(struct json **json);
struct json *json_copy(const struct json *json);
bool json_equal(const struct json *a, const struct json *b);
// Appends. Errors: those of buffer_append.
enum status json_print(const struct json *json, struct buffer *out);
// Append the text that json_print gives for json_new_string(text) and json_new_integer(value), mostly without making a
// tree.
enum status json_print_string(const char *text, struct buffer *out);
enum status json_print_integer(int64_t value, struct buffer *out);

// Reading. All accept NULL, which is of type JSON_ABSENT and has no members.
enum json_type json_type(const struct json *json);
const struct json *json_get(const struct json *object, const char *name); // NULL if it has no such member
size_t json_count(const struct json *json);                               // members of an array or object
const struct json *json_first(const struct json *json);                   // first member, or NULL
const struct json *json_next(const struct json *member);                  // the one after, or NULL
const char *json_name(const struct json *member);                         // its key; "" in an array
const char *json_string(const struct json *json, const char *fallback);
double json_number(const struct json *json, double fallback);
bool json_bool(const struct json *json, bool fallback);
// A number that is integral and exact, or a decimal string. Errors: STATUS_INVALID_PARAMS.
enum status json_integer(const struct json *json, int64_t *value);
// Shorthand: the member `name` of `object`, or the fallback.
const char *json_get_string(const struct json *object, const char *name, const char *fallback);
double json_get_number(const struct json *object, const char *name, double fallback);
int64_t json_get_integer(const struct json *object, const char *name, int64_t fallback);
bool json_get_bool(const struct json *object, const char *name, bool fallback);

// Building.
struct json *json_new_object(void);
struct json *json_new_array(void);
struct json *json_new_string(const char *text); // NULL gives null; bytes that are not UTF-8 become U+FFFD
struct json *json_new_number(double value);     // NaN and infinity give null
struct json *json_new_integer(int64_t value);   // beyond ±2^53 a decimal string
struct json *json_new_bool(bool value);
struct json *json_new_null(void);
// Put `value` (taken, also on failure) into `object` under `name`, in place of what was there.
void json_set(struct json *object, const char *name, struct json *value);
void json_push(struct json *array, struct json *value);
// Let `object` have a member that is what `to` is now, and has its members, without owning them.
void json_set_reference(struct json *object, const char *name, const struct json *to);
void json_remove(struct json *object, const char *name);
void json_set_string(struct json *object, const char *name, const char *text);
void json_set_number(struct json *object, const char *name, double value);
void json_set_integer(struct json *object, const char *name, int64_t value);
void json_set_bool(struct json *object, const char *name, bool value);
void json_set_null(struct json *object, const char *name);

// True if the bytes are well-formed UTF-8 (no surrogates, no overlong forms).
bool json_utf8(const char *text, size_t length);
