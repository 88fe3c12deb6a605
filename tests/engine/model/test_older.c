/* Files of models with latents from before April 2025: the matrices of heads are one tensor of a layer, attn_kv_b. Such
 * files are made of those of tests/models, and give the same shape and, once they are held, the same matrices. */
#include "common/base/buffer.h"
#include "engine/model/convert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { FILE_MOST = 512 * 1024, ALIGNMENT = 32, U32 = 4, SPLIT = 5 };

struct opened {
	uint8_t *bytes;
	struct gguf *gguf;
	struct model *model;
};

static void close_file(struct opened *file)
{
	model_destroy(&file->model);
	gguf_destroy(&file->gguf);
	free(file->bytes);
}

static struct opened open_new(const char *name)
{
	char path[256];
	struct error error = {0};
	struct opened out = {.bytes = malloc(FILE_MOST)};
	snprintf(path, sizeof(path), TESTS_DIR "/models/%s.gguf", name);
	FILE *file = fopen(path, "rb");
	assert_true(file && out.bytes);
	const size_t length = fread(out.bytes, 1, FILE_MOST, file);
	fclose(file);
	assert_int_equal(gguf_parse(&out.gguf, out.bytes, length, &error), STATUS_OK);
	assert_int_equal(model_open(&out.model, out.gguf, &error), STATUS_OK);
	return out;
}

// ---- the older file ----

static void put_u64(struct buffer *out, uint64_t value)
{
	buffer_append_u32le(out, (uint32_t)value);
	buffer_append_u32le(out, (uint32_t)(value >> 32));
}

static void put_text(struct buffer *out, const char *text)
{
	put_u64(out, strlen(text));
	buffer_append_text(out, text);
}

static bool is_changed(const struct gguf_text *name)
{
	static const char *const changed[] = {"deepseek2.attention.key_length_mla",
					      "deepseek2.attention.value_length_mla", "deepseek2.attention.key_length",
					      "deepseek2.attention.value_length", "deepseek2.attention.head_count_kv"};
	bool is = false;
	for (size_t i = 0; i < sizeof(changed) / sizeof(*changed); i++)
		is |= name->length == strlen(changed[i]) && !memcmp(name->bytes, changed[i], name->length);
	return is;
}

static void put_keys(struct buffer *out, const struct opened *new, uint32_t value_size)
{
	const struct model_shape *shape = model_shape(new->model);
	const struct {
		const char *name;
		uint32_t value;
	} own[] = {{"deepseek2.attention.key_length", shape->latent.key_size},
		   {"deepseek2.attention.value_length", value_size},
		   {"deepseek2.attention.head_count_kv", shape->heads}};
	for (size_t i = 0; i < gguf_key_count(new->gguf); i++) {
		struct gguf_text name, whole;
		gguf_key(new->gguf, i, &name, &whole);
		if (!is_changed(&name))
			buffer_append(out, whole.bytes, whole.length);
	}
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
		put_text(out, own[i].name);
		buffer_append_u32le(out, U32);
		buffer_append_u32le(out, own[i].value);
	}
}

// The rows of a layer's attn_kv_b: of each head those of its key, which are the columns of attn_k_b, and its value's.
static void join(const struct opened *new, uint32_t layer, struct buffer *out)
{
	const struct model_shape *shape = model_shape(new->model);
	const uint32_t rank = shape->latent.rank, values = shape->latent.value_size;
	struct model_tensor k, v;
	assert_true(model_tensor(new->model, ROLE_K_B, layer, &k) && model_tensor(new->model, ROLE_V_B, layer, &v));
	float *all = malloc((size_t)k.rows * k.columns * sizeof(*all)), *row = malloc(rank * sizeof(*row));
	const uint64_t row_bytes = format_row_bytes(v.format, rank);
	uint8_t *encoded = malloc(row_bytes);
	assert_true(all && row && encoded);
	format_decode(k.format, k.data, all, (uint64_t)k.rows * k.columns);
	for (uint32_t head = 0; head < shape->heads; head++) {
		for (uint32_t j = 0; j < k.columns; j++) {
			for (uint32_t i = 0; i < rank; i++)
				row[i] = all[((size_t)head * rank + i) * k.columns + j];
			format_encode(v.format, row, encoded, rank);
			buffer_append(out, encoded, row_bytes);
		}
		buffer_append(out, v.data + (uint64_t)head * values * row_bytes, values * row_bytes);
	}
	free(encoded);
	free(row);
	free(all);
}

// A tensor's entry, unless it has none; its data goes to `data`.
static void put_tensor(const struct opened *new, const struct gguf_tensor *tensor, struct buffer *infos,
		       struct buffer *data)
{
	const struct model_shape *shape = model_shape(new->model);
	const uint32_t turned = shape->head_size - shape->latent.rank,
		       rows = shape->latent.key_size - turned + shape->latent.value_size;
	const char *name = strchr(tensor->name + 4, '.');
	char joined[GGUF_NAME_BYTES];
	if (name && !strcmp(name, ".attn_k_b.weight"))
		return; // with its values
	const bool both = name && !strcmp(name, ".attn_v_b.weight");
	const uint32_t layer = both ? (uint32_t)strtoul(tensor->name + 4, NULL, 10) : 0;
	snprintf(joined, sizeof(joined), "blk.%u.attn_kv_b.weight", layer);
	put_text(infos, both ? joined : tensor->name);
	buffer_append_u32le(infos, both ? 2 : tensor->dimension_count);
	for (uint32_t i = 0; i < (both ? 2 : tensor->dimension_count); i++)
		put_u64(infos, !both || !i ? tensor->size[i] : shape->heads * (uint64_t)rows);
	buffer_append_u32le(infos, tensor->type);
	put_u64(infos, data->length);
	if (both)
		join(new, layer, data);
	else
		buffer_append(data, tensor->data, tensor->bytes);
	while (data->length % ALIGNMENT)
		buffer_append_byte(data, 0);
}

static struct opened make_older(const struct opened *new, uint32_t value_size, struct error *error)
{
	struct buffer whole, infos, data;
	struct opened out = {.bytes = malloc(FILE_MOST)};
	buffer_init(&whole, FILE_MOST);
	buffer_init(&infos, FILE_MOST);
	buffer_init(&data, FILE_MOST);
	for (size_t i = 0; i < gguf_tensor_count(new->gguf); i++)
		put_tensor(new, gguf_tensor(new->gguf, i), &infos, &data);
	buffer_append_text(&whole, "GGUF");
	buffer_append_u32le(&whole, 3);
	put_u64(&whole, gguf_tensor_count(new->gguf) - model_shape(new->model)->layers);
	put_u64(&whole, gguf_key_count(new->gguf) - 2);
	put_keys(&whole, new, value_size);
	buffer_append(&whole, buffer_text(&infos), infos.length);
	while (whole.length % ALIGNMENT)
		buffer_append_byte(&whole, 0);
	buffer_append(&whole, buffer_text(&data), data.length);
	assert_true(out.bytes && !whole.failed && !infos.failed && !data.failed);
	memcpy(out.bytes, buffer_text(&whole), whole.length);
	assert_int_equal(gguf_parse(&out.gguf, out.bytes, whole.length, error), STATUS_OK);
	model_open(&out.model, out.gguf, error);
	buffer_finish(&data);
	buffer_finish(&infos);
	buffer_finish(&whole);
	return out;
}

// ---- what is held of it ----

// A tensor as it is held, converted in two pieces.
static uint8_t *held_of(const struct opened *file, enum model_role role, uint32_t layer, struct model_tensor *held)
{
	struct model_tensor tensor;
	assert_true(model_tensor(file->model, role, layer, &tensor));
	model_tensor_as(&tensor, FORMAT_UNKNOWN, held);
	assert_null(held->data);
	assert_true(held->rows == tensor.rows && held->columns == tensor.columns && !held->joined.heads);
	uint8_t *bytes = malloc(held->bytes);
	assert_non_null(bytes);
	assert_int_equal(model_convert(&tensor, held, 0, SPLIT, bytes), STATUS_OK);
	assert_int_equal(
		model_convert(&tensor, held, SPLIT, held->rows - SPLIT, bytes + SPLIT * (held->bytes / held->rows)),
		STATUS_OK);
	return bytes;
}

// Keys are what the new file has, to the bit in F16; of Q8_0, whose blocks lie the other way, F16 of nearly the same.
static void check_layer(const struct opened *new, const struct opened *older, uint32_t layer)
{
	struct model_tensor wanted, held;
	assert_true(model_tensor(new->model, ROLE_V_B, layer, &wanted));
	uint8_t *bytes = held_of(older, ROLE_V_B, layer, &held);
	assert_int_equal(held.format, wanted.format);
	assert_int_equal(held.bytes, wanted.bytes);
	assert_memory_equal(bytes, wanted.data, wanted.bytes);
	free(bytes);
	assert_true(model_tensor(new->model, ROLE_K_B, layer, &wanted));
	bytes = held_of(older, ROLE_K_B, layer, &held);
	assert_int_equal(held.format, FORMAT_F16);
	const size_t count = (size_t)held.rows * held.columns;
	float *some = malloc(count * sizeof(*some)), *others = malloc(count * sizeof(*others)), most = 0;
	assert_true(some && others);
	format_decode(held.format, bytes, some, count);
	format_decode(wanted.format, wanted.data, others, count);
	for (size_t i = 0; i < count; i++)
		most = others[i] > most ? others[i] : most;
	const float step = wanted.format == FORMAT_F16 ? 0 : most / 100;
	for (size_t i = 0; i < count; i++)
		if (!(some[i] - others[i] <= step && others[i] - some[i] <= step))
			fail_msg("key %zu of layer %u is %g, not %g", i, layer, (double)some[i], (double)others[i]);
	free(others);
	free(some);
	free(bytes);
}

static void test_older_files(void **state)
{
	(void)state;
	static const char *const names[] = {"deepseek2", "deepseek2-lite", "deepseek2-q8_0"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct error error = {0};
		struct opened new = open_new(names[i]);
		const struct model_shape *shape = model_shape(new.model);
		struct opened older = make_older(&new, shape->latent.value_size, &error);
		if (!older.model)
			fail_msg("%s", error.message);
		assert_memory_equal(model_shape(older.model), shape, sizeof(*shape));
		for (uint32_t layer = 0; layer < shape->layers; layer++)
			check_layer(&new, &older, layer);
		close_file(&older);
		older = make_older(&new, shape->latent.value_size + 2, &error);
		assert_null(older.model);
		assert_non_null(strstr(error.message, "tensor blk.0.attn_kv_b.weight has "));
		close_file(&older);
		close_file(&new);
	}
}

// What its table says of its size: matrices of keys are counted as they are held.
static void test_sizes(void **state)
{
	(void)state;
	struct error error = {0};
	struct model_sizes sizes, older_sizes;
	struct opened new = open_new("deepseek2-q8_0");
	const struct model_shape *shape = model_shape(new.model);
	struct opened older = make_older(&new, shape->latent.value_size, &error);
	const uint64_t count = (uint64_t)shape->layers * shape->heads * shape->latent.rank * 32; // 32 do not turn
	model_sizes(new.model, &sizes);
	model_sizes(older.model, &older_sizes);
	assert_int_equal(older_sizes.parameters, sizes.parameters);
	assert_int_equal(older_sizes.format_bytes[FORMAT_F16], sizes.format_bytes[FORMAT_F16] + 2 * count);
	assert_int_equal(older_sizes.format_bytes[FORMAT_Q8_0], sizes.format_bytes[FORMAT_Q8_0] - count / 32 * 34);
	close_file(&older);
	close_file(&new);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_older_files), cmocka_unit_test(test_sizes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
