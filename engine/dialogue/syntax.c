/* See syntax.h. Where each syntax comes from: the chat templates that their authors publish with the models (Qwen 2.5
 * and 3, Llama 3.1 to 3.3, Mistral 7B v0.3 to Small 3.2, DeepSeek R1 to V3.1, GLM 4.5, Qwen3-Coder, gpt-oss, Gemma). */
#include "engine/dialogue/syntax.h"

#include <stdio.h>
#include <string.h>

// The first syntax that fits is taken, so of syntaxes with the same marks the more specific one comes first.
static const struct call_syntax call_table[] = {
	{.name = "harmony",
	 .form = CALL_FORM_HEADER,
	 .knows = {"<|channel|>", "<|message|>", "functions"},
	 .begin = "<|channel|>commentary to=functions.",
	 .after_name = " <|constrain|>json<|message|>",
	 .between = "<|call|><|start|>assistant"},
	{.name = "qwen3-coder",
	 .form = CALL_FORM_PAIRS,
	 .knows = {"<tool_call>", "<function=", "<parameter="},
	 .begin = "<tool_call>",
	 .before_name = "<function=",
	 .after_name = ">",
	 .key_begin = "<parameter=",
	 .key_end = ">",
	 .value_end = "</parameter>",
	 .pairs_end = "</function>",
	 .end = "</tool_call>",
	 .between = "\n"},
	{.name = "glm",
	 .form = CALL_FORM_PAIRS,
	 .knows = {"<tool_call>", "<arg_key>", "<arg_value>"},
	 .begin = "<tool_call>",
	 .key_begin = "<arg_key>",
	 .key_end = "</arg_key>",
	 .value_begin = "<arg_value>",
	 .value_end = "</arg_value>",
	 .end = "</tool_call>",
	 .between = "\n"},
	{.name = "hermes",
	 .form = CALL_FORM_JSON,
	 .knows = {"<tool_call>", "</tool_call>"},
	 .begin = "<tool_call>",
	 .arguments = "arguments",
	 .end = "</tool_call>",
	 .between = "\n"},
	{.name = "deepseek",
	 .form = CALL_FORM_NAMED,
	 .knows = {"<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "```json"},
	 .section = "<｜tool▁calls▁begin｜>",
	 .section_end = "<｜tool▁calls▁end｜>",
	 .begin = "<｜tool▁call▁begin｜>",
	 .before_name = "function<｜tool▁sep｜>",
	 .after_name = "\n```json\n",
	 .end = "\n```<｜tool▁call▁end｜>",
	 .between = "\n"},
	{.name = "deepseek-v3.1",
	 .form = CALL_FORM_NAMED,
	 .knows = {"<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"},
	 .section = "<｜tool▁calls▁begin｜>",
	 .section_end = "<｜tool▁calls▁end｜>",
	 .begin = "<｜tool▁call▁begin｜>",
	 .after_name = "<｜tool▁sep｜>",
	 .end = "<｜tool▁call▁end｜>",
	 .between = ""},
	{.name = "mistral-args",
	 .form = CALL_FORM_LIST,
	 .knows = {"[TOOL_CALLS]", "[ARGS]"},
	 .begin = "[TOOL_CALLS]",
	 .after_name = "[ARGS]",
	 .between = ""},
	{.name = "mistral",
	 .form = CALL_FORM_LIST,
	 .knows = {"[TOOL_CALLS]"},
	 .begin = "[TOOL_CALLS]",
	 .arguments = "arguments",
	 .between = ", "},
	{.name = "gemma",
	 .form = CALL_FORM_CODE,
	 .knows = {"tool_code"},
	 .begin = "```tool_code",
	 .end = "```",
	 .between = "\n"},
	{.name = "llama3",
	 .form = CALL_FORM_JSON,
	 .knows = {"<|start_header_id|>", "parameters"},
	 .begin = "<|python_tag|>",
	 .arguments = "parameters",
	 .between = "; ",
	 .bare = true},
};
enum { CALL_SYNTAXES = sizeof(call_table) / sizeof(*call_table), CALL_GENERIC = 3 };

static const struct thought_syntax thought_table[] = {
	{"think", "<think>", "</think>"},
	{"mistral", "[THINK]", "[/THINK]"},
	{"seed", "<seed:think>", "</seed:think>"},
	{"harmony", "<|channel|>analysis<|message|>", "<|end|>"},
};
enum { THOUGHT_SYNTAXES = sizeof(thought_table) / sizeof(*thought_table) };

static bool contains(const char *text, size_t length, const char *what)
{
	return memmem(text, length, what, strlen(what)) != NULL;
}

const struct call_syntax *call_syntax_of_template(const char *text, size_t length)
{
	for (size_t i = 0; i < CALL_SYNTAXES; i++) {
		const struct call_syntax *syntax = &call_table[i];
		bool knows = true;
		for (size_t k = 0; k < sizeof(syntax->knows) / sizeof(*syntax->knows) && syntax->knows[k]; k++)
			knows = knows && contains(text, length, syntax->knows[k]);
		if (knows)
			return syntax;
	}
	return NULL;
}

const struct thought_syntax *thought_syntax_of_template(const char *text, size_t length)
{
	if (contains(text, length, "<|channel|>") && contains(text, length, "analysis"))
		return thought_syntax_named("harmony");
	for (size_t i = 0; i < THOUGHT_SYNTAXES; i++)
		if (contains(text, length, thought_table[i].end))
			return &thought_table[i];
	return NULL;
}

const struct call_syntax *call_syntax_named(const char *name)
{
	for (size_t i = 0; name && i < CALL_SYNTAXES; i++)
		if (!strcmp(call_table[i].name, name))
			return &call_table[i];
	return NULL;
}

const struct thought_syntax *thought_syntax_named(const char *name)
{
	for (size_t i = 0; name && i < THOUGHT_SYNTAXES; i++)
		if (!strcmp(thought_table[i].name, name))
			return &thought_table[i];
	return NULL;
}

const struct call_syntax *call_syntax_generic(void)
{
	return &call_table[CALL_GENERIC];
}

static bool is_harmony(const struct call_syntax *calls, const struct thought_syntax *thoughts)
{
	return (calls && calls->form == CALL_FORM_HEADER) || (thoughts && !strcmp(thoughts->name, "harmony"));
}

size_t dialogue_marks(const struct call_syntax *calls, const struct thought_syntax *thoughts,
		      const char *marks[DIALOGUE_MARKS])
{
	static const char *const harmony[] = {"<|channel|>", "<|message|>", "<|constrain|>",
					      "<|start|>",   "<|end|>",     "<|call|>"};
	static const char *const mistral[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
	static const char *const deepseek[] = {"<｜tool▁sep｜>", "<｜tool▁call▁end｜>"};
	size_t count = 0;
	if (is_harmony(calls, thoughts)) {
		memcpy(marks, harmony, sizeof(harmony));
		return sizeof(harmony) / sizeof(*harmony);
	}
	if (thoughts) {
		marks[count++] = thoughts->begin;
		marks[count++] = thoughts->end;
	}
	if (calls && calls->form == CALL_FORM_LIST) {
		memcpy(&marks[count], mistral, sizeof(mistral));
		return count + sizeof(mistral) / sizeof(*mistral);
	}
	if (calls && calls->form == CALL_FORM_NAMED) {
		memcpy(&marks[count], deepseek, sizeof(deepseek));
		count += sizeof(deepseek) / sizeof(*deepseek);
	}
	const char *const own[] = {calls ? calls->section : NULL,     calls ? calls->section_end : NULL,
				   calls ? calls->begin : NULL,       calls ? calls->end : NULL,
				   calls ? calls->key_begin : NULL,   calls ? calls->key_end : NULL,
				   calls ? calls->value_begin : NULL, calls ? calls->value_end : NULL};
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (own[i])
			marks[count++] = own[i];
	return count;
}

bool call_syntax_write(const struct call_syntax *syntax, const char *name, struct buffer *before, struct buffer *after)
{
	switch (syntax->form) {
	case CALL_FORM_NONE:
	case CALL_FORM_CODE:
		return false;
	case CALL_FORM_PAIRS:
		if (syntax->before_name)
			buffer_printf(before, "%s\n%s%s%s\n", syntax->begin, syntax->before_name, name,
				      syntax->after_name);
		else
			buffer_printf(before, "%s%s\n", syntax->begin, name);
		buffer_printf(after, "%s%s%s", syntax->pairs_end ? syntax->pairs_end : "",
			      syntax->pairs_end ? "\n" : "", syntax->end);
		break;
	case CALL_FORM_JSON:
		if (!syntax->bare)
			buffer_printf(before, "%s\n", syntax->begin);
		buffer_printf(before, "{\"name\": \"%s\", \"%s\": ", name, syntax->arguments);
		buffer_append_text(after, syntax->bare ? "}" : "}\n");
		buffer_append_text(after, syntax->end ? syntax->end : "");
		break;
	case CALL_FORM_LIST:
		if (syntax->after_name)
			buffer_printf(before, "%s%s%s", syntax->begin, name, syntax->after_name);
		else
			buffer_printf(before, "{\"name\": \"%s\", \"%s\": ", name, syntax->arguments);
		buffer_append_text(after, syntax->after_name ? "" : "}");
		break;
	case CALL_FORM_NAMED:
	case CALL_FORM_HEADER:
		buffer_printf(before, "%s%s%s%s", syntax->begin, syntax->before_name ? syntax->before_name : "", name,
			      syntax->after_name);
		buffer_append_text(after, syntax->end ? syntax->end : "");
		break;
	}
	return !before->failed && !after->failed;
}

bool call_syntax_pairs(const struct call_syntax *syntax, struct call_pairs *out)
{
	if (syntax->form != CALL_FORM_PAIRS)
		return false;
	const char *line = syntax->value_begin ? "" : "\n"; // a value has lines of its own, or marks on both sides
	snprintf(out->begin, sizeof(out->begin), "%s", syntax->key_begin);
	snprintf(out->middle, sizeof(out->middle), "%s\n%s", syntax->key_end,
		 syntax->value_begin ? syntax->value_begin : "");
	snprintf(out->end, sizeof(out->end), "%s%s\n", line, syntax->value_end);
	snprintf(out->stop, sizeof(out->stop), "%s%s", line, syntax->value_end);
	return true;
}
