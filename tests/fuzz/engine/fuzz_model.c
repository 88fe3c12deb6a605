/* Fuzz target: model files, from the first byte to a shape and its tensors. Whatever is accepted can be read: every
 * text, every number, a row of every tensor; and what a stage takes is within the limits of model.h. */
#include "engine/model/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void look_at_keys(const struct gguf *gguf)
{
	static const char *const keys[] = {"general.name",          "general.alignment",       "tokenizer.ggml.tokens",
					   "tokenizer.ggml.scores", "tokenizer.chat_template", "llama.rope.freq_base"};
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct gguf_text text;
		uint64_t count = 0, cursor = 0, texts = 0, length = 0;
		double number = 0;
		bool yes = false;
		gguf_get_count(gguf, keys[i], &count);
		gguf_get_number(gguf, keys[i], &number);
		gguf_get_bool(gguf, keys[i], &yes);
		if (gguf_get_text(gguf, keys[i], &text) && text.length)
			require(memchr(text.bytes, text.bytes[text.length - 1], text.length));
		bool array = gguf_get_array(gguf, keys[i], &length);
		while (gguf_next_text(gguf, keys[i], &cursor, &text))
			texts++;
		require(!texts || (array && texts == length));
		if (length && gguf_array_number(gguf, keys[i], length - 1, &number))
			require(!texts);
	}
}

static void look_at_tensor(const struct model *model, enum model_role role, uint32_t layer)
{
	struct model_tensor tensor, held;
	if (!model_tensor(model, role, layer, &tensor))
		return;
	require(tensor.format && tensor.rows && tensor.columns);
	const struct model_joined *joined = &tensor.joined;
	const uint32_t columns = joined->heads ? joined->columns : tensor.columns;
	const uint32_t rows = joined->heads ? joined->heads * joined->rows : tensor.rows;
	const uint64_t row_bytes = tensor.packing
					   ? packing_row_bytes(tensor.packing, columns)
					   : format_row_bytes(joined->heads ? joined->format : tensor.format, columns);
	require(tensor.bytes == row_bytes * rows);
	float *row = malloc(tensor.columns * sizeof(*row));
	require(row);
	if (!tensor.packing && !joined->heads)
		format_decode(tensor.format, tensor.data + (tensor.rows - 1) * row_bytes, row, tensor.columns);
	free(row);
	static const enum tensor_format wishes[] = {FORMAT_UNKNOWN, FORMAT_Q4_0};
	for (size_t i = 0; i < sizeof(wishes) / sizeof(*wishes); i++) {
		model_tensor_as(&tensor, wishes[i], &held);
		require(held.bytes == format_row_bytes(held.format, held.columns) * held.rows && !held.packing);
		if (held.data)
			continue;
		uint8_t *bytes = malloc(held.bytes / held.rows);
		require(bytes && !model_convert(&tensor, &held, tensor.rows - 1, 1, bytes));
		free(bytes);
	}
}

static void look_at_model(const struct model *model)
{
	const struct model_shape *shape = model_shape(model);
	struct model_sizes sizes, smaller;
	require(shape->layers && shape->layers <= 512 && shape->heads <= 512 && shape->kv_heads);
	require(!(shape->heads % shape->kv_heads) && shape->rope_size <= shape->head_size);
	require(shape->head_size <= (shape->latent.rank ? 640 : 512) && shape->latent.rank <= 512);
	require(!shape->expert_groups ||
		(shape->expert_groups_used && shape->expert_groups_used <= shape->expert_groups &&
		 shape->experts % shape->expert_groups == 0));
	require(shape->experts ? shape->experts_used && shape->experts_used <= 64 && shape->experts <= 1024 &&
					 shape->expert_width && shape->expert_width <= 65536
			       : shape->feed_forward > 0);
	require(shape->embedding % 2 == 0 && shape->embedding <= 65536 && shape->context && shape->vocabulary);
	for (uint32_t i = 0; i < shape->rope_size / 2; i++)
		require(isfinite(shape->rope_frequency[i]) && shape->rope_frequency[i] > 0);
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role < ROLE_COUNT; role++)
		look_at_tensor(model, role, shape->layers - 1);
	model_sizes(model, &sizes);
	model_sizes_as(model, FORMAT_Q8_0, &smaller);
	require(sizes.expert_bytes <= sizes.layers_bytes && model_layer_read(shape, &sizes, 1) > 0);
	require(sizes.parameters == smaller.parameters && sizes.layers_bytes >= smaller.layers_bytes);
	float table[1024];
	require(model_rope_numbers(shape, 1) <= sizeof(table) / sizeof(*table));
	model_rope_table(shape, 1, table);
	require(isfinite(shape->norm_epsilon) && isfinite(shape->embedding_scale) && isfinite(shape->attention_scale));
	require(isfinite(shape->logit_scale) && isfinite(shape->logit_cap) && isfinite(shape->attention_cap));
	for (uint32_t layer = 0; layer < shape->layers; layer++)
		require(model_layer_window(shape, layer) > 0);
}

// Of a file of which only the beginning is there nothing behind that is read, and nothing is said that the whole
// denies.
static void look_at_beginning(const uint8_t *data, size_t size, enum status whole)
{
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct error error = {0};
	const size_t there = size - size / 3;
	uint8_t *bytes = malloc(there ? there : 1);
	require(bytes);
	memcpy(bytes, data, there);
	const enum status status = gguf_parse_beginning(&gguf, bytes, there, size, &error);
	require(status == whole || status == STATUS_PENDING);
	if (!status)
		model_open(&model, gguf, &error);
	model_destroy(&model);
	gguf_destroy(&gguf);
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct error error = {0};
	const enum status whole = gguf_parse(&gguf, data, size, NULL);
	gguf_destroy(&gguf);
	look_at_beginning(data, size, whole);
	if (gguf_parse(&gguf, data, size, &error)) {
		require(error.message[0] && !gguf);
		return 0;
	}
	look_at_keys(gguf);
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++)
		require(gguf_find(gguf, gguf_tensor(gguf, i)->name) == gguf_tensor(gguf, i));
	if (model_open(&model, gguf, &error))
		require(error.message[0] && !model);
	else
		look_at_model(model);
	model_destroy(&model);
	gguf_destroy(&gguf);
	return 0;
}
