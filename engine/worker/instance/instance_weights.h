/* The weights of a model file, as its stages hold them: as in the file, or converted when a stage asks for one. Thread:
 * the driver's. */
#pragma once
#include "engine/model/model.h"

struct pool;
struct weights {
	enum tensor_format format; // of 16- and 32-bit weights; FORMAT_UNKNOWN: as in the file
	uint8_t *converted;        // the last tensor
	struct pool *pool;         // that converts; NULL until it is needed
};
// The tensor, good until the next one is asked for. Errors: STATUS_INTERNAL (the model has none), STATUS_OUT_OF_MEMORY.
enum status weights_find(struct weights *weights, const struct model *model, enum model_role role, uint32_t layer,
			 struct model_tensor *out, struct error *error);
void weights_finish(struct weights *weights);
