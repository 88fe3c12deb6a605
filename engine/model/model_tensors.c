/* The tensors of a model in its file: all that the architecture wants, in formats that are computed, and no others. See
 * model.h. */
#include "engine/model/model_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Formats of files that we do not compute, as users know them; NULL for a number without a name.
static const char *type_name(uint32_t type)
{
	static const char *const names[] = {
		[9] = "Q8_1",      [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",     [16] = "IQ2_XXS",
		[17] = "IQ2_XS",   [18] = "IQ3_XXS", [19] = "IQ1_S", [21] = "IQ3_S",    [22] = "IQ2_S",
		[23] = "IQ4_XS",   [28] = "F64",     [29] = "IQ1_M", [31] = "Q4_0_4_4", [32] = "Q4_0_4_8",
		[33] = "Q4_0_8_8", [34] = "TQ1_0",   [35] = "TQ2_0",
	};
	return type < sizeof(names) / sizeof(*names) ? names[type] : NULL;
}

static enum status find_tensor(struct model_opening *opening, const char *name, const struct wanted_tensor *wanted,
			       struct model_tensor *out)
{
	const struct gguf_tensor *tensor = gguf_find(opening->gguf, name);
	if (!tensor)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "the model file has no tensor %s", name);
	if (!tensor->format || (wanted->vector && tensor->format != FORMAT_F32)) {
		char what[GGUF_NAME_BYTES + MODEL_WORD_BYTES];
		if (tensor->format)
			snprintf(what, sizeof(what), "tensor %s in %s instead of F32", name,
				 tensor->packing ? packing_info(tensor->packing)->name
						 : format_info(tensor->format)->name);
		else if (type_name(tensor->type))
			snprintf(what, sizeof(what), "tensor %s in %s", name, type_name(tensor->type));
		else
			snprintf(what, sizeof(what), "tensor %s in the format of number %" PRIu32, name, tensor->type);
		return model_not_computed(opening, what);
	}
	uint32_t rows = wanted->of_rows ? wanted->of_rows : wanted->rows,
		 experts = wanted->experts ? wanted->experts : 1;
	rows /= experts;
	if (tensor->size[2] != experts || tensor->size[3] != 1)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "tensor %s has %" PRIu64 " matrices, not %" PRIu32, name,
				 tensor->size[2] * tensor->size[3], experts);
	if (tensor->size[0] != wanted->columns || tensor->size[1] != rows)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "tensor %s has %" PRIu64 " rows of %" PRIu64 ", not %" PRIu32 " of %" PRIu32, name,
				 tensor->size[1], tensor->size[0], rows, wanted->columns);
	uint64_t row_bytes = tensor->bytes / rows / experts;
	opening->used[tensor - gguf_tensor(opening->gguf, 0)] = true;
	*out = (struct model_tensor){.format = tensor->format,
				     .rows = wanted->rows,
				     .columns = wanted->columns,
				     .data = tensor->data + wanted->first_row * row_bytes,
				     .bytes = wanted->rows * row_bytes,
				     .packing = tensor->packing,
				     .kept = wanted->kept || wanted->vector};
	return STATUS_OK;
}

// The vocabulary is what the token embedding has rows for; lists of tokens must be as long.
enum status model_read_vocabulary(struct model_opening *opening)
{
	const struct gguf_tensor *embedding = gguf_find(opening->gguf, "token_embd.weight");
	uint64_t rows = embedding ? embedding->size[1] : 0, said = rows;
	if (!embedding)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the model file has no tensor token_embd.weight");
	if (!gguf_get_array(opening->gguf, "tokenizer.ggml.tokens", &said))
		gguf_get_count(opening->gguf, model_key(opening, "vocab_size"), &said);
	if (rows > LIMIT_MODEL_VOCABULARY || said != rows)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "a vocabulary of %" PRIu64 " tokens does not fit the %" PRIu64
				 " rows of token_embd.weight "
				 "(%d is the most)",
				 said, rows, LIMIT_MODEL_VOCABULARY);
	opening->shape->vocabulary = (uint32_t)rows;
	opening->shape->tied = !opening->shape->encoder && !gguf_find(opening->gguf, "output.weight");
	return STATUS_OK;
}

enum status model_find_tensors(struct model_opening *opening, struct model *model)
{
	struct wanted_tensor wanted;
	enum status status = STATUS_OK;
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role <= ROLE_OUTPUT && !status; role++)
		if (architecture_tensor(&model->shape, role, &wanted))
			status = find_tensor(opening, wanted.name, &wanted, &model->outer[role]);
	for (uint32_t layer = 0; layer < model->shape.layers && !status; layer++)
		for (enum model_role role = ROLE_ATTENTION_NORM; role < ROLE_COUNT && !status; role++) {
			char name[GGUF_NAME_BYTES];
			if (!architecture_layer_tensor(&model->shape, layer, role, &wanted))
				continue;
			const bool joined = opening->joined && model_role_is_heads(role);
			if (joined)
				wanted = model_joined_tensor(&model->shape);
			snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", layer, wanted.name);
			status = find_tensor(opening, name, &wanted, &model->layers[layer][role]);
			if (!status && joined)
				model_take_part(&model->shape, role, &model->layers[layer][role]);
		}
	return status;
}

// Whether a tensor belongs to a block after the layers, which predicts further tokens (read_layers).
static bool is_further(const struct model_opening *opening, const char *name)
{
	unsigned long layer;
	char *end;
	if (!(opening->architecture->keys & KEYS_FURTHER) || strncmp(name, "blk.", 4) != 0)
		return false;
	layer = strtoul(name + 4, &end, 10);
	return *end == '.' && layer >= opening->shape->layers && layer < opening->blocks;
}

enum status model_refuse_others(struct model_opening *opening)
{
	for (size_t i = 0; i < gguf_tensor_count(opening->gguf); i++) {
		// A classifier changes nothing of embeddings.
		if (opening->used[i] || is_further(opening, gguf_tensor(opening->gguf, i)->name) ||
		    (opening->shape->encoder && !strncmp(gguf_tensor(opening->gguf, i)->name, "cls.", 4)))
			continue;
		char what[2 * GGUF_NAME_BYTES];
		snprintf(what, sizeof(what), "tensor %s, which %s models do not have",
			 gguf_tensor(opening->gguf, i)->name, opening->architecture->name);
		return model_not_computed(opening, what);
	}
	return STATUS_OK;
}
