/* Translates JSON Schema (2020-12, and the other names of draft 7) to the expressions of a grammar.
 *
 * Every text of the grammar is a valid instance of the schema. Not every instance is a text of the grammar. Members
 * come in the order of `properties`, and optional ones may be left out. Other members occur only if
 * additionalProperties asks for them, and their names need no escape. White space is one space, or the end of a line
 * followed by at most 20 spaces or 8 tabs, in the places where printers put it. Numbers have at most 15 digits before
 * the point, 16 after it and 2 in the exponent; integers have at most 18 digits. A schema without a type whose keywords
 * all constrain one type has that type.
 *
 * A keyword that the grammar cannot express is refused, with its place: not, if, patternProperties, uniqueItems,
 * multipleOf, pattern together with a length, unknown formats, oneOf whose options may overlap, and similar ones.
 * Annotations and unknown keywords are ignored. */
#pragma once
#include "common/json/json.h"
#include "engine/grammar/expression.h"

// Read the schema; returns the number of the rule of a whole answer. Errors are noted in the builder.
uint32_t schema_read(struct builder *builder, const char *text, size_t length);
uint32_t schema_any_object(struct builder *builder); // of JSON
// The arguments of a function: an instance of the schema `json`, or any object where that says nothing; an expression.
uint32_t schema_arguments(struct builder *builder, const struct json *json);
// The length of a schema's text; one that is too long is noted in the builder.
size_t schema_bytes(struct builder *builder, const struct json *root);
// A schema that is read in parts, which share the limits of one.
struct schema_parts {
	const struct json *root; // references are places in it
	size_t bytes;            // schema_bytes of it
	size_t count;            // at least one
};
// An instance of the schema `at`, which is one of these parts; an expression.
uint32_t schema_part(struct builder *builder, const struct schema_parts *of, const struct json *at);
