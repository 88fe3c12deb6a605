/* Keys and values of whole pages, out and in (engine/stage_pages.h): through pinned memory, as many pages at a time as
 * it has room for. */
#include "engine/stage_pages.h"

#include "engine/cuda/stage/stage.h"

static const uint64_t moved_bytes = 4ull << 20; // that go at a time; whole pages

struct moving {
	struct backend_stage *stage;
	struct stage_layout layout;
	CUdeviceptr kv; // of the layer
	uint64_t bytes; // of a page
	uint32_t most;  // pages that go at a time
	bool out;
};

static uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

static enum status begin(struct moving *moving, struct backend_stage *stage, uint32_t layer, struct error *error)
{
	const uint64_t bytes = stage_kv_page(stage);
	moving->stage = stage;
	moving->layout = stage_layout_of(&stage->shape, stage->head_padded, stage->head_padded);
	moving->kv = stage->kv + stage->layers[layer].place * stage->params.page_count * bytes;
	moving->bytes = bytes;
	moving->most = least(moved_bytes / bytes ? moved_bytes / bytes : 1, stage->params.page_count);
	enum status status = cuda_check(stage->device, error, "cuCtxSetCurrent", cuda_enter(stage->device));
	if (!status && !stage->moved)
		status = stage_take(stage, &stage->moved, moving->most * bytes, true, error);
	return status;
}

// Adjacent pages are one copy.
static enum status transfer(const struct moving *moving, const uint32_t *pages, uint32_t count, struct error *error)
{
	const struct backend_stage *stage = moving->stage;
	CUresult result = CUDA_SUCCESS;
	for (uint32_t i = 0, run; !result && i < count; i += run) {
		const CUdeviceptr place = moving->kv + pages[i] * moving->bytes,
				  host = stage->moved + i * moving->bytes;
		for (run = 1; i + run < count && pages[i + run] == pages[i] + run;)
			run++;
		result = stage->cuda->cuMemcpyAsync(moving->out ? host : place, moving->out ? place : host,
						    run * moving->bytes, stage->stream);
	}
	if (!result)
		return stage_wait(moving->stage, error);
	if (!cuda_lost(result)) // those before may be on their way
		stage_wait(moving->stage, &(struct error){0});
	return cuda_check(stage->device, error, "cuMemcpyAsync", result);
}

// The keys of page i of stage->moved; and its values, or NULL.
static uint8_t *keys_at(const struct moving *moving, uint32_t i)
{
	return (uint8_t *)(uintptr_t)(moving->stage->moved + i * moving->bytes);
}

static uint8_t *values_at(const struct moving *moving, uint32_t i)
{
	return model_is_latent(&moving->stage->shape) ? NULL : keys_at(moving, i) + stage_layout_bytes(&moving->layout);
}

enum status cuda_stage_read_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				  void *to, uint64_t pitch, struct error *error)
{
	struct moving moving = {.out = true};
	enum status status = begin(&moving, stage, layer, error);
	for (uint32_t at = 0, some; !status && at < count; at += some) {
		some = least(count - at, moving.most);
		status = transfer(&moving, pages + at, some, error);
		for (uint32_t i = 0; !status && i < some; i++)
			stage_page_out(&moving.layout, keys_at(&moving, i), values_at(&moving, i),
				       (uint8_t *)to + (at + i) * pitch);
	}
	return status;
}

enum status cuda_stage_write_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				   const void *from, uint64_t pitch, struct error *error)
{
	struct moving moving = {.out = false};
	enum status status = begin(&moving, stage, layer, error);
	for (uint32_t at = 0, some; !status && at < count; at += some) {
		some = least(count - at, moving.most);
		for (uint32_t i = 0; i < some; i++)
			stage_page_in(&moving.layout, keys_at(&moving, i), values_at(&moving, i),
				      (const uint8_t *)from + (at + i) * pitch);
		status = transfer(&moving, pages + at, some, error);
	}
	return status;
}
