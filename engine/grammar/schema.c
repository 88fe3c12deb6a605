/* See schema.h. Here: which keywords there are, and schemas that are made of others. */
#include "engine/grammar/schema_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How a keyword is handled, and which type it constrains.
static const struct keyword {
	const char *name;
	enum { ANNOTATION, KEPT, REFUSED } is;
	unsigned type; // 0: of all
} keywords[] = {
	{"type", KEPT, 0},
	{"enum", KEPT, 0},
	{"const", KEPT, 0},
	{"$ref", KEPT, 0},
	{"allOf", KEPT, 0},
	{"anyOf", KEPT, 0},
	{"oneOf", KEPT, 0},
	{"properties", KEPT, TYPE_OBJECT},
	{"required", KEPT, TYPE_OBJECT},
	{"additionalProperties", KEPT, TYPE_OBJECT},
	{"minProperties", KEPT, TYPE_OBJECT},
	{"maxProperties", KEPT, TYPE_OBJECT},
	{"items", KEPT, TYPE_ARRAY},
	{"prefixItems", KEPT, TYPE_ARRAY},
	{"additionalItems", KEPT, TYPE_ARRAY},
	{"minItems", KEPT, TYPE_ARRAY},
	{"maxItems", KEPT, TYPE_ARRAY},
	{"uniqueItems", KEPT, TYPE_ARRAY},
	{"pattern", KEPT, TYPE_STRING},
	{"format", KEPT, TYPE_STRING},
	{"minLength", KEPT, TYPE_STRING},
	{"maxLength", KEPT, TYPE_STRING},
	{"minimum", KEPT, TYPE_NUMBER},
	{"maximum", KEPT, TYPE_NUMBER},
	{"exclusiveMinimum", KEPT, TYPE_NUMBER},
	{"exclusiveMaximum", KEPT, TYPE_NUMBER},
	{"multipleOf", KEPT, TYPE_NUMBER},
	{"not", REFUSED, 0},
	{"if", REFUSED, 0},
	{"then", REFUSED, 0},
	{"else", REFUSED, 0},
	{"dependencies", REFUSED, TYPE_OBJECT},
	{"dependentRequired", REFUSED, TYPE_OBJECT},
	{"dependentSchemas", REFUSED, TYPE_OBJECT},
	{"patternProperties", REFUSED, TYPE_OBJECT},
	{"propertyNames", REFUSED, TYPE_OBJECT},
	{"unevaluatedProperties", REFUSED, TYPE_OBJECT},
	{"unevaluatedItems", REFUSED, TYPE_ARRAY},
	{"contains", REFUSED, TYPE_ARRAY},
	{"minContains", REFUSED, TYPE_ARRAY},
	{"maxContains", REFUSED, TYPE_ARRAY},
	{"$dynamicRef", REFUSED, 0},
	{"$recursiveRef", REFUSED, 0},
};
enum { KEYWORDS = sizeof(keywords) / sizeof(keywords[0]) };

static const struct keyword *find_keyword(const char *name)
{
	for (size_t i = 0; i < KEYWORDS; i++)
		if (!strcmp(keywords[i].name, name))
			return &keywords[i];
	return NULL;
}

static bool failed(const struct schema *schema)
{
	return schema->builder->status;
}

void schema_note_refused(struct schema *schema, const char *keyword)
{
	struct grammar_refusal *refused = &schema->builder->refused;
	snprintf(refused->keyword, sizeof(refused->keyword), "%s", keyword);
	snprintf(refused->path, sizeof(refused->path), "%s", schema->path);
}

uint32_t schema_refuse(struct schema *schema, const char *keyword, const char *why)
{
	if (!schema->builder->status)
		schema_note_refused(schema, keyword);
	builder_fail(schema->builder, STATUS_INVALID_PARAMS, "the keyword %.64s at #%s %s", keyword, schema->path, why);
	return 0;
}

size_t schema_enter(struct schema *schema, const char *name)
{
	const size_t before = strlen(schema->path);
	snprintf(schema->path + before, sizeof(schema->path) - before, "/%.64s", name);
	return before;
}

void schema_leave(struct schema *schema, size_t before)
{
	schema->path[before] = 0;
}

bool schema_constrains(const struct json *json, const char *const *except)
{
	for (const struct json *one = json_first(json); one; one = json_next(one)) {
		bool excepted = !find_keyword(json_name(one));
		for (const char *const *name = except; *name && !excepted; name++)
			excepted = !strcmp(*name, json_name(one));
		if (!excepted)
			return true;
	}
	return false;
}

// ---- types ----

static unsigned type_named(const char *name)
{
	static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return 1u << i;
	return 0;
}

unsigned schema_type_of(const struct json *value)
{
	switch (json_type(value)) {
	case JSON_ABSENT:
		break;
	case JSON_NULL:
		return TYPE_NULL;
	case JSON_BOOL:
		return TYPE_BOOLEAN;
	case JSON_NUMBER:
		return json_number(value, 0) == (double)(int64_t)json_number(value, 0) ? TYPE_INTEGER | TYPE_NUMBER
										       : TYPE_NUMBER;
	case JSON_STRING:
		return TYPE_STRING;
	case JSON_ARRAY:
		return TYPE_ARRAY;
	case JSON_OBJECT:
		return TYPE_OBJECT;
	}
	return 0;
}

unsigned schema_types(struct schema *schema, const struct json *json)
{
	const struct json *type = json_get(json, "type");
	unsigned types = 0, meant = 0;
	if (json_type(type) == JSON_STRING)
		types = type_named(json_string(type, ""));
	for (const struct json *one = json_type(type) == JSON_ARRAY ? json_first(type) : NULL; one;
	     one = json_next(one))
		types |= type_named(json_string(one, ""));
	if (type && !types)
		schema_refuse(schema, "type", "is none of null, boolean, integer, number, string, array, object");
	if (type)
		return types;
	for (const struct json *one = json_first(json); one; one = json_next(one)) {
		const struct keyword *keyword = find_keyword(json_name(one));
		meant |= keyword && !(keyword->type == TYPE_STRING && !strcmp(keyword->name, "format")) ? keyword->type
													: 0;
	}
	return meant && !(meant & (meant - 1)) ? meant
	       : meant                         ? TYPE_ANY
	       : json_get(json, "format")      ? TYPE_STRING
					       : TYPE_ANY;
}

static bool check_keywords(struct schema *schema, const struct json *json)
{
	for (const struct json *one = json_first(json); one && !failed(schema); one = json_next(one)) {
		const struct keyword *keyword = find_keyword(json_name(one));
		// Members without a name in `properties` never occur, so these keywords have no effect.
		const bool closes = !strncmp(json_name(one), "unevaluated", 11) && json_type(one) == JSON_BOOL &&
				    (json_bool(one, false) ||
				     (!json_get(json, "additionalProperties") && !json_get(json, "items")));
		if (keyword && keyword->is == REFUSED && !closes)
			schema_refuse(schema, keyword->name, "cannot be enforced while an answer is generated");
	}
	return !failed(schema);
}

// ---- references ----

// A member by its escaped name: ~1 is /, ~0 is ~, and percent signs are of URIs.
static const struct json *step(const struct json *from, const char *name, size_t length)
{
	char plain[256];
	size_t count = 0;
	for (size_t i = 0; i < length && count + 1 < sizeof(plain); i++) {
		unsigned value;
		if (name[i] == '%' && i + 2 < length + 0 && sscanf(name + i + 1, "%2x", &value) == 1) {
			plain[count++] = (char)value;
			i += 2;
		} else {
			plain[count++] = name[i];
		}
	}
	size_t kept = 0;
	for (size_t i = 0; i < count; i++) {
		const bool escape = plain[i] == '~' && i + 1 < count;
		plain[kept++] = !escape ? plain[i] : plain[i + 1] == '1' ? '/' : '~';
		i += escape;
	}
	plain[kept] = 0;
	if (json_type(from) == JSON_OBJECT)
		return json_get(from, plain);
	size_t index = json_type(from) == JSON_ARRAY && kept ? (size_t)strtoul(plain, NULL, 10) : SIZE_MAX;
	const struct json *one = index == SIZE_MAX ? NULL : json_first(from);
	while (one && index--)
		one = json_next(one);
	return one;
}

const struct json *schema_resolve(struct schema *schema, const char *reference)
{
	const struct json *at = schema->root;
	const char *rest = reference + (reference[0] == '#');
	if (reference[0] != '#' || (rest[0] && rest[0] != '/')) {
		schema_refuse(schema, "$ref", "does not name a place in this schema, such as #/$defs/NAME");
		return NULL;
	}
	while (at && rest[0] == '/') {
		const size_t length = strcspn(rest + 1, "/");
		at = step(at, rest + 1, length);
		rest += 1 + length;
	}
	if (!at)
		schema_refuse(schema, "$ref", "names a place that does not exist");
	return at;
}

// The number of the rule for a reference. The rule's body is read later, so a schema may refer to itself.
static uint32_t refer(struct schema *schema, const char *reference)
{
	const struct json *at = schema_resolve(schema, reference);
	for (size_t i = 0; at && i < schema->reference_count; i++)
		if (schema->references[i].at == at)
			return expression_rule(schema->builder, schema->references[i].rule);
	if (!at)
		return 0;
	if (schema->reference_count == SCHEMA_REFERENCES)
		return schema_refuse(schema, "$ref", "is one of too many");
	if (schema->reference_count == schema->reference_capacity) {
		const size_t more = schema->reference_capacity ? 2 * schema->reference_capacity : 16;
		struct reference *grown = realloc(schema->references, more * sizeof(*grown));
		if (!grown) {
			builder_fail(schema->builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
			return 0;
		}
		schema->references = grown;
		schema->reference_capacity = more;
	}
	struct reference *one = &schema->references[schema->reference_count++];
	*one = (struct reference){.at = at, .rule = builder_rule(schema->builder, reference, strlen(reference))};
	snprintf(one->path, sizeof(one->path), "%s", reference + 1);
	return expression_rule(schema->builder, one->rule);
}

// ---- values that are named ----

static uint32_t named_values(struct schema *schema, const struct json *json)
{
	static const char *const apart[] = {"enum", "const", "type", NULL};
	const struct json *list = json_get(json, "enum"), *only = json_get(json, "const");
	const unsigned types = json_get(json, "type") ? schema_types(schema, json) : TYPE_ANY | TYPE_INTEGER;
	if (list && (json_type(list) != JSON_ARRAY || !json_count(list)))
		return schema_refuse(schema, "enum", "is not a list of values");
	if (schema_constrains(json, apart))
		return schema_refuse(schema, list ? "enum" : "const",
				     "cannot be combined with keywords other than type");
	const size_t most = list ? json_count(list) : 1;
	struct words words = {.items = calloc(most, sizeof(*words.items))};
	struct buffer *texts = calloc(most, sizeof(*texts));
	if (!words.items || !texts)
		builder_fail(schema->builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
	const struct json *value = list ? json_first(list) : only;
	for (size_t i = 0; i < most && !failed(schema); i++, value = json_next(value)) {
		buffer_init(&texts[i], GRAMMAR_TEXT_BYTES);
		if (!(schema_type_of(value) & types) || (list && only && !json_equal(value, only)))
			continue;
		if (json_print(value, &texts[i]))
			builder_fail(schema->builder, STATUS_LIMIT_EXCEEDED, "a value of enum is too long");
		words.items[words.count++] = buffer_text(&texts[i]);
	}
	if (!failed(schema) && !words.count)
		schema_refuse(schema, list ? "enum" : "const", "has no value of this type");
	const uint32_t out = failed(schema) ? 0 : expression_words(schema->builder, &words);
	for (size_t i = 0; texts && i < most; i++)
		buffer_finish(&texts[i]);
	free(texts);
	free(words.items);
	return out;
}

// ---- schemas of schemas ----

// Merge the option with the keywords beside it, if those constrain anything.
static const struct json *with_base(struct schema *schema, const struct json *base, const struct json *option)
{
	static const char *const nothing[] = {NULL};
	return schema_constrains(base, nothing) ? schema_merge(schema, base, option) : option;
}

static uint32_t any_of(struct schema *schema, const struct json *json, const char *keyword)
{
	const char *const apart[] = {keyword, NULL};
	const struct json *options = json_get(json, keyword);
	const struct json *base = schema_without(schema, json, apart);
	struct list choices = {0};
	char index[24];
	if (json_type(options) != JSON_ARRAY || !json_count(options))
		return schema_refuse(schema, keyword, "is not a list of schemas");
	if (!strcmp(keyword, "oneOf") && json_count(options) > SCHEMA_OPTIONS)
		return schema_refuse(schema, keyword, "has too many options: 64 at most");
	const size_t place = schema_enter(schema, keyword);
	size_t number = 0;
	for (const struct json *one = json_first(options); one && !failed(schema); one = json_next(one)) {
		snprintf(index, sizeof(index), "%zu", number++);
		const size_t before = schema_enter(schema, index);
		for (const struct json *other = json_next(one); other && !strcmp(keyword, "oneOf") && !failed(schema);
		     other = json_next(other))
			if (!schema_disjoint(schema, one, other))
				schema_refuse(schema, "oneOf", "has options that may overlap; use anyOf");
		const struct json *whole = failed(schema) ? NULL : with_base(schema, base, one);
		if (whole)
			list_add(schema->builder, &choices, schema_value(schema, whole));
		schema_leave(schema, before);
	}
	schema_leave(schema, place);
	const uint32_t out = expression_choice(schema->builder, &choices);
	list_finish(&choices);
	return out;
}

static uint32_t all_of(struct schema *schema, const struct json *json)
{
	static const char *const apart[] = {"allOf", NULL};
	const struct json *options = json_get(json, "allOf");
	const struct json *whole = schema_without(schema, json, apart);
	if (json_type(options) != JSON_ARRAY || !json_count(options))
		return schema_refuse(schema, "allOf", "is not a list of schemas");
	const size_t place = schema_enter(schema, "allOf");
	for (const struct json *one = json_first(options); one && whole && !failed(schema); one = json_next(one))
		whole = with_base(schema, whole, one);
	const uint32_t out = whole && !failed(schema) ? schema_value(schema, whole) : 0;
	schema_leave(schema, place);
	return out;
}

static uint32_t by_type(struct schema *schema, const struct json *json)
{
	static const char *const nothing[] = {NULL};
	struct list choices = {0};
	struct builder *builder = schema->builder;
	if (!schema_constrains(json, nothing))
		return schema_common(schema, COMMON_VALUE);
	const unsigned types = schema_types(schema, json);
	if (types & TYPE_OBJECT)
		list_add(builder, &choices, schema_object(schema, json));
	if (types & TYPE_ARRAY)
		list_add(builder, &choices, schema_array(schema, json));
	if (types & TYPE_STRING)
		list_add(builder, &choices, schema_text(schema, json));
	if (types & (TYPE_NUMBER | TYPE_INTEGER))
		list_add(builder, &choices, schema_number(schema, json, !(types & TYPE_NUMBER)));
	if (types & TYPE_BOOLEAN)
		list_add(builder, &choices,
			 expression_either(builder, expression_text(builder, "true"),
					   expression_text(builder, "false")));
	if (types & TYPE_NULL)
		list_add(builder, &choices, expression_text(builder, "null"));
	const uint32_t out = expression_choice(builder, &choices);
	list_finish(&choices);
	return out;
}

uint32_t schema_value(struct schema *schema, const struct json *json)
{
	static const char *const only_ref[] = {"$ref", NULL};
	uint32_t out = 0;
	if (json_type(json) == JSON_BOOL)
		return json_bool(json, false) ? schema_common(schema, COMMON_VALUE)
					      : expression_choice(schema->builder, &(struct list){0});
	if (json_type(json) != JSON_OBJECT) {
		builder_fail(schema->builder, STATUS_INVALID_PARAMS, "there is no schema at #%s", schema->path);
		return 0;
	}
	if (!check_keywords(schema, json))
		return 0;
	if (++schema->depth > SCHEMA_NESTING) {
		builder_fail(schema->builder, STATUS_LIMIT_EXCEEDED, "the schema is nested too deeply at #%s",
			     schema->path);
		return 0;
	}
	const char *reference = json_get_string(json, "$ref", NULL);
	if (reference && !schema_constrains(json, only_ref)) {
		out = refer(schema, reference);
	} else if (reference) {
		const struct json *target = schema_resolve(schema, reference);
		const struct json *whole = target ? schema_without(schema, json, only_ref) : NULL;
		whole = whole ? schema_merge(schema, whole, target) : NULL;
		out = whole ? schema_value(schema, whole) : 0;
	} else if (json_get(json, "allOf")) {
		out = all_of(schema, json);
	} else if (json_get(json, "anyOf")) {
		out = any_of(schema, json, "anyOf");
	} else if (json_get(json, "oneOf")) {
		out = any_of(schema, json, "oneOf");
	} else if (json_get(json, "enum") || json_get(json, "const")) {
		out = named_values(schema, json);
	} else {
		out = by_type(schema, json);
	}
	schema->depth--;
	return out;
}

// ---- the whole ----

static void finish(struct schema *schema)
{
	for (size_t i = 0; i < schema->merged_count; i++)
		json_destroy(&schema->merged[i]);
	free(schema->merged);
	free(schema->references);
}

// The rule of the schema `at`, which lies in `root`, whose text has about so many bytes, and which is read in so many
// parts: together they may merge as much as one that is read at once.
static uint32_t read_rule(struct builder *builder, const struct json *root, const struct json *at, size_t length,
			  size_t parts)
{
	struct schema schema = {.builder = builder, .root = root};
	schema.merged_most = SCHEMA_MERGES_LEAST + SCHEMA_MERGED_BYTES / (length + 1);
	if (schema.merged_most > SCHEMA_MERGES)
		schema.merged_most = SCHEMA_MERGES;
	schema.merged_most /= parts;
	const uint32_t rule = builder_rule(builder, "#", 1);
	builder_define(builder, rule, schema_value(&schema, at));
	for (size_t i = 0; i < schema.reference_count && !builder->status; i++) { // some are added meanwhile
		const struct reference one = schema.references[i];
		snprintf(schema.path, sizeof(schema.path), "%s", one.path);
		builder_define(builder, one.rule, schema_value(&schema, one.at));
	}
	finish(&schema);
	return rule;
}

uint32_t schema_read(struct builder *builder, const char *text, size_t length)
{
	struct json *root = NULL;
	struct error error = {0};
	if (json_parse(&root, text, length, &error)) {
		builder_fail(builder, STATUS_INVALID_PARAMS, "the schema: %s", error.message);
		return 0;
	}
	const uint32_t rule = read_rule(builder, root, root, length, 1);
	json_destroy(&root);
	return rule;
}

size_t schema_bytes(struct builder *builder, const struct json *root)
{
	struct buffer text;
	buffer_init(&text, GRAMMAR_TEXT_BYTES);
	if (json_print(root, &text))
		builder_fail(builder, STATUS_LIMIT_EXCEEDED, "the schema of a function has more than %d bytes",
			     GRAMMAR_TEXT_BYTES);
	const size_t bytes = text.length;
	buffer_finish(&text);
	return bytes;
}

uint32_t schema_part(struct builder *builder, const struct schema_parts *of, const struct json *at)
{
	return expression_rule(builder, read_rule(builder, of->root, at, of->bytes, of->count));
}

uint32_t schema_arguments(struct builder *builder, const struct json *json)
{
	static const char *const nothing[] = {NULL};
	if (json && (json_type(json) != JSON_OBJECT || schema_constrains(json, nothing)))
		return schema_part(builder, &(struct schema_parts){json, schema_bytes(builder, json), 1}, json);
	struct schema schema = {.builder = builder};
	const uint32_t out = schema_common(&schema, COMMON_OBJECT);
	finish(&schema);
	return out;
}

uint32_t schema_any_object(struct builder *builder)
{
	struct schema schema = {.builder = builder};
	const uint32_t rule = builder_rule(builder, "#", 1);
	builder_define(builder, rule, schema_common(&schema, COMMON_OBJECT));
	finish(&schema);
	return rule;
}
