/* Answers of the hubs, and which file is picked. */
#include "server/hub/hub.h"

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

#define GIB "073741824"

static const char listing[] =
	"[{\"type\":\"file\",\"path\":\"m-F16.gguf\",\"lfs\":{\"size\":161" GIB "}},"
	"{\"type\":\"file\",\"path\":\"m-Q8_0.gguf\",\"lfs\":{\"size\":81" GIB "}},"
	"{\"type\":\"file\",\"path\":\"m-Q6_K.gguf\",\"lfs\":{\"size\":61" GIB "}},"
	"{\"type\":\"file\",\"path\":\"m-Q4_K_M.gguf\",\"lfs\":{\"size\":41" GIB "}},"
	"{\"type\":\"file\",\"path\":\"m-Q4_0.gguf\",\"lfs\":{\"size\":31" GIB "}},"
	"{\"type\":\"file\",\"path\":\"m-Q2_K.gguf\",\"lfs\":{\"size\":11" GIB "}},"
	"{\"type\":\"file\",\"path\":\"m-F16-00001-of-00002.gguf\",\"lfs\":{\"size\":5}},"
	"{\"type\":\"file\",\"path\":\"../m-Q8_0.gguf\",\"size\":5},{\"type\":\"file\",\"path\":5},null,[],"
	"{\"type\":\"file\",\"path\":\"n-Q8_0.gguf\",\"size\":-1},{\"type\":\"file\",\"path\":\"README.md\",\"size\":5}"
	"]";

static void test_choice(void **state)
{
	static const struct {
		unsigned device, devices; // GiB of room; 0 and 0: not known
		const char *file;         // NULL: none fits
		const char *why;
	} cases[] = {
		{0, 0, "m-Q8_0.gguf", "no device is known"},  {200, 200, "m-Q8_0.gguf", "fits one device"},
		{80, 80, "m-Q4_K_M.gguf", "fits one device"}, {40, 40, "m-Q4_0.gguf", "fits one device"},
		{20, 20, NULL, "room for 20.00 GiB"},         {20, 100, "m-Q8_0.gguf", "several devices"},
		{20, 50, "m-Q4_K_M.gguf", "several devices"}, {50, 200, "m-Q4_K_M.gguf", "fits one device"},
	};
	struct source repository;
	struct hub_files files;
	(void)state;
	assert_int_equal(source_parse("hf:maker/many", &repository, NULL), STATUS_OK);
	assert_int_equal(hub_read_files(&repository, listing, strlen(listing), &files, NULL), STATUS_OK);
	assert_int_equal(files.count, 7);
	assert_int_equal(files.files[6].source.parts, 2);
	assert_int_equal(files.files[6].there, 1); // so it is never chosen
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char why[200] = "";
		struct error error = {0};
		const struct hub_file *file = NULL;
		const struct models_room room = {.known = cases[i].devices > 0,
						 .device = (uint64_t)cases[i].device << 30,
						 .devices = (uint64_t)cases[i].devices << 30};
		enum status status = hub_choose(&files, &room, &file, why, &error);
		const char *picked = file ? file->source.file : "none", *said = file ? why : error.message;
		if (strcmp(picked, cases[i].file ? cases[i].file : "none") != 0 || !status != !!cases[i].file ||
		    !strstr(said, cases[i].why))
			fail_msg("for %u and %u GiB %s is picked: %s", cases[i].device, cases[i].devices, picked, said);
	}
	char why[200];
	const struct hub_file *file;
	const struct models_room room = {.known = true, .device = 50ull << 30, .devices = 50ull << 30};
	assert_int_equal(hub_choose(&files, &room, &file, why, NULL), STATUS_OK);
	assert_string_equal(why,
			    "m-Q4_K_M.gguf, of 7: of Q8_0 and Q4_K_M the largest that fits one device; others: F16, "
			    "Q8_0, Q6_K, Q4_0");
	hub_files_finish(&files);
}

// What a conversion reads, at the top of the repository; each once, whatever a hub says.
static void test_weights(void **state)
{
	static const char hub_list[] =
		"[{\"type\":\"file\",\"path\":\"config.json\",\"size\":7},"
		"{\"type\":\"file\",\"path\":\"config.json\",\"size\":9},"
		"{\"type\":\"file\",\"path\":\"model.safetensors.index.json\",\"size\":5},"
		"{\"type\":\"file\",\"path\":\"model-1.safetensors\",\"size\":133,\"lfs\":{\"size\":1000,\"oid\":"
		"\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}},"
		"{\"type\":\"file\",\"path\":\"model-2.safetensors\",\"lfs\":{\"size\":2000,\"oid\":\"short\"}},"
		"{\"type\":\"file\",\"path\":\"consolidated.safetensors\",\"size\":500},"
		"{\"type\":\"file\",\"path\":\"original/model.safetensors\",\"size\":5},"
		"{\"type\":\"file\",\"path\":\"../model.safetensors\",\"size\":5},"
		"{\"type\":\"file\",\"path\":\".model.safetensors\",\"size\":5},"
		"{\"type\":\"file\",\"path\":\"a\\\\b.safetensors\",\"size\":5},"
		"{\"type\":\"directory\",\"path\":\"x.safetensors\",\"size\":5},"
		"{\"type\":\"file\",\"path\":\"empty.safetensors\",\"size\":0},"
		"{\"type\":\"file\",\"path\":\"pytorch_model.bin\",\"size\":5},{\"path\":5},null]";
	struct hub_weights weights;
	struct error error = {0};
	(void)state;
	assert_int_equal(hub_read_weights(hub_list, strlen(hub_list), &weights, NULL), STATUS_OK);
	assert_int_equal(weights.count, 5);
	assert_int_equal(hub_weights_find(&weights, "config.json")->bytes, 7);
	assert_int_equal(strlen(hub_weights_find(&weights, "model-1.safetensors")->sha256), 64);
	assert_string_equal(hub_weights_find(&weights, "model-2.safetensors")->sha256, "");
	assert_int_equal(hub_weights_bytes(&weights), 3000);
	assert_int_equal(hub_weights_check(&weights, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "no tokenizer.json"));
	hub_weights_finish(&weights);
	assert_int_equal(hub_read_weights("{}", 2, &weights, NULL), STATUS_UNAVAILABLE);
	assert_int_equal(hub_read_weights("[]", 2, &weights, NULL), STATUS_OK);
	error = (struct error){0};
	assert_int_equal(hub_weights_check(&weights, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "neither a GGUF file nor safetensors"));
	hub_weights_finish(&weights);
}

static void test_formats(void **state)
{
	static const char *const names[][2] = {
		{"a-Q8_0.gguf", "Q8_0"},      {"a.q4_k_m.gguf", "Q4_K"},  {"a-bf16.gguf", "BF16"},
		{"a-F16.gguf", "F16"},        {"a-Q4_0.gguf", "Q4_0"},    {"a-Q4_0_4_4.gguf", NULL},
		{"a-Q2_K.gguf", NULL},        {"a-IQ3_XS.gguf", NULL},    {"a-Q5_K_S.gguf", "Q5_K"},
		{"Q6_K/a-Q6_K.gguf", "Q6_K"}, {"a-fp32-F32.gguf", "F32"}, {"a.gguf", NULL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *format = hub_format_of(names[i][0]);
		if (strcmp(format ? format : "none", names[i][1] ? names[i][1] : "none") != 0)
			fail_msg("%s is taken for %s", names[i][0], format ? format : "none");
	}
}

static void test_manifest(void **state)
{
	static const char *const bad[] = {
		"",
		"{}",
		"{\"layers\":{}}",
		"{\"layers\":[5,null]}",
		"{\"layers\":[{\"mediaType\":\"application/"
		"vnd.ollama.image.model\",\"digest\":\"sha256:ab\",\"size\":5}]}",
		"{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":"
		"\"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"size\":-5}]}",
	};
	static const char good[] =
		"{\"layers\":[{\"mediaType\":\"application/"
		"vnd.ollama.image.template\",\"digest\":\"sha256:x\",\"size\":5},"
		"{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":"
		"\"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"size\":123}]}";
	struct hub_layer layer;
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (!hub_read_manifest(bad[i], strlen(bad[i]), &layer, NULL))
			fail_msg("%s is a manifest of %llu bytes", bad[i], (unsigned long long)layer.bytes);
	assert_int_equal(hub_read_manifest(good, strlen(good), &layer, NULL), STATUS_OK);
	assert_int_equal(layer.bytes, 123);
}

static void test_searches(void **state)
{
	static const char list[] =
		"[{\"id\":\"a/b\",\"downloads\":7},{\"modelId\":\"c/d\"},{\"id\":\"../e\"},5,{\"id\":\"f\"}]";
	static const char page[] =
		"<a href=\"/library/llama3.2\"><a href=\"/library/llama3.2\">x<a href=\"/library/../x\">"
		"<a href=\"/library/qwen3\"><a href=\"/library/unfinished";
	struct hub_found found[4];
	size_t count;
	(void)state;
	assert_int_equal(hub_read_search(list, strlen(list), found, 4, &count, NULL), STATUS_OK);
	assert_int_equal(count, 2);
	assert_string_equal(found[0].source.text, "hf:a/b");
	assert_int_equal(found[0].downloads, 7);
	assert_int_equal(found[1].downloads, -1);
	count = hub_read_ollama_page(page, strlen(page), found, 4);
	assert_int_equal(count, 2);
	assert_string_equal(found[1].source.text, "ollama:qwen3:latest");
	assert_int_equal(hub_read_ollama_page(page, strlen(page), found, 1), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),   cmocka_unit_test(test_weights),  cmocka_unit_test(test_formats),
		cmocka_unit_test(test_manifest), cmocka_unit_test(test_searches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
