/* See stage_pages.h. */
#include "engine/stage_pages.h"

#include <string.h>

struct stage_layout stage_layout_of(const struct model_shape *shape, uint32_t padded, uint32_t unit)
{
	return (struct stage_layout){shape->kv_heads, shape->head_size, padded, unit};
}

static uint64_t head_bytes(const struct stage_layout *layout)
{
	return (uint64_t)STAGE_PAGE_TOKENS * layout->padded * sizeof(uint16_t);
}

uint64_t stage_layout_bytes(const struct stage_layout *layout)
{
	return layout->heads * head_bytes(layout);
}

// Move the keys or values of a head: `rows` (STAGE_PAGE_TOKENS, size) from or to `block` (padded / unit,
// STAGE_PAGE_TOKENS, unit). With a `unit` that the compiler knows, a unit is one move.
static inline void move(uint8_t *rows, uint8_t *block, uint32_t size, uint32_t unit, bool out)
{
	for (uint32_t token = 0; token < STAGE_PAGE_TOKENS; token++)
		for (uint32_t i = 0; i < size; i += unit) {
			uint8_t *row = rows + 2 * ((size_t)token * size + i);
			uint8_t *place = block + 2 * ((size_t)i * STAGE_PAGE_TOKENS + (size_t)token * unit);
			if (size - i >= unit)
				memcpy(out ? row : place, out ? place : row, 2 * (size_t)unit);
			else
				memcpy(out ? row : place, out ? place : row, 2 * (size_t)(size - i));
		}
}

static void move_head(const struct stage_layout *layout, uint8_t *rows, uint8_t *block, uint32_t unit, bool out)
{
	if (!out && layout->padded != layout->size)
		memset(block, 0, head_bytes(layout));
	if (unit == 1)
		move(rows, block, layout->size, 1, out);
	else if (unit == 8)
		move(rows, block, layout->size, 8, out);
	else
		move(rows, block, layout->size, unit, out);
}

static void move_page(const struct stage_layout *layout, uint8_t *keys, uint8_t *values, uint8_t *page, bool out)
{
	const size_t rows = 2 * (size_t)STAGE_PAGE_TOKENS * layout->size;
	for (uint32_t head = 0; head < layout->heads; head++) {
		move_head(layout, page, keys + head * head_bytes(layout), layout->unit, out);
		page += rows;
		if (!values)
			continue;
		move_head(layout, page, values + head * head_bytes(layout), layout->padded, out);
		page += rows;
	}
}

void stage_page_out(const struct stage_layout *layout, const void *keys, const void *values, void *to)
{
	move_page(layout, (uint8_t *)(uintptr_t)keys, (uint8_t *)(uintptr_t)values, to, true);
}

void stage_page_in(const struct stage_layout *layout, void *keys, void *values, const void *from)
{
	move_page(layout, keys, values, (uint8_t *)(uintptr_t)from, false);
}
