/* JSON Schema (2020-12, and what draft 7 calls otherwise) as a grammar's expressions.
 *
 * Every text of the grammar is a valid instance of the schema. Not every instance is a text of it: members stand in the
 * order of `properties`, optional ones may be left out, and members that are not named are there only where
 * additionalProperties asks for them, by names that need no escape. Blanks are one space, or a line's end with 20
 * spaces or 8 tabs behind it at most, and stand where printers put them. Numbers have 15 digits before and 16 behind
 * the point and 2 of an exponent, at most; integers 18 digits. Where no type is said and all keywords are of one type,
 * that is meant.
 *
 * A keyword that cannot be kept so is refused, with its place: not, if, patternProperties, uniqueItems, multipleOf,
 * pattern together with a length, formats that are not known, oneOf whose options may overlap, and the like.
 * Annotations and what is no keyword are passed over. */
#pragma once
#include "common/json/json.h"
#include "engine/grammar/expression.h"

// The number of the rule that an answer is; what is wrong is noted in the builder.
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
