/* Unigram: 30,000 texts have the tokens that sentencepiece and `tokenizers` give (tests/models/make_unigram.py, which
 * makes the same texts), and what a file must not say. */
#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"
#include "tests/tools/gguf_writer.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { TEXTS = 30000, PARTS = 40, TEXT_BYTES = PARTS * 8 };
static const char *const bits[] = {" ",       "  ",  "a",      "e",  "the",    " the",   "ing",    " of",  "12", "é",
				   "e\u0301", "ß",   "и",      "Ω",  "中",     "の",     "한",     "🦙", "ﬁ",  "Ａ",
				   "½",       "…",   "\u3000", "\t", "\n",     "\u00a0", "\u200b", "▁",    ".",  ",",
				   "!",       "<s>", "</s>",   "-",  "\u0301", "ﷺ",      "Wo",     "rld",  "q",  "ー"};

static uint32_t below(uint32_t *state, uint32_t count)
{
	*state = (*state * 1103515245u + 12345u) & 0x7fffffffu;
	return (*state >> 8) % count;
}

// As `text` of make_unigram.py does it. Returns the length.
static size_t make_text(uint32_t index, char out[TEXT_BYTES])
{
	uint32_t state = index + 1;
	const uint32_t parts = 1 + below(&state, PARTS);
	size_t length = 0;
	for (uint32_t i = 0; i < parts; i++) {
		const uint32_t kind = index % 2 ? below(&state, 8) : 0;
		if (kind < 5) {
			const char *bit = bits[below(&state, sizeof(bits) / sizeof(bits[0]))];
			memcpy(out + length, bit, strlen(bit));
			length += strlen(bit);
			continue;
		}
		uint32_t code = 1 + below(&state, kind == 5 ? 0x600 : kind == 6 ? 0x3100 : 0x1FFFF);
		code = code >= 0xD800 && code < 0xE000 ? 'a' : code;
		length += utf8_write(code, (uint8_t *)out + length);
	}
	return length;
}

static uint32_t hash_of(const struct token_list *list)
{
	uint32_t hash = 2166136261u;
	for (size_t i = 0; i < list->count; i++)
		for (unsigned shift = 0; shift < 32; shift += 8)
			hash = (hash ^ (list->tokens[i] >> shift & 0xFF)) * 16777619u;
	return hash;
}

static void test_texts_have_the_tokens_of_the_reference(void **state)
{
	(void)state;
	static uint8_t expected[TEXTS][4];
	struct gguf *gguf = NULL;
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	FILE *file = fopen(TESTS_DIR "/models/unigram.expected", "rb");
	assert_non_null(file);
	assert_int_equal(fread(expected, 4, TEXTS, file), TEXTS);
	fclose(file);
	const int fd = open(TESTS_DIR "/models/xlm-roberta.gguf", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_OK);
	close(fd);
	assert_int_equal(tokenizer_create(&tokenizer, gguf, &error), STATUS_OK);
	gguf_destroy(&gguf);
	for (uint32_t index = 0; index < TEXTS; index++) {
		char text[TEXT_BYTES];
		struct token_list list = {0};
		const size_t length = make_text(index, text);
		assert_int_equal(
			tokenize(tokenizer, &(struct tokenize_params){.text = text, .length = length}, &list, &error),
			STATUS_OK);
		const uint8_t *want = expected[index];
		if (hash_of(&list) !=
		    ((uint32_t)want[0] | (uint32_t)want[1] << 8 | (uint32_t)want[2] << 16 | (uint32_t)want[3] << 24)) {
			for (size_t i = 0; i < list.count; i++)
				printf("%u ", list.tokens[i]);
			fail_msg("text %u, \"%.*s\", has these tokens instead of those of make_unigram.py", index,
				 (int)length, text);
		}
		token_list_finish(&list);
	}
	tokenizer_destroy(&tokenizer);
}

// ---- small vocabularies ----

struct vocabulary {
	float score; // of the second token
	int unknown; // -1: none
	bool keeps_spaces;
	const int32_t *charsmap; // (charsmap_bytes), NULL: none
	size_t charsmap_bytes;
};

static enum status open_vocabulary(struct tokenizer **out, const struct vocabulary *v, struct error *error)
{
	static const char *const texts[] = {"<unk>",
					    "a",
					    "b",
					    "ab",
					    "\xE2\x96\x81",
					    "\xE2\x96\x81"
					    "a"};
	static const int32_t types[] = {TOKEN_UNKNOWN, TOKEN_NORMAL, TOKEN_NORMAL,
					TOKEN_NORMAL,  TOKEN_NORMAL, TOKEN_NORMAL};
	const float scores[] = {0, v->score, -2, -3.5f, -1, -2.5f};
	struct gguf_writer writer;
	struct buffer file;
	struct gguf *gguf = NULL;
	gguf_writer_init(&writer, 32);
	gguf_put_text(&writer, "tokenizer.ggml.model", "t5");
	gguf_put_texts(&writer, "tokenizer.ggml.tokens", texts, 6);
	gguf_put_f32s(&writer, "tokenizer.ggml.scores", scores, 6);
	gguf_put_i32s(&writer, "tokenizer.ggml.token_type", types, 6);
	if (v->unknown >= 0)
		gguf_put_u32(&writer, "tokenizer.ggml.unknown_token_id", (uint32_t)v->unknown);
	gguf_put_bool(&writer, "tokenizer.ggml.remove_extra_whitespaces", !v->keeps_spaces);
	if (v->charsmap)
		gguf_put_i32s(&writer, "tokenizer.ggml.precompiled_charsmap", v->charsmap, v->charsmap_bytes);
	buffer_init(&file, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file);
	assert_int_equal(gguf_parse(&gguf, file.data, file.length, error), STATUS_OK);
	enum status status = tokenizer_create(out, gguf, error);
	gguf_destroy(&gguf);
	buffer_finish(&file);
	gguf_writer_finish(&writer);
	return status;
}

static void assert_ids(const struct vocabulary *v, const char *text, const char *wanted)
{
	struct tokenizer *tokenizer = NULL;
	struct token_list list = {0};
	struct error error = {0};
	char got[256] = "";
	size_t at = 0;
	if (open_vocabulary(&tokenizer, v, &error))
		fail_msg("%s", error.message);
	assert_int_equal(
		tokenize(tokenizer, &(struct tokenize_params){.text = text, .length = strlen(text)}, &list, &error),
		STATUS_OK);
	for (size_t i = 0; i < list.count; i++)
		at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%u", i ? " " : "", list.tokens[i]);
	assert_string_equal(got, wanted);
	token_list_finish(&list);
	tokenizer_destroy(&tokenizer);
}

static void test_the_largest_sum_is_taken(void **state)
{
	(void)state;
	const struct vocabulary v = {.score = -2}, dear = {.score = -1}, spaces = {.score = -2, .keeps_spaces = true};
	assert_ids(&v, "ab", "4 3"); // -1 - 3.5 is more than -2.5 - 2
	assert_ids(&dear, "ba", "4 2 1");
	assert_ids(&v, "a  xyz b", "5 4 0 4 2"); // one unknown token for a run
	assert_ids(&v, "  ", "");
	assert_ids(&spaces, "a  ", "5 4 4");
	assert_ids(&v, "", "");
}

// A table of one key: "x" becomes "ab".
static void test_a_table_is_checked(void **state)
{
	(void)state;
	enum { UNITS = 128, TEXT = 4 + 4 * UNITS, BYTES = TEXT + 4 };
	int32_t map[BYTES] = {0, 2}; // 512 bytes of units, little-endian
	int32_t *x = map + 4 + 4 * 'x', *leaf = map + 4 + 4 * ('x' ^ 1);
	const struct vocabulary v = {.score = -2, .charsmap = map, .charsmap_bytes = BYTES};
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	x[0] = 'x'; // its label; offset 1, and a key ends here
	x[1] = 1 | 1 << 2;
	leaf[3] = 0x80;
	memcpy(map + TEXT, (const int32_t[]){'a', 'b', 0, 0}, 4 * sizeof(int32_t));
	assert_ids(&v, "xa", "4 3 1");
	leaf[0] = 4; // no text begins there
	assert_ids(&v, "xa", "4 0 1");
	leaf[0] = 0;
	x[3] = 0x7F; // leads beyond the array
	assert_ids(&v, "xa", "4 0 1");
	x[3] = 0;
	const struct {
		size_t at;
		int32_t value;
		const char *why;
	} wrong[] = {{BYTES - 1, 'c', "does not end with texts"},
		     {TEXT, 0xC3, "does not end with texts"},
		     {1, 3, "length of its array"},
		     {0, 1, "length of its array"},
		     {TEXT, 256, "list of bytes"}};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const int32_t before = map[wrong[i].at];
		map[wrong[i].at] = wrong[i].value;
		error = (struct error){0};
		assert_int_equal(open_vocabulary(&tokenizer, &v, &error), STATUS_INVALID_PARAMS);
		assert_non_null(strstr(error.message, wrong[i].why));
		map[wrong[i].at] = before;
	}
}

// A text in the place of one character is bounded: it is read at each place where that character stands.
static void test_a_table_has_no_long_text(void **state)
{
	(void)state;
	enum { UNITS = 128, TEXT = 4 + 4 * UNITS, BYTES = TEXT + LIMIT_CHARSMAP_TEXT_BYTES + 2 };
	static int32_t map[BYTES];
	const struct vocabulary longest = {.score = -2, .charsmap = map, .charsmap_bytes = BYTES - 1},
				longer = {.score = -2, .charsmap = map, .charsmap_bytes = BYTES};
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	map[1] = 2; // 512 bytes of units, little-endian
	for (int i = TEXT; i < BYTES; i++)
		map[i] = ' ';
	map[BYTES - 2] = 0;
	assert_ids(&longest, "a", "5");
	map[BYTES - 2] = ' ';
	map[BYTES - 1] = 0;
	assert_int_equal(open_vocabulary(&tokenizer, &longer, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "has a text of 1025 bytes; the most is 1024"));
}

static void test_scores_and_the_unknown_token_are_needed(void **state)
{
	(void)state;
	const struct vocabulary wrong[] = {{.score = NAN}, {.score = INFINITY}, {.score = -2, .unknown = -1}};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct tokenizer *tokenizer = NULL;
		struct error error = {0};
		assert_int_equal(open_vocabulary(&tokenizer, &wrong[i], &error), STATUS_INVALID_PARAMS);
		assert_non_null(strstr(error.message, i < 2 ? "scores: that of token 1" : "unknown_token_id"));
	}
}

// Tokens a, aa, aaa and so on: at each place of a text of this letter all of them fit.
static void test_a_slow_vocabulary_is_bounded(void **state)
{
	(void)state;
	enum { LONGEST = 1024, TEXT = 256 * 1024, SHORT = 60 };
	static char letters[LONGEST + 1], text[TEXT];
	static const char *texts[LONGEST + 1];
	static float scores[LONGEST + 1];
	struct gguf_writer writer;
	struct buffer file;
	struct gguf *gguf = NULL;
	struct tokenizer *tokenizer = NULL;
	struct token_list list = {0};
	struct error error = {0};
	memset(letters, 'a', LONGEST);
	memset(text, 'a', TEXT);
	texts[0] = "<unk>";
	for (int i = 1; i <= LONGEST; i++) {
		texts[i] = letters + LONGEST - i;
		scores[i] = -1;
	}
	gguf_writer_init(&writer, 32);
	gguf_put_text(&writer, "tokenizer.ggml.model", "t5");
	gguf_put_texts(&writer, "tokenizer.ggml.tokens", texts, LONGEST + 1);
	gguf_put_f32s(&writer, "tokenizer.ggml.scores", scores, LONGEST + 1);
	gguf_put_u32(&writer, "tokenizer.ggml.unknown_token_id", 0);
	gguf_put_bool(&writer, "tokenizer.ggml.add_space_prefix", false);
	buffer_init(&file, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file);
	assert_int_equal(gguf_parse(&gguf, file.data, file.length, &error), STATUS_OK);
	assert_int_equal(tokenizer_create(&tokenizer, gguf, &error), STATUS_OK);
	struct tokenize_params params = {.text = text, .length = SHORT};
	assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_OK);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.tokens[0], SHORT);
	params.length = TEXT;
	assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.message, "such long tokens"));
	token_list_finish(&list);
	tokenizer_destroy(&tokenizer);
	gguf_destroy(&gguf);
	buffer_finish(&file);
	gguf_writer_finish(&writer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts_have_the_tokens_of_the_reference),
		cmocka_unit_test(test_the_largest_sum_is_taken),
		cmocka_unit_test(test_a_slow_vocabulary_is_bounded),
		cmocka_unit_test(test_a_table_is_checked),
		cmocka_unit_test(test_a_table_has_no_long_text),
		cmocka_unit_test(test_scores_and_the_unknown_token_are_needed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
