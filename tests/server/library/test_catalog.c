/* The catalogue: what is in the binary, and what a file of it must not say. The shapes that are derived are compared
 * with published figures and with real files. */
#include "engine/model/geometry.h"
#include "server/library/catalog.h"
#include "tests/tools/model_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static const char *text_of(const struct catalog_entry *entry, const char *name)
{
	return json_get_string(entry->json, name, "");
}

static const struct catalog_entry *entry_of(const struct catalog *catalog, const char *id)
{
	const struct catalog_entry *entry;
	for (size_t i = 0; (entry = catalog_at(catalog, i)); i++)
		if (!strcmp(text_of(entry, "id"), id))
			return entry;
	fail_msg("there is no entry %s", id);
	return NULL;
}

static void test_the_one_in_the_binary(void **state)
{
	(void)state;
	struct error error = {0};
	struct catalog *catalog;
	const struct catalog_entry *entry;
	size_t count = 0;
	if (catalog_create(&catalog, NULL, &error))
		fail_msg("%s", error.message);
	for (; (entry = catalog_at(catalog, count)); count++) {
		const enum tensor_format format = format_parse(text_of(entry, "format"));
		const struct format_info *info = format_info(format);
		assert_true(entry->predictable);
		assert_true(entry->shape.family != FAMILY_UNKNOWN);
		assert_int_equal(strncmp(entry->source, "hf:", 3), 0);
		// A file has its tokenizer beside the weights, and some tensors in wider formats: but not many.
		const double least = 8.0 * info->block_bytes / info->block_values,
			     bits = 8.0 * (double)entry->bytes / (double)entry->sizes.parameters;
		if (!(bits > least && bits < 1.2 * least + 0.2))
			fail_msg("%s: %.2f bits for a parameter, of %.2f", text_of(entry, "id"), bits, least);
	}
	assert_in_range(count, 8, 12);
	catalog_destroy(&catalog);
	assert_null(catalog);
}

// The numbers of parameters that the authors' repositories state (the total of their safetensors files; of the
// embedding model that of keras-hub), to the last one. Vectors that are not counted are left out: less than 0.05 %.
static void test_parameters_are_the_published_ones(void **state)
{
	(void)state;
	static const struct {
		const char *id;
		uint64_t parameters;
		double within;
	} published[] = {
		{"smollm2-135m-instruct", 134515008, 0},
		{"qwen3-0.6b", 596049920, 0},
		{"llama-3.2-1b-instruct", 1235814400, 0},
		{"llama-3.2-3b-instruct", 3212749824, 0},
		{"qwen3-4b-instruct-2507", 4022468096, 0},
		{"llama-3.1-8b-instruct", 8030261248, 0},
		{"qwen3-8b", 8190735360, 0},
		{"qwen3-30b-a3b-instruct-2507", 30532122624, 0},
		{"qwen3-embedding-0.6b", 595776512, 0},
		{"gpt-oss-20b", 20914757184, 5e-4},
	};
	struct error error = {0};
	struct catalog *catalog;
	assert_int_equal(catalog_create(&catalog, NULL, &error), STATUS_OK);
	for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
		const uint64_t got = entry_of(catalog, published[i].id)->sizes.parameters;
		const double off = fabs((double)got - (double)published[i].parameters) /
				   (double)published[i].parameters;
		if (off > published[i].within)
			fail_msg("%s: %llu parameters, published are %llu", published[i].id, (unsigned long long)got,
				 (unsigned long long)published[i].parameters);
	}
	catalog_destroy(&catalog);
}

// What is derived of a file's numbers is what the file has.
static void test_sizes_are_a_files(void **state)
{
	(void)state;
	for (enum model_family family = FAMILY_LLAMA; family <= FAMILY_QWEN3; family++) {
		struct model_file file = model_file_small();
		struct model_file_open open;
		struct model_sizes real, derived;
		struct model_shape shape;
		struct error error = {0};
		file.family = family;
		file.format = FORMAT_Q8_0;
		file.embedding = 256;
		file.feed_forward = 512;
		model_file_open(&open, &file);
		const struct model_shape *of = model_shape(open.model);
		model_sizes(open.model, &real);
		const struct model_geometry geometry = {
			.family = family,
			.layers = of->layers,
			.embedding = of->embedding,
			.feed_forward = of->feed_forward,
			.heads = of->heads,
			.kv_heads = of->kv_heads,
			.head_size = of->head_size,
			.vocabulary = of->vocabulary,
			.context = of->context,
			.tied = of->tied,
			.format = FORMAT_Q8_0,
			.bytes = real.embedding_bytes + (of->tied ? 0 : real.output_bytes) + real.layers_bytes,
		};
		if (model_geometry_shape(&geometry, &shape, &derived, &error))
			fail_msg("%s", error.message);
		const double pairs[][2] = {{(double)real.parameters, (double)derived.parameters},
					   {(double)real.layers_bytes, (double)derived.layers_bytes},
					   {(double)real.layer_bytes, (double)derived.layer_bytes},
					   {(double)real.embedding_bytes, (double)derived.embedding_bytes},
					   {(double)real.output_bytes, (double)derived.output_bytes}};
		for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
			if (fabs(pairs[i][0] - pairs[i][1]) > 0.03 * pairs[i][0])
				fail_msg("%s, %zu: %.0f, derived %.0f", model_family_name(family), i, pairs[i][0],
					 pairs[i][1]);
		model_file_close(&open);
	}
}

static const char good[] =
	"{\"models\":[{\"id\":\"one\",\"name\":\"One\",\"publisher\":\"P\",\"licence\":\"mit\",\"languages\":null,"
	"\"good_at\":\"this\",\"repository\":\"o/r\",\"revision\":null,\"file\":\"f.gguf\",\"bytes\":1000,"
	"\"sha256\":null,\"format\":\"Q8_0\",\"geometry\":{\"architecture\":\"llama\",\"layers\":2,\"embedding\":64,"
	"\"feed_forward\":128,\"heads\":4,\"kv_heads\":2,\"head_size\":16,\"vocabulary\":100,\"context\":128,"
	"\"tied\":true},\"read\":[{\"what\":[\"licence\",\"bytes\",\"geometry\"],\"from\":\"somewhere\","
	"\"on\":\"2026-11-28\"}]}]}";

// `good` with the first `was` replaced.
static char *with(const char *was, const char *becomes)
{
	const char *at = strstr(good, was);
	assert_non_null(at);
	const size_t size = sizeof good + strlen(becomes);
	char *text = malloc(size);
	assert_non_null(text);
	snprintf(text, size, "%.*s%s%s", (int)(at - good), good, becomes, at + strlen(was));
	return text;
}

static void test_what_is_refused(void **state)
{
	(void)state;
	static const struct {
		const char *was, *becomes, *says;
	} cases[] = {
		{"\"llama\"", "\"mamba\"", "architecture is not computed"},
		{"\"kv_heads\":2", "\"kv_heads\":3", "kv_heads"},
		{"\"layers\":2", "\"layers\":5000", "layers"},
		{"\"head_size\":16", "\"head_size\":15", "head_size"},
		{"\"Q8_0\"", "\"Q9_9\"", "format is not computed"},
		{"\"f.gguf\"", "\"../f.gguf\"", "one of the catalogue"},
		{"\"f.gguf\"", "\"f-00001-of-00003.gguf\"", "one GGUF file"},
		{"\"o/r\"", "\"https://evil\"", "one of the catalogue"},
		{"[\"licence\",\"bytes\"", "[\"bytes\"", "where licence was read is not said"},
		{"\"languages\":null", "\"languages\":\"all\"", "where languages was read is not said"},
		{"\"licence\":\"mit\"", "\"licence\":null", "licence is null"},
		{"2026-11-28", "28.11.2026", "YYYY-MM-DD"},
		{"\"sha256\":null", "\"sha256\":\"Z465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031\"",
		 "sha256"},
		{"\"bytes\":1000", "\"bytes\":-1", "bytes"},
		{"\"name\":\"One\",", "", "name"},
		{"\"id\":\"one\"", "\"id\":\"one\",\"more\":1", "more"},
		{"}]}]}", "}]}", ""},
	};
	struct catalog *catalog;
	struct error fine = {0};
	if (catalog_read(&catalog, good, strlen(good), &fine))
		fail_msg("%s", fine.message);
	struct json *unverified = catalog_unverified(catalog_at(catalog, 0));
	assert_int_equal(json_count(unverified), 3); // languages, revision, sha256
	json_destroy(&unverified);
	assert_string_equal(catalog_at(catalog, 0)->source, "hf:o/r/f.gguf");
	catalog_destroy(&catalog);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct error error = {0};
		char *text = with(cases[i].was, cases[i].becomes);
		if (!catalog_read(&catalog, text, strlen(text), &error))
			fail_msg("taken: %s", text);
		if (!strstr(error.message, cases[i].says))
			fail_msg("%s: %s", cases[i].becomes, error.message);
		assert_null(catalog);
		free(text);
	}
}

static void test_unknown_values_are_no_zeros(void **state)
{
	(void)state;
	struct catalog *catalog;
	struct error error = {0};
	char *text = with("\"bytes\":1000", "\"bytes\":null"), *sources = strstr(text, "\"licence\",\"bytes\"");
	assert_non_null(sources);
	memmove(sources + strlen("\"licence\""), sources + strlen("\"licence\",\"bytes\""),
		strlen(sources + strlen("\"licence\",\"bytes\"")) + 1);
	if (catalog_read(&catalog, text, strlen(text), &error))
		fail_msg("%s", error.message);
	assert_false(catalog_at(catalog, 0)->predictable);
	assert_int_equal(catalog_at(catalog, 0)->bytes, 0);
	assert_null(catalog_at(catalog, 1));
	catalog_destroy(&catalog);
	free(text);
	assert_int_equal(catalog_create(&catalog, "/nowhere/models.json", &error), STATUS_NOT_FOUND);
	assert_null(catalog);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_one_in_the_binary),
		cmocka_unit_test(test_parameters_are_the_published_ones),
		cmocka_unit_test(test_sizes_are_a_files),
		cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_unknown_values_are_no_zeros),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
