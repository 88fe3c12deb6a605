/* See calls.h. */
#include "engine/grammar/calls.h"

#include "common/json/schema.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/schema.h"

#include <string.h>

enum { PAIRS_MOST = 800 }; // parameters of a function: optional ones are all looked for at once

static uint32_t sequence(struct builder *builder, const uint32_t *parts, size_t count)
{
	struct list list = {0};
	for (size_t i = 0; i < count; i++)
		list_add(builder, &list, parts[i]);
	const uint32_t out = expression_sequence(builder, &list);
	list_finish(&list);
	return out;
}

static uint32_t text(struct builder *builder, const char *bytes)
{
	return expression_bytes(builder, bytes, strlen(bytes));
}

// ---- pairs ----

// Any character but these.
static uint32_t other_than(struct builder *builder, char one, char other)
{
	struct ranges ranges = {0};
	span_list_add(builder, &ranges, (uint8_t)one, (uint8_t)one);
	span_list_add(builder, &ranges, (uint8_t)other, (uint8_t)other);
	span_list_settle(&ranges);
	span_list_invert(builder, &ranges);
	const uint32_t out = expression_class(builder, &ranges);
	span_list_finish(&ranges);
	return out;
}

// A text that does not contain `stop`: wherever its first byte stands, what follows leaves it before its end.
static uint32_t text_without(struct builder *builder, const char *stop)
{
	struct list ways = {0};
	const uint32_t any = expression_repeat(builder, other_than(builder, stop[0], stop[0]), 0, EXPRESSION_ENDLESS);
	for (size_t k = 1; stop[k]; k++) {
		const uint32_t leaves = expression_pair(builder, other_than(builder, stop[0], stop[k]), any);
		const uint32_t rest = expression_repeat(builder, leaves, 0, 1);
		list_add(builder, &ways, expression_pair(builder, expression_bytes(builder, stop, k), rest));
	}
	const uint32_t way = expression_choice(builder, &ways);
	list_finish(&ways);
	return expression_pair(builder, any, expression_repeat(builder, way, 0, EXPRESSION_ENDLESS));
}

static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names;
}

// A text may be one of several; what else is said of it cannot be kept where it stands without quotes.
static uint32_t plain_text(struct builder *builder, const struct json *property, const char *stop)
{
	static const char *const unkept[] = {"pattern", "format", "minLength", "maxLength", "const", "not",
					     "anyOf",   "oneOf",  "allOf",     "$ref",      NULL};
	const struct json *values = json_get(property, "enum");
	struct list ways = {0};
	for (const struct json *one = json_first(property); one; one = json_next(one))
		if (is_one_of(json_name(one), unkept))
			builder_fail(builder, STATUS_INVALID_PARAMS,
				     "the keyword %.64s of a text cannot be kept in this model's syntax of calls",
				     json_name(one));
	if (!values)
		return text_without(builder, stop);
	for (const struct json *one = json_first(values); one; one = json_next(one))
		if (strstr(json_string(one, stop), stop))
			builder_fail(builder, STATUS_INVALID_PARAMS, "the enum of a text contains another type");
		else
			list_add(builder, &ways, text(builder, json_string(one, "")));
	const uint32_t out = expression_choice(builder, &ways);
	list_finish(&ways);
	return out;
}

static bool is_required(const struct json *schema, const char *name)
{
	const struct json *one = json_first(json_get(schema, "required"));
	while (one && strcmp(json_string(one, ""), name) != 0)
		one = json_next(one);
	return one;
}

static uint32_t pair_of(struct builder *builder, const struct grammar_pairs *pairs, const struct schema_parts *of,
			const struct json *property)
{
	const uint32_t value = schema_is_text(property) ? plain_text(builder, property, pairs->stop)
							: schema_part(builder, of, property);
	const uint32_t parts[] = {text(builder, pairs->begin), text(builder, json_name(property)),
				  text(builder, pairs->middle), value, text(builder, pairs->end)};
	const uint32_t out = sequence(builder, parts, sizeof(parts) / sizeof(*parts));
	return is_required(of->root, json_name(property)) ? out : expression_repeat(builder, out, 0, 1);
}

// Arguments with any names and text values.
static uint32_t free_pairs(struct builder *builder, const struct grammar_pairs *pairs)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
	struct list ways = {0};
	for (const char *at = letters; *at; at++)
		list_add(builder, &ways, expression_bytes(builder, at, 1));
	const uint32_t letter = expression_choice(builder, &ways);
	list_finish(&ways);
	const uint32_t parts[] = {text(builder, pairs->begin), expression_repeat(builder, letter, 1, 64),
				  text(builder, pairs->middle), text_without(builder, pairs->stop),
				  text(builder, pairs->end)};
	return expression_repeat(builder, sequence(builder, parts, sizeof(parts) / sizeof(*parts)), 0, 64);
}

static uint32_t pairs_of(struct builder *builder, const struct grammar_call *call)
{
	static const char *const kept[] = {"type",    "properties",  "required", "additionalProperties",
					   "$defs",   "definitions", "title",    "description",
					   "$schema", NULL};
	struct list pairs = {0};
	if (!call->schema)
		return free_pairs(builder, call->pairs);
	for (const struct json *one = json_first(call->schema); one; one = json_next(one))
		if (!is_one_of(json_name(one), kept))
			builder_fail(builder, STATUS_INVALID_PARAMS,
				     "the keyword %.64s cannot be kept in this model's syntax of "
				     "calls",
				     json_name(one));
	const struct json *properties = json_get(call->schema, "properties");
	const size_t count = json_count(properties);
	if (count > PAIRS_MOST || json_count(json_get(call->schema, "required")) > PAIRS_MOST)
		builder_fail(builder, STATUS_LIMIT_EXCEEDED, "a function has too many parameters: %d at most",
			     PAIRS_MOST);
	const struct schema_parts of = {call->schema, builder->status ? 0 : schema_bytes(builder, call->schema),
					count + !count};
	for (const struct json *one = json_first(properties); one && !builder->status; one = json_next(one))
		list_add(builder, &pairs, pair_of(builder, call->pairs, &of, one));
	const uint32_t out = expression_sequence(builder, &pairs);
	list_finish(&pairs);
	return out;
}

// ---- the whole ----

static uint32_t call_of(struct builder *builder, const struct grammar_call *call)
{
	const uint32_t parts[] = {text(builder, call->before),
				  call->pairs ? pairs_of(builder, call) : schema_arguments(builder, call->schema),
				  text(builder, call->after)};
	return sequence(builder, parts, sizeof(parts) / sizeof(*parts));
}

enum status grammar_create_calls(struct grammar **out, const struct grammar_calls *calls, struct error *error)
{
	struct builder builder;
	struct error fault = {0};
	struct list choices = {0}, parts = {0};
	*out = NULL;
	builder_init(&builder, error ? error : &fault);
	for (size_t i = 0; i < calls->count && !builder.status; i++)
		list_add(&builder, &choices, call_of(&builder, &calls->calls[i]));
	const uint32_t root = builder_rule(&builder, "calls", 5), call = builder_rule(&builder, "call", 4);
	builder_define(&builder, call, expression_choice(&builder, &choices));
	const uint32_t one = expression_rule(&builder, call);
	if (calls->blanks)
		list_add(&builder, &parts, expression_repeat(&builder, expression_text(&builder, "\n"), 0, 2));
	list_add(&builder, &parts, expression_text(&builder, calls->begin));
	if (calls->gap)
		list_add(&builder, &parts, expression_repeat(&builder, text(&builder, calls->gap), 0, 1));
	if (calls->open)
		list_add(&builder, &parts, text(&builder, calls->open));
	list_add(&builder, &parts, one);
	if (calls->most > 1) {
		const uint32_t more = expression_pair(&builder, expression_text(&builder, calls->between), one);
		list_add(&builder, &parts, expression_repeat(&builder, more, 0, calls->most - 1));
	}
	list_add(&builder, &parts, expression_text(&builder, calls->end));
	uint32_t whole = expression_sequence(&builder, &parts);
	if (calls->other) {
		const uint32_t other = grammar_read(&builder, calls->other, calls->other_text,
						    strlen(calls->other_text));
		whole = expression_either(&builder, expression_rule(&builder, other), whole);
	}
	builder_define(&builder, root, whole);
	list_finish(&choices);
	list_finish(&parts);
	const enum status status = automaton_create(out, &builder, root);
	if (calls->refused)
		*calls->refused = builder.refused;
	builder_finish(&builder);
	return status;
}
