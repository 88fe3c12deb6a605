/* The rules that all schemas share: strings, numbers, white space, any JSON value. See schema.h. */
#include "engine/grammar/schema_inside.h"

#include <string.h>

enum { INDENT_SPACES = 20, INDENT_TABS = 8 };

static uint32_t regex(struct builder *builder, const char *text)
{
	return regex_read(builder, &(struct regex){.text = text, .length = strlen(text)});
}

static uint32_t space(struct builder *builder)
{
	const uint32_t spaces = expression_repeat(builder, expression_text(builder, " "), 0, INDENT_SPACES);
	const uint32_t tabs = expression_repeat(builder, expression_text(builder, "\t"), 1, INDENT_TABS);
	const uint32_t line = expression_pair(builder, expression_text(builder, "\n"),
					      expression_either(builder, spaces, tabs));
	return expression_repeat(builder, expression_either(builder, expression_text(builder, " "), line), 0, 1);
}

// A character of a string: as it is, or by an escape; never U+0000, nor half of one.
static uint32_t character(struct builder *builder)
{
	return regex(builder, "[^\\x01-\\x1f\"\\\\]|\\\\([\"\\\\/bfnrt]|u([1-9A-Ca-cEFef][0-9A-Fa-f]{3}|"
			      "0([1-9A-Fa-f][0-9A-Fa-f]{2}|0([1-9A-Fa-f][0-9A-Fa-f]|0[1-9A-Fa-f]))|"
			      "[Dd]([0-7][0-9A-Fa-f]{2}|[89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})))");
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

// Between `open` and `close` nothing, or `one`, and more of it after commas.
static uint32_t bracketed(struct schema *schema, const char *open, uint32_t one, const char *close)
{
	struct builder *builder = schema->builder;
	const uint32_t gap = schema_common(schema, COMMON_SPACE);
	const uint32_t more = sequence(schema, (uint32_t[]){expression_text(builder, ","), gap, one}, 3);
	const uint32_t all = sequence(
		schema, (uint32_t[]){one, expression_repeat(builder, more, 0, EXPRESSION_ENDLESS), gap}, 3);
	return sequence(schema,
			(uint32_t[]){expression_text(builder, open), gap, expression_repeat(builder, all, 0, 1),
				     expression_text(builder, close)},
			4);
}

static uint32_t body_of(struct schema *schema, enum common_rule which)
{
	struct builder *builder = schema->builder;
	switch (which) {
	case COMMON_SPACE:
		return space(builder);
	case COMMON_CHARACTER:
		return character(builder);
	case COMMON_STRING: {
		const uint32_t quote = expression_text(builder, "\"");
		const uint32_t one = schema_common(schema, COMMON_CHARACTER);
		return sequence(schema,
				(uint32_t[]){quote, expression_repeat(builder, one, 0, EXPRESSION_ENDLESS), quote}, 3);
	}
	case COMMON_NUMBER:
		return regex(builder, "-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?");
	case COMMON_INTEGER:
		return regex(builder, "0|-?[1-9][0-9]{0,17}");
	case COMMON_OBJECT: {
		const uint32_t parts[] = {schema_common(schema, COMMON_STRING), expression_text(builder, ":"),
					  schema_common(schema, COMMON_SPACE), schema_common(schema, COMMON_VALUE)};
		return bracketed(schema, "{", sequence(schema, parts, 4), "}");
	}
	case COMMON_ARRAY:
		return bracketed(schema, "[", schema_common(schema, COMMON_VALUE), "]");
	case COMMON_VALUE: {
		struct list list = {0};
		static const enum common_rule rules[] = {COMMON_OBJECT, COMMON_ARRAY, COMMON_STRING, COMMON_NUMBER};
		static const char *const texts[] = {"true", "false", "null"};
		for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
			list_add(builder, &list, schema_common(schema, rules[i]));
		for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
			list_add(builder, &list, expression_text(builder, texts[i]));
		const uint32_t out = expression_choice(builder, &list);
		list_finish(&list);
		return out;
	}
	case COMMON_RULES:
		break;
	}
	return 0;
}

uint32_t schema_common(struct schema *schema, enum common_rule which)
{
	static const char *const names[COMMON_RULES] = {"space",   "character", "string", "number",
							"integer", "value",     "object", "array"};
	if (!schema->common[which]) {
		const uint32_t rule = builder_rule(schema->builder, names[which], strlen(names[which]));
		schema->common[which] = rule + 1; // before its body, which may name it
		builder_define(schema->builder, rule, body_of(schema, which));
	}
	return expression_rule(schema->builder, schema->common[which] - 1);
}
