/* See calls.h. */
#include "engine/grammar/calls.h"

#include "engine/grammar/automaton.h"
#include "engine/grammar/schema.h"

#include <string.h>

static uint32_t call_of(struct builder *builder, const struct grammar_call *call)
{
	struct list parts = {0};
	list_add(builder, &parts, expression_bytes(builder, call->before, strlen(call->before)));
	list_add(builder, &parts, schema_arguments(builder, call->schema));
	list_add(builder, &parts, expression_bytes(builder, call->after, strlen(call->after)));
	const uint32_t out = expression_sequence(builder, &parts);
	list_finish(&parts);
	return out;
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
	list_add(&builder, &parts, one);
	if (calls->most > 1) {
		const uint32_t more = expression_pair(&builder, expression_text(&builder, calls->between), one);
		list_add(&builder, &parts, expression_repeat(&builder, more, 0, calls->most - 1));
	}
	list_add(&builder, &parts, expression_text(&builder, calls->end));
	builder_define(&builder, root, expression_sequence(&builder, &parts));
	list_finish(&choices);
	list_finish(&parts);
	const enum status status = automaton_create(out, &builder, root);
	builder_finish(&builder);
	return status;
}
