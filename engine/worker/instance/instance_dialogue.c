/* Conversations of a model instance: their tokens, what their answers may have, and where a mask begins in them. See
 * instance.h. What an answer says is not taken apart here: its text goes to the server as it is, with the marks that
 * the model sets, and the name of its syntax (generate.delta's `syntax`); server/http reads it by the same parser. */
#include "common/base/clock.h"
#include "engine/dialogue/plain.h"
#include "engine/worker/instance/instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- marks ----

static const struct call_syntax *syntax_of(const struct instance *instance)
{
	const struct chat_template *template = &instance->chat_template;
	return template->calls ? template->calls : call_syntax_generic();
}

void instance_find_marks(struct instance *instance)
{
	const char *texts[DIALOGUE_MARKS];
	const size_t count = dialogue_marks(syntax_of(instance), instance->chat_template.thoughts, texts);
	instance->mark_count = 0;
	for (size_t i = 0; i < count; i++) {
		struct mark_token *mark = &instance->marks[instance->mark_count];
		const int32_t token = tokenizer_find(instance->tokenizer, texts[i], strlen(texts[i]));
		size_t shown = 0;
		if (token == NO_TOKEN || tokenizer_shown(instance->tokenizer, (uint32_t)token, &shown) ||
		    strlen(texts[i]) + 2 > sizeof(mark->bytes))
			continue; // not a mark, or reported as text anyway
		mark->token = (uint32_t)token;
		snprintf(mark->bytes, sizeof(mark->bytes), "\xFF%s", texts[i]);
		instance->mark_count++;
	}
}

const struct mark_token *instance_mark(const struct instance *instance, uint32_t token)
{
	for (size_t i = 0; i < instance->mark_count; i++)
		if (instance->marks[i].token == token)
			return &instance->marks[i];
	return NULL;
}

// ---- conversations ----

static enum status check_template(const struct instance *instance, struct error *error)
{
	char names[CHAT_NAMES_BYTES];
	if (instance->chat_template.family)
		return STATUS_OK;
	error_hint(error, "ask /v1/completions: the prompt as text, in the form that the model was made for; "
			  "or place the model with one of these templates");
	if (instance->template_fault[0])
		return error_set(error, STATUS_INVALID_PARAMS, "the model's own template cannot be read: %s",
				 instance->template_fault);
	return error_set(error, STATUS_INVALID_PARAMS,
			 "this model has no chat template that is known here; exogpu place --chat-template "
			 "gives it one of %s",
			 chat_template_names(names));
}

// How much it is to think, as its template has it: by degrees, or at all. A model that does not think has none.
static enum status take_effort(const struct instance *instance, const struct json *params,
			       struct conversation *conversation, struct error *error)
{
	const struct chat_template *template = &instance->chat_template;
	const struct json *thinking = json_get(params, "enable_thinking");
	const char *effort = json_get_string(params, "reasoning_effort", NULL);
	if (thinking)
		conversation->thinking = json_bool(thinking, false) ? THINKING_ON : THINKING_OFF;
	if (!effort)
		return STATUS_OK;
	if (chat_template_takes(template, "reasoning_effort")) {
		conversation->effort = effort;
		return STATUS_OK;
	}
	if (chat_template_takes(template, "enable_thinking") || (template->rules & CHAT_SWITCHES)) {
		const bool off = !strcmp(effort, "none") || !strcmp(effort, "minimal");
		if (!thinking)
			conversation->thinking = off ? THINKING_OFF : THINKING_ON;
		return STATUS_OK;
	}
	if (!template->thoughts || json_get_bool(params, "effort_optional", false))
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "reasoning_effort is not known to it (chat template %s)",
			 template->name);
}

static enum status apply(struct instance *instance, const struct json *list, struct conversation *conversation,
			 struct token_list *out, struct error *error)
{
	struct chat_message *messages = calloc(json_count(list) + 1, sizeof(*messages));
	conversation->count = 0;
	if (!messages)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a conversation");
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		const char *text = json_get_string(one, "text", "");
		messages[conversation->count++] = (struct chat_message){
			.role = json_get_string(one, "role", ""),
			.text = text,
			.length = strlen(text),
			.silent = !json_get(one, "text"),
			.thoughts = json_get_string(one, "thoughts", NULL),
			.calls = json_get(one, "calls"),
			.call_id = json_get_string(one, "call_id", NULL),
		};
	}
	conversation->messages = messages;
	out->count = 0;
	const enum status status = chat_template_apply(&instance->chat_template, instance->tokenizer, conversation, out,
						       error);
	free(messages);
	return status;
}

// A template that knows no tools is given them as text: by the system or, where it refuses that, by the user.
static enum status apply_plain(struct instance *instance, const struct json *list, const struct json *tools,
			       struct conversation *conversation, struct token_list *out, struct error *error)
{
	struct error fault = {0};
	enum status status = STATUS_OK;
	for (int in_user = 0; in_user < 2; in_user++) {
		struct json *plain = dialogue_plain(list, tools, in_user);
		struct error other = {0};
		if (!plain)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a conversation");
		status = apply(instance, plain, conversation, out, in_user ? &other : &fault);
		json_destroy(&plain);
		if (status != STATUS_INVALID_PARAMS)
			break;
	}
	if (status && error)
		*error = fault;
	return status;
}

static bool has_tools(const struct json *messages)
{
	for (const struct json *one = json_first(messages); one; one = json_next(one))
		if (json_get(one, "calls") || !strcmp(json_get_string(one, "role", ""), "tool"))
			return true;
	return false;
}

enum status instance_take_messages(struct instance *instance, struct order *order, struct error *error)
{
	const struct json *params = order->message.params, *tools = json_get(params, "tools");
	const struct json *list = json_get(json_get(params, "prompt"), "messages");
	struct conversation conversation = {.now_ms = clock_wall_ms(), .opened = &order->opened};
	enum status status = check_template(instance, error);
	if (!status)
		status = take_effort(instance, params, &conversation, error);
	if (status)
		return status;
	order->talks = json_get_bool(params, "talks", false);
	if (json_count(tools))
		order->calls = syntax_of(instance);
	if (!instance->chat_template.calls && (json_count(tools) || has_tools(list)))
		return apply_plain(instance, list, tools, &conversation, &order->prompt, error);
	conversation.tools = tools;
	return apply(instance, list, &conversation, &order->prompt, error);
}

// ---- answers ----

enum status request_talk(struct request *request, const struct order *order)
{
	const struct thought_syntax *thoughts = request->instance->chat_template.thoughts;
	const struct json *params = order->message.params;
	if (!order->talks)
		return STATUS_OK;
	if (json_get(params, "tools") && !(request->tools = json_copy(json_get(params, "tools"))))
		return STATUS_OUT_OF_MEMORY;
	request->one_call = !json_get_bool(params, "parallel_tool_calls", true);
	request->syntax = json_new_object();
	json_set_string(request->syntax, "calls", order->calls ? order->calls->name : NULL);
	json_set_string(request->syntax, "thoughts", thoughts ? thoughts->name : NULL);
	json_set_bool(request->syntax, "opened", order->opened);
	return dialogue_create(&request->dialogue, &(struct dialogue_params){.calls = order->calls,
									     .thoughts = thoughts,
									     .opened = order->opened,
									     .tools = request->tools});
}

// The form begins with the part of the last token that comes after the mark. If the text of a call that is there
// already does not fit the form, this call is left free. Before an answer whose form is demanded only blanks may come.
static void begin_form(struct request *request, const struct buffer *text, const struct dialogue_place *place)
{
	struct matcher *form = request->later;
	const bool demanded = request->form_begin == FORM_BEHIND_THOUGHT;
	size_t behind = place->behind < text->length ? place->behind : text->length;
	while (demanded && behind && strchr(" \n\r\t", text->data[text->length - behind]))
		behind--;
	bool good = true;
	matcher_rewind(form);
	if (request->form_begin == FORM_AT_ARGUMENTS)
		good = !matcher_take_bytes(form, place->name, strlen(place->name)) && !matcher_take_bytes(form, ":", 1);
	good = good && !matcher_take_bytes(form, text->data + text->length - behind, behind);
	if (!good && demanded)
		matcher_rewind(form);
	if (!good && !demanded)
		return;
	request->form = form;
	if (request->job)
		generator_set_form(request->job, form);
}

enum status request_follow(struct request *request, const struct buffer *text)
{
	const bool thought = dialogue_thinks(request->dialogue);
	const enum status status = dialogue_feed(request->dialogue, buffer_text(text), text->length);
	const bool thinks = dialogue_thinks(request->dialogue);
	const struct dialogue_place place = dialogue_place(request->dialogue);
	const unsigned seen = request->form_begin == FORM_BEHIND_THOUGHT ? request->calls_seen || (thought && !thinks)
			      : request->form_begin == FORM_AT_ARGUMENTS ? place.arguments
									 : place.calls;
	request->thought_tokens += thought || thinks;
	if (!status && request->later && !request->form && seen > request->calls_seen)
		begin_form(request, text, &place);
	request->calls_seen = seen;
	request->formed |= request->one_call && place.whole; // also for tokens without a mask
	return status;
}
