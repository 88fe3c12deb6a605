/* The ends of an encoder (bert): what comes before its layers and behind them. The host computes both, for all back
 * ends: they are a few rows of tables and one norm, and back ends then have nothing but layers.
 *
 *     x = norm(embedding[token] + type[of the token] + place[its position])
 *     score = Wscore tanh(Whead x + bias) + bias         of the first token's x, of a reranker
 *
 * A token's type is 0; in a reranker, whose texts are pairs, it is 1 behind the first separator. Thread: the stage's.
 */
#pragma once
#include "engine/stage.h"

struct stage_encoder;

// Asks `params` for the tensors of the ends that the stage has. Errors: those of params->tensor, STATUS_OUT_OF_MEMORY.
enum status stage_encoder_create(struct stage_encoder **out, const struct stage_params *params, struct error *error);
void stage_encoder_destroy(struct stage_encoder **encoder);
uint64_t stage_encoder_bytes(const struct stage_encoder *encoder); // of host memory that the tables take
// The batch as the layers take and give it: what was embedded, and room for what comes out.
void stage_encoder_begin(struct stage_encoder *encoder, const struct stage_batch *batch, struct stage_batch *inner);
// What is wanted of what came out.
void stage_encoder_end(const struct stage_encoder *encoder, const struct stage_batch *batch);
// Of x (embedding) of the first token of a pair.
float stage_encoder_score(const struct stage_encoder *encoder, const float *x);
