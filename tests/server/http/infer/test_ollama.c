/* How long an answer took, in the words of Ollama's API, whatever a worker says. */
#include "server/http/infer/ollama/ollama.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

static void expect(const char *end_text, int64_t load, int64_t prompt, int64_t generate, int64_t all)
{
	struct json *end, *json = json_new_object();
	assert_int_equal(json_parse(&end, end_text, strlen(end_text), NULL), STATUS_OK);
	ollama_put_durations(json, end);
	assert_int_equal(json_get_integer(json, "load_duration", -1), load);
	assert_int_equal(json_get_integer(json, "prompt_eval_duration", -1), prompt);
	assert_int_equal(json_get_integer(json, "eval_duration", -1), generate);
	assert_int_equal(json_get_integer(json, "total_duration", -1), all);
	json_destroy(&json);
	json_destroy(&end);
}

static void test_durations(void **state)
{
	const int64_t most = 9007199254740992;
	(void)state;
	expect("{\"queued_ms\": 0, \"prompt_ms\": 1.5, \"generate_ms\": 20}", 0, 1500000, 20000000, 21500000);
	expect("{\"queued_ms\": 1.7e107, \"prompt_ms\": 1, \"generate_ms\": 2}", most, 1000000, 2000000, most);
	expect("{\"queued_ms\": 1, \"prompt_ms\": 1e308, \"generate_ms\": 1e304}", 1000000, most, most, most);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_durations)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
