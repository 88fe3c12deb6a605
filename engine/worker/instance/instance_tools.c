/* The form of calls of tools. A call that is demanded (tool_choice required, or a function's name) is all that the
 * answer may be; of tools that are offered, the form begins with each call, but where the answer has a form anyway:
 * then it is that, or calls. Made on the reader's thread. See instance.h and engine/grammar/calls.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/grammar/calls.h"
#include "engine/worker/instance/instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	TEXT_BYTES = 4096,
	CALLS_MOST = 16,
	KEYWORDS_MOST = 32, // that are left out of a schema
	LEAVE_OUT_MS = 400, // for all of a request: the node's pings wait meanwhile
};

// A tool's call, as text before and behind its arguments.
struct written {
	struct buffer before, after;
	struct json *less; // its schema, without what a mask cannot keep; NULL: nothing was left out
};

struct form {
	const struct instance *instance;
	const struct call_syntax *syntax;
	bool offered;               // the marks that begin calls have been passed
	struct written *texts;      // (count)
	struct grammar_call *calls; // (count)
	size_t count;
	struct buffer begin, between, end;
	struct buffer pair[4]; // of a syntax of pairs: the texts of `pairs`
	struct grammar_pairs pairs;
	bool paired, listed;
};

// Append a text, in which control tokens are named as grammars do.
static void append_marked(const struct instance *instance, const char *text, struct buffer *out)
{
	while (*text) {
		const struct mark_token *found = NULL;
		for (size_t i = 0; i < instance->mark_count && !found; i++)
			if (!strncmp(text, instance->marks[i].bytes + 1, strlen(instance->marks[i].bytes + 1)))
				found = &instance->marks[i];
		if (found)
			buffer_append_text(out, found->bytes);
		else
			buffer_append_byte(out, (uint8_t)*text);
		text += found ? strlen(found->bytes + 1) : 1;
	}
}

static bool is_wanted(const struct json *params, const struct json *function)
{
	const char *name = json_get_string(json_get(params, "tool_choice"), "name", NULL);
	return !name || !strcmp(name, json_get_string(function, "name", ""));
}

// The text after `passed`, if the text begins with it.
static const char *behind(const char *text, const char *passed)
{
	return passed && !strncmp(text, passed, strlen(passed)) ? text + strlen(passed) : text;
}

static bool write_call(struct form *form, const struct json *function, struct written *out)
{
	struct buffer before, after;
	const struct call_syntax *syntax = form->syntax;
	const char *name = json_get_string(function, "name", "");
	buffer_init(&before, TEXT_BYTES);
	buffer_init(&after, TEXT_BYTES);
	buffer_init(&out->before, TEXT_BYTES);
	buffer_init(&out->after, TEXT_BYTES);
	const bool good = call_syntax_write(syntax, name, &before, &after);
	if (form->offered && (syntax->bare || syntax->form == CALL_FORM_HEADER)) {
		buffer_clear(&before);
		buffer_printf(&before, "%s:", name);
		append_marked(form->instance, buffer_text(&before), &out->before);
	} else {
		const char *passed = form->offered && !syntax->section ? syntax->begin : NULL;
		append_marked(form->instance, behind(buffer_text(&before), passed), &out->before);
	}
	append_marked(form->instance, buffer_text(&after), &out->after);
	buffer_finish(&before);
	buffer_finish(&after);
	return good && !out->before.failed && !out->after.failed;
}

static void take_pairs(struct form *form)
{
	struct call_pairs pairs;
	form->paired = call_syntax_pairs(form->syntax, &pairs);
	if (!form->paired)
		return;
	const char *const texts[] = {pairs.begin, pairs.middle, pairs.end};
	for (size_t i = 0; i < 3; i++)
		append_marked(form->instance, texts[i], &form->pair[i]);
	buffer_append_text(&form->pair[3], pairs.stop);
	form->pairs = (struct grammar_pairs){.begin = buffer_text(&form->pair[0]),
					     .middle = buffer_text(&form->pair[1]),
					     .end = buffer_text(&form->pair[2]),
					     .stop = buffer_text(&form->pair[3])};
}

static void append_around(struct form *form)
{
	const struct call_syntax *syntax = form->syntax;
	const bool list = syntax->form == CALL_FORM_LIST && !syntax->after_name;
	if (syntax->section && !form->offered)
		append_marked(form->instance, syntax->section, &form->begin);
	if (list && !form->offered)
		append_marked(form->instance, syntax->begin, &form->begin);
	form->listed = list;
	if (list)
		buffer_append_text(&form->end, "]");
	if (syntax->section_end)
		append_marked(form->instance, syntax->section_end, &form->end);
	append_marked(form->instance, syntax->between, &form->between);
}

static enum status make(struct form *form, const struct json *params, struct grammar **out, struct error *error)
{
	const struct call_syntax *syntax = form->syntax;
	const bool one = !json_get_bool(params, "parallel_tool_calls", true) || syntax->form == CALL_FORM_HEADER;
	// Calls of an offered tool that stand apart each begin a form of their own.
	const bool apart = form->offered && !syntax->section &&
			   !(syntax->form == CALL_FORM_LIST && !syntax->after_name);
	const struct grammar_calls calls = {
		.calls = form->calls,
		.count = form->count,
		.begin = buffer_text(&form->begin),
		.between = buffer_text(&form->between),
		.end = buffer_text(&form->end),
		.gap = form->listed ? " " : NULL,
		.open = form->listed ? "[" : NULL,
		.most = one || apart ? 1 : CALLS_MOST,
		.blanks = !form->offered && json_get_bool(params, "talks", false),
		.other = instance_form_kind(json_get_string(json_get(params, "form"), "kind", "")),
		.other_text = json_get_string(json_get(params, "form"), "text", "")};
	return grammar_create_calls(out, &calls, error);
}

// Remove the member `keyword` of the schema at `path`. False: there is none.
static bool remove_keyword(const struct json *schema, const char *path, const char *keyword)
{
	const struct json *at = schema;
	while (at && *path) {
		const bool is_list = json_type(at) == JSON_ARRAY;
		const struct json *one = json_first(at);
		size_t index = 0, length = 0;
		for (; one; one = json_next(one)) {
			char number[24];
			snprintf(number, sizeof(number), "%zu", index++);
			const char *name = is_list ? number : json_name(one);
			length = strlen(name);
			if (!strncmp(path + 1, name, length) && (!path[1 + length] || path[1 + length] == '/'))
				break;
		}
		at = one;
		path += one ? 1 + length : 0;
	}
	const bool there = json_get(at, keyword) != NULL;
	json_remove((struct json *)(uintptr_t)at, keyword);
	return there;
}

// Log each keyword that is left out once. Names and values of a schema are the client's, and are never logged.
static void log_unmasked(struct instance *instance, const char *keyword)
{
	size_t at = 0;
	while (at < instance->unmasked_count && strcmp(instance->unmasked[at], keyword) != 0)
		at++;
	if (at < instance->unmasked_count || at == INSTANCE_UNMASKED)
		return;
	snprintf(instance->unmasked[at], sizeof(instance->unmasked[at]), "%.23s", keyword);
	instance->unmasked_count++;
	if (keyword[0])
		log_warning("worker",
			    "the JSON Schema of an offered tool has the keyword %s, which is not enforced here; "
			    "later ones are not logged",
			    keyword);
	else
		log_warning("worker", "the JSON Schema of an offered tool is not enforced: it is too large, or this "
				      "model's syntax of calls cannot express it; later ones are not logged");
}

// Leave keywords that a mask cannot express out of an offered tool. If that is not enough, or takes too long, leave out
// the whole schema.
static void leave_out(struct form *form, size_t index, struct instance *instance, int64_t until_ms)
{
	struct grammar_call *call = &form->calls[index];
	for (unsigned tries = 0; call->schema; tries++) {
		struct grammar *grammar = NULL;
		struct grammar_refusal refused = {0};
		const struct grammar_calls calls = {.calls = call,
						    .count = 1,
						    .begin = "",
						    .between = "",
						    .end = "",
						    .most = 1,
						    .refused = &refused};
		const bool late = tries >= KEYWORDS_MOST || clock_steady_ms() >= until_ms;
		const enum status status = late ? STATUS_LIMIT_EXCEEDED : grammar_create_calls(&grammar, &calls, NULL);
		grammar_destroy(&grammar);
		if (!status)
			return;
		log_unmasked(instance, refused.keyword);
		struct json **less = &form->texts[index].less;
		if (refused.keyword[0] && !*less)
			*less = json_copy(call->schema);
		call->schema = refused.keyword[0] && remove_keyword(*less, refused.path, refused.keyword) ? *less
													  : NULL;
	}
}

static void finish(struct form *form)
{
	for (size_t i = 0; form->texts && i < form->count; i++) {
		buffer_finish(&form->texts[i].before);
		buffer_finish(&form->texts[i].after);
		json_destroy(&form->texts[i].less);
	}
	buffer_finish(&form->begin);
	buffer_finish(&form->between);
	buffer_finish(&form->end);
	for (size_t i = 0; i < 4; i++)
		buffer_finish(&form->pair[i]);
	free(form->texts);
	free(form->calls);
}

// False: the syntax has no form.
static bool take_calls(struct form *form, const struct json *params, bool *strict)
{
	const struct json *tools = json_get(params, "tools");
	bool good = true;
	form->texts = calloc(json_count(tools) + 1, sizeof(*form->texts));
	form->calls = calloc(json_count(tools) + 1, sizeof(*form->calls));
	if (!form->texts || !form->calls)
		return false;
	for (const struct json *one = json_first(tools); one && good; one = json_next(one)) {
		const struct json *function = json_get(one, "function");
		if (!is_wanted(params, function))
			continue;
		struct written *text = &form->texts[form->count];
		good = write_call(form, function, text);
		*strict = *strict || json_get_bool(function, "strict", false);
		form->calls[form->count++] = (struct grammar_call){.pairs = form->paired ? &form->pairs : NULL,
								   .before = buffer_text(&text->before),
								   .after = buffer_text(&text->after),
								   .schema = json_get(function, "parameters")};
	}
	return good;
}

static enum status refuse(const struct error *fault, struct error *error)
{
	if (fault->hint[0])
		error_hint(error, "%s", fault->hint);
	return error_set(error, fault->status == STATUS_LIMIT_EXCEEDED ? STATUS_INVALID_PARAMS : fault->status,
			 "the tools: %.340s", fault->message);
}

enum status instance_take_tools(struct instance *instance, struct order *order, struct error *error)
{
	const struct json *params = order->message.params;
	const char *mode = json_get_string(json_get(params, "tool_choice"), "mode", "auto");
	const bool demanded = !strcmp(mode, "required");
	struct form form = {.instance = instance, .syntax = order->calls, .offered = !demanded && !order->form};
	struct grammar *grammar = NULL;
	struct error fault = {0};
	bool strict = demanded;
	if (!order->calls)
		return STATUS_OK;
	enum status status = instance_make_vocabulary(instance, error);
	if (status)
		return status;
	buffer_init(&form.begin, TEXT_BYTES);
	buffer_init(&form.between, TEXT_BYTES);
	buffer_init(&form.end, TEXT_BYTES);
	for (size_t i = 0; i < 4; i++)
		buffer_init(&form.pair[i], TEXT_BYTES);
	take_pairs(&form);
	const bool written = take_calls(&form, params, &strict);
	append_around(&form);
	if (written) {
		status = make(&form, params, &grammar, &fault);
		if (status && !strict) {
			const int64_t until_ms = clock_steady_ms() + LEAVE_OUT_MS;
			for (size_t i = 0; i < form.count; i++)
				leave_out(&form, i, instance, until_ms);
			fault = (struct error){0};
			status = make(&form, params, &grammar, &fault);
		}
		if (status && strict)
			refuse(&fault, error);
		else if (status)
			status = STATUS_OK; // offered, and free
	} else if (demanded) {
		status = error_set(error, STATUS_INVALID_PARAMS,
				   "tool_choice: calls in the syntax of this model (%s) cannot be demanded here",
				   form.syntax->name);
	}
	finish(&form);
	if (status || !grammar)
		return status;
	matcher_destroy(&order->form); // which is part of this one
	order->form_begin = !form.offered ? order->opened ? FORM_BEHIND_THOUGHT : FORM_AT_ONCE
			    : form.syntax->bare || form.syntax->form == CALL_FORM_HEADER ? FORM_AT_ARGUMENTS
											 : FORM_AT_CALL;
	status = matcher_create(&order->form, &grammar, instance->vocabulary, true);
	return status ? error_set(error, status, "no memory for the form of an answer") : STATUS_OK;
}
