// See instance_weights.h.
#include "engine/worker/instance/instance_weights.h"

#include "engine/model/convert.h"
#include "engine/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
	CONVERT_THREADS = 16,
	CONVERT_VALUES = 65536, // at once
};

struct converting {
	const struct model_tensor *tensor, *held;
	uint8_t *to;
	uint32_t at_once; // rows
	atomic_bool failed;
};

static void convert_some(void *context, uint64_t index)
{
	struct converting *converting = context;
	const uint32_t rows = converting->tensor->rows, first = (uint32_t)index * converting->at_once,
		       count = rows - first < converting->at_once ? rows - first : converting->at_once;
	if (model_convert(converting->tensor, converting->held, first, count,
			  converting->to + converting->held->bytes / rows * first))
		atomic_store(&converting->failed, true);
}

static enum status convert(struct weights *weights, const struct model_tensor *tensor, struct model_tensor *held,
			   struct error *error)
{
	struct converting converting = {
		.tensor = tensor, .held = held, .at_once = CONVERT_VALUES / tensor->columns + 1};
	if (!weights->pool && pool_create(&weights->pool, pool_processors(CONVERT_THREADS), error))
		return error->status;
	free(weights->converted);
	weights->converted = converting.to = malloc(held->bytes);
	if (converting.to)
		pool_run(weights->pool, convert_some, &converting,
			 (tensor->rows + converting.at_once - 1) / converting.at_once);
	if (!converting.to || atomic_load(&converting.failed))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to convert a tensor of %llu bytes",
				 (unsigned long long)tensor->bytes);
	held->data = weights->converted;
	return STATUS_OK;
}

enum status weights_find(struct weights *weights, const struct model *model, enum model_role role, uint32_t layer,
			 struct model_tensor *out, struct error *error)
{
	struct model_tensor tensor;
	if (!model_tensor(model, role, layer, &tensor))
		return error_set(error, STATUS_INTERNAL, "the model has no tensor of role %d in layer %u", (int)role,
				 layer);
	model_tensor_as(&tensor, weights->format, out);
	return out->data ? STATUS_OK : convert(weights, &tensor, out, error);
}

void weights_finish(struct weights *weights)
{
	free(weights->converted);
	weights->converted = NULL;
	pool_destroy(&weights->pool);
}
