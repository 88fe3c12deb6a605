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
	int to; // an empty file
	// So many bytes are written. False: give up.
	bool (*progress)(void *context, uint64_t done_bytes, uint64_t all_bytes);
	void *context;
};
// Errors: STATUS_INVALID_PARAMS (something is missing, or contradicts itself), STATUS_UNAVAILABLE (what is not
// converted; a file that cannot be read or written; it was given up), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY; with
// hints.
enum status convert_directory(const struct convert_params *params, struct error *error);
