/* Fuzz target: what an answer is to be: a GBNF grammar, a JSON Schema, a regular expression; and answers.
 *
 * The first byte says which. Then comes its text, up to a NUL, and the answer's bytes. What is taken has, at each byte
 * of the answer, a mask that lets in a token if and only if its bytes may come; an answer of a schema that is whole is
 * JSON. */
#include "common/json/json.h"
#include "engine/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MOST = 48, WORDS = 16, END = 256 + WORDS, TOKENS };

static const char *const words[WORDS] = {"\"a",      "\": ", "abc",   "}]",  "\\u00", "tru", "12", "\xC3\xA9\"",
					 "\xE6\x97", "\n  ", "\",\"", "{\"", "-0.",   "e1",  "  ", "aaaaaaaa"};
static struct vocabulary *vocabulary;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const uint8_t *bytes_of(const void *context, uint32_t token, size_t *length)
{
	static uint8_t bytes[256];
	(void)context;
	*length = token < 256 ? 1 : token < END ? strlen(words[token - 256]) : 0;
	if (token < 256)
		bytes[token] = (uint8_t)token;
	return token < 256 ? &bytes[token] : token < END ? (const uint8_t *)words[token - 256] : NULL;
}

static bool ends(const void *context, uint32_t token)
{
	(void)context;
	return token == END;
}

static void check_mask(struct matcher *matcher)
{
	const uint32_t *mask = matcher_allowed(matcher);
	if (!mask) {
		require(matcher_error(matcher)->message[0]);
		return;
	}
	for (uint32_t i = 0; i < TOKENS; i++) {
		size_t length;
		const uint8_t *bytes = bytes_of(NULL, i, &length);
		const bool given = mask[i / 32] >> i % 32 & 1;
		const bool right = i == END ? matcher_complete(matcher) : matcher_fits(matcher, bytes, length);
		if (matcher_error(matcher)->status)
			return;
		require(given == right);
	}
}

static void answer(struct grammar *grammar, bool json, const uint8_t *bytes, size_t length)
{
	struct matcher *matcher;
	struct json *value = NULL;
	size_t taken = 0;
	require(!matcher_create(&matcher, &grammar, vocabulary, true));
	check_mask(matcher);
	while (taken < length && !matcher_error(matcher)->status && !matcher_take_bytes(matcher, bytes + taken, 1)) {
		taken++;
		if (taken < BYTES_MOST)
			check_mask(matcher);
	}
	if (json && taken == length && !matcher_error(matcher)->status && matcher_complete(matcher)) {
		struct error error = {0};
		const enum status status = json_parse(&value, (const char *)bytes, length, &error);
		require(!status || strstr(error.message, "nested deeper") || strstr(error.message, "stands twice"));
	}
	json_destroy(&value);
	matcher_destroy(&matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum grammar_kind kinds[] = {GRAMMAR_GBNF, GRAMMAR_SCHEMA, GRAMMAR_REGEX, GRAMMAR_JSON};
	struct grammar *grammar;
	struct error error = {0};
	if (!vocabulary)
		require(!vocabulary_create(
			&vocabulary, &(struct vocabulary_params){.count = TOKENS, .bytes = bytes_of, .ends = ends}));
	if (!size)
		return 0;
	const enum grammar_kind kind = kinds[data[0] % 4];
	const uint8_t *end = memchr(data + 1, 0, size - 1);
	const size_t length = end ? (size_t)(end - data) - 1 : size - 1;
	char *text = malloc(length ? length : 1); // of just that length, so that reading past its end is seen
	require(text);
	if (length)
		memcpy(text, data + 1, length);
	const enum status status = grammar_create(&grammar, kind, text, length, &error);
	free(text);
	require(!status == !error.message[0] && !status == !!grammar);
	if (!status && end)
		answer(grammar, kind == GRAMMAR_SCHEMA || kind == GRAMMAR_JSON, end + 1,
		       (size_t)(data + size - end - 1));
	else
		grammar_destroy(&grammar);
	return 0;
}
