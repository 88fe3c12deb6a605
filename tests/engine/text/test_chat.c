/* Which family a template is taken for, and what a conversation becomes in it, with small vocabularies. That the tokens
 * are those of the templates themselves is chat.test.mjs's. */
#include "engine/text/chat.h"
#include "tests/tools/model_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

struct file {
	struct buffer bytes;
	struct gguf *gguf;
	struct tokenizer *tokenizer;
};

static void file_open(struct file *file, enum model_words words, const char *chat_template)
{
	struct gguf_writer writer;
	struct error error = {0};
	*file = (struct file){0};
	gguf_writer_init(&writer, 32);
	model_words_put(&writer, words, 500, chat_template);
	buffer_init(&file->bytes, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file->bytes);
	gguf_writer_finish(&writer);
	if (gguf_parse(&file->gguf, file->bytes.data, file->bytes.length, &error) ||
	    tokenizer_create(&file->tokenizer, file->gguf, &error))
		fail_msg("%s", error.message);
}

static void file_close(struct file *file)
{
	tokenizer_destroy(&file->tokenizer);
	gguf_destroy(&file->gguf);
	buffer_finish(&file->bytes);
}

static void family_is(const char *chat_template, const char *name)
{
	struct file file;
	file_open(&file, WORDS_PIECES, chat_template);
	struct chat_template template;
	const bool known = chat_template_recognise(file.gguf, &template);
	assert_int_equal(known, template.family != CHAT_UNKNOWN);
	assert_string_equal(template.family ? template.name : "unknown", name);
	file_close(&file);
}

// A system message of the template's own.
#define OWN(text) \
	"{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" text "<|im_end|>\\n' }}{% endif %}"

static void test_families_are_recognised(void **state)
{
	(void)state;
	family_is("{{ '<|start_header_id|>' + role }}{{ '<|eot_id|>' }}", "llama3");
	family_is("{{ '<|start_header_id|>' }}{{ 'Cutting Knowledge Date: ' }}{{ '<|eot_id|>' }}", "llama3.1");
	family_is("{{ '<|im_start|>' + m.role }}{{ '<|im_end|>' }}", "chatml");
	family_is(OWN("You are a helpful assistant."), "qwen2");
	family_is(OWN("You are a helpful assistant"), "qwen1.5");
	family_is(OWN("You are somebody else."), "chatml");
	family_is("{{ '<|im_start|>system\\n' + x }}{{ '<|im_start|>user' + '<tool_response><|im_end|>' }}",
		  "qwen3-instruct");
	family_is("{{ '<|im_start|><|im_end|>' }}{% if add_generation_prompt %}{{ '<think>\\n' }}", "chatml");
	family_is("{{ '<｜User｜>' + x }}{{ '<｜Assistant｜>' + y + '<｜end▁of▁sentence｜>' }}", "deepseek-r1");
	family_is("{{ bos_token + '[INST] <<SYS>>' }}", "llama2");
	family_is("{{ bos_token + '[INST] ' + x + ' [/INST]' }}", "mistral");
	family_is("{{ '[INST][/INST][SYSTEM_PROMPT]' + x }}", "mistral-v7");
	family_is("{{ '<|user|>' + x + eos_token }}{{ '<|assistant|>' }}", "zephyr");
	family_is("", "unknown");
	family_is("{{ 'USER: ' + x }}", "unknown");
	family_is("{{ '<|im_start|>system\\n", "unknown"); // it ends there
	family_is(OWN("It has a quote in it: ' and goes on"), "unknown");
	family_is("{{ '<|im_start|>system\\nAlways this.<|im_end|>' }}", "unknown");
	family_is("{{ '<|user|>' + x + eos_token }}{{ '<|assistant|>' }}{{ '<|end|>' }}", "unknown");
}

// They have the words of a family, and other forms.
static void test_look_alikes_are_unknown(void **state)
{
	(void)state;
	static const char *const zephyrs[] = {
		"{{ '<|user|>\\n' + m.content + '\\n' }}{{ '<|assistant|>\\n' + m.content + eos_token + '\\n' }}",
		"{{ '<|system|>\\n' + s + '\\n' }}{{ '<|user|>\\n' + m.content + eos_token }}{{ '<|assistant|>' }}",
		"{{ '<|user|>\\n' + m.content + (eos_token if loop.last else '') }}{{ '<|assistant|>' }}",
		"{% if head == '<|user|>' %}{{ m.content + eos_token }}{% endif %}{{ '<|assistant|>' }}",
		"<|user|>\n{{ m.content }}\n<|assistant|>\n{{ m.content + eos_token }}",
		"{{ '<|assistant|>' + x + eos_token }}{{ '<|user|>' + eos_token",
	};
	for (size_t i = 0; i < sizeof zephyrs / sizeof *zephyrs; i++)
		family_is(zephyrs[i], "unknown");
	// What is behind each head; those that are known show that it is that.
	struct end {
		const char *behind, *name;
	};
	static const struct end llamas[] = {
		{"\\n\\n' + x + '", "llama3"},
		{"\n\n' + x + '", "llama3"},
		{"\\n\\n' }}{{ x }}{{ '", "llama3"},
		{"\\n\\nCutting Knowledge Date: December 2023", "llama3.1"},
		{"\\n' + x + '", "unknown"},
		{"' + x + '", "unknown"},
		{"\\n\\n\\n' + x + '", "unknown"},
		{"\\n\\nJudge whether this may be said: ' + x + '", "unknown"},
		{"\\n\\n", "unknown"}, // the end of the turn is next
	};
	static const struct end mistrals[] = {
		{"' + x + '", "mistral"},
		{" ' + x + ' ", "mistral"},
		{"' }}{% if y %}{{ y }}{% endif %}{{ x + '", "mistral"},
		{"[/INST]", "mistral"},
		{" <<SYS>>' + x + '<</SYS>>", "llama2"},
		{"  ' + x + '", "unknown"},
		{" Judge whether this may be said: ' + x + '", "unknown"},
		{" Judge this.<<SYS>>' + x + '<</SYS>>", "unknown"},
	};
	char text[256];
	for (size_t i = 0; i < sizeof llamas / sizeof *llamas; i++) {
		snprintf(text, sizeof text, "{{ '<|start_header_id|>user<|end_header_id|>%s<|eot_id|>' }}",
			 llamas[i].behind);
		family_is(text, llamas[i].name);
	}
	for (size_t i = 0; i < sizeof mistrals / sizeof *mistrals; i++) {
		snprintf(text, sizeof text, "{{ bos_token + '[INST]%s[/INST]' }}", mistrals[i].behind);
		family_is(text, mistrals[i].name);
	}
	family_is("<|start_header_id|>user<|end_header_id|>\n\n{{ x }}<|eot_id|>", "llama3");
	family_is("<|start_header_id|>user<|end_header_id|>\n\n{% if x %}{{ x }}{% endif %}<|eot_id|>", "llama3");
	family_is("<|start_header_id|>user<|end_header_id|>\n\n{{- x }}<|eot_id|>", "unknown"); // takes the newlines
	family_is("<|start_header_id|>user<|end_header_id|>\n{{ x }}<|eot_id|>", "unknown");
	family_is("<|eot_id|><|start_header_id|>user<|end_header_id|>\n", "unknown"); // it ends there
	family_is("[INST] {{ x }} [/INST]", "mistral");
	family_is("[/INST][INST] ", "unknown");
}

// The conversation as text, with special tokens in it shown.
static const char *text_of(const struct file *file, const struct chat_message *messages, size_t count)
{
	static char text[1024];
	struct token_list tokens = {0};
	struct detokenizer detokenizer;
	struct buffer out;
	struct error error = {0};
	struct chat_template template;
	const struct conversation conversation = {.messages = messages, .count = count};
	assert_true(chat_template_recognise(file->gguf, &template));
	if (chat_template_apply(&template, file->tokenizer, &conversation, &tokens, &error))
		fail_msg("%s", error.message);
	buffer_init(&out, sizeof text - 1);
	detokenizer_init(&detokenizer, file->tokenizer);
	detokenizer.special = true;
	for (size_t i = 0; i < tokens.count; i++)
		assert_int_equal(detokenizer_add(&detokenizer, tokens.tokens[i], &out), STATUS_OK);
	memcpy(text, buffer_text(&out), out.length + 1);
	buffer_finish(&out);
	token_list_finish(&tokens);
	return text;
}

#define MESSAGE(ROLE, TEXT) \
	{ \
		.role = (ROLE), .text = (TEXT), .length = sizeof(TEXT) - 1 \
	}

static void test_conversations_are_written(void **state)
{
	(void)state;
	static const struct chat_message talk[] = {MESSAGE("user", " who? "), MESSAGE("assistant", "me"),
						   MESSAGE("user", "why")};
	struct file file;
	file_open(&file, WORDS_BPE_LLAMA, NULL);
	assert_string_equal(text_of(&file, talk, 3),
			    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n who? <|eot_id|>"
			    "<|start_header_id|>assistant<|end_header_id|>\n\nme<|eot_id|>"
			    "<|start_header_id|>user<|end_header_id|>\n\nwhy<|eot_id|>"
			    "<|start_header_id|>assistant<|end_header_id|>\n\n");
	file_close(&file);
	file_open(&file, WORDS_BPE_QWEN, NULL);
	assert_string_equal(text_of(&file, talk, 1), "<|im_start|>user\n who? <|im_end|>\n<|im_start|>assistant\n");
	file_close(&file);
	file_open(&file, WORDS_PIECES, NULL); // the space before each text is SentencePiece's own
	assert_string_equal(text_of(&file, talk, 3), "<s> [INST]  who?  [/INST]me</s> [INST] why [/INST]");
	file_close(&file);
}

static void check_day(const char *chat_template, const char *wanted)
{
	static const struct chat_message talk[] = {MESSAGE("user", "x")};
	struct conversation conversation = {.messages = talk, .count = 1, .now_ms = 1709164800000};
	struct chat_template template;
	struct token_list tokens = {0};
	struct detokenizer detokenizer;
	struct buffer out;
	struct file file;
	struct error error = {0};
	file_open(&file, WORDS_BPE_QWEN, chat_template);
	assert_true(chat_template_recognise(file.gguf, &template));
	assert_int_equal(chat_template_apply(&template, file.tokenizer, &conversation, &tokens, &error), STATUS_OK);
	buffer_init(&out, 1024);
	detokenizer_init(&detokenizer, file.tokenizer);
	for (size_t i = 0; i < tokens.count; i++)
		assert_int_equal(detokenizer_add(&detokenizer, tokens.tokens[i], &out), STATUS_OK);
	if (!strstr(buffer_text(&out), wanted))
		fail_msg("\"%s\" is not in \"%s\"", wanted, buffer_text(&out));
	buffer_finish(&out);
	token_list_finish(&tokens);
	file_close(&file);
}

static void test_the_day_is_that_of_the_clock(void **state)
{
	(void)state;
	check_day("{% set date_string = strftime_now('%d %b %Y') %}<|start_header_id|><|eot_id|>Cutting Knowledge Date",
		  "Today Date: 29 Feb 2024\n\n");
	check_day("{% set today = strftime_now('%Y-%m-%d') %}{% set a = 'It is ' + today + '.' %}[INST][/INST]"
		  "{{ '[SYSTEM_PROMPT]' + a }}",
		  "It is 2024-02-29.");
}

static void test_names_are_known(void **state)
{
	(void)state;
	char names[CHAT_NAMES_BYTES];
	static struct chat_template template;
	assert_false(chat_template_named("llama", &template));
	assert_int_equal(template.family, CHAT_UNKNOWN);
	assert_true(strlen(chat_template_names(names)) < sizeof names - 1);
	for (char *name = names; *name;) {
		const size_t length = strcspn(name, ",");
		const bool more = name[length];
		name[length] = 0;
		assert_true(chat_template_named(name, &template));
		assert_string_equal(template.name, name);
		name += length + (more ? 2 : 0);
	}
}

static void test_conversations_have_limits(void **state)
{
	(void)state;
	static const struct chat_message talk[] = {MESSAGE("user", "something that is longer than that")};
	struct file file;
	struct error error = {0};
	struct token_list tokens = {.limit = 5};
	file_open(&file, WORDS_BPE_LLAMA, NULL);
	struct chat_template template;
	assert_true(chat_template_recognise(file.gguf, &template));
	assert_int_equal(chat_template_apply(&template, file.tokenizer,
					     &(struct conversation){.messages = talk, .count = 1}, &tokens, &error),
			 STATUS_LIMIT_EXCEEDED);
	assert_true(error.message[0]);
	assert_true(tokens.count <= 5);
	token_list_finish(&tokens);
	file_close(&file);
}

static void test_messages_that_are_no_text_are_refused(void **state)
{
	(void)state;
	static const struct chat_message talk[] = {MESSAGE("user", "a"), MESSAGE("assistant", "b\xC3"),
						   MESSAGE("user", "\xA9")};
	struct file file;
	struct error error = {0};
	struct token_list tokens = {0};
	file_open(&file, WORDS_BPE_LLAMA, NULL);
	struct chat_template template;
	assert_true(chat_template_recognise(file.gguf, &template));
	assert_int_equal(chat_template_apply(&template, file.tokenizer,
					     &(struct conversation){.messages = talk, .count = 3}, &tokens, &error),
			 STATUS_INVALID_PARAMS);
	assert_string_equal(error.message, "message 1 is not UTF-8 at byte 1");
	assert_int_equal(tokens.count, 0);
	file_close(&file);
}

// gpt-oss's template refuses thoughts beside a text and a call: then the thoughts are left out.
static void test_thoughts_that_a_template_refuses_are_left_out(void **state)
{
	(void)state;
	struct file file;
	struct error error = {0};
	struct token_list tokens = {0};
	struct buffer out;
	struct detokenizer detokenizer;
	struct chat_template template;
	struct json *calls = NULL;
	static const char text[] = "[{\"id\": \"1\", \"name\": \"now\", \"arguments\": \"{}\"}]";
	file_open(&file, WORDS_BPE_LLAMA,
		  "{{ tools }}{% for m in messages %}{% if m.content and m.thinking and m.tool_calls %}"
		  "{{ raise_exception('not both') }}{% endif %}{{ m.content }}"
		  "{% if m.thinking %}{{ '(' + m.thinking + ')' }}{% endif %}{% endfor %}");
	assert_int_equal(json_parse(&calls, text, sizeof(text) - 1, NULL), STATUS_OK);
	assert_int_equal(chat_template_of_file(file.gguf, &template, &error), STATUS_OK);
	struct chat_message talk[] = {MESSAGE("user", "when"), MESSAGE("assistant", "so"), MESSAGE("assistant", "ab")};
	talk[1].thoughts = "hm";
	talk[1].calls = calls;
	talk[2].thoughts = "oh";
	if (chat_template_apply(&template, file.tokenizer, &(struct conversation){.messages = talk, .count = 3},
				&tokens, &error))
		fail_msg("%s", error.message);
	buffer_init(&out, 1024);
	detokenizer_init(&detokenizer, file.tokenizer);
	for (size_t i = 0; i < tokens.count; i++)
		assert_int_equal(detokenizer_add(&detokenizer, tokens.tokens[i], &out), STATUS_OK);
	if (!strstr(buffer_text(&out), "whensoab(oh)"))
		fail_msg("%s", buffer_text(&out));
	buffer_finish(&out);
	token_list_finish(&tokens);
	chat_template_finish(&template);
	json_destroy(&calls);
	file_close(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families_are_recognised),
		cmocka_unit_test(test_look_alikes_are_unknown),
		cmocka_unit_test(test_conversations_are_written),
		cmocka_unit_test(test_the_day_is_that_of_the_clock),
		cmocka_unit_test(test_names_are_known),
		cmocka_unit_test(test_conversations_have_limits),
		cmocka_unit_test(test_messages_that_are_no_text_are_refused),
		cmocka_unit_test(test_thoughts_that_a_template_refuses_are_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
