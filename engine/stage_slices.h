/* How a stage is cut into slices: see stage.h. The shape of a slice, and its parts of the tensors.
 *
 * Matrices whose output is heads or columns of the feed-forward network are cut by rows; matrices whose input they are
 * are cut by columns. Norms are whole in every slice; only the first slice has the embedding and the output. All slices
 * are alike in size. Thread: one at a time. */
#pragma once
#include "engine/stage.h"

// Errors: STATUS_UNAVAILABLE (it cannot be cut so, with the sizes that stand against it).
enum status slice_shape(const struct model_shape *whole, uint32_t slices, struct model_shape *out, struct error *error);

// Serves the `tensor` and `progress` calls of the slices, with a `part` of `source` as their context. If all slices ask
// for a tensor in turn, the whole tensor is requested once. Nothing is copied: for a matrix that is cut by columns a
// slice gets the pitch of its rows.
struct slice_source {
	const struct stage_params *whole;
	uint32_t slices;
	struct slice_part {
		struct slice_source *source;
		uint32_t slice;
		uint64_t loaded_bytes;
	} parts[STAGE_SLICES];
	enum model_role role; // of the tensor that was asked for last; ROLE_UNKNOWN: none
	uint32_t layer;
	struct model_tensor tensor;
};
void slice_source_init(struct slice_source *source, const struct stage_params *whole, uint32_t slices);
enum status slice_tensor(void *part, enum model_role role, uint32_t layer, struct model_tensor *out,
			 struct error *error);
enum status slice_progress(void *part, uint64_t loaded_bytes, struct error *error);
