/* Stop strings over text that comes in pieces: where an answer ends, and what waits, must not depend on the pieces. */
#include "engine/worker/instance/instance_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

struct end {
	char text[512];
	const char *stop; // "" if none
};

static const struct {
	const char *stops, *text, *out, *stop;
} cases[] = {
	{"[]", "all of it", "all of it", ""},
	{"[\"stop\"]", "do not stop here", "do not ", "stop"},
	{"[\"stop\"]", "sto", "sto", ""},
	{"[\"stop\"]", "ststop", "st", "stop"},
	{"[\"aab\"]", "aaaab", "aa", "aab"},
	{"[\"abcd\",\"bc\"]", "xabcd", "xa", "bc"}, // the first to be complete
	{"[\"bc\",\"abc\"]", "xabc", "x", "abc"},   // the longest of those
	{"[\"a\",\"ab\"]", "xab", "x", "a"},
	{"[\"\\n\\n\"]", "line\nline\n\nmore", "line\nline", "\n\n"},
	{"[\"\xC3\xA9\"]", "caf\xC3\xA9!", "caf", "\xC3\xA9"},
	{"[\"\xF0\x9F\x98\x80\"]",
	 "a\xF0\x9F\x98\x81"
	 "b\xF0\x9F\x98\x80",
	 "a\xF0\x9F\x98\x81"
	 "b",
	 "\xF0\x9F\x98\x80"},
	{"[\"end\",\"END\",\"#\"]", "en eN EN ENd EEND", "en eN EN ENd E", "END"},
};

// In pieces of `step` bytes; what comes out after each is a beginning of what comes out in all.
static void check(size_t index, size_t step)
{
	struct instance_text text;
	struct buffer out;
	struct json *stops = NULL;
	const char *rest = cases[index].text;
	assert_int_equal(json_parse(&stops, cases[index].stops, strlen(cases[index].stops), NULL), STATUS_OK);
	assert_int_equal(instance_text_init(&text, stops), STATUS_OK);
	buffer_init(&out, 4096);
	while (*rest && !text.found) {
		size_t piece = strlen(rest) < step ? strlen(rest) : step;
		assert_int_equal(instance_text_add(&text, rest, piece, &out), STATUS_OK);
		assert_true(out.length <= strlen(cases[index].out));
		assert_int_equal(strncmp(buffer_text(&out), cases[index].out, out.length), 0);
		assert_true(text.held.length < 16);
		rest += piece;
	}
	assert_int_equal(instance_text_end(&text, &out), STATUS_OK);
	if (strcmp(buffer_text(&out), cases[index].out) != 0 ||
	    strcmp(text.found ? text.found : "", cases[index].stop) != 0)
		fail_msg("%zu by %zu: '%s' and '%s', not '%s' and '%s'", index, step, buffer_text(&out),
			 text.found ? text.found : "", cases[index].out, cases[index].stop);
	buffer_finish(&out);
	instance_text_finish(&text);
	json_destroy(&stops);
}

static void stops_do_not_depend_on_the_pieces(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t step = 1; step < 32; step++)
			check(i, step);
}

static void without_stops_nothing_waits(void **state)
{
	(void)state;
	struct instance_text text;
	struct buffer out;
	buffer_init(&out, 4096);
	assert_int_equal(instance_text_init(&text, NULL), STATUS_OK);
	assert_int_equal(instance_text_add(&text, "at\0once", 7, &out), STATUS_OK);
	assert_string_equal(buffer_text(&out), "at\xEF\xBF\xBDonce");
	assert_int_equal(text.held.length, 0);
	instance_text_finish(&text);
	buffer_finish(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stops_do_not_depend_on_the_pieces),
		cmocka_unit_test(without_stops_nothing_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
