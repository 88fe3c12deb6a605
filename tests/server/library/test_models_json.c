/* What state.db keeps of a model says again which of its layers have a state, where only the file says that. */
#include "common/base/buffer.h"
#include "engine/model/model.h"
#include "engine/stage.h"
#include "server/library/models_inside.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { MOST = 65536 };

// The record of a model of tests/models, as text of state.db.
static void keep(const char *name, struct model_record *record, struct buffer *text)
{
	char path[256];
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct error error = {0};
	snprintf(path, sizeof(path), TESTS_DIR "/models/%s.gguf", name);
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_OK);
	close(fd);
	assert_int_equal(model_open(&model, gguf, &error), STATUS_OK);
	*record = (struct model_record){.shape = *model_shape(model)};
	model_sizes(model, &record->sizes);
	model_destroy(&model);
	gguf_destroy(&gguf);
	struct json *json = model_kept_json(record);
	assert_int_equal(json_print(json, text), STATUS_OK);
	json_destroy(&json);
}

static void test_layers_with_a_state(void **state)
{
	(void)state;
	static const char *const names[] = {"lfm2", "lfm2moe", "qwen35", "qwen3next", "llama" /* mixtral */};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct model_record record, read = {.state = MODEL_READY};
		struct buffer text;
		buffer_init(&text, MOST);
		keep(strcmp(names[i], "llama") != 0 ? names[i] : "mixtral", &record, &text);
		assert_true(model_kept_parse(buffer_text(&text), &read));
		assert_string_equal(model_family_name(read.shape.family), names[i]);
		assert_int_equal(read.shape.layers, record.shape.layers);
		for (uint32_t layer = 0; layer < record.shape.layers; layer++)
			assert_int_equal(read.shape.layer_kinds[layer], record.shape.layer_kinds[layer]);
		assert_int_equal(read.shape.delta.grouped, record.shape.delta.grouped);
		assert_int_equal(stage_state_bytes(&read.shape), stage_state_bytes(&record.shape));
		buffer_finish(&text);
	}
}

// What a token of a model with latents takes of a page, which its sizes alone do not say.
static void test_latents(void **state)
{
	(void)state;
	struct model_record record, read = {.state = MODEL_READY};
	struct buffer text;
	buffer_init(&text, MOST);
	keep("deepseek2", &record, &text);
	assert_non_null(strstr(buffer_text(&text), "\"kv_bytes_per_token\":204,")); // 3 layers of 26 + 8 numbers
	assert_true(model_kept_parse(buffer_text(&text), &read));
	assert_memory_equal(&read.shape.latent, &record.shape.latent, sizeof(read.shape.latent));
	assert_int_equal(stage_page_bytes(&read.shape), stage_page_bytes(&record.shape));
	assert_int_equal(read.shape.dense_layers, 1);
	buffer_finish(&text);
}

// A row that somebody has changed says nothing rather than something wrong.
static void check_changed(const char *name, const char *const (*changes)[2], size_t count)
{
	struct model_record record;
	struct buffer text;
	buffer_init(&text, MOST);
	keep(name, &record, &text);
	for (size_t i = 0; i < count; i++) {
		struct model_record read = {.state = MODEL_READY};
		const char *at = strstr(buffer_text(&text), changes[i][0]);
		struct buffer changed;
		buffer_init(&changed, MOST);
		if (!at)
			fail_msg("%s is not in %s", changes[i][0], buffer_text(&text));
		buffer_append(&changed, buffer_text(&text), (size_t)(at - buffer_text(&text)));
		buffer_append(&changed, changes[i][1], strlen(changes[i][1]));
		buffer_append(&changed, at + strlen(changes[i][0]), strlen(at + strlen(changes[i][0])));
		if (model_kept_parse(buffer_text(&changed), &read))
			fail_msg("with %s it is read", changes[i][1]);
		buffer_finish(&changed);
	}
	buffer_finish(&text);
}

static void test_changed_rows(void **state)
{
	(void)state;
	static const char *const changes[][2] = {
		{"\"cacca\"", "\"cacc\""},
		{"\"cacca\"", "\"caxca\""},
		{"\"cacca\"", "\"caccaa\""},
		{"\"cacca\"", "5"},
		{"\"lfm2\"", "\"qwen35\""},
		{"\"lfm2\"", "\"llama\""},
		{"\"turns\"", "\"turn\""},
		{"\"delta_heads\":1", "\"delta_heads\":0"},
		{"\"delta_value_size\":32", "\"delta_value_size\":65538"},
		{"\"delta_kernel\":3", "\"delta_kernel\":17"},
		{"\"delta_key_heads\":0", "\"delta_key_heads\":1"},
		{"\"latent_rank\":0", "\"latent_rank\":8"},
	};
	static const char *const latents[][2] = {
		{"\"latent_rank\":26", "\"latent_rank\":0"},
		{"\"latent_rank\":26", "\"latent_rank\":34"},
		{"\"latent_rank\":26", "\"latent_rank\":514"},
		{"\"latent_key_size\":20", "\"latent_key_size\":514"},
		{"\"latent_value_size\":20", "\"latent_value_size\":514"},
		{"\"latent_query_rank\":40", "\"latent_query_rank\":65538"},
		{"\"head_size\":34", "\"head_size\":642"},
		{"\"deepseek2\"", "\"llama\""},
	};
	check_changed("lfm2", changes, sizeof(changes) / sizeof(changes[0]));
	check_changed("deepseek2", latents, sizeof(latents) / sizeof(latents[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers_with_a_state), cmocka_unit_test(test_latents),
					   cmocka_unit_test(test_changed_rows)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
