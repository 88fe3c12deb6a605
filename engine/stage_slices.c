/* See stage_slices.h. */
#include "engine/stage_slices.h"

enum status slice_shape(const struct model_shape *whole, uint32_t slices, struct model_shape *out, struct error *error)
{
	// Columns in groups of 32, as a whole model has them (model.h).
	const struct {
		const char *what;
		uint32_t count, by;
	} parts[] = {
		{"heads of queries", whole->heads, 1},
		{"heads of keys", whole->kv_heads, 1},
		{"columns of its feed-forward network", whole->feed_forward, 32},
	};
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].count % (slices * parts[i].by)) {
			error_hint(error, "take another number of devices for a stage, or stages one behind another");
			return error_set(error, STATUS_UNAVAILABLE, "the model's %u %s cannot be cut into %u slices",
					 parts[i].count, parts[i].what, slices);
		}
	if (whole->experts) {
		error_hint(error, "take stages one behind another");
		return error_set(error, STATUS_UNAVAILABLE, "a model (%s) with experts cannot be cut into slices",
				 model_family_name(whole->family));
	}
	if (model_is_recurrent(whole)) {
		error_hint(error, "take stages one behind another");
		return error_set(error, STATUS_UNAVAILABLE, "a model (%s) with %s cannot be cut into slices",
				 model_family_name(whole->family), model_delta_name(&whole->delta));
	}
	if (!model_can_slice(whole)) {
		error_hint(error, "take stages one behind another");
		return error_set(error, STATUS_UNAVAILABLE,
				 "a model (%s) whose norms go over all heads cannot be cut into slices",
				 model_family_name(whole->family));
	}
	*out = *whole;
	out->heads /= slices;
	out->kv_heads /= slices;
	out->feed_forward /= slices;
	return STATUS_OK;
}

enum cut { CUT_NONE, CUT_ROWS, CUT_COLUMNS };

// A bias is one row: its columns are what the rows of its matrix are.
static enum cut cut_of(enum model_role role)
{
	switch (role) {
	case ROLE_Q:
	case ROLE_K:
	case ROLE_V:
	case ROLE_FFN_GATE:
	case ROLE_FFN_UP:
		return CUT_ROWS;
	case ROLE_Q_BIAS:
	case ROLE_K_BIAS:
	case ROLE_V_BIAS:
	case ROLE_ATTENTION_OUTPUT:
	case ROLE_FFN_DOWN:
		return CUT_COLUMNS;
	case ROLE_UNKNOWN:
	case ROLE_TOKEN_EMBEDDING:
	case ROLE_POSITIONS: // no encoder is cut
	case ROLE_TYPES:
	case ROLE_EMBEDDING_NORM:
	case ROLE_EMBEDDING_BIAS:
	case ROLE_HEAD:
	case ROLE_HEAD_BIAS:
	case ROLE_SCORE:
	case ROLE_SCORE_BIAS:
	case ROLE_ATTENTION_OUTPUT_BIAS:
	case ROLE_ATTENTION_POST_BIAS:
	case ROLE_FFN_UP_BIAS:
	case ROLE_FFN_DOWN_BIAS:
	case ROLE_FFN_POST_BIAS:
	case ROLE_OUTPUT_NORM:
	case ROLE_OUTPUT:
	case ROLE_ATTENTION_NORM:
	case ROLE_Q_NORM:
	case ROLE_K_NORM:
	case ROLE_ATTENTION_POST_NORM:
	case ROLE_FFN_NORM:
	case ROLE_FFN_POST_NORM:
	case ROLE_ROUTER: // no model with experts is cut
	case ROLE_EXPERT_GATE:
	case ROLE_EXPERT_UP:
	case ROLE_EXPERT_DOWN:
	case ROLE_SHARED_GATE:
	case ROLE_Q_A: // nor one with latents
	case ROLE_K_B:
	case ROLE_V_B:
	case ROLE_DELTA_QKV: // nor one with states
	case ROLE_DELTA_GATE:
	case ROLE_DELTA_BETA:
	case ROLE_DELTA_ALPHA:
	case ROLE_DELTA_CONV:
	case ROLE_DELTA_DECAY:
	case ROLE_DELTA_BIAS:
	case ROLE_DELTA_NORM:
	case ROLE_DELTA_OUTPUT:
	case ROLE_SINKS:
	case ROLE_ROUTER_BIAS:
	case ROLE_ROUTER_CHOICE:
	case ROLE_EXPERT_GATE_BIAS:
	case ROLE_EXPERT_UP_BIAS:
	case ROLE_EXPERT_DOWN_BIAS:
	case ROLE_COUNT:
		return CUT_NONE;
	}
	return CUT_NONE;
}

// The part of each row. A row can be cut only between two blocks of its format.
static enum status cut_columns(const struct slice_part *part, struct model_tensor *tensor, struct error *error)
{
	const struct format_info *info = format_info(tensor->format);
	const uint32_t slices = part->source->slices, columns = tensor->columns / slices;
	const uint64_t row_bytes = tensor->bytes / tensor->rows, part_bytes = row_bytes / slices;
	if (tensor->columns % slices || columns % info->block_values) {
		error_hint(error, "take fewer devices for a stage, or a format of smaller blocks");
		return error_set(error, STATUS_UNAVAILABLE, "rows of %u in %s, by blocks of %u, cannot be cut into %u",
				 tensor->columns, info->name, (unsigned)info->block_values, slices);
	}
	tensor->pitch = model_tensor_pitch(tensor);
	tensor->columns = columns;
	tensor->data += part->slice * part_bytes;
	tensor->bytes = part_bytes * tensor->rows;
	return STATUS_OK;
}

static enum status ask_whole(struct slice_source *source, enum model_role role, uint32_t layer, struct error *error)
{
	if (source->role == role && source->layer == layer)
		return STATUS_OK;
	source->role = ROLE_UNKNOWN;
	enum status status = source->whole->tensor(source->whole->context, role, layer, &source->tensor, error);
	if (status)
		return status;
	source->role = role;
	source->layer = layer;
	return STATUS_OK;
}

void slice_source_init(struct slice_source *source, const struct stage_params *whole, uint32_t slices)
{
	*source = (struct slice_source){.whole = whole, .slices = slices};
	for (uint32_t i = 0; i < slices; i++)
		source->parts[i] = (struct slice_part){.source = source, .slice = i};
}

enum status slice_tensor(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			 struct error *error)
{
	const struct slice_part *part = context;
	struct slice_source *source = part->source;
	enum cut cut = cut_of(role);
	enum status status = ask_whole(source, role, layer, error);
	*out = source->tensor;
	if (status || cut == CUT_NONE)
		return status;
	if (cut == CUT_COLUMNS)
		return cut_columns(part, out, error);
	out->rows /= source->slices; // slice_shape has seen that they can be divided
	out->bytes /= source->slices;
	out->data += part->slice * out->bytes;
	return STATUS_OK;
}

enum status slice_progress(void *context, uint64_t loaded_bytes, struct error *error)
{
	struct slice_part *part = context;
	struct slice_source *source = part->source;
	uint64_t bytes = 0;
	part->loaded_bytes = loaded_bytes;
	for (uint32_t i = 0; i < source->slices; i++)
		bytes += source->parts[i].loaded_bytes;
	return source->whole->progress(source->whole->context, bytes, error);
}
