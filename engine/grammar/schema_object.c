/* Objects and arrays of a schema. See schema.h. */
#include "common/text/unicode.h"
#include "engine/grammar/schema_inside.h"

#include <stdlib.h>
#include <string.h>

static bool failed(const struct schema *schema)
{
	return schema->builder->status;
}

uint32_t schema_count(struct schema *schema, const struct json *json, const char *keyword, uint32_t fallback)
{
	const struct json *count = json_get(json, keyword);
	const double value = json_number(count, -1);
	if (!count)
		return fallback;
	if (!(value >= 0 && value <= GRAMMAR_NODES) || value != (double)(uint32_t)value)
		schema_refuse(schema, keyword,
			      value > GRAMMAR_NODES ? "is more than can be counted" : "is not a count");
	return failed(schema) ? 0 : (uint32_t)value;
}

static uint32_t sequence(struct schema *schema, const uint32_t *kids, size_t count)
{
	struct list list = {0};
	for (size_t i = 0; i < count; i++)
		list_add(schema->builder, &list, kids[i]);
	const uint32_t out = expression_sequence(schema->builder, &list);
	list_finish(&list);
	return out;
}

static uint32_t named_rule(struct schema *schema, uint32_t body)
{
	const uint32_t rule = builder_rule(schema->builder, "", 0);
	builder_define(schema->builder, rule, body);
	return expression_rule(schema->builder, rule);
}

static uint32_t text(struct schema *schema, const char *bytes)
{
	return expression_text(schema->builder, bytes);
}

// ---- names ----

static uint32_t name_of(struct schema *schema, const char *name)
{
	struct buffer out;
	buffer_init(&out, GRAMMAR_TEXT_BYTES);
	if (json_print_string(name, &out))
		builder_fail(schema->builder, STATUS_LIMIT_EXCEEDED, "a property's name is too long");
	const uint32_t expression = expression_bytes(schema->builder, out.data, out.length);
	buffer_finish(&out);
	return expression;
}

// Characters for names that a schema does not list, except the `count` ones in `but`; none of them needs an escape.
static uint32_t free_characters(struct schema *schema, const uint32_t *but, size_t count)
{
	struct ranges ranges = {0};
	span_list_add(schema->builder, &ranges, 1, 0x1F);
	span_list_add(schema->builder, &ranges, '"', '"');
	span_list_add(schema->builder, &ranges, '\\', '\\');
	for (size_t i = 0; i < count; i++)
		span_list_add(schema->builder, &ranges, but[i], but[i]);
	span_list_settle(&ranges);
	span_list_invert(schema->builder, &ranges);
	const uint32_t out = expression_class(schema->builder, &ranges);
	span_list_finish(&ranges);
	return out;
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

// The rest, after the first `skip` bytes, of a name that equals none of these names (sorted), with the closing
// quotation mark.
static uint32_t other_rest(struct schema *schema, const struct words *names, size_t skip, uint32_t any, unsigned depth)
{
	struct builder *builder = schema->builder;
	struct list choices = {0}, firsts = {0};
	bool ends = false;
	if (depth > SCHEMA_PATH_BYTES) {
		schema_refuse(schema, "additionalProperties", "cannot be combined with names that are too long");
		return 0;
	}
	for (size_t i = 0, end; i < names->count && !failed(schema); i = end) {
		const char *rest = names->items[i] + skip;
		unsigned bytes = 1;
		end = i + 1;
		if (!rest[0]) {
			ends = true;
			continue;
		}
		const uint32_t first = utf8_first(rest, &bytes);
		while (end < names->count && !strncmp(names->items[end] + skip, rest, bytes))
			end++;
		const struct words below = {.items = names->items + i, .count = end - i};
		list_add(builder, &firsts, first);
		if (first >= 0x20 && first != '"' && first != '\\')
			list_add(builder, &choices,
				 expression_pair(
					 builder, expression_bytes(builder, rest, bytes),
					 named_rule(schema, other_rest(schema, &below, skip + bytes, any, depth + 1))));
	}
	list_add(builder, &choices,
		 sequence(schema,
			  (uint32_t[]){free_characters(schema, firsts.items, firsts.count), any, text(schema, "\"")},
			  3));
	if (!ends)
		list_add(builder, &choices, text(schema, "\""));
	const uint32_t out = expression_choice(builder, &choices);
	list_finish(&choices);
	list_finish(&firsts);
	return out;
}

static uint32_t other_name(struct schema *schema, const struct json *properties)
{
	const size_t most = json_count(properties);
	struct words names = {.items = calloc(most + 1, sizeof(*names.items))};
	if (!most || !names.items) {
		free(names.items);
		return schema_common(schema, COMMON_STRING);
	}
	for (const struct json *one = json_first(properties); one; one = json_next(one))
		names.items[names.count++] = json_name(one);
	qsort(names.items, names.count, sizeof(*names.items), compare_names);
	const uint32_t any = expression_repeat(schema->builder, named_rule(schema, free_characters(schema, NULL, 0)), 0,
					       EXPRESSION_ENDLESS);
	const uint32_t out = expression_pair(schema->builder, text(schema, "\""),
					     other_rest(schema, &names, 0, any, 0));
	free(names.items);
	return out;
}

// ---- objects ----

struct member {
	uint32_t expression; // its name, a colon and its value
	bool required;
};

static bool is_required(const struct json *json, const char *name)
{
	for (const struct json *one = json_first(json_get(json, "required")); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), name))
			return true;
	return false;
}

static uint32_t member(struct schema *schema, uint32_t name, uint32_t value)
{
	return named_rule(
		schema,
		sequence(schema, (uint32_t[]){name, text(schema, ":"), schema_common(schema, COMMON_SPACE), value}, 4));
}

// Members in their order. `more`: what may follow all of them, any number of times; 0: nothing.
static uint32_t join(struct schema *schema, const struct member *members, size_t count, uint32_t more)
{
	struct builder *builder = schema->builder;
	const uint32_t gap = schema_common(schema, COMMON_SPACE), empty = text(schema, "");
	uint32_t rest = gap, first = empty;
	if (more) {
		const uint32_t next = sequence(schema, (uint32_t[]){text(schema, ","), gap, more}, 3);
		rest = named_rule(
			schema, expression_pair(builder, expression_repeat(builder, next, 0, EXPRESSION_ENDLESS), gap));
		first = named_rule(schema, expression_either(builder, expression_pair(builder, more, rest), empty));
	}
	// `rest`: something has come before; `first`: nothing has.
	for (size_t i = count; i && !failed(schema); i--) {
		const struct member *one = &members[i - 1];
		const uint32_t begun = expression_pair(builder, one->expression, rest);
		const uint32_t then = sequence(schema, (uint32_t[]){text(schema, ","), gap, one->expression, rest}, 4);
		first = named_rule(schema, one->required ? begun : expression_either(builder, begun, first));
		rest = named_rule(schema, one->required ? then : expression_either(builder, then, rest));
	}
	return sequence(schema, (uint32_t[]){text(schema, "{"), gap, first, text(schema, "}")}, 4);
}

static bool check_numbers(struct schema *schema, const struct json *json, size_t required, size_t most)
{
	if (schema_count(schema, json, "minProperties", 0) > required)
		schema_refuse(schema, "minProperties", "is more than the properties that are required");
	if (json_get(json, "maxProperties") && schema_count(schema, json, "maxProperties", 0) < most)
		schema_refuse(schema, "maxProperties", "is less than the properties that there are");
	return !failed(schema);
}

// Required members that are not among the properties; returns how many.
static size_t add_unnamed(struct schema *schema, const struct json *json, struct member *members, size_t count)
{
	static const char *const none[] = {NULL};
	const struct json *properties = json_get(json, "properties"), *other = json_get(json, "additionalProperties");
	for (const struct json *one = json_first(json_get(json, "required")); one && !failed(schema);
	     one = json_next(one)) {
		const char *name = json_string(one, NULL);
		if (!name)
			schema_refuse(schema, "required", "is not a list of names");
		else if (!json_get(properties, name) && json_type(other) == JSON_BOOL && !json_bool(other, true))
			schema_refuse(schema, "required", "names a property that additionalProperties forbids");
		else if (!json_get(properties, name))
			members[count++] = (struct member){
				.expression = member(schema, name_of(schema, name),
						     json_type(other) == JSON_OBJECT && schema_constrains(other, none)
							     ? schema_value(schema, other)
							     : schema_common(schema, COMMON_VALUE)),
				.required = true};
	}
	return count;
}

uint32_t schema_object(struct schema *schema, const struct json *json)
{
	const struct json *properties = json_get(json, "properties"), *other = json_get(json, "additionalProperties");
	const struct json *required = json_get(json, "required");
	size_t count = 0, needed = 0;
	if (!properties && !other && !required && !json_get(json, "minProperties") && !json_get(json, "maxProperties"))
		return schema_common(schema, COMMON_OBJECT);
	if (properties && json_type(properties) != JSON_OBJECT)
		return schema_refuse(schema, "properties", "is no object");
	if (required && json_type(required) != JSON_ARRAY)
		return schema_refuse(schema, "required", "is not a list of names");
	if (json_count(properties) > SCHEMA_MEMBERS || json_count(required) > SCHEMA_MEMBERS)
		return schema_refuse(schema, json_count(properties) > SCHEMA_MEMBERS ? "properties" : "required",
				     "has too many names: 800 at most");
	struct member *members = calloc(json_count(properties) + json_count(required) + 1, sizeof(*members));
	if (!members) {
		builder_fail(schema->builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
		return 0;
	}
	const size_t place = schema_enter(schema, "properties");
	for (const struct json *one = json_first(properties); one && !failed(schema); one = json_next(one)) {
		const size_t before = schema_enter(schema, json_name(one));
		members[count].expression = member(schema, name_of(schema, json_name(one)), schema_value(schema, one));
		members[count].required = is_required(json, json_name(one));
		needed += members[count++].required;
		schema_leave(schema, before);
	}
	schema_leave(schema, place);
	const size_t named = count;
	count = add_unnamed(schema, json, members, count);
	needed += count - named;
	const bool open = json_type(other) == JSON_OBJECT || json_bool(other, false);
	uint32_t more = 0;
	if (open && !failed(schema)) {
		const size_t before = schema_enter(schema, "additionalProperties");
		more = member(schema, other_name(schema, properties), schema_value(schema, other));
		schema_leave(schema, before);
	}
	uint32_t out = 0;
	if (!failed(schema) && check_numbers(schema, json, needed, open ? SIZE_MAX : count))
		out = join(schema, members, count, more);
	free(members);
	return out;
}

// ---- arrays ----

// `before` items have come. What follows, with the commas before it: the rest of the listed ones, then any number.
struct array {
	const uint32_t *listed; // (listed_count)
	size_t listed_count;
	uint32_t other; // 0: none
	bool others;
	uint32_t least, most;
};

static uint32_t after_listed(struct schema *schema, const struct array *array)
{
	const size_t come = array->listed_count;
	const uint32_t gap = schema_common(schema, COMMON_SPACE);
	const uint32_t least = array->least > come ? array->least - (uint32_t)come : 0;
	if (!array->others || array->most <= come)
		return text(schema, "");
	const uint32_t next = sequence(schema, (uint32_t[]){text(schema, ","), gap, array->other}, 3);
	return expression_repeat(schema->builder, next, least,
				 array->most == EXPRESSION_ENDLESS ? array->most : array->most - (uint32_t)come);
}

static uint32_t items_of(struct schema *schema, const struct array *given)
{
	struct array array = *given;
	struct builder *builder = schema->builder;
	const uint32_t gap = schema_common(schema, COMMON_SPACE), empty = text(schema, "");
	if (!array.most || (!array.listed_count && !array.others))
		return array.least ? expression_choice(builder, &(struct list){0}) : empty;
	if (!array.listed_count) { // the first has no comma before it
		array.listed = &array.other;
		array.listed_count = 1;
	}
	if (array.least > array.listed_count && !array.others)
		return expression_choice(builder, &(struct list){0});
	uint32_t rest = after_listed(schema, &array);
	for (size_t i = array.listed_count; i && !failed(schema); i--) {
		const uint32_t one = array.listed[i - 1];
		if (i > array.most)
			continue;
		rest = i == 1 ? expression_pair(builder, one, rest)
			      : sequence(schema, (uint32_t[]){text(schema, ","), gap, one, rest}, 4);
		if (i > array.least && i > 1)
			rest = expression_either(builder, rest, empty);
		rest = named_rule(schema, rest);
	}
	const uint32_t all = expression_pair(builder, rest, gap);
	return array.least ? all : expression_repeat(builder, all, 0, 1);
}

uint32_t schema_array(struct schema *schema, const struct json *json)
{
	const struct json *items = json_get(json, "items"), *listed = json_get(json, "prefixItems");
	struct list values = {0};
	struct array array = {.least = schema_count(schema, json, "minItems", 0),
			      .most = schema_count(schema, json, "maxItems", EXPRESSION_ENDLESS)};
	if (json_type(items) == JSON_ARRAY) { // as drafts before 2020-12 have it
		listed = items;
		items = json_get(json, "additionalItems");
	}
	if (listed && json_type(listed) != JSON_ARRAY)
		return schema_refuse(schema, "prefixItems", "is not a list of schemas");
	if (json_get_bool(json, "uniqueItems", false) && array.most > 1)
		return schema_refuse(schema, "uniqueItems", "cannot be enforced while an answer is generated");
	if (array.most < array.least)
		return schema_refuse(schema, "maxItems", "is less than minItems");
	const size_t place = schema_enter(schema, "items");
	for (const struct json *one = json_first(listed); one && !failed(schema); one = json_next(one))
		list_add(schema->builder, &values, named_rule(schema, schema_value(schema, one)));
	// Behind listed items others come where they are asked for.
	array.others = items ? json_type(items) != JSON_BOOL || json_bool(items, true)
			     : !listed || array.least > values.count;
	if (array.others && !failed(schema))
		array.other = named_rule(schema,
					 items ? schema_value(schema, items) : schema_common(schema, COMMON_VALUE));
	schema_leave(schema, place);
	array.listed = values.items;
	array.listed_count = values.count;
	const uint32_t gap = schema_common(schema, COMMON_SPACE);
	const uint32_t out = failed(schema) ? 0
					    : sequence(schema,
						       (uint32_t[]){text(schema, "["), gap, items_of(schema, &array),
								    text(schema, "]")},
						       4);
	list_finish(&values);
	return out;
}
