/* Experts of a model file: how many there are, how many a token takes, and how wide they are. See model_inside.h. */
#include "engine/model/model_inside.h"

#include <inttypes.h>

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2, WIDTH_MULTIPLE = 2 };

// Groups of experts: a token takes only experts of the best ones.
static enum status read_groups(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	uint32_t groups = 1, used = 1;
	enum status status = model_read_optional(opening, "expert_group_count",
						 (struct model_range){0, MODEL_EXPERT_GROUPS_MOST, 1}, &groups);
	if (status || groups <= 1)
		return status;
	status = model_read_count(opening, "expert_group_used_count", (struct model_range){1, groups, 1}, &used);
	if (status)
		return status;
	if (shape->experts % groups || shape->experts / groups * used < shape->experts_used)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "%" PRIu32 " of %" PRIu32 " experts cannot be taken from %" PRIu32 " of %" PRIu32
				 " groups",
				 shape->experts_used, shape->experts, used, groups);
	shape->expert_groups = groups;
	shape->expert_groups_used = used;
	return STATUS_OK;
}

// The file decides: V2 has softmax, and V3 sigmoids; files of V2 may lack the keys.
static enum status read_weights(struct model_opening *opening)
{
	uint64_t gating = GATING_SOFTMAX;
	bool normalised = false;
	gguf_get_count(opening->gguf, model_key(opening, "expert_gating_func"), &gating);
	if (gating != GATING_SOFTMAX && gating != GATING_SIGMOID)
		return model_not_computed(opening, "experts that are weighed neither by a softmax nor by a sigmoid "
						   "(expert_gating_func)");
	gguf_get_bool(opening->gguf, model_key(opening, "expert_weights_norm"), &normalised);
	opening->shape->expert_sigmoid = gating == GATING_SIGMOID;
	opening->shape->expert_share = !normalised;
	return read_groups(opening);
}

// The architecture decides how scores become weights; a file that says otherwise is refused.
static enum status check_weights(struct model_opening *opening)
{
	const bool sigmoid = opening->architecture->expert_sigmoid;
	const uint64_t wanted = sigmoid ? GATING_SIGMOID : GATING_SOFTMAX;
	uint64_t gating = wanted, groups = 1;
	bool normalised = !opening->architecture->expert_share;
	const bool expected = normalised;
	if (opening->architecture->file_routing)
		return read_weights(opening);
	gguf_get_count(opening->gguf, model_key(opening, "expert_group_count"), &groups);
	if (groups > 1)
		return model_not_computed(opening, "experts in groups");
	gguf_get_count(opening->gguf, model_key(opening, "expert_gating_func"), &gating);
	if (gating != wanted)
		return model_not_computed(opening, sigmoid ? "experts that are not weighed by a sigmoid "
							     "(expert_gating_func)"
							   : "experts that are not weighed by a softmax "
							     "(expert_gating_func)");
	gguf_get_bool(opening->gguf, model_key(opening, "expert_weights_norm"), &normalised);
	if (normalised != expected)
		return model_not_computed(opening, expected ? "weights of experts that do not add up to 1"
							    : "weights of experts that add up to 1");
	return STATUS_OK;
}

// Keys of glm4moe, lfm2moe and deepseek2: first layers without experts, whose width is feed_forward_length; the part
// for all tokens as a count of experts; and a factor of all weights.
static enum status read_routing(struct model_opening *opening, uint32_t width, uint32_t *shared)
{
	struct model_shape *shape = opening->shape;
	uint32_t count = 0;
	double scale = 1;
	const char *key;
	if (!(opening->architecture->keys & KEYS_ROUTING))
		return STATUS_OK;
	enum status status = model_read_optional(opening, "leading_dense_block_count",
						 (struct model_range){0, shape->layers - 1, 1}, &shape->dense_layers);
	if (!status)
		status = model_read_optional(opening, "expert_shared_count",
					     (struct model_range){0, LIMIT_MODEL_WIDTH / shape->expert_width, 1},
					     &count);
	if (status)
		return status;
	key = model_key(opening, "expert_weights_scale");
	gguf_get_number(opening->gguf, key, &scale);
	if (!(scale >= 1e-6) || scale > 1e6)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "%s is not a number from 0.000001 to 1000000",
				 key);
	shape->expert_scale = (float)scale;
	*shared = count * shape->expert_width;
	shape->dense_width = shape->dense_layers ? width : 0;
	if (shape->dense_layers && !width)
		return error_set(opening->error, STATUS_INVALID_PARAMS, "the model file does not say %s",
				 model_key(opening, "feed_forward_length"));
	return STATUS_OK;
}

enum status model_read_experts(struct model_opening *opening)
{
	struct model_shape *shape = opening->shape;
	const struct architecture *architecture = opening->architecture;
	const struct model_range width = {WIDTH_MULTIPLE, LIMIT_MODEL_WIDTH, WIDTH_MULTIPLE};
	// Older files lack expert_shared_feed_forward_length; there the width is that in feed_forward_length.
	uint32_t experts = 0, shared = architecture->shared_gate ? shape->feed_forward : 0;
	enum status status = model_read_optional(opening, "expert_count",
						 (struct model_range){0, LIMIT_MODEL_EXPERTS, 1}, &experts);
	if (status)
		return status;
	if (!experts && architecture->needs_experts)
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "the model file does not say how many experts "
				 "it has (%s)",
				 model_key(opening, "expert_count"));
	if (!experts)
		return STATUS_OK;
	const uint32_t most = experts < LIMIT_MODEL_EXPERTS_USED ? experts : LIMIT_MODEL_EXPERTS_USED;
	shape->experts = experts;
	shape->expert_width = shape->feed_forward;
	status = model_read_count(opening, "expert_used_count", (struct model_range){1, most, 1}, &shape->experts_used);
	if (!status)
		status = shape->feed_forward
				 ? model_read_optional(opening, "expert_feed_forward_length", width,
						       &shape->expert_width)
				 : model_read_count(opening, "expert_feed_forward_length", width, &shape->expert_width);
	if (!status)
		status = model_read_optional(opening, "expert_shared_feed_forward_length",
					     (struct model_range){0, LIMIT_MODEL_WIDTH, WIDTH_MULTIPLE}, &shared);
	if (!status)
		status = read_routing(opening, shape->feed_forward, &shared);
	if (status)
		return status;
	if (shared && !architecture->shared_experts)
		return model_not_computed(opening, "experts that all tokens share");
	shape->feed_forward = shared;
	return check_weights(opening);
}
