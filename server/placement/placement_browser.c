/* What a browser's GPU computes of models: dense layers of the plain kind, between others. See ui/src/lend/gpu/stage,
 * whose kernels these are. */
#include "server/placement/placement_inside.h"

enum { GROUP = 32, HEAD_SIZE_MOST = 256 }; // as ui/src/lend/gpu/stage/formats.ts and kernels.ts have them

static const char *refused_layers(const struct model_shape *shape)
{
	if (shape->encoder)
		return "a browser does not compute encoders";
	if (model_is_recurrent(shape))
		return "a browser does not compute layers with a state";
	if (model_is_latent(shape))
		return "a browser does not compute attention to latents (MLA)";
	if (shape->experts)
		return "a browser does not compute experts";
	if (shape->gated_attention || shape->sinks || shape->attention_cap > 0)
		return "a browser does not compute attention with gates, sinks or a cap";
	if (shape->qk_norm == QK_NORM_WHOLE || shape->bare_input || shape->post_norm)
		return "a browser does not compute norms behind or around what this model's layers add";
	if (shape->output_bias || shape->biases)
		return "a browser does not compute biases other than those of q, k and v";
	if (shape->gate != GATE_SILU && shape->gate != GATE_GELU)
		return "a browser does not compute this model's gate";
	for (uint32_t i = 0; i < shape->layers; i++)
		if (shape->layer_kinds[i] & (LAYER_SLIDES | LAYER_LOCAL))
			return "a browser does not compute layers that attend to a window of positions, or turn "
			       "otherwise";
	return NULL;
}

const char *browser_refuses(const struct placement_wanted *wanted)
{
	const struct model_shape *shape = wanted->shape;
	const char *refused = refused_layers(shape);
	if (refused)
		return refused;
	if (shape->embedding % GROUP || shape->feed_forward % GROUP || shape->heads * shape->head_size % GROUP ||
	    shape->head_size > HEAD_SIZE_MOST)
		return "a browser computes rows of whole groups of 32 values, and heads of 256 values at most";
	if (wanted->sizes->format_bytes[FORMAT_MXFP4])
		return "a browser does not compute MXFP4";
	if (wanted->format != FORMAT_UNKNOWN || wanted->may_shrink)
		return "a browser holds weights as they are in the file, in no smaller format";
	return NULL;
}
