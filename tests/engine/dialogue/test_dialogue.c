/* Answers taken apart: transcripts in each syntax, whole and cut in every place; wrong ones are text; detection by the
 * text of a template. The transcripts are written for this test after what the templates of the models named in
 * engine/dialogue/syntax.c render, and what their model cards show. */
#include "engine/dialogue/parser.h"
#include "engine/dialogue/plain.h"
#include "engine/dialogue/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static const char tools_text[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
	"\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"deep\":{\"type\":\"object\"}}"
	"}}},"
	"{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

// What is told, as text: thoughts as (T:...), calls as (C:NAME ARGUMENTS), broken ones as (B:...).
struct heard {
	struct buffer out;
	enum dialogue_kind last;
	bool open; // a bracket is
	size_t call_from;
};

static void close_bracket(struct heard *heard)
{
	if (heard->open)
		buffer_append_text(&heard->out, ")");
	heard->open = false;
}

static void hear(void *context, const struct dialogue_event *event)
{
	struct heard *heard = context;
	const bool goes_on = heard->open && heard->last == event->kind && event->kind == DIALOGUE_THOUGHT;
	switch (event->kind) {
	case DIALOGUE_TEXT:
		close_bracket(heard);
		break;
	case DIALOGUE_THOUGHT:
		if (!goes_on) {
			close_bracket(heard);
			buffer_append_text(&heard->out, "(T:");
		}
		heard->open = true;
		break;
	case DIALOGUE_CALL:
		close_bracket(heard);
		heard->call_from = heard->out.length;
		buffer_printf(&heard->out, "(C:%.*s ", (int)event->length, event->text);
		heard->open = true;
		heard->last = event->kind;
		return;
	case DIALOGUE_ARGUMENTS:
		break;
	case DIALOGUE_CALL_END:
		close_bracket(heard);
		break;
	case DIALOGUE_BROKEN: // how much of it was told depends on how it was cut
		assert_true(event->told <= event->length);
		heard->out.length = heard->call_from;
		heard->open = false;
		buffer_printf(&heard->out, "(B:%.*s)", (int)event->length, event->text);
		heard->last = event->kind;
		return;
	}
	buffer_append(&heard->out, event->text, event->length);
	heard->last = event->kind;
}

struct transcript {
	const char *calls, *thoughts;
	const char *text, *told;
	bool opened, cut;
};

// Cut after each `piece` bytes; 0: not at all.
static void check(const struct transcript *one, const struct json *tools, size_t piece, size_t first)
{
	struct dialogue *dialogue;
	struct heard heard = {0};
	const size_t length = strlen(one->text);
	buffer_init(&heard.out, 1 << 20);
	buffer_append_text(&heard.out, "");
	const struct dialogue_params params = {.calls = call_syntax_named(one->calls),
					       .thoughts = thought_syntax_named(one->thoughts),
					       .opened = one->opened,
					       .tools = tools,
					       .event = hear,
					       .context = &heard};
	assert_true(!one->calls || params.calls);
	assert_int_equal(dialogue_create(&dialogue, &params), STATUS_OK);
	for (size_t at = 0; at < length;) {
		size_t count = !at && first ? first : piece ? piece : length;
		count = count < length - at ? count : length - at;
		char *copy = buffer_copy_text(one->text + at, count);
		assert_int_equal(dialogue_feed(dialogue, copy, count), STATUS_OK);
		free(copy);
		at += count;
	}
	assert_int_equal(dialogue_end(dialogue, one->cut), STATUS_OK);
	close_bracket(&heard);
	if (strcmp(buffer_text(&heard.out), one->told) != 0)
		fail_msg("%s, cut at %zu and then by %zu\n%s\nis told as\n%s\ninstead of\n%s",
			 one->calls ? one->calls : "-", first, piece, one->text, buffer_text(&heard.out), one->told);
	dialogue_destroy(&dialogue);
	buffer_finish(&heard.out);
}

static void check_all(const struct transcript *transcripts, size_t count)
{
	struct json *tools = NULL;
	assert_int_equal(json_parse(&tools, tools_text, strlen(tools_text), NULL), STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		check(&transcripts[i], tools, 0, 0);
		for (size_t piece = 1; piece < 9; piece++)
			check(&transcripts[i], tools, piece, 0);
		for (size_t first = 1; first < strlen(transcripts[i].text); first++)
			check(&transcripts[i], tools, 0, first);
	}
	json_destroy(&tools);
}

#define CALL "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris }\\\"\", \"days\": 2}}"
#define PARAMETERS "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris }\\\"\", \"days\": 2}}"
#define TOLD "(C:get_weather {\"city\": \"Paris }\\\"\", \"days\": 2})"

static void test_texts(void **state)
{
	(void)state;
	static const struct transcript transcripts[] = {
		{NULL, NULL, "plain <tool_call> text\n", "plain <tool_call> text\n", false, false},
		{"hermes", NULL, " plain < text <tool>\n\n", " plain < text <tool>\n\n", false, false},
		{NULL, "think", "<think>\nwhy\n\nnot\n</think>\n\nSo: <think>", "(T:why\n\nnot)So: <think>", false,
		 false},
		{NULL, "think", "why\n</think>\n\nSo", "(T:why)So", true, false},
		{NULL, "think", "\n</think>\n\nSo", "So", true, false},
		{NULL, "think", "why not", "(T:why not)", true, true},
		{NULL, "think", "I think </think> that", "I think </think> that", false, false},
		{NULL, "mistral", "[THINK]a[/THINK]b", "(T:a)b", false, false},
		{"hermes", "think", "<think>\nhm\n</think>\n\n<tool_call>\n" CALL "\n</tool_call>", "(T:hm)" TOLD,
		 false, false},
		{"hermes", "think", "<think>\n\n</think>\n\nYes.", "Yes.", false, false},
	};
	check_all(transcripts, sizeof(transcripts) / sizeof(*transcripts));
}

static void test_json(void **state)
{
	(void)state;
	static const struct transcript transcripts[] = {
		{"hermes", NULL, "<tool_call>\n" CALL "\n</tool_call>", TOLD, false, false},
		{"hermes", NULL, "I look.\n<tool_call>" CALL "</tool_call>\n<tool_call>\n" CALL "\n</tool_call>\n",
		 "I look." TOLD TOLD, false, false},
		{"hermes", NULL,
		 "<tool_call>\n{\"arguments\": {\"city\": \"Paris }\\\"\", \"days\": 2}, \"id\": [1], \"name\": "
		 "\"get_weather\"}\n</tool_call>",
		 TOLD, false, false},
		{"hermes", NULL, "<tool_call>\n{\"name\": \"now\"}\n</tool_call>Then", "(C:now {})Then", false, false},
		{"hermes", NULL, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}", "(C:now {})", false, false},
		// Wrong ones are text.
		{"hermes", NULL, "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
		 "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>", false, false},
		{"hermes", NULL, "<tool_call>\n{name: \"now\"}\n</tool_call>",
		 "<tool_call>\n{name: \"now\"}\n</tool_call>", false, false},
		{"hermes", NULL, "<tool_call>\n{\"name\": \"now\", \"arguments\": \"x\"}</tool_call>",
		 "<tool_call>\n{\"name\": \"now\", \"arguments\": \"x\"}</tool_call>", false, false},
		{"hermes", NULL, "<tool_call>\n{\"na", "<tool_call>\n{\"na", false, true},
		{"hermes", NULL, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 01}}",
		 "(B:<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 0)1}}", false, false},
		{"hermes", NULL, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"b",
		 "(B:<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"b)", false, false},
		{"hermes", NULL, "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"b", "(C:now {\"a\": \"b)",
		 false, true},
		{"llama3", NULL, PARAMETERS, TOLD, false, false},
		{"llama3", NULL, "<|python_tag|>" PARAMETERS "; " PARAMETERS, TOLD TOLD, false, false},
		{"llama3", NULL, "{\"name\": \"Ann\", \"age\": 3}", "{\"name\": \"Ann\", \"age\": 3}", false, false},
		{"llama3", NULL, "It is {\"name\": \"now\"}", "It is {\"name\": \"now\"}", false, false},
		{"llama3", NULL, "<|python_tag|>brave.call(query=\"x\")", "<|python_tag|>brave.call(query=\"x\")",
		 false, false},
		{"mistral", NULL, "[TOOL_CALLS][" CALL "]", TOLD, false, false},
		{"mistral", NULL, "[TOOL_CALLS] [" CALL ", {\"name\": \"now\", \"arguments\": {}}]", TOLD "(C:now {})",
		 false, false},
		{"mistral", NULL, "[TOOL_CALLS][x] so", "[TOOL_CALLS][x] so", false, false},
		{"mistral", NULL, "[TOOL_CALLS] [ 5]", "[TOOL_CALLS] [ 5]", false, false},
		{"mistral-args", NULL, "[TOOL_CALLS]now[ARGS]{\"a\": [1]}[TOOL_CALLS]now[CALL_ID]abcdef123[ARGS]{}",
		 "(C:now {\"a\": [1]})(C:now {})", false, false},
		{"mistral-args", NULL, "[TOOL_CALLS]never[ARGS]{}", "[TOOL_CALLS]never[ARGS]{}", false, false},
	};
	check_all(transcripts, sizeof(transcripts) / sizeof(*transcripts));
}

#define HUNDRED "an endless header an endless header an endless header an endless header an endless header an endless "
#define ENDLESS HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED

static void test_others(void **state)
{
	(void)state;
	static const struct transcript transcripts[] = {
		{"deepseek", "think",
		 "hm</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{\"a\": "
		 "\"```\"}\n```<｜tool▁call▁end｜>\n"
		 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><"
		 "｜tool▁calls▁end｜>",
		 "(T:hm)(C:now {\"a\": \"```\"})(C:now {})", true, false},
		{"deepseek-v3.1", NULL,
		 "See.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{\"a\": "
		 "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		 "See.(C:now {\"a\": 1})", false, false},
		{"deepseek-v3.1", NULL, "<｜tool▁calls▁begin｜>none", "<｜tool▁calls▁begin｜>none", false, false},
		{"glm", "think",
		 "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>days</"
		 "arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
		 "(C:get_weather {\"city\": \"12\", \"days\": 2})", false, false},
		{"glm", NULL, "<tool_call>now\n</tool_call>\n<tool_call>now</tool_call>", "(C:now {})(C:now {})", false,
		 false},
		{"glm", NULL, "<tool_call>now\n<arg_key>a<arg_value>", "<tool_call>now\n<arg_key>a<arg_value>", false,
		 false},
		{"qwen3-coder", NULL,
		 "Sure.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</p> "
		 "\"x\"\n</parameter>\n<parameter=deep>\n{\"a\": [1, 2]}\n</parameter>\n</function>\n</tool_call>",
		 "Sure.(C:get_weather {\"city\": \"Paris\\n</p> \\\"x\\\"\", \"deep\": {\"a\":[1,2]}})", false, false},
		{"qwen3-coder", NULL,
		 "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</"
		 "tool_call>",
		 "(C:now {})(C:now {})", false, false},
		{"qwen3-coder", NULL, "<tool_call>\n<function=now>\nwhat", "<tool_call>\n<function=now>\nwhat", false,
		 false},
		{"harmony", "harmony",
		 "<|channel|>analysis<|message|>I need it.<|end|><|start|>assistant<|channel|>commentary "
		 "to=functions.now <|constrain|>json<|message|>{\"a\": 1}",
		 "(T:I need it.)(C:now {\"a\": 1})", false, false},
		{"harmony", "harmony",
		 "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hello <|x|>",
		 "(T:Hm)Hello <|x|>", false, false},
		{NULL, "harmony", "<|channel|>final<|message|>Hi<|end|>", "Hi", false, false},
		{"harmony", "harmony",
		 "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>", "(C:now {})",
		 false, false},
		{"harmony", "harmony", " to=functions.now<|channel|>commentary json<|message|>{\"a\": 1}<|call|>",
		 "(C:now {\"a\": 1})", false, false},
		{"harmony", "harmony", " to=functions.nobody<|channel|>commentary json<|message|>{}",
		 " to=functions.nobody<|channel|>commentary json<|message|>{}", false, false},
		{"harmony", "harmony", " to=functions.", "", false, false},
		// What breaks behind a call takes nothing of it back.
		{"harmony", "harmony", "<|start|>assistant to=functions.now<|message|>{}<|call|><|start|>" ENDLESS,
		 "(C:now {})<|start|>" ENDLESS, false, false},
		{"harmony", "harmony", " to=fun<|channel|>final<|message|>Hi", " to=funHi", false, false},
		{"gemma", NULL,
		 "Wait.\n```tool_code\nprint(default_api.get_weather(city=\"Pa'ris\\n\", days=-2, deep={'a': [True, "
		 "None, 1.5]}))\n```",
		 "Wait.(C:get_weather {\"city\": \"Pa'ris\\n\", \"days\": -2, \"deep\": {\"a\": [true, null, 1.5]}})",
		 false, false},
		{"gemma", NULL, "```tool_code\nnow()\n```", "(C:now {})", false, false},
		{"gemma", NULL, "```tool_code\nimport os\n```", "```tool_code\nimport os\n```", false, false},
	};
	check_all(transcripts, sizeof(transcripts) / sizeof(*transcripts));
}

static void test_many(void **state)
{
	(void)state;
	struct json *tools = NULL;
	struct dialogue *dialogue;
	struct heard heard = {0};
	static const char call[] = "<tool_call>{\"name\": \"now\"}</tool_call>";
	assert_int_equal(json_parse(&tools, tools_text, strlen(tools_text), NULL), STATUS_OK);
	buffer_init(&heard.out, 1 << 20);
	assert_int_equal(dialogue_create(&dialogue, &(struct dialogue_params){.calls = call_syntax_generic(),
									      .tools = tools,
									      .event = hear,
									      .context = &heard}),
			 STATUS_OK);
	for (unsigned i = 0; i < DIALOGUE_CALLS + 1; i++)
		assert_int_equal(dialogue_feed(dialogue, call, strlen(call)), STATUS_OK);
	assert_int_equal(dialogue_end(dialogue, false), STATUS_OK);
	assert_int_equal(dialogue_place(dialogue).arguments, DIALOGUE_CALLS);
	const size_t length = strlen("(C:now {})");
	assert_string_equal(buffer_text(&heard.out) + DIALOGUE_CALLS * length, call); // one too many is text
	dialogue_destroy(&dialogue);
	buffer_finish(&heard.out);
	json_destroy(&tools);
}

static void count_calls(void *context, const struct dialogue_event *event)
{
	*(unsigned *)context += event->kind == DIALOGUE_CALL;
}

// Calls that break once they have been told count, too.
static void test_many_broken(void **state)
{
	(void)state;
	struct json *tools = NULL;
	struct dialogue *dialogue;
	unsigned calls = 0;
	static const char call[] = "<tool_call>{\"name\": \"now\", \"arguments\": {]";
	assert_int_equal(json_parse(&tools, tools_text, strlen(tools_text), NULL), STATUS_OK);
	assert_int_equal(dialogue_create(&dialogue, &(struct dialogue_params){.calls = call_syntax_generic(),
									      .tools = tools,
									      .event = count_calls,
									      .context = &calls}),
			 STATUS_OK);
	for (unsigned i = 0; i < 2 * DIALOGUE_CALLS; i++)
		assert_int_equal(dialogue_feed(dialogue, call, strlen(call)), STATUS_OK);
	assert_int_equal(dialogue_end(dialogue, false), STATUS_OK);
	assert_int_equal(calls, DIALOGUE_CALLS);
	dialogue_destroy(&dialogue);
	json_destroy(&tools);
}

// What goes on without an end is text after a while, so that it is not looked through again with each token.
static void test_endless(void **state)
{
	(void)state;
	static const struct {
		const char *calls, *begin;
		char more;
	} cases[] = {
		{"qwen3-coder", "<tool_call>\n<function=now>\n<parameter=", 'a'},
		{"glm", "<tool_call>now\n<arg_key>", 'a'},
		{"glm", "<tool_call>now\n<arg_key>a</arg_key>", '\n'},
		{"harmony", "<|channel|>", 'a'},
		{"harmony", " to=functions.", 'a'},
		{"mistral-args", "[TOOL_CALLS]now[CALL_ID]", 'a'},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct buffer text;
		buffer_init(&text, 1 << 16);
		buffer_append_text(&text, cases[i].begin);
		for (unsigned k = 0; k < 4096; k++)
			buffer_append_byte(&text, (uint8_t)cases[i].more);
		buffer_append_text(&text, "<|message|>");
		struct json *tools = NULL;
		assert_int_equal(json_parse(&tools, tools_text, strlen(tools_text), NULL), STATUS_OK);
		const bool harmony = !strcmp(cases[i].calls, "harmony"); // which marks nothing with that, and drops it
		char *told = buffer_copy_text(text.data, text.length - (harmony ? strlen("<|message|>") : 0));
		const struct transcript transcript = {cases[i].calls, NULL, buffer_text(&text), told, false, false};
		check(&transcript, tools, 0, 0);
		check(&transcript, tools, 1, 0);
		check(&transcript, tools, 777, 0);
		free(told);
		json_destroy(&tools);
		buffer_finish(&text);
	}
}

// Of many blanks before a mark the last 256 are left out, wherever the answer was cut.
static void test_blanks(void **state)
{
	(void)state;
	static const struct {
		const char *calls, *thoughts, *before, *behind, *told_before, *told_behind;
		bool opened;
	} cases[] = {
		{NULL, "think", "a", "</think>b", "(T:a", ")b", true},
		{"gemma", "harmony", "a", "", "(T:a", ")", true},
		{"hermes", NULL, "a", "<tool_call>{\"name\": \"now\"}</tool_call>", "a", "(C:now {})", false},
		{"llama3", NULL, "", PARAMETERS, "", TOLD, false},
	};
	char blanks[301], told[45];
	memset(blanks, '\t', sizeof blanks - 1);
	memset(told, '\t', sizeof told - 1);
	blanks[300] = told[44] = 0;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[600], out[600];
		snprintf(text, sizeof text, "%s%s%s", cases[i].before, blanks, cases[i].behind);
		snprintf(out, sizeof out, "%s%s%s", cases[i].told_before, told, cases[i].told_behind);
		check_all(&(struct transcript){cases[i].calls, cases[i].thoughts, text, out, cases[i].opened, false},
			  1);
	}
}

// JSON as it comes, beside the reader of whole texts.
static void test_scan(void **state)
{
	(void)state;
	static const char *const texts[] = {"{}",
					    "{\"a\":1}",
					    "{\"a\":-0.5e+10,\"b\":[true,false,null,\"\\u12aF\\n\",{}]}",
					    " {\"a\" : [ ] , \"b\" : { } }",
					    "{\"a\":01}",
					    "{\"a\":.5}",
					    "{\"a\":1.}",
					    "{\"a\":1e}",
					    "{\"a\":+1}",
					    "{\"a\":tru}",
					    "{\"a\":[1,]}",
					    "{,}",
					    "{\"a\"}",
					    "{\"a\":\"\n\"}",
					    "{\"a\":\"\\x\"}",
					    "{\"a\":\"\\u12g4\"}",
					    "{\"a\":1]}",
					    "[1]",
					    "{\"a\":-}",
					    "{\"a\":1 2}",
					    "{\"a\" 1}",
					    "{1:2}"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct scan scan;
		struct json *json = NULL;
		enum scan_verdict verdict = SCAN_MORE;
		scan_init(&scan);
		for (const char *at = texts[i]; *at && verdict == SCAN_MORE; at++)
			verdict = scan_byte(&scan, (uint8_t)*at);
		const bool good = !json_parse(&json, texts[i], strlen(texts[i]), NULL) &&
				  json_type(json) == JSON_OBJECT;
		if ((verdict == SCAN_DONE) != good)
			fail_msg("%s: %d, %d", texts[i], verdict, good);
		json_destroy(&json);
	}
}

static void test_detection(void **state)
{
	(void)state;
	static const struct {
		const char *text, *calls, *thoughts;
	} cases[] = {
		{"{{ messages }}", NULL, NULL},
		{"<tool_call>\\n{\"name\": </tool_call> {{ message.content.split('</think>') }}", "hermes", "think"},
		{"<tool_call> <function=example> <parameter=x> </tool_call>", "qwen3-coder", NULL},
		{"<tool_call> <arg_key> <arg_value></think>", "glm", "think"},
		{"<|start_header_id|>{\"name\": , \"parameters\": dictionary}", "llama3", NULL},
		{"[TOOL_CALLS] [", "mistral", NULL},
		{"[TOOL_CALLS]x[ARGS] [THINK] [/THINK]", "mistral-args", "mistral"},
		{"<｜tool▁calls▁begin｜> <｜tool▁sep｜> ```json </think>", "deepseek", "think"},
		{"<｜tool▁calls▁begin｜> <｜tool▁sep｜>", "deepseek-v3.1", NULL},
		{"<|channel|>analysis<|message|> functions.", "harmony", "harmony"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const size_t length = strlen(cases[i].text);
		const struct call_syntax *calls = call_syntax_of_template(cases[i].text, length);
		const struct thought_syntax *thoughts = thought_syntax_of_template(cases[i].text, length);
		assert_string_equal(calls ? calls->name : "none", cases[i].calls ? cases[i].calls : "none");
		assert_string_equal(thoughts ? thoughts->name : "none", cases[i].thoughts ? cases[i].thoughts : "none");
	}
	assert_string_equal(call_syntax_generic()->name, "hermes");
}

static void test_plain(void **state)
{
	(void)state;
	static const char messages_text[] =
		"[{\"role\":\"user\",\"text\":\"Hi\"},{\"role\":\"assistant\",\"calls\":[{\"id\":\"1\",\"name\":"
		"\"now\",\"arguments\":\"{}\"}]},"
		"{\"role\":\"tool\",\"text\":\"5\",\"call_id\":\"1\"},{\"role\":\"tool\",\"text\":\"6\"}]";
	struct json *tools = NULL, *messages = NULL;
	assert_int_equal(json_parse(&tools, tools_text, strlen(tools_text), NULL), STATUS_OK);
	assert_int_equal(json_parse(&messages, messages_text, strlen(messages_text), NULL), STATUS_OK);
	for (int in_user = 0; in_user < 2; in_user++) {
		struct json *plain = dialogue_plain(messages, tools, in_user);
		const struct json *one = json_first(plain);
		assert_int_equal(json_count(plain), in_user ? 3 : 4);
		assert_string_equal(json_get_string(one, "role", ""), in_user ? "user" : "system");
		assert_non_null(strstr(json_get_string(one, "text", ""), "\"name\":\"get_weather\""));
		one = in_user ? one : json_next(one);
		assert_int_equal(strstr(json_get_string(one, "text", ""), "Hi") != NULL, 1);
		one = json_next(one);
		assert_string_equal(json_get_string(one, "text", ""),
				    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
		one = json_next(one);
		assert_string_equal(json_get_string(one, "role", ""), "user");
		assert_string_equal(json_get_string(one, "text", ""),
				    "<tool_response>\n5\n</tool_response>\n<tool_response>\n6\n</tool_response>");
		json_destroy(&plain);
	}
	json_destroy(&tools);
	json_destroy(&messages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),  cmocka_unit_test(test_json),        cmocka_unit_test(test_others),
		cmocka_unit_test(test_many),   cmocka_unit_test(test_scan),        cmocka_unit_test(test_detection),
		cmocka_unit_test(test_plain),  cmocka_unit_test(test_many_broken), cmocka_unit_test(test_endless),
		cmocka_unit_test(test_blanks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
