/* Base64: the published examples, and one spelling only. */
#include "common/text/base64.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

// RFC 4648, section 10.
static void test_published(void **state)
{
	static const char *const texts[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
	char text[16], bytes[8];
	(void)state;
	for (size_t length = 0; length <= 6; length++) {
		base64_encode("foobar", length, text);
		assert_string_equal(text, texts[length]);
		assert_true(base64_decode(text, strlen(text), bytes, length));
		assert_memory_equal(bytes, "foobar", length);
	}
}

// Of all texts of four characters over the ends and middles of the alphabet, one is accepted for each value.
static void test_one_spelling(void **state)
{
	static const char characters[] = "AQgwZz09+/-_=.~ \n\xff";
	const size_t count = sizeof(characters); // with the 0
	char text[5] = {0}, again[5];
	uint8_t bytes[3];
	unsigned accepted = 0;
	(void)state;
	for (size_t i = 0; i < count * count * count * count; i++) {
		text[0] = characters[i % count];
		text[1] = characters[i / count % count];
		text[2] = characters[i / count / count % count];
		text[3] = characters[i / count / count / count];
		for (size_t length = 1; length <= 3; length++) {
			if (!base64_decode(text, 4, bytes, length))
				continue;
			base64_encode(bytes, length, again);
			assert_string_equal(again, text);
			accepted++;
		}
	}
	assert_true(accepted > 1000);
	assert_false(base64_decode("Zm9v", 4, bytes, 2));
	assert_false(base64_decode("Zm9v", 3, bytes, 3));
	assert_false(base64_decode("Zm9v", 4, bytes, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published),
		cmocka_unit_test(test_one_spelling),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
