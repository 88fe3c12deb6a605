/* The CPU back end: keys and values of whole pages, out and in (engine/stage_pages.h). A piece is a page. */
#include "engine/stage_pages.h"

#include "engine/cpu/stage/stage.h"

struct moving {
	struct stage_layout layout;
	uint8_t *kv; // of the layer
	const uint32_t *pages;
	uint8_t *to; // or
	const uint8_t *from;
	uint64_t pitch;
	bool latents;
};

static void move_piece(void *context, uint64_t i)
{
	const struct moving *moving = context;
	const uint64_t half = stage_layout_bytes(&moving->layout);
	uint8_t *keys = moving->kv + moving->pages[i] * (moving->latents ? half : 2 * half);
	uint8_t *values = moving->latents ? NULL : keys + half;
	if (moving->to)
		stage_page_out(&moving->layout, keys, values, moving->to + i * moving->pitch);
	else
		stage_page_in(&moving->layout, keys, values, moving->from + i * moving->pitch);
}

static enum status move_pages(struct backend_stage *stage, uint32_t layer, struct moving *moving, uint32_t count,
			      struct error *error)
{
	const struct model_shape *shape = stage->shape;
	moving->latents = model_is_latent(shape);
	moving->layout = stage_layout_of(shape, shape->head_size, moving->latents ? shape->head_size : 1);
	moving->kv = cpu_pages_of(stage, &stage->layers[layer]);
	pool_run(stage->device->pool, move_piece, moving, count);
	return pool_stopped(stage->device->pool)
		       ? error_set(error, STATUS_DEVICE_LOST, "the device was closed while pages were copied")
		       : STATUS_OK;
}

enum status cpu_stage_read_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				 void *to, uint64_t pitch, struct error *error)
{
	struct moving moving = {.pages = pages, .to = to, .pitch = pitch};
	return move_pages(stage, layer, &moving, count, error);
}

enum status cpu_stage_write_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				  const void *from, uint64_t pitch, struct error *error)
{
	struct moving moving = {.pages = pages, .from = from, .pitch = pitch};
	return move_pages(stage, layer, &moving, count, error);
}
