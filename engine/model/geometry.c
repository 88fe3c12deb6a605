/* See geometry.h. The matrices that are counted are those of enum model_role; vectors but the norms are left out: they
 * are less than a thousandth. */
#include "engine/model/geometry.h"

#include "engine/model/architecture.h"

// Numbers in the matrices of a layer.
static uint64_t attention_numbers(const struct model_shape *shape)
{
	const uint64_t rows = (uint64_t)shape->heads * (model_query_rows(shape) + shape->head_size) +
			      2ull * shape->kv_heads * shape->head_size;
	return rows * shape->embedding;
}

static uint64_t delta_numbers(const struct model_shape *shape)
{
	const struct model_delta *delta = &shape->delta;
	const uint64_t channels = model_delta_channels(delta),
		       rows = channels + 2ull * delta->heads * delta->value_size + 2ull * delta->heads;
	return rows * shape->embedding + channels * delta->kernel;
}

static uint64_t experts_numbers(const struct model_shape *shape)
{
	return 3ull * shape->experts * shape->expert_width * shape->embedding;
}

static uint64_t layer_numbers(const struct model_shape *shape, uint32_t layer)
{
	const uint64_t matrices = shape->gate == GATE_NONE ? 2 : 3;
	return (shape->layer_kinds[layer] & LAYER_DELTA ? delta_numbers(shape) : attention_numbers(shape)) +
	       matrices * shape->feed_forward * shape->embedding + experts_numbers(shape) +
	       (uint64_t)shape->experts * shape->embedding + 2ull * shape->embedding +
	       (shape->qk_norm == QK_NORM_HEADS ? 2ull * shape->head_size : 0);
}

static enum status wrong(struct error *error, const char *what)
{
	return error_set(error, STATUS_INVALID_PARAMS, "%s of a model cannot be so", what);
}

static enum status check(const struct model_geometry *of, const struct architecture *architecture, struct error *error)
{
	const struct model_delta *delta = &of->delta;
	if (!architecture)
		return error_set(error, STATUS_INVALID_PARAMS, "this architecture is not computed");
	if (!of->layers || of->layers > LIMIT_MODEL_LAYERS)
		return wrong(error, "layers");
	if (!of->embedding || of->embedding > LIMIT_MODEL_WIDTH || of->embedding % 2)
		return wrong(error, "embedding");
	if (of->feed_forward > LIMIT_MODEL_WIDTH || (!of->feed_forward && !of->experts))
		return wrong(error, "feed_forward");
	if (!of->heads || of->heads > LIMIT_MODEL_HEADS)
		return wrong(error, "heads");
	if (!of->kv_heads || of->heads % of->kv_heads)
		return wrong(error, "kv_heads");
	if (!of->head_size || of->head_size > LIMIT_MODEL_HEAD_SIZE || of->head_size % 2)
		return wrong(error, "head_size");
	if (!of->vocabulary || of->vocabulary > LIMIT_MODEL_VOCABULARY)
		return wrong(error, "vocabulary");
	if (!of->context || of->context > LIMIT_MODEL_CONTEXT)
		return wrong(error, "context");
	if (architecture->needs_experts != (of->experts > 0) && !(architecture->keys & KEYS_EXPERTS))
		return wrong(error, "experts");
	if (of->experts > LIMIT_MODEL_EXPERTS || (architecture->needs_experts && !of->experts))
		return wrong(error, "experts");
	if (of->experts &&
	    (!of->experts_used || of->experts_used > of->experts || of->experts_used > LIMIT_MODEL_EXPERTS_USED))
		return wrong(error, "experts_used");
	if (of->experts && (!of->expert_width || of->expert_width > LIMIT_MODEL_WIDTH))
		return wrong(error, "expert_width");
	if (architecture->convolves || architecture->latent) // which layers attend, and sizes of latents, a file says
		return wrong(error, "family");
	if (architecture->recurrent != (delta->heads > 0))
		return wrong(error, "delta");
	if (delta->heads &&
	    (delta->heads > LIMIT_MODEL_HEADS || !delta->key_heads || delta->heads % delta->key_heads ||
	     !delta->key_size || delta->key_size > LIMIT_MODEL_HEAD_SIZE || !delta->value_size ||
	     delta->value_size > LIMIT_MODEL_HEAD_SIZE || !delta->kernel || delta->kernel > MODEL_KERNEL_MOST))
		return wrong(error, "delta");
	if (of->format == FORMAT_UNKNOWN)
		return wrong(error, "format");
	return of->bytes ? STATUS_OK : wrong(error, "bytes");
}

static void fill_shape(const struct model_geometry *of, const struct architecture *architecture,
		       struct model_shape *shape)
{
	*shape = (struct model_shape){.family = of->family,
				      .layers = of->layers,
				      .embedding = of->embedding,
				      .feed_forward = of->feed_forward,
				      .heads = of->heads,
				      .kv_heads = of->kv_heads,
				      .head_size = of->head_size,
				      .vocabulary = of->vocabulary,
				      .context = of->context,
				      .gate = architecture->gate,
				      .post_norm = architecture->post_norm,
				      .bare_input = architecture->bare_input,
				      .qk_norm = architecture->qk_norm,
				      .rope_size = of->head_size,
				      .rope_halves = architecture->rope_halves,
				      .qkv_bias = architecture->qkv_bias,
				      .output_bias = architecture->output_bias,
				      .sinks = architecture->sinks,
				      .tied = of->tied,
				      .experts = of->experts,
				      .experts_used = of->experts_used,
				      .expert_width = of->expert_width,
				      .expert_share = architecture->expert_share,
				      .expert_bias = architecture->expert_bias,
				      .expert_sigmoid = architecture->expert_sigmoid,
				      .shared_gate = architecture->shared_gate,
				      .delta = of->delta,
				      .gated_attention = architecture->gated_attention,
				      .pooling = of->pooling,
				      .encoder = architecture->encoder,
				      .turned = architecture->turned,
				      .biases = architecture->biases};
	shape->delta.grouped = architecture->grouped_heads;
	for (uint32_t i = 0; architecture->recurrent && i < shape->layers; i++)
		shape->layer_kinds[i] = (i + 1) % architecture->whole_every ? LAYER_DELTA : 0;
}

// Experts in MXFP4 have that format, and all else is wider; in other files everything counts alike.
static void fill_sizes(const struct model_geometry *of, const struct model_shape *shape, struct model_sizes *sizes)
{
	uint64_t layers = 0, largest = 0;
	const uint64_t table = (uint64_t)shape->vocabulary * shape->embedding,
		       experts = experts_numbers(shape) * shape->layers;
	for (uint32_t i = 0; i < shape->layers; i++) {
		const uint64_t numbers = layer_numbers(shape, i);
		layers += numbers;
		largest = numbers > largest ? numbers : largest;
	}
	const uint64_t all = layers + (shape->tied ? 1 : 2) * table + shape->embedding;
	const double even = (double)of->bytes / (double)all;
	const struct format_info *format = format_info(of->format);
	double of_experts = even, of_others = even;
	if (of->format == FORMAT_MXFP4 && experts) {
		of_experts = (double)format->block_bytes / format->block_values;
		of_others = ((double)of->bytes - of_experts * (double)experts) / (double)(all - experts);
		if (of_others <= 0)
			of_experts = of_others = even;
	}
	const double expert_bytes = of_experts * (double)experts;
	*sizes = (struct model_sizes){
		.parameters = all,
		.embedding_bytes = (uint64_t)(of_others * (double)table),
		.output_bytes = (uint64_t)(of_others * (double)table),
		.layers_bytes = (uint64_t)(of_others * (double)(layers - experts) + expert_bytes),
		.expert_bytes = (uint64_t)expert_bytes,
		.main_format = of->format,
	};
	sizes->layer_bytes = (uint64_t)((double)sizes->layers_bytes * ((double)largest / (double)layers));
	sizes->format_bytes[of->format] = of->bytes;
}

enum status model_geometry_shape(const struct model_geometry *geometry, struct model_shape *shape,
				 struct model_sizes *sizes, struct error *error)
{
	const struct architecture *architecture = architecture_of(geometry->family);
	enum status status = check(geometry, architecture, error);
	if (status)
		return status;
	fill_shape(geometry, architecture, shape);
	fill_sizes(geometry, shape, sizes);
	return STATUS_OK;
}
