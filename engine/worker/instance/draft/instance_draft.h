/* An instance's draft model: its file, its one stage on the device of the last stage, and its texts (drafter.h).
 * Thread: the driver's. */
#pragma once
#include "engine/generation/draft/drafter.h"
#include "engine/worker/instance/instance.h"

struct instance_draft;

// `params`: instance.load's `draft`. Errors: STATUS_INVALID_PARAMS (its tokens are others than the model's, or it
// cannot take tokens back), STATUS_OUT_OF_MEMORY (with how much was missing), those of gguf_open, model_open and
// stage_create.
enum status instance_draft_load(struct instance *instance, const struct json *params, struct exogpu_device *device,
				struct error *error);
void instance_draft_unload(struct instance *instance); // before its device is closed, and after the generator
struct drafter *instance_drafter(const struct instance *instance);   // NULL: it has none
struct json *instance_draft_memory(const struct instance *instance); // what it takes, as instance.load answers it
