/* See grammar.h: from a grammar's text to its automaton. */
#include "common/json/json.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"

uint32_t grammar_read(struct builder *builder, enum grammar_kind kind, const char *text, size_t length)
{
	uint32_t rule = 0;
	switch (kind) {
	case GRAMMAR_UNKNOWN:
		builder_fail(builder, STATUS_INVALID_PARAMS, "an unknown kind of grammar");
		break;
	case GRAMMAR_JSON:
		return schema_any_object(builder);
	case GRAMMAR_SCHEMA:
		return schema_read(builder, text, length);
	case GRAMMAR_GBNF:
		return gbnf_read(builder, text, length);
	case GRAMMAR_REGEX:
		rule = builder_rule(builder, "regex", 5);
		builder_define(builder, rule, regex_read(builder, &(struct regex){.text = text, .length = length}));
		break;
	}
	return rule;
}

enum status grammar_create(struct grammar **out, enum grammar_kind kind, const char *text, size_t length,
			   struct error *error)
{
	struct builder builder;
	struct error fault = {0};
	*out = NULL;
	if (length > GRAMMAR_TEXT_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the grammar has %zu bytes, and may have %d", length,
				 GRAMMAR_TEXT_BYTES);
	if (length && !json_utf8(text, length))
		return error_set(error, STATUS_INVALID_PARAMS, "the grammar is not UTF-8");
	builder_init(&builder, error ? error : &fault);
	const uint32_t root = grammar_read(&builder, kind, text, length);
	const enum status status = automaton_create(out, &builder, root);
	builder_finish(&builder);
	return status;
}
