/* The form of an answer: a grammar, which is compiled on the reader's thread, so that no running request waits for it.
 * See instance.h and grammar.h. */
#include "engine/worker/instance/instance.h"

#include <string.h>

// The byte 0xFF begins the names of marks and is in no text, so no other token may have it.
static const uint8_t *bytes_of(const void *context, uint32_t token, size_t *length)
{
	const struct instance *instance = context;
	const struct mark_token *mark = instance_mark(instance, token);
	const uint8_t *shown = tokenizer_shown(instance->tokenizer, token, length);
	if (!mark && shown && memchr(shown, 0xFF, *length))
		*length = 0;
	if (!mark)
		return shown;
	*length = strlen(mark->bytes);
	return (const uint8_t *)mark->bytes;
}

static bool ends(const void *context, uint32_t token)
{
	return tokenizer_ends(((const struct instance *)context)->tokenizer, token);
}

enum status instance_make_vocabulary(struct instance *instance, struct error *error)
{
	const struct vocabulary_params params = {.count = model_shape(instance->model)->vocabulary,
						 .bytes = bytes_of,
						 .ends = ends,
						 .context = instance};
	if (!instance->vocabulary && vocabulary_create(&instance->vocabulary, &params))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the model's vocabulary");
	return STATUS_OK;
}

enum grammar_kind instance_form_kind(const char *name)
{
	static const char *const names[] = {[GRAMMAR_JSON] = "json",
					    [GRAMMAR_SCHEMA] = "schema",
					    [GRAMMAR_GBNF] = "gbnf",
					    [GRAMMAR_REGEX] = "regex"};
	for (size_t i = GRAMMAR_JSON; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i], name))
			return (enum grammar_kind)i;
	return GRAMMAR_UNKNOWN;
}

enum status instance_take_form(struct instance *instance, struct order *order, struct error *error)
{
	const struct json *params = order->message.params, *form = json_get(params, "form");
	struct grammar *grammar = NULL;
	struct error fault = {0};
	if (!form)
		return STATUS_OK;
	const char *text = json_get_string(form, "text", "");
	enum status status = instance_make_vocabulary(instance, error);
	if (status)
		return status;
	status = grammar_create(&grammar, instance_form_kind(json_get_string(form, "kind", "")), text, strlen(text),
				&fault);
	if (status) {
		if (fault.hint[0])
			error_hint(error, "%s", fault.hint);
		return error_set(error, status == STATUS_LIMIT_EXCEEDED ? STATUS_INVALID_PARAMS : status,
				 "the form of the answer: %.340s", fault.message);
	}
	order->form_begin = order->opened ? FORM_BEHIND_THOUGHT : FORM_AT_ONCE;
	status = matcher_create(&order->form, &grammar, instance->vocabulary,
				!json_get_bool(params, "ignore_end", false));
	return status ? error_set(error, status, "no memory for the form of an answer") : STATUS_OK;
}
