/* A directory as transformers' save_pretrained writes it, and as models are published in, becomes a model file:
 * config.json, model.safetensors or the files of model.safetensors.index.json, tokenizer.json, and, where they are
 * there, tokenizer_config.json, generation_config.json and chat_template.jinja.
 *
 *   bounded.c      reads files, with a maximum for each
 *   safetensors.c  what tensors there are, and where
 *   config.c       sizes and features; config_rope.c: positions
 *   tensors.c      which tensor becomes which; tensors_copy.c: writes them
 *   vocabulary.c   the tokenizer and the chat template
 *   output.c       the form of a model file
 *
 * Tensors are copied in pieces, in one pass; of the other files each is in memory once. The result is looked into like
 * any model file before it is used. Thread: any that may wait for the disk. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct convert_params {
	const char *directory;
	const char *name; // what the model is called; NULL: as the directory
	int to;           // an empty file
	// So many bytes are written. False: give up.
	bool (*progress)(void *context, uint64_t done_bytes, uint64_t all_bytes);
	void *context;
};
// Errors: STATUS_INVALID_PARAMS (something is missing, or contradicts itself), STATUS_UNAVAILABLE (what is not
// converted; a file that cannot be read or written; it was given up), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY; with
// hints.
enum status convert_directory(const struct convert_params *params, struct error *error);

// Check the texts before the tensors are there: config.json is of a model that is converted, and tokenizer.json and the
// other texts, where they are there, can be read. Errors: those of convert_directory.
enum status convert_check(const char *directory, struct error *error);

enum { CONVERT_NAME_BYTES = 256 };
// The files with tensors that the directory needs, each once, without a folder: those that
// model.safetensors.index.json names, or model.safetensors where there is no index. `names` (LIMIT_MODEL_PARTS).
// Errors: STATUS_INVALID_PARAMS, STATUS_LIMIT_EXCEEDED (too many, or too long an index), STATUS_OUT_OF_MEMORY.
enum status convert_tensor_files(const char *directory, char (*names)[CONVERT_NAME_BYTES], unsigned *count,
				 struct error *error);
