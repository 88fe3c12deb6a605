/* The suggestions of "did you mean", and that there is none if no name is close. */
#include "common/text/nearest.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static const char *nearest_of(const char *word)
{
	struct nearest nearest;
	nearest_start(&nearest, word, strlen(word));
	nearest_offer(&nearest, "devices");
	nearest_offer(&nearest, "nodes");
	nearest_offer(&nearest, "node");
	nearest_offer(&nearest, "token");
	nearest_offer(&nearest, "url");
	return nearest.best ? nearest.best : "";
}

static void the_nearest_word(void **state)
{
	(void)state;
	assert_string_equal(nearest_of("device"), "devices");
	assert_string_equal(nearest_of("dvices"), "devices");
	assert_string_equal(nearest_of("tokne"), "token");
	assert_string_equal(nearest_of("dev"), "devices");
	assert_string_equal(nearest_of("nodse"), "nodes");
	assert_string_equal(nearest_of("nod"), "nodes"); // a beginning: the first that is offered
	assert_string_equal(nearest_of("all"), "");      // two of three letters are wrong
	assert_string_equal(nearest_of("ulr"), "url");
	assert_string_equal(nearest_of("topology"), "");
	assert_string_equal(nearest_of(""), "");
	assert_string_equal(nearest_of("x"), "");
	assert_string_equal(nearest_of("a word that is far longer than any of the commands"), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_nearest_word),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
