/* Two schemas in one, where that is plain; and whether two have nothing in common. See schema.h. */
#include "engine/grammar/schema_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct json *own(struct schema *schema, struct json *json)
{
	if (schema->merged_count >= schema->merged_most) {
		json_destroy(&json);
		builder_fail(schema->builder, STATUS_LIMIT_EXCEEDED, "the schema combines others too often");
		return NULL;
	}
	struct json **grown = realloc(schema->merged, (schema->merged_count + 1) * sizeof(struct json *));
	if (grown)
		schema->merged = grown;
	if (!grown || !json) {
		json_destroy(&json);
		builder_fail(schema->builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
		return NULL;
	}
	return schema->merged[schema->merged_count++] = json;
}

const struct json *schema_without(struct schema *schema, const struct json *json, const char *const *names)
{
	struct json *out = json_copy(json);
	for (const char *const *name = names; *name; name++)
		json_remove(out, *name);
	return own(schema, out);
}

// ---- keywords that both have ----

static bool in_list(const struct json *list, const struct json *value)
{
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (json_equal(one, value))
			return true;
	return false;
}

static struct json *united(const struct json *a, const struct json *b)
{
	struct json *out = json_copy(a);
	for (const struct json *one = json_first(b); one; one = json_next(one))
		if (!in_list(out, one))
			json_push(out, json_copy(one));
	return out;
}

static struct json *common(const struct json *a, const struct json *b)
{
	struct json *out = json_new_array();
	for (const struct json *one = json_first(a); one; one = json_next(one))
		if (in_list(b, one))
			json_push(out, json_copy(one));
	return out;
}

static struct json *listed(const struct json *value)
{
	struct json *out;
	if (json_type(value) == JSON_ARRAY)
		return json_copy(value);
	out = json_new_array();
	json_push(out, json_copy(value));
	return out;
}

// Types of both; an integer is a number.
static struct json *common_types(const struct json *a, const struct json *b)
{
	struct json *left = listed(a), *right = listed(b), *number = json_new_string("number");
	struct json *integer = json_new_string("integer"), *out = common(left, right);
	if (!in_list(out, number) && !in_list(out, integer) &&
	    ((in_list(left, number) && in_list(right, integer)) || (in_list(left, integer) && in_list(right, number))))
		json_push(out, json_copy(integer));
	json_destroy(&left);
	json_destroy(&right);
	json_destroy(&number);
	json_destroy(&integer);
	return out;
}

static struct json *both(const struct json *a, const struct json *b)
{
	struct json *out = json_new_object(), *list = json_new_array();
	json_push(list, json_copy(a));
	json_push(list, json_copy(b));
	json_set(out, "allOf", list);
	return out;
}

static struct json *merged_properties(const struct json *a, const struct json *b)
{
	struct json *out = json_copy(a);
	for (const struct json *one = json_first(b); one; one = json_next(one)) {
		const struct json *other = json_get(a, json_name(one));
		json_set(out, json_name(one), other && !json_equal(other, one) ? both(other, one) : json_copy(one));
	}
	return out;
}

// The value of a keyword that both schemas have; NULL: the two cannot be combined.
static struct json *combine(const char *keyword, const struct json *a, const struct json *b)
{
	static const char *const larger[] = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
	static const char *const smaller[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
	for (size_t i = 0; i < sizeof(larger) / sizeof(larger[0]); i++) {
		if (!strcmp(larger[i], keyword))
			return json_new_number(fmax(json_number(a, NAN), json_number(b, NAN)));
		if (!strcmp(smaller[i], keyword))
			return json_new_number(fmin(json_number(a, NAN), json_number(b, NAN)));
	}
	if (json_count(a) * json_count(b) > SCHEMA_COMPARED)
		return NULL;
	if (!strcmp(keyword, "type"))
		return common_types(a, b);
	if (!strcmp(keyword, "enum"))
		return common(a, b);
	if (!strcmp(keyword, "required"))
		return united(a, b);
	if (!strcmp(keyword, "properties"))
		return merged_properties(a, b);
	if (!strcmp(keyword, "allOf"))
		return united(a, b);
	if (!strcmp(keyword, "items") && json_type(a) == JSON_OBJECT && json_type(b) == JSON_OBJECT)
		return both(a, b);
	return NULL;
}

// Whether additionalProperties of one would say something of members that only the other names.
static bool tangled(const struct json *a, const struct json *b)
{
	const struct json *other = json_get(a, "additionalProperties");
	if (!other || json_equal(other, json_get(b, "additionalProperties")) || json_bool(other, false))
		return false;
	for (const struct json *one = json_first(json_get(b, "properties")); one; one = json_next(one))
		if (!json_get(json_get(a, "properties"), json_name(one)))
			return true;
	return false;
}

static bool same_names(const struct json *a, const struct json *b)
{
	for (const struct json *one = json_first(json_get(b, "properties")); one; one = json_next(one))
		if (!json_get(json_get(a, "properties"), json_name(one)))
			return false;
	return json_count(json_get(a, "properties")) == json_count(json_get(b, "properties"));
}

const struct json *schema_merge(struct schema *schema, const struct json *a, const struct json *b)
{
	static const char *const nothing[] = {NULL};
	unsigned turns = 0;
	while (b && json_get_string(b, "$ref", NULL) && !schema->builder->status) {
		static const char *const reference[] = {"$ref", NULL};
		if (++turns > SCHEMA_NESTING || schema_constrains(b, reference)) {
			schema_refuse(schema, "$ref", "cannot be combined with the keywords beside it");
			return NULL;
		}
		b = schema_resolve(schema, json_get_string(b, "$ref", ""));
	}
	if (!b || schema->builder->status)
		return NULL;
	if (json_type(b) == JSON_BOOL && json_bool(b, false))
		return a;
	if (json_type(b) == JSON_BOOL || !schema_constrains(a, nothing))
		return b;
	// An object without additional properties allows only its own names. Two of them with different names would
	// have only their common names in common.
	if (tangled(a, b) || tangled(b, a) ||
	    (json_get(a, "additionalProperties") && json_get(b, "additionalProperties") && !same_names(a, b))) {
		schema_refuse(schema, "additionalProperties", "cannot be combined with other properties beside it");
		return NULL;
	}
	struct json *out = json_copy(a);
	for (const struct json *one = json_first(b); one; one = json_next(one)) {
		const struct json *mine = json_get(a, json_name(one));
		struct json *whole = mine && !json_equal(mine, one) ? combine(json_name(one), mine, one)
								    : json_copy(one);
		struct json *only = json_new_object();
		json_set(only, json_name(one), json_copy(one));
		const bool says = schema_constrains(only, nothing);
		json_destroy(&only);
		if (whole) {
			json_set(out, json_name(one), whole);
		} else if (says) {
			schema_refuse(schema, json_name(one), "cannot be combined with another of its kind");
			json_destroy(&out);
			return NULL;
		}
	}
	return own(schema, out);
}

// ---- options that have nothing in common ----

static const struct json *resolved(struct schema *schema, const struct json *json)
{
	for (unsigned turns = 0; json_get_string(json, "$ref", NULL) && turns < SCHEMA_NESTING; turns++)
		json = schema_resolve(schema, json_get_string(json, "$ref", ""));
	return json;
}

static unsigned said_types(struct schema *schema, const struct json *json)
{
	const struct json *list = json_get(json, "enum"), *only = json_get(json, "const");
	unsigned types = 0;
	for (const struct json *one = json_first(list); one; one = json_next(one))
		types |= schema_type_of(one);
	types |= schema_type_of(only);
	if (!types)
		types = json_get(json, "type") ? schema_types(schema, json) : TYPE_ANY;
	return types & TYPE_NUMBER ? types | TYPE_INTEGER : types;
}

static bool other_values(const struct json *a, const struct json *b)
{
	struct json *left = json_get(a, "enum") ? json_copy(json_get(a, "enum")) : listed(json_get(a, "const"));
	struct json *right = json_get(b, "enum") ? json_copy(json_get(b, "enum")) : listed(json_get(b, "const"));
	struct json *shared = json_count(left) * json_count(right) > SCHEMA_COMPARED ? json_copy(left)
										     : common(left, right);
	const bool known = (json_get(a, "enum") || json_get(a, "const")) &&
			   (json_get(b, "enum") || json_get(b, "const"));
	const bool out = known && !json_count(shared);
	json_destroy(&left);
	json_destroy(&right);
	json_destroy(&shared);
	return out;
}

static bool needs(const struct json *json, const char *name)
{
	for (const struct json *one = json_first(json_get(json, "required")); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), name))
			return true;
	return false;
}

bool schema_disjoint(struct schema *schema, const struct json *a, const struct json *b)
{
	a = resolved(schema, a);
	b = resolved(schema, b);
	if (!a || !b || schema->builder->status)
		return false;
	if (!(said_types(schema, a) & said_types(schema, b)) || other_values(a, b))
		return true;
	// Objects that must both have a member which cannot be the same.
	for (const struct json *one = json_first(json_get(a, "properties")); one; one = json_next(one)) {
		const struct json *other = json_get(json_get(b, "properties"), json_name(one));
		if (other && needs(a, json_name(one)) && needs(b, json_name(one)) && json_get(a, "type") &&
		    json_get(b, "type") && schema_types(schema, a) == TYPE_OBJECT &&
		    schema_types(schema, b) == TYPE_OBJECT &&
		    other_values(resolved(schema, one), resolved(schema, other)))
			return true;
	}
	return false;
}
