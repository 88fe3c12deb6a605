/* Between the form of a page that all back ends share (stage_read_pages of stage.h) and the layout of a back end's own.
 * Thread: any. */
#pragma once
#include "engine/stage.h"

// Where a back end keeps the keys and values of a page and layer, all f16. A head's numbers are filled up with zeros.
//     keys   (heads, padded / unit, STAGE_PAGE_TOKENS, unit)
//     values (heads, STAGE_PAGE_TOKENS, padded); of latents there are keys alone
struct stage_layout {
	uint32_t heads, size, padded;
	uint32_t unit; // numbers of a key that lie side by side: 1, 8 or all of `padded`
};
// The layout of the whole model, or of a slice.
struct stage_layout stage_layout_of(const struct model_shape *shape, uint32_t padded, uint32_t unit);
// Keys of all heads of a page; its values take the same, or, of latents, nothing.
uint64_t stage_layout_bytes(const struct stage_layout *layout);

// One page (stage_page_bytes, at any address). values: NULL of latents.
void stage_page_out(const struct stage_layout *layout, const void *keys, const void *values, void *to);
void stage_page_in(const struct stage_layout *layout, void *keys, void *values, const void *from);
