/* Login codes: each works once and for a minute, and few wait at a time. The clock is the test's. */
#include "server/security/login_codes.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static const struct audit_actor maker = {.actor = "token:abc", .peer = "192.0.2.7"};
static struct token of_maker;

static enum status make(struct login_codes *codes, int64_t now_ms, char text[LOGIN_CODE_BYTES], struct error *error)
{
	char code_id[STORE_ID_BYTES];
	const struct login_code_params params = {.token = &of_maker, .by = &maker, .now_ms = now_ms};
	return login_codes_make(codes, &params, text, code_id, error);
}

static enum status take(struct login_codes *codes, const char *text, int64_t now_ms, struct login_code *out)
{
	struct error error = {0};
	const enum status status = login_codes_take(codes, text, now_ms, out, &error);
	assert_true(!status || (strstr(error.hint, "exogpu open") && !strstr(error.message, text)));
	return status;
}

static void a_code_works_once_and_stands_for_its_maker(void **state)
{
	char text[LOGIN_CODE_BYTES], other[LOGIN_CODE_BYTES];
	struct login_codes codes = {0};
	struct login_code code;
	(void)state;
	assert_int_equal(make(&codes, 1000, text, NULL), STATUS_OK);
	assert_int_equal(make(&codes, 1000, other, NULL), STATUS_OK);
	assert_int_equal(strlen(text), LOGIN_CODE_BYTES - 1);
	assert_string_not_equal(text, other);
	assert_int_equal(take(&codes, text, 1000, &code), STATUS_OK);
	assert_ptr_equal(code.token, &of_maker);
	assert_string_equal(code.by.actor, "token:abc");
	assert_int_equal(take(&codes, text, 1000, &code), STATUS_UNAUTHENTICATED);
	assert_int_equal(take(&codes, other, 1000, &code), STATUS_OK);
}

static void a_code_lasts_a_minute(void **state)
{
	char text[LOGIN_CODE_BYTES], later[LOGIN_CODE_BYTES];
	struct login_codes codes = {0};
	struct login_code code;
	(void)state;
	assert_int_equal(make(&codes, 5000, text, NULL), STATUS_OK);
	assert_int_equal(make(&codes, 5001, later, NULL), STATUS_OK);
	assert_int_equal(take(&codes, text, 5000 + LOGIN_CODE_MS, &code), STATUS_UNAUTHENTICATED);
	assert_int_equal(take(&codes, later, 5000 + LOGIN_CODE_MS, &code), STATUS_OK);
}

static void another_text_is_refused(void **state)
{
	char text[LOGIN_CODE_BYTES], wrong[LOGIN_CODE_BYTES];
	struct login_codes codes = {0};
	struct login_code code;
	(void)state;
	assert_int_equal(take(&codes, "exocode_", 1, &code), STATUS_UNAUTHENTICATED); // none was made
	assert_int_equal(make(&codes, 1, text, NULL), STATUS_OK);
	for (size_t at = 0; at < LOGIN_CODE_BYTES - 1; at++) {
		memcpy(wrong, text, sizeof wrong);
		wrong[at] = wrong[at] == 'x' ? 'y' : 'x';
		assert_int_equal(take(&codes, wrong, 1, &code), STATUS_UNAUTHENTICATED);
	}
	assert_int_equal(take(&codes, "x", 1, &code), STATUS_UNAUTHENTICATED);
	assert_int_equal(take(&codes, text, 1, &code), STATUS_OK); // it was not lost by that
}

static void few_wait_at_a_time(void **state)
{
	char text[LOGIN_CODE_BYTES];
	struct error error = {0};
	struct login_codes codes = {0};
	struct login_code code;
	(void)state;
	for (int i = 0; i < LOGIN_CODES; i++)
		assert_int_equal(make(&codes, 1000 + i, text, &error), STATUS_OK);
	char one_more[LOGIN_CODE_BYTES];
	assert_int_equal(make(&codes, 2000, one_more, &error), STATUS_LIMIT_EXCEEDED);
	assert_non_null(strstr(error.hint, "60 s"));
	assert_int_equal(take(&codes, text, 2000, &code), STATUS_OK); // a place that was used is free
	assert_int_equal(make(&codes, 2000, one_more, &error), STATUS_OK);
	assert_int_equal(make(&codes, 2000, one_more, &error), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(make(&codes, 1000 + LOGIN_CODE_MS, one_more, &error), STATUS_OK); // so is one that expired
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_code_works_once_and_stands_for_its_maker),
		cmocka_unit_test(a_code_lasts_a_minute),
		cmocka_unit_test(another_text_is_refused),
		cmocka_unit_test(few_wait_at_a_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
