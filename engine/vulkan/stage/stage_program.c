/* Records the dispatches of a part of a step into secondary command buffers. See stage.h.
 *
 * Parts of one shape have the same commands, so the commands of the last few shapes are kept. A part with more work
 * than stage_segment_operations is cut between layers into several command buffers, each a submission of its own: such
 * a piece takes a large GPU milliseconds and a small one a second or two, and drivers give up after ten. */
#include "engine/vulkan/stage/stage_program.h"

#include <stdlib.h>
#include <string.h>

enum {
	PRODUCT_LANES = 64, // stage_product.comp
	PRODUCT_BATCH = 8,
	PRODUCT_BATCH_SOFTWARE = 4,
	TILE = 64, // stage_tile.comp
	HEAD_LANES = STAGE_HEAD_LANES,
	NONE = STAGE_NO_NORM,
};
double stage_segment_operations = 1e11;

static uint32_t up(uint64_t count, uint32_t of)
{
	return (uint32_t)((count + of - 1) / of);
}

// Rows that stage_product.comp takes at once.
bool stage_rows_are_few(const struct backend_stage *stage, uint32_t rows)
{
	return rows <= (stage->device->gpu ? PRODUCT_BATCH : PRODUCT_BATCH_SOFTWARE);
}

void stage_record_barrier(const struct stage_recorder *recorder)
{
	stage_barrier(recorder->stage, recorder->commands);
}

// ---- products ----

struct push_matrix {
	uint32_t groups, bits, scales, tops;
};

static struct push_matrix push_matrix(const struct stage_matrix *matrix, const struct stage_chunk *chunk)
{
	return (struct push_matrix){matrix->groups, chunk->planes[1], chunk->planes[2], chunk->planes[3]};
}

// Rows of the matrix that a group of stage_product.comp makes. Where weights are small, what they are multiplied with
// is most of what a GPU's invocations read: it is then used more often.
static uint32_t product_rows(const struct backend_stage *stage, enum tensor_format format, uint32_t batch)
{
	const struct format_info *info = format_info(format);
	return stage->device->gpu && info->block_bytes < info->block_values && batch <= 2 ? 4 : 2;
}

static enum status record_chunk(const struct stage_recorder *recorder, const struct stage_product *product,
				const struct stage_chunk *chunk)
{
	struct backend_stage *stage = recorder->stage;
	const uint32_t *most = stage->device->properties.limits.maxComputeWorkGroupCount;
	uint32_t format = product->matrix->format, epilogue = product->epilogue;
	uint32_t batch = 1, matrices = epilogue == STAGE_PAIR ? 2 : 1;
	epilogue += epilogue >= STAGE_GATE ? 4 * stage->shape.gate : 0; // stage_epilogue.glsl
	const bool few = stage_rows_are_few(stage, product->rows), heads = product->heads;
	const bool experts = product->experts || heads;
	const uint32_t used = heads ? stage->shape.heads : stage->shape.experts_used, slots = product->rows * used;
	const uint32_t each = experts ? product->matrix->rows / (heads ? used : stage->shape.experts) : chunk->rows;
	while (few && !experts && batch < product->rows)
		batch *= stage->device->gpu ? 2 : 4; // a processor takes long to compile each
	uint32_t rows = product_rows(stage, product->matrix->format, batch), groups = up(each, rows / matrices);
	struct {
		struct push_matrix matrix;
		uint32_t rows, batch_rows, first, columns, to_groups, gain;
		float width, epsilon;
		uint32_t used, by_slot, first_expert, experts, slots;
		uint32_t bias, second_bias;
	} push = {push_matrix(product->matrix, chunk),
		  each,
		  experts ? 1 : product->rows,
		  experts ? 0 : chunk->first_row,
		  product->stride ? product->stride
		  : experts       ? each
				  : product->matrix->rows,
		  stage_groups_of(experts ? each : product->matrix->rows),
		  product->norm == NONE ? 0 : (uint32_t)product->norm / 4,
		  (float)product->matrix->columns,
		  stage->shape.norm_epsilon,
		  used,
		  product->by_slot,
		  chunk->first_row / each,
		  chunk->rows / each,
		  slots,
		  product->bias ? *product->bias : UINT32_MAX,
		  product->second_bias ? *product->second_bias : UINT32_MAX};
	struct stage_dispatch dispatch = {
		.shader = few ? STAGE_PRODUCT : STAGE_TILE,
		.from = product->from,
		.to = product->to,
		.also = product->also ? product->also : product->from,
		.lists = heads     ? stage->latent.lists
			 : experts ? stage->experts.lists
				   : NULL,
		.weights = chunk->set,
		.push = &push,
		.push_bytes = sizeof(push),
	};
	if (few) {
		uint32_t wide = groups < most[0] ? groups : most[0];
		dispatch.constants = (struct stage_constants){
			{PRODUCT_LANES, format, epilogue, batch, product->norm != NONE, rows, experts}};
		memcpy(dispatch.groups, (uint32_t[3]){wide, up(groups, wide), experts ? slots : 1},
		       sizeof(dispatch.groups));
	} else {
		dispatch.constants = (struct stage_constants){{0, format, epilogue, 0, 0, 0, experts}};
		memcpy(dispatch.groups,
		       (uint32_t[3]){up(each, TILE / matrices), up(product->rows, TILE), experts ? push.experts : 1},
		       sizeof(dispatch.groups));
	}
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

// No barrier behind it.
enum status stage_record_product(const struct stage_recorder *recorder, const struct stage_product *product)
{
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < product->matrix->chunk_count; i++) {
		if (i)
			stage_record_barrier(
				recorder); // they write parts of one buffer, which is all that a barrier knows
		status = record_chunk(recorder, product, &product->matrix->chunks[i]);
	}
	return status;
}

// ---- norms and moves ----

// rows_at: where the list of rows is in `step`; 0: all, one after the other.
static enum status record_norm(const struct stage_recorder *recorder, uint32_t gain, uint32_t rows, uint32_t rows_at)
{
	struct backend_stage *stage = recorder->stage;
	struct {
		uint32_t groups, rows_at, gain;
		float width, epsilon;
	} push = {stage_groups_of(stage->shape.embedding), rows_at, gain / 4, (float)stage->shape.embedding,
		  stage->shape.norm_epsilon};
	struct stage_dispatch dispatch = {.shader = STAGE_NORM,
					  .from = stage->x,
					  .to = stage->h,
					  .groups = {rows, 1, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

enum status stage_record_norm(const struct stage_recorder *recorder, uint32_t gain)
{
	return record_norm(recorder, gain, recorder->shape->rows, 0);
}

enum status stage_record_post(const struct stage_recorder *recorder, const struct backend_buffer *from,
			      const struct backend_buffer *to, uint32_t columns, uint32_t gain)
{
	struct backend_stage *stage = recorder->stage;
	struct {
		uint32_t columns, groups, gain;
		float epsilon;
	} push = {columns, stage_groups_of(columns), gain, stage->shape.norm_epsilon};
	struct stage_dispatch dispatch = {.shader = STAGE_POST,
					  .constants = {{0, from != NULL}},
					  .from = from ? from : to,
					  .to = to,
					  .groups = {recorder->shape->rows, 1, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

enum into { OUT, FROM_HOST, INTO }; // stage_move.comp
static enum status record_columns(const struct stage_recorder *recorder, const struct backend_buffer *from,
				  const struct backend_buffer *to, uint32_t rows, uint32_t columns, enum into into)
{
	struct backend_stage *stage = recorder->stage;
	struct {
		uint32_t columns, groups, from_at;
	} push = {columns, stage_groups_of(columns), stage->places.input};
	struct stage_dispatch dispatch = {.shader = STAGE_MOVE,
					  .constants = {{0, into}},
					  .from = from,
					  .to = to,
					  .groups = {up(columns, HEAD_LANES), rows, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

static enum status record_move(const struct stage_recorder *recorder, const struct backend_buffer *from,
			       const struct backend_buffer *to, uint32_t rows, enum into into)
{
	return record_columns(recorder, from, to, rows, recorder->stage->shape.embedding, into);
}

enum status stage_record_place(const struct stage_recorder *recorder, const struct backend_buffer *from,
			       const struct backend_buffer *to, uint32_t columns)
{
	return record_columns(recorder, from, to, recorder->shape->rows, columns, INTO);
}

static enum status record_input(const struct stage_recorder *recorder)
{
	struct backend_stage *stage = recorder->stage;
	if (!stage->params.embeds)
		return record_move(recorder, stage->x, stage->x, recorder->shape->rows, FROM_HOST);
	const struct stage_matrix *table = &stage->ends.matrices[ROLE_TOKEN_EMBEDDING];
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < table->chunk_count; i++) {
		const struct stage_chunk *chunk = &table->chunks[i];
		struct {
			struct push_matrix matrix;
			uint32_t tokens, first, count;
			float by;
		} push = {push_matrix(table, chunk), stage->places.tokens, chunk->first_row, chunk->rows,
			  stage->shape.embedding_scale > 0 ? stage->shape.embedding_scale : 1};
		struct stage_dispatch dispatch = {
			.shader = STAGE_EMBED,
			.constants = {{0, table->format}},
			.to = stage->x,
			.weights = chunk->set,
			.groups = {up(table->groups * 4ull, HEAD_LANES), recorder->shape->rows, 1},
			.push = &push,
			.push_bytes = sizeof(push)};
		if (i)
			stage_record_barrier(recorder);
		status = stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
	}
	return status;
}

// ---- encoders ----

// x = norm(x + what half a layer has as its bias).
static enum status record_end(const struct stage_recorder *recorder, const struct stage_layer *layer, bool attention)
{
	struct backend_stage *stage = recorder->stage;
	const enum model_role bias = attention ? ROLE_ATTENTION_OUTPUT_BIAS : ROLE_FFN_DOWN_BIAS;
	struct {
		uint32_t columns, groups, bias, gain, shift;
		float epsilon;
	} push = {stage->shape.embedding,
		  stage_groups_of(stage->shape.embedding),
		  model_has_role(&stage->shape, bias) ? layer->vectors[bias] : UINT32_MAX,
		  layer->vectors[attention ? ROLE_ATTENTION_POST_NORM : ROLE_FFN_POST_NORM],
		  layer->vectors[attention ? ROLE_ATTENTION_POST_BIAS : ROLE_FFN_POST_BIAS],
		  stage->shape.norm_epsilon};
	struct stage_dispatch dispatch = {.shader = STAGE_ENCODE,
					  .constants = {{0, true}},
					  .from = stage->x,
					  .to = stage->x,
					  .groups = {recorder->shape->rows, 1, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

// A feed-forward network without a gate: f = gelu(up x + bias).
static enum status record_gelu(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	struct {
		uint32_t columns, groups, bias, gain, shift;
		float epsilon;
	} push = {stage->shape.feed_forward,
		  stage_groups_of(stage->shape.feed_forward),
		  layer->vectors[ROLE_FFN_UP_BIAS],
		  0,
		  0,
		  0};
	struct stage_dispatch dispatch = {.shader = STAGE_ENCODE,
					  .constants = {{0, false}},
					  .from = stage->gate,
					  .to = stage->f,
					  .groups = {recorder->shape->rows, 1, 1},
					  .push = &push,
					  .push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

// ---- a layer ----

static enum status record_layer(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	uint32_t rows = recorder->shape->rows;
	const struct stage_matrix *matrices = layer->matrices;
	bool few = stage_rows_are_few(stage, rows), bare = stage->shape.bare_input, post = stage->shape.post_norm;
	const struct backend_buffer *in = few || bare ? stage->x : stage->h, *out = post ? stage->h : stage->x;
	const enum stage_epilogue last = post ? STAGE_STORE : STAGE_ADD;
	int64_t first_norm = few && !bare ? (int64_t)layer->vectors[ROLE_ATTENTION_NORM] : NONE;
	int64_t second_norm = few && !bare ? (int64_t)layer->vectors[ROLE_FFN_NORM] : NONE;
	const bool alone = stage->shape.gate == GATE_NONE, encoder = stage->shape.encoder;
	bool paired = !alone && matrices[ROLE_FFN_GATE].format == matrices[ROLE_FFN_UP].format;
	const uint32_t *bias = stage->shape.output_bias ? &layer->vectors[ROLE_ATTENTION_OUTPUT_BIAS] : NULL;
	const struct stage_product products[] = {
		{.matrix = &matrices[ROLE_Q], .from = in, .to = stage->q, .rows = rows, .norm = first_norm},
		{.matrix = &matrices[ROLE_K], .from = in, .to = stage->k, .rows = rows, .norm = first_norm},
		{.matrix = &matrices[ROLE_V], .from = in, .to = stage->v, .rows = rows, .norm = first_norm},
		{.matrix = &matrices[ROLE_ATTENTION_OUTPUT],
		 .from = stage->a,
		 .to = out,
		 .epilogue = last,
		 .rows = rows,
		 .norm = NONE,
		 .bias = bias},
		{.matrix = &matrices[ROLE_FFN_GATE],
		 .from = in,
		 .to = paired ? stage->f : stage->gate,
		 .epilogue = paired ? STAGE_PAIR : STAGE_STORE,
		 .rows = rows,
		 .norm = second_norm},
		{.matrix = &matrices[ROLE_FFN_UP],
		 .from = in,
		 .to = alone ? stage->gate : stage->f,
		 .also = alone ? NULL : stage->gate,
		 .epilogue = alone ? STAGE_STORE : STAGE_GATE,
		 .rows = rows,
		 .norm = second_norm},
		{.matrix = &matrices[ROLE_FFN_DOWN],
		 .from = stage->f,
		 .to = out,
		 .epilogue = last,
		 .rows = rows,
		 .norm = NONE},
	};
	const uint32_t number = stage_layer_number(stage, layer);
	const bool delta = stage->shape.layer_kinds[number] & LAYER_DELTA, latent = model_is_latent(&stage->shape);
	enum status status = delta    ? stage_record_delta(recorder, layer)
			     : latent ? stage_record_latent(recorder, layer)
				      : STATUS_OK;
	for (int i = delta || latent ? 4 : 0; !status && i < 7; i++) {
		if ((paired && i == 5) || (alone && i == 4))
			continue;
		const bool mixture = i == 4 && model_layer_has_experts(&stage->shape, number);
		if ((!few || mixture) && !bare && (i == 0 || i == 4)) {
			status = record_norm(recorder, layer->vectors[i ? ROLE_FFN_NORM : ROLE_ATTENTION_NORM], rows,
					     0);
			stage_record_barrier(recorder);
		}
		if (mixture)
			return status ? status : stage_record_experts(recorder, layer);
		if (!status)
			status = stage_record_product(recorder, &products[i]);
		if (i >= 2) // q, k and v do not depend on each other
			stage_record_barrier(recorder);
		if (!status && post && (i == 3 || i == 6)) {
			status = stage_record_post(
				recorder, stage->h, stage->x, stage->shape.embedding,
				layer->vectors[i == 3 ? ROLE_ATTENTION_POST_NORM : ROLE_FFN_POST_NORM]);
			stage_record_barrier(recorder);
		}
		if (!status && alone && i == 5) {
			status = record_gelu(recorder, layer);
			stage_record_barrier(recorder);
		}
		if (!status && encoder && (i == 3 || i == 6)) {
			status = record_end(recorder, layer, i == 3);
			stage_record_barrier(recorder);
		}
		if (!status && i == 2) {
			status = stage_record_attention(recorder, layer);
			stage_record_barrier(recorder);
		}
	}
	return status;
}

// ---- output ----

static enum status record_argmax(const struct stage_recorder *recorder)
{
	struct backend_stage *stage = recorder->stage;
	uint32_t vocabulary = stage->shape.vocabulary, runs = up(vocabulary, STAGE_ARGMAX_RUN);
	struct {
		uint32_t count, run;
	} first = {vocabulary, STAGE_ARGMAX_RUN}, last = {runs, runs};
	struct stage_dispatch dispatch = {.shader = STAGE_ARGMAX,
					  .constants = {{0, false}},
					  .from = stage->logits,
					  .to = stage->partial,
					  .groups = {runs, recorder->shape->outputs, 1},
					  .push = &first,
					  .push_bytes = sizeof(first)};
	enum status status = stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
	stage_record_barrier(recorder);
	dispatch.constants.values[1] = true;
	dispatch.from = stage->partial;
	dispatch.to = stage->told_tokens;
	dispatch.groups[0] = 1;
	dispatch.push = &last;
	return status ? status : stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

static enum status record_output(const struct stage_recorder *recorder)
{
	struct backend_stage *stage = recorder->stage;
	const struct stage_shape *shape = recorder->shape;
	if (!stage->params.predicts)
		return record_move(recorder, stage->x, stage->told_rows, shape->rows, OUT);
	if (!shape->outputs)
		return STATUS_OK;
	bool tied = stage->params.embeds && stage->shape.tied;
	struct stage_product product = {.matrix = &stage->ends.matrices[tied ? ROLE_TOKEN_EMBEDDING : ROLE_OUTPUT],
					.from = stage->h,
					.to = stage->logits,
					.epilogue = STAGE_STORE,
					.rows = shape->outputs,
					.norm = NONE};
	enum status status = record_norm(recorder, stage->ends.vectors[ROLE_OUTPUT_NORM], shape->outputs,
					 stage->places.outputs);
	stage_record_barrier(recorder);
	if (!status && shape->hidden)
		status = record_move(recorder, stage->h, stage->told_rows, shape->outputs, OUT);
	if (!status && (shape->logits || shape->argmax))
		status = stage_record_product(recorder, &product);
	stage_record_barrier(recorder);
	return status || !shape->argmax ? status : record_argmax(recorder);
}

// ---- programs ----

static double operations(const struct model_shape *shape, const struct stage_layer *layer, uint32_t rows)
{
	double weights = 0;
	for (int role = 0; role < ROLE_COUNT; role++) {
		const double each = (double)layer->matrices[role].rows * layer->matrices[role].columns;
		if (shape->experts && model_role_is_experts((enum model_role)role))
			weights += each * shape->experts_used / shape->experts;
		else
			weights += each;
	}
	return 2 * weights * rows;
}

static enum status begin_segment(struct stage_recorder *recorder, struct stage_program *program)
{
	struct backend_device *device = recorder->stage->device;
	VkCommandBuffer *commands = &program->segments[program->segment_count++];
	VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
						.commandPool = recorder->stage->commands,
						.level = VK_COMMAND_BUFFER_LEVEL_SECONDARY,
						.commandBufferCount = 1};
	VkCommandBufferInheritanceInfo inherits = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_INHERITANCE_INFO};
	VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
					  .pInheritanceInfo = &inherits};
	VkResult result = VK_SUCCESS;
	if (!*commands)
		result = device->fn.vkAllocateCommandBuffers(device->device, &allocate, commands);
	if (result)
		return vulkan_device_failed(device, recorder->error, "vkAllocateCommandBuffers", result);
	recorder->commands = *commands;
	result = device->fn.vkBeginCommandBuffer(*commands, &begin);
	return result ? vulkan_device_failed(device, recorder->error, "vkBeginCommandBuffer", result) : STATUS_OK;
}

static enum status end_segment(struct stage_recorder *recorder)
{
	struct backend_device *device = recorder->stage->device;
	VkResult result = device->fn.vkEndCommandBuffer(recorder->commands);
	return result ? vulkan_device_failed(device, recorder->error, "vkEndCommandBuffer", result) : STATUS_OK;
}

static enum status record(struct backend_stage *stage, struct stage_program *program, struct error *error)
{
	struct stage_recorder recorder = {.stage = stage, .shape = &program->shape, .error = error};
	double pending = 0;
	program->segment_count = 0;
	enum status status = begin_segment(&recorder, program);
	if (!status)
		status = record_input(&recorder);
	if (!status && model_is_latent(&stage->shape))
		status = stage_record_heads(&recorder);
	for (uint32_t i = 0; !status && i < stage->params.layer_count; i++) {
		pending += operations(&stage->shape, &stage->layers[i], program->shape.rows);
		if (pending > stage_segment_operations) {
			pending = 0;
			status = end_segment(&recorder);
			if (!status)
				status = begin_segment(&recorder, program);
		} else {
			stage_record_barrier(&recorder);
		}
		if (!status)
			status = record_layer(&recorder, &stage->layers[i]);
	}
	if (!stage->params.layer_count)
		stage_record_barrier(&recorder);
	if (!status)
		status = record_output(&recorder);
	return status ? status : end_segment(&recorder);
}

enum status stage_program(struct backend_stage *stage, const struct stage_shape *shape, struct stage_program **out,
			  struct error *error)
{
	struct stage_program *oldest = &stage->programs[0];
	for (int i = 0; i < STAGE_PROGRAMS; i++) {
		struct stage_program *program = &stage->programs[i];
		if (program->used && !memcmp(&program->shape, shape, sizeof(*shape))) {
			program->used = ++stage->uses;
			*out = program;
			return STATUS_OK;
		}
		if (program->used < oldest->used)
			oldest = program;
	}
	if (!oldest->segments)
		oldest->segments = calloc(stage->params.layer_count + 1ull, sizeof(VkCommandBuffer));
	if (!oldest->segments)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for commands");
	memcpy(&oldest->shape, shape, sizeof(*shape)); // with its padding: shapes are compared as bytes
	enum status status = record(stage, oldest, error);
	oldest->used = status ? 0 : ++stage->uses;
	*out = oldest;
	return status;
}

void stage_programs_finish(struct backend_stage *stage)
{
	for (int i = 0; i < STAGE_PROGRAMS; i++)
		free(stage->programs[i].segments);
	stage->device->fn.vkDestroyCommandPool(stage->device->device, stage->commands, NULL);
}
