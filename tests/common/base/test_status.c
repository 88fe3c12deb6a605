/* Results and errors: each status has its words and codes, as the contract lists them, and an error keeps what was said
 * first. */
#include "common/base/status.h"
#include "common/json/json.h"
#include "common/wire/contract.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <string.h>

static void codes_and_words_are_distinct(void **state)
{
	(void)state;
	for (int a = STATUS_PARSE_ERROR; a < STATUS_COUNT; a++) {
		assert_true(status_http((enum status)a) >= 400);
		assert_int_equal(status_from_rpc_code(status_rpc_code((enum status)a)), a);
		for (int b = a + 1; b < STATUS_COUNT; b++) {
			assert_string_not_equal(status_word((enum status)a), status_word((enum status)b));
			assert_int_not_equal(status_rpc_code((enum status)a), status_rpc_code((enum status)b));
		}
	}
	assert_int_equal(status_from_rpc_code(0), STATUS_INTERNAL);
	assert_int_equal(status_from_rpc_code(12345), STATUS_INTERNAL);
	assert_string_equal(status_word((enum status)999), "internal");
}

// One list here, one in schema/api.json; they must say the same.
static void the_contract_lists_the_same_errors(void **state)
{
	(void)state;
	size_t length;
	struct json *document = NULL;
	const char *text = contract_text(CONTRACT_API, &length);
	assert_int_equal(json_parse(&document, text, length, NULL), STATUS_OK);
	const struct json *errors = json_get(json_get(document, "components"), "errors");
	assert_int_equal(json_count(errors), STATUS_COUNT - STATUS_PARSE_ERROR);
	for (const struct json *one = json_first(errors); one; one = json_next(one)) {
		enum status status = status_from_rpc_code((int)json_get_number(one, "code", 0));
		assert_string_equal(status_word(status), json_name(one));
		assert_string_equal(json_get_string(json_get(one, "data"), "reason", ""), json_name(one));
	}
	json_destroy(&document);
}

static void the_first_error_stays(void **state)
{
	(void)state;
	struct error error = {0};
	assert_int_equal(error_set(&error, STATUS_NOT_FOUND, "no %s", "such"), STATUS_NOT_FOUND);
	error_hint(&error, "look %d", 1);
	assert_int_equal(error_set(&error, STATUS_CONFLICT, "later"), STATUS_CONFLICT);
	assert_int_equal(error_errno(&error, STATUS_UNAVAILABLE, ENOENT, "later"), STATUS_UNAVAILABLE);
	error_hint(&error, "later");
	assert_int_equal(error.status, STATUS_NOT_FOUND);
	assert_string_equal(error.message, "no such");
	assert_string_equal(error.hint, "look 1");
	assert_int_equal(error_set(NULL, STATUS_TIMEOUT, "to nobody"), STATUS_TIMEOUT);
	error_hint(NULL, "to nobody");
}

static void an_error_of_the_system_says_which(void **state)
{
	(void)state;
	struct error error = {0};
	error_errno(&error, STATUS_UNAVAILABLE, ENOENT, "file %d", 7);
	assert_non_null(strstr(error.message, "file 7: "));
	assert_non_null(strstr(error.message, strerror(ENOENT)));
}

static void long_texts_are_cut(void **state)
{
	(void)state;
	char text[2000];
	struct error error = {0};
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	error_set(&error, STATUS_INTERNAL, "%s", text);
	error_hint(&error, "%s", text);
	assert_int_equal(strlen(error.message), sizeof error.message - 1);
	assert_int_equal(strlen(error.hint), sizeof error.hint - 1);
	struct error other = {0};
	error_errno(&other, STATUS_INTERNAL, ENOENT, "%s", text);
	assert_int_equal(strlen(other.message), sizeof other.message - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_and_words_are_distinct), cmocka_unit_test(the_contract_lists_the_same_errors),
		cmocka_unit_test(the_first_error_stays),        cmocka_unit_test(an_error_of_the_system_says_which),
		cmocka_unit_test(long_texts_are_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
