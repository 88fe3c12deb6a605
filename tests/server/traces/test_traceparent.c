// The header traceparent: what is one, and what counts as absent.
#include "server/traces/traceparent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void test_good(void **state)
{
	static const struct {
		const char *text;
		bool sampled;
	} cases[] = {
		{"00-" TRACE "-" SPAN "-01", true},  {"00-" TRACE "-" SPAN "-00", false},
		{"00-" TRACE "-" SPAN "-ff", true},  {"00-" TRACE "-" SPAN "-fe", false},
		{"01-" TRACE "-" SPAN "-01", true},  {"cc-" TRACE "-" SPAN "-02-what comes later", false},
		{"fe-" TRACE "-" SPAN "-03-", true},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct traceparent parent;
		assert_true(traceparent_parse(cases[i].text, &parent));
		assert_string_equal(parent.trace_id, TRACE);
		assert_string_equal(parent.span_id, SPAN);
		assert_int_equal(parent.sampled, cases[i].sampled);
	}
}

static void test_bad(void **state)
{
	static const char *const texts[] = {
		"",
		"\x01", // NET_TOO_LONG
		"00",
		"00-" TRACE "-" SPAN,
		"00-" TRACE "-" SPAN "-",
		"00-" TRACE "-" SPAN "-1",
		"00-" TRACE "-" SPAN "-01 ",
		" 00-" TRACE "-" SPAN "-01",
		"00-" TRACE "-" SPAN "-01-",
		"00-" TRACE "-" SPAN "-011",
		"01-" TRACE "-" SPAN "-011",
		"00-" TRACE "-" SPAN "-01, 00-" TRACE "-" SPAN "-01", // the header stands there twice
		"ff-" TRACE "-" SPAN "-01",
		"0g-" TRACE "-" SPAN "-01",
		"00-" TRACE "-" SPAN "-0A",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
		"00-" TRACE "_" SPAN "-01",
		"00_" TRACE "-" SPAN "-01",
		"00-00000000000000000000000000000000-" SPAN "-01",
		"00-" TRACE "-0000000000000000-01",
		"00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "0-01",
	};
	const struct traceparent before = {.trace_id = "unchanged", .sampled = true};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct traceparent parent = before;
		if (traceparent_parse(texts[i], &parent))
			fail_msg("\"%s\" counts as one", texts[i]);
		assert_memory_equal(&parent, &before, sizeof parent);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
