/* Sentences that are taken apart: each form of the list, sentences in sentences, and texts that want to take long.
 * The key and args that are found always print the text again. */
#include "common/files/embedded.h"
#include "common/wire/said.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

static bool is_conversion(const char *at)
{
	return at[0] == '%' && at[1] != '%' && at[1] != ' ' && at[1];
}

// The end of the conversion that begins at `at`, and its letter.
static const char *pass(const char *at, char *kind)
{
	at += 1 + strspn(at + 1, "-+#0123456789.*hlzjt");
	*kind = *at;
	return at + 1;
}

static void print_back(const struct json *said, struct buffer *out)
{
	const struct json *arg = json_first(json_get(said, "args"));
	char kind;
	for (const char *at = json_get_string(said, "key", ""); *at;) {
		if (is_conversion(at)) {
			at = pass(at, &kind);
			assert_non_null(arg);
			if (json_type(arg) == JSON_OBJECT)
				print_back(arg, out);
			else
				assert_int_equal(buffer_append_text(out, json_string(arg, "")), STATUS_OK);
			arg = json_next(arg);
			continue;
		}
		assert_int_equal(buffer_append_byte(out, (uint8_t)*at), STATUS_OK);
		at += at[0] == '%' && at[1] == '%' ? 2 : 1;
	}
	assert_null(arg);
}

// The text of what was found, or "" if nothing was.
static void read_back(const char *text, struct buffer *out)
{
	struct json *said = said_read(text);
	buffer_clear(out);
	if (said)
		print_back(said, out);
	json_destroy(&said);
}

static void expect(const char *text, const char *wanted)
{
	struct buffer out;
	struct json *said = said_read(text);
	buffer_init(&out, 1 << 16);
	if (wanted)
		assert_int_equal(json_print(said, &out), STATUS_OK);
	else
		assert_null(said);
	assert_string_equal(buffer_text(&out), wanted ? wanted : "");
	json_destroy(&said);
	buffer_finish(&out);
}

static void test_values_are_as_they_were_printed(void **state)
{
	(void)state;
	expect("expires in 7 days", "{\"key\":\"expires in %.0f days\",\"args\":[\"7\"]}");
	expect("not logged in", "{\"key\":\"not logged in\",\"args\":[]}");
	expect("its battery is at 12 % (limit 20 %)",
	       "{\"key\":\"its battery is at %.0f %% (limit %.0f %%)\",\"args\":[\"12\",\"20\"]}");
	expect("the memory of RTX 3090 on atelier is nearly full: 97 % is in use",
	       "{\"key\":\"the memory of %s is nearly full: %.0f %% is in use\",\"args\":["
	       "{\"key\":\"%s on %.64s\",\"args\":[\"RTX 3090\",\"atelier\"]},\"97\"]}");
	expect("a name", NULL);
	expect("", NULL);
	expect("expires in seven days", NULL);
}

static void test_sentences_in_sentences(void **state)
{
	(void)state;
	expect("A100 is left out: a browser does not compute experts",
	       "{\"key\":\"%s is left out: %s\",\"args\":[\"A100\",{\"key\":\"a browser does not compute "
	       "experts\",\"args\":[]}]}");
	expect("not logged in; install the same version on both",
	       "{\"key\":\"%s%s%s\",\"args\":[{\"key\":\"not logged in\",\"args\":[]},\"; \","
	       "{\"key\":\"install the same version on both\",\"args\":[]}]}");
	expect("weights.gguf: not logged in",
	       "{\"key\":\"%s%s%s\",\"args\":[\"weights.gguf\",\": \",{\"key\":\"not logged in\",\"args\":[]}]}");
	expect("it gives 90 Mbit/s, and Ethernet should give 900; its interface runs at 100 Mbit/s",
	       "{\"key\":\"%s%s\",\"args\":[{\"key\":\"it gives %.3g Mbit/s, and %s should give "
	       "%.0f\",\"args\":[\"90\","
	       "\"Ethernet\",\"900\"]},{\"key\":\"; its interface runs at %.0f Mbit/s\",\"args\":[\"100\"]}]}");
	expect("not logged in, or replaced the log by an older copy of it: nothing that somebody else keeps was "
	       "compared with "
	       "it. It could even be a different log: its first key was not compared with a copy that is kept "
	       "elsewhere.",
	       "{\"key\":\"%s%s\",\"args\":[{\"key\":\"%s%s\",\"args\":[{\"key\":\"not logged "
	       "in\",\"args\":[]},{\"key\":\", or replaced the log by an older copy of it: nothing that somebody else "
	       "keeps "
	       "was compared with it.\",\"args\":[]}]},{\"key\":\" It could even be a different log: its first key was "
	       "not "
	       "compared with a copy that is kept elsewhere.\",\"args\":[]}]}");
	expect("From a to b, through the server, a round trip takes 1.5 ms: 1 MiB takes 9 ms.",
	       "{\"key\":\"From %.64s to %.64s, %s%s, a round trip takes %s ms%s: 1 MiB takes %s "
	       "ms%s%s.\",\"args\":[\"a\",\"b\","
	       "{\"key\":\"through \",\"args\":[]},{\"key\":\"the "
	       "server\",\"args\":[]},\"1.5\",\"\",\"9\",\"\",\"\"]}");
	expect("node atelier is offline: not logged in",
	       "{\"key\":\"node %.64s is offline%s%.160s\",\"args\":[\"atelier\",\"\",{\"key\":\"%s%s\",\"args\":[\": "
	       "\","
	       "{\"key\":\"not logged in\",\"args\":[]}]}]}");
}

static void test_names_are_no_sentences(void **state)
{
	(void)state;
	expect("no memory for a list is not here yet", // a file may be called so
	       "{\"key\":\"%s is not here yet\",\"args\":[\"no memory for a list\"]}");
	expect("the model not logged in is not loaded",
	       "{\"key\":\"the model %.128s is not loaded\",\"args\":[\"not logged in\"]}");
	expect("nodes is left out: a browser does not compute experts",
	       "{\"key\":\"%s is left out: %s\",\"args\":[\"nodes\",{\"key\":\"a browser does not compute "
	       "experts\",\"args\":[]}]}");
	expect("online: not logged in",
	       "{\"key\":\"%s%s%s\",\"args\":[\"online\",\": \",{\"key\":\"not logged in\",\"args\":[]}]}");
	expect("not logged in: online",
	       "{\"key\":\"%s%s%s\",\"args\":[{\"key\":\"not logged in\",\"args\":[]},\": \",\"online\"]}");
	expect("this model is being removed at the moment", // and this is a word of ours
	       "{\"key\":\"this model is being %s at the moment\",\"args\":[{\"key\":\"removed\",\"args\":[]}]}");
}

static void test_said_set_keeps_no_old_form(void **state)
{
	(void)state;
	struct json *object = json_new_object();
	said_set(object, "reason", "not logged in");
	assert_string_equal(json_get_string(json_get(object, "reason_said"), "key", ""), "not logged in");
	said_set(object, "reason", "a name");
	assert_string_equal(json_get_string(object, "reason", ""), "a name");
	assert_null(json_get(object, "reason_said"));
	said_set(object, "reason", NULL);
	assert_int_equal(json_type(json_get(object, "reason")), JSON_NULL);
	json_destroy(&object);
}

// A text that this form prints.
static void sample(const char *form, struct buffer *out)
{
	char kind;
	buffer_clear(out);
	while (*form) {
		if (is_conversion(form)) {
			const char *text = strncmp(form, "%.1s", 4) ? "Zoë" : "Z";
			form = pass(form, &kind);
			buffer_append_text(out, kind == 's'              ? text
						: kind == 'c'            ? "q"
						: strchr("fFeEgG", kind) ? "1.5"
									 : "42");
			continue;
		}
		buffer_append_byte(out, (uint8_t)*form);
		form += form[0] == '%' && form[1] == '%' ? 2 : 1;
	}
}

static void test_every_form_is_found(void **state)
{
	(void)state;
	const struct embedded_file *file = embedded_find("schema/sentences.json");
	struct json *list = NULL;
	struct buffer text, back;
	size_t count = 0;
	buffer_init(&text, 1 << 16);
	buffer_init(&back, 1 << 16);
	assert_int_equal(json_parse(&list, (const char *)file->data, file->length, NULL), STATUS_OK);
	for (const struct json *area = json_first(list); area; area = json_next(area))
		for (const struct json *one = json_first(area); one && json_type(area) == JSON_ARRAY;
		     one = json_next(one)) {
			const char *form = json_string(one, "");
			if (form[0] == '%' && !strstr(form, " "))
				continue; // what joins sentences
			sample(form, &text);
			read_back(buffer_text(&text), &back);
			if (strcmp(buffer_text(&text), buffer_text(&back)) != 0)
				fail_msg("\"%s\" is read back as \"%s\"", buffer_text(&text), buffer_text(&back));
			count++;
		}
	assert_true(count > 1000);
	buffer_finish(&text);
	buffer_finish(&back);
	json_destroy(&list);
}

static void test_hostile_texts_are_bounded(void **state)
{
	(void)state;
	static const char *const pieces[] = {": ",  "; ", ", ",    "a",    "%s",     " ",
					     "is ", "1",  ": a; ", "the ", "%s%s%s", "\xC3"};
	char text[SAID_BYTES + 8];
	struct buffer back;
	buffer_init(&back, 1 << 16);
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
		for (size_t length = SAID_BYTES - 8; length <= SAID_BYTES + 4; length += 12) {
			for (size_t at = 0; at < length; at++)
				text[at] = pieces[i][at % strlen(pieces[i])];
			text[length] = 0;
			read_back(text, &back);
			if (back.length)
				assert_string_equal(buffer_text(&back), text);
			assert_true(length <= SAID_BYTES || !back.length);
		}
	buffer_finish(&back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_are_as_they_were_printed), cmocka_unit_test(test_sentences_in_sentences),
		cmocka_unit_test(test_said_set_keeps_no_old_form),      cmocka_unit_test(test_every_form_is_found),
		cmocka_unit_test(test_hostile_texts_are_bounded),       cmocka_unit_test(test_names_are_no_sentences),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
