/* What config.json says of rotary positions: config.c reads the rest. Not for others. */
#pragma once
#include "server/convert/config.h"

#include <stdio.h>

struct config_reading {
	const struct json *config;
	struct model_config *out;
	struct output_keys *keys;
	uint32_t context; // max_position_embeddings
	char key[GGUF_NAME_BYTES + 32];
	struct error *error;
};

// A key of the architecture, good until the next is asked for.
const char *config_key(struct config_reading *in, const char *name);
enum status config_refuse(const struct config_reading *in, const char *what);

// Once sizes are known. Errors: see config_read.
enum status config_read_rope(struct config_reading *in);
