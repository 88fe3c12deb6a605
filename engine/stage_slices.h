/* How a stage is cut into slices: see stage.h. What a slice is, as a shape of its own, and its parts of tensors.
 *
 * Matrices that make heads or columns of the feed-forward network are cut by rows, those that take them by columns;
 * norms are whole in every slice, embedding and output are the first one's alone. All slices are alike in size.
 * Thread: one at a time. */
#pragma once
#include "engine/stage.h"

// Errors: STATUS_UNAVAILABLE (it cannot be cut so, with the sizes that stand against it).
enum status slice_shape(const struct model_shape *whole, uint32_t slices, struct model_shape *out, struct error *error);

// Where stage_params.tensor and progress go while a slice is made.
struct slice_source {
	const struct stage_params *whole;
	uint32_t slice, slices;
	uint8_t *part;         // of the last tensor that was cut by columns
	uint64_t before_bytes; // of the slices that are made
};
enum status slice_tensor(void *source, enum model_role role, uint32_t layer, struct model_tensor *out,
			 struct error *error);
enum status slice_progress(void *source, uint64_t loaded_bytes, struct error *error);
void slice_source_finish(struct slice_source *source);
