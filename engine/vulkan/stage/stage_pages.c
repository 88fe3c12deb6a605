/* Pages of a stage on a Vulkan device: set to zero, and out and in (engine/stage_pages.h). These go through memory of
 * the host, as many pages at a time as it has room for: keys of all of them, then values. */
#include "engine/stage_pages.h"

#include "engine/vulkan/stage/stage.h"

#include <string.h>

static const uint64_t moved_bytes = 4ull << 20; // that go at a time; whole pages

static uint32_t up(uint64_t count, uint32_t of)
{
	return (uint32_t)((count + of - 1) / of);
}

static uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

// ---- zeros ----

static enum status zero_some(struct backend_stage *stage, const uint32_t *pages, uint32_t count, struct error *error)
{
	struct {
		uint32_t pages_at, page_fours;
	} push = {stage->places.pages, stage->shape.kv_heads * stage->padded * STAGE_PAGE_TOKENS * 2 / 16};
	struct stage_dispatch dispatch = {.shader = STAGE_ZERO,
					  .groups = {up(push.page_fours, 256), count, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	memcpy(stage->step->pointer + 4ull * stage->places.pages, pages, count * sizeof(*pages));
	enum status status = vulkan_stream_begin(stage->stream, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, error);
	for (uint32_t i = 0; !status && i < stage->params.layer_count; i++) {
		if (stage->layers[i].states)
			continue;
		dispatch.pages = stage->layers[i].set;
		status = stage_dispatch(stage, stage->stream->commands, &dispatch, error);
	}
	return status ? status : vulkan_stage_settle(stage, error);
}

// A slot of each layer with a state.
static enum status zero_state(struct backend_stage *stage, uint32_t slot, struct error *error)
{
	const uint64_t bytes = stage_state_bytes(&stage->shape);
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < stage->params.layer_count; i++)
		if (stage->layers[i].states)
			status = vulkan_fill(stage->stream, stage->layers[i].states, (slot - 1) * bytes, bytes, 0,
					     error);
	return status;
}

enum status vulkan_stage_zero(struct backend_stage *stage, const uint32_t *pages, uint32_t count, struct error *error)
{
	const uint32_t most = least(stage->page_list, stage->device->properties.limits.maxComputeWorkGroupCount[1]);
	const uint32_t end = stage->params.page_count;
	bool states = false;
	enum status status = STATUS_OK;
	for (uint32_t at = 0, next; !status && stage->params.layer_count && at < count; at = next) {
		next = at + 1;
		if (pages[at] >= end) {
			status = zero_state(stage, pages[at] - end + 1, error);
			states = true;
			continue;
		}
		while (next < count && next - at < most && pages[next] < end)
			next++;
		status = zero_some(stage, pages + at, next - at, error);
	}
	return status || !states ? status : vulkan_stage_settle(stage, error);
}

// ---- out and in ----

struct moving {
	struct backend_stage *stage;
	const struct stage_layer *layer;
	struct stage_layout layout;
	uint64_t bytes; // of a page's keys, and of its values
	bool out;
};

// Pages of a buffer to or from `at` in stage->moved; those that lie side by side in one copy.
static enum status copy(const struct moving *moving, struct backend_buffer *buffer, const uint32_t *pages,
			uint32_t count, uint64_t at, struct error *error)
{
	struct backend_buffer *moved = moving->stage->moved;
	enum status status = STATUS_OK;
	for (uint32_t i = 0, run; !status && i < count; i += run) {
		const uint64_t place = pages[i] * moving->bytes, here = at + i * moving->bytes;
		for (run = 1; i + run < count && pages[i + run] == pages[i] + run;)
			run++;
		const struct backend_copy copy = {.to = moving->out ? moved : buffer,
						  .from = moving->out ? buffer : moved,
						  .to_offset = moving->out ? here : place,
						  .from_offset = moving->out ? place : here,
						  .bytes = run * moving->bytes};
		status = vulkan_copy(moving->stage->stream, &copy, error);
	}
	return status;
}

// The keys of page i of `count` in stage->moved; and its values, or NULL.
static uint8_t *keys_at(const struct moving *moving, uint32_t i)
{
	return moving->stage->moved->pointer + i * moving->bytes;
}

static uint8_t *values_at(const struct moving *moving, uint32_t i, uint32_t count)
{
	return moving->layer->values ? keys_at(moving, count + i) : NULL;
}

static enum status transfer(const struct moving *moving, const uint32_t *pages, uint32_t count, struct error *error)
{
	enum status status = copy(moving, moving->layer->keys, pages, count, 0, error);
	if (!status && moving->layer->values)
		status = copy(moving, moving->layer->values, pages, count, count * moving->bytes, error);
	return status ? status : vulkan_stage_settle(moving->stage, error);
}

// *most: pages that go at a time.
static enum status begin(struct moving *moving, struct backend_stage *stage, uint32_t layer, uint32_t *most,
			 struct error *error)
{
	moving->stage = stage;
	moving->layer = &stage->layers[layer];
	moving->layout = stage_layout_of(&stage->shape, stage->padded, 8);
	moving->bytes = stage_layout_bytes(&moving->layout);
	const uint64_t page = moving->bytes * (moving->layer->values ? 2 : 1);
	*most = least(moved_bytes / page ? moved_bytes / page : 1, stage->params.page_count);
	return stage->moved ? STATUS_OK
			    : stage_buffer_make(stage, &stage->moved, *most * page, EXOGPU_MEMORY_HOST, error);
}

enum status vulkan_stage_read_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				    void *to, uint64_t pitch, struct error *error)
{
	struct moving moving = {.out = true};
	uint32_t most;
	enum status status = begin(&moving, stage, layer, &most, error);
	for (uint32_t at = 0, some; !status && at < count; at += some) {
		some = least(count - at, most);
		status = transfer(&moving, pages + at, some, error);
		for (uint32_t i = 0; !status && i < some; i++)
			stage_page_out(&moving.layout, keys_at(&moving, i), values_at(&moving, i, some),
				       (uint8_t *)to + (at + i) * pitch);
	}
	return status;
}

enum status vulkan_stage_write_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				     const void *from, uint64_t pitch, struct error *error)
{
	struct moving moving = {.out = false};
	uint32_t most;
	enum status status = begin(&moving, stage, layer, &most, error);
	for (uint32_t at = 0, some; !status && at < count; at += some) {
		some = least(count - at, most);
		for (uint32_t i = 0; i < some; i++)
			stage_page_in(&moving.layout, keys_at(&moving, i), values_at(&moving, i, some),
				      (const uint8_t *)from + (at + i) * pitch);
		status = transfer(&moving, pages + at, some, error);
	}
	return status;
}
