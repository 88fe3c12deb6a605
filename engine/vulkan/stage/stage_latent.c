/* Records the dispatches of multi-head latent attention (engine/model/model.h, struct model_latent). See stage.h.
 *
 *     query, k = norm(x) * W | norm(query) | into places | heads = query * W
 *     | what turns: q and the page; the rest into places | q = k_b of each head | attention | heads = v_b of each head
 *     | into places | x += a * W
 *
 * The products of heads are those of experts (stage_experts.c) of which each row takes all. */
#include "engine/vulkan/stage/stage_program.h"

// ---- buffers ----

static uint64_t whole(uint32_t columns)
{
	return stage_groups_of(columns) * 32ull;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

// Numbers of a head that turn, and of its query or its result.
static uint32_t turned_of(const struct model_shape *shape)
{
	return shape->head_size - shape->latent.rank;
}

static uint64_t head_of(const struct model_latent *latent)
{
	return larger(latent->key_size, latent->value_size);
}

uint64_t stage_latent_widest(const struct model_shape *shape)
{
	const struct model_latent *latent = &shape->latent;
	const uint64_t slot = larger(whole(latent->rank), whole(latent->key_size));
	return latent->rank ? larger(whole(latent->query_rank), shape->heads * larger(slot, head_of(latent))) : 0;
}

enum status stage_latent_make(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	const struct model_latent *sizes = &shape->latent;
	struct stage_latent *latent = &stage->latent;
	if (!sizes->rank)
		return STATUS_OK;
	const uint64_t rows = 4ull * stage->rows, slots = rows * shape->heads; // of floats, in bytes
	const struct {
		struct backend_buffer **buffer;
		uint64_t bytes;
	} wanted[] = {
		{&latent->lists, 3 * slots + 4 * (shape->heads + 1ull)},
		{&latent->query, rows * whole(sizes->query_rank)},
		{&latent->query_h, rows * whole(sizes->query_rank)},
		{&latent->heads, slots * head_of(sizes)},
		{&latent->plain, slots * whole(sizes->key_size - turned_of(shape))},
		{&latent->values, slots * whole(sizes->rank)},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		status = stage_buffer_make(stage, wanted[i].buffer, wanted[i].bytes, EXOGPU_MEMORY_DEVICE, error);
		stage->memory.workspace_bytes += wanted[i].bytes;
	}
	return status;
}

void stage_latent_finish(struct backend_stage *stage)
{
	struct stage_latent *latent = &stage->latent;
	struct backend_buffer **buffers[] = {&latent->lists, &latent->query, &latent->query_h,
					     &latent->heads, &latent->plain, &latent->values};
	for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++)
		vulkan_buffer_destroy(stage->device, buffers[i]);
}

// ---- commands ----

enum status stage_record_heads(const struct stage_recorder *recorder)
{
	struct backend_stage *stage = recorder->stage;
	const struct {
		uint32_t heads, rows;
	} push = {stage->shape.heads, recorder->shape->rows};
	const struct stage_dispatch dispatch = {.shader = STAGE_HEADS,
						.to = stage->latent.lists,
						.groups = {push.heads * push.rows / STAGE_HEAD_LANES + 1, 1, 1},
						.push = &push,
						.push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

// What turns is turned: of queries, of which the rest goes into places; or of the latents, which go into their pages.
static enum status record_turns(const struct stage_recorder *recorder, const struct stage_layer *layer, bool keep)
{
	struct backend_stage *stage = recorder->stage;
	const struct model_shape *shape = &stage->shape;
	const uint32_t rank = shape->latent.rank, turned = turned_of(shape), plain = shape->latent.key_size - turned;
	const struct {
		uint32_t heads, plain, rank, turned, padded, to_groups, rope_at, slots_at, gain;
		float epsilon;
	} push = {shape->heads,
		  plain,
		  rank,
		  turned,
		  stage->padded,
		  stage_groups_of(plain),
		  stage->places.rope,
		  stage->places.slots,
		  layer->vectors[ROLE_K_NORM],
		  shape->norm_epsilon};
	const struct stage_dispatch dispatch = {.shader = STAGE_LATENT,
						.constants = {{0, keep}},
						.from = keep ? stage->k : stage->latent.heads,
						.to = stage->latent.plain,
						.also = stage->q,
						.pages = layer->set,
						.groups = {keep ? 1 : shape->heads, recorder->shape->rows, 1},
						.push = &push,
						.push_bytes = sizeof(push)};
	return stage_dispatch(stage, recorder->commands, &dispatch, recorder->error);
}

// Queries of heads, from the norm of x, and the rows' latents.
static enum status record_queries(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct stage_latent *latent = &stage->latent;
	const uint32_t rows = recorder->shape->rows, query_rank = stage->shape.latent.query_rank;
	const bool few = stage_rows_are_few(stage, rows);
	struct stage_product product = {.matrix = &layer->matrices[ROLE_K],
					.from = few ? stage->x : stage->h,
					.to = stage->k,
					.rows = rows,
					.norm = few ? (int64_t)layer->vectors[ROLE_ATTENTION_NORM] : STAGE_NO_NORM};
	enum status status = STATUS_OK;
	if (!few) {
		status = stage_record_norm(recorder, layer->vectors[ROLE_ATTENTION_NORM]);
		stage_record_barrier(recorder);
	}
	if (!status)
		status = stage_record_product(recorder, &product);
	product.matrix = &layer->matrices[query_rank ? ROLE_Q_A : ROLE_Q];
	product.to = query_rank ? latent->query : latent->heads;
	if (!status)
		status = stage_record_product(recorder, &product);
	stage_record_barrier(recorder);
	if (status || !query_rank)
		return status;
	status = stage_record_post(recorder, NULL, latent->query, query_rank, layer->vectors[ROLE_Q_NORM]);
	stage_record_barrier(recorder);
	if (!status)
		status = stage_record_place(recorder, latent->query, latent->query_h, query_rank);
	stage_record_barrier(recorder);
	product.matrix = &layer->matrices[ROLE_Q];
	product.from = latent->query_h;
	product.to = latent->heads;
	product.norm = STAGE_NO_NORM;
	if (!status)
		status = stage_record_product(recorder, &product);
	stage_record_barrier(recorder);
	return status;
}

enum status stage_record_latent(const struct stage_recorder *recorder, const struct stage_layer *layer)
{
	struct backend_stage *stage = recorder->stage;
	const struct stage_latent *latent = &stage->latent;
	struct stage_product of_heads = {.matrix = &layer->matrices[ROLE_K_B],
					 .from = latent->plain,
					 .to = stage->q,
					 .rows = recorder->shape->rows,
					 .norm = STAGE_NO_NORM,
					 .heads = true,
					 .by_slot = true,
					 .stride = stage->shape.head_size};
	const struct stage_product output = {.matrix = &layer->matrices[ROLE_ATTENTION_OUTPUT],
					     .from = stage->a,
					     .to = stage->x,
					     .epilogue = STAGE_ADD,
					     .rows = recorder->shape->rows,
					     .norm = STAGE_NO_NORM};
	enum status status = record_queries(recorder, layer);
	if (!status)
		status = record_turns(recorder, layer, false);
	if (!status)
		status = record_turns(recorder, layer, true);
	stage_record_barrier(recorder);
	if (!status)
		status = stage_record_product(recorder, &of_heads);
	stage_record_barrier(recorder);
	if (!status)
		status = stage_record_scores(recorder, layer);
	stage_record_barrier(recorder);
	of_heads.matrix = &layer->matrices[ROLE_V_B];
	of_heads.from = latent->values;
	of_heads.to = latent->heads;
	of_heads.stride = 0;
	if (!status)
		status = stage_record_product(recorder, &of_heads);
	stage_record_barrier(recorder);
	if (!status)
		status = stage_record_place(recorder, latent->heads, stage->a, model_attended(&stage->shape));
	stage_record_barrier(recorder);
	if (!status)
		status = stage_record_product(recorder, &output);
	stage_record_barrier(recorder);
	return status;
}
