/* Tokenizers of small vocabularies made here: what merges first, what is looked for, what comes back in pieces, what is
 * refused. That whole vocabularies give the published tokens is tokenizer.test.mjs's. */
#include "common/base/limits.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_words.h"
#include "tests/tools/model_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct vocabulary {
	const char *model, *pre;
	const char *texts[32];
	float scores[32];
	int32_t types[32];
	const char *merges[16];
	int begin, end, unknown; // -1: none
	int space_prefix;        // -1: not said
};

static enum status open_vocabulary(struct tokenizer **out, const struct vocabulary *v, struct error *error)
{
	struct gguf_writer writer;
	struct buffer file;
	struct gguf *gguf = NULL;
	size_t count = 0, merges = 0;
	while (count < 32 && v->texts[count])
		count++;
	while (merges < 16 && v->merges[merges])
		merges++;
	gguf_writer_init(&writer, 32);
	gguf_put_text(&writer, "tokenizer.ggml.model", v->model);
	if (v->pre)
		gguf_put_text(&writer, "tokenizer.ggml.pre", v->pre);
	gguf_put_texts(&writer, "tokenizer.ggml.tokens", v->texts, count);
	gguf_put_f32s(&writer, "tokenizer.ggml.scores", v->scores, count);
	gguf_put_i32s(&writer, "tokenizer.ggml.token_type", v->types, count);
	gguf_put_texts(&writer, "tokenizer.ggml.merges", v->merges, merges);
	const int ids[] = {v->begin, v->end, v->unknown};
	static const char *const names[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
					    "tokenizer.ggml.unknown_token_id"};
	for (unsigned i = 0; i < 3; i++)
		if (ids[i] >= 0)
			gguf_put_u32(&writer, names[i], (uint32_t)ids[i]);
	if (v->space_prefix >= 0)
		gguf_put_bool(&writer, "tokenizer.ggml.add_space_prefix", v->space_prefix);
	buffer_init(&file, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file);
	assert_int_equal(gguf_parse(&gguf, file.data, file.length, error), STATUS_OK);
	enum status status = tokenizer_create(out, gguf, error);
	gguf_destroy(&gguf);
	buffer_finish(&file);
	gguf_writer_finish(&writer);
	return status;
}

static struct tokenizer *open_good(const struct vocabulary *v)
{
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	if (open_vocabulary(&tokenizer, v, &error))
		fail_msg("%s", error.message);
	return tokenizer;
}

// The ids as "1 2 3".
static const char *ids_of(const struct tokenizer *tokenizer, struct tokenize_params params)
{
	static char text[256];
	struct token_list list = {0};
	struct error error = {0};
	params.length = params.length ? params.length : strlen(params.text);
	if (tokenize(tokenizer, &params, &list, &error))
		fail_msg("%s", error.message);
	size_t at = 0;
	text[0] = 0;
	for (size_t i = 0; i < list.count; i++)
		at += (size_t)snprintf(text + at, sizeof text - at, "%s%u", i ? " " : "", list.tokens[i]);
	token_list_finish(&list);
	return text;
}
#define IDS(tokenizer, ...) ids_of(tokenizer, (struct tokenize_params){__VA_ARGS__})

static const struct vocabulary pieces = {
	.model = "llama",
	.texts = {"<unk>",
		  "<s>",
		  "</s>",
		  "<0x0A>",
		  "<0xC3>",
		  "<0xA9>",
		  "\xE2\x96\x81",
		  "a",
		  "b",
		  "ab",
		  "ba",
		  "\xE2\x96\x81"
		  "a",
		  "aba",
		  "<|x|>",
		  "<|x|>y",
		  "c",
		  "s",
		  "<",
		  ">",
		  "<s"},
	.scores = {0, 0, 0, 0, 0, 0, -9, -9, -9, -2, -2, -3, -4, 0, 0, -9, -9, -9, -9, -1},
	.types = {UNKNOWN, CONTROL, CONTROL, BYTE,    BYTE,         BYTE, 1, 1, 1, 1,
		  1,       1,       1,       CONTROL, USER_DEFINED, 1,    1, 1, 1, 1},
	.begin = 1,
	.end = 2,
	.unknown = 0,
	.space_prefix = -1,
};

static void test_pieces_merge_by_score_then_from_the_left(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_good(&pieces);
	assert_string_equal(IDS(tokenizer, .text = "ab", .continues = true), "9");
	assert_string_equal(IDS(tokenizer, .text = "aba", .continues = true), "12");   // ab, then with a
	assert_string_equal(IDS(tokenizer, .text = "bab", .continues = true), "10 8"); // ba and ab are equal
	assert_string_equal(IDS(tokenizer, .text = "ab"), "6 9");                      // ab before the space's
	assert_string_equal(IDS(tokenizer, .text = "a c"), "11 6 15");
	assert_string_equal(IDS(tokenizer, .text = "a c", .begin = true), "1 11 6 15");
	assert_string_equal(IDS(tokenizer, .text = "", .begin = true), "1");
	assert_string_equal(IDS(tokenizer, .text = "\n\xC3\xA9", .continues = true), "3 4 5"); // their bytes
	assert_string_equal(IDS(tokenizer, .text = "xyza", .continues = true), "0 7");         // a run is one unknown
	// What merges to the text of a control token stays what it is.
	assert_string_equal(IDS(tokenizer, .text = "<s>", .continues = true), "19 18");
	tokenizer_destroy(&tokenizer);
}

static void test_special_tokens_are_found_only_when_asked_for_and_the_longest_first(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_good(&pieces);
	assert_string_equal(IDS(tokenizer, .text = "a<|x|>yab", .special = true), "11 14 6 9");
	assert_string_equal(IDS(tokenizer, .text = "<|x|>", .special = true), "13");
	assert_string_equal(IDS(tokenizer, .text = "<|x|<s>", .special = true, .continues = true), "17 0 1");
	assert_string_equal(IDS(tokenizer, .text = "<|x|>", .continues = true), "17 0 18");
	assert_int_equal(tokenizer_find(tokenizer, "<|x|>", 5), 13);
	assert_int_equal(tokenizer_find(tokenizer, "aba", 3), 12);
	assert_int_equal(tokenizer_find(tokenizer, "abab", 4), NO_TOKEN);
	assert_int_equal(tokenizer_find(tokenizer, "", 0), NO_TOKEN);
	assert_true(tokenizer_ends(tokenizer, 2));
	assert_false(tokenizer_ends(tokenizer, 1));
	assert_false(tokenizer_ends(tokenizer, 13));
	assert_false(tokenizer_ends(tokenizer, UINT32_MAX));
	tokenizer_destroy(&tokenizer);
}

static const struct vocabulary bytes = {
	.model = "gpt2",
	.pre = "llama-bpe",
	// U+0120 is a space, U+00C3 and U+00A9 are bytes.
	.texts = {"a", "b", "c", "\xC4\xA0", "\xC3\x83", "\xC2\xA9", "bc", "ab", "abc", "\xC3\x83\xC2\xA9",
		  "<|eot_id|>", "<|end|>",
		  "\xC4\xA0"
		  "a",
		  "xyz", "unused"},
	.types = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, CONTROL, 1, 1, 1, UNUSED},
	.merges = {"b c", "a b", "\xC3\x83 \xC2\xA9", "\xC4\xA0 a", "a bc"},
	.begin = 10,
	.end = -1,
	.unknown = -1,
	.space_prefix = -1,
};

static enum status fill(const struct tokenizer *tokenizer, const char *before, const char *after, char ids[128],
			struct error *error)
{
	struct token_list list = {0};
	enum status status = tokenize_fill(tokenizer, before, after, &list, error);
	size_t at = 0;
	for (size_t i = 0; i < list.count; i++)
		at += (size_t)snprintf(ids + at, 128 - at, "%s%u", i ? " " : "", list.tokens[i]);
	token_list_finish(&list);
	return status;
}

static void test_a_gap_is_marked_as_the_model_learnt_it(void **state)
{
	(void)state;
	char ids[128] = "";
	struct error error = {0};
	struct vocabulary with_marks = pieces;
	static const char *const marks[] = {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"};
	for (unsigned i = 0; i < 3; i++) {
		with_marks.texts[20 + i] = marks[i];
		with_marks.types[20 + i] = CONTROL;
	}
	struct tokenizer *tokenizer = open_good(&with_marks);
	assert_int_equal(fill(tokenizer, "ab", "ba", ids, &error), STATUS_OK);
	assert_string_equal(ids,
			    "1 20 6 9 21 10 22"); // the text begins with a space's piece, what follows the gap does not
	assert_int_equal(fill(tokenizer, "", "a", ids, &error), STATUS_OK);
	assert_string_equal(ids, "1 20 21 7 22");
	assert_int_equal(fill(tokenizer, "a<fim_middle>", "b", ids, &error), STATUS_OK);
	assert_null(strstr(strstr(ids, "20"), "22 ")); // a mark in a text is no mark
	tokenizer_destroy(&tokenizer);
	tokenizer = open_good(&pieces);
	assert_int_equal(fill(tokenizer, "a", "b", ids, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "suffix: the model has no tokens that mark a gap"));
	tokenizer_destroy(&tokenizer);
}

static void test_bytes_merge_by_rank(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_good(&bytes);
	assert_string_equal(IDS(tokenizer, .text = "ab"), "7");
	assert_string_equal(IDS(tokenizer, .text = "abcb"), "8 1");
	assert_string_equal(IDS(tokenizer, .text = " a \xC3\xA9"), "12 3 9");
	assert_string_equal(IDS(tokenizer, .text = "xyz"), "13");   // the whole word is a token
	assert_string_equal(IDS(tokenizer, .text = "xyza"), "0");   // bytes without tokens are left out
	assert_string_equal(IDS(tokenizer, .text = "<|end|>"), ""); // nor are tokens made of them
	assert_string_equal(IDS(tokenizer, .text = "a", .begin = true), "10 0");
	assert_true(tokenizer_ends(tokenizer, 10));
	assert_false(tokenizer_ends(tokenizer, 11)); // the text alone does not do it
	tokenizer_destroy(&tokenizer);
}

static const struct vocabulary harmony = {
	.model = "gpt2",
	.pre = "gpt-4o",
	.texts = {"a", "<|return|>", "<|call|>", "<|end|>", "<|im_end|>", "b", "ab"},
	.types = {1, CONTROL, CONTROL, CONTROL, CONTROL, 1, 1},
	.merges = {"a b"},
	.begin = -1,
	.end = 1,
	.unknown = -1,
	.space_prefix = -1,
};

// A message of an answer ends with <|end|>, and the answer goes on.
static void test_harmony_ends_with_its_own(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_good(&harmony);
	assert_true(tokenizer_ends(tokenizer, 1));
	assert_true(tokenizer_ends(tokenizer, 2));
	assert_false(tokenizer_ends(tokenizer, 3));
	assert_true(tokenizer_ends(tokenizer, 4));
	tokenizer_destroy(&tokenizer);
}

static void test_text_comes_back_in_whole_characters(void **state)
{
	(void)state;
	static const struct {
		uint32_t token;
		const char *text;
	} steps[] = {
		{11, "a"},       // without the space that was put before
		{11, " a"},      // but only the first
		{4, ""},         // half of a character waits
		{5, "\xC3\xA9"}, // for the other
		{4, ""},         // and becomes U+FFFD when something else comes
		{7, "\xEF\xBF\xBD"
		    "a"},
		{5, "\xEF\xBF\xBD"}, // as does what begins none
		{13, ""},            // a control token
		{14, "<|x|>y"},      // one that a user defined is text
		{4, ""},
		{4, "\xEF\xBF\xBD"},
		{99, ""}, // no token at all
	};
	struct tokenizer *tokenizer = open_good(&pieces);
	struct detokenizer detokenizer;
	struct buffer out;
	buffer_init(&out, 64);
	detokenizer_init(&detokenizer, tokenizer);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		buffer_clear(&out);
		assert_int_equal(detokenizer_add(&detokenizer, steps[i].token, &out), STATUS_OK);
		assert_string_equal(buffer_text(&out), steps[i].text);
	}
	buffer_clear(&out);
	assert_int_equal(detokenizer_end(&detokenizer, &out), STATUS_OK);
	assert_string_equal(buffer_text(&out), "\xEF\xBF\xBD");
	buffer_clear(&out);
	detokenizer.special = true;
	assert_int_equal(detokenizer_add(&detokenizer, 13, &out), STATUS_OK);
	assert_int_equal(token_bytes(tokenizer, 4, &out), STATUS_OK);
	assert_string_equal(buffer_text(&out), "<|x|>\xC3");
	buffer_finish(&out);
	tokenizer_destroy(&tokenizer);
}

static void test_text_that_is_not_utf8_is_refused_with_its_place(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"abc\x80",     "abc\xC3", "abc\xC0\xAF", "abc\xED\xA0\x80", "abc\xF4\x90\x80\x80",
		"abc\xE2\x96", "abc\xFF"};
	struct tokenizer *tokenizer = open_good(&pieces);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct token_list list = {0};
		struct error error = {0};
		struct tokenize_params params = {.text = bad[i], .length = strlen(bad[i])};
		assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_INVALID_PARAMS);
		assert_string_equal(error.message, "the text is not UTF-8 at byte 3");
		token_list_finish(&list);
	}
	tokenizer_destroy(&tokenizer);
}

static void test_lists_have_limits(void **state)
{
	(void)state;
	struct tokenizer *tokenizer = open_good(&pieces);
	struct token_list list = {.limit = 3};
	struct error error = {0};
	struct tokenize_params params = {.text = "bbb", .length = 3, .continues = true};
	assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_OK);
	assert_int_equal(list.count, 3);
	assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_LIMIT_EXCEEDED);
	assert_string_equal(error.message, "the text has more than 3 tokens");
	token_list_finish(&list);
	tokenizer_destroy(&tokenizer);
}

static void refused(const struct vocabulary *v, enum status status, const char *message)
{
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	assert_int_equal(open_vocabulary(&tokenizer, v, &error), status);
	assert_null(tokenizer);
	if (!strstr(error.message, message))
		fail_msg("\"%s\" instead of \"%s\"", error.message, message);
}

static void test_files_that_do_not_fit_are_refused_by_name(void **state)
{
	(void)state;
	struct vocabulary v = bytes;
	v.model = "rwkv";
	refused(&v, STATUS_UNAVAILABLE, "\"rwkv\"");
	v = bytes;
	v.pre = NULL;
	refused(&v, STATUS_UNAVAILABLE, "tokenizer.ggml.pre");
	v.pre = "default";
	refused(&v, STATUS_UNAVAILABLE, "\"default\"");
	v = bytes;
	v.merges[0] = "b z";
	refused(&v, STATUS_INVALID_PARAMS, "\"b z\"");
	v.merges[0] = "b";
	refused(&v, STATUS_INVALID_PARAMS, "entry 0");
	v = bytes;
	v.begin = 15;
	refused(&v, STATUS_INVALID_PARAMS, "tokenizer.ggml.bos_token_id is 15");
	v = bytes;
	v.types[3] = 7;
	refused(&v, STATUS_INVALID_PARAMS, "token 3");
	v = bytes;
	v.texts[3] = "\xFF";
	refused(&v, STATUS_INVALID_PARAMS, "token 3 is not UTF-8");
	v = pieces;
	v.texts[4] = "<0xG3>";
	refused(&v, STATUS_INVALID_PARAMS, "token 4");
	v = pieces;
	v.unknown = -1;
	refused(&v, STATUS_INVALID_PARAMS, "<0x00>");
	v = pieces;
	v.scores[5] = strtof("nan", NULL);
	refused(&v, STATUS_INVALID_PARAMS, "token 5");
	char *longest = malloc(LIMIT_TOKEN_BYTES + 2);
	assert_non_null(longest);
	memset(longest, 'a', LIMIT_TOKEN_BYTES + 1);
	longest[LIMIT_TOKEN_BYTES + 1] = 0;
	v = pieces;
	v.texts[5] = longest;
	refused(&v, STATUS_INVALID_PARAMS, "token 5 has 1025 bytes");
	free(longest);
}

// One long word, and one of everything; what they give back is what they were.
static void test_long_texts_come_back(void **state)
{
	(void)state;
	enum { LENGTH = 1024 * 1024 };
	struct tokenizer *tokenizer = open_good(&pieces);
	char *text = malloc(LENGTH);
	assert_non_null(text);
	for (unsigned kind = 0; kind < 3; kind++) {
		struct token_list list = {0};
		struct detokenizer detokenizer;
		struct buffer out;
		for (uint32_t i = 0; i < LENGTH; i++)
			text[i] = kind == 0 ? 'a' : (char)("abab ca\n"[i * 2654435761u >> (kind == 1 ? 31 : 29)]);
		struct tokenize_params params = {.text = text, .length = LENGTH};
		assert_int_equal(tokenize(tokenizer, &params, &list, NULL), STATUS_OK);
		buffer_init(&out, LENGTH + 16);
		detokenizer_init(&detokenizer, tokenizer);
		for (size_t i = 0; i < list.count; i++)
			detokenizer_add(&detokenizer, list.tokens[i], &out);
		assert_int_equal(out.length, LENGTH);
		assert_memory_equal(out.data, text, LENGTH);
		buffer_finish(&out);
		token_list_finish(&list);
	}
	free(text);
	tokenizer_destroy(&tokenizer);
}

// Families that share an expression: each of these names cuts words as the other does.
static void test_names_of_one_expression(void **state)
{
	(void)state;
	static const char *const pairs[][2] = {{"glm4", "llama3"},
					       {"chatglm-bpe", "llama3"},
					       {"dbrx", "llama3"},
					       {"refact", "smollm"},
					       {"olmo", "gpt-2"}};
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		const struct pre_tokenizer *one = pre_tokenizer_find(pairs[i][0], strlen(pairs[i][0])),
					   *other = pre_tokenizer_find(pairs[i][1], strlen(pairs[i][1]));
		assert_non_null(one);
		assert_non_null(other);
		assert_int_equal(one->kind, other->kind);
		assert_false(one->begins || one->composes);
		assert_int_equal(one->whole_words, i < 2); // GLM's, as its own tokenizer.json says
		assert_non_null(strstr(pre_tokenizer_names(), pairs[i][0]));
	}
	assert_null(pre_tokenizer_find("unheard-of", 10));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_merge_by_score_then_from_the_left),
		cmocka_unit_test(test_special_tokens_are_found_only_when_asked_for_and_the_longest_first),
		cmocka_unit_test(test_a_gap_is_marked_as_the_model_learnt_it),
		cmocka_unit_test(test_bytes_merge_by_rank),
		cmocka_unit_test(test_harmony_ends_with_its_own),
		cmocka_unit_test(test_text_comes_back_in_whole_characters),
		cmocka_unit_test(test_text_that_is_not_utf8_is_refused_with_its_place),
		cmocka_unit_test(test_lists_have_limits),
		cmocka_unit_test(test_files_that_do_not_fit_are_refused_by_name),
		cmocka_unit_test(test_long_texts_come_back),
		cmocka_unit_test(test_names_of_one_expression),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
