/* Grammars and their matchers: what is accepted beside POSIX's regular expressions and beside plain checks, for every
 * text of a few letters; masks beside every token tried by itself; what is refused, and that nothing grows without end.
 */
#include "common/base/buffer.h"
#include "engine/grammar/calls.h"
#include "engine/grammar/grammar.h"

#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { TOKENS_MOST = 4096, LONGEST = 8 };

// ---- a vocabulary of bytes and of what is met in JSON, some of it half characters ----

static struct {
	char bytes[TOKENS_MOST][24];
	size_t lengths[TOKENS_MOST];
	uint32_t count, end;
} tokens;
static struct vocabulary *vocabulary;

static void add_token(const void *bytes, size_t length)
{
	assert_true(tokens.count < TOKENS_MOST && length < sizeof(tokens.bytes[0]));
	memcpy(tokens.bytes[tokens.count], bytes, length);
	tokens.lengths[tokens.count++] = length;
}

static const uint8_t *token_bytes_of(const void *context, uint32_t token, size_t *length)
{
	(void)context;
	*length = tokens.lengths[token];
	return (const uint8_t *)tokens.bytes[token];
}

static bool token_ends(const void *context, uint32_t token)
{
	(void)context;
	return token == tokens.end;
}

static uint64_t random_state = 1;

static uint32_t below(uint32_t most)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((random_state >> 33) % most);
}

static int make_vocabulary(void **state)
{
	(void)state;
	static const char *const pieces[] = {
		"{\"",      "\":",  "\": ",  "\",\"",  "\"}", "true",       "false",    "null",
		"{}",       "[]",   "[{\"",  "}]",     "  ",  "\n  ",       "\n\n",     "\\\"",
		"\\u00",    "\\\\", "-",     "0.",     "12",  "2024",       "-01",      "name",
		"age",      "é",    "über",  "日本",   "日",  "\U0001F600", "\xF0\x9F", "\x98\x80",
		"\xE6\x97", "\xA5", "a\xC3", "\xA9\"", "\"a", "abcabcabc",  "aab",      "bbb"};
	for (unsigned byte = 0; byte < 256; byte++) {
		const uint8_t one = (uint8_t)byte;
		add_token(&one, 1);
	}
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		add_token(pieces[i], strlen(pieces[i]));
	add_token("a", 1); // the same bytes once more
	add_token("", 0);  // none: never allowed
	for (int i = 0; i < 1500; i++) {
		static const char letters[] = "abcdefghij \":,{}[]0123456789-.\\untrfalse\xC3\xA9\xE6\x97\xA5";
		char text[24];
		const uint32_t length = 2 + below(i % 50 ? 6 : 20);
		for (uint32_t j = 0; j < length; j++)
			text[j] = letters[below(i % 3 ? 10 : sizeof(letters) - 1)];
		add_token(text, length);
	}
	tokens.end = tokens.count;
	add_token("<end>", 5);
	return vocabulary_create(
		&vocabulary,
		&(struct vocabulary_params){.count = tokens.count, .bytes = token_bytes_of, .ends = token_ends});
}

static int free_vocabulary(void **state)
{
	(void)state;
	vocabulary_destroy(&vocabulary);
	return 0;
}

static struct matcher *matcher_of(enum grammar_kind kind, const char *text)
{
	struct grammar *grammar;
	struct matcher *matcher;
	struct error error = {0};
	if (grammar_create(&grammar, kind, text, strlen(text), &error))
		fail_msg("%s: %s", text, error.message);
	assert_int_equal(matcher_create(&matcher, &grammar, vocabulary, true), STATUS_OK);
	return matcher;
}

// Whether the whole text is one of the grammar.
static bool accepts(enum grammar_kind kind, const char *grammar, const char *text)
{
	struct matcher *matcher = matcher_of(kind, grammar);
	const bool out = !matcher_take_bytes(matcher, text, strlen(text)) && matcher_complete(matcher);
	matcher_destroy(&matcher);
	return out;
}

static void check_refused(enum grammar_kind kind, const char *grammar, const char *why)
{
	struct grammar *made;
	struct error error = {0};
	if (!grammar_create(&made, kind, grammar, strlen(grammar), &error))
		fail_msg("it is taken: %s", grammar);
	if (!strstr(error.message, why))
		fail_msg("%s: it says \"%s\", not \"%s\"", grammar, error.message, why);
}

// ---- every text of a few letters ----

static void check_all(const char *pattern, const regex_t *expected, enum grammar_kind kind, const char *grammar)
{
	struct matcher *matcher = matcher_of(kind, grammar);
	char text[LONGEST + 1];
	uint32_t total = 1;
	for (int i = 0; i < LONGEST; i++)
		total *= 3;
	// Texts are numbers to the base of 3; a shorter one is a prefix of many: each is asked for once.
	for (size_t length = 0; length <= LONGEST; length++) {
		uint32_t count = 1;
		for (size_t i = 0; i < length; i++)
			count *= 3;
		for (uint32_t number = 0; number < count; number++) {
			uint32_t rest = number;
			for (size_t i = 0; i < length; i++, rest /= 3)
				text[i] = (char)('a' + rest % 3);
			text[length] = 0;
			struct matcher *one = matcher;
			if (!matcher_fits(one, text, length) && !regexec(expected, text, 0, NULL, 0))
				fail_msg("%s does not let in %s", pattern, text);
		}
	}
	matcher_destroy(&matcher);
	for (uint32_t number = 0; number < total; number += 7) {
		uint32_t rest = number;
		const size_t length = number % (LONGEST + 1);
		for (size_t i = 0; i < length; i++, rest /= 3)
			text[i] = (char)('a' + rest % 3);
		text[length] = 0;
		const bool right = !regexec(expected, text, 0, NULL, 0);
		if (accepts(kind, grammar, text) != right)
			fail_msg("%s and \"%s\": it is %s", pattern, text, right ? "in" : "out");
	}
}

static void regular_expressions_are_those_of_posix(void **state)
{
	(void)state;
	static const char *const patterns[] = {
		"a*b+c?", "(ab|a)(bc|c)*", "[ab]{2,4}c", "a{3}",           "a{0,2}b{1,}", "(a|b)*abb", "[^a]*",
		"()|a",   "((a|b)c){2}",   "(a*)*b",     "(a|ab)(c|bcd)*", ".{2}c.*",     "(a?){5}",   "(aa|aab)*b"};
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		regex_t expected;
		char whole[64];
		snprintf(whole, sizeof(whole), "^(%s)$", patterns[i]);
		assert_int_equal(regcomp(&expected, whole, REG_EXTENDED | REG_NOSUB), 0);
		check_all(patterns[i], &expected, GRAMMAR_REGEX, patterns[i]);
		regfree(&expected);
	}
}

// A beginning is alive if and only if some text goes on from it: every beginning of what is accepted, and no other.
static void beginnings_are_alive_while_something_follows(void **state)
{
	(void)state;
	static const char *const patterns[] = {"(ab|a)(bc|c){2}", "a{2,4}b", "(abc|acb|cc){2}", "[ab]c?[^c]b"};
	for (size_t at = 0; at < sizeof(patterns) / sizeof(patterns[0]); at++) {
		static bool alive[4096], known[4096]; // by length and digits: up to six letters
		regex_t expected;
		char whole[64], text[LONGEST];
		memset(alive, 0, sizeof(alive));
		memset(known, 0, sizeof(known));
		snprintf(whole, sizeof(whole), "^(%s)$", patterns[at]);
		assert_int_equal(regcomp(&expected, whole, REG_EXTENDED | REG_NOSUB), 0);
		uint32_t count = 1;
		for (size_t length = 0; length <= 6; length++, count *= 3)
			for (uint32_t number = 0; number < count; number++) {
				uint32_t rest = number, place = 1;
				for (size_t i = 0; i < length; i++, rest /= 3)
					text[i] = (char)('a' + rest % 3);
				text[length] = 0;
				if (regexec(&expected, text, 0, NULL, 0))
					continue;
				for (size_t i = 0; i <= length; i++) {
					alive[place] = true;
					place = 3 * place + (uint32_t)(text[i] - 'a');
				}
			}
		struct matcher *matcher = matcher_of(GRAMMAR_REGEX, patterns[at]);
		count = 1;
		for (size_t length = 0; length <= 6; length++, count *= 3)
			for (uint32_t number = 0; number < count; number++) {
				uint32_t rest = number, place = 1;
				for (size_t i = 0; i < length; i++, rest /= 3) {
					text[i] = (char)('a' + rest % 3);
					place = 3 * place + rest % 3;
				}
				if (matcher_fits(matcher, text, length) != alive[place])
					fail_msg("%s after %.*s: alive is %d", patterns[at], (int)length, text,
						 alive[place]);
			}
		matcher_destroy(&matcher);
		regfree(&expected);
	}
}

static bool is_bracketed(const char *text)
{
	int depth = 0;
	for (; *text; text++) {
		depth += *text == 'a' ? 1 : *text == 'b' ? -1 : 0;
		if (depth < 0 || (*text == 'c' && !depth))
			return false;
	}
	return !depth;
}

static bool is_palindrome(const char *text)
{
	for (size_t i = 0, length = strlen(text); i < length / 2; i++)
		if (text[i] != text[length - 1 - i])
			return false;
	return true;
}

static void rules_that_name_themselves(void **state)
{
	(void)state;
	static const struct {
		const char *grammar;
		bool (*check)(const char *text);
	} known[] = {
		{"root ::= (\"a\" inside \"b\")*\ninside ::= (\"a\" inside \"b\" | \"c\")*", is_bracketed},
		{"root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"c\" root \"c\" | [abc]?", is_palindrome},
	};
	for (size_t at = 0; at < 2; at++)
		for (uint32_t number = 0; number < 6561; number += 1) {
			char text[LONGEST + 1];
			uint32_t rest = number;
			const size_t length = number % (LONGEST + 1);
			for (size_t i = 0; i < length; i++, rest /= 3)
				text[i] = (char)('a' + rest % 3);
			text[length] = 0;
			if (accepts(GRAMMAR_GBNF, known[at].grammar, text) != known[at].check(text))
				fail_msg("%s and \"%s\"", known[at].grammar, text);
		}
}

// ---- tables ----

static void texts_of_grammars(void **state)
{
	(void)state;
	static const struct {
		enum grammar_kind kind;
		const char *grammar, *good[5], *bad[5];
	} known[] = {
		{GRAMMAR_GBNF,
		 "# a list\nroot ::= item (\n\t\",\" item)*\nitem ::= [a-c]{1,2} |\n \"\\\"\" [^\"\\n]* \"\\\"\"",
		 {"a", "ab,c", "\"é,日\"", "\"\",a"},
		 {"", "abc", "a,", "\"\n\"", "d"}},
		{GRAMMAR_GBNF,
		 "root ::= \"\\x41\" \"\\u00e9\" \"\\U0001F600\" .",
		 {"Aé\U0001F600é", "Aé\U0001F600x"},
		 {"Aé", "A\xC3"}},
		{GRAMMAR_REGEX, "^\\d{3}-\\w+$", {"123-a_9", "000-Z"}, {"12-a", "123-", "123-é"}},
		{GRAMMAR_REGEX, "[^\\x00-\\x7f]+|\\u{1F600}a", {"é日", "\U0001F600a", "\U0001F600"}, {"a", "éa"}},
		{GRAMMAR_REGEX, "(?:a|b)(?<n>c)+?\\.", {"acc.", "bc."}, {"a.", "acx"}},
		{GRAMMAR_JSON,
		 "",
		 {"{}", "{\"a\": [1, -2.5e3, true, null, \"\\ud83d\\ude00\"]}", "{\n  \"a\": {}\n}"},
		 {"[]", "{\"a\"}", "{\"a\":1,}", "{\"\\ud83d\":1}", "{\"a\":01}"}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":[\"string\","
		 "\"null\"]}},\"required\":[\"b\"]}",
		 {"{\"a\": 1, \"b\": null}", "{\"b\":\"x\"}", "{\n\t\"b\": \"\"\n}"},
		 {"{}", "{\"a\":1}", "{\"b\":null,\"a\":1}", "{\"b\":null,\"c\":1}", "{\"b\":1}"}},
		{GRAMMAR_SCHEMA,
		 "{\"properties\":{\"ab\":true},\"additionalProperties\":{\"type\":\"integer\"}}",
		 {"{}", "{\"ab\": \"x\", \"a\": 1}", "{\"abc\": 1, \"\": 2}", "{\"b\":3}"},
		 {"{\"a\": \"x\"}", "{\"abc\": {}}", "{\"b\":1,\"ab\":2}"}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
		 {"[true]", "[true, false]"},
		 {"[]", "[true,true,true]", "[1]"}},
		{GRAMMAR_SCHEMA,
		 "{\"prefixItems\":[{\"const\":1},{\"enum\":[\"x\",\"xy\"]}],\"items\":{\"type\":\"null\"},"
		 "\"minItems\":1}",
		 {"[1]", "[1, \"xy\"]", "[1, \"x\", null, null]"},
		 {"[]", "[2]", "[1, null]", "[1,\"z\"]"}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
		 {"-12", "-1", "0", "9", "104"},
		 {"-13", "105", "-0", "00", "1.0"}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":1}",
		 {"0", "0.5", "0.000", "0.999"},
		 {"1", "1.0", "-0.1", "2"}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
		 {"\"ab\"", "\"日本語\"", "\"\\ud83d\\ude00a\""},
		 {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\""}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"string\",\"pattern\":\"^a\\\"?b$|c\"}",
		 {"\"ab\"", "\"a\\\"b\"", "\"xcx\""},
		 {"\"a\"", "\"xab\"", "\"a\"b\""}},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"string\",\"format\":\"date\"}",
		 {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\""},
		 {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\""}},
		{GRAMMAR_SCHEMA,
		 "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
		 "n\"},{\"type\":\"null\"}]}},\"required\":[\"next\"]}},\"$ref\":\"#/$defs/n\"}",
		 {"{\"next\": null}", "{\"next\": {\"next\": null}}"},
		 {"{}", "{\"next\": {}}", "null"}},
		{GRAMMAR_SCHEMA,
		 "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},{"
		 "\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"},\"v\":{}},\"required\":[\"k\"]}]}",
		 {"{\"k\": \"a\"}", "{\"k\": \"b\", \"v\": [1]}"},
		 {"{\"k\": \"c\"}", "{\"k\": \"a\", \"v\": 1}"}},
		{GRAMMAR_SCHEMA,
		 "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":1}},\"required\":[\"a\"]},{"
		 "\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":3}}}]}",
		 {"{\"a\": 1}", "{\"a\": 3}"},
		 {"{\"a\": 4}", "{}", "{\"a\": 0}"}},
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		for (int j = 0; j < 5; j++) {
			if (known[i].good[j] && !accepts(known[i].kind, known[i].grammar, known[i].good[j]))
				fail_msg("%s does not let in %s", known[i].grammar, known[i].good[j]);
			if (known[i].bad[j] && accepts(known[i].kind, known[i].grammar, known[i].bad[j]))
				fail_msg("%s lets in %s", known[i].grammar, known[i].bad[j]);
		}
}

static void what_cannot_be_kept_is_refused_by_name(void **state)
{
	(void)state;
	check_refused(GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"not\":{}}}}", "not at #/properties/a");
	check_refused(GRAMMAR_SCHEMA, "{\"items\":{\"patternProperties\":{}}}", "patternProperties at #/items");
	check_refused(GRAMMAR_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems");
	check_refused(GRAMMAR_SCHEMA, "{\"type\":\"number\",\"multipleOf\":0.5}", "multipleOf");
	check_refused(GRAMMAR_SCHEMA, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf");
	check_refused(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"idn-email\"}", "format");
	check_refused(GRAMMAR_SCHEMA, "{\"pattern\":\"a(?=b)\"}", "lookaround");
	check_refused(GRAMMAR_SCHEMA, "{\"pattern\":\"(a)\\\\1\"}", "back reference");
	check_refused(GRAMMAR_SCHEMA, "{\"type\":\"strin\"}", "type");
	check_refused(GRAMMAR_SCHEMA, "{\"$ref\":\"#/$defs/a\"}", "$ref");
	check_refused(GRAMMAR_SCHEMA, "{\"$ref\":\"http://x/y\"}", "$ref");
	check_refused(GRAMMAR_SCHEMA, "{\"$ref\":\"#\"}", "no text matches");
	check_refused(GRAMMAR_SCHEMA, "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
		      "no text matches");
	check_refused(GRAMMAR_SCHEMA, "false", "no text matches");
	check_refused(GRAMMAR_SCHEMA, "{\"minItems\":3,\"maxItems\":2}", "maxItems");
	check_refused(GRAMMAR_SCHEMA, "{", "the schema");
	check_refused(GRAMMAR_SCHEMA, "3", "no schema");
	check_refused(GRAMMAR_GBNF, "", "no rule root");
	check_refused(GRAMMAR_GBNF, "root ::= item", "there is no rule item");
	check_refused(GRAMMAR_GBNF, "root ::= root \"a\" | \"b\"", "begins with itself");
	check_refused(GRAMMAR_GBNF, "root ::= a\na ::= \"\"? b\nb ::= a \"x\" | \"y\"", "begins with itself");
	check_refused(GRAMMAR_GBNF, "root ::= \"a", "without an end");
	check_refused(GRAMMAR_GBNF, "root ::= ((\"a\")", "line 1");
	check_refused(GRAMMAR_GBNF, "root ::= \"a\" root", "no text matches");
	check_refused(GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "line 2");
	check_refused(GRAMMAR_REGEX, "a**", "nothing to repeat");
	check_refused(GRAMMAR_REGEX, "(a", "no end of (");
	check_refused(GRAMMAR_REGEX, "a)", "a ) without a (");
	check_refused(GRAMMAR_REGEX, "[b-a]", "range");
	check_refused(GRAMMAR_REGEX, "a\\b", "\\b");
	check_refused(GRAMMAR_REGEX, "(a{1000}b{1000}[c-d]{90000}){90000}[a-z]{90000}[a-z]{90000}", "too large");
}

// ---- masks ----

// Every token by itself, beside the mask; then one that is allowed is taken. `steps` times, or to the end.
static void check_walk(enum grammar_kind kind, const char *grammar, unsigned steps)
{
	struct matcher *matcher = matcher_of(kind, grammar);
	char text[4096] = "";
	size_t length = 0;
	for (unsigned step = 0; step < steps && !matcher_finished(matcher); step++) {
		const uint32_t *mask = matcher_allowed(matcher);
		if (!mask)
			fail_msg("%s after %s: %s", grammar, text, matcher_error(matcher)->message);
		uint32_t allowed = 0, chosen = 0;
		for (uint32_t i = 0; i < tokens.count; i++) {
			const bool given = mask[i / 32] >> i % 32 & 1;
			const bool right = i == tokens.end ? matcher_complete(matcher)
							   : tokens.lengths[i] && matcher_fits(matcher, tokens.bytes[i],
											       tokens.lengths[i]);
			if (given != right)
				fail_msg("%s after %s: token %u (%.*s) is %s", grammar, text, i, (int)tokens.lengths[i],
					 tokens.bytes[i], given ? "allowed" : "not allowed");
			allowed += given;
			chosen = given && i != tokens.end && !below(allowed) ? i : chosen;
		}
		if (allowed == 1 && matcher_complete(matcher))
			break;
		if (chosen == 0 && !(mask[0] & 1))
			continue;
		assert_int_equal(matcher_take(matcher, chosen), STATUS_OK);
		if (length + tokens.lengths[chosen] < sizeof(text) - 1) {
			memcpy(text + length, tokens.bytes[chosen], tokens.lengths[chosen]);
			length += tokens.lengths[chosen];
			text[length] = 0;
		}
	}
	matcher_destroy(&matcher);
}

static void masks_are_exact(void **state)
{
	(void)state;
	static const struct {
		enum grammar_kind kind;
		const char *text;
	} grammars[] = {
		{GRAMMAR_JSON, ""},
		{GRAMMAR_SCHEMA, "{}"},
		{GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},"
				 "\"age\":{\"type\":\"integer\",\"minimum\":0},"
				 "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":["
				 "\"name\"],\"additionalProperties\":true}"},
		{GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^a-c]+日?$\"}"},
		{GRAMMAR_SCHEMA,
		 "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":3,\"maxLength\":9},\"minItems\":5}"},
		{GRAMMAR_GBNF, "root ::= ([a-z]+ | [^\\x00-\\x7F]+ | \"\\\"\")*"},
		{GRAMMAR_REGEX, "(日本|\\u{1F600}?|[é-ü])*(abc)*"},
		{GRAMMAR_REGEX, ".*"},
	};
	for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++) {
		for (int round = 0; round < 6; round++)
			check_walk(grammars[i].kind, grammars[i].text, 60);
	}
}

static void an_answer_that_ended_goes_on_no_more(void **state)
{
	(void)state;
	struct matcher *matcher = matcher_of(GRAMMAR_REGEX, "a|ab");
	assert_false(matcher_complete(matcher));
	assert_int_equal(matcher_take(matcher, tokens.end), STATUS_INVALID_PARAMS);
	assert_int_equal(matcher_take(matcher, 'b'), STATUS_INVALID_PARAMS);
	assert_int_equal(matcher_take(matcher, 'a'), STATUS_OK);
	assert_true(matcher_complete(matcher) && !matcher_finished(matcher));
	assert_int_equal(matcher_take(matcher, 'b'), STATUS_OK);
	assert_true(matcher_complete(matcher) && matcher_finished(matcher));
	assert_int_equal(matcher_take(matcher, tokens.end), STATUS_OK);
	assert_null(matcher_allowed(matcher));
	assert_int_equal(matcher_take(matcher, 'a'), STATUS_INVALID_PARAMS);
	matcher_destroy(&matcher);
}

// Deep, ambiguous and long answers end in an error or are kept to; memory and time have their bounds.
static void nothing_grows_without_end(void **state)
{
	(void)state;
	struct matcher *matcher = matcher_of(GRAMMAR_SCHEMA, "{\"type\":\"array\"}");
	unsigned depth = 0;
	while (!matcher_take_bytes(matcher, "[", 1))
		depth++;
	assert_in_range(depth, 100, GRAMMAR_DEPTH + 1);
	assert_int_equal(matcher_take_bytes(matcher, "]", 1), STATUS_OK);
	matcher_destroy(&matcher);
	matcher = matcher_of(GRAMMAR_GBNF, "root ::= s\ns ::= \"a\" s s | \"a\" s \"a\" | \"a\"");
	unsigned taken = 0;
	while (taken < 100000 && matcher_allowed(matcher) && !matcher_take_bytes(matcher, "a", 1))
		taken++;
	assert_int_equal(matcher_error(matcher)->status, STATUS_LIMIT_EXCEEDED);
	assert_true(matcher_error(matcher)->hint[0]);
	matcher_destroy(&matcher);
	// As many optional members as there may be, and one more.
	struct buffer wide;
	buffer_init(&wide, GRAMMAR_TEXT_BYTES);
	buffer_append_text(&wide, "{\"properties\":{");
	for (int i = 0; i < 800; i++)
		buffer_printf(&wide, "%s\"p%d\":{}", i ? "," : "", i);
	buffer_append_text(&wide, "}}");
	matcher = matcher_of(GRAMMAR_SCHEMA, buffer_text(&wide));
	assert_int_equal(matcher_take_bytes(matcher, "{\"p799\": {}}", 12), STATUS_OK);
	assert_true(matcher_finished(matcher));
	matcher_destroy(&matcher);
	buffer_consume(&wide, 15);
	char *narrow = buffer_copy_text(wide.data, wide.length);
	buffer_clear(&wide);
	buffer_printf(&wide, "{\"properties\":{\"one\":{},%s", narrow);
	check_refused(GRAMMAR_SCHEMA, buffer_text(&wide), "properties");
	free(narrow);
	buffer_finish(&wide);
	// Ten thousand characters of which each is a state of its own, and more than are kept.
	matcher = matcher_of(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":60000}");
	assert_int_equal(matcher_take_bytes(matcher, "\"", 1), STATUS_OK);
	for (int i = 0; i < 60000; i++)
		assert_int_equal(matcher_take_bytes(matcher, i % 3 ? "a" : "é", i % 3 ? 1 : 2), STATUS_OK);
	assert_int_equal(matcher_take_bytes(matcher, "a", 1), STATUS_INVALID_PARAMS);
	assert_non_null(matcher_allowed(matcher));
	assert_int_equal(matcher_take_bytes(matcher, "\"", 1), STATUS_OK);
	assert_true(matcher_finished(matcher));
	matcher_destroy(&matcher);
}

// ---- calls ----

static struct matcher *matcher_of_calls(const struct grammar_calls *calls)
{
	struct grammar *grammar;
	struct matcher *matcher;
	struct error error = {0};
	if (grammar_create_calls(&grammar, calls, &error))
		fail_msg("%s", error.message);
	assert_int_equal(matcher_create(&matcher, &grammar, vocabulary, true), STATUS_OK);
	return matcher;
}

static bool takes(struct matcher *matcher, const char *text)
{
	matcher_rewind(matcher);
	return !matcher_take_bytes(matcher, text, strlen(text)) && matcher_complete(matcher);
}

static struct json *json_of(const char *text)
{
	struct json *json = NULL;
	assert_int_equal(json_parse(&json, text, strlen(text), NULL), STATUS_OK);
	return json;
}

static void calls_of_several_schemas(void **state)
{
	(void)state;
	struct json *first = json_of("{\"type\":\"object\","
				     "\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"a\"],"
				     "\"$defs\":{\"n\":{\"type\":\"integer\"}}}");
	struct json *second = json_of("{\"type\":\"object\","
				      "\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"a\"],"
				      "\"$defs\":{\"n\":{\"type\":\"boolean\"}}}");
	const struct grammar_call list[] = {{.before = "<\xFF", .after = ">", .schema = first},
					    {.before = "(", .after = ")", .schema = second},
					    {.before = "[", .after = "]"}};
	struct grammar_calls calls = {.calls = list, .count = 3, .begin = "B", .between = ", ", .end = "E", .most = 2};
	struct matcher *matcher = matcher_of_calls(&calls);
	assert_true(takes(matcher, "B<\xFF{\"a\":1}>E"));
	assert_true(takes(matcher, "B({\"a\":true}), [{\"x\":[1]}]E"));
	assert_false(takes(matcher, "B({\"a\":1})E")); // each schema has its own places
	assert_false(takes(matcher, "B[{}], [{}], [{}]E"));
	assert_false(takes(matcher, "BE"));
	assert_false(takes(matcher, "yes"));
	matcher_destroy(&matcher);
	calls.other = GRAMMAR_REGEX;
	calls.other_text = "yes|no";
	calls.most = 1;
	calls.blanks = true;
	matcher = matcher_of_calls(&calls);
	assert_true(takes(matcher, "yes"));
	assert_true(takes(matcher, "\n\nB[{}]E"));
	assert_false(takes(matcher, "yesB[{}]E"));
	assert_false(takes(matcher, "B[{}], [{}]E"));
	matcher_destroy(&matcher);
	json_destroy(&first);
	json_destroy(&second);
}

// Every text of a few letters, as the value of a pair: it ends where the mark of its end first stands.
static void arguments_that_are_pairs(void **state)
{
	(void)state;
	static const char letters[] = "x/>\n<";
	struct json *schema = json_of("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
				      "\"b\":{\"type\":\"string\",\"enum\":"
				      "[\"p\",\"q\"]},\"d\":{\"enum\":[\"p\",\"q\"]},\"c\":{\"type\":\"integer\"}},"
				      "\"required\":[\"a\",\"c\"]}");
	const struct grammar_pairs pairs = {.begin = "<", .middle = "=", .end = "\n</>\n", .stop = "\n</>"};
	const struct grammar_call call = {.before = "f ", .after = "!", .schema = schema, .pairs = &pairs};
	const struct grammar_call free_call = {.before = "f ", .after = "!", .pairs = &pairs};
	struct grammar_calls calls = {.calls = &call, .count = 1, .begin = "", .between = "", .end = "", .most = 1};
	struct matcher *matcher = matcher_of_calls(&calls);
	char text[64], value[16];
	for (uint32_t number = 0; number < 5 * 5 * 5 * 5 * 5 * 5; number++) {
		uint32_t rest = number;
		for (int i = 0; i < 6; i++, rest /= 5)
			value[i] = letters[rest % 5];
		value[6] = 0;
		snprintf(text, sizeof(text), "f <a=%s\n</>\n<c=1\n</>\n!", value);
		if (takes(matcher, text) != !strstr(value, "\n</>"))
			fail_msg("%s", text);
	}
	assert_true(takes(matcher, "f <a=\n</>\n<b=q\n</>\n<c=-5\n</>\n!"));
	assert_false(takes(matcher, "f <a=\n</>\n<b=r\n</>\n<c=-5\n</>\n!"));
	assert_true(takes(matcher, "f <a=\n</>\n<d=q\n</>\n<c=-5\n</>\n!")); // as the parser reads it
	assert_false(takes(matcher, "f <a=\n</>\n<d=\"q\"\n</>\n<c=-5\n</>\n!"));
	assert_false(takes(matcher, "f <a=\n</>\n<b=q\n</>\n!"));
	assert_false(takes(matcher, "f <c=1\n</>\n<a=\n</>\n!"));
	matcher_destroy(&matcher);
	calls.calls = &free_call;
	matcher = matcher_of_calls(&calls);
	assert_true(takes(matcher, "f <any_1=\n</\n</>\n<b=\n</>\n!"));
	assert_true(takes(matcher, "f !"));
	assert_false(takes(matcher, "f <=\n</>\n!"));
	matcher_destroy(&matcher);
	json_destroy(&schema);
	static const char *const refused[] = {"{\"properties\":{\"a\":{\"type\":\"string\","
					      "\"maxLength\":3}}}",
					      "{\"anyOf\":[]}",
					      "{\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[1]}}}"};
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct grammar *grammar;
		struct error error = {0};
		struct json *bad = json_of(refused[i]);
		const struct grammar_call one = {.before = "", .after = "", .schema = bad, .pairs = &pairs};
		calls.calls = &one;
		assert_int_equal(grammar_create_calls(&grammar, &calls, &error), STATUS_INVALID_PARAMS);
		assert_null(grammar);
		assert_true(error.message[0]);
		json_destroy(&bad);
	}
}

// Each of many parameters is a part of the schema, which is looked through once, not for each of them.
static void pairs_are_counted(void **state)
{
	(void)state;
	const struct grammar_pairs pairs = {.begin = "<", .middle = "=", .end = "\n</>\n", .stop = "\n</>"};
	for (unsigned count = 799; count <= 801; count++) {
		struct buffer text;
		struct grammar *grammar;
		struct error error = {0};
		buffer_init(&text, 1 << 20);
		buffer_append_text(&text, "{\"properties\":{");
		for (unsigned i = 0; i < count; i++)
			buffer_printf(&text, "%s\"p%u\":{\"type\":\"null\"}", i ? "," : "", i);
		buffer_append_text(&text, "}}");
		struct json *schema = json_of(buffer_text(&text));
		const struct grammar_call one = {.before = "", .after = "", .schema = schema, .pairs = &pairs};
		const struct grammar_calls calls = {
			.calls = &one, .count = 1, .begin = "", .between = "", .end = "", .most = 1};
		const enum status status = grammar_create_calls(&grammar, &calls, &error);
		assert_int_equal(status, count <= 800 ? STATUS_OK : STATUS_LIMIT_EXCEEDED);
		grammar_destroy(&grammar);
		json_destroy(&schema);
		buffer_finish(&text);
	}
}

// A matcher that has forgotten where it began begins again all the same.
static void a_matcher_begins_again(void **state)
{
	(void)state;
	const struct grammar_call call = {.before = "(", .after = ")"};
	const struct grammar_calls calls = {
		.calls = &call, .count = 1, .begin = "", .between = "", .end = "", .most = 1};
	struct matcher *matcher = matcher_of_calls(&calls);
	for (int round = 0; round < 3; round++) {
		matcher_rewind(matcher);
		assert_non_null(matcher_allowed(matcher));
		assert_int_equal(matcher_take_bytes(matcher, "({\"a\":", 6), STATUS_OK);
		for (int i = 0; i < 900; i++)
			assert_int_equal(matcher_take_bytes(matcher, i % 2 ? "{\"b\":" : "[", i % 2 ? 5 : 1),
					 STATUS_OK);
		assert_non_null(matcher_allowed(matcher));
		assert_true(takes(matcher, "({\"a\":[1,2]})"));
		assert_false(takes(matcher, "({\"a\":[1,2})"));
	}
	matcher_destroy(&matcher);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regular_expressions_are_those_of_posix),
		cmocka_unit_test(beginnings_are_alive_while_something_follows),
		cmocka_unit_test(rules_that_name_themselves),
		cmocka_unit_test(texts_of_grammars),
		cmocka_unit_test(what_cannot_be_kept_is_refused_by_name),
		cmocka_unit_test(masks_are_exact),
		cmocka_unit_test(an_answer_that_ended_goes_on_no_more),
		cmocka_unit_test(nothing_grows_without_end),
		cmocka_unit_test(calls_of_several_schemas),
		cmocka_unit_test(arguments_that_are_pairs),
		cmocka_unit_test(pairs_are_counted),
		cmocka_unit_test(a_matcher_begins_again),
	};
	return cmocka_run_group_tests(tests, make_vocabulary, free_vocabulary);
}
