/* Functions that the files that record a stage's programs share: stage_program.c, stage_attention.c, stage_delta.c and
 * stage_experts.c. See stage.h. Thread: that of the device. */
#pragma once
#include "engine/vulkan/stage/stage.h"

enum { STAGE_NO_NORM = -1, STAGE_HEAD_LANES = 64 };
enum stage_epilogue { STAGE_STORE, STAGE_ADD, STAGE_GATE, STAGE_PAIR }; // stage_epilogue.glsl

// The recording of one program.
struct stage_recorder {
	struct backend_stage *stage;
	const struct stage_shape *shape;
	VkCommandBuffer commands;
	struct error *error;
};

struct stage_product {
	const struct stage_matrix *matrix;
	const struct backend_buffer *from, *to, *also; // also: the gate's product
	enum stage_epilogue epilogue;
	uint32_t rows;
	int64_t norm; // the place of its gain in `vectors`, or STAGE_NO_NORM
	// For experts: the matrix has the rows of all experts, and each row is multiplied with those of the experts
	// that it chose. The output has a row for each slot; with by_slot so has the input.
	bool experts, by_slot;
	// Biases, or NULL: of the matrix, and of the other one of a pair. Where they are in `vectors`.
	const uint32_t *bias, *second_bias;
	// The same as experts for heads, of which each row takes all; `stride`: numbers of a slot of the output, where
	// there are more than the matrix makes.
	bool heads;
	uint32_t stride;
};

// A product; no barrier behind it.
enum status stage_record_product(const struct stage_recorder *recorder, const struct stage_product *product);
// Everything before is seen by everything behind.
void stage_record_barrier(const struct stage_recorder *recorder);
// Whether rows are so few that products read each weight once for each of them.
bool stage_rows_are_few(const struct backend_stage *stage, uint32_t rows);

// h = norm(x), all rows. No barrier behind it.
enum status stage_record_norm(const struct stage_recorder *recorder, uint32_t gain);

// The norm of whole rows: of `from`, added to x, or, of `from` NULL, of `to` in place. `gain`: where in `vectors`.
enum status stage_record_post(const struct stage_recorder *recorder, const struct backend_buffer *from,
			      const struct backend_buffer *to, uint32_t columns, uint32_t gain);

// Rows into places. No barrier behind it.
enum status stage_record_place(const struct stage_recorder *recorder, const struct backend_buffer *from,
			       const struct backend_buffer *to, uint32_t columns);

// Groups of 32 in a row.
static inline uint32_t stage_groups_of(uint32_t columns)
{
	return (columns + 31) / 32;
}

// The number of a layer in the model.
static inline uint32_t stage_layer_number(const struct backend_stage *stage, const struct stage_layer *layer)
{
	return stage->params.first_layer + (uint32_t)(layer - stage->layers);
}

// ---- stage_attention.c ----

// a = attention of q, k and v, which are there. No barrier behind it.
enum status stage_record_attention(const struct stage_recorder *recorder, const struct stage_layer *layer);

// The same of latents, whose queries and pages are ready; the results are stage->latent.values.
enum status stage_record_scores(const struct stage_recorder *recorder, const struct stage_layer *layer);

// ---- stage_latent.c ----

// The lists of products of heads, which are the same in all layers. No barrier behind it.
enum status stage_record_heads(const struct stage_recorder *recorder);
// x += what attention to latents gives for x.
enum status stage_record_latent(const struct stage_recorder *recorder, const struct stage_layer *layer);

// ---- stage_delta.c ----

// x += what the gated delta rule of a layer with a state gives for x.
enum status stage_record_delta(const struct stage_recorder *recorder, const struct stage_layer *layer);

// ---- stage_experts.c ----

// x += what the feed-forward part of a layer with experts gives for its input, which is in h.
enum status stage_record_experts(const struct stage_recorder *recorder, const struct stage_layer *layer);
