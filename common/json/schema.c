/* See schema.h. The check walks the schema's JSON directly. Only a $ref is resolved ahead, because finding it needs
 * the whole document. The value's nesting and a limit on chains of $ref bound the recursion. The position in the value
 * is a chain of names and numbers, printed when a check fails. */
#include "common/json/schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLACE_BYTES = 160, REF_CHAIN = 16 };

struct place {
	const struct place *outer; // NULL: the whole value,
	const char *name;          // whose name this is; else of a member; NULL: of an item
	size_t index;              // which one
};

#define LINK "$to" // the member beside a $ref that is what it names

static const struct json *follow(const struct json *document, const char *pointer)
{
	char part[96];
	while (document && *pointer == '/') {
		size_t length = strcspn(++pointer, "/");
		if (length >= sizeof part)
			return NULL;
		memcpy(part, pointer, length);
		part[length] = 0;
		document = json_get(document, part);
		pointer += length;
	}
	return *pointer ? NULL : document;
}

// The target of a $ref; NULL: there is none.
static const struct json *target(const struct json *document, const struct json *other, const char *ref)
{
	const char *hash = strchr(ref, '#');
	return hash ? follow(hash == ref ? document : other, hash + 1) : NULL;
}

static void link_below(const struct json *document, const struct json *other, struct json *schema)
{
	const struct json *ref = json_get(schema, "$ref");
	const struct json *to = ref ? target(document, other, json_string(ref, "")) : NULL;
	for (const struct json *member = json_first(schema); member; member = json_next(member))
		link_below(document, other, (struct json *)(uintptr_t)member);
	if (to)
		json_set_reference(schema, LINK, to);
}

void schema_link(struct json *document, const struct json *other)
{
	link_below(document, other, document);
}

// The schema behind any chain of $ref.
static const struct json *resolve(const struct json *schema)
{
	for (int i = 0; schema && i < REF_CHAIN; i++) {
		if (json_type(json_get(schema, "$ref")) != JSON_STRING)
			return schema;
		schema = json_get(schema, LINK);
	}
	return NULL;
}

static bool is_type(const struct json *value, const char *type)
{
	switch (json_type(value)) {
	case JSON_ABSENT:
		return false;
	case JSON_NULL:
		return !strcmp(type, "null");
	case JSON_BOOL:
		return !strcmp(type, "boolean");
	case JSON_NUMBER:
		return !strcmp(type, "number") ||
		       (!strcmp(type, "integer") && json_number(value, 0.5) == floor(json_number(value, 0.5)));
	case JSON_STRING:
		return !strcmp(type, "string");
	case JSON_ARRAY:
		return !strcmp(type, "array");
	case JSON_OBJECT:
		return !strcmp(type, "object");
	}
	return false;
}

static size_t print_place(const struct place *place, char text[PLACE_BYTES])
{
	size_t used = place->outer ? print_place(place->outer, text) : 0;
	int length = !place->name   ? snprintf(text + used, PLACE_BYTES - used, "[%zu]", place->index)
		     : place->outer ? snprintf(text + used, PLACE_BYTES - used, ".%.40s", place->name)
				    : snprintf(text, PLACE_BYTES, "%s", place->name);
	used += length > 0 ? (size_t)length : 0;
	return used < PLACE_BYTES ? used : PLACE_BYTES - 1;
}

// The place, and what is wrong there.
__attribute__((format(printf, 3, 4))) static enum status fail(struct error *error, const struct place *place,
							      const char *format, ...)
{
	char where[PLACE_BYTES], what[sizeof error->message];
	va_list list;
	if (!error || error->message[0])
		return STATUS_INVALID_PARAMS;
	print_place(place, where);
	va_start(list, format);
	vsnprintf(what, sizeof what, format, list);
	va_end(list);
	return error_set(error, STATUS_INVALID_PARAMS, "%s %s", where, what);
}

static enum status check_type(const struct json *type, const struct json *value, const struct place *place,
			      struct error *error)
{
	char wanted[96] = "";
	if (json_type(type) == JSON_STRING)
		return is_type(value, json_string(type, ""))
			       ? STATUS_OK
			       : fail(error, place, "must be of type %s", json_string(type, ""));
	for (const struct json *one = json_first(type); one; one = json_next(one))
		if (is_type(value, json_string(one, "")))
			return STATUS_OK;
	for (const struct json *one = json_first(type); one; one = json_next(one)) {
		size_t used = strlen(wanted);
		snprintf(wanted + used, sizeof wanted - used, "%s%s", used ? " or " : "", json_string(one, ""));
	}
	return fail(error, place, "must be of type %s", wanted);
}

static enum status check_enum(const struct json *list, const struct json *value, const struct place *place,
			      struct error *error)
{
	char wanted[200] = "";
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (json_equal(one, value))
			return STATUS_OK;
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		size_t used = strlen(wanted);
		snprintf(wanted + used, sizeof wanted - used, "%s%s", used ? ", " : "", json_string(one, "?"));
	}
	return fail(error, place, "must be one of: %s", wanted);
}

static enum status check_number(const struct json *schema, double value, const struct place *place, struct error *error)
{
	double minimum = json_get_number(schema, "minimum", -INFINITY);
	double maximum = json_get_number(schema, "maximum", INFINITY);
	if (value < minimum)
		return fail(error, place, "must be at least %.16g", minimum);
	if (value > maximum)
		return fail(error, place, "must be at most %.16g", maximum);
	return STATUS_OK;
}

static enum status check_count(const struct json *schema, double count, const char *least, const char *most,
			       const char *what, const struct place *place, struct error *error)
{
	double minimum = json_get_number(schema, least, 0), maximum = json_get_number(schema, most, INFINITY);
	if (count < minimum)
		return fail(error, place, "must have at least %.0f %s%s", minimum, what, minimum == 1 ? "" : "s");
	if (count > maximum)
		return fail(error, place, "must have at most %.0f %s%s", maximum, what, maximum == 1 ? "" : "s");
	return STATUS_OK;
}

static double code_points(const char *text)
{
	double count = 0;
	for (; *text; text++)
		count += (*text & 0xC0) != 0x80;
	return count;
}

static enum status check(const struct json *schema, const struct json *value, const struct place *place,
			 struct error *error);

static enum status check_members(const struct json *schema, const struct json *value, const struct place *place,
				 struct error *error)
{
	const struct json *properties = json_get(schema, "properties"),
			  *more = json_get(schema, "additionalProperties");
	for (const struct json *name = json_first(json_get(schema, "required")); name; name = json_next(name))
		if (!json_get(value, json_string(name, "")))
			return fail(error, place, "lacks \"%s\"", json_string(name, ""));
	for (const struct json *member = json_first(value); member; member = json_next(member)) {
		const struct json *known = json_get(properties, json_name(member));
		if (!known && json_type(more) == JSON_BOOL && !json_bool(more, true))
			return fail(error, place, "has the unknown member \"%.40s\"", json_name(member));
		if (!known && json_type(more) == JSON_OBJECT)
			known = more;
		if (!known)
			continue;
		const struct place inner = {.outer = place, .name = json_name(member)};
		enum status status = check(known, member, &inner, error);
		if (status)
			return status;
	}
	return STATUS_OK;
}

static enum status check_items(const struct json *schema, const struct json *value, const struct place *place,
			       struct error *error)
{
	const struct json *items = json_get(schema, "items");
	struct place inner = {.outer = place};
	enum status status = check_count(schema, (double)json_count(value), "minItems", "maxItems", "member", place,
					 error);
	for (const struct json *item = json_first(value); item && items && !status; item = json_next(item)) {
		status = check(items, item, &inner, error);
		inner.index++;
	}
	return status;
}

// The alternative whose error says most: one that requires a member which is there; else the first, since the others
// are null and the like.
static const struct json *meant_alternative(const struct json *list, const struct json *value)
{
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		const struct json *name = json_first(json_get(resolve(one), "required"));
		if (name && json_type(value) == JSON_OBJECT && json_get(value, json_string(name, "")))
			return one;
	}
	return json_first(list);
}

static enum status check_any(const struct json *list, const struct json *value, const struct place *place,
			     struct error *error)
{
	struct error first = {0};
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (!check(one, value, place, NULL))
			return STATUS_OK;
	if (error && json_first(list))
		check(meant_alternative(list, value), value, place, &first);
	return error_set(error, STATUS_INVALID_PARAMS, "%s", first.message);
}

static enum status check(const struct json *schema, const struct json *value, const struct place *place,
			 struct error *error)
{
	enum status status = STATUS_OK;
	char where[PLACE_BYTES];
	schema = resolve(schema);
	if (!schema) {
		print_place(place, where);
		return error_set(error, STATUS_INTERNAL, "the schema of %s has a $ref that leads nowhere", where);
	}
	for (const struct json *keyword = json_first(schema); keyword && !status; keyword = json_next(keyword)) {
		const char *name = json_name(keyword);
		if (!strcmp(name, "type"))
			status = check_type(keyword, value, place, error);
		else if (!strcmp(name, "enum"))
			status = check_enum(keyword, value, place, error);
		else if (!strcmp(name, "const") && !json_equal(keyword, value))
			status = fail(error, place, "must have its one allowed value");
		else if (!strcmp(name, "anyOf"))
			status = check_any(keyword, value, place, error);
	}
	if (status)
		return status;
	switch (json_type(value)) {
	case JSON_NUMBER:
		return check_number(schema, json_number(value, 0), place, error);
	case JSON_STRING:
		return check_count(schema, code_points(json_string(value, "")), "minLength", "maxLength", "character",
				   place, error);
	case JSON_ARRAY:
		return check_items(schema, value, place, error);
	case JSON_OBJECT:
		return check_members(schema, value, place, error);
	case JSON_ABSENT:
	case JSON_NULL:
	case JSON_BOOL:
		return STATUS_OK;
	}
	return STATUS_OK;
}

enum status schema_check(const struct json *schema, const struct json *value, const char *place, struct error *error)
{
	return check(schema, value, &(const struct place){.name = place}, error);
}

// ---- single values ----

bool schema_is_text(const struct json *schema)
{
	const struct json *type = json_get(schema, "type"), *values = json_get(schema, "enum");
	if (type)
		return !strcmp(json_string(type, ""), "string");
	for (const struct json *one = json_first(values); one; one = json_next(one))
		if (json_type(one) != JSON_STRING)
			return false;
	return values != NULL;
}

struct schema_scalar schema_read_scalar(const struct json *schema)
{
	schema = resolve(schema);
	const char *type = json_get_string(schema, "type", "");
	const bool string = !strcmp(type, "string");
	if ((!string && strcmp(type, "integer") != 0) || json_get(schema, "enum") || json_get(schema, "const") ||
	    json_get(schema, "anyOf"))
		return (struct schema_scalar){.type = JSON_ABSENT};
	return (struct schema_scalar){
		.type = string ? JSON_STRING : JSON_NUMBER,
		.least = json_get_number(schema, string ? "minLength" : "minimum", string ? 0 : -INFINITY),
		.most = json_get_number(schema, string ? "maxLength" : "maximum", INFINITY)};
}

bool schema_fits_scalar(const struct schema_scalar *scalar, const struct json *value)
{
	if (scalar->type == JSON_ABSENT || json_type(value) != scalar->type)
		return false;
	const bool string = scalar->type == JSON_STRING;
	const double number = string ? code_points(json_string(value, "")) : json_number(value, 0.5);
	return number == floor(number) && number >= scalar->least && number <= scalar->most;
}
