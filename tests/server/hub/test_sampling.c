/* How tokens are drawn where a request does not say. */
#include "server/hub/sampling.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sampling_words words_of(const char *json)
{
	struct sampling_words words;
	sampling_say_nothing(&words);
	sampling_add_config(json, strlen(json), &words);
	return words;
}

// `wanted` is without the members that are null.
static void assert_said(const struct sampling_words *words, const char *wanted)
{
	struct buffer buffer;
	struct json *all = sampling_json(words), *json = json_new_object();
	assert_int_equal(json_count(all), SAMPLING_NAMES);
	for (const struct json *one = json_first(all); one; one = json_next(one))
		if (json_type(one) != JSON_NULL)
			json_set(json, json_name(one), json_copy(one));
	json_destroy(&all);
	buffer_init(&buffer, 512);
	json_print(json, &buffer);
	assert_string_equal(buffer_text(&buffer), wanted);
	buffer_finish(&buffer);
	json_destroy(&json);
}

static void test_config(void **state)
{
	static const struct {
		const char *config, *said;
	} cases[] = {
		{"{\"temperature\":0.6,\"top_k\":20,\"top_p\":0.9,\"min_p\":0.1,\"repetition_penalty\":1.1}",
		 "{\"temperature\":0.6,\"top_k\":20,\"top_p\":0.9,\"min_p\":0.1,\"repetition_penalty\":1.1}"},
		{"{\"temperature\":0,\"top_k\":0,\"do_sample\":false,\"max_new_tokens\":5,\"eos_token_id\":[1,2]}",
		 "{\"temperature\":0,\"top_k\":0}"},
		{"{\"top_k\":-1}", "{\"top_k\":0}"},
		// Out of range, of another type, or no JSON: not said.
		{"{\"temperature\":2.5,\"top_k\":1.5,\"top_p\":-0.1,\"min_p\":2,\"repetition_penalty\":0}", "{}"},
		{"{\"temperature\":\"0.5\",\"top_k\":null,\"top_p\":[1],\"min_p\":{},\"repetition_penalty\":true}",
		 "{}"},
		// Ollama's word, where the usual one is not said.
		{"{\"repeat_penalty\":1.3,\"stop\":[\"a\"]}", "{\"repetition_penalty\":1.3}"},
		{"{\"repeat_penalty\":1.3,\"repetition_penalty\":1.2}", "{\"repetition_penalty\":1.2}"},
		{"[0.5]", "{}"},
		{"{\"temperature\":", "{}"},
		{"", "{}"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sampling_words words = words_of(cases[i].config);
		assert_said(&words, cases[i].said);
	}
}

static void test_first_word_counts(void **state)
{
	(void)state;
	struct sampling_words words = words_of("{\"temperature\":0.6}");
	const char more[] = "{\"temperature\":1,\"top_p\":0.5}";
	sampling_add_config(more, sizeof more - 1, &words);
	assert_said(&words, "{\"temperature\":0.6,\"top_p\":0.5}");
}

static void assert_value(const struct json *told, const char *name, double value, const char *from)
{
	const struct json *one = json_get(told, name);
	assert_true(json_get_number(one, "value", NAN) == value);
	assert_string_equal(json_get_string(one, "from", ""), from);
}

static void test_order(void **state)
{
	(void)state;
	const struct sampling_words instance = words_of("{\"temperature\":0.2,\"top_k\":7}"),
				    model = words_of("{\"temperature\":0.3,\"top_k\":8,\"top_p\":0.8}");
	struct json *request = json_new_object();
	json_set_number(request, "temperature", 0);
	json_set_integer(request, "seed", 5);
	struct json *told = sampling_complete(request, &instance, &model);
	assert_value(told, "temperature", 0, "request");
	assert_value(told, "top_k", 7, "instance");
	assert_value(told, "top_p", 0.8, "model");
	assert_value(told, "min_p", 0.05, "default");
	assert_value(told, "repetition_penalty", 1, "default");
	assert_int_equal(json_count(told), SAMPLING_NAMES);
	// The request says the same now, and what else it said.
	assert_true(json_get_number(request, "temperature", NAN) == 0);
	assert_int_equal(json_get_integer(request, "top_k", -1), 7);
	assert_true(json_get_number(request, "top_p", NAN) == 0.8);
	assert_true(json_get_number(request, "min_p", NAN) == 0.05);
	assert_int_equal(json_get_integer(request, "seed", -1), 5);
	json_destroy(&told);
	told = sampling_complete(request, &instance, &model);
	assert_value(told, "min_p", 0.05, "request");
	json_destroy(&told);
	told = sampling_complete(NULL, &instance, &model);
	assert_value(told, "temperature", 0.2, "instance");
	json_destroy(&told);
	json_destroy(&request);
}

static void write_beside(const char *folder, const char *text, size_t length)
{
	char path[300];
	snprintf(path, sizeof path, "%s/generation_config.json", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, length, file), length);
	fclose(file);
}

static void test_beside(void **state)
{
	char folder[] = "/tmp/exogpu-sampling-XXXXXX", model[300], beside[300];
	static const char config[] = "{\"temperature\":0.25}";
	struct sampling_words words;
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(model, sizeof model, "%s/model.gguf", folder);
	snprintf(beside, sizeof beside, "%s/generation_config.json", folder);
	sampling_say_nothing(&words);
	sampling_add_beside(model, &words); // there is none
	assert_said(&words, "{}");
	write_beside(folder, config, sizeof config - 1);
	sampling_add_beside(model, &words);
	assert_said(&words, "{\"temperature\":0.25}");

	// Too large, a pipe that nobody writes, a folder.
	char *large = malloc(70000);
	assert_non_null(large);
	memset(large, ' ', 70000);
	memcpy(large, config, sizeof config - 1);
	write_beside(folder, large, 70000);
	free(large);
	sampling_say_nothing(&words);
	sampling_add_beside(model, &words);
	assert_said(&words, "{}");
	assert_int_equal(unlink(beside), 0);
	assert_int_equal(mkfifo(beside, 0600), 0);
	sampling_add_beside(model, &words);
	assert_int_equal(unlink(beside), 0);
	assert_int_equal(mkdir(beside, 0700), 0);
	sampling_add_beside(model, &words);
	assert_said(&words, "{}");
	assert_int_equal(rmdir(beside), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_first_word_counts),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_beside),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
