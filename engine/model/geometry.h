/* The shape and the sizes of a model of which only the published numbers are known, not the file: what a prediction of
 * its placement needs. Sizes are estimates: the file's bytes, shared out by how many numbers each part has. Nothing
 * computes with such a shape; a file is read by model_open. Pure. Thread: any. */
#pragma once
#include "engine/model/model.h"

struct model_geometry {
	enum model_family family;
	uint32_t layers, embedding;
	uint32_t feed_forward; // 0: there are experts alone
	uint32_t heads, kv_heads, head_size;
	uint32_t vocabulary, context;
	uint32_t experts, experts_used, expert_width; // 0: none
	struct model_delta delta;                     // zeros: no layer has a gated delta rule
	enum model_pooling pooling;
	bool tied;
	enum tensor_format format; // of most weights
	uint64_t bytes;            // of the file
};
// Errors: STATUS_INVALID_PARAMS (a number beyond the limits of struct model_shape, or that contradicts another, by
// name).
enum status model_geometry_shape(const struct model_geometry *geometry, struct model_shape *shape,
				 struct model_sizes *sizes, struct error *error);
